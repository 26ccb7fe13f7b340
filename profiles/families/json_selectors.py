"""One family for programs: the same reads as its page."""

from __future__ import annotations

from typing import Any, TypedDict

from django.urls import reverse

from profiles.advice.selectors import DecisionJson, decision_json
from profiles.analysis.kernel.advising.advice import Advice
from profiles.base.answers import make_answer, plain
from profiles.families.page_selectors import FamilyBuildJson, KernelName, MoreShapes, ShapeLine, builds, counted_once, family_page
from profiles.families.selectors import Actions, Line, Ranking
from profiles.models import BuildChange, FamilyEdit, KernelFamily, KernelStat, Profile
from workers.scope import account_name


class FamilyLineJson(TypedDict):
    """A family of all profiles: its time, what counters say of it, where to go. Shares of roofs are 0-100; null is unknown."""

    family: int
    name: str
    function: str
    op: str
    dtype: str
    category: str
    total_ns: float
    launches: int
    share_pct: float
    profiles: int
    builds: list[str]
    gpus: dict[str, float]          # model → time
    known_ns: float
    recoverable_ns: float | None
    expected_ns: float | None
    expected_low_ns: float | None
    expected_high_ns: float | None
    estimated_ns: float
    estimate_ns: float | None
    unknown_ns: float
    basis: str
    basis_text: str
    at_most_ns: float | None
    roof_pct: float | None
    shapes_roof_pct: float | None
    roof_side: str
    rule_ns: float | None
    rule: str
    why: str
    url: str
    actions: Actions


class RankingJson(TypedDict):
    """Families with most to win back first; `count`: of all."""

    kind: str
    total_ns: float
    known_ns: float
    recoverable_ns: float | None
    estimated_ns: float
    estimate_ns: float | None
    count: int
    families: list[FamilyLineJson]


def line_json(line: Line) -> FamilyLineJson:
    worth = line.worth
    return {
        "family": line.family.pk, "name": line.name, "function": line.family.function, "op": line.family.op,
        "dtype": line.family.dtype, "category": worth.category, "total_ns": worth.total_ns, "launches": worth.launches,
        "share_pct": line.share_pct, "profiles": line.profiles, "builds": list(line.builds), "gpus": worth.gpus,
        "known_ns": worth.known_ns, "recoverable_ns": worth.recoverable_ns,
        "expected_ns": worth.expected_ns, "expected_low_ns": worth.interval_ns[0] if worth.interval_ns else None,
        "expected_high_ns": worth.interval_ns[1] if worth.interval_ns else None, "estimated_ns": worth.estimated_ns,
        "estimate_ns": worth.estimate_ns, "unknown_ns": worth.unknown_ns, "basis": worth.basis, "basis_text": line.basis,
        "at_most_ns": worth.at_most_ns, "roof_pct": worth.roof_pct, "shapes_roof_pct": worth.shapes_roof_pct,
        "roof_side": worth.side, "rule_ns": worth.rule_ns, "rule": worth.rule,
        "why": line.why, "url": reverse("family", args=[line.family.pk]), "actions": plain(line.actions),
    }


def ranking_json(ranked: Ranking, limit: int) -> RankingJson:
    return {"kind": ranked.kind, "total_ns": ranked.total_ns, "known_ns": ranked.known_ns, "recoverable_ns": ranked.recoverable_ns,
            "estimated_ns": ranked.estimated_ns, "estimate_ns": ranked.estimate_ns, "count": ranked.count,
            "families": [line_json(line) for line in ranked.lines[:limit]]}


class LongestJson(TypedDict):
    """The longest launch of a shape: its profile, its number there, and its slice on the timeline."""

    profile: int
    index: int | None
    slice: int | None


class FamilyShapeJson(TypedDict):
    """Launches of one grid and block; of several profiles the quantiles are exact where both ends of their range are one."""

    kind: str
    gpu: str
    grid: str
    block: str
    shapes: int
    threads_bucket: int | None
    launches: int
    total_ns: int
    mean_ns: float
    min_ns: int
    max_ns: int
    p50_ns: float | None
    p95_ns: float | None
    p50_range_ns: tuple[float, float] | None
    p95_range_ns: tuple[float, float] | None
    build: str
    share_pct: float
    builds: list[str]
    profiles: int
    operator: str
    dims: str
    dtype: str
    roof_pct: float | None
    longest: LongestJson
    actions: Actions


class FamilyRunJson(TypedDict):
    """A kernel of the family in one profile; `same_as`: a profile that holds the same bytes."""

    profile: int
    name: str
    build: str
    gpu: str
    kind: str
    kernel: int
    launches: int
    total_ns: int | None
    mean_ns: float | None
    p50_ns: float | None
    p95_ns: float | None
    share_pct: float | None
    same_as: int | None


class FamilyFindingJson(TypedDict):
    profile: int
    rule: str
    severity: str
    title: str
    advice: str
    worth_ns: float | None


