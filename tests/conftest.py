"""People, API clients, and a whole running product for the tests that need one.

alice may upload, tune and capture (engineer); bob reads (viewer); olga manages (owner).
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from django.conf import settings
from django.core.management import call_command
from django.core.management.commands import flush
from django.db import connection
from django.db.backends.postgresql.operations import DatabaseOperations

from tests.kept.cluster import WITH_TABLES
from tests.kept.folder import cache_folder
from tests.product import Product, seed_database
from tests.scale import CHANGED_KERNELS, DEEP

BUCKET = "ridgepoint-test"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER_ARGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
                "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
                "--disable-site-isolation-trials", "--renderer-process-limit=1",        # a process for each page costs 0.2 s
                "--js-flags=--no-opt,--no-maglev"]      # what optimises scripts costs more than pages that are soon left gain: 7 %


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of garbage collections: they took 9 % of a run's processor time, then 4 %."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def chromium() -> str | None:
    return os.environ.get("RIDGEPOINT_CHROMIUM") or next(filter(None, map(shutil.which, CHROMIUM)), None)


NEEDS = {       # marker -> is it there, what to say when it is not
    "browser": (chromium, "no chromium on this machine: apt-get install chromium, or RIDGEPOINT_CHROMIUM=path"),
    "torch": (lambda: find_spec("torch") and find_spec("triton"), "torch and Triton are not installed (make test tries)"),
    "git": (lambda: shutil.which("git"), "no git on this machine: apt-get install git"),
    "gpu": (lambda: shutil.which("nvidia-smi"), "no NVIDIA GPU on this machine (make test-gpu runs these where there is one)"),
}


def pytest_configure(config: pytest.Config) -> None:
    """Passwords cost nothing here: the real hasher takes 0.3 s by design, and nearly every test has a person in it.

    Nor do static files: each test's client has middleware of its own, and would list and compress every file of the site
    as a server does once when it starts (0.04 s, with a data folder of its own 0.75 s). webapp/test_static.py does so.
    """
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    settings.WHITENOISE_AUTOREFRESH = True
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "tests.answers.CheckAnswers"]
    # a machine with other work does not make an example wrong
    hypothesis.settings.register_profile("busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
    hypothesis.settings.load_profile("busy")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that need what this machine lacks are skipped and say so; browser tests are marked and come last.

    Playwright's synchronous API keeps an event loop running in this thread until the session ends: no other
    asynchronous test could run after it.
    """
    lacking = {marker: reason for marker, (there, reason) in NEEDS.items() if not there()}
    for item in items:
        if item.nodeid.startswith(("tests/browser/", "tests/ways/")):
            item.add_marker("browser")
        if (database := item.get_closest_marker("django_db")) and database.kwargs.get("transaction"):
            # with the apps named, Django would make content types, permissions and roles anew before each test
            item.add_marker(pytest.mark.django_db(**{**database.kwargs, "available_apps": None}), append=False)
        if item.get_closest_marker("deep_only"):
            item.add_marker("deep")
            if not DEEP and not is_of_changed_kernel(item):
                item.add_marker(pytest.mark.skip(reason="make test-deep"))
        for marker, reason in lacking.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)


def is_of_changed_kernel(item: pytest.Item) -> bool:
    """Return whether a test is about a kernel that `make test-changed` found changed: then all of its architectures and shapes."""
    changed = os.environ.get(CHANGED_KERNELS, "")
    if not changed or item.get_closest_marker("kernel") is None:
        return False
    from tests.tuner.measure.chosen import kernel_files

    return bool(kernel_files(item) & set(changed.split(os.pathsep)))


def _person(name: str, role: str) -> Any:
    from django.contrib.auth import get_user_model
    from django.contrib.auth.models import Group
    from django.core.management.sql import emit_post_migrate_signal

    from webapp.roles import role_set

    if not Group.objects.exists():        # a transactional test before this one emptied every table
        emit_post_migrate_signal(verbosity=0, interactive=False, db="default")
    user = get_user_model().objects.create_user(name, f"{name}@example.org", "correct horse battery")
    role_set(user, role)
    return user


@pytest.fixture
def alice(db: None) -> Any:
    """An engineer."""
    return _person("alice", "engineer")


@pytest.fixture
def bob(db: None) -> Any:
    """A viewer."""
    return _person("bob", "viewer")


@pytest.fixture
def olga(db: None) -> Any:
    """An owner."""
    return _person("olga", "owner")


@pytest.fixture
def sign_in_mode(settings: Any) -> None:
    """As on a shared server: nobody is let in without signing in."""
    settings.LOCAL_MODE = False


@pytest.fixture
def api(db: None) -> Callable[..., Any]:
    """`api(alice)` is an API client with a token of hers; `api()` one without."""
    from rest_framework.test import APIClient

    from webapp.models import ApiToken

    def client_of(person: Any = None, scope: str = "write") -> Any:
        client = APIClient()
        if person is not None:
            _, token = ApiToken.objects.create(person, name="test", scope=scope)
            client.credentials(HTTP_AUTHORIZATION=f"Token {token}")
        return client
    return client_of


