"""Kinds that no recording here has, on traces written down: found where it is so, and not where it only looks like it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from profiles.analysis.trace.lead import needed_with_lead
from profiles.analysis.trace.needed.needs import Claim
from profiles.analysis.trace.needed.table import KINDS
from profiles.analysis.trace.needed.topic import claim_text
from tests.profiles.needed.written import COPY, ELEMENTWISE, GEMM, Program, product, tensors

FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>"
EFFICIENT = "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel)"
BATCH_NORM = "void at::native::batch_norm_transform_input_kernel<c10::BFloat16, float, float, true, int>"


def us(claim: Claim) -> tuple[float, float]:
    """What the GPU no longer does, least and most."""
    return (claim.takes_ns - claim.stays_ns[1]) / 1e3, (claim.takes_ns - claim.stays_ns[0]) / 1e3


def test_every_kind_says_its_change_and_where_it_is_from() -> None:
    assert len({kind.name for kind in KINDS}) == len({kind.title for kind in KINDS}) == len(KINDS) >= 26
    assert all(kind.change and kind.source for kind in KINDS)


# operands copied before products

def _copied(source: tuple[int, ...], shape: tuple[int, ...], rows: int = 512) -> Program:
    program = Program()
    dense = [1]
    for size in reversed(shape[1:]):
        dense.insert(0, dense[0] * size)
    for _ in range(3):
        program.launch("aten::contiguous aten::clone aten::copy_", tensors(shape, shape, strides=(dense, source)), 20, COPY)
        product(program, rows, shape[-1], shape[-2], 60)
    return program


@pytest.mark.parametrize(("source", "shape", "how"), [
    ((1, 2048), (2048, 1024), "transposed"), ((4096, 1), (2048, 1024), "cut out"), ((0, 1), (2048, 1024), "expanded")])
def test_an_operand_that_a_product_reads_as_it_lies_is_copied(
        tmp_path: Path, source: tuple[int, ...], shape: tuple[int, ...], how: str) -> None:
    claim = _copied(source, shape).claims(tmp_path)["copied_operands"]
    assert claim.launches == 3 and us(claim) == (60, 60) and claim.found[0].numbers["how"] == how


@pytest.mark.parametrize(("source", "shape"), [
    ((1024, 1), (2048, 1024)),                      # dense: another copy is wanted
    ((2, 4096), (2048, 1024)),                      # neither dimension has stride 1
    ((1, 3, 2048), (2048, 3, 1024))])               # the matrices of a batch lie in each other
def test_other_copies_before_a_product_are_not_accused(
        tmp_path: Path, source: tuple[int, ...], shape: tuple[int, ...]) -> None:
    assert "copied_operands" not in _copied(source, shape).claims(tmp_path)


# products that share an operand

def _layer(program: Program, widths: tuple[int, ...], inner: int, each_us: float, rows: int = 16) -> Program:
    for _ in range(4):
        program.launch("aten::rms_norm", tensors((rows, inner)), 4, "void rms_norm_kernel")
        for width in widths:
            product(program, rows, width, inner, each_us, "aten::linear aten::mm")
        program.launch("aten::scaled_dot_product_attention aten::_scaled_dot_product_flash_attention",
                       tensors((1, 32, rows, 128), (1, 8, rows, 128), (1, 8, rows, 128)), 10, FLASH)
    return program


def test_query_key_and_value_of_one_tensor_are_one_product(tmp_path: Path) -> None:
    claim = _layer(Program(), (4096, 1024, 1024), 4096, 20.0).claims(tmp_path)["shared_operand"]
    least, most = us(claim)
    # together 6144 × 4096 weights of 2 bytes: 10.5 µs at 4.8 TB/s; the widest reaches 35 % of it: 30 µs of 60
    assert claim.launches == 12 and not claim.certain and 4 * 27 <= least <= 4 * 33 and 4 * 46 <= most <= 4 * 50


def test_a_chain_of_square_products_and_fast_ones_share_nothing(tmp_path: Path) -> None:
    chain = Program()
    for _ in range(30):
        product(chain, 16, 4096, 4096, 20.0)
    assert "shared_operand" not in chain.claims(tmp_path)
    fast = _layer(Program(), (4096, 1024, 1024), 4096, 20.0)
    for event in fast.events:
        if event["cat"] == "kernel" and event["name"] == GEMM:
            event["dur"] = 8.0 if event["dur"] == 20.0 else event["dur"]
    assert "shared_operand" in fast.claims(tmp_path)        # 1024 columns in 8 µs are slow
    alike = _layer(Program(), (11008, 11008), 4096, 22.0)   # gate and up at 85 % of the bandwidth
    assert "shared_operand" not in alike.claims(tmp_path)


# attention

def _attention(mask: tuple[int, ...], dtype: str, size: int, kernel: str, call: str) -> Program:
    program = Program()
    shape = (4, 32, 2048, size)
    for _ in range(3):
        arguments = tensors(shape, shape, shape, mask, dtype=dtype)
        program.launch(f"aten::scaled_dot_product_attention {call}", arguments, 1500.0, kernel, arguments)
    return program


@pytest.mark.parametrize(("mask", "dtype", "size", "why"), [
    ((4, 1, 2048, 2048), "bf16", 128, "a mask of 4×1×2048×2048"), ((), "bf16", 100, "heads of 100")])
def test_attention_says_what_keeps_it_from_the_fast_kernel(
        tmp_path: Path, mask: tuple[int, ...], dtype: str, size: int, why: str) -> None:
    claims = _attention(mask, dtype, size, EFFICIENT, "aten::_scaled_dot_product_efficient_attention").claims(tmp_path)
    claim = claims["slower_attention"]
    assert claim.found[0].what.endswith(f"not in FlashAttention: {why}")
    least, most = us(claim)
    assert 0 < least < most < 4500


def test_attention_in_the_fast_kernel_or_without_a_reason_is_not_accused(tmp_path: Path) -> None:
    fast = _attention((), "bf16", 128, FLASH, "aten::_scaled_dot_product_flash_attention")
    chosen = _attention((), "bf16", 128, EFFICIENT, "aten::_scaled_dot_product_efficient_attention")
    assert "slower_attention" not in fast.claims(tmp_path) and "slower_attention" not in chosen.claims(tmp_path)


# sizes

@pytest.mark.parametrize(("columns", "found"), [(50257, True), (50264, False)])
def test_sizes_that_tensor_cores_do_not_take(tmp_path: Path, columns: int, found: bool) -> None:
    """4,096 rows × 768: 0.32 TFLOP, 0.32 ms at the peak; padded at worst 0.58 ms."""
    program = Program()
    for _ in range(2):
        product(program, 4096, columns, 768, 1500.0)
    claims = program.claims(tmp_path)
    assert ("uneven_sizes" in claims) is found
    if found:
        least, most = us(claims["uneven_sizes"])
        assert 2 * 900 < least < most < 2 * 1120 and "50,257 (to 50,264)" in claims["uneven_sizes"].found[0].what


# convolutions

def test_convolutions_as_columns(tmp_path: Path) -> None:
    program = Program()
    for _ in range(3):
        path = "aten::conv2d aten::convolution aten::_convolution aten::_slow_conv2d_forward"
        program.launch(path, tensors((8, 64, 56, 56), (64, 64, 3, 3)), 300.0, "void at::native::im2col_kernel<float>")
        program.launch(f"{path} aten::addmm", tensors((64,), (64, 576), (576, 3136)), 100.0, GEMM)
    claim = program.claims(tmp_path)["columns_written_out"]
    assert claim.launches == 6 and claim.takes_ns == 1_200_000
    unfold = Program()
    for _ in range(2):
        unfold.launch("aten::im2col", tensors((8, 64, 56, 56)), 300.0, "void at::native::im2col_kernel<float>")
    assert "columns_written_out" not in unfold.claims(tmp_path)


def test_a_bias_that_a_batch_norm_takes_away(tmp_path: Path) -> None:
    def program(behind: str, kernel: str) -> Program:
        made, path = Program(), "aten::conv2d aten::convolution aten::_convolution"
        for _ in range(3):
            image = tensors((32, 64, 56, 56), (64, 64, 3, 3))
            made.launch(f"{path} aten::cudnn_convolution", image, 100.0, "sm90_xmma_fprop_implicit")
            made.launch(f"{path} aten::add_", tensors((32, 64, 56, 56), (1, 64, 1, 1)), 15.0)
            made.launch(behind, tensors((32, 64, 56, 56)), 20.0, kernel)
        return made

    norm = "aten::batch_norm aten::_batch_norm_impl_index aten::cudnn_batch_norm"
    claim = program(norm, BATCH_NORM).claims(tmp_path)["bias_before_norm"]
    assert us(claim) == (45, 45)
    assert "bias_before_norm" not in program("aten::relu aten::clamp_min", ELEMENTWISE).claims(tmp_path)


# sorts and tables

def test_rows_sorted_for_a_few(tmp_path: Path) -> None:
    whole = Program().launch("aten::sort", tensors((32, 128_256), dtype="fp32"), 400.0, "cub::DeviceSegmentedRadixSortKernel")
    claim = whole.claims(tmp_path)["sorted_for_few"]
    assert "top-p" in claim.found[0].condition and us(claim)[0] == 200
    ids = Program().launch("aten::argsort aten::sort", tensors((65_536,), dtype="int64"), 400.0, "cub::DeviceRadixSortKernel")
    short = Program().launch("aten::sort", tensors((4096, 64), dtype="fp32"), 400.0, "cub::DeviceRadixSortKernel")
    chosen = Program().launch("aten::topk aten::sort", tensors((32, 128_256), dtype="fp32"), 400.0, "cub::DeviceRadixSortKernel")
    assert all("sorted_for_few" not in each.claims(tmp_path) for each in (ids, short, chosen))


@pytest.mark.parametrize(("layers", "found"), [(6, True), (2, False)])
def test_tables_of_positions_made_again(tmp_path: Path, layers: int, found: bool) -> None:
    program = Program()
    for _ in range(layers):
        for name in ("cos", "sin"):
            program.launch(f"aten::{name}", tensors((1, 4096, 128), dtype="fp32"), 6.0)
        product(program, 4096, 4096, 4096, 200.0)
    claims = program.claims(tmp_path)
    assert ("tables" in claims) is found and (not found or not claims["tables"].certain)


# loops

def test_recurrent_cells_step_by_step(tmp_path: Path) -> None:
    program = Program()
    for _ in range(16):
        for _ in range(2):
            program.launch("aten::lstm_cell aten::linear aten::addmm", tensors((4096,), (32, 1024), (1024, 4096)), 6.0, GEMM)
        program.launch("aten::lstm_cell aten::_thnn_fused_lstm_cell", tensors((32, 4096), (32, 4096)), 3.0,
                       "void at::native::(anonymous namespace)::kernel::lstm_cell_forward<float>")
    claim = program.claims(tmp_path)["loops"]
    assert claim.found[0].what.startswith("16 steps of recurrent cells") and claim.is_region and claim.gain_ns[1] > claim.takes_ns


@pytest.mark.parametrize(("heads", "between", "found"), [
    (1, "aten::cat", True), (1, "aten::rms_norm", False), (8, "aten::cat", False)])
def test_heads_one_by_one(tmp_path: Path, heads: int, between: str, found: bool) -> None:
    program = Program()
    for _ in range(8):
        queries = tensors(*3 * ((4, heads, 1024, 64),))
        program.launch("aten::scaled_dot_product_attention aten::_scaled_dot_product_flash_attention", queries, 20.0, FLASH)
        program.launch(between, tensors((4, 1024, 64)), 4.0, "void rms_norm_kernel" if "norm" in between else COPY)
    claims = program.claims(tmp_path)
    assert ("loops" in claims) is found and (not found or "8 heads" in claims["loops"].found[0].what)


def test_elements_picked_in_a_loop(tmp_path: Path) -> None:
    def program(picks: bool) -> Program:
        made = Program()
        for _ in range(40):
            if picks:
                made.operator("aten::select")
            made.launch("aten::copy_", tensors((1024,), (1024,)), 2.0, COPY)
        return made

    claim = program(True).claims(tmp_path)["loops"]
    assert claim.found[0].what.startswith("40 elements or rows") and claim.is_region
    assert "loops" not in program(False).claims(tmp_path)       # a benchmark of one operator


# by way of the host

def _trip(there: str, waits: bool, size: int = 1 << 22) -> Program:
    program = product(Program(), 1024, 1024, 1024, 50.0)
    for _ in range(3):
        program.copy("aten::to aten::_to_copy aten::copy_", there, size, 200.0, waits)
        program.copy("aten::to aten::_to_copy aten::copy_", "Memcpy HtoD (Pageable -> Device)", size, 180.0, True)
        product(program, 1024, 1024, 1024, 50.0)
    return program


def test_data_that_goes_to_the_host_and_comes_back(tmp_path: Path) -> None:
    needs = _trip("Memcpy DtoH (Device -> Pageable)", True).needs(tmp_path)
    claim = next(each for each in needs.claims if each.kind.name == "round_trips")
    gpu, = needs.gpus
    assert claim.takes_ns == 3 * 380_000 == gpu.parts["round_trips"] and gpu.parts["copies"] == 0
    assert sum(gpu.parts.values()) == gpu.wall_ns and claim.launches == 6 and not claim.certain
    assert claim.gain_ns[0] <= claim.takes_ns <= claim.gain_ns[1] and "3 times data goes to the host" in claim_text(needs, claim)


@pytest.mark.parametrize(("there", "waits", "size"), [
    ("Memcpy DtoH (Device -> Pinned)", True, 1 << 22),          # kept there on purpose
    ("Memcpy DtoH (Device -> Pageable)", True, 1 << 12)])       # a result
def test_what_the_host_keeps_or_reads_is_no_round_trip(tmp_path: Path, there: str, waits: bool, size: int) -> None:
    assert "round_trips" not in _trip(there, waits, size).claims(tmp_path)


@pytest.mark.parametrize(("maker", "found"), [("aten::zeros", True), ("aten::index_select", False)])
def test_tensors_made_on_the_host(tmp_path: Path, maker: str, found: bool) -> None:
    program = product(Program(), 1024, 1024, 1024, 50.0)
    for _ in range(2):
        program.operator(f"{maker} aten::fill_", tensors((1024, 1024), dtype="fp32")).operator("aten::detach")
        program.copy("aten::to aten::_to_copy aten::copy_", "Memcpy HtoD (Pageable -> Device)", 1 << 22, 180.0, True)
        product(program, 1024, 1024, 1024, 50.0)
    claims = program.claims(tmp_path)
    assert ("round_trips" in claims) is found
    assert not found or claims["round_trips"].found[0].what == "2 tensors are made on the host and copied to the GPU"


# kinds of before, where they were wrong

def test_weights_that_are_made_of_random_numbers_are_not_made_anew(tmp_path: Path) -> None:
    """`torch.randn(…).half()` right before a product, scaled in place: it crashed, and was called a cast in each step."""
    program, halved = Program(), tensors((2048, 2048), (2048, 2048), dtype=("fp16", "fp32"))
    for _ in range(3):
        program.launch("aten::randn aten::normal_", tensors((2048, 2048), dtype="fp32"), 10.0)
        program.launch("aten::to aten::_to_copy aten::copy_", halved, 8.0, COPY)
        product(program, 1024, 2048, 2048, 50.0, dtype="fp16")
    assert "remade_weights" not in program.claims(tmp_path)
    cast = Program()
    for _ in range(3):
        cast.launch("aten::to aten::_to_copy aten::copy_", halved, 8.0, COPY)
        cast.launch("aten::mul_", tensors((2048, 2048), dtype="fp16"), 5.0)
        product(cast, 1024, 2048, 2048, 50.0, dtype="fp16")
    assert us(cast.claims(tmp_path)["remade_weights"])[1] == 39


def test_a_cache_that_a_compiler_concatenates(tmp_path: Path) -> None:
    program = Program()
    for length in range(2000, 2006):
        program.launch("triton_poi_fused_cat_0", tensors((4, 8, length, 128), (4, 8, 1, 128), (4, 8, length + 1, 128)), 20.0,
                       "triton_poi_fused_cat_0")
    assert program.claims(tmp_path)["growing_caches"].found[0].numbers["entries"] == 2005


@pytest.mark.parametrize(("behind", "said"), [("aten::sum", True), ("aten::linear aten::mm", False)])
def test_scores_that_are_averaged_say_on_which_condition_they_go(tmp_path: Path, behind: str, said: bool) -> None:
    """`nn.MultiheadAttention` returns the mean of its scores unless it is told not to."""
    program, scores = Program(), (16, 8, 512, 512)
    for _ in range(2):
        program.launch("aten::bmm", tensors((128, 512, 64), (128, 64, 512)), 60.0, GEMM)
        program.launch("aten::softmax aten::_softmax", tensors(scores), 60.0, "void softmax_warp_forward<float>")
        program.launch("aten::bmm", tensors((128, 512, 512), (128, 512, 64)), 60.0, GEMM)
        program.launch("aten::contiguous aten::clone aten::copy_", tensors((16, 512, 8, 64), (16, 512, 8, 64)), 6.0, COPY)
        program.launch(behind, tensors(scores), 20.0, "void at::native::reduce_kernel<128, 4>" if "sum" in behind else GEMM)
    claim = program.claims(tmp_path)["scores_in_memory"]
    assert all(("need_weights=False" in one.condition) is said for one in claim.found) and len(claim.found) == 2


def test_one_operator_again_and_again_is_no_chain_of_passes(tmp_path: Path) -> None:
    """A benchmark of an addition: its least time is that of its bytes, nothing of it need not be."""
    program = Program()
    for _ in range(10):
        program.launch("aten::add", tensors((8192, 8192), (8192, 8192)), 400.0)
    needs = program.needs(tmp_path)
    assert not needs.claims and 0.1 < needs.gpus[0].parts["needed"] / needs.gpus[0].wall_ns < 0.3


@pytest.mark.parametrize("has_product", [True, False])
def test_without_a_product_one_pass_of_a_chain_stays(tmp_path: Path, has_product: bool) -> None:
    program = Program()
    for _ in range(4):
        if has_product:
            product(program, 4096, 4096, 4096, 200.0)
        for name in ("aten::add", "aten::mul", "aten::add", "aten::mul"):
            program.launch(name, tensors((8192, 8192), (8192, 8192)), 150.0)
    claim = program.claims(tmp_path)["passes"]
    one_pass_ns = 2 * 8192 * 8192 * 2 / 4.8e12 / 0.75 * 1e9
    assert claim.stays_ns == (0 if has_product else round(claim.stays_ns[1]), pytest.approx(claim.stays_ns[1]))
    assert claim.stays_ns[1] == pytest.approx(4 * one_pass_ns if has_product else one_pass_ns, rel=0.02)
    assert ("between products" in claim.found[0].what) is has_product


@pytest.mark.parametrize(("path", "arguments", "why"), [
    ("aten::mm", {}, "record with `record_shapes=True`"),
    ("aten::custom", tensors((64, 64)), "the shapes, types or ceilings of its work are not known")])
def test_what_keeps_the_least_time_unknown_is_named(tmp_path: Path, path: str, arguments: dict[str, Any], why: str) -> None:
    frame = Program().launch(path, arguments, 50.0, "void custom_kernel()").frame(tmp_path)
    assert f"what it needs is not known: {why}." in needed_with_lead(frame).answer
