"""A suite job on a worker: fresh run after fresh run, builds in turn, each kernel into its row. Rows that are there stay.

A run is a new process. What a killed worker recorded is not measured again: the job goes on with what has no row.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from django.db.models import F

from tuner import cache
from tuner.bench.fresh import Taken, in_short
from tuner.bench.recorded_runs import RecordedError, recorded
from tuner.jobs.devices import REPLAY, gpu_model
from tuner.models import KernelRun, Suite, SuiteJob, SuiteKernel
from tuner.suites import services
from tuner.suites.job_services import REVALIDATE
from tuner.suites.services import Turn
from workers import clocks, gpu, jobs, stopping, suite_captures, suite_counters
from workers.child import SandboxError, Stopped
from workers.fresh import CHILD
from workers.stopping import Stop, watched
from workers.suite_runner import GpuRunner, RecordedRunner, Runner

log = logging.getLogger(__name__)
LOOK_S = 0.005                          # tune jobs give a GPU up between two configurations: this is how often we look
SESSION = ("torch", "cuda", "triton", "driver", "python", "compute_capability", "sms", "l2_bytes", "memory_bytes", "policy")
RUN_ENVIRONMENT = ("torch", "cuda", "triton", "python", "compute_capability")


def run(job_id: int, worker: str, *, pace: float = 1.0, module: str = CHILD) -> None:
    """Measure what is left of the job, end it, and tell its gate. Safe twice: a claimed job is not claimed again.

    `pace` is of recorded runs (0: at once); `module` is the child's program, tests give their own.
    """
    job = services.job_claim(job_id, worker)
    if job is None:
        after(job_id)
        return
    with suppress(services.Superseded), watched(lambda: not services.job_held(job, worker)) as stop:
        try:
            if job.suite.kind == Suite.Kind.TARGET:
                suite_captures.measure(job, worker, stop)
            else:
                if services.job_rest(job):
                    with _runner(job, stop, pace, module) as (runner, about):
                        Measuring(job, worker, runner, about).all()
                if suite_counters.needed(job):
                    cards(job)
                suite_captures.counters(job, worker, stop)
            services.job_finish(job, worker)
        except (Stopped, stopping.Stopped, gpu.NoLease):
            log.info("suite job %s: stopped", job_id)
        except SandboxError as error:
            if not stop():                       # else a process was told to go while it was starting
                services.job_fail(job, worker, "GPU", error.what, error.hint)
        except (Elsewhere, suite_captures.Pending):
            hand_back(job, worker)
        except RecordedError as error:
            services.job_fail(job, worker, "recorded runs", str(error), "Choose recorded runs that come with the repository.")
    after(job_id)


def after(job_id: int) -> None:
    """The job has ended, however: its gate goes on, cached winners are decided on. Twice does no harm."""
    from tuner.configs.revalidation_services import decide
    from tuner.gates.services import gate_advance  # after the row has ended: it must not take a job down

    job = SuiteJob.objects.filter(pk=job_id).first()
    if job is None or job.status in (SuiteJob.Status.QUEUED, SuiteJob.Status.RUNNING):
        return
    try:
        if job.gate_id is not None:
            gate_advance(job.gate_id)
        elif job.reason == REVALIDATE:
            decide(job.pk)
    except Exception:                            # the sweep does it again
        log.exception("suite job %s: what comes after it could not go on", job_id)


@contextmanager
def _runner(job: SuiteJob, stop: Stop, pace: float, module: str) -> Iterator[tuple[Runner, Mapping[str, Any]]]:
    """What measures, closed afterwards, and what is to be said of its environment."""
    if job.device.startswith(REPLAY):
        runner: Runner = RecordedRunner(job, recorded(job.device.removeprefix(REPLAY)), pace)
        stop.tell(runner)
        yield runner, {}
        return
    with gpu.lease(cards(job), should_stop=stop, look_s=LOOK_S) as card, clocks.locked(card.uuid) as lock:
        try:
            runner = GpuRunner(job, card, module=module)
        except ValueError as error:
            raise SandboxError(str(error), "An owner changes the suite's policy.") from error
        try:
            stop.tell(runner)
            yield runner, {"gpu_uuid": card.uuid, "driver": card.driver, "clock_lock": lock}
        finally:
            runner.close()


class Elsewhere(Exception):
    """This worker has no such GPU, another one has."""


def cards(job: SuiteJob) -> list[gpu.Gpu]:
    """GPUs of this host on which the job may run: of the model that was asked for, or that it began on.

    Raises Elsewhere, or SandboxError where no worker has one.
    """
    here = gpu.gpus()
    if not here:
        raise SandboxError("this worker sees no NVIDIA GPU", "check nvidia-smi on the worker")
    wanted = gpu_model(job.device) or str(job.environment.get("gpu") or "")
    found = [card for card in here if wanted in ("", card.name)]
    if not found:
        if any(card["name"] == wanted for one in jobs.workers() for card in one.get("gpus") or ()):
            raise Elsewhere
        raise SandboxError(f"no worker has an {wanted}", "start one on a machine that has: manage.py worker gpu")
    return found


class Measuring:
    """One job on one worker."""

    def __init__(self, job: SuiteJob, worker: str, runner: Runner, about: Mapping[str, Any]) -> None:
        self.job, self.worker, self.runner, self.about = job, worker, runner, about
        self._session: dict[str, Any] = {}

    def all(self) -> None:
        turns = services.job_rest(self.job)
        measured, refused = KernelRun.objects.filter(job=self.job, rejected="").count(), ""
        for at, turn in enumerate(turns):
            for kernel, taken in self.runner.run(turn, turns[at + 1] if at + 1 < len(turns) else None):
                self._record(turn, kernel, taken)
                measured += not taken.rejected
                refused = refused or taken.rejected
            if not measured and not self.runner.recorded and at + 1 >= len(self.job.builds):
                raise SandboxError(f"nothing could be measured: {refused}", "see the runs' reasons and the worker's log")

    def _record(self, turn: Turn, kernel: SuiteKernel, taken: Taken) -> None:
        self._tell(taken.session)
        environment = {name: taken.session[name] for name in RUN_ENVIRONMENT if taken.session.get(name)}
        if policy := taken.session.get("policy"):
            environment["timing"] = in_short(policy)
        toolkit = cache.toolkit(taken.session) if taken.session else ""
        services.run_record(
            self.job, kernel, turn.build, number=turn.number, run=self._label(turn, taken), us=taken.us, rejected=taken.rejected,
            sm_clock_mhz=taken.sm_clock_mhz, facts=taken.facts, config=taken.config, source_hash=taken.source_hash,
            gpu=str(taken.session.get("gpu") or ""), gpu_uuid=str(self.about.get("gpu_uuid") or ""), toolkit=toolkit,
            driver=str(taken.session.get("driver") or (self.about.get("driver") if taken.session else "") or ""),
            environment=environment, recorded=self.runner.recorded, worker=self.worker)

    def _label(self, turn: Turn, taken: Taken) -> str:
        """Kernels of one process share it: what a second process had to take over, or measures after a kill, has its own."""
        label = services.run_label(self.job, turn.build, turn.number)
        return f"{label}, process {taken.process + 1}" if taken.process else label

    def _tell(self, session: Mapping[str, Any]) -> None:
        """What the first process of this worker found, into the job's row."""
        if session and not self._session:
            named = {name: session[name] for name in SESSION if session.get(name)}
            self._session = {"gpu": session.get("gpu"), **named, **self.about}
            services.job_session(self.job, self.worker, environment=self._session, recorded=self.runner.recorded)


def hand_back(job: SuiteJob, worker: str) -> None:
    """Not this worker's to measure: the row waits as if nobody had taken it, and the sweep wakes workers until one can."""
    SuiteJob.objects.filter(pk=job.pk, status=SuiteJob.Status.RUNNING, worker=worker[:120]).update(
        status=SuiteJob.Status.QUEUED, heartbeat=None, worker="", attempts=F("attempts") - 1)
