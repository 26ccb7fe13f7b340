"""What collecting costs a training job of several ranks, one a GPU: `python -m tests.gpu.fleet.ranks [--seconds 110] [--out FILE]`.

DistributedDataParallel with a data loader that pins memory, so NCCL's watchdog and a Python thread call CUDA beside the loop: CUPTI
cannot be taken out of such a job, and the agent of each rank decides by itself whether it may stay. Segments of so many steps with
the agent are compared with those beside them in which it holds, and the time between the first windows with the time before any.
Every second job is started without an agent: `drift` says by how much steps grow over the same time there. A line a rank.
`--graphs RANK`: one rank replays a CUDA graph in each step, the others launch the same kernels one by one.
Without a GPU it runs on the processor, with two small ranks, and is not attached to."""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tests.gpu.fleet.child import compare, paired
from tests.gpu.fleet.two_jobs import count_gpus, finish

WITH_S, WITHOUT_S, BLOCK_S = 1.5, 0.75, 0.25
WIDTH, LAYERS, LENGTH, BATCH = 2048, 8, 256, 32


class Numbers:
    """A data set: random numbers, put together to batches by the loader's processes."""

    def __init__(self, width: int) -> None:
        import torch

        self.rows = torch.randn(64, LENGTH, width).to(torch.bfloat16)

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, number: int) -> Any:
        return self.rows[number % 64]


class Rank:
    def __init__(self, rank: int, ranks: int) -> None:
        import torch

        on_gpu = torch.cuda.is_available()
        self.device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
        if on_gpu:
            torch.cuda.set_device(rank)
        torch.distributed.init_process_group("nccl" if on_gpu else "gloo")
        width, batch = (WIDTH, BATCH) if on_gpu else (64, 2)
        self.torch, self.rank, self.ranks = torch, rank, ranks
        layer = torch.nn.TransformerEncoderLayer(width, 16, 4 * width, batch_first=True, dropout=0.0, device=self.device,
                                                 dtype=torch.bfloat16)
        model = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.model = torch.nn.parallel.DistributedDataParallel(model)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        loader: Any = torch.utils.data.DataLoader
        self.batches: Iterator[Any] = iter(loader(Numbers(width), batch, num_workers=4, pin_memory=on_gpu))
        self.mark: Any = lambda: None
        self.decode: Any = lambda: None

    def add_decode(self, graph: bool) -> None:
        """Let each step run 64 small products as well, replayed as a CUDA graph or launched."""
        weights = self.torch.randn(1024, 1024, device=self.device, dtype=self.torch.bfloat16) / 32
        hidden = self.torch.randn(8, 1024, device=self.device, dtype=self.torch.bfloat16)

        def run() -> None:
            out = hidden
            for _ in range(64):
                out = out @ weights

        run()
        self.decode = run
        if graph:
            self.torch.cuda.synchronize()
            own = self.torch.cuda.CUDAGraph()
            with self.torch.cuda.graph(own, capture_error_mode="thread_local"):      # the loader's thread calls CUDA meanwhile
                run()
            self.decode = own.replay

    def step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.decode()
        loss = self.model(next(self.batches).to(self.device, non_blocking=True)).float().square().mean()
        loss.backward()
        self.optimizer.step()
        loss.item()
        self.mark()

    def run(self, steps: int) -> np.ndarray:
        """Return what each of so many steps took, in s."""
        times = [time.perf_counter()]
        for _ in range(steps):
            self.step()
            times.append(time.perf_counter())
        return np.diff(times)

    def agree(self, value: float) -> float:
        """Return rank 0's value: ranks do the same number of steps, or they wait for each other for ever."""
        told = self.torch.tensor([value], device=self.device, dtype=self.torch.float64)
        self.torch.distributed.broadcast(told, 0)
        return float(told.item())


def blocks(took: np.ndarray, step_s: float) -> np.ndarray:
    """Return means of neighbouring steps, some BLOCK_S each."""
    return np.array([part.mean() for part in np.array_split(took, min(took.size, max(4, int(took.size * step_s / BLOCK_S))))])


