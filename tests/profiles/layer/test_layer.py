"""Work from shapes and the parts of a layer: recorded programs with known sizes, PyTorch's own counting, and every Kineto file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiles import ingest
from profiles.analysis.core.frame import Frame, frame_of
from profiles.analysis.core.kernels import kernel_table
from profiles.analysis.core.sentences import pct_text
from profiles.analysis.trace.layer.calls import Token
from profiles.analysis.trace.layer.ceilings import ABOVE_MEASURED, FROM_L2, IMPOSSIBLE, Ceilings, ceilings_of, judge
from profiles.analysis.trace.layer.collectives import collective_work
from profiles.analysis.trace.layer.launches import OPERATORS, launch_work, typed_work, typed_works
from profiles.analysis.trace.layer.parts import DOWN, GATE_UP, KV, OUTPUT, QKV, written_out
from profiles.analysis.trace.layer.parts import Q as QUERY
from profiles.analysis.trace.layer.records import records_of
from profiles.analysis.trace.layer.rules import ANY, ATEN, work_of_call
from profiles.analysis.trace.layer.topic import layer_result
from profiles.analysis.trace.layer.work import Work
from profiles.analysis.trace.merge import merge
from profiles.base.refused import Refused
from profiles.ingest.trace import Category, Trace, TraceError
from tests.profiles.analysis.trace.test_operators import drawn
from tests.profiles.ingest.corpus import DATA, larger_are_deep

H, B = "c10::Half", "c10::BFloat16"
KINETO = sorted(path for folder in ("corpus/kineto", "h200", "captured", "causes", "recorded")
                for path in (DATA / folder).glob("*.json*") if not any(word in path.name for word in (
                    "jax", "truth", "timing", "ceilings", "gate", "revalidation", "versions", "_pipe")))


def read(path: Path) -> Frame | None:
    try:
        made = ingest.read(path)
    except TraceError:
        return None                     # results of other programs lie beside the traces
    return frame_of(made) if isinstance(made, Trace) else None


def said(dims: Any, types: Any, concrete: Any = ()) -> dict[str, Any]:
    kinds = [types] * len(dims) if isinstance(types, str) else types
    return {"Input Dims": dims, "Input type": kinds, "Concrete Inputs": list(concrete)}


@pytest.fixture(scope="module")
def layer() -> Any:
    """One transformer layer (hidden 4096, sequence 2048, fp16, 32 heads, inner size 11008), 4 steps: recordings' own words."""
    frame = read(DATA / "h200/kineto_layer.json.gz")
    assert frame is not None
    return frame, layer_result(frame)


def parts(result: Any) -> dict[str, dict[str, Any]]:
    return {row["part"]: row for row in result.numbers["layer"] if row["is_named"]}


def test_the_recorded_layer_is_told_by_its_sizes(layer: Any) -> None:
    frame, result = layer
    found = parts(result)
    m, h, f = 2048, 4096, 11008
    want = {QKV: 2 * m * 3 * h * h, OUTPUT: 2 * m * h * h, GATE_UP: 2 * 2 * m * h * f, DOWN: 2 * m * f * h,
            "attention": 4 * 32 * m * m * 128 // 2,                    # causal
            "layer norm": 2 * 8 * m * h, "SiLU·mul": 2 * m * f, "residual add": 2 * m * h}
    assert {part: row["flop_per_layer"] for part, row in found.items()} == want
    assert found[QKV]["bytes_per_layer"] == 2 * (m * h + 3 * h * h + m * 3 * h + 3 * h)         # bias read too
    assert found["attention"]["bytes_per_layer"] == 2 * 4 * m * h
    assert found["SiLU·mul"]["bytes_per_layer"] == 2 * 5 * m * f                                # SiLU reads, writes; mul 3
    assert (result.numbers["layers"], result.numbers["steps"]) == (4, 4)
    assert {part: row["side"] for part, row in found.items()} == {
        **dict.fromkeys((QKV, OUTPUT, GATE_UP, DOWN, "attention"), "compute"), "layer norm": "memory", "SiLU·mul": "memory",
        "residual add": "memory"}
    compute = frame.kernels[frame["category"][frame.kernels] == Category.COMPUTE]
    assert sum(row["total_ns"] for row in result.numbers["layer"]) == int(frame["dur_ns"][compute].sum())
    assert all(20 < row["roof_pct"] < 100 and not row["mark"] for row in found.values())
    assert "× 4" in result.tables[0].title and GATE_UP in result.answer


