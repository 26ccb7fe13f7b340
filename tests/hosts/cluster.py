"""A team's installation over several hosts: web servers and workers, one PostgreSQL, one Valkey, one S3 server (moto)."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import requests

from tests.conftest import BUCKET
from tests.hosts.network import Host, Network
from tests.product import PROJECT, clean_env
from tests.waiting import until
from webapp.embedded import postgres, redis

PASSWORD = "correct horse battery staple"
MAKE_TOKEN = """
from datetime import timedelta
from django.contrib.auth import get_user_model
from webapp.models import ApiToken
print(ApiToken.objects.create(get_user_model().objects.get(username="olga"), name="test", expiry=timedelta(days=1))[1])
"""


class Cluster:
    """`web` and `workers` hold processes; `ask` speaks to a web host by the API, with an owner's token."""

    def __init__(self, network: Network, code: Path = PROJECT) -> None:
        self.network, self.code = network, code
        folder = network.folder
        self.database, self.valkey, self.store = network.add("database"), network.add("valkey"), network.add("store")
        self.web: list[Host] = []
        self.workers: list[Host] = []
        self.environment = clean_env(folder / "home") | {
            "DATABASE_URL": f"postgresql://ridgepoint@{self.database.address}:5432/postgres",
            "REDIS_URL": f"redis://{self.valkey.address}:6379", "RIDGEPOINT_SECRET_KEY": "of-all-hosts-" + "x" * 40,
            "RIDGEPOINT_SIGN_IN": "1", "RIDGEPOINT_HOSTS": "*", "RIDGEPOINT_S3_BUCKET": BUCKET, "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1", "PYTHONDONTWRITEBYTECODE": "1",
            "AWS_ENDPOINT_URL_S3": f"http://{self.store.address}:5000", "RIDGEPOINT_PASSWORD": PASSWORD,
            "RIDGEPOINT_PROXIES": f"{network.net}.0/24"}
        self.token = ""
        self._start_servers(folder)

    def _start_servers(self, folder: Path) -> None:
        data = folder / "pg"
        as_user = ["unshare", "--user", "--map-user=65534", "--map-group=65534"]        # PostgreSQL refuses root
        subprocess.run([*as_user, postgres.binaries() / "initdb", "-D", data, "-U", "ridgepoint", "-A", "trust", "-E", "UTF8",
                        "--locale=C.UTF-8", "--no-sync"], check=True, capture_output=True, cwd="/")
        with open(data / "pg_hba.conf", "a") as rules:
            rules.write(f"host all all {self.network.net}.0/24 trust\n")
        self.database.start([*as_user, postgres.binaries() / "postgres", "-D", data, "-clisten_addresses=*", "-cport=5432",
                             f"-cunix_socket_directories={data}", "-cmax_connections=200", "-cfsync=off"], os.environ, Path("/"))
        self.valkey.start([redis.binary(), "--bind", "0.0.0.0", "--protected-mode", "no", "--dir", folder, "--save", ""],
                          os.environ, folder)
        self.store.start([Path(sys.executable).with_name("moto_server"), "-H", "0.0.0.0", "-p", "5000"], os.environ, folder)
        for host, port in ((self.database, 5432), (self.valkey, 6379), (self.store, 5000)):
            until(lambda host=host, port=port: answers(host.address, port))
        until(lambda: requests.put(f"http://{self.store.address}:5000/{BUCKET}", timeout=20).ok)

    def manage(self, *words: str, code: Path | None = None) -> str:
        """Run a command of manage.py on the database's host and return what it prints."""
        done = subprocess.run([*self.database.inside(), sys.executable, "manage.py", *words], cwd=code or self.code, text=True,
                              env=self.environment, capture_output=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def make_people(self) -> None:
        self.manage("createowner", "olga")
        self.token = self.manage("shell", "--no-imports", "-c", MAKE_TOKEN).split()[-1]

    def add_web(self, name: str, off_s: int = 0, code: Path | None = None) -> Host:
        host = self.network.add(name, off_s)
        self.web.append(host)
        self.run(host, "web", "--host", "0.0.0.0", "--port", "8000", code=code)
        return host

    def add_worker(self, name: str, *queues: str, off_s: int = 0, code: Path | None = None) -> Host:
        host = self.network.add(name, off_s)
        self.workers.append(host)
        self.run(host, "worker", *queues, code=code)
        return host

    def run(self, host: Host, *words: str, code: Path | None = None) -> None:
        """Start a process of the product on the host, with a data folder of its own."""
        home = self.network.folder / host.name
        home.mkdir(exist_ok=True)
        host.start([sys.executable, "manage.py", *words], self.environment | {"RIDGEPOINT_HOME": str(home)}, code or self.code)

    def wait_until_up(self) -> None:
        for host in self.web:
            until(lambda host=host: is_ready(host), 120, 0.3)
        wanted = {host.name for host in self.workers}
        until(lambda: wanted <= {worker["host"] for worker in self.said_workers()}, 120, 0.5)

    def ask(self, path: str, *, method: str = "GET", at: Host | None = None, within_s: float = 30, **given: Any) -> Any:
        answer = requests.request(method, f"http://{(at or self.web[0]).address}:8000{path}", timeout=within_s,
                                  headers={"Authorization": f"Token {self.token}"}, **given)
        assert answer.status_code < 400, (path, answer.status_code, answer.text[:500])
        return answer.json() if answer.content else None

    def said_workers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("/api/workers/")["workers"]
        return found

    def rows(self, sql: str) -> list[Any]:
        """Return the rows of a question to PostgreSQL, each a list of texts."""
        import psycopg

        with psycopg.connect(self.environment["DATABASE_URL"], connect_timeout=10) as own:
            return [list(row) for row in own.execute(sql.encode()).fetchall()]

    def tune(self, trials: int, at: Host | None = None) -> int:
        """Create a replay job that takes some seconds."""
        made = self.ask("/api/tune/", method="POST", at=at, json={
            "operator": "softmax", "shape": {"R": 8192, "C": 4096}, "dtype": "fp16", "device": "replay:softmax",
            "strategy": "random", "budget_trials": trials, "budget_seconds": 600})
        return int(made["id"])

    def upload(self, number: int, launches: int = 2000, at: Host | None = None) -> int:
        return int(self.ask("/api/profiles/", method="POST", at=at, data={"name": f"trace {number}"},
                            files={"file": (f"t{number}.json", trace(number, launches))})["id"])

    def job(self, number: int) -> dict[str, Any]:
        [row] = self.rows("SELECT status, worker, attempts, extract(epoch FROM now() - heartbeat) FROM tuner_tunejob "
                          f"WHERE id = {number}")
        return dict(zip(("status", "worker", "attempts", "silent_s"), row, strict=True))

    def trials(self, job: int) -> list[int]:
        return [row[0] for row in self.rows(f"SELECT number FROM tuner_trialrow WHERE job_id = {job} ORDER BY number")]

    def logs(self) -> str:
        return "\n".join(f"--- {host.name}\n{host.log.read_text()[-4000:]}" for host in self.network.hosts if host.log.exists())


def answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=2).close()
    except OSError:
        return False
    return True


