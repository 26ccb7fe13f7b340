"""Runners of a job: a leased GPU in a child or a recorded landscape, and their space."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict

from profiles.base.refused import Refused
from profiles.capture.tools.tool import package_version
from tuner import devices
from tuner.bring.own import selectors as own_selectors
from tuner.jobs import selectors, sharing_services
from tuner.jobs.sharing_services import Role
from tuner.models import TrialRow, TuneJob, TuneMember
from tuner.spaces.edit import OwnSpace, edited_space, read_edit
from tuner.spaces.own import own_space_of_offer, space_of_operator, space_of_recording
from tuner.tuning.measure import nvml
from tuner.tuning.measure.landscape import Landscape, LandscapeError
from tuner.tuning.measure.replay import ReplayRunner
from tuner.tuning.measure.runner import CompilingRunner, Runner, Session
from tuner.tuning.operators import Operator, find, limits
from tuner.tuning.space import Space
from tuner.tuning.trial import Config, config_key
from workers import jobs
from workers.clocks import hold
from workers.core import gpu
from workers.core.child import SandboxError
from workers.core.periodic import Stop, run_periodically
from workers.tune import compile_queue, own, team
from workers.tune.sandbox import EarlyStart, SandboxRunner

log = logging.getLogger(__name__)
PUBLISH_AT_ONCE = 200        # trials in one message
BEAT_EVERY_S = 1.0
EARLY = 6                    # configurations that compile while the child opens the GPU
STARTS = 12                  # of what a vendor's library prefers: tried before the search begins


@contextmanager
def open_runner(job: TuneJob, worker: str, stop: Stop, replay_speed: float, *, model: str = "",
                wait_s: float | None = None) -> Iterator[tuple[Runner, gpu.Gpu | None]]:
    """Yield runner and leased GPU (`model` asks for one of that name), its clocks held where owners ask for it; closes all."""
    if not devices.is_gpu(job.device):
        landscape = devices.load_landscape(job.device.removeprefix(devices.REPLAY))
        runner: Runner = ReplayRunner(landscape, shape_index_of(landscape, job), speed=replay_speed)
        try:
            stop.tell(runner)
            yield runner, None
        finally:
            runner.close()
        return
    model_name = model or devices.gpu_model(job.device)
    cards = [card for card in gpu.gpus() if model_name in ("", card.name)]
    if not cards:
        what = f"this worker sees no {model_name}" if model_name else "this worker sees no NVIDIA GPU"
        raise SandboxError(what, "Start it on a machine with a GPU and its driver.")
    with gpu.seat(cards, should_stop=stop, wait_s=wait_s) as card, ExitStack() as stack:
        together = [card, *_others(job, card)]
        lock, *_ = [stack.enter_context(hold.hold_clocks(member.uuid, f"tune job {job.pk} on {worker}")) for member in together]
        mine = own_selectors.kernel_named(job.operator)
        walled = stack.enter_context(own.behind_walls(mine, find(mine.name), card)) if mine is not None else {}
        elsewhere = [] if walled else compile_queue.make_helpers(job.pk)        # where no walls are, no own kernel is compiled
        shared = compile_queue.cache_environment() if elsewhere else {}
        about = {"clock_lock": lock, **({"gpus": len(together)} if len(together) > 1 else {}),
                 **({"source_hash": mine.source_hash} if mine is not None else {})}
        runner = SandboxRunner(job.operator, job.shape, job.dtype, card.index, seed=job.seed,
                               gpu_uuid=",".join(member.uuid for member in together),
                               policy={"kind": job.timing, **(own.PROGRAMS.policy if walled else {})},
                               environ={} if walled else {**team.child_environment(), **shared}, helpers=elsewhere,
                               turn=gpu.Turn(card, stop, others=together[1:]), environment=about, conditions=hold.compact(lock),
                               early=lambda: early_start(job, card), **walled)
        try:
            stop.tell(runner)
            yield runner, card
        finally:
            runner.close()


def _others(job: TuneJob, card: gpu.Gpu) -> list[gpu.Gpu]:
    """Return the further GPUs that a launch of the job's shape runs on; none as a rule. Raises SandboxError."""
    operator = find(job.operator)
    if operator is None or operator.problems(job.shape, job.dtype):
        return []
    count = operator.gpus(job.shape) - 1
    others = gpu.neighbours(card, gpu.gpus_of_host(), count) if count else []
    if len(others) < count:
        raise SandboxError(f"this shape runs on {count + 1} GPUs at once, this worker's host has {len(others) + 1} × {card.name}",
                           "Start it where a host has so many of one model.")
    return others


def shape_index_of(landscape: Landscape, job: TuneJob) -> int:
    """Return the index of the job's shape in the landscape."""
    index = landscape.index_of(job.shape)
    if index is None:
        raise LandscapeError(landscape.stem, f"shape {job.shape} is not recorded", "Choose a recorded shape.")
    return index


