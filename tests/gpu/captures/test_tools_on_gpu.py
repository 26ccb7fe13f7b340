"""Every option of the capture tools that needs a GPU, through the running product: what it leaves and what it costs.

Files that may be kept as test data go to the folder of results (under 3 MB in all), overheads to `overheads.json` beside them.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from profiles.capture.tools import ncu_metrics
from profiles.capture.tools.ncu import installed_ncu
from tests.gpu.conftest import RESULTS, Report, Site, workers
from tests.gpu.test_end_to_end import ENDED, upload_of

MOST_BYTES = 3_000_000
OVERHEADS: dict[str, Any] = {}
KERNELS = "matmul\nsoftmax"


@pytest.fixture(scope="module")
def targets(site: Site) -> dict[str, int]:
    """Programs of this test and the bundled ones, by a word of their names."""
    site.post("/captures/targets/", data={"examples": "1"})
    for name, argv in (("memory", ["--steps", "12"]), ("exhaust", ["--steps", "2", "--exhaust"]), ("proton", ["--steps", "40"]),
                       ("steady", ["--steps", "100000", "--pause-ms", "100"])):
        module = "tests.gpu.captures.proton_target" if name == "proton" else "tests.gpu.captures.memory_target"
        known = [row["name"] for row in site.get("/api/captures/targets/")["results"]]
        if name not in known:
            site.post("/api/captures/targets/", {"name": name, "argv": ["{python}", "-m", module, *argv]})
    found = site.get("/api/captures/targets/")["results"]
    return {word: row["id"] for row in found for word in ("layer", "memory", "exhaust", "proton", "steady")
            if word in row["name"]}


def captured(site: Site, report: Report, stage: str, target: int, tool: str, **options: Any) -> dict[str, Any]:
    """Capture, wait for the profile, note what it cost; return the row with its profile's."""
    made = site.post("/api/captures/", {"target": target, "tool": tool, "build": "test-gpu", "options": options})
    path = f"/api/captures/{made['id']}/"
    row = site.wait(path, ENDED, 150)
    if row["status"] == "done":
        profile = site.wait(f"/api/profiles/{row['profile']}/", ("ready", "failed"), 120)
        row = {**site.get(path), "read": profile}
        OVERHEADS[stage] = {**row["cost"], "tool": tool, "options": options, "gpu": profile["gpu"]}
        (RESULTS / "overheads.json").write_text(json.dumps(OVERHEADS, indent=1))
    told = ("status", "error", "kind", "format", "launches", "gpu_time_ns", "steps")
    report.add(stage, status=row["status"], error=row["error"], command=row["command"], cost=row.get("cost"),
               result=row.get("result"), log=row["log"][-2500:],
               files=[(file["name"], file["bytes"], file["profile"]) for file in row.get("files", [])],
               profile={name: row["read"].get(name) for name in told} if "read" in row else None)
    return row


def keep(report: Report, source: Path, name: str) -> None:
    """Keep a file where all that are kept stay below MOST_BYTES."""
    target = RESULTS / "captures" / (name if source.suffix == ".gz" else f"{name}.gz")
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as plain, (target.open("wb") if source.suffix == ".gz" else gzip.open(target, "wb")) as packed:
        shutil.copyfileobj(plain, packed)
    if sum(path.stat().st_size for path in target.parent.iterdir()) > MOST_BYTES:
        report.add(f"left out {name}", bytes=target.stat().st_size)
        target.unlink()


def ready(row: dict[str, Any]) -> dict[str, Any]:
    assert row["status"] == "done", (row["error"], row["log"][-3000:])
    assert row["read"]["status"] == "ready", row["read"]["error"]
    return dict(row["read"])


def test_the_metrics_of_this_gpu_are_known_to_the_form(site: Site, report: Report, targets: dict[str, int]) -> None:
    program = installed_ncu()["path"]
    names = ncu_metrics.query(program)
    report.add("metrics", count=len(names), first=names[:10], sm=sum(name.startswith("sm__") for name in names))
    assert len(names) > 1000 and "dram__bytes" in names
    told = site.post("/api/captures/preview/", {"target": targets["layer"], "tool": "ncu", "options": {
        "metrics": ["sm__inst_executed_pipe_*.sum"]}})
    report.add("preview", metrics=told["metrics"], slowdown=told["slowdown"], workers=workers(site)[0]["tools"])
    assert told["metrics"][0]["count"] > 5


def test_ncu_with_wildcards_and_two_kernels(site: Site, report: Report, targets: dict[str, int]) -> None:
    row = captured(site, report, "ncu wildcards, two kernels", targets["layer"], "ncu", kernel=KERNELS, launch_count=4, set="none",
                   metrics=["gpu__time_duration.sum", "sm__inst_executed_pipe_*.sum", "regex:^dram__bytes"], import_source=False)
    profile = ready(row)
    kernels = site.get(f"/api/profiles/{profile['id']}/kernels/")["kernels"]
    report.add("ncu kernels", names=[kernel["name"] for kernel in kernels], facts=row["facts"])
    assert len(row["facts"]["metrics"]["sm__inst_executed_pipe_*.sum"]) > 5
    assert profile["launches"] == 4 and len(kernels) >= 2
    keep(report, upload_of(site, profile), "ncu_wildcards_two_kernels.ncu-rep")


