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
from tests.soak.kills import Running

MAKE = """
from django.contrib.auth import get_user_model
from webapp.models import ApiToken, Membership, Project
person = get_user_model().objects.create_user({name!r}, "", "correct horse battery staple")
project = Project.objects.get_or_create(slug={project!r}, defaults={{"name": {project!r}}})[0]
Membership.objects.create(project=project, user=person, role={role!r})
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


@dataclass
class Leavers:
    """Each has an upload and a tune job of its own under way when it goes."""

    running: Running
    made: int = 0
    gone: Counter[str] = field(default_factory=Counter)
    stay: list[tuple[int, int]] = field(default_factory=list)           # profile and job of people who went
    tokens: list[str] = field(default_factory=list)                     # of them
    emptied: list[tuple[str, int, int]] = field(default_factory=list)   # token, profile and job of emptied projects

    def deactivate(self, book: Book, place: Place) -> bool:
        return self._leave(book, place, "deactivated", lambda name: self._manage("people", "deactivate", name))

    def delete(self, book: Book, place: Place) -> bool:
        return self._leave(book, place, "deleted", lambda name: self._shell(DELETE_PERSON, name=name))

    def empty_project(self, book: Book, place: Place) -> bool:
        """Take a project's work away while it runs. The project itself stays: rows are left, and the database keeps it."""
        begun = self._begin(book, place, project=f"gone-{self.made + 1}", role="owner")
        if begun is None:
            return False
        _, token, profile, job = begun
        if "refused" not in self._shell(DELETE_PROJECT, name=f"gone-{self.made}"):
            book.violate(f"project gone-{self.made} could be deleted while it works")
        session = session_of(token)
        for method, path in (("POST", f"/api/tune/{job}/stop/"), ("DELETE", f"/api/profiles/{profile}/")):
            while (answer := book.ask("leavers", session, method, place.url + path)) is None or answer.status_code == 503:
                if not book.wait(1):
                    return False
        self.emptied.append((token, profile, job))
        self.gone["projects"] += 1
        return True

    def _leave(self, book: Book, place: Place, how: str, go: Callable[[str], Any]) -> bool:
        begun = self._begin(book, place, project="main", role="engineer")
        if begun is None:
            return False
        name, token, profile, job = begun
        go(name)
        self.stay.append((profile, job))
        self.tokens.append(token)
        self.gone[how] += 1
        return True

    def _begin(self, book: Book, place: Place, project: str, role: str) -> tuple[str, str, int, int] | None:
        """Return name, token, profile and job of somebody new; None where the product could not take the work."""
        self.made += 1
        name = f"leaver-{self.made}"
        token = self._shell(MAKE, name=name, project=project, role=role).split("token", 1)[1].split()[0]
        session = session_of(token)
        content = json.loads(gzip.decompress((H200 / FILES[0]).read_bytes()))
        body = gzip.compress(json.dumps({**content, "leaver": self.made}).encode(), 1)
        profile = book.ask("leavers", session, "POST", place.url + "/api/profiles/", data={"name": name},
                           files={"file": (f"{name}.json.gz", body)})
        job = book.ask("leavers", session, "POST", place.url + "/api/tune/",
                       json={**JOB, "shape": SHAPES[self.made % len(SHAPES)], "seed": 1_000_000 + self.made})
        if profile is None or job is None or {profile.status_code, job.status_code} != {201}:
            return None
        return name, token, int(profile.json()["id"]), int(job.json()["id"])

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
    for profile, job in leavers.stay:
        row = session.get(f"{place.url}/api/profiles/{profile}/", timeout=120).json()
        if row.get("status") != "ready":
            book.violate(f"profile {profile} of somebody who went ended as {row.get('status')}: {row.get('error')}")
        if (status := session.get(f"{place.url}/api/tune/{job}/", timeout=120).status_code) != 200:     # how it ended: check_jobs
            book.violate(f"job {job} of somebody who went is answered {status}")
    for token in leavers.tokens:
        answer = session_of(token).get(place.url + "/api/profiles/", timeout=120)
        if answer.status_code not in (401, 403):
            book.violate(f"the token of somebody who went was answered {answer.status_code}")
    for token, profile, job in leavers.emptied:
        own = session_of(token)
        if (status := own.get(f"{place.url}/api/profiles/{profile}/", timeout=120).status_code) != 404:
            book.violate(f"profile {profile} of an emptied project was deleted and is answered {status}")
        row = own.get(f"{place.url}/api/tune/{job}/", timeout=120).json()
        if row.get("status") not in ("stopped", "done"):
            book.violate(f"job {job} of an emptied project ended as {row.get('status')}")
    return ", ".join(f"{count} {what}" for what, count in sorted(leavers.gone.items())) or "none"
