"""Profiles that are ready: each file is read once in a run, into a database beside the tests' own.

Only tests of this folder see it; what may write there is marked `django_db`: rolled back. A profile has the same id in every run.
Once all are ready they are kept for later runs over the same code.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.files.base import File
from django.db import connection
from django.test import override_settings

from profiles.families.follow_services import families_follow
from profiles.models import Profile
from profiles.store import frame
from profiles.topics.services import topics_make
from profiles.upload.services import profile_create, profile_delete, profile_ingest
from tests.kept.cluster import WITH_TABLES
from tests.servers import HOME
from tests.truth import kept_library
from tests.truth.asking import Asking
from tests.truth.files import FILES, Recording
from tuner.gate.builds.services import build_of_profile
from webapp.accounts import local_user

DATABASE = "ridgepoint_truth"


class Library:
    """The ready profiles of a run. `store` holds their objects."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.made = set[int]()
        self.is_open = False

    @staticmethod
    def storages(folder: Path) -> dict[str, Any]:
        """Return the settings of an object store over a folder."""
        options = {"location": folder, "allow_overwrite": True}
        return {**settings.STORAGES, "default": {"BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": options}}

    def open(self) -> None:
        """Use its database from now on: when first opened a new one, with what an earlier run over the same code and files kept."""
        if not self.is_open:
            with connection._nodb_cursor() as cursor:
                cursor.execute(f"CREATE DATABASE {DATABASE} TEMPLATE {WITH_TABLES}")
        connection.close()
        connection.settings_dict["NAME"] = DATABASE
        if not self.is_open and kept_library.restore(self.store):
            self.made.update(file.number for file in FILES)
        self.is_open = True

    def ready(self, file: Recording) -> Profile:
        """Return the profile of a file, read now where nobody has read it yet. Once all are, they are kept for later runs."""
        if file.number not in self.made:
            self._make(file)
            self.made.add(file.number)
            if len(self.made) == len(FILES):
                kept_library.keep_library(self.store)
        return Profile.objects.get(pk=file.number)

    def _make(self, file: Recording) -> None:
        for left in Profile.objects.filter(pk=file.number):         # of a test that was interrupted
            profile_delete(left)
        with file.path.open("rb") as content:
            profile = self.create(file.number, File(content, name=file.path.name))
        profile_ingest(profile.pk, "truth")
        families_follow(profile.pk)             # what follows in workers.stages, in this process
        topics_make(profile.pk)
        build_of_profile(profile.pk)
        frame.forget()                          # those of a hundred files would stay in memory

    def create(self, number: int, file: File[bytes]) -> Profile:
        """Store a file under an id that is free."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT setval(pg_get_serial_sequence('profiles_profile', 'id'), %s, false)", [number])
            return profile_create(owner=local_user(), file=file, worker="truth")


LIBRARY = Library(HOME / "truth")


@pytest.fixture(scope="module")
def library(django_db_setup: None, django_db_blocker: Any) -> Iterator[Library]:
    """The database of ready profiles in place of the tests' own, and its object store, while a module runs."""
    with django_db_blocker.unblock():
        own = connection.settings_dict["NAME"]
        try:
            LIBRARY.open()
            with override_settings(STORAGES=LIBRARY.storages(LIBRARY.store)):
                local_user()
                yield LIBRARY
        finally:
            connection.close()
            connection.settings_dict["NAME"] = own


@pytest.fixture(scope="module")
def profile(request: pytest.FixtureRequest, library: Library) -> Profile:
    """The ready profile of the file that a test is asked about."""
    ready = library.ready(request.param)
    assert ready.status == Profile.Status.READY, ready.error
    return ready


@pytest.fixture(scope="module")
def ask(profile: Profile) -> Asking:
    """Its pages, each fetched once."""
    return Asking(profile)
