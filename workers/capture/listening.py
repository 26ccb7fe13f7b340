"""Kineto's daemon within a GPU worker: processes of its host that ask for captures, where no fleet agent runs beside it.

One at a time on a host: where an agent (or a dynolog) has the socket, the worker leaves it to that one and looks again later. Rows
are read and written as an agent's questions would be."""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.files.base import File
from django.db import connections

from profiles.fleet.capture_services import GPU_WORKERS, LEAST_AGAIN_S, orders_for
from profiles.running.join_services import take_trace
from profiles.upload.services import tags_parse
from workers.agent.deep.asking import Askers
from workers.agent.deep.captures import Budget, Capture, Captures
from workers.agent.deep.kineto import KinetoDaemon

log = logging.getLogger(__name__)
LOOK_AGAIN_S = 20.0                 # where another has the socket
POLL_S = 0.1
TELL_EVERY_S = 30.0                 # where nobody asks: so that what asked before is no longer listed


class WorkerCaptures(Captures):
    """Traces go into the store without a request."""

    def deliver(self, own: Capture, packed: Path, notes: str) -> int | None:
        assert own.order is not None                # nobody else orders of a worker
        fields = own.fields
        try:
            with packed.open("rb") as stream:
                profile = take_trace(own.order, File(stream, name=packed.name), name=fields["name"], build=fields["build"],
                                     model=fields["model"], tags=tags_parse(fields["tags"]),
                                     notes=notes.replace("the fleet's agent", "a GPU worker"))
        finally:
            connections.close_all()
        return profile.pk if profile else None


def listen(done: threading.Event, make_daemon: Callable[[], KinetoDaemon] = KinetoDaemon) -> None:
    """Answer processes that ask for captures until `done`."""
    while not done.is_set():
        daemon = make_daemon()
        if daemon.socket is None:
            done.wait(LOOK_AGAIN_S)
            continue
        log.info("processes of this host that were started with KINETO_USE_DAEMON=1 can be captured")
        try:
            _serve(daemon, done)
        except Exception:                           # a fault of ours: it begins anew, what was under way is told as lost
            log.exception("listening for processes failed")
            done.wait(LOOK_AGAIN_S)
        finally:
            daemon.close()


def _serve(daemon: KinetoDaemon, done: threading.Event) -> None:
    assert daemon.socket is not None
    host = socket.gethostname()
    folder = Path(settings.HOME, "captures")
    captures = WorkerCaptures(daemon, folder, _no_post, Budget())
    asking = Askers(daemon, captures, host)
    last_pids, next_s = frozenset[int](), 0.0
    exchange: Future[Mapping[str, Any] | None] | None = None
    poll = select.poll()
    poll.register(daemon.socket, select.POLLIN)
    while not done.is_set():
        poll.poll(POLL_S * 1e3)            # Kineto reads an answer that is 50 ms late with its next question only, in 5 s
        asking.tend()
        now_s, pids = time.monotonic(), asking.pids()
        if exchange is not None:
            if exchange.done():
                again_s = _take(asking, exchange)
                exchange, next_s = None, now_s + (again_s if last_pids else TELL_EVERY_S)
        elif now_s >= next_s or pids != last_pids or (pids and asking.orders.changed()):
            last_pids, exchange = pids, Future()
            asking.orders.mark_told()
            threading.Thread(target=_tell, args=(exchange, host, {**asking.state(), "kind": "gpu worker"}), daemon=True,
                             name="captures-exchange").start()              # no question waits for the database


def _tell(exchange: Future[Mapping[str, Any] | None], host: str, state: Mapping[str, Any]) -> None:
    """Get the orders for what is known, None where the database does not answer."""
    answer = None
    try:
        answer = orders_for(GPU_WORKERS + host, host, state)
    except Exception as error:                      # it restarts: it is asked again
        log.warning("captures of running processes: %s", error)
    finally:
        connections.close_all()                     # never open while the parent forks
        exchange.set_result(answer)


def _take(asking: Askers, exchange: Future[Mapping[str, Any] | None]) -> float:
    """Take orders; return after how many seconds to ask again."""
    answer = exchange.result()
    if answer is None:
        return LOOK_AGAIN_S
    for order in answer["orders"]:
        asking.orders.take(order)
    return min(float(answer["again_s"]), LEAST_AGAIN_S)


def _no_post(path: str, body: bytes, headers: dict[str, str]) -> bytes:
    raise RuntimeError("a worker sends nothing over HTTP")
