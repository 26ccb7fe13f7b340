"""Compiled code of the operators of whole models, and which of their kernels a shape has.

What a kernel is written for is read from its code for sm_90: loads that run ahead, operands that go straight to the tensor cores,
products that do not wait for each other (warnings C75xx of ptxas, which Triton does not show).
"""

import pytest

from profiles.ingest.naming import names
from tests.tuner.measure.chosen import about
from tests.tuner.measure.operators.test_model_operators import ALIGNED, VECTOR, WORDS
from tests.tuner.measure.programs import code_of, compile_lines, facts_of
from tuner.tuning.operators import OPERATORS, limits


@pytest.mark.torch
@about("top_k")
@pytest.mark.parametrize("shape", [
    {"R": 32, "C": 32000, "K": 1}, pytest.param({"R": 1, "C": 151936, "K": 50}, marks=pytest.mark.deep_only)], ids=["one", "many"])
def test_every_number_of_the_largest_compiles_as_first_tried(shape, binaries):
    """One of a row, and many of long ones: a sort has no single key, and one of many keys takes a minute to compile."""
    operator, device = OPERATORS["top_k"], limits("NVIDIA H200")
    space = operator.space(shape, "bf16", device)
    configs = [operator.default_config(shape, "bf16", device), *operator.published_starts(space, shape, "bf16", device)]
    assert len(configs) >= 3 and (shape["K"] > 1 or {config["KERNEL"] for config in configs} == {"sorting", "threshold"})
    for facts in facts_of(binaries, "9.0", "top_k", shape, "bf16", configs):
        assert not facts["spills"] and facts["registers"] <= 128, facts


@pytest.mark.torch
@about("int4_matmul")
def test_unpacked_weights_go_from_registers_to_tensor_cores(binaries):
    """Packed weights are loaded ahead, 16 bytes a thread, and nothing of them lies in shared memory once they are numbers."""
    shape = {"M": 16, "N": 4096, "K": 4096}
    words = {**WORDS, "BM": 16, "BK": 32, "SPLIT_K": 4, "num_stages": 4}
    tensor, vector = code_of(binaries, ("int4_matmul", shape, words), ("int4_matmul", {**shape, "M": 1}, {**VECTOR, "SPLIT_K": 4}))
    assert {"cp.async.cg", "wgmma.mma_async"} <= set(tensor["words"])
    assert not {"ldmatrix", "ld.global.v4.b32"} & set(tensor["words"])
    assert tensor["products"] == tensor["from_registers"] == 16                # four bytes × two halves × two steps of 16
    assert not tensor["warned"] and tensor["spills"] == 0
    assert "ld.global.v4.b32" in vector["words"] and not vector["products"]
    assert vector["spills"] == 0 and vector["registers"] <= 128


IMAGE = {"B": 16, "H": 32, "W": 32, "C": 640, "F": 640, "KS": 3, "S": 1, "P": 1}
BOX = {"BM": 256, "BN": 128, "BK": 64, "GM": 8, "num_warps": 8, "num_stages": 3, "KERNEL": "boxes"}


@pytest.mark.torch
@about("conv2d")
@pytest.mark.parametrize(("changed", "kernel", "kind"), [
    ({}, "boxes", "tma"), pytest.param({"S": 2}, "boxes", "tma", marks=pytest.mark.deep_only),
    pytest.param({}, "boxes, persistent", "persistent", marks=pytest.mark.deep_only)], ids=["boxes", "strides", "persistent"])
def test_boxes_go_from_tma_to_tensor_cores(changed, kernel, kind, binaries):
    facts, = code_of(binaries, ("conv2d", {**IMAGE, **changed}, {**BOX, "KERNEL": kernel}))
    assert facts["words"] == [*(f"cp.async.bulk.tensor.{rank}d.shared" for rank in (2, 5)), "wgmma.mma_async"]
    check_product(facts, BOX, kind)


