"""What of a request's body is read: little of somebody unknown, no more than the limit of anybody, and not for ever.

Django's handler writes a body to a temporary file before it asks who sent it. This wrapper stands before it:

- of a body beyond SMALL_BYTES nothing more is read until the session or the token is found valid, nor of an upload while the
  disk has too little room;
- one that announces more than the limit is refused at once, one that does not is cut there;
- a sender has GRACE_S and a second more for each RATE_BYTES_S that arrived, and may be silent for IDLE_S.

What is refused is answered at once, with 401, 408, 413 or 507; the rest of it is thrown away for LINGER_S, so that a program that
only listens once it has sent everything hears why.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.cookies import CookieError
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user
from django.db import close_old_connections
from django.http import HttpRequest, parse_cookie
from rest_framework.authentication import SessionAuthentication
from rest_framework.exceptions import APIException
from rest_framework.settings import api_settings

from webapp.accounts import is_local
from webapp.outage import Outage, outage_answer, outage_of
from workers import disk, trail

SMALL_BYTES = 64 << 10
FORM_BYTES = 1 << 20            # of an upload beside its files
OTHER_BYTES = 64 << 20          # of what is no form: it is parsed in memory
GRACE_S, RATE_BYTES_S, IDLE_S = 20.0, 4_000, 60.0
LINGER_S = 5.0
UNKNOWN = Outage(401, "sign in before sending more than 64 kB",
                 "sign in, or send “Authorization: Token …” with a valid token")
SLOW = Outage(408, "the request came too slowly and was cut off", "send it again over a faster connection, or compress it (.gz)")
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Refused(Exception):
    """A body that is not read further; `outage`: the answer."""

    def __init__(self, outage: Outage) -> None:
        super().__init__(outage.what)
        self.outage = outage


class Bodies:
    """An ASGI wrapper around what reads bodies."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self.app = app
        self.pool = ThreadPoolExecutor(4, thread_name_prefix="bodies")

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        body = _Body(scope, receive, self.admit)
        started = False

        async def pass_on(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await body.check_announced()
            await self.app(scope, body.receive, pass_on)
        except Refused as refused:
            if now := trail.current():
                now.why = refused.outage.what
            if not started:
                await _refuse(refused.outage, scope, receive, send)

    async def admit(self, scope: dict[str, Any], *, is_form: bool) -> None:
        """Return where more than a little may be read; results of CI, which are no forms, use the kept room. Raises Refused."""
        if is_form and (place := disk.shortage()):
            full = disk.NoRoom(place)
            raise Refused(Outage(507, full.what, full.hint))
        try:
            known = await asyncio.get_running_loop().run_in_executor(self.pool, _ask, scope)
        except Exception as error:
            if outage := outage_of(error):
                raise Refused(outage) from error
            raise
        if not known:
            raise Refused(UNKNOWN)


class _Body:
    """The body of one request as it comes in."""

    def __init__(self, scope: dict[str, Any], receive: Receive, admit: Callable[..., Awaitable[None]]) -> None:
        self.scope, self._receive, self._admit = scope, receive, admit
        headers = headers_of(scope)
        announced = headers.get("content-length", "")
        self.announced_bytes = int(announced) if announced.isdecimal() and len(announced) < 19 else 0
        self.is_form = headers.get("content-type", "").lower().startswith("multipart/")
        self.most_bytes = settings.UPLOAD_MAX_BYTES + FORM_BYTES if self.is_form else OTHER_BYTES
        self.received_bytes, self.waited_s = 0, 0.0
        self.admitted = False
        self.ended = not {"content-length", "transfer-encoding"} & headers.keys()       # without either there is none (RFC 9112)

    async def check_announced(self) -> None:
        """Raise Refused where the header says enough."""
        if self.announced_bytes > self.most_bytes:
            raise Refused(self._too_large(f"{self.announced_bytes:,} bytes"))
        if self.announced_bytes > SMALL_BYTES:
            await self._let_in()

    async def receive(self) -> Message:
        """Return the next message. Raises Refused."""
        if self.ended:                  # what comes now is the end of the connection, however late
            return await self._receive()
        began_s = time.monotonic()
        try:
            message = await asyncio.wait_for(self._receive(), self._patience_s())
        except TimeoutError:
            raise Refused(SLOW) from None
        self.waited_s += time.monotonic() - began_s
        if message["type"] != "http.request":
            return message
        self.received_bytes += len(message.get("body", b""))
        self.ended = not message.get("more_body", False)
        if self.received_bytes > self.most_bytes:
            raise Refused(self._too_large(f"more than {self.most_bytes:,} bytes"))
        if self.received_bytes > SMALL_BYTES:
            await self._let_in()
        return message

    async def _let_in(self) -> None:
        if not self.admitted:
            await self._admit(self.scope, is_form=self.is_form)
            self.admitted = True

    def _patience_s(self) -> float:
        return max(0.1, min(IDLE_S, GRACE_S + self.received_bytes / RATE_BYTES_S - self.waited_s))

    def _too_large(self, has: str) -> Outage:
        return Outage(413, f"the request has {has}; at most {self.most_bytes:,} are taken",
                      "compress the file (.gz), record fewer steps, or let the owner raise RIDGEPOINT_UPLOAD_MAX_BYTES"
                      if self.is_form else "send files as multipart/form-data")


def _ask(scope: dict[str, Any]) -> bool:
    close_old_connections()             # a broken one; else this thread keeps its connection
    return is_known(scope)


def is_known(scope: dict[str, Any]) -> bool:
    """Return whether who asks is signed in, has a valid token, or is the person of a single-user installation."""
    headers = headers_of(scope)
    if settings.LOCAL_MODE and is_local((scope.get("client") or ("", 0))[0], headers):
        return True
    request = HttpRequest()
    kind, _, token = headers.get("authorization", "").partition(" ")
    request.META["HTTP_AUTHORIZATION"] = f"{'Token' if kind.lower() == 'bearer' else kind} {token}".strip()    # /mcp takes both
    with suppress(CookieError):
        request.COOKIES = parse_cookie(headers.get("cookie", ""))
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(request.COOKIES.get(settings.SESSION_COOKIE_NAME))
    return get_user(request).is_authenticated or _has_token(request)


def _has_token(request: HttpRequest) -> bool:
    classes: Any = api_settings.DEFAULT_AUTHENTICATION_CLASSES         # the stubs say names
    for authentication in classes:
        if issubclass(authentication, SessionAuthentication):       # looked at above; it would read the body for its CSRF token
            continue
        with suppress(APIException, UnicodeDecodeError):
            if authentication().authenticate(request) is not None:
                return True
    return False


async def _refuse(outage: Outage, scope: dict[str, Any], receive: Receive, send: Send) -> None:
    response = outage_answer(outage, scope["path"], scope["method"])
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in response.items()]
    headers += [(b"content-length", str(len(response.content)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.content, "more_body": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while (message := await receive())["type"] == "http.request" and message.get("more_body", False):
                pass
    await send({"type": "http.response.body", "body": b""})


def headers_of(scope: Mapping[str, Any]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
