"""Formulas of a recorded launch's grid, block and shared memory, which hold in every call that was made."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from math import gcd, isqrt, prod
from typing import Any

from tuner.bring.calls.again import Again
from tuner.bring.calls.fitting import Point
from tuner.bring.calls.sizes import value_at
from tuner.bring.calls.understand import META, Recorded
from tuner.bring.cuda.fitting import fit_capped, fit_simple, value_of
from tuner.bring.cuda.source import CudaSource
from tuner.bring.cuda.ties import Tie
from tuner.tuning.cuda.functions import BLOCK
from tuner.tuning.team.expressions import FUNCTIONS

SMEM, _ELEMENTS = "smem", "number_of_elements"
_MOST_KNOWN = 24
_COMPARED = re.compile(r"(?:<=?|>=?|==)\s*(\d{1,9})\b(?!\s*>)")


@dataclass
class RecordedCuda(Recorded):
    """See `calls.understand.Recorded`. `block` has a formula for each axis, `smem` one for the bytes of dynamic shared memory.

    `ties` are of the constants that follow what is tuned.
    """

    block: list[str | None] = field(default_factory=list)
    smem: str | None = "0"
    ties: dict[str, Tie] = field(default_factory=dict)

    @property
    def template(self) -> dict[str, Any]:
        """Return the values of the launch's template parameters by name, in their order."""
        return {name: one["value"] for name, one in self.launch["constexprs"].items()}


def fit_all(each: RecordedCuda, source: CudaSource, points: Sequence[Again], moved: Mapping[str, Sequence[Again]]) -> None:
    """Find the formulas of grid, block and shared memory. What one of them follows in no simple way is left as it is."""
    apart = [one for one in points if not one.choice and any(
        one.launch["constexprs"].get(name, {}).get("value") != points[0].launch["constexprs"][name]["value"]
        for name in each.params if name in points[0].launch["constexprs"])]
    if apart:
        each.untuned.append("for some sizes the host chooses others of what is tuned: the grid is that of the call's own case")
    while True:
        used = [one for one in points if (not one.choice and one not in apart)
                or any(one in moved.get(name, ()) for name in each.params)]
        grid = [_read_grid(each, source, used, axis) or _fit(each, used, lambda one, axis=axis: _extent(one, axis))
                or _fit_by_cases(each, source, used, axis) for axis in range(max(len(one.launch["grid"]) for one in used))]
        block = [META.format(name) if name in each.params else _fit(each, used, lambda one, name=name: one.launch["options"][name])
                 for name in BLOCK]
        smem = _fit(each, used, lambda one: one.launch["options"].get(SMEM, 0))
        if None not in (*grid, *block, smem) or not each.params:
            break
        name = _least_simple(each, moved)
        value = each.default.pop(name)
        each.untuned.append(f"{name}={value} is not tuned: grid, block or shared memory follow it in no simple way")
        each.params.pop(name)
    launch = each.launch
    numbers = [*launch["grid"], *[1] * 3][:len(grid)]
    if None in grid:
        each.here.append("the grid")
        grid = [str(number) if axis is None else axis for axis, number in zip(grid, numbers, strict=True)]
    if None in block:
        each.here.append("the block")
        block = [str(launch["options"][name]) if axis is None else axis for axis, name in zip(block, BLOCK, strict=True)]
    if smem is None:
        each.here.append("the shared memory")
        smem = str(launch["options"].get(SMEM, 0))
    each.grid, each.block, each.smem = grid, block, smem


