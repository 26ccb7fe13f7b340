"""The whole product on a disk that fills up: web, workers, PostgreSQL and Valkey in one folder, restarted while it is full."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import requests

from tests.product import Product, seed_database
from webapp.embedded import postgres

pytestmark = [pytest.mark.process, pytest.mark.deep, pytest.mark.timeout(900)]
TRACE = {"traceEvents": [
    {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {"device": 0, "stream": 7}}]}
ENV = {"RIDGEPOINT_DISK_REST": "30 MB"}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A data folder on a disk of 400 MiB."""
    if os.environ.get("RIDGEPOINT_DEEP") != "1":
        pytest.skip("minutes: make test-deep")
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", str(folder)], capture_output=True).returncode:
        pytest.skip("only root may mount a small disk here")
    folder.chmod(0o755)
    seed_database(folder)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(home: Path, left_bytes: int = 0) -> Path:
    facts = os.statvfs(home)
    ballast = home / "ballast"
    have = ballast.stat().st_size if ballast.exists() else 0
    with open(ballast, "ab") as file:
        os.posix_fallocate(file.fileno(), 0, have + facts.f_bavail * facts.f_frsize - left_bytes)
    return ballast


def until(true: Callable[[], Any], within_s: float = 120) -> Any:
    end = time.monotonic() + within_s
    while True:
        with contextlib.suppress(requests.RequestException, ValueError):
            if value := true():
                return value
        assert time.monotonic() < end
        time.sleep(0.2)


def upload(product: Product) -> requests.Response:
    visitor = requests.Session()
    visitor.get(product.url + "/", timeout=60)
    return visitor.post(product.url + "/api/profiles/", files={"file": ("one.json", json.dumps(TRACE))}, timeout=60,
                        headers={"X-CSRFToken": visitor.cookies.get("csrftoken", "")})


def ready(product: Product, pk: int) -> bool:
    return bool(product.get_json(f"/api/profiles/{pk}/")["status"] == "ready")


def write_until_it_fails(home: Path) -> str:
    """Fill the rest of the disk by rows; return what PostgreSQL said of it."""
    address = f"postgresql://ridgepoint@/postgres?host={postgres.Postgres(home / 'pg' / 'data').sockets}&port={postgres.PORT}"
    try:
        with psycopg.connect(address, autocommit=True) as link:
            link.execute("CREATE TABLE IF NOT EXISTS filling (words text)")
            for _ in range(1000):
                link.execute("INSERT INTO filling SELECT md5(random()::text) FROM generate_series(1, 20000)")
    except psycopg.Error as error:
        return str(error)
    raise AssertionError("the disk was never full")


def test_nothing_is_lost_and_everything_goes_on(home: Path) -> None:
    product = Product(home, env={**ENV, "TMPDIR": str(home)})
    try:
        product.wait_until_up()
        first = upload(product).json()["id"]
        until(lambda: ready(product, first))

        ballast = fill(home, 20 << 20)                              # below what is kept, not full
        refused = upload(product)
        assert refused.status_code == 507 and "30 MB are kept for what runs" in refused.json()["error"]
        assert "Disk full" in product.get("/")[1].decode() and product.get_json("/health/")["disk"] == "full"
        assert product.get(f"/profiles/{first}/")[0] == 200

        said = write_until_it_fails(home)                           # PostgreSQL has no room left for a row
        assert "No space left" in said or "terminat" in said or "closed" in said, said
        fill(home)
        for pid in (postgres.alive(home / "pg" / "data"), int((home / "redis" / "redis.pid").read_text() or 0)):
            if pid:
                os.kill(pid, signal.SIGKILL)
        page = until(lambda: (answer := requests.get(product.url + "/profiles/", timeout=60)).status_code == 503 and answer.text)
        assert "is full" in page and 'class="topbar"' in page
        assert requests.get(product.url + "/health/ready", timeout=60).status_code == 503
        assert requests.get(product.url + "/health/live", timeout=60).status_code == 204
        assert product.stop() == 0

        product = Product(home, env={**ENV, "TMPDIR": str(home)})    # a restart while it is full
        product.wait_for(lambda line: "waiting for room" in line)
        assert "no space left on the disk" in product.log
        ballast.unlink()
        product.wait_until_up()
        assert ready(product, first)
        again = until(lambda: (answer := upload(product)).status_code == 201 and answer).json()["id"]
        until(lambda: ready(product, again))
        assert "Disk full" not in product.get("/")[1].decode()
        assert "Traceback" not in product.log, product.log
    finally:
        product.stop()
