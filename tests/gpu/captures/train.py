"""A small training loop that says its own step time: what captures are measured over. Needs torch alone.

    python train.py STEPS [--graph] [--profiler FIRST LAST]

Prints one line of JSON at the end: {"rank", "steps", "step_ms"}, the median over its second half. With RANK and WORLD_SIZE set it
is one rank of a job (NCCL, or gloo without a GPU).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from statistics import median

import torch
import torch.distributed as dist


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("steps", type=int)
    parser.add_argument("--graph", action="store_true")
    parser.add_argument("--profiler", type=int, nargs=2, action="append", default=[])
    given = parser.parse_args()
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    if world > 1:
        dist.init_process_group("nccl" if on_gpu else "gloo")
    size = 2048 if on_gpu else 128
    model = torch.nn.Sequential(*(torch.nn.Linear(size, size) for _ in range(4))).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(512 if on_gpu else 16, size, device=device)

    def step() -> None:
        model(batch).square().mean().backward()
        if world > 1:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)

    graph = _captured(step) if given.graph and on_gpu else None
    times_ms = []
    for number in range(given.steps):
        began = time.perf_counter()
        _profiler(given.profiler, number, on_gpu)
        if on_gpu:
            torch.cuda.nvtx.range_push("step")
        graph.replay() if graph is not None else step()
        optimizer.step()
        optimizer.zero_grad(set_to_none=graph is None)
        if on_gpu:
            torch.cuda.synchronize()
            torch.cuda.nvtx.range_pop()
        times_ms.append((time.perf_counter() - began) * 1e3)
        if number % 50 == 0:
            print(f"step {number}", flush=True)
    print(json.dumps({"rank": rank, "steps": given.steps, "step_ms": round(median(times_ms[len(times_ms) // 2:]), 4)}), flush=True)
    if world > 1:
        dist.destroy_process_group()


def _captured(step: Callable[[], None]) -> torch.cuda.CUDAGraph:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def _profiler(ranges: list[list[int]], number: int, on_gpu: bool) -> None:
    for first, last in ranges if on_gpu else ():
        if number == first:
            torch.cuda.cudart().cudaProfilerStart()
        if number == last:
            torch.cuda.cudart().cudaProfilerStop()


if __name__ == "__main__":
    main()
