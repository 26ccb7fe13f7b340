"""What one person may ask of this process by WebSockets: how many are open, how many messages, how many topics.

A message takes a turn of the thread that handshakes wait for, its topics take questions of the database. All sockets of a person
share one account, so that more sockets do not ask for more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

MOST_SOCKETS = 64           # of one person: tabs
MESSAGES, MESSAGES_PER_S = 240, 20.0
TOPICS, TOPICS_PER_S = 2000, 200.0
MOST_WAIT_S = 10.0          # for topics; who would wait longer asks for too much
MANY_PEOPLE = 1000          # accounts of who has left go when there are more


@dataclass
class Bucket:
    """So many at once, and so many more each second. `level` may fall below 0: then there is a wait."""

    size: float
    per_s: float
    level: float
    filled_s: float

    def fill(self, now_s: float) -> None:
        self.level = min(self.size, self.level + (now_s - self.filled_s) * self.per_s)
        self.filled_s = now_s


@dataclass
class Account:
    """What one person has open and may still ask for."""

    messages: Bucket
    topics: Bucket
    sockets: int = 0


class SocketLimits:
    """The accounts of everybody who has a socket, or had one a moment ago."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self.now_s = now_s
        self.accounts: dict[str, Account] = {}

    def open(self, person: str) -> bool:
        """Count a socket more; False where the person has too many, or opens them too quickly."""
        account = self._account(person)
        account.sockets += 1
        return account.sockets <= MOST_SOCKETS and self.take_message(person)

    def close(self, person: str) -> None:
        """Count a socket less."""
        self._account(person).sockets -= 1
        if len(self.accounts) > MANY_PEOPLE:
            now_s = self.now_s()
            for name, account in list(self.accounts.items()):
                account.messages.fill(now_s)
                account.topics.fill(now_s)
                if account.sockets <= 0 and account.messages.level >= MESSAGES and account.topics.level >= TOPICS:
                    del self.accounts[name]

    def take_message(self, person: str) -> bool:
        """Count a message; False where they come too quickly."""
        bucket = self._account(person).messages
        bucket.fill(self.now_s())
        if bucket.level < 1:
            return False
        bucket.level -= 1
        return True

    def take_topics(self, person: str, count: int) -> float | None:
        """Count topics of a message that is about to be followed; return the s to wait before, None where it would be too long."""
        bucket = self._account(person).topics
        bucket.fill(self.now_s())
        wait_s = max(0.0, (count - bucket.level) / bucket.per_s)
        if wait_s > MOST_WAIT_S:
            return None
        bucket.level -= count
        return wait_s

    def _account(self, person: str) -> Account:
        account = self.accounts.get(person)
        if account is None:
            now_s = self.now_s()
            account = self.accounts[person] = Account(Bucket(MESSAGES, MESSAGES_PER_S, MESSAGES, now_s),
                                                      Bucket(TOPICS, TOPICS_PER_S, TOPICS, now_s))
        return account
