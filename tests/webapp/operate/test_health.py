"""How the server is: for a load balancer without sign-in and without detail, for people with everything."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client

from webapp import schema
from webapp.operate import checks
from webapp.operate.probes import Probes
from workers import disk, jobs


async def passed_on(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("it was to be answered before Django")


async def ask(probes: Probes, path: str, method: str = "GET") -> tuple[int, dict[bytes, bytes], bytes]:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "path": path, "method": method, "headers": [(b"host", b"10.1.2.3:8000")]}
    await probes(scope, None, send)
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


async def test_probes_answer_any_host_without_detail() -> None:
    well, ill = Probes(passed_on, lambda: True), Probes(passed_on, lambda: False)
    assert (await ask(well, "/health/live"))[0] == 204 and (await ask(ill, "/health/live/"))[0] == 204
    status, _, body = await ask(well, "/health/ready")
    assert (status, body) == (200, b"")
    status, headers, body = await ask(ill, "/health/ready")
    assert (status, body) == (503, b"") and int(headers[b"retry-after"]) > 0
    assert (await ask(well, "/health/ready", "POST"))[0] == 405


async def test_a_server_that_hangs_is_not_ready_and_is_asked_once_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webapp.operate.probes.WITHIN_S", 0.2)
    monkeypatch.setattr("webapp.operate.probes.KEPT_S", 0.0)
    asked: list[int] = []

    def hang() -> bool:
        asked.append(1)
        time.sleep(1)
        return True

    probes = Probes(passed_on, hang)
    assert [(await ask(probes, "/health/ready"))[0] for _ in range(3)] == [503, 503, 503]
    assert len(asked) == 1
    time.sleep(1)
    assert (await ask(probes, "/health/live"))[0] == 204


@pytest.mark.django_db(transaction=True)
@pytest.mark.servers
def test_pending_migrations_are_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    from webapp.operate import probes

    assert probes.is_ready()
    monkeypatch.setattr(schema, "pending", lambda: {("webapp", "0999_later")})
    assert not probes.is_ready()
    assert checks.migrations().state == checks.BAD and "webapp.0999_later" in checks.migrations().says


@pytest.mark.django_db
def test_a_database_that_a_later_version_wrote_is_refused() -> None:
    MigrationRecorder(connection).record_applied("allauth", "9999_of_a_package")
    assert schema.unknown() == []
    MigrationRecorder(connection).record_applied("profiles", "9999_of_tomorrow")
    with pytest.raises(schema.NewerDatabase, match=r"later version.*profiles\.9999_of_tomorrow.*restore a backup"):
        schema.bring_up_to_date()
    assert checks.migrations().state == checks.BAD and "profiles.9999_of_tomorrow" in checks.migrations().says


@pytest.mark.django_db
@pytest.mark.servers
def test_status_tells_database_valkey_disk_queues_and_clocks(alice: Any, sign_in_mode: None) -> None:
    client = Client()
    assert client.get("/status/").status_code == 302 and client.get("/api/status/").status_code == 401
    client.force_login(alice)
    found = {check["name"]: check for check in client.get("/api/status/").json()["checks"]}
    assert found["Database"]["facts"]["connections"] >= 1 and found["Database"]["says"].startswith("PostgreSQL ")
    assert found["Migrations"]["facts"] == {"pending": []} and found["Valkey"]["facts"]["bytes"] > 0
    [place] = [check for name, check in found.items() if name.startswith("Disk: data folder")]
    assert 0 < place["facts"]["free_bytes"] <= place["facts"]["total_bytes"]
    assert set(found["Clocks"]["facts"]["skew_s"]) >= {"web", "database", "Valkey"} and found["Clocks"]["facts"]["apart_s"] < 1
    page = client.get("/status/").content.decode()
    assert "PostgreSQL" in page and str(disk.places()[0].path) not in page


@pytest.mark.django_db
@pytest.mark.servers
def test_the_oldest_entry_and_a_wrong_clock_are_seen() -> None:
    jobs.connection().flushdb()
    try:
        jobs.enqueue("ingest", "analyse", 1)
        jobs.enqueue("ingest", "analyse", 2)
        time.sleep(0.05)
        queues = checks.queues()
        assert queues.facts["waiting"]["ingest"] == 2 and 0.05 <= queues.facts["oldest_s"]["ingest"] < 30
        assert queues.facts["oldest_s"]["gpu"] is None
        jobs.announce("gpu@far-1", {"queues": ["gpu"], "host": "far", "clock_skew_s": 7.5, "disks": [
            {"names": ["temporary files"], "free_bytes": 5, "total_bytes": 10**9, "rest_bytes": 10**7, "short": True}]})
        clocks = checks.clocks()
        assert clocks.state == checks.WARN and "far" in clocks.says and clocks.hint
        assert checks.workers().facts["by_queue"]["gpu"] == 1
        assert [check.state for check in checks.worker_disks() if check.name == "Disk of far: temporary files"] == [checks.BAD]
    finally:
        jobs.connection().flushdb()


@pytest.mark.django_db
@pytest.mark.servers
def test_one_check_that_cannot_look_holds_up_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> Any:
        raise ConnectionRefusedError("nobody listens")

    found = checks.run([("Valkey", away), ("Database", checks.database)])
    assert [(each.name, each.state) for each in found] == [("Valkey", checks.BAD), ("Database", checks.OK)]
    assert "nobody listens" in found[0].says and checks.worst(found) == checks.BAD
    assert connection.queries is not None
