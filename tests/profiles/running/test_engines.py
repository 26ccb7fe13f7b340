"""Captures of serving engines against a peer that may be hostile: what it is asked, what is believed, what becomes of the row."""

from __future__ import annotations

import gzip
import json
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from profiles.base.refused import Refused
from profiles.models import Profile
from profiles.running import engine_services as services
from profiles.running.engines import Engine, EngineProblem, checked_addresses, edge_of, read_metrics, read_parameters, slow_between
from profiles.running.models import EngineCapture, EngineServer
from tests.profiles.running.peer import Peer, peer
from workers.capture import engine as engine_worker
from workers.capture import engine_results
from workers.outgoing import NotSent, is_metadata

TRACE = gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": [
    {"ph": "X", "name": "step", "pid": 1, "tid": 1, "ts": at, "dur": 5, "cat": "cpu_op"} for at in range(0, 500, 10)]}).encode())


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_worker, "BESIDE_S", 0.3)
    for kind in (engine_results.Results, engine_results.AgentResults):
        monkeypatch.setattr(kind, "longest_s", 6.0)
    monkeypatch.setattr(engine_results, "SETTLE_S", 0.3)
    monkeypatch.setattr(engine_results, "LOOK_S", 0.2)


def server(own: Peer, folder: Path, **more: Any) -> EngineServer:
    return services.server_save(name=f"llama-{own.kind}", kind=own.kind, address=own.address, folder=str(folder), **more)


def writes(folder: Path, *names: str) -> Any:
    """Answer as an engine that wrote its traces."""
    def answer(_: Any) -> tuple[int, bytes, dict[str, str]]:
        for name in names:
            (folder / name).write_bytes(TRACE)
        return 200, b"", {}
    return answer


def finished(row: EngineCapture) -> EngineCapture:
    engine_worker.run(row.pk, "worker-1")
    row.refresh_from_db()
    return row


# ---- what it is asked
@pytest.mark.parametrize(("kind", "given", "found", "wrong"), [
    ("vllm", {"profile_prefix": "a", "delay_iterations": "3", "max_iterations": 5, "profiler_kwargs": '{"with_stack": true}'},
     {"profile_prefix": "a", "delay_iterations": 3, "max_iterations": 5, "profiler_kwargs": {"with_stack": True}}, []),
    ("vllm", {"profile_prefix": "../a", "delay_iterations": -1, "profiler_kwargs": "[1]", "with_stack": True}, {},
     ["delay_iterations", "profile_prefix", "profiler_kwargs", "with_stack"]),
    ("sglang", {"output_dir": "/t/x", "start_step": 1, "num_steps": "2", "activities": ["CPU", "GPU"], "profile_by_stage": "true",
                "profile_stages": "decode", "with_stack": False, "record_shapes": "", "profile_id": "7", "merge_profiles": "on",
                "detailed_annotations": None},
     {"output_dir": "/t/x", "start_step": 1, "num_steps": 2, "activities": ["CPU", "GPU"], "profile_by_stage": True,
      "profile_stages": ["decode"], "with_stack": False, "profile_id": "7", "merge_profiles": True}, []),
    ("sglang", {"output_dir": "/etc", "activities": ["ALL"], "num_steps": 10**9, "profile_stages": 7, "with_stack": "maybe"}, {},
     ["activities", "num_steps", "output_dir", "profile_stages", "with_stack"]),
    ("sglang", {"output_dir": "/t/../etc"}, {}, ["output_dir"]), ("sglang", {"output_dir": "/tx"}, {}, ["output_dir"]),
    ("vllm", {"profiler_kwargs": {"a": "x" * 3000}}, {}, ["profiler_kwargs"]),
    ("vllm", {"profiler_kwargs": "[" * 1500}, {}, ["profiler_kwargs"]),
])
def test_parameters_are_read_as_the_engine_takes_them(kind: str, given: dict[str, Any], found: dict[str, Any],
                                                      wrong: list[str]) -> None:
    read, errors = read_parameters(kind, given, "/t")
    assert (read, sorted(errors)) == (found, wrong)


