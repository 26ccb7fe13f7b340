"""Make sure that PostgreSQL and Redis answer: those named in the environment, else private ones."""

import os
from pathlib import Path

from webapp.embedded import postgres, redis


def servers(project: Path) -> None:
    home = Path(os.environ.get("RIDGEPOINT_HOME", project / "var"))
    if "DATABASE_URL" not in os.environ:
        os.environ["DATABASE_URL"] = postgres.start(home / "pg" / "data")
    if "REDIS_URL" not in os.environ:
        os.environ["REDIS_URL"] = redis.start(home / "redis")
