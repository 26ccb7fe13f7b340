"""Two profiles or two builds, put side by side: which profiles, their launches, their counters."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from django.db.models import Count, Min, QuerySet, Sum

from profiles.analysis.compare import Comparison, CounterChange, Row, Side, compare, counter_changes
from profiles.models import KernelStat, LaunchCounters, Profile
from profiles.selectors.lists import build_profiles
from profiles.store.launches import launches_read
from profiles.trace import TraceError

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
COLUMNS = ("kernel", "shape", "verdict", "old_total_ns", "new_total_ns", "delta_ns", "from_launches_ns", "from_duration_ns",
           "change_pct", "noise_pct", "old_launches", "new_launches", "old_mean_ns", "new_mean_ns", "old_grid", "new_grid",
           "old_block", "new_block", "old_registers", "new_registers", "matched", "old_name", "new_name")


@dataclass(frozen=True)
class SidePicked:
    """One side: what was asked for and the ready profiles it stands for."""

    label: str
    profiles: Sequence[Profile]
    build: str = ""

    @property
    def gpus(self) -> set[str]:
        return {profile.gpu for profile in self.profiles if profile.gpu}

    @property
    def steps(self) -> int | None:
        known = [profile.steps for profile in self.profiles]
        return sum(step for step in known if step) if known and all(known) else None

    def as_json(self) -> dict[str, Any]:
        return {"label": self.label, "build": self.build, "gpus": sorted(self.gpus), "steps": self.steps,
                "profiles": [{"id": profile.pk, "name": profile.name, "build": profile.build} for profile in self.profiles]}


@dataclass(frozen=True)
class Compared:
    """The comparison with everything a page says about it."""

    old: SidePicked
    new: SidePicked
    kind: str
    kinds: Sequence[str]                       # that both sides have
    per: str                                   # "total" | "run" | "step"
    result: Comparison
    notes: Sequence[str] = field(default=())
    counters: dict[int, list[CounterChange]] = field(default_factory=dict)    # by position of the row
    facts: dict[int, tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]] = field(default_factory=dict)

    @property
    def sides(self) -> tuple[SidePicked, SidePicked]:
        return self.old, self.new

    @property
    def identity(self) -> str:
        """The same for the same comparison of the same profiles, as long as none of them is read again or renamed."""
        sides = [[side.label, *((p.pk, p.attempts, p.sha256) for p in side.profiles)] for side in self.sides]
        return hashlib.sha256(repr([sides, self.kind, self.per]).encode()).hexdigest()

    @property
    def recorded(self) -> list[str]:
        return sorted({p.recorded for side in self.sides for p in side.profiles if p.recorded})

    @property
    def comparable(self) -> bool:
        """Times of different GPUs say nothing about a build."""
        return not (self.old.gpus and self.new.gpus) or self.old.gpus == self.new.gpus

    def as_json(self) -> dict[str, Any]:
        return {
            "a": self.old.as_json(), "b": self.new.as_json(), "kind": self.kind, "kinds": list(self.kinds), "per": self.per,
            "comparable": self.comparable, "notes": list(self.notes), "old_total_ns": self.result.old_total_ns,
            "new_total_ns": self.result.new_total_ns, "delta_ns": self.result.delta_ns, "verdicts": self.result.verdicts(),
            "rows": [{**row.as_json(), "counters": [vars(change) for change in self.counters.get(at, [])]}
                     for at, row in enumerate(self.result.rows)],
        }

    def table(self) -> list[dict[str, Any]]:
        return [_flat(row) for row in self.result.rows]


def comparison(query: Mapping[str, str]) -> Compared:
    """`a`, `b` (profile ids) or `build_a`, `build_b`; `kind`, `per`. TraceError says what is wrong with the question."""
    old, new = _picked(query, "a"), _picked(query, "b")
    kinds = [kind for kind in KINDS if all(any(p.kind == kind for p in side.profiles) for side in (old, new))]
    if not kinds:
        raise TraceError("a, b", "one side has only traces and the other only counters, or one has only sums",
                         "compare traces with traces and counter reports with counter reports")
    kind = query.get("kind") if query.get("kind") in kinds else kinds[0]
    old, new = (SidePicked(side.label, [p for p in side.profiles if p.kind == kind], side.build) for side in (old, new))
    per, old_units, new_units = _units(query.get("per", ""), old, new)
    result = compare(_launches(old), _launches(new), old_units=old_units, new_units=new_units)
    facts = _facts(old, new, result) if kind == Profile.Kind.COUNTERS else {}
    counters = {at: counter_changes(*pair, COUNTERS) for at, pair in facts.items()}
    return Compared(old, new, str(kind), [str(each) for each in kinds], per, result, _notes(old, new, per), counters, facts)


def _picked(query: Mapping[str, str], which: str) -> SidePicked:
    build = query.get(f"build_{which}", "").strip()
    if build:
        found = list(build_profiles(build))
        if not found:
            raise TraceError(f"build_{which}", f"no ready profile of build {build}", "choose a build that has profiles")
        return SidePicked(build, found, build)
    text = query.get(which, "").strip()
    ids = [int(part) for part in text.split(",") if part.isdecimal() and len(part) < 19]
    found = list(Profile.objects.filter(pk__in=ids, status=Profile.Status.READY))
    if not ids or len(found) != len(set(ids)):
        raise TraceError(which, f"no ready profile {text}" if text else f"no profile given for {which}",
                         "give the ids of two ready profiles, or two builds")
    label = found[0].name if len(found) == 1 else f"{len(found)} profiles"
    builds = {profile.build for profile in found}
    return SidePicked(label, found, builds.pop() if len(builds) == 1 else "")


def _units(asked: str, old: SidePicked, new: SidePicked) -> tuple[str, float, float]:
    """By what totals are divided: steps when they differ (or are asked for), runs when their number differs."""
    steps = (old.steps, new.steps)
    if steps[0] and steps[1] and (asked == "step" or (asked not in PER and steps[0] != steps[1])):
        return "step", steps[0], steps[1]
    if asked == "run" or (asked not in PER and len(old.profiles) != len(new.profiles)):
        return "run", len(old.profiles), len(new.profiles)
    return "total", 1, 1


def _launches(side: SidePicked) -> pa.Table:
    tables = []
    for at, profile in enumerate(side.profiles):
        table = launches_read(profile.pk)
        index = pc.add(table["index"], pa.scalar(at * _RUN, pa.int64()))
        tables.append(table.set_column(table.schema.get_field_index("index"), "index", index))
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def _facts(old: SidePicked, new: SidePicked, result: Comparison) -> dict[int, Any]:
    """Facts of the launches behind each row that has both sides."""
    by_old, by_new = _facts_by_position(old), _facts_by_position(new)
    return {at: ([by_old[index] for index in row.old.indexes if index in by_old],
                 [by_new[index] for index in row.new.indexes if index in by_new])
            for at, row in enumerate(result.rows) if row.old and row.new}


def _facts_by_position(side: SidePicked) -> dict[int, Mapping[str, Any]]:
    at = {profile.pk: position for position, profile in enumerate(side.profiles)}
    rows = LaunchCounters.objects.filter(profile__in=at, incomplete="").values_list("profile_id", "index", "facts")
    return {at[profile_id] * _RUN + index: facts for profile_id, index, facts in rows}


def _notes(old: SidePicked, new: SidePicked, per: str) -> list[str]:
    notes = []
    if per == "step":
        notes.append(f"Times are per step: {old.label} has {old.steps} steps, {new.label} has {new.steps}.")
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


SIGNS = {"slower": "▲", "faster": "▼", "new": "+", "gone": "−", "unchanged": "=", "unknown": "?"}


@dataclass(frozen=True)
class Line:
    """A row of the compare table with its counters."""

    row: Row
    counters: list[CounterChange]
    old_kernel: int | None          # KernelStat ids, to link to
    new_kernel: int | None
    old_profile: int | None
    new_profile: int | None

    @property
    def sign(self) -> str:
        return SIGNS[self.row.verdict]

    @property
    def full_name(self) -> str:
        side = self.row.new or self.row.old
        return side.name if side else self.row.kernel

    @property
    def launches_text(self) -> str:
        """"3", or "3 → 6" where they differ."""
        old, new = (f"{side.launches:,}" if side else "0" for side in (self.row.old, self.row.new))
        return old if old == new else f"{old} → {new}"

    @property
    def shape_text(self) -> str:
        """"512 / 256 / 204 → 4096 / 128 / 64": grid, block, registers; once where both sides agree."""
        texts = [_shape_text(side) if side else "—" for side in (self.row.old, self.row.new)]
        return texts[0] if texts[0] == texts[1] else " → ".join(texts)

    @property
    def counter_cells(self) -> list[CounterChange | None]:
        """By column of COUNTERS; empty where the row has none."""
        by_name = {change.name: change for change in self.counters}
        return [by_name.get(name) for _, name, _ in COUNTERS] if by_name else []


def _shape_text(side: Side) -> str:
    def size(dims: tuple[int, int, int] | None) -> str:
        if dims is None:
            return "—"
        return "×".join(str(dim) for dim in dims).removesuffix("×1").removesuffix("×1")

    registers = "—" if side.registers_per_thread is None else str(side.registers_per_thread)
    return f"{size(side.grid)} / {size(side.block)} / {registers}"


def rows(compared: Compared) -> list[Line]:
    old, new = _kernel_ids(compared.old), _kernel_ids(compared.new)
    lines = []
    for at, row in enumerate(compared.result.rows):
        a = old.get(row.old.name, (None, None)) if row.old else (None, None)
        b = new.get(row.new.name, (None, None)) if row.new else (None, None)
        lines.append(Line(row, compared.counters.get(at, []), a[0], b[0], a[1], b[1]))
    return lines


def _kernel_ids(side: SidePicked) -> dict[str, tuple[int, int]]:
    """Kernel name -> (KernelStat id, profile id) in the newest profile that has it."""
    found = KernelStat.objects.filter(profile__in=[profile.pk for profile in side.profiles]).order_by("profile_id")
    return {name: (pk, profile_id) for name, pk, profile_id in found.values_list("name", "pk", "profile_id")}


def choices() -> dict[str, Any]:
    """What can be put side by side: ready profiles (newest first) and builds."""
    ready = Profile.objects.filter(status=Profile.Status.READY).exclude(kind=Profile.Kind.UNKNOWN)
    return {"profiles": list(ready[:500]), "builds": list(
        ready.exclude(build="").order_by("build").values_list("build", flat=True).distinct()[:500])}


@dataclass(frozen=True)
class Answer:
    """The sentence at the top, in pieces."""

    direction: str                  # "slower" | "faster" | "unchanged"
    delta_ns: float
    delta_pct: float | None
    from_launches_ns: float
    from_duration_ns: float
    verdicts: dict[str, int]
    worst: Row | None               # largest of those that changed beyond noise
    best: Row | None

    @property
    def size_ns(self) -> float:
        return abs(self.delta_ns)

    @property
    def sign(self) -> str:
        return "+" if (self.delta_pct or 0) > 0 else ""

    @property
    def counts(self) -> str:
        """"3 kernels slower, 1 faster, 1 unchanged"."""
        words = {"slower": "slower", "faster": "faster", "unchanged": "within the noise", "unknown": "cannot be told",
                 "new": "new", "gone": "gone"}
        parts = [f"{count} {words[verdict]}" for verdict, count in self.verdicts.items() if count]
        if not parts:
            return "No kernel ran on either side"
        first, *rest = parts
        number, word = first.split(" ", 1)
        return ", ".join([f"{number} kernel{'' if number == '1' else 's'} {word}", *rest])


def answer(compared: Compared) -> Answer:
    found = compared.result
    slower = [row for row in found.rows if row.verdict == "slower"]
    faster = [row for row in found.rows if row.verdict == "faster"]
    changed = slower or faster or any(row.verdict in ("new", "gone", "unknown") for row in found.rows)
    direction = "unchanged" if not found.delta_ns or not changed else "slower" if found.delta_ns > 0 else "faster"
    return Answer(
        direction, found.delta_ns, 100 * found.delta_ns / found.old_total_ns if found.old_total_ns else None,
        sum(row.from_launches_ns for row in found.rows), sum(row.from_duration_ns for row in found.rows),
        found.verdicts(), max(slower, key=lambda row: row.delta_ns, default=None),
        min(faster, key=lambda row: row.delta_ns, default=None))


@dataclass(frozen=True)
class HeatCell:
    """Mean duration of a kernel's launches in one build, and its change against the build before."""

    mean_ns: float | None
    launches: int = 0
    change_pct: float | None = None

    @property
    def css(self) -> str:
        """"slower-2" … "faster-3": strength of the change, for a class."""
        if self.change_pct is None or abs(self.change_pct) < 1:
            return ""
        strength = 1 + (abs(self.change_pct) >= 5) + (abs(self.change_pct) >= 20)
        return f"{'slower' if self.change_pct > 0 else 'faster'}-{strength}"


