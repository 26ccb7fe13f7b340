"""Pytest plugin (`-p tests.servers`): private servers and a data folder of this run's own, before Django's settings are read.

A conftest would come too late: pytest-django imports the settings first. The servers end with this process, kill -9 included.
"""

import os
import shutil
import tempfile
from pathlib import Path

from webapp.embedded import postgres, redis

_root = Path(tempfile.mkdtemp(prefix="rp-test-"))
os.environ["RIDGEPOINT_HOME"] = str(_root)
os.environ["DATABASE_URL"] = postgres.start(_root / "pg" / "data", durable=False, tie_to_parent=True)
os.environ["REDIS_URL"] = redis.start(_root / "redis", tie_to_parent=True)
for _name in ("RIDGEPOINT_S3_BUCKET", "RIDGEPOINT_SIGN_IN", "RIDGEPOINT_HOSTS"):      # tests state what they need
    os.environ.pop(_name, None)


def pytest_unconfigure(config: object) -> None:
    postgres.stop(_root / "pg" / "data")
    redis.stop(_root / "redis")
    shutil.rmtree(_root, ignore_errors=True)
