"""Reads of a launch's code as a program, and of another result's counters beside it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypedDict

from profiles.analysis.kernel.sass.liveness import MOST_ROWS, Program, Tangled, live_registers, program, writers
from profiles.analysis.kernel.sass.matched import match_lines, why_other_code
from profiles.models import KernelStat, Profile
from profiles.source.selectors import Launch, baseline_of, chosen_index, launch_of, launches_inside

KEPT_PROGRAMS = 16                       # analysed launches that a process remembers


class ProgramJson(TypedDict):
    """Live registers of each instruction by kind, the row that it jumps to, the rows that wrote what it reads."""

    registers_per_thread: float | None
    missing: str                        # why there are none
    general: list[int]
    uniform: list[int]
    predicates: list[int]
    targets: list[int | None]
    writers: list[list[int]]


class BesideJson(TypedDict):
    """Counters of another result where its code is the same: by instruction, by line ("file:line" here), and in all."""

    profile: str
    build: str
    kernel: int
    launch: int | None
    instructions: dict[str, list[float]]
    instructions_missing: str
    lines: dict[str, dict[str, float]]
    lines_missing: dict[str, str]
    totals: dict[str, float]


def program_json(launch: Launch) -> Any:
    """Return live registers, jumps and writers by row; `missing` says why there are none."""
    return _program_json(launch.profile.pk, launch.profile.sha256, launch.row.index)


@lru_cache(KEPT_PROGRAMS)
def _program_json(profile_id: int, sha256: str, index: int) -> dict[str, Any]:
    launch = launch_of(Profile.objects.get(pk=profile_id), index)
    sass = launch.instructions.readable_sass if launch else []
    code = program(sass, launch.instructions.offset.tolist()) if launch else None
    registers = launch.totals.get("launch__registers_per_thread") if launch else None
    document: dict[str, Any] = {"registers_per_thread": registers if isinstance(registers, int | float) else None, "missing": "",
                                "general": [], "uniform": [], "predicates": [], "targets": [], "writers": []}
    if code is None:
        return document | {"missing": f"more than {MOST_ROWS:,} instructions"}
    try:
        live = live_registers(code)
        return document | {"general": live.general, "uniform": live.uniform, "predicates": live.predicates,
                           "targets": _jumps(code), "writers": writers(code)}
    except Tangled as error:
        return document | {"missing": str(error)}


def _jumps(found: Program) -> list[int | None]:
    """Where control really jumps: what BSSY and WARPSYNC name is where threads meet."""
    return [to if instruction.base in ("BRA", "JMP", "CALL") and not instruction.never else None
            for instruction, to in zip(found.code, found.flow.target, strict=True)]


def baseline_launch(params: Mapping[str, str]) -> tuple[KernelStat, Launch | None] | None:
    """Return the kernel that lies over the page, and its launch with instructions; None without a baseline."""
    chosen = baseline_of(params)
    if chosen is None:
        return None
    kernel, launch = chosen
    index = chosen_index(launches_inside(kernel, "instructions"), {"launch": launch})
    return kernel, launch_of(kernel.profile, index) if index is not None else None


def beside_json(launch: Launch, kernel: KernelStat, other: Launch | None) -> dict[str, Any]:
    """Return the counters of another result where its code is the same: by instruction, and by line.

    `instructions`: measure -> value by row, empty where the machine code differs (`instructions_missing` says how). `lines`:
    "file:line" here -> measure -> value there; `lines_missing`: file here -> why it has none. `totals`: measure -> of the launch.
    """
    document: dict[str, Any] = {"profile": kernel.profile.name, "build": kernel.profile.build, "kernel": kernel.pk,
                                "launch": None, "instructions": {}, "instructions_missing": "", "lines": {}, "lines_missing": {},
                                "totals": {}}
    if other is None:
        return document | {"instructions_missing": "the baseline’s report holds no counters of single instructions"}
    mine, theirs = launch.instructions, other.instructions
    names = [measure.name for measure in mine.measures if theirs.has(measure.name)]
    why = why_other_code(mine.readable_sass, theirs.readable_sass)
    used = [(line.file, line.line) for line in launch.lines if line.file is not None and line.line is not None]
    match = match_lines(launch.files, other.files, used)
    values = {(line.file, line.line): line.values for line in other.lines}
    empty: Mapping[str, float] = {}
    return document | {
        "launch": other.row.index, "instructions_missing": why,
        "instructions": {} if why else {name: theirs.values(name).tolist() for name in names},
        "lines": {f"{file}:{line}": {name: values.get(to, empty).get(name, 0.0) for name in names}
                  for (file, line), to in match.lines.items()},
        "lines_missing": {str(file): reason for file, reason in match.reasons.items()},
        "totals": {measure.name: float(theirs.values(measure.name).sum())
                   for measure in mine.measures if measure.adds_up and measure.name in names},
    }
