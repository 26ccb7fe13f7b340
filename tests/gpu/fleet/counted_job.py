"""A job that counts its own launches: `python -m tests.gpu.fleet.counted_job KERNEL DEVICE SECONDS`, KERNEL product or softmax.

The agent runs in it as in any job. At its end one JSON line: its steps, and what its agent sent, window by window."""

from __future__ import annotations

import json
import sys
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from typing import Any

from workers.agent import job
from workers.agent.launches import Window

LAUNCHES = 20                       # of one step
WORDS = {"product": ("gemm", "nvjet", "cutlass", "matmul"), "softmax": ("softmax",)}        # in the names of its kernels


def make(kernel: str, device: int) -> Callable[[], None]:
    """Return a step: LAUNCHES launches of one kernel, and the wait for them."""
    import torch

    torch.cuda.set_device(device)
    if kernel == "product":
        x = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
        out = torch.empty_like(x)

        def launch() -> None:
            torch.mm(x, x, out=out)
    else:
        x = torch.randn(8192, 4096, device="cuda")
        out = torch.empty_like(x)

        def launch() -> None:
            torch.softmax(x, -1, out=out)

    def step() -> None:
        for _ in range(LAUNCHES):
            launch()
        torch.cuda.synchronize()

    for _ in range(5):
        step()
    return step


def run(kernel: str, step: Callable[[], None], seconds: float) -> dict[str, Any]:
    own = job.start()
    assert own is not None
    windows: list[Window] = []
    send = own.collecting.sink

    def keep(found: list[Window]) -> None:
        windows.extend(found)
        send(found)

    own.collecting.sink = keep
    ends_ns, began_ns = [], time.time_ns()
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        step()
        job.step()
        ends_ns.append(time.time_ns())
    own.collecting.end()
    own.collecting.join(20)
    state = job.state()
    own.link.end()
    own.link.join(20)
    return {"kernel": kernel, "job": own.identity.job, "steps": len(ends_ns), "launches": len(ends_ns) * LAUNCHES,
            "seconds": (ends_ns[-1] - began_ns) / 1e9, "sent": summary(kernel, windows, ends_ns), "state": state}


def summary(kernel: str, windows: list[Window], ends_ns: list[int]) -> dict[str, Any]:
    """Return what was sent, and for each window its launches beside those that the loop made from its first to its last record."""
    launches: Counter[str] = Counter()
    ratios, estimated = [], 0.0
    for window in windows:
        seen = 0
        for one in window.kernels:
            launches[one.signature.kernel] += one.launches
            if any(word in one.signature.kernel.lower() for word in WORDS[kernel]):
                seen += one.launches
        estimated += seen * window.weight
        looped = LAUNCHES * (bisect_left(ends_ns, window.start_ns + window.observed_ns) - bisect_left(ends_ns, window.start_ns))
        if looped:
            ratios.append(seen / looped)
    return {"windows": len(windows), "launches": sum(launches.values()), "by_kernel": dict(launches), "estimated": estimated,
            "seen_by_looped": sorted(ratios), "gpus": sorted({window.gpu.uuid for window in windows}),
            "other_kernels": sorted(name for name in launches if not any(word in name.lower() for word in WORDS[kernel]))}


def main() -> None:
    kernel, device, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    sys.stdout.write(json.dumps(run(kernel, make(kernel, device), seconds)) + "\n")


if __name__ == "__main__":
    main()
