"""What the load says of captures, over rows as the API gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.soak.book import Book
from tests.soak.captures import Captures, compare_captures

Rows = list[dict[str, Any]]
KILLED = {"where": "ncu, exit status 137", "what": "ended by SIGKILL before a report was written", "hint": ""}
FULL = {"where": "ncu, exit status 1", "what": "the last line was: No space left on device", "hint": ""}


def met() -> tuple[Captures, Rows, Rows]:
    """Captures that ended as they had to: done, stopped, and deleted."""
    captures = Captures(ids={"capture-1": 11, "capture-5": 15, "capture-2": 12}, unknown={"capture-3"}, stopped={"capture-5"},
                        ending={"capture-2"}, deleted={"capture-2"},
                        judged={"capture-2": {"status": "done", "error": None, "profile_status": "ready"}})
    rows = [{"build": mark, "status": status, "tool": "ncu", "error": None}
            for mark, status in (("capture-1", "done"), ("capture-3", "done"), ("capture-5", "cancelled"))]
    profiles = [{"build": mark, "status": "ready", "gpu_time_ns": 5, "launches": 2} for mark in ("capture-1", "capture-3")]
    return captures, rows, profiles


def change(number: int, **fields: Any) -> Callable[[Rows, Rows], None]:
    return lambda rows, profiles: rows[number].update(fields)


@pytest.mark.parametrize(("meet", "words"), [
    (lambda rows, profiles: None, ""),
    (lambda rows, profiles: rows.pop(0), "capture-1 was accepted and is lost"),
    (lambda rows, profiles: rows.append(rows[0]), "capture-1 is there 2 times"),
    (lambda rows, profiles: rows.append({**rows[0], "build": "capture-2"}), "capture-2 was deleted and is there"),
    (lambda rows, profiles: rows.append({**rows[2], "build": "capture-9"}), "capture-9 is there 1 times"),
    (lambda rows, profiles: profiles.append(profiles[0]), "capture-1 is done and has 2 profiles"),
    (lambda rows, profiles: profiles.pop(0), "capture-1 is done and has 0 profiles"),
    (lambda rows, profiles: profiles[0].update(status="failed"), "the profile of capture-1 ended as failed"),
    (lambda rows, profiles: profiles[0].update(launches=3), "one report was read with different results"),
    (change(0, status="running"), "capture-1 ended as running"),
    (change(0, status="cancelled"), "capture-1 ended as cancelled"),
    (change(2, status="failed", error={"what": "unexpected"}), "capture-5 ended as failed"),
    (change(2, status="failed", error=KILLED), ""),
    (change(2, status="failed", error=FULL), ""),
])
def test_what_is_lost_twice_or_ended_otherwise_is_told(meet: Callable[[Rows, Rows], object], words: str) -> None:
    book, (captures, rows, profiles) = Book(), met()
    meet(rows, profiles)
    compare_captures(book, captures, rows, profiles, kills=1)
    assert bool(book.violations) == bool(words) and all(words in each for each in book.violations[:1]), book.violations


@pytest.mark.parametrize(("judged", "words"), [
    ({"status": "failed", "error": {"what": "unexpected"}, "profile_status": ""}, "capture-2 ended as failed"),
    ({"status": "done", "error": None, "profile_status": "failed"}, "capture-2 is done and its profile is 'failed'")])
def test_what_a_capture_was_before_it_was_deleted_counts(judged: dict[str, Any], words: str) -> None:
    book, (captures, rows, profiles) = Book(), met()
    captures.judged["capture-2"] = judged
    compare_captures(book, captures, rows, profiles, kills=1)
    assert len(book.violations) == 1 and words in book.violations[0]


def test_more_captures_that_say_that_they_were_killed_than_were_are_told() -> None:
    book, (captures, rows, profiles) = Book(), met()
    change(2, status="failed", error=KILLED)(rows, profiles)
    compare_captures(book, captures, rows, profiles, kills=0)
    assert book.violations == ["1 captures say that their program was killed, 0 were"]
