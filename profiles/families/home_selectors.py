"""The two lists of the home page, from rows: kernels worth fixing, kernels that got slower."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

from django.urls import reverse
from django.utils.http import urlencode

from profiles.analysis.kernel.worth import MEASURED
from profiles.base.answers import make_answer
from profiles.families.json_selectors import BuildChangeJson, change_json
from profiles.families.selectors import Actions, Line, actions_of, ranking
from profiles.models import BuildChange, BuildPair, Finding, KernelStat, Profile


@dataclass(frozen=True)
class Fix:
    """One line of "worth fixing": the family and what its worst finding says."""

    line: Line
    finding: Finding | None = None

    @property
    def title(self) -> str:
        """Return the title without the kernel's name in front: the line has it."""
        if self.finding is None or self.finding.kernel is None:
            return ""
        return self.finding.title.removeprefix(f"{self.finding.kernel.short_name}: ")


def worth_fixing(limit: int, filters: Mapping[str, str] | None = None) -> list[Fix]:
    """Return families by what is expected to be won back, as `selectors.ranking` orders them.

    Of traces first, then those that only counter reports know. `filters` as `selectors.ranking` takes them.
    """
    scope = filters or {}
    lines = ranking(scope, limit).lines
    if len(lines) < limit:
        family_ids = {line.family.pk for line in lines}
        counted = ranking({**scope, "kind": str(Profile.Kind.COUNTERS)}).lines
        lines = [*lines, *(line for line in counted if line.family.pk not in family_ids)][:limit]
    findings = (Finding.objects.filter(kernel__family__in=[line.family.pk for line in lines], worth_ns__gt=0)
                .select_related("kernel__profile").order_by("kernel__family_id", "-worth_ns", "id").distinct("kernel__family_id"))
    best = {finding.kernel.family_id: finding for finding in findings if finding.kernel}
    return [Fix(line, _of_its_gpu(line, best.get(line.family.pk))) for line in lines]


def _of_its_gpu(line: Line, finding: Finding | None) -> Finding | None:
    """What counters of another GPU or of other shapes say is not about the time that stands in the line."""
    if finding is None or finding.kernel is None or finding.kernel.profile.gpu not in line.worth.gpus:
        return None
    counted = finding.kernel.profile.kind == Profile.Kind.COUNTERS
    return finding if not counted or line.counted_only or line.worth.basis == MEASURED else None


@dataclass(frozen=True)
class Slower:
    """One kernel that a build made slower, and where to go from there."""

    change: BuildChange
    actions: Actions

    @property
    def cause(self) -> str:
        """The largest part of the change; the comparison has them all."""
        return self.change.why.split("; ", 1)[0]

    @property
    def family(self) -> int | None:
        return self.change.kernel.family_id if self.change.kernel else None


@dataclass(frozen=True)
class Pair:
    """Two builds and what changed between them."""

    row: BuildPair
    slower: list[Slower]
    more: int

    @property
    def url(self) -> str:
        return f"{reverse('compare')}?{urlencode({'a': _ids(self.row.old_profiles), 'b': _ids(self.row.new_profiles)})}"


def _ids(profiles: list[int]) -> str:
    return ",".join(map(str, profiles))


def pairs() -> list[BuildPair]:
    """Newest first; one whose profiles are gone is left out until a worker has made it anew."""
    rows = list(BuildPair.objects.prefetch_related("changes__pair"))
    profile_ids = {pk for pair in rows for pk in (*pair.old_profiles, *pair.new_profiles)}
    there = dict(Profile.objects.filter(pk__in=profile_ids).values_list("pk", "created"))
    whole = [pair for pair in rows if all(pk in there for pk in (*pair.old_profiles, *pair.new_profiles))]
    return sorted(whole, key=lambda pair: max((there[pk] for pk in pair.new_profiles), default=pair.made), reverse=True)


def got_slower(limit: int, filters: Mapping[str, str] | None = None) -> list[Pair]:
    """Return kernels that the newest builds made slower beyond their noise.

    Most time first within a pair of builds. Of `filters` model, GPU and build (either of the two) count.
    """
    out = []
    scope = filters or {}
    for pair in pairs():
        if ((model := scope.get("model", "")) and pair.model != model) or (
                (gpu := scope.get("gpu", "")) and gpu.lower() not in pair.gpu.lower()) or (
                (build := scope.get("build", "")) and build not in (pair.old_build, pair.new_build)):
            continue
        rows = list(pair.changes.filter(verdict="slower").select_related("kernel__profile"))
        shown = rows[:limit]
        families = {row.kernel.family_id for row in shown if row.kernel and row.kernel.family_id}
        actions = actions_of(families, KernelStat.objects.filter(profile__in=pair.new_profiles)) if families else {}
        out.append(Pair(pair, [Slower(row, actions.get(row.kernel.family_id or 0, Actions()) if row.kernel else Actions())
                               for row in shown], len(rows) - len(shown)))
    return out


class BuildPairJson(TypedDict):
    """The newest build of a model and GPU against the one before; `error`: why they could not be compared."""

    model: str
    gpu: str
    kind: str
    old_build: str
    new_build: str
    old_profiles: list[int]
    new_profiles: list[int]
    verdicts: dict[str, int]
    error: str
    made: str
    changes: list[BuildChangeJson]


def pair_json(pair: BuildPair) -> BuildPairJson:
    return make_answer(BuildPairJson, pair, changes=[change_json(change) for change in pair.changes.all()])
