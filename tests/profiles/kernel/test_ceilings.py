"""Measured ceilings: the job from the row to the roofline, a recorded file, what is refused, who may do what."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from profiles.analysis.core import gpus
from profiles.analysis.kernel.ceilings import best_ceilings, ladder
from profiles.analysis.kernel.roofline import Point, Roofs
from profiles.base.refused import Refused
from profiles.ceilings import selectors, services
from profiles.models import CeilingRun
from workers import jobs
from workers.capture import ceilings as worker_ceilings
from workers.capture.ceilings import NAMES
from workers.core import gpu

CARD = gpu.Gpu(0, "GPU-1", "NVIDIA H200", "9.0", "580.1", 2**37)


def result(name: str, kind: str, rate: float, precision: str = "", clock: float | None = 1.5e9, **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": kind, "label": name, "precision": precision, "how": "a test", "facts": {}, "rate": rate,
            "best": rate * 1.01, "sm_clock_hz": clock, "best_clock_hz": clock, "per_cycle": rate / clock if clock else None,
            "spread": 0.01, "n": 50, "launches": 3, "seconds": 1.0, "during": {"power_w": 600, "throttle": ["power cap"]}, **more}


DOCUMENT = {
    "measured": "2026-11-21T18:30:00+00:00", "facts": {"gpu": "NVIDIA H200", "driver": "580.1", "sms": 132},
    "results": {"copy": result("copy", "dram", 4.0e12), "read": result("read", "dram", 4.4e12), "l2": result("l2", "l2", 6e12),
                "gemm-bf16": result("gemm-bf16", "compute", 750e12, "bf16_tensor"), "gemm-fp8": {"rejected": "no FP8 here"}},
}


def test_of_each_level_the_best_method_counts_and_refused_ones_do_not() -> None:
    found = best_ceilings("NVIDIA H200", "measured today", DOCUMENT["results"])
    assert set(found.ceilings) == {"dram", "l2", "bf16_tensor"}
    assert (found.ceilings["dram"].label, found.ceilings["dram"].rate) == ("read", 4.4e12)
    # 500,000 operations per cycle: at 1.2 GHz 600 T/s; DRAM has a clock of its own
    assert found.ceilings["bf16_tensor"].at(1.2e9) == pytest.approx(600e12)
    assert found.ceilings["dram"].at(1.2e9) == 4.4e12


def point(**changes: Any) -> Point:
    fields: dict[str, Any] = dict.fromkeys(Point.__dataclass_fields__) | {"by_precision": {}, "notes": ()}
    return Point(**{**fields, **changes})


def test_the_ladder_tells_clock_from_kernel() -> None:
    """989.4 at 1830 MHz; 4096·132 operations a cycle at 1.2 GHz: 648.8; measured there 600; reached 300."""
    found = best_ceilings("NVIDIA H200", "measured today", DOCUMENT["results"])
    roofs = Roofs(4.8e12, None, {"bf16_tensor": 4096 * 132 * 1.2e9}, {"bf16_tensor": 4096.0 * 132}, 1.2e9)
    work = point(side="compute", flop=1e12, flop_s=300e12, by_precision={"bf16_tensor": 1e12}, precision="bf16_tensor",
                 compute_roof=4096 * 132 * 1.2e9)
    rungs = ladder(work, roofs, gpus.lookup("NVIDIA H200"), found)
    assert [rung.name for rung in rungs] == ["sheet", "clock", "measured", "achieved"]
    assert [rung.rate / 1e12 for rung in rungs] == pytest.approx([989.4, 648.8064, 600.0, 300.0])
    assert [rung.lost_pct for rung in rungs] == pytest.approx([0, 34.424, 4.933, 30.321], abs=1e-3)
    assert sum(rung.lost_pct for rung in rungs) == pytest.approx(100 - rungs[-1].pct)
    memory = ladder(point(side="memory", dram_bytes_s=2.2e12, dram_roof=4.8e12), roofs, gpus.lookup("NVIDIA H200"), found)
    assert [rung.rate for rung in memory] == [4.8e12, 4.8e12, 4.4e12, 2.2e12]
    # nothing is known of the GPU and nothing was measured: what is left is true still
    assert [rung.name for rung in ladder(work, roofs, None, None)] == ["clock", "achieved"]
    assert ladder(point(), roofs, None, None) == []


def test_the_clock_of_a_data_sheet_is_what_its_peak_stands_for() -> None:
    h200 = gpus.lookup("NVIDIA H200")
    assert h200 is not None
    assert h200.peak_clock_hz("bf16_tensor") == pytest.approx(1830e6, rel=1e-3)
    assert h200.peak_clock_hz("fp32") == pytest.approx(1980e6, rel=1e-3)


@pytest.fixture
def leased(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(gpu, "gpus", lambda: [CARD])
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))


CHILD = "tests.workers.capture.ceilings_child"
rows = pytest.mark.django_db(transaction=True)


@rows
@pytest.mark.usefixtures("leased")
def test_a_whole_measurement() -> None:
    run = CeilingRun.objects.create()
    worker_ceilings.run(run.pk, "w1", module=CHILD)
    run.refresh_from_db()
    assert (run.status, run.gpu, run.worker, run.attempts, run.heartbeat) == ("done", "NVIDIA H200", "w1", 1, None)
    assert list(run.results) and set(run.results) == set(NAMES)
    assert run.results["gemm-fp8"] == {"rejected": "NotImplementedError: no FP8"}           # said, not left out
    assert run.results["gemm-int8"]["rejected"].startswith("the child exited with status 3")   # died of it, and a new child went on
    assert run.environment["driver"] == "580.1"
    found = selectors.measured_for("nvidia h200")
    assert found is not None and found.ceilings["dram"].rate == 4.4e12
    worker_ceilings.run(run.pk, "w2", module=CHILD)          # a second wake does nothing
    run.refresh_from_db()
    assert run.worker == "w1"


@rows
@pytest.mark.usefixtures("leased")
def test_a_stop_keeps_what_was_measured_and_is_not_used() -> None:
    run = CeilingRun.objects.create()

    def stop(topic: str, event: str, data: dict[str, Any]) -> None:
        if data.get("measured") == 2:
            services.ceilings_stop(run)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "publish", stop)
        worker_ceilings.run(run.pk, "w1", module=CHILD)
    run.refresh_from_db()
    assert (run.status, len(run.results)) == ("cancelled", 2)
    assert selectors.measured_for("NVIDIA H200") is None


@rows
def test_without_a_gpu_it_fails_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "gpus", lambda: [])
    run = CeilingRun.objects.create()
    worker_ceilings.run(run.pk, "w1", module=CHILD)
    run.refresh_from_db()
    assert run.status == "failed" and "no NVIDIA GPU" in run.error["what"]


@pytest.mark.django_db
def test_a_recorded_file_is_loaded_once_and_labelled(tmp_path: Any, capsys: Any) -> None:
    path = tmp_path / "h200.json"
    path.write_text(json.dumps(DOCUMENT))
    for _ in range(2):
        call_command("ceilings", load=path)
    run = CeilingRun.objects.get()
    assert (run.recorded, run.status) == ("recorded on NVIDIA H200, 2026-11-21", "done")
    out = capsys.readouterr().out
    assert "4.40 TB/s of 4.80 TB/s (92 %)" in out and "at 1,500 MHz" in out
    # one measured here goes before a recorded one
    CeilingRun.objects.create(status="done", gpu="NVIDIA H200", results={"read": result("read", "dram", 4.5e12)})
    found = selectors.measured_for("NVIDIA H200")
    assert found is not None and found.ceilings["dram"].rate == 4.5e12 and found.label.startswith("measured ")


@pytest.mark.parametrize("broken", [
    {}, {"facts": {"gpu": "X"}, "results": {}}, {**DOCUMENT, "facts": {"gpu": 3}}, {**DOCUMENT, "measured": "yesterday"},
    {**DOCUMENT, "results": {"copy": 3}}, {**DOCUMENT, "results": {"copy": {"rate": float("nan")}}},
    {**DOCUMENT, "results": {str(n): result("copy", "dram", 1.0) for n in range(100)}},
])
@pytest.mark.django_db
def test_what_is_no_such_file_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        services.ceilings_load(broken)
    assert not CeilingRun.objects.exists()


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"[" * 100_000, b" " * 1_000_001])
def test_bytes_that_are_no_document_are_refused(data: bytes) -> None:
    with pytest.raises(Refused):
        services.ceilings_read(data)


def text(client: Client, path: str) -> str:
    """What a person reads: without markup, any space a plain one."""
    return " ".join(re.sub(r"<[^>]+>", "", client.get(path).content.decode()).split())


@pytest.mark.django_db
def test_pages_and_api(alice: Any, bob: Any, client: Client) -> None:
    services.ceilings_load(DOCUMENT)
    client.force_login(bob)
    page = text(client, "/ceilings/")
    assert "4.40 TB/s" in page and "recorded on NVIDIA H200, 2026-11-21" in page and "Measure a GPU now" not in page
    run = CeilingRun.objects.get()
    one = text(client, f"/ceilings/{run.pk}/")
    assert "no FP8 here" in one and "power cap" in one
    answer = client.get("/api/ceilings/").json()
    assert answer["results"][0]["ceilings"]["dram"]["rate"] == 4.4e12 and answer["ability"]["able"] is False
    assert client.post("/ceilings/measure/").status_code == 403
    assert client.post("/api/ceilings/").status_code == 403
    client.force_login(alice)
    refused = client.post("/api/ceilings/")
    assert refused.status_code == 409 and "gpu worker" in refused.json()["error"]
    assert client.post("/ceilings/measure/", follow=True).status_code == 200
    assert CeilingRun.objects.count() == 1


@rows
def test_asking_wakes_a_gpu_worker_and_a_stop_ends_it(alice: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[tuple[Any, ...]] = []
    monkeypatch.setattr(jobs, "enqueue", lambda *entry: woken.append(entry))
    worker = {"queues": ["gpu"], "gpus": [CARD.as_json()], "tools": {"torch": {"version": "2"}, "triton": {"version": "3"}},
              "host": "h"}
    monkeypatch.setattr(jobs, "workers", lambda: [worker])
    run = services.ceilings_measure(owner=alice)
    assert woken == [("gpu", "ceilings", run.pk)]
    assert services.ceilings_stop(run) and not services.ceilings_stop(run)
    worker["tools"]["torch"] = {"missing": "torch is not installed here"}
    with pytest.raises(Refused, match="torch is not installed"):
        services.ceilings_measure(owner=alice)
