"""The lead's side of a job that several workers share: one strategy, asked by the lead's own loop and for the helpers.

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
from tuner.loop import Progress
from tuner.models import TuneJob
from tuner.strategies import Strategy, tell_facts
from tuner.trial import Config, Rejected, Trial, config_key
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


class Shared:
    """A strategy for the lead's loop (`ask`, `tell`, `facts`), and `others` for the trials that came from elsewhere.

    search   the strategy of the job; one thread at a time is in it
    first    served before it is asked
    trials   budget of the job over all workers
    refuse   a rejection for what must not run; it is recorded as a trial through `record`
    ahead    asked by a thread while the GPU measures: the loop then finds its next ones ready, and what it tells waits for that
             thread. A model that thinks for 0.1 s after each trial would else leave the GPU idle as long. 0: asked when
             needed, so that the same seed gives the same trials.
    """

    def __init__(self, job: TuneJob, worker: str, search: Strategy, *, first: Sequence[Config], trials: int,
                 clock: Callable[[], float], refuse: Refuse, record: Record, ahead: int = 0) -> None:
        self.job, self.worker, self.trials, self.ahead = job, worker, trials, ahead
        self._search, self._waiting = search, deque(first)
        self._clock, self._refuse, self._record = clock, refuse, record
        self._thinking, self._lock, self._turning = threading.Lock(), threading.RLock(), threading.Lock()
        self._unheard: deque[Sequence[Trial] | Mapping[str, Mapping[str, Any]]] = deque()     # told, the strategy not yet
        self._told: set[str] = set()
        self._open: dict[str, Config] = {}       # handed out, not told
        self._news: list[Trial] = []
        self._last_row = 0
        self._progress = Progress()
        self._short = 0                          # of what was asked last, so many were not ready
        self._given = self._over = False

    # ---- what the loop calls ----

    def ask(self, n: int) -> list[Config]:
        asked = self._take(n)
        while len(asked) < n and self.left > 0 and not (asked and self.ahead):
            if not self._think(min(n - len(asked), self.left)):
                break
            asked += self._take(n - len(asked))
        self._short = n - len(asked)
        return asked

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
            self._think(0)

    def facts(self, found: Mapping[str, Mapping[str, Any]]) -> None:
        self._unheard.append(found)
        if not self.ahead:
            self._think(0)

    def others(self) -> list[Trial]:
        """What came from elsewhere since the last call. It has been told already."""
        with self._lock:
            news, self._news = self._news, []
            return news

    @property
    def left(self) -> int:
        """Trials that may still start, by whomever."""
        return self.trials - len(self._told) - len(self._open)

    @property
    def waiting(self) -> bool:
        """Whether something is to be measured that the strategy need not be asked for."""
        with self._lock:
            return bool(self._open) or any(config_key(config) not in self._told for config in self._waiting)

    def _take(self, n: int) -> list[Config]:
        """Of what waits; what must not run becomes a trial."""
        taken: list[Config] = []
        with self._lock:
            while self._waiting and len(taken) < n and self.left > 0:
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
                taken.append(config)
        return taken

    def _think(self, n: int) -> bool:
        """Tell the strategy what it has not heard, and ask it for `n` more. False when it has none."""
        with self._thinking:
            while self._unheard:
                heard = self._unheard.popleft()
                if isinstance(heard, Mapping):
                    tell_facts(self._search, heard)
                else:
                    self._search.tell(heard)
            asked = self._search.ask(n) if n > 0 else []
            with self._lock:
                self._waiting.extend(asked)
            return bool(asked)

    # ---- what threads call ----

    def prepare(self) -> bool:
        """Have the next ones ready before the loop asks. False when there is nothing to do."""
        with self._lock:
            lacking = min(max(self.ahead, self._short) - len(self._waiting), self.left)
        return lacking > 0 and not self._over and self._think(lacking)

    def turn(self) -> None:
        """Take over what helpers found, and give them more."""
        with self._turning:
            self._hear()
            if self._given:
                sharing_services.tasks_of_the_dead(self.job)
            helping = sharing_services.helpers(self.job).count()
            if self._over or not helping:
                if self._given:
                    self._return(sharing_services.tasks_take_back(self.job))
                return
            wanted = STOCK * helping - sharing_services.tasks_waiting(self.job)
            configs = self.ask(wanted) if wanted > 0 else []
            if configs:
                self._given = True
                incumbent = self._progress.incumbent()      # a helper measures on another card
                sharing_services.tasks_put(self.job, configs, incumbent.elsewhere() if incumbent else None)

    def _hear(self) -> None:
        fresh = sharing_services.trials_of_others(self.job, self.worker, self._last_row)
        self._last_row = max((pk for pk, _ in fresh), default=self._last_row)
        with self._lock:
            trials = [trial for _, trial in fresh if config_key(trial.config) not in self._told]
            self._news += trials
        self.tell(trials)

    def _return(self, configs: Sequence[Config]) -> None:
        with self._lock:
            for config in configs:
                self._open.pop(config_key(config), None)
                self._waiting.append(config)

    def begin(self, history: Sequence[Trial]) -> None:
        """Of a job that goes on: its rows are told, and what a dead lead gave out is the first to be measured."""
        self.tell(history)
        self._last_row = sharing_services.last_row(self.job)
        self._waiting.extend(sharing_services.tasks_take_back(self.job, everything=True))

    def end(self, should_stop: Callable[[], bool]) -> None:
        """Give nothing out any more, and wait for what helpers measure at this moment."""
        self._over = True
        while not should_stop():
            self.turn()
            if not sharing_services.tasks_out(self.job):
                return
            time.sleep(TURN_EVERY_S / 4)

    def go_on(self, trials: int) -> None:
        """The budget has grown, or something was lost: what nobody measures any more is measured first."""
        with self._lock:
            self._waiting.extendleft(self._open.values())
            self._open.clear()
            self.trials, self._over = trials, False


class Turning:
    """Turns a Shared in a thread of its own while the block runs, and wakes idle workers that may help; another one prepares."""

    def __init__(self, shared: Shared, queue: str) -> None:
        self._shared, self._queue = shared, queue
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._run, name="share", daemon=True)]
        if shared.ahead:
            self._threads.append(threading.Thread(target=self._prepare, name="prepare", daemon=True))
        self._wake_at = 0.0

    def __enter__(self) -> Turning:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(timeout=5)

    def _prepare(self) -> None:
        """What fails here fails in the loop as well, which asks for itself when nothing is ready."""
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
                self._shared.turn()
                self._wake()
            except Error as error:
                log.warning("tune %s: sharing: %s", self._shared.job.pk, error)
                connection.close()
        connection.close()

    def _wake(self) -> None:
        now = time.monotonic()
        if now < self._wake_at or self._shared.left < MIN_LEFT_TO_WAKE:
            return
        self._wake_at = now + WAKE_EVERY_S
        with suppress(Exception):                 # Redis may be away; the lead goes on alone
            wake_helpers(self._shared.job, self._shared.worker, self._queue)


def wake_helpers(job: TuneJob, lead: str, queue: str) -> int:
    """An entry for every idle worker of the queue that could help, while nothing else waits for them; how many were made."""
    if jobs.others_waiting(queue):
        return 0
    part = {member.worker: member for member in job.members.all()}
    left_for_good = {name for name, member in part.items() if member.note.startswith(CANNOT)}
    idle = [worker for worker in jobs.workers() if queue in worker.get("queues", []) and worker.get("busy") is None
            and worker["name"] != lead and worker["name"] not in left_for_good and _same_gpu(job, worker)]
    helping = sum(member.left is None for member in part.values())
    wanted = min(len(idle), MAX_HELPERS - helping) - jobs.waiting_for("assist", job.pk)
    for _ in range(wanted):
        jobs.enqueue(queue, "assist", job.pk)
    return max(0, wanted)


def _same_gpu(job: TuneJob, worker: Mapping[str, Any]) -> bool:
    return bool(job.recorded) or any(gpu.get("name") == job.gpu for gpu in worker.get("gpus") or [])
