"""Captures by a schedule: which are due, what they capture, and the budgets that hold.

Rows are the truth: the sweep wakes a worker when one is due, which asks the server while nothing is locked, then locks the row,
looks whether it is still due, decides and writes what came of it. Budgets count rows of captures of the day (UTC).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from profiles.base.refused import Refused
from profiles.fleet import capture_services
from profiles.fleet.capture_services import Wanted
from profiles.models import FleetCapture, FleetContext
from profiles.running import engine_services
from profiles.running.engines import EngineProblem
from profiles.running.models import CaptureSchedule, EngineCapture, EngineServer
from workers import disk, jobs

# What the server of a schedule answers before the schedule is locked: a server may take seconds, and nobody waits for it then.

ASKED_MS = 25_000                       # a server is asked by one worker at a time; it answers within seconds or not at all
When = CaptureSchedule.When


@dataclass(frozen=True)
class Look:
    """`problem`: why the server did not say it."""

    server_id: int | None = None
    version: str = ""
    requests: float | None = None
    problem: str = ""


def may_ask(schedule: CaptureSchedule) -> bool:
    """Return whether no other worker asks the server now: many would wait for one that does not answer."""
    key = f"ridgepoint:schedule:{schedule.pk}:{schedule.next_due}"
    return schedule.server is None or jobs.take_turn(key, ASKED_MS)


def look_at(schedule: CaptureSchedule) -> Look:
    """Ask the server of a schedule what decides over it, within seconds."""
    server = schedule.server
    if server is None:
        return Look()
    if schedule.when == When.BUILD:
        return Look(server.pk, version=engine_services.ask_version(server).version)
    if schedule.when != When.REQUESTS:
        return Look(server.pk)
    try:
        count = engine_services.engine_of(server).metrics().requests(server.kind)
    except EngineProblem as problem:
        return Look(server.pk, problem=problem.what)
    return Look(server.pk, requests=count, problem="its metrics do not count requests" if count is None else "")


log = logging.getLogger(__name__)
QUEUE, TASK = "replay", "schedules"
MOST_SCHEDULES = 200
MOST_A_DAY = 100
MOST_BUILDS = 500                       # that a schedule remembers
LOOK_EVERY = timedelta(seconds=30)      # at a server's count of requests
BUILDS_EVERY = timedelta(seconds=20)    # at what processes say of their build
LATE = timedelta(hours=6)               # a night that nobody could run for so long is left out


def schedule_save(schedule: CaptureSchedule | None = None, *, name: str, when: str, server: EngineServer | None = None,
                  job: str = "", host: str = "", ranks: str = "", most: int = 1, minute: int = 120, requests: int = 0,
                  options: Mapping[str, Any] | None = None, per_day: int = 1, per_job_day: int = 4, enabled: bool = True,
                  author: Any = None) -> CaptureSchedule:
    """Make a schedule or change one. `options`: of `fleet.capture_services.Wanted`, or of a server's capture.

    Raises:
        Refused: what is wrong, by field.
    """
    schedule = schedule or CaptureSchedule(author=author if getattr(author, "is_authenticated", False) else None)
    errors: dict[str, str] = {}
    name = name.strip()
    if not 0 < len(name) <= 120 or not name.isprintable():
        errors["name"] = "a name of 1 to 120 characters"
    elif CaptureSchedule.objects.filter(name=name).exclude(pk=schedule.pk).exists():
        errors["name"] = "there is a schedule of this name already"
    if when not in When.values:
        errors["when"] = f"one of {', '.join(When.values)}"
    if not 0 <= minute < 1440:
        errors["minute"] = "a time of the day, UTC"
    if when == When.REQUESTS and not (server and 1 <= requests <= 10**9):
        errors["requests"] = "a server, and one of how many requests"
    if server is None and not job and when != When.REGRESSION:
        errors["job"] = "a job or a server"
    if when == When.REGRESSION and server is not None:
        errors["server"] = "a regression's processes are captured: no server"
    for field, value in (("per_day", per_day), ("per_job_day", per_job_day)):
        if not 1 <= value <= MOST_A_DAY:
            errors[field] = f"1 to {MOST_A_DAY}"
    if not 1 <= most <= capture_services.MOST_PROCESSES:
        errors["most"] = f"1 to {capture_services.MOST_PROCESSES} processes"
    values, wrong = _options(server, dict(options or {}), most if not ranks else 2)
    errors |= wrong
    try:
        capture_services.with_ranks([], ranks)
    except Refused as refused:
        errors |= refused.fields
    if schedule.pk is None and CaptureSchedule.objects.count() >= MOST_SCHEDULES:
        errors["name"] = f"there are {MOST_SCHEDULES} schedules already"
    if errors:
        raise Refused(errors, whole="request")
    schedule.name, schedule.when, schedule.server, schedule.enabled = name, when, server, enabled
    schedule.job, schedule.host, schedule.ranks, schedule.most = job.strip()[:200], host.strip()[:200], ranks.strip()[:100], most
    schedule.minute, schedule.requests, schedule.options = minute, requests, values
    schedule.per_day, schedule.per_job_day = per_day, per_job_day
    schedule.next_due = next_due(schedule, timezone.now())
    schedule.save()
    return schedule


def _options(server: EngineServer | None, given: dict[str, Any], count: int) -> tuple[dict[str, Any], dict[str, str]]:
    if server is not None:
        fields, errors = engine_services.wanted(server, given)
        return {name: fields[name] for name in ("until", "seconds", "threshold_ms", "latency", "options") if name in fields}, errors
    values = {name: given[name] for name in ("steps", "milliseconds", "shapes", "stacks") if given.get(name) not in (None, "")}
    try:
        Wanted(**values).check(count)
    except Refused as refused:
        return {}, refused.fields
    except TypeError:
        return {}, {"milliseconds": "a whole number"}
    return values, {}


def next_due(schedule: CaptureSchedule, now: datetime) -> datetime | None:
    """Return when a schedule is looked at next; None: something else wakes it."""
    if schedule.when == When.NIGHT:
        due = now.replace(hour=schedule.minute // 60, minute=schedule.minute % 60, second=0, microsecond=0)
        return due if due > now else due + timedelta(days=1)
    if schedule.when == When.REGRESSION:
        return None
    return now + (LOOK_EVERY if schedule.when == When.REQUESTS else BUILDS_EVERY)


def wake_schedules(waiting: Collection[int] = ()) -> list[int]:
    """Wake a worker where one is due; return it."""
    ids = [] if waiting else list(CaptureSchedule.objects.filter(enabled=True, next_due__lte=timezone.now()).order_by(
        "next_due").values_list("pk", flat=True)[:1])
    for pk in ids:
        jobs.enqueue(QUEUE, TASK, pk)
    return ids


def run_due() -> list[int]:
    """Run every schedule that is due; return them. Each is locked while it is decided, so two workers run none twice."""
    ran = []
    for pk in list(_due().values_list("pk", flat=True)):
        schedule = _due().select_related("server").filter(pk=pk).first()
        if schedule is None or not may_ask(schedule):
            continue
        look = look_at(schedule)
        with transaction.atomic():
            now = _due().select_for_update(skip_locked=True, of=("self",)).select_related("server").filter(pk=pk).first()
            if now is not None and now.server_id == look.server_id and now.when == schedule.when:       # changed: at the next sweep
                _run(now, look)
                ran.append(pk)
    return ran


def _due() -> QuerySet[CaptureSchedule]:
    return CaptureSchedule.objects.filter(enabled=True, next_due__lte=timezone.now())


@transaction.atomic
def regression_opened(gpu_model: str, model: str, build: str, why: str) -> list[int]:
    """Run the schedules that wait for regressions of production: processes of the jobs that run this build; return them."""
    jobs_of_build = jobs_of(gpu_model, model, build)
    ran = []
    for schedule in CaptureSchedule.objects.select_for_update(of=("self",)).filter(enabled=True, when=When.REGRESSION):
        names = [schedule.job] if schedule.job else jobs_of_build
        _note(schedule, _capture_processes(schedule, [name for name in names if name in jobs_of_build], why, build))
        ran.append(schedule.pk)
    return ran


def jobs_of(gpu_model: str, model: str, build: str) -> list[str]:
    """Return the jobs that ran a build on a model of GPU, as the fleet's sums name them."""
    contexts = FleetContext.objects.filter(gpu_model=gpu_model, build=build).filter(Q(model=model) | Q(model="")).exclude(job="")
    return list(contexts.order_by("job").values_list("job", flat=True).distinct()[:100])


