"""Fences around the tensors of a problem: what reaches beyond them is said, and what does not is left alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.tuner.measure.chosen import WITHOUT_TORCH

torch = pytest.importorskip("torch", reason=WITHOUT_TORCH)
pytestmark = pytest.mark.torch

from tuner.tuning.team.fences import POISON, Fences  # noqa: E402


def problem() -> tuple[Fences, Any]:
    fences = Fences(torch.device("cpu"))

    def make() -> Any:
        x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
        args = {"x": x, "rows": x[1:], "index": torch.zeros(4, dtype=torch.int32), "out": torch.empty(6, dtype=torch.float16)}
        return SimpleNamespace(args=args, out=args["out"], half=torch.ones(5, dtype=torch.bfloat16).t())

    return fences, fences.made(make)


def reach(tensor: Any, offset: int, count: int) -> Any:
    """A view of what lies `offset` elements from a tensor's first one, inside of it or not."""
    return torch.as_strided(tensor, (count,), (1,), tensor.storage_offset() + offset)


def test_values_views_and_addresses_hold_between_fences() -> None:
    fences, made = problem()
    assert made.args["x"].tolist() == [[0, 1, 2], [3, 4, 5]] and made.args["rows"].tolist() == [[3, 4, 5]]
    made.args["rows"].fill_(7)                      # a view stays one
    assert made.args["x"][1].tolist() == [7, 7, 7] and made.out is made.args["out"]
    assert all(tensor.data_ptr() % 64 == 0 for tensor in (made.args["x"], made.out, made.half))
    assert sorted(fences.names.values()) == ["half", "index", "out", "x"] and fences.why_broken() == ""


def test_what_is_written_beyond_an_end_is_named_once() -> None:
    fences, made = problem()
    reach(made.out, 6, 3).fill_(1)
    reach(made.args["x"], -2, 1).fill_(0)           # two elements of 4 bytes away
    told = "up to 8 bytes before the first element of x, up to 6 bytes after the last element of out"
    assert fences.why_broken() == f"it writes out of bounds: {told}"
    assert fences.why_broken() == ""                # the poison is there again


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2"])
def test_the_poison_is_a_finite_number_that_nobody_takes_for_none(dtype: str) -> None:
    value = torch.full((8,), POISON, dtype=torch.uint8).view(getattr(torch, dtype)).float()
    assert torch.isfinite(value).all() and (value.abs() > 10).all()


def test_a_result_that_depends_on_what_lies_beyond_is_told_from_one_that_is_wrong() -> None:
    fences, made = problem()

    def reads() -> None:
        made.out.copy_(reach(made.args["x"], 3, 6).half().clamp(max=100))

    assert fences.why_read(reads, made.out, lambda: None).startswith("it reads out of bounds")
    assert fences.why_read(lambda: made.out.fill_(3), made.out, lambda: None) == ""
    assert fences.why_read(lambda: made.out.copy_(torch.rand(6)), made.out, lambda: None) == ""      # differs by itself
    assert fences.why_broken() == ""
