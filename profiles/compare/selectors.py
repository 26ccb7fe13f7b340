"""Two profiles or two builds, put side by side: which profiles, their launches, their counters."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profiles.analysis.compare.comparison import Comparison, Row
from profiles.analysis.compare.kernels import compare
from profiles.analysis.compare.launch_operations import LaunchOperations
from profiles.analysis.compare.operations import OperationRow
from profiles.analysis.compare.step import StepChange
from profiles.analysis.compare.why import WANTED, CounterChange, Why, counter_changes, why
from profiles.compare.answers import ComparedSideJson
from profiles.compare.frame_selectors import Steady, problems, steady
from profiles.compare.operation_selectors import (
    operation_rows,
    operations_answer,
    operations_of,
    step_of_profiles,
    too_large_text,
    with_operations,
)
from profiles.ingest.trace import TraceError
from profiles.library.selectors import build_profiles
from profiles.models import LaunchCounters, Profile, first_uploads
from profiles.store.counters import metrics_by_name
from profiles.store.objects import launches_read

KINDS = (Profile.Kind.TRACE, Profile.Kind.COUNTERS)
PER = ("total", "run", "step")
_RUN = 1 << 40          # positions of the launches of the i-th profile begin at i * _RUN

# Counters side by side: path in LaunchFacts, name for people, unit.
COUNTERS = (
    ("sol.sm_pct", "Compute of peak", "%"), ("sol.memory_pct", "Memory of peak", "%"), ("sol.dram_pct", "DRAM of peak", "%"),
    ("point.flop_s", "Compute rate", "FLOP/s"), ("point.dram_bytes_s", "DRAM rate", "B/s"),
    ("point.dram_bytes", "DRAM traffic", "B"), ("point.intensity", "Arithmetic intensity", "FLOP/B"),
    ("point.roof_pct", "Of its roof", "%"), ("occupancy.achieved_pct", "Achieved occupancy", "%"),
    ("occupancy.theoretical_pct", "Theoretical occupancy", "%"), ("caches.l1_hit_pct", "L1 hits", "%"),
    ("caches.l2_hit_pct", "L2 hits", "%"), ("scheduler.ipc", "Instructions per cycle", ""),
    ("launch.registers_per_thread", "Registers per thread", ""), ("sm_clock_hz", "SM clock", "Hz"),
)
EXPLAINED = 24          # rows of most change whose raw counters are read
_LAUNCHES = 40          # of each side of such a row
COLUMNS = ("kernel", "shape", "problem", "verdict", "old_total_ns", "new_total_ns", "delta_ns", "from_launches_ns",
           "from_duration_ns", "change_pct", "noise_pct", "work_change_pct", "old_launches", "new_launches", "old_mean_ns",
           "new_mean_ns", "old_grid", "new_grid", "old_block", "new_block", "old_registers", "new_registers", "matched",
           "confidence", "why", "old_name", "new_name")


@dataclass(frozen=True)
class ComparisonSide:
    """One side: what was asked for and the ready profiles it stands for."""

    label: str
    profiles: Sequence[Profile]
    build: str = ""

    @property
    def gpus(self) -> set[str]:
        return {profile.gpu for profile in self.profiles if profile.gpu}

    @property
    def steps(self) -> int | None:
        counts = [profile.steps for profile in self.profiles]
        return sum(step for step in counts if step) if counts and all(counts) else None

    def as_json(self) -> ComparedSideJson:
        return {"label": self.label, "build": self.build, "gpus": sorted(self.gpus), "steps": self.steps,
                "profiles": [{"id": profile.pk, "name": profile.name, "build": profile.build} for profile in self.profiles]}


@dataclass(frozen=True)
class KernelComparison:
    """The comparison with everything a page says about it."""

    old: ComparisonSide
    new: ComparisonSide
    kind: str
    kinds: Sequence[str]                       # that both sides have
    per: str                                   # "total" | "run" | "step"
    result: Comparison
    notes: Sequence[str] = field(default=())
    counters: dict[int, list[CounterChange]] = field(default_factory=dict)    # by position of the row
    facts: dict[int, tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]] = field(default_factory=dict)
    whys: dict[int, Why] = field(default_factory=dict)
    step: StepChange | None = None             # of traces with steps
    operations: Sequence[OperationRow] = field(default=())         # kinds of operations of traces, largest change first

    @property
    def sides(self) -> tuple[ComparisonSide, ComparisonSide]:
        return self.old, self.new

    @property
    def identity(self) -> str:
        """Return a key that is equal for the same comparison of the same profiles.

        As long as none of them is read again or renamed.
        """
        sides = [[side.label, *((p.pk, p.attempts, p.sha256) for p in side.profiles)] for side in self.sides]
        return hashlib.sha256(repr([sides, self.kind, self.per]).encode()).hexdigest()

    @property
    def recorded(self) -> list[str]:
        return sorted({p.recorded for side in self.sides for p in side.profiles if p.recorded})

    @property
    def comparable(self) -> bool:
        """Times of different GPUs say nothing about a build."""
        return not (self.old.gpus and self.new.gpus) or self.old.gpus == self.new.gpus

    @property
    def answer(self) -> str:
        """Return what a page says first of traces: the step, and the operations that changed most; "" of counter reports."""
        return " ".join(each for each in (self.step.answer if self.step else "", operations_answer(self.operations)) if each)

    def as_json(self) -> Any:
        return {
            "answer": self.answer,
            "a": self.old.as_json(), "b": self.new.as_json(), "kind": self.kind, "kinds": list(self.kinds), "per": self.per,
            "comparable": self.comparable, "notes": list(self.notes), "old_total_ns": self.result.old_total_ns,
            "new_total_ns": self.result.new_total_ns, "delta_ns": self.result.delta_ns, "verdicts": self.result.verdicts(),
            "kernel_verdicts": self.result.kernel_verdicts(), "step": self.step.as_json() if self.step else None,
            "operations": [row.as_json() for row in self.operations],
            "kernels": [kernel.as_json() for kernel in self.result.kernels],
            "rows": [{**row.as_json(), "counters": [vars(change) for change in self.counters.get(at, [])],
                      "why": self.whys[at].as_json() if at in self.whys else None} for at, row in enumerate(self.result.rows)],
        }

    def table(self) -> list[dict[str, Any]]:
        return [{**_flat(row), "why": self.whys[index].sentence if index in self.whys else ""}
                for index, row in enumerate(self.result.rows)]


def comparison(query: Mapping[str, str]) -> KernelComparison:
    """Return the comparison that a query asks for.

    `a`, `b` (profile ids) or `build_a`, `build_b`; `kind`, `per`. TraceError says what is wrong with the question.
    """
    old, new = _pick_side(query, "a"), _pick_side(query, "b")
    kinds = [kind for kind in KINDS if all(any(p.kind == kind for p in side.profiles) for side in (old, new))]
    if not kinds:
        raise TraceError("a, b", "one side has only traces and the other only counters, or one has only sums",
                         "compare traces with traces and counter reports with counter reports")
    kind = query.get("kind") if query.get("kind") in kinds else kinds[0]
    old, new = (ComparisonSide(side.label, [p for p in side.profiles if p.kind == kind], side.build) for side in (old, new))
    per, old_units, new_units = _units(query.get("per", ""), old, new)
    counting = _steady(old, new) if per == "step" and kind == Profile.Kind.TRACE else {}
    if counting:
        old_units, new_units = (float(sum(counting[p.pk].steps for p in side.profiles)) for side in (old, new))
    operations_by_id = {p.pk: operations_of(p) for side in (old, new) for p in side.profiles} if kind == Profile.Kind.TRACE else {}
    launches = _launches(old, counting, operations_by_id), _launches(new, counting, operations_by_id)
    result = compare(*launches, old_units=old_units, new_units=new_units)
    counters: dict[int, list[CounterChange]] = {}
    facts, whys = {}, {}
    if kind == Profile.Kind.COUNTERS:
        facts, whys = _facts(old, new, result), _whys(old, new, result)
        counters = {index: counter_changes(before, after, COUNTERS) for index, (before, after) in facts.items()}
    notes = [*_notes(old, new, per), *_left_out(old, new, counting), *_too_large(old, new, operations_by_id)]
    step = step_of_profiles(old.profiles, new.profiles) if kind == Profile.Kind.TRACE else None
    operations = operation_rows(*launches, operations_by_id.values(), old_units, new_units) if operations_by_id else []
    return KernelComparison(old, new, str(kind), [str(kind) for kind in kinds], per, result, notes, counters, facts, whys, step,
                            operations)


def _pick_side(query: Mapping[str, str], which: str) -> ComparisonSide:
    build = query.get(f"build_{which}", "").strip()
    if build:
        ready = list(first_uploads(build_profiles(build)))
        if not ready:
            raise TraceError(f"build_{which}", f"no ready profile of build {build}", "choose a build that has profiles")
        return ComparisonSide(build, ready, build)
    text = query.get(which, "").strip()
    ids = [int(part) for part in text.split(",") if part.isdecimal() and len(part) < 19]
    ready = list(Profile.objects.filter(pk__in=ids, status=Profile.Status.READY))
    if not ids or len(ready) != len(set(ids)):
        raise TraceError(which, f"no ready profile {text}" if text else f"no profile given for {which}",
                         "give the ids of two ready profiles, or two builds")
    label = ready[0].name if len(ready) == 1 else f"{len(ready)} profiles"
    builds = {profile.build for profile in ready}
    return ComparisonSide(label, ready, builds.pop() if len(builds) == 1 else "")


def _units(asked: str, old: ComparisonSide, new: ComparisonSide) -> tuple[str, float, float]:
    """By what totals are divided: steps when they differ (or are asked for), runs when their number differs."""
    steps = (old.steps, new.steps)
    if steps[0] and steps[1] and (asked == "step" or (asked not in PER and steps[0] != steps[1])):
        return "step", steps[0], steps[1]
    if asked == "run" or (asked not in PER and len(old.profiles) != len(new.profiles)):
        return "run", len(old.profiles), len(new.profiles)
    return "total", 1, 1


def _steady(old: ComparisonSide, new: ComparisonSide) -> dict[int, Steady]:
    """By profile; empty where not every profile of both sides says which of its steps count."""
    by_profile = {profile.pk: steady(profile) for side in (old, new) for profile in side.profiles}
    steady_by_id = {pk: entry for pk, entry in by_profile.items() if entry is not None and entry.steps}
    return steady_by_id if len(steady_by_id) == len(by_profile) else {}


def _left_out(old: ComparisonSide, new: ComparisonSide, counting: Mapping[int, Steady]) -> list[str]:
    counts = [(side.label, sum(counting[p.pk].left_out for p in side.profiles if p.pk in counting)) for side in (old, new)]
    words = [f"{count} of {label}" for label, count in counts if count]
    return [f"Steps that compile, warm up or hold no GPU work are left out: {', '.join(words)}."] if words else []


def _too_large(old: ComparisonSide, new: ComparisonSide, operations: Mapping[int, LaunchOperations | None]) -> list[str]:
    unknown = {p.pk: p for side in (old, new) for p in side.profiles if p.pk in operations and operations[p.pk] is None}
    return [text for p in unknown.values() if (text := too_large_text(p))]


def _launches(side: ComparisonSide, counting: Mapping[int, Steady], operations: Mapping[int, LaunchOperations | None]) -> pa.Table:
    tables = []
    for number, profile in enumerate(side.profiles):
        table = launches_read(profile.pk)
        if profile.pk in counting:
            inside = counting[profile.pk].launches
            table = table.filter(pa.array(inside[np.minimum(table["index"].to_numpy(), inside.size - 1)]))
        position = table["index"].to_numpy()
        table = table.append_column("problem", problems(profile, position))
        table = with_operations(table, operations[profile.pk], position) if profile.pk in operations else table
        index = pc.add(table["index"], pa.scalar(number * _RUN, pa.int64()))
        tables.append(table.set_column(table.schema.get_field_index("index"), "index", index))
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def _whys(old: ComparisonSide, new: ComparisonSide, result: Comparison) -> dict[int, Why]:
    """Why each row changed, of those that changed most."""
    rows = [(at, row) for at, row in enumerate(result.rows) if row.old and row.new and row.verdict != "unchanged"][:EXPLAINED]
    sides: list[dict[int, dict[str, float]]] = []
    for side, name in ((old, "old"), (new, "new")):
        indexes = {index for _, row in rows for index in getattr(row, name).indexes[:_LAUNCHES]}
        sides.append({place * _RUN + launch: metrics for place, profile in enumerate(side.profiles)
                      for launch, metrics in metrics_by_name(
                          profile.pk, WANTED, [index - place * _RUN for index in indexes if index // _RUN == place]).items()})
    whys = {}
    for number, row in rows:
        a, b = ([side[index] for index in getattr(row, name).indexes[:_LAUNCHES] if index in side]
                for side, name in zip(sides, ("old", "new"), strict=True))
        reason = why(a, b)
        if reason is not None:
            whys[number] = reason
    return whys


def _facts(old: ComparisonSide, new: ComparisonSide, result: Comparison) -> dict[int, Any]:
    """Facts of the launches behind each row that has both sides."""
    by_old, by_new = _facts_by_position(old), _facts_by_position(new)
    return {number: ([by_old[index] for index in row.old.indexes if index in by_old],
                     [by_new[index] for index in row.new.indexes if index in by_new])
            for number, row in enumerate(result.rows) if row.old and row.new}


def _facts_by_position(side: ComparisonSide) -> dict[int, Mapping[str, Any]]:
    position_by_id = {profile.pk: position for position, profile in enumerate(side.profiles)}
    rows = LaunchCounters.objects.filter(profile__in=position_by_id, incomplete="").values_list("profile_id", "index", "facts")
    return {position_by_id[profile_id] * _RUN + index: facts for profile_id, index, facts in rows}


def _notes(old: ComparisonSide, new: ComparisonSide, per: str) -> list[str]:
    notes = []
    if per == "step":
        notes.append(f"Times are per step: {old.label} has {old.steps} steps, {new.label} has {new.steps}; "
                     "a kernel is in the step that launched it.")
    if per == "run" and max(len(old.profiles), len(new.profiles)) > 1:
        notes.append(f"Times are per profile: {old.label} has {len(old.profiles)}, {new.label} has {len(new.profiles)}.")
    if per == "total" and (old.steps or 0) != (new.steps or 0) and old.steps and new.steps:
        notes.append(f"{old.label} has {old.steps} steps and {new.label} has {new.steps}: launch counts differ for that "
                     "reason alone.")
    if {p.pk for p in old.profiles} & {p.pk for p in new.profiles}:
        notes.append("Both sides hold the same profile.")
    return notes


def _flat(row: Row) -> dict[str, Any]:
    flat = {name: getattr(row, name) for name in COLUMNS if hasattr(row, name)}
    for which, side in (("old", row.old), ("new", row.new)):
        flat |= {f"{which}_launches": side.launches if side else 0, f"{which}_mean_ns": side.mean_ns if side else None,
                 f"{which}_grid": list(side.grid) if side and side.grid else None,
                 f"{which}_block": list(side.block) if side and side.block else None,
                 f"{which}_registers": side.registers_per_thread if side else None, f"{which}_name": side.name if side else None}
    return flat
