"""Judge a gate's runs and write its verdict: one row for each kernel, and the report.

Where the environment has just changed, each kernel is also asked whether the build or the environment did it; that needs runs of
the baseline's build from both sides of the change.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from statistics import median
from typing import Any

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Max, Min

from tuner.gate.baselines.selectors import Env, environment_of
from tuner.gate.builds.selectors import branch_line, position
from tuner.gate.environments.observation_selectors import Environment, load_cells
from tuner.gate.environments.selectors import explanation_json
from tuner.gate.stats.explanation import explain
from tuner.gate.stats.results import KernelVerdict, SuiteVerdict, interval_json, json_plain, percent_text, runs_text, suite_json
from tuner.gate.stats.rule import ORDER, Verdict, rule_of, worst_verdict
from tuner.gate.stats.runs import EarlierLevel, KernelRuns
from tuner.gate.stats.sessions import Sessions, estimate_sessions
from tuner.gate.stats.suite import CardAnswer, card_effect, judge, suite_reason, tell_card_from_build
from tuner.gate.suites.records import repeated_note
from tuner.gate.suites.selectors import kernel_runs_of
from tuner.gate.verdicts import sides_selectors
from tuner.gate.verdicts.sides_selectors import AGAIN, STORED, KernelComparison, Sides, spread_over
from tuner.models import Build, Gate, GateKernel, KernelRun, Suite

# Kernels that are SLOWER where the builds ran on different cards: what of it the card may have done.

MOST_RUNS = 4_000           # newest runs of a kernel's other builds that are read


def doubt_other_cards(gate: Gate, sides: Sides, kernels: Sequence[KernelVerdict]) -> list[KernelVerdict]:
    """Return the verdicts; SLOWER becomes AMBIGUOUS where the card did it, or may have. Runs in turn share a card: they stand."""
    compared = {comparison.kernel.key: comparison for comparison in sides.kernels}
    ratios = {kernel.key: kernel.p50.ratio for kernel in kernels if kernel.p50 is not None}
    return [_doubt(gate, compared[kernel.key], kernel, [ratio for key, ratio in ratios.items() if key != kernel.key])
            if kernel.verdict == Verdict.SLOWER and kernel.key in compared else kernel for kernel in kernels]


def _doubt(gate: Gate, comparison: KernelComparison, said: KernelVerdict, others: Sequence[float]) -> KernelVerdict:
    ours, theirs = _cards(comparison.candidate), _cards(comparison.baseline.runs)
    if comparison.stage != STORED or len(ours) != 1 or "" in ours | theirs or not theirs or ours & theirs or said.p50 is None \
            or any(metric.get("verdict") == Verdict.SLOWER for metric in said.metrics):
        return said
    card = next(iter(ours))
    answer = tell_card_from_build(said.p50.ratio, rule_of(gate.suite.rule, comparison.kernel.rule).floor, others,
                                  _measured_effect(gate, comparison, card, theirs))
    if answer.kind == "build":
        return replace(said, reason=f"{said.reason} (on {_short(card)}, the baseline on {_named(theirs)}; {_cleared(answer)})")
    return replace(said, verdict=Verdict.AMBIGUOUS, reason=_sentence(answer, said, card, theirs), more_runs=max(1, gate.suite.runs))


def _cards(rows: Sequence[KernelRun]) -> set[str]:
    return {row.gpu_uuid for row in rows}


def _measured_effect(gate: Gate, one: KernelComparison, card: str, theirs: set[str]) -> float | None:
    """Time on the candidate's card over time on the baseline's, from other builds that ran on both."""
    row = one.candidate[0]
    rows = KernelRun.objects.filter(kernel=one.kernel, rejected="", gpu_uuid__in=[card, *theirs], gpu=row.gpu, toolkit=row.toolkit,
                                    driver=row.driver, recorded=row.recorded).exclude(build=gate.build_id).order_by("-pk")
    here: dict[str, list[float]] = defaultdict(list)
    there: dict[str, list[float]] = defaultdict(list)
    for build, uuid, us in rows.values_list("build__name", "gpu_uuid", "p50_us")[:MOST_RUNS]:
        if us is not None:
            (here if uuid == card else there)[build].append(us)
    return card_effect(here, there)


def _sentence(answer: CardAnswer, verdict: KernelVerdict, card: str, theirs: set[str]) -> str:
    size = f"{percent_text(verdict.p50.ratio)} slower" if verdict.p50 else "slower"
    where = f"all its runs are of {_short(card)}, the baseline's of {_named(theirs)}"
    ask = f"For a verdict, run it on {_named(theirs)}, or the baseline's build on {_short(card)}"
    if answer.kind == "card":
        effect_text = f"{_short(card)} is {percent_text(answer.effect or 1)} slower with other builds too"
        return f"this GPU, not the build: {size}, and {effect_text}; {where}. {ask}"
    kernels_text = "the other kernels are slower as well" if answer.common else "no other kernel tells them apart"
    return f"this GPU or the build, which cannot be told: {size}; {where}, and {kernels_text}. {ask}"


def _cleared(answer: CardAnswer) -> str:
    if answer.effect is not None:
        return f"other builds differ by {percent_text(answer.effect)} between them, which does not explain it"
    return "the other kernels are no slower there, so the card is not"


def _short(uuid: str) -> str:
    return uuid if len(uuid) <= 14 else f"{uuid[:13]}…"


def _named(cards: set[str]) -> str:
    names = sorted(cards)
    return ", ".join(map(_short, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


# How far sessions of a suite lie apart, by its own history: what a comparison with stored runs has to allow for.

MOST_BUILDS = 20            # newest before this one
MOST_KERNELS = 60           # evenly of the suite
ONE_LEVEL = 0.10            # of the median of builds: what lies farther off is another level
BESIDE = timedelta(hours=6)         # what was sent within it, to be compared with each other, was measured beside each other


def sessions_of(gate: Gate, group: Sequence[KernelComparison]) -> Sessions | None:
    """Return how far sessions differ, for kernels of one round; None where both sides are of one: in turn, or recorded."""
    compared = [comparison for comparison in group if comparison.candidate and comparison.baseline.runs]
    if not compared or any(comparison.stage != STORED for comparison in group) or compared[0].candidate[0].recorded:
        return None
    if gate.against is not None and _are_beside(compared[0]):
        return None
    baseline = round(median(len(comparison.baseline.builds) or 1 for comparison in compared))
    return estimate_sessions(_history(gate, compared), baseline)


def are_one_after_other(gate: Gate, group: Sequence[KernelComparison]) -> bool:
    """Return whether two builds of one session were sent one after the other: a drift of the machine may lie between them."""
    compared = [comparison for comparison in group if comparison.candidate and comparison.baseline.runs]
    if not compared or gate.against is None or any(one.stage != STORED for one in group) or compared[0].candidate[0].recorded:
        return False
    first = compared[0]
    return _are_beside(first) and max(row.created for row in first.baseline.runs) <= min(row.created for row in first.candidate)


def _are_beside(comparison: KernelComparison) -> bool:
    return abs(comparison.candidate[0].created - comparison.baseline.runs[0].created) <= BESIDE


def _history(gate: Gate, compared: Sequence[KernelComparison]) -> dict[str, list[list[float]]]:
    """Kernel -> run medians of each earlier build of its present level, by a fixed number of queries."""
    places = spread_over(range(len(compared)), MOST_KERNELS)
    chosen = {compared[place].kernel.pk: compared[place] for place in places}
    where = environment_of(compared[0].candidate[0]).where()
    rows = KernelRun.objects.filter(kernel__in=chosen, rejected="", p50_us__gt=0, build__at__lte=gate.build.at, **where)
    ids = rows.exclude(build=gate.build_id).order_by().values_list("build", flat=True).distinct()
    line = {"", branch_line(gate.build)}
    builds = {build.pk: build for build in [
        build for build in Build.objects.filter(pk__in=ids).order_by("-at", "-pk")[:5 * MOST_BUILDS] if branch_line(build) in line
    ][:MOST_BUILDS]}
    slower = set(GateKernel.objects.filter(kernel__in=chosen, gate__build__in=builds, verdict=Verdict.SLOWER).order_by()
                 .values_list("kernel", "gate__build"))
    sessions_by_key: dict[str, list[list[float]]] = defaultdict(list)
    rows = rows.filter(build__in=builds).order_by()
    for kernel, build, us in rows.values_list("kernel", "build").annotate(us=ArrayAgg("p50_us")):
        one = chosen[kernel]
        change = one.baseline.change
        since = max((position(each) for each in (one.baseline.since, change.build if change else None) if each), default=None)
        if (kernel, build) not in slower and (since is None or position(builds[build]) >= since):
            sessions_by_key[one.kernel.key].append(us)
    return {key: _of_one_level(sessions) for key, sessions in sessions_by_key.items()}


def _of_one_level(sessions: Sequence[list[float]]) -> list[list[float]]:
    middle = median(median(us) for us in sessions)
    return [us for us in sessions if abs(median(us) / middle - 1) <= ONE_LEVEL]


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
    of = {kernel.key: kernel for part in rounds for kernel in part.kernels}
    kernels = [_explain(of[one.kernel.key], one, sides) for one in sides.kernels if one.kernel.key in of]
    kernels = doubt_other_cards(gate, sides, kernels)
    kernels.sort(key=lambda each: (ORDER.index(each.verdict), -(each.p50.ratio if each.p50 else 0.0)))
    verdict = worst_verdict([kernel.verdict for kernel in kernels])
    reason = _no_data_reason(kernels, sides) if verdict == Verdict.NO_DATA else suite_reason(verdict, kernels)
    suite_verdict = replace(rounds[0], verdict=verdict, reason=reason, kernels=kernels)          # the plan is the first round's
    return Judgement(sides, suite_verdict, {kernel.key: kernel for kernel in kernels})


def split_rounds(kernels: Sequence[KernelComparison]) -> list[list[KernelComparison]]:
    """Split kernels into those judged by their first runs and those measured again because of it."""
    first, again = [one for one in kernels if one.stage != AGAIN], [one for one in kernels if one.stage == AGAIN]
    return [group for group in (first, again) if group]


def _judge_round(gate: Gate, group: Sequence[KernelComparison], suite: int) -> SuiteVerdict:
    """Return the verdict of one round: the first is corrected for all kernels, a re-run for those that it measured."""
    earlier = {one.kernel.key: EarlierLevel(one.baseline.earlier[0].build.name, _kernel_runs(one, one.baseline.earlier).runs)
               for one in group if one.baseline.earlier}
    return judge([_kernel_runs(one, one.baseline.runs) for one in group], [_kernel_runs(one, one.candidate) for one in group],
                 rule_of(gate.suite.rule), earlier=earlier, sessions=sessions_of(gate, group),
                 rules={one.kernel.key: rule_of(gate.suite.rule, one.kernel.rule) for one in group if one.kernel.rule},
                 metrics=gate.suite.metrics, metrics_of={one.kernel.key: one.kernel.metrics for one in group if one.kernel.metrics},
                 one_after_other=are_one_after_other(gate, group),
                 family=len(group) if group[0].stage == AGAIN else suite)


def _kernel_runs(comparison: KernelComparison, rows: Sequence[Any]) -> KernelRuns:
    """Return a side's runs under the suite's key: builds may measure one kernel with different configurations."""
    return replace(kernel_runs_of(comparison.kernel, rows), key=comparison.kernel.key)


def _explain(verdict: KernelVerdict, comparison: KernelComparison, sides: Sides) -> KernelVerdict:
    """Return the verdict with what only rows know: why runs are missing, and which ones died."""
    excluded = [*verdict.excluded, *comparison.rejected][:MOST_EXCLUDED]
    if comparison.candidate and comparison.baseline.runs:
        return _doubt_damaged(replace(verdict, excluded=excluded), comparison)
    if sides.problem:
        reason = comparison.rejected[0] if comparison.rejected else sides.problem
    elif comparison.gone:
        had = comparison.baseline.builds[0].name if comparison.baseline.builds else "an earlier build"
        reason = f"{had} has runs of it and this build has not: gone, or named otherwise; accept that here, or with --allow-gone"
    elif not comparison.candidate:
        reason = f"no run of it gave samples: {comparison.rejected[0]}" if comparison.rejected else "this build has no run of it"
    else:
        reason = f"no baseline: {comparison.baseline.reason}"
    return replace(verdict, verdict=Verdict.NO_DATA, reason=reason, excluded=excluded)


def _doubt_damaged(verdict: KernelVerdict, comparison: KernelComparison) -> KernelVerdict:
    """Sent runs that hold no times (NaN, zero) clear no build: until as many good ones are there as the suite wants, nobody knows.

    A worker's rejected run is another matter: its process died, and the round says so.
    """
    if comparison.absent and verdict.verdict in (Verdict.PASS, Verdict.FASTER):
        return replace(verdict, verdict=Verdict.AMBIGUOUS, reason=f"{comparison.absent}; by the others: {verdict.reason}")
    missing = comparison.kernel.suite.runs - len(comparison.candidate)
    sent = comparison.kernel.suite.kind == Suite.Kind.UPLOADED
    if not sent or not comparison.rejected or missing <= 0 or verdict.verdict not in (Verdict.PASS, Verdict.FASTER):
        return verdict
    reason = f"{runs_text(len(comparison.rejected))} cannot be used ({comparison.rejected[0]}); by the others: {verdict.reason}"
    return replace(verdict, verdict=Verdict.AMBIGUOUS, reason=reason, more_runs=missing)


def _no_data_reason(kernels: Sequence[KernelVerdict], sides: Sides) -> str:
    """Return how many kernels have no data, and the reason that most of them share."""
    if sides.problem:
        return sides.problem
    reasons = [kernel.reason for kernel in kernels if kernel.verdict == Verdict.NO_DATA]
    most = max(dict.fromkeys(reasons), key=reasons.count)
    gone = {comparison.kernel.key for comparison in sides.kernels if comparison.gone}
    named = [kernel.name or kernel.key for kernel in kernels if kernel.key in gone and kernel.reason == most][:MOST_NAMED]
    most = f"{', '.join(named)}: {most}" if named else most
    return f"{len(reasons)} of {len(kernels)} kernel{'s' if len(kernels) != 1 else ''} without data: {most}"


# ---- rows ----

def write_verdict(gate: Gate, judged: Judgement, notes: Sequence[str] = (), offer: Mapping[str, Any] | None = None) -> None:
    """Write kernel rows and the report, and set the gate's fields; the caller saves the gate."""
    env = judged.sides.env
    if env is not None:
        gate.gpu, gate.toolkit, gate.driver, gate.recorded = env.gpu, env.toolkit, env.driver, env.recorded
    gate.verdict, gate.reason = judged.verdict.verdict, judged.verdict.reason
    document = suite_json(judged.verdict)
    environment, says = attribute_kernels(gate, judged.sides)
    fields = {name: gate.report[name] for name in ("mixed", "request", "repeated") if gate.report.get(name)}
    gate.report = {**fields, **{name: value for name, value in document.items() if name not in ("kernels", "verdict", "reason")},
                   "rule": asdict(rule_of(gate.suite.rule)),
                   "rules": {one.kernel.key: one.kernel.rule for one in judged.sides.kernels if one.kernel.rule},
                   "notes": [*judged.sides.notes, *notes, *filter(None, [says, repeated_note(gate.report.get("repeated", 0))])],
                   "offer": offer,
                   "standing": [dict(entry) for entry in judged.standing if entry["says"]], "green": judged.green,
                   "rounds": [_round_json(job) for job in gate.jobs.order_by("id")]}
    compared = {comparison.kernel.key: comparison for comparison in judged.sides.kernels}
    stays = {entry["kernel"]: entry for entry in judged.standing if entry["stays"]}
    rows = [GateKernel(gate=gate, kernel=compared[verdict.key].kernel,
                       **_row_fields(verdict, compared[verdict.key], place, environment.get(verdict.key), stays.get(verdict.key)))
            for place, verdict in enumerate(judged.verdict.kernels)]
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
            "metrics": [dict(metric) for metric in said.metrics], "clocks": dict(said.clocks), "excluded": list(said.excluded),
            "baseline": {"mode": one.baseline.mode, "builds": [build.name for build in one.baseline.builds],
                         "says": one.baseline.says},
            "confirmed": one.confirmed, "gone": one.gone, "stage": one.stage, "environment": environment,
            **({"stays": {"gate": stays["gate"], "by_itself": stays["by_itself"]}} if stays else {})})}


