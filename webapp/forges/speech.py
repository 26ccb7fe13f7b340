"""What forges have in common: requests, how a caller sends them, and messages that came."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


class Unsigned(ValueError):
    """A message that the forge did not send, or that is not for us; str says why."""


@dataclass(frozen=True)
class Speaker:
    """Where a forge is and how it is spoken to; `key` in the clear."""

    api: str
    place: str
    account: str
    key: str


@dataclass(frozen=True)
class Request:
    method: str
    path: str                   # below the API's address
    body: Mapping[str, Any] | None = None


Call = Callable[[Request, Mapping[str, str]], Mapping[str, Any]]        # (request, headers) -> the answer's JSON


@dataclass(frozen=True)
class Arrived:
    """What a message says of an issue."""

    event: str
    place: str                  # owner/name, group/project, or the key of a project
    number: str
    closed: bool


def check_digest(secret: str, header: str, body: bytes) -> str:
    """Check "sha256=…", the HMAC-SHA256 of a body; return it. Raises Unsigned."""
    expected = f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"
    if not secret or not hmac.compare_digest(expected.encode(), header.encode("utf-8", "replace")):
        raise Unsigned("the signature is not that of the secret")
    return expected


def text(value: Any, most: int = 200) -> str:
    """Return a string of an answer or message, "" for what is none."""
    return value[:most] if isinstance(value, str) else str(value) if isinstance(value, int) else ""