@pytest.fixture(scope="session")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """Everything as `make run` starts it, as processes of their own, with a database and a data folder of their own."""
    home = tmp_path_factory.mktemp("product")
    seed_database(home)
    started = Product(home)
    try:
        started.wait_until_up()
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="session")
def server_url(product: Product) -> str:
    """The address of the running product, in single-user local mode, empty at first."""
    return product.url


@pytest.fixture(scope="session")
def base_url(request: pytest.FixtureRequest) -> str:
    """So that `page.goto("/")` works in browser tests."""
    return request.getfixturevalue("server_url")


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    return {**browser_type_launch_args, "executable_path": chromium(), "args": BROWSER_ARGS}


# filled by the migrations' signal; tests change none of them but add projects
KEPT_TABLES = {"django_content_type", "auth_permission", "auth_group", "auth_group_permissions", "webapp_project"}


def empty_filled_tables(operations: DatabaseOperations, style: Any, tables: Iterable[str], **options: Any) -> list[str]:
    """Return the SQL that empties the tables which hold rows.

    TRUNCATE takes all tables that refer to these as well, a file for each and each of their indexes: half a second. The few rows
    of a test are deleted in a millisecond. All rows go, so nothing is left that could refer to one: no trigger has to look.
    """
    with operations.connection.cursor() as cursor:
        cursor.execute(HAVE_HAD_ROWS, [[table for table in tables if table not in KEPT_TABLES]])
        asked = [table for table, in cursor.fetchall()]
        cursor.execute(" UNION ALL ".join(["SELECT '' WHERE false", *(
            f"SELECT '{table}' WHERE EXISTS (SELECT FROM {operations.quote_name(table)})" for table in asked)]))
        filled = [table for table, in cursor.fetchall()]
    return ["SET LOCAL session_replication_role = replica", *(f"DELETE FROM {operations.quote_name(table)}" for table in filled),
            FIRST_PROJECT_ALONE]


# their files hold something: a session that opens every table only to find it empty takes 80 ms
HAVE_HAD_ROWS = """SELECT relname FROM pg_class WHERE relname = ANY(%s) AND relkind = 'r'
    AND relnamespace = 'public'::regnamespace AND pg_relation_size(oid) > 0"""
FIRST_PROJECT_ALONE = "DELETE FROM webapp_project WHERE id > (SELECT min(id) FROM webapp_project)"


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings: None, django_db_blocker: Any) -> None:
    """The tests' database is a copy of one that has its tables: that of the kept cluster, where one could be copied."""
    with django_db_blocker.unblock():
        with connection._nodb_cursor() as cursor:
            cursor.execute("SELECT FROM pg_database WHERE datname = %s", [WITH_TABLES])
            there = cursor.fetchone() is not None
        if not there:
            make_tables()
    connection.settings_dict["TEST"]["TEMPLATE"] = WITH_TABLES


def make_tables() -> None:
    name = connection.settings_dict["NAME"]
    with connection._nodb_cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {WITH_TABLES}")
    connection.close()
    connection.settings_dict["NAME"] = WITH_TABLES
    try:
        call_command("migrate", verbosity=0, interactive=False)
    finally:
        connection.close()              # a database with a connection is no template
        connection.settings_dict["NAME"] = name


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Rows begin far above the numbers under which tests store traces that have no row: one never finds another's objects.

    After a transactional test only what it filled is emptied.
    """
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute("SELECT setval(pg_get_serial_sequence('profiles_profile', 'id'), 1000000)")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DatabaseOperations, "sql_flush", empty_filled_tables)
        patch.setattr(flush, "emit_post_migrate_signal", lambda *arguments, **options: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def reports_read_once() -> Iterator[None]:
    """By NVIDIA's reader; all runs share what it said."""
    from profiles.ingest.ncu import report
    from tests.kept import reports

    folder = cache_folder() / "reports"
    folder.mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "_documents", reports.keeping(report._documents, folder))
        yield


@pytest.fixture(scope="session", autouse=True)
def recordings_ingested_once() -> Iterator[None]:
    """What an ingest in this process makes of the same bytes is kept."""
    from profiles.upload import ingest_run
    from tests.kept import ingests

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingest_run, "read_and_store", ingests.keeping(ingest_run.read_and_store))
        yield


@pytest.fixture
def reads_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of reading itself, and of what readers and store may do: nothing that was kept is used."""
    from tests.kept import ingests

    monkeypatch.setattr(ingests, "is_asked", False)


@pytest.fixture
def tmp_store(settings: Any, tmp_path: Path) -> Path:
    """An object store of the test's own."""
    settings.STORAGES = {**settings.STORAGES, "default": {
        "BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": {"location": tmp_path, "allow_overwrite": True}}}
    return tmp_path


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of an empty bucket on an S3-compatible server of this process; AWS_* hold its keys."""
    import boto3
    from moto.server import ThreadedMotoServer

    for name, value in {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    client = boto3.client("s3", endpoint_url=f"http://{host}:{port}")
    client.create_bucket(Bucket=BUCKET)
    yield client
    for row in client.list_objects_v2(Bucket=BUCKET).get("Contents", []):       # moto's state outlives its server
        client.delete_object(Bucket=BUCKET, Key=row["Key"])
    server.stop()
