"""What follows from a recorded call: of each kernel who chose what, which blocks can be tuned, what its grid depends on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.bring.calls.fitting import Point, fit
from tuner.bring.source import Kernel
from tuner.bring.spaces import few_values, powers_around

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
CHOSEN, COVERS, SIZE, FLAG, UNSURE = "the host's block", "covers a size", "follows a size", "a flag", "not told"
META = 'meta["{}"]'
_TRITON = {"num_warps": 4, "num_stages": 3}          # what Triton takes where the host says nothing


@dataclass
class Recorded:
    """One kernel as one call launches it; `at` is the first of its launches.

    params    parameter → values that can be tuned, of an autotuner those of its list
    default   what the call launches
    dims      name → number of the call, for the numbers that something of the launch follows
    grid      formula for each axis over arguments and parameters; None where none holds in all calls
    chosen    constexpr → who chose it and why it is tuned or not
    formulas  whole numbers of the launch (path joined by ".") → formula over `dims`; None where it follows none that is simple
    here      what follows the call's sizes in no simple way, so that it is known at these sizes alone
    unsure    what could not be told, and has to be asked
    untuned   what is left as the host has it, with why
    """

    at: int
    launch: dict[str, Any]
    params: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    default: dict[str, Any] = field(default_factory=dict)
    configs: list[dict[str, Any]] = field(default_factory=list)
    dims: dict[str, int] = field(default_factory=dict)
    grid: list[str | None] = field(default_factory=list)
    chosen: dict[str, str] = field(default_factory=dict)
    formulas: dict[str, str | None] = field(default_factory=dict)
    here: list[str] = field(default_factory=list)
    unsure: list[str] = field(default_factory=list)
    untuned: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.launch["kernel"])


def understand(told: Mapping[str, Any], kernels: Mapping[str, Kernel]) -> list[Recorded]:
    """Return each kernel that the call launches, in its order; `kernels` are those of the text, by name."""
    found: dict[str, Recorded] = {}
    for at, launch in enumerate(told.get("launches", [])):
        if launch["kernel"] not in found:
            found[launch["kernel"]] = _understand(told, at, launch, kernels.get(launch["kernel"]))
    return list(found.values())


def _understand(told: Mapping[str, Any], at: int, launch: dict[str, Any], kernel: Kernel | None) -> Recorded:
    each = Recorded(at, launch)
    points = list(_points(told, at, launch))
    each.dims = _name_dims(told, launch, points)
    varied = {one["size"] for one in told.get("with_sizes", ())}
    autotune = launch.get("autotune")
    if autotune:
        each.configs = list(autotune["kept"] or autotune["configs"])
        each.params = {name: tuple(dict.fromkeys(config[name] for config in each.configs if name in config))
                       for name in autotune["names"]}
        each.default = {**each.configs[0]}
    for name, value in launch["constexprs"].items():
        each.chosen[name] = _who(each, name, value, told, points, kernel, varied)
        if each.chosen[name] == CHOSEN:
            each.params[name] = few_values(name, value["value"]) or powers_around(value["value"])
            each.default[name] = value["value"]
    if not autotune:
        _add_options(each, launch, kernel)
    for name, reason in each.chosen.items():
        if reason.startswith(UNSURE):
            value = launch["constexprs"][name].get("value")
            each.untuned.append(f"{name}={value} is not tuned: {reason.removeprefix(UNSURE + ': ')}")
    each.grid = _fit_grid(each, told, at, launch, points, kernel)
    each.formulas = _fit_numbers(each, launch, points)
    told_by = {*each.params, *launch["heuristics"]}
    each.here += dict.fromkeys(name for path, formula in each.formulas.items()
                               if formula is None and (name := path.split(".")[1]) not in told_by)
    return each


def _who(each: Recorded, name: str, value: Mapping[str, Any], told: Mapping[str, Any], points: Sequence[_Seen],
         kernel: Kernel | None, varied: set[int]) -> str:
    launch = each.launch
    if launch.get("autotune") and name in launch["autotune"]["names"]:
        return "the autotuner's"
    if name in launch["heuristics"]:
        return "a heuristic's"
    if value["kind"] != "int":
        return FLAG
    number: int = value["value"]
    follows = [one for one in points if one.size and (other := one.constexpr(name)) is not None and other != number]
    steps = kernel.steps if kernel else None
    is_block = steps is None or name in (steps.moves & steps.ranges)
    is_few = bool(few_values(name, number)) and (steps is None or name in steps.moves)
    overridden = [one for one in points if one.choice and one.constexpr(name) not in (None, number)]
    if follows:
        covers = _covers(each, name, points)
        if covers.startswith("="):
            return f"{SIZE}: {covers[1:]}"
        if covers and not (is_block and kernel is not None and name in kernel.steps.moves and _loops_over(kernel, name)):
            return f"{COVERS}: {covers}"
        if not is_block or not overridden:
            return SIZE
    if number < 2 and not is_few and not (number == 1 and steps is not None and is_block and launch["grid_is_function"]):
        return FLAG
    if not follows and number in told["sizes"] and number not in varied:
        return f"{UNSURE}: it may be the {number} of the call, which could not be called with another number"
    if not (is_block or is_few) or (is_block and not is_few and number & (number - 1)):
        return "the host's, no extent that the kernel steps by"
    if any(one.shapes() != points[0].shapes() for one in overridden):
        return f"{UNSURE}: sizes of tensors depend on it"
    if launch.get("autotune"):
        return "the host's, the autotuner does not list it"
    if not overridden and not launch["grid_is_function"]:
        return f"{UNSURE}: the host computes it where it cannot be replaced, so what the grid depends on is not seen"
    return CHOSEN


def _loops_over(kernel: Kernel, name: str) -> bool:
    return kernel.loops and name in kernel.steps.loops


def _covers(each: Recorded, name: str, points: Sequence[_Seen]) -> str:
    """Return the size that a value covers in every call, as its next power of two, "=" before one that it is; "" where none."""
    for dim in each.dims:
        pairs = [(one.constexpr(name), one.env(each.dims)[dim]) for one in points if not one.choice]
        if len({size for _, size in pairs}) > 1 and len({value for value, _ in pairs}) > 1 and all(
                value is not None and value in (size, 1 << max(0, (size - 1).bit_length())) for value, size in pairs):
            return f"={dim}" if all(value == size for value, size in pairs) else dim
    return ""


def _add_options(each: Recorded, launch: Mapping[str, Any], kernel: Kernel | None) -> None:
    tiles, loops = (bool(kernel.tiles), kernel.loops) if kernel else (False, True)
    warps = launch["options"].get("num_warps", _TRITON["num_warps"])
    stages = launch["options"].get("num_stages", _TRITON["num_stages"])
    each.params["num_warps"] = tuple(sorted({*((2, 4, 8) if tiles else (1, 2, 4, 8, 16)), warps}))
    each.params["num_stages"] = tuple(sorted({*((2, 3, 4, 5) if tiles else (1, 2, 3) if loops else (stages,)), stages}))
    for name in ("num_stages", "num_warps"):
        if name in launch["constexprs"]:                # an argument of the kernel by that name
            each.params.pop(name, None)
    each.default |= {name: value for name, value in (("num_warps", warps), ("num_stages", stages)) if name in each.params}
    each.default |= {name: launch["options"][name] for name in OPTIONS[2:] if name in launch["options"]}
    each.params |= {name: (launch["options"][name],) for name in OPTIONS[2:] if name in launch["options"]}


# ---- the calls that were made again ----

@dataclass
class _Seen:
    """One launch of one call: with another `size` (and what it `is`), with another `choice`, or the call as it is."""

    launch: Mapping[str, Any]
    size: int = 0
    other: int = 0
    choice: str = ""

    def constexpr(self, name: str) -> int | None:
        value = self.launch["constexprs"].get(name, {}).get("value")
        return value if type(value) is int else None

    def env(self, dims: Mapping[str, int]) -> dict[str, int]:
        """Return the value of each dimension in this call."""
        return {name: self.other if size == self.size else size for name, size in dims.items()}

    def known(self, dims: Mapping[str, int]) -> dict[str, int]:
        """Return dimensions, constexprs and options of the launch that are whole numbers."""
        given = {**self.launch["arguments"], **self.launch["constexprs"]}
        blocks = {name: each["value"] for name, each in given.items() if type(each.get("value")) is int}
        return {**blocks, **{name: each for name, each in self.launch["options"].items() if type(each) is int}, **self.env(dims)}

    def shapes(self) -> list[Any]:
        return [each.get("shape") for each in self.launch["arguments"].values() if each["kind"] in ("tensor", "descriptor")]


def _points(told: Mapping[str, Any], at: int, launch: Mapping[str, Any]) -> Iterator[_Seen]:
    yield _Seen(launch)
    for one in told.get("with_sizes", ()):
        if (same := _same(one["launches"], at, told)) is not None:
            yield _Seen(same, one["size"], one["is"])
    for one in told.get("with_choices", ()):
        if (same := _same(one["launches"], at, told)) is not None:
            yield _Seen(same, choice=one["choice"])


def _same(launches: Sequence[Mapping[str, Any]], at: int, told: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the launch that stands where this one stood; another count or order of kernels is another way through the host."""
    names = [each["kernel"] for each in told["launches"]]
    if [each["kernel"] for each in launches] != names:
        return None
    return launches[at]