# ---- where requests go
@pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1", "::ffff:169.254.169.254", "0.0.0.0", "224.0.0.1",
                                     "fd00:ec2::254", "64:ff9b::a9fe:a9fe", "100.100.100.200", "168.63.129.16"])
def test_addresses_of_no_service_are_never_asked(address: str) -> None:
    assert is_metadata(address)
    shown = f"[{address}]" if ":" in address else address
    with pytest.raises(Refused):
        checked_addresses(f"http://{shown}:80", True)
    with pytest.raises(EngineProblem):
        Engine("vllm", f"http://{shown}:80").version()


def test_addresses_inside_are_asked_where_they_are_meant() -> None:
    assert checked_addresses("http://127.0.0.1:1", True) == ["127.0.0.1"] and not is_metadata("10.1.2.3")
    with pytest.raises(Refused, match="RIDGEPOINT_ENGINE_PRIVATE"):
        checked_addresses("http://127.0.0.1:1", False)
    with pytest.raises((NotSent, Refused)):
        checked_addresses("http://no-such-host.invalid:1", True)


# ---- what is believed
def test_the_version_is_asked_for_with_the_token() -> None:
    with peer() as own:
        assert Engine("vllm", own.address, "s3cret").version() == "0.33.0"
        assert own.asked[0][2]["Authorization"] == "Bearer s3cret"
    with peer("sglang") as own:
        own.on["/server_info"] = lambda _: (404, b"", {})
        own.on["/get_server_info"] = lambda _: (200, b'{"version": "0.4.1"}', {})
        assert Engine("sglang", own.address).version() == "0.4.1"


@pytest.mark.parametrize(("answer", "why"), [
    ((200, b"<html>", {}), "no version"), ((200, b"[" * 100_000, {}), "no version"), ((200, b'{"version": 7}', {}), "no version"),
    ((200, b'{"version": "a\\nb"}', {}), "no version"), ((302, b"", {"Location": "http://169.254.169.254/"}), "redirects"),
    ((401, b"", {}), "token"), ((500, b"boom " * 1000, {}), "500: boom"), ((404, b"", {}), "no version")])
def test_an_answer_that_is_none_is_said(answer: Any, why: str) -> None:
    with peer() as own:
        own.on["/version"] = lambda _: answer
        with pytest.raises(EngineProblem, match=why) as problem:
            Engine("vllm", own.address).version()
        assert len(problem.value.what) < 300 and len(own.asked) == 1


def test_a_peer_that_drips_is_cut_and_one_that_floods_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profiles.running.engines.QUICK_S", 0.6)
    monkeypatch.setattr("profiles.running.engines.MOST_BYTES", 1000)
    with peer() as own:
        own.drip_s = 0.1
        began = time.monotonic()
        with pytest.raises(EngineProblem, match="no answer within"):
            Engine("vllm", own.address).version()
        assert time.monotonic() - began < 5
        own.drip_s = 0
        own.on["/metrics"] = lambda _: (200, b"x" * 100_000, {})
        with pytest.raises(EngineProblem, match="above 1,000 bytes"):
            Engine("vllm", own.address).metrics()


def test_metrics_are_read_and_nonsense_in_them_is_not() -> None:
    with peer() as own:
        own.began_s -= 5
        text = own.metrics().decode()
    nonsense = "vllm:request_success_total nan\nvllm:e2e_request_latency_seconds_count -5\n{}{}{\n" + "a" * 5000
    reading = read_metrics(text + nonsense, "vllm")
    found = reading.histograms["vllm:e2e_request_latency_seconds"]
    assert reading.requests("vllm") == found.count == 50 and found.buckets[0.5] == 50
    assert [edge_of(found, each) for each in (0.1, 0.5, 0.6, 3.0)] == [0.5, 0.5, 2.5, None]
    later = read_metrics(text.replace('le="0.5",model_name="m"}} 50', "").replace(" 50\n", " 53\n").replace(
        'le="0.5",model_name="m"} 53', 'le="0.5",model_name="m"} 51'), "vllm").histograms["vllm:e2e_request_latency_seconds"]
    assert slow_between(found, later, 0.5) == 2 and slow_between(later, found, 0.5) == 0
    assert read_metrics(text, "sglang").histograms == {}


