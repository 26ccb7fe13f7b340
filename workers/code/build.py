"""The code of a suite's build on this worker: fetched from the source that an owner allowed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.conf import settings

from tuner.gate.code.address import BUILD, folder_problem
from tuner.gate.suites.job_services import known_commit
from tuner.models import Suite, SuiteArchive, SuiteCode
from workers.code.git import COMMIT, Git, Limits
from workers.code.store import CodeStore, Held
from workers.code.unpack import unpack_archive
from workers.core.child import SandboxError

Say = Callable[[str], None]
LIMITS = Limits()


class BuildCode:
    """The code of builds for one job; `release` when it is over."""

    def __init__(self, suite: Suite, *, say: Say = lambda said: None, limits: Limits = LIMITS,
                 should_stop: Callable[[], bool] = lambda: False) -> None:
        self.suite, self._say, self._limits, self._should_stop = suite, say, limits, should_stop
        self.code = SuiteCode.objects.filter(suite=suite).first()
        self._held: dict[str, Held] = {}

    def folder(self, build: str, commit: str = "") -> tuple[Path, str]:
        """Return what goes first on the path of the build's processes, and what identifies it: git's commit, or "sha256:…".

        `commit`: what the build was resolved to before; its branch may have moved since. Raises SandboxError.
        """
        if build not in self._held:
            self._held[build] = self._find(build, commit)
        held = self._held[build]
        code = self._allowed()
        inside = held.folder / code.folder.replace("{build}", build) if code.folder else held.folder
        if folder_problem(code.folder) or not inside.resolve().is_relative_to(held.folder.resolve()) or not inside.is_dir():
            raise SandboxError(f"the code of {build} has no folder {code.folder}", "An owner changes the suite's source.")
        return inside, str(held.facts["commit"])

    def known(self, build: str) -> str:
        """Return git's commit that the build stands for since it was first measured; "" where it never was."""
        commit = known_commit(self.suite, build) if self._allowed().kind == SuiteCode.Kind.GIT else ""
        return commit if COMMIT.match(commit) else ""

    def facts(self, build: str) -> dict[str, Any]:
        """Return what is known of a build's code that was found: commit, files, bytes, links left out."""
        return self._held[build].facts

    def release(self) -> None:
        """Let go of every folder."""
        for held in self._held.values():
            held.release()
        self._held.clear()

    def _allowed(self) -> SuiteCode:
        if self.code is None:
            raise SandboxError("no source of code is allowed for this suite", "An owner allows one.")
        return self.code

    def _find(self, build: str, commit: str) -> Held:
        code, store = self._allowed(), CodeStore(Path(settings.HOME) / "code")
        if not BUILD.match(build) or ".." in build:
            raise SandboxError(f"build {build!r} cannot name code", "a commit, a branch or a tag: letters, digits and . _ / + -")
        if code.kind == SuiteCode.Kind.ARCHIVE:
            return self._find_archive(code, store, build, commit)
        self._say("looking up the commit")
        scratch = store.root / "none"                   # only its parent is used before something is fetched
        commit = commit or Git(code.address, scratch, self._limits, self._should_stop).resolve(build)
        if not COMMIT.match(commit):
            raise SandboxError(f"the source of {build} was changed from archives to git while it was measured", "measure it again")
        key = store.key(self.suite.project_id, code.address, commit)

        def make(into: Path) -> dict[str, Any]:
            git = Git(code.address, into.parent / "repository", self._limits, self._should_stop)
            self._say(f"fetching {commit[:12]}")
            git.fetch(commit)
            self._say(f"unpacking {commit[:12]}")
            found = git.unpack(commit, into, lambda so_far: None)
            return {"commit": commit, "files": found.files, "bytes": found.bytes, "links": found.links}

        return store.find_or_make(key, make, self._should_stop)

    def _find_archive(self, code: SuiteCode, store: CodeStore, build: str, commit: str) -> Held:
        archive = SuiteArchive.objects.filter(code=code, build=build).first()
        if archive is None:
            raise SandboxError(f"no archive of build {build} was uploaded", "An owner uploads it on the page of the suite's code.")

        if commit not in ("", f"sha256:{archive.sha256}"):
            raise SandboxError(f"the archive of {build} was replaced while it was measured", "measure it again")

        def make(into: Path) -> dict[str, Any]:
            self._say(f"unpacking {archive.size_bytes:,} bytes")
            found = unpack_archive(bytes(archive.data), into, self._limits.unpacked)
            return {"commit": f"sha256:{archive.sha256}", "files": found.files, "bytes": found.bytes, "links": 0}

        return store.find_or_make(store.key(self.suite.project_id, archive.sha256), make, self._should_stop)
