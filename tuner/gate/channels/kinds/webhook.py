"""A webhook: the message as JSON to one web address, signed.

Where it may go is checked first (`workers.outgoing`): loopback, link-local, private and reserved addresses are refused unless an
owner allows them (RIDGEPOINT_WEBHOOK_PRIVATE).

Signature: `X-Ridgepoint-Signature: sha256=` + hex HMAC-SHA256 over `X-Ridgepoint-Timestamp` + "." + body. The time is signed so
that an old message cannot be sent again.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.conf import settings

from profiles.base.refused import Refused
from tuner.gate.channels.kinds.kind import ChannelKind, Message
from workers.outgoing import TOTAL_S, NotSent, Resolve, exchange, is_public, parse_address, resolve_host

__all__ = ["NotSent", "Receipt", "Refused", "check", "is_public", "parse_address", "post", "send", "signature", "visible"]
ANSWER_BYTES = 300
RETRIED = {408, 425, 429}          # of 4xx: those that say "later"


@dataclass(frozen=True)
class Receipt:
    status: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.status} after {self.seconds:.2f} s"


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return the signature header of a message: HMAC-SHA256 over timestamp + "." + body."""
    digest = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"sha256={digest}"


def post(address: str, body: bytes, headers: Mapping[str, str], *, secret: str = "", private: bool = False,
         resolve: Resolve = resolve_host, total_s: float = TOTAL_S) -> Receipt:
    """POST `body` as JSON; returns when it was answered with 2xx, raises Refused or NotSent otherwise, within `total_s` seconds
    of the connection's beginning."""
    parts = parse_address(address)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    found = list(resolve(host.encode("idna").decode(), port))
    if not found:
        raise NotSent(f"{host} has no address")
    if not private and any(not is_public(ip) for ip in found):
        raise Refused(f"{host} is inside this network ({', '.join(found[:3])}); RIDGEPOINT_WEBHOOK_PRIVATE=1 allows such addresses")
    timestamp = str(int(time.time()))
    all_headers = {**headers, "Content-Type": "application/json", "X-Ridgepoint-Timestamp": timestamp}
    if secret:
        all_headers["X-Ridgepoint-Signature"] = signature(secret, timestamp, body)
    answer = exchange("POST", address, body, all_headers, found=found, most_bytes=ANSWER_BYTES, total_s=total_s)
    return _check_answer(answer.status, answer.location, answer.body, answer.seconds)


def _check_answer(status: int, location: str, told: bytes, seconds: float) -> Receipt:
    if 200 <= status < 300:
        return Receipt(status, seconds)
    if 300 <= status < 400:
        raise NotSent(f"{status}: it redirects to {location[:150] or 'elsewhere'}, which is not followed: give that address",
                      final=True)
    words = told.decode("utf-8", "replace").strip()[:160]
    raise NotSent(f"{status}" + (f": {words}" if words else ""), final=status < 500 and status not in RETRIED)


def check(address: str) -> None:
    parse_address(address)


def visible(address: str) -> str:
    """Return scheme and host: paths of webhooks are often passwords."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.hostname}/…"


def send(message: Message) -> tuple[str, str]:
    """POST what is said, without its mail."""
    payload = {name: value for name, value in message.body.items() if name != "mail"}
    body = json.dumps({**payload, "delivery": message.delivery, "try": message.tries}).encode()
    headers = {"X-Ridgepoint-Event": str(message.body.get("event", "")), "X-Ridgepoint-Delivery": str(message.delivery)}
    return "sent", str(post(message.address, body, headers, secret=message.secret, private=settings.WEBHOOK_PRIVATE))


KIND = ChannelKind("webhook", "webhook: a POST with JSON", "webhook", "webhooks", "https://host/path", check, visible, send,
                   signed=True)
