"""A team's load on a running product, its processes killed at random: nothing may be lost, nothing twice, no 5xx but 503 and 507.

    python -m tests.soak [--minutes 60] [--people 50] [--uploads 10] [--jobs 20] [--agents 8] [--kill-every 60]
                         [--backup-every 180] [--fault-every 75] [--fault-lasts 15] [--out docs/soak.md]

The product is what `make run` starts, with sign-in, in a folder of its own; everybody is on this machine too. --out writes what was
met as a page. The exit code is 1 where anything was violated.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import requests

from tests.product import PROJECT, clean_env
from tests.soak import check, check_written
from tests.soak.actors import Agents, Gates, Jobs, Place, Sockets, Uploads, browse, in_thread, sign_in
from tests.soak.backups import Backups, check_backups
from tests.soak.book import MOST_TOLD, Book
from tests.soak.captures import Captures, check_captures, tools
from tests.soak.clock import Clock, clock_of
from tests.soak.disk import small_disk
from tests.soak.faults import Faults
from tests.soak.kills import Running, kill_some
from tests.soak.leavers import Leavers, check_leavers
from tests.soak.measure import Sample, Samples
from tests.soak.writers import Links, Notes, Threads, find_timeline
from tests.tour import load_examples

PASSWORD = "correct horse battery staple"
TOOLS = "tools"         # a folder for PATH
FLAT = 1.25             # the last quarter's median may be so many times the second's
# without a warm parent: no kernel is measured here, and each worker that is killed would import torch again
ENV = {"RIDGEPOINT_SIGN_IN": "1", "RIDGEPOINT_DISK_REST": "60 MB", "RIDGEPOINT_WARM_PARENT": "0"}
PEOPLE = """
import sys
from django.contrib.auth import get_user_model
from webapp.models import ApiToken
from webapp.roles import role_set
for number in range(int({count})):
    person = get_user_model().objects.create_user(f"person-{{number}}", f"person-{{number}}@example.org", {password!r})
    role_set(person, "owner" if number == 0 else "engineer")
    if number == 0:
        print("token", ApiToken.objects.create(person, name="soak", scope="write")[1])
