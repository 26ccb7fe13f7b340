"""The least time of ranges and parts of layers adds up to the step's; slow kernels say what to do about them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from profiles.analysis.trace.layer.work import Call
from profiles.analysis.trace.needed.facts import Item
from profiles.analysis.trace.needed.needs import NEEDED, NOT_KNOWN, _shared_out
from profiles.analysis.trace.needed.slow import choice_of, slow_kernels
from profiles.analysis.trace.needed.topic import needed_result, places_of
from tests.profiles.needed.natural import frame, needs


@pytest.mark.parametrize(("file", "what"), [
    ("h200/kineto_layer.json.gz", "range"), ("corpus/kineto/tracelens_h100_timesformer.json.gz", "module"),
    ("corpus/kineto/tracelens_h100_qwen1.5-0.5b.json.gz", "module"), ("natural/scores_written_out.json.gz", ""),
    ("natural/keys_repeated_decode_graph.json.gz", "")])
def test_ranges_and_parts_of_layers_add_up_to_the_steps(file: str, what: str) -> None:
    found = needs(file)
    places = places_of(found)
    busy_ns = sum(gpu.wall_ns - gpu.parts["idle"] for gpu in found.gpus)
    need_ns, unknown_ns = (sum(gpu.parts[name] for gpu in found.gpus) for name in (NEEDED, NOT_KNOWN))
    assert places.what == what and bool(places.ranges) == bool(what)
    if what:
        own = [sum(getattr(each, name) for each in places.ranges) for name in ("own_takes_ns", "own_least_ns")]
        assert own == [busy_ns, need_ns]
        outer = [each for each in places.ranges if each.parent < 0]
        assert [sum(getattr(each, name) for each in outer) for name in ("takes_ns", "least_ns", "unknown_ns")] == [
            busy_ns, need_ns, unknown_ns]
    assert places.layers and sum(part.least_ns for part in places.parts) == need_ns
    assert sum(part.takes_ns for part in places.parts) <= busy_ns
    assert all(each.least_ns <= each.takes_ns for each in (*places.ranges, *places.parts))


def test_what_is_not_known_is_said_of_no_range() -> None:
    tables = {table.title: table for table in needed_result(frame("natural/keys_repeated_decode_graph.json.gz"), needs(
        "natural/keys_repeated_decode_graph.json.gz")).tables}
    layers = tables["What the parts of a layer take and need, × 12"]
    assert {row[3] for row in layers.rows} == {None}


def test_a_least_time_is_shared_out_to_the_ns() -> None:
    ns = np.array([3, 0, 10**12, 7, 1], np.int64)
    for total in (0, 1, 10**11, int(ns.sum())):
        shared = _shared_out(total, ns)
        assert shared.sum() == total and (shared <= ns).all() and (shared >= 0).all()


def test_a_slow_kernel_says_what_it_loses_and_what_could_be_faster() -> None:
    slow = slow_kernels(needs("h200/kineto_layer.json.gz"))
    gate, = [each for each in slow if each.sizes == "2048 × 11008 × 4096"]
    assert (gate.launches, gate.tune) == (8, {"operator": "matmul", "M": 2048, "N": 11008, "K": 4096, "dtype": "fp16"})
    assert gate.takes_ns == 1_956_379 and gate.least_ns == pytest.approx(8 * 2 * 2048 * 11008 * 4096 / 989.4e3, rel=2e-3)
    assert all(one.lost_ns >= other.lost_ns > 0 for one, other in pairwise(slow))
    attention, = [each for each in slow if "sdpa" in each.kernel]
    assert "CUDNN" not in attention.choice and "FlashAttention-3" in attention.choice and attention.tune["operator"] == "attention"


@pytest.mark.parametrize(("kernel", "operator", "gpu", "said"), [
    ("nvjet_sm90_tst_256x128", "aten::mm", "NVIDIA H100", "max-autotune"),
    ("triton_tem_fused_mm_0", "aten::mm", "NVIDIA H100", ""),
    ("Cijk_Alik_Bljk_BBS_BH", "aten::mm", "AMD Instinct MI300X", "TUNABLEOP"),
    ("flash_fwd_kernel", "flash_attn::fwd", "NVIDIA A100-SXM4-80GB", "CUDNN_ATTENTION"),
    ("flash_fwd_kernel", "flash_attn::fwd", "AMD Instinct MI300X", ""),
    ("void cutlass::device_kernel<flash::FlashAttnFwdSm90<...>>", "", "NVIDIA H100 80GB HBM3", ""),
    ("cudnn_generated_fort_native_sdpa_sm80_flash_fprop", "", "NVIDIA A100-SXM4-80GB", ""),
    ("vectorized_elementwise_kernel<8, silu_kernel>", "aten::silu", "", "torch.compile"),
    ("triton_poi_fused_silu_0", "triton_poi_fused_silu_0", "NVIDIA H100", "")])
def test_the_choice_is_one_of_this_gpu_that_is_not_there_yet(kernel: str, operator: str, gpu: str, said: str) -> None:
    choice = choice_of(Item(kernel, operator, (), Call(operator, {}), None, False), gpu)
    assert said in choice if said else not choice
