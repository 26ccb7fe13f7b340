"""The code of a suite's build on this worker: fetched from the source that an owner allowed.

Or it lies in a folder of this worker: an owner names a pattern, as "/builds/{build}". A try to fetch it measures nothing: what was
found or went wrong is said.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings

from tuner.gate.code import services
from tuner.gate.code.models import CodeFetch
from tuner.gate.code.services import BUILD, folder_problem
from tuner.gate.suites.job_services import known_commit
from tuner.models import Suite, SuiteArchive, SuiteCode
from workers.code.git import COMMIT, Git, Limits
from workers.code.unpack import unpack_archive
from workers.core.child import SandboxError
from workers.core.periodic import watch_for_stop
from workers.core.sandboxed import folder_bytes

PLACE = "{build}"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,79}")


def build_folder(pattern: str, build: str) -> Path | None:
    """Return the folder of a build; None where the suite measures none. Raises SandboxError."""
    if not pattern:
        return None
    root, place, rest = pattern.partition(PLACE)
    if not place or not root.startswith("/"):
        raise SandboxError(f"the suite's folder of builds {pattern!r} is no absolute path with {PLACE} in it",
                           "An owner changes it: /srv/builds/{build}")
    if not _NAME.fullmatch(build) or ".." in build:
        raise SandboxError(f"build {build!r} cannot be a folder's name", "Letters, digits and . _ + - name a folder of builds.")
    path = (Path(root) / f"{build}{rest}") if root.endswith("/") else Path(f"{root}{build}{rest}")
    inside = Path(root).resolve() if root.endswith("/") else Path(root).parent.resolve()
    real = path.resolve()
    if not real.is_dir():
        raise SandboxError(f"this worker has no folder {path}", "Put the build's code there, then measure it again.")
    if not real.is_relative_to(inside) or real == inside:
        raise SandboxError(f"{path} leads out of {inside}", "A link may not lead out of the folder of builds.")
    return real


# ---- folders of fetched code on this worker ----
# Named by what they hold, kept for the next job, the oldest gone beyond a bound.

MOST_BYTES = 4 << 30
LOOK_S = 0.1
_KEY = re.compile(r"[0-9a-f]{40}\Z")


def _lock(handle: int, kind: int) -> bool:
    """Lock without waiting; False where another process, or another handle of this one, keeps it from that."""
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@dataclass
class Held:
    """A folder of code. It stays as long as it is held."""

    folder: Path
    facts: dict[str, Any]
    _lock: int

    def release(self) -> None:
        """Let it go: it may be deleted from now on."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


class CodeStore:
    """The folders of one worker's host."""

    def __init__(self, root: Path, most_bytes: int = MOST_BYTES) -> None:
        self.root, self.most_bytes = root, most_bytes
        root.mkdir(parents=True, exist_ok=True, mode=0o700)

    @staticmethod
    def key(*parts: object) -> str:
        """Return the name of what these parts name."""
        return hashlib.sha256(json.dumps([str(part) for part in parts]).encode()).hexdigest()[:40]

    def find_or_make(self, key: str, make: Callable[[Path], dict[str, Any]],
                     should_stop: Callable[[], bool] = lambda: False) -> Held:
        """Return the folder of a key, held; `make` fills it where there is none, and returns what is said of it.

        Raises SandboxError where a stop comes while another worker makes it.
        """
        lock = os.open(self.root / f"{key}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        folder, facts_file = self.root / key, self.root / f"{key}.json"
        try:
            while not (_lock(lock, fcntl.LOCK_SH) and folder.is_dir() and facts_file.is_file()):
                if _lock(lock, fcntl.LOCK_EX):               # another worker of the host may make it, or have made it meanwhile
                    if not (folder.is_dir() and facts_file.is_file()):
                        self._make(folder, facts_file, make)
                elif should_stop():
                    raise SandboxError("stopped")
                else:
                    time.sleep(LOOK_S)
            os.utime(folder)
            entry = Held(folder, json.loads(facts_file.read_text()), lock)
        except BaseException:
            os.close(lock)
            raise
        self.tidy()
        return entry

    def _make(self, folder: Path, facts_file: Path, make: Callable[[Path], dict[str, Any]]) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=self.root, prefix="new-") as temp_folder:
            content = Path(temp_folder, "code")
            content.mkdir()
            facts = make(content)
            content.rename(folder)
        facts_file.write_text(json.dumps(facts))

    def tidy(self) -> None:
        """Delete the folders that were used longest ago, beyond the bound; what is held stays."""
        folders = sorted((path for path in self.root.iterdir() if _KEY.match(path.name)), key=lambda path: path.stat().st_mtime)
        sizes = {path: folder_bytes(path) for path in folders}
        total = sum(sizes.values())
        for path in folders:
            if total <= self.most_bytes:
                return
            if self._delete(path):
                total -= sizes[path]

    def _delete(self, path: Path) -> bool:
        lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not _lock(lock, fcntl.LOCK_EX):
                return False
            path.with_suffix(".json").unlink(missing_ok=True)
            shutil.rmtree(path, ignore_errors=True)
            return True
        finally:
            os.close(lock)


