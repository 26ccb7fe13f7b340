"""Compiling on hosts without a GPU: requests of a tune job in Redis, answered by workers of the queue `compile`.

A request says all that a compile process must know, so whoever takes it can answer. The binaries travel through
tuner.bench.remote_cache; a host with another Triton says so and is asked nothing more. A queue entry only wakes a worker,
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

from tuner.bench import wire
from workers import jobs
from workers.child import Child, ChildDied, ChildHung, Stopped
from workers.compilers import Away, cache_folder, cores

log = logging.getLogger(__name__)
REQUESTS = "ridgepoint:compile:requests"
REPLY = "ridgepoint:compile:reply:"
TAKEN_S = 20.0               # until a worker must have answered that it has a request: it may have to start
START_S = 60.0               # a process there may have to import torch first
LOOK_S = 0.25
IDLE_S = 30.0                # a worker without requests goes back to its queue
KEPT_S = 120
MAX_PLACES = 64


def environment() -> dict[str, str]:
    """What every process of Triton's needs to share binaries with those of other hosts."""
    return {"TRITON_CACHE_MANAGER": "triton.runtime.cache:RemoteCacheManager",
            "TRITON_REMOTE_CACHE_BACKEND": "tuner.bench.remote_cache:RedisCache",
            "RIDGEPOINT_TRITON_REDIS": settings.REDIS_URL}


def places() -> int:
    """Configurations that workers of the queue `compile` can compile at the same time, as they announced it."""
    return min(MAX_PLACES, sum(int(worker.get("cores") or 0) for worker in jobs.workers() if "compile" in worker["queues"]))


def helpers(job_id: int) -> list[Callable[[], Remote]]:
    """A maker for each place on other hosts, and their workers woken; none where nobody serves the queue."""
    waiting = [worker for worker in jobs.workers() if "compile" in worker["queues"]]
    for _ in waiting:
        jobs.enqueue("compile", "compile", job_id)
    return [Remote] * places()


class Remote:
    """One request at a time to whichever worker takes it; answers as a compile process here does."""

    def __init__(self) -> None:
        self._opening: dict[str, Any] = {}
        self.alive = True

    def ask(self, message: dict[str, Any], limit_s: float, stop: threading.Event) -> dict[str, Any]:
        """ChildHung and ChildDied as told by the other side; Away when nobody takes it, or cannot compile it there."""
        if message["do"] == "open":
            self._opening = dict(message)
            return {"ok": {}}
        reply = REPLY + secrets.token_hex(12)
        body = json.dumps({"opening": self._opening, "message": message, "limit_s": limit_s, "reply": reply,
                           "until": time.time() + TAKEN_S})
        client = jobs.connection()
        try:
            client.rpush(REQUESTS, body)
            self._awaited(client, reply, TAKEN_S, stop)                                     # "taken"
            answer = self._awaited(client, reply, limit_s + START_S, stop)
        except (redis.RedisError, ValueError) as error:
            raise Away(str(error)) from error
        if "away" in answer:
            raise Away(str(answer["away"]))
        if "hung" in answer:
            raise ChildHung(str(answer["hung"]))
        if "died" in answer:
            raise ChildDied(str(answer["died"]))
        return answer

    @staticmethod
    def _awaited(client: redis.Redis, reply: str, limit_s: float, stop: threading.Event) -> dict[str, Any]:
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if stop.is_set():
                raise Stopped
            found = client.blpop([reply], timeout=LOOK_S)
            if found:
                if len(found[1]) > wire.MAX_MESSAGE_BYTES:
                    raise ValueError("an answer beyond all limits")
                answer = json.loads(found[1])
                if not isinstance(answer, dict):
                    raise ValueError("the answer is not a JSON object")
                return answer
        raise Away("no worker of the queue compile answers")

    def close(self) -> None:
        self.alive = False


def serve(child_environment: Mapping[str, str], *, module: str = "tuner.bench.compiler", count: int | None = None,
          idle_s: float = IDLE_S, open_s: float = 120.0) -> int:
    """Answer requests until none came for `idle_s`; returns how many were answered."""
    environ = {**child_environment, **environment(), "TRITON_CACHE_DIR": str(cache_folder())}
    desk = Desk(environ, module, idle_s, open_s)
    threads = [threading.Thread(target=desk.serve, name=f"compile-{number}", daemon=True) for number in range(count or cores())]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return desk.answered


class Desk:
    """What the threads of one worker share; each has a process of its own, opened for the request before."""

    def __init__(self, environ: Mapping[str, str], module: str, idle_s: float, open_s: float) -> None:
        self._environ, self._module, self._idle_s, self._open_s = environ, module, idle_s, open_s
        self._last_s = time.monotonic()
        self._stop = threading.Event()
        self.answered = 0

    def serve(self) -> None:
        client, child, opening = jobs.connection(), None, None
        try:
            while time.monotonic() - self._last_s < self._idle_s:
                found = client.blpop([REQUESTS], timeout=LOOK_S)
                if not found:
                    continue
                self._last_s = time.monotonic()
                request = json.loads(found[1])
                if request["until"] < time.time():          # whoever asked has asked somebody else by now
                    continue
                self._say(client, request["reply"], {"taken": True})
                child = child or Child(self._module, self._environ)
                answer = {} if opening == request["opening"] else self._opened(child, request["opening"])
                opening = request["opening"]
                self._say(client, request["reply"], answer or self._compiled(child, request))
                if answer or not child.alive:
                    child.close()
                    child = opening = None
                self.answered += 1
                self._last_s = time.monotonic()
        finally:
            if child is not None:
                child.close()

    def _opened(self, child: Child, opening: dict[str, Any]) -> dict[str, Any]:
        """Nothing when it is open; else why not."""
        try:
            answer = child.ask(opening, self._open_s, self._stop)
        except (ChildDied, ChildHung) as error:
            return {"away": str(error)}
        return {} if "ok" in answer else {"away": str(answer.get("failed") or answer.get("rejected"))[:2000]}

    def _compiled(self, child: Child, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return child.ask(request["message"], float(request["limit_s"]), self._stop)
        except ChildHung as hung:
            return {"hung": str(hung)}
        except ChildDied as died:
            return {"died": str(died)}

    @staticmethod
    def _say(client: redis.Redis, reply: str, answer: dict[str, Any]) -> None:
        client.rpush(reply, json.dumps(answer))
        client.expire(reply, KEPT_S)
