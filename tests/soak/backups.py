"""Backups while the load runs and their process may be killed; afterwards each is verified and the newest one restored."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.product import PROJECT, clean_env
from tests.soak.actors import Place
from tests.soak.book import Book
from tests.soak.kills import Running
from tests.soak.writers import Ledger

WITHIN_S = 600.0
KILLED_EACH, KILLED_AFTER_S = 3, (0.5, 8.0)     # each third is killed after that long, if it has not ended by then
KILLED, FAILED = -9, 1              # codes of a backup that is none; all other codes but 0 are violations
CONTENTS = """
import json
from profiles.models import TimelineNote
from webapp.models import Comment, ShareLink
print(json.dumps({
    "comment": list(Comment._base_manager.values_list("text", flat=True)),
    "note": list(TimelineNote._base_manager.values_list("text", flat=True)),
    "link": [str(round((link.expires - link.created).total_seconds() / 86400)) for link in ShareLink._base_manager.all()]}))
"""


@dataclass
class Backups:
    """Backups of a running product into one place, one after the other."""

    ended: dict[str, float] = field(default_factory=dict)       # name -> when it was begun, monotonic s
    codes: Counter[int] = field(default_factory=Counter)
    ledgers: Mapping[str, Ledger] = field(default_factory=dict)     # by the names of CONTENTS, what must be in the restored rows

    @property
    def newest(self) -> str:
        """Return the one that was begun last; a name tells it by a clock, which may have been set."""
        return max(self.ended, key=lambda name: self.ended[name])

    def run(self, book: Book, place: Place, running: Running, every_s: float) -> None:
        made = 0
        while book.wait(every_s):
            began_s, made = time.monotonic(), made + 1
            killed_after_s = random.uniform(*KILLED_AFTER_S) if made % KILLED_EACH == 0 else None
            done = manage(running.home, running.env, "backup", str(folder_of(place)), "--json", killed_after_s=killed_after_s)
            self.codes[done.returncode] += 1
            if done.returncode == 0:
                self.ended[json.loads(done.stdout)["name"]] = began_s
            elif done.returncode not in (KILLED, FAILED) or "Traceback" in done.stderr:
                book.violate(f"a backup ended with code {done.returncode}: {done.stderr[-600:]!r}")


def folder_of(place: Place) -> Path:
    return place.folder / "backups"


def manage(home: Path, env: Mapping[str, str], *arguments: str,
           killed_after_s: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; `killed_after_s`: or kill it then."""
    words = [sys.executable, str(PROJECT / "manage.py"), *arguments]
    with subprocess.Popen(words, cwd=PROJECT, env=clean_env(home) | dict(env), stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            told = process.communicate(timeout=killed_after_s or WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            if killed_after_s is None:
                raise
            told = process.communicate()
    return subprocess.CompletedProcess(words, process.returncode, *told)


def check_backups(book: Book, place: Place, running: Running, backups: Backups) -> str:
    """Every backup that ended well is listed and whole, no other one is more than unfinished; the newest comes back."""
    if not backups.ended:
        book.violate(f"no backup ended well: codes {dict(backups.codes)}")
        return "none"
    folder = str(folder_of(place))
    listed = json.loads(manage(running.home, {}, "backup", folder, "--list", "--json").stdout)
    states = {row["name"]: row["state"] for row in listed}
    for name, state in states.items():
        if state == "damaged":
            book.violate(f"backup {name} cannot be read")
    for name in backups.ended:
        if states.get(name) != "finished":
            book.violate(f"backup {name} ended well and is listed as {states.get(name)}")
        checked = manage(running.home, {}, "backup", folder, "--check", "--backup", name)
        if checked.returncode != 0:
            book.violate(f"backup {name} ended well and is not whole: {(checked.stdout + checked.stderr)[-600:]!r}")
    newest = backups.newest
    check_restored(book, backups.ended[newest], restore(book, place, newest), backups.ledgers)
    killed, failed = backups.codes[KILLED], backups.codes[FAILED]
    return f"{len(backups.ended)} ended well and are whole, {killed} killed, {failed} failed; {newest} restored"


def restore(book: Book, place: Place, name: str) -> dict[str, Any]:
    """Return what a backup holds, brought into an empty folder."""
    home = place.folder / "restored"
    restored = manage(home, {}, "restore", str(folder_of(place)), "--backup", name)
    if restored.returncode != 0:
        book.violate(f"backup {name} cannot be restored: {restored.stderr[-600:]!r}")
        return {}
    contents: dict[str, Any] = json.loads(manage(home, {}, "shell", "--no-imports", "-v0", "-c", CONTENTS).stdout)
    return contents


def restore_twice(book: Book, place: Place, backups: Backups, home: Path) -> None:
    """Two restores of the newest backup into one empty folder at once: one of them does it, the other one does no harm."""
    newest = backups.newest
    words = [sys.executable, str(PROJECT / "manage.py"), "restore", str(folder_of(place)), "--backup", newest]
    both = [subprocess.Popen(words, cwd=PROJECT, env=clean_env(home), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True) for _ in range(2)]
    told = [each.communicate(timeout=WITHIN_S)[0] for each in both]
    codes = sorted(each.returncode for each in both)
    if codes[0] != 0 or any("Traceback" in text for text in told):
        book.violate(f"two restores at once ended with {codes}: {' / '.join(text[-300:] for text in told)!r}")
        return
    contents = json.loads(manage(home, {}, "shell", "--no-imports", "-v0", "-c", CONTENTS).stdout)
    check_restored(book, backups.ended[newest], contents, backups.ledgers)
    shutil.rmtree(home)


def check_restored(book: Book, began_s: float, contents: Mapping[str, Any], ledgers: Mapping[str, Ledger]) -> None:
    """What was answered before the backup began, and was not to be deleted, is in it once."""
    for kind, values in contents.items():
        there, ledger = Counter(text.partition(":")[0] for text in values), ledgers[kind]
        for mark, stored_s in ledger.stored.items():
            if stored_s < began_s and mark not in ledger.ending and there[mark] != 1:
                book.violate(f"{kind} {mark} stood before the backup and is in it {there[mark]} times")