# ---- servers
@pytest.mark.django_db
def test_owners_name_servers_and_nobody_is_shown_a_token(client: Client, olga: Any, alice: Any, bob: Any, tmp_path: Path) -> None:
    with peer() as own:
        given = {"name": "llama", "kind": "vllm", "address": own.address, "token": "s3cret-token", "results": "folder",
                 "folder": str(tmp_path), "enabled": "on"}
        client.force_login(alice)
        assert client.post(reverse("engine-servers"), given).status_code == 403
        client.force_login(olga)
        page = client.post(reverse("engine-servers"), given, follow=True)
        assert page.status_code == 200 and "0.33.0" in page.content.decode()
        row = EngineServer.objects.get()
        assert row.version == "0.33.0" and "s3cret" not in row.token
        changed = client.post(reverse("engine-servers"), {**given, "edit": row.pk, "token": "", "name": "llama-2"}, follow=True)
        assert services.engine_of(EngineServer.objects.get()).token == "s3cret-token" and "llama-2" in changed.content.decode()
        for user in (olga, alice, bob):
            client.force_login(user)
            for url in (reverse("engine-servers"), f"{reverse('engine-servers')}?edit={row.pk}",
                        reverse("engine-server", args=[row.pk]), reverse("api-engine-servers"),
                        reverse("api-engine-captures", args=[row.pk])):
                answer = client.get(url)
                assert answer.status_code == 200 and b"s3cret" not in answer.content
        client.force_login(bob)
        assert client.post(reverse("engine-server", args=[row.pk]), {"until": "seconds"}).status_code == 403
        assert client.post(reverse("api-engine-captures", args=[row.pk]), {}, content_type="application/json").status_code == 403


@pytest.mark.django_db
@pytest.mark.parametrize(("change", "field"), [
    ({"name": ""}, "name"), ({"kind": "tgi"}, "kind"), ({"address": "file:///etc/passwd"}, "address"),
    ({"address": "http://a:b@c/"}, "address"), ({"folder": "relative"}, "folder"), ({"folder": "/a/../b"}, "folder"),
    ({"results": "bucket", "folder": "profiles/1"}, "folder"),
    ({"results": "bucket", "folder": "/abs"}, "folder"), ({"results": "mail"}, "results"), ({"token": "a\nb"}, "token")])
def test_what_is_no_server_is_refused(change: dict[str, str], field: str) -> None:
    with pytest.raises(Refused) as refused:
        services.server_save(**{"name": "a", "kind": "vllm", "address": "http://host:8000", "folder": "/t", **change})
    assert list(refused.value.fields) == [field]


# ---- captures
@pytest.mark.django_db(transaction=True)
def test_a_time_is_captured_and_ranks_are_one_profile(quick: None, tmp_path: Path) -> None:
    (tmp_path / "old.pt.trace.json.gz").write_bytes(TRACE)
    with peer() as own:
        given = {"seconds": 0.4, "build": "b7", "options": {"delay_iterations": 1}}
        row = services.capture_create(server(own, tmp_path), given, None)
        own.on["/stop_profile"] = writes(tmp_path, f"ridgepoint-{row.pk}_dp0_rank0.1.pt.trace.json.gz",
                                         f"ridgepoint-{row.pk}_dp0_rank1.1.pt.trace.json.gz", "another.json.gz")
        assert finished(row).status == "done", row.error
        assert own.paths() == ["/start_profile", "/stop_profile"]
        started = next(each for each in own.asked if each[1] == "/start_profile")
        assert started[3] == {"profile_prefix": f"ridgepoint-{row.pk}", "delay_iterations": 1}
    profile = Profile.objects.get(pk=row.profile_id)
    assert profile.name == "llama-vllm: 0.4 s" and profile.build == "b7" and "server:llama-vllm" in profile.tags
    assert len(profile.metadata["files"]) == 2
    assert row.cost is not None and "too few seconds" in row.cost["why"]


