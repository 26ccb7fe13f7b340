"""Rows of a large team's guard, made by a random generator: they measure Ridgepoint, and say nothing of any GPU.

A suite of thousands of kernels comes in as uploads do, through the services; builds, gates and regressions of a long history are
written in bulk, as far as their rows are concerned alike those that the services write.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from tuner.gate.suites.run_services import copy_runs
from tuner.models import Build, Gate, GateKernel, KernelRun, Regression, Suite, SuiteKernel

FLEET, HISTORY = "bench-fleet", "bench-history"
WHERE = {"gpu": "made by the bench", "toolkit": "cuda 13.0, triton 3.6.0", "driver": "580.159"}
SAMPLES = 32
BETWEEN, WITHIN = 0.004, 0.012          # spread of run medians, and of samples, as fractions
SLOWER, SLOWER_KERNELS = 1.08, 20
SINCE = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    kernels: int = 3_000            # of the fleet's suite
    baseline: int = 15              # its runs of the build before: 45,000 lines in one upload, of which a gate takes the newest ten
    candidate: int = 5
    builds: int = 500               # of the history
    history_kernels: int = 60
    runs: int = 5                   # of each of its kernels and builds
    gates: int = 2_000
    regressions: int = 5_000


SMALL = Size(kernels=60, baseline=10, builds=12, history_kernels=6, runs=3, gates=20, regressions=30)


def upload_lines(size: Size, runs: int, seed: int, slower: int = 0) -> bytes:
    """JSON lines of so many fresh processes; the first `slower` kernels take SLOWER times as long."""
    rng = np.random.default_rng(seed)
    levels = np.random.default_rng(0).uniform(8, 900, size.kernels)
    levels[:slower] *= SLOWER
    lines = []
    for run in range(1, runs + 1):
        medians = levels * rng.normal(1, BETWEEN, size.kernels)
        samples = np.round(medians[:, None] * rng.normal(1, WITHIN, (size.kernels, SAMPLES)), 3)
        lines += [json.dumps({"run": run, **_kernel(number), "config": {"BM": 128, "num_warps": 8}, "us": us, "sm_clock_mhz": 1980,
                              "registers": 168, "spills": 0}, separators=(",", ":"))
                  for number, us in enumerate(samples.tolist())]
    return "\n".join(lines).encode()


def _kernel(number: int) -> dict[str, Any]:
    return {"op": f"op_{number % 40:02d}", "shape": {"M": 16 * (1 + number // 40), "N": 4096}, "dtype": "bf16"}


# ---- a long history ----

def history(size: Size) -> Suite:
    """Builds with the runs of a suite, gates of them, and regressions."""
    suite = Suite.objects.create(name=HISTORY, kind=Suite.Kind.UPLOADED, title="Made by the bench")
    kernels = SuiteKernel.objects.bulk_create([
        SuiteKernel(suite=suite, key=f"op_{at:02d} M={16 * (at + 1)} bf16", op=f"op_{at:02d}", shape={"M": 16 * (at + 1)},
                    dtype="bf16", family=f"op_{at:02d}", declared=False, place=at) for at in range(size.history_kernels)])
    builds = Build.objects.bulk_create([
        Build(name=f"{at:06x}{'b' * 34}", title=f"Change number {at}", author="bench", at=SINCE + timedelta(hours=at))
        for at in range(size.builds)])
    for part in _runs(size, kernels, builds):
        copy_runs(part)
    _gates(size, suite, kernels, builds)
    _regressions(size, suite, kernels, builds)
    return suite


def _runs(size: Size, kernels: list[SuiteKernel], builds: list[Build]) -> Iterator[list[KernelRun]]:
    """Build by build. Every tenth kernel has one change of its level, by +6 %, somewhere in the middle half."""
    rng = np.random.default_rng(2)
    levels = rng.uniform(20, 900, len(kernels))
    changed = {at: int(rng.integers(size.builds // 4, 3 * size.builds // 4)) for at in range(0, len(kernels), 10)}
    for place, build in enumerate(builds):
        rows = []
        for at, kernel in enumerate(kernels):
            level = levels[at] * (1.06 if place >= changed.get(at, size.builds) else 1.0)
            for number in range(size.runs):
                us = np.round(level * rng.normal(1, BETWEEN) * rng.normal(1, WITHIN, SAMPLES), 3)
                rows.append(KernelRun(
                    kernel=kernel, build=build, run=str(number + 1), number=number, us=us.tolist(), n=SAMPLES,
                    p50_us=float(np.median(us)), p95_us=float(np.percentile(us, 95)), sm_clock_mhz=1980.0,
                    facts={"registers": 168, "spills": 0}, config={"BM": 128, "num_warps": 8}, **WHERE))
        yield rows


def _gates(size: Size, suite: Suite, kernels: list[SuiteKernel], builds: list[Build]) -> None:
    """Of the history's builds in turn; one of eight found a kernel slower, one of sixteen could not tell."""
    verdicts = ["SLOWER" if at % 8 == 3 else "AMBIGUOUS" if at % 16 == 5 else "PASS" for at in range(size.gates)]
    gates = Gate.objects.bulk_create([
        Gate(suite=suite, build=builds[at % len(builds)], status=Gate.Status.DONE, verdict=verdict, rounds=1,
             reason=f"made by the bench: {verdict}", report={"alpha": 0.01, "plan": {"says": ""}, "notes": []},
             finished=SINCE + timedelta(hours=at), **WHERE) for at, verdict in enumerate(verdicts)])
    facts = {"metrics": [], "clocks": {"candidate_mhz": 1980.0}, "baseline": {"mode": "rolling", "builds": [], "says": ""},
             "p95": {"low": 0.97, "high": 1.03}}
    for first in range(0, len(gates), 100):
        GateKernel.objects.bulk_create([
            GateKernel(gate=gate, kernel=kernel, verdict=gate.verdict if place == 0 else "PASS", reason="made by the bench",
                       place=place, baseline_us=100.0, candidate_us=101.0, ratio_p50=1.08 if place == 0 else 1.001, low=0.995,
                       high=1.1, ratio_p95=1.0, p_value=0.4, detectable=0.03, facts=facts)
            for gate in gates[first:first + 100] for place, kernel in enumerate(kernels)], batch_size=2_000)


def _regressions(size: Size, suite: Suite, kernels: list[SuiteKernel], builds: list[Build]) -> None:
    """Every state; most are answered, as those of an old installation are."""
    states = ["fixed"] * 14 + ["intended"] * 3 + ["environment", "acknowledged", "open"]
    rows = []
    for at in range(size.regressions):
        kernel, place = kernels[at % len(kernels)], 1 + (at // len(kernels)) % (len(builds) - 2)
        rows.append(Regression(
            suite=suite, family=kernel.family, build=builds[place], good=builds[place - 1], kernels=[kernel.key], found_by="gate",
            ratio=1.03 + at % 40 / 100, low=1.02, high=1.5, why="made by the bench", state=states[at % 20],
            fixed_in=builds[place + 1] if states[at % 20] == "fixed" else None,
            history=[{"at": "2026-01-01T00:00:00+00:00", "who": "gate", "state": "open", "note": ""}], **WHERE))
    Regression.objects.bulk_create(rows, batch_size=1_000)
