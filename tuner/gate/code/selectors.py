"""The source of a suite's code, for pages and programs."""

from __future__ import annotations

from typing import Any

from tuner.models import CodeFetch, Suite, SuiteCode

SHOWN = 10


def code_of(suite: Suite) -> SuiteCode | None:
    """Return the source that an owner allowed; None where builds are those of the worker's environment."""
    return SuiteCode.objects.select_related("allowed_by").filter(suite=suite).first()


def code_json(suite: Suite) -> dict[str, Any]:
    """Return the source, its archives and the newest tries."""
    code = code_of(suite)
    if code is None:
        return {"suite": suite.name, "kind": None, "address": "", "folder": "", "archives": [], "fetches": []}
    archives = code.archives.defer("data")
    return {"suite": suite.name, "kind": code.kind, "address": code.address, "folder": code.folder,
            "allowed_by": code.allowed_by.get_username() if code.allowed_by else None, "changed": code.changed.isoformat(),
            "archives": [{"build": each.build, "sha256": each.sha256, "size_bytes": each.size_bytes,
                          "created": each.created.isoformat()} for each in archives],
            "fetches": [fetch_json(each) for each in code.fetches.all()[:SHOWN]]}


def fetch_json(fetch: CodeFetch) -> dict[str, Any]:
    """Return one try."""
    names = ("id", "build", "status", "said", "commit", "files", "size_bytes", "error", "worker")
    return {**{name: getattr(fetch, name) for name in names}, "created": fetch.created.isoformat(),
            "finished": fetch.finished.isoformat() if fetch.finished else None}
