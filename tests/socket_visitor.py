"""A WebSocket client of the ASGI application in this process (channels.testing has one, but needs daphne)."""

from __future__ import annotations

import json
from typing import Any

from asgiref.testing import ApplicationCommunicator


class SocketVisitor(ApplicationCommunicator):
    def __init__(self, application: Any, path: str, headers: list[tuple[bytes, bytes]], client: tuple[str, int]) -> None:
        super().__init__(application, {
            "type": "websocket", "path": path, "query_string": b"", "headers": headers, "subprotocols": [], "client": list(client)})

    async def connect(self) -> bool:
        """Whether it was accepted."""
        await self.send_input({"type": "websocket.connect"})
        return bool((await self.receive_output(5))["type"] == "websocket.accept")

    async def send(self, text: str) -> None:
        await self.send_input({"type": "websocket.receive", "text": text})

    async def watch(self, *topics: object) -> Any:
        await self.send(json.dumps({"watch": topics}))
        return await self.receive()

    async def receive(self) -> Any:
        return json.loads((await self.receive_output(5))["text"])

    async def close(self) -> None:
        await self.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wait(5)
