"""GPUs as processes: each interprets the launches of its own number over shared memory and waits for the others at the barriers.

    python -m tests.tuner.measure.operators.all_reduce_ranks GPUS SHOTS          prints "all right", or what a process found wrong
"""

from __future__ import annotations

import os
import random
import sys
import time

os.environ["TRITON_INTERPRET"] = "1"         # before any kernel is decorated

import torch
import torch.multiprocessing as processes

from tuner.tuning.kernels.all_reduce import AllReduceRmsNorm, allreduce_rmsnorm

ROWS, COLUMNS, TIMES, PROGRAMS = 5, 48, 6, 2


def value(number: int, again: int) -> float:
    return float(1 + number + 10 * again)


def run(own: int, problem: AllReduceRmsNorm, shots: int, wrong: list[str]) -> None:
    """Launch again and again; inputs change as soon as a launch has ended, and the processes are not equally fast."""
    torch.set_num_threads(1)
    slow, gpus = random.Random(own), len(problem.xs)
    _, grid, args, options = problem._call({"SHOTS": shots, "PROGRAMS": PROGRAMS, "num_warps": 4})[own]
    for again in range(TIMES):
        time.sleep(slow.random() * 0.05)
        problem.xs[own].fill_(value(own, again))
        problem.residuals[own].fill_(0.5)
        time.sleep(slow.random() * 0.05)
        allreduce_rmsnorm[grid](*args, **{**options, "BARRIER": True})
        expected = 0.5 + sum(value(number, again) for number in range(gpus))
        normed, summed = problem.outs[own]
        if not torch.equal(summed, torch.full_like(summed, expected)) or (normed - 1).abs().max() > 1e-2:
            wrong.append(f"GPU {own}, launch {again}: {summed.unique().tolist()}, expected {expected}")
        problem.xs[own].fill_(torch.nan)


def main(gpus: int, shots: int) -> None:
    problem = AllReduceRmsNorm({"R": ROWS, "C": COLUMNS, "G": gpus}, "fp16", torch.device("cpu"), 1)
    for tensors in (problem.xs, problem.residuals, problem.sums, problem.weights, problem.outs, problem.flags):
        for tensor in tensors:
            tensor.share_memory_()
    for weight in problem.weights:
        weight.fill_(1.0)
    with processes.Manager() as manager:
        wrong = manager.list()
        ranks = [processes.get_context("fork").Process(target=run, args=(own, problem, shots, wrong)) for own in range(gpus)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(100)
            if rank.exitcode != 0:
                wrong.append(f"ended with {rank.exitcode}")
                rank.kill()
        left = sum(int(flags.sum()) for flags in problem.flags)
        print(*wrong or (["all right"] if not left else [f"{left} flags are still up"]), sep="\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
