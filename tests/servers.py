"""Pytest plugin (`-p tests.servers`): a data folder of this run's own, and private servers for the tests that need them.

A conftest would come too late: pytest-django reads the settings first. Only addresses are chosen here; the servers start when
the collected tests are known and one of them needs a database or a queue, so that pure tests wait for nothing.
Under `pytest -n` the controller starts one PostgreSQL while its workers collect, in which each worker has a database;
a Valkey each, because channels are shared by all databases of one. They end with the process that started them, kill -9 included.
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
SHARED = "RIDGEPOINT_TEST_ROOT"                                             # from the controller of `pytest -n` to its workers

_worker = os.environ.get("PYTEST_XDIST_WORKER", "") if SHARED in os.environ else ""
_root = Path(os.environ[SHARED]) if _worker else Path(tempfile.mkdtemp(prefix="rp-test-"))
_home = _root / _worker if _worker else _root
_home.mkdir(exist_ok=True)
if not _worker:
    os.environ[SHARED] = str(_root)
os.environ["RIDGEPOINT_HOME"] = str(_home)
os.environ["DATABASE_URL"] = f"postgresql://ridgepoint@/postgres?host={_root / 'pg' / 's'}&port={postgres.PORT}"
os.environ["REDIS_URL"] = f"unix://{redis.socket_path(_home / 'redis')}"
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


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """In the controller of `pytest -n`: the database server of all workers, while they collect."""
    options = session.config.option
    if getattr(options, "numprocesses", None) and not _worker and not options.core and not options.collectonly:
        start_postgres()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """In the process that runs the tests: what is still missing, before the first one that needs it."""
    if not _redis and needs_servers(item):
        if not _worker:
            start_postgres()
        _redis.append(redis.start(_home / "redis", tie_to_parent=True))
        assert _redis == [os.environ["REDIS_URL"]]


def start_postgres() -> None:
    """Start this run's server over a copy of a cluster that is kept between runs."""
    if not (_root / "pg" / "data").exists():
        copy_cluster(_root / "pg" / "data")
    assert postgres.start(_root / "pg" / "data", durable=False, tie_to_parent=True) == os.environ["DATABASE_URL"]


_redis: list[str] = []              # its address, once it runs
_seconds: dict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not _worker and not session.config.option.collectonly:
        remember(_seconds)


def pytest_unconfigure(config: pytest.Config) -> None:
    redis.stop(_home / "redis")
    if not _worker:
        postgres.stop(_root / "pg" / "data")
        shutil.rmtree(_root, ignore_errors=True)
