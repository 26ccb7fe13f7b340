"""Microsoft Teams: an Adaptive Card, as a workflow "When a Teams webhook request is received" posts it.

Shape: Microsoft Learn, "Create incoming webhooks with Workflows" and the Adaptive Card schema 1.4.
"""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings

from tuner.gate.channels.kinds import webhook
from tuner.gate.channels.kinds.kind import ChannelKind, Message

MOST_CHARACTERS = 4_000         # of the text; a card may have 28 kB


def card(message: Message) -> dict[str, Any]:
    """Return the card of a message: subject, what it says, and a button to its page where there is one."""
    text, _, page = str(message.body.get("text", "")).rpartition(" ")
    if not page.startswith(("http://", "https://")):
        text, page = f"{text} {page}".strip(), ""
    blocks = [{"type": "TextBlock", "text": str(message.body.get("subject", "Ridgepoint")), "weight": "Bolder", "wrap": True},
              {"type": "TextBlock", "text": text[:MOST_CHARACTERS], "wrap": True}]
    content: dict[str, Any] = {"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard",
                               "version": "1.4", "body": blocks}
    if page:
        content["actions"] = [{"type": "Action.OpenUrl", "title": "Open in Ridgepoint", "url": page}]
    return {"type": "message", "attachments": [{"contentType": "application/vnd.microsoft.card.adaptive", "content": content}]}


def send(message: Message) -> tuple[str, str]:
    headers = {"X-Ridgepoint-Delivery": str(message.delivery)}
    return "sent", str(webhook.post(message.address, json.dumps(card(message)).encode(), headers, private=settings.WEBHOOK_PRIVATE))


KIND = ChannelKind("teams", "Microsoft Teams", "Teams channel", "Teams channels", "https://… of a workflow that posts a card",
                   webhook.check, webhook.visible, send)
