"""Slots for requests: how many run at once, who waits, who is told to come again, and that no client takes all of them."""

from __future__ import annotations

import asyncio
import errno
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from webapp import slots
from webapp.slots import Slots


class Visit:
    """One request of the ASGI application; `status` and `headers` once it is answered."""

    def __init__(self, app: Slots, path: str = "/", client: str = "a", method: str = "GET") -> None:
        self.status, self.headers, self.body = 0, dict[bytes, bytes](), b""
        self.gone = asyncio.Event()
        scope = {"type": "http", "path": path, "method": method, "client": ("10.0.0.1", 1),
                 "headers": [(b"cookie", client.encode())]}
        self.told = False
        self.task = asyncio.create_task(app(scope, self.receive, self.send))

    async def receive(self) -> dict[str, Any]:
        if not self.told:
            self.told = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])
        self.body += message.get("body", b"")


class Work:
    """An application whose answers take until `end` is called; it says which threads worked and how many at once."""

    def __init__(self) -> None:
        self.running, self.most, self.threads = 0, 0, set[str]()
        self.lock, self.may_end = threading.Lock(), threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        if scope["path"] == "/light":
            await sync_to_async(self._note)()
        else:
            await sync_to_async(self._work)()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    def _note(self) -> None:
        self.threads.add(threading.current_thread().name)

    def _work(self) -> None:
        self._note()
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.may_end.wait(30)
        with self.lock:
            self.running -= 1


async def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


async def test_many_at_once_wait_their_turn_on_few_threads_that_stay() -> None:
    work = Work()
    app = Slots(work)
    visits = [Visit(app, f"/{number}", f"client {number % 7}") for number in range(100)]
    await until(lambda: work.running == slots.SLOTS)
    assert len(app.waiting) == 100 - slots.SLOTS
    work.may_end.set()
    await asyncio.gather(*(visit.task for visit in visits))
    assert {visit.status for visit in visits} == {200} and work.most == slots.SLOTS
    again = [Visit(app, f"/{number}", f"client {number}") for number in range(20)]
    await asyncio.gather(*(visit.task for visit in again))
    assert len(work.threads) == slots.SLOTS == len(app.free) and not app.running and not app.waiting


async def test_a_client_with_heavy_pages_leaves_room_for_others_and_for_its_own_other_pages() -> None:
    work = Work()
    app = Slots(work)
    heavy = [Visit(app, "/heavy", "one viewer") for _ in range(30)]
    await until(lambda: work.running == slots.ADDRESS_SLOTS)
    more = [Visit(app, f"/heavy/{number}", "one viewer") for number in range(30)]
    await until(lambda: work.running == slots.CLIENT_SLOTS)
    other = Visit(app, "/light", "another")
    await asyncio.wait_for(other.task, 20)
    assert other.status == 200 and work.running == slots.CLIENT_SLOTS
    work.may_end.set()
    await asyncio.gather(*(visit.task for visit in heavy + more))
    assert {visit.status for visit in heavy + more} == {200}


@pytest.mark.parametrize(("path", "kind"), [("/api/profiles/", b"application/json"), ("/profiles/", b"text/html; charset=utf-8")])
async def test_who_waits_too_long_is_told_when_to_come_again(path: str, kind: bytes) -> None:
    work = Work()
    app = Slots(work, wait_s=0.05)
    heavy = [Visit(app, path) for _ in range(slots.ADDRESS_SLOTS)]
    await until(lambda: work.running == slots.ADDRESS_SLOTS)
    late = Visit(app, path)
    await late.task
    assert late.status == 503 and int(late.headers[b"retry-after"]) > 0 and late.headers[b"content-type"] == kind
    assert b"more requests than it can answer" in late.body.lower()
    work.may_end.set()
    await asyncio.gather(*(visit.task for visit in heavy))
    assert not app.running and not app.waiting


async def test_the_queue_is_bounded_for_a_client_and_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "CLIENT_WAITING", 3)
    monkeypatch.setattr(slots, "WAITING", 5)
    work = Work()
    app = Slots(work)
    visits = [Visit(app, "/x", "a") for _ in range(slots.ADDRESS_SLOTS + 5)]
    await until(lambda: sum(visit.status == 503 for visit in visits) == 2)
    visits += [Visit(app, "/x", "b") for _ in range(slots.ADDRESS_SLOTS + 5)]
    await until(lambda: sum(visit.status == 503 for visit in visits) == 5)
    assert len(app.waiting) == 5
    work.may_end.set()
    await asyncio.gather(*(visit.task for visit in visits))
    assert sum(visit.status == 200 for visit in visits) == len(visits) - 5


async def test_a_thread_at_work_for_nobody_keeps_its_slot() -> None:
    """Who goes away, or reloads a slow page again and again, does not get more threads for it."""
    work = Work()
    app = Slots(work)
    visits = [Visit(app, "/heavy", "a") for _ in range(slots.ADDRESS_SLOTS)]
    await until(lambda: work.running == slots.ADDRESS_SLOTS)
    for visit in visits:
        visit.task.cancel()
    await asyncio.gather(*(visit.task for visit in visits), return_exceptions=True)
    again = Visit(app, "/heavy", "a")
    await until(lambda: len(app.waiting) == 1)
    assert work.running == slots.ADDRESS_SLOTS
    work.may_end.set()
    await asyncio.wait_for(again.task, 20)
    assert again.status == 200 and work.most == slots.ADDRESS_SLOTS
    await until(lambda: not app.running)


async def test_a_disk_that_is_full_while_the_body_comes_is_answered() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    visit = Visit(Slots(app), "/api/profiles/", method="POST")
    await visit.task
    assert visit.status == 507 and b"the disk is full" in visit.body and b"retry-after" not in visit.headers


async def test_an_error_of_ours_is_still_an_error() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        raise ValueError("no outage")

    visit = Visit(Slots(app))
    with pytest.raises(ValueError, match="no outage"):
        await visit.task


async def test_a_server_that_stops_tells_who_still_waits_to_come_again() -> None:
    """uvicorn cancels what still runs when its patience ends, and answers 500 where the application says nothing."""
    work = Work()
    visit = Visit(Slots(work), path="/api/gates/1/")
    await asyncio.sleep(0.1)
    visit.task.cancel()
    await visit.task
    work.may_end.set()
    while work.running:
        await asyncio.sleep(0.01)
    headers = {name.lower(): value for name, value in visit.headers.items()}
    assert visit.status == 503 and headers[b"retry-after"] == b"5" and b"restarted" in visit.body
