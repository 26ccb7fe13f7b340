"""What is said of a kernel whose launch was recorded: `operators check --call`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from profiles.base.refused import Refused
from tuner.bring import spaces
from tuner.bring.calls.changed import read_changed
from tuner.bring.calls.loading_places import package_of
from tuner.bring.calls.understand import Recorded, understand
from tuner.bring.report import Found, Problem
from tuner.bring.samples import GPU, choose_samples
from tuner.bring.source import Kernel, all_kernels_of
from tuner.tuning.space import Space

KINDS = {"int": "integer", "float": "number", "bool": "flag", "none": "none", "str": "text", "tensor": "pointer"}
_KNOWN = ("filled", "counts", "values", "packed", "permutes", "bounds", "sorted", "anything")   # of a tensor
REFERENCE = ("no function of the file is named as the reference (--reference NAME): the adapter compares with the default's own "
             "result, which is not independent")


def read_recorded(path: Path, told: Mapping[str, Any]) -> list[tuple[Recorded, Kernel | None]]:
    """Return each kernel that the call launches, with what the text of its file says of it."""
    constants: dict[str, dict[str, Any]] = {}
    for launch in reversed(told.get("launches", [])):           # the first launch of each holds
        constants[launch["kernel"]] = {name: value.get("value") for name, value in launch["constexprs"].items()
                                       if value["kind"] in ("int", "bool", "str", "none")}
    kernels = _kernels_of(path, constants)
    root = package_of(path)[0]
    for launch in told.get("launches", []):
        place = Path(str(launch.get("file", "")))
        if launch["kernel"] not in kernels and place.is_relative_to(root) and place.suffix == ".py":
            kernels |= {name: kernel for name, kernel in _kernels_of(place, constants).items() if name not in kernels}
    by_function = {kernel.function or name: kernel for name, kernel in kernels.items()}
    seen = {**told, "launches": list(_without_written(told.get("launches", ()), by_function, told.get("ran", ())))}
    return [(entry, by_function.get(entry.name)) for entry in understand(seen, by_function)]


def _without_written(launches: Sequence[Mapping[str, Any]], kernels: Mapping[str, Kernel], ran: Collection[str]
                     ) -> Iterator[Mapping[str, Any]]:
    """Yield the launches without what the host had put into tensors that an earlier kernel of the call wrote since.

    ran  kernels that were run: what they wrote is known
    """
    written: set[int] = set()
    for launch in launches:
        arguments = {name: {key: value for key, value in one.items() if key not in _KNOWN} if one.get("storage") in written else one
                     for name, one in launch["arguments"].items()}
        yield {**launch, "arguments": arguments}
        kernel = kernels.get(launch["kernel"]) if launch["kernel"] not in ran else None
        written |= {launch["arguments"][argument.name]["storage"] for argument in (kernel.arguments if kernel else ())
                    if argument.written and launch["arguments"].get(argument.name, {}).get("kind") == "tensor"}


def _kernels_of(path: Path, given: Mapping[str, Mapping[str, Any]]) -> dict[str, Kernel]:
    try:
        return all_kernels_of(path.read_text(), given)
    except (OSError, UnicodeDecodeError, Refused):
        return {}


def found_of(each: Recorded, kernel: Kernel | None, record: Mapping[str, Any], stood_in: Mapping[str, str], samples: int
             ) -> tuple[Found, list[dict[str, Any]]]:
    """Return what is found of one kernel of the call, and the samples to compile."""
    launch = each.launch
    facts = Found(kernel.name if kernel else each.name, "triton.autotune" if launch["autotune"] else "triton.jit",
                  kernel.line if kernel else int(launch["line"]))
    written = {argument.name for argument in kernel.arguments if argument.written} if kernel else set()
    facts.arguments = [_argument(name, value, name in written) for name, value in record["launches"][each.at]["arguments"].items()]
    facts.parameters = [{"name": name, "values": list(values)} for name, values in each.params.items()]
    facts.default = dict(each.default)
    facts.recorded = _recorded(each, record)
    facts.notes = [*_notes(each, record, stood_in), *read_changed(launch, kernel, record.get("inputs", ()), each.at > 0).notes(),
                   REFERENCE]
    facts.problems += [Problem(sentence, missing=True) for sentence in each.unsure]
    if not [name for name in each.params if len(each.params[name]) > 1]:
        facts.problems.append(Problem("nothing can be tuned: the host chooses no block", ""))
    space = _space(each, kernel, facts)
    if space is None:
        return facts, []
    jobs = [{"name": facts.name, "config": config, "launch": each.at, "arguments": [], "constexprs": {}, "dtype": "", "shape": {}}
            for config in choose_samples(facts.default, space, samples)]
    return facts, jobs


def _space(each: Recorded, kernel: Kernel | None, found: Found) -> Space | None:
    try:
        space = spaces.space_with(each.params, each.configs, kernel.tiles if kernel else (), GPU)
    except ValueError as error:
        found.problems.append(Problem(str(error)))
        return None
    found.size, found.valid, found.pruned = space.size, len(space), dict(space.pruned)
    autotune = each.launch["autotune"]
    if autotune and autotune["pruned"]:
        found.pruned["prune_configs_by leaves them out at this call"] = len(autotune["configs"]) - len(autotune["kept"])
        found.size += len(autotune["configs"]) - len(autotune["kept"])
    return space


def _argument(name: str, value: Mapping[str, Any], written: bool) -> dict[str, Any]:
    kind = KINDS.get(value["kind"], value["kind"])
    if value["kind"] in ("tensor", "descriptor"):
        of = value.get("base", value)
        return {"name": name, "kind": kind, "written": written, "dtype": of["dtype"], "shape": list(value["shape"]),
                "strides": list(value["strides"]), "contiguous": is_contiguous(value["shape"], value["strides"]),
                **({"block": value["block"]} if "block" in value else {})}
    return {"name": name, "kind": kind, "written": written, "value": _plain(value.get("value"))}


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether a tensor's elements lie one after the other; an extent of 1 has any stride."""
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)[:200]