def fit_left(each: RecordedCuda, points: Sequence[Again]) -> None:
    """Find numbers of arguments that no simple formula gives: `N * cdiv(N, 64)`, then products of those that are found."""
    calls = [one for one in points if not one.choice]
    numbers: dict[str, list[int]] = {}
    for path in each.formulas:
        at = [value_at(one.launch, [int(part) if part.isdecimal() else part for part in path.split(".")]) for one in calls]
        if all(type(number) is int for number in at):
            numbers[path] = at
    for path in [path for path, formula in each.formulas.items() if formula is None and path in numbers]:
        seen: list[Point] = [(one.env(each.dims), number) for one, number in zip(calls, numbers[path], strict=True)]
        formula = fit_simple(seen, list(each.dims), [], [])
        times = gcd(*numbers[path])
        if formula is None and times > 1:                                   # bytes of what is counted
            counted = fit_simple([(env, number // times) for env, number in seen], list(each.dims), [], [])
            formula = counted and f"{counted} * {times}"
        roots: list[Point] = [(env, isqrt(number)) for env, number in seen if number > 0]
        if formula is None and len(roots) == len(seen) and all(isqrt(number) ** 2 == number for _, number in seen):
            side = fit_simple(roots, list(each.dims), [], [])
            formula = side and f"{side} * {side}"
        each.formulas[path] = None if formula is None else _plain(formula)
    known = {f"({text})" if " " in text else text: numbers[path] for path, text in each.formulas.items()
             if text is not None and path in numbers and not text.isdecimal()}
    for path in [path for path, formula in each.formulas.items() if formula is None and path in numbers]:
        for count in (2, 3):
            for chosen in combinations_with_replacement(list(known)[:_MOST_KNOWN], count):
                of_each = zip(*(known[text] for text in chosen), numbers[path], strict=True)
                if all(prod(values) == number for *values, number in of_each):
                    each.formulas[path] = " * ".join(chosen)
                    break


def threads_of(each: RecordedCuda) -> str:
    """Return the threads of a block over the parameters: an expression; "" where they follow something else."""
    text = " * ".join(f"({extent})" if " " in extent else extent for extent in map(_plain, map(str, each.block)) if extent != "1")
    names = set(re.findall(r"[A-Za-z_]\w*", text.replace("triton.", ""))) - FUNCTIONS.keys()
    return text.replace("triton.", "") if names and names <= set(each.params) else ""


def _plain(formula: str) -> str:
    """Return a formula of a grid as one over dimensions."""
    text = re.sub(r'meta\["(\w+)"\]', r"\1", formula)
    return text[1:-1] if text.startswith("(") and text.index(")") == len(text) - 1 else text


def _extent(one: Again, axis: int) -> int:
    return int(one.launch["grid"][axis]) if axis < len(one.launch["grid"]) else 1


def _read_grid(each: RecordedCuda, source: CudaSource, points: Sequence[Again], axis: int) -> str | None:
    """Return the extent of a grid as the text of its launch says it, where that holds in every call; None where it does not."""
    read = source.function.grid
    if axis >= len(read):
        return None
    names = set(re.findall(r"[A-Za-z_]\w*", read[axis])) - FUNCTIONS.keys()
    known = [_known(each, one) for one in points]
    arguments = {name for name, one in each.launch["arguments"].items() if one["kind"] == "int"}
    if not names <= {*arguments, *each.params} or any(value_of(read[axis], env) != _extent(one, axis)
                                                      for env, one in zip(known, points, strict=True)):
        return None
    return re.sub(r"[A-Za-z_]\w*", lambda match: f"triton.{match[0]}" if match[0] in ("cdiv", "next_power_of_2")
                  else match[0] if match[0] in FUNCTIONS else META.format(match[0]), read[axis])


def _least_simple(each: RecordedCuda, moved: Mapping[str, Sequence[Again]]) -> str:
    return max(each.params, key=lambda name: (len(moved.get(name, ())), name))


def _fit(each: RecordedCuda, points: Sequence[Again], value: Any) -> str | None:
    seen: list[Point] = [(_known(each, one), int(value(one))) for one in points]
    whole = [name for name, one in each.launch["arguments"].items() if one["kind"] == "int" and one["value"] > 1]
    sizes = sorted(dict.fromkeys([*whole, *each.dims]), key=lambda name: "stride" in name.lower())
    fixed = sorted({one["value"] for one in each.launch["constexprs"].values() if type(one["value"]) is int and one["value"] > 1}
                   | {each.launch["options"][name] for name in BLOCK if each.launch["options"][name] > 1})
    blocks = [name for name in each.params if type(each.default[name]) is int]
    blocks += [name for name, tie in each.ties.items() if tie.leader in each.params]
    formula = (fit_simple(seen, sizes, blocks, fixed) or fit_capped(seen, sizes, blocks, fixed)
               or _fit_elements(each, points, seen, sizes, blocks))
    for name, tie in each.ties.items():
        formula = formula and formula.replace(META.format(name), tie.formula(META.format(tie.leader)))
    return formula


def _fit_elements(each: RecordedCuda, points: Sequence[Again], seen: Sequence[Point], sizes: Sequence[str], blocks: Sequence[str]
                  ) -> str | None:
    """Return a formula over the number of elements of a tensor, as `(y.size() + 255) / 256`, which is a product of sizes."""
    tried = list[list[int]]()
    for name, one in each.launch["arguments"].items():
        shapes = [point.launch["arguments"].get(name, {}).get("shape") for point in points] if one["kind"] == "tensor" else []
        counts = [prod(shape) for shape in shapes if shape is not None]
        if len(counts) < len(points) or counts in tried or len(set(counts)) == 1:
            continue
        tried.append(counts)
        whole = fit_simple([(env, count) for (env, _), count in zip(seen, counts, strict=True)], sizes, [], [])
        of_all = [({**env, _ELEMENTS: count}, number) for (env, number), count in zip(seen, counts, strict=True)]
        if whole and (formula := fit_simple(of_all, [_ELEMENTS], blocks, [])):
            return formula.replace(META.format(_ELEMENTS), f"({whole})")
    return None


def _fit_by_cases(each: RecordedCuda, source: CudaSource, points: Sequence[Again], axis: int) -> str | None:
    """Return an extent that follows one formula up to a number that the text compares with, and another one beyond it."""
    numbers = sorted({int(number) for number in _COMPARED.findall(source.text)})
    names = [name for name, one in each.launch["arguments"].items() if one["kind"] == "int"]
    for name in dict.fromkeys([*names, *each.dims]):
        values = [_known(each, one).get(name, 0) for one in points]
        for most in (bound for number in numbers for bound in (number - 1, number) if min(values) <= bound < max(values)):
            parts = []
            for is_below in (values[0] <= most, values[0] > most):           # the call's own case first
                some = [one for one, value in zip(points, values, strict=True) if (value <= most) == is_below]
                parts.append(_fit(each, some, lambda one: _extent(one, axis)) if len(some) > 1 else None)
            if None not in parts:
                below, beyond = parts if values[0] <= most else reversed(parts)
                return f"({below} if {META.format(name)} <= {most} else {beyond})"
    return None


def _known(each: RecordedCuda, one: Again) -> dict[str, int]:
    """Return numbers by name: of macros, which no launch tells, those of the text or of the call's other choice."""
    known = {name: value for name, value in each.default.items() if type(value) is int}
    known |= one.known(each.dims)
    known |= {one.choice: one.chosen} if one.choice in each.params else {}
    return known | {name: tie.value(known[tie.leader]) or 0 for name, tie in each.ties.items() if tie.leader in known}
