"""A job that a hundred browsers watch, against the same job alone: each holds a WebSocket and asks for snapshots.

The job is a replay at its page's pace (at least 80 ms a trial), so what slows it is what storing and publishing a trial costs
beside the browsers. They run on the same machine as the server, the worker and the database: a fleet's would not.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings

from bench.browser import ROOT, server

BROWSERS, TRIALS, REFRESH_EVERY_S = 100, 100, 1.0
BUDGET = 1.05


def run() -> list[dict[str, Any]]:
    with server(settings.HOME) as address, _worker():
        alone_s = statistics.median(_job_s() for _ in range(2))
        seen = Seen()
        watched_s = statistics.median(_watched_s(address, seen) for _ in range(2))
    ratio = watched_s / alone_s
    p95_ms = 1e3 * statistics.quantiles(seen.late_s, n=20)[-1]
    return [
        {"what": f"tune job of {TRIALS} trials that {BROWSERS} browsers watch", "measured": f"{1e3 * watched_s:.1f} ms a trial",
         "reference": f"alone {1e3 * alone_s:.1f} ms a trial", "ratio": ratio, "budget": f"≤ {BUDGET:.2f}×", "ok": ratio <= BUDGET},
        {"what": f"the same: a trial at a browser, p95 of {len(seen.late_s):,}, after the worker stored it",
         "measured": f"{p95_ms:.0f} ms", "reference": f"{seen.messages:,} messages, {seen.pages:,} refreshes", "ratio": None,
         "budget": "< 1,000 ms", "ok": p95_ms < 1000}]


class Seen:
    """What reached the browsers."""

    def __init__(self) -> None:
        self.late_s: list[float] = []
        self.messages = self.pages = 0


@contextmanager
def _worker() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "manage.py", "worker", "replay"], cwd=ROOT,
                               env=os.environ | {"RIDGEPOINT_HOME": str(settings.HOME)})
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def _new() -> Any:
    from tuner.jobs import create_services

    return create_services.tune_create(owner=None, operator="matmul", shape={"M": 4096, "N": 4096, "K": 4096}, dtype="bf16",
                                device="replay:matmul", strategy="random", budget_trials=TRIALS, budget_seconds=600)


def _job_s() -> float:
    """Seconds of job time for a trial."""
    return _ended(_new())


def _ended(job: Any) -> float:
    end = time.monotonic() + 120
    while job.status not in ("done", "failed", "stopped"):
        if time.monotonic() > end:
            raise RuntimeError(f"job {job.pk} is still {job.status}")
        time.sleep(0.2)
        job.refresh_from_db()
    first, last = job.trials.order_by("number").first(), job.trials.order_by("number").last()
    return float((last.created - first.created).total_seconds() / (last.number - first.number))


def _watched_s(address: str, seen: Seen) -> float:
    from tuner.jobs import control_services

    job = _new()
    control_services.tune_pause(job)                   # until everybody watches
    told, done = threading.Event(), threading.Event()
    crowd = threading.Thread(target=lambda: asyncio.run(_crowd(address, job.pk, seen, told, done)))
    crowd.start()
    told.wait(60)
    control_services.tune_resume(job)
    spent = _ended(job)
    done.set()
    crowd.join(60)
    stored = {row.number: row.created.timestamp() for row in job.trials.all()}
    seen.late_s += [at - stored[number] for number, at in _arrived.pop(job.pk, []) if number in stored]
    return spent


_arrived: dict[int, list[tuple[int, float]]] = {}


async def _crowd(address: str, job: int, seen: Seen, told: threading.Event, done: threading.Event) -> None:
    ready = asyncio.Semaphore(0)
    browsers = [asyncio.create_task(_browser(address, job, seen, ready)) for _ in range(BROWSERS)]
    for _ in browsers:
        await ready.acquire()
    told.set()
    while not done.is_set():
        await asyncio.sleep(0.1)
    for browser in browsers:
        browser.cancel()
    await asyncio.gather(*browsers, return_exceptions=True)


async def _browser(address: str, job: int, seen: Seen, ready: asyncio.Semaphore) -> None:
    """What the page of a running job does: follow the socket, and ask for a snapshot every second."""
    from websockets.asyncio.client import connect

    arrived = _arrived.setdefault(job, [])
    async with connect(f"{address.replace('http', 'ws')}/ws/live/", origin=address, max_size=None) as socket:
        await socket.send(json.dumps({"watch": [f"tune.{job}"]}))
        await socket.recv()
        ready.release()
        asked_at, refresh = 0.0, None
        async for text in socket:
            seen.messages += 1
            message = json.loads(text)
            if message["event"] != "trials":
                continue
            arrived += [(trial["number"], time.time()) for trial in message["data"]["trials"]]
            if time.monotonic() - asked_at > REFRESH_EVERY_S and (refresh is None or refresh.done()):
                asked_at, after = time.monotonic(), len(arrived) - 1
                refresh = asyncio.create_task(_get(address, f"/tune/{job}/snapshot/?after={after}"))
                seen.pages += 1


async def _get(address: str, path: str) -> None:
    host, _, port = address.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
    status = await reader.readline()
    if b" 200 " not in status:
        raise RuntimeError(f"{path}: {status!r}")
    while await reader.read(65536):
        pass
    writer.close()
