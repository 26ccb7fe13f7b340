"""A tune job on a worker: row → search loop → rows. What is recorded is never measured again, whoever died between."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from django.db import Error, connection

from tuner.bench.landscape import Landscape, LandscapeError
from tuner.bench.replay import SPEED, ReplayRunner
from tuner.bench.runner import Runner, Session
from tuner.jobs import devices, selectors, services
from tuner.loop import Budget, finish, tune
from tuner.models import TuneJob
from tuner.operators import OPERATORS, limits
from tuner.space import Space
from tuner.trial import Config
from workers import gpu
from workers.sandbox import SandboxError, SandboxRunner

log = logging.getLogger(__name__)
LOOK_EVERY_S = 0.25          # how soon a Stop is seen


class Stopped(Exception):
    """Someone asked for the end."""


class Stop:
    """Set soon after someone asks for the end of the job; tells the runner, whatever it does at that moment."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._runner: Runner | None = None

    def __call__(self) -> bool:
        return self._event.is_set()

    def tell(self, runner: Runner) -> None:
        self._runner = runner
        if self():
            runner.stop()

    def set(self) -> None:
        self._event.set()
        if self._runner is not None:
            self._runner.stop()

    def check(self) -> None:
        if self():
            raise Stopped


def run(job_id: int, worker: str, *, replay_speed: float = SPEED) -> None:
    """Search until the budget is spent, someone says stop, or nothing is left. `replay_speed` 0 replays at once."""
    job = services.tune_claim(job_id, worker)
    if job is None:
        return
    with suppress(services.Superseded), _watched(job) as stop:
        try:
            _attempt(job, worker, replay_speed, stop)
        except (Stopped, gpu.NoLease):
            services.tune_end(job, worker, TuneJob.Status.STOPPED)
        except LandscapeError as error:
            services.tune_fail(job, worker, f"recorded landscape {error.where}", error.what, error.hint)
        except SandboxError as error:
            if stop():                       # the child was told to go while it was starting
                services.tune_end(job, worker, TuneJob.Status.STOPPED)
            else:
                services.tune_fail(job, worker, "GPU child", error.what, error.hint)


def _attempt(job: TuneJob, worker: str, replay_speed: float, stop: Stop) -> None:
    with ExitStack() as held:
        if job.device == devices.GPU:
            cards = gpu.gpus()
            if not cards:
                raise SandboxError("this worker sees no NVIDIA GPU", "Start it on a machine with a GPU and its driver.")
            card = held.enter_context(gpu.lease(cards, should_stop=stop))
            runner: Runner = SandboxRunner(
                job.operator, job.shape, job.dtype, card.index, gpu_uuid=card.uuid, seed=job.seed)
        else:
            landscape = devices.landscape(job.device.removeprefix(devices.REPLAY))
            runner = ReplayRunner(landscape, _index(landscape, job), speed=replay_speed)
        held.callback(runner.close)
        stop.tell(runner)
        _search(job, worker, runner, stop)


def _index(landscape: Landscape, job: TuneJob) -> int:
    index = landscape.index_of(job.shape)
    if index is None:
        raise LandscapeError(landscape.stem, f"shape {job.shape} is not recorded", "Choose a recorded shape.")
    return index


def _search(job: TuneJob, worker: str, runner: Runner, stop: Stop) -> None:
    try:
        session = runner.open()
    except Exception as error:
        if stop():                           # a child that is killed while it starts has many ways to say so
            raise Stopped from error
        raise
    space, default = _space(job, runner, session)
    services.tune_session(job, worker, session, space)
    budget = Budget(job.budget_trials, job.budget_seconds)
    for trial in tune(space, job.strategy, runner, budget, job.seed, selectors.history(job), stop,
                      first=[default] if default else [], elapsed_s=job.elapsed_s):
        services.trial_record(job, worker, trial, default)
    stop.check()
    finalists = finish(runner, selectors.history(job), default)
    stop.check()
    source_hash = str(session.environment.get("source_hash") or "")
    services.tune_finish(job, worker, finalists, session, default=default, source_hash=source_hash)


def _space(job: TuneJob, runner: Runner, session: Session) -> tuple[Space, Config | None]:
    """The valid configurations and the default one: the file's where a recording is replayed, else the operator's."""
    operator = OPERATORS.get(job.operator)
    known = operator is not None and not operator.problems(job.shape, job.dtype)
    device = limits(session.gpu, session.compute_capability, session.environment.get("sms"))
    default = operator.default_config(job.shape, job.dtype, device) if operator and known else None
    if isinstance(runner, ReplayRunner):
        space = runner.landscape.space(_index(runner.landscape, job))
    else:
        space = OPERATORS[job.operator].space(job.shape, job.dtype, device)
    return space, default if default is not None and default in space else None


@contextmanager
def _watched(job: TuneJob) -> Iterator[Stop]:
    """Looks at the row from a thread of its own: the search may be deep in a compiler when someone presses Stop."""
    stop, done = Stop(), threading.Event()

    def look() -> None:
        while not done.wait(LOOK_EVERY_S):
            try:
                asked = TuneJob.objects.filter(pk=job.pk).values_list("stop_requested", flat=True).first()
            except Error as error:
                log.warning("tune %s: could not look for a stop: %s", job.pk, error)
                connection.close()
                continue
            if asked is not False:               # asked to stop, or the job was deleted
                stop.set()
                break
        connection.close()

    thread = threading.Thread(target=look, name="stop", daemon=True)
    thread.start()
    try:
        yield stop
    finally:
        done.set()
        thread.join(timeout=2)