def _round_json(job: Any) -> dict[str, Any]:
    return {"job": job.pk, "builds": [build["build"] for build in job.builds], "runs": job.runs, "kernels": job.kernels,
            "status": job.status, "why": job.reason}


def attribute_kernels(gate: Gate, sides: Sides) -> tuple[dict[str, dict[str, Any]], str]:
    """Return by kernel key what build and environment did since the baseline was measured elsewhere, and a sentence."""
    compared = [comparison for comparison in sides.kernels if comparison.candidate and comparison.baseline.runs]
    builds = {build.pk: build for comparison in compared for build in comparison.baseline.builds}
    if sides.env is None or len(builds) != 1:
        return {}, ""
    base = next(iter(builds.values()))
    before = _earlier_environment(gate, sides.env, base)
    if before is None:
        return {}, ""
    cells = load_cells(gate.suite, kernels=[comparison.kernel.key for comparison in compared], recorded=bool(sides.env.recorded),
                 builds={base.name, gate.build.name})
    old, new = _environment_factors(base, before), _environment_factors(gate.build, sides.env)
    explanations = {}
    for comparison in compared:
        rows = [row for row in cells.observations if row.kernel == comparison.kernel.key]
        if rows:
            explanations[comparison.kernel.key] = {**explanation_json(explain(rows, old, new)), "before": before.text}
    return explanations, _attribution_sentence(explanations, sides.env, before, base)


