"""The product while its database or Valkey is away, while the disk is full, and while very many ask at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
import redis
import requests
from django.conf import settings as django_settings
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import DatabaseError, connection, transaction
from django.test import Client
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from profiles.models import Profile
from tests.product import Product, seed_database
from tests.socket_visitor import SocketVisitor
from tests.waiting import until
from tuner.gate import client as gate_client
from tuner.models import TuneJob
from webapp import slots
from webapp.asgi import application
from webapp.embedded import postgres
from webapp.embedded import redis as embedded_redis
from webapp.live import TRY_AGAIN_LATER
from webapp.outage import CONFLICT, DATABASE_AWAY, FULL, VALKEY_AWAY, outage_of
from workers import jobs, sweep

pytestmark = pytest.mark.process

TRACE = {"traceEvents": [
    {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {"device": 0, "stream": 7}}]}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outage")
    seed_database(folder)
    return folder


@pytest.fixture(scope="module")
def running(home: Path) -> Iterator[Product]:
    product = Product(home)
    try:
        product.wait_until_up()
        yield product
    finally:
        product.stop()


@contextmanager
def nobody_restarts(product: Product) -> Iterator[None]:
    """The supervisor sleeps, so that what was killed stays away."""
    os.kill(product.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(product.process.pid, signal.SIGCONT)


def status(product: Product, path: str) -> int:
    return requests.get(product.url + path, timeout=60).status_code


def refused(product: Product, path: str) -> None:
    """503 as a page in the site's frame and as the API's error, both with the time to come again."""
    page, answer = (requests.get(product.url + prefix + path, timeout=60) for prefix in ("", "/api"))
    assert (page.status_code, answer.status_code) == (503, 503), product.log
    assert int(page.headers["Retry-After"]) > 0 and int(answer.headers["Retry-After"]) > 0
    assert 'class="topbar"' in page.text and "does not answer at the moment." in page.text
    assert set(answer.json()) == {"error", "where", "hint"} and "does not answer" in answer.json()["error"]


def test_pages_come_back_with_the_database_and_the_gate_client_waits_for_it(running: Product, home: Path) -> None:
    with ThreadPoolExecutor(12) as pool:        # several connections, all of which will be broken
        assert set(pool.map(lambda _: status(running, "/profiles/"), range(12))) == {200}
        postmaster = postgres.alive(home / "pg" / "data")
        assert postmaster is not None
        with nobody_restarts(running):
            os.kill(postmaster, signal.SIGKILL)
            began = time.monotonic()
            for _ in range(5):
                refused(running, "/profiles/")
            assert time.monotonic() - began < 20            # 15 s each when a pool waited for connections
            said: list[str] = []
            server = gate_client.Server(running.url, "", patience_s=90, say=said.append)
            asked = pool.submit(server.ask, "GET", "/api/profiles/")
            until(lambda: said)
            time.sleep(3)                       # tries of a pool would lie further apart by now
        until(lambda: ready(home))
        began = time.monotonic()
        until(lambda: status(running, "/profiles/") == 200)
        assert time.monotonic() - began < 10
        assert set(pool.map(lambda _: status(running, "/profiles/"), range(12))) == {200}
        assert json.loads(asked.result(90))["results"] == running.get_json("/api/profiles/")["results"]
        assert "answers 503; trying again" in said[0]
    assert "Traceback" not in running.log, running.log


def ready(home: Path) -> bool:
    address = f"postgresql://ridgepoint@/postgres?host={home / 'pg' / 's'}&port={postgres.PORT}"
    try:
        psycopg.connect(address, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def test_an_upload_while_valkey_is_away_is_stored_once_and_read_when_it_is_back(running: Product, home: Path) -> None:
    visitor = requests.Session()
    visitor.get(running.url + "/")
    with nobody_restarts(running):
        os.kill(int((home / "redis" / "redis.pid").read_text()), signal.SIGKILL)
        refused(running, "/workers/")
        assert status(running, "/profiles/") == 200          # asks Valkey nothing
        answer = visitor.post(running.url + "/api/profiles/", files={"file": ("one.json", json.dumps(TRACE))}, timeout=60,
                              headers={"X-CSRFToken": visitor.cookies["csrftoken"]})
        assert answer.status_code == 201, answer.text
    [row] = running.get_json("/api/profiles/")["results"]
    assert row["id"] == answer.json()["id"]
    until(lambda: running.get_json(f"/api/profiles/{row['id']}/")["status"] == "ready")
    assert "Traceback" not in running.log, running.log


def is_web(process: psutil.Process) -> bool:
    try:
        return "web" in process.cmdline()[2:3]
    except psutil.NoSuchProcess:        # a query's or a stage's, which ended meanwhile
        return False


def test_many_at_once_are_answered_or_told_to_come_again_by_few_threads(running: Product) -> None:
    assert status(running, "/profiles/") == 200
    [web] = [each for each in psutil.Process(running.process.pid).children(recursive=True) if is_web(each)]
    most, done = [web.num_threads()], threading.Event()

    def count() -> None:
        while not done.wait(0.02):
            most.append(web.num_threads())

    with ThreadPoolExecutor(81) as pool:
        pool.submit(count)
        answers = list(pool.map(lambda number: requests.get(f"{running.url}/profiles/?q={number}", timeout=120), range(80)))
        done.set()
    assert {answer.status_code for answer in answers} <= {200, 503} and answers[0].status_code == 200
    assert all(answer.headers["Retry-After"] for answer in answers if answer.status_code == 503)
    assert max(most) < most[0] + slots.SLOTS + 10


def test_no_message_of_a_socket_is_a_fault(running: Product) -> None:
    address = running.url.replace("http", "ws") + "/ws/live/"
    with connect(address, origin=running.url) as socket:
        for text in ("[" * 100_000, '{"a":' * 100_000, "no JSON"):
            socket.send(text)
            assert json.loads(socket.recv(20))["event"] == "error"
        socket.send(b"\x00\xff")
        assert json.loads(socket.recv(20))["event"] == "error"
        socket.send("x" * (2 << 20))
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(20)
        assert closed.value.rcvd and closed.value.rcvd.code == 1009         # too big
    assert "Traceback" not in running.log, running.log


# ---- in this process, over servers and disks that are really away or full ----

@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """A folder on a disk of so many MiB."""
    mounted: list[Path] = []

    def mount(mib: int) -> Path:
        folder = tmp_path / f"disk-{len(mounted)}"
        folder.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(folder)], capture_output=True)
        if done.returncode:
            pytest.skip("only root may mount a small disk here")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def valkey(settings: Any, tmp_path: Path) -> Iterator[Callable[[Path | None], redis.Redis]]:
    """`valkey(folder)`: the application's Valkey is now one over this folder; None: it is away."""
    started: list[Path] = []

    def use(folder: Path | None) -> redis.Redis:
        settings.REDIS_URL = embedded_redis.start(folder, tie_to_parent=True) if folder else f"unix://{tmp_path}/nobody.sock"
        started.extend([folder] if folder else [])
        jobs.connection.cache_clear()
        return jobs.connection()

    yield use
    for folder in started:
        embedded_redis.stop(folder)
    jobs.connection.cache_clear()


