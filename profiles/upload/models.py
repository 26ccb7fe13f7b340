"""Uploaded bytes, each kept once."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class StoredUpload(models.Model):
    """One object of the store that uploads of the same bytes share, those of several projects too: no page shows this row."""

    FOLDER: ClassVar[str] = "uploads"       # of the keys

    sha256 = models.CharField(max_length=64, unique=True)
    key = models.CharField(max_length=400, blank=True)          # "": its first upload is storing it
    bytes = models.BigIntegerField()
    created = models.DateTimeField(auto_now_add=True)
    profiles = models.ManyToManyField("profiles.Profile", related_name="stored_uploads")

    def __str__(self) -> str:
        return self.key
