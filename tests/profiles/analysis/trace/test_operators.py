"""Operators, modules and tensor cores: traces drawn by hand with known answers, programs with planted causes, real files."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from profiles import ingest
from profiles.analysis.core.frame import Frame, frame_of
from profiles.analysis.core.kernels import operators_around, representative_launch
from profiles.analysis.core.result import Result
from profiles.analysis.trace.operators.grouping import USES, owned_work
from profiles.analysis.trace.operators.matmuls import Problem, problem_of
from profiles.analysis.trace.operators.tensor_cores import on_tensor_cores, why_not
from profiles.analysis.trace.operators.topic import missed_product, operators_result
from profiles.ingest.trace import Category, Report, SummaryTable, Trace
from tests.builders import flows, trace
from tests.profiles.ingest.corpus import DATA

HALF = 'detail={"Input~Dims":[[64,32],[32,128]],"Input~type":["c10::Half","c10::Half"]}'
DRAWN = """
python / main:   ProfilerStep#0@annotation 0-99 | nn.Module:~Net_0@python 0-60 | nn.Module:~Lin_0@python 5-30 | aten::mm 10-20 ext=1 | cudaLaunchKernel 11-12 corr=1 | cudaLaunchKernel 13-14 corr=2 | aten::relu 40-50 ext=2 | cudaLaunchKernel 41-42 corr=3
python / grad:   evaluate 60-80 | aten::mm 62-70 ext=3 | cudaLaunchKernel 63-64 corr=4
GPU 0 / stream 7: volta_sgemm 20-50 corr=1 ext=1 | splitKreduce 50-54 corr=2 ext=1 | relu_kernel 60-70 corr=3 ext=2 | s1688gemm 100-180 corr=4 ext=3 | Memset 200-201
"""                                                                                             # noqa: E501


def drawn(text: str, **fields: Any) -> Frame:
    """`~` stands for a blank, which ends an argument of the builder's lanes."""
    made = trace(text, **fields)
    return frame_of(_blanks(made))


def _blanks(made: Trace) -> Trace:
    import pyarrow as pa

    columns = {}
    for name in ("name", "detail"):
        column = made.slices[name].cast(pa.string())
        columns[name] = pa.array([None if text is None else text.replace("~", " ") for text in column.to_pylist()], pa.string())
    table = made.slices
    for name, values in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, values.dictionary_encode())
    return Trace(made.format, table.cast(made.slices.schema), made.tracks, made.devices, made.integrity, flows=made.flows)


def table(result: Result, title: str) -> SummaryTable:
    return next(each for each in result.tables if each.title.startswith(title))


def rows(result: Result, title: str) -> list[dict[str, Any]]:
    found = table(result, title)
    return [dict(zip((column.name for column in found.columns), row, strict=True)) for row in found.rows]


@pytest.fixture(scope="module")
def shapes() -> Result:
    return operators_result(read("causes/shapes.json.gz"))


def read(path: str) -> Frame:
    found = ingest.read(DATA / path)
    assert isinstance(found, Trace)
    return frame_of(found)


def test_slow_convolutions_are_named_by_their_algorithm():
    """ResNet-50 in FP32 on a V100: what TensorBoard's plugin shows as dgrad_engine, implicit_convolve_sgemm, winograd."""
    found = ingest.read(DATA / "corpus/kineto/kineto_tbplugin_resnet50_v100_1623143089861.pt.trace.json.gz")
    assert isinstance(found, Trace)
    result = operators_result(frame_of(found))
    table = next(table for table in result.tables if table.title == "Convolutions by algorithm")
    named = {str(row[0]).split("<")[0].removeprefix("void "): row[1:3] for row in table.rows}
    assert named["cudnn::detail::dgrad_engine"] == ["direct", "no"] and named["implicit_convolve_sgemm"] == ["implicit GEMM", "no"]
    finding = next(each for each in result.findings if each.rule == "convolution_algorithm")
    assert "direct" in finding.title and 50 < finding.numbers["share_pct"] < 65 and "benchmark" in finding.advice
    assert sum(int(row[6]) for row in table.rows) >= finding.numbers["gpu_ns"]


