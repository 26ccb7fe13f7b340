"""A week of a project: what got slower, was resolved, is worth most, was tuned, failed in gates, is assigned.

Numbers come from the selectors of the pages themselves. Weeks are ISO weeks, Monday to Sunday, in the server's time zone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, TypedDict

from django.db.models import F, Q
from django.utils import timezone

from profiles.families.home_selectors import Fix
from tuner.gate.history.sentences import size_text
from tuner.gate.stats.rule import Verdict
from tuner.models import Gate, Regression, TuneJob
from webapp.models import Thread
from webapp.overview import worth_fixing
from webapp.threads.weeks import week_of

MOST = 50               # lines of a part; how many there are is counted
WEEK = re.compile(r"(\d{4})-W(\d{2})")


@dataclass(frozen=True)
class Part:
    """One part: its lines (at most MOST) and how many there are."""

    rows: tuple[Any, ...]
    count: int


@dataclass(frozen=True)
class Digest:
    """A week; `worth` is as of now and, as what is assigned, no event: without the others nothing happened."""

    week: str
    start: datetime
    end: datetime
    found: Part             # of (Regression, size in words)
    resolved: Part
    wins: Part              # of (TuneJob, times the default)
    failed: Part            # of Gate
    worth: tuple[Fix, ...]
    assigned: Part          # of Thread

    @property
    def happened(self) -> bool:
        return any(part.count for part in (self.found, self.resolved, self.wins, self.failed))

    @property
    def subject(self) -> str:
        said = [(self.found.count, "slower"), (self.resolved.count, "resolved"), (self.wins.count, "tuned"),
                (self.failed.count, "gate failed" if self.failed.count == 1 else "gates failed")]
        return f"Week {self.week}: " + (", ".join(f"{count} {word}" for count, word in said if count) or "nothing happened")

    @property
    def before(self) -> str:
        return week_of(self.start.date() - timedelta(days=1))

    @property
    def after(self) -> str:
        return week_of(self.end.date())


def bounds(week: str) -> tuple[datetime, datetime]:
    """Return Monday 0:00 and the next one. Raises ValueError for what is no week."""
    match = WEEK.fullmatch(week)
    if match is None:
        raise ValueError(f"{week[:20]!r} is no week: write 2026-W48")
    try:
        monday = date.fromisocalendar(int(match[1]), int(match[2]), 1)
        return _midnight(monday), _midnight(monday + timedelta(days=7))
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{week} is no week: {error}") from error


def _midnight(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(day, datetime.min.time()))


def digest(week: str) -> Digest:
    """Return a week of the current project. Raises ValueError for what is no week."""
    start, end = bounds(week)
    inside = {"gte": start, "lt": end}
    known = Regression.objects.select_related("suite", "build", "good")
    found = known.filter(**{f"created__{how}": at for how, at in inside.items()})
    ended = known.filter(state__in=[Regression.State.FIXED, Regression.State.INTENDED, Regression.State.ENVIRONMENT])
    resolved = [row for row in ended.filter(changed__gte=start)[:1000] if _ended_within(row, start, end)]
    jobs = TuneJob.objects.filter(status=TuneJob.Status.DONE, best_ms__gt=0, default_ms__gt=F("best_ms"),
                                  **{f"finished__{how}": at for how, at in inside.items()})
    gates = Gate.objects.filter(Q(verdict=Verdict.SLOWER) | Q(status=Gate.Status.FAILED),
                                **{f"finished__{how}": at for how, at in inside.items()}).select_related("suite", "build")
    wins = sorted(((job, (job.default_ms or 0) / (job.best_ms or 1)) for job in jobs[:1000]), key=lambda each: -each[1])
    assigned = Thread.objects.filter(is_open=True, assignee__isnull=False).select_related("assignee")
    return Digest(week, start, end,
                  Part(tuple((row, size_text(row)) for row in found[:MOST]), found.count()),
                  Part(tuple((row, size_text(row)) for row in resolved[:MOST]), len(resolved)),
                  Part(tuple(wins[:MOST]), jobs.count()), Part(tuple(gates[:MOST]), gates.count()),
                  tuple(worth_fixing()), Part(tuple(assigned[:MOST]), assigned.count()))


def _ended_within(row: Regression, start: datetime, end: datetime) -> bool:
    """Return whether a regression got the state that it has in this time: notes written later do not count."""
    at = None
    for each in reversed(row.history):
        if each.get("state") != row.state:
            break
        at = each.get("at")
    return at is not None and start <= datetime.fromisoformat(at) < end


class WeekRegressionJson(TypedDict):
    id: int
    suite: str
    family: str
    build: str
    ratio: float | None
    state: str


class WeekRegressionsJson(TypedDict):
    count: int
    rows: list[WeekRegressionJson]


class WinJson(TypedDict):
    """A tune job that found something faster than the default."""

    id: int
    operator: str
    dtype: str
    shape: dict[str, int]
    gpu: str
    recorded: str | None
    default_ms: float
    best_ms: float


class WinsJson(TypedDict):
    count: int
    rows: list[WinJson]


class WeekGateJson(TypedDict):
    id: int
    suite: str
    build: str
    verdict: str | None
    status: str


class WeekGatesJson(TypedDict):
    count: int
    rows: list[WeekGateJson]


class WorthFixingJson(TypedDict):
    family: int
    name: str
    expected_ns: float | None
    total_ns: float


class AssignedJson(TypedDict):
    thread: int
    title: str
    assignee: str
    status: str


class AssignedRowsJson(TypedDict):
    count: int
    rows: list[AssignedJson]


class DigestJson(TypedDict):
    """A week of a project."""

    week: str
    start: str
    end: str
    happened: bool
    regressions: WeekRegressionsJson
    resolved: WeekRegressionsJson
    tune_wins: WinsJson
    gate_failures: WeekGatesJson
    worth_fixing: list[WorthFixingJson]
    assigned: AssignedRowsJson


def digest_json(one: Digest) -> DigestJson:
    """A week over the API and in messages."""
    def regressions(part: Part) -> WeekRegressionsJson:
        return {"count": part.count, "rows": [{"id": row.pk, "suite": row.suite.name, "family": row.family, "build": row.build.name,
                                               "ratio": row.ratio, "state": row.state} for row, _ in part.rows]}

    return {"week": one.week, "start": one.start.isoformat(), "end": one.end.isoformat(), "happened": one.happened,
            "regressions": regressions(one.found), "resolved": regressions(one.resolved),
            "tune_wins": {"count": one.wins.count, "rows": [
                {"id": job.pk, "operator": job.operator, "dtype": job.dtype, "shape": job.shape, "gpu": job.gpu,
                 "recorded": job.recorded or None, "default_ms": job.default_ms, "best_ms": job.best_ms}
                for job, _ in one.wins.rows]},
            "gate_failures": {"count": one.failed.count, "rows": [
                {"id": gate.pk, "suite": gate.suite.name, "build": gate.build.name, "verdict": gate.verdict or None,
                 "status": gate.status} for gate in one.failed.rows]},
            "worth_fixing": [{"family": fix.line.family.pk, "name": fix.line.name, "expected_ns": fix.line.worth.expected_ns,
                              "total_ns": fix.line.worth.total_ns} for fix in one.worth],
            "assigned": {"count": one.assigned.count, "rows": [
                {"thread": row.pk, "title": row.title, "assignee": row.assignee.get_username(), "status": row.status}
                for row in one.assigned.rows]}}
