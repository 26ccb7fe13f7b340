"""Traces that the agent of an engine's host fetches: a real agent process against a live server and the real worker, real Kineto
files, and folders whose owner is hostile."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from profiles.base.refused import Refused
from profiles.models import FleetAgent, Profile
from profiles.running import engine_services as services
from profiles.running import fetch_services
from profiles.running.models import EngineCapture, EngineFetch, EngineServer
from tests.product import PROJECT
from tests.profiles.running.peer import Peer, peer
from tests.waiting import until
from webapp.models import ApiToken
from workers.agent.deep.engines import Body, Fetches, folders_of
from workers.agent.deep.folders import FolderProblem, allowing, is_below, list_files, open_file
from workers.capture import engine as engine_worker
from workers.capture import engine_results

KINETO = PROJECT / "tests/data/ranks"
RANKS = [KINETO / "collectives_rank0.json.gz", KINETO / "collectives_rank1.json.gz"]


class Host:
    """The engine's host: a folder, and an agent that may fetch from it."""

    def __init__(self, url: str, token: str) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="rf", dir="/tmp"))
        self.traces = self.home / "traces"
        self.traces.mkdir()
        (self.home / "token").write_text(token)
        self.url = url
        self.agent: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> None:
        environ = {**os.environ, "PYTHONPATH": str(PROJECT), "RIDGEPOINT_AGENT_TRACE_FOLDERS": str(self.traces)}
        self.agent = subprocess.Popen(
            [sys.executable, "-m", "workers.agent.node", "--server", self.url, "--token-file", str(self.home / "token"), "--spool",
             str(self.home / "spool"), "--socket", str(self.home / "agent.sock"), "--host", "gpu-7", "--no-telemetry",
             "--no-captures", *arguments], env=environ, cwd=PROJECT)
        until(lambda: FleetAgent.objects.filter(host="gpu-7", state__folders__0=str(self.traces)).exists())

    def kill(self) -> None:
        if self.agent is not None:
            self.agent.kill()
            self.agent.wait()

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.home, ignore_errors=True)


@pytest.fixture
def host(live_server: Any, olga: Any) -> Iterator[Host]:
    own = Host(live_server.url, ApiToken.objects.create(olga, name="agent", scope="write")[1])
    try:
        yield own
    finally:
        own.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_worker, "BESIDE_S", 0.3)
    monkeypatch.setattr(engine_results.AgentResults, "longest_s", 40.0)


def server(own: Peer, host: Host, **more: Any) -> EngineServer:
    return services.server_save(name=f"far-{own.kind}", kind=own.kind, address=own.address, results="agent", host="gpu-7",
                                folder=str(host.traces), **more)


def writes(row: EngineCapture, folder: Path) -> Any:
    def answer(_: Any) -> tuple[int, bytes, dict[str, str]]:
        for rank, source in enumerate(RANKS):
            shutil.copy(source, folder / f"ridgepoint-{row.pk}_rank{rank}.pt.trace.json.gz")
        return 200, b"", {}
    return answer


def work(row: EngineCapture) -> threading.Thread:
    def run() -> None:
        engine_worker.run(row.pk, "worker-1")
        connections.close_all()
    thread = threading.Thread(target=run)
    thread.start()
    return thread


# ---- end to end
@pytest.mark.process
@pytest.mark.django_db(transaction=True)
def test_traces_of_another_host_become_one_profile(quick: None, host: Host, client: Client, olga: Any) -> None:
    host.start()
    (host.traces / "old.json.gz").write_bytes(RANKS[0].read_bytes())
    outside = host.home / "secret.json"
    outside.write_text("{}")
    client.force_login(olga)
    page = client.get(reverse("engine-servers")).content.decode()
    assert "fetched by the agent there" in page and f"gpu-7: {host.traces}" in page
    with peer() as own:
        given = {"name": "far", "kind": "vllm", "address": own.address, "results": "agent", "host": "gpu-7",
                 "folder": str(host.traces), "enabled": "on"}
        assert client.post(reverse("engine-servers"), {**given, "folder": "/etc"}).status_code == 400
        assert client.post(reverse("engine-servers"), given).status_code == 302
        row = services.capture_create(EngineServer.objects.get(), {"seconds": 0.4}, olga)

        def answer(given: Any) -> Any:
            (host.traces / f"ridgepoint-{row.pk}-link.json").symlink_to(outside)
            os.link(outside, host.traces / f"ridgepoint-{row.pk}-hard.json")
            return writes(row, host.traces)(given)
        own.on["/stop_profile"] = answer
        engine_worker.run(row.pk, "worker-1")
        row.refresh_from_db()
        assert row.status == "done", row.error
    profile = Profile.objects.get(pk=row.profile_id)
    assert len(profile.metadata["files"]) == 2 and row.fetch.state == "fetched" and row.fetch.parts == {}
    assert {each.name for each in host.traces.iterdir()} >= {"old.json.gz", f"ridgepoint-{row.pk}_rank0.pt.trace.json.gz"}


