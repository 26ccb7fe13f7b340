"""The worker process: RQ's forking worker whose parent announces, sweeps and avoids CUDA.

The task runs in a forked child that dies with this process. A stop does not wait for it: the row goes back to the queue
and nothing that was recorded is lost.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import redis
from django.conf import settings
from django.db import connections
from rq import Queue
from rq import Worker as RqWorker
from rq.exceptions import StopRequested
from rq.job import Job
from rq.worker import DequeueStrategy

from workers import clock, disk, jobs, spans, trail
from workers.clocks import hold
from workers.core import facts, forks, gpu, sandboxed, warm
from workers.core.child import safe_environment
from workers.metrics.prometheus import count_job

log = logging.getLogger(__name__)
ANNOUNCE_EVERY_S = 5.0
SWEEP_EVERY_S = 3.0
AGAIN_EVERY_S = 2.0
INSIST_AFTER_S = 3.0            # a stop that nothing came of is asked for again
WAIT_AT_MOST_S = 60             # for an entry, in one question to Valkey
LIGHT = "messages"              # a worker of this queue alone sweeps nothing else: it is spared the imports
COUNTED_BY_ROW = ("ingest", "tune", "check", "candidate", "code", "capture", "engine", "ceilings", "suite")
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class Worker(RqWorker):
    """RQ's worker: the task dies with it, a stop is immediate, connections are not inherited."""

    asked_to_stop = False
    asked_at_s = 0.0                    # monotonic

    def note_stop(self, signum: int, frame: FrameType | None) -> None:
        """Remember a signal that comes before RQ waits for one: what is raised, an import or a log line could swallow.

        The second one ends the process: Valkey may never answer.
        """
        if self.asked_to_stop:
            raise SystemExit
        self.asked_to_stop, self.asked_at_s = True, time.monotonic()

    def _install_signal_handlers(self) -> None:
        super()._install_signal_handlers()              # type: ignore[no-untyped-call]    # RQ leaves it untyped
        self._stop_requested = self._stop_requested or self.asked_to_stop

    def insist(self) -> None:
        """Ask again for a stop that nothing came of: what a handler raises is lost where Python runs a callback at that moment."""
        if self.asked_to_stop and time.monotonic() - self.asked_at_s > INSIST_AFTER_S:
            self.asked_at_s = time.monotonic()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def register_birth(self) -> None:
        """Register, whoever had the name: it holds host and process, and a container that starts again has both as before."""
        self.connection.delete(self.key)
        super().register_birth()                        # type: ignore[no-untyped-call]    # RQ leaves it untyped

    def fork_work_horse(self, job: Job, queue: Queue) -> None:
        connections.close_all()         # two processes on one PostgreSQL connection corrupt each other's answers
        with forks.quiet():
            super().fork_work_horse(job, queue)
        if self._stop_requested:        # the signal came between the entry and the fork
            self.kill_horse()

    def main_work_horse(self, job: Job, queue: Queue) -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != self.pid:    # it died before we asked to be told
            os._exit(1)
        if request_id := job.meta.get("request_id"):
            trail.begin(str(request_id))
        super().main_work_horse(job, queue)

    def perform_job(self, job: Job, queue: Queue) -> bool:
        """Perform it, and count how long it took; tasks of rows count themselves, by how the row ended."""
        began_s, task = time.monotonic(), job.id.split("-")[0]
        with spans.span(task, "CONSUMER", job.meta.get("trace") or {}, {
                "messaging.destination.name": queue.name, "ridgepoint.job": job.id,
                "ridgepoint.request_id": str(job.meta.get("request_id", ""))}):
            done: bool = super().perform_job(job, queue)
        spans.flush()
        if task not in COUNTED_BY_ROW:
            count_job(task, "done" if done else "failed", time.monotonic() - began_s)
        return done

    def request_stop(self, signum: int, frame: FrameType | None) -> None:
        """Stop without waiting for the task: its row is released, the next worker goes on."""
        self.asked_to_stop, self.asked_at_s = True, time.monotonic()
        if self.horse_pid:
            self._stop_requested = True
            self.kill_horse()
        else:
            super().request_stop(signum, frame)         # type: ignore[no-untyped-call]    # RQ leaves it untyped

    def kill_horse(self, sig: signal.Signals = signal.SIGKILL) -> None:
        """Kill the task with everything it started."""
        with suppress(ProcessLookupError):
            group = os.getpgid(self.horse_pid)
            if group == os.getpgrp():
                os.kill(self.horse_pid, sig)
            else:
                os.killpg(group, sig)

    def handle_work_horse_killed(self, job: Job, retpid: int, ret_val: int, rusage: Any) -> None:
        if not self._stop_requested:
            log.warning("the task of %s died (wait status %s): its row is taken up again", job.id, ret_val)


