"""Judge a gate's runs and write its verdict: one row for each kernel, and the report.

Where the environment has just changed, each kernel is also asked whether the build or the environment did it; that needs runs of
the baseline's build from both sides of the change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from django.db.models import Max, Min

from tuner.gate.baselines.selectors import Env
from tuner.gate.environments.observation_selectors import Environment, load_cells
from tuner.gate.environments.selectors import explanation_json
from tuner.gate.stats.explanation import explain
from tuner.gate.stats.results import KernelVerdict, SuiteVerdict, interval_json, json_plain, runs_text, suite_json
from tuner.gate.stats.rule import ORDER, Verdict, rule_of, worst_verdict
from tuner.gate.stats.runs import EarlierLevel, KernelRuns
from tuner.gate.stats.suite import judge, suite_reason
from tuner.gate.suites.processes import repeated_note
from tuner.gate.suites.selectors import kernel_runs_of
from tuner.gate.verdicts import session_selectors, sides_selectors
from tuner.gate.verdicts.card_selectors import doubt_other_cards
from tuner.gate.verdicts.sides_selectors import AGAIN, KernelComparison, Sides
from tuner.models import Build, Gate, GateKernel, KernelRun, Suite

WRITTEN = ["verdict", "reason", "baseline_us", "candidate_us", "ratio_p50", "low", "high", "ratio_p95", "p_value", "detectable",
           "facts", "baseline_runs", "candidate_runs", "regression", "place"]
MOST_NAMED = 3                      # kernels in a gate's reason
MOST_EXCLUDED = 20                  # lines of runs that were left out, of one kernel


@dataclass(frozen=True)
class Judgement:
    """What was compared, and what is said of it."""

    sides: Sides
    verdict: SuiteVerdict
    of: Mapping[str, KernelVerdict]         # by kernel key, by this gate's runs alone
    standing: Sequence[Mapping[str, Any]] = ()      # earlier SLOWER verdicts of the build, and what became of each
    green: str = ""                         # of a build that is SLOWER: what makes it green


def judge_gate(gate: Gate) -> Judgement:
    """Return the judgement of the runs there are now; writes nothing."""
    sides = sides_selectors.load_sides(gate)
    rule = rule_of(gate.suite.rule)
    if not sides.kernels:
        reason = sides.problem or "the suite has no kernel that is enabled"
        return Judgement(sides, SuiteVerdict(Verdict.NO_DATA, reason, [], rule.alpha), {})
    rounds = [_judge_round(gate, group, len(sides.kernels)) for group in split_rounds(sides.kernels)]
    of = {each.key: each for part in rounds for each in part.kernels}
    kernels = [_explain(of[one.kernel.key], one, sides) for one in sides.kernels if one.kernel.key in of]
    kernels = doubt_other_cards(gate, sides, kernels)
    kernels.sort(key=lambda each: (ORDER.index(each.verdict), -(each.p50.ratio if each.p50 else 0.0)))
    verdict = worst_verdict([each.verdict for each in kernels])
    reason = _no_data_reason(kernels, sides) if verdict == Verdict.NO_DATA else suite_reason(verdict, kernels)
    told = replace(rounds[0], verdict=verdict, reason=reason, kernels=kernels)          # the plan is the first round's
    return Judgement(sides, told, {each.key: each for each in kernels})


def split_rounds(kernels: Sequence[KernelComparison]) -> list[list[KernelComparison]]:
    """Split kernels into those judged by their first runs and those measured again because of it."""
    first, again = [one for one in kernels if one.stage != AGAIN], [one for one in kernels if one.stage == AGAIN]
    return [group for group in (first, again) if group]


def _judge_round(gate: Gate, group: Sequence[KernelComparison], suite: int) -> SuiteVerdict:
    """Return the verdict of one round: the first is corrected for all kernels, a re-run for those that it measured."""
    earlier = {one.kernel.key: EarlierLevel(one.baseline.earlier[0].build.name, _kernel_runs(one, one.baseline.earlier).runs)
               for one in group if one.baseline.earlier}
    return judge([_kernel_runs(one, one.baseline.runs) for one in group], [_kernel_runs(one, one.candidate) for one in group],
                 rule_of(gate.suite.rule), earlier=earlier, sessions=session_selectors.sessions_of(gate, group),
                 rules={one.kernel.key: rule_of(gate.suite.rule, one.kernel.rule) for one in group if one.kernel.rule},
                 metrics=gate.suite.metrics, metrics_of={one.kernel.key: one.kernel.metrics for one in group if one.kernel.metrics},
                 one_after_other=session_selectors.are_one_after_other(gate, group),
                 family=len(group) if group[0].stage == AGAIN else suite)


def _kernel_runs(one: KernelComparison, rows: Sequence[Any]) -> KernelRuns:
    """Return a side's runs under the suite's key: builds may measure one kernel with different configurations."""
    return replace(kernel_runs_of(one.kernel, rows), key=one.kernel.key)


def _explain(said: KernelVerdict, one: KernelComparison, sides: Sides) -> KernelVerdict:
    """Return the verdict with what only rows know: why runs are missing, and which ones died."""
    excluded = [*said.excluded, *one.rejected][:MOST_EXCLUDED]
    if one.candidate and one.baseline.runs:
        return _doubt_damaged(replace(said, excluded=excluded), one)
    if sides.problem:
        reason = one.rejected[0] if one.rejected else sides.problem
    elif one.gone:
        had = one.baseline.builds[0].name if one.baseline.builds else "an earlier build"
        reason = f"{had} has runs of it and this build has not: gone, or named otherwise; accept that here, or with --allow-gone"
    elif not one.candidate:
        reason = f"no run of it gave samples: {one.rejected[0]}" if one.rejected else "this build has no run of it"
    else:
        reason = f"no baseline: {one.baseline.reason}"
    return replace(said, verdict=Verdict.NO_DATA, reason=reason, excluded=excluded)


def _doubt_damaged(said: KernelVerdict, one: KernelComparison) -> KernelVerdict:
    """Sent runs that hold no times (NaN, zero) clear no build: until as many good ones are there as the suite wants, nobody knows.

    A worker's rejected run is another matter: its process died, and the round says so.
    """
    if one.absent and said.verdict in (Verdict.PASS, Verdict.FASTER):
        return replace(said, verdict=Verdict.AMBIGUOUS, reason=f"{one.absent}; by the others: {said.reason}")
    missing = one.kernel.suite.runs - len(one.candidate)
    sent = one.kernel.suite.kind == Suite.Kind.UPLOADED
    if not sent or not one.rejected or missing <= 0 or said.verdict not in (Verdict.PASS, Verdict.FASTER):
        return said
    reason = f"{runs_text(len(one.rejected))} cannot be used ({one.rejected[0]}); by the others: {said.reason}"
    return replace(said, verdict=Verdict.AMBIGUOUS, reason=reason, more_runs=missing)


def _no_data_reason(kernels: Sequence[KernelVerdict], sides: Sides) -> str:
    """Return how many kernels have no data, and the reason that most of them share."""
    if sides.problem:
        return sides.problem
    reasons = [each.reason for each in kernels if each.verdict == Verdict.NO_DATA]
    most = max(dict.fromkeys(reasons), key=reasons.count)
    gone = {one.kernel.key for one in sides.kernels if one.gone}
    named = [each.name or each.key for each in kernels if each.key in gone and each.reason == most][:MOST_NAMED]
    most = f"{', '.join(named)}: {most}" if named else most
    return f"{len(reasons)} of {len(kernels)} kernel{'s' if len(kernels) != 1 else ''} without data: {most}"


# ---- rows ----

def write_verdict(gate: Gate, judged: Judgement, notes: Sequence[str] = (), offer: Mapping[str, Any] | None = None) -> None:
    """Write kernel rows and the report, and set the gate's fields; the caller saves the gate."""
    env = judged.sides.env
    if env is not None:
        gate.gpu, gate.toolkit, gate.driver, gate.recorded = env.gpu, env.toolkit, env.driver, env.recorded
    gate.verdict, gate.reason = judged.verdict.verdict, judged.verdict.reason
    told = suite_json(judged.verdict)
    environment, says = attribute_kernels(gate, judged.sides)
    kept = {name: gate.report[name] for name in ("mixed", "request", "repeated") if gate.report.get(name)}
    gate.report = {**kept, **{name: value for name, value in told.items() if name not in ("kernels", "verdict", "reason")},
                   "rule": asdict(rule_of(gate.suite.rule)),
                   "rules": {one.kernel.key: one.kernel.rule for one in judged.sides.kernels if one.kernel.rule},
                   "notes": [*judged.sides.notes, *notes, *filter(None, [says, repeated_note(gate.report.get("repeated", 0))])],
                   "offer": offer,
                   "standing": [dict(each) for each in judged.standing if each["says"]], "green": judged.green,
                   "rounds": [_round_json(job) for job in gate.jobs.order_by("id")]}
    compared = {one.kernel.key: one for one in judged.sides.kernels}
    stays = {each["kernel"]: each for each in judged.standing if each["stays"]}
    rows = [GateKernel(gate=gate, kernel=compared[said.key].kernel,
                       **_row_fields(said, compared[said.key], place, environment.get(said.key), stays.get(said.key)))
            for place, said in enumerate(judged.verdict.kernels)]
    GateKernel.objects.bulk_create(rows, update_conflicts=True, unique_fields=["gate", "kernel"], update_fields=WRITTEN)
    gate.kernels.exclude(kernel__in=[row.kernel for row in rows]).delete()


