"""Captures of running jobs on a GPU machine: `python -m tests.gpu.captures.running_on_gpu FOLDER [--product] [--seconds 30]`.

One training loop on one GPU is captured several times through the daemon's protocol with no change to its code: its step
time before, while it takes the order, records and writes, and after, each with a 95 % interval (means of seconds). Two ranks of
torchrun, a GPU each, are captured at one moment. `--product`: the running product with a GPU worker and `manage.py capture running`
in place of this script's own daemon (Django is needed, tests/gpu/README.md). FOLDER/running.jsonl has a line a capture and
FOLDER/*.json.gz the smallest traces, below 2 MB together. torch, numpy and psutil are needed. Exit status 1 where a check fails."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from workers.agent.deep.captures import Budget, Capture, Captures
from workers.agent.deep.kineto import KinetoDaemon, launchers
from workers.agent.deep.pace import Rows, compare
from workers.agent.deep.processes import command_of, gpus_by_process, holds_gpu

MOST_KEPT = 1_900_000               # bytes of traces
STARTS_S, CAPTURE_S = 90.0, 150.0
Say = Callable[[dict[str, Any]], None]


class Kept(Captures):
    """Keeps packed traces in a folder instead of sending them."""

    kept: dict[int, bytes]

    def deliver(self, own: Capture, packed: Path, notes: str) -> int | None:
        self.kept[own.order or 0] = packed.read_bytes()
        return None


class Host:
    """A daemon of this script's own, and the jobs that ask it."""

    def __init__(self, folder: Path, cpu: bool) -> None:
        self.folder, self.cpu = folder, cpu
        self.sockets = tempfile.mkdtemp(prefix="rk", dir="/tmp")
        self.traces = folder / "traces"
        self.environ = {**os.environ, "KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": self.sockets,
                        "KINETO_ONDEMAND_TRACE_DIR": str(self.traces), "PYTHONPATH": os.getcwd(), "RIDGEPOINT_JOB": "training"}
        self.jobs: list[subprocess.Popen[bytes]] = []
        self.made = 0

    def open(self) -> None:
        self.daemon = KinetoDaemon({"KINETO_IPC_SOCKET_DIR": self.sockets})
        self.captures = Kept(self.daemon, self.traces, lambda path, body, headers: b"", Budget(1000, 1000, longest_s=CAPTURE_S))
        self.captures.kept = {}

    def start(self, command: list[str], **more: str) -> subprocess.Popen[bytes]:
        log = (self.folder / "jobs.txt").open("ab")
        self.jobs.append(subprocess.Popen(command, env={**self.environ, **more}, stdout=log, stderr=log, start_new_session=True))
        return self.jobs[-1]

    def wait(self, condition: Callable[[], Any], seconds: float) -> Any:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self.daemon.poll()
            self.captures.poll()
            if found := condition():
                return found
            time.sleep(0.02)
        return None

    def capture(self, pids: list[int], **how: Any) -> list[Capture]:
        """Order of each, wait for all; several begin at one moment."""
        start_ms = int((time.time() + 20) * 1e3) if len(pids) > 1 else 0
        for pid in pids:
            self.made += 1
            why = self.captures.ask(pid, {"job": "training", "host": "gpu"}, start_ms=start_ms, order=self.made, **how)
            if why:
                raise RuntimeError(f"process {pid}: {why}")
        own = self.captures.every[-len(pids):]
        self.wait(lambda: all(each.state in ("uploaded", "failed") for each in own), CAPTURE_S + 30)
        return own

    def close(self) -> None:
        for job in self.jobs:
            end(job)
        if hasattr(self, "daemon"):
            self.daemon.close()
        shutil.rmtree(self.sockets, ignore_errors=True)


def end(job: subprocess.Popen[bytes]) -> None:
    """Kill a job with all that it started: torchrun's ranks are in sessions of their own."""
    if job.poll() is None:
        for child in psutil.Process(job.pid).children(recursive=True):
            child.kill()
        job.kill()
    job.wait()


