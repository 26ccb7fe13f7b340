"""Effects of builds and environments: the known ones of the recorded timings, and what cannot be known."""

import itertools
import math

import numpy as np
import pytest

from tests.public_timing import medians_us
from tests.recordings import timing_runs
from tuner.gate.stats.attribution import attribute_effects
from tuner.gate.stats.effects import Observation
from tuner.gate.stats.explanation import explain, fact_changes

TRUE = {"CUDA": 19.319 / 19.872, "CUPY": 18.903 / 19.029}       # medians in ms, published with the recording: CUDA 12.3 / 11.2


def gemms(rng, runs):
    found = []
    for name, times in sorted(medians_us().items(), key=lambda item: item[0][-4:]):
        kernel, cuda = name.split("_CUDA-")
        factors = {"build": "a", "cuda": cuda, "gpu": "RTX A4000"}
        found += [Observation(kernel, us, factors) for us in rng.choice(times, runs, replace=False)]
    return found


def test_the_recorded_toolkit_effects_are_recovered():
    """reference/tuners.md §5e: nvcc −2.8 %, CuPy −0.7 %; NVRTC was recorded under one toolkit alone."""
    told = attribute_effects(gemms(np.random.default_rng(0), 10))
    effects = {one.kernel: one.effects for one in told.kernels}
    for kernel, true in TRUE.items():
        (one,) = effects[kernel]
        assert (one.factor, one.reference, one.level, one.runs) == ("cuda", "11.2", "12.3", 20)
        assert one.ratio == pytest.approx(true, abs=4e-4)
        assert one.low < one.ratio < one.high and one.high - one.low < 1e-3 and one.p_value < 1e-12
    assert effects["NVCUDA"] == []
    (mean,) = told.suite
    assert mean.ratio == pytest.approx(math.sqrt(TRUE["CUDA"] * TRUE["CUPY"]), abs=4e-4) and mean.kernels == 2
    assert told.says.startswith("cuda 12.3 is 1.7 % faster than 11.2") and "to −0.66 % (CUPY)" in told.says


@pytest.mark.slow
@pytest.mark.parametrize("runs", [3, 5])
def test_intervals_hold_the_truth_as_often_as_they_say(runs):
    """Truth: all 1,000 runs of each side. 400 draws, 95 % intervals."""
    rng, held, drawn = np.random.default_rng(runs), 0, 0
    true = {kernel: np.median(medians_us()[f"{kernel}_CUDA-12.3"]) / np.median(medians_us()[f"{kernel}_CUDA-11.2"])
            for kernel in TRUE}
    for _ in range(200):
        for kernel in attribute_effects(gemms(rng, runs)).kernels:
            for one in kernel.effects:
                drawn += 1
                held += one.low <= true[kernel.kernel] <= one.high
    assert drawn == 400 and 0.91 <= held / drawn <= 0.985


def recorded(op):
    by_config = {}
    for (_, name, config), line in timing_runs().items():
        if name == op:
            by_config.setdefault(config, []).append(float(np.median(line["us"])))
    return by_config


def cells(rng, times, effects, skip=(), runs=5):
    """Every combination of the levels, each with runs drawn from `times` and multiplied by its effects."""
    names = list(effects)
    found = []
    for combination in itertools.product(*(effects[name] for name in names)):
        factors = dict(zip(names, combination, strict=True))
        if factors in skip:
            continue
        by = math.prod(effects[name][level] for name, level in factors.items())
        found += [Observation("softmax", us * by, factors) for us in rng.choice(times, runs, replace=False)]
    return found


TIMES = next(iter(recorded("softmax").values()))
BOTH = {"build": {"a": 1.0, "b": 1.05}, "driver": {"550": 1.0, "560": 1.03}}


def test_build_driver_toolkit_and_gpu_are_told_apart():
    effects = {**BOTH, "cuda": {"12.8": 1.0, "13.0": 0.96}, "gpu": {"H200": 1.0, "H100": 1.22}}
    told = attribute_effects(cells(np.random.default_rng(1), TIMES, effects, runs=3))
    found = {one.factor: one for one in told.kernels[0].effects}
    assert set(found) == {"build", "driver", "cuda", "gpu"}
    for name, levels in effects.items():
        true = list(levels.values())[1]
        assert found[name].low <= true <= found[name].high and found[name].ratio == pytest.approx(true, rel=0.004)
        assert found[name].sure
    assert not told.missing and not told.kernels[0].misfit
    assert "gpu H100 is 2" in told.says


def test_an_unbalanced_matrix_is_enough_where_it_connects():
    """Three of four cells: the driver is seen under build a, the build under driver 560."""
    rows = cells(np.random.default_rng(2), TIMES, BOTH, skip=[{"build": "b", "driver": "550"}])
    found = {one.factor: one for one in attribute_effects(rows).kernels[0].effects}
    assert found["build"].low <= 1.05 <= found["build"].high and found["driver"].low <= 1.03 <= found["driver"].high


def test_what_never_varied_alone_is_not_guessed():
    rows = cells(np.random.default_rng(3), TIMES, BOTH, skip=[{"build": "b", "driver": "550"}, {"build": "a", "driver": "560"}])
    told = attribute_effects(rows)
    by_factor = {one.factor: one for one in told.kernels[0].effects}
    assert by_factor["build"].ratio is None and not by_factor["build"].identifiable
    assert by_factor["build"].with_ == ("driver 560",) and "never varied without driver 560" in by_factor["build"].why
    joined = by_factor["build + driver"]
    assert joined.low <= 1.05 * 1.03 <= joined.high and joined.identifiable
    assert {"build": "b", "driver": "550"} in [{name: cell[name] for name in ("build", "driver")} for cell in told.missing]
    assert "cannot be told" in told.says
    more = rows + [one for one in cells(np.random.default_rng(4), TIMES, BOTH) if one.factors == {"build": "b", "driver": "550"}]
    assert all(one.identifiable for one in attribute_effects(more).kernels[0].effects)            # the suggested cell settles it


