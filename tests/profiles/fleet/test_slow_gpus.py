"""GPUs that are slower are found, healthy ones are not accused: fleets drawn by chance."""

from __future__ import annotations

import numpy as np
import pytest

from profiles.fleet.slow.compared import PACKED, GpuHours, Row, compare
from profiles.fleet.slow.slow_gpus import DEVIATIONS, LEAST_PCT, Level, _spread, judge_compared
from tests.profiles.fleet.slow_reference import judge_rows

WEEK = 24 * 7


def judge(rows: list[Row], models: dict[int, str] | None = None) -> list[Level]:
    """What all GPUs at once are told, which must be what each by itself is."""
    found = judge_compared(compare(GpuHours.of_rows(rows), models), models)
    assert found == judge_rows(rows, models)
    return found


def fleet(seed: int, gpus: int = 16, hours: int = WEEK, signatures: int = 12, between: float = 0.008, noise: float = 0.01,
          slow: tuple[int, float, int, int] | None = None) -> list[tuple[int, int, int, int, int, int, float]]:
    """`between`: how much healthy GPUs differ; `slow`: (GPU, factor, from hour, to hour)."""
    chance = np.random.default_rng(seed)
    own = chance.normal(0, between, gpus)
    base = chance.uniform(9, 13, signatures)
    rows = []
    for hour in range(hours):
        drift = chance.normal(0, 0.02, signatures)               # what all GPUs see: another batch size, another build
        for gpu in range(gpus):
            factor = np.log(slow[1]) if slow and slow[0] == gpu and slow[2] <= hour < slow[3] else 0.0
            mean = base + drift + own[gpu] + factor + chance.standard_t(4, signatures) * noise
            for signature in range(signatures):
                total = int(1000 * np.exp(mean[signature]))
                rows.append((hour, gpu, signature, 1, 1000, total, 1000 * float(mean[signature])))
    return rows


@pytest.mark.parametrize("factor", [1.06, 1.1, 1.3])
def test_a_slower_gpu_is_told_with_the_hour_it_began(factor: float) -> None:
    for seed in range(5):
        levels = {level.gpu: level for level in judge(fleet(seed, hours=72, slow=(3, factor, 40, 72)))}
        assert levels[3].verdict == "SLOWER" and levels[3].slower_pct is not None
        assert abs(levels[3].slower_pct - 100 * (factor - 1)) < 2.8
        assert levels[3].since_hour is not None and abs(levels[3].since_hour - 40) <= 1
        assert {level.verdict for level in levels.values() if level.gpu != 3} == {"OK"}


def test_a_gpu_that_recovered_is_not_slow_now() -> None:
    levels = {level.gpu: level for level in judge(fleet(1, hours=72, slow=(3, 1.2, 10, 30)))}
    assert levels[3].verdict == "OK"


@pytest.mark.parametrize("gpus", [4, 8, 64])
def test_levels_that_differ_by_chance_are_under_the_limit(gpus: int) -> None:
    chance, accused = np.random.default_rng(gpus), 0
    for _ in range(2000):
        levels = chance.normal(0, 0.012, gpus)
        accused += (levels - np.median(levels)).max() > max(np.log1p(LEAST_PCT / 100), DEVIATIONS * _spread(levels))
    assert accused <= 20


@pytest.mark.slow
def test_healthy_fleets_are_not_accused() -> None:
    """Fleets of 16 GPUs over two days, spreads from none to 1.5 % between GPUs."""
    fleets = (fleet(seed, hours=48, signatures=4, between=0.005 * (seed % 4)) for seed in range(60))
    accused = sum(any(level.verdict == "SLOWER" for level in judge(rows)) for rows in fleets)
    assert accused <= 1


def test_only_gpus_of_one_model_are_compared() -> None:
    rows = fleet(1, gpus=8, hours=10)
    half = [(hour, gpu, signature, context, launches, total * (2 if gpu >= 4 else 1),
             log + (launches * np.log(2) if gpu >= 4 else 0)) for hour, gpu, signature, context, launches, total, log in rows]
    levels = judge(half, {gpu: "H200" if gpu < 4 else "A100" for gpu in range(8)})
    assert {level.verdict for level in levels} == {"OK"}


def test_few_launches_and_few_gpus_are_unknown() -> None:
    assert {level.verdict for level in judge(fleet(1, gpus=3, hours=5))} == {"UNKNOWN"}
    few = [(hour, gpu, signature, context, 1, total // 1000, log / 1000) for hour, gpu, signature, context, _, total, log in
           fleet(1, gpus=6, hours=1, signatures=3)]
    assert all(level.verdict == "UNKNOWN" and "20 are needed" in level.why for level in judge(few))
    assert judge([]) == []


@pytest.mark.parametrize("seed", range(12))
def test_holes_ties_jobs_and_models_are_judged_as_each_gpu_by_itself(seed: int) -> None:
    """Rows that are missing, without launches or equal, of several contexts and models, hours and keys of any size."""
    chance = np.random.default_rng(seed)
    rows = [(500_000 + hour, 2**62 - gpu, 2**61 + signature, int(chance.integers(2)), int(chance.integers(0, 5)) * 40,
             int(chance.integers(1, 2**48)), round(log, 0 if seed % 3 == 0 else 9))
            for hour, gpu, signature, _, _, _, log in fleet(seed, 12, 30, 5, slow=(3, 1.2, 10, 22 + seed))
            if chance.random() < 0.8]
    rows = [(hour, gpu, signature, context, launches, total, log * launches / 1000)
            for hour, gpu, signature, context, launches, total, log in rows]
    models = {2**62 - gpu: ("H200", "A100", "")[gpu % 3 if seed % 2 else 0] for gpu in range(12)}
    levels = judge([rows[at] for at in chance.permutation(len(rows))] if seed % 4 else rows, models)
    assert len(levels) == 12 and {"OK"} <= {level.verdict for level in levels}


@pytest.mark.parametrize("parts", [1, 3])
def test_parts_of_a_key_are_one_row(parts: int) -> None:
    whole = fleet(1, gpus=5, hours=4, signatures=3)
    pieces = [(*row[:4], row[4] // 4, row[5] // 4, row[6] / 4) for row in whole for _ in range(parts)]
    packed = np.array([pieces[at] for at in np.random.default_rng(1).permutation(len(pieces))], PACKED).tobytes()
    found = GpuHours.of_packed([packed[:PACKED.itemsize * 7], packed[PACKED.itemsize * 7:]]).rows()
    assert [row[:6] for row in found] == [(*row[:4], row[4] // 4 * parts, row[5] // 4 * parts) for row in sorted(whole)]
    assert [row[6] for row in found] == pytest.approx([row[6] / 4 * parts for row in sorted(whole)])
    assert GpuHours.of_packed([]).rows() == []
