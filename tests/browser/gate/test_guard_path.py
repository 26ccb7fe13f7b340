"""Two builds, one slower: from a suite's file through the API and a pipeline's client to exit code, JUnit, Markdown and page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any
from urllib.request import urlretrieve

import pytest
from playwright.sync_api import expect

from tests.browser.visit import eventually, poll, shows
from tests.product import Product

SUITE = """
name = "guarded"
title = "Two kernels that were recorded on an H200"
device = "replay:timing_runs"
runs = 5
baseline_runs = 10

[[kernel]]
op = "matmul"
shape = { M = 4096, N = 4096, K = 4096 }
dtype = "bf16"
config = { BM = 128, BN = 256, BK = 64, GM = 8, num_warps = 8, num_stages = 3 }

[[kernel]]
op = "softmax"
shape = { R = 8192, C = 4096 }
dtype = "fp16"
config = { STEPS = 3, PER_SM = 32, num_warps = 8 }
"""
MATMUL = "matmul M=4096 N=4096 K=4096 bf16"
SLOWER = {MATMUL: {"BM": 128, "BN": 128, "BK": 64, "GM": 8, "num_warps": 4, "num_stages": 4}}      # recorded 11.6 % slower
WITHIN_S = 120


@pytest.fixture(scope="module")
def token(browser: Any, product: Product) -> str:
    """As somebody who sets up a pipeline makes one: on the page."""
    page = browser.new_page()
    page.goto(f"{product.url}/accounts/tokens/")
    page.fill("input[name=name]", "pipeline")
    page.get_by_role("button", name="Create").click()
    text = page.inner_text("#new-token")
    page.close()
    return str(text)


@pytest.fixture(scope="module")
def measured(playwright: Any, product: Product, token: str) -> dict[str, Any]:
    """The suite, and ten fresh runs of the build that everything is compared with."""
    api = playwright.request.new_context(base_url=product.url, extra_http_headers={"Authorization": f"Token {token}"})
    made = api.put("/api/suites/guarded/", headers={"Content-Type": "application/toml"}, data=SUITE.encode())
    assert made.ok, made.text()
    started = api.post("/api/suites/guarded/jobs/", data={"builds": ["good-1"], "runs": 10})
    assert started.ok, started.text()
    for _ in range(4 * WITHIN_S):
        job: dict[str, Any] = api.get(f"/api/suite-jobs/{started.json()['id']}/").json()
        if job["status"] not in ("queued", "running"):
            break
        time.sleep(0.25)
    assert job["status"] == "done" and "NVIDIA H200" in job["recorded"]
    return job



def pipeline(product: Product, token: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A pipeline's step: the one file, as the server hands it out, under a Python that has nothing of ours."""
    client = folder / "ridgepoint_gate.py"
    urlretrieve(f"{product.url}/api/gates/client/ridgepoint_gate.py", client)
    said = {"PATH": os.environ["PATH"], "RIDGEPOINT_URL": product.url, "RIDGEPOINT_TOKEN": token}
    return subprocess.run([sys.executable, "-I", client, "--suite", "guarded", *options], cwd=folder, env=said, text=True,
                          capture_output=True, timeout=WITHIN_S)


@pytest.mark.deep_only          # exit codes: tests/tuner/gate/test_gate_client.py; builds alike: test_gates_measured.py
def test_an_identical_build_passes(product: Product, token: str, measured: dict[str, Any], tmp_path: Path) -> None:
    done = pipeline(product, token, tmp_path, "--build", "good-2", "--json", "gate.json")
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "gate.json").read_text())
    assert document["verdict"] == "PASS" and len(document["kernels"]) == 2
    assert all(0.98 < kernel["ratio_p50"] < 1.02 for kernel in document["kernels"])


def test_a_slower_build_fails_its_pipeline_and_shows_why(watched: Any, product: Product, token: str, measured: dict[str, Any],
                                                        tmp_path: Path) -> None:
    (tmp_path / "configs.json").write_text(json.dumps(SLOWER))
    done = pipeline(product, token, tmp_path, "--build", "bad-3", "--configs", "configs.json", "--junit", "gate.xml",
                    "--markdown", "comment.md", "--json", "gate.json")
    assert done.returncode == 1, done.stderr
    document = json.loads((tmp_path / "gate.json").read_text())
    worst = document["kernels"][0]
    assert worst["key"] == MATMUL and worst["verdict"] == "SLOWER" and 1.10 < worst["ci"][0] < worst["ratio_p50"] < 1.13
    suites = ET.parse(tmp_path / "gate.xml").getroot()
    failed = [case.get("name") for case in suites.iter("testcase") if case.find("failure") is not None]
    assert failed == [MATMUL] and suites.get("tests") == "2" and suites.get("failures") == "1"
    comment = (tmp_path / "comment.md").read_text()
    assert "SLOWER" in comment and MATMUL in comment and f"{product.url}/gates/{document['id']}/" in comment
    on_the_pages(watched, document)


def on_the_pages(page: Any, document: dict[str, Any]) -> None:
    """The link of the comment leads to the evidence, the evidence to a filled-in tune job; home and builds say the same."""
    page.goto(document["links"]["page"])
    shows(page.locator(".answer").first, "slower")
    shows(page.locator(".answer").first, "+11.")
    shows(page.locator(".subbar").first, "recorded on NVIDIA H200")
    page.get_by_role("link", name="Worst kernel").click()
    page.wait_for_url("**/kernels/*/")
    page.locator("a[href*='/tune/new/']").first.click()
    page.wait_for_url("**/tune/new/?*")
    expect(page.locator("[name=operator]")).to_have_value("matmul")
    eventually(lambda: sorted(page.locator("[name=shape]").input_value().split()) == ["K=4096", "M=4096", "N=4096"])
    page.goto("/")
    poll(page, "() => document.querySelector('#live-slower')?.innerText.includes('bad-3')")
    page.goto("/builds/?suite=guarded")
    eventually(lambda: page.inner_text(".answer").startswith("Did we get slower? Yes: matmul is 11."))
    page.goto("/builds/bad-3/")
    poll(page, "document.querySelector('main').innerText.includes('SLOWER')")


def test_a_pipeline_is_told_what_it_asked_wrongly(product: Product, token: str, tmp_path: Path) -> None:
    done = pipeline(product, token, tmp_path, "--build", "x" * 100)
    assert done.returncode == 3 and "80" in done.stderr
    done = pipeline(product, "rp_" + "0" * 64, tmp_path, "--build", "good-2")
    assert done.returncode == 3 and "401" in done.stderr
