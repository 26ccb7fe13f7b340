"""Channels that asked for the weekly digest, which is gone, hear nothing new in its place."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.apps import apps

from tuner.models import Notified


@pytest.mark.django_db
def test_who_asked_for_the_digest_gets_nothing_in_its_place() -> None:
    only, both, other = (Notified.objects.create(kind="email", address=f"{number}@example.org", verdicts=verdicts)
                         for number, verdicts in enumerate((["DIGEST"], ["SLOWER", "DIGEST"], [])))
    import_module("webapp.migrations.0009_no_digest").drop_events(apps, None)
    rows = {row.pk: (row.verdicts, row.enabled) for row in Notified.objects.all()}
    assert rows == {only.pk: ([], False), both.pk: (["SLOWER"], True), other.pk: ([], True)}
