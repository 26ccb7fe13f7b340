"""What a worker measures a job with: a leased GPU in a child, or a recorded landscape; and what it may try there."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from tuner.bench.landscape import Landscape, LandscapeError
from tuner.bench.replay import ReplayRunner
from tuner.bench.runner import CompilesAhead, Runner, Session
from tuner.jobs import devices, selectors, sharing_services
from tuner.jobs.sharing_services import Role
from tuner.models import TrialRow, TuneJob, TuneMember
from tuner.operators import find, limits
from tuner.space import Space
from tuner.trial import Config
from workers import compile_queue, gpu, jobs, team
from workers.sandbox import SandboxError, SandboxRunner
from workers.stopping import Stop
from workers.ticking import ticking

log = logging.getLogger(__name__)
PUBLISH_AT_ONCE = 200        # trials in one message
BEAT_EVERY_S = 1.0


@contextmanager
def runner_of(job: TuneJob, stop: Stop, replay_speed: float, *, model: str = "",
              wait_s: float | None = None) -> Iterator[tuple[Runner, gpu.Gpu | None]]:
    """The runner, closed afterwards, and the GPU that is leased for it; `model` asks for one of that name."""
    if not devices.is_gpu(job.device):
        landscape = devices.landscape(job.device.removeprefix(devices.REPLAY))
        runner: Runner = ReplayRunner(landscape, index_of(landscape, job), speed=replay_speed)
        try:
            stop.tell(runner)
            yield runner, None
        finally:
            runner.close()
        return
    wanted = model or devices.gpu_model(job.device)
    cards = [card for card in gpu.gpus() if wanted in ("", card.name)]
    if not cards:
        what = f"this worker sees no {wanted}" if wanted else "this worker sees no NVIDIA GPU"
        raise SandboxError(what, "Start it on a machine with a GPU and its driver.")
    with gpu.seat(cards, should_stop=stop, wait_s=wait_s) as card:
        elsewhere = compile_queue.helpers(job.pk)
        shared = compile_queue.environment() if elsewhere else {}
        runner = SandboxRunner(job.operator, job.shape, job.dtype, card.index, gpu_uuid=card.uuid, seed=job.seed,
                               policy={"kind": job.timing}, environ={**team.child_environment(), **shared}, helpers=elsewhere,
                               turn=gpu.Turn(card, stop))
        try:
            stop.tell(runner)
            yield runner, card
        finally:
            runner.close()


def index_of(landscape: Landscape, job: TuneJob) -> int:
    index = landscape.index_of(job.shape)
    if index is None:
        raise LandscapeError(landscape.stem, f"shape {job.shape} is not recorded", "Choose a recorded shape.")
    return index


def space_of(job: TuneJob, runner: Runner, session: Session) -> tuple[Space, Config | None, list[Config]]:
    """The valid configurations, the default one, and others that are worth trying right after it.

    The file's where a recording is replayed, else the operator's.
    """
    operator = find(job.operator)
    device = limits(session.gpu, session.compute_capability, session.environment.get("sms"))
    known = operator is not None and not operator.problems(job.shape, job.dtype)
    if isinstance(runner, ReplayRunner):
        space = runner.landscape.space(index_of(runner.landscape, job))
        return space, operator.default_in(space, job.shape, job.dtype, device) if operator and known else None, []
    if operator is None:
        raise SandboxError(f"no operator is named {job.operator!r} here", "Enable its package, or start a job of another one.")
    space = team.pruned(job.operator, job.shape, job.dtype, operator.space(job.shape, job.dtype, device))
    published = operator.published(space, job.shape, job.dtype, device)
    return space, operator.default_in(space, job.shape, job.dtype, device), list(published)


@contextmanager
def present(job: TuneJob, worker: str, role: str, card: gpu.Gpu | None, runner: Runner) -> Iterator[TuneMember]:
    """The worker is a member of the job while the block runs: its sign of life carries the GPU's clocks and use by then."""
    member = sharing_services.member_join(
        job, worker, role, host=socket.gethostname(), gpu=card.name if card else "", gpu_uuid=card.uuid if card else "")

    def beat() -> None:
        use = {"use": asdict(runner.use())} if isinstance(runner, CompilesAhead) else {}
        sharing_services.member_beat(member, {**(gpu.reading(card) if card else {}), **use})

    try:
        with ticking(BEAT_EVERY_S, beat, f"member of tune {job.pk}"):
            yield member
    finally:
        if role == Role.HELPER:
            sharing_services.member_leave(member)


class News:
    """Trials for the pages that watch the job, several in one message: a hundred browsers get four messages a second."""

    def __init__(self, job: TuneJob) -> None:
        self._topic, self._lock = f"tune.{job.pk}", threading.Lock()
        self._trials: list[dict[str, Any]] = []

    def add(self, row: TrialRow) -> None:
        with self._lock:
            self._trials.append(selectors.trial_json(row))

    def flush(self) -> None:
        with self._lock:
            trials, self._trials = self._trials, []
        for start in range(0, len(trials), PUBLISH_AT_ONCE):
            some = trials[start:start + PUBLISH_AT_ONCE]
            jobs.publish(self._topic, "trials", {"trials": some, "elapsed_s": max(trial["at_s"] for trial in some)})