def _row_fields(said: KernelVerdict, one: KernelComparison, place: int, environment: Mapping[str, Any] | None,
                stays: Mapping[str, Any] | None) -> dict[str, Any]:
    p50 = said.p50
    return {
        "verdict": said.verdict, "reason": said.reason, "baseline_us": said.baseline_us, "candidate_us": said.candidate_us,
        "ratio_p50": p50.ratio if p50 else None, "low": p50.low if p50 else None, "high": p50.high if p50 else None,
        "ratio_p95": said.p95.ratio if said.p95 else None, "p_value": p50.p_value if p50 else None,
        "detectable": said.detectable, "place": place, "regression": None,
        "baseline_runs": [row.pk for row in one.baseline.runs], "candidate_runs": [row.pk for row in one.candidate],
        "facts": json_plain({
            "op": one.kernel.op, "shape": one.kernel.shape, "config": said.config, "baseline_config": said.baseline_config,
            "p50": interval_json(said.p50), "p95": interval_json(said.p95), "mean": interval_json(said.mean),
            "speeds": said.speeds, "believed": said.believed, "back_at": said.back_at, "baseline_runs": said.baseline_runs,
            "candidate_runs": said.candidate_runs, "false_alarms": said.false_alarms, "change": said.change,
            "more_runs": said.more_runs,
            "metrics": [dict(each) for each in said.metrics], "clocks": dict(said.clocks), "excluded": list(said.excluded),
            "baseline": {"mode": one.baseline.mode, "builds": [build.name for build in one.baseline.builds],
                         "says": one.baseline.says},
            "confirmed": one.confirmed, "gone": one.gone, "stage": one.stage, "environment": environment,
            **({"stays": {"gate": stays["gate"], "by_itself": stays["by_itself"]}} if stays else {})})}


