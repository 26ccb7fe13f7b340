"""Values added to the spaces of built-in operators: which are taken, what they make, what leaves it out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from profiles.base.refused import Refused
from tests.kept.folder import cache_folder
from tests.scale import DEEP
from tests.tuner.measure.operators.test_tensor_operators import CHECK, COMPILE, python
from tuner.spaces.api import space_answer
from tuner.spaces.edit import count_edited, edit_text, edited_space, has_default, read_edit
from tuner.spaces.own import space_of_operator
from tuner.tuning.operators import OPERATORS, limits, variants
from tuner.tuning.operators.variants import Only, UnionSpace, union_space
from tuner.tuning.space import MAX_PRODUCT, Constraint
from tuner.tuning.trial import config_key

H200, T4 = limits("NVIDIA H200"), limits("Tesla T4")
SHAPE = {"M": 4096, "N": 4096, "K": 4096}


def own_of(name: str, shape: dict[str, int] | None = None, gpu: Any = H200) -> Any:
    operator = OPERATORS[name]
    return space_of_operator(operator, shape or dict(operator.presets[0]), operator.dtypes[0], gpu)


def fresh_value(own: Any, name: str) -> int | None:
    """A value that the parameter takes and does not have; None where it takes none."""
    space = OPERATORS[own.operator].space(dict(OPERATORS[own.operator].presets[0]), OPERATORS[own.operator].dtypes[0], H200)
    assert isinstance(space, UnionSpace)
    taken = variants.takes(space, name)
    if taken is None:
        return None
    return next(value for value in taken.values() if value not in own.values[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_every_parameter_of_every_operator_takes_values_or_says_that_it_takes_none(name: str) -> None:
    own, took = own_of(name), 0
    before = count_edited(own, read_edit({}, own), limit_s=60)
    for param in own.params:
        value = fresh_value(own, param.name)
        assert bool(own.takes[param.name]) == (value is not None), param.name
        if value is None:
            with pytest.raises(Refused, match="not written for that value"):
                read_edit({"parameters": {param.name: [*param.values, "another" if isinstance(param.values[0], str) else 3]}}, own)
            continue
        took += 1
        edit = read_edit({"parameters": {param.name: [*param.values, value]}}, own)
        counted = count_edited(own, edit, limit_s=60)
        made = [(config, broken) for config, broken in own.walk({**own.values, **edit.parameters}) if config[param.name] == value]
        assert made and counted.size == before.size + len(made), param.name
        assert counted.valid + sum(counted.left_out.values()) == counted.size and counted.whole
        assert counted.valid == before.valid + sum(not broken for _, broken in made), "what was there is counted as before"
        assert len({config_key(config) for config, _ in made}) == len(made)
        reasons = {rule.reason for rule in OPERATORS[name].space(  # type: ignore[attr-defined]
            dict(OPERATORS[name].presets[0]), OPERATORS[name].dtypes[0], H200).constraints}
        assert {broken for _, broken in made} - {""} <= reasons
    assert took, "an operator has parameters of which only some values are written out"


def test_a_taller_tile_and_more_warps_are_pruned_by_the_operators_own_limits() -> None:
    own = own_of("matmul", SHAPE)
    edit = read_edit({"parameters": {"BM": [64, 128, 512], "num_warps": [8, 16]}}, own)
    space = edited_space(own, edit)
    tall = [config for config in space.configs() if config["BM"] == 512]
    assert tall and {config["num_warps"] for config in tall} == {8, 16}
    assert {config["KERNEL"] for config in tall} == {"tiles", "tma"}, "so few tiles leave the persistent kernels nothing"
    plain = OPERATORS["matmul"].space(SHAPE, "bf16", H200)
    for config in tall:
        each = 256 if config["KERNEL"] == "tiles" and config["SPLIT_K"] == 1 else 128
        assert int(config["BM"]) * int(config["BN"]) <= each * 32 * int(config["num_warps"])
        assert config not in plain
    assert space.pruned["accumulator registers"] > plain.pruned["accumulator registers"]
    assert edit_text(edit.as_json()) == "BM 64, 128 (without 16, 32, 192, 256, with 512); num_warps 8 (without 2, 4, with 16)"


def test_what_a_gpu_lacks_leaves_out_all_that_is_added() -> None:
    own = own_of("matmul", SHAPE, T4)
    edit = read_edit({"parameters": {"num_stages": [16], "BK": [128]}}, own)
    counted = count_edited(own, edit, limit_s=30)
    assert counted.valid == 0 and counted.left_out["shared memory"] > 0 and counted.left_out["TMA: from compute capability 9.0"] > 0
    with pytest.raises(Refused, match="no configuration is left on Tesla T4"):
        edited_space(own, edit)


@pytest.mark.parametrize(("operator", "values", "words"), [
    ("matmul", {"BM": [512, 48]}, "48: its kernels are not written for that value; it has 16, 32, 64, 128, 192, 256, and takes "
                                  "powers of two from 16 to 65,536"),
    ("matmul", {"BM": [8]}, "powers of two from 16"), ("matmul", {"BN": [2**17]}, "to 65,536"),
    ("matmul", {"BM": [512.0]}, "not written"), ("matmul", {"BM": ["512"]}, "not written"),
    ("matmul", {"KERNEL": ["tiles", "fastest"]}, "fastest: its kernels are not written"),
    ("matmul", {"STORE": [1]}, "it has direct, tma, halves"), ("matmul", {"num_warps": [6]}, "powers of two from 1 to 32"),
    ("matmul", {"num_warps": [64]}, "powers of two from 1 to 32"), ("matmul", {"num_stages": [0]}, "whole numbers from 1 to 16"),
    ("matmul", {"num_stages": [99]}, "whole numbers from 1 to 16"), ("matmul", {"GM": [True]}, "whole numbers from 1"),
    ("matmul", {"SPLIT_K": [-2]}, "whole numbers from 1"), ("layernorm", {"PASSES": [3]}, "it has 1, 2"),
    ("fp8_block_matmul", {"BK": [256]}, "it has 32, 64, 128"), ("int4_matmul", {"KERNEL": ["x" * 70]}, "no short text"),
    ("row_sum", {"SPLIT": [3]}, "powers of two"), ("top_k", {"SPLIT": [3]}, "powers of two"),
])
def test_what_the_kernels_cannot_take_is_refused_at_its_field(operator: str, values: dict[str, Any], words: str) -> None:
    own = own_of(operator)
    with pytest.raises(Refused) as caught:
        read_edit({"parameters": values}, own)
    assert list(caught.value.fields) == [f"parameters.{next(iter(values))}"]
    assert words in next(iter(caught.value.fields.values()))


def test_a_value_goes_to_the_kernels_that_vary_its_parameter() -> None:
    """One with a single value does not read it, or is written for it; `Only` is not added to."""
    space = union_space(({"A": (16, 32), "B": (1,), "K": ("x",)}, {"A": Only((16, 32)), "B": (1, 2), "K": ("y",)}),
                        (Constraint("too much", lambda c: int(c["A"]) * int(c["B"]) < 128),))
    values = {"A": (16, 32, 64, 128), "B": (1, 2, 4), "K": ("x", "y")}
    made = list(variants.added_configs(space, values))
    assert [(tuple(config.values()), broken) for config, broken in made] == [
        ((64, 1, "x"), ""), ((128, 1, "x"), "too much"), ((16, 4, "y"), ""), ((32, 4, "y"), "too much")]
    assert variants.added_size(space, values) == 4
    assert variants.added_size(space, {"A": (64,), "B": (1,), "K": ("x",)}) == 1, "what is taken out makes nothing"
    assert variants.added_size(space, {"A": (16,), "B": (1, 2), "K": ("x", "y")}) == 0


def test_kernels_that_share_configurations_make_each_once() -> None:
    space = union_space(({"A": (16, 32), "B": (1, 2)}, {"A": (16, 64), "B": (1, 2)}), ())
    values = {"A": (16, 32, 64, 128), "B": (1, 2)}
    assert len(list(variants.added_configs(space, values))) == variants.added_size(space, values) == 2


def test_fp8_takes_no_shorter_step_than_its_tensor_cores() -> None:
    own = space_of_operator(OPERATORS["matmul"], SHAPE, "fp8", H200)
    counted = count_edited(own, read_edit({"parameters": {"BK": [16]}}, own), limit_s=30)
    assert counted.valid == 0 and counted.left_out["fp8 tensor cores: steps of 32 of K at least"] > 0
    assert "fp8 tensor cores: steps of 32 of K at least" not in count_edited(own, read_edit({}, own), limit_s=30).left_out


def test_too_many_combinations_are_refused_before_they_are_made() -> None:
    own = own_of("matmul", SHAPE)
    sides = [1 << power for power in range(4, 17)]
    edit = read_edit({"parameters": {"BM": sides, "BN": sides, "BK": sides, "GM": list(range(1, 65))}}, own)
    with pytest.raises(Refused, match=f"at most {MAX_PRODUCT:,}") as caught:
        count_edited(own, edit)
    assert list(caught.value.fields) == ["parameters"]


def test_constraints_hold_of_what_is_added_too() -> None:
    own = own_of("softmax", {"R": 8192, "C": 4096})
    edit = read_edit({"parameters": {"PER_SM": [1, 3, 64]}, "constraints": ["PER_SM * num_warps <= 32"]}, own)
    configs = list(edited_space(own, edit).configs())
    assert {config["PER_SM"] for config in configs} == {1, 3} and all(
        int(config["PER_SM"]) * int(config["num_warps"]) <= 32 for config in configs)
    assert not has_default(own, edit) and read_edit(edit.as_json(), own) == edit


def test_the_answer_of_the_form_says_what_each_parameter_takes() -> None:
    answer = space_answer(own_of("matmul", SHAPE), {"parameters": {"num_warps": [16]}})
    takes = {each["name"]: each["takes"] for each in answer["parameters"]}
    assert takes["BM"] == "powers of two from 16 to 65,536" and takes["num_stages"] == "whole numbers from 1 to 16"
    assert takes["KERNEL"] == "" == takes["STORE"] and answer["fixed"] == "" and answer["fields"] == {}
    assert answer["valid"] > 0 and answer["text"] == "num_warps 16 (without 2, 4, 8, with 16)"


TILE = {"num_warps": 4, "num_stages": 2}
# values that no space writes out: three and more parts, other group sizes, wider and deeper tiles
INTERPRETED = [
    ("matmul", {"M": 40, "N": 70, "K": 300}, "fp16", {"BM": 32, "BN": 16, "BK": 16, "GM": 3, "KERNEL": "tiles", "SPLIT_K": 3,
                                                      "STORE": "direct", **TILE}),
    ("matmul", {"M": 40, "N": 80, "K": 320}, "fp16", {"BM": 64, "BN": 32, "BK": 16, "GM": 5, "KERNEL": "persistent", "SPLIT_K": 1,
                                                      "STORE": "direct", **TILE}),
    ("decode_attention", {"B": 1, "H": 6, "KV": 2, "N": 70, "D": 16}, "fp16", {"BN": 16, "SPLITS": 5, **TILE}),
    ("softmax", {"R": 70, "C": 50}, "fp16", {"STEPS": 6, "PER_SM": 5, "num_warps": 4, "ROWS": 32, "BLOCK": 0}),
    ("row_sum", {"R": 5, "C": 5000}, "fp16", {"ROWS": 32, "BLOCK": 32, "SPLIT": 128, "num_warps": 4, "num_stages": 1,
                                                    "UNROLL": 1}),
    ("rmsnorm", {"R": 5, "C": 2000}, "fp16", {"BLOCK": 64, "PASSES": 2, "ROWS": 1, "UNROLL": 3, "num_warps": 4, "num_stages": 1}),
    ("rotary", {"T": 40, "H": 6, "D": 32}, "fp16", {"TOKENS": 32, "HEADS": 4, "num_warps": 4}),
    ("int4_matmul", {"M": 20, "N": 64, "K": 256}, "fp16", {"KERNEL": "tiles", "BM": 16, "BN": 16, "BK": 16, "GM": 3, "SPLIT_K": 3,
                                                           **TILE}),
]


@pytest.mark.torch
def test_kernels_are_right_with_values_that_are_added() -> None:
    pytest.importorskip("triton")
    for name, shape, dtype, config in INTERPRETED:
        space = OPERATORS[name].space(shape, dtype, H200)
        assert isinstance(space, UnionSpace)
        beyond = {each for each, value in config.items() if value not in next(p.values for p in space.params if p.name == each)}
        assert beyond and all(taken is not None and taken.holds(config[each])  # type: ignore[arg-type]
                              for each in beyond for taken in [variants.takes(space, each)]), (name, beyond)
    assert python(CHECK, json.dumps(INTERPRETED), TRITON_INTERPRET="1") == ["all right"]


@pytest.mark.torch
def test_added_configurations_that_may_run_compile_for_their_gpu(tmp_path: Path) -> None:
    """For Hopper without one: wide tiles of many warps, more stages and parts, all of which the space's own limits let through."""
    pytest.importorskip("triton")
    tile = {"GM": 8, "SPLIT_K": 1, "num_warps": 16, "num_stages": 2}
    cases = [("matmul", SHAPE, "bf16", {**tile, "BM": 512, "BN": 64, "BK": 32, "KERNEL": "tiles", "STORE": "direct"}, []),
             ("matmul", SHAPE, "bf16", {**tile, "BM": 512, "BN": 64, "BK": 64, "KERNEL": "tma", "STORE": "direct",
                                        "num_stages": 3}, []),
             ("matmul", {"M": 64, "N": 512, "K": 4096}, "bf16",
              {**tile, "BM": 64, "BN": 64, "BK": 64, "KERNEL": "tiles", "num_warps": 4, "STORE": "direct", "SPLIT_K": 3,
               "num_stages": 3}, []),
             ("softmax", {"R": 512, "C": 256}, "fp16", {"STEPS": 3, "PER_SM": 3, "num_warps": 4, "ROWS": 32, "BLOCK": 0}, [])]
    for name, shape, dtype, config, _ in cases:
        space = OPERATORS[name].space(shape, dtype, H200)
        assert isinstance(space, UnionSpace) and config not in space
        made = list(variants.added_configs(space, {each: (value,) for each, value in config.items()}))
        assert [(config_key(found), broken) for found, broken in made] == [(config_key(config), "")], (name, config)
    binaries = tmp_path if DEEP else cache_folder() / "triton"          # as the fixture of tests/tuner/measure has it
    lines = python(COMPILE_ADDED, H200.gpu, json.dumps(cases), TRITON_CACHE_DIR=str(binaries))
    assert [json.loads(line)["smem_bytes"] <= H200.smem_bytes for line in lines] == [True] * len(cases)


COMPILE_ADDED = COMPILE.replace("""    if operator.complete(config) not in operator.space(shape, dtype, gpu):
        print(json.dumps(None))
        continue
""", "").replace("""["".join(kernel.asm["ptx"] for kernel in listed), offline.static_facts(kernels, gpu.compute_capability)]""",
                 "offline.static_facts(kernels, gpu.compute_capability)")
