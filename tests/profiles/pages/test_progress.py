"""Successive traces of one job: what each step won, in its step time and kernel by kernel."""

from __future__ import annotations

import io
import json

import pytest
from django.core.files.base import ContentFile
from django.core.management import CommandError, call_command
from django.test import Client

from profiles.upload.services import profile_create, profile_ingest
from tests.profiles.pages.test_pages import page, text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tmp_store", "sign_in_mode")]
Kernels = list[tuple[str, float, float]]        # name, start within the step, duration, µs
BASELINE: Kernels = [("gemm", 100, 200), ("add_bias", 400, 50), ("gelu", 600, 60)]
GRAPHS: Kernels = [("gemm", 10, 200), ("add_bias", 212, 50), ("gelu", 264, 60)]
FUSED: Kernels = [("gemm", 10, 200), ("fused_bias_gelu", 212, 55)]


def stage(build: str, step_us: float, kernels: Kernels, model: str = "layer", steps: int = 6):
    """A trace of `steps` marked steps, each as long as the one before but for 1 µs every second one."""
    events, number = [], 0
    for step in range(steps):
        begin = 10_000.0 + step * (step_us + 10)
        events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1, "ts": begin,
                       "dur": step_us + step % 2})
        for name, at, dur in kernels:
            number += 1
            events += [
                {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": begin + at - 8, "dur": 4,
                 "args": {"correlation": number}},
                {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": begin + at, "dur": dur, "args": {
                    "correlation": number, "device": 0, "stream": 7, "grid": [132, 1, 1], "block": [256, 1, 1]}}]
    document = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "traceEvents": events}
    file = ContentFile(json.dumps(document).encode(), name=f"{build}.json")
    made = profile_create(owner=None, file=file, build=build, model=model)
    return profile_ingest(made.pk, "test")


def test_each_stage_says_what_it_won_and_which_kernels_did(bob):
    first, second, third = stage("baseline", 1000, BASELINE), stage("graphs", 400, GRAPHS), stage("fusion", 340, FUSED)
    stage("elsewhere", 10, BASELINE[:1], model="other")
    client = Client()
    client.force_login(bob)
    made = client.get("/api/progress/", {"model": "layer"}).json()
    stages = made["stages"]
    assert [each["profile"] for each in stages] == [first.pk, second.pk, third.pk]
    assert [each["time_ns"] for each in stages] == pytest.approx([1_000_500, 400_500, 340_500])
    assert [each["steps"] for each in stages] == [6, 6, 6] and {each["of"] for each in stages} == {"step"}
    assert [each["change_ns"] for each in stages] == [None, pytest.approx(-600_000), pytest.approx(-60_000)]
    assert [each["change_pct"] for each in stages][1:] == pytest.approx([-59.97, -14.98], abs=0.01)
    # graphs won idle time and no kernel time; fusion won both
    assert [each["kernel_ns"] for each in stages] == [310_000, 310_000, 255_000]
    assert [each["kernel_change_ns"] for each in stages][1:] == [0, -55_000]
    assert [each["rest_change_ns"] for each in stages][1:] == pytest.approx([-600_000, -5_000])
    assert stages[1]["won"] == stages[1]["lost"] == []
    assert [(each["kernel"], each["delta_ns"], each["verdict"]) for each in stages[2]["won"]] == [("gelu", -60_000, "gone")]
    assert [(each["kernel"], each["delta_ns"], each["was"]) for each in stages[2]["lost"]] == [
        ("fused_bias_gelu", 5_000, "add_bias")]            # by its place in the sequence
    for each in stages[1:]:
        listed = sum(kernel["delta_ns"] for kernel in (*each["won"], *each["lost"]))
        assert listed == pytest.approx(each["kernel_change_ns"])
    assert made["answer"].startswith("3 traces of `layer`: `fusion` takes 0.341 ms a step, 66.0 % less than `baseline`")

    plain = text(page(bob, "/compare/progress/", model="layer"))
    assert "▼ -600 µs" in plain
    assert "won: gelu -60.0 µs (gone)" in plain and "lost: fused_bias_gelu +5.00 µs (was add_bias)" in plain
    choices = text(page(bob, "/compare/progress/").split("<h2>Jobs</h2>")[1].split("<h2>Own order</h2>")[0])
    assert "layer" in choices and "other" not in choices
    out = io.StringIO()
    call_command("progress", "--model", "layer", "--json", stdout=out)
    assert json.loads(out.getvalue()) == made
    out = io.StringIO()
    call_command("progress", str(third.pk), str(first.pk), stdout=out)        # in the order that is asked for
    assert "+0.660 ms (+193.8 %)" in out.getvalue() and "new      gelu" in out.getvalue()


def test_what_cannot_be_put_beside_each_other_says_why(bob):
    stage("marked", 400, GRAPHS)
    one = stage("short", 400, GRAPHS[:1], steps=1)
    client = Client()
    client.force_login(bob)
    made = client.get("/api/progress/", {"model": "layer"}).json()
    assert made["stages"][1]["profile"] == one.pk and made["stages"][1]["noise_ns"] is None
    for query in ({"model": "nothing"}, {"profiles": "999999"}, {"profiles": "x"}, {}):
        answer = client.get("/api/progress/", query)
        assert answer.status_code == 400 and answer.json()["hint"]
    with pytest.raises(CommandError):
        call_command("progress", "--model", "nothing")
