"""What tests make once and keep for later runs, of other checkouts too.

It lies in the user's cache folder, named by all that it depends on; RIDGEPOINT_TEST_CACHE names another folder. What no run has
used for two weeks is removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
UNUSED_S = 14 * 86_400


def cache_folder() -> Path:
    named = os.environ.get("RIDGEPOINT_TEST_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ridgepoint-tests"


def digest_of(files: Iterable[Path], packages: Iterable[str] = ()) -> str:
    """Return a name for the state of these files of the project (whole folders too) and of these packages."""
    said = hashlib.sha256(sys.version.encode())
    for path in sorted(inner for each in files for inner in (each.rglob("*.py") if each.is_dir() else [each])):
        said.update(f"{path.relative_to(PROJECT)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    for name in packages:
        said.update(f"{name} {metadata.version(name)}\n".encode())
    return said.hexdigest()[:20]


def keep(kind: str, name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder of this kind and name, filled by `make` where it is not there; processes may ask at once."""
    folder = cache_folder() / kind
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = folder / name
        if not kept.exists():
            _remove_unused(folder)
            fresh = folder / f"{name}.fresh"
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir()
            try:
                make(fresh)
                fresh.rename(kept)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)        # where it failed
        with contextlib.suppress(OSError):      # another user's
            os.utime(kept)
    return kept


def _remove_unused(folder: Path) -> None:
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < time.time() - UNUSED_S:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
