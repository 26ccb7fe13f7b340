"""Kills one process after the other with SIGKILL, each kind in turn in a random order."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress
from pathlib import Path

import psutil

from tests.product import Product
from tests.soak.actors import Agents, Place
from tests.soak.book import Book
from tests.waiting import until
from webapp.embedded import postgres

WORDS = {"web": "manage.py web", "ingest worker": "manage.py worker ingest", "replay worker": "manage.py worker replay",
         "messages worker": "manage.py worker messages", "Valkey": "valkey-server"}
KINDS = (*WORDS, "PostgreSQL", "PostgreSQL backend", "agent", "running job", "supervisor")


class Running:
    """The product; after its supervisor was killed, another one at the same address over the same folder."""

    def __init__(self, home: Path, env: dict[str, str]) -> None:
        self.home, self.env, self.before = home, env, ""
        self.product = Product(home, "--host", "127.0.0.1", env=env)
        self.product.wait_until_up()
        self.url = self.product.url

    def again(self) -> None:
        """Kill the supervisor and start another."""
        self.product.process.kill()
        self.product.process.wait()
        self.before += self.product.log
        until(lambda: not of_home(self.home, "manage.py web"))        # its children end with it, and let go of the address
        self.product = Product(self.home, "--host", "127.0.0.1", "--port", self.url.rpartition(":")[2], env=self.env)

    @property
    def log(self) -> str:
        return self.before + self.product.log


def tree(pid: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def of_home(home: Path, word: str) -> list[psutil.Process]:
    """Return processes of this installation whose command holds `word`; the servers outlive what started them."""
    found = []
    for each in psutil.process_iter(["cmdline", "environ"]):
        command = " ".join(each.info["cmdline"] or ())
        if word in command and (str(home) in command or (each.info["environ"] or {}).get("RIDGEPOINT_HOME") == str(home)):
            found.append(each)
    return found


def kill_some(book: Book, place: Place, running: Running, agents: Agents, every_s: float, seed: int) -> None:
    chance, waiting = random.Random(seed), list[str]()
    while book.wait(every_s * chance.uniform(0.7, 1.3)):
        if not waiting:
            waiting = random.Random(chance.random()).sample(KINDS, len(KINDS))
        kind = waiting.pop()
        if kill(kind, place, running, agents, chance):
            book.kills[kind] += 1


def kill(kind: str, place: Place, running: Running, agents: Agents, chance: random.Random) -> bool:
    """Return whether a process of the kind was there."""
    home = running.home
    if kind == "agent":
        agents.again(place, chance.randrange(agents.count))
        return True
    if kind == "supervisor":
        running.again()
        return True
    if kind.startswith("PostgreSQL"):
        postmaster = postgres.alive(home / "pg" / "data")
        if postmaster is None:
            return False
        found = [psutil.Process(postmaster)] if kind == "PostgreSQL" else [
            each for each in tree(postmaster) if "ridgepoint" in " ".join(each.cmdline())]
    elif kind == "running job":         # the process that a worker made for the job at hand
        found = [child for worker in of_home(home, "manage.py worker") for child in worker.children()]
    else:
        found = of_home(home, WORDS[kind])
    if not found:
        return False
    with suppress(psutil.NoSuchProcess):
        os.kill(chance.choice(found).pid, signal.SIGKILL)
    return True
