"""`make run` as a person meets it: one process that starts everything, says where it is, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.conftest import BUCKET
from tests.product import PROJECT, Product, clean_env, seed_database
from tests.servers import SHARED
from webapp.embedded import postgres
from webapp.management.commands.serve import DEFAULT_PORT

pytestmark = [pytest.mark.process, pytest.mark.servers]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("serve")


@pytest.fixture
def seeded(tmp_path: Path) -> Path:
    """A data folder whose database has its tables: what a second start finds."""
    seed_database(tmp_path, Path(os.environ[SHARED]))
    return tmp_path


@pytest.fixture(scope="module")
def running(home: Path) -> Iterator[Product]:
    product = Product(home)
    product.wait_until_up()
    yield product
    product.stop()
    assert not left_over(home)


def left_over(home: Path) -> list[str]:
    """Processes that still use the folder."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd", "status"]):
        told = process.info
        if told["status"] != psutil.STATUS_ZOMBIE and str(home) in " ".join([*(told["cmdline"] or []), told["cwd"] or ""]):
            found.append(f"{process.pid}: {told['cmdline']}")
    return found


def manage(home: Path, *arguments: str, timeout_s: float = 60, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(PROJECT / "manage.py"), *arguments], env=clean_env(home) | env, text=True,
                          capture_output=True, timeout=timeout_s)


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


def test_everything_is_there(running: Product) -> None:
    status, body = running.get("/health/")
    assert status == 200 and json.loads(body)["status"] == "ok"
    assert running.get("/")[0] == 200 and running.get("/static/bokeh/js/bokeh.min.js")[0] == 200
    deadline = time.monotonic() + 60        # the web first, then the workers, as many at once as there are cores
    queues: set[str] = set()
    while queues != {"ingest", "replay", "messages"} and time.monotonic() < deadline:
        queues = {queue for worker in running.get_json("/api/workers/")["workers"] for queue in worker["queues"]}
        time.sleep(0.2)
    assert queues == {"ingest", "replay", "messages"}
    assert set(children(running)) == {"web", "worker ingest", "worker replay", "worker messages"}


def test_the_log_is_prefixed_with_who_speaks(running: Product) -> None:
    assert all(" | " in line or line.startswith("Ridgepoint is at") for line in running.log.splitlines()), running.log
    assert any(line.startswith("ingest ") for line in running.lines)


def test_a_real_socket_watches(running: Product) -> None:
    with ask_socket(running) as page:
        page.send(json.dumps({"watch": ["home"]}))
        assert json.loads(page.recv(timeout=5)) == {"event": "watching", "data": {"topics": ["home"]}}


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
    before["worker ingest"].kill()
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        now = children(running)
        if len(now) == 4 and now["web"].pid != before["web"].pid and now["worker ingest"].pid != before["worker ingest"].pid:
            break
        time.sleep(0.2)
    assert running.get("/health/")[0] == 200      # asked while it restarts: it waits, and is answered
    assert "web was killed by SIGKILL; starting it again" in running.log
    assert now["worker replay"].pid == before["worker replay"].pid


def test_dying_private_servers_come_back(running: Product, home: Path) -> None:
    postmaster = postgres.alive(home / "pg" / "data")
    assert postmaster is not None
    os.kill(postmaster, signal.SIGKILL)
    os.kill(int((home / "redis" / "redis.pid").read_text()), signal.SIGKILL)
    deadline = time.monotonic() + 90
    while running.get("/health/")[0] != 200 or "PostgreSQL had died" not in running.log:
        assert time.monotonic() < deadline, running.log
        time.sleep(0.3)
    assert "Valkey had died" in running.log
    running.get_json("/api/profiles/")


def test_a_stopped_valkey_is_waited_for_and_not_replaced(running: Product, home: Path) -> None:
    pid = int((home / "redis" / "redis.pid").read_text())
    deaths = running.log.count("Valkey had died")
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(5)       # many looks of the supervisor, and longer than a ping may take
    finally:
        os.kill(pid, signal.SIGCONT)
    assert running.get("/health/")[0] == 200 and running.log.count("Valkey had died") == deaths
    assert [line for line in left_over(home) if "valkey-server" in line and not line.startswith(f"{pid}:")] == []
    assert set(children(running)) == {"web", "worker ingest", "worker replay", "worker messages"}


@pytest.fixture
def taken() -> Iterator[None]:
    """The usual port is somebody's: `running`'s, another test's, else ours."""
    with socket.socket() as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            ours.bind(("127.0.0.1", DEFAULT_PORT))
            ours.listen()
        yield


def test_a_second_one_takes_the_next_port_and_says_so(running: Product, home: Path, taken: None) -> None:
    second = Product(home)
    try:
        second.wait_until_up()
        assert second.url != running.url and second.get("/health/")[0] == 200
        assert "is taken, using" in second.log
    finally:
        assert second.stop() == 0
    assert running.get("/health/")[0] == 200      # its servers stay up: somebody is still there


def test_a_chosen_port_that_is_taken_is_an_error_that_says_what_to_do(home: Path, running: Product) -> None:
    port = int(running.url.rpartition(":")[2])
    answer = manage(home, "serve", "--port", str(port))
    assert answer.returncode == 1 and f"cannot listen on 127.0.0.1:{port}" in answer.stderr and f"PORT={port + 1}" in answer.stderr


def test_another_command_beside_it_leaves_the_servers_alone(running: Product, home: Path) -> None:
    assert manage(home, "check").returncode == 0
    assert running.get("/health/")[0] == 200


