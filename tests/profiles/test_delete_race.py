"""A profile is deleted while its ingest writes its rows: the deletion waits, and takes them too."""

from __future__ import annotations

import io
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import File
from django.db import connection, transaction

from profiles.analysis.core import result as analysis
from profiles.models import Finding, KernelShape, KernelStat, Profile
from profiles.topics import services
from profiles.topics.table import TOPICS
from profiles.upload.services import profile_create, profile_delete

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def profile(tmp_store: object) -> Profile:
    return profile_create(owner=None, file=File(io.BytesIO(b"x"), name="x.json"), worker="test")


class Deletion(threading.Thread):
    """Deletes the profile in a connection of its own."""

    def __init__(self, profile: Profile) -> None:
        super().__init__()
        self.profile = profile
        self.failures: list[BaseException] = []

    def run(self) -> None:
        try:
            profile_delete(Profile.objects.get(pk=self.profile.pk))
        except BaseException as error:
            self.failures.append(error)
        finally:
            connection.close()

    def start_and_wait_until_it_waits(self) -> None:
        """For a row that this connection holds."""
        self.start()
        with connection.cursor() as cursor:
            end, waits = time.monotonic() + 30, 0
            while not waits and time.monotonic() < end:
                cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
                waits = cursor.fetchone()[0]
        assert waits


def test_rows_that_an_ingest_writes_meanwhile_go_too(profile: Profile) -> None:
    deleting = Deletion(profile)
    with transaction.atomic():
        Profile.objects.select_for_update().get(pk=profile.pk)          # as the end of an ingest does
        deleting.start_and_wait_until_it_waits()
        Finding.objects.create(profile_id=profile.pk, rule="r", severity="info", title="t", advice="a")
    deleting.join()
    assert not deleting.failures, deleting.failures
    assert not Profile.objects.exists() and not Finding.objects.exists()


def test_findings_of_an_analysis_are_written_anew_meanwhile(profile: Profile, tmp_store: Path, monkeypatch: pytest.MonkeyPatch
                                                            ) -> None:
    """Neither waits for what the other holds: PostgreSQL would end one of them (deadlock)."""
    finding = analysis.Finding("r", "info", "title", "advice", {})
    topic, result = next(each for each in TOPICS if each.name == "sequences"), analysis.Result("answer", findings=[finding])
    services._keep(profile, topic, result, {"answer": "answer"})
    deleting = Deletion(profile)

    def clean(value: object) -> object:         # between the old rows' end and the new ones' beginning
        deleting.start_and_wait_until_it_waits()
        return value

    monkeypatch.setattr(services, "json_safe", clean)
    services._keep(profile, topic, result, {"answer": "answer"})
    deleting.join()
    assert not deleting.failures, deleting.failures
    assert not Profile.objects.exists() and not Finding.objects.exists()
    monkeypatch.undo()
    services._keep(profile, topic, result, {"answer": "answer"})
    assert not Finding.objects.exists()
    assert not [path for path in tmp_store.rglob("*") if path.is_file()]         # no object of it either


def test_a_row_below_it_that_is_added_meanwhile_goes_too(profile: Profile) -> None:
    """PostgreSQL refuses the first deletion at its end: it had looked for such rows before this one was there."""
    kernel = KernelStat.objects.create(profile=profile, name="k", launches=1)
    added: list[int] = []

    def add() -> None:
        added.append(KernelShape.objects.create(kernel=kernel, launches=1, total_ns=1, min_ns=1, max_ns=1).pk)
        connection.close()

    def add_before_its_kernel_goes(execute: Any, sql: str, *arguments: Any) -> Any:
        if sql.startswith('DELETE FROM "profiles_kernelstat"') and not added:
            adding = threading.Thread(target=add)       # in a connection of its own
            adding.start()
            adding.join()
        return execute(sql, *arguments)

    with connection.execute_wrapper(add_before_its_kernel_goes):
        profile_delete(profile)
    assert added and not Profile.objects.exists() and not KernelShape.objects.exists()
