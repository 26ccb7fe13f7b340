"""Slots for requests: some run, some wait a bounded time, the rest get 503.

A slot is one thread that lives as long as the server, so threads and database connections are as many as slots,
whatever the load. No client, and no address of one client, may hold all of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from asgiref.sync import ThreadSensitiveContext
from django.http import HttpResponse

from webapp.outage import RETRY_AFTER_S, Busy, Outage, outage_answer, outage_of

SLOTS, CLIENT_SLOTS, ADDRESS_SLOTS = 16, 8, 4       # at once: of all, of one client, of one client at one address
WAITING, CLIENT_WAITING = 384, 192
WAIT_S = 15.0
RESTARTING = Outage(503, "the server is being restarted", f"try again in {RETRY_AFTER_S} s; what was stored is kept")
Keys = tuple[tuple[Any, ...], tuple[Any, ...]]      # the client; the client at this address
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Slots:
    """An ASGI wrapper; bodies are received and answers sent without a slot."""

    def __init__(self, app: Callable[..., Awaitable[None]], *, wait_s: float = WAIT_S) -> None:
        self.app, self.wait_s = app, wait_s
        self.free: list[ThreadPoolExecutor] = []
        self.running: Counter[tuple[Any, ...]] = Counter()
        self.threads = self.busy = 0
        self.waiting: dict[asyncio.Future[ThreadPoolExecutor], Keys] = {}       # in order of arrival

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        visit = _Visit(self, _keys(scope), receive, send)
        try:
            if self._is_crowded(visit.keys):
                raise Busy
            async with ThreadSensitiveContext(executor=visit):
                await self.app(scope, visit.receive, visit.send)
        except asyncio.CancelledError:          # the server stops and waits no longer; uvicorn itself would answer 500
            if visit.started:
                raise
            await _send_response(outage_answer(RESTARTING, scope["path"], scope["method"]), send)
        except Exception as error:
            outage = None if visit.started else outage_of(error)
            if outage is None:
                raise
            await _send_response(outage_answer(outage, scope["path"], scope["method"]), send)
        finally:
            visit.leave()

    async def take(self, keys: Keys) -> ThreadPoolExecutor:
        """Return a thread to run in. Raises Busy."""
        if self._may_run(keys):
            return self._begin(keys)
        if self._is_crowded(keys):
            raise Busy
        turn: asyncio.Future[ThreadPoolExecutor] = asyncio.get_running_loop().create_future()
        self.waiting[turn] = keys
        try:
            await asyncio.wait([turn], timeout=self.wait_s)
        finally:
            self.waiting.pop(turn, None)
        if not turn.done():
            raise Busy
        return turn.result()

    def give_back(self, thread: ThreadPoolExecutor, keys: Keys) -> None:
        """Free a thread: the first that waits and may run runs next."""
        self.busy -= 1
        self.running.subtract(keys)
        self.running += Counter()           # keeps what is above zero
        self.free.append(thread)
        for turn, theirs in self.waiting.items():
            if self._may_run(theirs):
                del self.waiting[turn]
                turn.set_result(self._begin(theirs))
                return

    def _may_run(self, keys: Keys) -> bool:
        client, address = keys
        return self.busy < SLOTS and self.running[client] < CLIENT_SLOTS and self.running[address] < ADDRESS_SLOTS

    def _is_crowded(self, keys: Keys) -> bool:
        return len(self.waiting) >= WAITING or sum(client == keys[0] for client, _ in self.waiting.values()) >= CLIENT_WAITING

    def _begin(self, keys: Keys) -> ThreadPoolExecutor:
        self.busy += 1
        self.running.update(keys)
        if self.free:
            return self.free.pop()          # the one that was busy last: a quiet server keeps few connections
        self.threads += 1
        return ThreadPoolExecutor(1, thread_name_prefix=f"slot-{self.threads}")


class _Visit(Executor):
    """A request: waits for its slot once its body is here, leaves when its answer begins."""

    def __init__(self, slots: Slots, keys: Keys, receive: Receive, send: Send) -> None:
        self.slots, self.keys, self._receive, self._send = slots, keys, receive, send
        self.thread: ThreadPoolExecutor | None = None
        self.last: Future[Any] | None = None
        self.started = self.left = False

    async def receive(self) -> Message:
        message = await self._receive()
        if self.thread is None and message["type"] == "http.request" and not message.get("more_body", False):
            self.thread = await self.slots.take(self.keys)
        return message

    async def send(self, message: Message) -> None:
        self.started = True
        self.leave()            # a client that reads slowly keeps nobody waiting
        await self._send(message)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.thread is None:
            raise RuntimeError("a request runs code before its body was received")
        self.last = self.thread.submit(fn, *args, **kwargs)
        return self.last

    def leave(self) -> None:
        """Free the slot when its thread is done, even where the client went away."""
        if self.left or self.thread is None:
            return
        self.left, loop, thread = True, asyncio.get_running_loop(), self.thread
        if self.last is None or self.last.done():
            self.slots.give_back(thread, self.keys)
        else:
            self.last.add_done_callback(lambda _: loop.call_soon_threadsafe(self.slots.give_back, thread, self.keys))


def _keys(scope: dict[str, Any]) -> Keys:
    """Return the client's keys: who signed in, else the program at an address."""
    headers = dict(scope["headers"])
    credential = headers.get(b"authorization") or headers.get(b"cookie") or headers.get(b"user-agent", b"")
    client = ((scope.get("client") or ("", 0))[0], credential)
    return client, (*client, scope["path"])


async def _send_response(response: HttpResponse, send: Send) -> None:
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in response.items()]
    headers.append((b"content-length", str(len(response.content)).encode()))
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.content})
