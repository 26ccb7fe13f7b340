"""Everything known about one family: what it costs, its shapes, builds, profiles, counters, rules, members, history, notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from django.db.models import Count, Exists, Max, Min, OuterRef, QuerySet, Sum

from profiles.advice.selectors import advice_lines, of_family
from profiles.analysis.core.result import SEVERITIES
from profiles.analysis.core.sentences import pct_of, pct_text, plural, time_text
from profiles.families.kept_selectors import TIMED, cached_answer, timed_launches
from profiles.families.selectors import UNREAD, Actions, Line, estimate_text, ranking, shape_actions
from profiles.models import (
    AdviceDecision,
    BuildChange,
    FamilyEdit,
    Finding,
    KernelFamily,
    KernelShape,
    KernelStat,
    Profile,
    first_uploads,
    held_by,
)
from profiles.rows import text as clean

SHAPES, RUNS, NAMES, FINDINGS, ADVICE, OFFERED = 60, 100, 200, 8, 6, 2_000
_ALL = {"trace": "traces", "counters": "counter reports", "summary": "files of sums"}
_KIND = {"trace": "trace", "counters": "counter report", "summary": "file of sums"}


@dataclass(frozen=True)
class ShapeLine:
    """Launches of one grid, block and problem on one GPU in one build: the level between family and launch.

    `p50_ns` and `p95_ns` are (low, high): the quantile of all launches together lies between those of its profiles, and is
    exact where one profile has them all. None: not kept yet.
    """

    shape: KernelShape          # the profile's row of most time: operator, dims and the longest launch are its
    builds: list[str]
    profiles: int
    launches: int
    total_ns: int
    min_ns: int
    max_ns: int
    p50_ns: tuple[float, float] | None
    p95_ns: tuple[float, float] | None
    share_pct: float
    roof_pct: float | None
    actions: Actions

    @property
    def mean_ns(self) -> float:
        return self.total_ns / self.launches

    @property
    def threads(self) -> int | None:
        return None if self.shape.bucket is None else 1 << self.shape.bucket


@dataclass(frozen=True)
class Run:
    """The family in one profile."""

    profile: Profile
    stat: KernelStat            # its kernel of most time there
    names: int
    launches: int
    timed: int                  # of them, those whose time is known
    total_ns: int
    p50_ns: float | None        # where one kernel is all of the family there
    p95_ns: float | None
    share_pct: float
    same_as: Profile | None = None      # an older profile of the same bytes, or a job that has them: then this one is in no sum

    @property
    def mean_ns(self) -> float | None:
        return self.total_ns / self.timed if self.timed else None


@dataclass(frozen=True)
class KernelName:
    """A kernel of the family by its full name."""

    name: str
    profiles: int
    launches: int
    total_ns: int


def family_page(family: KernelFamily) -> dict[str, Any]:
    """Return what the page, the API and the JSON of a family show.

    Times of traces first; where none has the family, of counter reports, of sums.
    """
    every = KernelStat.objects.filter(family=family, profile__status=Profile.Status.READY)
    stats = counted_once(every)
    kinds = set(stats.order_by().values_list("profile__kind", flat=True).distinct())
    kind = next((str(each) for each in (Profile.Kind.TRACE, Profile.Kind.COUNTERS, Profile.Kind.SUMMARY) if each in kinds), "")
    line = family_line(family, kind) if kind else None
    runs, counted = _runs(every), _counter_reports(stats)
    shapes, more_shapes = _shapes(stats)
    return {
        "family": family, "kind": kind, "kind_word": _KIND.get(kind, ""), "line": line, "runs": runs,
        "runs_more": max(0, every.values("profile").distinct().count() - len(runs)),
        "runs_again": sum(bool(run.same_as) for run in runs),
        "answer": _answer(family, kind, line, runs), "shapes": shapes, "more_shapes": more_shapes, "counted": counted,
        "advice": advice_lines(counted[0])[:ADVICE] if counted else [], "decisions": list(_decisions(family)[:ADVICE]),
        "findings": [] if counted else _findings(stats),
        "changes": list(BuildChange.objects.filter(kernel__family=family).select_related("pair", "kernel")[:20]),
        "members": _members(stats), "edits": edit_lines(family), "merged": list(family.merged.all()[:20]),
        "notes": list(family.notes.select_related("author")),
    }


def counted_once(stats: QuerySet[KernelStat]) -> QuerySet[KernelStat]:
    """Return the kernels of profiles that count: of the same bytes uploaded twice the older one's."""
    return stats.filter(profile__in=first_uploads(Profile.objects.filter(status=Profile.Status.READY)).order_by().values("pk"))