def test_a_wildcard_that_names_nothing_is_refused(site: Site, report: Report, targets: dict[str, int]) -> None:
    answer = site.http.post(f"{site.product.url}/api/captures/", json={"target": targets["layer"], "tool": "ncu", "options": {
        "metrics": ["nothing__*"]}}, headers={"X-CSRFToken": site.http.cookies.get("csrftoken", ""), "Referer": site.product.url})
    report.add("refused", status=answer.status_code, body=answer.text[:400])
    assert answer.status_code == 400 and "matches none" in answer.text


def test_ncu_of_a_launch_by_its_id_in_one_process(site: Site, report: Report, targets: dict[str, int]) -> None:
    row = captured(site, report, "ncu kernel id", targets["layer"], "ncu", kernel_id="::regex:softmax:2", set="basic",
                   launch_count=1, target_processes="application-only", graph_profiling="graph", warp_sampling_interval="5",
                   import_source=False)
    assert ready(row)["launches"] == 1


def test_torch_with_cycles_and_an_execution_trace(site: Site, report: Report, targets: dict[str, int]) -> None:
    row = captured(site, report, "torch repeat", targets["memory"], "torch", skip_first=1, wait=1, warmup=1, active=2, repeat=2,
                   execution_trace=True, all_threads=True, sync_events=True)
    profile = ready(row)
    names = {file["name"]: file for file in row["files"]}
    assert {"trace.json.gz", "cycle-2.json.gz", "execution_trace.json.gz"} <= set(names)
    assert profile["steps"] == 2 and row["cost"]["ratio"] and names["execution_trace.json.gz"]["kept"]
    report.add("chakra", holds=names["execution_trace.json.gz"]["holds"])
    assert " operators of " in names["execution_trace.json.gz"]["holds"]
    second = site.wait(f"/api/profiles/{names['cycle-2.json.gz']['profile']}/", ("ready", "failed"), 60)
    assert second["status"] == "ready" and second["steps"] == 2
    keep(report, upload_of(site, profile), "torch_cycle_1.json.gz")
    keep(report, upload_of(site, second), "torch_cycle_2.json.gz")


def test_torch_with_a_memory_snapshot(site: Site, report: Report, targets: dict[str, int]) -> None:
    row = captured(site, report, "torch memory", targets["memory"], "torch", active=2, memory="end", memory_entries=5000)
    ready(row)
    [snapshot] = [file for file in row["files"] if file["name"] == "snapshot.pickle"]
    read = site.wait(f"/api/profiles/{snapshot['profile']}/", ("ready", "failed"), 60)
    assert read["status"] == "ready" and read["format"] == "torch-snapshot", read["error"]
    keep(report, upload_of(site, read), "memory_snapshot.pickle")


def test_a_snapshot_when_memory_runs_out(site: Site, report: Report, targets: dict[str, int]) -> None:
    row = captured(site, report, "torch out of memory", targets["exhaust"], "torch", steps="none", memory="oom",
                   memory_entries=5000)
    profile = ready(row)
    assert profile["format"] == "torch-snapshot" and "memory snapshot written (out of memory)" in row["log"]
    assert row["result"].endswith("/analysis/memory/")
    keep(report, upload_of(site, profile), "memory_snapshot_oom.pickle")


def test_snapshots_on_request(site: Site, report: Report, targets: dict[str, int]) -> None:
    """Two asked for while the program trains on: each is a profile before the capture has ended."""
    made = site.post("/api/captures/", {"target": targets["steady"], "tool": "torch", "options": {
        "steps": "none", "memory": "request", "memory_entries": 5000}})
    path = f"/api/captures/{made['id']}/"
    took_s = []
    until(lambda: "step 20:" in site.get(path)["log"], 90)
    for number in (1, 2):
        http = site.http.post(f"{site.product.url}{path}dump/", headers={
            "X-CSRFToken": site.http.cookies.get("csrftoken", ""), "Referer": site.product.url})
        assert http.status_code == 202 and http.json()["dumps"]["asked"] == number, http.text
        began_s = time.monotonic()
        until(lambda number=number: f"memory snapshot {number} written" in site.get(path)["log"], 30)
        took_s.append(round(time.monotonic() - began_s, 2))
    files = until(lambda: [file for file in site.get(path)["files"] if file["name"].startswith("dump-") and file["profile"]][1:]
                  and site.get(path)["files"], 60)
    read = [site.wait(f"/api/profiles/{file['profile']}/", ("ready", "failed"), 60) for file in files]
    row = site.get(path)
    steps = steps_made(row["log"])
    report.add("snapshots on request", took_s=took_s, steps=steps, read=[each["format"] for each in read],
               bytes=[file["bytes"] for file in files], log=row["log"][-1500:])
    assert row["status"] == "running" and [each["format"] for each in read] == ["torch-snapshot"] * 2, (
        [each["error"] for each in read])
    until(lambda: steps_made(site.get(path)["log"]) > steps, 30)                 # it trains on
    site.post(f"{path}stop/")
    ended = site.wait(path, ENDED, 60)
    assert ended["status"] == "done" and "memory snapshot written (end)" in ended["log"], (ended["error"], ended["log"][-2000:])
    keep(report, upload_of(site, read[0]), "memory_snapshot_on_request.pickle")


