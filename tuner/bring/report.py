"""What is said of one kernel: understood, counted, compiled, and what is missing. JSON for programs, lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from profiles.base.words import pairs_text
from tuner.bring.references import NOT_INDEPENDENT


@dataclass
class Problem:
    """`what` is wrong or missing, and what to `do`; `missing`: a piece that `operators init` writes or proposes."""

    what: str
    do: str = ""
    missing: bool = False


@dataclass
class Found:
    """One kernel of a file.

    parameters  {"name", "values", "tuned", "kind"}: of the space, then the arguments
    size        configurations before anything is left out; None where only running the file tells
    valid       of them those that can run
    pruned      reason → configurations left out
    default     what is launched without tuning
    assumed     values that were guessed from names, for the compile alone
    compiled    {"gpu", "config", "registers", "spills", "smem_bytes", "occupancy_pct", "seconds"}, or {"gpu", "config", "error"}
    notes       what was stood in for, and what a reader should know though nothing is wrong
    recorded    of --call: the launch that was recorded, see `tuner.bring.calls.found`
    measured    of --run: {"gpu", "shape", "config", "us", "error", "wrong"}, as `run` says
    """

    name: str
    kind: str
    line: int
    parameters: list[dict[str, Any]] = field(default_factory=list)
    arguments: list[dict[str, Any]] = field(default_factory=list)
    size: int | None = None
    valid: int | None = None
    pruned: dict[str, int] = field(default_factory=dict)
    default: dict[str, Any] = field(default_factory=dict)
    assumed: dict[str, Any] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    compiled: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    recorded: dict[str, Any] | None = None
    measured: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "problems": [vars(problem) for problem in self.problems]}


def lines_of(found: Found, file: str) -> Iterator[str]:
    """Yield what a person reads of one kernel."""
    yield f"{found.name}  {found.kind}, {file}:{found.line}"
    if found.recorded:
        yield from _recorded(found.recorded)
    if found.arguments:
        yield "  arguments   " + ", ".join(f"{argument['name']} ({_argument(argument)})" for argument in found.arguments)
    for parameter in found.parameters:
        yield f"  {parameter['name']:<11} {', '.join(map(str, parameter['values']))}"
    if found.size is not None:
        yield f"  space       {found.size:,} configurations, {found.valid:,} can run"
        for reason, count in found.pruned.items():
            yield f"              {count:,} left out: {reason}"
    if found.default:
        yield f"  default     {pairs_text(found.default)}"
    if found.assumed:
        yield f"  assumed     {pairs_text(found.assumed)}  (to compile; --shape gives others)"
    for sample in found.compiled:
        yield f"  {sample['gpu']:<11} {pairs_text(sample['config'])}: {_facts(sample)}"
    if found.measured:
        yield f"  measured    {found.measured['us']:.1f} µs on {found.measured['gpu']} at {pairs_text(found.measured['shape'])}, " \
              f"error {found.measured['error']:.1e}" + (f", {NOT_INDEPENDENT}" if any(
                  NOT_INDEPENDENT in sentence for sentence in found.notes) else "")
    for note in found.notes:
        yield f"  note        {note}"
    for problem in found.problems:
        yield f"  {'missing' if problem.missing else 'problem':<11} {problem.what}" + (f": {problem.do}" if problem.do else "")


def _recorded(recorded: Mapping[str, Any]) -> Iterator[str]:
    formula = recorded["grid_formula"]
    yield f"  call        {recorded['call']}"
    yield f"  grid        {' × '.join(map(str, recorded['grid']))}" + (f" = {formula}" if formula else "")
    for name, constexpr in recorded["constexprs"].items():
        yield f"  {name:<11} {constexpr['value']}: {constexpr['chosen']}"
    if recorded["options"]:
        yield f"  options     {pairs_text(recorded['options'])}"


def _argument(each: Mapping[str, Any]) -> str:
    if "shape" in each:
        strides = "" if each.get("contiguous") else f", strides {'×'.join(map(str, each['strides']))}"
        return f"{each['kind']}, {each['dtype']} {'×'.join(map(str, each['shape'])) or 'scalar'}{strides}"
    return f"{each['kind']} {each['value']}" if "value" in each else str(each["kind"])


def _facts(each: Mapping[str, Any]) -> str:
    if "error" in each:
        return str(each["error"]).splitlines()[0][:160]
    parts = [f"{each['registers']} registers" if each.get("registers") is not None else "",
             f"{each['spills']} words spilled" if each.get("spills") else "",
             f"{each['smem_bytes'] / 1024:.0f} KiB shared" if each.get("smem_bytes") else "",
             f"occupancy {each['occupancy_pct']:.0f} %" if each.get("occupancy_pct") is not None else ""]
    return ", ".join(part for part in parts if part) or "compiles"
