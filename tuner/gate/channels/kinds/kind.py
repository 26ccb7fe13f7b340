"""What a kind of channel is: one module for each, one line in `tuner.gate.channels.kinds`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Message:
    """One message on its way: what is said (`tuner.gate.reports.message`), where to, and which try of which delivery this is."""

    body: Mapping[str, Any]
    address: str
    secret: str         # in the clear; "": none
    delivery: int
    tries: int


@dataclass(frozen=True)
class ChannelKind:
    """A way to tell people.

    check    raises Refused for an address that it cannot send to
    visible  the address for who may not read it whole
    send     sends a message; returns (status of the delivery, answer), raises workers.Refused or NotSent
    """

    name: str           # in rows and in the API; at most 8 characters
    label: str          # in the form
    noun: str           # "webhook"
    nouns: str          # "webhooks"
    hint: str           # what an address looks like
    check: Callable[[str], None]
    visible: Callable[[str], str]
    send: Callable[[Message], tuple[str, str]]
    signed: bool = False
