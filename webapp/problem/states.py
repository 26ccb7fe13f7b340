"""What became of a problem: tuned by which job, served by which entry, guarded by which suite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuner import devices, texts
from tuner.cache.entries import selectors as configs
from tuner.cache.rules import Rule
from tuner.cache.serve import selectors as served_selectors
from tuner.ceilings.selectors import CeilingJson, job_ceiling
from tuner.gate.builds.selectors import ENVIRONMENT
from tuner.gate.history import charts, series_selectors
from tuner.gate.suites.selectors import suite_environments
from tuner.jobs import page_selectors as job_selectors
from tuner.jobs.outcomes import job_outcome
from tuner.jobs.selectors import ENDED
from tuner.models import CachedConfig, GateKernel, GpuEnvironment, KernelRun, Regression, Suite, SuiteKernel, TuneJob
from tuner.tuning.measure.landscape import LandscapeError
from webapp.problem.address import Problem

MOST_JOBS, MOST_REGRESSIONS = 12, 6


@dataclass(frozen=True)
class Tuned:
    """`done` is the newest job that ended, one of the operator's whole space before one of an edited space; `active` one that waits
    or runs. Both None: nobody searched it."""

    done: TuneJob | None
    active: TuneJob | None
    jobs: Sequence[TuneJob]
    keep: str                   # "keep cuBLAS: …" where the library won
    why_waiting: str            # of the active job
    trials: int                 # of the active job, so far
    ceiling: CeilingJson | None         # of the problem on its GPU, with what `done` reached of it: tuner.ceilings

    @property
    def gain(self) -> float | None:
        """Default ÷ best."""
        return self.done.default_ms / self.done.best_ms if self.done and self.done.default_ms and self.done.best_ms else None


def tuned(problem: Problem) -> Tuned:
    """A job that waits knows its GPU by its device only."""
    same = TuneJob.objects.filter(operator=problem.operator, dtype=problem.dtype, shape=dict(problem.shape), purpose="search")
    jobs = [job for job in same.order_by("-id")[:100] if _gpu_of(job) in (problem.gpu, "")][:MOST_JOBS]
    ended = [job for job in jobs if job.status == TuneJob.Status.DONE]
    done = next((job for job in ended if job.space is None), next(iter(ended), None))
    active = next((job for job in jobs if job.status not in ENDED), None)
    outcome = job_outcome(done) if done else None
    return Tuned(done, active, jobs, outcome.text if outcome and outcome.kind == "library" else "",
                 job_selectors.why_waiting(active) if active else "", active.trials.count() if active else 0,
                 job_ceiling(done) if done else None)


def _gpu_of(job: TuneJob) -> str:
    if job.gpu:
        return job.gpu
    if devices.is_gpu(job.device):
        return devices.gpu_model(job.device)
    return next((gpu_of_recording(device) for device in devices.list_devices() if device.value == job.device), "")


def gpu_of_recording(device: devices.Device) -> str:
    """Return the GPU that a recorded landscape was measured on; "" where it cannot be read."""
    try:
        return devices.load_landscape(device.value.removeprefix(devices.REPLAY)).gpu
    except LandscapeError:
        return ""


def job_device(problem: Problem) -> devices.Device:
    """Return where a job for it would run: a worker's GPU of this model, else a recording of just this problem.

    Where there is neither, the GPU model, which a job waits for.
    """
    places = devices.list_devices()
    model = next((place for place in places if problem.gpu and place.value == f"{devices.GPU}:{problem.gpu}"), None)
    recorded = next((place for place in places if place.operator == problem.operator and place.dtype == problem.dtype
                     and dict(problem.shape) in [dict(shape) for shape in place.shapes]
                     and problem.gpu in ("", gpu_of_recording(place))), None)
    device = f"{devices.GPU}:{problem.gpu}" if problem.gpu else devices.GPU
    return model or recorded or devices.Device(device, problem.gpu or "any GPU", why_not=(
        f"no worker has an {problem.gpu}" if problem.gpu else places[0].why_not))


@dataclass(frozen=True)
class Served:
    """What a launch gets now; `entry` None: the default."""

    entry: CachedConfig | None
    rule: str
    why: str
    config: str
    keep: str
    launches: int
    lines: str              # for the job's code

    @property
    def exact(self) -> bool:
        return self.rule == Rule.EXACT


def served(problem: Problem) -> Served:
    """Ask the cache as a client on this GPU would, under the newest toolkit that a worker ran there."""
    environment = GpuEnvironment.objects.filter(gpu=problem.gpu).order_by("-first_seen", "-pk").first()
    arguments = problem.operator, problem.dtype, problem.gpu, problem.shape, environment.toolkit if environment else ""
    answer = configs.config_best(*arguments)
    if answer["entry"] is None and answer["recording"]:              # all there is: shown as what it is
        answer = configs.config_best(*arguments, recorded=True)
    entry = configs.config_list().get(pk=answer["entry"]["id"]) if answer["entry"] else None
    dims = ", ".join(f"{name}={value}" for name, value in problem.shape.items())
    call = f'best("{problem.operator}", "{problem.dtype}", {dims})'
    line = f"import ridgepoint_client; config = ridgepoint_client.{call}.config"
    return Served(entry, str(answer["rule"]), answer["why"], texts.config_text(answer["config"]),
                  texts.keep_library_text(problem.operator, answer["library"]),
                  served_selectors.entry_launches(entry) if entry else 0, line)


@dataclass(frozen=True)
class Guarded:
    """`kernel` None: no suite watches it."""

    kernel: SuiteKernel | None
    verdict: GateKernel | None
    run: KernelRun | None
    others: Sequence[SuiteKernel]
    waiting: bool               # a gate or suite job is under way


def guarded(problem: Problem) -> Guarded:
    """Suites that measure on this GPU, or on whatever there is; recordings of this GPU too."""
    rows = (SuiteKernel.objects.filter(op=problem.operator, dtype=problem.dtype, shape=dict(problem.shape), enabled=True,
                                       suite__enabled=True, suite__in=Suite.objects.all()).select_related("suite").order_by("id"))
    mine = [row for row in rows if _measures_on(row, problem.gpu)]
    mine.sort(key=lambda row: not row.runs.exists())
    kernel = mine[0] if mine else None
    if kernel is None:
        return Guarded(None, None, None, [], False)
    verdict = GateKernel.objects.filter(kernel__in=mine, gate__status="done").select_related("gate__build").order_by("-gate_id")
    runs = KernelRun.objects.filter(kernel__in=mine, rejected="", p50_us__gt=0).select_related("build").order_by("-pk")
    live = any(row.suite.jobs.filter(status__in=["queued", "running"]).exists() for row in mine)
    return Guarded(kernel, verdict.first(), runs.first(), mine[1:], live)


def _measures_on(row: SuiteKernel, gpu: str) -> bool:
    device = row.suite.device
    if devices.is_gpu(device):
        return devices.gpu_model(device) in ("", gpu)
    return row.runs.filter(gpu=gpu).exists()


def regressions(problem: Problem) -> list[dict[str, Any]]:
    """Return what gates and series found slower of just this kernel, newest first, each with its chart."""
    kernels = {(row.suite_id, row.key): row for row in SuiteKernel.objects.filter(
        op=problem.operator, dtype=problem.dtype, shape=dict(problem.shape))}
    rows = (Regression.objects.filter(suite__in={suite for suite, _ in kernels}, gpu=problem.gpu)
            .select_related("suite", "build", "good").order_by("-created", "-id"))
    entries: list[dict[str, Any]] = []
    for row in rows:
        key = next((key for key in row.kernels if (row.suite_id, key) in kernels), None)
        if key is not None and len(entries) < MOST_REGRESSIONS:
            entries.append({"row": row, "figure": _figure(row.suite, row, key)})
    return entries


def watched_figure(state: Guarded) -> dict[str, Any] | None:
    """Return the guard's runs over builds in the environment of its newest run; None before two builds ran."""
    if state.run is None or state.kernel is None:
        return None
    kernel = SuiteKernel.objects.select_related("suite").get(pk=state.run.kernel_id)
    return _figure(kernel.suite, state.run, kernel.key)


def _figure(suite: Suite, where: Any, key: str) -> dict[str, Any] | None:
    environment = {name: getattr(where, name) for name in ENVIRONMENT}
    if environment not in [{name: place[name] for name in environment} for place in suite_environments(suite)]:
        return None
    series = series_selectors.load_series(suite, environment, keys=[key])
    return charts.series_figure(series[0].points, series[0].steps) if series and len(series[0].points) > 1 else None