@pytest.mark.process
@pytest.mark.django_db(transaction=True)
def test_steps_end_when_the_agent_sees_their_traces(quick: None, host: Host) -> None:
    host.start()
    with peer("sglang") as own:
        row = services.capture_create(server(own, host), {"until": "steps", "seconds": 30, "options": {"num_steps": 2}}, None)
        own.on["/start_profile"] = writes(row, host.traces)
        began = time.monotonic()
        engine_worker.run(row.pk, "worker-1")
        row.refresh_from_db()
        assert row.status == "done", row.error
        assert time.monotonic() - began < 28
        sent = next(each for each in own.asked if each[1] == "/start_profile")[3]
        assert sent["output_dir"] == str(host.traces)


@pytest.mark.process
@pytest.mark.django_db(transaction=True)
def test_an_agent_that_is_killed_meanwhile_leaves_a_clear_state(quick: None, host: Host, monkeypatch: pytest.MonkeyPatch,
                                                                client: Client, olga: Any) -> None:
    monkeypatch.setattr(fetch_services, "LEAST_SILENT_S", 4.0)
    monkeypatch.setattr(fetch_services, "again_s", lambda: 0.5)
    host.start()
    with peer() as own:
        row = services.capture_create(server(own, host), {"seconds": 30}, None)
        worker = work(row)
        until(lambda: "/start_profile" in own.paths())
        own.on["/stop_profile"] = writes(row, host.traces)
        host.kill()
        worker.join(60)
        row.refresh_from_db()
        assert row.status == "failed" and "the agent of gpu-7 went silent" in row.error["what"], row.error
        assert str(host.traces) in row.error["hint"] and "/stop_profile" in own.paths()
        assert row.fetch.state == "failed"
        client.force_login(olga)
        assert "the agent of gpu-7 is away" in client.get(reverse("engine-server", args=[row.server_id])).content.decode()
        assert "(away)" in client.get(reverse("engine-servers")).content.decode()
        again = services.capture_create(row.server, {"seconds": 0.3}, None)
        engine_worker.run(again.pk, "worker-1")
        again.refresh_from_db()
        assert again.status == "failed" and "is away" in again.error["what"]
        assert own.paths().count("/start_profile") == 1             # it was not begun for nothing