def family_line(family: KernelFamily, kind: str) -> Line | None:
    """Its line of the ranking, with its share of all time of that kind."""
    return next(iter(ranking({"kind": kind}, only=family.pk).lines), None)


def _runs(stats: QuerySet[KernelStat]) -> list[Run]:
    """Newest profile first; one of the same bytes as an older profile names that."""
    groups: dict[int, list[KernelStat]] = {}
    rows = stats.select_related("profile").defer(*(name[8:] for name in UNREAD))
    for stat in rows.order_by("-profile__created", "-profile_id", "-total_ns")[:RUNS * 20]:
        groups.setdefault(stat.profile_id, []).append(stat)
    shown = list(groups.values())[:RUNS]
    oldest: dict[str, Profile] = {}
    hashes = {group[0].profile.sha256 for group in shown} - {""}
    for profile in (Profile.objects.filter(status=Profile.Status.READY, sha256__in=hashes).order_by("-pk")
                    .defer(*(name[17:] for name in UNREAD))):
        oldest[profile.sha256] = profile
    again = dict(held_by(Profile.objects.filter(status=Profile.Status.READY)).filter(
        held__in=[group[0].profile_id for group in shown]).order_by("-holder").values_list("held", "holder"))
    holders = Profile.objects.defer(*(name[17:] for name in UNREAD)).in_bulk(set(again.values()))
    return [_run(group, holders.get(again.get(group[0].profile_id, 0)) or oldest.get(group[0].profile.sha256)) for group in shown]


def _run(group: Sequence[KernelStat], oldest: Profile | None) -> Run:
    alone = group[0] if len(group) == 1 else None
    again = oldest if oldest is not None and oldest.pk != group[0].profile_id else None
    return Run(group[0].profile, group[0], len(group), sum(stat.launches for stat in group), sum(map(timed_launches, group)),
               sum(stat.total_ns or 0 for stat in group), alone.p50_ns if alone else None, alone.p95_ns if alone else None,
               sum(stat.share_pct or 0.0 for stat in group), again)


@dataclass(frozen=True)
class MoreShapes:
    """What the list of shapes leaves out, of the kind that it begins with: so that the rows add up to the kernel's time."""

    count: int
    launches: int
    total_ns: int


def _shapes(stats: QuerySet[KernelStat]) -> tuple[list[ShapeLine], MoreShapes | None]:
    """Most time first, per kind, GPU, build, grid, block and problem; each with what its profile of most time says."""
    mine = KernelShape.objects.filter(kernel__in=stats.order_by().values("pk"))
    rows = list(mine.select_related("kernel__profile", "kernel__family").defer(*UNREAD).order_by("-total_ns")[:5_000])
    groups: dict[tuple[str, ...], list[KernelShape]] = {}
    for row in rows:
        profile = row.kernel.profile
        groups.setdefault((profile.kind, profile.gpu, profile.build, row.grid, row.block, row.operator, row.dims), []).append(row)
    of_kind: dict[str, tuple[int, int]] = {
        row["kernel__profile__kind"]: (int(row["total"] or 0), int(row["count"] or 0))
        for row in mine.order_by().values("kernel__profile__kind").annotate(total=Sum("total_ns"), count=Sum("launches"))}
    lines = [_shape_line(group, of_kind[kind][0]) for (kind, *_), group in groups.items()]
    traces_first = sorted(lines, key=lambda line: (line.shape.kernel.profile.kind != Profile.Kind.TRACE, -line.total_ns))
    shown = traces_first[:SHAPES]
    if not shown:
        return [], None
    kind = shown[0].shape.kernel.profile.kind
    listed = [line for line in shown if line.shape.kernel.profile.kind == kind]
    rest = MoreShapes(sum(line.shape.kernel.profile.kind == kind for line in lines) - len(listed),
                      of_kind[kind][1] - sum(line.launches for line in listed),
                      of_kind[kind][0] - sum(line.total_ns for line in listed))
    return shown, rest if rest.total_ns or rest.launches else None