@pytest.mark.django_db(transaction=True)
def test_steps_end_by_themselves_and_a_second_stop_may_be_refused(quick: None, tmp_path: Path) -> None:
    with peer("sglang") as own:
        row = services.capture_create(server(own, tmp_path), {"until": "steps", "seconds": 20, "options": {"num_steps": 4}}, None)
        own.on["/start_profile"] = writes(tmp_path, f"ridgepoint-{row.pk}-123-TP-0.trace.json.gz")
        own.on["/stop_profile"] = lambda _: (500, b"Profiling is not in progress", {})
        began = time.monotonic()
        assert finished(row).status == "done", row.error
        assert time.monotonic() - began < 10
        sent = next(each for each in own.asked if each[1] == "/start_profile")[3]
        assert sent == {"num_steps": 4, "profile_prefix": f"ridgepoint-{row.pk}", "output_dir": str(tmp_path)}


@pytest.mark.django_db(transaction=True)
def test_it_ends_with_the_first_slow_request(quick: None, tmp_path: Path) -> None:
    with peer() as own:
        row = services.capture_create(server(own, tmp_path), {"until": "slow", "threshold_ms": 400, "seconds": 30}, None)
        own.on["/stop_profile"] = writes(tmp_path, f"ridgepoint-{row.pk}.json.gz")
        own.slow_after_s = time.monotonic() - own.began_s + 1.5
        began = time.monotonic()
        assert finished(row).status == "done", row.error
        assert row.slow_seen is True and time.monotonic() - began < 15
        again = services.capture_create(row.server, {"until": "slow", "threshold_ms": 9000, "seconds": 30}, None)
        assert finished(again).status == "failed" and "counted up to" in again.error["what"]
        assert own.paths().count("/start_profile") == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("broken", "what"), [
    ({"/start_profile": (404, b"", {})}, "no route /start_profile"), ({"/start_profile": (403, b"", {})}, "refuses the token"),
    ({"/stop_profile": (500, b"x", {})}, "/stop_profile: 500"), ({}, "no trace came")])
def test_what_an_engine_refuses_ends_the_row_and_the_recording(quick: None, tmp_path: Path, broken: Any, what: str) -> None:
    with peer() as own:
        row = services.capture_create(server(own, tmp_path), {"seconds": 0.2}, None)
        for path, answer in broken.items():
            own.on[path] = lambda _, answer=answer: answer
        assert finished(row).status == "failed" and what in row.error["what"]
        assert "/stop_profile" in own.paths() and row.profile_id is None


@pytest.mark.django_db(transaction=True)
def test_links_in_the_folder_are_not_followed(quick: None, tmp_path: Path) -> None:
    traces, outside = tmp_path / "traces", tmp_path / "outside.json"
    traces.mkdir()
    outside.write_bytes(TRACE)
    with peer() as own:
        row = services.capture_create(server(own, traces), {"seconds": 0.2}, None)

        def link(_: Any) -> Any:
            (traces / f"ridgepoint-{row.pk}.json").symlink_to(outside)
            return 200, b"", {}
        own.on["/stop_profile"] = link
        assert finished(row).status == "failed" and "no trace came" in row.error["what"]


@pytest.mark.django_db(transaction=True)
def test_stop_is_at_once_and_the_engine_is_told(quick: None, tmp_path: Path) -> None:
    with peer() as own:
        row = services.capture_create(server(own, tmp_path), {"seconds": 60}, None)

        def work() -> None:
            engine_worker.run(row.pk, "worker-1")
            connections.close_all()
        thread = threading.Thread(target=work)
        thread.start()
        end = time.monotonic() + 20
        while "/start_profile" not in own.paths() and time.monotonic() < end:
            time.sleep(0.05)
        began = time.monotonic()
        assert services.capture_stop(row) and time.monotonic() - began < 1
        thread.join(timeout=5)
        assert not thread.is_alive() and own.paths() == ["/start_profile", "/stop_profile"]
        row.refresh_from_db()
        assert row.status == "cancelled" and not services.capture_stop(row)


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_died_is_followed_by_one_that_stops_the_engine(quick: None, tmp_path: Path) -> None:
    with peer() as own:
        row = services.capture_create(server(own, tmp_path), {"seconds": 60}, None)
        EngineCapture.objects.filter(pk=row.pk).update(
            status="running", worker="dead", attempts=1, started_at_engine=timezone.now(),
            heartbeat=timezone.now() - timedelta(seconds=30))
        assert finished(row).status == "failed" and "worker ended meanwhile" in row.error["what"]
        assert own.paths() == ["/stop_profile"]


