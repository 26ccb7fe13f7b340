"""CUDA C++ through the whole product on a real GPU: a file and one call → tuned → served to another process → guarded.

Two files with PyTorch's tensors, two plain ones. Needs what `test_end_to_end.py` needs, and a C++ compiler; about five minutes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.gpu.conftest import PROJECT
from tests.tuner.bring.cuda_call_files import ACCESSOR, ACCESSOR_CALL, SCALE, SCALE_CALL, SOFTMAX, SOFTMAX_CALL, SUMS_CALL

ENDED = ("done", "failed", "stopped")
RUNS = 5
CALLS = {"scale_add": (SCALE, SCALE_CALL.replace("1000000", str(1 << 26))), "sum_rows": (SCALE, SUMS_CALL),
         "softmax_rows": (SOFTMAX, SOFTMAX_CALL), "add_bias": (ACCESSOR, ACCESSOR_CALL)}
# another process, as a job has it: the client alone, told nothing but where the server is
SERVED = """
import json, sys
from tuner.cache.client import Client
client, asked = Client(), json.loads(sys.argv[1])
client.refresh()
found = client.best(asked["operator"], asked["dtype"], {"it": "was not served"}, **asked["shape"])
print(json.dumps({"config": found.config, "rule": found.rule, "why": found.why}))
"""


def checked(site: Any, text: str, call: str) -> tuple[dict[str, Any], list[str]]:
    """Return the check once it has ended, and what it said that it does meanwhile."""
    check = site.post("/api/operators/check/", {"text": text, "file": "mine.cu", "call": call})
    said: list[str] = []
    end = time.monotonic() + 240
    while True:
        row = site.get(f"/api/operators/check/{check['id']}/")
        if row.get("step") and row["step"]["what"] not in said:
            said.append(row["step"]["what"])
        if row["status"] in ENDED:
            return row, said
        assert time.monotonic() < end, site.product.log[-4000:]
        time.sleep(0.2)


def served(site: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Return what a process of a job is told for the problem."""
    asked = {"operator": job["operator"], "dtype": job["dtype"], "shape": job["shape"]}
    environ = {"RIDGEPOINT_URL": site.product.url, "RIDGEPOINT_TOKEN": token_of(site),
               "RIDGEPOINT_SNAPSHOT_FILE": str(site.product.home / "snapshot.json")}
    done = subprocess.run([sys.executable, "-c", SERVED, json.dumps(asked)], cwd=PROJECT, capture_output=True, text=True,
                          timeout=60, env=os.environ | environ)
    assert done.returncode == 0, done.stderr[-2000:]
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def token_of(site: Any) -> str:
    page = site.post("/accounts/tokens/create/", data={"name": f"job {time.monotonic()}", "scope": "write"})
    token = re.search(r"rp_[A-Za-z0-9]+", page)
    assert token is not None
    return token[0]


@pytest.mark.parametrize("kernel", CALLS)
def test_a_file_and_a_call_are_tuned_used_and_guarded(site: Any, report: Any, kernel: str) -> None:
    text, call = CALLS[kernel]
    began_s = time.monotonic()
    check, said = checked(site, text, call)
    assert check["status"] == "done", (check["error"], site.product.log[-4000:])
    recorded_s = time.monotonic() - began_s
    assert any(each.startswith("compiling the host's part") for each in said), said
    made = site.post(f"/api/operators/check/{check['id']}/tune/", {"kernel": kernel, "effort": "quick"})
    job = site.wait(f"/api/tune/{made['job']['id']}/", ENDED, 150)
    assert job["status"] == "done" and job["best_config"], (job["error"], site.product.log[-4000:])
    told = served(site, job)
    kept = next(each["config"] for each in job["finalists"] if each["default"])      # served where the winner is not clearly faster
    assert told["config"] in (job["best_config"], kept) and told["rule"] == "exact", (told, job["finalists"])
    problem = {"operator": job["operator"], "dtype": job["dtype"], "gpu": job["gpu"], **job["shape"]}
    site.post("/kernels/problem/guard/", data=problem)
    suite = f"problems-{re.sub(r'[^a-z0-9]+', '-', job['gpu'].lower()).strip('-')}"
    [entry] = [each for each in site.get(f"/api/suites/{suite}/")["kernels"] if each["op"] == job["operator"]]
    asked = site.post(f"/api/suites/{suite}/jobs/", {"builds": ["base"], "runs": RUNS, "kernels": [entry["key"]]})
    guarded = site.wait(f"/api/suite-jobs/{asked['id']}/", ENDED, 250)
    report.add(f"CUDA C++ {kernel}", call=call, recorded_s=round(recorded_s, 1), steps=said, operator=job["operator"],
               best_us=1e3 * job["best_ms"], default_us=1e3 * job["default_ms"], best=job["best_config"], served=told,
               guarded=guarded["status"], whole_s=round(time.monotonic() - began_s, 1))
    assert guarded["status"] == "done", (guarded, site.product.log[-4000:])