# ---- the code of a suite's build on this worker ----

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
        entry = self._held[build]
        code = self._allowed()
        inside = entry.folder / code.folder.replace("{build}", build) if code.folder else entry.folder
        if folder_problem(code.folder) or not inside.resolve().is_relative_to(entry.folder.resolve()) or not inside.is_dir():
            raise SandboxError(f"the code of {build} has no folder {code.folder}", "An owner changes the suite's source.")
        return inside, str(entry.facts["commit"])

    def known(self, build: str) -> str:
        """Return git's commit that the build stands for since it was first measured; "" where it never was."""
        commit = known_commit(self.suite, build) if self._allowed().kind == SuiteCode.Kind.GIT else ""
        return commit if COMMIT.match(commit) else ""

    def facts(self, build: str) -> dict[str, Any]:
        """Return what is known of a build's code that was found: commit, files, bytes, links left out."""
        return self._held[build].facts

    def release(self) -> None:
        """Let go of every folder."""
        for entry in self._held.values():
            entry.release()
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
            summary = git.unpack(commit, into, lambda so_far: None)
            return {"commit": commit, "files": summary.files, "bytes": summary.bytes, "links": summary.links}

        return store.find_or_make(key, make, self._should_stop)

    def _find_archive(self, code: SuiteCode, store: CodeStore, build: str, commit: str) -> Held:
        archive = SuiteArchive.objects.filter(code=code, build=build).first()
        if archive is None:
            raise SandboxError(f"no archive of build {build} was uploaded", "An owner uploads it on the page of the suite's code.")

        if commit not in ("", f"sha256:{archive.sha256}"):
            raise SandboxError(f"the archive of {build} was replaced while it was measured", "measure it again")

        def make(into: Path) -> dict[str, Any]:
            self._say(f"unpacking {archive.size_bytes:,} bytes")
            summary = unpack_archive(bytes(archive.data), into, self._limits.unpacked)
            return {"commit": f"sha256:{archive.sha256}", "files": summary.files, "bytes": summary.bytes, "links": 0}

        return store.find_or_make(store.key(self.suite.project_id, archive.sha256), make, self._should_stop)


MAX_ATTEMPTS = 3


def run(fetch_id: int, worker: str, *, limits: Limits = LIMITS) -> None:
    """Claim the row and end it; a row that another holds is left."""
    fetch = services.fetch_claim(fetch_id, worker)
    if fetch is None:
        return
    if fetch.attempts > MAX_ATTEMPTS:
        services.fetch_fail(fetch, worker, f"{MAX_ATTEMPTS} workers died over this try", "see the workers' logs")
        return
    with watch_for_stop(lambda: not CodeFetch.leases.is_held(fetch.pk, worker)) as stop:
        code = BuildCode(fetch.code.suite, say=lambda said: services.fetch_say(fetch, worker, said), limits=limits,
                         should_stop=stop)
        try:
            code.folder(fetch.build)
            facts = code.facts(fetch.build)
            services.fetch_done(fetch, worker, commit=facts["commit"], files=facts["files"], size_bytes=facts["bytes"])
        except SandboxError as error:
            services.fetch_fail(fetch, worker, error.what, error.hint)
        finally:
            code.release()
