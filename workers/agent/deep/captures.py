"""Deep captures, sampled: which process records a few steps, within budgets per job, host and day, and what becomes of the trace.

Time-boxed; one at a time on a host, or several processes that were ordered together. The trace is uploaded as any other profile,
with tags that lead from the aggregates to it; how long it took and how large it is stand in its notes."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import threading
import time
import urllib.error
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workers.agent.deep.kineto import ASKS_EVERY_S, TOO_LATE_S, KinetoDaemon, capture_config, written_path
from workers.agent.deep.pace import BESIDE_S, Paces
from workers.agent.deep.processes import seen_from_here, trace_folder

PATH = "/api/profiles/"
SETTLE_S = 2.0                      # a trace that did not grow for so long is whole
MOST_KEPT = 50
MOST_STEPS, MOST_MS = 50, 10_000
LEAST_LEAD_S = ASKS_EVERY_S + 3.0
COST_WAIT_S = BESIDE_S + 45         # after a trace: until what it cost is told
UPLOADS = "/api/fleet/captures/"


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
    is_seen: bool = False           # it was in /proc when it was asked
    own_pid: int = 0                # as the process calls itself, and so its file
    asked_unix_s: float = field(default_factory=time.time)
    picked_s: float = 0.0           # since 1970: when the process took the order
    whole_s: float = 0.0            # and when its trace was whole
    cost: dict[str, Any] | None = None
    request: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    @property
    def written(self) -> Path:
        """Return its trace as it lies here."""
        return seen_from_here(str(written_path(self.path, self.own_pid or self.pid)), self.pid)


class Captures:
    """`post(path, body, headers)` → answer, as `Sender.post`. `folder`: where Kineto may write."""

    def __init__(self, daemon: KinetoDaemon, folder: Path, post: Callable[[str, bytes, dict[str, str]], bytes],
                 budget: Budget | None = None) -> None:
        self.daemon, self.folder, self.post, self.budget = daemon, folder, post, budget or Budget()
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o1777)                    # Kineto writes into it as the job's user
        self._counts = folder / "captures.json"
        self.every: list[Capture] = []
        self.paces = Paces()

    @property
    def under_way(self) -> bool:
        return any(capture.state in ("asked", "uploading") for capture in self.every)

    def ask(self, pid: int, job: Mapping[str, Any], steps: int | None = None, why: str = "asked for",
            milliseconds: int | None = None, start_ms: int = 0, order: int | None = None, shapes: bool = True,
            stacks: bool = False) -> str:
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
        path = self._folder_of(pid) / f"capture-{int(time.time())}-{uuid.uuid4().hex[:8]}-{pid}.json"
        own = Capture(pid, name, day, str(path), time.monotonic(), _fields(job, why), order=order, start_ms=start_ms)
        counted = self.budget.steps if steps is None else min(steps, MOST_STEPS)
        duration_ms = min(milliseconds or self.budget.duration_ms, MOST_MS)
        config = capture_config(str(path), own.request, counted, duration_ms, shapes, start_ms=start_ms, stacks=stacks)
        if not self.daemon.arm(pid, config):
            return f"process {pid} asks for no captures: it needs KINETO_USE_DAEMON=1, and torch"
        own.own_pid, own.is_seen = self.daemon.processes[pid].own_pid, Path(f"/proc/{pid}").exists()
        self.every = [*self.every[-MOST_KEPT:], own]
        self._write_counts(day, {**counts, "host": counts.get("host", 0) + 1, f"job {name}": counts.get(f"job {name}", 0) + 1})
        return ""

    def _folder_of(self, pid: int) -> Path:
        """Where Kineto of that process may write: what its environment names; unset, below /tmp; else this agent's own folder."""
        named = trace_folder(pid)
        if named:
            if not seen_from_here(named, pid).exists():         # Kineto makes none, and writes nothing then
                with contextlib.suppress(OSError):
                    Path(named).mkdir(mode=0o1777, parents=True, exist_ok=True)
            return Path(named)
        if named is None or str(self.folder.resolve()).startswith("/tmp/"):
            return self.folder
        own = Path("/tmp", f"ridgepoint-captures-{os.getuid()}")
        own.mkdir(exist_ok=True)
        own.chmod(0o1777)
        return own

    def stop(self, order: int) -> None:
        """End a capture that was ordered: one that its process took already is recorded to its end and thrown away."""
        for own in self.every:
            if own.order == order and own.state == "asked":
                self._fail(own, own.written, "stopped")

    def poll(self) -> None:
        """Look for the trace of the capture under way; upload it once it is whole."""
        for own in self.every:
            if own.state == "uploaded" and own.cost is None:
                self._look_at_cost(own)
            if own.state != "asked":
                continue
            asking, path, now_s = self.daemon.processes.get(own.pid), own.written, time.monotonic()
            if not own.picked_s and asking is not None and not asking.orders:
                own.picked_s = time.time()
            size = _size(path)
            if size != own.grew[0]:
                own.grew, own.whole_s = (size, now_s), time.time()
            if size > self.budget.most_bytes:
                self._fail(own, path, f"its trace is above {self.budget.most_bytes:,} bytes")
            elif size and now_s - own.grew[1] >= SETTLE_S:
                own.state, own.took_s, own.bytes = "uploading", now_s - own.asked_s, size
                threading.Thread(target=self._upload, args=(own, path), name="ridgepoint-upload", daemon=True).start()
            elif not size and own.start_ms and own.picked_s > own.start_ms / 1e3 - TOO_LATE_S:
                self._fail(own, path, "it took the order after the moment at which all were to begin")
            elif not size and own.is_seen and not Path(f"/proc/{own.pid}").exists():
                self._fail(own, path, "the process ended")
            elif now_s - own.asked_s > self.budget.longest_s + max(0.0, own.start_ms / 1e3 - own.asked_unix_s):
                self._fail(own, path, f"no trace within {self.budget.longest_s:.0f} s" + self._why_none(own))

    def _why_none(self, own: Capture) -> str:
        if own.pid not in self.daemon.processes:
            return ": the process no longer asks"
        if not own.picked_s:
            return ": it did not take the order"
        folder = str(Path(own.path).parent)
        return "" if seen_from_here(folder, own.pid).exists() else f": there is no folder {folder}"

    def _look_at_cost(self, own: Capture) -> None:
        if not own.picked_s or time.time() > own.whole_s + COST_WAIT_S or self.paces.is_complete(own.pid, own.whole_s):
            began_s = max(own.picked_s, own.start_ms / 1e3)
            own.cost = self.paces.cost(own.pid, began_s, own.whole_s)

    def deliver(self, own: Capture, packed: Path, notes: str) -> int | None:
        """Hand a packed trace to the server; return the number of its profile, None where the server joins it with others first."""
        path = PATH if own.order is None else f"{UPLOADS}{own.order}/trace/"
        fields = {**own.fields, "notes": notes}
        try:
            return self._post_file(path, packed, fields)
        except urllib.error.HTTPError as error:
            if own.order is None or error.code != 404:
                raise
        return self._post_file(PATH, packed, fields)        # a server of before

    def _post_file(self, path: str, packed: Path, fields: Mapping[str, str]) -> int | None:
        body, content_type = multipart(fields, "file", packed.name, packed.read_bytes())
        return _profile_of(self.post(path, body, {"Content-Type": content_type}))

    def _upload(self, own: Capture, path: Path) -> None:
        try:
            packed = self.folder / (path.name + ".gz")
            with path.open("rb") as source, gzip.open(packed, "wb", compresslevel=5) as target:
                shutil.copyfileobj(source, target)
            own.profile = self.deliver(own, packed, f"Deep capture by the fleet's agent: {own.took_s:.1f} s from the order to the "
                                                    f"trace, {own.bytes:,} bytes.")
            own.state = "uploaded"
            packed.unlink()
            _remove(path)
        except Exception as error:          # of the network, the disk, the server: it is told, and the file stays
            own.state, own.why = "failed", f"not uploaded: {error}"[:300]

    def _fail(self, own: Capture, path: Path, why: str) -> None:
        own.state, own.why = "failed", why
        asking = self.daemon.processes.get(own.pid)
        if asking is not None:
            asking.orders.clear()
        _remove(path)

    def _read_counts(self, day: str) -> dict[str, int]:
        try:
            document = json.loads(self._counts.read_text())
        except (OSError, ValueError):
            return {}
        return dict(document["counts"]) if isinstance(document, dict) and document.get("day") == day else {}

    def _write_counts(self, day: str, counts: dict[str, int]) -> None:
        part = self._counts.with_suffix(".part")
        part.write_text(json.dumps({"day": day, "counts": counts}))
        os.replace(part, self._counts)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _remove(path: Path) -> None:
    """Of another user in a shared folder it may have to stay: its owner's system clears such folders."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def _profile_of(answer: bytes) -> int | None:
    try:
        profile_id = json.loads(answer)["id"]
    except (ValueError, KeyError, TypeError):
        return None
    return profile_id if isinstance(profile_id, int) else None


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
        return "".join(" " if letter in ',"\r\n\0' else letter for letter in str(job.get(name) or ""))[:80]

    tags = ["fleet", "deep"] + [f"{name}:{word(name).replace(' ', '_')}" for name in ("job", "host", "rank") if word(name)]
    return {"name": f"{word('job') or 'job'} on {word('host') or 'a host'}: {why}", "build": word("build"), "model": word("model"),
            "tags": ",".join(tag[:60] for tag in tags)}


def _today() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime())
