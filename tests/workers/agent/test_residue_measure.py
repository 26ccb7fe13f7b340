"""The program that measures what stays, without a GPU: its statistics on processes of known speed, and that no child ends it.

Only here do stand-ins tell times of steps instead of running any."""

from __future__ import annotations

import faulthandler
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.gpu.fleet import residue
from tests.gpu.fleet.residue import Process, Workload
from tests.gpu.fleet.residue_stats import BASE, Cell, losses

SLOWER = {"late": 0.010, "early": 0.002, "agent's thread": 0.0}


def simulated(chance: np.random.Generator, generations: int, spread: float = 0.003, drift: float = 0.02) -> list[Cell]:
    cells = []
    for number in range(generations):
        common = math.log(2e-3) + drift * chance.standard_normal()
        for variant in (BASE, BASE, *SLOWER):
            more = math.log1p(SLOWER.get(variant, 0.0))
            cells.append(Cell(number, variant, common + more + spread * chance.standard_normal()))
    return cells


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    chance, held, widths = np.random.default_rng(3), 0, []
    for _ in range(400):
        for variant, found in losses(simulated(chance, 4)).items():
            held += found.low_pct <= 100 * SLOWER[variant] <= found.high_pct
            widths.append(found.high_pct - found.low_pct)
    assert 0.93 <= held / (400 * len(SLOWER)) <= 0.97
    assert np.mean(widths) < 1.0                    # though generations differ by 2 %


def test_processes_that_died_are_missing_and_too_few_say_nothing() -> None:
    cells = simulated(np.random.default_rng(1), 5, spread=1e-4)
    left = [cell for cell in cells if not (cell.variant == "late" and cell.generation > 1)]
    found = losses(left)
    assert found["late"].processes == 2 and found["early"].processes == 5
    assert found["late"].loss_pct == pytest.approx(1.0, abs=0.05)
    assert losses([]) == {} and losses([Cell(0, BASE, 0.0), Cell(0, "late", 0.1)]) == {}
    no_base = [*cells, Cell(9, "orphan", 0.0)]
    assert "orphan" not in losses(no_base) and losses(no_base)["early"].loss_pct == pytest.approx(0.2, abs=0.05)


def stand_in(connection: Connection, workload: str, variant: str, log: str) -> None:
    """Tell steps of a known length, or end as children of a GPU do."""
    chance = np.random.default_rng(os.getpid())
    own = 2e-3 * (1 + SLOWER.get(variant, 0.0)) * (1 + 0.001 * chance.standard_normal())
    if variant == "late, nothing asked":
        connection.send({"refused": "cuptiActivityEnableHWTrace: error 30"})
        return
    connection.send({"ready": True, "gpu": "NVIDIA H200", "driver": "CUDA 13.0", "torch": "2.11", "cupti": 130001})
    turns = 0
    while connection.recv() is not None:
        turns += 1
        if variant == "early, pinned" and turns == 2:
            faulthandler.disable()
            os.kill(os.getpid(), signal.SIGSEGV)
        if variant == "early, lean":
            time.sleep(60)
        if variant == "late, by context":
            connection.send({"failed": "unspecified launch failure"})
            return
        connection.send(own * (1 + 0.01 * chance.standard_normal(200)))


@pytest.mark.slow
@pytest.mark.process
def test_children_may_crash_hang_fail_and_refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residue, "LATE_S", 0.3)
    lines: list[dict[str, Any]] = []
    names = ["late", "early", "early, pinned", "early, lean", "late, by context", "late, nothing asked"]
    started: list[str] = []

    def start(workload: str, variant: str) -> Process:
        started.append(variant)
        return Process(workload, variant, tmp_path, stand_in)

    own = Workload("gemm", names, lines.append, start, 0.0, 3, random.Random(1))
    own.measure(10.0, least=5)                      # on a busy machine too: of two the interval is wide
    found = {(line["result"], line.get("variant")): line for line in lines}
    late = found["residue", "late"]
    assert abs(late["loss_pct"] - 1.0) < 0.5        # processes differ by 0.1 %
    assert late["low_pct"] < late["loss_pct"] < late["high_pct"] < late["low_pct"] + 1
    assert late["generations"] >= 5 and late["processes"] == late["generations"] and late["turns"] == 3 * late["processes"]
    assert abs(found["same", "none again"]["loss_pct"]) < 0.5
    assert abs(found["alone", None]["loss_pct"]) < 1
    assert found["died", "early, pinned"]["why"] == f"died, status {-signal.SIGSEGV}"
    assert found["died", "early, lean"]["why"].startswith("silent")
    assert found["died", "late, by context"]["why"] == "failed: unspecified launch failure"
    assert found["refused", "late, nothing asked"]["why"].endswith("error 30")
    assert {variant: started.count(variant) for variant in names[2:]} == {**dict.fromkeys(names[2:5], 2), names[5]: 1}
    for name in names[2:]:
        assert ("missing", name) in found and ("residue", name) not in found


@pytest.mark.process
@pytest.mark.torch
def test_where_there_is_no_gpu_every_line_says_so() -> None:
    command = [sys.executable, "-m", "tests.gpu.fleet.residue", "--minutes", "0.3", "--only", "gemm", "--variants", "late"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True,
                          env={**os.environ, "PYTHONPATH": os.getcwd(), "CUDA_VISIBLE_DEVICES": ""})
    lines = [json.loads(line) for line in said.stdout.splitlines()]
    assert {line["result"] for line in lines} <= {"died", "refused", "missing"} and lines
    assert len(lines) < 12
    assert any("CUDA" in line["why"] or "cuda" in line["why"] for line in lines if line["result"] == "died")