def job_space(job: TuneJob, runner: Runner, session: Session) -> tuple[Space, Config | None, list[Config]]:
    """Return the valid configurations, the operator's default, and others worth trying next.

    The file's where a recording is replayed, else the operator's; of an edited space only what it leaves, which may lack the
    default.
    """
    operator = find(job.operator)
    device = limits(session.gpu, session.compute_capability, session.environment.get("sms"))
    is_known = operator is not None and not operator.problems(job.shape, job.dtype)
    if isinstance(runner, ReplayRunner):
        index = shape_index_of(runner.landscape, job)
        space = runner.landscape.space(index)
        default = operator.default_in(space, job.shape, job.dtype, device) if operator and is_known else None
        return _edited(job, space, lambda: space_of_recording(runner.landscape, index)), default, []
    if operator is None:
        raise SandboxError(f"no operator is named {job.operator!r} here", "Enable its package, or start a job of another one.")
    if operator.listed_on_gpu:
        return _listed_space(job, operator, session)
    space = team.prune_space(job.operator, job.shape, job.dtype, operator.space(job.shape, job.dtype, device))
    default = operator.default_in(space, job.shape, job.dtype, device)
    edited = _edited(job, space, lambda: space_of_operator(operator, job.shape, job.dtype, device, space))
    default = default or operator.default_in(edited, job.shape, job.dtype, device)
    return edited, default, list(operator.published_starts(edited, job.shape, job.dtype, device))


def early_start(job: TuneJob, card: gpu.Gpu) -> EarlyStart | None:
    """Return the configurations that a job begins with, for a GPU as its driver describes it; None where only the GPU tells."""
    operator, sms, triton = find(job.operator), nvml.sm_count(card.index, card.cc), package_version("triton").get("version")
    if (operator is None or operator.listed_on_gpu or sms is None or not triton or job.space
            or operator.problems(job.shape, job.dtype)):
        return None
    tried = set(job.trials.values_list("config_key", flat=True))
    if job.only is not None:
        first = list(job.only)
    else:
        device = limits(card.name, card.cc, sms)
        space = operator.space(job.shape, job.dtype, device)
        default = operator.default_in(space, job.shape, job.dtype, device)
        first = [config for config in (*([default] if default else []), *job.first,
                                       *operator.published_starts(space, job.shape, job.dtype, device)) if config in space]
    return EarlyStart(card.cc, sms, triton, [config for config in first[:EARLY] if config_key(config) not in tried])


def _listed_space(job: TuneJob, operator: Operator, session: Session) -> tuple[Space, Config | None, list[Config]]:
    """Return what the GPU's machine listed, what its library chooses itself, and its further choices in their order."""
    offer = session.offer
    if offer is None or not len(offer.space):
        left_out = "; ".join(f"{reason}: {count:,}" for reason, count in offer.space.pruned.items()) if offer else ""
        raise SandboxError(f"{operator.name}: nothing can run at this shape on this worker ({left_out or 'nothing was listed'})",
                           "Try another shape or data type.")
    edited = _edited(job, offer.space, lambda: own_space_of_offer(offer, operator, job.shape, job.dtype, session.gpu))
    starts: list[Config] = [config for row in offer.starts[:STARTS] if (config := offer.space.config(row)) in edited]
    return edited, offer.default_config, starts


def _edited(job: TuneJob, space: Space, own: Callable[[], OwnSpace]) -> Space:
    """Return what the job's edit leaves of a space; the space itself where there is none."""
    if not job.space:
        return space
    try:
        offered = own()
        return edited_space(offered, read_edit(job.space, offered))
    except Refused as error:
        raise SandboxError(f"the edited space: {error}", "Start a job with another space.") from error


@contextmanager
def join_job(job: TuneJob, worker: str, role: str, card: gpu.Gpu | None, runner: Runner) -> Iterator[TuneMember]:
    """Keep the worker a member while the block runs, with heartbeats of the GPU's state."""
    member = sharing_services.member_join(
        job, worker, role, host=socket.gethostname(), gpu=card.name if card else "", gpu_uuid=card.uuid if card else "")

    def beat() -> None:
        use = {"use": asdict(runner.use())} if isinstance(runner, CompilingRunner) else {}
        sharing_services.member_beat(member, {**(gpu.reading(card) if card else {}), **use})

    try:
        with run_periodically(BEAT_EVERY_S, beat, f"member of tune {job.pk}"):
            yield member
    finally:
        if role == Role.HELPER:
            sharing_services.member_leave(member)


class TrialPublisher:
    """Publishes trials for pages, several per message: four messages a second at most."""

    def __init__(self, job: TuneJob) -> None:
        self._topic, self._lock = f"tune.{job.pk}", threading.Lock()
        self._trials: list[selectors.TrialJson] = []

    def add(self, row: TrialRow) -> None:
        """Add a trial."""
        with self._lock:
            self._trials.append(selectors.trial_json(row))

    def flush(self) -> None:
        """Publish what was added, at most PUBLISH_AT_ONCE trials a message."""
        with self._lock:
            trials, self._trials = self._trials, []
        for start in range(0, len(trials), PUBLISH_AT_ONCE):
            some = trials[start:start + PUBLISH_AT_ONCE]
            jobs.publish(self._topic, "trials", {"trials": some, "elapsed_s": max(trial["at_s"] for trial in some)})
