"""A layer as guides work it by hand: times given by part, plain attention, gaps of the CPU; named by sizes, or by ranges alone.

The times of GUIDE are those that a public guide states for a layer of Llama-7B (hidden 4096, inner 11008, 32 heads, 512 tokens,
fp16): QKV 180 µs, attention 220, output 65, gate and up 310, down 155, two norms 25, two residual additions 15, rotary 30.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from profiles import ingest
from profiles.analysis.core.frame import Frame, frame_of
from profiles.analysis.trace.layer.calls import part_of_range
from profiles.analysis.trace.layer.ceilings import Judged
from profiles.analysis.trace.layer.spans import GAPS
from profiles.analysis.trace.layer.topic import dimension_faults, gap_verdict, layer_result, verdict_of
from profiles.ingest.trace import Trace

LAYERS, GAP_US, STEP_US = 32, 10.0, 5_000.0
M, H, F, HEADS = 512, 4096, 11008, 32
D = H // HEADS


class Kernel(NamedTuple):
    """A kernel of the layer: the range around its launch, its operator with shapes, its time and the gap behind it."""

    around: str
    operator: str
    dims: list[list[int]]
    name: str
    us: float
    gap_us: float = 0.0


def product(around: str, n: int, k: int, us: float, gap_us: float = 0.0) -> Kernel:
    return Kernel(around, "aten::mm", [[M, k], [k, n]], "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32", us, gap_us)


def elementwise(around: str, operator: str, us: float, sizes: int = 2) -> Kernel:
    return Kernel(around, operator, [[M, H]] * sizes, f"vectorized_elementwise_kernel_{operator[6:]}", us)


def batched(n: int, k: int, us: float) -> Kernel:
    return Kernel("self_attn", "aten::bmm", [[HEADS, M, k], [HEADS, k, n]], "ampere_fp16_s16816gemm_fp16_128x128", us)


GUIDE = [
    Kernel("input_layernorm", "aten::native_layer_norm", [[M, H], [], [H]], "vectorized_layer_norm_kernel", 12.5),
    product("qkv_proj", 3 * H, H, 180.0, GAP_US),
    Kernel("rotary_emb", "aten::mul", [[M, H], [M, H]], "rotary_kernel", 30.0),
    batched(M, D, 90.0), Kernel("self_attn", "aten::_softmax", [[HEADS, M, M], [], []], "softmax_warp_forward", 40.0),
    batched(D, M, 90.0), product("o_proj", H, H, 65.0), elementwise("residual", "aten::add", 7.5),
    Kernel("post_attention_layernorm", "aten::native_layer_norm", [[M, H], [], [H]], "vectorized_layer_norm_kernel", 12.5,
           GAP_US),
    product("gate_proj", F, H, 155.0), product("up_proj", F, H, 155.0),
    Kernel("act", "aten::silu", [[M, F]], "silu_kernel", 5.0), Kernel("act", "aten::mul", [[M, F], [M, F]], "mul_kernel", 5.0),
    product("down_proj", H, F, 155.0), elementwise("residual", "aten::add", 7.5)]
WANT_US = {"layer norm": 25.0, "rotary embedding": 30.0, "output projection": 65.0, "gate and up projections": 310.0,
           "down projection": 155.0, "residual add": 15.0, GAPS: 2 * GAP_US}


def recorded(tmp_path: Path, kernels: list[Kernel], shapes: bool = True, ranges: bool = True, gpu: str = "NVIDIA A100-SXM4-80GB",
             operators: bool = True) -> Frame:
    """A Kineto file of LAYERS layers: the host runs ahead, the GPU runs kernel after kernel with the gaps asked for."""
    events: list[dict[str, Any]] = []
    now, number = 1_000.0, 0
    for layer in range(LAYERS):
        for kernel in kernels:
            number += 1
            host = {"pid": 1, "tid": 1, "ph": "X"}
            at = 10.0 * number
            if ranges:
                events.append({**host, "cat": "user_annotation", "name": f"layers.{layer}.{kernel.around}", "ts": at, "dur": 9})
            if operators:
                types = ["c10::Half" if dims else "Scalar" for dims in kernel.dims]
                events.append({**host, "cat": "cpu_op", "name": kernel.operator, "ts": at + 1, "dur": 7, "args": {
                    "External id": number, **({"Input Dims": kernel.dims, "Input type": types} if shapes else {})}})
            events.append({**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 2, "dur": 2,
                           "args": {"correlation": number, "External id": number}})
            events.append({"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": kernel.name, "ts": now, "dur": kernel.us,
                           "args": {"correlation": number, "External id": number, "device": 0, "stream": 7, "grid": [108, 1, 1],
                                    "block": [128, 1, 1]}})
            now += kernel.us + kernel.gap_us
    path = tmp_path / "layer.json"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": gpu}], "traceEvents": events}))
    made = ingest.read(path)
    assert isinstance(made, Trace)
    return frame_of(made)


def table_rows(frame: Frame) -> tuple[Any, dict[str, dict[str, Any]]]:
    result = layer_result(frame)
    names = [column.name for column in result.tables[0].columns]
    rows: dict[str, dict[str, Any]] = {}
    for cells in result.tables[0].rows:
        row = dict(zip(names, cells, strict=True))
        rows.setdefault(str(row["Part"]), row)
    return result, rows


def test_the_guides_layer_is_reproduced_without_a_fused_attention(tmp_path: Path) -> None:
    result, rows = table_rows(recorded(tmp_path, GUIDE, ranges=False))
    want = {**WANT_US, "QKV projection": 180.0, "attention scores": 90.0, "attention softmax": 40.0, "attention values": 90.0,
            "SiLU·mul": 10.0}
    total = sum(kernel.us + kernel.gap_us for kernel in GUIDE)
    assert result.numbers["layers"] == LAYERS and f"× {LAYERS}" in result.tables[0].title
    for part, us in want.items():
        assert rows[part]["Time per layer"] == pytest.approx(1e3 * us), part
        assert rows[part]["Of the layer"] == pytest.approx(100 * us / total), part
        assert rows[part]["Time"] == pytest.approx(1e3 * LAYERS * us), part
        assert rows[part]["Verdict"], part
    gaps = result.numbers["gaps"]
    assert (gaps["passes"], gaps["idle_ns"]) == (LAYERS, 2_000 * LAYERS * GAP_US)
    assert gaps["span_ns"] == pytest.approx(1e3 * LAYERS * total)
    assert sum(rows[part]["Of the layer"] for part in want) == pytest.approx(100)


@pytest.mark.parametrize("operators", [True, False], ids=["operators without shapes", "kernels and ranges alone"])
def test_ranges_name_the_parts_where_no_shapes_are_recorded(tmp_path: Path, operators: bool) -> None:
    result, rows = table_rows(recorded(tmp_path, GUIDE, shapes=False, operators=operators))
    for part, us in {**WANT_US, "QKV projection": 180.0}.items():
        assert rows[part]["Time per layer"] == pytest.approx(1e3 * us), (part, rows[part])
    whole = {part: sum(row["total_ns"] for row in result.numbers["layer"] if row["part"] == part) for part in ("attention",)}
    assert result.numbers["layers"] == LAYERS and whole["attention"] == pytest.approx(1e3 * LAYERS * 220.0)


def test_the_products_of_another_network_make_no_layer(tmp_path: Path) -> None:
    """A recommender's ranges are called "mlp" and "fc1" too."""
    dense = [product("bottom.mlp", F, H, 155.0), product("top.fc1", H, F, 155.0), product("top.fc2", H, H, 65.0)]
    result, rows = table_rows(recorded(tmp_path, dense))
    assert result.numbers["layers"] == 0 and not any(row["is_named"] for row in result.numbers["layer"]) and GAPS not in rows
    assert result.tables[0].title == "Work by operator and sizes"


