"""The source of a suite's code, for pages and programs."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from profiles.base.answers import ErrorJson, make_answer
from tuner.models import CodeFetch, Suite, SuiteCode

SHOWN = 10


def code_of(suite: Suite) -> SuiteCode | None:
    """Return the source that an owner allowed; None where builds are those of the worker's environment."""
    return SuiteCode.objects.select_related("allowed_by").filter(suite=suite).first()


class ArchiveJson(TypedDict):
    build: str
    sha256: str
    size_bytes: int
    created: str


class FetchJson(TypedDict):
    """A try to fetch a build's code; `said`: what was asked for, `commit`: what it is."""

    id: int
    build: str
    status: str
    said: str
    commit: str
    files: int | None
    size_bytes: int | None
    error: ErrorJson | None
    worker: str
    created: str
    finished: str | None


class CodeJson(TypedDict):
    """Where workers load the code of a suite's builds from; `kind` null: builds are what the workers have."""

    suite: str
    kind: str | None
    address: str
    folder: str
    allowed_by: NotRequired[str | None]
    changed: NotRequired[str]
    archives: list[ArchiveJson]
    fetches: list[FetchJson]


def code_json(suite: Suite) -> CodeJson:
    """Return the source, its archives and the newest tries."""
    code = code_of(suite)
    if code is None:
        return {"suite": suite.name, "kind": None, "address": "", "folder": "", "archives": [], "fetches": []}
    return make_answer(
        CodeJson, code, suite=suite.name, allowed_by=code.allowed_by.get_username() if code.allowed_by else None,
        changed=code.changed, archives=[make_answer(ArchiveJson, archive) for archive in code.archives.defer("data")],
        fetches=[fetch_json(fetch) for fetch in code.fetches.all()[:SHOWN]])


def fetch_json(fetch: CodeFetch) -> FetchJson:
    """Return one try."""
    return make_answer(FetchJson, fetch)
