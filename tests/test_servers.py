"""Servers start for the tests that need them, and for no other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.product import PROJECT, clean_env

pytestmark = pytest.mark.process
SEEN = """
import os
from pathlib import Path

import pytest

ROOT = Path(os.environ["RIDGEPOINT_HOME"])


def test_pure():
    assert not (ROOT / "pg" / "data").exists() and not list(ROOT.rglob("redis.sock"))
"""
SERVED = """

@pytest.mark.servers
def test_served():
    import redis
    from django.conf import settings

    assert (ROOT / "pg" / "data" / "postmaster.pid").exists() and redis.Redis.from_url(settings.REDIS_URL).ping()
"""


@pytest.mark.deep_only
@pytest.mark.parametrize(("arguments", "passed"), [
    pytest.param(("-k", "pure"), "1 passed", id="chosen"),       # the chosen tests decide, not the collected ones
    pytest.param(("--core",), "1 passed", id="core", marks=pytest.mark.deep_only),
    pytest.param(("-k", "served"), "1 passed", id="alone", marks=pytest.mark.deep_only),
])
def test_a_run_starts_what_its_tests_need(arguments: tuple[str, ...], passed: str, tmp_path: Path) -> None:
    file = tmp_path / "test_seen.py"
    file.write_text(SEEN + SERVED)
    done = subprocess.run([sys.executable, "-m", "pytest", "-p", "no:playwright", "-p", "no:cacheprovider", "-c", "pyproject.toml",
                           "--rootdir", str(PROJECT), str(file), *arguments],
                          cwd=PROJECT, env=clean_env(tmp_path) | {"TMPDIR": "/tmp"}, capture_output=True, text=True)
    assert passed in done.stdout and done.returncode == 0, done.stdout + done.stderr
