"""The whole product on a real GPU: the server and its workers as `make run` starts them, driven over HTTP."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.conftest import Site, workers

ENDED = ("done", "failed", "stopped", "cancelled")
RECORDED_MATMUL_MS = 0.18462          # best of the recorded landscape of an H200


def tune(site: Site, operator: str, shape: dict[str, int], seconds: float, trials: int, **more: Any) -> dict[str, Any]:
    asked = {"operator": operator, "shape": shape, "device": "gpu", "budget_seconds": seconds, "budget_trials": trials, **more}
    return site.post("/api/tune/", asked)


def finished(site: Site, job: dict[str, Any], within_s: float) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    row = site.wait(f"/api/tune/{job['id']}/", ENDED, within_s)
    assert row["status"] == "done", f"{row['status']}: {row['error']}\n{site.product.log[-6000:]}"
    return row, site.get(f"/api/tune/{job['id']}/trials/")["trials"]


def told(row: dict[str, Any], trials: list[dict[str, Any]]) -> dict[str, Any]:
    measured = [trial for trial in trials if trial["outcome"] == "measured"]
    return {"trials": len(trials), "measured": len(measured), "failures": row.get("failures"),
            **{name: row.get(name) for name in ("best_ms", "best_config", "default_ms", "library_ms", "elapsed_s", "gpu",
                                                "strategy", "environment", "finalists")}}


def test_the_gpu_worker_says_what_it_has(site, report):
    [worker] = [worker for worker in workers(site) if "gpu" in worker["queues"]]
    report.add("worker", **worker)
    assert worker["gpus"][0]["name"] and worker["gpus"][0]["driver"]
    assert all("version" in worker["tools"][tool] for tool in ("ncu", "torch", "triton")), worker["tools"]


def test_a_matmul_job_finds_a_faster_configuration(site, report):
    shape = {"M": 4096, "N": 4096, "K": 4096}
    row, trials = finished(site, tune(site, "matmul", shape, seconds=60, trials=150, dtype="bf16", seed=1), within_s=170)
    report.add("matmul 4096", **told(row, trials), recorded_best_ms=RECORDED_MATMUL_MS)
    assert row["best_ms"] <= row["default_ms"] * 1.02 and row["library_ms"] > 0
    assert row["best_ms"] < 3 * row["library_ms"]
    measured = [trial for trial in trials if trial["outcome"] == "measured"]
    assert len(measured) >= 10 and all(trial["facts"]["relative_error"] < 1e-2 for trial in measured)
    assert len(row["finalists"]) >= 2
    served = site.get("/api/configs/best/", operator="matmul", dtype="bf16", gpu=row["gpu"], **shape)
    assert "exact" in str(served) and str(row["best_config"]["BM"]) in str(served), served
    report.add("matmul cache", served=served)
    assert site.get(f"/tune/{row['id']}/") and site.get("/cache/")


@pytest.mark.parametrize(("operator", "shape"), [
    ("softmax", {"R": 8192, "C": 4096}), ("layernorm", {"R": 8192, "C": 4096}),
    ("attention", {"B": 4, "H": 32, "N": 2048, "D": 64, "causal": 1})])
def test_the_other_operators_tune(site, report, operator, shape):
    row, trials = finished(site, tune(site, operator, shape, seconds=12, trials=25), within_s=90)
    report.add(operator, **told(row, trials))
    assert row["best_ms"] <= row["default_ms"] * 1.05
    assert all(trial["outcome"] == "measured" or trial["reason"] != "wrong" for trial in trials)


def test_stop_works_at_once(site, report):
    job = tune(site, "matmul", {"M": 2048, "N": 2048, "K": 2048}, seconds=120, trials=400, strategy="random")
    path = f"/api/tune/{job['id']}/"
    end = time.monotonic() + 60
    while len(site.get(f"{path}trials/")["trials"]) < 3:
        assert time.monotonic() < end, site.product.log[-4000:]
        time.sleep(0.2)
    asked = time.monotonic()
    site.post(f"{path}stop/")
    row = site.wait(path, ENDED, 20)
    took_s = round(time.monotonic() - asked, 2)
    kept = len(site.get(f"{path}trials/")["trials"])
    report.add("stop", took_s=took_s, trials_kept=kept)
    assert row["status"] == "stopped" and took_s < 5 and kept >= 3


def test_the_job_of_a_killed_worker_goes_on(site, report):
    job = tune(site, "softmax", {"R": 2048, "C": 32768}, seconds=120, trials=30, strategy="random")
    path = f"/api/tune/{job['id']}/"
    end = time.monotonic() + 60
    while len(before := site.get(f"{path}trials/")["trials"]) < 4:
        assert time.monotonic() < end, site.product.log[-4000:]
        time.sleep(0.1)
    holders = [worker for worker in workers(site) if "gpu" in worker["queues"]]         # one a GPU, and any may lead
    assert holders
    for worker in holders:
        os.kill(worker["pid"], signal.SIGKILL)
    killed = time.monotonic()
    while len(site.get(f"{path}trials/")["trials"]) <= len(before) + 1:
        assert time.monotonic() - killed < 60, site.product.log[-6000:]
        time.sleep(0.1)
    went_on_s = round(time.monotonic() - killed, 1)
    row, trials = finished(site, job, 120)
    report.add("killed worker", went_on_after_s=went_on_s, before=len(before), trials=len(trials))
    keys = [str(sorted(trial["config"].items())) for trial in trials]
    assert len(keys) == len(set(keys)) == 30 and row["status"] == "done"


@pytest.fixture(scope="module")
def targets(site) -> dict[str, int]:
    """The bundled example programs, by a word of their names."""
    site.post("/captures/targets/", data={"examples": "1"})
    found = site.get("/api/captures/targets/")["results"]
    return {word: row["id"] for row in found for word in ("matmul", "layer") if word in row["name"]}


def captured(site: Site, asked: dict[str, Any], within_s: float) -> tuple[dict[str, Any], dict[str, Any]]:
    made = site.post("/api/captures/", asked)
    row = site.wait(f"/api/captures/{made['id']}/", ENDED, within_s)
    assert row["status"] == "done", (row["error"], row["log"][-4000:])
    profile = site.wait(f"/api/profiles/{row['profile']}/", ("ready", "failed"), 120)
    return row, profile


def upload_of(site: Site, profile: dict[str, Any]) -> Path:
    """Return the stored file of a profile: uploads of the same bytes share one object, whose folder has a name of its own."""
    stored = (site.product.home / "store" / "uploads").glob("*/*")
    return next(path for path in stored if hashlib.sha256(path.read_bytes()).hexdigest() == profile["sha256"])


def test_an_ncu_capture_ends_as_a_kernel_page(site, report, targets):
    row, profile = captured(site, {"target": targets["matmul"], "tool": "ncu", "build": "test-gpu", "options": {
        "kernel": "matmul", "launch_count": 1, "set": "full", "clock_control": "none"}}, within_s=180)
    report.keep(upload_of(site, profile), "matmul_full.ncu-rep")
    report.add("ncu", command=row["command"], log=row["log"][-3000:], profile={name: profile.get(name) for name in (
        "status", "error", "kind", "gpu", "launches", "gpu_time_ns", "top_kernel", "seconds")})
    assert profile["status"] == "ready", profile["error"]
    assert profile["kind"] == "counters" and profile["launches"] == 1
    counters = site.get(f"/api/profiles/{profile['id']}/counters/")
    roofline = site.get(f"/api/profiles/{profile['id']}/roofline/")
    report.add("ncu counters", counters=counters, roofline=roofline)
    assert 100_000 < profile["gpu_time_ns"] < 1_000_000
    assert site.get(f"/profiles/{profile['id']}/roofline/") and site.get(f"/captures/{row['id']}/")
    [kernel] = site.get(f"/api/profiles/{profile['id']}/kernels/")["kernels"]
    advice = site.get(f"/api/profiles/{profile['id']}/kernels/{kernel['id']}/advice/")["advice"]
    report.add("ncu advice", advice=[{name: each[name] for name in ("cause", "confidence", "gain_pct", "said_by")}
                                     for each in advice])
    assert site.get(f"/profiles/{profile['id']}/kernels/{kernel['id']}/source/")


def test_an_ncu_capture_that_matches_nothing_says_so(site, report, targets):
    made = site.post("/api/captures/", {"target": targets["matmul"], "tool": "ncu", "options": {
        "kernel": "no_such_kernel", "set": "basic"}})
    row = site.wait(f"/api/captures/{made['id']}/", ENDED, 120)
    report.add("ncu without match", status=row["status"], error=row["error"], log=row["log"][-1500:])
    assert row["status"] == "failed" and row["error"]["what"] == "no launch matched"


def test_a_torch_capture_ends_as_a_timeline(site, report, targets):
    row, profile = captured(site, {"target": targets["layer"], "tool": "torch", "build": "test-gpu", "options": {
        "wait": 2, "warmup": 1, "active": 3, "with_stack": True, "profile_memory": True}}, within_s=180)
    report.keep(upload_of(site, profile), "layer_trace.json.gz")
    report.add("torch", command=row["command"], log=row["log"][-2000:], profile={name: profile.get(name) for name in (
        "status", "error", "kind", "gpu", "launches", "gpu_time_ns", "steps", "wall_ns", "busy_ns", "seconds")})
    assert profile["status"] == "ready", profile["error"]
    assert profile["kind"] == "trace" and profile["steps"] == 3 and profile["launches"] > 30
    timeline = site.get(f"/api/profiles/{profile['id']}/timeline/")
    assert timeline["tracks"] and site.get(f"/profiles/{profile['id']}/timeline/")


def test_a_stopped_capture_leaves_nothing_on_the_gpu(site, report, targets):
    made = site.post("/api/captures/", {"target": targets["layer"], "tool": "ncu", "options": {
        "set": "full", "launch_count": 5000}})
    path = f"/api/captures/{made['id']}/"
    end = time.monotonic() + 90
    while "passes" not in site.get(path)["log"]:
        assert time.monotonic() < end, site.get(path)["log"]
        time.sleep(0.3)
    asked = time.monotonic()
    site.post(f"{path}stop/")
    site.wait(path, ENDED, 20)
    again = tune(site, "softmax", {"R": 8192, "C": 4096}, seconds=30, trials=2)        # the GPU is free again
    row, trials = finished(site, again, 60)
    report.add("stopped capture", gpu_free_and_tuned_again_s=round(time.monotonic() - asked, 1), trials=len(trials))
    assert row["best_ms"] > 0


def test_a_measuring_job_ends_with_ceilings(site, report):
    made = site.post("/api/ceilings/", {})
    row = site.wait(f"/api/ceilings/{made['id']}/", ENDED, 200)
    report.add("ceilings", **row)
    assert row["status"] == "done", row["error"]
    assert {"copy", "read", "l2", "gemm-bf16"} <= set(row["results"]) and row["ceilings"]
    assert "TB/s" in site.get(f"/ceilings/{made['id']}/")