def _round_json(job: Any) -> dict[str, Any]:
    return {"job": job.pk, "builds": [each["build"] for each in job.builds], "runs": job.runs, "kernels": job.kernels,
            "status": job.status, "why": job.reason}


def attribute_kernels(gate: Gate, sides: Sides) -> tuple[dict[str, dict[str, Any]], str]:
    """Return by kernel key what build and environment did since the baseline was measured elsewhere, and a sentence."""
    compared = [one for one in sides.kernels if one.candidate and one.baseline.runs]
    builds = {build.pk: build for one in compared for build in one.baseline.builds}
    if sides.env is None or len(builds) != 1:
        return {}, ""
    base = next(iter(builds.values()))
    before = _earlier_environment(gate, sides.env, base)
    if before is None:
        return {}, ""
    held = load_cells(gate.suite, kernels=[one.kernel.key for one in compared], recorded=bool(sides.env.recorded),
                 builds={base.name, gate.build.name})
    old, new = _environment_factors(base, before), _environment_factors(gate.build, sides.env)
    found = {}
    for one in compared:
        rows = [row for row in held.observations if row.kernel == one.kernel.key]
        if rows:
            found[one.kernel.key] = {**explanation_json(explain(rows, old, new)), "before": before.text}
    return found, _attribution_sentence(found, sides.env, before, base)


def _earlier_environment(gate: Gate, env: Env, base: Build) -> Env | None:
    """Return where the build was measured before this environment came up, on the same GPU; None without a change."""
    rows = KernelRun.objects.filter(kernel__suite=gate.suite, build=base, rejected="", gpu=env.gpu, recorded=env.recorded)
    found = {Env(env.gpu, each["toolkit"], each["driver"], env.recorded): each for each in
             rows.order_by().values("toolkit", "driver").annotate(first=Min("created"), last=Max("created"))}
    here = found.pop(env, None)
    left = [(each["last"], other) for other, each in found.items() if here is not None and each["last"] < here["first"]]
    return max(left, key=lambda one: one[0])[1] if left else None


def _environment_factors(build: Build, env: Env) -> dict[str, str]:
    return {"build": build.name, **Environment(env.gpu, env.toolkit, env.driver).factors}


def _attribution_sentence(found: Mapping[str, Mapping[str, Any]], env: Env, before: Env, base: Build) -> str:
    if not found:
        return ""
    kinds = Counter(str(each["kind"]) for each in found.values())
    words = {"build": "by the build", "environment": "by the environment", "both": "by both", "neither": "by neither",
             "unknown": "and it cannot be told by what"}
    parts = [f"{kinds[kind]} changed {word}" for kind, word in words.items() if kinds[kind]]
    return f"Since {base.name} was measured before ({', '.join(env.differs(before))}), of {len(found)} kernels " \
           f"{', '.join(parts)}".replace("changed by neither", "did not change")
