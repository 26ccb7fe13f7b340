"""Rows that a module makes once for all its tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction

from tests.tuner.gate.recorded_suite import nobody_watches


@pytest.fixture(scope="module")
def made_once(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """What a module's fixtures make after this is there for each of its tests, and gone with the last; what a test changes of it is
    undone after that test."""
    with django_db_blocker.unblock(), transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.fixture(scope="module")
def unwatched() -> Iterator[None]:
    """Suites run without the thread that looks for a stop, which could not see a test's open transaction."""
    with pytest.MonkeyPatch.context() as patch:
        nobody_watches(patch)
        yield
