"""The space of an adapter, edited: counted as a search would enumerate it, and written back."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.base.refused import Refused
from tests.tuner.bring.files import ADD, MATMUL
from tuner.bring.edited import EditedSpace, check_values, count, edit, read_space, read_values, write_space
from tuner.bring.source import kernels_of
from tuner.bring.write import write_adapter
from tuner.tuning.space import Constraint, Param, Space
from tuner.tuning.team.expressions import Expression

TEXT = write_adapter(kernels_of(ADD)[0], "kernels").text
SPACE = EditedSpace({"BM": (16, 32, 64), "BN": (16, 32), "num_warps": (1, 4, 64)}, {"BM": 32, "BN": 16, "num_warps": 4},
                    {"area": "BM * BN <= 1024", "warps": "num_warps * 16 <= BM or BN > 16"}, {"smem_bytes": 1000, "threads": 1024})


def test_the_space_of_an_adapter_is_read_and_put_back_as_it_was() -> None:
    space = read_space(TEXT)
    assert space.params["BLOCK_SIZE"] == (256, 512, 1024, 2048, 4096)
    assert space.default == {"BLOCK_SIZE": 1024, "num_warps": 8, "num_stages": 1} and space.names["n_elements"] == 4194304
    assert write_space(TEXT, space) == TEXT


def test_an_edited_space_stands_in_the_adapter_and_the_adapter_is_python() -> None:
    space = edit(read_space(TEXT), {"BLOCK_SIZE": (64, 128), "num_warps": (1, 2)}, {"few \"threads\"": "BLOCK_SIZE <= 64"})
    text = write_space(TEXT, space)
    compile(text, "adapter", "exec")
    assert read_space(text) == replace(space, names=read_space(TEXT).names)
    assert space.default == {"BLOCK_SIZE": 128, "num_warps": 2}             # nearest to what it was
    assert write_space(text, read_space(TEXT)).count("constraints=") == 1


def test_of_an_autotuned_kernel_the_edited_space_is_added() -> None:
    text = write_adapter(next(each for each in kernels_of(MATMUL) if each.name == "mm"), "kernels").text
    assert read_space(text).params == {} and "params=" not in text
    wider = edit(read_space(text), {"BM": (32, 64), "num_warps": (4,)}, {})
    assert read_space(write_space(text, wider)).params == {"BM": (32, 64), "num_warps": (4,)}
    compile(write_space(text, wider), "adapter", "exec")


def enumerated(space: EditedSpace) -> Space:
    rules = [Constraint("threads per block", lambda config: 32 * config["num_warps"] <= space.names["threads"])]
    for reason, text in space.constraints.items():
        rule = Expression(text, [*space.params, *space.names])
        rules.append(Constraint(reason, lambda config, rule=rule: bool(rule.value({**space.names, **config}))))    # type: ignore[misc]
    return Space.enumerate([Param(name, values) for name, values in space.params.items()], rules)


def test_it_is_counted_as_it_is_enumerated() -> None:
    counted, truth = count(SPACE), enumerated(SPACE)
    assert (counted.size, counted.valid) == (truth.size, len(truth))
    assert {reason: left for reason, left in counted.left_out.items() if left} == truth.pruned
    assert counted.default_breaks == "warps"


@given(st.lists(st.sampled_from((1, 2, 4, 8, 16, 64)), min_size=1, unique=True), st.integers(0, 20), st.sampled_from(
    ("num_warps <= {0}", "BM // num_warps >= {0}", "BM % (num_warps + 1) != 0", "min(BM, num_warps) > {0} or BM == 8",
     "not BM > {0}")))
def test_so_is_any_other(values: list[int], number: int, rule: str) -> None:
    space = EditedSpace({"BM": (8, 16, 24), "num_warps": tuple(values)}, {"BM": 8, "num_warps": values[0]},
                        {"rule": rule.format(number), "other": "BM + num_warps != 12"}, {"threads": 1024})
    counted, truth = count(space), enumerated(space)
    assert (counted.size, counted.valid) == (truth.size, len(truth))
    assert {reason: left for reason, left in counted.left_out.items() if left} == truth.pruned


def test_a_line_of_values() -> None:
    assert read_values("BM", "64, 128 ,128,0.5, True, tf32, 'ieee'") == (64, 128, 0.5, True, "tf32", "ieee")
    for text, words in (("", "0 values"), (",".join(map(str, range(65))), "65 values"), ("x" * 61, "no short text"),
                        ("nan", "no number"), ("9" * 30, "no number")):
        with pytest.raises(Refused, match=words) as refused:
            read_values("BM", text)
        assert list(refused.value.fields) == ["BM"]
    with pytest.raises(Refused):
        check_values("BM", [[1]])
    with pytest.raises(Refused, match="twice"):
        check_values("BM", [1, True])


@pytest.mark.parametrize(("params", "rules", "where", "words"), [
    ({}, {}, "params", "at most"),
    ({f"P{at}": (1,) for at in range(17)}, {}, "params", "17 parameters"),
    ({"A": tuple(range(64)), "B": tuple(range(64)), "C": tuple(range(64)), "D": tuple(range(64))}, {}, "params", "16,777,216"),
    ({"A": (1,)}, {"x": "B > 1"}, "constraints", "B is none of"), ({"A": (0, 1)}, {"x": "1 // A"}, "constraints", "division"),
    ({"A": (1,)}, {"x": "__import__('os')"}, "constraints", "only numbers"),
    ({"A": (1,)}, {f"{at}": "A > 0" for at in range(17)}, "constraints", "17 constraints"),
    ({"A": ("x",)}, {"x": "A + 1 > 1"}, "constraints", "str"),
])
def test_what_cannot_be_counted_says_where(params: dict[str, tuple[object, ...]], rules: dict[str, str], where: str,
                                           words: str) -> None:
    with pytest.raises(Refused, match=words) as refused:
        count(edit(EditedSpace({}, {}), params, rules))
    assert list(refused.value.fields) == [where]


def test_counting_ends_in_time() -> None:
    space = edit(EditedSpace({}, {}), {name: tuple(range(1, 61)) for name in "ABC"},
                 {"x": " + ".join(["min(A * B, C) % 7"] * 9) + " > 3"})
    began_s = time.monotonic()
    with pytest.raises(Refused, match="takes longer"):
        count(space, limit_s=0.2)
    assert time.monotonic() - began_s < 5
