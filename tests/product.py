"""The running product for tests: `manage.py serve` as its own process, over private servers in a folder of its own."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.kept.cluster import copy_cluster
from webapp.embedded.identity import make_tie_to_parent

PROJECT = Path(__file__).resolve().parent.parent
START_WITHIN_S = 240.0


class Product:
    """`url` once `wait_until_up` returned; `log` is everything it printed so far."""

    def __init__(self, home: Path, *arguments: str, env: dict[str, str] | None = None, command: str = "serve") -> None:
        self.home, self.url, self.lines = home, "", list[str]()
        # it ends with a run that is killed; the signal comes when the thread that started it ends, so not from another one
        tied = make_tie_to_parent(None, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else None
        self.process = subprocess.Popen(
            [sys.executable, str(PROJECT / "manage.py"), command, *arguments], cwd=PROJECT, env=clean_env(home) | (env or {}),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
            preexec_fn=tied)
        self.news: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def log(self) -> str:
        return "".join(self.lines)

    def wait_until_up(self) -> None:
        self.url = self.wait_for(lambda line: line.startswith("Ridgepoint is at ")).split()[-1].rstrip("/")

    def wait_for(self, wanted: Callable[[str], bool], within_s: float = START_WITHIN_S) -> str:
        """The next line that `wanted` accepts. Raises with the whole log when it does not come."""
        end = time.monotonic() + within_s
        while True:
            try:
                line = self.news.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"not said in {within_s:.0f} s; it said:\n{self.log}") from None
            if line is None:
                raise RuntimeError(f"it ended with code {self.process.wait()}; it said:\n{self.log}")
            if wanted(line):
                return line

    def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        request = urllib.request.Request(self.url + path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def get_json(self, path: str) -> Any:
        return json.loads(self.get(path)[1])

    def stop(self, number: int = signal.SIGINT, within_s: float = 60) -> int:
        """As Ctrl-C does; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            self.news.put(line)
        self.news.put(None)


def seed_database(home: Path) -> None:
    """Give `home` a database with its tables, so that a product over it starts in seconds (not where `copy_cluster` cannot)."""
    copy_cluster(home / "pg" / "data")


def clean_env(home: Path) -> dict[str, str]:
    """The environment of a bare machine: nothing of this run's servers or settings, all data in `home`."""
    foreign = ("DATABASE_URL", "REDIS_URL", "PORT", "HOST", "DJANGO_SETTINGS_MODULE", "RQ_WORKER_ID")
    kept = {name: value for name, value in os.environ.items()
            if name not in foreign and not name.startswith(("RIDGEPOINT_", "PYTEST_"))}
    return {**kept, "RIDGEPOINT_HOME": str(home)}
