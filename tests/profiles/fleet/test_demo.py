"""The demonstration fleet: made as agents make batches, labelled everywhere, found by the pages' questions, forgotten whole."""

from __future__ import annotations

import io
import json
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from profiles.fleet import services
from profiles.fleet.demo import BUILD_FACTOR, GPU_MODEL, SLOW_FACTOR, SLOW_KERNEL, Demo, job_kernels
from profiles.fleet.models import FleetAgent, FleetBatch, FleetContext, FleetDay, FleetGpu, FleetKernel, FleetSignature
from profiles.fleet.stores import fleet_store
from profiles.fleet.tables import LEVELS, TABLES, table_name
from profiles.management import fleet_demo
from tests.profiles.fleet.records import make_records, write_records
from webapp.management import served
from webapp.models import ApiToken
from workers.agent.wire import pack, unpack


def ask(*words: str) -> dict[str, Any]:
    out = io.StringIO()
    call_command("fleet", *words, "--json", stdout=out)
    return json.loads(out.getvalue())


def send(demo: Demo, days: int) -> None:
    for batch in demo.history(days):
        services.batch_accept(pack(batch))
    services.merge_waiting()


def test_batches_are_those_of_agents_and_labelled() -> None:
    demo = Demo(3, 2, 29_900_000)
    batches = [unpack(pack(batch)) for batch in demo.minute(demo.now_minute - 1)]
    assert [batch.agent for batch in batches] == [f"simulated-agent-0{host}" for host in range(3)]
    assert {context.job for batch in batches for context in batch.contexts} == {
        "simulated-train", "simulated-decode", "simulated-prepare"}
    assert all(context.simulated for batch in batches for context in batch.contexts)
    assert all(gpu.host.startswith("simulated-") for batch in batches for gpu in batch.gpus)
    assert [pack(each) for each in demo.minute(demo.now_minute)] == [pack(each) for each in demo.minute(demo.now_minute)]
    times = sorted((kernel.mean_ns * kernel.launches for kernel in job_kernels("train")), reverse=True)
    assert times[0] > 0.3 * sum(times) and times[-1] < 0.01 * sum(times)            # a heavy tail