def _name_dims(told: Mapping[str, Any], launch: Mapping[str, Any], points: Sequence[_Seen]) -> dict[str, int]:
    """Return a name for each number of the call that the launch follows: of an argument that has it, else a letter."""
    dims: dict[str, int] = {}
    for size in told["sizes"]:
        changed = [one for one in points if one.size == size]
        if not any(_numbers(one.launch) != _numbers(launch) for one in changed):
            continue
        names = [name for name, each in (*launch["arguments"].items(), *launch["constexprs"].items())
                 if each.get("value") == size and each["kind"] == "int" and name not in launch["heuristics"]
                 and all((one.launch["arguments"].get(name) or one.launch["constexprs"].get(name) or {}).get("value") == one.other
                         for one in changed)]
        plain = [name for name in names if not re.search(r"stride|block|tile", name, re.IGNORECASE)] or [
            letter for letter in "MNKRSTUVW" if letter not in dims and letter not in launch["arguments"]
            and letter not in launch["constexprs"]] or [f"D{len(dims)}"]
        dims[plain[0]] = size
    return dims


def _numbers(launch: Mapping[str, Any]) -> list[Any]:
    return [launch["grid"], *[(each.get("value"), each.get("shape"), each.get("strides")) for each in
                              (*launch["arguments"].values(), *launch["constexprs"].values())]]


