"""Rows of what compilers and autotuners of jobs keep here for other hosts."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from workers.scope import OfProject


class CompiledFile(OfProject):
    """A file that a tool keeps under its own key. Its bytes lie in the object store by their hash, once for a project."""

    tool = models.CharField(max_length=12)                       # tuner.cache.compiled.services.TOOLS
    key = models.CharField(max_length=100)                       # the tool's: a hash of source, options, versions
    name = models.CharField(max_length=160)
    sha256 = models.CharField(max_length=64)
    size_bytes = models.BigIntegerField()
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    created = models.DateTimeField(auto_now_add=True)
    used = models.DateTimeField(auto_now_add=True)               # asked for, to the day

    class Meta:
        ordering = ["-created", "-id"]
        constraints = [models.UniqueConstraint(fields=["project", "tool", "key", "name"], name="compiledfile_once")]
        indexes = [models.Index(fields=["project", "used"], name="compiledfile_used"),
                   models.Index(fields=["project", "sha256"], name="compiledfile_bytes")]

    def __str__(self) -> str:
        return f"{self.tool} {self.key[:12]} {self.name}"
