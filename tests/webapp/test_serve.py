"""`make run` as a person meets it: one process that starts everything, says where it is, and leaves nothing behind.

A start takes seconds of processor time, so one product serves all tests, over a bucket; the first one is killed as soon as
everything of it runs, and what ends the other comes last.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest
import requests
from moto.server import ThreadedMotoServer
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.conftest import BUCKET
from tests.product import PROJECT, START_WITHIN_S, Product, clean_env
from tests.waiting import until
from webapp.embedded import postgres
from webapp.management import served
from webapp.management.commands.serve import DEFAULT_PORT

pytestmark = [pytest.mark.process, pytest.mark.servers]
PASSWORD = "correct horse battery"
SERVED = "ridgepoint-serve"         # the bucket of the module's product
MAKE_TOKEN = """
from django.contrib.auth import get_user_model
from profiles.models import Profile
from webapp.models import ApiToken
from webapp.roles import role_set
robot = get_user_model().objects.create_user("robot")
role_set(robot, "engineer")
print(Profile.objects.count(), ApiToken.objects.create(robot, name="test")[1])
"""
EVERYTHING = {"web", "worker ingest", "worker replay", "worker messages"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("serve")


@dataclass(frozen=True)
class FirstVisit:
    """Commands that were begun together where nothing was ever started, what stayed of them, and what a later one saw."""

    runs: list[subprocess.CompletedProcess[str]]
    left: list[str]
    profiles: str
    token: str              # may write over the API


@pytest.fixture(scope="module")
def first_visit(home: Path) -> FirstVisit:
    begun = [subprocess.Popen([sys.executable, str(PROJECT / "manage.py"), "createcachetable"], env=clean_env(home),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    told = [each.communicate(timeout=START_WITHIN_S) for each in begun]
    left = left_over(home)
    later = manage(home, "shell", "-v0", "-c", MAKE_TOKEN)
    assert later.returncode == 0, later.stderr
    runs = [subprocess.CompletedProcess(run.args, run.returncode, *words) for run, words in zip(begun, told, strict=True)]
    return FirstVisit(runs, left + left_over(home), *later.stdout.split())


class Kept:
    """The product over the module's folder: one for all tests, started again only after a test that ends it."""

    def __init__(self, home: Path, bucket: dict[str, str]) -> None:
        """`bucket`: the environment that names one."""
        self.home, self.bucket = home, bucket
        self.product: Product | None = None

    def start(self, *arguments: str, **env: str) -> Product:
        self.product = Product(self.home, "--gpus", "0", *arguments, env=env)
        self.product.wait_until_up()
        return self.product

    def kill(self) -> list[psutil.Process]:
        """Kill it, where it runs, as nothing but SIGKILL does; return what outlives it."""
        if self.product is None or self.product.process.poll() is not None:
            return []
        mine = list(children(self.product).values())
        self.product.process.kill()
        self.product.process.wait()
        return psutil.wait_procs(mine, timeout=60)[1]


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    """A client of a bucket on an S3-compatible server of this process."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    client = boto3.client("s3", endpoint_url="http://{}:{}".format(*server.get_host_and_port()), aws_access_key_id="test",
                          aws_secret_access_key="test", region_name="us-east-1")
    client.create_bucket(Bucket=SERVED)
    yield client
    server.stop()


@pytest.fixture(scope="module")
def kept(home: Path, first_visit: FirstVisit, store: Any) -> Iterator[Kept]:
    """The usual port is taken: by another test's product, else here."""
    one = Kept(home, {"RIDGEPOINT_S3_BUCKET": SERVED, "AWS_ENDPOINT_URL_S3": store.meta.endpoint_url, "AWS_ACCESS_KEY_ID": "test",
                      "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"})
    with socket.socket() as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            ours.bind(("127.0.0.1", DEFAULT_PORT))
            ours.listen()
        yield one
    if one.product is not None:
        if one.product.stop() == -signal.SIGKILL:
            end_servers(home)       # those of a product that was killed stay for the next start: here none came
        until(lambda: not left_over(home))


