"""What the capture tools left on real GPUs (tests/gpu/captures): each file is read whole and is what was asked for."""

from pathlib import Path

import pytest

from profiles import ingest
from profiles.ingest.trace import Category, Report, Summary, Trace
from tests.profiles.ingest.corpus import DATA

CAPTURED = DATA / "captured"
AT_THE_END = "h100_memory_snapshot.pickle.gz"


@pytest.mark.parametrize("path", sorted(CAPTURED.glob("h?00_*")), ids=lambda path: path.name)
def test_nothing_of_a_capture_is_lost(path: Path) -> None:
    read = ingest.read(path)
    assert isinstance(read, {".ncu-rep": Report, ".hatchet": Summary, ".csv": Summary}.get(Path(path.stem).suffix, Trace))
    lost = {"the start of an annotation without its end": 1} if path.name == AT_THE_END else {}  # open when it was dumped
    assert read.integrity.not_kept == lost and read.integrity.truncated_at is None


def test_wildcards_of_metrics_are_counted_for_both_kernels() -> None:
    report = ingest.read(CAPTURED / "h200_ncu_wildcards.ncu-rep.gz")
    assert isinstance(report, Report)
    assert {"matmul" if "matmul" in launch.kernel else launch.kernel for launch in report.launches} == {"matmul", "softmax_row"}
    for launch in report.launches:
        pipes = [name for name in launch.metrics if name.startswith("sm__inst_executed_pipe_")]
        assert len(pipes) > 10 and any(name.startswith("dram__bytes") for name in launch.metrics)


def test_each_cycle_is_a_trace_of_two_steps() -> None:
    steps = []
    for cycle in (1, 2):
        trace = ingest.read(CAPTURED / f"h100_torch_cycle_{cycle}.json.gz")
        assert isinstance(trace, Trace)
        names = [row["name"] for row in trace.slices.to_pylist() if row["category"] == Category.ANNOTATION]
        steps.append(sorted({name for name in names if name.startswith("ProfilerStep#")}))
    assert [len(each) for each in steps] == [2, 2] and not set(steps[0]) & set(steps[1])


def test_a_job_that_ran_was_recorded_for_five_steps_with_its_kernels() -> None:
    trace = ingest.read(CAPTURED / "h200_running_5_steps.json.gz")
    assert isinstance(trace, Trace) and trace.integrity.kinds["kernel"] == 795


def test_a_snapshot_when_memory_ran_out_holds_the_request_that_failed() -> None:
    trace = ingest.read(CAPTURED / "h100_memory_snapshot_oom.pickle.gz")
    assert isinstance(trace, Trace) and trace.integrity.kinds["entry: oom"] == 1


def test_a_snapshot_on_request_was_taken_while_the_program_trained_on() -> None:
    trace = ingest.read(CAPTURED / "h100_memory_snapshot_on_request.pickle.gz")
    assert isinstance(trace, Trace) and trace.integrity.kinds["annotation"] == 100
    assert trace.integrity.kinds["entry: alloc"] == 744 and "entry: oom" not in trace.integrity.kinds


def test_the_cutlass_profiler_s_own_numbers_are_shown() -> None:
    """GFLOPs of its table are 10^9 a second, GB/s 2^30 bytes; its work holds 2·m·n for the epilogue."""
    summary = ingest.read(CAPTURED / "h100_cutlass_gemm.csv.gz")
    assert isinstance(summary, Summary) and len(summary.kernels) == 12
    tried = next(each for each in summary.tables if each.title == "All kernels that were tried")
    first = dict(zip([column.name for column in tried.columns], tried.rows[0], strict=True))
    assert first["Time of a launch"] == 838_555 and first["Disposition"] == "passed"
    assert first["Operations per second"] == pytest.approx((2 * 1024 * 4096 * 4096 + 2 * 1024 * 4096) / 838_555e-9, rel=1e-4)
