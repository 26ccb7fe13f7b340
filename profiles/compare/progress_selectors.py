"""Successive profiles of one job: what each won or lost against the one before, in step time and kernel by kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import Any, TypedDict

import numpy as np
from django.core.cache import cache
from django.db.models import Count, Max, QuerySet

from profiles.analysis.compare.comparison import KernelChange, Row
from profiles.analysis.core.sentences import share_pct
from profiles.base.answers import make_answer
from profiles.compare.frame_selectors import KEPT_S, kept, steady, steps_with_verdicts
from profiles.compare.selectors import comparison
from profiles.ingest.naming.names import short_name
from profiles.ingest.trace import TraceError
from profiles.models import Profile, first_uploads
from profiles.store.objects import launches_read

MOST_STAGES = 12                # the newest of a job
CHANGED = 4                     # kernels that won, and that lost, which a stage names
STEP, WALL = "step", "wall"     # what a stage's time is of


@dataclass(frozen=True)
class StepTimes:
    """Durations of the steps that count, a step of several ranks as its longest; how they were found."""

    durations_ns: tuple[float, ...]
    left_out: int
    how: str


@dataclass(frozen=True)
class KernelStep:
    """What one kernel contributes to a stage: `delta_ns` per step where stages are compared per step, else in all."""

    kernel: str
    delta_ns: float
    verdict: str                # "slower" | "faster" | "new" | "gone" | …
    says: str                   # which of its shapes
    was: str = ""               # the kernel before that it was matched with, where its name is another


class StageJson(TypedDict):
    """A trace of a job beside the one before (`Stage`)."""

    profile: int
    name: str
    build: str
    gpu: str
    created: str
    wall_ns: int | None
    of: str
    time_ns: float | None
    noise_ns: float | None
    steps: int
    steps_left_out: int
    steps_how: str
    busy_pct: float | None
    kernel_ns: float
    launches: float
    change_ns: float | None
    change_pct: float | None
    kernel_change_ns: float | None
    rest_change_ns: float | None
    from_first_pct: float | None
    within_noise: bool
    why_not: str
    won: list[KernelStep]
    lost: list[KernelStep]


class TraceProgressJson(TypedDict):
    """Traces of one job, oldest first; `left_out`: older ones."""

    job: str
    gpu: str
    left_out: int
    answer: str
    stages: list[StageJson]


@dataclass(frozen=True)
class Stage:
    """One profile of the job. Changes are against the stage before it; None for the first, and where they cannot be told."""

    profile: Profile
    of: str                     # STEP: `time_ns` is the mean step that counts; WALL: the whole trace
    time_ns: float | None
    noise_ns: float | None      # two standard errors of the mean over its steps; None with one
    steps: int                  # that count; 0 where none are known
    steps_left_out: int
    steps_how: str
    busy_pct: float | None
    kernel_ns: float            # summed kernel time, per step where `of` is STEP
    launches: float             # the same of launches
    change_ns: float | None = None
    change_pct: float | None = None
    kernel_change_ns: float | None = None
    from_first_pct: float | None = None
    within_noise: bool = False
    why_not: str = ""           # why there is no change
    won: Sequence[KernelStep] = field(default=())
    lost: Sequence[KernelStep] = field(default=())
    compare: str = ""           # query of the whole comparison with the stage before

    @property
    def label(self) -> str:
        return self.profile.build or self.profile.name

    @property
    def rest_change_ns(self) -> float | None:
        """Return the part of the change that is not kernel time: idle GPU, overlap, copies."""
        return None if self.change_ns is None or self.kernel_change_ns is None else self.change_ns - self.kernel_change_ns

    def as_json(self) -> StageJson:
        row = self.profile
        return make_answer(StageJson, self, profile=row.pk, name=row.name, build=row.build, gpu=row.gpu, created=row.created,
                           wall_ns=row.wall_ns)


@dataclass(frozen=True)
class Progress:
    job: str
    gpu: str
    stages: list[Stage]
    left_out: int               # older profiles of the job that are not shown

    def as_json(self) -> TraceProgressJson:
        return {"job": self.job, "gpu": self.gpu, "left_out": self.left_out, "answer": answer(self),
                "stages": [stage.as_json() for stage in self.stages]}


@dataclass(frozen=True)
class Job:
    """What can be asked for: traces of one model on one GPU, at least two."""

    model: str
    gpu: str
    profiles: int


def jobs() -> list[Job]:
    """Return the jobs that have several traces, the newest first."""
    rows = (_traces().exclude(model="").order_by().values("model", "gpu").annotate(n=Count("pk"), last=Max("created"))
            .filter(n__gt=1).order_by("-last"))[:200]
    return [Job(row["model"], row["gpu"], row["n"]) for row in rows]


def _traces() -> QuerySet[Profile]:
    return first_uploads(Profile.objects.filter(status=Profile.Status.READY, kind=Profile.Kind.TRACE))


def progress(query: Mapping[str, str]) -> Progress:
    """Return the stages that a query asks for, oldest first, or in the order that it names them.

    `profiles` ("3,5,9") or `model`, with `gpu` where it ran on several. TraceError says what is wrong with the question.
    """
    if text := query.get("profiles", "").strip():
        ids = [int(part) for part in text.split(",") if part.strip().isdecimal() and len(part.strip()) < 19]
        profiles_by_id = Profile.objects.in_bulk(ids)
        rows = [profiles_by_id[pk] for pk in dict.fromkeys(ids) if pk in profiles_by_id]
        if not rows or any(row.kind != Profile.Kind.TRACE or row.status != Profile.Status.READY for row in rows):
            raise TraceError("profiles", f"no ready traces {text[:80]}",
                             "give ids of traces, separated by commas, the oldest first")
        return _build(rows[0].model or rows[0].name, rows)
    model, gpu = query.get("model", "").strip(), query.get("gpu", "").strip()
    chosen = _traces().filter(model=model) if model else Profile.objects.none()
    if gpu:
        chosen = chosen.filter(gpu=gpu)
    rows = list(chosen.order_by("created", "pk"))
    if not rows:
        raise TraceError("model", f"no ready trace of {model or 'no model'}" + (f" on {gpu}" if gpu else ""),
                         "choose a model that has traces, or give profiles=1,2,3")
    return _build(model, rows)


def _build(job: str, rows: Sequence[Profile]) -> Progress:
    shown = rows[-MOST_STAGES:]
    stages: list[Stage] = []
    for profile in shown:
        alone = _stage(profile)
        stages.append(_follow(stages[0], stages[-1], alone) if stages else alone)
    gpus = {profile.gpu for profile in shown}
    return Progress(job, gpus.pop() if len(gpus) == 1 else "", stages, len(rows) - len(shown))


def step_times(profile: Profile) -> StepTimes | None:
    """Return the steps that count, or None where the trace shows none or is too large to look."""
    packed = kept("step-times-1", profile, lambda: _pack_times(profile))
    return StepTimes(*packed) if packed else None


def _pack_times(profile: Profile) -> tuple[tuple[float, ...], int, str] | tuple[()]:
    judgement = steps_with_verdicts(profile)
    if judgement is None:
        return ()
    _, steps, verdicts = judgement
    longest: dict[str, float] = {}
    names = set()
    for span, verdict in zip(steps.spans, verdicts, strict=True):
        names.add(span.name)
        if verdict.counts:
            longest[span.name] = max(longest.get(span.name, 0.0), float(span.end_ns - span.start_ns))
    return (tuple(longest.values()), len(names) - len(longest), steps.how) if longest else ()


def _stage(profile: Profile) -> Stage:
    devices = profile.summary.get("devices") or []
    wall_ns = sum(device["wall_ns"] for device in devices)
    busy_pct = share_pct(sum(device["busy_ns"] for device in devices), wall_ns)
    times = step_times(profile)
    if times is None:
        return Stage(profile, WALL, profile.wall_ns, None, 0, 0, "", busy_pct, float(profile.gpu_time_ns or 0),
                     float(profile.launches))
    count = len(times.durations_ns)
    noise_ns = 2 * stdev(times.durations_ns) / count**0.5 if count > 1 else None
    kernel_ns, launches = _kernel_time(profile, count + times.left_out)
    return Stage(profile, STEP, mean(times.durations_ns), noise_ns, count, times.left_out, times.how, busy_pct, kernel_ns, launches)


def _kernel_time(profile: Profile, every: int) -> tuple[float, float]:
    """Kernel time and launches per step: of the steps that count where the trace marks them, as a comparison per step has it,
    else of all that the trace holds over all of its steps."""
    counting = steady(profile)
    if counting is None or not counting.steps:
        return float(profile.gpu_time_ns or 0) / every, profile.launches / every
    table = launches_read(profile.pk)
    inside = counting.launches[np.minimum(table["index"].to_numpy(), counting.launches.size - 1)]
    return float(table["dur_ns"].to_numpy()[inside].sum()) / counting.steps, float(inside.sum()) / counting.steps


def _follow(first: Stage, before: Stage, stage: Stage) -> Stage:
    """The stage with its changes against the one before it."""
    why_not = ""
    if before.of != stage.of:
        why_not = "only one of the two traces shows steps: their times are not of the same work"
    elif before.profile.gpu and stage.profile.gpu and before.profile.gpu != stage.profile.gpu:
        why_not = f"the one before ran on {before.profile.gpu}"
    elif not before.time_ns or stage.time_ns is None:
        why_not = "a time is not known"
    query = f"a={before.profile.pk}&b={stage.profile.pk}"
    if why_not or not before.time_ns or stage.time_ns is None:
        return Stage(**{**vars(stage), "why_not": why_not, "compare": query})
    change_ns = stage.time_ns - before.time_ns
    noise_ns = ((before.noise_ns or 0.0) ** 2 + (stage.noise_ns or 0.0) ** 2) ** 0.5
    won, lost = _kernels(before, stage)
    from_first = 100 * (stage.time_ns / first.time_ns - 1) if first.time_ns and first.of == stage.of else None
    return Stage(**{**vars(stage), "change_ns": change_ns, "change_pct": 100 * change_ns / before.time_ns,
                    "kernel_change_ns": stage.kernel_ns - before.kernel_ns, "from_first_pct": from_first, "won": won, "lost": lost,
                    "compare": query,
                    "within_noise": before.noise_ns is not None and stage.noise_ns is not None and abs(change_ns) <= noise_ns})


def _kernels(before: Stage, stage: Stage) -> tuple[list[KernelStep], list[KernelStep]]:
    """The kernels that won and that lost most between two stages."""
    old, new = before.profile, stage.profile
    key = "progress-1:" + ":".join(f"{p.pk}.{p.attempts}.{p.sha256[:16]}" for p in (old, new)) + f":{stage.of}"
    changes = cache.get_or_set(key, lambda: _pack_kernels(old, new, before, stage), KEPT_S)
    assert changes is not None        # what _pack_kernels returns never is
    won, lost = changes
    return [KernelStep(**fields) for fields in won], [KernelStep(**fields) for fields in lost]


def _pack_kernels(old: Profile, new: Profile, before: Stage, stage: Stage) -> tuple[list[Any], list[Any]]:
    per_step = stage.of == STEP
    compared = comparison({"a": str(old.pk), "b": str(new.pk), "kind": "trace",
                           "per": "step" if per_step and old.steps and new.steps else "total"})
    # ranges and detected steps are no steps of the profile's row: the totals are divided here
    units = (1.0, 1.0) if compared.per == "step" or not per_step else (
        float(before.steps + before.steps_left_out), float(stage.steps + stage.steps_left_out))
    changes = [(kernel.new_total_ns / units[1] - kernel.old_total_ns / units[0], kernel) for kernel in compared.result.kernels]
    changes = [(delta_ns, kernel) for delta_ns, kernel in changes
               if kernel.verdict != "unchanged" or kernel.old_launches / units[0] != kernel.new_launches / units[1]]
    ordered = sorted(changes, key=lambda each: each[0])
    rows = compared.result.rows
    won = [_pack(*change, rows[change[1].rows[0]]) for change in ordered[:CHANGED] if change[0] < 0]
    lost = [_pack(*change, rows[change[1].rows[0]]) for change in reversed(ordered[-CHANGED:]) if change[0] > 0]
    return won, lost


def _pack(delta_ns: float, kernel: KernelChange, row: Row) -> dict[str, Any]:
    was = short_name(row.old.name) if row.old and row.new and row.old.name != row.new.name else ""
    return {"kernel": kernel.kernel, "delta_ns": delta_ns, "verdict": kernel.verdict, "says": kernel.says, "was": was}


def answer(made: Progress) -> str:
    """Return one sentence: from the first to the last stage, and the step that won most; names in backticks."""
    first, last = made.stages[0], made.stages[-1]
    if len(made.stages) == 1:
        return f"`{first.label}` is the only trace of this job: a second one makes a step"
    text = f"{len(made.stages)} traces of `{made.job}`"
    if last.from_first_pct is not None and first.time_ns and last.time_ns is not None:
        unit = "a step" if last.of == STEP else "of wall time"
        word = "less" if last.time_ns < first.time_ns else "more"
        text += (f": `{last.label}` takes {last.time_ns / 1e6:,.3g} ms {unit}, {abs(last.from_first_pct):.1f} % {word} than "
                 f"`{first.label}` ({first.time_ns / 1e6:,.3g} ms)")
    steps = [stage for stage in made.stages if stage.change_ns is not None and stage.change_ns < 0 and not stage.within_noise]
    if steps and len(made.stages) > 2:
        best = min(steps, key=lambda stage: stage.change_ns or 0.0)
        text += f". The largest step is `{best.label}`: {-(best.change_ns or 0.0) / 1e6:,.3g} ms won"
    return text