def trace_facts(data: bytes) -> dict[str, Any]:
    """Return what a trace holds: events by kind, the span of its kernels since 1970, its rank."""
    trace = json.loads(gzip.decompress(data))
    events = [each for each in trace["traceEvents"] if each.get("ph") == "X"]
    kinds = Counter(str(each.get("cat")) for each in events)
    work = [each for each in events if each.get("cat") in ("kernel", "cpu_op")]
    base_us = int(trace.get("baseTimeNanoseconds") or 0) / 1e3
    begin, end = min((each["ts"] for each in work), default=0.0), max((each["ts"] + each["dur"] for each in work), default=0.0)
    return {"bytes": len(data), "kinds": dict(kinds), "begin_us": base_us + begin, "span_ms": (end - begin) / 1e3,
            "nccl": sum("nccl" in each.get("name", "").lower() for each in events),
            "rank": (trace.get("distributedInfo") or {}).get("rank"),
            "shapes": sum("Input Dims" in (each.get("args") or {}) for each in events)}


def cost_of(log: Path, began_s: float, whole_s: float, beside_s: float) -> dict[str, Any]:
    """Return what a capture cost by the loop's own log."""
    told = all_seconds(log)

    def between(low_s: float, high_s: float) -> Rows:
        return [told[at] for at in sorted(told) if low_s <= at < high_s]

    before, during, after = (between(began_s - beside_s, began_s - 1), between(began_s, whole_s),
                             between(whole_s + 1, whole_s + 1 + beside_s))
    if min(map(len, (before, during, after))) < 1:
        return {"why": f"too few seconds: {len(before)} before, {len(during)} during, {len(after)} after"}
    return {**compare(before, during, after), "seconds": [len(before), len(during), len(after)],
            "longest_step_ms": longest(log, began_s, whole_s)}


def all_seconds(log: Path) -> dict[int, tuple[int, float]]:
    """Return steps and their time in ms by second, of the whole log."""
    moments = np.frombuffer(log.read_bytes(), np.int64)
    second, took_ms = moments[1:] // 10**9, np.diff(moments) / 1e6
    found, first, counts = np.unique(second, return_index=True, return_counts=True)
    sums = np.add.reduceat(took_ms, first) if first.size else took_ms
    return {int(at): (int(count), float(total)) for at, count, total in zip(found, counts, sums, strict=True)}


def longest(log: Path, began_s: float, whole_s: float) -> float:
    moments = np.frombuffer(log.read_bytes(), np.int64)
    inside = moments[(moments >= began_s * 1e9 - 1e9) & (moments <= whole_s * 1e9 + 1e9)]
    return float(np.diff(inside).max() / 1e6) if inside.size > 1 else float("nan")


def one_gpu(host: Host, say: Say, beside_s: float, width: int) -> None:
    log = host.folder / "steps"
    job = host.start([sys.executable, "-m", "tests.gpu.captures.training_job", str(log), "580", "--width", str(width),
                      *(["--cpu"] if host.cpu else [])])
    if not host.wait(lambda: job.pid in host.daemon.processes and log.exists() and log.stat().st_size > 800, STARTS_S):
        say({"what": "one gpu", "ok": False, "why": "the job never asked", "log": (host.folder / "jobs.txt").read_text()[-2000:]})
        return
    say({"what": "asks", "pid": job.pid, "holds_gpu": holds_gpu(job.pid), "context": host.daemon.processes[job.pid].gpu,
         "nvml": nvml_says(job.pid), "command": command_of(job.pid)})
    host.wait(lambda: False, beside_s + 5)
    ways: list[dict[str, Any]] = [{"steps": 0, "milliseconds": 500}, {"steps": 0, "milliseconds": 200, "shapes": False},
                                  {"steps": 5}, {"steps": 0, "milliseconds": 200, "stacks": True}]
    for way in ways:
        (own,) = host.capture([job.pid], **way)
        host.wait(lambda: False, beside_s + 3)
        found = trace_facts(host.captures.kept[own.order or 0]) if own.state == "uploaded" else {}
        cost = cost_of(log, own.picked_s, own.whole_s, beside_s) if own.state == "uploaded" else {}
        say({"what": "one gpu", "asked": way, "state": own.state, "why": own.why, "took_s": own.took_s,
             "picked_to_whole_s": round(own.whole_s - own.picked_s, 2), "trace": found, "cost": cost,
             "ok": own.state == "uploaded" and bool(found["kinds"].get("cpu_op" if host.cpu else "kernel")) and job.poll() is None})
    end(job)


