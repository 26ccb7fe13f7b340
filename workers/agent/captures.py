"""Deep captures, sampled: which process records a few steps, within budgets per job, host and day, and what becomes of the trace.

Time-boxed; one at a time on a host, or several processes that were ordered together. The trace is uploaded as any other profile,
with tags that lead from the aggregates to it; how long it took and how large it is stand in its notes."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workers.agent.kineto import KinetoDaemon, capture_config, written_path

PATH = "/api/profiles/"
SETTLE_S = 2.0                      # a trace that did not grow for so long is whole
MOST_KEPT = 50
MOST_STEPS, MOST_MS = 50, 10_000
LEAST_LEAD_S = 8.0                  # Kineto asks every 5 s


@dataclass(frozen=True)
class Budget:
    """What captures may take on a host."""

    per_job_day: int = 4
    per_host_day: int = 16
    steps: int = 3
    duration_ms: int = 500          # where the job's optimizer counts no steps
    longest_s: float = 120.0
    most_bytes: int = 512 << 20


@dataclass
class Capture:
    """One order and what became of it. `state`: "asked", "uploading", "uploaded", "failed"."""

    pid: int
    job: str
    day: str
    path: str
    asked_s: float
    fields: dict[str, str]
    state: str = "asked"
    why: str = ""
    order: int | None = None        # its number on the server that ordered it
    profile: int | None = None      # what the server calls its trace
    took_s: float = 0.0
    bytes: int = 0
    grew: tuple[int, float] = (0, 0.0)
    start_ms: int = 0
    request: str = field(default_factory=lambda: uuid.uuid4().hex[:12])


class Captures:
    """`post(path, body, headers)` → answer, as `Sender.post`. `folder`: where Kineto may write."""

    def __init__(self, daemon: KinetoDaemon, folder: Path, post: Callable[[str, bytes, dict[str, str]], bytes],
                 budget: Budget | None = None) -> None:
        self.daemon, self.folder, self.post, self.budget = daemon, folder, post, budget or Budget()
        folder.mkdir(parents=True, exist_ok=True)
        self._counts = folder / "captures.json"
        self.every: list[Capture] = []

    @property
    def under_way(self) -> bool:
        return any(each.state in ("asked", "uploading") for each in self.every)

    def ask(self, pid: int, job: Mapping[str, Any], steps: int | None = None, why: str = "asked for",
            milliseconds: int | None = None, start_ms: int = 0, order: int | None = None) -> str:
        """Order a capture of a process; return "" where it is under way, else why not.

        `steps`: of the job's optimizer, 0 for a time of `milliseconds`. `start_ms`: when it begins, since 1970, with others that
        were ordered for the same moment; 0: at once.
        """
        day, name = _today(), str(job.get("job") or "")
        counts = self._read_counts(day)
        if any(each.state in ("asked", "uploading") and not (start_ms and each.start_ms == start_ms) for each in self.every):
            return "a capture is under way on this host"
        if start_ms and start_ms < time.time() * 1e3 + LEAST_LEAD_S * 1e3:
            return "the order came after the moment at which all were to begin"
        if counts.get("host", 0) >= self.budget.per_host_day:
            return f"this host made its {self.budget.per_host_day} captures of the day"
        if counts.get(f"job {name}", 0) >= self.budget.per_job_day:
            return f"the job made its {self.budget.per_job_day} captures of the day on this host"
        path = self.folder / f"capture-{int(time.time())}-{pid}.json"
        own = Capture(pid, name, day, str(path), time.monotonic(), _fields(job, why), order=order, start_ms=start_ms)
        counted = self.budget.steps if steps is None else min(steps, MOST_STEPS)
        duration_ms = min(milliseconds or self.budget.duration_ms, MOST_MS)
        config = capture_config(str(path), own.request, counted, duration_ms, start_ms=start_ms)
        if not self.daemon.arm(pid, config):
            return f"process {pid} asks for no captures: it needs KINETO_USE_DAEMON=1, and torch"
        self.every = [*self.every[-MOST_KEPT:], own]
        self._write_counts(day, {**counts, "host": counts.get("host", 0) + 1, f"job {name}": counts.get(f"job {name}", 0) + 1})
        return ""

    def poll(self) -> None:
        """Look for the trace of the capture under way; upload it once it is whole."""
        for own in self.every:
            if own.state != "asked":
                continue
            path, now_s = written_path(own.path, own.pid), time.monotonic()
            size = path.stat().st_size if path.exists() else 0
            if size != own.grew[0]:
                own.grew = (size, now_s)
            if size > self.budget.most_bytes:
                self._fail(own, path, f"its trace is above {self.budget.most_bytes:,} bytes")
            elif size and now_s - own.grew[1] >= SETTLE_S:
                own.state, own.took_s, own.bytes = "uploading", now_s - own.asked_s, size
                threading.Thread(target=self._upload, args=(own, path), name="ridgepoint-upload", daemon=True).start()
            elif now_s - own.asked_s > self.budget.longest_s:
                self._fail(own, path, f"no trace within {self.budget.longest_s:.0f} s")

    def _upload(self, own: Capture, path: Path) -> None:
        try:
            packed = path.with_name(path.name + ".gz")
            with path.open("rb") as source, gzip.open(packed, "wb", compresslevel=5) as target:
                shutil.copyfileobj(source, target)
            notes = f"Deep capture by the fleet's agent: {own.took_s:.1f} s from the order to the trace, {own.bytes:,} bytes."
            body, content_type = multipart({**own.fields, "notes": notes}, "file", packed.name, packed.read_bytes())
            own.profile = _profile_of(self.post(PATH, body, {"Content-Type": content_type}))
            own.state = "uploaded"
            packed.unlink()
            path.unlink()
        except Exception as error:          # of the network, the disk, the server: it is told, and the file stays
            own.state, own.why = "failed", f"not uploaded: {error}"[:300]

    def _fail(self, own: Capture, path: Path, why: str) -> None:
        own.state, own.why = "failed", why
        asking = self.daemon.processes.get(own.pid)
        if asking is not None:
            asking.orders.clear()
        path.unlink(missing_ok=True)

    def _read_counts(self, day: str) -> dict[str, int]:
        try:
            found = json.loads(self._counts.read_text())
        except (OSError, ValueError):
            return {}
        return dict(found["counts"]) if isinstance(found, dict) and found.get("day") == day else {}

    def _write_counts(self, day: str, counts: dict[str, int]) -> None:
        part = self._counts.with_suffix(".part")
        part.write_text(json.dumps({"day": day, "counts": counts}))
        os.replace(part, self._counts)


def _profile_of(answer: bytes) -> int | None:
    try:
        found = json.loads(answer)["id"]
    except (ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, int) else None


def multipart(fields: Mapping[str, str], file_field: str, file_name: str, data: bytes) -> tuple[bytes, str]:
    """Return (body, content type) of a form with one file."""
    edge = uuid.uuid4().hex
    parts = [f'--{edge}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
             for name, value in fields.items()]
    parts.append(f'--{edge}\r\nContent-Disposition: form-data; name="{file_field}"; filename="{file_name}"\r\n'
                 "Content-Type: application/gzip\r\n\r\n".encode() + data + b"\r\n")
    return b"".join(parts) + f"--{edge}--\r\n".encode(), f"multipart/form-data; boundary={edge}"


def _fields(job: Mapping[str, Any], why: str) -> dict[str, str]:
    def word(name: str) -> str:
        return "".join(" " if each in ',"\r\n\0' else each for each in str(job.get(name) or ""))[:80]

    tags = ["fleet", "deep"] + [f"{name}:{word(name).replace(' ', '_')}" for name in ("job", "host", "rank") if word(name)]
    return {"name": f"{word('job') or 'job'} on {word('host') or 'a host'}: {why}", "build": word("build"), "model": word("model"),
            "tags": ",".join(each[:60] for each in tags)}


def _today() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime())
