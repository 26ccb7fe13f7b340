"""Pytest plugin (`-p tests.servers`): a data folder of this run's own, and private servers for the tests that need them.

A conftest would come too late: pytest-django reads the settings first. Only addresses are chosen here; the servers start when
the collected tests are known and one of them needs a database or a queue, so that pure tests wait for nothing.
They end with the process that started them, kill -9 included.
"""

import os
import shutil
import tempfile
from collections import defaultdict
from pathlib import Path

import pytest

from tests.kept.cluster import copy_cluster
from tests.run.core import NOT_CORE, has_core_tests
from tests.run.durations import remember
from webapp.embedded import postgres, redis

SERVERS = {"db", "transactional_db", "django_db_setup", "live_server"}      # fixtures; the mark django_db names them as well

HOME = Path(tempfile.mkdtemp(prefix="rp-test-"))                            # of this run
os.environ["RIDGEPOINT_HOME"] = str(HOME)
os.environ["DATABASE_URL"] = f"postgresql://ridgepoint@/postgres?host={HOME / 'pg' / 's'}&port={postgres.PORT}"
os.environ["REDIS_URL"] = f"unix://{redis.socket_path(HOME / 'redis')}"
for _name in ("RIDGEPOINT_S3_BUCKET", "RIDGEPOINT_SIGN_IN", "RIDGEPOINT_HOSTS"):      # tests state what they need
    os.environ.pop(_name, None)


def needs_servers(item: pytest.Item) -> bool:
    """Whether a test uses this run's PostgreSQL or Valkey: by the mark `django_db` or `servers`, or by a fixture."""
    marked = item.get_closest_marker("django_db") or item.get_closest_marker("servers")
    return bool(marked) or not SERVERS.isdisjoint(getattr(item, "fixturenames", ()))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --core, what holds no core test is not even imported."""
    if not config.option.core:
        return None
    if collection_path.is_dir():
        return collection_path.name in ("browser", "gpu") or None
    return (collection_path.suffix == ".py" and not has_core_tests(collection_path)) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.core:
        core = [item for item in items if not needs_servers(item) and not any(map(item.get_closest_marker, NOT_CORE))]
        chosen = set(core)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = core


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--core", action="store_true", help="only tests that need no server, no browser, no GPU and no second process")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start both servers before the first test that needs them, PostgreSQL over a copy of a cluster that is kept between runs."""
    if not (HOME / "pg" / "data").exists() and needs_servers(item):
        copy_cluster(HOME / "pg" / "data")
        assert postgres.start(HOME / "pg" / "data", durable=False, tie_to_parent=True) == os.environ["DATABASE_URL"]
        assert redis.start(HOME / "redis", tie_to_parent=True) == os.environ["REDIS_URL"]


_seconds: dict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not session.config.option.collectonly:
        remember(_seconds)


def pytest_unconfigure(config: pytest.Config) -> None:
    redis.stop(HOME / "redis")
    postgres.stop(HOME / "pg" / "data")
    shutil.rmtree(HOME, ignore_errors=True)
