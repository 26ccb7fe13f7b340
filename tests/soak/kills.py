"""Kills one process after the other with SIGKILL, each kind in turn in a random order."""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from tests.product import Product
from tests.soak.actors import Agents, Place
from tests.soak.book import Book
from tests.waiting import until
from webapp.embedded import postgres

WORDS = {"web": "manage.py web", "ingest worker": "manage.py worker ingest", "replay worker": "manage.py worker replay",
         "messages worker": "manage.py worker messages", "GPU worker": "manage.py worker gpu", "Valkey": "valkey-server",
         "backup": "manage.py backup"}
KINDS = (*WORDS, "PostgreSQL", "PostgreSQL backend", "agent", "running job", "captured program", "supervisor")
CAPTURED = ("--export", "workers/capture/torch_capture.py")     # words of what a capture runs
GPUS = ("--gpus", "1")              # by the words of `captures.tools`


class Running:
    """The product; after its supervisor was killed, another one at the same address over the same folder."""

    def __init__(self, home: Path, env: dict[str, str]) -> None:
        self.home, self.env, self.before = home, env, ""
        self.product = Product(home, "--host", "127.0.0.1", *GPUS, env=env)
        self.product.wait_until_up()
        self.url = self.product.url

    def again(self) -> None:
        """Kill the supervisor and start another."""
        self.product.process.kill()
        self.product.process.wait()
        self.before += self.product.log
        until(lambda: not of_home(self.home, "manage.py web"))        # its children end with it, and let go of the address
        self.product = Product(self.home, "--host", "127.0.0.1", "--port", self.url.rpartition(":")[2], *GPUS, env=self.env)

    @property
    def log(self) -> str:
        return self.before + self.product.log


def tree(pid: int, *, recursive: bool = True) -> list[psutil.Process]:
    """Return what lives below a process, or its own children alone."""
    with suppress(psutil.Error):
        return living(psutil.Process(pid).children(recursive=recursive))
    return []


def living(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Leave out zombies and what is gone meanwhile: of neither can more be asked."""
    found = []
    for each in processes:
        with suppress(psutil.Error):
            if each.status() != psutil.STATUS_ZOMBIE:
                found.append(each)
    return found


def command(process: psutil.Process) -> str:
    """Return the command of a process; "" of one that is gone, a zombie or somebody else's."""
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def of_home(home: Path, word: str) -> list[psutil.Process]:
    """Return processes of this installation whose command holds `word`; the servers outlive what started them."""
    found = []
    for each in psutil.process_iter(["cmdline", "environ"]):        # None of what a zombie or somebody else's does not tell
        told = " ".join(each.info["cmdline"] or ())
        if word in told and (str(home) in told or (each.info["environ"] or {}).get("RIDGEPOINT_HOME") == str(home)):
            found.append(each)
    return living(found)


def kill_some(book: Book, place: Place, running: Running, agents: Agents, every_s: float, seed: int) -> None:
    """Kill as long as the load lasts, whatever one of the kills meets."""
    chance, waiting = random.Random(seed), list[str]()
    while book.wait(every_s * chance.uniform(0.7, 1.3)):
        if not waiting:
            waiting = random.Random(chance.random()).sample(KINDS, len(KINDS))
        kind = waiting.pop()
        try:
            done = kill(kind, place, running, agents, chance)
        except Exception as error:
            book.violate(f"a kill broke ({kind}): {type(error).__name__}: {error}")
            continue
        (book.kills if done else book.nothing_to_kill)[kind] += 1


def kill(kind: str, place: Place, running: Running, agents: Agents, chance: random.Random) -> bool:
    """Return whether a process of the kind was there to be killed."""
    if kind == "agent":
        agents.again(place, chance.randrange(agents.count))
        return True
    if kind == "supervisor":
        running.again()
        return True
    found = processes_of(kind, running.home)
    chance.shuffle(found)
    return any(map(_end, found))                    # the first that is still there


def processes_of(kind: str, home: Path) -> list[psutil.Process]:
    """Return the living processes of a kind."""
    if kind.startswith("PostgreSQL"):
        postmaster = postgres.alive(home / "pg" / "data")
        if postmaster is None:
            return []
        if kind == "PostgreSQL backend":
            return [each for each in tree(postmaster) if "ridgepoint" in command(each)]
        with suppress(psutil.Error):
            return [psutil.Process(postmaster)]
        return []
    if kind == "running job":           # the process that a worker made for the job at hand
        return [child for worker in of_home(home, "manage.py worker") for child in tree(worker.pid, recursive=False)]
    if kind == "captured program":
        return [each for word in CAPTURED for each in of_home(home, word) if "reaper.py" not in command(each)]
    return of_home(home, WORDS[kind])


def _end(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        process.kill()
        return True
    return False