def job_to_capture(gpu_model: str, model: str, build: str) -> str:
    """Return the first of those jobs with a process that can be captured, "" where there is none."""
    return next((job for job in jobs_of(gpu_model, model, build) if capture_services.are_there(job)), "")


def spent(schedule: CaptureSchedule) -> int:
    """Return how many captures a schedule made today; those of ranks that were captured together count once."""
    return _today(FleetCapture.objects.filter(schedule=schedule)) + _today(EngineCapture.objects.filter(schedule=schedule))


def _spent_on(job: str, server: EngineServer | None) -> int:
    return _today(FleetCapture.objects.filter(job=job) if server is None else EngineCapture.objects.filter(server=server))


def _today(rows: QuerySet[Any]) -> int:
    """Return how many of the rows were made today (UTC), those that were made together as one."""
    rows = rows.filter(created__gte=timezone.now().replace(hour=0, minute=0, second=0, microsecond=0))
    if rows.model is not FleetCapture:
        return rows.count()
    return rows.filter(together=None).count() + rows.exclude(together=None).values("together").distinct().count()


def _run(schedule: CaptureSchedule, look: Look) -> None:
    now = timezone.now()
    due = schedule.next_due or now
    schedule.next_due = next_due(schedule, now)
    if schedule.when == When.NIGHT:
        _note(schedule, f"nobody ran it within {LATE.seconds // 3600} h" if now - due > LATE else _capture(schedule, "nightly"))
    elif schedule.when == When.BUILD:
        _run_for_build(schedule, look)
    elif schedule.when == When.REQUESTS:
        _run_for_requests(schedule, look)
    CaptureSchedule.objects.filter(pk=schedule.pk).update(next_due=schedule.next_due)