def test_a_drawn_trace_is_shared_out_to_the_nanosecond() -> None:
    result = operators_result(drawn(DRAWN.replace("aten::mm 10-20 ext=1", f"aten::mm 10-20 ext=1 {HALF}"),
                             flows=flows((1, "fwdbwd", 0, 10, False), (1, "fwdbwd", 1, 60, True))))
    found = {row["Operator"]: row for row in rows(result, "Operators")}
    assert {name: (row["GPU time"], row["Launches"], row["Calls"]) for name, row in found.items()} == {
        "aten::mm": (114_000, 3, 2), "aten::relu": (10_000, 1, 1), "(launched outside any operator)": (1_000, 1, None)}
    assert found["aten::mm"]["On tensor cores"] == pytest.approx(100 * 80 / 110)
    assert found["aten::mm"]["Largest kernel"] == "s1688gemm" and found["aten::mm"]["Share"] == pytest.approx(100 * 114 / 125)
    assert result.numbers["gpu_ns"] == 125_000
    assert result.numbers["products"] == {"yes_ns": 80_000, "no_ns": 30_000, "beside_ns": 4_000, "unknown_ns": 0}
    modules = {row["Module"]: row for row in rows(result, "Modules")}
    assert {name: (row["GPU time"], row["Forward and rest"], row["Backward"], row["Its own"]) for name, row in modules.items()} == {
        "Net_0": (124_000, 44_000, 80_000, 10_000), "Lin_0": (114_000, 34_000, 80_000, 114_000),
        "(outside any module)": (1_000, 1_000, 0, 1_000)}
    assert modules["Lin_0"]["Within"] == "Net_0"
    stacks = {(row["Kernel"], row["Launched from"]): row["GPU time"] for row in rows(result, "Call stack")}
    assert stacks[("volta_sgemm", "aten::mm ← nn.Module: Lin_0 ← nn.Module: Net_0 ← ProfilerStep")] == 30_000
    assert stacks[("s1688gemm", "aten::mm ← evaluate")] == 80_000 and stacks[("Memset", None)] == 1_000


def test_why_a_drawn_product_is_not_on_tensor_cores_and_what_it_is_worth_at_most() -> None:
    [row] = rows(operators_result(drawn(DRAWN.replace("aten::mm 10-20 ext=1", f"aten::mm 10-20 ext=1 {HALF}"))), "Could tensor")
    assert (row["Kernel"], row["Product"], row["Type"], row["GPU time"]) == ("volta_sgemm", "64 × 128 × 32", "fp16", 30_000)
    assert row["Why"].startswith("fp16, 64 × 128 × 32: nothing recorded forbids it") and row["To win, at most"] is None


def test_planted_products_get_the_cause_that_was_put_there(shapes: Result) -> None:
    """tests/data/causes/README.md: fp32 without TF32, K = 2047, a good one, fp64 (which has tensor cores on an H200)."""
    poor = rows(shapes, "Could tensor")
    assert [(row["Product"], row["Type"]) for row in poor] == [("2048 × 2048 × 2048", "fp32"), ("2048 × 2048 × 2047", "fp16")]
    assert "TF32 is not allowed" in poor[0]["Why"] and 'set_float32_matmul_precision("high")' in poor[0]["What would help"]
    assert "align1" in poor[1]["Why"] and "K = 2047" in poor[1]["Why"] and "M = " not in poor[1]["Why"]
    peak, dram = 494.7e12, 4.8e12                        # TF32 and bandwidth of an H200's datasheet
    least_ns = 1e9 * max(2 * 2048**3 / peak, 3 * 4 * 2048**2 / dram)
    assert poor[0]["To win, at most"] == pytest.approx(345_151 - least_ns, rel=1e-9)
    assert {found.rule for found in shapes.findings} == {"tensor_cores_dtype", "tensor_cores_alignment"}
    good = next(row for row in rows(shapes, "Operators by shape")
                if (row["Shapes"], row["Types"]) == ("2048×2048, 2048×2048", "Half"))
    assert good["Rate"] == pytest.approx(2 * 2048**3 / 25_184e-9) and good["Of the peak"] == pytest.approx(68.95, abs=0.01)


