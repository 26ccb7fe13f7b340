"""Downloads leave in pieces under ASGI, and nothing is read before it is asked for."""

from __future__ import annotations

import asyncio
import io
import warnings

from django.http import FileResponse, HttpResponse
from django.test import AsyncRequestFactory, RequestFactory

from webapp.statics.streaming import PIECE_BYTES, stream_in_pieces


class Counted(io.BytesIO):
    """Counts what was read of it."""

    taken = 0

    def read(self, size: int | None = -1) -> bytes:
        part = super().read(size)
        self.taken += len(part)
        return part


def test_a_file_is_read_as_it_is_sent():
    file = Counted(bytes(range(256)) * (PIECE_BYTES // 64))         # 4 pieces

    async def served(request):
        return FileResponse(file)

    async def first_and_rest():
        response = await stream_in_pieces(served)(AsyncRequestFactory().get("/"))
        content = aiter(response)
        first = await anext(content)
        seen = file.taken
        rest = [part async for part in content]
        response.close()
        return first, seen, rest

    with warnings.catch_warnings():
        warnings.simplefilter("error")                               # Django's, of a stream that it reads whole
        first, seen, rest = asyncio.run(first_and_rest())
    assert len(first) == PIECE_BYTES and PIECE_BYTES <= seen < 2 * PIECE_BYTES
    assert len(first) + sum(map(len, rest)) == 4 * PIECE_BYTES and file.closed


def test_other_answers_pass_unchanged():
    async def plain(request):
        return HttpResponse(b"x")

    assert asyncio.run(stream_in_pieces(plain)(AsyncRequestFactory().get("/"))).content == b"x"
    assert stream_in_pieces(lambda request: HttpResponse(b"y"))(AsyncRequestFactory().get("/")).content == b"y"


def test_a_stream_to_a_synchronous_server_stays_synchronous():
    response = stream_in_pieces(lambda request: FileResponse(Counted(b"z")))(RequestFactory().get("/"))
    assert not response.is_async and b"".join(response) == b"z"
