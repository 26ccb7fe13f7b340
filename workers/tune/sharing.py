"""The lead's side of a shared job: one strategy for its own loop and for helpers.

Stands in the loop's place of a strategy. It hands out what must come first, keeps what is in quarantine from everybody, and
holds the trial budget over all workers. A thread turns it a few times a second: trials of helpers are told, tasks topped up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from django.db import Error, connection

from tuner.jobs import sharing_services
from tuner.models import TuneJob
from tuner.tuning.search.loop import Progress
from tuner.tuning.search.strategies import Strategy, tell_facts
from tuner.tuning.trial import Config, Rejected, Trial, config_key
from workers import jobs

log = logging.getLogger(__name__)
TURN_EVERY_S = 0.2
PREPARE_EVERY_S = 0.01
STOCK = 3                  # tasks that wait, for each helper: the lead may be deep in a strategy
WAKE_EVERY_S = 3.0
MIN_LEFT_TO_WAKE = 6       # trials: for fewer, a helper's start is not worth it
MAX_HELPERS = 15
CANNOT = "cannot help: "   # begins the note of a worker that need not be woken again for this job
Refuse = Callable[[Config], Rejected | None]
Record = Callable[[Trial], object]


class SharedStrategy:
    """A strategy for the lead's loop, and `others` for trials that came from elsewhere.

    search   the strategy of the job; one thread at a time is in it
    first    served before it is asked
    trials   budget of the job over all workers
    refuse   a rejection for what must not run; it is recorded as a trial through `record`
    ahead    asked by a thread while the GPU measures: the loop then finds its next ones ready, and what it tells waits for that
             thread. A model that thinks for 0.1 s after each trial would else leave the GPU idle as long. 0: asked when
             needed, so that the same seed gives the same trials.
    spare    so many may start beyond the budget when the loop asks for them, as its last ones compile for seconds and the GPU has
             nothing to do: those that are ready first count. None while one of `first` is on its way, or once others help
    """

    def __init__(self, job: TuneJob, worker: str, search: Strategy, *, first: Sequence[Config], trials: int,
                 clock: Callable[[], float], refuse: Refuse, record: Record, ahead: int = 0, spare: int = 0) -> None:
        self.job, self.worker, self.trials, self.ahead, self.spare = job, worker, trials, ahead, spare
        self._search, self._waiting = search, deque(first)
        self._clock, self._refuse, self._record = clock, refuse, record
        self._thinking, self._lock, self._turning = threading.Lock(), threading.RLock(), threading.Lock()
        self._unheard: deque[Sequence[Trial] | Mapping[str, Mapping[str, Any]]] = deque()     # told, the strategy not yet
        self._told: set[str] = set()
        self._open: dict[str, Config] = {}       # handed out, not told
        self._first = {config_key(config) for config in first}
        self._news: list[Trial] = []
        self._last_row = 0
        self._progress = Progress()
        self._short = 0                          # of what was asked last, so many were not ready
        self._given = self._over = False

    # ---- what the loop calls ----

    def ask(self, n: int) -> list[Config]:
        configs = self._take(n)
        while len(configs) < n and self._may_start > 0 and not (configs and self.ahead):
            if not self._ask_strategy(min(n - len(configs), self._may_start)):
                break
            configs += self._take(n - len(configs))
        self._short = n - len(configs)
        return configs

    def tell(self, trials: Sequence[Trial]) -> None:
        with self._lock:
            fresh = [trial for trial in trials if config_key(trial.config) not in self._told]
            for trial in fresh:
                key = config_key(trial.config)
                self._told.add(key)
                self._open.pop(key, None)
                self._progress.add(trial)
            if fresh:
                self._unheard.append(fresh)
        if not self.ahead:
            self._ask_strategy(0)

    def tell_facts(self, facts: Mapping[str, Mapping[str, Any]]) -> None:
        self._unheard.append(facts)
        if not self.ahead:
            self._ask_strategy(0)

    def others(self) -> list[Trial]:
        """Return trials from elsewhere since the last call; they were told already."""
        with self._lock:
            news, self._news = self._news, []
            return news

    @property
    def trials_left(self) -> int:
        """Return trials that may still start, by any worker."""
        return self.trials - len(self._told) - len(self._open)

    @property
    def _may_start(self) -> int:
        if len(self._told) >= self.trials:
            return 0
        return self.trials_left + (0 if self._given or self._first & self._open.keys() else self.spare)

    @property
    def has_waiting(self) -> bool:
        """Return whether something is to be measured without asking the strategy."""
        with self._lock:
            return bool(self._open) or any(config_key(config) not in self._told for config in self._waiting)

    def _take(self, n: int) -> list[Config]:
        """Return waiting configurations; those refused become trials."""
        configs: list[Config] = []
        with self._lock:
            while self._waiting and len(configs) < n and self._may_start > 0:
                config = self._waiting.popleft()
                key = config_key(config)
                if key in self._told or key in self._open:
                    continue
                refused = self._refuse(config)
                if refused is not None:
                    trial = Trial(0, config, refused, self._clock())
                    self._record(trial)
                    self._news.append(trial)
                    self._told.add(key)
                    self._progress.add(trial)
                    self._unheard.append([trial])
                    continue
                self._open[key] = config
                configs.append(config)
        return configs

    def _ask_strategy(self, n: int) -> bool:
        """Tell the strategy what is new and ask for `n` more; False when it has none."""
        with self._thinking:
            while self._unheard:
                heard = self._unheard.popleft()
                if isinstance(heard, Mapping):
                    tell_facts(self._search, heard)
                else:
                    self._search.tell(heard)
            configs = self._search.ask(n) if n > 0 else []
            with self._lock:
                self._waiting.extend(configs)
            return bool(configs)

    # ---- what threads call ----

    def prepare(self) -> bool:
        """Ask ahead of the loop; False when there is nothing to do."""
        with self._lock:
            lacking = min(max(self.ahead, self._short) - len(self._waiting), self.trials_left)
        return lacking > 0 and not self._over and self._ask_strategy(lacking)

    def share(self) -> None:
        """Take over helpers' trials, and hand out more."""
        with self._turning:
            self._take_over()
            if self._given:
                sharing_services.tasks_release_dead(self.job)
            helping = sharing_services.live_helpers(self.job).count()
            if self._over or not helping:
                if self._given:
                    self._put_back(sharing_services.tasks_take_back(self.job))
                return
            count = STOCK * helping - sharing_services.count_free_tasks(self.job)
            configs = self.ask(count) if (count := min(count, self.trials_left)) > 0 else []
            if configs:
                self._given = True
                incumbent = self._progress.incumbent()      # a helper measures on another card
                sharing_services.tasks_put(self.job, configs, incumbent.for_other_card() if incumbent else None)

    def _take_over(self) -> None:
        fresh = sharing_services.trials_by_others(self.job, self.worker, self._last_row)
        self._last_row = max((pk for pk, _ in fresh), default=self._last_row)
        with self._lock:
            trials = [trial for _, trial in fresh if config_key(trial.config) not in self._told]
            self._news += trials
        self.tell(trials)

    def _put_back(self, configs: Sequence[Config]) -> None:
        with self._lock:
            for config in configs:
                self._open.pop(config_key(config), None)
                self._waiting.append(config)

    def load_history(self, history: Sequence[Trial]) -> None:
        """Tell the rows of a resumed job; what a dead lead handed out is measured first."""
        self.tell(history)
        self._last_row = sharing_services.last_row(self.job)
        self._waiting.extend(sharing_services.tasks_take_back(self.job, everything=True))

    def end(self, should_stop: Callable[[], bool]) -> None:
        """Hand out nothing more, and wait for what helpers measure now."""
        self._over = True
        while not should_stop():
            self.share()
            if not sharing_services.count_claimed_tasks(self.job):
                return
            time.sleep(TURN_EVERY_S / 4)

    def resume(self, trials: int) -> None:
        """Go on with a grown budget; what nobody measures any more comes first."""
        with self._lock:
            self._waiting.extendleft(self._open.values())
            self._open.clear()
            self.trials, self._over = trials, False