def _earlier_environment(gate: Gate, env: Env, base: Build) -> Env | None:
    """Return where the build was measured before this environment came up, on the same GPU; None without a change."""
    rows = KernelRun.objects.filter(kernel__suite=gate.suite, build=base, rejected="", gpu=env.gpu, recorded=env.recorded)
    spans_by_env = {Env(env.gpu, span["toolkit"], span["driver"], env.recorded): span for span in
                    rows.order_by().values("toolkit", "driver").annotate(first=Min("created"), last=Max("created"))}
    here = spans_by_env.pop(env, None)
    left = [(span["last"], other) for other, span in spans_by_env.items() if here is not None and span["last"] < here["first"]]
    return max(left, key=lambda one: one[0])[1] if left else None


def _environment_factors(build: Build, env: Env) -> dict[str, str]:
    return {"build": build.name, **Environment(env.gpu, env.toolkit, env.driver).factors}


def _attribution_sentence(found: Mapping[str, Mapping[str, Any]], env: Env, before: Env, base: Build) -> str:
    if not found:
        return ""
    kinds = Counter(str(explanation["kind"]) for explanation in found.values())
    words = {"build": "by the build", "environment": "by the environment", "both": "by both", "neither": "by neither",
             "unknown": "and it cannot be told by what"}
    parts = [f"{kinds[kind]} changed {word}" for kind, word in words.items() if kinds[kind]]
    return f"Since {base.name} was measured before ({', '.join(env.differs(before))}), of {len(found)} kernels " \
           f"{', '.join(parts)}".replace("changed by neither", "did not change")