@pytest.mark.parametrize("path", [
    "h200/kineto_train.json.gz", "h200/kineto_layer_stack.json.gz", "corpus/kineto/tracelens_h100_timesformer.json.gz",
    "recorded/torch_graph_stack_memory.json.gz", "corpus/kineto/hta_nccl_data_a100_rank0of2.json.gz", "causes/shapes.json.gz",
    "corpus/kineto/kineto_tbplugin_resnet50_v100_1623143089861.pt.trace.json.gz", "corpus/nsys/nways_jacobi_gh200.sqlite.gz",
    "corpus/nsys/nsysai_h100_2gpu.sqlite.gz"])
def test_every_table_shares_out_all_gpu_work(path: str) -> None:
    """Against sums over the slices themselves, launch by launch."""
    frame = read(path)
    result = operators_result(frame)
    work = [(row, int(frame["dur_ns"][row])) for row in frame.work.tolist()]
    total = sum(ns for _, ns in work)
    by_name: dict[str, int] = defaultdict(int)
    for row, ns in work:
        owner = int(frame.operator[row]) if result.numbers["kind"] == "operator" else _range(frame, row)
        outside = f"(launched outside any {result.numbers['kind']})"
        by_name[re.sub(r", (seq|op_id) = \d+", "", frame.text(owner)) if owner >= 0 else outside] += ns
    kind = result.numbers["kind"].capitalize()
    assert {row[kind]: row["GPU time"] for row in rows(result, f"{kind}s")} == by_name
    for title in ("Operators by shape", "Call stack"):
        if any(each.title.startswith(title) for each in result.tables):
            assert sum(row["GPU time"] for row in rows(result, title)) == total, title
    assert result.numbers["gpu_ns"] == total


def _range(frame: Frame, row: int) -> int:
    call = int(frame.call[row])
    return next((each for each in frame.path(call) if frame["category"][each] == Category.ANNOTATION), -1) if call >= 0 else -1


def test_what_old_gpus_lack_is_not_asked_of_them() -> None:
    """A V100 has no TF32: its FP32 convolutions need autocast."""
    result = operators_result(read("corpus/kineto/kineto_tbplugin_resnet50_v100_1623143089861.pt.trace.json.gz"))
    assert all("TF32 is not allowed" not in row["Why"] and "autocast to FP16" in row["What would help"]
               for row in rows(result, "Could tensor") if row["Type"] == "fp32" and "channels" in (row["Product"] or ""))
    assert result.findings[0].rule == "tensor_cores_dtype" and result.findings[0].severity == "high"


def test_operators_that_only_nvtx_names() -> None:
    """torch.autograd.profiler.emit_nvtx numbers every call; its kernels' names tell the type where no shapes are recorded."""
    result = operators_result(read("corpus/nsys/nsysai_h100_2gpu.sqlite.gz"))
    assert rows(result, "Ranges")[0]["Range"] == "aten::copy_"
    poor = rows(result, "Could tensor")[0]
    assert "f32f32_f32f32" in poor["Kernel"] and poor["Type"] == "fp32" and "TF32 is not allowed" in poor["Why"]


def test_stacks_say_whether_pythons_frames_are_among_them() -> None:
    assert "with_stack=True" not in table(operators_result(read("h200/kineto_layer_stack.json.gz")), "Call stack").note
    assert "with_stack=True" in table(operators_result(read("h200/kineto_train.json.gz")), "Call stack").note


def test_modules_nest_past_allocation_marks() -> None:
    """Twelve layers of a TimeSformer, all within the encoder: its trace is full of [memory] marks."""
    layers = [row for row in rows(operators_result(read("corpus/kineto/tracelens_h100_timesformer.json.gz")), "Modules")
              if re.fullmatch(r"TimesformerLayer_\d+", row["Module"])]
    assert len(layers) == 12 and {row["Within"].rsplit(" / ", 1)[-1] for row in layers} == {"TimesformerEncoder_0"}


