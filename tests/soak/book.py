"""What everybody met: answers by status, violations, how long nothing answered."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import requests

NOT_NOW = (503, 507)
EXPECTED_4XX = (404, 409, 429)      # a page of what somebody else deleted; a job that has just ended; a limit
MOST_TOLD = 20


class Book:
    """Any thread writes into it. `stop` is set when the load ends."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.answers: dict[str, Counter[str]] = {}
        self.took_s: dict[str, list[float]] = {}
        self.violations: list[str] = []
        self.kills: Counter[str] = Counter()
        self.nothing_to_kill: Counter[str] = Counter()      # turns of a kind of which no process was there
        self.faults: Counter[str] = Counter()
        self.no_fault: Counter[str] = Counter()             # turns of a kind that could not be made
        self._lock = threading.Lock()
        self._last_fine_s = time.monotonic()
        self.longest_without_answer_s = 0.0

    def begin(self) -> None:
        """The load begins: from now on it counts how long nothing answers."""
        self._last_fine_s = time.monotonic()

    def wait(self, seconds: float) -> bool:
        """Return whether the load goes on after so long."""
        return not self.stop.wait(seconds)

    def violate(self, what: str) -> None:
        with self._lock:
            self.violations.append(what)

    def ask(self, who: str, session: requests.Session, method: str, url: str, **more: Any) -> requests.Response | None:
        """Return the answer; None where the connection broke. Whatever the rules do not allow is kept as a violation."""
        began = time.monotonic()
        try:
            answer = session.request(method, url, timeout=90, **more)
        except requests.RequestException as error:
            self._count(who, f"no answer ({type(error).__name__})")
            return None
        now, status = time.monotonic(), answer.status_code
        self._count(who, str(status))
        if status < 500:
            with self._lock:
                self.longest_without_answer_s = max(self.longest_without_answer_s, now - self._last_fine_s)
                self._last_fine_s = now
                self.took_s.setdefault(who, []).append(now - began)
        elif status not in NOT_NOW or (status == 503 and not answer.headers.get("Retry-After")):
            self.violate(f"{who}: {method} {url} answered {status}: {answer.text[:300]!r}")
        if 400 <= status < 500 and status not in EXPECTED_4XX:
            self.violate(f"{who}: {method} {url} answered {status}: {answer.text[:300]!r}")
        return answer

    def _count(self, who: str, what: str) -> None:
        with self._lock:
            self.answers.setdefault(who, Counter())[what] += 1