def test_ranges_of_two_blocks_are_enough(tmp_path: Path) -> None:
    """"attention" and "mlp" around many kernels, nothing closer."""
    blocks = [kernel._replace(around="attention" if at < 8 else "mlp", name=f"kernel_{at}") for at, kernel in enumerate(GUIDE)]
    result, rows = table_rows(recorded(tmp_path, blocks, shapes=False, operators=False))
    assert result.numbers["layers"] == LAYERS and set(rows) == {"attention", "feed-forward", GAPS}


def test_a_long_gap_is_the_hosts(tmp_path: Path) -> None:
    slow = [kernel._replace(gap_us=3 * kernel.us) for kernel in GUIDE]
    _, rows = table_rows(recorded(tmp_path, slow))
    assert rows[GAPS]["Verdict"].startswith("idle more than half") and rows[GAPS]["Of the layer"] > 70


def test_gate_and_up_are_named_as_one_product(tmp_path: Path) -> None:
    _, rows = table_rows(recorded(tmp_path, GUIDE))
    verdict = rows["gate and up projections"]["Verdict"]
    assert "2 independent products of one input in a row" in verdict and f"n = {2 * F}" in verdict and "little to win" in verdict
    assert "in a row" not in rows["output projection"]["Verdict"] and "in a row" not in rows["down projection"]["Verdict"]