def _run_for_build(schedule: CaptureSchedule, look: Look) -> None:
    """A server's build is its version. Builds may run beside each other: each is captured once, the others at the next looks."""
    if schedule.server is not None:
        builds = {look.version}
    else:
        builds = {process.build for process in capture_services.processes(schedule.job, schedule.host)}
    previous = schedule.seen.get("builds", [])
    new = sorted(builds - {"", *previous})
    if not new:
        return
    why = _capture(schedule, f"build {new[0]}", new[0] if schedule.server is None else "")
    if not why or not previous:
        schedule.seen = {"builds": [*previous, new[0]][-MOST_BUILDS:]}
    _note(schedule, why)


def _run_for_requests(schedule: CaptureSchedule, look: Look) -> None:
    count, before = look.requests, schedule.seen.get("requests")
    if count is None:
        _note(schedule, look.problem, tried=False)
        return
    if before is None or count < before:            # first look, or the server was started anew
        schedule.seen = {"requests": count}
        schedule.save(update_fields=["seen"])
    elif count - before >= schedule.requests:
        why = _capture(schedule, f"1 of {schedule.requests:,} requests")
        schedule.seen = {"requests": count}
        _note(schedule, why)


def _capture(schedule: CaptureSchedule, why: str, build: str = "") -> str:
    """Order what a schedule captures; return why nothing was, "" where it was."""
    if schedule.server is None:
        return _capture_processes(schedule, [schedule.job], why, build)
    if problem := _over_budget(schedule, "", schedule.server):
        return problem
    try:
        engine_services.capture_create(schedule.server, schedule.options, schedule.author, schedule)
    except (Refused, disk.NoRoom) as refused:
        return str(refused)
    return ""


def _capture_processes(schedule: CaptureSchedule, names: Sequence[str], why: str, build: str = "") -> str:
    problem = "no process of it asks for captures"
    for name in names:
        keys = capture_services.chosen(name, schedule.host, 0, schedule.ranks, schedule.most, build)
        if not keys:
            continue
        if over := _over_budget(schedule, name, None):
            return over
        try:
            options = dict(schedule.options)
            capture_services.order(keys, options.pop("steps", None), options.pop("milliseconds", None), schedule.author,
                                   f"{schedule.name}: {why}", schedule_id=schedule.pk, **options)
        except (Refused, disk.NoRoom) as refused:
            problem = refused.what
            continue
        return ""
    return problem


def _over_budget(schedule: CaptureSchedule, job: str, server: EngineServer | None) -> str:
    if spent(schedule) >= schedule.per_day:
        return f"its {schedule.per_day} captures of the day are made"
    if _spent_on(job, server) >= schedule.per_job_day:
        return f"{schedule.per_job_day} captures of {server.name if server else job} were made today"
    return ""


def _note(schedule: CaptureSchedule, why: str, tried: bool = True) -> None:
    schedule.last_why = why[:300]
    if tried:
        schedule.last_run = timezone.now()
    schedule.save(update_fields=["last_why", "last_run", "seen"])
    log.info("schedule %s: %s", schedule.name, why or "captured")


def schedule_fields(schedule: CaptureSchedule) -> dict[str, Any]:
    """Return a schedule as `schedule_save` takes it, for a change of some of its fields."""
    names = ("name", "when", "server", "job", "host", "ranks", "most", "minute", "requests", "options", "per_day", "per_job_day",
             "enabled")
    return {name: getattr(schedule, name) for name in names}


def schedule_change(schedule: CaptureSchedule, do: str) -> None:
    """Pause, resume or delete one; what it made stays."""
    if do == "delete":
        schedule.delete()
    elif do in ("pause", "resume"):
        schedule.enabled = do == "resume"
        schedule.next_due = next_due(schedule, timezone.now())
        schedule.save(update_fields=["enabled", "next_due"])
