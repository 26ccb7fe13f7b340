"""Red stays red: a build that a gate called SLOWER is not cleared by a gate that was asked in a weaker way.

Each kernel's first SLOWER is a row (SlowerVerdict). A later gate of the build that says otherwise clears it if it was asked in at
least the same way, and no fewer such gates say so than say SLOWER; else the kernel stays SLOWER and the verdict names what was
asked otherwise. What a person accepts ("intended", or "environment" on the regression) clears it too, with name and time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from django.db.models import F
from django.utils import timezone

from profiles.base.words import pairs_text
from tuner.gate.baselines.selectors import Baseline, Env, environment_of
from tuner.gate.builds.selectors import ENVIRONMENT, position
from tuner.gate.stats.results import KernelVerdict, json_plain
from tuner.gate.stats.rule import ORDER, Verdict, finite_number, rule_of, worst_verdict
from tuner.gate.verdicts.sides_selectors import KernelComparison
from tuner.gate.verdicts.verdict_services import Judgement
from tuner.models import BaselineChange, Gate, KernelRun, Regression, SlowerVerdict, Suite

# How a gate was asked of one kernel, and what makes one way of asking weaker than another. No rows are read here.

# field of the rule -> 1: a larger number lets more pass, -1: a smaller one does
LENIENT = {"target": 1, "floor": 1, "target_p95": 1, "floor_p95": 1, "alpha": -1, "beta": 1}
MOST_NAMES = 3


@dataclass(frozen=True)
class Basis:
    """What the verdict of one kernel rests on beside its samples."""

    config: Any = None                      # the candidate was measured with
    baseline_config: Any = None
    rule: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)         # limits beside time
    policy: Mapping[str, Any] = field(default_factory=dict)          # how runs are timed
    timing: Sequence[str] = ()              # what uploaded runs say of it
    candidate_runs: int = 0
    baseline_runs: int = 0
    baseline_builds: Sequence[str] = ()
    baseline_ids: Sequence[int] = ()        # of the baseline's runs
    mode: str = ""                          # "rolling" | "pinned" | "against"


def basis_of(one: KernelComparison, verdict: KernelVerdict, asked_runs: int | None = None) -> Basis:
    """Return how a kernel that was just judged was asked; `asked_runs`: what the smallest of its rounds was to take."""
    suite = one.kernel.suite
    timing = {str(row.environment.get("timing")) for row in one.candidate if row.environment.get("timing")}
    return Basis(
        config=json_plain(verdict.config), baseline_config=json_plain(verdict.baseline_config or verdict.config),
        rule=asdict(rule_of(suite.rule, one.kernel.rule)), metrics={**suite.metrics, **one.kernel.metrics}, policy=suite.policy,
        timing=sorted(timing), candidate_runs=asked_runs or len(one.candidate),
        baseline_runs=len(one.baseline.runs),
        baseline_builds=[build.name for build in one.baseline.builds], baseline_ids=[row.pk for row in one.baseline.runs],
        mode=one.baseline.mode)


def basis_from(stored: Mapping[str, Any]) -> Basis:
    """Return a basis as a row keeps it; what it does not name is unknown."""
    names = {each.name for each in fields(Basis)}
    return Basis(**{name: value for name, value in stored.items() if name in names})


def weaker_points(first: Basis, now: Basis, kind: str, accepted: bool = False) -> list[str]:
    """Return in words where `now` was asked otherwise than `first` in a way that could turn red into green; [] nowhere.

    kind      of the suite: only uploaded baselines may hold runs that somebody chose
    accepted  a person said since that a change of the baseline is intended: another baseline is no weaker point then
    """
    points = []
    if first.config != now.config:
        points.append(f"configuration {_config_text(now.config)} instead of {_config_text(first.config)}")
    for name, sign in LENIENT.items():
        old, new = finite_number(first.rule.get(name)), finite_number(now.rule.get(name))
        if old is not None and new is not None and sign * (new - old) > 0:
            points.append(f"{name.replace('_', ' of the ')} {100 * new:g} % instead of {100 * old:g} %")
    if dict(first.metrics) != dict(now.metrics):
        points.append("other limits beside time")
    if dict(first.policy) != dict(now.policy) or list(first.timing) != list(now.timing):
        points.append("runs timed by another policy")
    if now.candidate_runs < first.candidate_runs:
        points.append(f"{now.candidate_runs} run{'s' if now.candidate_runs != 1 else ''} instead of {first.candidate_runs}")
    if not accepted:
        points += _baseline_points(first, now, kind)
    return points


def _baseline_points(first: Basis, now: Basis, kind: str) -> list[str]:
    others = [name for name in now.baseline_builds if name not in first.baseline_builds]
    if others:
        return [f"against {_names(others)} instead of {_names(first.baseline_builds)}"]
    if first.baseline_config != now.baseline_config:
        return [f"a baseline of configuration {_config_text(now.baseline_config)} instead of {_config_text(first.baseline_config)}"]
    if now.baseline_runs < min(first.baseline_runs, now.candidate_runs):
        return [f"a baseline of {now.baseline_runs} runs instead of {first.baseline_runs}"]
    late = len(set(now.baseline_ids) - set(first.baseline_ids)) if kind == Suite.Kind.UPLOADED else 0
    return [f"{late} run{'s' if late != 1 else ''} of the baseline came after that verdict"] if late else []


def _names(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _config_text(config: Any) -> str:
    if not isinstance(config, Mapping) or not config:
        return "default" if config in (None, {}) else str(config)[:80]
    return pairs_text(config)[:120]


FINE = (Verdict.PASS, Verdict.FASTER)
MOST_POINTS = 6                     # ways in which a gate was asked otherwise, in one sentence
MOST_NAMED = 3                      # kernels in a gate's reason


@dataclass(frozen=True)
class Standing:
    """One earlier SLOWER and what this gate makes of it."""

    row: SlowerVerdict
    stays: bool
    says: str                               # one sentence
    by_itself: str = ""                     # what this gate says without it; "": it has no run of the kernel
    accepted: bool = False                  # by a person


def standing_rows(gate: Gate) -> list[SlowerVerdict]:
    """Return the earlier SLOWER verdicts that bear on a gate: of its build, or of the same code under another name.

    One of a gate that was told which build to compare with bears on others only where it was the first verdict of the build.
    """
    rows = SlowerVerdict.objects.filter(suite=gate.suite_id, over=None).select_related("kernel", "build", "owner")
    against = gate.against.name if gate.against else ""
    mine = [row for row in rows.filter(build=gate.build_id) if row.against in ("", against) or row.first]
    kernel_pks = {row.kernel_id for row in mine}
    return mine + [row for row in _renamed(gate, rows.exclude(build=gate.build_id)) if row.kernel_id not in kernel_pks]


def _renamed(gate: Gate, rows: Any) -> list[SlowerVerdict]:
    """Rows of builds that are this one under another name: same place among builds, same kernel source."""
    candidates = [row for row in rows.filter(against="")[:500] if _same_change(gate, row)]
    return [row for row in candidates if _sources(row.build_id, row.kernel_id) & _sources(gate.build_id, row.kernel_id)]


def _same_change(gate: Gate, row: SlowerVerdict) -> bool:
    ours, other = gate.build, row.build
    return bool(ours.branch == other.branch and (ours.at == other.at or (ours.url and ours.url == other.url)
                                                 or (ours.parent and ours.parent == other.parent)))


def _sources(build: int, kernel: int) -> set[str]:
    rows = KernelRun.objects.filter(build=build, kernel=kernel, rejected="").exclude(source_hash="").order_by()
    return set(rows.values_list("source_hash", flat=True).distinct()[:20])


def weigh_earlier_verdicts(gate: Gate, judged: Judgement) -> tuple[Judgement, list[Standing]]:
    """Return the judgement with kernels that stay SLOWER, and what is said of each earlier verdict. Writes nothing."""
    rows = standing_rows(gate)
    compared = {comparison.kernel.pk: comparison for comparison in judged.sides.kernels}
    standings = [_weigh(gate, row, compared.get(row.kernel_id), judged) for row in rows]
    kernels = {kernel.key: kernel for kernel in judged.verdict.kernels}
    sides = list(judged.sides.kernels)
    for each in standings:
        key, comparison = each.row.kernel.key, compared.get(each.row.kernel_id)
        said = kernels.get(key)
        if each.stays and (said is None or comparison is None):
            kernels[key] = KernelVerdict(each.row.kernel.op, each.row.kernel.shape, None, key, Verdict.SLOWER, each.says)
            if comparison is None:
                sides.append(_absent(each.row))
        elif said is not None and each.stays:
            kernels[key] = replace(said, verdict=Verdict.SLOWER, reason=f"{each.says}. By itself {said.verdict}: {said.reason}")
        elif said is not None and each.accepted and said.verdict == Verdict.NO_DATA:
            kernels[key] = replace(said, verdict=Verdict.PASS, reason=each.says)
    ordered = sorted(kernels.values(), key=lambda each: (ORDER.index(each.verdict), -(each.p50.ratio if each.p50 else 0.0)))
    verdict = worst_verdict([kernel.verdict for kernel in ordered])
    stays = [standing for standing in standings if standing.stays]
    reason = judged.verdict.reason
    if verdict != judged.verdict.verdict:
        reason = _stays_sentence(stays) if stays else _accepted_sentence(standings)
    suite_verdict = replace(judged.verdict, verdict=verdict, reason=reason, kernels=ordered)
    return replace(judged, verdict=suite_verdict, sides=replace(judged.sides, kernels=sides)), standings


def _absent(row: SlowerVerdict) -> KernelComparison:
    return KernelComparison(row.kernel, Baseline(row.kernel, "rolling"), [])


def _weigh(gate: Gate, row: SlowerVerdict, one: KernelComparison | None, judged: Judgement) -> Standing:
    """What becomes of one earlier SLOWER by what this gate says."""
    verdict = judged.of.get(row.kernel.key)
    before = _earlier_text(row)
    answer, full = acceptance(row)
    if row.build_id != gate.build_id and (one is None or verdict is None or
                                          basis_from(row.basis).config != basis_of(one, verdict).config):
        return Standing(row, False, "", str(verdict.verdict) if verdict else "")      # another configuration: may well be the fix
    if verdict is None or one is None:
        if full:
            return Standing(row, False, f"{before}; {answer}", accepted=True)
        why = "it is switched off in the suite or bears another name" if not row.kernel.enabled else "this gate has no run of it"
        return Standing(row, True, f"{before} and stays so: {why}")
    if verdict.verdict == Verdict.SLOWER:
        return Standing(row, False, "", str(verdict.verdict))
    if full:
        return Standing(row, False, f"{before}; {answer}", str(verdict.verdict), accepted=True)
    env = judged.sides.env
    here = environment_of(row)
    points = [] if env == here else [f"on {env.text if env else 'an unknown GPU'} instead of {here.text}"]
    points += weaker_points(basis_from(row.basis), basis_of(one, verdict, asked_runs(gate)), gate.suite.kind, accepted=bool(answer))
    if verdict.verdict not in FINE:
        # in doubt or without runs, asked in the same way: that is this gate's answer, and the earlier one is not taken back
        stays = bool(points)
        sentence = f"{before} and stays so, this gate was asked otherwise: {'; '.join(points[:MOST_POINTS])}" if stays else ""
        return Standing(row, stays, sentence, str(verdict.verdict))
    if points:
        return Standing(row, True, f"{before} and stays so, this gate was asked otherwise: {'; '.join(points[:MOST_POINTS])}",
                        str(verdict.verdict))
    if row.said_not + 1 < row.said_slower:
        return Standing(row, True, f"{before} and stays so: {row.said_slower} gates asked in this way say SLOWER, "
                                   f"{row.said_not + 1} do{'es' if row.said_not == 0 else ''} not", str(verdict.verdict))
    more = f" ({answer})" if answer else ""
    return Standing(row, False, f"{before}; asked in at least the same way, this gate does not{more}", str(verdict.verdict))


def asked_runs(gate: Gate) -> int | None:
    """Return the fresh runs of the smallest round; None where runs were sent."""
    return min(gate.jobs.order_by().values_list("runs", flat=True), default=None)


def _earlier_text(row: SlowerVerdict) -> str:
    size = f" ({100 * (row.ratio - 1):+.1f} %)" if row.ratio else ""
    return f"gate {row.number} called {row.kernel.key} SLOWER in build {row.build.name}{size}"


def acceptance(row: SlowerVerdict) -> tuple[str, bool]:
    """Return what a person said of the slowdown since, with name and time ("": nothing), and whether it covers this build."""
    changes = BaselineChange.objects.filter(suite=row.suite_id, action=BaselineChange.Action.INTENDED, gpu__in=["", row.gpu],
                                            created__gt=row.created).select_related("author", "build")
    for change in changes:
        if change.kernel_id in (None, row.kernel_id) and change.build is not None:
            full = position(change.build) >= position(row.build)
            who = change.author.get_username() if change.author else "somebody"
            return f"{who} said on {_day(change.created)} that the speed of {change.build.name} is intended: {change.note}", full
    where = {name: getattr(row, name) for name in ENVIRONMENT}
    for regression in Regression.objects.filter(suite=row.suite_id, state=Regression.State.ENVIRONMENT, build=row.build_id,
                                                kind=Regression.Kind.STEP, **where):
        if row.kernel.key in regression.kernels:
            last: Mapping[str, Any] = regression.history[-1] if regression.history else {}
            note = f": {regression.note}" if regression.note else ""
            return (f"{last.get('who') or 'somebody'} said on {str(last.get('at', ''))[:10]} that the environment did it, not the "
                    f"build{note}"), True
    return "", False


def _day(at: Any) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _stays_sentence(stays: Sequence[Standing]) -> str:
    named = "; ".join(standing.says for standing in stays[:MOST_NAMED])
    more = len(stays) - MOST_NAMED
    return named + (f"; and {more} more kernel{'s' if more != 1 else ''}" if more > 0 else "")


def _accepted_sentence(standings: Sequence[Standing]) -> str:
    return "; ".join(standing.says for standing in standings if standing.accepted and standing.says)[:2000]


def green_ways(gate: Gate, rows: Sequence[SlowerVerdict]) -> str:
    """Return what makes a SLOWER build green, in one sentence."""
    first = basis_from(rows[0].basis) if rows else None
    same = ""
    if first is not None:
        builds = ", ".join(list(first.baseline_builds)[:MOST_NAMED]) or "its baseline"
        runs = f"at least {first.candidate_runs} runs" if gate.suite.kind != gate.suite.Kind.UPLOADED else "more of its own runs"
        same = f"a gate of this build asked as gate {rows[0].number} was ({runs}, against {builds}) that does not say SLOWER; "
    return (f"Green again by: a new build that is no slower; {same}or a person's word on the regression, "
            "\"intended\" or \"environment\", which verdicts then name")


def named_sides(gate: Gate, own: Judgement) -> list[str]:
    """Return what a reader must know of the other side: a person pinned it, or it is itself known to be slower."""
    pinned = {comparison.baseline.change.pk: comparison.baseline.change for comparison in own.sides.kernels
              if comparison.baseline.mode == "pinned" and comparison.baseline.change is not None}
    notes = [f"the baseline is pinned to {change.build} by {change.author.get_username() if change.author else 'somebody'}, "
             f"{_day(change.created)}{f': {change.note}' if change.note else ''}" for change in list(pinned.values())[:MOST_NAMED]]
    chosen = [comparison for comparison in own.sides.kernels if comparison.baseline.mode != "rolling"]
    pairs = {(build.pk, one.kernel.pk) for one in chosen for build in one.baseline.builds if build.pk != gate.build_id}
    if pairs:
        slow = SlowerVerdict.objects.filter(suite=gate.suite_id, over=None, build__in={build for build, _ in pairs})
        notes += [f"compared with {row.build.name}, which gate {row.number} called SLOWER in {row.kernel.key}"
                  for row in slow.select_related("build", "kernel")[:20] if (row.build_id, row.kernel_id) in pairs]
    return notes


# ---- rows ----

def keep_verdicts(gate: Gate, own: Judgement, standings: Sequence[Standing]) -> None:
    """Write what this gate adds: new first SLOWER verdicts, counts of those that agree, and those that are over.

    own  the judgement before earlier verdicts were weighed
    """
    now = timezone.now()
    for standing in standings:
        if standing.row.build_id != gate.build_id or standing.by_itself == Verdict.SLOWER:
            continue
        if standing.by_itself in FINE and not standing.accepted and "asked otherwise" not in standing.says:
            SlowerVerdict.objects.filter(pk=standing.row.pk).update(said_not=F("said_not") + 1)
        if not standing.stays and standing.says and (standing.by_itself in FINE or standing.accepted):
            SlowerVerdict.objects.filter(pk=standing.row.pk).update(over=now, over_because=standing.says)
    env = own.sides.env
    if env is None:
        return
    against = gate.against.name if gate.against else ""
    decided = Gate.objects.filter(suite=gate.suite_id, build=gate.build_id, status=Gate.Status.DONE,
                                  verdict__in=[*FINE, Verdict.SLOWER]).exclude(pk=gate.pk).exists()
    compared = {comparison.kernel.key: comparison for comparison in own.sides.kernels}
    for key, verdict in own.of.items():
        if verdict.verdict == Verdict.SLOWER and key in compared:
            _keep_slower(gate, compared[key], verdict, env, against, not decided)


def _keep_slower(gate: Gate, comparison: KernelComparison, verdict: KernelVerdict, env: Env, against: str, first: bool) -> None:
    fresh = {"suite": gate.suite, "gate": gate, "number": gate.pk, "first": first,
             "basis": asdict(basis_of(comparison, verdict, asked_runs(gate))), "ratio": verdict.p50.ratio if verdict.p50 else None,
             "owner": gate.owner}
    row, is_new = SlowerVerdict.objects.get_or_create(build=gate.build, kernel=comparison.kernel, against=against, **env.where(),
                                                      defaults=fresh)
    if is_new:
        return
    if row.over is not None:                    # it was cleared, and is said anew
        SlowerVerdict.objects.filter(pk=row.pk).update(**{**fresh, "created": timezone.now()}, over=None, over_because="",
                                                       said_slower=1, said_not=0)
    elif not weaker_points(basis_from(row.basis), basis_of(comparison, verdict, asked_runs(gate)), gate.suite.kind):
        SlowerVerdict.objects.filter(pk=row.pk).update(said_slower=F("said_slower") + 1)


def standing_json(each: Standing) -> dict[str, Any]:
    """Return one earlier verdict as a gate's report keeps it."""
    return {"kernel": each.row.kernel.key, "gate": each.row.number, "build": each.row.build.name, "stays": each.stays,
            "accepted": each.accepted, "says": each.says, "by_itself": each.by_itself}
