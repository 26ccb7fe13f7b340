"""Files leave in pieces: under ASGI Django would read a synchronous stream (a download, a static file) whole before it sends it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

PIECE_BYTES = 1 << 20               # handed over at once: a thread is asked for each


@sync_and_async_middleware
def in_pieces(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """The outermost middleware: what any other one streams passes here."""
    if not iscoroutinefunction(get_response):
        return get_response

    async def middleware(request: HttpRequest) -> HttpResponseBase:
        answering: Awaitable[Any] = get_response(request)
        response = await answering
        if response.streaming and not response.is_async:
            response.streaming_content = _pieces(response.streaming_content)
        return response

    return middleware


async def _pieces(content: Iterable[bytes]) -> AsyncIterator[bytes]:
    parts = iter(content)
    while piece := await sync_to_async(_piece, thread_sensitive=False)(parts):
        yield piece


def _piece(parts: Iterator[bytes]) -> bytes:
    taken, size = [], 0
    for part in parts:
        taken.append(part)
        size += len(part)
        if size >= PIECE_BYTES:
            break
    return b"".join(taken)
