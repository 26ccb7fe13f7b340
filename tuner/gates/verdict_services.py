"""The verdict of a gate: runs of both sides are judged, and what is said of each kernel becomes a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from profiles.analysis.gate.document import as_json, interval_json, plain
from profiles.analysis.gate.results import KernelVerdict, SuiteVerdict
from profiles.analysis.gate.rule import ORDER, Verdict, worst
from profiles.analysis.gate.runs import KernelRuns
from profiles.analysis.gate.sentences import runs
from profiles.analysis.gate.suite import judge, suite_says
from tuner.gates import attribution_selectors, sides_selectors
from tuner.gates.rules_selectors import rule_of
from tuner.gates.sides_selectors import AGAIN, Compared, Sides
from tuner.models import Gate, GateKernel, Suite
from tuner.suites.run_selectors import kernel_runs_of

WRITTEN = ["verdict", "reason", "baseline_us", "candidate_us", "ratio_p50", "low", "high", "ratio_p95", "p_value", "detectable",
           "facts", "baseline_runs", "candidate_runs", "regression", "place"]
MOST_EXCLUDED = 20                  # lines of runs that were left out, of one kernel


@dataclass(frozen=True)
class Judged:
    """What was compared, and what is said of it."""

    sides: Sides
    verdict: SuiteVerdict
    of: Mapping[str, KernelVerdict]         # by kernel key


def gate_judged(gate: Gate) -> Judged:
    """Judge what there is now; writes nothing."""
    sides = sides_selectors.sides(gate)
    rule = rule_of(gate.suite.rule)
    if not sides.kernels:
        reason = sides.problem or "the suite has no kernel that is enabled"
        return Judged(sides, SuiteVerdict(Verdict.NO_DATA, reason, [], rule.alpha), {})
    said = _merged([_judged(gate, group, len(sides.kernels)) for group in _looks(sides.kernels)])
    of = {each.key: each for each in said.kernels}
    kernels = [_explained(of[one.kernel.key], one, sides) for one in sides.kernels if one.kernel.key in of]
    kernels.sort(key=lambda each: (ORDER.index(each.verdict), -(each.p50.ratio if each.p50 else 0.0)))
    verdict = worst([each.verdict for each in kernels])
    reason = _no_data(kernels, sides) if verdict == Verdict.NO_DATA else suite_says(verdict, kernels)
    return Judged(sides, replace(said, verdict=verdict, reason=reason, kernels=kernels), {each.key: each for each in kernels})


def _looks(kernels: Sequence[Compared]) -> list[list[Compared]]:
    """What was judged at the first look, and what was measured again because of it."""
    first, again = [one for one in kernels if one.stage != AGAIN], [one for one in kernels if one.stage == AGAIN]
    return [group for group in (first, again) if group]


def _judged(gate: Gate, group: Sequence[Compared], suite: int) -> SuiteVerdict:
    """The first look is corrected for all kernels of the suite; a re-run, fresh data, for those that it measured."""
    return judge([_runs(one, one.baseline.runs) for one in group], [_runs(one, one.candidate) for one in group],
                 rule_of(gate.suite.rule),
                 rules={one.kernel.key: rule_of(gate.suite.rule, one.kernel.rule) for one in group if one.kernel.rule},
                 metrics=gate.suite.metrics, metrics_of={one.kernel.key: one.kernel.metrics for one in group if one.kernel.metrics},
                 family=len(group) if group[0].stage == AGAIN else suite)


def _merged(parts: Sequence[SuiteVerdict]) -> SuiteVerdict:
    """One answer of both looks; the plan is the first one's."""
    return replace(parts[0], kernels=[kernel for part in parts for kernel in part.kernels])


def _runs(one: Compared, rows: Sequence[Any]) -> KernelRuns:
    """Builds may measure the same kernel with different configurations: the suite's key is what pairs them."""
    return replace(kernel_runs_of(one.kernel, rows), key=one.kernel.key)


def _explained(said: KernelVerdict, one: Compared, sides: Sides) -> KernelVerdict:
    """With what only rows know: why there are no runs, which ones died, and whether both sides were measured in turn."""
    excluded = [*said.excluded, *one.rejected][:MOST_EXCLUDED]
    if one.candidate and one.baseline.runs:
        return _with_damaged(replace(said, excluded=excluded), one)
    if sides.problem:
        reason = one.rejected[0] if one.rejected else sides.problem
    elif not one.candidate:
        reason = f"no run of it gave samples: {one.rejected[0]}" if one.rejected else "this build has no run of it"
    else:
        reason = f"no baseline: {one.baseline.reason}"
    return replace(said, verdict=Verdict.NO_DATA, reason=reason, excluded=excluded)


