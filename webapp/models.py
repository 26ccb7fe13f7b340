"""API tokens: knox keeps the digest, this adds what people need to manage them."""

from __future__ import annotations

from django.db import models
from knox.models import AbstractAuthToken


class ApiToken(AbstractAuthToken):
    """One token of one person. Only its SHA-512 digest and first characters are stored; the token is shown once."""

    class Scope(models.TextChoices):
        READ = "read"       # reading only, whatever the person may do
        WRITE = "write"     # what the person may do

    name = models.CharField(max_length=80)
    scope = models.CharField(max_length=8, choices=Scope, default=Scope.WRITE)

    class Meta:
        ordering = ["-created"]

    def __str__(self) -> str:
        return f"{self.name} of {self.user}"