def test_effects_that_do_not_add_up_are_told_and_widen_the_intervals():
    rows = cells(np.random.default_rng(5), TIMES, BOTH)
    plain = attribute_effects(rows).kernels[0]
    bent = [Observation(one.kernel, one.us * (1.06 if one.factors == {"build": "b", "driver": "560"} else 1.0), one.factors)
            for one in rows]
    told = attribute_effects(bent).kernels[0]
    assert not plain.misfit and "do not simply add up" in told.misfit
    assert told.effects[0].high - told.effects[0].low > 5 * (plain.effects[0].high - plain.effects[0].low)


def test_a_bad_run_in_a_cell_moves_nothing():
    rows = cells(np.random.default_rng(6), TIMES, BOTH)
    rows[0] = Observation(rows[0].kernel, rows[0].us * 1.5, rows[0].factors)
    found = {one.factor: one for one in attribute_effects(rows).kernels[0].effects}
    assert found["build"].ratio == pytest.approx(1.05, rel=0.005) and found["driver"].ratio == pytest.approx(1.03, rel=0.005)


def test_single_runs_have_an_effect_and_no_interval():
    rows = [Observation("k", 10.0, {"build": "a"}), Observation("k", 11.0, {"build": "b"})]
    (one,) = attribute_effects(rows).kernels[0].effects
    assert one.ratio == pytest.approx(1.1) and one.low is None and one.p_value is None and not one.sure


def test_nothing_and_one_cell_have_their_words():
    assert attribute_effects([]).says == "Nothing was measured yet."
    assert "nothing to compare" in attribute_effects([Observation("k", 1.0, {"build": "a"})] * 3).says
    with pytest.raises(ValueError, match="finite"):
        attribute_effects([Observation("k", math.nan, {})])


# ---- which of the two did it ----

A, B = {"build": "a", "driver": "550"}, {"build": "b", "driver": "560"}


@pytest.mark.parametrize(("build", "driver", "kind"), [
    (1.0, 1.05, "environment"), (1.05, 1.0, "build"), (1.05, 1.03, "both"), (1.0, 1.0, "neither")])
def test_a_slowdown_is_attributed_to_who_made_it(build, driver, kind):
    effects = {"build": {"a": 1.0, "b": build}, "driver": {"550": 1.0, "560": driver}}
    times, right = recorded("layernorm"), 0
    for number, config in enumerate(sorted(times) * 5):
        rows = cells(np.random.default_rng(number), times[config], effects, skip=[{"build": "b", "driver": "550"}])
        right += explain(rows, A, B).kind == kind
    assert right >= 19                                  # of 20 draws, from four kernels


def test_nobody_is_cleared_by_too_few_runs():
    """The driver is measured well, the new build once: what that did cannot be seen, nor that it did nothing."""
    draw = np.random.default_rng(0)
    rows = [Observation("k", 100 * slower * float(np.exp(draw.normal(0, 0.01))), {"build": build, "driver": driver})
            for build, driver, slower, runs in (("a", "550", 1.0, 20), ("a", "560", 0.98, 20), ("b", "560", 0.98, 1))
            for _ in range(runs)]
    told = explain(rows, A, B)
    assert told.kind == "environment" and told.build.low < 0.98 and told.build.high > 1
    assert "the environment did it; whether the build did too cannot be told from so few runs: the build " in told.says


def test_together_they_cannot_be_told_apart_and_the_way_out_is_said():
    rows = [one for one in cells(np.random.default_rng(7), TIMES, BOTH) if one.factors in (A, B)]
    told = explain(rows, A, B)
    assert told.kind == "unknown" and told.parts == [] and told.total.ratio == pytest.approx(1.0815, abs=0.005)
    assert "measure build a under driver 560, or build b under driver 550" in told.says
    assert told.measure == [{"build": "a", "environment": "driver 560"}, {"build": "b", "environment": "driver 550"}]


def test_another_build_under_both_drivers_helps():
    effects = {"build": {"a": 1.0, "b": 1.0, "c": 0.9}, "driver": {"550": 1.0, "560": 1.06}}
    rows = cells(np.random.default_rng(8), TIMES, effects,
                 skip=[{"build": "b", "driver": "550"}, {"build": "a", "driver": "560"}])
    told = explain(rows, A, B)
    assert told.kind == "environment" and "the environment and not the build" in told.says


def test_same_environment_leaves_the_build_alone():
    rows = [one for one in cells(np.random.default_rng(9), TIMES, BOTH) if one.factors["driver"] == "550"]
    told = explain(rows, A, {"build": "b", "driver": "550"})
    assert told.kind == "build" and told.says.startswith("The environment is the same")
    assert "Nothing was measured of build z" in explain(rows, A, {"build": "z", "driver": "550"}).says


def test_registers_that_only_the_toolkit_changed():
    """FLAMEGPU2 #560: 60 → 170 registers from one CUDA to the next."""
    rows = [Observation("k", 10.0, {"build": build, "cuda": cuda}, {"registers": 60 if cuda == "11.0" else 170, "spills": 0})
            for build in ("a", "b") for cuda in ("11.0", "11.3")]
    changes = fact_changes(rows)
    assert {(one.factor, one.level, one.fact, one.before, one.after, one.at["build"]) for one in changes} == {
        ("cuda", "11.3", "registers", 60, 170, "a"), ("cuda", "11.3", "registers", 60, 170, "b")}
    assert fact_changes([Observation("k", 1.0, {"build": "a"}, {"registers": True})]) == []
