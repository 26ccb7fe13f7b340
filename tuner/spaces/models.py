"""Spaces that workers listed: what a vendor's library or program offers at a shape on a GPU model."""

from __future__ import annotations

from django.db import models

from workers.scope import OfProject


class ListedSpace(OfProject):
    """The newest listing of one problem, by the worker that led a job of it."""

    operator = models.CharField(max_length=60)
    dtype = models.CharField(max_length=16)
    shape_key = models.CharField(max_length=200)       # canonical text of the shape
    gpu = models.CharField(max_length=120)             # model
    library = models.CharField(max_length=200)         # with its version: "cublasLt 13.1.0"
    offer = models.JSONField()                         # tuner.tuning.offer.Offer.as_json
    listed = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-listed", "-id"]
        constraints = [models.UniqueConstraint(fields=["project", "operator", "dtype", "shape_key", "gpu"],
                                               name="listed_space_once")]

    def __str__(self) -> str:
        return f"{self.operator} {self.dtype} {self.shape_key} {self.gpu}"
