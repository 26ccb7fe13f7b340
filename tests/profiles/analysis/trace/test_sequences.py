"""Runs of kernels that could be one, what that saves, and the frequent kernel sequences of operators."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from profiles import ingest
from profiles.analysis.core.frame import Frame, frame_of
from profiles.analysis.trace.critical.topic import critical_result
from profiles.analysis.trace.launching.topic import launches_result
from profiles.analysis.trace.sequences.runs import Part, candidates, part_of
from profiles.analysis.trace.sequences.topic import patterns, sequences_result
from profiles.ingest.trace import Device, Trace
from tests.builders import trace
from tests.profiles.ingest.corpus import CORPUS, DATA, H200

L = "cudaLaunchKernel"
SHAPES = json.dumps({"Input Dims": [[1024, 1024], [1024, 1024]], "Input type": ["float", "float"]},
                    separators=(",", ":")).replace(" ", r"\u0020")
H200_GPU = [Device(0, "NVIDIA H200", sm_count=132)]


def named(frame: Frame) -> list[tuple[tuple[str, ...], int]]:
    return [(tuple(frame.names[code] for code in each.names), each.runs) for each in candidates(frame)]


@pytest.mark.parametrize(("name", "part"), [
    ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", Part.POINTWISE),
    ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>", Part.REDUCTION),
    ("void cunn_SoftMaxForward<4, c10::Half, float>", Part.REDUCTION), ("triton_red_fused_mean_0", Part.REDUCTION),
    ("triton_poi_fused_add_1", Part.POINTWISE), ("nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN", Part.PRODUCT),
    ("void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>", Part.PRODUCT), ("flash_fwd_kernel<…>", Part.PRODUCT),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", Part.OTHER), ("void cub::DeviceRadixSortOnesweepKernel", Part.OTHER),
    ("void at::native::indexSelectLargeIndex<float>", Part.OTHER), ("jacobi_kernel", Part.OTHER)])
def test_kernels_have_their_part_in_a_fusion(name: str, part: Part):
    assert part_of(name) == part


def test_a_run_ends_where_something_else_runs():
    frame = frame_of(trace("""
    GPU 0 / stream 7: gemm 0-10 | relu_kernel 11-13 | add_kernel 14-16 | ncclAllReduce 17-20 \
| relu_kernel 21-23 | Memcpy DtoD 24-25 \
| add_kernel 26-28 | sort_kernel 29-30 | gemm 300-310 | relu_kernel 311-313 | add_kernel 314-316 | mul_kernel 900-910
    GPU 0 / stream 8: gelu_kernel 0-4 | mul_kernel 5-9
    """))
    assert sorted(named(frame)) == [(("gelu_kernel", "mul_kernel"), 1), (("gemm", "relu_kernel", "add_kernel"), 2)]


def test_bytes_time_launches_and_gaps_of_a_known_run():
    """Two intermediates of 4 MiB: written and read again each, 16 MiB at 4.8 TB/s = 3.495 µs of 60 - 20 = 40 µs at most."""
    ops = " | ".join(f"aten::{name} {at}-{at + 8} ext={ext} detail={SHAPES}" for ext, (name, at) in enumerate(
        (("mul", 0), ("add", 10), ("relu", 20)), 1))
    frame = frame_of(trace(f"""
    python (1) / main: {ops}
    GPU 0 / stream 7:  mul_kernel 30-50 ext=1 | add_kernel 52-72 ext=2 | relu_kernel 75-95 ext=3
    """, devices=H200_GPU))
    found, = candidates(frame)
    assert (found.runs, found.launches_saved, found.total_ns, found.gaps_ns) == (1, 2, 60_000, 5_000)
    assert found.saved_bytes == 2 * 2 * 1024 * 1024 * 4 and found.bound == "bytes"
    assert found.saved_ns == pytest.approx(found.saved_bytes / 4.8e12 * 1e9, abs=1)
    without = frame_of(trace("GPU 0 / stream 7: mul_kernel 30-50 | add_kernel 52-72 | relu_kernel 75-95", devices=H200_GPU))
    bound, = candidates(without)
    assert (bound.saved_bytes, bound.saved_ns, bound.bound) == (None, 40_000, "time")


def test_kernels_of_one_name_hand_nothing_on():
    """foreach: the same kernel for other tensors is one part, and its parts' time stays."""
    frame = frame_of(trace("""
    GPU 0 / stream 7: mul_kernel 0-10 | mul_kernel 10-20 | add_kernel 20-25 | add_kernel 25-30
    """))
    found, = candidates(frame)
    assert (found.launches_saved, found.saved_ns) == (3, 10_000)


