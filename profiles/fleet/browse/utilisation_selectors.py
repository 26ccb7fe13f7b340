"""What jobs make of their GPUs, beside other jobs of their model; GPUs that are idle, and memory that lies unused.

What the sensors of a GPU said in a window, beside the median of its model.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from profiles.analysis.core.sentences import share_pct
from profiles.fleet.browse.addresses import View
from profiles.fleet.days import too_coarse
from profiles.fleet.selectors import gap_words, question_of
from profiles.fleet.slow.gpu_selectors import GpuRow
from profiles.fleet.store import Coverage, Question, Window
from profiles.fleet.stores import fleet_store
from profiles.fleet.tables import BY_NAME, EVENTS, TELEMETRY
from profiles.models import FleetContext, FleetGpu

MINUTE_S = 60.0
DRAWN = 12                              # slow GPUs that are shown one by one
# column -> (label, unit)
GPU_SENSORS: dict[str, tuple[str, str]] = {
    "sm_mhz": ("SM clock", "MHz"), "memory_mhz": ("memory clock", "MHz"), "temperature_c": ("temperature", "°C"),
    "power_w": ("power", "W"), "throttle_pct": ("throttled", "%"), "thermal_pct": ("thermal slowdown", "%"),
    "xid_errors": ("XID errors", ""), "ecc_errors": ("ECC errors", "")}
Means = Mapping[str, float | None]


@dataclass(frozen=True)
class Sensor:
    """One sensor of one GPU. `median` of all GPUs of its model that tell it; None is unknown."""

    name: str
    label: str
    unit: str
    value: float | None
    median: float | None

    @property
    def text(self) -> str:
        return _text(self.value, self.unit)

    @property
    def median_text(self) -> str:
        return _text(self.median, self.unit)


@dataclass(frozen=True)
class GpuLine:
    row: GpuRow
    sensors: list[Sensor]

    @property
    def minutes_known(self) -> bool:
        return any(sensor.value is not None for sensor in self.sensors)


def _text(value: float | None, unit: str) -> str:
    if value is None:
        return "—"
    digits = 1 if unit == "%" and 0 < value < 10 else 0
    return f"{value:,.{digits}f} {unit}".strip()


def means_of(sums: Mapping[str, float], names: Sequence[str] = TELEMETRY) -> dict[str, float | None]:
    """Return means of a row of `FleetStore.telemetry`, with all sensors its events too; None where no minute knew it."""
    out: dict[str, float | None] = {
        name: sums[f"sum_{name}"] / sums[f"n_{name}"] if sums[f"n_{name}"] else None for name in names}
    if names != TELEMETRY:
        return out
    out |= {name: sums[name] if sums[f"n_{name}"] else None for name in EVENTS}
    for name in ("throttle", "thermal"):
        seconds, minutes = sums[f"{name}_s"], sums[f"n_{name}_s"]
        out[f"{name}_pct"] = min(100.0, 100.0 * seconds / (minutes * MINUTE_S)) if minutes else None
    return out


def telemetry_by_gpu(window: Window, gpus: Sequence[int] | None = None,
                     names: Sequence[str] = TELEMETRY) -> dict[int, dict[str, float | None]]:
    """Return GPU -> means over a window, with all sensors their events too; GPUs without a minute are left out."""
    question = Question(window, "gpu", {} if gpus is None else {"gpu": list(gpus)}, None)
    columns = [f"{part}_{name}" for name in names for part in ("sum", "n")]
    columns = list(BY_NAME["telemetry"].sums) if names == TELEMETRY else columns
    sums: dict[int, dict[str, float]] = {}
    for _, gpu, values in fleet_store().telemetry(question, None, columns):
        before = sums.get(gpu)
        sums[gpu] = values if before is None else {name: before[name] + value for name, value in values.items()}
    return {gpu: means_of(values, names) for gpu, values in sums.items()}


def known_median(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return median(numbers) if numbers else None


def gpu_lines(window: Window, rows: Sequence[GpuRow]) -> list[GpuLine]:
    """Return GPUs with their sensors over a window, beside the medians of all GPUs of their models."""
    if not rows:
        return []
    means = telemetry_by_gpu(window)
    gpus = {(uuid, host): pk for pk, uuid, host in
            FleetGpu.objects.filter(uuid__in=[row.gpu_uuid for row in rows]).values_list("id", "uuid", "host")}
    of_model: dict[str, list[int]] = defaultdict(list)
    for gpu, model in FleetGpu.objects.values_list("id", "model"):
        if gpu in means:
            of_model[model].append(gpu)
    medians = {model: {name: known_median(means[gpu][name] for gpu in of_model[model]) for name in GPU_SENSORS}
               for model in {row.gpu_model for row in rows}}
    lines = []
    for row in rows:
        mine = means.get(gpus.get((row.gpu_uuid, row.host), -1), {})
        beside = medians[row.gpu_model]
        lines.append(GpuLine(row, [Sensor(name, label, unit, mine.get(name), beside.get(name))
                                   for name, (label, unit) in GPU_SENSORS.items()]))
    return lines


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
    for mean_by_sensor in means.values():
        mean_by_sensor["memory_pct"] = _memory_pct(mean_by_sensor["memory_used_bytes"], mean_by_sensor["memory_bytes"])
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
    all_gpus = FleetGpu.objects.count() if not question.where else len(in_scope)
    return Utilisation(question.window, jobs, max(0, len(by_job) - MOST_JOBS), len(in_scope), max(0, all_gpus - len(in_scope)),
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
        sums = by_gpu.get(gpu)
        by_gpu[gpu] = (coverage, estimate_ns) if sums is None else (
            Coverage(sums[0].windows + coverage.windows, sums[0].observed_ns + coverage.observed_ns,
                     sums[0].wall_ns + coverage.wall_ns), sums[1] + estimate_ns)
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
    kinds = Counter((context.model, context.gpu_model) for context in contexts)
    coverage, busy_ns = whole
    values: dict[str, float | None] = {name: _mean(name, weights, means) for name in SENSORS if name != "busy_pct"}
    values["busy_pct"] = share_pct(busy_ns, coverage.wall_ns)
    shared = sum(own < OWN_SHARE * by_gpu[gpu][0].wall_ns for gpu, own in weights.items() if gpu in by_gpu)
    return _Draft(job, kinds.most_common(1)[0][0] if kinds else ("", ""), len(weights), shared, coverage.wall_ns / 3.6e12,
                  any(context.simulated for context in contexts), values)


def _mean(name: str, weights: Mapping[int, int], means: Mapping[int, Mapping[str, float | None]]) -> float | None:
    """Over the GPUs that tell it, each by its time in the job."""
    pairs = [(weight, value) for gpu, weight in weights.items() if (value := means.get(gpu, {}).get(name)) is not None]
    whole = sum(weight for weight, _ in pairs)
    return sum(weight * value for weight, value in pairs) / whole if whole else None


def _line(draft: _Draft, drafts: Sequence[_Draft]) -> JobLine:
    model, gpu_model = draft.kind
    others = [other for other in drafts if other is not draft and model and other.kind == draft.kind]
    values = [Value(name, label, unit, draft.values[name], known_median(other.values[name] for other in others))
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