@pytest.fixture
def running(kept: Kept) -> Product:
    return kept.product if kept.product is not None and kept.product.process.poll() is None else kept.start(**kept.bucket)


def left_over(home: Path) -> list[str]:
    """Processes that still use the folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd", "status"]):
        told = process.info
        if told["status"] != psutil.STATUS_ZOMBIE and str(home) in " ".join([*(told["cmdline"] or []), told["cwd"] or ""]):
            found.append(f"{process.pid}: {told['cmdline']}")
    return found


def end_servers(home: Path) -> None:
    for process in psutil.process_iter(["cwd"]):
        if str(home) in (process.info["cwd"] or ""):
            with contextlib.suppress(psutil.Error):
                process.kill()


def manage(home: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(PROJECT / "manage.py"), *arguments], env=clean_env(home) | env, text=True,
                          capture_output=True, timeout=START_WITHIN_S)


def children(product: Product) -> dict[str, psutil.Process]:
    """Supervised processes by what they run: "web", "worker ingest", "worker replay"."""
    found = {}
    for child in psutil.Process(product.process.pid).children():
        try:
            words = child.cmdline()
        except psutil.Error:        # dead since, not yet reaped
            continue
        if "web" in words or "worker" in words:
            found[" ".join(word for word in words[2:] if not word.startswith("--") and not word.isdigit())] = child
    return found


def ask_socket(product: Product, **headers: Any) -> Any:
    return connect(product.url.replace("http", "ws") + "/ws/live/", **{"origin": product.url, **headers})


def test_a_command_on_a_fresh_checkout_starts_migrates_answers_and_leaves(first_visit: FirstVisit) -> None:
    """So do several at once: they share the servers, and one of them makes the tables."""
    assert [(run.returncode, run.stdout) for run in first_visit.runs] == [(0, "")] * 2, [run.stderr for run in first_visit.runs]
    assert first_visit.profiles == "0" and first_visit.left == []


def test_killed_it_takes_its_children_with_it(kept: Kept) -> None:
    """The tests below are those of the next start."""
    product = kept.start(**kept.bucket)
    until(lambda: set(children(product)) == EVERYTHING, START_WITHIN_S)
    assert kept.kill() == []


def test_everything_is_there(running: Product) -> None:
    status, body = running.get("/health/")
    assert status == 200 and json.loads(body)["status"] == "ok"
    assert running.get("/")[0] == 200 and running.get("/static/bokeh/js/bokeh.min.js")[0] == 200
    # the web first, then the workers, as many at once as there are cores
    until(lambda: {queue for worker in running.get_json("/api/workers/")["workers"] for queue in worker["queues"]}
          == {"ingest", "small", "replay", "messages"}, START_WITHIN_S)
    assert set(children(running)) == EVERYTHING


def test_the_log_is_prefixed_with_who_speaks(running: Product) -> None:
    assert all(" | " in line or line.startswith("Ridgepoint is at") for line in running.log.splitlines()), running.log
    assert any(line.startswith("ingest ") for line in running.lines)


def test_the_next_port_is_used_where_the_usual_one_is_taken(running: Product) -> None:
    assert not running.url.endswith(f":{DEFAULT_PORT}") and f"port {DEFAULT_PORT} is taken, using" in running.log


def test_where_it_answers_is_noted_for_commands_beside_it(running: Product, home: Path) -> None:
    assert (home / served.FILE).read_text().strip() == running.url.rstrip("/")


def test_a_real_socket_watches(running: Product) -> None:
    def answer() -> Any:
        with contextlib.suppress(InvalidStatus), ask_socket(running) as page:
            page.send(json.dumps({"watch": ["home"]}))
            return json.loads(page.recv(timeout=60))
        return None         # a server has just come back: a page connects again by itself

    assert until(answer) == {"event": "watching", "data": {"topics": ["home"]}}


@pytest.mark.parametrize("headers", [{"origin": "http://evil.example"}, {"origin": None}])
def test_a_real_socket_from_elsewhere_is_refused(running: Product, headers: dict[str, Any]) -> None:
    with pytest.raises(InvalidStatus) as refused, ask_socket(running, **headers):
        pass
    assert refused.value.response.status_code == 403


def test_a_foreign_host_name_is_refused(running: Product) -> None:
    assert running.get("/", Host="rebound.example")[0] == 400


def test_a_dying_web_and_a_dying_worker_come_back(running: Product) -> None:
    before = children(running)
    before["web"].kill()
    before["worker messages"].kill()              # the one that imports least
    until(lambda: set(now := children(running)) == EVERYTHING
          and all(now[name].pid != before[name].pid for name in ("web", "worker messages")), START_WITHIN_S)
    assert running.get("/health/")[0] == 200      # asked while it restarts: it waits, and is answered
    assert "web was killed by SIGKILL; starting it again" in running.log
    assert children(running)["worker replay"].pid == before["worker replay"].pid


def test_dying_private_servers_come_back(running: Product, home: Path) -> None:
    postmaster = postgres.alive(home / "pg" / "data")
    assert postmaster is not None
    os.kill(postmaster, signal.SIGKILL)
    os.kill(int((home / "redis" / "redis.pid").read_text()), signal.SIGKILL)
    until(lambda: "PostgreSQL had died" in running.log and "Valkey had died" in running.log, START_WITHIN_S)
    until(lambda: running.get("/health/")[0] == 200, START_WITHIN_S)
    running.get_json("/api/profiles/")


def test_a_stopped_valkey_is_waited_for_and_not_replaced(running: Product, home: Path) -> None:
    pid = int((home / "redis" / "redis.pid").read_text())
    deaths = running.log.count("Valkey had died")
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: running.get("/health/ready")[0] == 503)       # seconds of silence: the supervisor looked many times
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: running.get("/health/")[0] == 200)
    assert running.log.count("Valkey had died") == deaths
    assert [line for line in left_over(home) if "valkey-server" in line and not line.startswith(f"{pid}:")] == []
    assert set(children(running)) == EVERYTHING


def test_a_chosen_port_that_is_taken_is_an_error_that_says_what_to_do(home: Path, running: Product) -> None:
    port = int(running.url.rpartition(":")[2])
    answer = manage(home, "serve", "--port", str(port))
    assert answer.returncode == 1 and f"cannot listen on 127.0.0.1:{port}" in answer.stderr and f"PORT={port + 1}" in answer.stderr
    assert running.get("/health/")[0] == 200      # whoever leaves beside it leaves the servers alone


def stops_clean(product: Product, number: int) -> None:
    """It ends with code 0 and takes its children with it, none of which had to be killed."""
    mine = list(children(product).values())
    assert product.stop(number) == 0, product.log
    until(lambda: "stopped" in product.lines[-1])
    assert "was killed" not in product.log.rpartition("stopping")[2], product.log
    assert not psutil.wait_procs(mine, timeout=10)[1]


def test_a_trace_goes_up_and_is_read_back_from_the_bucket_and_it_stops_clean(
        running: Product, kept: Kept, first_visit: FirstVisit, store: Any) -> None:
    upload_and_read(running, first_visit.token)
    with ask_socket(running):                       # an open page does not hold it up
        stops_clean(running, signal.SIGINT)
    until(lambda: not left_over(kept.home))         # nor the servers: nobody is there any more
    keys = {row["Key"] for row in store.list_objects_v2(Bucket=SERVED)["Contents"]}
    assert any(key.startswith("uploads/") and key.endswith("/t.json") for key in keys), keys
    assert any(key.endswith("slices.parquet") for key in keys), keys
    assert not (kept.home / "store").exists()


@pytest.mark.deep_only          # tests/ways/ signs in to every product that it walks through
def test_the_next_start_after_a_kill_works_for_people_who_sign_in_and_over_a_bucket(
        kept: Kept, first_visit: FirstVisit, bucket: Any) -> None:
    """On all interfaces people sign in. A trace goes up with a token, is ingested and read back: columns live in S3."""
    kept.kill()
    product = kept.start("--host", "0.0.0.0", RIDGEPOINT_S3_BUCKET=BUCKET, AWS_ENDPOINT_URL_S3=bucket.meta.endpoint_url)
    try:
        assert product.get("/health/")[0] == 200 and "createowner" in product.log
        assert product.get("/api/workers/")[0] == 401
        owner = manage(kept.home, "createowner", "olga", RIDGEPOINT_PASSWORD=PASSWORD)        # as it said
        assert owner.returncode == 0 and owner.stdout == "", owner.stderr
        olga = signed_in(product, "olga")
        upload_and_read(product, first_visit.token)
        with ask_socket(product, additional_headers={"Cookie": olga}):       # an open page does not hold it up
            stops_clean(product, signal.SIGINT)
    finally:
        product.stop()
    until(lambda: not left_over(kept.home))         # nor the servers: nobody is there any more
    keys = {row["Key"] for row in bucket.list_objects_v2(Bucket=BUCKET)["Contents"]}
    assert any(key.startswith("uploads/") and key.endswith("/t.json") for key in keys), keys
    assert any(key.endswith("slices.parquet") for key in keys), keys
    assert not (kept.home / "store").exists()


def signed_in(product: Product, name: str) -> str:
    """Sign in as the first page asks; return the cookies."""
    browser = requests.Session()
    page = browser.get(f"{product.url}/", timeout=60)
    assert page.status_code == 200 and "/accounts/login/" in page.url and "password" in page.text
    browser.post(page.url, timeout=60, headers={"Referer": page.url}, data={
        "username": name, "password": PASSWORD, "csrfmiddlewaretoken": browser.cookies["csrftoken"]})
    assert browser.get(f"{product.url}/api/workers/", timeout=60).status_code == 200
    return "; ".join(f"{each}={value}" for each, value in browser.cookies.items())


def upload_and_read(product: Product, token: str) -> None:
    program = requests.Session()
    program.headers["Authorization"] = f"Token {token}"
    with gzip.open(PROJECT / "tests" / "data" / "h200" / "kineto_layer.json.gz") as trace:
        answer = program.post(f"{product.url}/api/profiles/", files={"file": ("t.json", trace)}, timeout=60)
    assert answer.status_code == 201, answer.text
    here = f"{product.url}/api/profiles/{answer.json()['id']}/"
    until(lambda: program.get(here, timeout=60).json()["status"] in ("ready", "failed"), START_WITHIN_S)
    profile = program.get(here, timeout=60).json()
    assert profile["status"] == "ready" and profile["launches"] > 0, profile
    timeline = program.get(here + "timeline/", timeout=60).json()
    assert timeline.get("tracks"), (timeline, product.log)


@pytest.mark.deep_only          # every worker of tests/workers/core/test_worker.py has them named
def test_named_servers_are_used_and_left_alone(tmp_path: Path) -> None:
    """DATABASE_URL and REDIS_URL of the environment: here, those of this test run."""
    named = {name: os.environ[name] for name in ("DATABASE_URL", "REDIS_URL")}
    code = "from django.conf import settings as s; print(s.DATABASES['default']['HOST'])"
    answer = manage(tmp_path, "shell", "-v0", "-c", code, **named)
    assert answer.stdout.strip() in named["DATABASE_URL"]
    assert not (tmp_path / "pg").exists() and not (tmp_path / "redis").exists()
    with socket.socket(socket.AF_UNIX) as redis:
        redis.connect(named["REDIS_URL"].removeprefix("unix://"))


@pytest.mark.parametrize(("arguments", "code"), [
    pytest.param(("worker", "ingest"), 1, marks=pytest.mark.deep_only), (("gate", "somewhere", "build"), 3)])
def test_a_command_says_in_a_sentence_that_a_server_is_away(tmp_path: Path, arguments: tuple[str, ...], code: int) -> None:
    away = {"DATABASE_URL": f"postgresql://ridgepoint@/postgres?host={tmp_path}&port=1", "REDIS_URL": f"unix://{tmp_path}/none"}
    answer = manage(tmp_path, *arguments, **away)
    assert answer.returncode == code and "the database does not answer at the moment" in answer.stderr
    assert "Traceback" not in answer.stderr, answer.stderr
