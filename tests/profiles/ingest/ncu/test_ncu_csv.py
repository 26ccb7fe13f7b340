"""CSV pages of ncu: the same values as the report they were made from, to the last printed digit."""

from __future__ import annotations

import gzip
import math
from dataclasses import replace
from pathlib import Path

import pytest

from profiles import ingest
from profiles.analysis.kernel.counters import kernel_table, launch_facts
from profiles.ingest.ncu.report import accept_untimed, launch_from
from profiles.ingest.ncu.sections import base_unit, decimal_sign, value_of
from profiles.ingest.trace import Report, TraceError

DATA = Path(__file__).resolve().parents[3] / "data"
H200, NCU, CSV = DATA / "h200", DATA / "corpus" / "ncu", DATA / "corpus" / "ncu_csv"
PAIRS = [
    (H200 / "buildA.ncu-rep.zst", H200 / "buildA_raw.csv.gz"),
    (H200 / "buildB.ncu-rep.zst", H200 / "buildB_raw.csv.gz"),
    (H200 / "full.ncu-rep.zst", H200 / "full_raw.csv.gz"),
    (NCU / "hyperspec_rtx2060maxq.ncu-rep", CSV / "hyperspec_rtx2060maxq.raw.csv"),
    (NCU / "speedy_scan_rtx3070.ncu-rep", CSV / "speedy_scan_rtx3070.raw_base_units.csv"),
    (NCU / "esmm_a10g_incomplete_last_kernel.ncu-rep", CSV / "esmm_a10g_incomplete_last_kernel.raw.csv"),
]


def read(path: Path) -> Report:
    report = ingest.read(path)
    assert isinstance(report, Report)
    return report


def cells(path: Path) -> list[str]:
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    return text.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(("report_path", "csv_path"), PAIRS, ids=lambda path: path.name)
def test_values_equal_those_of_the_report(report_path: Path, csv_path: Path) -> None:
    report, table = read(report_path), read(csv_path)
    assert len(report.launches) == len(table.launches)
    compared = 0
    for launch, row in zip(report.launches, table.launches, strict=True):
        assert row.incomplete == launch.incomplete
        for name, printed in row.metrics.items():
            exact = launch.metrics.get(name)
            if exact is None:  # of an unfinished launch the table's first columns say more, and it prints 0 for NaN
                assert launch.incomplete
                continue
            compared += 1
            if isinstance(printed, str) or isinstance(exact, str):
                assert printed == exact, name
            elif exact < -1:  # ncu prints a count below zero as 0
                assert printed in (0, exact), name
            else:
                rel = 5e-3 if abs(exact) < 10 else 6e-4
                assert math.isclose(printed, exact, rel_tol=rel, abs_tol=0.00501), name
    assert compared > 500
    assert [row.metrics.get("gpu__time_duration.sum") for row in table.launches] == [
        launch.metrics.get("gpu__time_duration.sum") for launch in report.launches]
    for name in ("gpu__time_duration.sum", "dram__cycles_elapsed.avg.per_second"):
        assert table.units[name] == report.units[name]


def test_grid_block_device_come_from_the_first_columns() -> None:
    row = read(H200 / "full_raw.csv.gz").launches[0]
    assert (row.grid, row.block, row.stream, row.device.compute_capability) == ((2, 66, 1), (384, 1, 1), 7, "9.0")


def test_output_of_ncu_and_of_the_program_may_lie_between_the_rows(tmp_path: Path) -> None:
    header, units, *rows = cells(CSV / "hyperspec_rtx2060maxq.raw.csv")
    noisy = [
        "==PROF== Connected to process 64",
        "",
        "epoch 1, loss 0.25",
        header,
        units,
        rows[0],
        '==PROF== Profiling "f"',
        "step 2, 3, 4",
        *rows[1:],
        "==PROF== Disconnected",
        "",
    ]
    path = tmp_path / "noisy.txt"
    path.write_text("\r\n".join(noisy))
    table = read(path)
    assert len(table.launches) == 8
    assert table.integrity.records_read == table.integrity.records_kept == 8


def test_rows_that_are_cut_are_counted(tmp_path: Path) -> None:
    lines = cells(CSV / "hyperspec_rtx2060maxq.raw.csv")
    path = tmp_path / "cut.csv"
    path.write_text("\n".join([*lines[:-1], lines[-1][:400]]))
    table = read(path)
    assert (len(table.launches), table.integrity.records_read, sum(table.integrity.not_kept.values())) == (7, 8, 1)


