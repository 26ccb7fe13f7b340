"""The agent of a host: `ridgepoint-agent --server https://… --token-file …`. One process, outward connections only.

Jobs send sums of windows over a UNIX socket; with what the GPUs say of themselves they become one batch a minute, on disk first,
then sent until the server has acknowledged it."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import dataclasses
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workers.agent import VERSION
from workers.agent.aggregate import Aggregator
from workers.agent.deep.asking import Askers
from workers.agent.deep.captures import Budget, Captures
from workers.agent.deep.engines import ENGINES, EngineRefused, Fetches, ask_engine, folders_of, is_fetch
from workers.agent.deep.kineto import KinetoDaemon
from workers.agent.deep.processes import gpus_by_process
from workers.agent.identity import machine_id
from workers.agent.launches import MINUTE_NS
from workers.agent.link import Frames, Listener, MessageRefused, SocketTaken, frame, read_window, socket_path
from workers.agent.send import Sender, Spool
from workers.agent.telemetry import Telemetry
from workers.agent.wire import make_batch, pack

M_TRIM_THRESHOLD, M_ARENA_MAX = -1, -8          # of glibc's malloc.h
GRACE_NS = 5_000_000_000            # after a minute's end its last windows come
OLDEST_NS, NEWEST_NS = 3_600_000_000_000, 300_000_000_000       # of windows that are taken, before and after now
KEEP_JOBS_S = 300.0                 # a job that is gone is shown for so long
MOST_JOBS = 256                     # in the state
MOST_PLACES = 1024                  # jobs times GPUs of one minute
JOB_FIELDS = ("job", "pid", "rank", "state", "why", "loss_pct", "loss_low_pct", "loss_high_pct", "coverage_pct", "records",
              "lost_records", "windows", "measured", "steps", "dropped_windows")


class Node:
    """Everything but the sender runs in the thread that calls `run`."""

    def __init__(self, spool: Spool, sender: Sender, listen_at: str, host: str, telemetry: Telemetry | None = None,
                 kineto: KinetoDaemon | None = None, budget: Budget | None = None, folders: Sequence[str] = ()) -> None:
        self.spool, self.sender, self.host = spool, sender, host
        self.fetches = Fetches(folders, sender.post) if folders else None
        self._run = int(time.time() * 1e3)                  # of an agent without `asking`, which has its own
        self._machine = machine_id()
        self.aggregator = Aggregator(MOST_PLACES)
        self.telemetry = telemetry
        self.kineto = kineto
        self.captures = Captures(kineto, spool.folder / "captures", sender.post, budget) if kineto else None
        self.asking = Askers(kineto, self.captures, host, self._job_told, self._gpus) if self.captures and kineto else None
        self.orders = self.asking.orders if self.asking else None
        self.jobs: dict[int, tuple[float, dict[str, Any]]] = {}
        self._pids: frozenset[int] = frozenset()            # that asked when it was last told
        self._next_orders_s, self._orders_body = 0.0, b""   # of the small question for orders; "": nothing to order
        self.refused_windows = 0
        self.ended = threading.Event()
        self.listener = Listener(listen_at, self._take, self._gone)
        if kineto is not None and kineto.socket is not None:
            self.listener.selector.register(kineto.socket, 1, kineto.poll)
        self._cpu = (time.process_time(), time.monotonic())

    def run(self) -> None:
        """Work until `ended` is set; what is open then goes to disk."""
        sending = threading.Thread(target=self._send, name="ridgepoint-send", daemon=True)
        sending.start()
        next_minute = self.now_ns() // MINUTE_NS + 1
        next_sample_s = time.monotonic()
        try:
            while not self.ended.is_set():
                self.listener.poll(min(1.0, max(0.0, next_sample_s - time.monotonic())))
                if time.monotonic() >= next_sample_s:
                    next_sample_s = max(next_sample_s + 1.0, time.monotonic())
                    self._each_second()
                if self.now_ns() >= next_minute * MINUTE_NS + GRACE_NS:
                    self.flush(next_minute)
                    next_minute = self.now_ns() // MINUTE_NS + 1
        finally:
            self.flush(None)
            self.listener.close()
            for part in (self.telemetry, self.kineto):
                if part is not None:
                    part.close()

    def flush(self, before_minute: int | None) -> int:
        """Put the minutes that ended before one (all: None) on disk as a batch; return its sequence number."""
        minutes = self.aggregator.take(None if before_minute is None else before_minute * MINUTE_NS)
        rows = self.telemetry.take(before_minute or 1 << 62) if self.telemetry else []
        state = self.state()
        if self.orders is not None:
            self.orders.mark_told()
        return self.spool.put(lambda sequence: pack(make_batch(self.spool.agent, sequence, self.now_ns(), minutes, rows, state)))

    def now_ns(self) -> int:
        """Return the server's time, as far as its answers tell it; this host's clock may be wrong."""
        return time.time_ns() + self._offset_ns()

    def _offset_ns(self) -> int:
        return int(self.sender.offset_s * 1e9)

    def state(self) -> dict[str, Any]:
        """Return what the agent tells of itself."""
        cpu_s, now_s = time.process_time(), time.monotonic()
        spent, self._cpu = (cpu_s - self._cpu[0]) / max(now_s - self._cpu[1], 1e-3), (cpu_s, now_s)
        for pid in [pid for pid, (seen_s, _) in self.jobs.items() if now_s - seen_s > KEEP_JOBS_S]:
            del self.jobs[pid]
        if self.captures is not None:
            self.captures.paces.forget(self.jobs)
        return {"version": VERSION, "pid": os.getpid(), "host": self.host, "machine": self._machine, "rss_bytes": _rss_bytes(),
                "clock_offset_s": round(self.sender.offset_s, 1),
                "cpu_pct": round(100 * spent, 3),
                "spool_bytes": self.spool.size_bytes, "spool_batches": self.spool.batches, "dropped_batches": self.spool.dropped,
                "refused_batches": self.spool.refused, "refused_windows": self.refused_windows, "sending": self.sender.why,
                "telemetry": self.telemetry.why if self.telemetry else "not asked for",
                "kineto": (self.kineto.why or f"{len(self.kineto.processes)} processes ask") if self.kineto else "not asked for",
                **(self.asking.state() if self.asking else {"asking": [], "captures": []}),
                **({"folders": self.fetches.roots} if self.fetches else {}),
                "jobs": [{name: job.get(name) for name in JOB_FIELDS} for _, job in list(self.jobs.values())[:MOST_JOBS]]}

    def _deep(self) -> dict[str, Any]:
        """Return what is told between batches."""
        return {"run": self._run, "machine": self._machine,
                **(self.asking.state() if self.asking else {"asking": [], "captures": []}),
                **(self.fetches.state() if self.fetches else {})}

    def _each_second(self) -> None:
        if self.telemetry is not None:
            self.telemetry.sample(self.now_ns())
        while not self.sender.orders.empty():
            self._order(self.sender.orders.get())
        if self.fetches is not None:
            self.fetches.tend()
        if self.asking is not None:
            self.asking.tend()
            self._tell_of_captures(self.asking)
        asks = self._pids or self.fetches is not None
        self._orders_body = json.dumps({"agent": self.spool.agent, "host": self.host, **self._deep()}).encode() if asks else b""

    def _order(self, order: object) -> None:
        if is_fetch(order):
            if self.fetches is not None:
                self.fetches.take(order)
        elif self.asking is not None:
            self.asking.orders.take(order)

    def _tell_of_captures(self, asking: Askers) -> None:
        if asking.orders.changed() or asking.pids() != self._pids:      # the server shows it without waiting for the minute
            self._pids = asking.pids()
            self.flush(self.now_ns() // MINUTE_NS)

    def _take(self, pid: int, message: dict[str, Any]) -> dict[str, Any] | None:
        kind = message.get("kind")
        if kind == "window":
            try:
                window = read_window(message)
                now_ns = time.time_ns()
                if not now_ns - OLDEST_NS < window.start_ns < now_ns + NEWEST_NS:
                    raise MessageRefused("a window of another time")
                if not self.aggregator.add(dataclasses.replace(window, start_ns=window.start_ns + self._offset_ns())):
                    raise MessageRefused(f"more than {MOST_PLACES:,} jobs and GPUs a minute")
            except MessageRefused:
                self.refused_windows += 1
        elif kind == "state":
            pace = message.pop("pace", None)
            if self.captures is not None:
                self.captures.paces.take(pid, pace)
            self.jobs[pid] = (time.monotonic(), {**message, "pid": pid})
        elif kind == "capture":
            return {"kind": "answer", "why": self._capture(message)}
        elif kind == "show":
            return {"kind": "answer", **self.state()}
        return None

    def _gone(self, pid: int) -> None:
        if pid in self.jobs:
            self.jobs[pid] = (self.jobs[pid][0], {**self.jobs[pid][1], "state": "ended"})

    def _capture(self, message: dict[str, Any]) -> str:
        if self.captures is None or self.kineto is None:
            return "this agent makes no captures: start it without --no-captures"
        asking = list(self.kineto.processes)
        pid = message.get("pid") or next((pid for pid in asking if self._job_of(pid).get("job") == message.get("job")), None)
        if not isinstance(pid, int):
            return f"no process of that job asks for captures; {len(asking)} processes do: {asking[:20]}"
        return self.captures.ask(pid, {"host": self.host, **self._job_of(pid)}, message.get("steps"))

    def _job_of(self, pid: int) -> dict[str, Any]:
        return self.asking.job_of(pid) if self.asking else {}

    def _job_told(self, pid: int) -> dict[str, Any] | None:
        entry = self.jobs.get(pid)
        return entry[1] if entry else None

    def _gpus(self) -> dict[int, str]:
        if self.telemetry is None or self.telemetry.nvml is None:
            return {}
        return gpus_by_process(self.telemetry.nvml, [(gpu.uuid, handle) for gpu, handle in self.telemetry.gpus])

    def _send(self) -> None:
        self.sender.measure_clock()
        while not self.ended.is_set():
            try:
                wait_s = self.sender.step()
                self._ask_for_orders()
            except Exception as error:              # of the disk, mostly: it is told and tried again
                self.sender.why, wait_s = f"{type(error).__name__}: {error}"[:300], 10.0
            self.ended.wait(wait_s)


    def _ask_for_orders(self) -> None:
        """Between batches, while processes ask for captures or folders may be fetched from: as often as the server says."""
        if self._orders_body and time.monotonic() >= self._next_orders_s:
            self._next_orders_s = time.monotonic() + self.sender.ask_for_orders(self._orders_body)


def spare_memory() -> None:
    """One heap for all threads, and what is free of it goes back to the system (glibc, `mallopt(3)`)."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_ARENA_MAX, 1)
        libc.mallopt(M_TRIM_THRESHOLD, 1 << 17)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the agent, or ask the one that runs."""
    parser = argparse.ArgumentParser(prog="ridgepoint-agent", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="run", choices=("run", "show", "capture", "engine"),
                       help="run the agent (default); show what it tells; capture some steps of a job; ask an engine for a capture")
    parser.add_argument("--server", default=os.environ.get("RIDGEPOINT_SERVER", ""), help="https://ridgepoint.example")
    parser.add_argument("--token-file", type=Path, default=os.environ.get("RIDGEPOINT_TOKEN_FILE"),
                        help="holds an API token; read whenever something is sent")
    parser.add_argument("--spool", type=Path, default=Path(os.environ.get("STATE_DIRECTORY") or "/var/lib/ridgepoint-agent"),
                        help="where batches wait (default: %(default)s; systemd says where in STATE_DIRECTORY)")
    parser.add_argument("--spool-mb", type=int, default=1024, help="at most; then the oldest go, and are counted")
    parser.add_argument("--socket", default=socket_path(), help="where jobs of this host connect (default: %(default)s)")
    parser.add_argument("--host", default=os.environ.get("RIDGEPOINT_HOST") or socket.gethostname())
    parser.add_argument("--no-telemetry", action="store_true", help="do not ask NVML and DCGM")
    parser.add_argument("--no-captures", action="store_true", help="do not listen as Kineto's daemon")
    parser.add_argument("--trace-folders", default=os.environ.get("RIDGEPOINT_AGENT_TRACE_FOLDERS", ""), metavar="/A:/B",
                        help="folders that traces of serving engines may be fetched from; no other path is read")
    parser.add_argument("--captures-per-job-day", type=int, default=Budget.per_job_day)
    parser.add_argument("--captures-per-day", type=int, default=Budget.per_host_day, help="on this host")
    parser.add_argument("--steps", type=int, help=f"of a capture (default {Budget.steps})")
    parser.add_argument("--pid", type=int)
    parser.add_argument("--job", default="")
    parser.add_argument("--engine", choices=ENGINES, default="vllm")
    parser.add_argument("--address", default="http://localhost:8000", help="of the engine")
    options = parser.parse_args(arguments)
    if options.what == "run":
        spare_memory()
    if options.what == "engine":
        try:
            answer = ask_engine(options.engine, options.address, options.steps or Budget.steps,
                                key=os.environ.get("RIDGEPOINT_ENGINE_KEY", ""))
            return _tell({"why": "", "answer": answer})
        except EngineRefused as refused:
            return _tell({"why": str(refused)})
    if options.what != "run":
        return _ask(options)
    if not options.server or not options.token_file:
        parser.error("--server and --token-file are needed")
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    try:
        spool = Spool(options.spool, options.spool_mb << 20)
        sender = Sender(spool, options.server, lambda: Path(options.token_file).read_text().strip())
        node = Node(spool, sender, options.socket, options.host, None if options.no_telemetry else Telemetry(options.host),
                    None if options.no_captures else KinetoDaemon(),
                    Budget(options.captures_per_job_day, options.captures_per_day), folders_of(options.trace_folders))
    except (OSError, ValueError, SocketTaken) as error:
        return _tell({"why": str(error)})
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: node.ended.set())
    node.run()
    return 0


def _ask(options: argparse.Namespace) -> int:
    message = {"kind": options.what, **({"pid": options.pid} if options.pid else {}), "job": options.job,
               **({"steps": options.steps} if options.steps else {})}
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(10)
            link.connect(options.socket)
            link.sendall(frame(message))
            frames = Frames()
            while data := link.recv(1 << 16):
                for answer in frames.feed(data):
                    return _tell(answer)
    except OSError as error:
        return _tell({"why": f"no agent at {options.socket}: {error}"})
    return _tell({"why": "the agent gave no answer"})


def _tell(answer: dict[str, Any]) -> int:
    sys.stdout.write(json.dumps(answer, indent=1, default=str) + "\n")
    return 1 if answer.get("why") else 0


def _rss_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


if __name__ == "__main__":
    sys.exit(main())