def test_a_long_run_is_cut_at_its_period():
    parts = [f"{name}_kernel {i * 30 + at}-{i * 30 + at + 8}" for i in range(20) for at,
             name in ((0, "mul"), (10, "add"), (20, "lerp"))]
    found = named(frame_of(trace(f"GPU 0 / stream 7: {' | '.join(parts)}")))
    assert found == [(("mul_kernel", "add_kernel", "lerp_kernel"), 20)]


def test_operators_that_launch_the_same_again():
    one = "aten::linear {0}-{1} | aten::addmm {2}-{3} | cudaLaunchKernel {2}-{4} corr={5} | cudaLaunchKernel {4}-{6} corr={7}"
    calls = " | ".join(one.format(t, t + 9, t + 1, t + 8, t + 3, t, t + 5, t + 1) for t in (20, 40, 60))
    work = " | ".join(f"gemm {t + 4}-{t + 7} corr={t} | bias_add {t + 7}-{t + 9} corr={t + 1}" for t in (20, 40, 60))
    frame = frame_of(trace(f"python (1) / main: {calls}\nGPU 0 / stream 7: {work}"))
    found, = patterns(frame)
    assert (frame.names[found.operator], [frame.names[code] for code in found.names]) == ("aten::linear", ["gemm", "bias_add"])
    assert (found.count, found.kernels, found.gpu_ns, found.span_ns, found.host_ns) == (3, 2, 15_000, 15_000, 27_000)


@pytest.mark.parametrize("path", [H200 / "kineto_train.json.gz", CORPUS / "kineto" / "tracelens_h100_qwen1.5-0.5b.json.gz",
                                  DATA / "causes" / "serial_kernels.json.gz"], ids=lambda path: path.name)
def test_what_recordings_could_save_stays_below_what_they_took(path):
    read = ingest.read(path)
    assert isinstance(read, Trace)
    frame = frame_of(read)
    numbers = sequences_result(frame).numbers
    assert 0 <= numbers["saved_ns"] < numbers["kernel_ns"] and numbers["launches_saved"] < numbers["kernels"]
    seen: set[int] = set()
    for each in candidates(frame):
        assert each.saved_ns <= each.total_ns and each.runs * (len(each.names) - 1) == each.launches_saved
        assert each.example not in seen
        seen.add(each.example)


def test_kernels_that_stand_alone_are_said_to():
    assert "No run of kernels" in sequences_result(frame_of(trace("GPU 0 / stream 7: gemm 0-10 | gemm 12-20"))).answer
    assert not sequences_result(frame_of(trace("python (1) / main: aten::x 0-5"))).applies


@pytest.mark.slow
def test_documents_stay_small_whatever_names_are():
    long = "x" * 20_000
    work = " | ".join(f"{long}{i}_kernel {i * 10}-{i * 10 + 4} corr={i} | add_kernel {i * 10 + 5}-{i * 10 + 9}" for i in range(80))
    calls = " | ".join(f"cudaLaunchKernel {i}-{i + 0.5} corr={i}" for i in range(80))
    frame = frame_of(trace(f"python (1) / main: {calls}\nGPU 0 / stream 7: {work}"))
    for compute in (launches_result, critical_result, sequences_result):
        result = compute(frame)
        size = len(json.dumps([result.answer, result.numbers, [asdict(table) for table in result.tables]]))
        assert size < 1_500_000 and len(result.answer) < 1000, compute
        assert any("names are very long" in table.note for table in result.tables) or compute is sequences_result
