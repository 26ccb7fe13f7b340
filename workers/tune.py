"""A tune job on the worker that leads it: row → search loop → rows. What is recorded is never measured again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import numpy as np

from tuner.bench.landscape import LandscapeError
from tuner.bench.replay import SPEED
from tuner.bench.runner import CompilesAhead, Runner, Session
from tuner.finalists import finish
from tuner.jobs import quarantine_selectors, selectors, services
from tuner.jobs.known_selectors import known_of
from tuner.jobs.sharing_services import Role
from tuner.loop import Budget, Progress, tune
from tuner.models import TrialRow, TuneJob
from tuner.space import Space
from tuner.strategies import STRATEGIES, Strategy
from tuner.strategies.listed import Listed
from tuner.trial import Config, Rejected, Trial, config_key
from workers import gpu
from workers.sandbox import SandboxError
from workers.sharing import Shared, Turning
from workers.stopping import Stop, Stopped, watched
from workers.tune_runner import News, present, runner_of, space_of

COUNT_EVERY_S = 2.0
ASKED_AHEAD = 2              # configurations that a thread has ready for the loop, where compilers want more than one
QUARANTINE_EVERY_S = 2.0     # how soon a configuration that failed elsewhere is kept from this job


def run(job_id: int, worker: str, *, replay_speed: float = SPEED) -> None:
    """Search until the budget is spent, someone says stop or pause, or nothing is left. `replay_speed` 0 replays at once."""
    job = services.tune_claim(job_id, worker)
    if job is None:
        return
    news = News(job)
    with suppress(services.Superseded), watched(lambda: _asked(job, worker), news.flush) as stop:
        try:
            with runner_of(job, stop, replay_speed) as (runner, card):
                Lead(job, worker, runner, card, stop, news).search()
        except (Stopped, gpu.NoLease):
            services.tune_rest(job, worker)
        except LandscapeError as error:
            services.tune_fail(job, worker, f"recorded landscape {error.where}", error.what, error.hint)
        except SandboxError as error:
            if stop():                       # the child was told to go while it was starting
                services.tune_rest(job, worker)
            else:
                services.tune_fail(job, worker, "GPU child", error.what, error.hint)


def _asked(job: TuneJob, worker: str) -> bool:
    """To stop or to pause; also when the job was deleted or another worker has it."""
    mine = TuneJob.objects.filter(pk=job.pk, status=TuneJob.Status.RUNNING, worker=worker)
    wanted = mine.values_list("stop_requested", "pause_requested").first()
    return wanted is None or any(wanted)


class Lead:
    """The worker that holds the job's row: it asks the strategy, measures itself, and gives helpers what they measure."""

    def __init__(self, job: TuneJob, worker: str, runner: Runner, card: gpu.Gpu | None, stop: Stop, news: News) -> None:
        self.job, self.worker, self.runner, self.card, self.stop, self.news = job, worker, runner, card, stop, news
        self.began = time.monotonic() - job.elapsed_s
        self.counted: Mapping[str, Any] = dict(job.counters)
        self.counted_at = 0.0

    def clock(self) -> float:
        """Seconds of job time, over all attempts."""
        return time.monotonic() - self.began

    def search(self) -> None:
        session = self._open()
        space, self.default, starts = space_of(self.job, self.runner, session)
        services.tune_session(self.job, self.worker, session, space)
        self.capability = session.compute_capability or ""
        with present(self.job, self.worker, Role.LEAD, self.card, self.runner):
            ended_by = self._trials(space, session, starts)
            self.stop.check()
            finalists = finish(self.runner, selectors.history(self.job), self.default)
            self.stop.check()
            self._count()
            source_hash = str(session.environment.get("source_hash") or "")
            services.tune_finish(self.job, self.worker, finalists, session, default=self.default, source_hash=source_hash,
                                 ended_by=ended_by)

    def _open(self) -> Session:
        try:
            return self.runner.open()
        except Exception as error:
            if self.stop():                      # a child that is killed while it starts has many ways to say so
                raise Stopped from error
            raise

    def _trials(self, space: Space, session: Session, starts: list[Config]) -> str:
        """Search until the budget, the plateau or the space ends it; which of them."""
        job, listed = self.job, self.job.only
        default = [self.default] if self.default else []      # a listed configuration is worth keeping when it beats the default
        search: Strategy = Listed(space, [*listed, *default]) if listed is not None else STRATEGIES[job.strategy].make(
            space, np.random.default_rng(job.seed), known_of(job, session, self.default))
        early = [] if listed is not None else [*default, *job.first, *starts]
        first = [config for config in early if config in space]
        history = selectors.history(job)
        shared = Shared(job, self.worker, search, first=first, trials=job.budget_trials, clock=self.clock,
                        refuse=Refusals(job, self.capability), record=self._record,
                        ahead=ASKED_AHEAD if self.runner.ahead > 1 else 0)
        shared.begin(history)
        with Turning(shared, services.queue_of(job)):
            while True:
                before = len(history)
                budget = Budget(job.budget_trials, job.budget_seconds, job.plateau)
                for trial in tune(space, shared, self.runner, budget, job.seed, history, self.stop, others=shared.others,
                                  elapsed_s=self.clock()):
                    self._record(trial)
                    self._count(COUNT_EVERY_S)
                self.stop.check()
                shared.end(self.stop)
                self.stop.check()
                self._count()
                history = selectors.history(job)
                job.refresh_from_db(fields=["budget_trials", "budget_seconds", "plateau"])     # someone may have extended it
                ended_by = _spent(job, history, self.clock())
                if ended_by or (len(history) == before and not shared.waiting):
                    return ended_by or "space"
                shared.go_on(job.budget_trials)

    def _record(self, trial: Trial) -> TrialRow:
        row = services.trial_record(self.job, self.worker, trial, self.default, gpu_uuid=self.card.uuid if self.card else "",
                                    capability=self.capability)
        self.news.add(row)
        return row

    def _count(self, every_s: float = 0.0) -> None:
        """What the runner used, added to what earlier attempts did; at most once in so many seconds."""
        if isinstance(self.runner, CompilesAhead) and self.clock() - self.counted_at >= every_s:
            self.counted_at = self.clock()
            services.tune_count(self.job, self.worker, added(self.counted, asdict(self.runner.use())))


