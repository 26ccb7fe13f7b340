"""The soak, shorter: a process killed every 15 s, a fault every 30 s for four minutes. `docs/soak.md` holds the figures of an hour.

Its parts are tested wherever they can be without a load: the killer over real processes, who writes and what checks it over a
real server.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.core.files.base import ContentFile
from django.db import connection
from django.utils import timezone

from profiles.models import TimelineNote
from profiles.upload.services import profile_create, profile_ingest
from tests.soak import backups, check_written
from tests.soak.actors import Agents, Place, Uploads
from tests.soak.book import Book
from tests.soak.kills import KINDS, kill, kill_some, processes_of
from tests.soak.writers import Ledger, Links, Notes, Threads, find_timeline
from tests.waiting import until
from tuner.cache.entries import services
from webapp.models import ApiToken, Comment, ShareLink

TRACE = Path(__file__).parents[1] / "data" / "h200" / "kineto_layer.json.gz"
# PostgreSQL and a worker to those who look for them, with a child that lives and one that ended and nobody waited for
PARENT = """
import os, subprocess, sys, time
open("/proc/self/comm", "w").write("postgres")
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)", "postgres: ridgepoint"])
zombie = subprocess.Popen(["true"])
os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
print(child.pid, zombie.pid, flush=True)
time.sleep(600)
"""


class Family:
    def __init__(self, parent: subprocess.Popen[str], child: int, zombie: int) -> None:
        self.parent, self.child, self.zombie = parent, psutil.Process(child), psutil.Process(zombie)


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    data = tmp_path / "pg" / "data"
    data.mkdir(parents=True)
    parent = subprocess.Popen([sys.executable, "-S", "-c", PARENT, "manage.py worker ingest"], cwd=data, text=True,
                              stdout=subprocess.PIPE, env={**os.environ, "RIDGEPOINT_HOME": str(tmp_path)})
    assert parent.stdout is not None
    child, zombie = map(int, parent.stdout.readline().split())
    (data / "postmaster.pid").write_text(f"{parent.pid}\n")
    yield Family(parent, child, zombie)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    with suppress(psutil.NoSuchProcess):        # else it would outlive its parent
        psutil.Process(child).kill()


class Product:
    """What the killer sees of a running product."""

    def __init__(self, home: Path) -> None:
        self.home, self.starts = home, 0

    def again(self) -> None:
        self.starts += 1


@pytest.mark.process
@pytest.mark.parametrize("kind", ["PostgreSQL backend", "running job"])
def test_the_killer_passes_over_a_zombie(family: Family, tmp_path: Path, kind: str) -> None:
    assert family.zombie.status() == psutil.STATUS_ZOMBIE
    with pytest.raises(psutil.ZombieProcess):
        family.zombie.cmdline()
    assert processes_of(kind, tmp_path) == [family.child]
    killed: tuple[Any, ...] = kind, Place("", "", tmp_path), Product(tmp_path), Agents(0), random.Random(1)
    assert kill(*killed)
    until(lambda: family.child.status() == psutil.STATUS_ZOMBIE)        # its parent does not wait for it either
    assert not kill(*killed)


@pytest.mark.process
def test_the_killer_goes_on_after_a_kill_that_breaks(tmp_path: Path) -> None:
    book, product = Book(), Product(tmp_path)
    killer = threading.Thread(target=kill_some, args=(book, Place("", "", tmp_path), product, Agents(0), 0.001, 1))     # no agent
    killer.start()
    try:
        until(lambda: product.starts >= 2)                              # each kind comes once before one comes again
    finally:
        book.stop.set()
        killer.join()
    assert set(book.nothing_to_kill) == set(KINDS) - {"agent", "supervisor"}
    assert book.violations and all(each.startswith("a kill broke (agent): ValueError") for each in book.violations)


def ledger(stored: str = "", unknown: str = "", ending: str = "", gone: str = "") -> Ledger:
    return Ledger(dict.fromkeys(stored.split(), 1.0), set(unknown.split()), {*ending.split(), *gone.split()}, set(gone.split()))


@pytest.mark.parametrize(("written", "there", "violations"), [
    (ledger("a b"), "a b", []),
    (ledger("a b"), "a", ["note b was accepted and is there 0 times"]),
    (ledger("a"), "a a", ["note a was accepted and is there 2 times"]),
    (ledger("a", unknown="b c"), "a b", []),
    (ledger("a", unknown="b"), "a b b", ["note b was not accepted and is there 2 times"]),
    (ledger("a"), "a b", ["note b was not accepted and is there 1 times"]),
    (ledger("a b", gone="b"), "a b", ["note b was deleted and is there"]),
    (ledger("a b", ending="b"), "a", []),
    (ledger("a b", ending="b"), "a b", []),
])
def test_what_is_lost_or_twice_is_told(written: Ledger, there: str, violations: list[str]) -> None:
    book = Book()
    check_written.check_once(book, "note", written, Counter(there.split()))
    assert book.violations == violations


KEY = {"operator": "matmul", "dtype": "bf16", "shape": {"M": 16}, "gpu": "H200", "recorded": "", "toolkit": "t", "source_hash": ""}
JOBS = [{**KEY, "id": pk, "best_config": {"BM": 16 * pk}, "best_ms": 0.5 / pk} for pk in (1, 2)]
HISTORY = [{"job": job["id"], "config": job["best_config"], "median_ms": job["best_ms"]} for job in JOBS]
ENTRY = {**KEY, "id": 5, "job": 2, "config": {"BM": 32}, "median_ms": 0.25, "evidence": {"trials": 1, "history": HISTORY}}
TRIALS = {2: [{"config": {"BM": 32}, "outcome": "measured", "median_ms": 0.25}]}
CUT = [{"job": None}] * services.HISTORY


@pytest.mark.parametrize(("entries", "trials", "word"), [
    ([ENTRY], TRIALS, ""),
    ([ENTRY, ENTRY], TRIALS, "two entries"),
    ([], TRIALS, "job 1 is done and its winner is in no entry"),
    ([ENTRY], {2: []}, "which no trial of job 2 measured"),
    ([ENTRY], {2: [{**TRIALS[2][0], "median_ms": 0.26}]}, "which no trial of job 2 measured"),
    ([ENTRY], {2: TRIALS[2] * 2}, "rests on 1 trials, its job 2 has 2"),
    ([{**ENTRY, "evidence": {"trials": 1, "history": HISTORY[:1]}}], TRIALS, "the winner of job 2"),
    ([{**ENTRY, "evidence": {"trials": 1, "history": [*HISTORY, HISTORY[0]]}}], TRIALS, "the winner of job 1"),
    ([{**ENTRY, "evidence": {"trials": 1, "history": CUT}}], TRIALS, ""),
])
def test_an_entry_without_evidence_and_a_winner_that_is_missing_are_told(entries: Any, trials: Any, word: str) -> None:
    book = Book()
    assert check_written.HISTORY == services.HISTORY
    check_written.compare_cache(book, entries, JOBS, trials)
    assert bool(book.violations) == bool(word) and all(word in each for each in book.violations[:1]), book.violations


def test_what_a_backup_lacks_is_told() -> None:
    book, written = Book(), Ledger({"a": 1.0, "b": 2.0, "later": 9.0, "went": 1.0}, ending={"went"})
    backups.check_restored(book, 5.0, {"note": ["a: text", "b"], "link": []}, {"note": written, "link": Ledger()})
    assert not book.violations
    backups.check_restored(book, 5.0, {"note": ["a", "a"]}, {"note": written})
    assert book.violations == ["note a stood before the backup and is in it 2 times",
                               "note b stood before the backup and is in it 0 times"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("sign_in_mode", "tmp_store")
def test_who_writes_is_checked_over_a_real_server(live_server: Any, olga: Any, tmp_path: Path) -> None:
    profile = profile_create(owner=olga, file=ContentFile(TRACE.read_bytes(), name="layer.json.gz"), worker="test")
    profile_ingest(profile.pk, "test")
    book, place = Book(), Place(live_server.url, ApiToken.objects.create(olga, name="soak", scope="write")[1], tmp_path)
    pk, session, uploads = find_timeline(place), place.program(), Uploads()
    threads, notes, links = Threads(), Notes(pk, kept=2), Links(pk, kept=2)
    for _ in range(5):
        threads.write(book, session, place)
    for _ in range(3):
        notes.write(book, session, place)
        links.write(book, session, place)

    def check() -> list[str]:
        book.violations.clear()
        return [check_written.check_threads(book, place, threads), check_written.check_notes(book, place, notes),
                check_written.check_links(book, place, links), check_written.check_audit(book, place, links, uploads)]

    assert book.violations == []
    assert check() == [
        "2 accepted, 0 without an answer, 0 deleted again, 2 there; "
        "comments: 5 accepted, 0 without an answer, 0 deleted again, 5 there",
        "3 accepted, 0 without an answer, 1 deleted again, 2 there", "3 accepted, 0 without an answer, 1 deleted again, 2 there",
        "4 acts, 4 lines"]
    assert book.violations == []

    Comment.objects.filter(text__startswith="soak-comment-2:").update(text="soak-comment-3: again")
    TimelineNote.objects.filter(text="soak-note-3").delete()
    now = timezone.now()
    silent, = ShareLink.objects.bulk_create([ShareLink(          # without signals, so without a line in the log
        digest="0" * 64, profile=profile, created=now, expires=now + timedelta(days=300))])
    check()
    assert book.violations == [
        "the comment soak-comment-2 was accepted and is there 0 times",
        "the comment soak-comment-3 was accepted and is there 2 times",
        "the note soak-note-3 was accepted and is there 0 times",
        "the link of days 300 was not accepted and is there 1 times", f"the audit log says 0 times: made share link {silent.pk}"]


# ends its own connection, as a kill of its backend does, between a row and the line that tells of it
DIE_BEFORE_THE_LINE = """
CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$;
CREATE TRIGGER die BEFORE INSERT ON webapp_auditentry FOR EACH ROW WHEN (NEW.kind = 'share link') EXECUTE FUNCTION die()
"""


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("tmp_store")
def test_a_link_stands_with_its_line_in_the_audit_log_or_not_at_all(olga: Any, api: Any) -> None:
    profile = profile_create(owner=olga, file=ContentFile(b"{}", name="t.json"), worker="test")
    with connection.cursor() as cursor:
        cursor.execute(DIE_BEFORE_THE_LINE)
    try:
        answer = api(olga).post(f"/api/sharing/{profile.pk}/", {"days": 7}, format="json")
    finally:
        connection.close()
        with connection.cursor() as cursor:
            cursor.execute("DROP TRIGGER die ON webapp_auditentry; DROP FUNCTION die")
    assert answer.status_code == 503
    assert not ShareLink.objects.exists()


@pytest.mark.process
@pytest.mark.deep_only
@pytest.mark.timeout(1800)
def test_a_team_s_load_survives_kills_with_nothing_lost_and_nothing_twice(tmp_path: Path) -> None:
    from tests.soak.__main__ import Plan, run  # the load's own modules are of no use to the other tests

    outcome = run(Plan(minutes=4, people=20, jobs=8, agents=4, kill_every_s=15, gate_every_s=30, backup_every_s=45,
                       fault_every_s=20, fault_lasts_s=8), tmp_path)
    assert not outcome.book.violations, outcome.book.violations[:10]
    assert sum(outcome.book.kills.values()) >= 8 and sum(outcome.book.faults.values()) >= 4
