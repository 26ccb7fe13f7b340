"""A suite job on a worker: fresh run after fresh run, builds in turn, each kernel into its row. Rows that are there stay.

A run is a new process. What a killed worker recorded is not measured again: the job goes on with what has no row.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from tuner.cache import rules
from tuner.clocks.wish import locked_text
from tuner.devices import REPLAY, gpu_model
from tuner.gate.suites import job_services, run_services
from tuner.gate.suites.job_services import REVALIDATE, Turn
from tuner.models import KernelRun, Suite, SuiteJob, SuiteKernel
from tuner.tuning.measure.fresh import KernelSamples, policy_text
from tuner.tuning.measure.replay import RecordedError, load_recorded
from workers import jobs
from workers.clocks import hold
from workers.core import gpu, periodic
from workers.core.child import SandboxError, Stopped
from workers.core.periodic import Stop, watch_for_stop
from workers.fresh.processes import CHILD
from workers.fresh.runner import GpuRunner, RecordedRunner, Runner
from workers.gate import captures, counters
from workers.leases import Superseded

log = logging.getLogger(__name__)
LOOK_S = 0.005                          # tune jobs give a GPU up between two configurations: this is how often we look
SESSION = ("torch", "cuda", "triton", "driver", "python", "compute_capability", "sms", "l2_bytes", "memory_bytes", "policy")
RUN_ENVIRONMENT = ("torch", "cuda", "triton", "python", "compute_capability")


def run(job_id: int, worker: str, *, pace: float = 1.0, module: str = CHILD) -> None:
    """Measure what is left of the job, end it, and tell its gate. Safe twice: a claimed job is not claimed again.

    `pace` is of recorded runs (0: at once); `module` is the child's program, tests give their own.
    """
    job = job_services.job_claim(job_id, worker)
    if job is None:
        continue_followers(job_id)
        return
    with suppress(Superseded), watch_for_stop(lambda: not SuiteJob.leases.is_held(job.pk, worker)) as stop:
        try:
            if job.suite.kind == Suite.Kind.TARGET:
                captures.measure_target(job, worker, stop)
            else:
                if job_services.job_turns_left(job):
                    with _runner(job, worker, stop, pace, module) as (runner, about):
                        Measuring(job, worker, runner, about).all()
                if counters.are_needed(job):
                    find_gpus(job)
                captures.measure_counters(job, worker, stop)
            job_services.job_finish(job, worker)
        except (Stopped, periodic.Stopped, gpu.NoLease):
            log.info("suite job %s: stopped", job_id)
        except SandboxError as error:
            if not stop():                       # else a process was told to go while it was starting
                job_services.job_fail(job, worker, "GPU", error.what, error.hint)
        except (NeedsOtherHost, captures.Pending):
            # it waits as if nobody had taken it: the sweep wakes workers until one can
            SuiteJob.leases.hand_back(worker, job.pk)
        except RecordedError as error:
            job_services.job_fail(job, worker, "recorded runs", str(error), "Choose recorded runs that come with the repository.")
    continue_followers(job_id)


def continue_followers(job_id: int) -> None:
    """Let the gate of a job that has ended go on, or decide on cached winners. Twice does no harm."""
    from tuner.gate.verdicts.decide_services import advance_gate  # after the row has ended: it must not take a job down
    from tuner.revalidation.services import decide

    job = SuiteJob.objects.filter(pk=job_id).first()
    if job is None or job.status in (SuiteJob.Status.QUEUED, SuiteJob.Status.RUNNING):
        return
    try:
        if job.gate_id is not None:
            advance_gate(job.gate_id)
        elif job.reason == REVALIDATE:
            decide(job.pk)
    except Exception:                            # the sweep does it again
        log.exception("suite job %s: what comes after it could not go on", job_id)


@contextmanager
def _runner(job: SuiteJob, worker: str, stop: Stop, pace: float, module: str) -> Iterator[tuple[Runner, Mapping[str, Any]]]:
    """What measures, closed afterwards, and what is to be said of its environment."""
    if job.device.startswith(REPLAY):
        runner: Runner = RecordedRunner(job, load_recorded(job.device.removeprefix(REPLAY)), pace)
        stop.tell(runner)
        yield runner, {}
        return
    with gpu.lease(find_gpus(job), should_stop=stop, look_s=LOOK_S) as card, \
            hold.hold_clocks(card.uuid, f"suite job {job.pk} on {worker}") as lock:
        try:
            runner = GpuRunner(job, card, module=module)
        except ValueError as error:
            raise SandboxError(str(error), "An owner changes the suite's policy.") from error
        try:
            stop.tell(runner)
            yield runner, {"gpu_uuid": card.uuid, "driver": card.driver, "clock_lock": lock}
        finally:
            runner.close()


class NeedsOtherHost(Exception):
    """This worker has no such GPU, another one has."""


def find_gpus(job: SuiteJob) -> list[gpu.Gpu]:
    """Return GPUs of this host on which the job may run: of the model asked for, or that it began on.

    Raises NeedsOtherHost, or SandboxError where no worker has one.
    """
    here = gpu.gpus()
    if not here:
        raise SandboxError("this worker sees no NVIDIA GPU", "check nvidia-smi on the worker")
    model = gpu_model(job.device) or str(job.environment.get("gpu") or "")
    cards = [card for card in here if model in ("", card.name)]
    if not cards:
        if any(card["name"] == model for worker in jobs.workers() for card in worker.get("gpus") or ()):
            raise NeedsOtherHost
        raise SandboxError(f"no worker has an {model}", "start one on a machine that has: manage.py worker gpu")
    return cards


class Measuring:
    """One job on one worker."""

    def __init__(self, job: SuiteJob, worker: str, runner: Runner, about: Mapping[str, Any]) -> None:
        self.job, self.worker, self.runner, self.about = job, worker, runner, about
        self._session: dict[str, Any] = {}

    def all(self) -> None:
        turns = job_services.job_turns_left(self.job)
        measured, refused = KernelRun.objects.filter(job=self.job, rejected="").count(), ""
        for index, turn in enumerate(turns):
            for kernel, samples in self.runner.run(turn, turns[index + 1] if index + 1 < len(turns) else None):
                self._record(turn, kernel, samples)
                measured += not samples.rejected
                refused = refused or samples.rejected
            if not measured and not self.runner.recorded and index + 1 >= len(self.job.builds):
                raise SandboxError(f"nothing could be measured: {refused}", "see the runs' reasons and the worker's log")

    def _record(self, turn: Turn, kernel: SuiteKernel, taken: KernelSamples) -> None:
        self._tell(taken.session)
        environment = {name: taken.session[name] for name in RUN_ENVIRONMENT if taken.session.get(name)}
        if commit := self._commits().get(turn.build):
            environment["code"] = commit
        if policy := taken.session.get("policy"):
            environment["timing"] = ", ".join(filter(None, (policy_text(policy), locked_text(self.about.get("clock_lock")))))
        toolkit = rules.toolkit_text(taken.session) if taken.session else ""
        run_services.run_record(
            self.job, kernel, turn.build, number=turn.number, run=self._label(turn, taken), us=taken.us, rejected=taken.rejected,
            sm_clock_mhz=taken.sm_clock_mhz,
            facts={**taken.facts, **hold.compact(self.about.get("clock_lock") or {})}, config=taken.config,
            source_hash=taken.source_hash, gpu=str(taken.session.get("gpu") or ""), gpu_uuid=str(self.about.get("gpu_uuid") or ""),
            toolkit=toolkit,
            driver=str(taken.session.get("driver") or (self.about.get("driver") if taken.session else "") or ""),
            environment=environment, recorded=self.runner.recorded, worker=self.worker)

    def _commits(self) -> dict[str, str]:
        """Return build → commit of the code that was fetched for it; kept on the job, so that a branch stays where it was."""
        commits: dict[str, str] = getattr(self.runner, "commits", {})
        if any(build.get("commit", "") != commits.get(build["build"], "") for build in self.job.builds):
            job_services.job_set_commits(self.job, self.worker, commits)
        return commits

    def _label(self, turn: Turn, samples: KernelSamples) -> str:
        """Kernels of one process share it: what a second process had to take over, or measures after a kill, has its own."""
        label = job_services.run_label(self.job, turn.build, turn.number)
        return f"{label}, process {samples.process + 1}" if samples.process else label

    def _tell(self, session: Mapping[str, Any]) -> None:
        """What the first process of this worker found, into the job's row."""
        if session and not self._session:
            named = {name: session[name] for name in SESSION if session.get(name)}
            self._session = {"gpu": session.get("gpu"), **named, **self.about}
            job_services.job_set_session(self.job, self.worker, environment=self._session, recorded=self.runner.recorded)
