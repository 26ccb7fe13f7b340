"""What could not be tried without a GPU, through the running product: an upgraded toolkit, compilers that are killed,
configurations that hang in the compiler and on the GPU, kernels that write in place, a capture beside a search, a restart in the
middle of a gate.

`python -m pytest tests/gpu/test_verdict_faults_on_gpu.py -m gpu -s`: about six minutes on an H200. The last test kills the product.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.gpu.conftest import PROJECT, Report, Site, workers
from tests.gpu.test_end_to_end import ENDED, finished, tune
from tests.gpu.test_gate_end_to_end import SLOWED, SLOWER, SUITE
from tests.product import Product, clean_env

HANGS = '''
import torch, triton, triton.language as tl

@triton.jit
def copy_kernel(x_ptr, out_ptr, flag_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    if BLOCK == 512:                                # never ends on the GPU
        while tl.load(flag_ptr, volatile=True) == 0:
            x = x + 0
    if BLOCK == 2048:                               # never ends in the compiler
        for i in tl.static_range(4000000):
            x = tl.sin(x.to(tl.float32) + i)
    tl.store(out_ptr + at, x, mask=at < n)

def copy(x, flag):
    out = torch.empty_like(x)
    grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)
    copy_kernel[grid](x, out, flag, x.numel(), BLOCK=1024)
    return out

def copy_torch(x, flag):
    return x.clone()
'''
IN_PLACE = '''
import torch, triton, triton.language as tl

@triton.jit
def halve_kernel(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(x_ptr + at, x * 0.5 + 1.0, mask=at < n)

def halve_(x):
    halve_kernel[(triton.cdiv(x.numel(), 1024),)](x, x.numel(), BLOCK=1024)
    return x

def halve_torch(x):
    return x * 0.5 + 1.0
'''


def tune_file(site: Site, name: str, text: str, call: str, **asked: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Drop a file, check its call, start its job. Return the version and its job."""
    made = site.post("/api/operators/check/", {"text": text, "file": name, "call": call})
    path = f"/api/operators/check/{made['id']}/"
    check = site.wait(path, ENDED, 120)
    assert check["status"] == "done" and not check["error"], (check["error"], site.product.log[-3000:])
    kernel = site.post(f"{path}tune/", asked)
    return kernel, kernel["job"]


def put(site: Site, path: str, body: Any) -> Any:
    headers = {"X-CSRFToken": site.http.cookies.get("csrftoken") or "", "Referer": site.product.url}
    answer = site.http.put(site.product.url + path, json=body, headers=headers, timeout=60)
    assert answer.status_code == 200, (path, answer.text[:1000])
    return answer.json()


