"""Nsight Systems reports (`.nsys-rep`, `.qdrep`): closed and locked to a version, so read through NVIDIA's own exporter.

Where the ingest worker has `nsys`, the report is exported to SQLite in a child with limits and read from there; where it
has not, one error names the version that wrote it and the command to run.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from profiles.ingest import scratch
from profiles.ingest.core.source import Source
from profiles.ingest.nsys import sqlite
from profiles.ingest.nsys.program import nsys_path
from profiles.ingest.trace import Trace, TraceError

FORMAT = "nsys-rep"
MAGIC = b"NVIDIA Tegra Profiler Report "
CHILD = Path(__file__).with_name("nsys_child.py")
TIME_S = 1800.0
CPU_S = 3600
MEMORY_BYTES = 16 << 30             # address space: nsys maps its libraries and the report
EXPANSION = 60                      # an export is 1 to 20 times its report
_FREE_BYTES = 1 << 30
_HEAD = re.compile(rb"Report ([\w@.-]{1,60})")


def sniff(head: bytes) -> bool:
    return head.startswith(MAGIC)


def read(source: Source) -> Trace:
    """Raises TraceError where no `nsys` is here, or it refuses the report."""
    version = version_of(source.peek(200))
    nsys = nsys_path()
    if nsys is None:
        raise TraceError("byte 0",
                         f"an Nsight Systems report{_version_text(version)}: its format is closed, and this worker has no "
                         "`nsys` to export it", _hint(version))
    with scratch.folder() as folder, _link_report(source, folder, version) as report:
        out = folder / "export.sqlite"
        _export(nsys, report, out, source, version)
        with Source(out, lambda phase, done, total, records: source.progress(phase, records), source.limits) as export:
            trace = sqlite.read(export)
    trace.format = FORMAT
    trace.metadata = {"written by nsys": version, **trace.metadata} if version else trace.metadata
    return trace


def version_of(head: bytes) -> str:
    """Return the version in a report's first bytes, "" before 2021.4.

    "Report 2025@1@1@110-251135451612v0." -> "2025.1.1.110".
    """
    match = _HEAD.search(head)
    text = match[1].decode("ascii", "replace") if match else ""
    return text.split("-")[0].replace("@", ".").strip(".") if "@" in text else ""


def _version_text(version: str) -> str:
    return f" written by nsys {version}" if version else " of the time before 2021.4 (.qdrep)"


def _hint(version: str) -> str:
    newer = f"nsys {version} or newer" if version else "any nsys"
    return f"Run this where {newer} is installed, and upload out.sqlite: `nsys export --type sqlite -o out.sqlite file.nsys-rep`"


@contextmanager
def _link_report(source: Source, folder: Path, version: str) -> Iterator[Path]:
    """The report under a name that nsys takes: it looks at the ending."""
    with source.as_file() as path:
        link = folder / ("report.nsys-rep" if version else "report.qdrep")
        link.symlink_to(path.resolve())
        yield link


def _export(nsys: str, report: Path, out: Path, source: Source, version: str) -> None:
    size = report.stat().st_size
    limit = min(max(_FREE_BYTES, EXPANSION * size), source.limits.expanded_bytes)
    command = [sys.executable, "-I", str(CHILD), str(MEMORY_BYTES), str(CPU_S), str(limit), nsys, "export", "--type", "sqlite",
               "--force-overwrite", "true", "--output", str(out), str(report)]
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=report.parent,
                                 env={"PATH": os.environ.get("PATH", ""), "HOME": str(report.parent), "TMPDIR": str(report.parent),
                                      "LC_ALL": "C"}, start_new_session=True)
        try:
            ended = _wait(child, out, source)
        finally:
            _end(child)
        if ended or child.returncode or not out.is_file():
            output.seek(max(0, output.tell() - 4_000))
            why = ended or _last(output.read().decode("utf-8", "replace")) or f"it ended with status {child.returncode}"
            raise TraceError("nsys export", f"this worker's `nsys` could not export the report{_version_text(version)}: {why}",
                             _hint(version))


def _wait(child: subprocess.Popen[bytes], out: Path, source: Source) -> str:
    """Waits with progress; returns why the child must be ended, "" where it ended itself."""
    begun = time.monotonic()
    while child.poll() is None:
        if time.monotonic() - begun > TIME_S:
            return f"it ran longer than {TIME_S:.0f} s"
        source.progress("nsys export", out.stat().st_size // 1_000 if out.is_file() else 0)
        try:
            child.wait(0.5)
        except subprocess.TimeoutExpired:
            continue
    return ""


def _end(child: subprocess.Popen[bytes]) -> None:
    """The child and the helpers that it started: they are one session."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines[-2:])[:400].rstrip(". ")
