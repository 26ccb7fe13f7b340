"""Streams files in pieces: under ASGI Django would read a synchronous stream whole."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

PIECE_BYTES = 1 << 20               # handed over at once: a thread is asked for each


@sync_and_async_middleware
def stream_in_pieces(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Return the outermost middleware, which makes synchronous streams of ASGI requests asynchronous.

    Django calls it synchronously as soon as one middleware below it knows no other way.
    """
    if not iscoroutinefunction(get_response):
        return lambda request: _make_async(request, get_response(request))

    async def middleware(request: HttpRequest) -> HttpResponseBase:
        answering: Awaitable[HttpResponseBase] = get_response(request)
        return _make_async(request, await answering)

    return middleware


def _make_async(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    if isinstance(request, ASGIRequest) and isinstance(response, StreamingHttpResponse) and not response.is_async:
        response.streaming_content = _read_pieces(iter(response))
    return response


async def _read_pieces(content: Iterable[bytes]) -> AsyncIterator[bytes]:
    parts = iter(content)
    while piece := await sync_to_async(_next_piece, thread_sensitive=False)(parts):
        yield piece


def _next_piece(parts: Iterator[bytes]) -> bytes:
    pieces, size = [], 0
    for part in parts:
        pieces.append(part)
        size += len(part)
        if size >= PIECE_BYTES:
            break
    return b"".join(pieces)