def added(before: Mapping[str, Any], use: Mapping[str, Any]) -> dict[str, Any]:
    """Sums over all attempts. The share leaves out what opening takes: nothing can be measured before."""
    total = {name: value if name == "compilers" else before.get(name, 0) + value for name, value in use.items()}
    working_s = total.get("wall_s", 0) - total.get("open_s", 0)
    return {**before, **total, "busy_share": total.get("busy_s", 0) / working_s if working_s > 0 else None}


def _spent(job: TuneJob, history: list[Trial], elapsed_s: float) -> str:
    """Which part of the budget is used up; "" when there is some of each left."""
    progress = Progress()
    for trial in history:
        progress.add(trial)
    if len(progress.tried) >= job.budget_trials:
        return "trials"
    if elapsed_s >= job.budget_seconds:
        return "seconds"
    return "plateau" if job.plateau is not None and progress.without_gain >= job.plateau else ""


class Refusals:
    """What is in quarantine now: read again every few seconds, so that a crash anywhere is known here soon."""

    def __init__(self, job: TuneJob, capability: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._job, self._capability, self._clock = job, capability, clock
        self._read_at = -QUARANTINE_EVERY_S
        self._refused: dict[str, Rejected] = {}

    def __call__(self, config: Config) -> Rejected | None:
        if self._clock() - self._read_at >= QUARANTINE_EVERY_S:
            self._read_at = self._clock()
            self._refused = quarantine_selectors.refused(self._job, self._capability)
        return self._refused.get(config_key(config))
