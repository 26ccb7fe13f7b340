"""A kernel file that somebody named by repository and commit, or by package and version: fetched, unpacked, read behind walls.

Repositories as suites' builds have them (git.py). A package is downloaded as a wheel by pip, else as the file of its source
distribution (sdist.py): pip itself would run the set-up of one. Of what was unpacked only sources stay. Nothing of it runs here.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.conf import settings

from workers.code.build import CodeStore
from workers.code.git import COMMIT, Git, Limits
from workers.code.unpack import Bounds, unpack_archive
from workers.core import sandboxed
from workers.core.child import SandboxError
from workers.core.sandboxed import folder_bytes

SOURCES, MOST_SOURCE_BYTES = (".py", ".cu", ".cuh", ".h", ".hpp", ".inl", ".cpp", ".cc"), 1 << 20
LIMITS = Limits(bytes=256 << 20, seconds=180.0, unpacked=Bounds(bytes=1 << 30, entries=50_000, seconds=120.0))
PICKING = sandboxed.Bounds(wall_s=60, cpu_s=60, memory_mb=1024, data_mb=1024, processes=16, room_mb=16)
LOOK_S = 0.2
# what pip reads of where to download from; no other variable of the worker's
PIPS = ("PIP_", "SSL_CERT_", "REQUESTS_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
        "PATH", "HOME", "XDG_CONFIG_HOME", "LD_LIBRARY_PATH")
ShouldStop = Callable[[], bool]
WHEEL = ("pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--quiet",
         "--disable-pip-version-check")
SDIST = Path(__file__).with_name("sdist.py")


def fetch(source: Mapping[str, Any], project: int, *, walls: bool, should_stop: ShouldStop,
          limits: Limits = LIMITS) -> dict[str, Any]:
    """Return {"resolved", "files"} and {"text", "siblings"} of the source's path, or {"found"} without one. Raises SandboxError.

    source  tuner.bring.checks.sources.read_source's
    """
    store = CodeStore(Path(settings.HOME) / "code")
    if source["kind"] == "git":
        git = Git(source["address"], store.root / "none", limits, should_stop)
        commit = source["commit"] if COMMIT.match(source["commit"]) else git.resolve(source["commit"])
        key = store.key("kernel", project, source["address"], commit)

        def make(into: Path) -> dict[str, Any]:
            git = Git(source["address"], into.parent / "repository", limits, should_stop)
            git.fetch(commit)
            git.unpack(commit, into, lambda so_far: None)
            return {"resolved": commit, "files": keep_sources(into)}
    else:
        key = store.key("kernel", project, source["name"], source["version"])

        def make(into: Path) -> dict[str, Any]:
            file = download(source["name"], source["version"], into.parent / "downloads", limits, should_stop)
            return unpack_package(file, into, limits)

    entry = store.find_or_make(key, make, should_stop)
    try:
        return {**entry.facts, **pick(entry.folder, source["path"], walls=walls, should_stop=should_stop)}
    finally:
        entry.release()


def keep_sources(folder: Path) -> int:
    """Delete what is no source of a kernel; return how many files stay."""
    count = 0
    for path in folder.rglob("*"):
        if path.is_symlink() or path.is_file():
            if path.is_symlink() or path.suffix not in SOURCES or path.stat().st_size > MOST_SOURCE_BYTES:
                path.unlink()
            else:
                count += 1
    return count


def pick(folder: Path, path: str, *, walls: bool, should_stop: ShouldStop) -> dict[str, Any]:
    """Return a file with what it imports, or without a path the files that hold kernels. Raises SandboxError."""
    lines: list[bytes] = []
    ending = sandboxed.run(
        [sys.executable, "-m", "tuner.bring.own.picked"], json.dumps({"root": str(folder), "path": path}).encode(),
        read=(*sandboxed.OURS, folder), environ={"PYTHONPATH": str(sandboxed.PROJECT)}, bounds=PICKING, on_line=lines.append,
        is_over=should_stop, walls=walls)
    try:
        answer: Any = json.loads(lines[-1])
    except (IndexError, ValueError, RecursionError) as error:
        raise SandboxError(f"its files cannot be read: {ending.why or ending.said[-200:] or ending.status}") from error
    if not isinstance(answer, dict):
        raise SandboxError("its files cannot be read: no answer")
    if "refused" in answer:
        raise SandboxError(str(answer["refused"])[:400], "leave the path out to see which files there are")
    return answer


def unpack_package(file: Path, into: Path, limits: Limits) -> dict[str, Any]:
    """Write the sources of a wheel or a source distribution to `into`, an empty folder; return {"resolved", "files"}.

    What a source distribution holds lies below NAME-VERSION/, which is left out, and so are links. Raises SandboxError.
    """
    data = file.read_bytes()
    if file.suffix == ".whl":
        unpack_archive(data, into, limits.unpacked)
    else:
        unpacked = into.parent / "unpacked"
        unpack_archive(data, unpacked, limits.unpacked, links=True)
        inside = list(unpacked.iterdir())
        into.rmdir()
        (inside[0] if len(inside) == 1 and inside[0].is_dir() else unpacked).rename(into)
    return {"resolved": f"sha256:{hashlib.sha256(data).hexdigest()}", "files": keep_sources(into)}


def download(name: str, version: str, folder: Path, limits: Limits, should_stop: ShouldStop) -> Path:
    """Return a wheel of a package, else its source distribution, as pip finds them with this host's configuration.

    Raises SandboxError.
    """
    if importlib.util.find_spec("pip") is None:
        raise SandboxError("pip is not installed on this worker", "install it there, or name a repository")
    folder.mkdir()
    end_s = time.monotonic() + limits.seconds
    reasons = []
    for command in ([sys.executable, "-m", *WHEEL, "--dest", str(folder), f"{name}=={version}"],
                    [sys.executable, "-I", str(SDIST), name, version, str(folder)]):
        said = _run_bounded(command, folder, f"{name}=={version}", end_s, limits, should_stop)
        found = sorted(each for each in folder.iterdir() if each.is_file() and each.suffix in (".whl", ".gz", ".zip"))
        if said is None and len(found) == 1:
            if found[0].stat().st_size > limits.bytes:
                raise _too_large(f"{name}=={version}", limits)
            return found[0]
        reasons.append(_reason(said or ""))
    raise SandboxError(f"{name}=={version}: {reasons[0]}", f"as a source distribution: {reasons[1]}"[:300])


def _run_bounded(command: Sequence[str], folder: Path, named: str, end_s: float, limits: Limits, should_stop: ShouldStop
                 ) -> str | None:
    """Run a download into a folder; return what it said where it failed, None where it did not. Raises SandboxError."""
    environ = {key: value for key, value in os.environ.items() if key.startswith(PIPS)}
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(command, cwd=folder, env={**environ, "TMPDIR": str(folder)}, stdin=subprocess.DEVNULL, stdout=said,
                                 stderr=said, start_new_session=True)
        try:
            while child.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(LOOK_S)
                if should_stop():
                    raise SandboxError("stopped")
                if time.monotonic() > end_s:
                    raise SandboxError(f"{named}: not downloaded within {limits.seconds:.0f} s", "try again later")
                if folder_bytes(folder) > limits.bytes:
                    raise _too_large(named, limits)
        finally:
            child.kill()
            child.wait()
        return os.pread(said.fileno(), 8000, 0).decode(errors="replace") or "ERROR: it failed" if child.returncode else None


def _too_large(named: str, limits: Limits) -> SandboxError:
    return SandboxError(f"{named}: more than {limits.bytes >> 20} MiB", "name its repository")


def _reason(said: str) -> str:
    """Return pip's last word; its list of versions is long, and addresses of an index may hold a password."""
    lines = [line.removeprefix("ERROR: ") for line in said.splitlines() if line.startswith("ERROR: ") and "://" not in line]
    return (lines[-1] if lines else "pip does not find it")[:200]
