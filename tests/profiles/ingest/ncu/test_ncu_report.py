"""Nsight Compute reports: everything the vendor's reader gives, and what becomes of damaged files."""

from __future__ import annotations

import gzip
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiles import ingest
from profiles.ingest.ncu import container
from profiles.ingest.ncu import report as ncu_report
from profiles.ingest.trace import Report, TraceError

DATA = Path(__file__).resolve().parents[3] / "data"
H200 = DATA / "h200"
CORPUS = DATA / "corpus" / "ncu"
DURATIONS = {
    H200 / "full.ncu-rep.zst": [
        174848, 124544, 107264, 86784, 461088, 200896, 12000, 4000, 37536, 273856, 266368],
    CORPUS / "mistic_a100_TINYK1.ncu-rep": [51950734880],
    CORPUS / "speedy_scan_rtx3070.ncu-rep": [336704],
    CORPUS / "cutlass_fork_a100_report75.ncu-rep.gz": [13056, 12928, 29056],
    CORPUS / "esmm_a10g_output.ncu-rep": [431648, 296704, 260512, 222464],
    CORPUS / "esmm_a10g_incomplete_last_kernel.ncu-rep": [139914240, 90892608, 90236288, None],
    CORPUS / "hyperspec_rtx2060maxq.ncu-rep": [
        17614880, 18339424, 18562880, 19121376, 20716512, 19912704, 19918720, 10752960],
    CORPUS / "nukexc_gh200.ncu-rep.gz": [85617280],
}


def read(path: Path) -> Report:
    report = ingest.read(path)
    assert isinstance(report, Report)
    return report


@pytest.mark.parametrize("path", DURATIONS, ids=lambda path: path.name)
def test_durations_of_every_launch(path: Path) -> None:
    report = read(path)
    assert [launch.metrics.get("gpu__time_duration.sum") for launch in report.launches] == DURATIONS[path]
    assert report.integrity.records_read == report.integrity.records_kept == len(DURATIONS[path])


def test_a_launch_carries_its_facts_units_and_rules() -> None:
    report = read(H200 / "full.ncu-rep.zst")
    gemm = report.launches[0]
    assert (gemm.grid, gemm.block, gemm.context, gemm.stream) == ((2, 66, 1), (384, 1, 1), 1, 7)
    assert (gemm.device.name, gemm.device.compute_capability, gemm.device.sm_count) == ("NVIDIA H200", "9.0", 132)
    assert len(gemm.metrics) > 2000
    assert report.units["gpu__time_duration.sum"] == "ns"
    assert report.units["dram__bytes_read.sum"] == "byte"
    assert report.units["dram__cycles_elapsed.avg.per_second"] == "hz"
    assert report.metadata["ncu_command_line"].split()[1:3] == ["--clock-control", "none"]
    barrier = next(rule for rule in gemm.rules if rule.title == "Barrier Stalls")
    assert (barrier.identifier, barrier.section, barrier.severity) == ("CPIStall", "WarpStateStats", "optimization")
    assert barrier.speedup_scope == "global"
    assert barrier.speedup_pct == pytest.approx(9.602575428640037)
    assert {"smsp_average_barrier", "smsp__issue_active.avg.per_cycle_active"} == {f["name"] for f in barrier.focus}


def test_sampling_totals_add_up() -> None:
    for launch in read(H200 / "full.ncu-rep.zst").launches:
        sampled = sum(value for name, value in launch.metrics.items()
                      if name.startswith("smsp__pcsamp_warps_issue_stalled_") and not name.endswith("_not_issued"))
        assert sampled == launch.metrics["smsp__pcsamp_sample_count"]


def test_an_unfinished_launch_is_kept_apart() -> None:
    report = read(CORPUS / "esmm_a10g_incomplete_last_kernel.ncu-rep")
    assert [bool(launch.incomplete) for launch in report.launches] == [False, False, False, True]
    assert sum(report.integrity.repaired.values()) == 1


def test_a_cut_report_gives_its_whole_launches_and_counts_the_rest(tmp_path: Path) -> None:
    whole = (CORPUS / "hyperspec_rtx2060maxq.ncu-rep").read_bytes()
    cut = tmp_path / "cut.ncu-rep"
    cut.write_bytes(whole[:200_000])
    report = read(cut)
    kept = len(report.launches)
    assert 0 < kept < 8
    assert [launch.metrics["gpu__time_duration.sum"] for launch in report.launches] == list(DURATIONS.values())[6][
        :kept
    ]
    assert report.integrity.truncated_at
    assert report.integrity.records_read == kept + sum(report.integrity.not_kept.values())