@pytest.mark.parametrize(("path", "products"), [
    ("h200/full_raw.csv.gz", 3), ("causes/precisions_raw.csv.gz", 7)])
def test_names_against_the_tensor_pipes_own_counters(path: str, products: int) -> None:
    """ncu's share of the tensor pipe's peak. HFMA2.MMA, which copies and converts, uses it a little (2.4 % in softmax); the
    least of a product is 4.7 %, 16 rows wide and split along K."""
    report = ingest.read(DATA / path)
    assert isinstance(report, Report)
    judged = 0
    for launch in report.launches:
        busy = [float(value) for name, value in launch.metrics.items() if isinstance(value, int | float)
                and name.startswith("sm__pipe_tensor")
                and name.endswith(".avg.pct_of_peak_sustained_elapsed")]
        assert busy, launch.kernel
        assert (on_tensor_cores(launch.kernel) == "yes") == (max(busy) > 3), (launch.kernel, max(busy))
        judged += "gemm" in launch.kernel or "nvjet" in launch.kernel or "splitK" in launch.kernel
    assert judged == products


def test_names_against_the_instructions_of_118_kernels() -> None:
    """tests/gpu/record/tensor_cores.py. `gmma`, `dmma` and `imma` are products alone; `hmma` counts HFMA2.MMA as well, which
    copies and converts: up to 4.1 % of the instructions of elementwise kernels, 1.2 to 37 % of products before Hopper."""
    with gzip.open(DATA / "recorded" / "tensor_cores_pipe.json.gz") as file:
        counted = json.load(file)
    sure = 0
    for kernel, each in counted.items():
        share = each["hmma"] / each["instructions"]
        if each["gmma"] or each["dmma"] or each["imma"] or share > 0.05:
            assert on_tensor_cores(kernel) == "yes", kernel
        elif share < 0.011:
            assert on_tensor_cores(kernel) != "yes", kernel
        else:
            continue
        sure += 1
    assert (len(counted), sure) == (118, 98)
    assert not [kernel for kernel in counted if on_tensor_cores(kernel) == "unknown"]


@pytest.fixture(scope="module")
def recorded() -> dict[str, tuple[str, dict[str, Any]]]:
    """Of every named product its main kernel's use, and why it is not (well) on tensor cores."""
    frame = read("recorded/tensor_cores.json.gz")
    owned = owned_work(frame)
    assert owned is not None
    named = frame.enclosing(owned.owner, Category.ANNOTATION)
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for at in np.argsort(owned.ns).tolist():
        use = USES[owned.use[at]]
        if use in ("yes", "no", "unknown") and named[at] >= 0:
            poor = use == "no" or bool(owned.unaligned[at])
            found[frame.text(int(named[at]))] = use, missed_product(owned, at, int(owned.ns[at]), 1) if poor else {"code": ""}
    return found


@pytest.mark.parametrize(("product", "use", "code"), [
    *((f"mm {dtype} {sizes}", "yes", code) for dtype in ("fp16", "bf16") for sizes, code in (
        ("2048x2048x2048", ""), ("2047x2045x2043", "alignment"), ("2044x2044x2044", "alignment"), ("16x4096x4096", ""))),
    ("mm fp32 2048x2048x2048", "no", "dtype"), ("mm fp32 1x4096x4096", "no", "small"), ("mv fp32", "no", "small"),
    ("mm fp64 2048x2048x2048", "yes", ""), ("mv fp64", "no", "small"), ("mm tf32 2048", "yes", ""),
    ("mm tf32 2047", "yes", "alignment"),
    ("linear fp16 odd", "yes", "alignment"), ("linear fp16 3 dims", "yes", ""), ("linear fp32 3 dims", "no", "dtype"),
    ("conv fp16 3 to 64", "no", "alignment"), ("conv fp16 64 to 128", "yes", ""), ("conv fp32 64 to 128", "yes", ""),
    ("conv fp32 3 to 64", "no", "alignment"), ("conv fp32 without tf32", "no", "dtype"), ("conv fp64 64 to 128", "no", "dtype"),
    ("attention fp16", "yes", ""), ("attention fp32", "yes", ""), ("fp8 mm", "yes", ""), ("int8 mm", "yes", "layout"),
    ("training step fp32", "no", "dtype"), ("training step bf16 autocast", "yes", "alignment")])