def torchrun(log: Path, ranks: int, port: int, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", str(port),
            "-m", "tests.gpu.captures.training_job", str(log), "400", *arguments]


def several_ranks(host: Host, say: Say, beside_s: float, ranks: int, arguments: list[str]) -> None:
    log = host.folder / "ranks"
    job = host.start(torchrun(log, ranks, 29533, *arguments))

    def workers() -> list[int]:
        every = list(host.daemon.processes.values())
        starting = launchers(every)
        return [each.pid for each in every if each.pid not in starting and Path(f"/proc/{each.pid}").exists()
                and "training_job" in command_of(each.pid) and each.pid != job.pid]
    pids = host.wait(lambda: len(found := workers()) == ranks and all(Path(f"{log}.{each}").exists() for each in range(ranks))
                     and found, STARTS_S)
    if not pids:
        say({"what": f"{ranks} ranks", "ok": False, "why": f"{workers()} asked",
             "log": (host.folder / "jobs.txt").read_text()[-2000:]})
        return
    starting = launchers(list(host.daemon.processes.values()))
    host.wait(lambda: False, beside_s)
    own = host.capture(pids, steps=0, milliseconds=200)
    host.wait(lambda: False, beside_s + 3)
    facts = [trace_facts(host.captures.kept[each.order or 0]) if each.state == "uploaded" else {} for each in own]
    begun_us = [each["begin_us"] for each in facts if each]
    apart_ms = (max(begun_us) - min(begun_us)) / 1e3 if all(facts) else None
    began_s, whole_s = max(own[0].picked_s, own[0].start_ms / 1e3), max(each.whole_s for each in own)
    costs = [cost_of(Path(f"{log}.{rank}"), began_s, whole_s, beside_s) for rank in range(ranks)] if all(facts) else []
    say({"what": f"{ranks} ranks", "states": [(each.state, each.why) for each in own], "pids": pids, "launcher": job.pid,
         "launcher_seen": job.pid in starting, "launcher_asks": job.pid in host.daemon.processes, "traces": facts,
         "begin_apart_ms": apart_ms, "nvml": [nvml_says(pid) for pid in pids], "costs": costs,
         "ok": all(facts) and {each["rank"] for each in facts} in (set(range(ranks)), {None}) and (apart_ms or 0) < 500
         and (host.cpu or all(each["nccl"] for each in facts))})
    end(job)