@dataclass(frozen=True)
class Heat:
    """Kernels × builds, oldest build left, kernels by time."""

    kind: str
    gpu: str
    builds: list[str]
    rows: list[tuple[str, list[HeatCell]]]


HEAT_BUILDS, HEAT_KERNELS = 8, 15


def build_heat(kind: str = "", gpu: str = "") -> Heat | None:
    """The last builds of one kind and GPU with the kernels that take most time in them; None with fewer than two."""
    ready = Profile.objects.filter(status=Profile.Status.READY).exclude(build="")
    for each in ([kind] if kind in KINDS else KINDS):
        of_kind = ready.filter(kind=each)
        gpus = [gpu] if gpu else list(of_kind.order_by().values_list("gpu", flat=True).annotate(
            builds=Count("build", distinct=True)).filter(builds__gte=2).order_by("-builds"))
        if gpus:
            return _heat(str(each), gpus[0], of_kind.filter(gpu=gpus[0]))
    return None


def _heat(kind: str, gpu: str, profiles: QuerySet[Profile]) -> Heat | None:
    newest = profiles.order_by().values("build").annotate(first=Min("created")).order_by("-first")[:HEAT_BUILDS]
    builds = [row["build"] for row in newest][::-1]
    stats = (KernelStat.objects.filter(profile__in=profiles.filter(build__in=builds))
             .values("short_name", "profile__build").annotate(total=Sum("total_ns"), count=Sum("launches")).order_by())
    means: dict[str, dict[str, tuple[float, int]]] = {}
    totals: dict[str, float] = {}
    for row in stats:
        name, total = row["short_name"], float(row["total"])
        means.setdefault(name, {})[row["profile__build"]] = (total / row["count"] if row["count"] else 0.0, row["count"])
        totals[name] = totals.get(name, 0.0) + total
    chosen = sorted(totals, key=lambda name: -totals[name])[:HEAT_KERNELS]
    return Heat(kind, gpu, builds, [(name, _heat_cells(means[name], builds)) for name in chosen])


def _heat_cells(means: Mapping[str, tuple[float, int]], builds: Sequence[str]) -> list[HeatCell]:
    cells, before = [], None
    for build in builds:
        mean_ns, launches = means.get(build, (None, 0))
        change = 100 * (mean_ns / before - 1) if mean_ns is not None and before else None
        cells.append(HeatCell(mean_ns, launches, change))
        before = mean_ns or before
    return cells
