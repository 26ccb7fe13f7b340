"""The real CUTLASS profiler through the running product: RIDGEPOINT_CUTLASS_PROFILER names it, as an owner does for a worker.

Its table goes to the folder of results: it may be kept as test data.
"""

from __future__ import annotations

import csv
import os
import time

import pytest

from profiles.capture.tools.cutlass import installed_cutlass
from tests.gpu.captures.test_tools_on_gpu import captured, keep, ready
from tests.gpu.conftest import Report, Site
from tests.gpu.test_end_to_end import ENDED, upload_of

NAMED = os.environ.get("RIDGEPOINT_CUTLASS_PROFILER", "")
KERNELS_BUILT = 6           # of sgemm, h16816gemm and two of sm90, as tests/gpu/README.md builds it
TOLD = ("Operation", "m", "n", "k", "Disposition", "Runtime", "GFLOPs")
if NAMED:                   # the product of the tests starts with no variable of this run's
    os.environ["PATH"] = f"{os.path.dirname(NAMED)}{os.pathsep}{os.environ['PATH']}"
pytestmark = pytest.mark.skipif(not NAMED, reason="RIDGEPOINT_CUTLASS_PROFILER names no CUTLASS profiler")


@pytest.fixture(scope="module")
def target(site: Site) -> int:
    return int(site.post("/api/captures/targets/", {"name": "cutlass", "argv": ["cutlass_profiler"]})["id"])


def test_it_says_what_it_is(report: Report) -> None:
    found = installed_cutlass()
    report.add("cutlass installed", **found)
    assert found.get("path") == NAMED and not found["version"].startswith("@")


def test_its_kernels_are_compared(site: Site, report: Report, target: int) -> None:
    row = captured(site, report, "cutlass", target, "cutlass", m="1024,4096", n="4096", k="4096", kernels="", providers=["cutlass"],
                   profiling_iterations=20, warmup_iterations=5, verification=True)
    profile = ready(row)
    assert (profile["format"], profile["kind"], profile["status"]) == ("cutlass", "summary", "ready")
    assert [file["name"] for file in row["files"]] == ["report.gemm.csv"]
    table = upload_of(site, profile)
    keep(report, table, "cutlass_gemm.csv")
    lines = list(csv.DictReader(line for line in table.read_text().splitlines() if line.strip() and line != "CSV Results:"))
    report.add("cutlass table", rows=[{name: each[name] for name in TOLD} for each in lines])
    assert len(lines) == 2 * KERNELS_BUILT and {each["m"] for each in lines} == {"1024", "4096"}
    assert {each["Disposition"] for each in lines} <= {"passed", "not_verified"}, lines
    assert all(float(each["Runtime"]) > 0 for each in lines) and profile["launches"] == len(lines)


def test_a_stop_keeps_the_kernels_that_were_done(site: Site, report: Report, target: int) -> None:
    sizes = "512:8192:512"
    made = site.post("/api/captures/", {"target": target, "tool": "cutlass", "options": {
        "m": sizes, "n": sizes, "k": "4096", "profiling_iterations": 50}})
    path = f"/api/captures/{made['id']}/"
    end = time.monotonic() + 60
    while "Problem ID: 3" not in site.get(path)["log"] and site.get(path)["status"] in ("queued", "running"):
        assert time.monotonic() < end, site.get(path)
        time.sleep(0.1)
    site.post(f"{path}stop/")
    row = site.wait(path, ENDED, 60)
    report.add("stopped cutlass", status=row["status"], error=row["error"], log=row["log"][-1200:])
    assert row["status"] == "done", row["error"]
