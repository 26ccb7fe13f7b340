"""A worker that helps with another's job: it measures what the lead hands out.

It leaves when the job ends, when the lead is gone, when there is nothing to measure for a while, and when other jobs wait.
"""

from __future__ import annotations

import time
from contextlib import suppress

from tuner.cache import rules
from tuner.ceilings.selectors import Ceilings, believe_below
from tuner.clocks.wish import locked_text
from tuner.jobs import create_services, sharing_services, worker_services
from tuner.jobs.sharing_services import Role
from tuner.models import TuneJob, TuneMember, TuneTask
from tuner.tuning.measure.landscape import LandscapeError
from tuner.tuning.measure.replay import SPEED
from tuner.tuning.measure.runner import Incumbent, Runner, Session
from tuner.tuning.search.pipeline import SerialPipeline, make_pipeline
from tuner.tuning.trial import Trial, config_key
from workers import jobs
from workers.core import gpu
from workers.core.child import SandboxError
from workers.core.periodic import Stop, watch_for_stop
from workers.leases import Superseded, is_alive
from workers.tune.runner import TrialPublisher, job_space, join_job, open_runner
from workers.tune.sharing import CANNOT

IDLE_LEAVES_S = 4.0
LOOK_S = 0.05
WAIT_FOR_GPU_S = 2.0


def run(job_id: int, worker: str, *, replay_speed: float = SPEED) -> None:
    """Help until not needed; does nothing where the job ended or other jobs wait."""
    job = TuneJob.objects.filter(pk=job_id, status=TuneJob.Status.RUNNING).exclude(worker=worker).first()
    if job is None or not job.gpu or _is_over(job):
        return
    publisher = TrialPublisher(job)
    with suppress(Superseded, gpu.NoLease), watch_for_stop(lambda: _is_over(job), publisher.flush) as stop:
        try:
            model = "" if job.recorded else job.gpu
            with open_runner(job, worker, stop, replay_speed, model=model, wait_s=WAIT_FOR_GPU_S) as (runner, card):
                _help(job, worker, runner, card, stop, publisher)
        except (SandboxError, LandscapeError) as error:
            if not stop():
                _decline(job, worker, str(error))


def _is_over(job: TuneJob) -> bool:
    """Return whether the job ended or rests, its lead is gone, or others need this worker."""
    now = TuneJob.objects.filter(pk=job.pk, status=TuneJob.Status.RUNNING, stop_requested=False, pause_requested=False)
    alive = now.filter(is_alive())
    return not alive.exists() or jobs.others_waiting(create_services.queue_of(job))


def _help(job: TuneJob, worker: str, runner: Runner, card: gpu.Gpu | None, stop: Stop, publisher: TrialPublisher) -> None:
    session = runner.open()
    if why := _why_different(job, session):
        _decline(job, worker, why)
        return
    _, default, _ = job_space(job, runner, session)
    began, least = time.monotonic() - job.elapsed_s, Ceilings().of_job(job)
    with join_job(job, worker, Role.HELPER, card, runner):
        pipeline, tasks, idle_since = make_pipeline(runner, lambda facts: None), dict[str, TuneTask](), time.monotonic()
        while not stop():
            for task in sharing_services.tasks_claim(job, worker, max(1, runner.ahead) - len(pipeline)):
                tasks[config_key(task.config)] = task
                pipeline.put([task.config])
            if not pipeline:
                if time.monotonic() - idle_since > IDLE_LEAVES_S:
                    return
                stop.wait(LOOK_S)
                continue
            idle_since = time.monotonic()
            for config, outcome in pipeline.take(_incumbent(pipeline, tasks)):
                tasks.pop(config_key(config), None)
                trial = Trial(0, config, believe_below(least, outcome), time.monotonic() - began)
                publisher.add(worker_services.trial_record(job, worker, trial, default, gpu_uuid=card.uuid if card else "",
                                               capability=session.compute_capability or ""))


def _incumbent(pipeline: SerialPipeline, tasks: dict[str, TuneTask]) -> Incumbent | None:
    """Return the best that the lead knew when it handed out what is in the pipeline."""
    races = [race for key in pipeline.keys if key in tasks and (race := tasks[key].incumbent)]
    best = min(races, key=lambda race: race["median_ms"], default=None)
    return Incumbent(best["median_ms"], tuple(best["samples_ms"])) if best else None


def _why_different(job: TuneJob, session: Session) -> str:
    """Return why this worker's times are not comparable; "" when they are."""
    own, theirs = rules.toolkit_text(session.environment), job.toolkit
    if session.gpu != job.gpu:
        return f"its GPU is {session.gpu}, the job's {job.gpu}"
    if own != theirs:
        return f"it has {own}, the job {theirs}"
    if str(session.environment.get("source_hash") or "") != job.source_hash:
        return "its kernel source is another one"
    if session.policy != job.policy:
        return "it measures by another policy"
    own_lock, job_lock = (locked_text(environment.get("clock_lock")) for environment in (session.environment, job.environment))
    if own_lock != job_lock:
        return f"its clocks: {own_lock or 'not locked'}, the job's: {job_lock or 'not locked'}"
    return ""


def _decline(job: TuneJob, worker: str, why: str) -> None:
    member: TuneMember = sharing_services.member_join(job, worker, Role.HELPER)
    sharing_services.member_leave(member, f"{CANNOT}{why}")