@pytest.mark.django_db
def test_a_demonstration_shows_what_it_is_for_and_goes_without_a_trace(tmp_path: Any) -> None:
    now = int(time.time() // 60)
    demo = Demo(4, 3, now)
    write = write_records(tmp_path / "real.jsonl.gz", make_records(400))
    real = ask("feed", str(write))["records"]
    send(demo, 6)
    fleet_store().roll_up(services.days_to_sum(now=None) or [])
    top = ask("top", "--simulated", "yes")
    assert top["simulated"] and {row["kernel"] for row in top["rows"]} <= {
        kernel.signature.kernel for key in ("train", "decode", "prepare") for kernel in job_kernels(key)}
    assert all(row["interval_pct"] is not None for row in top["rows"])              # windows are a sample
    slow = {row["gpu_uuid"]: row for row in ask("gpus", "--simulated", "yes", "--job", "simulated-train")["rows"]}
    told = slow.pop("GPU-simulated-00-2")
    assert told["verdict"] == "SLOWER" and told["slower_pct"] == pytest.approx(100 * (SLOW_FACTOR - 1), abs=2)
    assert {row["verdict"] for row in slow.values()} <= {"OK", "UNKNOWN"}
    removed = ask("forget-simulated")["removed"]
    assert removed["simulated agents"] == 4 and removed["contexts"] > 3
    assert ask("top")["launches"] == real and not ask("top")["simulated"]
    assert not FleetAgent.objects.filter(simulated=True).exists() and not FleetBatch.objects.filter(agent__simulated=True).exists()
    assert not FleetContext.objects.filter(simulated=True).exists()
    assert not FleetGpu.objects.filter(host__startswith="simulated").exists()
    assert FleetKernel.objects.count() == 5 and FleetSignature.objects.count() == 10
    with connection.cursor() as cursor:
        for table in TABLES:
            for level in LEVELS:
                cursor.execute(f"SELECT count(*) FROM {table_name(table, level)}")
                assert (cursor.fetchone()[0] > 0) == (level == "hour" and table.name != "telemetry")
    assert FleetDay.objects.count() == 1
    assert set(ask("forget-simulated")["removed"].values()) == {0}


@pytest.mark.django_db
def test_the_build_that_made_a_kernel_slower_is_told() -> None:
    from tuner.gate.production.services import watch_production
    from tuner.models import ProductionRegression

    demo = Demo(3, 1, int(time.time() // 60))
    send(demo, 9)
    fleet_store().roll_up([day.toordinal() - 719_163 for day in FleetDay.objects.values_list("day", flat=True)])
    watch_production()
    rows = [row for row in ProductionRegression.objects.all() if SLOW_KERNEL in row.kernel]
    assert [(row.from_build, row.to_build, row.simulated, row.gpu_model) for row in rows] == [
        ("serve-2.18", "serve-2.19", True, GPU_MODEL)]
    assert rows[0].ratio == pytest.approx(BUILD_FACTOR, rel=0.02)
    assert ProductionRegression.objects.count() == 1
    ask("forget-simulated")
    assert not ProductionRegression.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_the_command_posts_to_a_running_server_and_stops(live_server: Any, olga: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    token = ApiToken.objects.create(olga, name="demo", scope="write")[1]
    lines: list[str] = []
    options = {"hosts": 2, "gpus": 2, "days": 1, "minutes": 1, "seed": 1, "server": live_server.url, "token": token}
    now_s, plain = time.time() // 3600 * 3600 + 150, threading.Event.wait           # two minutes of this hour are over
    monkeypatch.setattr(time, "time", lambda: now_s)

    def wait(event: threading.Event, timeout: float | None = None) -> bool:
        """Ctrl-C comes while it waits for the next minute."""
        if timeout and 20 < timeout < 61:
            event.set()
        return plain(event, timeout)

    monkeypatch.setattr(threading.Event, "wait", wait)
    done = fleet_demo.run_demo(options, lines.append)
    assert done["batches"] == FleetBatch.objects.count() >= 2 + 4
    assert FleetAgent.objects.filter(simulated=True).count() == 2 and "forget-simulated" in lines[-1]
    before = FleetBatch.objects.count()
    fleet_demo.run_demo(options, lines.append)
    assert FleetBatch.objects.count() == before                         # the same minutes again count once
    with pytest.raises(CommandError, match="401"):
        fleet_demo.run_demo({**options, "token": "rp_nobody"}, lines.append)
    with pytest.raises(CommandError, match="--token"):
        fleet_demo.run_demo({**options, "token": ""}, lines.append)


@pytest.mark.django_db(transaction=True)
def test_the_server_of_this_data_folder_is_found_on_any_port(live_server: Any, olga: Any, tmp_path: Path, settings: Any,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """It noted where it answers; what a killed one left is passed over."""
    settings.HOME, settings.PUBLIC_URL = tmp_path, ""
    monkeypatch.setattr(fleet_demo, "PORTS", range(0))
    token = ApiToken.objects.create(olga, name="demo", scope="write")[1]
    for left in ("", "http://127.0.0.1:1", "no address"):
        served.note_address(left)
        with pytest.raises(CommandError, match="make run"):
            fleet_demo._find_server(token)
    urllib.request.urlopen(f"{live_server.url}/health/", timeout=300).close()         # the first request imports all pages
    served.note_address(live_server.url)
    assert fleet_demo._find_server(token) == live_server.url
    served.forget_address("http://127.0.0.1:1")                     # of another one that ends
    assert served.served_address() == live_server.url
    served.forget_address(live_server.url)
    assert served.served_address() == "" and not list(tmp_path.iterdir())
