"""Processes that run, captured through the running product without an agent: a GPU worker answers Kineto on their host."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.core.management import call_command

from tests.gpu.fleet.two_jobs import MAKE_TOKEN
from tests.product import PROJECT, Product, clean_env, seed_database
from tests.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.slow,
              pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")]
JOB = """
import os, time, torch
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
end = time.time() + 600
while time.time() < end:
    optimizer.zero_grad()
    torch.tanh(model(torch.randn(16, 64))).sum().backward()
    optimizer.step()
    time.sleep(0.005)
"""
LAUNCHER = """
import os, signal, subprocess, sys, time, torch
for rank in "34":
    subprocess.Popen([sys.executable, "-c", *sys.argv[1:]], env={**os.environ, "RANK": rank})
signal.signal(signal.SIGCHLD, signal.SIG_IGN)           # what ended is gone at once
time.sleep(600)
"""


class Host:
    """A host: the product with a GPU worker, and jobs that ask for captures in a folder of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.sockets = tempfile.mkdtemp(prefix="rk", dir="/tmp")        # short: a socket's path has 108 characters
        self.traces = home / "traces"
        self.traces.mkdir()
        self.environ = {"KINETO_IPC_SOCKET_DIR": self.sockets}
        seed_database(home)
        self.product = Product(home, "--port", "0", "--gpus", "1", env=self.environ)
        self.jobs: list[subprocess.Popen[bytes]] = []

    def job(self, name: str, rank: int | None = None, code: str = JOB, *arguments: str) -> subprocess.Popen[bytes]:
        environ = {**os.environ, **self.environ, "KINETO_USE_DAEMON": "1", "KINETO_ONDEMAND_TRACE_DIR": str(self.traces),
                   "OMP_NUM_THREADS": "1", "RIDGEPOINT_JOB": name, **({} if rank is None else {"RANK": str(rank)})}
        self.jobs.append(subprocess.Popen([sys.executable, "-c", code, *arguments], env=environ, stdout=subprocess.DEVNULL,
                                          stderr=subprocess.DEVNULL))
        return self.jobs[-1]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "manage.py", *arguments, "--json"], cwd=PROJECT, env=clean_env(self.home),
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def manage(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        done = subprocess.run([sys.executable, "manage.py", *arguments, "--json"], cwd=PROJECT, env=clean_env(self.home),
                              capture_output=True, text=True, timeout=200)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def processes(self) -> list[dict[str, Any]]:
        return list(self.product.get_json("/api/fleet/captures/")["processes"])

    def worker_pid(self) -> int:
        """The GPU worker that listens."""
        return next(each.pid for each in psutil.Process(self.product.process.pid).children(recursive=True)
                    if each.cmdline()[-2:] == ["worker", "gpu"])

    def close(self) -> None:
        for job in self.jobs:
            job.kill()
            job.wait()
        self.product.stop()
        shutil.rmtree(self.sockets, ignore_errors=True)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    own = Host(tmp_path_factory.mktemp("running"))
    try:
        own.product.wait_until_up()
        yield own
    finally:
        own.close()


@pytest.fixture(scope="module")
def ranks(host: Host) -> Iterator[tuple[int, dict[int, int]]]:
    """The launcher of a job, and its processes by their rank; their steps leave the machine to the others."""
    parent = host.job("tanh", None, LAUNCHER, JOB.replace("0.005", "0.05"), "--hf-token", "hf_secretsecret", "--lr", "0.1")
    try:
        own = until(lambda: found if len(found := [each for each in host.processes() if each["job"] == "tanh"]) == 3 else None,
                    every_s=0.5)
        yield parent.pid, {each["rank"]: each["pid"] for each in own if each["pid"] != parent.pid}
    finally:
        for child in psutil.Process(parent.pid).children():
            child.kill()


@pytest.mark.deep_only          # of a rank's number alone; all else: the test below
def test_a_process_is_captured_by_its_number_and_read(host: Host, ranks: tuple[int, dict[int, int]]) -> None:
    pid = ranks[1][3]
    code, document = host.manage("capture", "running", "--pid", str(pid), "--seconds", "1")
    assert (code, document["status"]) == (0, "ready"), document
    profile = host.product.get_json(f"/api/profiles/{document['profile']}/")
    assert profile["status"] == "ready" and {"fleet", "deep", "job:tanh", "rank:3"} <= set(profile["tags"])
    (own,) = [each for each in host.processes() if each["pid"] == pid]
    assert (own["job"], own["rank"], own["launcher"], own["on_gpu"]) == ("tanh", 3, False, False)
    assert "--hf-token *** --lr 0.1" in own["command"] and "secretsecret" not in json.dumps(host.processes())
    assert not list(host.traces.iterdir())                              # nothing is left of it


def test_ranks_become_one_profile_and_one_that_ends_is_told(host: Host, ranks: tuple[int, dict[int, int]]) -> None:
    """Their launcher is not captured."""
    parent, pids = ranks
    (starter,) = [each for each in host.processes() if each["launcher"]]
    assert starter["pid"] == parent and set(pids) == {3, 4}
    code, document = host.manage("capture", "running", "--job", "tanh", "--ranks", "3-4", "--seconds", "0.5")
    assert (code, document["status"]) == (0, "ready"), document
    assert [each["rank"] for each in document["captures"]] in ([3, 4], [4, 3])
    assert {each["profile"] for each in document["captures"]} == {document["profile"]}, document
    profile = host.product.get_json(f"/api/profiles/{document['profile']}/")
    assert profile["name"] == "tanh: 2 ranks" and len(profile["metadata"]["files"]) == 2
    assert profile["status"] == "ready" and {"fleet", "deep", "job:tanh"} <= set(profile["tags"])
    (own,) = [each for each in host.processes() if each["pid"] == pids[3]]
    assert (own["job"], own["rank"], own["launcher"], own["on_gpu"]) == ("tanh", 3, False, False)
    assert "--hf-token *** --lr 0.1" in own["command"] and "secretsecret" not in json.dumps(host.processes())
    assert not list(host.traces.iterdir())                              # nothing is left of it

    running = host.start("capture", "running", "--pid", str(pids[4]), "--seconds", "9")
    until(lambda: any(each["state"] == "asked" for each in host.product.get_json("/api/fleet/captures/?job=tanh")["captures"]))
    os.kill(pids[4], signal.SIGKILL)
    document = json.loads(running.communicate(timeout=60)[0])
    assert running.returncode == 1 and document["why"] == "the process ended"


@pytest.mark.django_db
def test_nothing_comes_of_a_process_that_does_not_ask() -> None:
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("capture", "running", "--pid", str(os.getpid()), "--seconds", "1", "--wait", "0.1", "--json", stdout=out)
    document = json.loads(out.getvalue())
    assert ended.value.code == 1 and document["profile"] is None and "KINETO_USE_DAEMON=1" in document["why"]


@pytest.mark.deep_only
def test_a_worker_that_is_killed_meanwhile_leaves_a_clear_state(host: Host) -> None:
    job = host.job("killed")
    until(lambda: any(each["pid"] == job.pid for each in host.processes()))
    running = host.start("capture", "running", "--pid", str(job.pid), "--seconds", "8")
    until(lambda: host.product.get_json("/api/fleet/captures/?job=killed")["captures"][:1]
          and host.product.get_json("/api/fleet/captures/?job=killed")["captures"][0]["state"] == "asked")
    os.kill(host.worker_pid(), signal.SIGKILL)
    answer, _ = running.communicate(timeout=120)
    document = json.loads(answer)
    assert running.returncode == 1 and document["status"] == "failed"
    assert document["why"] == "its agent was started anew meanwhile"
    assert job.poll() is None                                           # the job goes on
    until(lambda: any(each["pid"] == job.pid for each in host.processes()))
    until(lambda: _captures_again(host, job.pid), 120)


def _captures_again(host: Host, pid: int) -> bool:
    code, document = host.manage("capture", "running", "--pid", str(pid), "--seconds", "0.5", "--wait", "60")
    return code == 0 and document["status"] == "ready"


@pytest.mark.deep
@pytest.mark.skipif(not os.environ.get("RIDGEPOINT_DEEP"), reason="two minutes of steps before and after: make test-deep")
def test_what_a_capture_costs_is_measured_by_the_jobs_own_steps(host: Host) -> None:
    """By a node agent, which the job tells its steps; killed and started again, it captures as before."""
    folder = Path(tempfile.mkdtemp(prefix="ra", dir="/tmp"))
    made = subprocess.run([sys.executable, "manage.py", "shell", "--no-imports", "-c", MAKE_TOKEN], cwd=PROJECT, text=True,
                          env=clean_env(host.home), capture_output=True, check=True, timeout=120)
    (folder / "token").write_text(made.stdout.split()[-1])
    environ = {**os.environ, "PYTHONPATH": str(PROJECT), "KINETO_IPC_SOCKET_DIR": str(folder)}

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-m", "workers.agent.node", "--server", host.product.url, "--token-file",
                                 str(folder / "token"), "--spool", str(folder / "spool"), "--socket", str(folder / "agent.sock"),
                                 "--host", "agent-host", "--no-telemetry"], env=environ)
    agent = start()
    asks = {"KINETO_USE_DAEMON": "1", "KINETO_ONDEMAND_TRACE_DIR": str(folder / "traces"), "OMP_NUM_THREADS": "1",
            "RIDGEPOINT_JOB": "told", "RIDGEPOINT_AGENT_SOCKET": str(folder / "agent.sock")}
    job = subprocess.Popen([sys.executable, "-c", "import workers.agent.auto\n" + JOB], env={**environ, **asks},
                           stdout=subprocess.DEVNULL)
    try:
        until(lambda: any(each["pid"] == job.pid and each["host"] == "agent-host" for each in host.processes()))
        time.sleep(35)                                                  # steps before
        code, document = host.manage("capture", "running", "--job", "told", "--seconds", "0.5")
        assert (code, document["status"]) == (0, "ready"), document
        number = document["captures"][0]["id"]
        cost = until(lambda: host.product.get_json(f"/api/fleet/captures/{number}/")["cost"], 120)
        assert cost["before_ms"][0] > 1 and cost["during_ms"][0] > 1 and len(cost["during_pct"]) == 3, cost
        agent.kill()
        agent.wait()
        agent = start()
        until(lambda: host.manage("capture", "running", "--job", "told", "--seconds", "0.2", "--wait", "60")[0] == 0, 120)
    finally:
        for each in (job, agent):
            each.kill()
            each.wait()
        shutil.rmtree(folder, ignore_errors=True)
