"""A node agent under 16 jobs for some minutes: `python -m tests.workers.agent.soak_node [--minutes 10] [--every 10]`.

Each job is a process that sends a window of 500 kernels every so many seconds. Printed as one JSON line: memory of the agent minute
by minute, its share of a core, windows that were dropped or refused, and whether the server has every launch that was sent."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from tests.workers.agent.server import Server, serve
from workers.agent.launches import Context, Gpu, Signature, Window, sum_durations
from workers.agent.link import Link, window_message
from workers.agent.send import Sender, Spool

JOBS, KERNELS, LAUNCHES, PREPARED = 16, 500, 30_000, 4


def run_job(number: int, at: str, seconds: float, every_s: float, told: Connection) -> None:
    """Send windows until the time is over; tell (windows, launches, dropped)."""
    chance = np.random.default_rng(number)
    share = 1 / np.arange(1, KERNELS + 1)
    signatures = [Signature(f"void kernel_{kernel}<float, {kernel}>(float*, int)", (kernel + 1, 1, 1), (128, 1, 1), 0)
                  for kernel in range(KERNELS)]
    prepared = []
    for _ in range(PREPARED):
        key = chance.choice(KERNELS, LAUNCHES, p=share / share.sum())
        prepared.append(sum_durations(key, (chance.lognormal(9, 0.4, LAUNCHES) * (1 + key / 100)).astype(np.int64), signatures))
    context, gpu = Context(f"job-{number}", "b", "NVIDIA H200"), Gpu(f"GPU-{number}", "NVIDIA H200", "h")
    link = Link(at, lambda: {"kind": "state", "job": context.job, "rank": number, "state": "collecting",
                             "dropped_windows": link.dropped})
    link.start()
    began_s, sent = time.monotonic() + every_s * number / JOBS, 0
    while (now_s := time.monotonic()) < began_s - every_s * number / JOBS + seconds:
        if now_s < began_s + sent * every_s:
            time.sleep(min(0.2, began_s + sent * every_s - now_s))
            continue
        link.put(window_message(Window(context, gpu, time.time_ns(), 200_000_000, int(every_s * 1e9), prepared[sent % PREPARED],
                                       number)))
        sent += 1
    link.end()
    link.join(10)
    told.send((sent, sent * LAUNCHES, link.dropped))


def measure(minutes: float, every_s: float) -> dict[str, Any]:
    with serve() as server, tempfile.TemporaryDirectory(prefix="rp") as folder:
        token, at = Path(folder, "token"), str(Path(folder, "a.sock"))
        token.write_text("secret")
        command = [sys.executable, "-m", "workers.agent.node", "--server", server.address, "--token-file", str(token), "--spool",
                   str(Path(folder, "spool")), "--socket", at, "--host", "h", "--no-captures"]
        child = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.getcwd()})
        while not os.path.exists(at):
            time.sleep(0.05)
        context = multiprocessing.get_context("spawn")
        ends, jobs = [], []
        for number in range(JOBS):
            mine, theirs = context.Pipe(duplex=False)
            jobs.append(context.Process(target=run_job, args=(number, at, minutes * 60, every_s, theirs)))
            ends.append(mine)
        cpu_s, began_s, rss_mb = cpu_seconds(child.pid), time.monotonic(), []
        for job in jobs:
            job.start()
        while any(job.is_alive() for job in jobs):
            rss_mb.append((time.monotonic() - began_s, memory_kb(child.pid, "VmRSS") / 1000))
            time.sleep(2.0)
        wall_s, cpu_s = time.monotonic() - began_s, cpu_seconds(child.pid) - cpu_s
        peak_mb = memory_kb(child.pid, "VmHWM") / 1000
        told = [end.recv() for end in ends]
        child.terminate()
        status = child.wait(60)
        return {"minutes": minutes, "jobs": JOBS, "every_s": every_s, "kernels": KERNELS, "status": status,
                "rss_mb_by_minute": by_minute(rss_mb), "rss_peak_mb": round(peak_mb, 1),
                "cpu_pct_of_a_core": round(100 * cpu_s / wall_s, 2), "windows": sum(each[0] for each in told),
                "dropped_windows": sum(each[2] for each in told),
                **arrived(server, sum(each[1] for each in told), Path(folder, "spool"))}


def arrived(server: Server, sent: int, spool: Path) -> dict[str, Any]:
    """Return what the server has; what the agent put on disk at its end is sent for it first."""
    rest = Spool(spool)
    sender = Sender(rest, server.address, lambda: "secret")
    while rest.batches:
        sender.step()
    batches = list(server.seen.values())
    taken = sum(int(batch.tables["kernels"]["launches"].sum()) for batch in batches)
    return {"batches": len(batches), "launches_sent": sent, "launches_arrived": taken,
            "refused_windows": batches[-1].state["refused_windows"], "jobs_told": len(batches[-1].state["jobs"])}


def by_minute(rss_mb: list[tuple[float, float]]) -> list[float]:
    """Return the most of each minute."""
    return [round(max(mb for at_s, mb in rss_mb if at_s // 60 == minute), 1) for minute in sorted({at // 60 for at, _ in rss_mb})]


def memory_kb(pid: int, name: str) -> int:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return int(status[name].split()[0])


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--minutes", type=float, default=10)
    asked.add_argument("--every", type=float, default=10, help="s between the windows of a job")
    options = asked.parse_args()
    sys.stdout.write(json.dumps(measure(options.minutes, options.every)) + "\n")


if __name__ == "__main__":
    main()