@pytest.mark.deep_only
@pytest.mark.process
@pytest.mark.django_db(transaction=True)
def test_an_agent_that_is_killed_while_it_uploads_and_started_anew(quick: None, host: Host,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    arrived, go_on, take = threading.Event(), threading.Event(), fetch_services.take_file

    def slow(*given: Any) -> None:
        arrived.set()
        go_on.wait(30)
        take(*given)
    monkeypatch.setattr(fetch_services, "take_file", slow)
    host.start()
    with peer() as own:
        row = services.capture_create(server(own, host), {"seconds": 0.3}, None)
        own.on["/stop_profile"] = writes(row, host.traces)
        worker = work(row)
        assert arrived.wait(30)
        until(lambda: EngineFetch.objects.get().state == "uploading")
        host.kill()
        host.start()
        worker.join(30)
        go_on.set()
        row.refresh_from_db()
        assert row.status == "failed" and "started anew meanwhile" in row.error["what"], row.error
        assert EngineFetch.objects.get().parts == {} and not Profile.objects.exists()
        monkeypatch.setattr(fetch_services, "take_file", take)
        again = services.capture_create(row.server, {"seconds": 0.3}, None)
        own.on["/stop_profile"] = writes(again, host.traces)
        engine_worker.run(again.pk, "worker-1")
        again.refresh_from_db()
        assert again.status == "done", again.error


@pytest.mark.process
@pytest.mark.django_db(transaction=True)
def test_what_the_agents_own_configuration_does_not_allow_is_not_read(quick: None, host: Host) -> None:
    host.start()
    with peer() as own:
        row = services.capture_create(server(own, host), {"seconds": 0.3}, None)
        FleetAgent.objects.update(state={"folders": ["/"]})                     # a server that would name any path
        EngineServer.objects.update(folder="/etc")
        row.refresh_from_db()
        agent = FleetAgent.objects.get()
        fetch = EngineFetch.objects.create(capture=row, agent=agent, folder="/etc", prefix="x", heard=timezone.now())
        EngineCapture.objects.filter(pk=row.pk).update(status="running")
        until(lambda: EngineFetch.objects.get(pk=fetch.pk).state == "failed")
        assert f"this agent fetches from {host.traces}, not from /etc" in EngineFetch.objects.get(pk=fetch.pk).why


# ---- what is uploaded
@pytest.mark.django_db
def test_files_are_taken_only_while_their_capture_waits(api: Any, olga: Any, bob: Any, tmp_path: Path, settings: Any,
                                                        tmp_store: Path) -> None:
    agent = FleetAgent.objects.create(name="agent-1", host="gpu-7", last_seen=timezone.now(), state={"folders": ["/t"]})
    engine = services.server_save(name="far", kind="vllm", address="http://127.0.0.1:1", results="agent", host="gpu-7",
                                  folder="/t/a")
    row = services.capture_create(engine, {"seconds": 1}, None)
    fetch = fetch_services.begin(row, "gpu-7", "/t/a", "p")

    def send(number: int = 0, person: Any = olga) -> Any:
        with RANKS[0].open("rb") as file:
            return api(person).post(reverse("api-fleet-fetch", args=[fetch.pk, number]), {"file": file}, format="multipart")
    assert send(person=bob).status_code == 403 and "nobody waits" in send().content.decode()
    EngineCapture.objects.filter(pk=row.pk).update(status="running")
    assert send().status_code == 400                                            # the engine records still
    EngineFetch.objects.filter(pk=fetch.pk).update(state="watching", collect=True)
    assert send().status_code == 201 and send().status_code == 201              # again, after a lost answer
    fetch.refresh_from_db()
    assert list(fetch.parts) == ["0"] and len(list((tmp_store / "captures/fetched").rglob("*-*"))) == 1
    assert "at most 64 files" in send(64).content.decode()
    settings.UPLOAD_MAX_BYTES = RANKS[0].stat().st_size + 10
    assert "are above" in send(1).content.decode()
    assert len(list((tmp_store / "captures/fetched").rglob("*-*"))) == 1
    services.capture_stop(row)
    fetch_services.clear_ended()
    assert send(2).status_code == 400 and not list((tmp_store / "captures/fetched").rglob("*-*"))
    (order,) = fetch_services.orders_for(agent.name, {"fetches": [{"fetch": fetch.pk, "state": "watching"}]})
    assert order == {"fetch": fetch.pk, "stop": True}


@pytest.mark.django_db
@pytest.mark.parametrize("told", [7, [7], [{"fetch": "x"}], [{"fetch": 10**30}], [{"fetch": 1, "state": 5, "why": 7}],
                                  [{"state": []}]])
def test_an_agent_may_say_anything(api: Any, olga: Any, told: Any) -> None:
    given = {"agent": "a", "host": "h", "asking": [], "folders": ["/a", "relative", "/b\ac"], "fetches": told}
    answer = api(olga).post(reverse("api-fleet-orders"), given, format="json")
    assert answer.status_code in (200, 400)
    if answer.status_code == 200:
        assert [each.folders for each in fetch_services.hosts()] == [("/a",)]


@pytest.mark.django_db
def test_servers_whose_agent_is_unknown_are_refused_with_what_to_do(olga: Any) -> None:
    given = {"name": "far", "kind": "vllm", "address": "http://h:1", "results": "agent", "folder": "/t/a"}
    with pytest.raises(Refused, match="no agent of gpu-7 fetches traces: ridgepoint-agent --trace-folders"):
        services.server_save(host="gpu-7", **given)
    FleetAgent.objects.create(name="a", host="gpu-7", last_seen=timezone.now(), state={"folders": ["/t"]})
    for folder in ("/tx", "/t/../etc", "relative"):
        with pytest.raises(Refused) as refused:
            services.server_save(host="gpu-7", **{**given, "folder": folder})
        assert list(refused.value.fields) == ["folder"]
    assert services.server_save(host="gpu-7", **given).host == "gpu-7"


# ---- the agent's side
def test_only_folders_of_the_configuration_are_below() -> None:
    assert folders_of("/a:/b/:/a::") == ["/a", "/b"] and allowing("/b/c/", ["/a", "/b"]) == "/b"
    for path in ("/bc", "/b/../a2", "b", "/b//c", "/b/./c", "/b/c\0", ""):
        assert not is_below(path, "/b"), path
    with pytest.raises(ValueError, match="absolute paths"):
        Fetches(["a/../b"], lambda path, body, headers: b"")


def test_a_folder_whose_owner_is_hostile_leads_nowhere(tmp_path: Path) -> None:
    root, outside = tmp_path / "traces", tmp_path / "outside"
    for folder in (root / "a", outside):
        folder.mkdir(parents=True)
    (outside / "x.json").write_text("secret")
    (root / "a" / "x.json").write_text("mine")
    (root / "link.json").symlink_to(outside / "x.json")
    (root / "folder").symlink_to(outside)
    os.link(outside / "x.json", root / "hard.json")
    os.mkfifo(root / "pipe.json")
    (root / "text.txt").write_text("no trace")
    (root / "1/2/3/4").mkdir(parents=True)
    (root / "1/2/3/deep.json").write_text("3 levels")
    (root / "1/2/3/4/deeper.json").write_text("4 levels")
    found = {each.name: each for each in list_files(str(root))}
    assert sorted(found) == ["1/2/3/deep.json", "a/x.json"]
    with open_file(str(root), "", found["a/x.json"]) as file:
        assert file.read() == b"mine"
    for below in ("folder", "a/..", "no"):
        with pytest.raises(FolderProblem):
            list_files(str(root), below)
    shutil.rmtree(root / "a")                       # replaced between the list and the opening
    (root / "a").symlink_to(outside)
    with pytest.raises(FolderProblem):
        open_file(str(root), "", found["a/x.json"])
    (root / "a").unlink()
    (root / "a").mkdir()
    (root / "a" / "x.json").symlink_to(outside / "x.json")
    with pytest.raises(FolderProblem):
        open_file(str(root), "", found["a/x.json"])


def test_a_folder_that_holds_too_much_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.agent.deep.folders.MOST_LISTED", 10)
    for number in range(11):
        (tmp_path / str(number)).touch()
    with pytest.raises(FolderProblem, match="more than 10 files"):
        list_files(str(tmp_path))


def test_what_is_above_the_agents_bound_is_not_sent(tmp_path: Path) -> None:
    sent: list[str] = []

    def post(path: str, body: Body, headers: dict[str, str]) -> bytes:
        sent.append(path)
        return b""
    own = Fetches([str(tmp_path)], post, most_bytes=100)
    own.take({"fetch": 1, "folder": str(tmp_path), "prefix": "p", "begin": True})
    (tmp_path / "p.json").write_bytes(b"x" * 101)
    own.tend()
    (told,) = own.state()["fetches"]
    assert told["state"] == "failed" and "above 100 bytes" in told["why"] and not sent
    own.take({"fetch": 2, "folder": str(tmp_path), "collect": True})
    assert "started anew" in own.state()["fetches"][1]["why"]
    own.take({"fetch": 2, "stop": True})
    for nonsense in (None, 7, {"fetch": -1, "begin": True}, {"fetch": "x"}, {"fetch": 3, "folder": "x" * 500, "begin": True}):
        own.take(nonsense)
    assert [each["fetch"] for each in own.state()["fetches"]] == [1]


def test_a_file_that_becomes_shorter_is_no_upload(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    with (tmp_path / "a").open("rb") as file:
        body = Body('a"\r\n', file, 10)
        with pytest.raises(OSError, match="shorter"):
            while body.read():
                pass
