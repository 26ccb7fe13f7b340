"""One Channels consumer: checks who asks, then forwards the progress of jobs to the browser.

The browser sends {"watch": ["profile.7", "tune.3"]} (again at any time: it replaces the list) and receives
{"topic", "event", "data"} for each. A page catches up from the API first; this only tells what is new.
"""

from __future__ import annotations

import re

from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.conf import settings

TOPIC = re.compile(r"(home|workers|(profile|tune|capture)\.\d{1,18})\Z")
MAX_TOPICS = 200


class LiveConsumer(AsyncJsonWebsocketConsumer):
    async def connect(self) -> None:
        self.topics: set[str] = set()
        if settings.LOCAL_MODE and _loopback(self.scope.get("client")) or self.scope["user"].is_authenticated:
            await self.accept()
        else:
            await self.close(code=4401)

    async def receive_json(self, content: object, **_: object) -> None:
        asked = content.get("watch") if isinstance(content, dict) else None
        if not isinstance(asked, list) or len(asked) > MAX_TOPICS:
            await self.send_json({"event": "error", "data": {"what": f"send {{\"watch\": [at most {MAX_TOPICS} topics]}}"}})
            return
        wanted = {topic for topic in asked if isinstance(topic, str) and TOPIC.match(topic)}
        for topic in self.topics - wanted:
            await self.channel_layer.group_discard(f"live.{topic}", self.channel_name)
        for topic in wanted - self.topics:
            await self.channel_layer.group_add(f"live.{topic}", self.channel_name)
        self.topics = wanted
        await self.send_json({"event": "watching", "data": {"topics": sorted(wanted)}})

    async def disconnect(self, code: int) -> None:
        for topic in self.topics:
            await self.channel_layer.group_discard(f"live.{topic}", self.channel_name)

    async def live_message(self, message: dict) -> None:
        await self.send_json({key: message[key] for key in ("topic", "event", "data")})


def _loopback(client: object) -> bool:
    return isinstance(client, (list, tuple)) and bool(client) and str(client[0]) in ("127.0.0.1", "::1", "localhost")