def test_a_report_cut_before_its_first_launch_says_where(tmp_path: Path) -> None:
    cut = tmp_path / "cut.ncu-rep"
    cut.write_bytes((CORPUS / "mistic_a100_TINYK1.ncu-rep").read_bytes()[:90_000])
    with pytest.raises(TraceError, match="cut off before its first whole launch") as caught:
        ingest.read(cut)
    assert caught.value.where == "byte 38385"


@pytest.mark.slow
@pytest.mark.parametrize("at", range(12, 236_000, 23_500))
def test_damage_anywhere_never_takes_the_reader_down(tmp_path: Path, at: int) -> None:
    damaged = bytearray((CORPUS / "speedy_scan_rtx3070.ncu-rep").read_bytes())
    damaged[at:at + 64] = os.urandom(64)
    path = tmp_path / "damaged.ncu-rep"
    path.write_bytes(damaged)
    try:
        report = ingest.read(path)
    except TraceError as error:
        assert error.where and error.what and error.hint
    else:
        integrity = report.integrity
        assert integrity.records_read == integrity.records_kept + sum(integrity.not_kept.values())


def test_gzip_cut_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "cut.ncu-rep.gz"
    packed = gzip.compress((CORPUS / "hyperspec_rtx2060maxq.ncu-rep").read_bytes())
    path.write_bytes(packed[:len(packed) * 3 // 4])
    report = read(path)
    assert 0 < len(report.launches) < 8
    assert any("compressed" in note for note in report.integrity.notes)


@pytest.mark.parametrize(("script", "said"), [
    ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", f"signal {signal.SIGSEGV.value}"),
    ("import time; print('{\"ranges\": 1}', flush=True); time.sleep(60)", "said nothing for"),
    ("print('{\"missing\": \"ncu_report\"}')", "pip install 'ncu-report"),
])
def test_a_child_that_dies_hangs_or_has_no_reader(
        script: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = tmp_path / "child.py"
    child.write_text(script)
    monkeypatch.setattr(ncu_report, "CHILD", child)
    monkeypatch.setattr(ncu_report, "SILENCE_S", 1.0)
    with pytest.raises(TraceError) as caught:
        ingest.read(CORPUS / "speedy_scan_rtx3070.ncu-rep")
    assert said in str(caught.value)


def test_the_native_reader_runs_under_a_memory_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ncu_report, "MEMORY_BASE_BYTES", 20 * 2**20)
    with pytest.raises(TraceError):
        ingest.read(CORPUS / "speedy_scan_rtx3070.ncu-rep")


def test_fields_refuses_what_is_no_message() -> None:
    assert list(container.fields(b"\x08\x96\x01\x12\x02hi")) == [(1, 150), (2, b"hi")]
    for bad in (b"\x08", b"\x12\x05hi", b"\x0b", b"\xff" * 11):
        with pytest.raises(ValueError):
            list(container.fields(bad))


@pytest.mark.slow
@pytest.mark.parametrize(("section", "repaired"), [
    ({"sampling": []}, 0),
    ({"sampling": [{"metric": "pmsampling:a", "unit": "", "label": "", "times": [], "values": []}]}, 0),
    ({"sampling": [{"metric": "pmsampling:a", "unit": "", "label": "", "times": [1, 2], "values": [None, None]}]}, 0),
    ({"sampling": [{"metric": "pmsampling:a", "times": [1, 2], "values": [1.0, 2.0]}]}, 1),
    ({"sampling": [{"metric": "pmsampling:a", "unit": "", "label": "", "times": [1], "values": [1.0, 2.0]}]}, 1),
    ({"instructions": {"address": [16]}}, 1),
    ({"instructions": {"address": [16, "x"], "sass": [], "ptx": [], "file": [], "line": [], "metrics": {}, "cut": 0}}, 1),
    ({"files": [{"number": 0}]}, 1)], ids=str)
def test_an_optional_section_that_is_empty_or_cut_loses_only_itself(
        section: dict[str, object], repaired: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the last launch, as an interrupted capture leaves it."""
    path = H200 / "full.ncu-rep.zst"
    whole = read(path)
    ask = ncu_report._documents

    def cut(*given: object) -> Iterator[dict[str, object]]:
        for document in ask(*given):            # type: ignore[arg-type]
            last = document.get("name") == whole.launches[-1].kernel and "metrics" in document
            yield {**{key: value for key, value in document.items() if key not in ("sampling", "instructions", "files")},
                   **section} if last else document

    monkeypatch.setattr(ncu_report, "_documents", cut)
    found = read(path)
    assert [launch.metrics for launch in found.launches] == [launch.metrics for launch in whole.launches]
    assert found.launches[0].instructions is not None and found.launches[-1].instructions is None
    assert found.launches[-1].periodic is None or not found.launches[-1].periodic.num_rows
    assert sum(count for what, count in found.integrity.repaired.items() if "inside a launch" in what) == repaired
