"""Periodic samples: windows and tails drawn by hand, and the reports' own sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from profiles.analysis.kernel.sampling import checks, plain_name, samples_within, series_of, window
from profiles.charts.sampling import MAX_POINTS, sampling_figure, thin
from profiles.ingest.ncu.container import periodic
from profiles.ingest.trace import PERIODIC
from tests.profiles.kernel.reports import read

STEP_NS = 1000


def table(**series: list[float]) -> pa.Table:
    """Series by name ("sm__cycles_active_avg"; the last "_" of a metric's roll-up as it stands there), a sample per µs."""
    rows: list[dict[str, Any]] = [
        {"metric": f"TPC.TriageCompute.{name.replace('__avg', '.avg')}", "unit": "", "label": "", "time_ns": at * STEP_NS,
         "value": value} for name, values in series.items() for at, value in enumerate(values)]
    return pa.Table.from_pylist(rows, PERIODIC)


def test_the_window_its_start_and_its_tail() -> None:
    #        before   start   full                   tail        after
    drawn = [0.0, 0,  40,     100, 100, 100, 100, 100, 60, 40, 20, 10,  0, 0]
    found = window(series_of(table(sm__cycles_active__avg=drawn)))
    assert found is not None
    assert (found.start_ns, found.end_ns, found.length_ns, found.step_ns) == (2000, 12000, 10000, 1000)
    assert (found.start_up_ns, found.tail_ns) == (1000, 3000)                   # 40 is below half; so are 40, 20, 10
    assert found.active_pct == pytest.approx(10 * (0.4 + 5 + 0.6 + 0.4 + 0.2 + 0.1))
    assert found.tail_lost_pct == pytest.approx(10 * (0.6 + 0.8 + 0.9))
    (series,) = series_of(table(sm__cycles_active__avg=drawn))
    assert samples_within(series, found).tolist() == drawn[2:12]


def test_nothing_active_has_no_window() -> None:
    assert window(series_of(table(sm__cycles_active__avg=[0.0] * 9))) is None
    assert window([]) is None
    assert window(series_of(table(l1tex__t_sectors__avg=[1.0, 2.0]))) is None
    assert series_of(PERIODIC.empty_table()) == []


def test_one_merged_sample_does_not_make_the_rest_a_tail() -> None:
    found = window(series_of(table(sm__cycles_active__avg=[100.0] * 10 + [400.0] + [100.0] * 10)))
    assert found is not None
    assert (found.tail_ns, found.start_up_ns, found.active_pct) == (0, 0, 100.0)


@pytest.mark.parametrize("name", ["h200/buildA.ncu-rep.zst", "causes/causes_planted.ncu-rep.zst",
                                  "corpus/ncu/cutlass_fork_a100_report75.ncu-rep.gz"])
def test_samples_add_up_to_the_launchs_counters(name: str) -> None:
    """Another run of the kernel, and counters of the whole GPU that count in steps of 64 or 128 blocks: within 10 %."""
    for launch in read(name).launches:
        assert launch.periodic is not None
        series = series_of(launch.periodic)
        found = checks(series, launch.metrics)
        assert {each.label for each in found} == {"blocks started", "active SM cycles"}
        assert [each for each in found if not each.agrees] == []
        seen, duration = window(series), float(launch.metrics["gpu__time_duration.sum"])
        assert seen is not None
        assert abs(seen.length_ns - duration) <= 3 * seen.step_ns + 0.05 * duration


def test_the_planted_second_wave_is_half_of_the_time() -> None:
    """133 blocks where 132 fit: for the second half one SM of 132 works, (1 − 1/132) / 2 of the SM time is idle."""
    launch = next(each for each in read("causes/causes_planted.ncu-rep.zst").launches if each.kernel.startswith("tail_wave"))
    assert launch.periodic is not None
    found = window(series_of(launch.periodic))
    assert found is not None and found.tail_lost_pct == pytest.approx(100 * (1 - 1 / 132) / 2, abs=0.5)
    assert found.tail_ns == pytest.approx(found.length_ns / 2, abs=found.step_ns)


def test_absolute_times_begin_at_the_first_sample() -> None:
    clock = 1_795_252_835_949_706_976
    said = [{"metric": "pmsampling:sm__cycles_active.avg", "unit": "cycle", "label": "",
             "times": [0, clock, clock + 20, clock + 40], "values": [7.0, 1.0, None, 3.0]}]
    assert periodic(said).select(["time_ns", "value"]).to_pylist() == [{"time_ns": 0, "value": 1.0}, {"time_ns": 40, "value": 3.0}]
    assert periodic([]).schema.equals(PERIODIC)


def test_names_without_the_samplers_configuration() -> None:
    assert plain_name("TPC.TriageCompute.sm__cycles_active.avg") == plain_name("pmsampling:sm__cycles_active.avg")
    assert plain_name("FBSP.TriageA.dramc__x.avg") == "dramc__x.avg"


def test_long_series_are_drawn_as_means() -> None:
    (series,) = series_of(table(sm__cycles_active__avg=np.arange(4 * MAX_POINTS, dtype=float).tolist()))
    time, values = thin(series)
    assert len(time) == len(values) == MAX_POINTS
    assert (values[0], values[-1], time[1]) == (1.5, 4 * MAX_POINTS - 2.5, 4 * STEP_NS)
    assert sampling_figure([], None) is None
