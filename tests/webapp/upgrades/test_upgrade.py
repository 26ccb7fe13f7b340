"""Databases of earlier versions are brought to the newest schema with all they hold, and the pages open."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.product import PROJECT

pytestmark = [pytest.mark.process, pytest.mark.servers, pytest.mark.slow]

FOLDER = PROJECT / "tests" / "data" / "upgrades"
DUMPS = sorted(FOLDER.glob("*.sql.gz"))
# what people made or measured: nothing of it may be lost on the way
KEPT = ("profiles_profile", "profiles_kernelstat", "profiles_finding", "profiles_launchcounters", "profiles_kernelfamily",
        "profiles_ceilingrun", "tuner_tunejob", "tuner_trialrow", "tuner_cacheentry", "tuner_suite", "tuner_gate",
        "tuner_kernelrun", "auth_user")
PAGES = ("/", "/profiles/", "/kernels/", "/tune/", "/gates/", "/suites/", "/builds/", "/cache/", "/environments/", "/captures/",
         "/ceilings/", "/regressions/", "/fleet/", "/api/profiles/", "/api/tune/", "/api/gates/",
         "/tune/1/", "/gates/1/", "/suites/1/")


def run(url: str, home: Path, *command: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("DJANGO_")}
    return subprocess.run([sys.executable, *command], cwd=PROJECT, text=True, capture_output=True, timeout=240,
                          env=env | {"DATABASE_URL": url, "RIDGEPOINT_HOME": str(home)})


def counts(url: str) -> dict[str, int]:
    with psycopg.connect(url) as connection:
        found = {}
        for table in KEPT:
            if connection.execute("SELECT to_regclass(%s)", [table]).fetchone() != (None,):
                row = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
                found[table] = row[0] if row else -1
        return found


@pytest.fixture(params=[DUMPS[0], *(pytest.param(path, marks=pytest.mark.deep_only) for path in DUMPS[1:])],
                ids=[path.name.removesuffix(".sql.gz") for path in DUMPS])
def earlier(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a database that holds a dump."""
    server, name = os.environ["DATABASE_URL"], f"upgrade_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    url = server.replace("/postgres?", f"/{name}?")
    assert url != server
    try:
        with psycopg.connect(url) as connection:
            connection.execute(gzip.decompress(request.param.read_bytes()))
        yield url
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_an_earlier_database_is_migrated_with_all_it_holds(earlier: str, tmp_path: Path) -> None:
    before = counts(earlier)
    assert before["profiles_profile"] == 3 and before["tuner_trialrow"] > 20 and before["tuner_gate"] == 2
    with psycopg.connect(earlier) as connection:
        ids = [row[0] for row in connection.execute("SELECT id FROM profiles_profile ORDER BY id")]
    migrated = run(earlier, tmp_path, "manage.py", "migrate", "-v0")
    assert migrated.returncode == 0, migrated.stderr
    assert "lock" not in migrated.stderr            # its tables are small
    after = counts(earlier)
    assert {table: after[table] for table in before} == before
    pages = [*PAGES, *(f"/profiles/{pk}/" for pk in ids), *(f"/profiles/{pk}/kernels/" for pk in ids)]
    opened = run(earlier, tmp_path, "-m", "tests.webapp.upgrades.open_pages", *pages)
    assert opened.returncode == 0, opened.stderr
    statuses = json.loads(opened.stdout)
    assert {path: status for path, status in statuses.items() if status != 200} == {}


def test_every_dump_has_its_row() -> None:
    said = (FOLDER / "README.md").read_text()
    assert len(DUMPS) >= 3 and all(f"`{path.name}`" in said for path in DUMPS)