def test_a_layer_written_in_elementwise_operators_has_its_norms_and_rotary_embedding() -> None:
    """A LlamaDecoderLayer as transformers runs it without a compiler; its sizes were written down when it was recorded."""
    frame = read(DATA / "causes/transformer_layer.json.gz")
    sizes = json.loads((DATA / "causes/transformer_layer_truth.json").read_text())
    assert frame is not None
    result = layer_result(frame)
    found, m, h, f = parts(result), sizes["batch"] * sizes["tokens"], sizes["hidden"], sizes["ffn"]
    head, kv = h // sizes["heads"], sizes["kv_heads"]
    assert result.numbers["layers"] == sizes["steps"] and set(found) == {
        "RMS norm", QUERY, KV, "rotary embedding", "attention", OUTPUT, GATE_UP, "SiLU·mul", DOWN, "residual add"}
    products = {QUERY: 2 * m * h * h, KV: 2 * 2 * m * kv * head * h, OUTPUT: 2 * m * h * h,
                GATE_UP: 2 * 2 * m * h * f, DOWN: 2 * m * f * h,
                "attention": 4 * sizes["batch"] * sizes["heads"] * sizes["tokens"] ** 2 * head // 2}
    assert {part: found[part]["flop_per_layer"] for part in products} == products
    assert found["RMS norm"]["calls"] == 2 * 8 * sizes["steps"] and found["rotary embedding"]["calls"] == 2 * 5 * sizes["steps"]
    whole = sum(row["total_ns"] for row in result.numbers["layer"])
    assert sum(row["total_ns"] for row in found.values()) == whole and found["residual add"]["calls"] == 2 * sizes["steps"]


@pytest.mark.parametrize("odd", ["pow 1 mean 1 add 1 rsqrt 1 mul 2", "mul 1 neg 2 cat 1 mul 1 add 3", "pow 1 mean 1 add 1 mul 1"])
def test_elementwise_operators_that_do_not_fit_are_no_part(odd: str) -> None:
    words = odd.split()
    row = [Token(f"aten::{name}", "k", Work("elementwise", 1, 1, "fp32", size), False, "")
           for name, size in zip(words[::2], words[1::2], strict=True)]
    assert not list(written_out(row))


def test_with_stacks_the_same_layer_has_the_same_parts(layer: Any) -> None:
    frame = read(DATA / "h200/kineto_layer_stack.json.gz")
    assert frame is not None
    other = parts(layer_result(frame))
    assert {part: row["flop_per_layer"] for part, row in other.items()} == {
        part: row["flop_per_layer"] for part, row in parts(layer[1]).items()}


@pytest.mark.parametrize(("path", "layers", "told"), [
    ("corpus/kineto/sglang_mi300_qwen3-8b_decode.json.gz", 36, {QKV, OUTPUT, GATE_UP, DOWN, "attention", "RMS norm",
                                                                "rotary embedding", "SiLU·mul", "KV cache write"}),
    ("corpus/kineto/vllm_mi300_decode_full_graph_execution.json.gz", 24, {QKV, OUTPUT, GATE_UP, DOWN, "attention", "RMS norm",
                                                                          "rotary embedding", "KV cache write"}),
    ("corpus/kineto/tracelens_mi300_torch_compile_triton.json.gz", 1, {"Q, K and V projections", OUTPUT, GATE_UP, DOWN,
                                                                       "attention", "RMS norm", "SiLU·mul"})])
def test_layers_of_models_whose_number_is_known(path: str, layers: int, told: set[str]) -> None:
    """Qwen3-8B has 36, gpt-oss-20b 24. Replayed graphs hold no shapes: their parts stand on order alone."""
    frame = read(DATA / path)
    assert frame is not None
    result = layer_result(frame)
    assert result.numbers["layers"] == layers and told == set(parts(result))
    for row in parts(result).values():
        whole = row["calls"] / layers
        assert abs(whole - round(whole)) < 0.06, row                   # the last norm stands outside the layers


def test_training_has_its_parts_backward_too() -> None:
    frame = read(DATA / "captured/layer_trace.json.gz")
    assert frame is not None
    found = parts(layer_result(frame))
    m, h = 4 * 2048, 1024
    assert found[f"{QKV}, backward"]["flop_per_layer"] == 2 * m * 3 * h * h        # the input needs no gradient: the weight's alone
    assert found["attention, backward"]["flop_per_layer"] == 2.5 * found["attention"]["flop_per_layer"]
    assert found["attention"]["flop_per_layer"] == 4 * 4 * 8 * 2048 * 2048 * 128


def test_two_ranks_share_the_mean_and_collectives_have_their_bus() -> None:
    """A layer's time is the mean over both GPUs; an all-reduce among n ranks carries 2(n − 1)/n of its message (nccl-tests)."""
    paths = [DATA / f"h200/ddp_even_rank{rank}.json.gz" for rank in (0, 1)]
    traces = [each for path in paths if isinstance(each := ingest.read(path), Trace)]
    alone = [layer_result(frame_of(each)) for each in traces]
    both = layer_result(frame_of(merge([(f"rank{rank}", each) for rank, each in enumerate(traces)])))
    assert both.numbers["layers"] == sum(each.numbers["layers"] for each in alone) and "2 GPUs" in both.tables[0].title
    each = [parts(one)[OUTPUT] for one in (*alone, both)]
    assert each[2]["per_layer_ns"] == pytest.approx((each[0]["per_layer_ns"] + each[1]["per_layer_ns"]) / 2)
    assert each[0]["flop_per_layer"] == each[2]["flop_per_layer"]
    moved = [one for one in alone[0].numbers["collectives"] if one["operation"] == "all-reduce" and one["message_bytes"]]
    assert moved and all(one["ranks"] == 2 and one["bus_bytes"] == one["message_bytes"] for one in moved)
    four = collective_work(drawn("GPU 0 / stream 7: ncclDevKernel_AllReduce_Sum_f32 0-100 bytes=4000 detail={\"Group~size\":4} | "
                                 "ncclDevKernel_AllGather 200-300 bytes=4000 detail={\"Group~size\":4}"))
    assert {one.operation: (one.bus_bytes, round(one.bus_bytes_s or 0)) for one in four} == {
        "all-reduce": (6000, 60_000_000), "all-gather": (3000, 30_000_000)}


CONV = said([[32, 64, 56, 56], [128, 64, 3, 3], [], [], [], [], [], [], []], "float",
            ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"])
BACK = said([[32, 128, 28, 28], [32, 64, 56, 56], [128, 64, 3, 3]], "float",
            ["", "", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", "[True, True, False]"])
Q = [2, 32, 1024, 128]
ONE = 2 * 32 * 28 * 28 * 128 * 64 * 9


@pytest.mark.parametrize(("operator", "arguments", "flop", "moved"), [
    ("aten::mm", said([[3, 4], [4, 5]], "float"), 120, 4 * (12 + 20 + 15)),
    ("aten::baddbmm", said([[8, 3, 5], [8, 3, 4], [8, 4, 5]], H), 960, 2 * 8 * (12 + 20 + 15 + 15)),
    ("aten::_scaled_mm", said([[16, 32], [32, 64], [], []], ["c10::Float8_e4m3fn"] * 2 + ["float"] * 2), 2 * 16 * 32 * 64,
     16 * 32 + 32 * 64 + 2 * 16 * 64),
    ("aten::_grouped_mm", said([[64, 16], [8, 16, 32], [8]], [B, B, "int"]), 2 * 64 * 16 * 32,
     2 * (64 * 16 + 8 * 16 * 32 + 64 * 32)),
    ("aten::convolution", CONV, ONE, 4 * (32 * 64 * 56 * 56 + 128 * 64 * 9 + 32 * 128 * 28 * 28)),
    ("aten::convolution_backward", BACK, 2 * ONE, 4 * (32 * 128 * 28 * 28 + 2 * 32 * 64 * 56 * 56 + 2 * 128 * 64 * 9)),
    ("aten::scaled_dot_product_attention", said([Q, [2, 8, 1024, 128], [2, 8, 1024, 128]], B, ["", "", "", "", "0.", "False"]),
     4 * 2 * 32 * 1024 ** 2 * 128, 2 * 2 * 1024 * 128 * (2 * 32 + 2 * 8)),                       # grouped-query
    ("aten::_flash_attention_forward", said([[2, 1024, 32, 128]] * 3, B, [""] * 8 + ["True"]), 2 * 2 * 32 * 1024 ** 2 * 128,
     2 * 4 * 2 * 1024 * 32 * 128),
    ("aten::_scaled_dot_product_flash_attention_backward", said([Q] * 5, B, [""] * 11 + ["True"]), 5 * 2 * 32 * 1024 ** 2 * 128,
     2 * 8 * 2 * 1024 * 32 * 128),
    ("flash_attn::_flash_attn_varlen_forward", said([[4096, 32, 128], [4096, 8, 128], [4096, 8, 128], [5], [5]],
     [B, B, B, "int", "int"], [""] * 9 + ["False"]), 4 * 32 * 4096 * 1024 * 128, 2 * 4096 * 128 * (2 * 32 + 2 * 8)),
    ("aten::native_layer_norm", said([[8, 64], [], [64], [64], []], [H, "ScalarList", H, H, "Scalar"]), 8 * 512,
     2 * (2 * 512 + 128)),
    ("_C::fused_add_rms_norm", said([[8, 64], [8, 64], [64], []], [B, B, B, "Scalar"]), 5 * 512, 2 * (4 * 512 + 64)),
    ("_C::rms_norm", said([[8, 64], [8, 64], [64], []], [B, B, B, "Scalar"]), 4 * 512, 2 * (2 * 512 + 64)),
    ("_C::silu_and_mul", said([[8, 64], [8, 128]], B), 5 * 512, 2 * 3 * 512),
    ("_C::rotary_embedding", said([[8], [8, 256], [8, 64], [], [4096, 64], []], ["long", B, B, "Scalar", B, "Scalar"]),
     3 * 8 * 320, 64 + 2 * 2 * 8 * 320 + 2 * 8 * 64),
    ("_C_cache_ops::reshape_and_cache_flash", said([[8, 8, 128], [8, 8, 128]], B), 0, 2 * 4 * 8 * 8 * 128),
    ("aten::_softmax", said([[4, 100], [], []], [H, "Scalar", "Scalar"], ["", "-1", "False"]), 5 * 400, 2 * 2 * 400),
    ("aten::add", said([[16, 8, 4], [4], []], ["float", "float", "Scalar"]), 512, 4 * (512 + 4 + 512)),
    ("aten::mul_", said([[16, 8], [16, 1]], H), 128, 2 * (128 + 16 + 128)),
    ("aten::gt", said([[16, 8], []], ["float", "Scalar"]), 128, 4 * 128 + 128),
    ("aten::copy_", said([[16, 8], [16, 8], []], ["float", B, "Scalar"]), 0, 6 * 128),
    ("aten::fill_", said([[16, 8], []], ["float", "Scalar"]), 0, 4 * 128),
    ("aten::sum", said([[16, 8], [], [], []], [B, "ScalarList", "Scalar", ""], ["", "[0]", "True", ""]), 128, 2 * (128 + 8)),
    ("aten::embedding", said([[1000, 64], [4, 8], [], [], []], ["float", "long int", "Scalar", "Scalar", "Scalar"]), 0,
     8 * 32 + 2 * 4 * 64 * 32),
    ("aten::index_select", said([[1000, 64], [], [32]], ["float", "Scalar", "long int"], ["", "0", ""]), 0,
     8 * 32 + 2 * 4 * 64 * 32),
    ("triton_poi_fused_add_mul_0", said([[8, 64], [8, 64], []], [B, B, "Scalar"]), None, 2 * 2 * 512),
    ("triton_poi_fused_embedding_0", said([[8, 64], [8, 64]], B), "no work", None),
    ("vllm::unified_attention_with_output", said([[32, 4096], [32, 1024], [32, 1024], [32, 4096]], B), None, None),
    ("aten::mm", said([[3, 4], [5, 6]], "float"), "no work", None),
    ("aten::some_new_thing", said([[3]], "float"), "no work", None)])
def test_rules(operator: str, arguments: dict[str, Any], flop: Any, moved: int | None) -> None:
    work = work_of_call(operator, arguments)
    if flop == "no work":
        assert work is None
    else:
        assert work is not None and (work.flop, work.bytes) == (flop, moved), work


def test_expanded_operands_are_read_as_they_lie() -> None:
    """A dimension of stride 0 repeats what was read: 8 rows of a mask that is there once."""
    plain = work_of_call("aten::mul", said([[8, 64], [8, 64]], "float"))
    strides = {**said([[8, 64], [8, 64]], "float"), "Input Strides": [[64, 1], [0, 1]]}
    expanded = work_of_call("aten::mul", strides)
    assert plain is not None and expanded is not None and plain.bytes is not None and expanded.bytes is not None
    assert plain.bytes - expanded.bytes == 4 * 7 * 64


@pytest.mark.torch
def test_flop_agree_with_pytorchs_own_counter() -> None:
    """torch.utils.flop_counter, which leaves masks aside, and groups in a convolution's gradient of the weight."""
    counter = pytest.importorskip("torch.utils.flop_counter")

    def mine(name: str, *shapes: list[int], concrete: list[str] | None = None) -> int | None:
        work = work_of_call(name, said(list(shapes), H, concrete or [""] * 20))
        return work.flop if work else None

    rng = np.random.default_rng(12)
    for _ in range(30):
        b, m, n, k, g = (int(each) for each in rng.integers(1, 400, 5))
        assert mine("aten::mm", [m, k], [k, n]) == counter.mm_flop([m, k], [k, n])
        assert mine("aten::addmm", [n], [m, k], [k, n]) == counter.addmm_flop([n], [m, k], [k, n])
        assert mine("aten::bmm", [b, m, k], [b, k, n]) == counter.bmm_flop([b, m, k], [b, k, n])
        heads = [b, g, m, k], [b, g, n, k], [b, g, n, k]
        assert mine("aten::_scaled_dot_product_cudnn_attention", *heads) == counter.sdpa_flop_count(*heads)
        gradient = [b, g, m, k]
        assert mine("aten::_scaled_dot_product_cudnn_attention_backward", gradient, *heads) == counter.sdpa_backward_flop_count(
            gradient, *heads)
        groups, taps, stride, pad = int(rng.choice([1, 2, 4])), int(rng.choice([1, 3, 5])), int(rng.choice([1, 2])), taps_pad(rng)
        image, weight = [b, 4 * g, 9 + m, 7 + n], [8 * k, 4 * g // groups, taps, taps]
        out = [b, 8 * k, *((size + 2 * pad - taps) // stride + 1 for size in image[2:])]
        window = [f"[{stride}, {stride}]", f"[{pad}, {pad}]", "[1, 1]", "False", "[0, 0]", str(groups)]
        assert mine("aten::convolution", image, weight, [], [], [], [], [], [], [], concrete=["", "", "", *window]
                    ) == counter.conv_flop_count(image, weight, out)
        for mask in () if groups > 1 else ([True, True, False], [True, False, True], [False, True, True]):
            asked = [image if mask[0] else None, weight if mask[1] else None, None]
            theirs = counter.conv_backward_flop.__wrapped__(
                out, image, weight, None, [stride] * 2, [pad] * 2, [1, 1], False, [0, 0], groups, mask, out_shape=asked)
            assert mine("aten::convolution_backward", out, image, weight, concrete=["", "", "", "", *window, str(mask)]) == theirs


def taps_pad(rng: np.random.Generator) -> int:
    return int(rng.choice([0, 1, 2]))


def test_a_calls_work_is_shared_out_once() -> None:
    """Two kernels of one product: the helper by name is part of it, its FLOP count once; of two gradients each takes its share."""
    frame = drawn("""
python / main: aten::mm 0-10 ext=1 detail={"Input~Dims":[[64,32],[32,128]],"Input~type":["c10::Half","c10::Half"]} | aten::clone 10-20 | aten::copy_ 12-18 ext=2 detail={"Input~Dims":[[8,8],[8,8]],"Input~type":["float","float"]} | cudaGraphLaunch 30-31 corr=9
GPU 0 / stream 7: nvjet_hsh 20-50 corr=1 ext=1 | splitKreduce_kernel 50-60 corr=2 ext=1 | copy 60-61 corr=3 ext=2 | mystery 62-63 corr=9
""")                                                                                             # noqa: E501
    records = {record.kernel: record for record in records_of(frame, launch_work(frame))}
    product, helper = records["nvjet_hsh"], records["splitKreduce_kernel"]
    assert (product.flop, product.bytes, product.precision, product.part_of) == (2 * 64 * 32 * 128, 2 * (2048 + 4096 + 8192),
                                                                                 "fp16_tensor", False)
    assert helper.part_of and helper.flop is None and helper.bytes is None and helper.operator == "aten::mm"
    assert records["copy"].bytes == 512 and records["mystery"].basis == ""          # of a replayed graph nobody knows
    said = typed_works({"mystery": {"operator": "linear", "dims": "4x8, 16x8", "dtype": "bf16"}})
    typed = records_of(frame, launch_work(frame, said))
    assert {record.kernel: (record.flop, record.basis) for record in typed}["mystery"] == (2 * 4 * 8 * 16, "typed")


def test_what_cannot_be_is_marked_with_what_may_be_wrong() -> None:
    h200 = ceilings_of("NVIDIA H200")
    fits = judge(0, 50e6 * 10, 10 * 5_000, 10, "fp32", h200)            # 50 MB in 5 µs: 10 TB/s out of a cache of 50 MiB
    assert fits.roof_pct is not None and fits.roof_pct > 200 and fits.mark == FROM_L2 and "L2" in fits.why
    large = judge(0, 500e6, 50_000, 1, "fp32", h200)
    assert large.mark == IMPOSSIBLE and "shapes" in large.why
    fast = judge(2e12, 1e6, 1e6, 1, "fp16_tensor", h200)
    assert fast.mark == IMPOSSIBLE and "sparse" in fast.why and fast.side == "compute"
    measured = ceilings_of("NVIDIA H200", {"label": "measured", "rates": {"fp16_tensor": 700e12, "dram": 4.6e12}})
    between = judge(800e9, 1e6, 1e6, 1, "fp16_tensor", measured)
    assert between.mark == ABOVE_MEASURED and between.roof_pct == pytest.approx(100 * 8 / 7)
    assert judge(600e9, 1e6, 1e6, 1, "fp16_tensor", measured).mark == ""
    unknown = judge(1e9, 1e6, 1e6, 1, "fp16_tensor", Ceilings("", {}, {}))
    assert (unknown.side, unknown.roof_pct, unknown.floor_ns, unknown.flop_s) == ("", None, None, 1e12)


@pytest.mark.slow
@pytest.mark.parametrize("path", larger_are_deep(KINETO, 50_000), ids=lambda path: path.name)
def test_every_file_adds_up(path: Path) -> None:
    """Nothing negative, every launch once, the work of calls as often as they were made, no share above 100 % without its mark."""
    if path.stat().st_size > 2_000_000:
        pytest.skip("120,000 Python frames and 7 kernels: read by other tests")
    frame = read(path)
    if frame is None:
        pytest.skip("no trace")
    every, records = launch_work(frame), records_of(frame, launch_work(frame))
    compute = frame.kernels[frame["category"][frame.kernels] == Category.COMPUTE]
    assert sum(record.total_ns for record in records) == int(frame["dur_ns"][compute].sum())
    assert sum(record.launches for record in records) == compute.size
    _, first = np.unique(every.call[(every.call >= 0) & (every.work >= 0)], return_index=True)
    of_calls = [every.works[number].flop for number in every.work[(every.call >= 0) & (every.work >= 0)][first].tolist()]
    assert sum(record.flop or 0 for record in records) == pytest.approx(sum(flop or 0 for flop in of_calls), rel=1e-9)
    for record in records:
        assert (record.flop or 0) >= 0 and (record.bytes or 0) >= 0 and record.min_ns <= record.max_ns
        for ceilings in (ceilings_of(record.gpu), ceilings_of("Tesla T4"), ceilings_of("")):
            judged = record.judged(ceilings)
            assert bool(judged.mark) == bool(judged.why) == (judged.roof_pct is not None and judged.roof_pct > 100), record
            assert judged.floor_ns is None or judged.floor_ns >= 0
    result = layer_result(frame)
    json.dumps(result.numbers, allow_nan=False)
    for row in result.numbers.get("layer", ()):
        assert row["total_ns"] >= 0 and (row["roof_pct"] is None or (row["roof_pct"] > 100) == bool(row["mark"]))


@pytest.mark.parametrize("arguments", [
    {}, {"Input Dims": "x"}, {"Input Dims": [[-1, 2], [2, 3]]}, said([[1 << 39] * 12] * 4, "float"),
    said([[[[1]]], None, 3, "4"], [None, 3, "float", []]), {"Input Dims": [[True, False]] * 3, "Input type": H},
    said([[0, 4], [4, 0], [0]], H, ["", "999999999999", "-9", {}, "[1, 'x']", "[[["]),
    {**said([[2, 3, 4, 5]] * 20, "float", ["[0, 0]"] * 20), "Input Strides": [[0] * 3] * 20}])
def test_no_operator_falls_for_nonsense(arguments: dict[str, Any]) -> None:
    for name in [*(f"aten::{op}" for op in ATEN), *(f"x::{op}" for op in ANY), "triton_poi_fused_add", "", "::", "aten::"]:
        work = work_of_call(name, arguments)
        assert work is None or ((work.flop or 0) >= 0 and (work.bytes or 0) >= 0)


def test_what_people_type() -> None:
    for name, (_, _, example) in OPERATORS.items():
        assert typed_work(name, example, "bf16").bytes, name            # every example means some work
    heads = "1x32x2048x128, 1x8x2048x128, 1x8x2048x128"
    whole, half = (typed_work(name, heads, "fp16") for name in ("attention", "causal attention"))
    assert whole.flop == 2 * (half.flop or 0) == 4 * 32 * 2048 * 2048 * 128
    for wrong in (("mm", "2x3", "fp16"), ("mm", "2x3, 4x5", "fp16"), ("mm", "", "fp16"), ("nonsense", "2x2", "fp16"),
                  ("mm", "2x2, 2x2", "fp17"), ("mm", "a×b", "fp16"), ("mm", "9" * 199, "fp16")):
        with pytest.raises(Refused):
            typed_work(*wrong)
    assert typed_works({"k": {"operator": "mm"}, "j": {"operator": "mm", "dims": "x", "dtype": "fp16"}}) == {}


def test_a_share_of_all_kernels_is_that_of_the_kernels_page(layer: Any) -> None:
    """Attention's share in the sentence, in the table and in the list of kernels; collectives are kernels too."""
    _, result = layer
    by_name = {row.name: row.share_pct for row in kernel_table(ingest.read(DATA / "h200/kineto_layer.json.gz"))}
    attention = next(row for row in result.numbers["layer"] if row["part"] == "attention")
    share = by_name[attention["kernel"]]
    columns = [column.name for column in result.tables[0].columns]
    rows = {row[0]: row[columns.index("Of all kernels")] for row in result.tables[0].rows}
    assert rows["attention"] == pytest.approx(share) and share == pytest.approx(6.418, abs=1e-3)
    largest = max(parts(result).values(), key=lambda row: row["total_ns"])["part"]
    assert f"{largest} {pct_text(rows[largest])}" in result.answer and "of all kernel time" in result.answer

    job = read(DATA / "h200/ddp_even_rank0.json.gz")
    assert job is not None
    [parts_table, *_] = layer_result(job).tables
    place = [column.name for column in parts_table.columns].index("Of all kernels")
    kernels = job.kernels
    collective = job["category"][kernels] == Category.COMMUNICATION
    expected = 100.0 * (1.0 - job["dur_ns"][kernels][collective].sum() / job["dur_ns"][kernels].sum())
    assert collective.any() and sum(row[place] for row in parts_table.rows) == pytest.approx(expected)
