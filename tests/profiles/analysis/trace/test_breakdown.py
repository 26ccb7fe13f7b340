"""Where time goes, on traces small enough to check by eye."""

import pytest

from profiles import ingest
from profiles.analysis.core.frame import frame_of
from profiles.analysis.trace.breakdown import breakdown
from tests.builders import trace
from tests.launches import launch_calls
from tests.profiles.ingest.corpus import CORPUS


def test_parts_exclude_each_other_and_add_up():
    found = breakdown(trace("""
        p / main: python_main@python 0-100
        GPU 0 / stream 7: gemm 10-30
        GPU 0 / stream 20: ncclAllReduce 20-50
        GPU 0 / stream 21: Memcpy HtoD 40-60
    """))
    device, = found.devices
    assert (found.wall_ns, device.busy_ns, device.idle_ns) == (100_000, 50_000, 50_000)
    assert (device.compute_ns, device.communication_ns, device.memory_ns) == (20_000, 20_000, 10_000)
    assert (device.communication_overlapped_ns, device.memory_overlapped_ns) == (10_000, 10_000)
    assert (device.span_ns, device.idle_in_span_ns, device.launches, device.kernel_ns) == (50_000, 0, 2, 50_000)


def test_wall_time_is_the_same_for_all_devices():
    found = breakdown(trace("""
        p / main: op@cpu_op 0-100
        GPU 0 / stream 7: a 10-20
        GPU 1 / stream 7: b 30-70
    """))
    assert [(d.index, d.wall_ns, d.busy_ns) for d in found.devices] == [(0, 100_000, 10_000), (1, 100_000, 40_000)]


def test_marks_and_overhead_do_not_make_wall_time():
    found = breakdown(trace("""
        p / main: op@cpu_op 10-20 | mark@other 500 | flush@overhead 0-400
        GPU 0 / stream 7: a 15-30 | wait@sync 30-90 | step@gpu_annotation 15-95
    """))
    assert (found.start_ns, found.wall_ns, found.devices[0].busy_ns) == (10_000, 20_000, 15_000)


def test_steps_sum_to_their_length():
    found = breakdown(trace("""
        p / main: ProfilerStep#0 0-50 | ProfilerStep#1 50-100 | ProfilerStep#10 100-120 | step 2@annotation 0-10
        GPU 0 / stream 7: gemm 10-60 | ncclReduce 55-70
    """))
    assert [(s.name, s.busy_ns, s.idle_ns, s.compute_ns, s.communication_ns) for s in found.steps] == [
        ("ProfilerStep#0", 40_000, 10_000, 40_000, 0), ("ProfilerStep#1", 20_000, 30_000, 10_000, 10_000),
        ("ProfilerStep#10", 0, 20_000, 0, 0)]


def test_idle_time_by_cause():
    """The first gap ends with work that was launched late, the second with work that waited in its queue."""
    found = breakdown(trace("""
        p / main: cudaLaunchKernel 0-5 corr=1 | aten::item 10-38 | cudaLaunchKernel 40-45 corr=2 | cudaLaunchKernel 46-48 corr=3
        GPU 0 / stream 7: a 5-10 corr=1 | b 50-60 corr=2 | c 80-90 corr=3 | d 95-100
    """))
    device, = found.devices
    assert device.idle_causes == {"host_late_ns": 35_000, "queued_ns": 25_000, "unknown_ns": 5_000, "before_and_after_ns": 5_000}
    longest = device.longest_gaps[0]
    assert (longest["start_ns"], longest["end_ns"], longest["next"], longest["host_late_ns"]) == (10_000, 50_000, "b", 35_000)
    assert longest["cpu"][0] == {"name": "aten::item", "ns": 28_000}


def test_without_a_gpu():
    found = breakdown(trace("p / main: op 0-10"))
    assert (found.wall_ns, found.devices, found.as_json()["steps"]) == (10_000, [], [])


@pytest.fixture
def linked():
    return trace("""
        p / main: aten::mm 0-20 ext=7 | cudaGraphLaunch 2-6 corr=1 ext=7 | cudaMalloc 10-11 corr=9 ext=9
        GPU 0 / stream 7: a 4-5 corr=1 ext=7 | b 9-12 corr=1 ext=7 | c 1-2 corr=5 ext=9
    """)


def test_launch_calls(linked):
    names = linked.slices["name"].to_pylist()
    calls = launch_calls(linked)
    owner = {name: names[call] if call >= 0 else None for name, call in zip(names, calls.tolist(), strict=True)}
    assert (owner["a"], owner["b"], owner["c"]) == ("cudaGraphLaunch", "cudaGraphLaunch", None)


def test_operators_are_operators(linked):
    """External id 9 is only a runtime call's: no operator (PyTorch 2.2-2.4 writes the correlation there)."""
    frame = frame_of(linked)
    owner = {frame.text(row): int(frame.operator[row]) for row in frame.kernels}
    assert (frame.text(owner["a"]), owner["c"]) == ("aten::mm", -1)


def test_against_holistic_trace_analysis():
    """A file with whole microseconds: get_temporal_breakdown of HTA 0.5.0, last step included, says the same."""
    device, = breakdown(ingest.read(CORPUS / "kineto/hta_sampled_rank-0_of128.json.gz")).devices
    assert (device.span_ns, device.idle_in_span_ns) == (1_222_847_000, 675_191_000)
    assert (device.compute_ns, device.busy_ns - device.compute_ns) == (210_320_000, 337_336_000)
