"""A real installation for tests of backups: its commands, its pages as texts that can be compared."""

from __future__ import annotations

import difflib
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import requests

from tests.product import PROJECT, Product, clean_env

PASSPHRASE = "correct horse battery staple"
# what differs between two looks at equal data: tokens, times of the look, who runs, moments told as "3 min ago"
CHANGING = [re.compile(pattern) for pattern in (
    rb'name="csrfmiddlewaretoken" value="[^"]*"', rb'name="csrf-token" content="[^"]*"', rb"127\.0\.0\.1:\d+",
    rb'<span class="issue-value">(?:<span class="muted">idle</span>|[a-z]+ \d+)</span>',   # what a worker does
    rb"\b\d+ ?(?:s|seconds?|min|minutes?|h|hours?) ago\b", rb"\bjust now\b")]


SUM = re.compile(rb'data-value="(\d+\.\d+)"')       # the database adds floats in the order in which it finds rows


def manage(home: Path, *arguments: str, timeout_s: float = 180, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(PROJECT / "manage.py"), *arguments], env=clean_env(home) | env, text=True,
                          capture_output=True, timeout=timeout_s)


def differences(before: bytes, after: bytes) -> list[str]:
    """Return the lines in which two pages differ."""
    lines = difflib.unified_diff(before.decode().splitlines(), after.decode().splitlines(), lineterm="", n=0)
    return [line[:300] for line in lines][2:]


class Visitor:
    """Somebody at a running product: reads pages, uploads, deletes."""

    def __init__(self, product: Product) -> None:
        self.url, self.session = product.url, requests.Session()
        self.session.get(f"{self.url}/tokens/", timeout=60)

    @property
    def headers(self) -> dict[str, str]:
        return {"Referer": f"{self.url}/", "X-CSRFToken": self.session.cookies.get("csrftoken") or ""}

    def post(self, path: str, **arguments: Any) -> requests.Response:
        answer = self.session.post(self.url + path, headers=self.headers, timeout=120, **arguments)
        assert answer.status_code < 400, (path, answer.status_code, answer.text[:300])
        return answer

    def upload(self, name: str, content: bytes) -> int:
        return int(self.post("/api/profiles/", files={"file": (name, content)}, data={"name": name}).json()["id"])

    def delete(self, profile: int) -> None:
        answer = self.session.delete(f"{self.url}/api/profiles/{profile}/", headers=self.headers, timeout=60)
        assert answer.status_code in (200, 204), answer.text[:300]

    def profiles(self) -> list[dict[str, Any]]:
        answer = self.session.get(f"{self.url}/api/profiles/?limit=1000", timeout=60).json()
        rows: list[dict[str, Any]] = answer["results"]
        return rows

    def wait_until_ready(self, within_s: float = 200) -> None:
        end = time.monotonic() + within_s
        while {row["status"] for row in self.profiles()} - {"ready", "failed"}:
            assert time.monotonic() < end, [(row["name"], row["status"]) for row in self.profiles()]
            time.sleep(0.3)

    def wait_for_workers(self, within_s: float = 100) -> None:
        """Wait until every queue that this machine can serve has told of its worker: pages name those that are missing."""
        end = time.monotonic() + within_s
        while True:
            checks = self.session.get(f"{self.url}/api/status/", timeout=60).json()["checks"]
            found = next(each for each in checks if each["name"] == "Workers")
            if found["state"] == "ok":
                return
            assert time.monotonic() < end, found
            time.sleep(0.3)

    def wait_until_idle(self, for_s: float = 3, within_s: float = 200) -> None:
        """Wait until nothing waits and no worker has worked for some seconds: analyses go on after a profile is ready."""
        end, quiet_since_s = time.monotonic() + within_s, time.monotonic()
        while time.monotonic() - quiet_since_s < for_s:
            checks = self.session.get(f"{self.url}/api/status/", timeout=60).json()["checks"]
            waiting = next(each for each in checks if each["name"] == "Queues")["facts"]["waiting"]
            busy = re.findall(r'<span class="chip mark-warn">([^<]*)', self.session.get(f"{self.url}/workers/", timeout=60).text)
            if any(waiting.values()) or busy:
                quiet_since_s = time.monotonic()
            assert time.monotonic() < end, (waiting, busy)
            time.sleep(0.8)

    def page(self, path: str) -> tuple[int, bytes]:
        answer = self.session.get(self.url + path, timeout=120)
        text = answer.content
        for pattern in CHANGING:
            text = pattern.sub(b"", text)
        text = SUM.sub(lambda match: b'data-value="%.9g"' % float(match[1]), text)
        return answer.status_code, text
