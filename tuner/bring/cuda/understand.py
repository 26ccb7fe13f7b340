"""What follows from a recorded call of a CUDA C++ host function: what can be tuned; grid, block and shared memory as formulas."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from profiles.base.refused import Refused
from tuner.bring.calls.again import Again, read_again
from tuner.bring.calls.found import is_contiguous
from tuner.bring.calls.sizes import fit_numbers, name_dims
from tuner.bring.cuda.formulas import SMEM, RecordedCuda, fit_all, fit_left
from tuner.bring.cuda.source import CudaSource
from tuner.bring.cuda.structs import lift_tensors
from tuner.tuning.cuda.functions import BLOCK
from tuner.tuning.cuda.source import Source

MOST, WARP = "most", 32
_LARGE, _FEW = 1024, 64
_OF_A_BLOCK = re.compile(r"Block[A-Z]\w+$")


def understand_cuda(record: Mapping[str, Any], sources: Mapping[str, CudaSource]) -> list[tuple[RecordedCuda, CudaSource]]:
    """Return each kernel that the call launches and the text holds, in the order of the launches. Raises Refused for no record."""
    by_name: dict[str, tuple[RecordedCuda, CudaSource]] = {}
    record = lift_tensors(record)
    for index, launch in enumerate(record["launches"]):
        name = launch["kernel"]
        if any(type(launch["options"].get(axis)) is not int for axis in (*BLOCK, SMEM)) or len(launch["grid"]) > len(BLOCK):
            raise Refused("no record of a launch of CUDA C++")
        if name not in by_name and name in sources:
            by_name[name] = _understand(record, index, launch, sources[name]), sources[name]
    return list(by_name.values())


def _understand(record: Mapping[str, Any], index: int, launch: dict[str, Any], source: CudaSource) -> RecordedCuda:
    names = [parameter.name for parameter in source.function.template]        # the compiler tells names of types as well
    launch = {**launch, "constexprs": {name: launch["constexprs"][name] for name in names if name in launch["constexprs"]}}
    entry = RecordedCuda(index, launch)
    points = [point for point in read_again(record, index, launch) if not _overflows(launch, point)]
    entry.dims, entry.ties = name_dims(record, launch, points), dict(source.tied)
    moved = _moved(source, points)
    for name, values in source.params.items():
        value = _value_of(launch, name, source)
        if value is None:
            continue
        if moved.get(name) and _is_tied(name, moved[name], points[0], entry.params):
            continue
        is_free = name == BLOCK[0] and not moved.get(name) and value >= WARP and _strides(source)
        if name in BLOCK and (is_free or moved.get(name)) and (rests := _rests_on(source, value)):
            if rests != MOST:
                entry.untuned.append(f"{name}={value} is not tuned: the kernel itself rests on {value}")
                continue
            values = tuple(number for number in values if number <= value)
        if (is_free or moved.get(name)) and (values := tuple(one for one in values if type(one) is type(value))):
            entry.params[name], entry.default[name] = tuple(sorted({*values, value})), value
        else:
            entry.untuned.append(f"{name}={value} is not tuned: the host was not seen to choose another")
    fit_all(entry, source, points, moved)
    entry.ties = {name: tie for name, tie in entry.ties.items() if tie.leader in entry.params}
    entry.untuned += [f"{name} follows {tie.leader}, as the file has them: {entry.default[tie.leader]} and "
                      f"{tie.value(entry.default[tie.leader])}" for name, tie in entry.ties.items()]
    for name, value in launch["constexprs"].items():
        entry.chosen[name] = "tuned" if name in entry.params else "the tensors' type" if value["kind"] == "str" else "the host's"
    for name in [name for name in BLOCK if name in entry.params]:
        entry.chosen[name] = "the host's threads"
    entry.formulas = fit_numbers(entry.dims, launch, [point for point in points if not point.choice])
    fit_left(entry, points)
    entry.here += dict.fromkeys(name for path, formula in entry.formulas.items() if formula is None
                                and (name := path.split(".")[1]) not in entry.params and not _is_plain_stride(launch, path))
    return entry


def _rests_on(source: CudaSource, threads: int) -> str:
    """Return how a kernel's own text rests on its number of threads: `MOST` where it has room for so many and asks blockDim.

    Room is `__shared__ float held[1024]` and `cub::BlockReduce<float, 1024>`: with fewer threads the kernel may do as well, and
    what a configuration computes is compared. "" for no such number, else what it rests on: `const int block_size = 1024`.
    """
    if threads < _FEW:
        return ""
    read, found, asks = Source(source.text), set[str](), False
    for item in read.of_name.get(source.function.name, ()):
        words = read.body_of(item) if item.kind == "kernel" else ()
        asks |= "blockDim" in words
        for at, word in enumerate(words):
            if word.rstrip("uUlL") == str(threads):
                before, after = words[at - 1], words[at + 1] if at + 1 < len(words) else ""
                begin = max((place for place in range(at) if words[place] in (";", "{", "}")), default=0)
                is_shared = before == "[" and after == "]" and "__shared__" in words[begin:at]
                of_block = before == "," and after in (">", ",") and any(_OF_A_BLOCK.match(one) for one in words[begin:at])
                found.add(MOST if is_shared or of_block else word)
    return "" if not found else MOST if found == {MOST} and asks else str(threads)


def _strides(source: CudaSource) -> bool:
    """Return whether a kernel goes through its elements in steps of its threads along x, whatever their number: each block its own.

    `for (int i = threadIdx.x; i < n; i += blockDim.x)`, and nowhere `blockIdx.x * blockDim.x`: neither its grid nor its memory
    follow the threads. What they are, the host may compute in any way.
    """
    read, steps = Source(source.text), False
    for item in read.of_name.get(source.function.name, ()):
        words = read.body_of(item) if item.kind == "kernel" else ()
        for at in (at for at in range(2, len(words) - 3) if words[at:at + 3] == ["blockDim", ".", "x"]):
            steps |= words[at - 1] == "+="
            if "*" in (words[at - 1], words[at + 3]):
                return False
    return steps and not source.function.dynamic_shared


def _overflows(launch: Mapping[str, Any], again: Again) -> bool:
    """Return whether a large number of the launch is none in another call: the host's own arithmetic has too few bits for it."""
    return any(entry["kind"] == "int" and entry["value"] > _LARGE and again.launch["arguments"].get(name, {}).get("value", 1) <= 0
               for name, entry in launch["arguments"].items())


