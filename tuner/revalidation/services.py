"""Measuring cached winners again as builds are measured: fresh processes, in turn with the default and the rivals, judged exactly.

Entries of one GPU model and way of timing share a job. When it ends `decide` says what serves from then on; what cannot be told
is measured once more. SuiteJob.about holds what was asked, and what was found:
    entries {kernel key: id}, served {kernel key: name of the side that served, "": the default}, round, first (job), expected_s;
    then decided (time), again (job), found {kernel key: what `_kernel_findings` says}.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from django.db import DatabaseError, transaction
from django.utils import timezone

from profiles.base.refused import Refused
from tuner import devices
from tuner.cache import rules
from tuner.cache.default_check import DefaultCheck, Verdict
from tuner.cache.entries.bans import read_bans
from tuner.cache.entries.selectors import bucket
from tuner.cache.entries.services import (
    HISTORY,
    State,
    initial_state,
    mark_older_stale,
    mark_other_sources_unverified,
    shape_key,
    state_set,
)
from tuner.gate.stats.results import KernelVerdict
from tuner.gate.stats.runs import KernelRuns
from tuner.gate.stats.winner import Choice, Contender, Problem, choose, runs_needed
from tuner.gate.suites.definition import kernel_key
from tuner.gate.suites.job_services import REVALIDATE, job_create, job_publish
from tuner.gate.suites.selectors import kernel_runs_of
from tuner.jobs import quarantine
from tuner.models import CachedConfig, KernelRun, Suite, SuiteJob, SuiteKernel
from tuner.revalidation import selectors
from tuner.revalidation.selectors import DEFAULT, SERVED
from tuner.tuning.measure.policy import flush_text
from tuner.tuning.operators import limits
from tuner.tuning.trial import Reason, config_key

log = logging.getLogger(__name__)
MOST_ENTRIES = 20                  # of one job: the hottest are decided before the rest is measured
ROUNDS = 2


# ---- asked for ----

def revalidate(entries: Sequence[CachedConfig], owner: Any, device: str = "") -> list[SuiteJob]:
    """Queue jobs on the entries' GPU models, most at stake first; none for what a job under way measures.

    device  "": a worker with the entries' GPU
    """
    groups: dict[tuple[str, str], list[CachedConfig]] = {}
    for entry in selectors.hottest_first(entries):
        if not selectors.why_not(entry):
            groups.setdefault((entry.gpu, entry.policy or "cold"), []).append(entry)
    jobs = []
    for (gpu, policy), mine in groups.items():
        for start in range(0, len(mine), MOST_ENTRIES):
            try:
                jobs.append(_ask_job(gpu, policy, mine[start:start + MOST_ENTRIES], owner, device))
            except Refused as error:                                      # of what an imported file called its GPU, say
                log.warning("winners on %s are not measured again: %s", gpu, error)
    return [job for job in jobs if job is not None]


@transaction.atomic
def _ask_job(gpu: str, policy: str, entries: Sequence[CachedConfig], owner: Any, device: str) -> SuiteJob | None:
    suite = _winners_suite(gpu, policy)                                              # locked: two who ask at once make one job
    bans = read_bans()
    busy = {key for job in selectors.jobs_under_way().filter(suite=suite) for key in selectors.entry_ids(job)}
    chosen: dict[str, tuple[CachedConfig, dict[str, Any]]] = {}
    for entry in entries:
        key = kernel_key(entry.operator, entry.shape, entry.dtype)
        if key not in busy and key not in chosen and len(sides := selectors.entry_sides(entry, bans)) > 1:
            chosen[key] = entry, sides
    if not chosen:
        return None
    for key, (entry, _) in chosen.items():
        SuiteKernel.objects.get_or_create(suite=suite, key=key, defaults={
            "op": entry.operator, "shape": entry.shape, "dtype": entry.dtype, "family": entry.operator, "declared": False})
    counts = [len(sides) for _, sides in chosen.values()]
    about = {"entries": {key: entry.pk for key, (entry, _) in chosen.items()}, "round": 1, "first": None,
             "served": {key: selectors.SERVED if selectors.SERVED in sides else "" for key, (_, sides) in chosen.items()},
             "expected_s": selectors.expected_job_seconds(counts)}
    return _create_job(suite, {key: sides for key, (_, sides) in chosen.items()}, runs_needed(sum(counts) - len(counts)), about,
                     owner, device)


def _create_job(suite: Suite, configs: dict[str, dict[str, Any]], runs: int, about: dict[str, Any], owner: Any,
              device: str) -> SuiteJob:
    """`configs`: by kernel key and side. Sides take turns as builds do, the default among them."""
    names = dict.fromkeys(name for sides in configs.values() for name in sides)
    builds = [{"build": name, "only": True, "configs": {key: sides[name] for key, sides in configs.items() if name in sides}}
              for name in names]
    return job_create(suite, builds=builds, runs=runs, kernels=list(configs), reason=REVALIDATE, device=device, owner=owner,
                      about=about)


def _winners_suite(gpu: str, policy: str) -> Suite:
    name = f"cached winners, {policy}: {gpu or 'any GPU'}"           # no team's suite can be called so
    short = name if len(name) <= 60 else f"{name[:47]} {hashlib.sha256(name.encode()).hexdigest()[:12]}"
    suite: Suite
    suite, _ = Suite.everything.get_or_create(name=short, defaults={
        "kind": Suite.Kind.WINNERS, "device": f"{devices.GPU}:{gpu}" if gpu else devices.GPU, "policy": {"kind": policy}})
    suite = Suite.everything.select_for_update().get(pk=suite.pk)
    return suite


# ---- decided ----

def decide_measured_jobs() -> list[int]:
    """Decide jobs that were measured and whose worker died; return their ids. Called by the workers' sweep.

    What cannot be decided at this second try either is given up, and says so: the cache is as it was.
    """
    done = []
    for job in selectors.undecided_jobs().order_by("pk")[:20]:
        try:
            done += [job.pk] if decide(job.pk) else []
        except DatabaseError:                    # of the moment: the next sweep tries again
            log.exception("re-validation %s: not decided", job.pk)
        except Exception as error:               # one job must not keep the others from being decided
            log.exception("re-validation %s: given up", job.pk)
            what = {"where": "cache", "what": f"what was measured could not be judged: {error}"[:500], "hint": "Measure it again."}
            SuiteJob.objects.filter(pk=job.pk).update(
                status=SuiteJob.Status.FAILED, error=what, about={**job.about, "decided": timezone.now().isoformat()})
    return done


@transaction.atomic
def decide(job_id: int) -> bool:
    """Write into the cache what serves from now on, once. False: nothing to decide, or somebody did."""
    job = SuiteJob.objects.select_for_update(of=("self",)).select_related("suite", "owner").filter(
        pk=job_id, reason=REVALIDATE, status=SuiteJob.Status.DONE).first()
    if job is None or "decided" in job.about:
        return False
    rows = list(KernelRun.objects.filter(job=job).select_related("kernel", "build").order_by("pk"))
    problems = [_problem(job, key, [row for row in rows if row.kernel.key == key]) for key in selectors.entry_ids(job)]
    choices = choose(problems, last=job.about["round"] >= ROUNDS)
    findings = {}
    for choice in choices:
        mine = [row for row in rows if row.kernel.key == choice.key]
        written, says = (None, choice.says) if choice.open or choice.serves is None else settle_entry(job, choice, mine)
        if not choice.open:
            quarantine_refused(mine, job.environment)
        findings[choice.key] = {**_kernel_findings(job, choice, mine), "says": says, "written": written.pk if written else None}
    try:
        with transaction.atomic():
            again = _queue_again(job, [choice for choice in choices if choice.open])
    except Refused as error:
        log.warning("re-validation %s: not measured once more: %s", job.pk, error)
        again = None
    job.about = {**job.about, "found": findings, "again": again.pk if again else None, "decided": timezone.now().isoformat()}
    job.save(update_fields=["about"])
    transaction.on_commit(lambda: job_publish(job), robust=True)
    log.info("re-validation %s: %s", job.pk, "; ".join(f"{key}: {finding['says']}" for key, finding in findings.items()))
    return True


def _problem(job: SuiteJob, key: str, rows: Sequence[KernelRun]) -> Problem:
    def runs(name: str) -> KernelRuns:
        mine = [row for row in rows if row.build.name == name and not row.rejected]
        return kernel_runs_of(mine[0].kernel, mine) if mine else KernelRuns("", key=key)

    def refused(name: str) -> list[str]:
        """Beside good runs only what the configuration itself did: a GPU that was busy says nothing of it."""
        mine = [row.rejected for row in rows if row.build.name == name]
        return [why for why in mine if why and (harm(why) or all(mine))]

    names = [build["build"] for build in job.builds if key in build["configs"] and build["build"] != selectors.DEFAULT]
    return Problem(key, runs(selectors.DEFAULT), [Contender(name, runs(name), refused(name)) for name in names],
                   served=job.about["served"].get(key, ""), default_refused=refused(selectors.DEFAULT))


def _queue_again(job: SuiteJob, unsure: Sequence[Choice]) -> SuiteJob | None:
    """Queue the same sides of what could not be decided, with more runs of each; None without any."""
    if not unsure:
        return None
    configs = {choice.key: {build["build"]: build["configs"][choice.key] for build in job.builds if choice.key in build["configs"]}
               for choice in unsure}
    counts = [len(sides) for sides in configs.values()]
    runs = max(runs_needed(sum(counts) - len(counts)), *(choice.more_runs for choice in unsure))
    about = {"entries": {key: job.about["entries"][key] for key in configs}, "round": job.about["round"] + 1,
             "first": job.about["first"] or job.pk, "served": {key: job.about["served"].get(key, "") for key in configs},
             "expected_s": selectors.seconds_of(max(counts), sum(counts), runs)}
    return _create_job(job.suite, configs, runs, about, job.owner, job.device)


def _kernel_findings(job: SuiteJob, choice: Choice, rows: Sequence[KernelRun]) -> dict[str, Any]:
    """Return what the pages show of one kernel: each side with its numbers against the default."""
    sides = {}
    for build in job.builds:
        if choice.key not in build["configs"]:
            continue
        mine = [row for row in rows if row.build.name == build["build"]]
        verdict = choice.against_default.get(build["build"])
        times = sorted(row.p50_us for row in mine if row.p50_us is not None)
        middle = (times[(len(times) - 1) // 2] + times[len(times) // 2]) / 2 if times else None
        sides[build["build"]] = {
            "config": build["configs"][choice.key], "us": middle, "runs": len(times), "p50_us": times,
            "failed": sum(bool(row.rejected) for row in mine), "refused": next((row.rejected for row in mine if row.rejected), ""),
            **({"verdict": str(verdict.verdict), "reason": verdict.reason} if verdict else {}),
            **({"ratio": verdict.p50.ratio, "low": verdict.p50.low, "high": verdict.p50.high, "p_value": verdict.p50.p_value}
               if verdict and verdict.p50 else {})}
    return {"entry": job.about["entries"][choice.key], "served": job.about["served"].get(choice.key, ""), "serves": choice.serves,
            "open": choice.open, "sides": sides}


FACTS = ("registers", "spills", "smem_bytes", "relative_error")
_FATAL = {"run: the process": Reason.CRASH, "run: ": Reason.TIMEOUT, f"{Reason.CRASH}: ": Reason.CRASH,
          f"{Reason.WRONG}: ": Reason.WRONG, f"{Reason.TIMEOUT}: ": Reason.TIMEOUT}         # how a rejected run begins


def settle_entry(job: SuiteJob, choice: Choice, rows: Sequence[KernelRun]) -> tuple[CachedConfig | None, str]:
    """Return (the entry that serves now, a sentence). None: the cache stays as it is, and the sentence says why."""
    entries = CachedConfig.objects.filter(pk=job.about["entries"][choice.key])
    old = entries.select_for_update(of=("self",)).select_related("job").first()
    if old is None:
        return None, "its entry was deleted while it was measured"
    if old.state == State.QUARANTINED:
        return None, "somebody took the entry out of service while it was measured"
    name = choice.serves or DEFAULT
    serving = [row for row in rows if row.build.name == name and not row.rejected]
    key = _key(old, serving[-1], job.environment.get("policy") or {})
    there = CachedConfig.objects.select_for_update().filter(**key).first()
    if (there is not None and there.pk != old.pk and there.updated > job.created
            and config_key(there.config) not in _measured_keys(rows)):
        return None, "a tune job found another winner for this environment meanwhile, which was not measured here: it stays"
    values = _values(job, choice, old, rows, serving, name, there or old)
    written = CachedConfig.objects.update_or_create(**key, defaults=values)[0]
    if not written.recorded:
        by = f"re-validation {job.pk}"
        mark_older_stale(written, by)
        mark_other_sources_unverified(written)
        if old.pk != written.pk and old.origin != written.origin:
            state_set(old, State.STALE, f"measured here by {by}")
    return written, choice.says


def _key(old: CachedConfig, run: KernelRun, policy: Mapping[str, Any]) -> dict[str, Any]:
    return {"operator": old.operator, "dtype": old.dtype, "shape_key": old.shape_key or shape_key(old.shape), "gpu": run.gpu,
            "toolkit": run.toolkit, "driver": run.driver, "policy": old.policy or "cold",
            "flush": flush_text(policy) or old.flush, "source_hash": run.source_hash,
            "recorded": run.recorded, "origin": rules.Origin.TUNE}


def _measured_keys(rows: Sequence[KernelRun]) -> set[str]:
    return {config_key(row.config) for row in rows if row.config}


def _values(job: SuiteJob, choice: Choice, old: CachedConfig, rows: Sequence[KernelRun], serving: Sequence[KernelRun], name: str,
            before: CachedConfig) -> dict[str, Any]:
    config, ms = serving[-1].config, _middle_us(serving) / 1000
    default = [row for row in rows if row.build.name == DEFAULT and not row.rejected]
    run = serving[-1]
    samples = np.concatenate([np.asarray(row.us) for row in serving]) / 1000
    capability = str(job.environment.get("compute_capability") or "") or limits(run.gpu).compute_capability
    state, why = (State.VERIFIED, "") if run.recorded else initial_state(run.gpu, run.toolkit, run.driver)
    event = {"suite_job": job.pk, "at": timezone.now().isoformat(), "config": config, "median_ms": ms, "shape": old.shape,
             "kept": True, "says": choice.says}
    evidence = {
        **{field: old.evidence[field] for field in ("trials", "valid_size", "strategy") if field in old.evidence},
        "shape": old.shape, "n": len(samples), "min_ms": float(samples.min()), "p90_ms": float(np.percentile(samples, 90)),
        "facts": {fact: run.facts[fact] for fact in FACTS if fact in run.facts}, "guard": _guard(choice, name).as_json(),
        "policy": job.environment.get("policy") or job.suite.policy, "environment": job.environment,
        "ties": _other_winners(choice, rows, name),
        "revalidation": {"job": job.pk, "runs": len(serving), "says": choice.says, "why": why, "entry": old.pk,
                         "was": old.config},
        "history": [*before.evidence.get("history", []), event][-HISTORY:]}
    return {"compute_capability": capability, "config": config, "job": old.job, "shape": old.shape,
            "shape_bucket": bucket(old.operator, old.shape), "median_ms": ms, "default_ms": _middle_us(default) / 1000,
            "library_ms": None, "evidence": evidence, "state": state, "state_why": why, "imported": None}


def _middle_us(rows: Sequence[KernelRun]) -> float:
    """Median of run medians."""
    return float(np.median([row.p50_us for row in rows if row.p50_us is not None]))


def _guard(choice: Choice, name: str) -> DefaultCheck:
    """default time / configuration's time with its interval: of what serves, or of what served so far where the default does."""
    whose = name if name != DEFAULT else SERVED
    verdict: KernelVerdict | None = choice.against_default.get(whose)
    if verdict is None or verdict.p50 is None:
        return DefaultCheck(Verdict.EQUAL, 1.0, 1.0, 1.0, choice.says)
    interval = verdict.p50
    how = (f"{whose}: {verdict.candidate_runs} against {verdict.baseline_runs} fresh processes, in turn; exact rank test"
           + (f", interval of {100 * interval.confidence:.3g} %" if interval.confidence else ""))
    called = Verdict.FASTER if name != DEFAULT else Verdict.SLOWER if interval.low > 1 else Verdict.EQUAL
    return DefaultCheck(called, 1 / interval.ratio, 1 / interval.high, 1 / interval.low, how)


