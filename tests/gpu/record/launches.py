"""Record traces of launches whose truth is known by how they are made.

    python tests/gpu/record/launches.py FOLDER

Needs torch and one GPU; half a minute. Everything runs once before it is recorded: modules are loaded lazily.

queue_full   a long sleep, then 3,000 tiny launches behind it: the queue fills, one call blocks; how deep it got is the finding
streams      two streams and an event, a copy from pinned memory on a stream of its own, one from pageable memory
host_bound   400 tiny kernels, each launch slower than its kernel, `.item()` at the end
graph        a captured graph with a fork and a join (two branches, four kernels), replayed 5 times
"""

from __future__ import annotations

import gzip
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function


class Work:
    def __init__(self) -> None:
        self.x = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
        self.small = torch.ones(256, device="cuda")
        self.pinned = torch.empty(64 << 20, dtype=torch.uint8, pin_memory=True)
        self.paged = torch.empty(64 << 20, dtype=torch.uint8)
        self.target = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
        self.side = torch.cuda.Stream()
        self.captured = torch.cuda.CUDAGraph()
        self.capture()

    def capture(self) -> None:
        x, fork, join = self.x, torch.cuda.Event(), torch.cuda.Event()
        for _ in range(3):
            x @ x
        torch.cuda.synchronize()
        with torch.cuda.graph(self.captured):
            main = torch.cuda.current_stream()
            fork.record(main)
            a = x @ x
            with torch.cuda.stream(self.side):
                self.side.wait_event(fork)
                b = (x + 1) @ x
                join.record(self.side)
            main.wait_event(join)
            self.kept = a + b

    def queue_full(self) -> None:
        torch.cuda._sleep(200_000_000)
        for _ in range(3000):
            self.small.add_(1)
        torch.cuda.synchronize()

    def streams(self) -> None:
        x, done, mark = self.x, torch.cuda.Event(), torch.cuda.Event()
        x @ x
        with torch.cuda.stream(self.side):
            self.target.copy_(self.pinned, non_blocking=True)
            done.record(self.side)
        for _ in range(8):
            y = x @ x
        torch.cuda.current_stream().wait_event(done)
        self.target.add_(1)
        self.target.copy_(self.paged)
        y = x @ x
        mark.record()
        mark.synchronize()
        float(y[0, 0])

    def host_bound(self) -> None:
        for _ in range(400):
            self.small.add_(1)
        self.small[0].item()

    def graph(self) -> None:
        for _ in range(5):
            self.captured.replay()
        torch.cuda.synchronize()


def record(name: str, run: Callable[[], None], folder: Path) -> None:
    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as found:
        with record_function(f"truth_{name}"):
            run()
        torch.cuda.synchronize()
    with tempfile.NamedTemporaryFile(suffix=".json", delete=False) as text:
        found.export_chrome_trace(text.name)
    (folder / f"launch_{name}.json.gz").write_bytes(gzip.compress(Path(text.name).read_bytes(), 9, mtime=0))
    os.unlink(text.name)


def main() -> None:
    folder, work = Path(sys.argv[1]), Work()
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("queue_full", "streams", "host_bound", "graph"):
        record(name, getattr(work, name), folder)


if __name__ == "__main__":
    main()
