"""A kernel file that is named instead of sent: a path in a repository at a commit, or in a package at a version.

A worker fetches it (workers.code.kernel) and says what is in it; without a path it says which files hold kernels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.db import transaction

from profiles.base.refused import Refused
from tuner.bring.checks import services
from tuner.bring.travel.files import check_path, read_files
from tuner.models import KernelCheck
from tuner.tuning.trial import cleaned

GIT, PACKAGE = "git", "package"
MOST_FOUND, MOST_KERNELS = 500, 12
_ADDRESS = re.compile(r"(?:https|ssh|file)://[!-~]{1,290}\Z")
_PACKAGE = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?)\s*==\s*([A-Za-z0-9][A-Za-z0-9.!+_-]{0,59})\Z")
_COMMIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,79}\Z")
_KERNEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}\Z")
_HEX = re.compile(r"(?:sha256:)?[0-9a-f]{40,64}\Z")


def read_source(source: str, commit: str = "", path: str = "") -> dict[str, Any]:
    """Return {"kind", …} of an address with a commit, or of NAME==VERSION. Raises Refused."""
    source, commit, path = source.strip(), commit.strip(), path.strip().strip("/")
    try:
        location = {"path": check_path(path) if path else ""}
    except Refused as refused:
        raise Refused({"path": refused.what}) from refused
    if named := _PACKAGE.match(source):
        if commit:
            raise Refused({"commit": "a package has a version: NAME==VERSION"})
        return {"kind": PACKAGE, "name": named[1], "version": named[2], **location}
    if not _ADDRESS.match(source):
        raise Refused({"source": "a repository like https://host/team/kernels, or a package with its version: NAME==VERSION"})
    if not _COMMIT.match(commit) or ".." in commit:
        raise Refused({"commit": "a whole commit (40 hexadecimal digits), a branch or a tag"})
    return {"kind": GIT, "address": source, "commit": commit, **location}


def check_create(source: Mapping[str, Any], *, shape: str | Mapping[str, Any] = "", dtype: str = "", call: str = "",
                 owner: Any) -> KernelCheck:
    """Store a file that `read_source` names, and wake a worker that fetches it. Raises Refused."""
    request = services.read_asked(source["path"].rpartition("/")[2], shape, dtype, call)
    result = {"file": request["file"], "operators": [], "call": request.pop("call"), "proposals": []}
    return services.check_store(owner=owner, source=dict(source), text="", result=result, **request)


def source_text(source: Mapping[str, Any] | None) -> str:
    """Return where a file comes from, in one line; "" of one that was sent."""
    if not source:
        return ""
    if source["kind"] == PACKAGE:
        where = f"{source['name']}=={source['version']}"
    else:
        where = f"{source['address']} at {source.get('resolved') or source['commit']}"
    return f"{where}: {source['path']}" if source["path"] else where


# ---- what the worker writes ----


def check_fetched(check: KernelCheck, worker: str, reply: Any) -> KernelCheck | None:
    """Store what was fetched, read like an upload, and return the row to go on with; None where the check has ended by it.

    reply  {"resolved", "files"} and either {"text", "siblings"} of the path or {"found": [{"path", "kernels"}]}
    """
    named: dict[str, Any] = check.source or {}
    try:
        source = {**named, "resolved": _resolved(reply), "files": int(reply["files"])}
        if "found" in reply:
            source["found"] = _found(reply["found"])
            _end(check, worker, source)
            return None
        folder, _, file = named["path"].rpartition("/")
        text, siblings = services.check_text(str(reply["text"])), read_files(reply["siblings"])
        siblings.pop(named["path"], None)
        answer = services.read_alone({"file": file, "text": text, "shape": check.shape, "dtype": check.dtype})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        services.check_fail(check, worker, str(getattr(error, "what", error))[:400], "name another path")
        return None
    result = {**check.result, "file": file, "operators": answer["operators"], "proposals": answer["proposals"]}
    if not KernelCheck.leases.write(check.pk, worker, source=source, text=text, folder=folder, siblings=siblings, result=result,
                              adapters=answer["adapters"]):
        return None
    services.check_publish(check)
    return KernelCheck.objects.get(pk=check.pk)


def _resolved(reply: Mapping[str, Any]) -> str:
    if not isinstance(reply["resolved"], str) or not _HEX.match(reply["resolved"]):
        raise ValueError("a commit that is none")
    return reply["resolved"]


def _found(reply: Any) -> list[dict[str, Any]]:
    """Return the files that hold kernels, at most MOST_FOUND, those whose path cannot be named left out."""
    files = []
    for entry in list(reply)[:MOST_FOUND]:
        try:
            path = check_path(entry["path"])
        except Refused:
            continue
        names = [name for name in entry["kernels"] if isinstance(name, str) and _KERNEL.match(name)]
        files.append({"path": path, "kernels": names[:MOST_KERNELS], "count": int(entry["count"])})
    return files


def _end(check: KernelCheck, worker: str, source: Mapping[str, Any]) -> None:
    with transaction.atomic():
        if KernelCheck.leases.end(check.pk, worker, KernelCheck.Status.DONE, source=cleaned(source)):
            services.check_publish(KernelCheck.objects.get(pk=check.pk))
