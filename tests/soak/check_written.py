"""After the load: what people wrote is there once, what is to be audited has its line, each entry of the cache its evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import requests

from tests.soak.actors import Place, Uploads
from tests.soak.book import Book
from tests.soak.check import pages
from tests.soak.writers import Ledger, Links, Notes, Threads

HISTORY = 50                # events that an entry keeps: tuner.cache.entries.services.HISTORY, which needs Django


def check_once(book: Book, what: str, ledger: Ledger, there: Counter[str]) -> str:
    """Everything accepted is there once unless it was to go, what is gone is not, and nothing is there that nobody asked for."""
    for mark in ledger.stored:
        count = there[mark]
        if mark in ledger.gone:
            if count:
                book.violate(f"{what} {mark} was deleted and is there")
        elif count > 1 or (not count and mark not in ledger.ending):
            book.violate(f"{what} {mark} was accepted and is there {count} times")
    for mark, count in there.items():
        if mark not in ledger.stored and (count > 1 or mark not in ledger.unknown):
            book.violate(f"{what} {mark} was not accepted and is there {count} times")
    return f"{ledger.describe()}, {sum(there.values())} there"


def check_threads(book: Book, place: Place, threads: Threads) -> str:
    session = place.program()
    rows = list(pages(session, place.url + "/api/threads/?status=all&kind=problem", "results"))
    told = check_once(book, "the thread", threads.threads, Counter(row["title"] for row in rows))
    comments = Counter[str]()
    for row in rows:
        lines = session.get(f"{place.url}/api/threads/{row['id']}/", timeout=120).json()["comments"]
        comments.update(line["text"].partition(":")[0] for line in lines if not line["event"])
    return f"{told}; comments: {check_once(book, 'the comment', threads.comments, comments)}"


def check_notes(book: Book, place: Place, notes: Notes) -> str:
    rows = place.program().get(f"{place.url}/api/profiles/{notes.profile}/notes/", timeout=120).json()["notes"]
    return check_once(book, "the note", notes.ledger, Counter(row["text"] for row in rows))


def check_links(book: Book, place: Place, links: Links) -> str:
    rows = place.program().get(f"{place.url}/api/sharing/{links.profile}/", timeout=120).json()
    told = check_once(book, "the link of days", links.ledger, Counter(_days(row) for row in rows))
    held = [mark for mark in links.addresses if mark not in links.ledger.ending]
    for mark, wanted in [*((mark, True) for mark in held[-1:]), *((mark, False) for mark in sorted(links.ledger.gone)[:1])]:
        answer = requests.get(links.addresses[mark], timeout=120)
        opened = answer.status_code == 200 and f"/profiles/{links.profile}/" in answer.url
        if opened != wanted:
            book.violate(f"the link of days {mark} leads to {answer.url} ({answer.status_code})")
    return told


def _days(row: Mapping[str, Any]) -> str:
    lasts = datetime.fromisoformat(row["expires"]) - datetime.fromisoformat(row["created"])
    return str(round(lasts.total_seconds() / 86400))


def check_audit(book: Book, place: Place, links: Links, uploads: Uploads) -> str:
    """Links that were made and ended, and profiles that were deleted, have one line each."""
    session, lines = place.program(), Counter[tuple[str, str, str]]()
    for kind in ("share link", "profile"):
        for row in pages(session, f"{place.url}/api/audit/?kind={kind}", "results"):
            lines[row["action"], kind, row["target_id"]] += 1
    there = [row["id"] for row in session.get(f"{place.url}/api/sharing/{links.profile}/", timeout=120).json()]
    made = {str(pk) for pk in (*there, *links.ids.values())}
    ended = {str(links.ids[mark]) for mark in links.ledger.gone}
    deleted = {str(uploads.stored[name]) for name in uploads.deleted}
    wanted = [*(("made", "share link", pk) for pk in made), *(("deleted", "share link", pk) for pk in ended),
              *(("deleted", "profile", pk) for pk in deleted)]
    for line in wanted:
        if lines[line] != 1:
            book.violate(f"the audit log says {lines[line]} times: {' '.join(line)}")
    return f"{len(wanted)} acts, {sum(lines[line] for line in wanted)} lines"


def check_cache(book: Book, place: Place) -> str:
    session = place.program()
    entries = list(pages(session, place.url + "/api/configs/?origin=tune", "configs"))
    jobs = list(pages(session, place.url + "/api/tune/?status=done", "jobs"))
    trials = {entry["job"]: session.get(f"{place.url}/api/tune/{entry['job']}/trials/", timeout=120).json().get("trials", [])
              for entry in entries if entry["job"]}
    compare_cache(book, entries, jobs, trials)
    return f"{len(entries)} entries over {len(jobs)} winners"


def compare_cache(book: Book, entries: Iterable[Mapping[str, Any]], jobs: Iterable[Mapping[str, Any]],
                  trials: Mapping[int, list[Mapping[str, Any]]]) -> None:
    """An entry serves what its job measured; each job's winner stands once in the history of its entry, which keeps the last ones.

    `trials`: of the entries' jobs.
    """
    by_key: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for entry in entries:
        key = _key(entry)
        if key in by_key:
            book.violate(f"the cache has two entries for {key}")
        by_key[key] = entry
        measured = [each for each in trials.get(entry["job"], ()) if each["config"] == entry["config"]]
        if not any(each["outcome"] == "measured" and each["median_ms"] == entry["median_ms"] for each in measured):
            book.violate(f"entry {entry['id']} serves {entry['config']} at {entry['median_ms']} ms, which no trial of job "
                         f"{entry['job']} measured")
        if entry["evidence"].get("trials") != len(trials.get(entry["job"], ())):
            book.violate(f"entry {entry['id']} rests on {entry['evidence'].get('trials')} trials, its job {entry['job']} has "
                         f"{len(trials.get(entry['job'], ()))}")
    for job in jobs:
        found = by_key.get(_key(job))
        if found is None:
            book.violate(f"job {job['id']} is done and its winner is in no entry")
            continue
        history = found["evidence"]["history"]
        mine = [each for each in history if each.get("job") == job["id"]]
        if not mine and len(history) >= HISTORY:
            continue                                        # older than what is kept
        if len(mine) != 1 or (mine[0]["config"], mine[0]["median_ms"]) != (job["best_config"], job["best_ms"]):
            book.violate(f"the winner of job {job['id']} ({job['best_config']}, {job['best_ms']} ms) is not once in the history of "
                         f"entry {found['id']}: {mine}")


def _key(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (row["operator"], row["dtype"], str(sorted(row["shape"].items())), row["gpu"], row["recorded"], row["toolkit"],
            row["source_hash"])