def _is_plain_stride(launch: Mapping[str, Any], path: str) -> bool:
    """Return whether a number is a stride of a tensor whose elements lie one after the other: its shape tells it."""
    part, name, what, *_ = path.split(".")
    return what == "strides" and is_contiguous(launch[part][name]["shape"], launch[part][name]["strides"])


def _value_of(launch: Mapping[str, Any], name: str, source: CudaSource) -> Any:
    """Return what a parameter is in the call: of a template or of the block as recorded, of a macro as the text has it."""
    if name in launch["constexprs"]:
        return launch["constexprs"][name]["value"]
    return launch["options"].get(name, source.default.get(name))


def _moved(source: CudaSource, points: Sequence[Again]) -> dict[str, list[Again]]:
    """Return, by parameter, the calls in which it alone was another: what the kernel is given stayed as it was."""
    base = points[0]
    runs_by_name: dict[str, list[Again]] = {}
    for run in points:
        name = run.choice
        if not name or name not in source.params or (run.launch["arguments"] != base.launch["arguments"] and _differs(base, run)):
            continue
        number = _value_of(run.launch, name, source)
        if (name in base.launch["constexprs"] or name in BLOCK) and number != run.chosen:
            continue
        others, before = _chosen(run), _chosen(base)
        changed = {key for key, value in before.items() if key != name and others.get(key) != value}
        # one number may be the threads along two axes, and a template's value or a macro those of a block
        is_tied = name not in BLOCK or all(before.get(key) == before[name] and others[key] == run.chosen for key in changed)
        if is_tied and changed <= set(BLOCK):
            runs_by_name.setdefault(name, []).append(run)
    return runs_by_name


def _chosen(again: Again) -> dict[str, Any]:
    return {**{name: constexpr["value"] for name, constexpr in again.launch["constexprs"].items()},
            **{name: again.launch["options"][name] for name in BLOCK}}


def _is_tied(name: str, moved: Sequence[Again], base: Again, params: Collection[str]) -> bool:
    """Return whether the threads along an axis are those along another, which is a parameter already."""
    return name in BLOCK and any(all(point.launch["options"][other] == point.chosen for point in moved) for other in params
                                 if other in BLOCK and base.launch["options"][other] == base.launch["options"][name])


def _differs(base: Again, again: Again) -> bool:
    """Return whether tensors' extents or numbers of a launch are others; storages of two calls are never the same."""
    def plain(launch: Mapping[str, Any]) -> list[Any]:
        return [(spec["kind"], spec.get("value") if spec["kind"] != "tuple" else None, spec.get("shape"), spec.get("strides"))
                for spec in launch["arguments"].values()]
    return plain(base.launch) != plain(again.launch)
