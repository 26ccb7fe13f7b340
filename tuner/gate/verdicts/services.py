"""Create a gate, stop it, or measure it again: what pages, the API and the command do to gates.

A request is checked before anything runs. Uploaded runs are judged at once, others are ordered from workers.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, TextIO

from django.conf import settings
from django.core.management.base import OutputWrapper
from django.db import IntegrityError, transaction
from django.utils import timezone

from profiles.base.refused import Refused
from tuner.cache.rules import toolkit_text
from tuner.gate import client
from tuner.gate.baselines.selectors import Env, Expected, measured_environments
from tuner.gate.builds.selectors import ENVIRONMENT
from tuner.gate.builds.services import ensure_build
from tuner.gate.options import PLACES, check_reports, write_reports
from tuner.gate.reports import words
from tuner.gate.stats.plan import plan_runs
from tuner.gate.stats.rule import ERROR_EXIT_CODE, Verdict, rule_of
from tuner.gate.suites.job_services import configs_problem, job_create, job_stop
from tuner.gate.suites.selectors import LIVE
from tuner.gate.suites.upload_services import StoredRuns, driver_spelling, gpu_spelling, runs_store, toolkit_spelling
from tuner.gate.verdicts import selectors
from tuner.gate.verdicts.decide_services import advance_gate, advance_gates_of_build, job_device, publish_gate, queue_round
from tuner.gate.verdicts.selectors import MOST_FRESH
from tuner.gate.verdicts.verdict_services import judge_gate
from tuner.models import Build, Gate, Suite, SuiteJob
from tuner.tuning.trial import storable
from workers import jobs, trail

ENVIRONMENT_CHARS = {"gpu": 116, "toolkit": 80, "cuda": 40, "triton": 40, "driver": 40, "device": 120, "recorded": 120}
MOST_RUNS, MOST_PLACES = 200, 10
SPELLINGS: Mapping[str, Callable[[str], str]] = {"gpu": gpu_spelling, "toolkit": toolkit_spelling, "driver": driver_spelling}


def create_gate(suite: Suite | str, build: str, *, owner: Any = None, environment: Mapping[str, Any] | None = None,
                against: str = "", parent: str = "", branch: str = "", title: str = "", author: str = "", url: str = "",
                at: datetime | None = None, configs: Mapping[str, Any] | None = None, runs: int | None = None,
                records: Sequence[Any] | bytes | None = None, request_key: str = "", allow_gone: bool = False,
                ancestors: Sequence[str] = (), shard: str = "", attempt: str = "") -> Gate:
    """Create a gate for a build of a suite and order or judge its runs. Raises Refused, and then nothing was made.

    runs     fresh runs of the build to measure; None: the suite's
    records  runs that CI measured itself, as lines of a runs file; the answer is then known at once
    against  a build to compare with, instead of the baseline
    shard    "2/4": the records are those of one of so many jobs; the gate waits for the others
    attempt  of the pipeline's job that took the records: another attempt's processes are others, whatever their names
    allow_gone  kernels that the baseline has and this build has not are meant; else they are NO DATA
    request_key  of the caller's making: a request that is sent again, because its answer was lost, finds the gate it made
    """
    parts = filter(None, (shard, attempt))
    request = _request_digest(environment, against, configs, runs, records, *parts) if request_key else ""
    if request_key and (standing := _existing_gate(request_key, owner, suite, build, request)) is not None:
        return standing
    found = find_suite(suite)
    asked = parse_environment(environment)
    uploaded = found.kind == Suite.Kind.UPLOADED
    if records is not None and not uploaded:
        raise Refused({"runs": f"suite {found.name} is measured by workers: give a number; only an uploaded suite takes runs"})
    if records is None and (shard or attempt):
        raise Refused({"shard" if shard else "attempt": "it is said of runs that come along"})
    if uploaded and runs is not None:
        raise Refused({"runs": f"suite {found.name} is not measured here: send its runs, not their number"})
    if not found.enabled:
        raise Refused({"suite": f"{found.name} is switched off"}, status=409)
    keys = {kernel.key: kernel for kernel in found.kernels.filter(enabled=True)}
    if configs is not None and (problem := configs_problem(configs, keys)):
        raise Refused({"configs": problem})
    try:
        with transaction.atomic():
            row = ensure_build(build, parent=parent, branch=branch, title=title, author=author, url=url, at=at, ancestors=ancestors)
            gate = Gate.objects.create(suite=found, build=row, against=_comparison_build(against, row, found), environment=asked,
                                       url=row.url if url else "", owner=owner, configs=dict(configs or {}), allow_gone=allow_gone,
                                       request_key=request_key, report={"request": request} if request else {},
                                       status=Gate.Status.WAITING if uploaded else Gate.Status.MEASURING)
            if uploaded:
                _store_runs(gate, records, shard, attempt)
            else:
                _queue_first_round(gate, runs)
            transaction.on_commit(lambda: publish_gate(gate), robust=True)
    except IntegrityError:                         # the same request, sent twice, has just committed
        if request_key and (standing := _existing_gate(request_key, owner, suite, build, request)) is not None:
            return standing
        raise
    except Refused as refused:
        raise refused.renamed({"builds": "build", "records": "runs", "": "runs"}) from refused
    if uploaded:
        advance_gate(gate.pk)
        if records is not None:                    # others of the build may have waited for these runs
            advance_gates_of_build(found, gate.build)
        gate.refresh_from_db()
    return gate


def _request_digest(*asked: Any) -> str:
    """Return what tells one request from another that bears the same key."""
    return sha256(repr(asked).encode("utf-8", "backslashreplace")).hexdigest()


def _existing_gate(request_key: str, owner: Any, suite: Suite | str, build: str, request: str) -> Gate | None:
    """Return the gate that this very request made before, None where there is none. Raises Refused."""
    if not trail.is_key(request_key):
        raise Refused({"Idempotency-Key": trail.WHAT})
    gate = Gate.objects.select_related("suite", "build", "against").filter(owner=owner, request_key=request_key).first()
    if gate is not None and (gate.suite.name, gate.build.name) != (getattr(suite, "name", suite), build.strip()):
        raise Refused({"Idempotency-Key": f"gate {gate.pk} of another suite or build was asked for with it"}, status=409)
    if gate is not None and gate.report.get("request", request) != request:
        raise Refused({"Idempotency-Key": f"gate {gate.pk} was asked for with it in another way; take a new key"}, status=409)
    return gate


def find_suite(suite: Suite | str) -> Suite:
    """Return the suite of this name. Raises Refused, with the names there are."""
    if isinstance(suite, Suite):
        return suite
    row = Suite.objects.filter(name=suite).first() if isinstance(suite, str) and storable(suite) else None
    if row is None:
        names = list(Suite.objects.order_by("name").values_list("name", flat=True)[:20])
        raise Refused({"suite": f"there is no such suite; there {'are' if len(names) != 1 else 'is'} "
                                f"{', '.join(names) or 'none yet: make one under /suites/new/'}"}, status=404)
    return row


def parse_environment(given: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the texts of known names without empty ones; cuda and triton become the toolkit. Raises Refused."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise Refused({"environment": "an object with gpu, toolkit (or cuda and triton), driver, device"})
    fields: dict[str, str] = {}
    for name, value in given.items():
        if name not in ENVIRONMENT_CHARS:
            raise Refused({"environment": f"choose among {', '.join(ENVIRONMENT_CHARS)}"})
        most = ENVIRONMENT_CHARS[name]
        if not isinstance(value, str) or not storable(value) or len(value) > most or not (value or " ").isprintable():
            raise Refused({"environment": f"{name}: at most {most} printable characters"})
        if value.strip():
            fields[name] = SPELLINGS.get(name, str.strip)(value)
    parts: dict[str, str] = {name: fields.pop(name) for name in ("cuda", "triton") if name in fields}
    return {"toolkit": toolkit_spelling(toolkit_text(parts)), **fields} if parts else fields


def _comparison_build(name: str, build: Build, suite: Suite) -> Build | None:
    """Return the build that the request names to compare with, None without one. Raises Refused."""
    if not name:
        return None
    if name == build.name:
        raise Refused({"against": "the build itself: name an earlier one, or leave it out"})
    other = Build.objects.filter(name=name).first() if storable(name) else None
    if other is None and not selectors.can_measure_again(suite):
        raise Refused({"against": "no build of this name is known, and its runs cannot be measured here: send them first"})
    return other or ensure_build(name)


def _store_runs(gate: Gate, records: Sequence[Any] | bytes | None, shard: str, attempt: str) -> None:
    """Store uploaded runs; the gate speaks of the environment they were taken in. Raises Refused."""
    if records is None:
        return
    environment = gate.environment
    where = {name: environment.get(name, "") for name in ENVIRONMENT}
    stored = runs_store(gate.suite, gate.build, records, **where, shard=shard, attempt=attempt, owner=gate.owner)
    if not stored.runs:
        raise Refused({"runs": "no run in what was sent"})
    rows = gate.build.runs.filter(pk__in=stored.runs, rejected="").order_by()
    places = [Env(*place) for place in rows.values_list(*ENVIRONMENT).distinct()[:MOST_PLACES]]
    if len(places) == 1:
        gate.gpu, gate.toolkit, gate.driver, gate.recorded = places[0].where().values()
    gate.report = {**gate.report, **({"mixed": sorted(place.text for place in places)} if len(places) > 1 else {}),
                   **({"repeated": stored.repeated} if stored.repeated else {})}
    gate.save(update_fields=[*ENVIRONMENT, "report"])


def _queue_first_round(gate: Gate, runs: int | None) -> None:
    """Order the runs of the first round. Raises Refused where so few could decide nothing."""
    suite = gate.suite
    if runs is not None and not (isinstance(runs, int) and not isinstance(runs, bool) and 1 <= runs <= MOST_RUNS):
        raise Refused({"runs": f"a whole number from 1 to {MOST_RUNS}"})
    if gpu := known_gpu(suite, gate.environment):
        gate.environment = {**gate.environment, "gpu": gpu}
    baselines = selectors.likely_baselines(suite, gate.environment, gate.build, gate.against)
    planned = selectors.plan_runs(suite, runs, baselines)
    if not planned["enough"]:
        raise Refused({"runs": planned["says"]})
    ours = {"build": gate.build.name, "configs": gate.configs}
    builds = [ours]
    other = _partner_build(gate, baselines) if planned["interleaved"] or _lacks_runs(gate, baselines) else ""
    number = planned["candidate_runs"]
    if other:
        keys = list(suite.kernels.filter(enabled=True).values_list("key", flat=True))
        builds = [{"build": other, "configs": selectors.last_configs(suite, other, keys)}, ours]
        number = selectors.runs_each(planned["kernels"], number, rule_of(suite.rule))
    job_create(suite, builds=builds, runs=number, gate=gate, reason="gate", device=job_device(suite, gate.environment),
               owner=gate.owner)
    gate.rounds = 1
    gate.save(update_fields=["rounds", "environment"])


def _lacks_runs(gate: Gate, baselines: Sequence[Expected]) -> bool:
    """Return whether the build named to compare with can be measured and has too few runs."""
    return gate.against is not None and selectors.can_measure_again(gate.suite) and not any(baseline.runs for baseline in baselines)


def _partner_build(gate: Gate, baselines: Sequence[Expected]) -> str:
    """Return the name of the build to measure in turn, "" without one."""
    if gate.against is not None:
        return gate.against.name
    return next((baseline.builds[0].name for baseline in baselines if baseline.builds), "")


def known_gpu(suite: Suite, asked: Mapping[str, str]) -> str:
    """Return the GPU that is asked for as workers and runs name it, "" where none is.

    Raises Refused for one that no worker has and no run was ever taken on: it would be waited for without end.
    """
    if not asked.get("gpu"):
        return ""
    alive = {gpu["name"] for worker in jobs.workers() for gpu in worker.get("gpus") or []}
    measured_gpus = {env.gpu for env in measured_environments(suite)} - {""}
    name = gpu_spelling(asked["gpu"], sorted(alive | measured_gpus))
    if name not in alive | measured_gpus:
        names = ", ".join(sorted(alive | measured_gpus)) or "none"
        raise Refused({"environment": f"no worker has a GPU of the model {asked['gpu']}; known: {names}"}, status=409)
    return name


DOUBTFUL = (Verdict.SLOWER, Verdict.AMBIGUOUS, Verdict.NO_DATA)


def stop_gate(gate: Gate) -> bool:
    """End a gate that waits or measures; what was measured stays. False: it had ended already."""
    with transaction.atomic():
        stopped = Gate.objects.filter(pk=gate.pk, status__in=Gate.UNDER_WAY).update(
            status=Gate.Status.STOPPED, finished=timezone.now(), reason="stopped before it was decided")
        for job in gate.jobs.filter(status__in=LIVE) if stopped else []:
            job_stop(job)
        gate.refresh_from_db()
        if stopped:
            transaction.on_commit(lambda: publish_gate(gate), robust=True)
    return bool(stopped)


def measure_gate_again(gate: Gate, *, owner: Any = None, runs: int | None = None, kernels: Sequence[str] | None = None) -> Gate:
    """Another round of a gate that has ended: in turn with the baseline's build where that can be run, then judged anew.

    runs     fresh runs of each build; None: as many as can decide
    kernels  keys; None: those that are SLOWER, AMBIGUOUS or without data, else all
    An uploaded suite's gate is judged again with all runs that are there by now. Raises Refused.
    """
    if runs is not None and not (isinstance(runs, int) and not isinstance(runs, bool) and 1 <= runs <= MOST_FRESH):
        raise Refused({"runs": f"a whole number from 1 to {MOST_FRESH}"})
    with transaction.atomic():
        row = Gate.objects.select_for_update(of=("self",)).select_related("suite", "build", "against").get(pk=gate.pk)
        if row.status in Gate.UNDER_WAY:
            raise Refused({"gate": "it is still going on"}, status=409)
        if row.suite.kind == Suite.Kind.UPLOADED:
            Gate.objects.filter(pk=row.pk).update(status=Gate.Status.WAITING, finished=None)
        else:
            _queue_asked_round(row, owner, runs, kernels)
            transaction.on_commit(lambda: publish_gate(row), robust=True)
    if row.suite.kind == Suite.Kind.UPLOADED:
        advance_gate(row.pk)
    gate.refresh_from_db()
    return gate


def _queue_asked_round(gate: Gate, owner: Any, runs: int | None, kernels: Sequence[str] | None) -> None:
    """Order the round that a person asked for. Raises Refused."""
    judged = judge_gate(gate)
    comparisons = {comparison.kernel.key: comparison for comparison in judged.sides.kernels}
    if kernels is not None and (wrong := [key for key in kernels if key not in comparisons] if kernels else [""]):
        raise Refused({"kernels": f"no kernel {wrong[0][:80]!r}; choose among {', '.join(list(comparisons)[:20])}"})
    doubtful = [comparison for key, comparison in comparisons.items() if key in judged.of and judged.of[key].verdict in DOUBTFUL]
    chosen = [comparisons[key] for key in kernels] if kernels else doubtful or list(comparisons.values())
    rule = rule_of(gate.suite.rule)
    if runs is not None and not (planned := plan_runs(len(chosen), runs, runs, rule)).enough:
        raise Refused({"runs": planned.says})
    offered = (gate.report.get("offer") or {}).get("baseline", "")
    round_plan = selectors.plan_round(gate, judged.sides, chosen, rule, runs or 0, "asked for by a person",
                                       offered if not any(comparison.baseline.runs for comparison in chosen) else "")
    gate.error = None
    gate.verdict = ""
    if not queue_round(gate, round_plan, "again", owner):
        raise Refused({"suite": "it cannot be measured now: it is switched off, or its kernels have changed"}, status=409)


# ---- what people and CI do to a suite that its gates wait for ----

def stop_job(job: SuiteJob) -> bool:
    """Stop a job; a gate that waited for it is stopped with it: its runs stay, and it may be asked again."""
    stopped = job_stop(job)
    if stopped and job.gate_id:
        advance_gate(job.gate_id)
    return stopped


def upload_runs(suite: Suite, build: str, records: Any, **said: Any) -> StoredRuns:
    """Store uploaded runs, then let gates that wait for runs of this build decide."""
    stored = runs_store(suite, build, records, **said)
    advance_gates_of_build(suite, build)
    return stored


# The server half of `manage.py gate`: a gate over this installation's own rows, followed until it has ended.
#
# Workers do the measuring; without one that serves the suite's device the command says so and waits. The offline half, for
# files, is in the command itself: it needs no rows.

TEXTS = ("against", "parent", "branch", "title", "url")
LOOK_EVERY_S = 0.5


def run_command(options: Mapping[str, Any], stdout: TextIO | OutputWrapper, stderr: TextIO | OutputWrapper) -> int:
    """The exit code: 0 pass, 1 slower, 2 could not decide, 3 error."""
    try:
        check_reports(options, options["build"])
        gate = Gate.objects.get(pk=options["gate"]) if options["gate"] is not None else _create_gate(options)
        document = _follow(gate, float(options["timeout"]), stderr)
    except (Refused, client.GateError) as error:
        print(f"error: {error}", file=stderr)
        return ERROR_EXIT_CODE
    except Gate.DoesNotExist:
        print(f"error: there is no gate {options['gate']}", file=stderr)
        return ERROR_EXIT_CODE
    code, wrong = document["exit_code"], ""
    try:
        write_reports(document, options)
        if options.get("json") not in (None, "-"):
            Path(options["json"]).write_text(words.as_text(document))
    except (client.GateError, OSError) as error:
        wrong = str(error)
        print(f"error: {wrong}", file=stderr)
    print(json.dumps(document) if options.get("json") == "-" else client.gate_table(document), file=stdout)
    if code is None:
        print(f"no verdict within {options['timeout']:.0f} s; the gate goes on: --gate {document['id']}", file=stderr)
        return client.UNDECIDED
    return ERROR_EXIT_CODE if wrong and code != client.SLOWER else int(code)


def _create_gate(options: Mapping[str, Any]) -> Gate:
    if not options["build"]:
        raise client.GateError("name --suite and --build, or --gate")
    if options["runs"] and options["fresh_runs"] is not None:
        raise client.GateError("--runs and --fresh-runs: one of them")
    if options["shard"] and not options["runs"]:
        raise client.GateError("--shard is said of --runs")
    environment = {name: options[name] for name in PLACES if options[name]}
    return create_gate(
        options["suite"], options["build"], environment=environment or None, **{name: options[name] for name in TEXTS},
        shard=options["shard"], attempt=(options["attempt"] or client.ci_attempt(os.environ)) if options["runs"] else "",
        allow_gone=options["allow_gone"], runs=options["fresh_runs"],
        configs=_load_configs(options["configs"]) if options["configs"] else None,
        records=client.read_runs(options["runs"]) if options["runs"] else None)


def _load_configs(path: str) -> Any:
    try:
        configs = json.loads(Path(path).read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise client.GateError(f"{path}: {error}") from error
    if not isinstance(configs, dict):
        raise client.GateError(f"{path}: an object is needed, kernel key -> configuration")
    return configs


def _follow(gate: Gate, timeout_s: float, stderr: TextIO | OutputWrapper) -> words.GateDocument:
    """The gate's document when it has ended, or as it is after so long."""
    until, last_line = time.monotonic() + timeout_s, ""
    while gate.status in Gate.UNDER_WAY and time.monotonic() < until:
        line = f"gate {gate.pk}: {selectors.progress(gate).get('says') or gate.status}{_missing_worker_note(gate)}"
        if line != last_line:
            print(line, file=stderr, flush=True)
            last_line = line
        time.sleep(LOOK_EVERY_S)
        gate.refresh_from_db()
    return selectors.gate_document(selectors.gate_list().get(pk=gate.pk), base=settings.PUBLIC_URL)


def _missing_worker_note(gate: Gate) -> str:
    """Why nothing happens, where nobody could do it."""
    if gate.suite.kind == Suite.Kind.UPLOADED:
        return ""
    job = gate.jobs.order_by("-id").first()
    queue = "replay" if job and job.device.startswith("replay:") else "gpu"
    alive = any(queue in worker.get("queues", ()) for worker in jobs.workers())
    return "" if alive else f" (no {queue} worker answers: manage.py worker {queue})"