def work(queues: list[str]) -> bool:
    """Serve the queues until a signal says stop. Return False where RQ's worker ended by itself: Valkey was lost in a task."""
    name, queues = f"{'-'.join(queues)}@{socket.gethostname()}-{os.getpid()}", jobs.served_by(queues)
    client = redis.Redis.from_url(settings.REDIS_URL, health_check_interval=30, socket_connect_timeout=jobs.CONNECT_S,
                                 **settings.REDIS_OPTIONS)
    worker = Worker([Queue(queue, connection=client) for queue in queues], name=name, connection=client,
                    log_job_description=False, maintenance_interval=60, worker_ttl=WAIT_AT_MOST_S)
    done = threading.Event()
    sweep, release = _sweep_functions(queues)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, worker.note_stop)
    side = threading.Thread(target=_announce_and_sweep, args=(worker, queues, done, sweep), name="announce", daemon=True)
    side.start()
    if "gpu" in queues:
        from workers.capture.listening import listen  # with the fleet's rows: no other worker needs it

        threading.Thread(target=listen, args=(done,), name="listen", daemon=True).start()
    log.info("ready for %s", ", ".join(queues))
    try:
        # what is small and what is large in turn: neither kind waits until nothing of the other is left
        in_turn = jobs.SMALL in queues and len(queues) > 1
        worker.work(logging_level="CRITICAL",
                    dequeue_strategy=DequeueStrategy.ROUND_ROBIN if in_turn else DequeueStrategy.DEFAULT)
    except StopRequested:                   # in the moment between RQ's handlers and its loop
        pass
    except redis.RedisError as error:       # of its last words; at the start nobody was told of it yet
        if worker.birth_date is None:
            raise
        log.warning("Valkey does not answer: %s", error)
    finally:
        if worker.horse_pid:                # it would go on beside the next task
            worker.kill_horse()
        done.set()
        side.join(timeout=SWEEP_EVERY_S)
        _retire(name, release)
    return worker.asked_to_stop


def begin_again() -> None:
    """Replace this process by itself once Valkey answers: threads, connections and what a task left behind are gone with it."""
    log.warning("the worker lost Valkey; it begins again when Valkey answers")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit())        # nothing is held any more
    client = redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=jobs.CONNECT_S)
    while True:
        with suppress(redis.RedisError):
            client.ping()
            break
        time.sleep(AGAIN_EVERY_S)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _retire(name: str, release: Callable[[str], object]) -> None:
    connections.close_all()     # one may have broken since it was last used
    try:
        release(name)
        jobs.retire(name)
    except Exception as error:
        log.warning("left without handing back what it held, which is taken again once its heartbeat is stale: %s", error)


def _sweep_functions(queues: list[str]) -> tuple[Callable[[], object], Callable[[str], object]]:
    """Return what wakes rows left behind, and what hands back a leaving worker's.

    The tasks are imported here, once, and not by each forked child again.
    """
    if queues == [LIGHT]:
        from workers import messages

        return messages.wake, lambda name: None         # a message in flight is due again by itself
    from workers import tasks  # noqa: F401
    from workers.sweep import release, sweep

    if "gpu" in queues:
        from workers.tune import assist, lead  # noqa: F401  a job's first second is not spent on imports

        lead.load_strategies()
    if jobs.SMALL in queues:
        from profiles.ingest import import_readers

        import_readers()
    return sweep, release