class BuildChangeJson(TypedDict):
    """A kernel's shape that the new build made slower or faster."""

    old_build: str
    new_build: str
    name: str
    shape: str
    verdict: str
    old_mean_ns: float
    new_mean_ns: float
    old_launches: int
    new_launches: int
    delta_ns: float
    change_pct: float
    noise_pct: float | None
    why: str


class FamilyEditJson(TypedDict):
    """What a person changed about families; `before` and `after`: its name."""

    id: int
    kind: str
    family: int
    other: int | None
    author: str | None
    created: str
    undone: str | None
    before: str | None
    after: str | None
    names: list[str]


class FamilyNoteJson(TypedDict):
    id: int
    author: str | None
    created: str
    text: str


class FamilyJson(TypedDict):
    """Everything known about one family."""

    family: int
    name: str
    function: str
    op: str
    dtype: str
    merged_into: int | None
    answer: str
    worth: FamilyLineJson | None
    shapes: list[FamilyShapeJson]
    more_shapes: MoreShapes | None
    builds: list[FamilyBuildJson]
    profiles: list[FamilyRunJson]
    changes: list[BuildChangeJson]
    advice: list[Advice]
    decisions: list[DecisionJson]
    findings: list[FamilyFindingJson]
    names: list[KernelName]
    edits: list[FamilyEditJson]
    notes: list[FamilyNoteJson]


def family_json(family: KernelFamily) -> FamilyJson:
    """The page for programs."""
    page = family_page(family)
    stats = counted_once(KernelStat.objects.filter(family=family, profile__status=Profile.Status.READY))
    return {
        "family": family.pk, "name": family.name, "function": family.function, "op": family.op, "dtype": family.dtype,
        "merged_into": family.merged_into_id, "answer": page["answer"], "worth": line_json(page["line"]) if page["line"] else None,
        "shapes": [shape_json(line) for line in page["shapes"]],
        "more_shapes": plain(page["more_shapes"]), "builds": builds(stats),
        "profiles": [{"profile": run.profile.pk, "name": run.profile.name, "build": run.profile.build, "gpu": run.profile.gpu,
                      "kind": run.profile.kind, "kernel": run.stat.pk, "launches": run.launches, "total_ns": run.total_ns,
                      "mean_ns": run.mean_ns, "p50_ns": run.p50_ns, "p95_ns": run.p95_ns, "share_pct": run.share_pct,
                      "same_as": run.same_as.pk if run.same_as else None}
                     for run in page["runs"]],
        "changes": [change_json(change) for change in page["changes"]],
        "advice": plain([line.advice for line in page["advice"]]),
        "decisions": [decision_json(decision) for decision in page["decisions"]],
        "findings": [{"profile": finding.profile_id, "rule": finding.rule, "severity": finding.severity, "title": finding.title,
                      "advice": finding.advice, "worth_ns": finding.worth_ns} for finding in page["findings"]],
        "names": plain(page["members"]), "edits": [edit_json(edit) for edit in page["edits"]],
        "notes": [note_json(note) for note in page["notes"]],
    }


def shape_json(line: ShapeLine) -> FamilyShapeJson:
    row = line.shape
    return {
        "kind": row.kernel.profile.kind, "gpu": row.kernel.profile.gpu, "grid": row.grid, "block": row.block, "shapes": row.shapes,
        "threads_bucket": line.threads, "launches": line.launches, "total_ns": line.total_ns, "mean_ns": line.mean_ns,
        "min_ns": line.min_ns, "max_ns": line.max_ns,
        "p50_ns": _exact(line.p50_ns), "p95_ns": _exact(line.p95_ns), "p50_range_ns": line.p50_ns, "p95_range_ns": line.p95_ns,
        "build": row.kernel.profile.build, "share_pct": line.share_pct, "builds": line.builds, "profiles": line.profiles,
        "operator": row.operator, "dims": row.dims, "dtype": row.dtype, "roof_pct": line.roof_pct,
        "longest": {"profile": row.kernel.profile_id, "index": row.index, "slice": row.slice_id}, "actions": plain(line.actions)}


def _exact(ends: tuple[float, float] | None) -> float | None:
    """A quantile that is known, not only between which two numbers it lies."""
    return ends[0] if ends and ends[0] == ends[1] else None


def change_json(change: BuildChange) -> BuildChangeJson:
    return make_answer(BuildChangeJson, change, old_build=change.pair.old_build, new_build=change.pair.new_build)


def edit_json(edit: FamilyEdit) -> FamilyEditJson:
    return make_answer(
        FamilyEditJson, edit, family=edit.family_id, other=edit.other_id, author=account_name(edit.author),
        before=edit.changes.get("before"), after=edit.changes.get("after"), names=edit.changes.get("names", []))


def note_json(note: Any) -> FamilyNoteJson:
    return make_answer(FamilyNoteJson, note, author=account_name(note.author))