@pytest.mark.django_db
def test_one_capture_of_a_server_at_a_time(tmp_path: Path) -> None:
    with peer() as own:
        row = server(own, tmp_path)
        services.capture_create(row, {}, None)
        with pytest.raises(Refused, match="under way"):
            services.capture_create(row, {}, None)


@pytest.mark.django_db
@pytest.mark.parametrize(("given", "field"), [
    ({"until": "never"}, "until"), ({"seconds": 1e9}, "seconds"), ({"seconds": "nan"}, "seconds"),
    ({"until": "steps"}, "max_iterations"), ({"options": {"max_iterations": 3}}, "max_iterations"),
    ({"until": "slow"}, "threshold_ms"), ({"options": 7}, "options"),
    ({"until": "slow", "threshold_ms": 5, "latency": "x"}, "latency")])
def test_what_cannot_be_captured_is_said(given: dict[str, Any], field: str) -> None:
    row = services.server_save(name="a", kind="vllm", address="http://host:8000", folder="/t")
    with pytest.raises(Refused) as refused:
        services.capture_create(row, given, None)
    assert list(refused.value.fields) == [field] and not EngineCapture.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_the_command_captures_a_server_and_waits(quick: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with peer("sglang") as own:
        server(own, tmp_path)

        def work() -> None:
            end = time.monotonic() + 20
            while not (row := EngineCapture.objects.filter(status="queued").first()) and time.monotonic() < end:
                time.sleep(0.1)
            assert row is not None
            own.on["/stop_profile"] = writes(tmp_path, f"ridgepoint-{row.pk}.json.gz")
            engine_worker.run(row.pk, "worker-1")
            Profile.objects.update(status="ready")
            connections.close_all()
        worker = threading.Thread(target=work)
        worker.start()
        call_command("capture", "engine", "llama-sglang", "--seconds", "0.3", "-p", "activities=GPU", "-p", "with_stack=true",
                     "--json")
        worker.join()
        document = json.loads(capsys.readouterr().out)
        assert document["status"] == "done" and document["profile"]
        assert document["options"] == {"activities": ["GPU"], "with_stack": True}
        for wrong, why in (("nobody", "there is no server 'nobody': llama-sglang"), ("llama-sglang -p x=1", "no such parameter"),
                           ("llama-sglang -p x", "NAME=VALUE"), ("llama-sglang --seconds 999", "seconds")):
            with pytest.raises(CommandError, match=why):
                call_command("capture", "engine", *wrong.split())


@pytest.mark.django_db
def test_owners_change_and_delete_servers_by_api(api: Any, olga: Any, alice: Any, tmp_path: Path) -> None:
    with peer() as own:
        row = server(own, tmp_path, token="s3cret-token")
        url = reverse("api-engine-server", args=[row.pk])
        for method in (api(alice).patch, api(alice).delete):
            assert method(url, {"enabled": False}, format="json").status_code == 403
        changed = api(olga).patch(url, {"enabled": False, "name": "other"}, format="json")
        assert changed.status_code == 200 and (changed.json()["name"], changed.json()["enabled"]) == ("other", False)
        row.refresh_from_db()
        assert services.engine_of(row).token == "s3cret-token" and row.folder == str(tmp_path) and b"s3cret" not in changed.content
        assert "folder" in api(olga).patch(url, {"folder": "relative"}, format="json").json()["fields"]
        assert api(alice).get(url).status_code == 200
        assert api(olga).delete(url).status_code == 204 and not EngineServer.objects.exists()