def upload(megabytes: float) -> SimpleUploadedFile:
    return SimpleUploadedFile("trace.json", os.urandom(int(megabytes * 2**20)), "application/json")


@pytest.mark.django_db(transaction=True, available_apps=django_settings.INSTALLED_APPS)
def test_a_full_store_refuses_with_507_and_stays_readable(alice: Any, settings: Any, small_disk: Callable[[int], Path]) -> None:
    settings.STORAGES = {**settings.STORAGES, "default": {
        "BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": {"location": small_disk(1), "allow_overwrite": True}}}
    client = Client(raise_request_exception=False)
    client.force_login(alice)
    answer = client.post("/api/profiles/", {"file": upload(3)})
    assert answer.status_code == 507 and "the disk is full" in answer.json()["error"] and "Retry-After" not in answer.headers
    page = client.post("/profiles/upload/", {"file": upload(3)})
    assert page.status_code == 507 and 'class="topbar"' in page.text and "The disk is full" in page.text
    assert not Profile.objects.exists()
    assert client.get("/profiles/").status_code == 200 and client.get("/api/profiles/").status_code == 200
    assert client.post("/api/profiles/", {"file": upload(0.1)}).status_code == 201


@pytest.mark.django_db(transaction=True, available_apps=django_settings.INSTALLED_APPS)
def test_a_full_disk_of_the_database_is_507(alice: Any, small_disk: Callable[[int], Path]) -> None:
    """The table of profiles lies on a disk of its own that others have filled."""
    place = small_disk(2)
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLESPACE small LOCATION '{place}'")
        try:
            cursor.execute("ALTER TABLE profiles_profile SET TABLESPACE small")
            (place / "others").write_bytes(bytes(2 << 20)[:_free(place)])
            client = Client(raise_request_exception=False)
            client.force_login(alice)
            said = [client.post("/api/profiles/", {"file": upload(0.01), "notes": os.urandom(4000).hex()}) for _ in range(20)]
            assert {each.status_code for each in said} <= {201, 507} and said[-1].status_code == 507
            assert "the disk is full" in said[-1].json()["error"]
            assert client.get("/profiles/").status_code == 200
        finally:
            cursor.execute("ALTER TABLE profiles_profile SET TABLESPACE pg_default")
            cursor.execute("DROP TABLESPACE small")