def _with_damaged(said: KernelVerdict, one: Compared) -> KernelVerdict:
    """Sent runs that hold no times (NaN, zero) clear no build: until as many good ones are there as the suite wants, nobody knows.

    A worker's rejected run is another matter: its process died, and the round says so.
    """
    missing = one.kernel.suite.runs - len(one.candidate)
    sent = one.kernel.suite.kind == Suite.Kind.UPLOADED
    if not sent or not one.rejected or missing <= 0 or said.verdict not in (Verdict.PASS, Verdict.FASTER):
        return said
    reason = f"{runs(len(one.rejected))} cannot be used ({one.rejected[0]}); by the others: {said.reason}"
    return replace(said, verdict=Verdict.AMBIGUOUS, reason=reason, more_runs=missing)


def _no_data(kernels: Sequence[KernelVerdict], sides: Sides) -> str:
    """One sentence: how many kernels, and the reason that most of them share."""
    if sides.problem:
        return sides.problem
    reasons = [each.reason for each in kernels if each.verdict == Verdict.NO_DATA]
    most = max(dict.fromkeys(reasons), key=reasons.count)
    return f"{len(reasons)} of {len(kernels)} kernel{'s' if len(kernels) != 1 else ''} without data: {most}"


# ---- rows ----

def verdict_written(gate: Gate, judged: Judged, notes: Sequence[str] = (), offer: Mapping[str, Any] | None = None) -> None:
    """Kernel rows, the report, and where it was decided; the gate's own fields are set, and saved by the caller."""
    env = judged.sides.env
    if env is not None:
        gate.gpu, gate.toolkit, gate.driver, gate.recorded = env.gpu, env.toolkit, env.driver, env.recorded
    gate.verdict, gate.reason = judged.verdict.verdict, judged.verdict.reason
    told = as_json(judged.verdict)
    environment, says = attribution_selectors.across(gate, judged.sides)
    kept = {"mixed": gate.report["mixed"]} if gate.report.get("mixed") else {}
    gate.report = {**kept, **{name: value for name, value in told.items() if name not in ("kernels", "verdict", "reason")},
                   "rule": asdict(rule_of(gate.suite.rule)),
                   "rules": {one.kernel.key: one.kernel.rule for one in judged.sides.kernels if one.kernel.rule},
                   "notes": [*judged.sides.notes, *notes, *filter(None, [says])], "offer": offer,
                   "rounds": [_round(job) for job in gate.jobs.order_by("id")]}
    compared = {one.kernel.key: one for one in judged.sides.kernels}
    rows = [GateKernel(gate=gate, kernel=compared[said.key].kernel,
                       **_fields(said, compared[said.key], place, environment.get(said.key)))
            for place, said in enumerate(judged.verdict.kernels)]
    GateKernel.objects.bulk_create(rows, update_conflicts=True, unique_fields=["gate", "kernel"], update_fields=WRITTEN)
    gate.kernels.exclude(kernel__in=[row.kernel for row in rows]).delete()


def _fields(said: KernelVerdict, one: Compared, place: int, environment: Mapping[str, Any] | None) -> dict[str, Any]:
    p50 = said.p50
    return {
        "verdict": said.verdict, "reason": said.reason, "baseline_us": said.baseline_us, "candidate_us": said.candidate_us,
        "ratio_p50": p50.ratio if p50 else None, "low": p50.low if p50 else None, "high": p50.high if p50 else None,
        "ratio_p95": said.p95.ratio if said.p95 else None, "p_value": p50.p_value if p50 else None,
        "detectable": said.detectable, "place": place, "regression": None,
        "baseline_runs": [row.pk for row in one.baseline.runs], "candidate_runs": [row.pk for row in one.candidate],
        "facts": plain({
            "op": one.kernel.op, "shape": one.kernel.shape, "config": said.config, "baseline_config": said.baseline_config,
            "p50": interval_json(said.p50), "p95": interval_json(said.p95), "baseline_runs": said.baseline_runs,
            "candidate_runs": said.candidate_runs, "false_alarms": said.false_alarms, "change": said.change,
            "more_runs": said.more_runs,
            "metrics": [dict(each) for each in said.metrics], "clocks": dict(said.clocks), "excluded": list(said.excluded),
            "baseline": {"mode": one.baseline.mode, "builds": [build.name for build in one.baseline.builds],
                         "says": one.baseline.says},
            "confirmed": one.confirmed, "stage": one.stage, "environment": environment})}


def _round(job: Any) -> dict[str, Any]:
    return {"job": job.pk, "builds": [each["build"] for each in job.builds], "runs": job.runs, "kernels": job.kernels,
            "status": job.status, "why": job.reason}
