"""The Channels consumer that forwards job progress to browsers.

The browser sends {"watch": ["profile.7", "tune.3"]} (again at any time: it replaces the list) and receives
{"topic", "event", "data"} for each. A page catches up from the API first; this only tells what is new.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from channels.security.websocket import WebsocketDenier
from django.apps import apps
from django.conf import settings
from django.http.request import split_domain_port, validate_host

from webapp.accounts import is_local, local_user
from webapp.changes import person_topic, session_topic
from webapp.operate.bodies import headers_of
from webapp.outage import outage_of
from webapp.people.two_factor import DUE
from webapp.projects.selectors import Access, access_of
from webapp.socket_limits import SocketLimits
from workers import jobs
from workers.scope import projects_of_rows

log = logging.getLogger(__name__)
TOPIC = re.compile(r"(home|workers|notified|(profile|tune|check|candidate|capture|ceilings|suite|gate|thread)\.\d{1,18})\Z")
MAX_TOPICS = 200
_ROWS = {"profile": "profiles.Profile", "capture": "profiles.Capture", "tune": "tuner.TuneJob", "suite": "tuner.SuiteJob",
         "check": "tuner.KernelCheck", "candidate": "tuner.Candidate", "gate": "tuner.Gate", "thread": "webapp.Thread"}
MOST_CHARACTERS = 32_768         # of a message: MAX_TOPICS of them take less
SIGNED_OUT, TRY_AGAIN_LATER, TOO_MUCH = 4401, 1013, 1008
LIMITS = SocketLimits()
LOOK_UPS = ThreadPoolExecutor(1, "topics")      # beside the one thread of all handshakes, which would wait behind them


class SameOrigin:
    """Refuses a handshake from another origin or host; closes while a server is away.

    Browsers let any page open a WebSocket anywhere, cookies included, and DNS can be made to point a foreign name at
    127.0.0.1: the origin must equal the Host header, and the Host must be an allowed one. No Origin, no answer.
    """

    def __init__(self, inner: Callable[..., Awaitable[None]]) -> None:
        self.inner = inner

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        headers = headers_of(scope)
        own = is_same_origin(headers.get("origin", ""), headers.get("host", ""))
        app: Callable[..., Awaitable[None]] = self.inner if own else WebsocketDenier()
        try:
            await app(scope, receive, send)
        except Exception as error:
            outage = outage_of(error)
            if outage is None:
                raise
            log.warning("live: %s (%s)", outage.what, str(error).strip())
            await send({"type": "websocket.close", "code": TRY_AGAIN_LATER})       # pages connect again by themselves


def is_same_origin(origin: str, host: str) -> bool:
    """Return whether the origin is the host that was asked for."""
    try:
        origin_host = urlsplit(origin).netloc.lower()
    except ValueError:
        return False
    domain, _ = split_domain_port(host.lower())
    return bool(origin_host) and origin_host == host.lower() and validate_host(domain, settings.ALLOWED_HOSTS)


class LiveConsumer(AsyncJsonWebsocketConsumer):
    """Forwards messages of the topics that a page watches.

    A list of topics replaces the one before, so a page's newest alone is followed, in a task of its own: lists that come in the
    meantime are dropped. Who asks for more than `webapp.socket_limits` allows is closed with 1008.
    """
    async def connect(self) -> None:
        self.topics: set[str] = set()
        self.session = self.person = self.counted = ""
        self.newest: set[str] | None = None
        self.following: asyncio.Task[None] | None = None
        client = self.scope.get("client") or [""]
        local = settings.LOCAL_MODE and is_local(client[0], headers_of(self.scope))
        user = self.scope["user"]
        signed_in = user is not None and user.is_authenticated
        if (not local and not signed_in) or (signed_in and user is not None and self.scope["session"].get(DUE)):
            await self.close(code=SIGNED_OUT)
            return
        self.counted = str(user.pk) if user is not None and signed_in else "local"
        if not LIMITS.open(self.counted):
            await self.accept()         # a refused handshake could not say why
            await self.close(code=TOO_MUCH)
            return
        self.access = await database_sync_to_async(access_of)(user if signed_in else await database_sync_to_async(local_user)())
        await self.accept()
        if user is not None and signed_in and (session_key := self.scope["session"].session_key):
            self.session, self.person = session_topic(session_key), person_topic(user.pk)
            for topic in (self.session, self.person):
                await self.channel_layer.group_add(f"live.{topic}", self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **_: object) -> None:
        if not LIMITS.take_message(self.counted):
            await self.close(code=TOO_MUCH)
            return
        topics = _watch_list(text_data)
        if topics is None:
            await self.send_json({"event": "error", "data": {"what": f"send {{\"watch\": [at most {MAX_TOPICS} topics]}}"}})
            return
        self.newest = {topic for topic in topics if TOPIC.match(topic)}
        if self.following is None or self.following.done():
            self.following = asyncio.create_task(self._follow_newest())

    async def _follow_newest(self) -> None:
        """Follow the newest list, until none came meanwhile."""
        try:
            while self.newest is not None:
                wait_s = LIMITS.take_topics(self.counted, len(self.newest))
                if wait_s is None:
                    await self.close(code=TOO_MUCH)
                    return
                await asyncio.sleep(wait_s)
                newest, self.newest = self.newest, None
                await self._follow(newest)
        except Exception as error:
            outage = outage_of(error)
            if outage is None:
                log.exception("live: topics could not be followed")
            else:
                log.warning("live: %s (%s)", outage.what, str(error).strip())
            await self.close(code=TRY_AGAIN_LATER)

    async def _follow(self, topics: set[str]) -> None:
        look_up = database_sync_to_async(seen_topics, thread_sensitive=False, executor=LOOK_UPS)
        open_topics = await look_up(topics, self.access)
        for topic in self.topics - open_topics:
            for group in groups_of(topic, self.access):
                await self.channel_layer.group_discard(f"live.{group}", self.channel_name)
        for topic in open_topics - self.topics:
            for group in groups_of(topic, self.access):
                await self.channel_layer.group_add(f"live.{group}", self.channel_name)
        self.topics = open_topics
        await self.send_json({"event": "watching", "data": {"topics": sorted(open_topics)}})

    async def disconnect(self, code: int) -> None:
        if self.counted:
            LIMITS.close(self.counted)
        if self.following is not None:
            self.following.cancel()
        groups = [group for topic in self.topics for group in groups_of(topic, self.access)]
        for group in filter(None, (*groups, self.session, self.person)):
            await self.channel_layer.group_discard(f"live.{group}", self.channel_name)

    async def live_message(self, message: dict[str, Any]) -> None:
        if message["topic"] == self.session:
            await self.close(code=SIGNED_OUT)
            return
        if message["topic"] == self.person:         # whoever may still connect does so again, with what they may see now
            await self.close(code=TRY_AGAIN_LATER)
            return
        await self.send_json({key: message[key] for key in ("topic", "event", "data")})


def groups_of(topic: str, access: Access) -> list[str]:
    """Return the groups of a topic: what is new is told by project."""
    if topic != jobs.HOME:
        return [topic]
    if access.alone:
        return [topic]
    return [*([topic] if access.everywhere else []), *(jobs.home_of(seat.scope) for seat in access.seats)]


def seen_topics(topics: set[str], access: Access) -> set[str]:
    """Return those of `topics` whose rows lie in a project that the person may open."""
    if access.alone or access.everywhere:
        return topics
    mine = {seat.pk for seat in access.seats}
    rows: dict[str, dict[int, str]] = {}        # by kind: topics by the row's id
    open_topics = set()
    for topic in topics:
        kind, _, number = topic.partition(".")
        if kind in _ROWS:
            rows.setdefault(kind, {})[int(number)] = topic
        else:
            open_topics.add(topic)                     # of the whole installation
    for kind, topic_by_id in rows.items():      # one question a kind
        projects = projects_of_rows(apps.get_model(_ROWS[kind]), topic_by_id)
        open_topics |= {topic_by_id[row] for row, project in projects.items() if project is None or project in mine}
    return open_topics


def _watch_list(text: str | None) -> list[str] | None:
    """Return the topics of {"watch": [...]}; None for anything else."""
    if text is None or len(text) > MOST_CHARACTERS:
        return None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):        # [[[[[…
        return None
    topics = content.get("watch") if isinstance(content, dict) else None
    if not isinstance(topics, list) or len(topics) > MAX_TOPICS:
        return None
    return [topic for topic in topics if isinstance(topic, str)]
