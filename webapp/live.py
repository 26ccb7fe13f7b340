"""One Channels consumer: checks who asks, then forwards the progress of jobs to the browser.

The browser sends {"watch": ["profile.7", "tune.3"]} (again at any time: it replaces the list) and receives
{"topic", "event", "data"} for each. A page catches up from the API first; this only tells what is new.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from channels.generic.websocket import AsyncJsonWebsocketConsumer
from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.http.request import split_domain_port, validate_host

from webapp.accounts import is_local
from workers import jobs

TOPIC = re.compile(r"(home|workers|notified|(profile|tune|capture|ceilings|suite|gate)\.\d{1,18})\Z")
MAX_TOPICS = 200
SIGNED_OUT = 4401


class SameOrigin:
    """Refuse a handshake unless its Origin is the host it asks for, and that host is ours.

    Browsers let any page open a WebSocket anywhere, cookies included, and DNS can be made to point a foreign name at
    127.0.0.1: the origin must equal the Host header, and the Host must be an allowed one. No Origin, no answer.
    """

    def __init__(self, inner: Callable[..., Awaitable[None]]) -> None:
        self.inner = inner

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        headers = _headers(scope)
        app = self.inner if same_origin(headers.get("origin", ""), headers.get("host", "")) else WebsocketDenier()
        await app(scope, receive, send)


def same_origin(origin: str, host: str) -> bool:
    try:
        asked = urlsplit(origin).netloc.lower()
    except ValueError:
        return False
    domain, _ = split_domain_port(host.lower())
    return bool(asked) and asked == host.lower() and validate_host(domain, settings.ALLOWED_HOSTS)


class LiveConsumer(AsyncJsonWebsocketConsumer):
    async def connect(self) -> None:
        self.topics: set[str] = set()
        self.session = ""
        client = self.scope.get("client") or [""]
        local = settings.LOCAL_MODE and is_local(client[0], _headers(self.scope))
        if not local and not self.scope["user"].is_authenticated:
            await self.close(code=SIGNED_OUT)
            return
        await self.accept()
        if self.scope["user"].is_authenticated:
            self.session = session_topic(self.scope["session"].session_key)
            await self.channel_layer.group_add(f"live.{self.session}", self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **_: object) -> None:
        asked = _watch_list(text_data)
        if asked is None:
            await self.send_json({"event": "error", "data": {"what": f"send {{\"watch\": [at most {MAX_TOPICS} topics]}}"}})
            return
        wanted = {topic for topic in asked if TOPIC.match(topic)}
        for topic in self.topics - wanted:
            await self.channel_layer.group_discard(f"live.{topic}", self.channel_name)
        for topic in wanted - self.topics:
            await self.channel_layer.group_add(f"live.{topic}", self.channel_name)
        self.topics = wanted
        await self.send_json({"event": "watching", "data": {"topics": sorted(wanted)}})

    async def disconnect(self, code: int) -> None:
        for topic in filter(None, (*self.topics, self.session)):
            await self.channel_layer.group_discard(f"live.{topic}", self.channel_name)

    async def live_message(self, message: dict[str, Any]) -> None:
        if message["topic"] == self.session:
            await self.close(code=SIGNED_OUT)
            return
        await self.send_json({key: message[key] for key in ("topic", "event", "data")})


def session_topic(session_key: str) -> str:
    """The topic on which the connections of a session are told that it ended: no page can watch it, or guess the key from it."""
    return f"session.{hashlib.sha256(session_key.encode()).hexdigest()[:32]}"


def connections_close(request: Any = None, **signal: Any) -> None:
    """After sign-out nothing more is forwarded to the pages that are still open (user_logged_out receiver)."""
    if request is not None and request.session.session_key:
        jobs.publish(session_topic(request.session.session_key), "signed-out", {})


def _watch_list(text: str | None) -> list[str] | None:
    """The topics of {"watch": [...]}; None for anything else."""
    try:
        content = json.loads(text or "")
    except ValueError:
        return None
    asked = content.get("watch") if isinstance(content, dict) else None
    if not isinstance(asked, list) or len(asked) > MAX_TOPICS:
        return None
    return [topic for topic in asked if isinstance(topic, str)]


def _headers(scope: dict[str, Any]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
