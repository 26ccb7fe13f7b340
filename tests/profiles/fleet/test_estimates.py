"""Windows are a sample: the interval of an estimate holds the true total about as often as it says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from profiles.fleet.browse.utilisation_selectors import means_of
from profiles.fleet.merge import merge
from profiles.fleet.selectors import interval_pct
from profiles.fleet.store import Coverage, SumRow
from tests.scale import DEEP
from workers.agent.aggregate import Aggregator
from workers.agent.launches import Context, Gpu, Signature, Window, sum_durations
from workers.agent.wire import ESTIMATES, make_batch, pack, unpack

SECOND_NS = 1_000_000_000
TRIALS = 150 if DEEP else 80
KERNEL = [Signature("k", (1, 1, 1), (128, 1, 1), 0), Signature("k", (2, 1, 1), (128, 1, 1), 0)]


def estimate(chance: np.random.Generator, stretches: int, slots: int) -> tuple[SumRow, Coverage, float]:
    """A job whose launches come and go; of each stretch of time one slot is watched. The kernel has two signatures."""
    aggregator, truth = Aggregator(), 0
    level = np.exp(np.cumsum(chance.normal(0, 0.2, stretches)))
    for stretch in range(stretches):
        counts = chance.poisson(20 * level[stretch] * chance.lognormal(0, 0.3, slots))
        seen = int(chance.integers(slots))
        for slot, count in enumerate(counts.tolist()):
            dur_ns = chance.lognormal(10, 0.3, count).astype(np.int64)
            truth += int(dur_ns.sum())
            if slot == seen:
                key = chance.integers(0, 2, count)
                start_ns = (stretch * slots + slot) * SECOND_NS
                aggregator.add(Window(Context("job"), Gpu("G"), start_ns, SECOND_NS, slots * SECOND_NS,
                                      sum_durations(key, dur_ns, KERNEL)))
    merged = merge([unpack(pack(make_batch("a", 0, 0, aggregator.take())))])
    total, gpu = merged.tables["totals"].columns, merged.tables["gpus"].columns
    row = SumRow("k", int(total["launches"].sum()), int(total["total_ns"].sum()), float(total["estimate_launches"].sum()),
                 float(total["estimate_ns"].sum()), float(total["estimate_ns"].sum()), float(total["square"].sum()), None, None)
    windows, observed_ns, wall_ns = (int(gpu[name].sum()) for name in ("windows", "observed_ns", "wall_ns"))
    return row, Coverage(windows, observed_ns, wall_ns), truth


@pytest.mark.slow
def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    chance, held, errors = np.random.default_rng(7), 0, []
    for _ in range(TRIALS):
        row, coverage, truth = estimate(chance, 60, 5)
        assert coverage.windows == 60 and coverage.share == pytest.approx(0.2)
        error = row.estimate_ns / truth - 1
        errors.append(error)
        held += abs(error) * row.estimate_ns <= row.estimate_ns * (interval_pct(row, coverage) or 0) / 100 * (1 + error)
    assert held >= 0.93 * TRIALS and abs(np.mean(errors)) < 0.02         # the variance of a drifting job is overstated, not under


def test_what_was_watched_whole_has_no_interval_and_one_window_all_of_it() -> None:
    chance = np.random.default_rng(1)
    row, coverage, truth = estimate(chance, 30, 1)
    assert row.estimate_ns == truth == row.total_ns and interval_pct(row, coverage) is None
    row, coverage, _ = estimate(chance, 1, 10)
    assert interval_pct(row, coverage) == 100.0


def test_events_that_no_sensor_told_are_unknown_and_not_none() -> None:
    gpu = Gpu("G", "NVIDIA H200", "host")
    told = merge([make_batch("a", 0, 0, [], [{"minute": 60, "gpu": gpu, "samples": 60, "xid_errors": 0.0, "throttle_s": 30.0}])])
    sums = {name: float(values[0]) for name, values in told.tables["telemetry"].columns.items()}
    found = means_of(sums)
    assert (found["xid_errors"], found["throttle_pct"]) == (0.0, 50.0)
    assert found["ecc_errors"] is None and found["thermal_pct"] is None and found["power_w"] is None


def test_a_batch_of_an_agent_that_does_not_scale_its_gpus_kernels_is_scaled_here() -> None:
    aggregator = Aggregator()
    for at in range(6):
        durations = np.full(5 + at, 1000, np.int64)
        aggregator.add(Window(Context("job"), Gpu("G"), at * SECOND_NS, SECOND_NS, 4 * SECOND_NS,
                              sum_durations(np.zeros(durations.size, np.int64), durations, KERNEL)))
    new = make_batch("a", 0, 0, aggregator.take())
    own = new.tables["gpu_kernels"]
    old = replace(new, tables={**new.tables, "gpu_kernels": {name: own[name] for name in own if name not in ESTIMATES}})
    read, scaled = (unpack(pack(each)).tables["gpu_kernels"] for each in (new, old))
    assert read["estimate_ns"][0] == pytest.approx(4 * 45_000) and read["square"][0] == pytest.approx(
        sum((4000 * (5 + at)) ** 2 for at in range(6)))
    assert scaled["estimate_ns"][0] == pytest.approx(4 * 45_000) and scaled["estimate_launches"][0] == pytest.approx(4 * 45)
    assert scaled["square"][0] >= read["square"][0]
