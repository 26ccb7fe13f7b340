"""People and projects that go while their work runs: what they began ends, once, and nobody else notices."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import requests

from tests.soak.actors import FILES, H200, JOB, SHAPES, Place
from tests.soak.backups import manage
from tests.soak.book import Book
from tests.soak.captures import excused
from tests.soak.kills import Running

MAKE = """
from django.contrib.auth import get_user_model
from profiles.models import CaptureTarget
from webapp.models import ApiToken, Membership, Project
person = get_user_model().objects.create_user({name!r}, "", "correct horse battery staple")
project = Project.objects.get_or_create(slug={project!r}, defaults={{"name": {project!r}}})[0]
Membership.objects.create(project=project, user=person, role={role!r})
print("target", CaptureTarget._base_manager.create(project=project, name={name!r}, argv=["sleep", "2"]).pk)
print("token", ApiToken.objects.create(person, project=project, name="soak", scope="write")[1])
"""
DELETE_PERSON = """
from django.contrib.auth import get_user_model
get_user_model().objects.get(username={name!r}).delete()
"""
DELETE_PROJECT = """
from django.db.models import ProtectedError
from webapp.models import Project
try:
    Project.objects.get(slug={name!r}).delete()
except ProtectedError:
    print("refused")
"""


@dataclass(frozen=True)
class Work:
    """What somebody began: the numbers of their rows."""

    name: str
    token: str
    profile: int
    job: int
    capture: int


@dataclass
class Leavers:
    """Each has an upload, a tune job and a capture of its own under way when it goes."""

    running: Running
    made: int = 0
    gone: Counter[str] = field(default_factory=Counter)
    stay: list[Work] = field(default_factory=list)          # of people who went
    emptied: list[Work] = field(default_factory=list)       # of emptied projects

    def deactivate(self, book: Book, place: Place) -> bool:
        return self._leave(book, place, "deactivated", lambda name: self._manage("people", "deactivate", name))

    def delete(self, book: Book, place: Place) -> bool:
        return self._leave(book, place, "deleted", lambda name: self._shell(DELETE_PERSON, name=name))

    def empty_project(self, book: Book, place: Place) -> bool:
        """Take a project's work away while it runs. The project itself stays: rows are left, and the database keeps it."""
        begun = self._begin(book, place, project=f"gone-{self.made + 1}", role="owner")
        if begun is None:
            return False
        if "refused" not in self._shell(DELETE_PROJECT, name=f"gone-{self.made}"):
            book.violate(f"project gone-{self.made} could be deleted while it works")
        session = session_of(begun.token)
        for method, path in (("POST", f"/api/tune/{begun.job}/stop/"), ("DELETE", f"/api/profiles/{begun.profile}/"),
                             ("POST", f"/api/captures/{begun.capture}/stop/")):
            while (answer := book.ask("leavers", session, method, place.url + path)) is None or answer.status_code == 503:
                if not book.wait(1):
                    return False
        self.emptied.append(begun)
        self.gone["projects"] += 1
        return True

    def _leave(self, book: Book, place: Place, how: str, go: Callable[[str], Any]) -> bool:
        begun = self._begin(book, place, project="main", role="engineer")
        if begun is None:
            return False
        go(begun.name)
        self.stay.append(begun)
        self.gone[how] += 1
        return True

    def _begin(self, book: Book, place: Place, project: str, role: str) -> Work | None:
        """Return what somebody new began; None where the product could not take the work."""
        self.made += 1
        name = f"leaver-{self.made}"
        told = self._shell(MAKE, name=name, project=project, role=role)
        token, target = (told.split(word, 1)[1].split()[0] for word in ("token", "target"))
        session = session_of(token)
        content = json.loads(gzip.decompress((H200 / FILES[0]).read_bytes()))
        body = gzip.compress(json.dumps({**content, "leaver": self.made}).encode(), 1)
        profile = book.ask("leavers", session, "POST", place.url + "/api/profiles/", data={"name": name},
                           files={"file": (f"{name}.json.gz", body)})
        job = book.ask("leavers", session, "POST", place.url + "/api/tune/",
                       json={**JOB, "shape": SHAPES[self.made % len(SHAPES)], "seed": 1_000_000 + self.made})
        capture = book.ask("leavers", session, "POST", place.url + "/api/captures/",
                           json={"target": int(target), "tool": "ncu", "build": name})
        made = [each.json()["id"] for each in (profile, job, capture) if each is not None and each.status_code == 201]
        return Work(name, token, *made) if len(made) == 3 else None

    def _shell(self, code: str, **names: str) -> str:
        return self._manage("shell", "--no-imports", "-v0", "-c", code.format(**names))

    def _manage(self, *arguments: str) -> str:
        """Run a command until the database is there for it."""
        for _ in range(10):
            done = manage(self.running.home, self.running.env, *arguments)
            if done.returncode == 0:
                return done.stdout
        raise RuntimeError(done.stderr[-400:])


def session_of(token: str) -> requests.Session:
    session = requests.Session()
    session.headers["Authorization"] = f"Token {token}"
    return session


def check_leavers(book: Book, place: Place, leavers: Leavers) -> str:
    """Work of people who went is done and theirs no more; of emptied projects nothing runs; tokens of who went open nothing."""
    session = place.program()
    for work in leavers.stay:
        row = session.get(f"{place.url}/api/profiles/{work.profile}/", timeout=120).json()
        if row.get("status") != "ready":
            book.violate(f"profile {work.profile} of somebody who went ended as {row.get('status')}: {row.get('error')}")
        if (status := session.get(f"{place.url}/api/tune/{work.job}/", timeout=120).status_code) != 200:  # how it ended: check_jobs
            book.violate(f"job {work.job} of somebody who went is answered {status}")
        taken = session.get(f"{place.url}/api/captures/{work.capture}/", timeout=120).json()
        if taken.get("status") != "done" and not excused(taken):
            book.violate(f"capture {work.capture} of somebody who went ended as {taken.get('status')}: {taken.get('error')}")
        answer = session_of(work.token).get(place.url + "/api/profiles/", timeout=120)
        if answer.status_code not in (401, 403):
            book.violate(f"the token of somebody who went was answered {answer.status_code}")
    for work in leavers.emptied:
        own = session_of(work.token)
        if (status := own.get(f"{place.url}/api/profiles/{work.profile}/", timeout=120).status_code) != 404:
            book.violate(f"profile {work.profile} of an emptied project was deleted and is answered {status}")
        for kind, pk in (("tune", work.job), ("captures", work.capture)):
            row = own.get(f"{place.url}/api/{kind}/{pk}/", timeout=120).json()
            if row.get("status") not in ("stopped", "done", "cancelled") and not excused(row):
                book.violate(f"{kind} {pk} of an emptied project ended as {row.get('status')}: {row.get('error')}")
    return ", ".join(f"{count} {what}" for what, count in sorted(leavers.gone.items())) or "none"
