"""Captures while the load runs: programs that stand in for nvidia-smi and ncu make a GPU worker of any machine, and the worker's
own lease, reaper, log and ingest do the rest. Each fourth records a program's steps with torch.profiler, on the CPU.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import requests

from tests.soak.actors import Place
from tests.soak.book import NOT_NOW, Book
from tests.soak.check import pages
from tests.soak.kills import command
from tests.workers.tune import stand_ins

REPORT = stand_ins.PROJECT / "tests" / "data" / "h200" / "buildA.ncu-rep.zst"
WRITES = f'sleep 2; {sys.executable} {stand_ins.PROJECT / "tests" / "unpack.py"} {REPORT} > "$report"'
TARGETS = {"ncu": {"name": "Two seconds", "argv": ["sleep", "2"]},
           "torch": {"name": "Steps", "argv": ["{python}", "-m", "workers.targets.layer", "--steps", "8"]}}
TORCH_EACH, STOPPED_EACH, KEPT = 4, 5, 8
BY_KILL, DISK = ("SIGKILL", "exit status 137"), "No space left"     # a capture whose tool was killed; one without room
ENDED = {"done", "failed", "cancelled"}


def tools(folder: Path) -> Path:
    """Return a folder for PATH: a GPU by the words of nvidia-smi, and ncu."""
    folder.mkdir()
    stand_ins.nvidia_smi(folder)
    stand_ins.ncu(folder, WRITES)
    return folder


@dataclass
class Captures:
    """One every few seconds; each fifth is stopped, the oldest go. The build is the mark of a capture and of its profile."""

    ids: dict[str, int] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)
    ending: set[str] = field(default_factory=set)       # asked to be deleted, its profile first
    deleted: set[str] = field(default_factory=set)
    judged: dict[str, Mapping[str, Any]] = field(default_factory=dict)      # rows as they ended, before they were deleted
    refused: int = 0                            # no GPU worker lived
    made: int = 0
    _targets: dict[str, int] = field(default_factory=dict)

    def run(self, book: Book, place: Place, every_s: float) -> None:
        session = place.program()
        self._targets = make_targets(session, place)
        while book.wait(every_s):
            self.capture(book, session, place)
            self._tidy(book, session, place)

    def capture(self, book: Book, session: requests.Session, place: Place) -> None:
        self.made += 1
        mark, tool = f"capture-{self.made}", "torch" if self.made % TORCH_EACH == 0 else "ncu"
        answer = book.ask("captures", session, "POST", place.url + "/api/captures/",
                          json={"target": self._targets[tool], "tool": tool, "build": mark})
        if answer is None or answer.status_code in NOT_NOW:
            self.unknown.add(mark)
        elif answer.status_code == 201:
            self.ids[mark] = answer.json()["id"]
            if self.made % STOPPED_EACH == 0:
                self.stopped.add(mark)
                book.wait(1.5)
                book.ask("captures", session, "POST", f"{place.url}/api/captures/{self.ids[mark]}/stop/")
        else:
            self.refused += 1

    def _tidy(self, book: Book, session: requests.Session, place: Place) -> None:
        kept = [mark for mark in self.ids if mark not in self.deleted]
        for mark in kept[:max(0, len(kept) - KEPT)]:
            url = f"{place.url}/api/captures/{self.ids[mark]}/"
            row = book.ask("captures", session, "GET", url)
            if row is None or row.status_code != 200 or row.json()["status"] not in ENDED:
                continue                        # it comes again
            if row.json()["profile_status"] in ("uploaded", "ingesting"):
                continue
            self.judged.setdefault(mark, row.json())
            self.ending.add(mark)
            profile = row.json()["profile"]
            if profile is not None:
                gone = book.ask("captures", session, "DELETE", f"{place.url}/api/profiles/{profile}/")
                if gone is None or gone.status_code not in (204, 404):
                    continue
            answer = book.ask("captures", session, "DELETE", url)
            if answer is not None and answer.status_code in (204, 404):
                self.deleted.add(mark)


def make_targets(session: requests.Session, place: Place) -> dict[str, int]:
    """Return the target of each tool."""
    made = {}
    for tool, asked in TARGETS.items():
        answer = session.post(place.url + "/api/captures/targets/", json=asked, timeout=90)
        answer.raise_for_status()
        made[tool] = answer.json()["id"]
    return made


def check_captures(book: Book, place: Place, captures: Captures, tools_folder: Path) -> str:
    """Every capture that was accepted ended as it had to, with one profile where it is done; nothing that it started runs."""
    session = place.program()
    rows = list(pages(session, place.url + "/api/captures/", "results"))
    profiles = list(pages(session, place.url + "/api/profiles/?q=capture-", "results"))
    said = compare_captures(book, captures, rows, profiles, book.kills["captured program"])
    for process in psutil.process_iter():
        if str(tools_folder) in command(process):
            book.violate(f"a captured program still runs: {command(process)[:300]}")
    return said


def excused(row: Mapping[str, Any]) -> bool:
    """Return whether it failed for a reason that the load made, and says so: its person asks for it again."""
    return row["status"] == "failed" and any(word in str(row.get("error")) for word in (*BY_KILL, DISK))


def compare_captures(book: Book, captures: Captures, rows: Sequence[Mapping[str, Any]],
                     profiles: Sequence[Mapping[str, Any]], kills: int) -> str:
    """`kills`: how many programs under capture were killed, so many may have failed for that."""
    mine = {row["build"]: row for row in rows if row["build"].startswith("capture-")}
    often = Counter(row["build"] for row in rows if row["build"].startswith("capture-"))
    made, killed, states = Counter(row["build"] for row in profiles), 0, Counter[str]()
    for mark in captures.ids:
        if mark in captures.deleted:
            if mark in mine:
                book.violate(f"{mark} was deleted and is there")
        elif mark not in mine:
            book.violate(f"{mark} was accepted and is lost")
    for mark, row in {**mine, **captures.judged}.items():
        states[row["status"]] += 1
        told = str(row.get("error"))
        if often[mark] > 1 or (mark not in captures.ids and mark not in captures.unknown):
            book.violate(f"{mark} is there {often[mark]} times")
        if excused(row) and DISK not in told:
            killed += 1
        elif not excused(row) and row["status"] not in ("done", *(("cancelled",) if mark in captures.stopped else ())):
            book.violate(f"{mark} ended as {row['status']}: {told}")
        if mark in captures.judged:
            if row["profile_status"] != ("ready" if row["status"] == "done" else ""):
                book.violate(f"{mark} is {row['status']} and its profile is {row['profile_status']!r}")
        elif made[mark] != int(row["status"] == "done"):
            book.violate(f"{mark} is {row['status']} and has {made[mark]} profiles")
    if killed > kills:
        book.violate(f"{killed} captures say that their program was killed, {kills} were")
    seen = Counter[tuple[Any, Any]]()
    for row in profiles:
        if row["build"] not in mine:
            continue
        if row["status"] != "ready":
            book.violate(f"the profile of {row['build']} ended as {row['status']}: {row.get('error')}")
        elif mine[row["build"]]["tool"] == "ncu":
            seen[row["gpu_time_ns"], row["launches"]] += 1
    if len(seen) > 1:
        book.violate(f"one report was read with different results: {dict(seen)}")
    told = ", ".join(f"{count} {status}" for status, count in sorted(states.items()))
    return (f"{len(captures.ids)} accepted, {len(captures.unknown)} without an answer, {captures.refused} refused (no GPU worker "
            f"lived), {len(captures.stopped)} stopped, {len(captures.deleted)} deleted again; {told}")