def _fit_grid(each: Recorded, told: Mapping[str, Any], at: int, launch: Mapping[str, Any], points: Sequence[_Seen],
              kernel: Kernel | None) -> list[str | None]:
    blocks = [name for name in each.params if name not in OPTIONS]
    axes: list[str | None] = []
    # what the grid can read: numbers that the kernel gets, strides last, then sizes of the call
    whole = [name for name, one in launch["arguments"].items() if one["kind"] == "int" and one["value"] > 1]
    both = list(dict.fromkeys([*whole, *each.dims]))
    sizes = sorted(both, key=lambda name: ("stride" in name.lower(), both.index(name)))
    fixed = sorted({number for name, value in launch["constexprs"].items() if name not in blocks
                    and type(number := value.get("value")) is int and number > 1
                    and all(one.constexpr(name) in (None, number) for one in points)})
    for axis in range(len(launch["grid"])):
        seen: list[Point] = [(one.known(each.dims), one.launch["grid"][axis]) for one in points
                             if axis < len(one.launch["grid"]) and (not one.choice or _changes_blocks(one, points[0], blocks))]
        # a host that counts programs by warps: those of its own choice do for others, since the kernel goes over what is left
        own: list[Point] = [(one.known(each.dims), one.launch["grid"][axis]) for one in points if one.choice
                            and axis < len(one.launch["grid"]) and _changes_blocks(one, points[0], blocks)
                            and (one.launch["options"] == launch["options"] or not (kernel and kernel.loops))]
        for one in (told.get("grids") or [])[at:at + 1] or [[]]:
            told_grids = [({**points[0].known(each.dims), **other["instead"]}, other["grid"][axis]) for other in one
                          if axis < len(other["grid"]) and set(other["instead"]) <= set(blocks)]
            seen, own = [*seen, *told_grids], [*own, *told_grids]
        formula = fit(seen, sizes, blocks, META, fixed)
        if formula is None and (formula := fit([*seen[:1], *own], sizes, blocks, META, fixed)) is not None:
            each.here = ["the grid"]
        axes.append(formula)
    moved = kernel.steps.moves if kernel is not None and not kernel.loops else ()
    for name in blocks:
        if name in moved and not any(META.format(name) in str(axis) for axis in axes) and None not in axes:
            each.unsure.append(f"how many programs there are for another {name}: the grid was not seen to follow it")
    if None in axes:
        each.unsure.append("what the grid depends on: no simple formula holds in every call that was tried")
    return axes


def _changes_blocks(one: _Seen, base: _Seen, blocks: Sequence[str]) -> bool:
    """Return whether another choice changes blocks and nothing else that the kernel is given."""
    names = {name for name, value in one.launch["constexprs"].items() if value != base.launch["constexprs"].get(name)}
    before = base.launch["arguments"]
    same = all(value.get(part) == before[name].get(part) for name, value in one.launch["arguments"].items()
               for part in ("value", "shape"))
    options = one.launch["options"] != base.launch["options"]
    return same and bool(names or options) and names <= set(blocks)


def _fit_numbers(each: Recorded, launch: Mapping[str, Any], points: Sequence[_Seen]) -> dict[str, str | None]:
    """Return a formula for each whole number of the arguments: extents, strides, scalars, constexprs that are not tuned."""
    of_sizes = [one for one in points if not one.choice]
    found: dict[str, str | None] = {}
    for path in _paths(launch):
        seen = [(one.env(each.dims), value) for one in of_sizes if (value := _at(one.launch, path)) is not None]
        if seen:
            found[".".join(map(str, path))] = fit(seen, list(each.dims))
    return found


def _paths(launch: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    for name, each in launch["arguments"].items():
        if each["kind"] == "int":
            yield "arguments", name, "value"
        for part in ("shape", "strides") if each["kind"] in ("tensor", "descriptor") else ():
            yield from (("arguments", name, part, axis) for axis in range(len(each[part])))
    for name, each in launch["constexprs"].items():
        if each["kind"] == "int":
            yield "constexprs", name, "value"


def _at(launch: Mapping[str, Any], path: Sequence[Any]) -> int | None:
    at: Any = launch
    for part in path:
        try:
            at = at[part]
        except (KeyError, IndexError, TypeError):
            return None
    return at if type(at) is int else None