def _announce_and_sweep(worker: Worker, queues: list[str], done: threading.Event, sweep: Callable[[], object]) -> None:
    """Announce and sweep while tasks run; a server that is away is reported and tried again."""
    name = worker.name
    with forks.hold_forks():
        keepers = _keep_warm(queues)    # first: they import while the rest is looked up
        announcement = {**facts.worker_facts(queues), "since": clock.now_s()}
        _tell_metrics(announcement)
    announce_at = sweep_at = 0.0
    while not done.wait(0.2):
        now = time.monotonic()
        worker.insist()
        with forks.hold_forks():
            try:
                for keeper in keepers.values():
                    keeper.tend(busy=bool(worker.horse_pid))
                if now >= announce_at:
                    announce_at = now + ANNOUNCE_EVERY_S
                    busy = _current_task(name) if worker.horse_pid else None
                    jobs.announce(name, {**_add_clocks(facts.add_readings(announcement)), "busy": busy, **_host_state(),
                                         **{name: keeper.state() for name, keeper in keepers.items()}})
                if now >= sweep_at:
                    sweep_at = now + SWEEP_EVERY_S
                    if announcement["gpus"]:        # also what a worker before this one left behind
                        hold.put_back_left()
                    sweep()
            except Exception as error:
                log.warning("announce or sweep failed, trying again: %s", error)
            finally:
                connections.close_all()     # never open while the parent forks
    for keeper in keepers.values():
        keeper.close()
    connections.close_all()


def _keep_warm(queues: list[str]) -> dict[str, warm.Keeper]:
    """Return what keeps warm parents for a worker that measures or compiles, their start begun; none for every other.

    "warm": of the product's own kernels; "warm_walled": of what people bring, where this host lets walls be made.
    """
    cards = gpu.gpus() if "gpu" in queues else []
    if not (cards or "compile" in queues) or not warm.is_wanted():
        return {}
    capability = cards[0].cc if cards else "9.0"
    keepers = {"warm": warm.Keeper(safe_environment(), capability)}
    warm.keep(keepers["warm"])
    keepers["warm"].tend()
    if not sandboxed.why_not():
        from workers.tune import own  # of such a worker alone

        keepers["warm_walled"] = warm.Keeper(own.warm_environ(), capability, warm.WALLED)
        warm.keep(keepers["warm_walled"], walled=True)
        keepers["warm_walled"].tend()
    return keepers


def _host_state() -> dict[str, Any]:
    """Return what the status page compares between hosts: this one's clock and disks."""
    return {"clock_skew_s": jobs.clock_skew_s(), "disks": [place.as_json() for place in disk.places()]}


def _add_clocks(said: dict[str, Any]) -> dict[str, Any]:
    """Return the announcement with who holds the clocks of each GPU, and how it went the last time."""
    return {**said, "gpus": [{**card, "clocks": hold.present(card["uuid"])} for card in said["gpus"]]}


def _tell_metrics(said: dict[str, Any]) -> None:
    """Let the capture's form know what this host's ncu counts on its GPU."""
    ncu = said["tools"].get("ncu", {})
    if said["gpus"] and "path" in ncu:
        from profiles.capture.command import names_store  # of a GPU's worker alone

        try:
            names_store(said["gpus"][0]["name"], ncu["path"])
        except redis.RedisError as error:
            log.warning("names of metrics were not kept: %s", error)


def _current_task(name: str) -> str | None:
    """Return the running task, "tune 3", by RQ's own note, which a task that died leaves behind; None when idle."""
    entry = jobs.connection().hget(f"rq:worker:{name}", "current_job")
    return " ".join(str(entry, "utf-8").split("-")[:2]) if isinstance(entry, bytes) else None
