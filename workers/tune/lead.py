"""A tune job on the worker that leads it: row → search loop → rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from tuner.cache.entries.services import config_in_force
from tuner.ceilings.selectors import Ceilings, believe_below, good_ms
from tuner.jobs import create_services, quarantine, selectors, worker_services
from tuner.jobs.sharing_services import Role
from tuner.jobs.worker_services import prior_knowledge
from tuner.models import TrialRow, TuneJob
from tuner.tuning.measure.landscape import LandscapeError
from tuner.tuning.measure.replay import SPEED
from tuner.tuning.measure.runner import CompilingRunner, Runner, Session
from tuner.tuning.search.finalists import measure_finalists
from tuner.tuning.search.loop import Budget, Progress, tune
from tuner.tuning.search.strategies import STRATEGIES, Strategy, plateau_of
from tuner.tuning.search.strategies.fixed_order import ListedConfigs
from tuner.tuning.space import Space
from tuner.tuning.trial import Config, Rejected, Trial, config_key
from workers.core import gpu
from workers.core.child import SandboxError
from workers.core.periodic import Stop, Stopped, watch_for_stop
from workers.leases import Superseded
from workers.tune.runner import TrialPublisher, job_space, join_job, open_runner
from workers.tune.sharing import SharedStrategy, SharingThreads

COUNT_EVERY_S = 2.0
ASKED_AHEAD = 2              # configurations that a thread has ready for the loop, where compilers want more than one
QUARANTINE_EVERY_S = 2.0     # how soon a configuration that failed elsewhere is kept from this job


def load_strategies() -> None:
    """Import what the strategies load where they are made: in the worker, not in the process of each job."""
    tiny = Space.listed([{"n": 0}])
    for method in STRATEGIES.values():
        method.make(tiny, np.random.default_rng(0))


def run(job_id: int, worker: str, *, replay_speed: float = SPEED) -> None:
    """Search until budget, stop, pause or the space's end; `replay_speed` 0 replays at once."""
    job = worker_services.tune_claim(job_id, worker)
    if job is None:
        return
    publisher, claimed_s = TrialPublisher(job), time.monotonic()
    with suppress(Superseded), watch_for_stop(lambda: _is_asked_to_stop(job, worker), publisher.flush) as stop:
        try:
            with open_runner(job, worker, stop, replay_speed) as (runner, card):
                Lead(job, worker, runner, card, stop, publisher, claimed_s).search()
        except (Stopped, gpu.NoLease):
            worker_services.tune_release(job, worker)
        except LandscapeError as error:
            worker_services.tune_fail(job, worker, f"recorded landscape {error.where}", error.what, error.hint)
        except SandboxError as error:
            if stop():                       # the child was told to go while it was starting
                worker_services.tune_release(job, worker)
            else:
                worker_services.tune_fail(job, worker, "GPU child", error.what, error.hint)


def _is_asked_to_stop(job: TuneJob, worker: str) -> bool:
    """Return whether to stop or pause; also when the job is gone or another worker's."""
    mine = TuneJob.leases.rows_held_by(worker).filter(pk=job.pk)
    flags = mine.values_list("stop_requested", "pause_requested").first()
    return flags is None or any(flags)


