"""The least time of a launch: from work and rates; on recorded spaces nothing is refused and nothing reaches more than there is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profiles.analysis.core import gpus
from profiles.analysis.kernel.ceilings import best_ceilings
from tuner.ceilings.least_time import LeastTime, Rates, gpu_rates, least_time, sol_score
from tuner.tuning.measure.landscape import Landscape
from tuner.tuning.operators import find
from tuner.tuning.trial import Measured

H200 = Path(__file__).parents[2] / "data" / "h200"
MODEL = gpus.lookup("NVIDIA H200")
SHEET = gpu_rates("NVIDIA H200", MODEL, None)
MEASURED = gpu_rates("NVIDIA H200", MODEL, best_ceilings(
    "NVIDIA H200", "recorded", json.loads((H200 / "ceilings.json").read_text())["results"]))


def least(flops: float, moved: float, dtype: str = "bf16", rates: Rates = SHEET, timing: str = "cold") -> LeastTime:
    found = least_time(flops, moved, dtype, rates, timing=timing)
    assert found is not None
    return found


def test_the_longer_of_operations_and_bytes_decides() -> None:
    product = least(2 * 4096**3, 3 * 2 * 4096**2)
    # 989.4 TFLOP/s stand for 1830 MHz; at 1980 MHz, the clock of the other pipes' peaks, it is 1070.5
    assert product.side == "compute" and product.ms == pytest.approx(1e3 * 2 * 4096**3 / 1070.5e12, rel=1e-3)
    copy = least(0, 134_217_728)
    assert copy.side == "memory" and copy.ms == pytest.approx(134_217_728 / 4.8e9) and copy.source == "data sheet of H200"


def test_what_was_measured_goes_before_the_data_sheet_and_is_put_at_the_highest_clock() -> None:
    product = least(2 * 4096**3, 3 * 2 * 4096**2, rates=MEASURED)
    assert product.ms == pytest.approx(1e3 * 2 * 4096**3 / (498_720.23 * 1.98e9), rel=1e-3)
    assert product.source.endswith("at 1,980 MHz, recorded") and product.physical_ms is not None
    assert product.physical_ms < product.ms


def test_a_warm_cache_serves_what_it_has_room_for() -> None:
    assert MODEL is not None
    small, large = 10e6, MODEL.l2_bytes + 48e6
    assert least(0, small, timing="warm", rates=MEASURED).ms == pytest.approx(1e3 * small / 9.377e12, rel=1e-3)
    assert least(0, large, timing="graph").ms == pytest.approx(48e6 / 4.8e9)
    assert least_time(0, small, "bf16", SHEET, timing="warm") is None        # how fast its L2 is, no data sheet tells


def test_an_unknown_gpu_has_no_ceiling_and_refuses_nothing() -> None:
    assert least_time(1e9, 1e6, "bf16", gpu_rates("Some GPU", None, None)) is None
    assert not LeastTime(1.0, "compute", 1.0, None, "", None).is_impossible(0.001)


def test_a_time_is_impossible_below_the_physical_limit_by_more_than_a_step_of_the_timer() -> None:
    product = least(2 * 4096**3, 3 * 2 * 4096**2, rates=MEASURED)
    assert product.physical_ms == pytest.approx(0.1284, rel=1e-3)
    assert product.is_impossible(0.127) and not product.is_impossible(0.1279)
    assert "impossible: 127 µs" in product.impossible_text(0.127) and "128.4 µs" in product.impossible_text(0.127)
    assert not least(0, 40e6).is_impossible(0.0001)             # L2 may hold all of it until after the launch


def test_nothing_that_was_recorded_on_a_gpu_is_refused_or_reaches_more_than_there_is() -> None:
    shares = []
    for path in sorted((H200 / "landscapes").glob("*.json.gz")):
        landscape = Landscape.load(path)
        operator = find(landscape.operator)
        assert operator is not None
        for one in landscape.shapes:
            limit = least(operator.flops(one.shape), operator.bytes(one.shape, "bf16"), rates=MEASURED)
            times = [outcome.median_ms for _, outcome in one.outcomes.values() if isinstance(outcome, Measured)]
            times += [one.library_ms] if one.library_ms else []
            assert not any(limit.is_impossible(ms) for ms in times)
            shares.append(max(limit.share(ms) or 0.0 for ms in times))
    assert len(shares) == 12 and max(shares) < 1.0 and max(shares) > 0.75


@pytest.mark.parametrize(("ms", "score"), [(3.0, 0.5), (1.0, 1.0), (2.0, 2 / 3), (0.9, 1.0), (None, None)])
def test_the_sol_score_is_a_half_at_the_baseline_and_one_at_the_least_time(ms: float | None, score: float | None) -> None:
    assert sol_score(ms, 3.0, 1.0) == (score if score is None else pytest.approx(score))
    assert sol_score(ms, 1.0, 1.0) is None and sol_score(ms, None, 1.0) is None