def is_ready(host: Host) -> bool:
    try:
        return requests.get(f"http://{host.address}:8000/health/ready", timeout=5).status_code == 200
    except requests.RequestException:
        return False


def trace(number: int, launches: int) -> bytes:
    """A Kineto trace, another for each number."""
    events = [{"ph": "X", "cat": "kernel", "name": f"kernel_{number}_{i % 3}", "ts": 1000 + 20 * i, "dur": 10, "pid": 0, "tid": 7,
               "args": {"device": 0, "stream": 7, "correlation": i}} for i in range(launches)]
    return json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()


def earlier_code(commit: str, folder: Path) -> Path | None:
    """Return a folder with the project's code of a commit; None where this checkout does not hold it."""
    archive = subprocess.run(["git", "archive", commit], cwd=PROJECT, capture_output=True)
    if archive.returncode or not shutil.which("tar"):
        return None
    folder.mkdir()
    subprocess.run(["tar", "-x"], cwd=folder, input=archive.stdout, check=True)
    return folder


def settle(cluster: Cluster, jobs: list[int], within_s: float = 120) -> None:
    """Wait until every job is done."""
    end = time.monotonic() + within_s
    while any(cluster.job(job)["status"] != "done" for job in jobs):
        assert time.monotonic() < end, ([cluster.job(job) for job in jobs], cluster.logs())
        time.sleep(0.3)