def test_a_locale_with_comma_decimals(tmp_path: Path) -> None:
    path = tmp_path / "german.csv"
    path.write_text(
        '"ID","Kernel Name","Grid Size","gpu__time_duration.sum","launch__grid_size","dram__bytes_read.sum"\n'
        '"","","","us","","Mbyte"\n'
        '"0","f(int, ""x"")","(1, 1, 1)","1.234,56","16.896","2,33"\n'
    )
    launch = read(path).launches[0]
    assert launch.kernel == 'f(int, "x")'
    assert launch.metrics["gpu__time_duration.sum"] == pytest.approx(1_234_560)
    assert launch.metrics["launch__grid_size"] == 16896
    assert launch.metrics["dram__bytes_read.sum"] == pytest.approx(2.33e6)


@pytest.mark.parametrize("name", ["hyperspec_rtx2060maxq", "llmperfopt_rtx5090_k0001"])
def test_the_details_page_is_read_as_far_as_its_labels_are_known(name: str) -> None:
    report = read(CSV / f"{name}.details.csv")
    integrity = report.integrity
    assert integrity.records_read == integrity.records_kept + sum(integrity.not_kept.values())
    assert any("--page raw" in note for note in integrity.notes)
    first = report.launches[0].metrics
    if name.startswith("hyper"):
        assert len(report.launches) == 8
        assert first["gpu__time_duration.sum"] == 17_610_000
        assert first["dram__cycles_elapsed.avg.per_second"] == pytest.approx(5.52e9)
    else:
        assert first["gpu__time_duration.sum"] == 6750
        assert first["dram__bytes.sum.per_second"] == pytest.approx(345.14e9)
        assert first["gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"] == 19.66
        assert [rule.speedup_pct for rule in report.launches[0].rules if rule.speedup_pct] == [80.34, 80.34]


def test_a_details_page_of_single_metrics_has_real_names() -> None:
    first = read(CSV / "llmperfopt_rtx5090_k0001.metrics.csv").launches[0].metrics
    assert first["dram__bytes_read.sum"] == pytest.approx(2.33e6)
    assert first["dram__bytes_write.sum"] == 0
    assert "flop_count_hp.sum" not in first        # "n/a" is unknown, not zero


SINGLE = (DATA / "ncu/single_metrics.details.csv").read_text()
SINGLE_RAW = (DATA / "ncu/single_metrics.raw.csv").read_text()


@pytest.mark.parametrize(("content", "registers"), [(SINGLE, [39, None]), (SINGLE_RAW, [39, 16])], ids=["details", "raw"])
def test_single_metrics_without_a_duration_make_kernels_whose_time_is_unknown(
        tmp_path: Path, content: str, registers: list[int | None]) -> None:
    path = tmp_path / "single.csv"
    path.write_text(content)
    report = read(path)
    assert not any(launch.incomplete for launch in report.launches)
    assert any("no duration" in note for note in report.integrity.notes)
    assert report.integrity.records_read == report.integrity.records_kept
    rows = kernel_table(report)
    assert [(row.short_name, row.registers_per_thread) for row in rows] == list(zip(["saxpy", "gather"], registers, strict=True))
    for row in rows:
        assert (row.total_ns, row.mean_ns, row.p50_ns, row.min_ns, row.share_pct) == (None,) * 5      # unknown, not zero
    facts = launch_facts(report.launches[0])
    if content is SINGLE:
        assert facts.occupancy.achieved_pct == 55.5
        assert [(stall.reason, stall.cycles, stall.share_pct) for stall in facts.stalls] == [
            ("long_scoreboard", None, 71.25), ("wait", None, 10.0)]
    else:
        assert facts.launch["waves_per_sm"] == 0.25 and report.launches[0].metrics["l1tex__t_sectors.sum"] == 1024


def test_where_any_launch_has_a_duration_one_without_was_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "cut.csv"
    path.write_text('"ID","Kernel Name","gpu__time_duration.avg","launch__registers_per_thread"\n'
                    '"","","usecond","register/thread"\n'
                    '"0","f()","2.5","32"\n"1","g()","","40"\n')
    report = read(path)
    assert report.launches[0].metrics["gpu__time_duration.sum"] == 2500      # one instance per GPU: mean and sum are equal
    assert [bool(launch.incomplete) for launch in report.launches] == [False, True]
    assert [(row.name, row.total_ns) for row in kernel_table(report)] == [("f()", 2500), ("g()", None)]


FAILED = '==ERROR== Failed to profile "flash_fwd_kernel" in process 1234\n'
METRICS = '"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"\n'
TIMED = '"{0}","1","{1}","Command line profiler metrics","gpu__time_duration.sum","usecond","10.00"\n'