def _shape_line(group: Sequence[KernelShape], of_ns: int) -> ShapeLine:
    total_ns = sum(row.total_ns for row in group)
    roofs = [(row.roof_pct, row.total_ns) for row in group if row.roof_pct is not None]
    weight = sum(ns for _, ns in roofs)
    return ShapeLine(
        group[0], sorted({row.kernel.profile.build for row in group if row.kernel.profile.build}),
        len({row.kernel.profile_id for row in group}), sum(row.launches for row in group), total_ns,
        min(row.min_ns for row in group), max(row.max_ns for row in group), _range([row.p50_ns for row in group]),
        _range([row.p95_ns for row in group]), pct_of(total_ns, of_ns),
        sum(pct * ns for pct, ns in roofs) / weight if weight else None, shape_actions(group[0]))


def _range(values: Sequence[float | None]) -> tuple[float, float] | None:
    numbers = [value for value in values if value is not None]
    return (min(numbers), max(numbers)) if numbers and len(numbers) == len(values) else None


def _counter_reports(stats: QuerySet[KernelStat]) -> list[KernelStat]:
    """Counter reports that hold it, newest first: one row per kernel, its page has every counter."""
    rows = stats.filter(profile__kind=Profile.Kind.COUNTERS).select_related("profile")
    return list(rows.order_by("-profile__created", "-total_ns")[:8])


def _findings(stats: QuerySet[KernelStat]) -> list[Finding]:
    """Of traces: severity first, then worth; each rule once, of the profile where it is worth most."""
    rows = Finding.objects.filter(kernel__in=stats.order_by().values("pk")).select_related("kernel", "profile")
    ranked = sorted(rows[:500], key=lambda each: (SEVERITIES.index(each.severity), -(each.worth_ns or 0.0), each.pk))
    once: dict[str, Finding] = {}
    for finding in ranked:
        finding.title = finding.title.removeprefix(f"{finding.kernel.short_name}: ") if finding.kernel else finding.title
        once.setdefault(finding.rule, finding)
    return list(once.values())[:FINDINGS]


def _decisions(family: KernelFamily) -> QuerySet[AdviceDecision]:
    """What people decided about its kernels, whatever family they were in then; the newest change first."""
    mine = AdviceDecision.objects.filter(of_family(family.pk))
    return mine.select_related("assignee", "author", "base_profile", "later_profile").order_by("-changed")


def _members(stats: QuerySet[KernelStat]) -> list[KernelName]:
    rows = (stats.order_by().values("name")
            .annotate(n=Count("profile", distinct=True), count=Sum("launches"), total=Sum("total_ns"))
            .order_by("-total", "name")[:NAMES])
    return [KernelName(row["name"], row["n"], int(row["count"]), int(row["total"])) for row in rows]