@pytest.mark.torch
@about("conv2d")
def test_gathered_numbers_are_loaded_ahead(binaries):
    gathered = {**BOX, "BM": 128, "KERNEL": "gather"}
    facts, = code_of(binaries, ("conv2d", IMAGE, gathered))
    assert {"cp.async.cg", "wgmma.mma_async"} <= set(facts["words"]) and "ld.global.b16" not in facts["words"]
    check_product(facts, gathered, "tiles")


def check_product(facts, config, kind):
    """`kind`: of the product whose shared memory it takes."""
    from tuner.tuning.operators.matmul import smem_bytes
    assert not facts["warned"] and not facts["spills"] and facts["from_registers"] == 0
    assert facts["smem_bytes"] <= smem_bytes({**config, "KERNEL": kind, "STORE": "tma"}, 2, 2, keeps_last_stage=True)


def test_the_image_decides_which_convolutions_there_are():
    operator = OPERATORS["conv2d"]

    def kernels(gpu, **changed):
        space = operator.space({**ALIGNED, "H": 512, "W": 512, "C": 64, **changed}, "fp16", limits(gpu))
        return {config["KERNEL"] for config in space.configs()}

    hopper, ampere = "NVIDIA H200", "NVIDIA A100-SXM4-80GB"
    boxes = {"gather", "boxes", "boxes, persistent"}
    plain = {"gather", "product, tma", "product, persistent", "product, warp groups"}
    assert kernels(hopper) == kernels(hopper, S=2) == kernels(hopper, KS=1, P=1) == boxes
    assert kernels(hopper, KS=1, P=0) == plain
    assert kernels(hopper, S=3) == kernels(hopper, C=68) == kernels(hopper, F=35) == kernels(ampere) == {"gather"}
    assert kernels(hopper, S=2, C=72) == {"gather"} and kernels(hopper, C=72) == boxes
    assert kernels(hopper, C=3) == kernels(ampere, C=16) == {"gather", "flat"}


@pytest.mark.torch
@about("conv2d")
def test_a_box_covers_the_pixels_with_least_waste(tmp_path):
    asked = ((128, 2, 64, 64), (128, 32, 56, 56), (256, 32, 14, 14), (64, 8, 7, 7), (64, 392, 1, 1))
    told, = compile_lines("import json, sys; from tuner.tuning.kernels.convolution import box\n"
                          "print(json.dumps([box(*each) for each in json.loads(sys.argv[1])]))", asked, tmp_path)
    assert told == [[1, 8, 16], [2, 8, 8], [8, 2, 16], [8, 1, 8], [64, 1, 1]]         # no waste but where 14, 7 have no such side


def test_rows_of_x_decide_which_int4_kernels_there_are():
    operator, kernels = OPERATORS["int4_matmul"], {}
    for gpu in ("NVIDIA H200", "NVIDIA A100-SXM4-80GB"):
        for rows, columns in ((1, 4096), (5, 4096), (512, 4096), (512, 4100), (512, 4098)):
            space = operator.space({"M": rows, "N": columns, "K": 4096}, "bf16", limits(gpu))
            kernels[gpu[7], rows, columns] = {config["KERNEL"] for config in space.configs()}
    tma = {"unpacked, tma", "unpacked, persistent"}
    assert kernels == {
        ("H", 1, 4096): {"tiles", "vector", "words", "warp groups"}, ("H", 5, 4096): {"tiles", "words", "warp groups"},
        ("H", 512, 4096): {"tiles", "words", "warp groups", *tma}, ("H", 512, 4100): {"tiles", "words"},
        ("H", 512, 4098): {"tiles"},
        ("A", 1, 4096): {"tiles", "vector", "words"}, ("A", 5, 4096): {"tiles", "words"},
        **{("A", 512, columns): {"tiles", "words", "unpacked, tiles"} for columns in (4096, 4100)},
        ("A", 512, 4098): {"tiles", "unpacked, tiles"}}


def test_their_kernels_are_found_in_profiles_by_name():
    for name in ("top_k", "conv2d", "int4_matmul"):
        assert {names.operator_of(kernel) for kernel in OPERATORS[name].kernel_names} == {name}