def in_shell(home: Path, code: str) -> str:
    done = subprocess.run([sys.executable, str(PROJECT / "manage.py"), "shell", "-v", "0", "-c", code], env=clean_env(home),
                          cwd=PROJECT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def poll(what: Any, within_s: float, log: Any) -> Any:
    end = time.monotonic() + within_s
    while not (found := what()):
        assert time.monotonic() < end, log()
        time.sleep(0.3)
    return found


def test_configurations_that_hang_cost_themselves_alone(site: Site, report: Report) -> None:
    began = time.monotonic()
    _, job = tune_file(site, "hangs.py", HANGS, "copy(randn(4194304), zeros(1, dtype=torch.int32))",
                       reference="copy_torch", params={"BLOCK": [256, 512, 1024, 2048], "num_warps": [4, 8]},
                       strategy="random", budget_trials=8, budget_seconds=150)
    row, trials = finished(site, job, 240)
    by_block: dict[int, set[str]] = {}
    for trial in trials:
        by_block.setdefault(int(trial["config"]["BLOCK"]), set()).add(trial["reason"] or trial["outcome"])
    report.add("hangs", seconds=round(time.monotonic() - began, 1), by_block=by_block, best_ms=row["best_ms"],
               messages=[trial.get("message", "")[:160] for trial in trials if trial["outcome"] != "measured"][:4])
    assert by_block == {256: {"measured"}, 512: {"timeout"}, 1024: {"measured"}, 2048: {"timeout"}}
    after, _ = finished(site, tune(site, "softmax", {"R": 1024, "C": 1024}, seconds=20, trials=3), 60)      # the GPU serves on
    assert after["best_ms"] > 0


def test_a_kernel_that_writes_in_place_is_compared_on_what_it_was_given(site: Site, report: Report) -> None:
    kernel, job = tune_file(site, "in_place.py", IN_PLACE, "halve_(randn(4194304))", reference="halve_torch",
                            strategy="random", budget_trials=12, budget_seconds=60)
    row, trials = finished(site, job, 120)
    report.add("in place", best_ms=row["best_ms"], default_ms=row["default_ms"], independent=kernel["independent"],
               outcomes=[trial["reason"] or trial["outcome"] for trial in trials])
    assert trials and all(trial["outcome"] == "measured" for trial in trials), trials


def test_compilers_on_this_host_help_and_one_is_killed(site: Site, report: Report) -> None:
    helpers = [subprocess.Popen([sys.executable, str(PROJECT / "manage.py"), "worker", "compile"], cwd=PROJECT,
                                env=clean_env(site.product.home), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                start_new_session=True) for _ in range(3)]
    try:
        poll(lambda: sum("compile" in each["queues"] for each in workers(site)) >= 3, 60, lambda: workers(site))
        job = tune(site, "matmul", {"M": 2048, "N": 2048, "K": 4096}, seconds=20, trials=80, dtype="bf16", strategy="random")
        path = f"/api/tune/{job['id']}/trials/"
        poll(lambda: len(site.get(path)["trials"]) >= 3, 60, lambda: site.product.log[-3000:])
        os.killpg(helpers[0].pid, signal.SIGKILL)
        row, trials = finished(site, job, 90)
        report.add("compile helpers", members=row["members"], counters=row["counters"], trials=len(trials), best_ms=row["best_ms"],
                   reasons=sorted({trial["reason"] for trial in trials if trial["reason"]}))
        keys = [str(sorted(trial["config"].items())) for trial in trials]
        assert len(keys) == len(set(keys)) and row["best_ms"] <= row["default_ms"] * 1.02
    finally:
        for each in helpers:
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGTERM)
            each.wait(20)


def test_an_upgraded_toolkit_measures_the_winners_again(site: Site, report: Report) -> None:
    """The entry is marked as of an older Triton, as one that was measured before an upgrade: two cannot be installed here."""
    finished(site, tune(site, "softmax", {"R": 8192, "C": 4096}, seconds=15, trials=20), 60)
    old = in_shell(site.product.home, "from tuner.models import CachedConfig, GpuEnvironment\n"
                   "GpuEnvironment.objects.all().delete()\n"
                   "row = CachedConfig.objects.filter(operator='softmax', shape__R=8192, origin='tune').first()\n"
                   "row.toolkit = 'cuda 12.8, triton 3.5.1'; row.save()\n"
                   "GpuEnvironment.objects.create(gpu=row.gpu, toolkit=row.toolkit, driver=row.driver)\nprint(row.pk)")
    put(site, "/api/environments/policy/", {"by_itself": True, "most_entries": 5, "most_seconds": 300})
    finished(site, tune(site, "layernorm", {"R": 2048, "C": 1024}, seconds=10, trials=3), 60)   # the first run under the new
    told = poll(lambda: site.get("/api/configs/revalidate/")["jobs"], 60, lambda: site.get("/api/environments/"))
    path = f"/api/configs/revalidations/{told[0]['id']}/"
    row = poll(lambda: (found := site.get(path))["decided"] and found, 200, lambda: (site.get(path), site.product.log[-3000:]))
    entries = [each for each in site.get("/api/configs/", operator="softmax")["configs"] if each["shape"].get("R") == 8192]
    report.add("toolkit", old_entry=old, job=row, entries=[
        {name: each.get(name) for name in ("id", "toolkit", "state", "median_ms")} for each in entries])
    assert any(each["state"] == "verified" and "3.5.1" not in each["toolkit"] for each in entries)
    assert all(each["state"] != "verified" for each in entries if "3.5.1" in each["toolkit"])