def _other_winners(choice: Choice, rows: Sequence[KernelRun], name: str) -> list[Any]:
    """Configurations that were surely faster than the default too, the fastest first: rivals when it is measured again."""
    sure = [(verdict.candidate_us or 0.0, side) for side, verdict in choice.against_default.items()
            if side != name and verdict.change == "faster"]
    configs = {row.build.name: row.config for row in rows if not row.rejected}
    return [configs[side] for _, side in sorted(sure) if configs.get(side)]


def harm(rejected: str) -> Reason | None:
    """Return what a rejected run says of its configuration; None where GPU, host or recording may be at fault."""
    return next((reason for begins, reason in _FATAL.items() if rejected.startswith(begins)), None)


def quarantine_refused(rows: Sequence[KernelRun], environment: Mapping[str, Any]) -> int:
    """What crashed, hung or computed wrong is kept from the fleet, as a tune job's would be. Where the default itself has no good
    run the GPU is at fault, and nothing is. Number of configurations that are in quarantine now."""
    if not any(row.build.name == DEFAULT and not row.rejected for row in rows):
        return 0
    bans = {}
    for row in rows:
        reason = harm(row.rejected)
        if reason is None or row.build.name == DEFAULT or not row.config:
            continue
        good = next((other for other in rows if not other.rejected), row)
        facts = {"operator": row.kernel.op, "dtype": row.kernel.dtype, "config": row.config, "toolkit": row.toolkit or good.toolkit,
                 "capability": str(environment.get("compute_capability") or ""),
                 "source_hash": row.source_hash or good.source_hash, "reason": str(reason)}
        bans[config_key(row.config)] = quarantine.quarantine_put(
            facts, {"message": row.rejected, "shape": row.kernel.shape, "gpu": row.gpu or good.gpu, "job": None})
    return len(bans)
