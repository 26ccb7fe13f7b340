"""What jobs make of their GPUs, beside other jobs of their model; GPUs that are idle, and memory that lies unused."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from profiles.analysis.core.sentences import share_pct
from profiles.fleet.browse.addresses import View
from profiles.fleet.browse.sensor_selectors import known_median, telemetry_by_gpu
from profiles.fleet.days import too_coarse
from profiles.fleet.selectors import gap_words, question_of
from profiles.fleet.store import Coverage, Question, Window
from profiles.fleet.stores import fleet_store
from profiles.models import FleetContext, FleetGpu

IDLE_PCT = 5.0                      # busy less than that
HALF_PCT = 50.0                     # of the memory used
MOST_JOBS, MOST_GPUS = 40, 50
OWN_SHARE = 0.95                    # of a GPU's time that is a job's: its sensors speak for the job
SENSORS: dict[str, tuple[str, str]] = {
    "busy_pct": ("Kernels run", "%"), "sm_pct": ("SM", "%"), "tensor_pct": ("Tensor", "%"), "dram_pct": ("DRAM", "%"),
    "power_w": ("Power", "W"), "memory_pct": ("Memory", "%")}
TOLD = ("busy_pct", "sm_pct", "tensor_pct", "dram_pct", "power_w", "memory_used_bytes", "memory_bytes")


@dataclass(frozen=True)
class Value:
    """`value` of the job, `others`: the median of other jobs of its model on its GPUs; None is unknown."""

    name: str
    label: str
    unit: str
    value: float | None
    others: float | None

    @property
    def is_lower(self) -> bool:
        """Return whether it reaches less than three quarters of the others' median."""
        return self.value is not None and self.others is not None and self.value < 0.75 * self.others


@dataclass(frozen=True)
class JobLine:
    job: str
    model: str
    gpu_model: str
    gpus: int
    shared_gpus: int                # that ran other jobs as well: their sensors mix
    hours: float                    # GPU-hours that windows stand for
    others: int                     # jobs of its class that it is compared with
    simulated: bool
    values: list[Value]


@dataclass(frozen=True)
class GpuUse:
    """One GPU. `busy_pct` by its kernels where they were watched, else by its sensor: `source`."""

    uuid: str
    model: str
    host: str
    hours: float | None
    busy_pct: float | None
    source: str
    memory_used_bytes: float | None
    memory_bytes: float | None
    simulated: bool

    @property
    def memory_pct(self) -> float | None:
        return _memory_pct(self.memory_used_bytes, self.memory_bytes)

    @property
    def unused_bytes(self) -> float:
        return (self.memory_bytes or 0.0) - (self.memory_used_bytes or 0.0)


@dataclass(frozen=True)
class Utilisation:
    window: Window | None
    jobs: list[JobLine] = field(default_factory=list)
    more_jobs: int = 0
    gpus: int = 0
    silent_gpus: int = 0
    busy_pct: float | None = None               # of all watched time
    idle: list[GpuUse] = field(default_factory=list)
    idle_count: int = 0
    half: list[GpuUse] = field(default_factory=list)
    half_count: int = 0
    unused_bytes: float = 0.0
    memory_known: int = 0                       # GPUs that tell their memory
    gaps: tuple[str, ...] = ()                  # parts of the window that are left out


def _memory_pct(used: float | None, whole: float | None) -> float | None:
    return 100.0 * used / whole if used is not None and whole else None


def utilisation(view: View) -> Utilisation:
    """Return what the jobs of an address make of their GPUs."""
    question = question_of({**view.asked, "group": "job"}, None)
    if question is None:
        return Utilisation(None)
    every = FleetContext.objects.all()
    contexts = every.filter(id__in=question.where["context"]) if "context" in question.where else every
    of_job: dict[str, list[FleetContext]] = defaultdict(list)
    for context in contexts:
        of_job[context.job].append(context)
    means = telemetry_by_gpu(question.window, question.where.get("gpu"), TOLD)
    for each in means.values():
        each["memory_pct"] = _memory_pct(each["memory_used_bytes"], each["memory_bytes"])
    by_gpu, gpus_of = _watched_gpus(question, {context.id: context.job for context in contexts})
    by_job = sorted(_watched(question).items(), key=lambda pair: -pair[1][0].wall_ns)
    drafts = [_draft(str(job), whole, of_job.get(str(job), []), gpus_of.get(str(job), {}), means, by_gpu)
              for job, whole in by_job[:MOST_JOBS]]
    jobs = [_line(draft, drafts) for draft in drafts]
    in_scope: set[int] = {*by_gpu} if "context" in question.where else {*means, *by_gpu}        # of one job alone its GPUs
    uses = _uses(in_scope, by_gpu, means)
    idle = [use for use in uses if use.busy_pct is not None and use.busy_pct < IDLE_PCT]
    idle.sort(key=lambda use: -(use.hours or 0.0))
    half = [use for use in uses if use.memory_pct is not None and use.memory_pct < HALF_PCT]
    half.sort(key=lambda use: -use.unused_bytes)
    wall_ns = sum(coverage.wall_ns for coverage, _ in by_gpu.values())
    known = FleetGpu.objects.count() if not question.where else len(in_scope)
    return Utilisation(question.window, jobs, max(0, len(by_job) - MOST_JOBS), len(in_scope), max(0, known - len(in_scope)),
                       share_pct(sum(ns for _, ns in by_gpu.values()), wall_ns), idle[:MOST_GPUS], len(idle),
                       half[:MOST_GPUS], len(half), sum(use.unused_bytes for use in half),
                       sum(use.memory_pct is not None for use in uses), gap_words(too_coarse(question.window)))