def test_a_capture_beside_a_search_waits_its_turn_and_both_end(site: Site, report: Report) -> None:
    site.post("/captures/targets/", data={"examples": "1"})
    layer = next(row["id"] for row in site.get("/api/captures/targets/")["results"] if "layer" in row["name"])
    job = tune(site, "matmul", {"M": 4096, "N": 4096, "K": 2048}, seconds=20, trials=500, dtype="bf16", strategy="random")
    poll(lambda: len(site.get(f"/api/tune/{job['id']}/trials/")["trials"]) >= 3, 60, lambda: site.product.log[-3000:])
    asked = time.monotonic()
    made = site.post("/api/captures/", {"target": layer, "tool": "torch", "build": "beside", "options": {"active": 3}})
    row, trials = finished(site, job, 90)
    tuned_s = time.monotonic() - asked
    capture = site.wait(f"/api/captures/{made['id']}/", ENDED, 150)
    report.add("capture beside a search", capture=capture["status"], error=capture["error"], tuned_after_s=round(tuned_s, 1),
               captured_after_s=round(time.monotonic() - asked, 1), trials=len(trials), best_ms=row["best_ms"])
    assert capture["status"] == "done", capture["log"][-3000:]
    assert site.wait(f"/api/profiles/{capture['profile']}/", ("ready", "failed"), 120)["status"] == "ready"


@pytest.mark.timeout(400)
def test_a_restart_in_the_middle_of_a_gate_changes_no_verdict(site: Site, report: Report, tmp_path: Path) -> None:
    suite = {**SUITE, "name": "restarted"}
    site.post("/api/suites/", {**suite, "device": "gpu"})
    job = site.post("/api/suites/restarted/jobs/", {"builds": ["base"], "runs": 10})
    assert site.wait(f"/api/suite-jobs/{job['id']}/", ENDED, 150)["status"] == "done"
    client = tmp_path / "ridgepoint_gate.py"
    client.write_text(site.get("/api/gates/client/ridgepoint_gate.py"))
    token = re.search(r"rp_[A-Za-z0-9]+", site.post("/accounts/tokens/create/", data={"name": "restart", "scope": "write"}))
    assert token is not None
    configs, answer = tmp_path / "configs.json", tmp_path / "slow.json"
    configs.write_text(json.dumps({SLOWED: SLOWER}))
    url, home = site.product.url, site.product.home
    gate = subprocess.Popen(
        [sys.executable, str(client), "--server", url, "--suite", "restarted", "--build", "slow", "--configs", str(configs),
         "--timeout", "240", "--json", str(answer)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "RIDGEPOINT_TOKEN": token[0]})
    time.sleep(8)                                       # it measures
    os.killpg(site.product.process.pid, signal.SIGKILL)
    killed = time.monotonic()
    again = Product(home, "--port", str(urlsplit(url).port))
    try:
        again.wait_until_up()
        up_s = time.monotonic() - killed
        said, _ = gate.communicate(timeout=280)
        report.add("restart in a gate", up_again_s=round(up_s, 1), exit_code=gate.returncode, said=said[-1500:],
                   after_kill_s=round(time.monotonic() - killed, 1))
        assert gate.returncode == 1, (said[-3000:], again.log[-3000:])
        slow = {each["key"]: each["verdict"] for each in json.loads(answer.read_text())["kernels"]}
        assert slow[SLOWED] == "SLOWER" and "SLOWER" not in {verdict for key, verdict in slow.items() if key != SLOWED}, slow
    finally:
        gate.kill()
        again.stop()
