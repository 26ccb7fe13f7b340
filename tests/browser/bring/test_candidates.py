"""A candidate is allowed, submitted, compiled by a worker that is started for it, cancelled; a judged one is read and accepted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.visit import WORKED_MS, eventually, fits, shows
from tests.product import PROJECT, Product, clean_env
from tests.scale import DEEP
from tests.tuner.candidates.files import DIFF, KERNEL
from tests.tuner.candidates.test_candidates import ANSWER, ROWS
from tuner.bring.check import has_triton
from workers.core import sandboxed

pytestmark = [pytest.mark.browser, pytest.mark.skipif(
    not has_triton() or bool(sandboxed.why_not()), reason="torch and Triton are not installed, or no sandbox can be made")]
BEST = {**ROWS[1], "name": "best", "median_us": 43.0, "low_us": 42.8, "high_us": 43.3, "ratio": 0.93, "low": 0.92, "high": 0.94}
LIBRARY = {**ROWS[1], "name": "library", "median_us": 109.0, "low_us": 108.1, "high_us": 110.2, "ratio": 0.37, "low": 0.36,
           "high": 0.38}
COUNTED = {"duration_ns": 40100, "dram_pct": 88.2, "sm_pct": 31.0, "tensor_pct": 0, "occupancy_pct": 61.5, "registers": 28,
           "tool": "ncu 2025.3"}
JUDGED = {**ANSWER, "rows": [ROWS[0], BEST, ROWS[1], LIBRARY], "against": "best", "counters": COUNTED,
          "best": {"config": {"STEPS": 3, "PER_SM": 32, "num_warps": 8}}}


# in one process what takes three: each would import Django
JUDGE = """
import io, json
from django.core.management import call_command
from tuner.models import Candidate
call_command("candidates", "allow", "softmax", stdout=io.StringIO())
said = io.StringIO()
try:
    call_command("candidates", *asked, stdout=said)
except SystemExit as ended:         # nothing is known yet
    assert ended.code in (0, 2), said.getvalue()
made = json.loads(said.getvalue())
Candidate.objects.filter(pk=made["id"]).update(**fields)
print(made["id"])
"""


@pytest.fixture(scope="module")
def judged(product: Product, tmp_path_factory: pytest.TempPathFactory) -> int:
    """A candidate as a GPU worker leaves it: there is none here."""
    path = tmp_path_factory.mktemp("candidate") / "kernel.diff"
    path.write_text(DIFF)
    note = "The sum is taken once, before the store: one reduction less in the way of the loads"
    asked = ("submit", str(path), "--operator", "softmax", "--note", note, "--wait", "0", "--json")
    fields = {"status": "done", "verdict": "FASTER", "answer": JUDGED, "gpu": "NVIDIA H200",
              "reason": "−7.0 % (43.0 → 40.0 µs, interval −8.0 % to −6.0 %) beside the best configuration known",
              "environment": {"torch": "2.11.0", "triton": "3.6.0", "cuda": "13.0", "driver": "580.159"}}
    script = f"import json\nasked, fields = {asked!r}, json.loads({json.dumps(fields)!r})\n{JUDGE}"
    done = subprocess.run([sys.executable, str(PROJECT / "manage.py"), "shell", "--no-imports", "-c", script], cwd=PROJECT,
                          env=clean_env(product.home), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout.split()[-1])


@pytest.fixture
def worker(product: Product) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, str(PROJECT / "manage.py"), "worker", "compile"], cwd=PROJECT,
                               env=clean_env(product.home), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield
    process.terminate()
    process.wait(30)


@pytest.mark.deep_only          # pages, forms: tests/tuner/candidates/test_candidates.py; both stages: test_judged.py
def test_one_is_allowed_submitted_compiled_and_cancelled(watched: Any, server_url: str, worker: None, tmp_path: Path) -> None:
    page = watched
    page.goto(f"{server_url}/tune/")
    shows(page.locator("#live-answer"), "job")
    page.get_by_role("navigation").get_by_role("link", name="Candidates", exact=True).click()
    shows(page.locator(".notice-warn"), "manage.py worker gpu")
    page.get_by_label("Operator", exact=True).last.select_option("layernorm")
    page.get_by_label("seconds each").fill("60")
    page.get_by_role("button", name="Allow").click()
    shows(page.locator("#permits"), "layernorm")
    page.get_by_role("link", name="Submit a candidate").click()
    page.get_by_label("Operator").select_option("layernorm")
    eventually(lambda: "R=8192 C=4096" in page.get_by_label("Shape").input_value())
    path = tmp_path / "norm.py"
    path.write_text(KERNEL.replace(SOFTMAX_HEAD, LAYERNORM_HEAD))
    page.get_by_label("Choose a file").set_input_files(str(path))
    eventually(lambda: "layernorm_row" in page.get_by_label("Python file or unified diff").input_value())
    page.get_by_label("What was tried").fill("a first try")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url("**/tune/candidates/*/")
    expect(page.locator(".answer")).to_contain_text("Waits for a GPU worker", timeout=WORKED_MS)
    expect(page.locator("#facts")).to_contain_text("registers", timeout=WORKED_MS)
    shows(page.locator("#code"), "function by function")
    page.get_by_role("button", name="Cancel").click()
    shows(page.locator(".answer"), "Cancelled")


SOFTMAX_HEAD = "softmax_row(x, y, rows, cols, sx, sy, BLOCK: tl.constexpr, STEPS: tl.constexpr)"
LAYERNORM_HEAD = "layernorm_row(x, w, b, y, cols, sx, eps, BLOCK: tl.constexpr, rows=1, sy=1, STEPS: tl.constexpr = 1)"


def test_a_verdict_is_read_and_accepted(page: Any, server_url: str, judged: int) -> None:
    page.goto(f"{server_url}/tune/candidates/")
    page.get_by_role("link", name=str(judged), exact=True).click()
    shows(page.locator(".answer"), "▼ FASTER")
    shows(page.locator("#standing"), "measured, not reviewed")
    shows(page.locator("#times"), "best configuration known")
    shows(page.locator("#facts"), "88.2 %")
    assert page.locator(".line-new").count() == 2 and page.locator(".line-old").count() == 1
    page.get_by_label("Note").fill("read the diff")
    page.get_by_role("button", name="Accept").click()
    shows(page.locator("#standing"), "accepted by")
    page.get_by_role("link", name="Submit again").click()
    shows(page.locator(".answer"), f"candidate {judged}")
    page.get_by_label("Python file or unified diff").fill("@@ -1 +1 @@\n-x\n+y\n")
    page.get_by_role("button", name="Submit", exact=True).click()
    shows(page.locator("#candidate-text-wrong"), "hunk 1 (line 1 of the diff) does not fit")
    page.set_viewport_size({"width": 1000, "height": 800})
    fits(page)
    page.goto(f"{server_url}/tune/candidates/{judged}/")
    fits(page)


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.deep_only)])
def test_axe_objects_to_nothing(page: Any, server_url: str, judged: int, theme: Any) -> None:
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    for path in ("", "new/?operator=softmax", f"{judged}/") if DEEP else (f"{judged}/",):
        page.goto(f"{server_url}/tune/candidates/{path}")
        answer = Axe().run(page, options={"resultTypes": ["violations"]}).response
        assert [(each["id"], each["nodes"][0]["html"][:200]) for each in answer["violations"]] == [], path