def steps_made(log: str) -> int:
    return int(re.findall(r"(?m)^step (\d+):", log)[-1])


def until(condition: Any, within_s: float) -> Any:
    end = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.1)
    return found


def test_what_a_whole_program_costs_under_ncu(site: Site, report: Report, targets: dict[str, int]) -> None:
    row = captured(site, report, "ncu with a plain run", targets["layer"], "ncu", kernel="softmax", launch_count=1, set="basic",
                   plain_run=True)
    ready(row)
    told = site.post("/api/captures/preview/", {"target": targets["layer"], "tool": "ncu", "options": {}})["slowdown"]
    report.add("cost of a whole program", cost=row["cost"], told=told)
    assert row["cost"]["program_ratio"] > 0 and row["cost"]["plain_of"] == row["id"] and "times as long" in told


@pytest.mark.parametrize(("data", "options"), [
    ("tree", {}), ("trace", {}), ("tree", {"mode": "pcsampling"}), ("tree", {"context": "python"})],
    ids=["tree", "trace", "pcsampling", "python"])
def test_proton(site: Site, report: Report, targets: dict[str, int], data: str, options: dict[str, Any]) -> None:
    name = f"proton {data} {'-'.join(options.values())}".strip()
    row = captured(site, report, name, targets["proton"], "proton", data=data, skip_first=4, active=6, **options)
    profile = ready(row)
    kernels = site.get(f"/api/profiles/{profile['id']}/kernels/")
    report.add(f"{name} kernels", kernels=str(kernels)[:600])
    assert row["cost"]["ratio"] is not None
    keep(report, upload_of(site, profile), f"{name.replace(' ', '_')}.{'hatchet' if data == 'tree' else 'chrome_trace'}")


def test_proton_inside_kernels(site: Site, report: Report, targets: dict[str, int]) -> None:
    """Instrumentation: what this version makes of it is told, whatever that is; it must end in a clear state."""
    row = captured(site, report, "proton instrumentation", targets["proton"], "proton", backend="instrumentation",
                   skip_first=4, active=6)
    assert row["status"] in ("done", "failed") and (row["status"] == "done" or row["error"]["what"])


def test_proton_says_what_this_triton_lacks(site: Site, report: Report, targets: dict[str, int]) -> None:
    row = captured(site, report, "proton periodic flushing", targets["proton"], "proton", mode="periodic_flushing", active=6)
    if row["status"] == "failed":
        assert "too old" in row["error"]["what"] and "has no periodic_flushing" in row["log"]
    else:
        assert len([file for file in row["files"] if "part_" in file["name"]]) > 1


def test_a_stop_keeps_what_torch_recorded(site: Site, report: Report, targets: dict[str, int]) -> None:
    made = site.post("/api/captures/", {"target": targets["proton"], "tool": "torch", "options": {
        "active": 1000, "end_after": False}})
    path = f"/api/captures/{made['id']}/"
    end = time.monotonic() + 60
    while "step 12" not in site.get(path)["log"] and site.get(path)["status"] in ("queued", "running"):
        assert time.monotonic() < end
        time.sleep(0.1)
    site.post(f"{path}stop/")
    row = site.wait(path, ENDED, 60)
    report.add("stopped torch", status=row["status"], log=row["log"][-1200:])
    assert row["status"] == "done", row["error"]


def test_again_with_counters(site: Site, report: Report, targets: dict[str, int]) -> None:
    row = captured(site, report, "torch before counters", targets["layer"], "torch", wait=1, warmup=1, active=2)
    profile = ready(row)
    site.post(f"/profiles/{profile['id']}/counters/", data={})
    made = site.get("/api/captures/", limit=1)["results"][0]
    counted = site.wait(f"/api/captures/{made['id']}/", ENDED, 180)
    report.add("again with counters", command=counted["command"], status=counted["status"], error=counted["error"],
               log=counted["log"][-1500:], cost=counted["cost"])
    assert counted["tool"] == "ncu" and counted["status"] == "done", counted["error"]