"""


@dataclass(frozen=True)
class Plan:
    minutes: float = 60.0
    people: int = 50
    uploads_per_minute: float = 10.0
    jobs: int = 20
    agents: int = 8
    kill_every_s: float = 60.0
    gate_every_s: float = 60.0
    comment_every_s: float = 6.0        # 20 a minute of one person are refused
    note_every_s: float = 5.0
    link_every_s: float = 12.0
    capture_every_s: float = 15.0
    backup_every_s: float = 180.0
    fault_every_s: float = 75.0
    fault_lasts_s: float = 15.0
    sample_every_s: float = 20.0
    seed: int = 1


@dataclass
class Outcome:
    book: Book
    lines: dict[str, str]
    samples: Samples


def run(plan: Plan, folder: Path) -> Outcome:
    """Start a product in `folder`, put the load on it, and check it when all has settled."""
    home = folder / "home"
    home.mkdir()
    clock = clock_of(folder)
    env = {**ENV, "TMPDIR": str(home), "PATH": f"{tools(folder / TOOLS)}{os.pathsep}{os.environ['PATH']}"}
    with small_disk(home) as small:
        return _run(plan, folder, Running(home, {**env, **(clock.env if clock else {})}), clock, small)


def _run(plan: Plan, folder: Path, running: Running, clock: Clock | None, small: bool) -> Outcome:
    home, book, samples = running.home, Book(), Samples()
    try:
        place = Place(running.url, _make_people(home, plan.people), folder)
        _load_examples(place)
        uploads, jobs, gates = Uploads(), Jobs(), Gates()
        sockets, agents = Sockets(plan.people), Agents(plan.agents)
        profile = find_timeline(place)
        threads, notes, links, captures = Threads(), Notes(profile), Links(profile), Captures()
        backups = Backups(ledgers={"comment": threads.comments, "note": notes.ledger, "link": links.ledger})
        leavers = Leavers(running)
        faults = Faults(running, backups, clock, leavers, small, plan.fault_lasts_s)
        agents.start(place)
        acts = [in_thread(book, browse, place, f"person-{number}", PASSWORD) for number in range(plan.people)]
        acts += [in_thread(book, sockets.run, place, "person-0", PASSWORD),
                 in_thread(book, uploads.run, place, plan.uploads_per_minute),
                 in_thread(book, jobs.run, place, plan.jobs), in_thread(book, gates.run, place, plan.gate_every_s),
                 in_thread(book, threads.run, place, plan.comment_every_s), in_thread(book, notes.run, place, plan.note_every_s),
                 in_thread(book, links.run, place, plan.link_every_s),
                 in_thread(book, captures.run, place, plan.capture_every_s),
                 in_thread(book, backups.run, place, running, plan.backup_every_s),
                 in_thread(book, samples.run, running, plan.sample_every_s),
                 in_thread(book, kill_some, place, running, agents, plan.kill_every_s, plan.seed),
                 in_thread(book, faults.run, place, plan.fault_every_s, plan.seed)]
        at_work = [threading.Thread(target=act, daemon=True) for act in acts]
        book.begin()
        for thread in at_work:
            thread.start()
        time.sleep(60 * plan.minutes)
        book.stop.set()
        for thread in at_work:
            thread.join(400)
        agents.end(place)
        settled_s = check.settle(place)
        checks: dict[str, Callable[[], str]] = {
            "uploads": lambda: check.check_uploads(book, place, uploads), "tune jobs": lambda: check.check_jobs(book, place, jobs),
            "captures": lambda: check_captures(book, place, captures, folder / TOOLS),
            "gates": lambda: check.check_gates(book, place, gates), "fleet": lambda: check.check_fleet(book, place, agents),
            "threads": lambda: check_written.check_threads(book, place, threads),
            "notes": lambda: check_written.check_notes(book, place, notes),
            "links": lambda: check_written.check_links(book, place, links),
            "audit log": lambda: check_written.check_audit(book, place, links, uploads),
            "cache": lambda: check_written.check_cache(book, place),
            "backups": lambda: check_backups(book, place, running, backups),
            "went while at work": lambda: check_leavers(book, place, leavers)}
        lines = {what: _look(book, what, look) for what, look in checks.items()} | {
            "WebSockets": f"{sockets.messages:,} messages, opened {sockets.opened} times by {plan.people} people",
            "all work done after the load ended": f"{settled_s:.0f} s"}
        _check_flat(book, samples)
        _check_kills(book, plan)
    finally:
        running.product.stop()
        (folder / "log").write_text(running.log)
    if not sockets.opened:
        book.violate("no WebSocket could be opened")
    _check_log(book, running.log)
    return Outcome(book, lines, samples)


def _look(book: Book, what: str, look: Callable[[], str]) -> str:
    """Return what a check says; one that breaks is a violation, and the others are made all the same."""
    try:
        return look()
    except Exception as error:
        book.violate(f"the check of {what} broke: {type(error).__name__}: {error}")
        return "not known"


def _make_people(home: Path, count: int) -> str:
    """Return the token of an owner."""
    command = [sys.executable, "manage.py", "shell", "--no-imports", "-c", PEOPLE.format(count=count, password=PASSWORD)]
    told = subprocess.run(command, cwd=PROJECT, env=clean_env(home) | ENV, text=True, capture_output=True, check=True,
                          timeout=300).stdout
    return told.split("token", 1)[1].split()[0]


def _load_examples(place: Place) -> None:
    session = requests.Session()
    sign_in(Book(), session, place, "person-0", PASSWORD)
    load_examples(place.url, session)


def _check_flat(book: Book, samples: Samples) -> None:
    for name in ("memory_mb", "objects_mb", "database_mb"):
        _, second, _, last = samples.quarters(name) or [0.0] * 4
        if last > FLAT * second + 50:
            book.violate(f"{name} grew from {second:.0f} in the second quarter to {last:.0f} in the last")


def _check_kills(book: Book, plan: Plan) -> None:
    """A killer that rests leaves a load without kills, which proves nothing."""
    made, wanted = sum(book.kills.values()), 60 * plan.minutes / plan.kill_every_s
    if made < wanted / 2:
        book.violate(f"{made} kills were made, about {wanted:.0f} were to be; nothing to kill: {dict(book.nothing_to_kill)}")


def _check_log(book: Book, log: str) -> None:
    """An exception that nobody expected leaves a trace in the log, whoever was asked."""
    for number, line in enumerate(lines := log.splitlines()):
        if "Internal Server Error" in line:
            book.violate("the log holds: " + " / ".join(each[:200] for each in lines[number:number + 40] if "Error" in each)[:600])


# ---- as a page ----

def page(plan: Plan, outcome: Outcome, commit: str) -> str:
    book, samples = outcome.book, outcome.samples
    processor = platform.processor() or platform.machine()
    lines = ["# A team's load, and kills", "",
             f"`python -m tests.soak --minutes {plan.minutes:g}`: {plan.people} people who browse and hold a WebSocket each, "
             f"{plan.uploads_per_minute:g} uploads a minute, {plan.jobs} tune jobs at any time, a gate of CI every "
             f"{plan.gate_every_s:g} s, {plan.agents} agents of a fleet; a comment every {plan.comment_every_s:g} s, a note every "
             f"{plan.note_every_s:g} s, a link every {plan.link_every_s:g} s, a capture every {plan.capture_every_s:g} s (each "
             f"fourth by torch.profiler on the CPU; of the others a stand-in for ncu writes a recorded report), a backup every "
             f"{plan.backup_every_s:g} s; a process killed (SIGKILL) about every {plan.kill_every_s:g} s, a fault of "
             f"{plan.fault_lasts_s:g} s about every {plan.fault_every_s:g} s. Measured on {datetime.date.today()} at {commit}, "
             f"{psutil.cpu_count()} cores ({processor}), Python "
             f"{platform.python_version()}; load and product on the same machine, load of the machine {_load(samples.taken)}.", "",
             f"**{len(book.violations)} violations.** " + ("Nothing was lost, nothing is there twice, no 5xx but 503 with "
                                                          "Retry-After and 507." if not book.violations else ""), ""]
    lines += [f"- {each}" for each in book.violations[:MOST_TOLD]]
    lines += ["", "| what | met |", "|---|---|", *(f"| {what} | {said} |" for what, said in outcome.lines.items()),
              f"| killed | {_counts(book.kills)} |", f"| not there to be killed | {_counts(book.nothing_to_kill)} |",
              f"| faults | {_counts(book.faults)} |", f"| faults that could not be made | {_counts(book.no_fault)} |",
              f"| longest time without any answer below 500 | {book.longest_without_answer_s:.1f} s |"]
    lines += ["", "| requests | answers | median | p95 |", "|---|---|---|---|"]
    for who, answers in sorted(book.answers.items()):
        took = book.took_s.get(who) or [0.0]
        told = ", ".join(f"{status}: {count:,}" for status, count in sorted(answers.items()))
        lines.append(f"| {who} | {told} | {1e3 * float(np.median(took)):.0f} ms | {1e3 * float(np.percentile(took, 95)):.0f} ms |")
    lines += ["", "| median of each quarter | 1 | 2 | 3 | 4 |", "|---|---|---|---|---|"]
    for name, words in (("memory_mb", "memory of all processes (PSS), MB"), ("web_mb", "of these the web process (RSS), MB"),
                        ("objects_mb", "traces, columns and reports on disk, MB"),
                        ("database_mb", "PostgreSQL without its log ahead, MB"), ("log_ahead_mb", "its log ahead, MB")):
        lines.append(f"| {words} | " + " | ".join(f"{value:,.0f}" for value in samples.quarters(name)) + " |")
    return "\n".join(lines) + "\n"


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in sorted(counter.items()))


def _load(taken: list[Sample]) -> str:
    loads = [each.load for each in taken] or [0.0]
    return f"{min(loads):.1f} to {max(loads):.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, kind, usual in (("minutes", float, 60.0), ("people", int, 50), ("uploads", float, 10.0), ("jobs", int, 20),
                              ("agents", int, 8), ("kill-every", float, 60.0), ("backup-every", float, 180.0),
                              ("fault-every", float, 75.0), ("fault-lasts", float, 15.0), ("seed", int, 1)):
        parser.add_argument(f"--{name}", type=kind, default=usual)
    parser.add_argument("--out", type=Path)
    asked: dict[str, Any] = vars(parser.parse_args())
    plan = Plan(minutes=asked["minutes"], people=asked["people"], uploads_per_minute=asked["uploads"], jobs=asked["jobs"],
                agents=asked["agents"], kill_every_s=asked["kill_every"],
                backup_every_s=asked["backup_every"], fault_every_s=asked["fault_every"], fault_lasts_s=asked["fault_lasts"],
                seed=asked["seed"])
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=PROJECT, text=True, capture_output=True).stdout.strip()
    with tempfile.TemporaryDirectory(prefix="ridgepoint-soak-") as folder:
        outcome = run(plan, Path(folder))
        kept = os.environ.get("RIDGEPOINT_SOAK_LOG")
        if kept:
            Path(kept).write_bytes((Path(folder) / "log").read_bytes())
    text = page(plan, outcome, commit or "unknown")
    sys.stdout.write(text)
    for each, count in Counter(violation[:400] for violation in outcome.book.violations).most_common(100):
        sys.stderr.write(f"{count} × {each}\n")
    if asked["out"]:
        asked["out"].write_text(text)
    return int(bool(outcome.book.violations))


if __name__ == "__main__":
    sys.exit(main())
