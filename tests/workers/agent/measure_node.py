"""Memory and CPU of the node agent at 8 GPUs with 500 kernels each, windows every 4 s: `python -m
tests.workers.agent.measure_node`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tests.workers.agent.server import serve
from workers.agent.launches import Context, Gpu, Signature, Window, sum_durations
from workers.agent.link import Link, window_message

GPUS, KERNELS, EVERY_S, LAUNCHES = 8, 500, 4.0, 30_000          # arguments: SECONDS, and s between the windows of a GPU


def main(seconds: float = 130.0, every_s: float = EVERY_S) -> None:
    with serve() as server, tempfile.TemporaryDirectory(prefix="rp") as folder:
        token, at = Path(folder, "token"), str(Path(folder, "a.sock"))
        token.write_text("secret")
        command = [sys.executable, "-m", "workers.agent.node", "--server", server.address, "--token-file", str(token), "--spool",
                   str(Path(folder, "spool")), "--socket", at]
        child = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.getcwd()})
        while not os.path.exists(at):
            time.sleep(0.05)
        chance = np.random.default_rng(0)
        signatures = [Signature(f"void kernel_{number}<float, {number}>(float*, int)", (number + 1, 1, 1), (128, 1, 1), 0)
                      for number in range(KERNELS)]
        share = 1 / np.arange(1, KERNELS + 1)
        link = Link(at, lambda: {"kind": "state", "job": "j", "state": "collecting"})
        link.start()
        began, sent = time.monotonic(), 0
        while time.monotonic() - began < seconds:
            for gpu in range(GPUS):
                key = chance.choice(KERNELS, LAUNCHES, p=share / share.sum())
                dur_ns = (chance.lognormal(9, 0.4, LAUNCHES) * (1 + key / 100)).astype(np.int64)
                sums = sum_durations(key, dur_ns, signatures)
                place = (Context("j", "b", "NVIDIA H200"), Gpu(f"GPU-{gpu}", "NVIDIA H200", "h"))
                link.put(window_message(Window(*place, time.time_ns(), 200_000_000, 4_000_000_000, sums, gpu)))
                sent += LAUNCHES
            time.sleep(max(0.0, every_s - (time.monotonic() - began) % every_s))
        wall_s = time.monotonic() - began
        status = dict(line.split(":", 1) for line in Path(f"/proc/{child.pid}/status").read_text().splitlines() if ":" in line)
        fields = Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()
        cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        link.end()
        link.join()
        child.terminate()
        child.wait(30)
        found = {"seconds": round(wall_s), "launches": sent, "rss_mb": int(status["VmRSS"].split()[0]) / 1000,
                 "rss_peak_mb": int(status["VmHWM"].split()[0]) / 1000, "cpu_pct_of_a_core": 100 * cpu_s / wall_s,
                 "dropped_windows": link.dropped, "batches": len(server.seen)}
        sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