def _answer(family: KernelFamily, kind: str, line: Line | None, runs: Sequence[Run]) -> str:
    if family.merged_into:
        return f"This kernel is part of `{family.merged_into.name}` now"
    if line is None:
        return "No profile has this kernel any more"
    builds = len({run.profile.build for run in runs if run.profile.build and run.same_as is None and run.profile.kind == kind})
    where = f"{line.profiles:,} {_KIND[kind] if line.profiles == 1 else _ALL[kind]}"
    of_builds = f" of {plural(builds, 'build')}" if builds else ""
    text = f"{time_text(line.worth.total_ns)} in {plural(line.worth.launches, 'launch')} of {where}{of_builds}"
    text += (f": {pct_text(line.share_pct)} of all kernel time in {_ALL[kind]}" if kind == Profile.Kind.TRACE else
             "; no trace holds it, so what jobs spend in it is unknown")
    worth = line.worth
    if worth.recoverable_ns is not None:
        rest_ns = worth.total_ns - worth.known_ns
        part = f"; for the other {time_text(rest_ns)} no counters tell it" if rest_ns > 0.005 * worth.total_ns else ""
        return (f"{text}. It reaches {pct_text(worth.roof_pct or 0.0)} of its own {worth.side} roof, so up to "
                f"{time_text(worth.recoverable_ns)} could be won back{part}")
    if worth.expected_ns is not None:
        return f"{text}. An {estimate_text(worth)}"
    if worth.category == "communication":
        return f"{text}. It moves data between GPUs and waits for the others: no roof tells the two apart"
    return f"{text}. What of it could be won back is unknown: {worth.reason}"


def edit_lines(family: KernelFamily | None = None, limit: int = 50) -> list[FamilyEdit]:
    """Return what people changed, newest first."""
    edits = edit_rows()
    return list((edits.filter(family=family) | edits.filter(other=family) if family else edits)[:limit])


def edit_rows() -> QuerySet[FamilyEdit]:
    return FamilyEdit.objects.select_related("family", "other", "author", "undone_by")


def find_family(text: str) -> KernelFamily | None:
    """Return a family by number, or by the very name where one family alone has it."""
    if text.strip().isdecimal() and len(text.strip()) < 19:
        return KernelFamily.objects.filter(pk=int(text), merged_into=None).first()
    named = list(KernelFamily.objects.filter(name=clean(text.strip()), merged_into=None)[:2])
    return named[0] if len(named) == 1 else None


def merge_candidates(family: KernelFamily) -> list[KernelFamily]:
    """Return what a family could be merged into, those of the same operation first."""
    families = KernelFamily.objects.filter(merged_into=None, stats__isnull=False).exclude(pk=family.pk).distinct()[:OFFERED]
    return sorted(families, key=lambda each: (each.op != family.op, each.name))


def family_choices() -> dict[str, list[str]]:
    """Return what the ranking may be narrowed to beyond what profiles say."""
    there = KernelFamily.objects.filter(Exists(KernelStat.objects.filter(family=OuterRef("pk"))))
    return cached_answer("choices", lambda: {
        name: [value or "unknown" for value in there.order_by(name).values_list(name, flat=True).distinct()]
        for name in ("op", "dtype")})


def series(runs: Sequence[Run]) -> list[Mapping[str, Any]]:
    """Return the points of the chart by build: mean per launch of each profile, oldest first.

    Per GPU and kind. A file that was uploaded twice is one point.
    """
    return [{"when": run.profile.created, "build": run.profile.build, "profile": run.profile.name, "gpu": run.profile.gpu,
             "model": run.profile.model, "kind": run.profile.kind, "mean_ns": run.mean_ns,
             "p50_ns": run.p50_ns, "p95_ns": run.p95_ns, "launches": run.launches}
            for run in reversed(runs) if run.mean_ns and run.same_as is None]


class FamilyBuildJson(TypedDict):
    build: str
    gpu: str
    kind: str
    launches: int
    total_ns: int
    mean_ns: float | None
    last: str


def builds(stats: QuerySet[KernelStat]) -> list[FamilyBuildJson]:
    """Its builds, oldest first: launches, time, mean."""
    rows = (stats.exclude(profile__build="").order_by().values("profile__build", "profile__gpu", "profile__kind")
            .annotate(count=Sum("launches"), timed=Sum(TIMED), total=Sum("total_ns"), first=Min("profile__created"),
                      last=Max("profile__created"))
            .order_by("first"))
    return [{"build": row["profile__build"], "gpu": row["profile__gpu"], "kind": row["profile__kind"],
             "launches": int(row["count"]), "total_ns": int(row["total"]),
             "mean_ns": float(row["total"]) / int(row["timed"]) if row["timed"] else None,
             "last": row["last"].isoformat()} for row in rows]
