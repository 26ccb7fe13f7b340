"""Pytest plugin (`-p tests.servers`): private servers and a data folder of this run's own, before Django's settings are read."""

import os
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

from webapp.embedded import postgres, redis

_root = Path(tempfile.mkdtemp(prefix="rp-test-"))
os.environ["RIDGEPOINT_HOME"] = str(_root)
os.environ["DATABASE_URL"] = postgres.start(_root / "pg" / "data", durable=False, tie_to_parent=True)
os.environ["REDIS_URL"] = redis.start(_root / "redis")


def pytest_unconfigure(config: object) -> None:
    postgres.stop(_root / "pg" / "data")
    with suppress(OSError, ValueError):
        os.kill(int((_root / "redis" / "redis.pid").read_text()), signal.SIGTERM)
    shutil.rmtree(_root, ignore_errors=True)
