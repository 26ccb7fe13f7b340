"""What people write: threads, notes on a timeline, links of a profile. Each thing has a mark, by which it is found again."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import requests

from tests.soak.actors import Place
from tests.soak.book import NOT_NOW, Book

COMMENTS_A_THREAD = 3
MOST_LINK_DAYS = 365                # the lifetime in days is the mark of a link: the list tells no secret


@dataclass
class Ledger:
    """The marks of one kind of thing, by what the product answered."""

    stored: dict[str, float] = field(default_factory=dict)      # -> when it was answered, monotonic s
    unknown: set[str] = field(default_factory=set)              # no answer, or one of an outage: it may be there
    ending: set[str] = field(default_factory=set)               # asked to be deleted
    gone: set[str] = field(default_factory=set)                 # deleted, as was answered

    def note(self, mark: str, answer: requests.Response | None) -> bool:
        """Return whether the thing was answered with success."""
        if answer is None or answer.status_code in NOT_NOW:
            self.unknown.add(mark)
        elif answer.status_code == 201:
            self.stored[mark] = time.monotonic()
        return mark in self.stored

    def oldest_beyond(self, kept: int) -> str | None:
        """Return the mark of what is to go, so that at most `kept` stay; one whose deletion had no answer comes again."""
        held = [mark for mark in self.stored if mark not in self.gone]
        return held[0] if len(held) > kept else None

    def end(self, mark: str, book: Book, who: str, session: requests.Session, url: str) -> None:
        """Have it deleted."""
        self.ending.add(mark)
        answer = book.ask(who, session, "DELETE", url)
        if answer is not None and answer.status_code in (204, 404):
            self.gone.add(mark)

    def describe(self) -> str:
        """Return it in a line."""
        return f"{len(self.stored)} accepted, {len(self.unknown)} without an answer, {len(self.gone)} deleted again"


def find_timeline(place: Place) -> int:
    """Return a profile with a timeline that nobody deletes, one of the examples."""
    session = place.program()
    for row in session.get(place.url + "/api/profiles/?limit=100", timeout=60).json()["results"]:
        answer = session.get(f"{place.url}/api/profiles/{row['id']}/timeline/", timeout=60)
        if row["status"] == "ready" and answer.status_code == 200 and answer.json().get("tracks"):
            return int(row["id"])
    raise LookupError("no profile has a timeline")


@dataclass
class Threads:
    """Comments about kernel problems; after COMMENTS_A_THREAD of them the next one is about another problem."""

    comments: Ledger = field(default_factory=Ledger)
    threads: Ledger = field(default_factory=Ledger)             # by title
    made: int = 0
    _at: int | None = None                                      # thread that is written in

    def run(self, book: Book, place: Place, every_s: float) -> None:
        session = place.program()
        while book.wait(every_s):
            self.write(book, session, place)

    def write(self, book: Book, session: requests.Session, place: Place) -> None:
        self.made += 1
        mark = f"soak-comment-{self.made}"
        asked: dict[str, Any] = {"text": f"{mark}: slower since b{self.made}?"}
        if self._at is not None and self.made % COMMENTS_A_THREAD:
            url = f"{place.url}/api/threads/{self._at}/comments/"
            self.comments.note(mark, book.ask("threads", session, "POST", url, json=asked))
            return
        m = 64 * self.made
        answer = book.ask("threads", session, "POST", place.url + "/api/threads/", json={
            **asked, "kind": "problem", "of": f"operator=matmul&dtype=bf16&M={m}&N=4096&K=4096&gpu=NVIDIA H200"})
        self.threads.note(f"matmul bf16 M={m} N=4096 K=4096", answer)
        if self.comments.note(mark, answer) and answer is not None:
            self._at = int(answer.json()["id"])


@dataclass
class Notes:
    """Notes on one timeline; the oldest go once there are more than `kept`."""

    profile: int
    kept: int = 20
    ledger: Ledger = field(default_factory=Ledger)
    ids: dict[str, int] = field(default_factory=dict)
    made: int = 0

    def run(self, book: Book, place: Place, every_s: float) -> None:
        session = place.program()
        while book.wait(every_s):
            self.write(book, session, place)

    def write(self, book: Book, session: requests.Session, place: Place) -> None:
        self.made += 1
        url, mark = f"{place.url}/api/profiles/{self.profile}/notes/", f"soak-note-{self.made}"
        answer = book.ask("notes", session, "POST", url, json={"start_ns": self.made, "text": mark})
        if self.ledger.note(mark, answer) and answer is not None:
            self.ids[mark] = answer.json()["id"]
        if oldest := self.ledger.oldest_beyond(self.kept):
            self.ledger.end(oldest, book, "notes", session, f"{url}{self.ids[oldest]}/")


@dataclass
class Links:
    """Links of one profile, each with a lifetime of its own; the oldest are ended once there are more than `kept`."""

    profile: int
    kept: int = 10
    ledger: Ledger = field(default_factory=Ledger)
    ids: dict[str, int] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    made: int = 0

    def run(self, book: Book, place: Place, every_s: float) -> None:
        session = place.program()
        while book.wait(every_s) and self.made < MOST_LINK_DAYS:
            self.write(book, session, place)

    def write(self, book: Book, session: requests.Session, place: Place) -> None:
        self.made += 1
        mark = str(self.made)
        answer = book.ask("links", session, "POST", f"{place.url}/api/sharing/{self.profile}/", json={"days": self.made})
        if self.ledger.note(mark, answer) and answer is not None:
            self.ids[mark], self.addresses[mark] = answer.json()["id"], answer.json()["link"]
        if oldest := self.ledger.oldest_beyond(self.kept):
            self.ledger.end(oldest, book, "links", session, f"{place.url}/api/sharing/links/{self.ids[oldest]}/")
