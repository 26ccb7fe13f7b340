"""What follows from a recorded call: of each kernel who chose what, which blocks can be tuned, what its grid depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.bring.calls.again import Again, read_again
from tuner.bring.calls.descriptors import descriptor_rules, is_extent, with_tensors
from tuner.bring.calls.fitting import Point, fit, fit_flag
from tuner.bring.calls.sizes import fit_numbers, name_dims
from tuner.bring.calls.tried.evidence import RIGHT, Evidence, evidence_of
from tuner.bring.calls.tried.literals import PLACE
from tuner.bring.source import Kernel
from tuner.bring.spaces import LEAST_BLOCK, few_values, powers_around
from tuner.bring.tiles import Steps

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
    formulas  numbers and flags of the launch (path joined by ".") → formula over `dims`; None where it follows none that is simple
    makes     TMA descriptors that the host makes of whole tensors → the expression that makes one again for other blocks
    derived   what the host computes from what is tuned (`triton.cdiv(n, BLOCK)`, `N % BLOCK == 0`) → formula as a grid has it
    widened   whether its autotuner lists one configuration, around which a space is proposed
    here      what follows the call's sizes in no simple way, so that it is known at these sizes alone
    unsure    what could not be told, and has to be asked
    untuned   what is left as the host has it, with why
    follows   whether an earlier kernel of the call was run, so that what its tensors hold belongs together
    shown     what is tuned because other values of it leave the same (`tried`); `read` what is by the text alone, with why
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
    derived: dict[str, str] = field(default_factory=dict)
    makes: dict[str, str] = field(default_factory=dict)
    widened: bool = False
    here: list[str] = field(default_factory=list)
    unsure: list[str] = field(default_factory=list)
    untuned: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    read: dict[str, str] = field(default_factory=dict)
    follows: bool = False

    @property
    def name(self) -> str:
        return str(self.launch["kernel"])


def understand(record: Mapping[str, Any], kernels: Mapping[str, Kernel]) -> list[Recorded]:
    """Return each kernel that the call launches, in its order; `kernels` are those of the text, by name."""
    by_kernel: dict[str, Recorded] = {}
    for index, launch in enumerate(record.get("launches", [])):
        if launch["kernel"] not in by_kernel:
            by_kernel[launch["kernel"]] = _understand(record, index, launch, kernels.get(launch["kernel"]))
    return list(by_kernel.values())


def _understand(told: Mapping[str, Any], at: int, launch: dict[str, Any], kernel: Kernel | None) -> Recorded:
    each = Recorded(at, launch, follows=any(one["kernel"] in told.get("ran", ()) for one in told["launches"][:at]))
    points = list(read_again(told, at, launch))
    each.dims = name_dims(told, launch, points)
    varied = {trial["size"] for trial in told.get("with_sizes", ())}
    autotune = launch.get("autotune")
    if autotune:
        each.configs = list(autotune["kept"] or autotune["configs"])
        each.params = {name: tuple(dict.fromkeys(config[name] for config in each.configs if name in config))
                       for name in autotune["names"]}
        each.default = {**each.configs[0]}
        each.widened = len(each.configs) == 1 and not (autotune["pruned"] or autotune["pre_hook"])
    evidence = evidence_of(told, at)
    for name, value in launch["constexprs"].items():
        each.chosen[name] = _who(each, name, value, told, points, kernel, varied, evidence)
        if each.chosen[name] == CHOSEN:
            number = value["value"]
            each.params[name] = (number // 2, number) if evidence.is_half_right(name) else _values_around(name, number, evidence)
            each.default[name] = value["value"]
    if each.widened:
        grid_names = {name for grids in (told.get("grids") or [])[at:at + 1] for other in grids for name in other["instead"]}
        _widen(each, launch, kernel, evidence, grid_names)
    _tie(each, points, evidence)
    if each.widened or not autotune:
        _add_options(each, launch, kernel)
    _find_derived(each, launch, points)
    for name, reason in each.chosen.items():
        if reason.startswith(UNSURE):
            value = launch["constexprs"][name].get("value")
            each.untuned.append(f"{name}={value} is not tuned: {reason.removeprefix(UNSURE + ': ')}")
    each.grid = _find_grid(each, told, at, launch, points, kernel, evidence)
    each.formulas = fit_numbers(each.dims, launch, points)
    told_by = {*each.params, *each.derived, *launch["heuristics"]}
    each.here += dict.fromkeys(name for path, formula in each.formulas.items()
                               if formula is None and (name := path.split(".")[1]) not in told_by)
    drawn = {spec["storage"] for spec in told.get("inputs", ())
             if (spec["maker"] == "randperm" and not each.follows) or (spec["maker"] == "randint" and len(spec["bounds"]) == 2)}
    each.here += [name for name, argument in launch["arguments"].items()
                  if {"values", "packed"} & argument.keys() and argument["storage"] not in drawn and name not in each.here]
    blocks = [name for name in each.params if name not in OPTIONS]
    each.shown = [name for name in blocks if evidence.of(name) == RIGHT]
    each.untuned += [f"{name}: no value above {launch['constexprs'][name]['value']}: {evidence.of(name)}" for name in blocks
                     if name in launch["constexprs"] and evidence.is_half_right(name)]
    each.read = {name: why for name in blocks if name not in each.shown and (why := evidence.why_untried(name))}
    each.makes = descriptor_rules(launch, points, each.dims, _sizes_of(each, launch), blocks, META)
    each.launch = with_tensors(launch, each.makes)
    return each


def _values_around(name: str, value: int, evidence: Evidence) -> tuple[Any, ...]:
    """Return the values that are proposed around one, without those that were seen to leave something else."""
    values = few_values(name, value) or powers_around(value)
    return tuple(one for one in values if 4 * one > value) if evidence.is_fourth_wrong(name) else tuple(values)


def _tie(each: Recorded, points: Sequence[Again], evidence: Evidence) -> None:
    """Let blocks that were seen to change together alone be one parameter: the others are what it is."""
    blocks = [name for name in each.params if each.chosen.get(name) == CHOSEN and not evidence.is_alone(name)]
    moved = [point for point in points if point.choice]
    for index, first in enumerate(blocks):
        for other in blocks[index + 1:]:
            if other in each.params and first in each.params and all(point.constexpr(first) == point.constexpr(other)
                                                                     for point in (points[0], *moved)):
                each.derived[other] = META.format(first)
                each.chosen[other] = f"as {first}"
                each.params.pop(other)
                each.default.pop(other)


def _widen(each: Recorded, launch: Mapping[str, Any], kernel: Kernel | None, evidence: Evidence, seen: set[str]) -> None:
    """Propose values around the one configuration that an autotuner lists; blocks only where its grid follows them.

    seen  blocks of which the grid takes another value
    """
    each.configs = []
    steps = kernel.steps if kernel else None
    for name, value in list(each.default.items()):
        is_block = steps is None or name in steps.moves & steps.ranges
        if name not in OPTIONS and type(value) is int and name in seen and evidence.of(name) in ("", RIGHT) and (
                is_block or (evidence.of(name) == RIGHT and _is_stepped(steps, name, evidence))):
            each.params[name] = _values_around(name, value, evidence)


def _find_derived(each: Recorded, launch: Mapping[str, Any], points: Sequence[Again]) -> None:
    """Find what the host computes from its blocks. A block that something follows in no simple way is left as it is."""
    blocks = [name for name in each.params if name not in OPTIONS]
    arguments = {**launch["arguments"], **launch["constexprs"]}
    for name, argument in arguments.items():
        if name in each.params or name in launch["heuristics"] or argument["kind"] not in ("int", "bool"):
            continue
        moved = [again for again in points if again.chooses(points[0], blocks) and again.value(name) != again.chosen]
        of = moved if argument["kind"] == "int" else points         # EVEN follows a block that it was not seen to change with
        if all(again.value(name) == argument["value"] for again in of):
            continue
        sizes = [other for other in _sizes_of(each, launch) if other != name]
        samples = [(again.known(each.dims), again.value(name)) for again in points if not again.choice or again in moved]
        formula = fit(samples, sizes, blocks, META) if argument["kind"] == "int" else fit_flag(samples, sizes, blocks, META)
        if formula is not None:
            each.derived |= {name: formula} if any(META.format(block) in formula for block in blocks) else {}
            continue
        follows = {block for again in moved if again.value(name) != argument["value"] for block in blocks
                   if again.constexpr(block) != points[0].constexpr(block)}
        for block in follows:
            each.chosen[block] = f"{UNSURE}: {name} follows it in no simple way"
            each.params.pop(block)
            each.default.pop(block)
        blocks = [block for block in blocks if block not in follows]


def _sizes_of(each: Recorded, launch: Mapping[str, Any]) -> list[str]:
    """Return what a formula can read: numbers that the kernel gets, strides last, then sizes of the call."""
    whole = [name for name, argument in launch["arguments"].items() if argument["kind"] == "int" and argument["value"] > 1]
    whole += [name for name, reason in each.chosen.items() if reason == SIZE and launch["constexprs"][name]["value"] > 1]
    both = list(dict.fromkeys([*whole, *each.dims]))
    return sorted(both, key=lambda name: ("stride" in name.lower(), both.index(name)))


def _who(each: Recorded, name: str, value: Mapping[str, Any], record: Mapping[str, Any], points: Sequence[Again],
         kernel: Kernel | None, varied: set[int], evidence: Evidence) -> str:
    launch = each.launch
    if launch.get("autotune") and name in launch["autotune"]["names"]:
        return "the autotuner's"
    if name in launch["heuristics"]:
        return "a heuristic's"
    if value["kind"] != "int":
        return FLAG
    number: int = value["value"]
    follows = [point for point in points if point.size and (other := point.constexpr(name)) is not None and other != number]
    if kernel is not None and kernel.waits and name in kernel.steps.moves:
        return f"{UNSURE}: its programs wait for each other, and more of them may not run at once"
    steps = kernel.steps if kernel else None
    is_block = steps is None or (name in steps.moves and (name in steps.ranges or is_extent(name, points)))
    is_few = bool(few_values(name, number)) and (steps is None or name in steps.moves - steps.divides)
    overridden = [point for point in points if point.choice and point.constexpr(name) not in (None, number)]
    seen = evidence.of(name, fourth=bool(follows))          # half a block may cover nearly all of a size that it follows
    is_stepped = _is_stepped(steps, name, evidence)
    is_right = seen == RIGHT and is_stepped
    if follows:
        covers = _covers(each, name, points)
        if covers.startswith("="):              # a block that the call itself gives, or a size
            return CHOSEN if is_right and is_block and overridden and not launch["autotune"] else f"{SIZE}: {covers[1:]}"
        if covers and is_stepped and (is_right or evidence.is_half_right(name)) and not launch["autotune"]:
            return CHOSEN
        if covers and not (is_block and kernel is not None and name in kernel.steps.moves and _loops_over(kernel, name)):
            return f"{COVERS}: {covers}"
        if not is_block or not overridden or _is_quotient(each, name, points):
            return SIZE
    if evidence.is_half_right(name) and is_stepped and not launch["autotune"]:
        return CHOSEN                           # no larger one
    if seen not in ("", RIGHT) and (is_block or is_few or is_stepped):
        return f"{UNSURE}: {seen}"
    if is_right and not launch.get("autotune"):
        return CHOSEN
    may_be_one = number == 1 and steps is not None and is_block and (launch["grid_is_function"] or bool(overridden))
    if number < 2 and not is_few and not may_be_one:
        return FLAG
    is_written = any(point.choice.startswith(PLACE) for point in overridden)            # in the host, as a number of its own
    if not follows and number in record["sizes"] and number not in varied and not is_written:
        return f"{UNSURE}: it may be the {number} of the call, which could not be called with another number"
    if not (is_block or is_few) or (is_block and not is_few and number & (number - 1)):
        return "the host's, no extent that the kernel steps by"
    if number < LEAST_BLOCK and not is_few and steps is not None:
        return f"{UNSURE}: {evidence.why_untried(name) or 'another value of it was not tried'}"
    if steps is not None and name in steps.counted:
        return f"{UNSURE}: an input has an element for each block of it"
    if overridden and all(point.shapes() != points[0].shapes() for point in overridden):
        return f"{UNSURE}: sizes of tensors depend on it"
    if launch.get("autotune"):
        return "the host's, the autotuner does not list it"
    if not overridden and not launch["grid_is_function"]:
        return f"{UNSURE}: the host computes it where it cannot be replaced, so what the grid depends on is not seen"
    return CHOSEN


def _is_stepped(steps: Steps | None, name: str, evidence: Evidence) -> bool:
    """Return whether the kernel steps by a constexpr, or what it loads at once was seen to follow it."""
    return steps is None or name in steps.moves or evidence.is_block(name)


def _loops_over(kernel: Kernel, name: str) -> bool:
    return kernel.loops and name in kernel.steps.loops


def _is_quotient(each: Recorded, name: str, points: Sequence[Again]) -> bool:
    """Return whether a value is one size over another in every call: `heads // kv_heads`, which a block never is."""
    of_sizes = [(point.constexpr(name), point.env(each.dims)) for point in points if not point.choice]
    return len({value for value, _ in of_sizes}) > 1 and any(
        all(env[below] and value == env[above] // env[below] for value, env in of_sizes)
        for above in each.dims for below in each.dims if above != below)


def _covers(each: Recorded, name: str, points: Sequence[Again]) -> str:
    """Return the size that a value covers in every call, as its next power of two, "=" before one that it is; "" where none."""
    for dim in each.dims:
        pairs = [(point.constexpr(name), point.env(each.dims)[dim]) for point in points if not point.choice]
        if len({size for _, size in pairs}) > 1 and len({value for value, _ in pairs}) > 1 and all(
                value is not None and value in (size, 1 << max(0, (size - 1).bit_length())) for value, size in pairs):
            return f"={dim}" if all(value == size for value, size in pairs) else dim
    return ""


def _add_options(each: Recorded, launch: Mapping[str, Any], kernel: Kernel | None) -> None:
    tiles, loops = (bool(kernel.tiles), kernel.loops) if kernel else (False, True)
    warps = launch["options"].get("num_warps", _TRITON["num_warps"])
    stages = launch["options"].get("num_stages", _TRITON["num_stages"])
    each.params["num_warps"] = tuple(sorted({*((2, 4, 8) if tiles else (1, 2, 4, 8, 16)), warps}))
    if kernel is not None and kernel.waits:                 # no fewer programs at once
        each.params["num_warps"] = tuple(count for count in each.params["num_warps"] if count <= warps)
    each.params["num_stages"] = tuple(sorted({*((2, 3, 4, 5) if tiles else (1, 2, 3) if loops else (stages,)), stages}))
    for name in ("num_stages", "num_warps"):
        if name in launch["heuristics"]:                # whatever is asked for, the kernel's own rule decides
            each.params.pop(name, None)
            continue
        if name not in launch["constexprs"]:
            continue
        if name in launch["options"]:                   # an argument of the kernel by that name, given by it: both at once
            each.chosen[name] = "an option of the launch"
        else:
            each.params.pop(name, None)
    each.default |= {name: value for name, value in (("num_warps", warps), ("num_stages", stages)) if name in each.params}
    others = {name: value for name, value in launch["options"].items() if name not in _TRITON}     # as the host gives them
    each.default |= others
    each.params |= {name: (value,) for name, value in others.items()}


def _find_grid(each: Recorded, record: Mapping[str, Any], index: int, launch: Mapping[str, Any], points: Sequence[Again],
               kernel: Kernel | None, evidence: Evidence) -> list[str | None]:
    """Return the formulas of a grid. Blocks that no simple one holds with are left as the host has them: the fewest that do."""
    chosen = [name for name in each.params if each.chosen.get(name) == CHOSEN]
    before, here = list(each.unsure), list(each.here)
    for left in [[], *([name] for name in chosen), *([chosen] if len(chosen) > 1 else [])]:
        each.unsure, each.here = list(before), list(here)
        trial = replace(each, params={name: its for name, its in each.params.items() if name not in left})
        axes = _fit_grid(trial, record, index, launch, points, kernel, evidence)
        if trial.unsure == before or (chosen and left == chosen):
            break
    for name in left:
        each.chosen[name] = f"{UNSURE}: the grid follows it in no simple way"
        each.untuned.append(f"{name}={each.default.pop(name)} is not tuned: the grid follows it in no simple way")
        each.params.pop(name)
    each.unsure, each.here = trial.unsure, trial.here
    if None in axes and (tables := _grid_tables(each, (record.get("grids") or [])[index:index + 1])):
        each.unsure, axes = before, [one if one is not None else table for one, table in zip(axes, tables, strict=True)]
        each.here = [*each.here, "the grid"]
    tuned = [name for name in each.params if name not in OPTIONS]
    if None in axes and not (tuned and launch["grid_is_function"]):         # nothing that is tuned moves it: as it is in the call
        each.unsure = before
        each.here = [*each.here, "the grid"]
        axes = [axis if axis is not None else str(number) for axis, number in zip(axes, launch["grid"], strict=True)]
    return axes


def _grid_tables(each: Recorded, told: Sequence[Sequence[Mapping[str, Any]]]) -> list[str]:
    """Return each axis of a grid as a table over the blocks of the listed configurations; [] where it is not known for one."""
    grids = {tuple(sorted(one["instead"].items())): one["grid"] for others in told for one in others}
    names = sorted({name for config in each.configs for name, value in config.items()
                    if isinstance(value, int) and name not in OPTIONS and name in each.launch["constexprs"]})
    listed = {tuple((name, config.get(name)) for name in names): config for config in each.configs}
    if each.widened or not names or any(key not in grids for key in listed):
        return []
    tables = []
    for axis in range(len(each.launch["grid"])):
        for of in (*([name] for name in names), names):
            table = {tuple(dict(key)[name] for name in of): grids[key][axis] for key in listed}
            if all(table[tuple(dict(key)[name] for name in of)] == grids[key][axis] for key in listed):
                break
        tables.append(f"{table}[{', '.join(META.format(name) for name in of)},]")
    return tables


def _fit_grid(each: Recorded, record: Mapping[str, Any], index: int, launch: Mapping[str, Any], points: Sequence[Again],
              kernel: Kernel | None, evidence: Evidence) -> list[str | None]:
    blocks = [name for name in each.params if name not in OPTIONS]
    axes: list[str | None] = []
    sizes = [name for name in _sizes_of(each, launch) if name not in each.derived]
    fixed = sorted({number for name, value in launch["constexprs"].items() if name not in blocks
                    and type(number := value.get("value")) is int and number > 1
                    and all(point.constexpr(name) in (None, number) for point in points)})
    for axis in range(len(launch["grid"])):
        of_axis = [point for point in points if axis < len(point.launch["grid"])
                   and (not point.choice or point.moves_alone(points[0], blocks, each.derived))]
        samples: list[Point] = [(point.known(each.dims), point.launch["grid"][axis]) for point in of_axis]
        # a host that counts programs by warps: those of its own choice do for others, since the kernel goes over what is left
        own: list[Point] = [(point.known(each.dims), point.launch["grid"][axis]) for point in points if point.choice
                            and axis < len(point.launch["grid"]) and point.moves_alone(points[0], blocks, each.derived)
                            and (point.launch["options"] == launch["options"] or not (kernel and kernel.loops))]
        for grids in (record.get("grids") or [])[index:index + 1] or [[]]:
            told_grids = [({**points[0].known(each.dims), **other["instead"]}, other["grid"][axis]) for other in grids
                          if axis < len(other["grid"]) and set(other["instead"]) <= set(blocks)]
            samples, own = [*samples, *told_grids], [*own, *told_grids]
        samples += [(Again(small, numbers=numbers).known(each.dims), small["grid"][axis])       # sizes and blocks changed at once
                    for small, numbers in evidence.points([*blocks, *each.derived]) if axis < len(small["grid"])]
        formula = fit(samples, sizes, blocks, META, fixed)
        if formula is None and (formula := fit([*samples[:1], *own], sizes, blocks, META, fixed)) is not None:
            each.here = ["the grid"]
        axes.append(formula)
    moved = kernel.steps.moves if kernel is not None and not kernel.loops else ()
    is_fixed = bool(launch["autotune"]) and not launch["grid_is_function"]      # before its autotuner chooses
    for name in blocks if not is_fixed else ():
        if name in moved and not any(META.format(name) in str(axis) for axis in axes) and None not in axes:
            each.unsure.append(f"how many programs there are for another {name}: the grid was not seen to follow it")
    if None in axes:
        each.unsure.append("what the grid depends on: no simple formula holds in every call that was tried")
    return axes
