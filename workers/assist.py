"""A worker that helps with a job another one leads: it measures what the lead gave out, on a GPU of the same model.

It leaves when the job ends, when the lead is gone, when there is nothing to measure for a while, and when other jobs wait.
"""

from __future__ import annotations

import time
from contextlib import suppress

from tuner import cache
from tuner.bench.landscape import LandscapeError
from tuner.bench.replay import SPEED
from tuner.bench.runner import Incumbent, Runner, Session
from tuner.jobs import services, sharing_services
from tuner.jobs.sharing_services import Role
from tuner.line import OneByOne, line_of
from tuner.models import TuneJob, TuneMember, TuneTask
from tuner.trial import Trial, config_key
from workers import gpu, jobs
from workers.sandbox import SandboxError
from workers.sharing import CANNOT
from workers.stopping import Stop, watched
from workers.tune_runner import News, present, runner_of, space_of

IDLE_LEAVES_S = 4.0
LOOK_S = 0.05
WAIT_FOR_GPU_S = 2.0


def run(job_id: int, worker: str, *, replay_speed: float = SPEED) -> None:
    """Help until there is no need any more. Nothing happens where the job has ended or other jobs wait for this worker."""
    job = TuneJob.objects.filter(pk=job_id, status=TuneJob.Status.RUNNING).exclude(worker=worker).first()
    if job is None or not job.gpu or _over(job):
        return
    news = News(job)
    with suppress(services.Superseded, gpu.NoLease), watched(lambda: _over(job), news.flush) as stop:
        try:
            with runner_of(job, stop, replay_speed, model="" if job.recorded else job.gpu, wait_s=WAIT_FOR_GPU_S) as (runner, card):
                _help(job, worker, runner, card, stop, news)
        except (SandboxError, LandscapeError) as error:
            if not stop():
                _cannot(job, worker, str(error))


def _over(job: TuneJob) -> bool:
    """The job has ended or rests, its lead is gone, or somebody else needs this worker more."""
    now = TuneJob.objects.filter(pk=job.pk, status=TuneJob.Status.RUNNING, stop_requested=False, pause_requested=False)
    alive = now.filter(jobs.alive())
    return not alive.exists() or jobs.others_waiting(services.queue_of(job))


def _help(job: TuneJob, worker: str, runner: Runner, card: gpu.Gpu | None, stop: Stop, news: News) -> None:
    session = runner.open()
    if why := _differs(job, session):
        _cannot(job, worker, why)
        return
    _, default, _ = space_of(job, runner, session)
    began = time.monotonic() - job.elapsed_s
    with present(job, worker, Role.HELPER, card, runner):
        line, given, idle_since = line_of(runner, lambda found: None), dict[str, TuneTask](), time.monotonic()
        while not stop():
            for task in sharing_services.tasks_claim(job, worker, max(1, runner.ahead) - len(line)):
                given[config_key(task.config)] = task
                line.put([task.config])
            if not line:
                if time.monotonic() - idle_since > IDLE_LEAVES_S:
                    return
                stop.wait(LOOK_S)
                continue
            idle_since = time.monotonic()
            for config, outcome in line.take(_incumbent(line, given)):
                given.pop(config_key(config), None)
                trial = Trial(0, config, outcome, time.monotonic() - began)
                news.add(services.trial_record(job, worker, trial, default, gpu_uuid=card.uuid if card else "",
                                               capability=session.compute_capability or ""))


def _incumbent(line: OneByOne, given: dict[str, TuneTask]) -> Incumbent | None:
    """The best that the lead knew when it gave out the newest of what is in the line."""
    races = [given[key].incumbent for key in line.keys if key in given and given[key].incumbent]
    best = min(races, key=lambda race: race["median_ms"], default=None)
    return Incumbent(best["median_ms"], tuple(best["samples_ms"])) if best else None


def _differs(job: TuneJob, session: Session) -> str:
    """Why this worker's times would not be those of the job; "" when they are."""
    own, theirs = cache.toolkit(session.environment), job.toolkit
    if session.gpu != job.gpu:
        return f"its GPU is {session.gpu}, the job's {job.gpu}"
    if own != theirs:
        return f"it has {own}, the job {theirs}"
    if str(session.environment.get("source_hash") or "") != job.source_hash:
        return "its kernel source is another one"
    if session.policy != job.policy:
        return "it measures by another policy"
    return ""


def _cannot(job: TuneJob, worker: str, why: str) -> None:
    member: TuneMember = sharing_services.member_join(job, worker, Role.HELPER)
    sharing_services.member_leave(member, f"{CANNOT}{why}")
