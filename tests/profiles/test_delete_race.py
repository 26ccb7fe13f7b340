"""A profile is deleted while its ingest writes its rows: the deletion waits, and takes them too."""

from __future__ import annotations

import io
import threading
import time

import pytest
from django.core.files.base import File
from django.db import connection, transaction

from profiles.models import Finding, Profile
from profiles.upload.services import profile_create, profile_delete

pytestmark = pytest.mark.django_db(transaction=True)


def test_rows_that_an_ingest_writes_meanwhile_go_too(tmp_store: object) -> None:
    profile = profile_create(owner=None, file=File(io.BytesIO(b"x"), name="x.json"), worker="test")
    failures: list[BaseException] = []

    def delete() -> None:
        try:
            profile_delete(profile)
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    deleting = threading.Thread(target=delete)
    with transaction.atomic():
        Profile.objects.select_for_update().get(pk=profile.pk)          # as the end of an ingest does
        deleting.start()
        with connection.cursor() as cursor:
            end, waits = time.monotonic() + 30, 0
            while not waits and time.monotonic() < end:                 # until the other one waits for this row
                cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
                waits = cursor.fetchone()[0]
        assert waits
        Finding.objects.create(profile_id=profile.pk, rule="r", severity="info", title="t", advice="a")
    deleting.join()
    assert not failures, failures
    assert not Profile.objects.exists() and not Finding.objects.exists()