def measure(job: Rank, seconds: float, collects: bool) -> dict[str, Any]:
    from workers.agent import collecting
    from workers.agent.collecting import Collecting
    from workers.agent.controller import Limits
    from workers.agent.identity import Identity

    step_s = job.agree(float(job.run(30)[10:].mean()))
    count = {name: max(2, round(span_s / step_s)) for name, span_s in {"with": WITH_S, "without": WITHOUT_S, "calm": 12.0}.items()}
    collecting.LOOK_AGAIN_S = 3.0
    windows: list[Any] = []
    agent = Collecting(Identity("ranks", "", "", "here", job.rank, ""), Limits(), windows.extend)
    found: dict[str, Any] = {"rank": job.rank, "step_ms": 1e3 * step_s}
    if not collects:
        calm = job.run(count["calm"])
        later = job.run(count["calm"])
        return {**found, "drift": compare(blocks(later, step_s), blocks(calm, step_s))}
    job.mark = agent.steps.step
    agent.start()
    end_s = time.monotonic() + seconds
    while job.agree(float(agent.controller is None and agent.state != "off" and time.monotonic() < end_s)):
        job.run(max(1, count["with"] // 4))
    with_agent, without = [], []
    while job.agree(float(time.monotonic() < end_s)):
        agent.release()
        with_agent.append(job.run(count["with"]).mean())
        agent.hold()
        job.run(2)
        without.append(job.run(count["without"]).mean())
    agent.release()
    a, b = np.array(with_agent), np.array(without)
    told, residue = agent.report(), agent.residue()
    found |= {"state": agent.state, "why": agent.why, "busy_pct": agent.safety.busy_pct, "stays": bool(agent.safety.stays),
              "windows_sent": len(windows), "records": agent.collector.records if agent.collector else 0,
              "dropped": agent.collector.dropped if agent.collector else 0, "residue": asdict(residue),
              "quiet_blocks": len(agent.quiet_ns)}
    if told is not None:
        found |= {f"own_{name}": own for name, own in asdict(told).items()}
    if a.size > 3:
        found |= paired(a[1:], (b + np.roll(b, 1))[1:] / 2)
    agent.end()
    job.run(10)
    return found


def run_rank(options: argparse.Namespace) -> None:
    import torch

    job = Rank(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    if options.graphs >= 0:
        job.add_decode(job.rank == options.graphs)
    found = measure(job, options.seconds, not options.untouched)
    found |= {"gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "", "torch": torch.__version__}
    sys.stdout.write(json.dumps(found, default=float) + "\n")
    sys.stdout.flush()
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def run_job(options: argparse.Namespace, ranks: int, untouched: bool) -> list[dict[str, Any]]:
    """Start all ranks, return what each said."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    own = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.gpu.fleet.ranks", "--child", "--seconds", str(options.seconds),
               "--graphs", str(options.graphs),
               *(["--untouched"] if untouched else [])]
    children = [subprocess.Popen(command, env={**own, "RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                for rank in range(ranks)]
    return [{"job": "untouched" if untouched else "collected", "rank": rank, **finish(child, options.seconds + 120)}
            for rank, child in enumerate(children)]


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seconds", type=float, default=110)
    asked.add_argument("--jobs", type=int, default=1, help="with an agent; as many run without one")
    asked.add_argument("--graphs", type=int, default=-1, metavar="RANK", help="this rank replays a CUDA graph in each step")
    asked.add_argument("--out", type=Path, help="lines are added to this file as well")
    asked.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    asked.add_argument("--untouched", action="store_true", help=argparse.SUPPRESS)
    options = asked.parse_args()
    if options.child:
        run_rank(options)
        return 0
    failed = False
    for untouched in [False, True] * options.jobs:
        for line in run_job(options, count_gpus() or 2, untouched):
            failed = failed or bool(line["status"])
            text = json.dumps(line) + "\n"
            sys.stdout.write(text)
            sys.stdout.flush()
            if options.out:
                with options.out.open("a") as file:
                    file.write(text)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
