"""Small kernel files, each one fault of reading kernels from their text: tests/data/cases/kernels."""

from __future__ import annotations

from pathlib import Path

from tuner.bring.literals import UNKNOWN
from tuner.bring.source import Kernel, kernels_of
from tuner.bring.spaces import assumed_constexprs, default_of, params_of
from tuner.bring.write import write_adapter

CASES = Path(__file__).resolve().parents[2] / "data" / "cases" / "kernels"
OPTIONS = {"num_warps", "num_stages"}


def read(case: str) -> dict[str, Kernel]:
    path, = CASES.glob(f"{case}_*.py")
    return {each.name: each for each in kernels_of(path.read_text())}


def blocks(kernel: Kernel) -> set[str]:
    return set(params_of(kernel)) - OPTIONS


def default(kernel: Kernel) -> dict[str, object]:
    return default_of(kernel, params_of(kernel))


def kinds(kernel: Kernel) -> dict[str, str]:
    return {each.name: each.kind for each in kernel.arguments if each.kind != "constexpr"}


def test_a_block_that_the_host_passes_as_a_variable_is_tuned_and_its_literal_is_the_default() -> None:
    kernel = read("s01")["mm"]
    assert blocks(kernel) == {"BM", "BN", "BK"}
    assert {"BM": 64, "BN": 64, "BK": 32, "num_warps": 8}.items() <= default(kernel).items()


def test_a_block_that_the_host_computes_is_tuned_where_a_loop_steps_by_it() -> None:
    assert blocks(read("s02")["rowsum"]) == {"BLOCK_SIZE"}


def test_a_block_that_must_cover_the_row_is_not_offered() -> None:
    kernel = read("s03")["norm"]
    assert not blocks(kernel) and kernel.fixed["BLOCK_SIZE"] is UNKNOWN       # launched by another name, with a computed size


def test_what_heuristics_compute_is_not_offered() -> None:
    kernel = read("s04")["scale"]
    assert kernel.heuristics == {"HAS_BIAS", "BLOCK_D"} and blocks(kernel) == {"BLOCK_M"} and default(kernel)["BLOCK_M"] == 16


def test_fractions_are_told_by_what_the_host_gives() -> None:
    assert {"p": "number", "gate": "number", "n": "integer", "seed": "integer"}.items() <= kinds(read("s05")["dropout"]).items()


def test_flags_are_what_the_kernel_compares_them_with() -> None:
    text = next(CASES.glob("s06_*.py")).read_text()
    kernel, = kernels_of(text[:text.index("def run(")])                       # without the launch nothing else tells them
    assumed = assumed_constexprs(kernel, params_of(kernel), {})
    assert assumed | {"EPS": 0} == {"KIND": 0, "LOSS_TYPE": "l1", "AFFINE": False, "EPS": 0}


def test_lists_by_a_function_and_by_a_product_are_read() -> None:
    for kernel in read("s07").values():
        assert kernel.configs is not None and len(kernel.configs) == 4 and blocks(kernel) == {"BLOCK"}


def test_jit_that_is_called_makes_a_kernel_too() -> None:
    kernel, = read("s11").values()
    assert (kernel.name, kernel.function, blocks(kernel)) == ("add_kernel", "add", {"BLOCK"})


def test_gluon_has_pointers_and_descriptors() -> None:
    found = read("s12")
    assert {"x_ptr": "pointer", "y_ptr": "pointer"}.items() <= kinds(found["copy"]).items()
    assert {"src": "pointer", "dst": "pointer"}.items() <= kinds(found["copy_plain"]).items()
    assert {"in_desc": "descriptor", "out_desc": "descriptor"}.items() <= kinds(found["copy_tma"]).items()
    assert [each.name for each in found["copy_tma"].arguments if each.written] == ["out_desc"]


def test_types_of_tensors_are_those_that_the_host_makes() -> None:
    found = read("s13")
    assert {each.name: each.dtype for each in found["prefix"].arguments if each.dtype} == {"freq_ptr": "int32", "offs_ptr": "int32"}
    assert {each.name: each.dtype for each in found["guarded"].arguments if each.dtype} == {
        "scale_ptr": "float32", "label_ptr": "int64"}


def test_what_where_looks_at_is_no_index() -> None:
    assert kinds(read("s14")["quantize"])["code_ptr"] == "pointer"


def test_helpers_are_no_kernels() -> None:
    assert read("s15") == {}


def test_a_square_tile_takes_the_size_that_the_host_has_by_default() -> None:
    assert default(read("s16")["dequant"])["BLOCK_SIZE"] == 128


def test_a_team_s_own_autotuner_has_its_list() -> None:
    kernel = read("s17")["l2"]
    assert kernel.kind == "triton.autotune" and params_of(kernel) == {"BT": (8, 16), "num_warps": (1, 2), "num_stages": (3,)}


def test_a_stride_that_a_pointer_is_moved_by_is_a_number() -> None:
    assert kinds(read("s18")["heads"])["stride_x_head"] == "integer"


def test_an_adapter_leaves_to_the_autotuner_what_it_chooses() -> None:
    kernel = read("s19")["add_one"]
    text = write_adapter(kernel, "kernels").text
    assert kernel.configs is not None and len(kernel.configs) == 4 and '"BLOCK"' not in text[:text.index("def reference")]


def test_an_adapter_gives_no_block_twice_where_the_list_is_computed() -> None:
    text = next(CASES.glob("s19_*.py")).read_text().replace("configs=configs()", "configs=configs(4)")
    kernel, = kernels_of(text)
    draft = write_adapter(kernel, "kernels")
    assert kernel.configs is None and "BLOCK" not in draft.text[:draft.text.index("def reference")]
    assert "params=" not in draft.text and any("BLOCK is taken to be in it" in each for each in draft.to_do)


def test_heuristics_above_an_autotuner_hide_neither() -> None:
    found = read("s20")
    assert all(each.kind == "triton.autotune" and each.heuristics == {"HAS_G"} for each in found.values())
    assert params_of(found["scaled"])["BLOCK"] == (256, 512) and blocks(found["warps_only"]) == set()
