"""Real PyTorch processes in namespaces of their own, real agents, a live server: containers, and several hosts at one start."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.core.files.storage import default_storage

from profiles.fleet import capture_services
from profiles.models import FleetCapture
from profiles.running import join_services
from tests.product import PROJECT
from tests.waiting import until
from webapp.models import ApiToken

CONTAINER = ("unshare", "--net", "--pid", "--fork", "--mount-proc")
OTHER_HOST = ("unshare", "--uts", "--pid", "--fork", "--mount-proc")


def why_no_namespaces() -> str:
    """Return what keeps this machine from them, "" where nothing does."""
    try:
        tried = subprocess.run([*CONTAINER, "--uts", "true"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no namespaces: {error}"
    return f"no namespaces: {tried.stderr.strip()}" if tried.returncode else ""


REFUSED = why_no_namespaces()
pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.django_db(transaction=True),
              pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
              pytest.mark.skipif(bool(REFUSED), reason=REFUSED or "-")]
LOOP = """
import time, torch
a, end = torch.randn(64, 64), time.time() + 300
while time.time() < end:
    a = torch.tanh(a @ a)
    time.sleep(0.002)
"""
RANK = """
import os, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=int(os.environ["RANK"]), world_size=2)
a, end = torch.randn(64, 64), time.time() + 300
while time.time() < end:
    dist.all_reduce(a)
    a = torch.tanh(a @ a)
    time.sleep(0.002)
