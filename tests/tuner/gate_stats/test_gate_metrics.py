"""Registers, spills, shared memory, counters: limits beside time."""

import pytest

from tests.tuner.gate_stats.gate_runs import BASE, SAME, kernel
from tuner.gate.stats.metrics import check_limits
from tuner.gate.stats.suite import judge


def judged(limits, baseline, candidate):
    found = judge([kernel(BASE, facts=baseline)], [kernel(SAME, facts=candidate)], metrics=limits).kernels[0]
    return found.verdict, found.metrics[0]


@pytest.mark.parametrize(("limit", "before", "after", "verdict"), [
    ({"max_increase": 0.1}, 64, 70, "PASS"), ({"max_increase": 0.1}, 64, 71, "SLOWER"), ({"max_increase": 0}, 64, 64, "PASS"),
    ({"max_increase": 0}, 64, 65, "SLOWER"), ({"max_increase": 0.1}, 0, 1, "SLOWER"), ({"max_increase": 0.1}, 0, 0, "PASS"),
    ({"max_decrease": 0.1}, 50, 46, "PASS"), ({"max_decrease": 0.1}, 50, 44, "SLOWER"), ({"max_decrease": 0.1}, 50, 90, "PASS"),
    ({"max": 0}, 0, 0, "PASS"), ({"max": 0}, 0, 8, "SLOWER"), ({"min": 40}, 60, 39, "SLOWER"), ({"min": 40}, 60, 41, "PASS"),
    ({"max_increase": 0.1, "max": 68}, 64, 70, "SLOWER"), ({"max_increase": 0.1}, -10, -10, "PASS"),
    ({"max_increase": 0.1}, -10, -9, "PASS"), ({"max_increase": 0.1}, -10, -8, "SLOWER"), ({"max_decrease": 0.1}, -10, -10, "PASS"),
    ({"max_decrease": 0.1}, -10, -12, "SLOWER"),
])
def test_a_number_that_is_the_same_in_each_run_needs_no_statistics(limit, before, after, verdict):
    called, row = judged({"registers": limit}, {"registers": before}, {"registers": after})
    assert called == verdict == row["verdict"] and row["baseline"] == before and row["candidate"] == after
    assert f"{after:g}" in row["reason"]


def test_a_number_that_varies_is_judged_by_its_interval():
    bytes_ = [{"dram_bytes": 1e9 * (1 + at / 1000)} for at in range(10)]
    more = [{"dram_bytes": 1.3e9 * (1 + at / 1000)} for at in range(5)]
    noisy = [{"dram_bytes": 1e9 * (1 + at / 5)} for at in range(10)]
    limit = {"dram_bytes": {"max_increase": 0.05}}
    assert judged(limit, bytes_, bytes_[:5])[0] == "PASS"
    assert judged(limit, bytes_, more)[0] == "SLOWER"
    assert judged(limit, noisy, noisy[3:8])[0] == "AMBIGUOUS"
    assert judged({"dram_bytes": {"max_decrease": 0.05}}, more + more, bytes_[:5])[0] == "SLOWER"
    misses = [{"misses": at % 3} for at in range(10)]                  # no ratio to zero: 0, 1, 2, 0, …
    limit = {"misses": {"max_increase": 0.1}}
    assert judged(limit, misses, [misses[at] for at in (0, 1, 2, 2, 2)])[0] == "AMBIGUOUS", "medians 1 and 2 by chance"
    assert judged(limit, misses, [{"misses": 50 + at} for at in range(5)])[0] == "SLOWER"


def test_an_unknown_metric_has_no_data_unless_the_suite_lets_it():
    called, row = judged({"tensor_pct": {"max_decrease": 0.1}}, {}, {})
    assert called == row["verdict"] == "NO DATA" and row["candidate"] is None
    assert judged({"tensor_pct": {"max_decrease": 0.1, "optional": True}}, {}, {})[0] == "PASS"
    assert judged({"spills": {"max": 0}}, {}, {"spills": 0})[0] == "PASS", "a bound of its own needs no baseline"
    assert judged({"spills": {"max": 0}}, {}, {"spills": True})[0] == "NO DATA", "a boolean is no number"


def test_what_the_compiler_changed_is_shown_without_a_limit():
    before, after = ({"registers": registers, "spills": 0} for registers in (64, 72))
    found = judge([kernel(BASE, facts=before)], [kernel(SAME, facts=after)]).kernels[0]
    assert [row["metric"] for row in found.metrics] == ["registers"] and found.verdict == "PASS"


@pytest.mark.parametrize(("limits", "where"), [
    ({"registers": 5}, "registers"), ({"registers": {}}, "registers"), ({"registers": {"most": 5}}, "registers.most"),
    ({"registers": {"max": True}}, "registers.max"), ({"registers": {"max": float("nan")}}, "registers.max"),
    ({"registers": {"max_increase": -0.1}}, "registers.max_increase"),
    ({"registers": {"max": 1, "optional": 1}}, "registers.optional"),
    ({"registers": {"max": 10**400}}, "registers.max"),
])
def test_limits_that_make_no_sense_are_named(limits, where):
    assert where in check_limits(limits)


def test_limits_that_do():
    assert check_limits({"registers": {"max_increase": 0.1, "optional": True}, "spills": {"max": 0}, "x": {"min": -1.5}}) == {}