Watched = dict[Any, tuple[Coverage, float]]


def _watched(question: Question) -> Watched:
    """Return job -> what was watched, and the time in kernels in ns."""
    return {key: (coverage, estimate_ns) for _, key, coverage, _, estimate_ns in
            fleet_store().watched(Question(question.window, "job", question.where, None))}


def _watched_gpus(question: Question, job_of: Mapping[int, str]) -> tuple[Watched, dict[str, dict[int, int]]]:
    """Return the same by GPU, and job -> GPU -> the ns of it that its windows stand for."""
    by_gpu: Watched = {}
    of_job: dict[str, dict[int, int]] = defaultdict(dict)
    for gpu, context, coverage, estimate_ns in fleet_store().watched_gpus(question):
        known = by_gpu.get(gpu)
        by_gpu[gpu] = (coverage, estimate_ns) if known is None else (
            Coverage(known[0].windows + coverage.windows, known[0].observed_ns + coverage.observed_ns,
                     known[0].wall_ns + coverage.wall_ns), known[1] + estimate_ns)
        if context in job_of:
            mine = of_job[job_of[context]]
            mine[gpu] = mine.get(gpu, 0) + coverage.wall_ns
    return by_gpu, of_job


@dataclass(frozen=True)
class _Draft:
    job: str
    kind: tuple[str, str]           # model, GPU model
    gpus: int
    shared: int
    hours: float
    simulated: bool
    values: dict[str, float | None]


def _draft(job: str, whole: tuple[Coverage, float], contexts: Sequence[FleetContext], weights: Mapping[int, int],
           means: Mapping[int, Mapping[str, float | None]], by_gpu: Watched) -> _Draft:
    kinds = Counter((each.model, each.gpu_model) for each in contexts)
    coverage, busy_ns = whole
    values: dict[str, float | None] = {name: _mean(name, weights, means) for name in SENSORS if name != "busy_pct"}
    values["busy_pct"] = share_pct(busy_ns, coverage.wall_ns)
    shared = sum(own < OWN_SHARE * by_gpu[gpu][0].wall_ns for gpu, own in weights.items() if gpu in by_gpu)
    return _Draft(job, kinds.most_common(1)[0][0] if kinds else ("", ""), len(weights), shared, coverage.wall_ns / 3.6e12,
                  any(each.simulated for each in contexts), values)


def _mean(name: str, weights: Mapping[int, int], means: Mapping[int, Mapping[str, float | None]]) -> float | None:
    """Over the GPUs that tell it, each by its time in the job."""
    pairs = [(weight, value) for gpu, weight in weights.items() if (value := means.get(gpu, {}).get(name)) is not None]
    whole = sum(weight for weight, _ in pairs)
    return sum(weight * value for weight, value in pairs) / whole if whole else None


def _line(draft: _Draft, drafts: Sequence[_Draft]) -> JobLine:
    model, gpu_model = draft.kind
    others = [each for each in drafts if each is not draft and model and each.kind == draft.kind]
    values = [Value(name, label, unit, draft.values[name], known_median(each.values[name] for each in others))
              for name, (label, unit) in SENSORS.items()]
    return JobLine(draft.job, model, gpu_model, draft.gpus, draft.shared, draft.hours, len(others), draft.simulated, values)


def _uses(ids: set[int], by_gpu: Watched, means: Mapping[int, Mapping[str, float | None]]) -> list[GpuUse]:
    out = []
    for key, uuid, model, host, simulated in FleetGpu.objects.values_list("id", "uuid", "model", "host", "simulated"):
        if key not in ids:              # most are asked for: naming each takes longer than reading all
            continue
        coverage, busy_ns = by_gpu.get(key, (Coverage(), 0.0))
        mine = means.get(key, {})
        if coverage.wall_ns and coverage.observed_ns:
            busy: float | None = 100.0 * busy_ns / coverage.wall_ns
            source = "kernels"
        else:
            busy, source = mine.get("busy_pct"), "sensor"
        out.append(GpuUse(uuid, model, host, coverage.wall_ns / 3.6e12 if coverage.wall_ns else None, busy, source,
                          mine.get("memory_used_bytes"), mine.get("memory_bytes"), simulated))
    return out