def test_recorded_products_get_their_cause(recorded: dict[str, tuple[str, dict[str, Any]]], product: str, use: str,
                                           code: str) -> None:
    assert (recorded[product][0], recorded[product][1]["code"]) == (use, code), recorded[product]


@pytest.mark.parametrize(("kernel", "use"), [
    ("volta_sgemm_128x32_nt", "no"), ("ampere_sgemm_128x64_nn", "no"), ("volta_h884gemm_64x64_ldg8_tn", "yes"),
    ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4", "no"),
    ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16", "yes"),
    ("void flash_bwd_dot_do_o_kernel<true>", "beside"), ("void cublasLt::splitKreduce_kernel<32, 16, int>", "beside"),
    ("nvjet_sm90_tst_64x16_64x16_2x1_v_bz_splitK_NNT", "yes"), ("attn_fwd", "unknown"), ("_matmul_ogs_NNT_bf16", "unknown"),
    ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN", "yes"), ("void gemv2T_kernel_val<int, int>", "no"),
    ("void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>", "no"),
    ("volta_scudnn_128x64_relu_interior_nn_v1", "no")])
def test_names(kernel: str, use: str) -> None:
    assert on_tensor_cores(kernel) == use


CONV = {"Input type": ["float", "float"], "Input Dims": [[32, 64, 56, 56], [128, 64, 3, 3], [], [], [], [], [], [], []],
        "Concrete Inputs": ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]}


@pytest.mark.parametrize(("operator", "arguments", "sizes"), [
    ("aten::mm", {"Input Dims": [[3, 4], [4, 5]], "Input type": ["float", "float"]}, (1, 3, 5, 4)),
    ("aten::addmm", {"Input Dims": [[5], [3, 4], [4, 5]], "Input type": ["float"] * 3}, (1, 3, 5, 4)),
    ("aten::bmm", {"Input Dims": [[8, 3, 4], [8, 4, 5]], "Input type": ["float"] * 2}, (8, 3, 5, 4)),
    ("aten::linear", {"Input Dims": [[2, 3, 4], [5, 4], [5]], "Input type": ["float"] * 3}, (1, 6, 5, 4)),
    ("aten::mv", {"Input Dims": [[3, 4], [4]], "Input type": ["float"] * 2}, (1, 3, 1, 4)),
    ("aten::mm", {"Input Dims": [[3, 4], [7, 5]], "Input type": ["float", "float"]}, (1, None, None, None)),
    ("aten::mm", {"Input Dims": "nonsense"}, (1, None, None, None)), ("aten::mm", {}, (1, None, None, None)),
    ("aten::convolution", CONV, (1, 32 * 28 * 28, 128, 64 * 9)),
    ("aten::conv2d", {"Input Dims": [[1, 2, 3]]}, (1, None, None, None)),
    ("aten::_scaled_mm", {"Input Dims": [[16, 32], [32, 64]], "Input type": ["c10::Float8_e4m3fn"] * 2}, (1, 16, 64, 32))])
def test_what_operators_multiply(operator: str, arguments: dict[str, Any], sizes: tuple[int | None, ...]) -> None:
    found = problem_of(operator, arguments)
    assert found is not None and (found.batch, found.m, found.n, found.k) == sizes
    assert found.flop == (2 * sizes[0] * sizes[1] * sizes[2] * sizes[3] if None not in sizes else None)     # type: ignore[operator]


def test_what_multiplies_nothing() -> None:
    assert problem_of("aten::relu", {}) is None and problem_of("aten::_convert_weight", {}) is None


