"""Compiling on hosts without a GPU: requests in Redis, answered by the queue `compile`.

A request says all that a compile process must know, so whoever takes it can answer. The binaries travel through
tuner.tuning.measure.remote_cache; a host with another Triton says so and is asked nothing more. A queue entry only wakes a worker,
which stays while requests come.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import redis
from django.conf import settings

from tuner.tuning import wire
from workers import clock, jobs
from workers.core.child import Child, ChildDied, ChildHung, Stopped
from workers.core.compilers import NobodyAnswers, cores
from workers.core.warm import cache_folder

log = logging.getLogger(__name__)
REQUESTS = "ridgepoint:compile:requests"
REPLY = "ridgepoint:compile:reply:"
TAKEN_S = 20.0               # until a worker must have answered that it has a request: it may have to start
START_S = 60.0               # a process there may have to import torch first
LOOK_S = 0.25
IDLE_S = 30.0                # a worker without requests goes back to its queue
KEPT_S = 120
MAX_PLACES = 64


def cache_environment() -> dict[str, str]:
    """Return what Triton processes need to share binaries with other hosts."""
    return {"TRITON_CACHE_MANAGER": "triton.runtime.cache:RemoteCacheManager",
            "TRITON_REMOTE_CACHE_BACKEND": "tuner.tuning.measure.remote_cache:RedisCache",
            "RIDGEPOINT_TRITON_REDIS": settings.REDIS_URL}


def place_count() -> int:
    """Return how many configurations workers of the queue `compile` can compile at once."""
    return min(MAX_PLACES, sum(int(worker.get("cores") or 0) for worker in jobs.workers() if "compile" in worker["queues"]))


def make_helpers(job_id: int) -> list[Callable[[], RemoteCompiler]]:
    """Return a maker per place on other hosts, and wake their workers; empty without any."""
    waiting = [worker for worker in jobs.workers() if "compile" in worker["queues"]]
    for _ in waiting:
        jobs.enqueue("compile", "compile", job_id)
    return [RemoteCompiler] * place_count()


class RemoteCompiler:
    """Sends one request at a time to whichever worker takes it."""

    def __init__(self) -> None:
        self._opening: dict[str, Any] = {}
        self.alive = True

    def ask(self, message: dict[str, Any], limit_s: float, stop: threading.Event) -> dict[str, Any]:
        """Return the answer. Raises ChildHung, ChildDied, or NobodyAnswers when nobody takes it."""
        if message["do"] == "open":
            self._opening = dict(message)
            return {"ok": {}}
        reply = REPLY + secrets.token_hex(12)
        body = json.dumps({"opening": self._opening, "message": message, "limit_s": limit_s, "reply": reply,
                           "until": clock.now_s() + TAKEN_S})
        client = jobs.connection()
        try:
            client.rpush(REQUESTS, body)
            self._wait_for_answer(client, reply, TAKEN_S, stop)                                     # "taken"
            answer = self._wait_for_answer(client, reply, limit_s + START_S, stop)
        except (redis.RedisError, ValueError) as error:
            raise NobodyAnswers(str(error)) from error
        if "away" in answer:
            raise NobodyAnswers(str(answer["away"]))
        if "hung" in answer:
            raise ChildHung(str(answer["hung"]))
        if "died" in answer:
            raise ChildDied(str(answer["died"]))
        return answer

    @staticmethod
    def _wait_for_answer(client: redis.Redis, reply: str, limit_s: float, stop: threading.Event) -> dict[str, Any]:
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if stop.is_set():
                raise Stopped
            entry = client.blpop([reply], timeout=LOOK_S)
            if entry:
                if len(entry[1]) > wire.MAX_MESSAGE_BYTES:
                    raise ValueError("an answer beyond all limits")
                answer = json.loads(entry[1])
                if not isinstance(answer, dict):
                    raise ValueError("the answer is not a JSON object")
                return answer
        raise NobodyAnswers("no worker of the queue compile answers")

    def close(self) -> None:
        self.alive = False


def serve(child_environment: Mapping[str, str], *, module: str = "tuner.tuning.measure.compiler", count: int | None = None,
          idle_s: float = IDLE_S, open_s: float = 120.0) -> int:
    """Answer requests until none came for `idle_s`; return how many were answered."""
    environ = {**child_environment, **cache_environment(), "TRITON_CACHE_DIR": str(cache_folder())}
    desk = CompileDesk(environ, module, idle_s, open_s)
    threads = [threading.Thread(target=desk.serve, name=f"compile-{number}", daemon=True) for number in range(count or cores())]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return desk.answered


class CompileDesk:
    """Shared by one worker's threads; each has its process, opened for its last request."""

    def __init__(self, environ: Mapping[str, str], module: str, idle_s: float, open_s: float) -> None:
        self._environ, self._module, self._idle_s, self._open_s = environ, module, idle_s, open_s
        self._last_s = time.monotonic()
        self._stop = threading.Event()
        self.answered = 0

    def serve(self) -> None:
        client, child, opening = jobs.connection(), None, None
        try:
            while time.monotonic() - self._last_s < self._idle_s:
                entry = client.blpop([REQUESTS], timeout=LOOK_S)
                if not entry:
                    continue
                self._last_s = time.monotonic()
                request = json.loads(entry[1])
                if request["until"] < clock.now_s():          # whoever asked has asked somebody else by now
                    continue
                self._send(client, request["reply"], {"taken": True})
                child = child or Child(self._module, self._environ)
                answer = {} if opening == request["opening"] else self._open(child, request["opening"])
                opening = request["opening"]
                self._send(client, request["reply"], answer or self._compile(child, request))
                if answer or not child.alive:
                    child.close()
                    child = opening = None
                self.answered += 1
                self._last_s = time.monotonic()
        finally:
            if child is not None:
                child.close()

    def _open(self, child: Child, opening: dict[str, Any]) -> dict[str, Any]:
        """Open the child; return {} or why it does not open."""
        try:
            answer = child.ask(opening, self._open_s, self._stop)
        except (ChildDied, ChildHung) as error:
            return {"away": str(error)}
        return {} if "ok" in answer else {"away": str(answer.get("failed") or answer.get("rejected"))[:2000]}

    def _compile(self, child: Child, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return child.ask(request["message"], float(request["limit_s"]), self._stop)
        except ChildHung as hung:
            return {"hung": str(hung)}
        except ChildDied as died:
            return {"died": str(died)}

    @staticmethod
    def _send(client: redis.Redis, reply: str, answer: dict[str, Any]) -> None:
        client.rpush(reply, json.dumps(answer))
        client.expire(reply, KEPT_S)
