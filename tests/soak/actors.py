"""Who uses the product: people who browse and hold a WebSocket, uploads, tune jobs, gates of CI, agents of a fleet.

Who writes stands in `writers`, who makes backups in `backups`."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import re
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from tests.product import PROJECT
from tests.soak.book import Book
from tests.tour import _LINK, _SKIPPED
from tuner.gate.client import GateError, NoAnswer, Server, follow_gate

H200 = PROJECT / "tests" / "data" / "h200"
THINKS_S = 8.0                              # between two pages of a person, on average
FILES = ("kineto_layer_stack.json.gz", "kineto_layer.json.gz", "kineto_train.json.gz")
KEPT_PROFILES, TRIALS, SENT_AGAIN = 20, 40, 3
WAIT_S = 300.0                              # that CI waits for a gate
SUITE, SLOWER = "example-h200", {"softmax R=8192 C=4096 fp16": {"STEPS": 3, "PER_SM": 8, "num_warps": 8}}
JOB = {"operator": "matmul", "dtype": "bf16", "device": "replay:matmul", "strategy": "random", "budget_trials": TRIALS,
       "budget_seconds": 600}
SHAPES = [dict(zip("MNK", sizes, strict=True)) for sizes in (       # those of the recording: a cache entry each
    (4096, 4096, 4096), (16, 4096, 4096), (2048, 11008, 4096), (1024, 1024, 1024))]


@dataclass(frozen=True)
class Place:
    """A running product: its address, a token that may write, and the folder of what actors keep."""

    url: str
    token: str
    folder: Path

    def program(self) -> requests.Session:
        session = requests.Session()
        session.headers["Authorization"] = f"Token {self.token}"
        return session


def browse(book: Book, place: Place, name: str, password: str) -> None:
    """Sign in and follow links at random, as long as the load lasts."""
    chance, session = random.Random(name), requests.Session()
    at = "/"
    while book.wait(chance.expovariate(1 / THINKS_S)):
        answer = book.ask("browsing", session, "GET", place.url + at)
        if answer is None:
            continue
        if "/accounts/login/" in answer.url:
            sign_in(book, session, place, name, password)
            continue
        if answer.status_code != 200 or not answer.headers.get("content-type", "").startswith("text/html"):
            at = "/"
            continue
        links = [urllib.parse.urljoin(at, raw.decode(errors="replace").replace("&amp;", "&"))
                 for raw in _LINK.findall(answer.content)]
        open_to = [link for link in links if re.match(r"/(?!/)", link) and not _SKIPPED.search(link.partition("?")[0])]
        at = chance.choice(open_to) if open_to and chance.random() > 0.05 else "/"


def sign_in(book: Book, session: requests.Session, place: Place, name: str, password: str) -> None:
    book.ask("browsing", session, "GET", place.url + "/accounts/login/")
    book.ask("browsing", session, "POST", place.url + "/accounts/login/", headers={"Referer": place.url + "/"},
             data={"username": name, "password": password, "csrfmiddlewaretoken": session.cookies.get("csrftoken", "")})


@dataclass
class Sockets:
    """As many WebSockets as people, each opened again when it breaks."""

    count: int
    messages: int = 0
    opened: int = 0

    def run(self, book: Book, place: Place, name: str, password: str) -> None:
        session = requests.Session()
        sign_in(book, session, place, name, password)
        asyncio.run(self._run(book, place, "; ".join(f"{key}={value}" for key, value in session.cookies.items())))

    async def _run(self, book: Book, place: Place, cookie: str) -> None:
        each = [asyncio.create_task(self._hold(place, cookie)) for _ in range(self.count)]
        while not book.stop.is_set():
            await asyncio.sleep(0.5)
        for task in each:
            task.cancel()
        await asyncio.gather(*each, return_exceptions=True)

    async def _hold(self, place: Place, cookie: str) -> None:
        from websockets.asyncio.client import connect

        while True:
            try:
                async with connect(f"{place.url.replace('http', 'ws')}/ws/live/", origin=place.url,        # type: ignore[arg-type]
                                   additional_headers={"Cookie": cookie}, max_size=None) as socket:
                    self.opened += 1
                    await socket.send(json.dumps({"watch": ["home", "workers"]}))
                    async for _ in socket:
                        self.messages += 1
            except Exception:           # whatever broke it: a browser opens it again
                pass
            await asyncio.sleep(random.uniform(1, 4))


@dataclass
class Uploads:
    """Recordings under a name of their own; the oldest go once KEPT_PROFILES are there, so that the disk can stay flat.

    Where an answer was lost or was 503, the same request with the same key finds what the first one made, as a careful script does.
    """

    stored: dict[str, int] = field(default_factory=dict)        # name -> profile
    deleted: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)              # it could not be found out yet
    made: int = 0

    def run(self, book: Book, place: Place, per_minute: float) -> None:
        contents = {name: json.loads(gzip.decompress((H200 / name).read_bytes())) for name in FILES}
        session = place.program()
        while book.wait(60 / per_minute):
            self.made += 1
            kind = FILES[self.made % len(FILES)]
            name = f"soak-{self.made}-{kind.partition('.')[0]}"
            body = gzip.compress(json.dumps({**contents[kind], "soak": self.made}).encode(), 1)
            sent = {"files": {"file": (f"{name}.json.gz", body)}, "data": {"name": name, "build": f"b{self.made}"},
                    "headers": {"Idempotency-Key": name}}
            for _ in range(SENT_AGAIN):
                answer = book.ask("upload", session, "POST", place.url + "/api/profiles/", **sent)
                if answer is not None and answer.status_code != 503:
                    break
                book.wait(2)
            if answer is not None and answer.status_code == 201:
                self.stored[name] = answer.json()["id"]
            elif answer is None or answer.status_code == 503:
                self.unknown.add(name)
            self._tidy(book, session, place)

    def _tidy(self, book: Book, session: requests.Session, place: Place) -> None:
        kept = [name for name in self.stored if name not in self.deleted]
        for name in kept[:max(0, len(kept) - KEPT_PROFILES)]:
            answer = book.ask("delete", session, "DELETE", f"{place.url}/api/profiles/{self.stored[name]}/")
            if answer is not None and answer.status_code in (200, 204, 404):
                self.deleted.add(name)


@dataclass
class Jobs:
    """So many tune jobs wait or run at any time, over a recorded space."""

    asked: int = 0
    lost: int = 0           # the answer was: there may be a job, or none
    ids: list[int] = field(default_factory=list)

    def run(self, book: Book, place: Place, at_once: int) -> None:
        session = place.program()
        while book.wait(5):
            answer = book.ask("jobs", session, "GET", place.url + "/api/tune/queue/")
            if answer is None or answer.status_code != 200:
                continue
            listed = book.ask("jobs", session, "GET", place.url + f"/api/tune/?limit={at_once}")
            if listed is None or listed.status_code != 200:
                continue
            live = sum(job["status"] not in ("done", "failed", "stopped") for job in listed.json()["jobs"])
            for _ in range(min(4, at_once - live)):
                self.asked += 1
                made = book.ask("jobs", session, "POST", place.url + "/api/tune/",
                                json={**JOB, "shape": SHAPES[self.asked % len(SHAPES)], "seed": self.asked})
                if made is None:
                    self.lost += 1
                elif made.status_code == 201:
                    self.ids.append(made.json()["id"])


@dataclass
class Gates:
    """A build a minute, through the client that CI uses: every other one is slower, and must be told so."""

    verdicts: list[tuple[int, str, str]] = field(default_factory=list)      # gate, wanted, told
    unanswered: int = 0

    def run(self, book: Book, place: Place, every_s: float) -> None:
        server = Server(place.url, place.token, patience_s=240)
        number = 0
        while book.wait(every_s):
            number += 1
            slower = number % 2 == 0
            asked = {"suite": SUITE, "build": f"soak-build-{number}", "parent": "example-1",
                     **({"configs": SLOWER} if slower else {})}
            try:
                gate = follow_gate(server, server.gate_create(asked), WAIT_S, lambda line: None)
            except NoAnswer:
                self.unanswered += 1
                continue
            except GateError as error:
                book.violate(f"gate {number}: {error}")
                continue
            self.verdicts.append((int(gate["id"]), "SLOWER" if slower else "PASS", str(gate.get("verdict"))))


@dataclass
class Agents:
    """Node agents with a spool each, as processes: what a batch holds follows from its number, so the sum is known exactly."""

    count: int
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, place: Place) -> None:
        self.processes = [self._start(place, number) for number in range(self.count)]

    def again(self, place: Place, number: int) -> None:
        """Kill one and start it over its spool."""
        self.processes[number].kill()
        self.processes[number].wait()
        self.processes[number] = self._start(place, number)

    def end(self, place: Place) -> None:
        """Tell all to send what they have and end."""
        (place.folder / "last-minute").touch()
        for process in self.processes:
            process.wait(240)

    def _start(self, place: Place, number: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-m", "tests.soak.agent_child", str(place.folder), str(number), place.url,
                                 place.token], cwd=PROJECT)


def in_thread(book: Book, act: Callable[..., None], *arguments: Any) -> Callable[[], None]:
    """Return what a thread runs: an actor that stops with an exception is a violation, not a load that grows smaller unseen."""
    def run() -> None:
        try:
            act(book, *arguments)
        except Exception as error:
            book.violate(f"{getattr(act, '__qualname__', act)} broke: {type(error).__name__}: {error}")
            time.sleep(1)
    return run