@pytest.mark.parametrize(("problem", "capability", "code"), [
    (Problem("matmul", "fp32", 64, 64, 64), "9.0", "dtype"), (Problem("matmul", "fp32", 64, 64, 64), "6.0", "gpu"),
    (Problem("matmul", "fp16", 64, 64, 63), "9.0", "alignment"), (Problem("matmul", "fp16", 1, 64, 64), "9.0", "small"),
    (Problem("matmul", "fp16", 4, 64, 64), "9.0", "small"), (Problem("matmul", "fp16", 64, 64, 64), None, "library"),
    (Problem("matmul", ""), None, "shapes"), (Problem("matmul", "int64", 64, 64, 64), "9.0", "dtype"),
    (Problem("conv", "fp16", channels=(3, 64)), "8.0", "alignment"),
    (Problem("conv", "fp16", channels=(1, 64), depthwise=True), "8.0", "small"),
    (Problem("matmul", "fp64", 64, 64, 64), "7.0", "gpu"), (Problem("matmul", "int8", 64, 64, 64), "7.0", "gpu")])
def test_reasons_in_the_order_in_which_they_have_to_be_removed(problem: Problem, capability: str | None, code: str) -> None:
    assert why_not(problem, capability).code == code


@pytest.mark.parametrize("said", [
    '{"Input~Dims":[[9999999999999,9999999999999],[9999999999999,9999999999999]],"Input~type":["c10::Half",{}]}',
    '{"Input~Dims":[[[[1]]],{"a":1}],"Input~type":[null,7],"Concrete~Inputs":"[[["}',
    '{"Input~Dims":"' + "[" * 5000 + '"}',
    '{"Input~Dims":[[-1,0],[1.5,true]],"Input~type":"x"}', "[]",
    '{"Input~Dims":' + json.dumps([[549755813887] * 500] * 2).replace(" ", "") + ',"Input~type":["float","float"]}'])
def test_nonsense_for_shapes_is_no_shape(said: str) -> None:
    result = operators_result(drawn(DRAWN.replace("aten::mm 10-20 ext=1", f"aten::mm 10-20 ext=1 detail={said}")))
    assert rows(result, "Operators")[0]["GPU time"] == 114_000
    assert all(row["To win, at most"] is None for row in rows(result, "Could tensor"))
    json.dumps([each.rows for each in result.tables], allow_nan=False)


def test_a_trace_without_gpu_work_or_operators_says_what_to_record() -> None:
    assert not operators_result(drawn("python / main: aten::mm 1-2")).applies
    bare = operators_result(drawn("GPU 0 / stream 7: gemm 1-2"))
    assert not bare.applies and "torch.profiler" in bare.answer


def test_the_launch_that_stands_for_a_kernel() -> None:
    """The median one, the cold first aside; counted among what the expression matches, in the host's order."""
    frame = drawn("""
    python / main:    cudaLaunchKernel 0-1 corr=1 | cudaLaunchKernel 2-3 corr=2 | cudaLaunchKernel 4-5 corr=3 | cudaLaunchKernel 6-7 corr=4 | cudaLaunchKernel 8-9 corr=5
    GPU 0 / stream 7: gemm<a> 10-90 corr=1 | gemm<a> 100-110 corr=3 | gemm<a> 120-140 corr=4 | gemm<a> 150-180 corr=5
    GPU 0 / stream 8: gemm<b> 300-310 corr=2
    """)                                                                                        # noqa: E501
    both = {code for code, name in enumerate(frame.names) if name.startswith("gemm")}
    found = representative_launch(frame, "gemm<a>", both)
    assert found is not None and int(frame["start_ns"][found.row]) == 120_000
    assert (found.skip, found.matching, found.launches) == (3, 5, 4)       # gemm<b> began last, but was launched second
    assert representative_launch(frame, "nothing", both) is None


def test_the_operators_around_most_of_a_kernels_time() -> None:
    frame = read("h200/kineto_layer_stack.json.gz")
    kernel = next(frame.text(row) for row in frame.kernels if frame.text(row).startswith("nvjet_sm90_hsh_192x192"))
    around, launches, ns = operators_around(frame, kernel)
    assert [name for name, _ in around] == ["aten::addmm", "aten::linear"] and launches == 4
    own = [int(frame["dur_ns"][row]) for row in frame.kernels if frame.text(row) == kernel]
    assert ns == sum(own) and around[0][1]["Input Dims"][1:3] == [[2048, 4096], [4096, 11008]]
