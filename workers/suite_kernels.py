"""What a capture of a suite's kernels launches: those that the job measured, with the configurations that it measured them with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from profiles.models import Capture, CaptureTarget
from tuner.bench.fresh import policy_of
from tuner.models import KernelRun, Suite, SuiteCapture, SuiteJob, SuiteKernel
from tuner.suites.counter_selectors import COUNTERS
from workers import counted, gpu, team
from workers.suite_runner import compiled_folder

TARGET = "Kernels of benchmark suites"
ABOUT = "Run by suites alone, which say the kernels: no capture can be asked of it by itself."


def target() -> CaptureTarget:
    """The row that such captures belong to. It stays switched off: without a suite's job there is nothing to launch."""
    row, _ = CaptureTarget.objects.update_or_create(name=TARGET, defaults={
        "argv": counted.ARGV, "cwd": "", "env": {}, "enabled": False, "description": ABOUT})
    return row


def kernels(job: SuiteJob) -> list[SuiteKernel]:
    """The job's, in the suite's order. A report tells them apart by their keys."""
    return [kernel for kernel in job.suite.kernels.all()
            if kernel.enabled and (job.kernels is None or kernel.key in job.kernels)]


def of_build(job: SuiteJob, build: str) -> list[counted.Counted]:
    """A job that measures: the kernels that it has runs of. One that is for counters alone: as it was asked for."""
    alone = job.reason == COUNTERS
    runs = KernelRun.objects.filter(kernel__in=kernels(job), build__name=build, rejected="", recorded="").order_by("pk")
    ran = {run.kernel_id: run for run in (runs if alone else runs.filter(job=job)).only("kernel_id", "config", "source_hash")}
    asked = next((each.get("configs") or {} for each in job.builds if each["build"] == build), {}) if alone else {}
    return [counted.Counted(kernel.key, kernel.op, kernel.shape, kernel.dtype,
                            asked.get(kernel.key) or ran[kernel.pk].config or None, ran[kernel.pk].source_hash)
            for kernel in kernels(job) if kernel.pk in ran]


def timed_as(job: SuiteJob) -> str:
    """"cold", "warm" or "graph": as the suite's samples are taken."""
    return str(policy_of(job.suite.policy)["kind"])


def asked_of(capture: Capture) -> SuiteCapture | None:
    """The suite's order behind a capture of operators; None for every other capture."""
    found = SuiteCapture.objects.filter(capture=capture).select_related("job__suite").first()
    return found if found is not None and found.job.suite.kind in (Suite.Kind.OPERATORS, Suite.Kind.WINNERS) else None


def environ(capture: Capture, card: gpu.Gpu, folder: Path) -> dict[str, str]:
    """What the program must know: its kernels, teams' packages, where compiled kernels lie. {} for every other capture."""
    asked = asked_of(capture)
    if asked is None:
        return {}
    rounds = counted.LAUNCHES if capture.tool == Capture.Tool.NCU else (
        counted.STEPS.wait + counted.STEPS.warmup + counted.STEPS.active)
    return {**team.child_environment(), "TRITON_CACHE_DIR": str(compiled_folder(asked.job.suite_id, card)),
            **counted.environ(folder, of_build(asked.job, asked.build), timed_as(asked.job), rounds)}


def cards(capture: Capture, here: Sequence[gpu.Gpu]) -> list[gpu.Gpu]:
    """GPUs on which the capture may run: of the model on which the job's runs were measured. Any, for every other capture."""
    asked = asked_of(capture)
    wanted = str(asked.job.environment.get("gpu") or asked.job.device.partition(":")[2]) if asked is not None else ""
    return [card for card in here if wanted in ("", card.name)]


def title(capture: Capture) -> str:
    """Of the profile that it becomes: the kernel, or how many of which suite."""
    asked = asked_of(capture)
    if asked is None:
        return capture.target.name
    keys = asked.job.kernels if asked.job.kernels is not None else [kernel.key for kernel in kernels(asked.job)]
    return keys[0] if len(keys) == 1 else f"{asked.job.suite.name}, {len(keys)} kernels"
