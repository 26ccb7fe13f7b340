"""The headers of a request: how long they may take and how large they may be.

uvicorn waits for ever for the rest of headers that began, and httptools keeps any number of them. `bodies` bounds what follows.
"""

from __future__ import annotations

import asyncio
import logging

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADERS_S = 20.0                # as long as a body has to begin with (bodies.GRACE_S)
HEADERS_BYTES = 64 << 10        # as much as h11, uvicorn's other parser, accepts

log = logging.getLogger(__name__)


class BoundedHeaders(HttpToolsProtocol):
    """A connection that is closed where the headers of a request are slower than HEADERS_S or larger than HEADERS_BYTES.

    One that sends nothing at all is closed after HEADERS_S too, without an answer.
    """

    _deadline: asyncio.TimerHandle | None = None
    _header_bytes = 0
    _began = False              # a request came, if only a part of it

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deadline is not None:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._deadline is not None and self._header_bytes > HEADERS_BYTES:       # they end in none of these bytes
            self._refuse(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._began = True
        if self._deadline is None:              # a further request of the connection
            self._await_headers()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        super().on_headers_complete()

    def _await_headers(self) -> None:
        self._header_bytes = 0
        self._deadline = self.loop.call_later(HEADERS_S, self._refuse, b"408 Request Timeout")

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, status: bytes) -> None:
        self._stop_waiting()
        if self.transport.is_closing():
            return
        if self._began:
            log.info("headers of a request from %s: %s", self.client and self.client[0], status.decode())
            self.transport.write(b"HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status)
        self.transport.close()