@pytest.mark.parametrize(("gpu", "says"), [("A card of nobody", True), ("NVIDIA A100-SXM4-80GB", False)])
def test_no_ceilings_are_known_stands_only_where_none_is(tmp_path: Path, gpu: str, says: bool) -> None:
    """Times that no GPU could reach: every share is marked, so none leads the answer; the ceilings are known all the same."""
    fast = [kernel._replace(us=0.01) for kernel in GUIDE]
    result, rows = table_rows(recorded(tmp_path, fast, gpu=gpu))
    assert ("no ceilings are known" in result.answer) is says
    assert any(row["Ceiling"] for row in rows.values()) is not says


@pytest.mark.parametrize(("name", "part"), [
    ("layers.3.self_attn.q_proj", "Q projection"), ("model.layers.0.self_attn.k_proj", "K and V projections"),
    ("QKV projection", "QKV projection"), ("h.0.attn.c_attn", "QKV projection"), ("attention/query_key_value", "QKV projection"),
    ("o_proj", "output projection"), ("Output Projection", "output projection"),
    ("self_attention.linear_proj", "output projection"),
    ("mlp.gate_up_proj", "gate and up projections"), ("MLP up", "gate and up projections"), ("fc1", "up projection"),
    ("mlp.c_fc", "up projection"), ("dense_4h_to_h", "down projection"), ("FFN down", "down projection"),
    ("residual_add", "residual add"), ("self-attention", "attention"), ("Attention_12", "attention"), ("mlp", "feed-forward"),
    ("Feed Forward", "feed-forward"), ("attnotation", ""), ("simple", ""), ("up", ""), ("aten::mlprelu", ""),
    ("ProfilerStep#7", ""),
    ("output", ""), ("optimizer.step", ""), ("download", ""), ("w2", "down projection")])
def test_names_of_ranges(name: str, part: str) -> None:
    assert part_of_range(name) == part


@pytest.mark.parametrize(("sizes", "dtype", "says"), [
    ((1, 2048, 11008, 4096), "fp16", []), ((1, 2048, 4097, 4096), "fp16", ["N = 4097 is no multiple of 8"]),
    ((1, 2048, 4100, 4090), "bf16", ["N = 4100 and K = 4090 are no multiple of 8"]),
    ((1, 2048, 4104, 4096), "fp8", ["N = 4104 is no multiple of 16"]), ((1, 512, 50257, 768), "fp16", ["N = 50257"]),
    ((1, 64, 64, 64), "fp16", ["64×64×64 is at most one tile of 128³"]), ((64, 64, 64, 64), "fp16", []),
    ((1, 128, 128, 130), "fp16", ["K = 130"]), ((1, 1, 1, 7), "fp16", ["1×1×7 is at most one tile"]),
    ((1, 2048, 4098, 4096), "fp32", ["N = 4098"]),
    ((1, 2048, 4097, 4096), "fp64", [])])
def test_dimensions_are_named(sizes: tuple[int, ...], dtype: str, says: list[str]) -> None:
    faults = dimension_faults("product", sizes, dtype)
    assert len(faults) == len(says) and all(fault.startswith(text) for fault, text in zip(faults, says, strict=True))
    assert not dimension_faults("attention", sizes, dtype) and not dimension_faults("product", sizes[:2], dtype)


def test_verdicts() -> None:
    near, low = Judged(roof_pct=90.0, limit="compute", side="compute"), Judged(roof_pct=20.0, limit="memory", side="memory")
    assert verdict_of("output projection", "product", (1, 512, F, H), "fp16", 1e6, 2.0, near) == (
        "near its ceiling (90 % of its compute ceiling)")
    said = verdict_of("down projection", "product", (1, 8, H, F), "fp16", 6_000.0, 1.0, low)
    assert said.startswith("low (20 % of its memory ceiling)") and f"8 rows read {H}×{F} weights" in said
    assert "6.00 µs a call" in said
    assert verdict_of("x", "", (), "", 1e6, None, Judged()) == ""
    assert verdict_of("x", "norm", (), "", 1e6, None, Judged(roof_pct=140.0, mark="impossible", why="")) == ""
    assert [gap_verdict(pct, "n %")[:4] for pct in (0.0, 9.9, 10.0, 49.0, 50.0)] == ["litt", "litt", "n % ", "n % ", "idle"]