def _free(folder: Path) -> int:
    facts = os.statvfs(folder)
    return facts.f_bavail * facts.f_frsize


@pytest.mark.django_db(transaction=True, available_apps=django_settings.INSTALLED_APPS)
def test_a_full_disk_of_valkey_loses_no_upload(alice: Any, valkey: Any, tmp_store: Path, small_disk: Callable[[int], Path]) -> None:
    place = small_disk(3)
    client = valkey(place)
    with pytest.raises(redis.ResponseError, match="MISCONF") as told:
        for number in range(100):
            client.set(f"filling {number}", os.urandom(200_000))
            time.sleep(0.05)
    assert outage_of(told.value) == FULL
    with pytest.raises(redis.ResponseError) as queued:          # of a pipeline: said in other words
        jobs.enqueue("ingest", "analyse", 1)
    assert outage_of(queued.value) == FULL
    visitor = Client()
    visitor.force_login(alice)
    assert visitor.post("/api/profiles/", {"file": upload(0.1)}).status_code == 201
    assert Profile.objects.count() == 1


@pytest.mark.django_db(transaction=True, available_apps=django_settings.INSTALLED_APPS)
def test_what_is_stored_while_valkey_is_away_is_an_ordinary_success_and_found_by_the_sweep(
        alice: Any, valkey: Any, tmp_store: Path, tmp_path: Path) -> None:
    valkey(None)
    visitor = Client(raise_request_exception=False)
    visitor.force_login(alice)
    made = visitor.post("/api/profiles/", {"file": upload(0.01)})
    assert made.status_code == 201
    profile = Profile.objects.get()
    address = f"/api/profiles/{profile.pk}/"
    assert visitor.patch(address, {"build": "b2"}, "application/json").status_code == 200
    asked = {"operator": "matmul", "shape": {"M": 4096, "N": 4096, "K": 4096}, "dtype": "bf16", "device": "gpu",
             "strategy": "random", "budget_trials": 5}
    tune = visitor.post("/api/tune/", asked, "application/json")
    assert tune.status_code == 201, tune.content
    Profile.objects.update(created="2026-01-01T00:00:00Z")
    TuneJob.objects.update(created="2026-01-01T00:00:00Z")
    valkey(tmp_path / "back")
    woken = sweep.sweep()
    assert woken["ingest"] == [profile.pk] and woken["tune"] == [tune.json()["id"]]
    assert visitor.delete(address).status_code == 204


async def test_a_socket_is_closed_to_come_again_while_valkey_is_away(settings: Any, tmp_path: Path) -> None:
    layer = settings.CHANNEL_LAYERS["default"]
    settings.CHANNEL_LAYERS = {"default": {**layer, "CONFIG": {**layer["CONFIG"], "hosts": [f"unix://{tmp_path}/nobody.sock"]}}}
    page = SocketVisitor(application, "/ws/live/", [(b"host", b"localhost"), (b"origin", b"http://localhost")], ("127.0.0.1", 5))
    await page.send_input({"type": "websocket.connect"})
    assert await page.receive_output(60) == {"type": "websocket.close", "code": TRY_AGAIN_LATER}
    await page.wait(5)


@pytest.mark.django_db
def test_only_what_is_away_or_full_is_an_outage() -> None:
    with pytest.raises(psycopg.OperationalError) as away:
        psycopg.connect("postgresql:///x?host=/nowhere")
    assert outage_of(away.value) == DATABASE_AWAY
    assert outage_of(redis.ConnectionError("gone")) == VALKEY_AWAY and outage_of(redis.BusyLoadingError("loading")) == VALKEY_AWAY
    with pytest.raises(DatabaseError) as wrong, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT nothing FROM nowhere")
    assert outage_of(wrong.value) is None
    with pytest.raises(DatabaseError) as met, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DO $$ BEGIN RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '40P01'; END $$")
    assert outage_of(met.value) == CONFLICT and "Retry-After" in CONFLICT.headers
    assert not any(map(outage_of, (None, ValueError("x"), FileNotFoundError(2, "no such file"))))