def with_product(host: Host, say: Say, ranks: int, arguments: list[str]) -> None:
    """The product with a GPU worker: one process, then all ranks, by the command; which rank is late, it says itself."""
    from tests.product import PROJECT, Product, clean_env

    home = host.folder / "home"
    home.mkdir()
    product = Product(home, "--port", "0", "--gpus", "1", env={"KINETO_IPC_SOCKET_DIR": host.sockets})
    try:
        product.wait_until_up()
        job = host.start([sys.executable, "-m", "tests.gpu.captures.training_job", str(host.folder / "p"), "300", *arguments],
                         RIDGEPOINT_JOB="alone")
        every = torchrun(host.folder / "q", ranks, 29541, *arguments)
        for name, chosen, start in (("alone", ["--pid", str(job.pid)], None),
                                    ("ranks", ["--job", "ranks", "--ranks", f"0-{ranks - 1}"], every)):
            if start:
                host.start(start, RIDGEPOINT_JOB="ranks")
            time.sleep(25)              # until it trains, and asks
            done = subprocess.run([sys.executable, "manage.py", "capture", "running", *chosen, "--seconds", "0.3", "--json",
                                   "--wait", "150"], cwd=PROJECT, env=clean_env(home), capture_output=True, text=True, timeout=200)
            document = json.loads(done.stdout or "{}")
            profile = product.get_json(f"/api/profiles/{document['profile']}/") if document.get("profile") else {}
            topics = {topic: product.get_json(f"/api/profiles/{document['profile']}/analysis/{topic}/")
                      for topic in ("causes", "communication") if profile.get("status") == "ready"}
            say({"what": f"product: {name}", "topics": topics, "exit": done.returncode, "document": document,
                 "error": done.stderr[-500:],
                 "profile": {key: profile.get(key) for key in ("name", "status", "kind", "launches", "gpu", "gpu_time_ns")},
                 "processes": [{key: each[key] for key in ("pid", "job", "rank", "gpu", "on_gpu", "launcher")}
                               for each in product.get_json("/api/fleet/captures/")["processes"]],
                 "ok": done.returncode == 0 and document.get("status") == "ready"})
    finally:
        product.stop()


def nvml_says(pid: int) -> str:
    """Return the GPU that NVML names for a process, or why it names none."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        found = gpus_by_process(pynvml, [(str(pynvml.nvmlDeviceGetUUID(handle)), handle) for handle in handles])
        return found.get(pid, f"not told; NVML names {len(found)} processes")
    except Exception as error:
        return f"no NVML: {error}"[:200]


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--product", action="store_true")
    asked.add_argument("--cpu", action="store_true", help="try the script where there is no GPU")
    asked.add_argument("--seconds", type=float, default=30.0, help="before and after each capture")
    asked.add_argument("--late", type=float, default=0.0, metavar="MS", help="one rank sleeps so long in each step")
    asked.add_argument("--width", type=int, default=0, help="of the model (default: 2048, 64 on a CPU)")
    options = asked.parse_args()
    work = Path(tempfile.mkdtemp(prefix="running"))
    host, said = Host(work, options.cpu), list[dict[str, Any]]()
    width = options.width or (64 if options.cpu else 2048)
    options.folder.mkdir(parents=True, exist_ok=True)

    def say(line: dict[str, Any]) -> None:
        said.append(line)
        text = json.dumps(line, default=str)
        with (options.folder / "running.jsonl").open("a") as stream:
            stream.write(text + "\n")
        print(text, flush=True)
    try:
        import torch

        say({"what": "machine", "torch": torch.__version__, "gpus": [] if options.cpu else [
            torch.cuda.get_device_name(each) for each in range(torch.cuda.device_count())]})
        ranks = 2 if options.cpu else torch.cuda.device_count()
        late = ["--late", str(max(ranks - 2, 0)), str(options.late)] if options.late else []
        arguments = ["--width", str(width), *(["--cpu"] if options.cpu else [])]
        if options.product:
            with_product(host, say, ranks, [*arguments, *late])
        else:
            host.open()
            if not options.late:
                one_gpu(host, say, options.seconds, width)
            if ranks > 1:
                several_ranks(host, say, options.seconds, ranks, [*arguments, *late])
            room = MOST_KEPT
            for number, data in sorted(host.captures.kept.items(), key=lambda each: len(each[1])):
                if len(data) <= room:
                    (options.folder / f"trace-{number}.json.gz").write_bytes(data)
                    room -= len(data)
    except Exception as error:
        say({"what": "failed", "ok": False, "why": f"{type(error).__name__}: {error}", "log": (
            (work / "jobs.txt").read_text()[-3000:] if (work / "jobs.txt").exists() else "")})
    finally:
        host.close()
        shutil.rmtree(work, ignore_errors=True)
    return 0 if all(each.get("ok", True) for each in said) else 1


if __name__ == "__main__":
    sys.exit(main())