class SharingThreads:
    """Shares in a thread while the block runs and wakes idle workers; another thread prepares."""

    def __init__(self, shared: SharedStrategy, queue: str) -> None:
        self._shared, self._queue = shared, queue
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._run, name="share", daemon=True)]
        if shared.ahead:
            self._threads.append(threading.Thread(target=self._prepare, name="prepare", daemon=True))
        self._wake_at = 0.0

    def __enter__(self) -> SharingThreads:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(timeout=5)

    def _prepare(self) -> None:
        """Ask ahead; what fails here fails in the loop as well, which asks for itself."""
        while not self._done.is_set():
            try:
                if not self._shared.prepare():
                    self._done.wait(PREPARE_EVERY_S)
            except Exception:
                log.exception("tune %s: asking ahead", self._shared.job.pk)
                return

    def _run(self) -> None:
        while not self._done.wait(TURN_EVERY_S):
            try:
                self._shared.share()
                self._wake()
            except Error as error:
                log.warning("tune %s: sharing: %s", self._shared.job.pk, error)
                connection.close()
        connection.close()

    def _wake(self) -> None:
        now = time.monotonic()
        if now < self._wake_at or self._shared.trials_left < MIN_LEFT_TO_WAKE:
            return
        self._wake_at = now + WAKE_EVERY_S
        with suppress(Exception):                 # Redis may be away; the lead goes on alone
            wake_helpers(self._shared.job, self._shared.worker, self._queue)


def wake_helpers(job: TuneJob, lead: str, queue: str) -> int:
    """Wake every idle worker of the queue that could help; return how many."""
    if jobs.others_waiting(queue):
        return 0
    part = {member.worker: member for member in job.members.all()}
    left_for_good = {name for name, member in part.items() if member.note.startswith(CANNOT)}
    idle = [worker for worker in jobs.workers() if queue in worker.get("queues", []) and worker.get("busy") is None
            and worker["name"] != lead and worker["name"] not in left_for_good and _same_gpu(job, worker)]
    helping = sum(member.left is None for member in part.values())
    count = min(len(idle), MAX_HELPERS - helping) - jobs.waiting_for("assist", job.pk)
    for _ in range(count):
        jobs.enqueue(queue, "assist", job.pk)
    return max(0, count)


def _same_gpu(job: TuneJob, worker: Mapping[str, Any]) -> bool:
    return bool(job.recorded) or any(gpu.get("name") == job.gpu for gpu in worker.get("gpus") or [])