def test_a_launch_that_ncu_could_not_profile_is_one_without_a_time(tmp_path: Path) -> None:
    path = tmp_path / "failed.csv"
    path.write_text("==PROF== Connected to process 1234\n" + FAILED + METRICS + TIMED.format(0, "copy(float*)"))
    rows = [(row.name, row.launches, row.total_ns) for row in kernel_table(read(path))]
    assert rows == [("copy(float*)", 1, 10_000), ("flash_fwd_kernel", 1, None)]
    # where the table has the launch, it is no second one
    path.write_text(FAILED + '"ID","Kernel Name","gpu__time_duration.sum"\n"","","ns"\n"0","copy(float*)","10"\n'
                    '"1","void flash_fwd_kernel<128>(int)",""\n')
    assert [(row.name, row.launches, row.total_ns) for row in kernel_table(read(path))] == [
        ("copy(float*)", 1, 10), ("void flash_fwd_kernel<128>(int)", 1, None)]


def test_two_runs_in_one_table_are_not_one_launch(tmp_path: Path) -> None:
    """Each numbers its launches anew."""
    path = tmp_path / "two.csv"
    path.write_text(METRICS + TIMED.format(0, "first()") + METRICS + TIMED.format(0, "second()"))
    assert sorted((row.name, row.launches) for row in kernel_table(read(path))) == [("first()", 1), ("second()", 1)]


def test_a_table_without_rows_says_so(tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text(cells(CSV / "hyperspec_rtx2060maxq.raw.csv")[0] + "\n")
    with pytest.raises(TraceError, match="no rows"):
        ingest.read(path)


@pytest.mark.parametrize(
    ("printed", "factor", "unit"),
    [
        ("usecond", 1e3, "ns"),
        ("ms", 1e6, "ns"),
        ("second", 1e9, "ns"),
        ("Kbyte", 1e3, "byte"),
        ("Gbyte/second", 1e9, "byte/s"),
        ("Tbyte/s", 1e12, "byte/s"),
        ("cycle/nsecond", 1e9, "hz"),
        ("cycle/usecond", 1e6, "hz"),
        ("Ghz", 1e9, "hz"),
        ("sector/ns", 1e9, "sector/s"),
        ("Kbyte/block", 1e3, "byte/block"),
        ("%", 1, "%"),
        ("inst/cycle", 1, "inst/cycle"),
        ("", 1, ""),
        ("furlong", 1, "furlong"),
    ],
)
def test_units(printed: str, factor: float, unit: str) -> None:
    assert base_unit(printed) == (factor, unit)


@pytest.mark.parametrize(("seen", "sign"), [
    (["1,234", "4,963,609,951.19"], "."), (["1.234,56"], ","), (["0.25"], "."), (["12,5"], ","), (["1,234"], "."),
    (["1.234.567"], ","), (["1,234,567"], "."), (["CachePreferNone", ""], "."), (["0.125"], "."),
])
def test_decimal_sign(seen: list[str], sign: str) -> None:
    assert decimal_sign(seen) == sign


def test_values() -> None:
    assert value_of("4,963,609,951.19", ".") == 4963609951.19
    assert value_of("-nan", ".") is value_of("n/a", ".") is value_of("", ".") is value_of("no data", ".") is None
    assert value_of("5 (1; 2; 2)", ".") == 5
    assert value_of("No-CC", ".") == "No-CC"


def test_a_table_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profiles.ingest.ncu.csv_pages.MAX_LINES", 5)
    path = tmp_path / "endless.csv"
    path.write_text("\n".join([*cells(H200 / "full_raw.csv.gz")[:4], *["program output"] * 5]))
    with pytest.raises(TraceError, match="line 6"):
        ingest.read(path)


def test_a_report_without_durations_keeps_what_was_counted_and_drops_what_was_interrupted() -> None:
    """NVIDIA's own report, with the duration taken out as if single metrics had been collected."""
    report = read(NCU / "esmm_a10g_incomplete_last_kernel.ncu-rep")
    stripped = [launch_from(launch.index, launch.kernel, {
        name: value for name, value in launch.metrics.items() if not name.startswith("gpu__time_duration")}, launch.rules)
        for launch in report.launches]
    assert all(launch.incomplete for launch in stripped)
    single = replace(report, launches=stripped)
    accept_untimed(single)
    assert [launch.incomplete is None for launch in single.launches] == [True, True, True, False]
    rows = kernel_table(single)
    assert all(row.total_ns is None for row in rows)
    assert [bool(row.registers_per_thread) for row in rows] == [True, True, True, False]