def test_on_all_interfaces_people_sign_in(home: Path, running: Product) -> None:
    shared = Product(home, "--host", "0.0.0.0")
    try:
        shared.wait_until_up()
        assert "createowner" in shared.log
        assert shared.get("/health/")[0] == 200
        status, body = shared.get("/")
        assert status == 200 and b"password" in body      # sent on to the sign-in page
        assert shared.get("/api/workers/")[0] == 401
    finally:
        shared.stop()


def stops_clean_and_quickly(product: Product, home: Path, number: int) -> None:
    with ask_socket(product):       # an open page does not hold it up
        began = time.monotonic()
        assert product.stop(number) == 0, product.log
    assert time.monotonic() - began < 30         # two or three when idle; an open page would hold it up for a minute
    assert "stopped" in product.lines[-1] and not left_over(home), product.log


def test_killed_it_takes_its_children_with_it_and_the_next_start_works(seeded: Path) -> None:
    product = Product(seeded)
    product.wait_until_up()
    mine = list(children(product).values())
    os.kill(product.process.pid, signal.SIGKILL)
    product.process.wait()
    assert not psutil.wait_procs(mine, timeout=10)[1]
    again = Product(seeded)
    again.wait_until_up()
    assert again.get("/health/")[0] == 200
    stops_clean_and_quickly(again, seeded, signal.SIGINT)


def test_a_command_on_a_fresh_checkout_starts_migrates_answers_and_leaves(tmp_path: Path) -> None:
    code = "import json; from profiles.models import Profile; print(json.dumps({'profiles': Profile.objects.count()}))"
    answer = manage(tmp_path, "createowner", "olga", RIDGEPOINT_PASSWORD="correct horse battery")
    assert answer.returncode == 0 and answer.stdout == "", answer.stderr
    answer = manage(tmp_path, "shell", "-v0", "-c", code)
    assert json.loads(answer.stdout) == {"profiles": 0}
    assert not left_over(tmp_path)


def test_commands_that_start_together_share_the_servers(tmp_path: Path) -> None:
    runs = [subprocess.Popen([sys.executable, str(PROJECT / "manage.py"), "createcachetable"], env=clean_env(tmp_path),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for run in runs:
        out, err = run.communicate(timeout=120)
        assert run.returncode == 0 and out == "", err
    assert not left_over(tmp_path)


def test_named_servers_are_used_and_left_alone(tmp_path: Path) -> None:
    """DATABASE_URL and REDIS_URL of the environment: here, those of this test run."""
    named = {name: os.environ[name] for name in ("DATABASE_URL", "REDIS_URL")}
    code = "from django.conf import settings as s; print(s.DATABASES['default']['HOST'])"
    answer = manage(tmp_path, "shell", "-v0", "-c", code, **named)
    assert answer.stdout.strip() in named["DATABASE_URL"]
    assert not (tmp_path / "pg").exists() and not (tmp_path / "redis").exists()
    with socket.socket(socket.AF_UNIX) as redis:
        redis.connect(named["REDIS_URL"].removeprefix("unix://"))


@pytest.mark.parametrize(("arguments", "code"), [(("worker", "ingest"), 1), (("gate", "somewhere", "build"), 3)])
def test_a_command_says_in_a_sentence_that_a_server_is_away(tmp_path: Path, arguments: tuple[str, ...], code: int) -> None:
    away = {"DATABASE_URL": f"postgresql://ridgepoint@/postgres?host={tmp_path}&port=1", "REDIS_URL": f"unix://{tmp_path}/none"}
    answer = manage(tmp_path, *arguments, **away)
    assert answer.returncode == code and "the database does not answer at the moment" in answer.stderr
    assert "Traceback" not in answer.stderr, answer.stderr


def test_the_whole_path_over_a_bucket(seeded: Path, bucket: Any) -> None:
    """A trace goes up through the API with a token, is ingested by the worker and read back: columns live in S3."""
    endpoint = bucket.meta.endpoint_url
    product = Product(seeded, env={"RIDGEPOINT_S3_BUCKET": BUCKET, "AWS_ENDPOINT_URL_S3": endpoint})
    try:
        product.wait_until_up()
        headers = {"Authorization": f"Token {token_of(seeded)}"}
        with gzip.open(PROJECT / "tests" / "data" / "h200" / "kineto_layer.json.gz") as trace:
            answer = requests.post(f"{product.url}/api/profiles/", headers=headers, files={"file": ("t.json", trace)}, timeout=30)
        assert answer.status_code == 201, answer.text
        here = f"{product.url}/api/profiles/{answer.json()['id']}/"
        deadline = time.monotonic() + 60
        while (profile := requests.get(here, timeout=30).json())["status"] not in ("ready", "failed"):
            assert time.monotonic() < deadline, profile
            time.sleep(0.2)
        assert profile["status"] == "ready" and profile["launches"] > 0, profile
        timeline = requests.get(here + "timeline/", timeout=30).json()
        assert timeline.get("tracks"), (timeline, product.log)
        stops_clean_and_quickly(product, seeded, signal.SIGTERM)
    finally:
        product.stop()
    keys = {row["Key"] for row in bucket.list_objects_v2(Bucket=BUCKET)["Contents"]}
    assert any(key.startswith("uploads/") and key.endswith("/t.json") for key in keys), keys
    assert any(key.endswith("slices.parquet") for key in keys), keys
    assert not (seeded / "store").exists()


def token_of(home: Path) -> str:
    code = ("from webapp.accounts import local_user; from webapp.models import ApiToken; "
            "print(ApiToken.objects.create(local_user(), name='test')[1])")
    return manage(home, "shell", "-v0", "-c", code).stdout.strip()