class Lead:
    """The worker that holds the job: asks the strategy, measures, gives helpers work."""

    def __init__(self, job: TuneJob, worker: str, runner: Runner, card: gpu.Gpu | None, stop: Stop,
                 publisher: TrialPublisher, claimed_s: float) -> None:
        self.claimed_s = claimed_s                          # monotonic; from there to the search it prepares
        self.job, self.worker, self.runner, self.card, self.stop, self.publisher = job, worker, runner, card, stop, publisher
        self.began = time.monotonic() - job.elapsed_s
        self.counted: Mapping[str, Any] = dict(job.counters)
        self.counted_at = 0.0

    def clock(self) -> float:
        """Return seconds of searching over all attempts: what a budget counts. Preparing is counted beside it."""
        return time.monotonic() - self.began

    def search(self) -> None:
        """Open the runner, search, and end the job with its finalists."""
        session = self._open()
        space, self.default, starts = job_space(self.job, self.runner, session)
        worker_services.tune_set_session(self.job, self.worker, session, space)
        self.capability = session.compute_capability or ""
        self.least = Ceilings().of_job(self.job)
        with join_job(self.job, self.worker, Role.LEAD, self.card, self.runner):
            self._begin_search()
            ended_by = self._run_search(space, session, starts)
            self.stop.check()
            source_hash = str(session.environment.get("source_hash") or "")
            finalists = measure_finalists(self.runner, selectors.stored_trials(self.job), self.default, space,
                                          partial(believe_below, self.least), config_in_force(self.job, session, source_hash))
            self.stop.check()
            self._count()
            worker_services.tune_finish(self.job, self.worker, finalists, session, default=self.default, source_hash=source_hash,
                                 ended_by=ended_by)

    def _open(self) -> Session:
        try:
            return self.runner.open()
        except Exception as error:
            if self.stop():                      # a child that is killed while it starts has many ways to say so
                raise Stopped from error
            raise

    def _begin_search(self) -> None:
        """Start the clock of the search; what went before is kept beside it."""
        self.began = time.monotonic() - self.job.elapsed_s
        if self.card is not None:
            prepared_s = time.monotonic() - self.claimed_s + float(self.counted.get("prepare_s") or 0.0)
            self.counted = {**self.counted, "prepare_s": round(prepared_s, 3)}
            worker_services.tune_set_counters(self.job, self.worker, self.counted)

    def _run_search(self, space: Space, session: Session, starts: list[Config]) -> str:
        """Search until budget, plateau or space ends it; return which."""
        job, listed = self.job, self.job.only
        default = [self.default] if self.default else []      # a listed configuration is worth keeping when it beats the default
        search: Strategy = ListedConfigs(space, [*listed, *default]) if listed is not None else STRATEGIES[job.strategy].make(
            space, np.random.default_rng(job.seed), prior_knowledge(job, session, self.default))
        early = [] if listed is not None else [*default, *job.first, *starts]
        first = [config for config in early if config in space]
        history = selectors.stored_trials(job)
        shared = SharedStrategy(job, self.worker, search, first=first, trials=job.budget_trials, clock=self.clock,
                                refuse=QuarantineCheck(job, self.capability), record=self._record,
                                ahead=ASKED_AHEAD if self.runner.ahead > 1 else 0,
                                spare=self.runner.ahead if self.runner.ahead > 1 and listed is None else 0)
        shared.load_history(history)
        with SharingThreads(shared, create_services.queue_of(job)):
            while True:
                before = len(history)
                budget = Budget(job.budget_trials, job.budget_seconds, plateau_of(job.strategy, job.plateau),
                                good_ms(job, self.least))
                for trial in tune(space, shared, self.runner, budget, job.seed, history, self.stop, others=shared.others,
                                  elapsed_s=self.clock(), judge=partial(believe_below, self.least)):
                    self._record(trial)
                    self._count(COUNT_EVERY_S)
                self.stop.check()
                shared.end(self.stop)
                self.stop.check()
                self._count()
                history = selectors.stored_trials(job)
                job.refresh_from_db(fields=["budget_trials", "budget_seconds", "plateau", "ceiling_pct"])     # it may be extended
                ended_by = _spent_budget(job, history, self.clock(), good_ms(job, self.least))
                if ended_by or (len(history) == before and not shared.has_waiting):
                    return ended_by or "space"
                shared.resume(job.budget_trials)

    def _record(self, trial: Trial) -> TrialRow:
        row = worker_services.trial_record(self.job, self.worker, trial, self.default, gpu_uuid=self.card.uuid if self.card else "",
                                    capability=self.capability)
        self.publisher.add(row)
        return row

    def _count(self, every_s: float = 0.0) -> None:
        """Store what the runner used over all attempts, at most every `every_s`."""
        if isinstance(self.runner, CompilingRunner) and self.clock() - self.counted_at >= every_s:
            self.counted_at = self.clock()
            worker_services.tune_set_counters(self.job, self.worker, add_use(self.counted, asdict(self.runner.use())))


def add_use(before: Mapping[str, Any], use: Mapping[str, Any]) -> dict[str, Any]:
    """Return sums over all attempts; the busy share leaves out opening."""
    total = {name: value if name == "compilers" else before.get(name, 0) + value for name, value in use.items()}
    working_s = total.get("wall_s", 0) - total.get("open_s", 0)
    return {**before, **total, "busy_share": total.get("busy_s", 0) / working_s if working_s > 0 else None}


def _spent_budget(job: TuneJob, history: list[Trial], elapsed_s: float, good_enough_ms: float | None = None) -> str:
    """Return which part of the budget is used up; "" when some of each is left."""
    progress = Progress()
    for trial in history:
        progress.add(trial)
    if good_enough_ms is not None and progress.best_ms is not None and progress.best_ms <= good_enough_ms:
        return "ceiling"
    if len(progress.tried) >= job.budget_trials:
        return "trials"
    if elapsed_s >= job.budget_seconds:
        return "seconds"
    plateau = plateau_of(job.strategy, job.plateau)
    return "plateau" if plateau is not None and progress.without_gain >= plateau else ""


class QuarantineCheck:
    """Rejects configurations in quarantine, read again every QUARANTINE_EVERY_S."""

    def __init__(self, job: TuneJob, capability: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._job, self._capability, self._clock = job, capability, clock
        self._read_at = -QUARANTINE_EVERY_S
        self._refused: dict[str, Rejected] = {}

    def __call__(self, config: Config) -> Rejected | None:
        if self._clock() - self._read_at >= QUARANTINE_EVERY_S:
            self._read_at = self._clock()
            self._refused = quarantine.refused_configs(self._job, self._capability)
        return self._refused.get(config_key(config))
