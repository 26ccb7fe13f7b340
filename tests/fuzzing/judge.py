"""One file before the readers, in a child with limits: what came of it, and whether that is allowed.

Allowed is a profile that was analysed and stored and that counts every record, or one TraceError that says where, what and
what to do; both within the limits of time and memory.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import select
import signal
import tempfile
import time
import traceback
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil

SECONDS, MEMORY_BYTES = 10.0, 1 << 30           # for files of a few hundred kilobytes


@dataclass(frozen=True)
class Verdict:
    """`wrong` is empty where everything is as it must be; else what is not, in words that are the same for the same fault."""

    wrong: str
    told: dict[str, Any]
    seconds: float
    peak_bytes: int         # beyond what the child held when it began


@cache
def prepare() -> None:
    """Import what a case needs before the first fork: a child then starts in milliseconds."""
    for name in ("ingest", "store.trace", "analysis.compare.comparison", "analysis.core.kernels", "analysis.core.result",
                 "analysis.kernel.counters", "analysis.kernel.findings_counters", "analysis.trace.breakdown",
                 "analysis.trace.findings"):
        importlib.import_module(f"profiles.{name}")
    importlib.import_module("profiles.ingest").import_readers()


def judged(path: Path, seconds: float = SECONDS, memory_bytes: int = MEMORY_BYTES) -> Verdict:
    """What the readers make of the file."""
    prepare()
    read, write = os.pipe()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(read)
        _child(path, write)
    os.close(write)
    told = _collected(read, began + seconds)
    late = time.monotonic() - began >= seconds
    if late:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)        # what the child started
    peak = max(0, used.ru_maxrss * 1024 - int((told or {}).get("held_bytes", 0)))
    wrong = _wrong(told, status, late, seconds, peak, memory_bytes)
    return Verdict(wrong, told or {}, time.monotonic() - began, peak)


def _collected(read: int, until: float) -> dict[str, Any] | None:
    parts: list[bytes] = []
    while (left := until - time.monotonic()) > 0:
        if not select.select([read], [], [], left)[0]:
            break
        block = os.read(read, 1 << 16)
        if not block:
            break
        parts.append(block)
    os.close(read)
    try:
        told: dict[str, Any] = json.loads(b"".join(parts))
    except ValueError:
        return None
    return told


def _wrong(told: dict[str, Any] | None, status: int, late: bool, seconds: float, peak: int, memory_bytes: int) -> str:
    if late:
        return f"took longer than {seconds:g} s"
    if told is None:
        return f"the process ended with status {os.waitstatus_to_exitcode(status)}"
    if peak > memory_bytes:
        return f"took more than {memory_bytes >> 20} MiB of memory"
    return str(told.get("wrong", ""))


def _child(path: Path, write: int) -> None:
    held_bytes = psutil.Process().memory_info().rss     # a fork begins with what its parent holds: other tests' data, say
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TMPDIR"] = tempfile.tempdir = folder
            told = look(path, Path(folder))
        os.write(write, json.dumps({**told, "held_bytes": held_bytes}).encode())
    finally:
        os._exit(0)


def look(path: Path, folder: Path) -> dict[str, Any]:
    """Read, analyse and store one file in this process: {"status", "wrong", …}."""
    from profiles import ingest
    from profiles.ingest.trace import TraceError

    try:
        found = ingest.read(path)
        told = {"status": "ready", "format": found.format, "wrong": _uncounted(found.integrity)}
        return {**told, "wrong": told["wrong"] or _analysed(found, folder)}
    except TraceError as error:
        incomplete = not (error.where and error.what and error.hint)
        return {"status": "failed", "error": str(error)[:500],
                "wrong": "an error without where, what or hint" if incomplete else ""}
    except BaseException as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "profiles" in frame.filename]
        place = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "?"
        return {"status": "broken", "wrong": f"{type(error).__name__} in {place}", "trace": traceback.format_exc()[-3000:]}


def _uncounted(integrity: Any) -> str:
    lost = sum(integrity.not_kept.values())
    if integrity.records_read != integrity.records_kept + lost:
        return "records are not counted: read ≠ kept + not kept"
    counts = (*integrity.not_kept.values(), *integrity.kinds.values(), integrity.records_read, integrity.records_kept)
    return "a negative count" if any(count < 0 for count in counts) else ""


def _analysed(found: Any, folder: Path) -> str:
    """Everything that an ingest does to what was read but for the database."""
    from profiles.analysis.compare.comparison import launches_of_report, launches_of_trace
    from profiles.analysis.core.kernels import kernel_table, summary_table
    from profiles.analysis.core.result import cut_tables
    from profiles.analysis.kernel import counters, findings_counters
    from profiles.analysis.trace import findings
    from profiles.analysis.trace.breakdown import breakdown, remark
    from profiles.ingest.trace import Report, Trace

    if isinstance(found, Trace):
        prepared = _store(folder).prepare(found)
        remark(found)
        kernels = kernel_table(found)
        split = breakdown(found)
        prepared.write(1)
        json.dumps([split.as_json(), found.metadata], allow_nan=False, default=str)
        findings.find(found, kernels, split)
        launches_of_trace(found)
        if any(row.total_ns < 0 or row.launches <= 0 for row in kernels):
            return "a kernel of negative time or without launches"
    elif isinstance(found, Report):
        counters.kernel_table(found)
        launches_of_report(found)
        findings_counters.find(found)
        for launch in found.launches:
            counters.launch_facts(launch)
    else:
        cut_tables(found)
        summary_table(found)
    return _uncounted(found.integrity)


def _store(folder: Path) -> Any:
    """The object store over a folder of this case; no database is asked."""
    from django.conf import settings
    from django.core.files.storage import storages

    from profiles.store import trace as store

    settings.HOME = folder
    settings.STORAGES = {"default": {"BACKEND": "django.core.files.storage.FileSystemStorage",
                                     "OPTIONS": {"location": folder / "store", "allow_overwrite": True}}}
    storages.backends = settings.STORAGES
    storages._storages = {}
    return store