def _recorded(kernel: Recorded, record: Mapping[str, Any]) -> dict[str, Any]:
    launch, autotune = kernel.launch, kernel.launch["autotune"]
    return {"call": record["call"], "grid": launch["grid"],
            "grid_formula": ", ".join(str(axis) for axis in kernel.grid) if None not in kernel.grid else "",
            "constexprs": {name: {"value": _plain(value.get("value")), "chosen": kernel.chosen[name]}
                           for name, value in launch["constexprs"].items()},
            "options": dict(launch["options"]), "heuristics": list(launch["heuristics"]), "dims": dict(kernel.dims),
            "key": list(autotune["key"]) if autotune else [], "gluon": launch["gluon"],
            "restores": [*autotune["reset_to_zero"], *autotune["restore_value"]] if autotune else []}


def _notes(each: Recorded, record: Mapping[str, Any], stood_in: Mapping[str, str]) -> list[str]:
    notes = list(each.untuned)
    if each.shown:
        notes.append(f"{', '.join(each.shown)}: twice and half the value leave the same result in Triton's interpreter")
    if each.read:
        notes.append(f"{', '.join(each.read)}: tuned by the kernel's text alone; {next(iter(each.read.values()))}")
    if each.here:
        follow = "follows" if len(each.here) == 1 else "follow"
        notes.append(f"tuned at the call's own sizes alone: {', '.join(each.here[:6])} {follow} them in no simple way")
    if stood_in:
        named = [f"{name} ({why})" for name, why in list(stood_in.items())[:8]]
        more = ", …" if len(stood_in) > 8 else ""
        notes.append(f"stood in for or left out while the file was imported: {', '.join(named)}{more}")
    if record.get("used"):
        notes.append(f"the call used names of what is stood in for: {', '.join(record['used'][:8])}")
    before = {one["kernel"] for one in record["launches"][:each.at]}
    if ran := [name for name in record.get("ran", ()) if name in before]:
        notes.append(f"what {', '.join(ran[:8])} leaves for it was computed in Triton's interpreter")
    notes += [f"what another kernel leaves for it could not be computed: {one}" for one in record.get("lost", ())[:4]
              if one.partition(":")[0] in before]
    if record.get("drawn"):
        notes.append("the host looks at values: those of random inputs, and random ones in place of what its kernels would compute")
    if record.get("failed_at"):
        notes.append(f"the call did not end, after these launches: {record['failed_at']}")
    if left_out := each.launch.get("left_out"):
        notes.append(f"left out: {', '.join(left_out)}, which Triton does not have for this GPU")
    autotune = each.launch["autotune"]
    if autotune and autotune["prune_failed"]:
        notes.append(f"prune_configs_by fails without a GPU: {autotune['prune_failed']}")
    return notes
