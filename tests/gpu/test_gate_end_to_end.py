"""The gate of the whole product on a real GPU: builds measured by its worker, asked for by the pipeline's one-file client.

The slow build launches softmax with a really slower configuration (7 % when recorded). Exit codes, JUnit, Markdown and pages are
the server's own. `flow` runs on recorded runs as well, where there is no GPU: `device="replay:timing_runs"`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

SOFTMAX = {"STEPS": 3, "PER_SM": 32, "num_warps": 8}
SLOWER = {"STEPS": 3, "PER_SM": 8, "num_warps": 8}
ROWS = {"R": 8192, "C": 4096}
SUITE: dict[str, Any] = {
    "name": "gate-gpu", "runs": 5, "baseline_runs": 10, "kernel": [
        {"op": "softmax", "shape": ROWS, "dtype": "fp16", "config": SOFTMAX},
        {"op": "layernorm", "shape": ROWS, "dtype": "fp16", "config": {"BLOCK": 1024, "num_warps": 4, "num_stages": 2}},
        {"op": "matmul", "shape": {"M": 4096, "N": 4096, "K": 4096}, "dtype": "bf16",
         "config": {"BM": 128, "BN": 256, "BK": 64, "GM": 8, "num_warps": 8, "num_stages": 3}}]}
SLOWED = "softmax R=8192 C=4096 fp16"


def flow(site: Any, device: str, folder: Path) -> dict[str, Any]:
    """Baseline by the API; an equal and a slower build by the client. Everything that was said."""
    site.post("/api/suites/", {**SUITE, "device": device})
    began = time.monotonic()
    job = site.post(f"/api/suites/{SUITE['name']}/jobs/", {"builds": ["base"], "runs": 10})
    row = site.wait(f"/api/suite-jobs/{job['id']}/", ("done", "failed", "stopped"), 250)
    assert row["status"] == "done", (row, site.product.log[-4000:])
    told: dict[str, Any] = {"baseline": {"seconds": round(time.monotonic() - began, 1), "job": row}}
    client = folder / "ridgepoint_gate.py"
    client.write_text(site.get("/api/gates/client/ridgepoint_gate.py"))
    page = site.post("/accounts/tokens/create/", data={"name": "pipeline", "scope": "write"})
    token = re.search(r"rp_[A-Za-z0-9]+", page)
    assert token is not None
    configs = folder / "configs.json"
    configs.write_text(json.dumps({SLOWED: SLOWER}))
    for build, more in (("same", []), ("slow", ["--configs", str(configs)])):
        files = {name: folder / f"{build}.{name}" for name in ("json", "junit", "markdown")}
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, str(client), "--server", site.product.url, "--suite", SUITE["name"], "--build", build,
             *more, "--timeout", "270", *(part for name, path in files.items() for part in (f"--{name}", str(path)))],
            capture_output=True, text=True, timeout=290, env={**os.environ, "RIDGEPOINT_TOKEN": token[0]})
        told[build] = {"exit_code": done.returncode, "seconds": round(time.monotonic() - began, 1), "said": done.stdout[-4000:],
                       "errors": done.stderr[-2000:], **{name: path.read_text() for name, path in files.items() if path.exists()}}
    return told


def check(site: Any, told: dict[str, Any]) -> None:
    for build, code, verdict in (("same", 0, "PASS"), ("slow", 1, "SLOWER")):
        one = told[build]
        assert one["exit_code"] == code, (one["said"], one["errors"], site.product.log[-3000:])
        document = json.loads(one["json"])
        assert document["verdict"] == verdict and document["exit_code"] == code
        suite = ElementTree.fromstring(one["junit"])
        assert len(list(suite.iter("testcase"))) == 3 and len(list(suite.iter("failure"))) == (build == "slow")
        assert verdict in one["markdown"]
        assert verdict in site.get(document["links"]["page"].removeprefix(site.product.url))
    slow = {kernel["key"]: kernel for kernel in json.loads(told["slow"]["json"])["kernels"]}
    assert {key: kernel["verdict"] for key, kernel in slow.items() if kernel["verdict"] == "SLOWER"} == {SLOWED: "SLOWER"}
    assert slow[SLOWED]["ratio_p50"] > 1.03 and slow[SLOWED]["ci"][0] > 1.0
    assert SLOWED.split()[0] in site.get("/regressions/")


@pytest.fixture(scope="module")
def told(site, report, tmp_path_factory):
    found = flow(site, "gpu", tmp_path_factory.mktemp("gate"))
    report.add("gate end to end", **{build: {name: one.get(name) for name in ("exit_code", "seconds", "json", "markdown")}
                                     for build, one in found.items()})
    return found


def test_an_equal_build_passes_and_a_slower_one_does_not(site, told):
    check(site, told)
