"""After the load: nothing is lost, nothing is there twice, and every number is the one that is known."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import requests

from tests.soak.actors import FILES, TRIALS, WAIT_S, Agents, Gates, Jobs, Place, Uploads
from tests.soak.agent_child import LAUNCHES, durations
from tests.soak.book import Book

SETTLES_WITHIN_S = 600.0
ENDED = {"ready", "done", "failed", "stopped", "cancelled"}


def pages(session: requests.Session, url: str, name: str) -> Iterator[dict[str, Any]]:
    """Yield every row of a list of the API."""
    offset = 0
    while True:
        answer = session.get(f"{url}{'&' if '?' in url else '?'}limit=100&offset={offset}", timeout=120)
        answer.raise_for_status()
        rows = answer.json()[name]
        yield from rows
        if len(rows) < 100:
            return
        offset += len(rows)


def settle(place: Place) -> float:
    """Wait until no upload, job, capture or gate is under way; return how long it took in s."""
    session, began = place.program(), time.monotonic()
    while time.monotonic() - began < SETTLES_WITHIN_S:
        try:
            states = [row["status"] for path, name in (("captures", "results"), ("profiles", "results"), ("tune", "jobs"))
                      for row in pages(session, f"{place.url}/api/{path}/", name)]
            codes = [row["exit_code"] for row in pages(session, place.url + "/api/gates/", "gates")]
            if set(states) <= ENDED and None not in codes:
                break
        except requests.RequestException:
            pass
        time.sleep(3)
    return time.monotonic() - began


def check_uploads(book: Book, place: Place, uploads: Uploads) -> str:
    found = pages(place.program(), place.url + "/api/profiles/?q=soak-", "results")
    rows = [row for row in found if row["name"].startswith("soak-")]        # notes of captures name the load's folder
    names = Counter(row["name"] for row in rows)
    for name, count in names.items():
        if count > 1 or (name not in uploads.stored and name not in uploads.unknown):
            book.violate(f"upload {name} is there {count} times")
    for name in uploads.stored:
        if name not in names and name not in uploads.deleted:
            book.violate(f"upload {name} was accepted and is lost")
    for name in uploads.deleted & set(names):
        book.violate(f"upload {name} was deleted and is there")
    seen: dict[str, Counter[tuple[Any, Any]]] = {kind: Counter() for kind in FILES}
    for row in rows:
        kind = next(kind for kind in FILES if row["name"].endswith("-" + kind.partition(".")[0]))
        if row["status"] != "ready":
            book.violate(f"upload {row['name']} ended as {row['status']}: {row.get('error')}")
        else:
            seen[kind][row["gpu_time_ns"], row["launches"]] += 1
    for kind, values in seen.items():
        if len(values) > 1:
            book.violate(f"{kind} was read with different results: {dict(values)}")
    return (f"{len(uploads.stored)} accepted, {len(uploads.unknown)} without an answer, {len(uploads.deleted)} deleted again, "
            f"{len(rows)} there")


def check_jobs(book: Book, place: Place, jobs: Jobs) -> str:
    session, seen = place.program(), Counter[str]()
    rows = list(pages(session, place.url + "/api/tune/", "jobs"))
    known = {row["id"] for row in rows}
    for job in set(jobs.ids) - known:
        book.violate(f"job {job} was accepted and is lost")
    seeds = Counter(row["seed"] for row in rows if row["seed"])
    for seed, count in seeds.items():
        if count > 1:
            book.violate(f"the job of seed {seed} is there {count} times")
    for row in rows:
        seen[row["status"]] += 1
        trials = session.get(f"{place.url}/api/tune/{row['id']}/trials/?limit=1000", timeout=120).json()["trials"]
        often = max(Counter(str(sorted(each["config"].items())) for each in trials).values(), default=0)
        numbers = sorted(each["number"] for each in trials)
        if row["status"] == "failed" and "disk is full" in str(row["error"]):
            continue                                        # that it says, and its person asks for it again
        if row["status"] != "done" or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            book.violate(f"job {row['id']} ended as {row['status']} ({row['error']}) with the trials {numbers}")
        if row["seed"] and (len(trials) < TRIALS or often > 1):
            book.violate(f"job {row['id']}: {len(trials)} trials of {TRIALS}, one configuration {often} times")
    states = ", ".join(f"{count} {status}" for status, count in sorted(seen.items()))
    return f"{len(jobs.ids)} accepted, {jobs.lost} without an answer; {states}"


def check_gates(book: Book, place: Place, gates: Gates) -> str:
    """What CI was told in time must be right, and what was decided later as well."""
    later = 0
    session = place.program()
    for gate, wanted, told in gates.verdicts:
        if not told:
            later += 1
            told = session.get(f"{place.url}/api/gates/{gate}/", timeout=120).json()["verdict"]
        if told != wanted:
            book.violate(f"gate {gate} says {told!r}, and {wanted} is right")
    if len({gate for gate, _, _ in gates.verdicts}) != len(gates.verdicts):
        book.violate("two builds got one gate")
    counts = Counter(wanted for _, wanted, _ in gates.verdicts)
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    return f"{verdicts}; {later} decided later than {WAIT_S:.0f} s, {gates.unanswered} not answered"


def check_fleet(book: Book, place: Place, agents: Agents) -> str:
    wanted, batches = Counter[str](), 0
    for number in range(agents.count):
        spool = place.folder / f"spool-{number}"
        sequences = {int(line) for line in (spool / "made").read_text().split()}
        batches += len(sequences)
        wanted["launches"] += LAUNCHES * len(sequences)
        wanted["total_ns"] += sum(int(durations(number, sequence).sum()) for sequence in sequences)
        if (spool / "end").read_text() != "0 0":
            book.violate(f"agent {number} refused or dropped batches: {(spool / 'end').read_text()}")
    session, end = place.program(), time.monotonic() + 180
    while True:
        rows = session.get(place.url + "/api/fleet/top/?limit=1000", timeout=120).json()["rows"]
        found = Counter({name: sum(row[name] for row in rows) for name in ("launches", "total_ns")})
        if found == wanted or time.monotonic() > end:
            break
        time.sleep(2)
    if found != wanted:
        book.violate(f"the fleet's sums are {dict(found)}, and {dict(wanted)} is right")
    return f"{batches} batches, {found['launches']:,} launches, {found['total_ns'] / 1e9:,.3f} s: " + (
        "exact" if found == wanted else "wrong")
