"""Rows of own kernels: what travels with each job of one."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from workers.scope import OfProject


class OwnKernel(OfProject):
    """One version of a kernel, never changed: the texts of its files, the call that was recorded, the adapter written of both.

    Its name is that of an operator and ends with a part of the hash of all of these: another text is another version.
    """

    name = models.CharField(max_length=40, unique=True)
    kernel = models.CharField(max_length=120)          # the function, as its file names it
    file = models.CharField(max_length=300)            # its path below the root of `sources`
    origin = models.CharField(max_length=700, blank=True, db_default="")    # repository at a commit, or package; "": it was sent
    sources = models.JSONField()                       # {path: text}: the file, and those that it imports
    adapter = models.TextField()
    call = models.CharField(max_length=2000, blank=True)
    reference = models.CharField(max_length=120, blank=True)     # function that says what is right; "": the default's result
    description = models.TextField()                   # tuner.tuning.team.description as JSON: a text keeps the order of parameters
    source_hash = models.CharField(max_length=64)      # of sources and adapter
    check_made = models.ForeignKey("tuner.KernelCheck", null=True, on_delete=models.SET_NULL, related_name="own_kernels")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created", "-id"]
        indexes = [models.Index(fields=["file", "kernel"], name="ownkernel_versions")]

    @property
    def is_independent(self) -> bool:
        """Return whether something else than the default's own result says what is right: adapters say where it is that."""
        return "not independent" not in self.adapter

    def __str__(self) -> str:
        return self.name