"""


class Hosts:
    """Agents of hosts, each with a socket folder and traces, and what runs on them."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.home = url, Path(tempfile.mkdtemp(prefix="rn", dir="/tmp"))     # short: a socket's path has 108 characters
        (self.home / "token").write_text(token)
        self.running: list[subprocess.Popen[bytes]] = []

    def agent(self, name: str) -> None:
        """In a UTS namespace: it takes the host's name from the system, as on a host."""
        folder = self.folder(name)
        command = [sys.executable, "-m", "workers.agent.node", "--server", self.url, "--token-file", str(self.home / "token"),
                   "--spool", str(folder / "spool"), "--socket", str(folder / "agent.sock"), "--no-telemetry"]
        self._start(["unshare", "--uts", "sh", "-c", f'hostname {name}; exec "$@"', "sh", *command],
                    {"PYTHONPATH": str(PROJECT), "KINETO_IPC_SOCKET_DIR": str(folder)})

    def job(self, name: str, apart: tuple[str, ...], code: str, *arguments: str, own_traces: bool = False, **environ: str) -> int:
        """Start a program in namespaces; return its number on this host. `own_traces`: of its file system, seen nowhere else."""
        folder, traces = self.folder(name), self.folder(name) / "traces"
        traces.mkdir(exist_ok=True)
        mount = f"mount -t tmpfs none {traces};" if own_traces else ""
        started = self._start([*apart, "sh", "-c", f'{mount} exec "$@"', "sh", sys.executable, "-c", code, *arguments], {
            "KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": str(folder), "KINETO_ONDEMAND_TRACE_DIR": str(traces),
            "OMP_NUM_THREADS": "1", "RIDGEPOINT_JOB": "apart", **environ})
        return int(until(lambda: [each.pid for each in psutil.Process(started.pid).children(recursive=True)])[0])

    def folder(self, name: str) -> Path:
        (self.home / name).mkdir(exist_ok=True)
        return self.home / name

    def _start(self, command: list[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
        self.running.append(subprocess.Popen(command, env={**os.environ, **environ}, cwd=PROJECT, stderr=subprocess.DEVNULL))
        return self.running[-1]

    def close(self) -> None:
        for each in self.running:
            for child in psutil.Process(each.pid).children(recursive=True) if each.poll() is None else ():
                child.kill()
            each.kill()
            each.wait()
        shutil.rmtree(self.home, ignore_errors=True)


@pytest.fixture
def hosts(live_server: Any, olga: Any) -> Iterator[Hosts]:
    own = Hosts(live_server.url, ApiToken.objects.create(olga, name="agents", scope="write")[1])
    try:
        yield own
    finally:
        own.close()


def test_a_process_of_a_container_is_listed_by_its_number_here_and_captured(hosts: Hosts) -> None:
    """Its network, its process numbers and its traces are its own; the socket folder is all that it shares."""
    hosts.agent("gpu-1")
    pid = hosts.job("gpu-1", CONTAINER, LOOP, own_traces=True)
    (process,) = until(lambda: capture_services.processes("apart"))
    assert (process.pid, process.agent.host) == (pid, "gpu-1")
    own_pid = Path(f"/proc/{pid}/status").read_text().split("NSpid:")[1].splitlines()[0].split()[-1]
    assert own_pid != str(pid) and "import time" in process.command
    (row,) = capture_services.order([process.key], None, 300, None)
    until(lambda: FleetCapture.objects.filter(pk=row.pk, state__in=("uploaded", "failed")).exists())
    row.refresh_from_db()
    assert row.state == "uploaded" and row.profile is not None, row.why
    with default_storage.open(row.profile.upload_key) as file:
        trace = json.loads(gzip.decompress(file.read()))
    assert "aten::tanh" in {event.get("name") for event in trace["traceEvents"]}
    assert not list((hosts.folder("gpu-1") / "traces").iterdir())               # nothing was written outside the container
    assert not list(Path(f"/proc/{pid}/root{hosts.folder('gpu-1')}/traces").iterdir())      # and nothing is left in it


def test_ranks_of_two_hosts_begin_at_one_moment_and_are_one_profile(hosts: Hosts, olga: Any) -> None:
    names = ("gpu-1", "gpu-2")
    for rank, name in enumerate(names):
        hosts.agent(name)
        hosts.job(name, OTHER_HOST, RANK, str(hosts.home / "store"), RANK=str(rank), WORLD_SIZE="2")
    found = until(lambda: each if len(each := capture_services.processes("apart")) == 2 else None)
    assert [(each.agent.host, each.rank) for each in found] == [("gpu-1", 0), ("gpu-2", 1)]
    rows = capture_services.order([each.key for each in found], None, 300, olga)
    mine = FleetCapture.objects.filter(pk__in=[row.pk for row in rows])
    until(lambda: all(row.part or row.state == "failed" for row in mine.all()), 120)
    assert [row.why for row in mine] == ["", ""] and len({row.start_ms for row in mine}) == 1
    windows = [window_of(row.part) for row in mine.order_by("rank")]
    begun = [first_ms - rows[0].start_ms for first_ms, _ in windows]
    apart_ms = abs(windows[0][0] - windows[1][0])
    print(f"windows begin {begun[0]:.1f} and {begun[1]:.1f} ms after the moment, {apart_ms:.1f} ms apart")
    both_ms = min(end for _, end in windows) - max(first for first, _ in windows)
    assert both_ms > 100, windows                                                # of 300 ms that were asked for
    profile = join_services.join(rows[0].pk)
    assert profile is not None and profile.name == "apart: 2 ranks" and {"host:gpu-1", "host:gpu-2"} <= set(profile.tags)
    assert {row.profile_id for row in mine.all()} == {profile.pk} and len(profile.metadata["files"]) == 2


def window_of(part: str) -> tuple[float, float]:
    """Return when the first operator of a trace began and the last ended, ms since 1970."""
    with default_storage.open(part) as file:
        trace = json.loads(gzip.decompress(file.read()))
    events = [(float(each["ts"]), float(each.get("dur", 0))) for each in trace["traceEvents"] if each.get("cat") == "cpu_op"]
    base_us = trace.get("baseTimeNanoseconds", 0) / 1e3
    return (base_us + min(at for at, _ in events)) / 1e3, (base_us + max(at + took for at, took in events)) / 1e3
