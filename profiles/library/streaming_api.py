"""Answers that take long: progress on the way, stopped when nobody waits any more, and given up after a stated time."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from profiles.library.connection_services import connection_release

LIMIT_S = 120.0
_TELL_S = 0.25                  # between two lines of progress
AT_ONCE = max(4, min(16, 2 * (os.cpu_count() or 2)))     # long answers in the making: each holds some 100 MB
Work = Generator[float, None, dict[str, Any]]
_places = threading.BoundedSemaphore(AT_ONCE)


class TooLong(Exception):
    """The work was given up."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"this took longer than {seconds:.0f} s and was stopped")


@contextmanager
def _place(wait_s: float) -> Iterator[bool]:
    """One of the places for long answers; False where none became free in that time."""
    connection_release()
    is_free = _places.acquire(timeout=wait_s)
    try:
        yield is_free
    finally:
        if is_free:
            _places.release()


def answer(request: Request, work: Work, limit_s: float = LIMIT_S) -> HttpResponseBase:
    """Answer with JSON, or with lines of it where `?stream=1` asks so.

    {"progress": 0-1}…, then {"result": …} or {"error": …, "hint": …}.
    """
    if request.query_params.get("stream") not in ("1", "true"):
        return Response(finish(work, limit_s))
    return stream(request._request, _lines(work, limit_s), "application/x-ndjson")


def finish(work: Work, limit_s: float = LIMIT_S) -> dict[str, Any]:
    """The result. Raises TooLong."""
    until = time.monotonic() + limit_s
    with _place(limit_s) as is_free:
        while is_free:
            try:
                next(work)
            except StopIteration as end:
                return dict(end.value)
            if time.monotonic() > until:
                break
    work.close()
    raise TooLong(limit_s)


def _lines(work: Work, limit_s: float) -> Iterator[bytes]:
    until, done, result = time.monotonic() + limit_s, 0.0, b""
    try:
        while not result:
            last_s = time.monotonic()
            with _place(_TELL_S) as is_free:       # left for every line: a client that takes none keeps no place
                while is_free and not result:
                    try:
                        done = next(work)
                    except StopIteration as end:
                        result = _line({"result": end.value})
                    if time.monotonic() > min(last_s + _TELL_S, until):
                        break
            if not result and time.monotonic() > until:
                raise TooLong(limit_s)
            yield result or _line({"progress": round(done, 4)})
    except Exception as error:      # the status is sent already: the error is the last line
        is_expected = isinstance(error, (TooLong, ValueError, KeyError))
        yield _line({"error": str(error.args[0]) if is_expected and error.args else "the server made a mistake",
                     "hint": "choose less time or fewer tracks" if is_expected else "the server's log has the trace"})
        if not is_expected:
            raise
    finally:
        work.close()


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def stream(request: HttpRequest, chunks: Iterator[bytes], content_type: str, **headers: str) -> StreamingHttpResponse:
    """Answer with chunks as they are made.

    Under ASGI each is made in a thread, and none any more once the client is gone.
    """
    connection_release()
    content: Any = _drain(chunks) if isinstance(request, ASGIRequest) else chunks
    return StreamingHttpResponse(content, content_type=content_type, headers={
        "Cache-Control": "no-store", "X-Accel-Buffering": "no", **headers})


_END = object()


async def _drain(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    busy = threading.Lock()

    def step() -> Any:
        with busy:
            try:
                return next(chunks, _END)
            finally:
                connection_release()        # no end of a request gives back what this thread has

    def close() -> None:
        with busy:              # the last step still runs in its thread when the client is gone
            if isinstance(chunks, Generator):
                chunks.close()

    try:
        while (chunk := await sync_to_async(step, thread_sensitive=False)()) is not _END:
            yield chunk
    finally:
        threading.Thread(target=close, daemon=True).start()
