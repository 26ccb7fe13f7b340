"""Recordings: what an ingest reads, finds and stores of the same bytes is made once, by the real path, and kept.

A hundred and fifty tests of pages and API load the same ten recordings. The rows are written anew each time, of the result that was
kept, and the objects are copied. Other code of the readers, analyses or store, another version of what they read with, other bytes
or names are read anew; so is everything in tests of reading itself (fixture `reads_anew`), in forked processes, and what fails.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

from django.core.files.storage import FileSystemStorage, default_storage

from profiles.models import Profile
from profiles.progress import Progress
from profiles.store.objects import prefix
from profiles.upload.ingest_run import IngestResult
from tests.kept.folder import PROJECT, digest_of, keep

Read = Callable[[Profile, Progress], IngestResult]
CODE = ("profiles/ingest", "profiles/analysis", "profiles/store", "profiles/upload", "profiles/rows.py", "tests/kept/ingests.py")
PACKAGES = ("numpy", "pyarrow", "msgspec", "ncu-report", "protobuf", "isal", "zstandard", "duckdb")
NOT_DERIVED = ("upload", "typed")       # what people sent or typed; the rest under a profile's prefix is what an ingest made
RESULT, OBJECTS = "result.pickle", "objects"

is_asked = True         # fixture `reads_anew` makes it False


@cache
def state_of_code() -> str:
    return digest_of([PROJECT / each for each in CODE], PACKAGES)


def keeping(read: Read) -> Read:
    """`ingest_run.read_and_store`, which keeps its result and its objects."""
    process = os.getpid()

    def read_and_store(profile: Profile, progress: Progress) -> IngestResult:
        if not is_asked or os.getpid() != process or not isinstance(_storage(), FileSystemStorage):
            return read(profile, progress)
        folder = Path(_storage().path(prefix(profile.pk)))
        here: list[IngestResult] = []

        def make(fresh: Path) -> None:
            here.append(read(profile, progress))
            shutil.copytree(folder, fresh / OBJECTS, ignore=lambda at, names: NOT_DERIVED if Path(at) == folder else ())
            (fresh / RESULT).write_bytes(pickle.dumps(here[0]))

        kept = keep("ingests", f"{state_of_code()}-{_name(profile)}", make)
        if here:
            return here[0]
        shutil.copytree(kept / OBJECTS, folder, dirs_exist_ok=True)
        result: IngestResult = pickle.loads((kept / RESULT).read_bytes())       # noqa: S301 - written by these tests
        return result
    return read_and_store


def _storage() -> FileSystemStorage:
    default_storage.exists("")          # a proxy until it is asked
    storage: FileSystemStorage = default_storage._wrapped
    return storage


def _name(profile: Profile) -> str:
    files = [(each["name"], each["sha256"]) for each in profile.metadata.get("files", [])] or [(profile.file_name, profile.sha256)]
    asked = sorted((name, repr(value)) for name, value in profile.metadata.items() if name != "files")     # ranks by file, written
    return hashlib.sha256(repr((files, asked)).encode()).hexdigest()[:20]
