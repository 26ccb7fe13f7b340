"""A suite of a capture target: captures in turn, their launches as runs, counters beside them. Real traces, stand-in tools."""

import os
import sys
import threading
from datetime import timedelta

import numpy as np
import pytest
from django.conf import settings
from django.db.models.functions import Now

from profiles.capture.tools import ncu, torch_profiler
from profiles.ingest.naming.capture_names import capture_name
from profiles.models import Capture, CaptureTarget, KernelStat, Profile
from profiles.store.objects import launches_read
from profiles.upload.services import profile_ingest
from tests.workers.clocks.library import REFUSE_GRAPHICS, UUID, ImaginaryGpu
from tests.workers.tune import stand_ins
from tuner.clocks.wish import ClockWish
from tuner.gate.baselines.selectors import Baseline
from tuner.gate.suites import job_services
from tuner.gate.verdicts.sides_selectors import _without_other_timings
from tuner.models import GpuClockRule, KernelRun, Suite, SuiteCapture, SuiteKernel
from workers.capture import run as capture
from workers.core import gpu
from workers.gate import captures, counters, suite
from workers.leases import STALE_AFTER

pytestmark = pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
TRACE = stand_ins.PROJECT / "tests" / "data" / "captured" / "layer_trace.json.gz"
LAUNCHER = """import os, shutil, sys
if os.environ["RIDGEPOINT_BUILD"] == "broken":
    sys.exit("Traceback: no such kernel")
import marker
print("code of", marker.BUILD)
shutil.copy({trace!r}, sys.argv[sys.argv.index("--out") + 1])
"""


@pytest.fixture(autouse=True)
def host(tmp_path, monkeypatch):
    """A host with one GPU by the words of its tools; its profiler hands over a recorded trace, and ingest reads at once."""
    monkeypatch.setattr(suite, "continue_followers", lambda job_id: None)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpu.nvml, "devices", list)
    monkeypatch.setattr(gpu.tempfile, "gettempdir", lambda: str(tmp_path))
    stand_ins.nvidia_smi(tmp_path)
    stand_ins.ncu(tmp_path)
    (tmp_path / "launcher.py").write_text(LAUNCHER.format(trace=str(TRACE)))
    monkeypatch.setattr(torch_profiler, "LAUNCHER", str(tmp_path / "launcher.py"))
    for build in ("a", "b", "broken"):
        (tmp_path / "builds" / build).mkdir(parents=True)
        (tmp_path / "builds" / build / "marker.py").write_text(f"BUILD = {build!r}")
    monkeypatch.setattr(captures.run, "run", stand_ins.then_ingest(
        capture.run, lambda pk, worker: profile_ingest(pk, worker)))        # looked up late: a test holds it back
    ncu.installed_ncu.cache_clear()
    yield
    ncu.installed_ncu.cache_clear()


def suite_of(tmp_path, **fields):
    target = CaptureTarget.objects.create(name="layer", argv=["{python}", "-m", "workers.targets.layer"])
    return Suite.objects.create(name="layer", kind="target", target=target, device="gpu",
                                build_path=f"{tmp_path}/builds/{{build}}", **fields)


def ran(row, *builds, runs):
    job = job_services.job_create(row, builds=list(builds), runs=runs)
    suite.run(job.pk, "worker-1")
    job.refresh_from_db()
    return job


def test_each_capture_is_a_run_of_the_builds_own_code(tmp_path, monkeypatch):
    monkeypatch.setattr(captures, "KERNELS", 6)
    job = ran(suite_of(tmp_path), "a", "b", runs=2)
    assert (job.status, job.error) == ("done", None)
    asked = list(SuiteCapture.objects.filter(job=job).select_related("capture").order_by("capture_id"))
    assert [(row.build, row.number) for row in asked] == [("a", 0), ("b", 0), ("b", 1), ("a", 1)]
    assert all(f"code of {row.build}" in row.capture.log and row.capture.build == row.build for row in asked)
    kernels = list(SuiteKernel.objects.filter(suite=job.suite))
    rows = list(KernelRun.objects.filter(job=job).select_related("kernel", "profile"))
    assert len(kernels) == 6 and not any(kernel.declared for kernel in kernels)
    assert len(rows) == 4 * 6 and len({row.run for row in rows}) == 4 and {row.gpu for row in rows} == {"NVIDIA H200"}
    assert {(row.driver, row.toolkit.split(",")[0]) for row in rows} == {("580.159.04", "cuda 13.0")}

    profile = asked[0].capture.profile
    table = launches_read(profile.pk).to_pylist()
    longest = KernelStat.objects.filter(profile=profile).order_by("-total_ns").first()
    mine = [row for row in rows if row.profile_id == profile.pk and row.kernel.op == capture_name(longest.name)]
    assert mine, [row.kernel.op for row in rows]
    every = {round(one["dur_ns"] / 1000, 6) for one in table if one["name"] == longest.name}
    assert {round(us, 6) for row in mine for us in row.us} <= every
    assert all(row.p50_us == pytest.approx(float(np.median(row.us))) and row.facts["launches"] == row.n for row in mine)


def test_a_capture_that_fails_is_a_rejected_run_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(captures, "KERNELS", 3)
    job = ran(suite_of(tmp_path), "a", "broken", runs=1)
    found = {(row.build.name, bool(row.rejected)) for row in KernelRun.objects.filter(job=job).select_related("build")}
    assert job.status == "done" and found == {("a", False), ("broken", True)}
    assert "no such kernel" in KernelRun.objects.filter(job=job, build__name="broken").first().rejected
    alone = ran(Suite.objects.get(), "nowhere", runs=1)
    assert alone.status == "failed" and "has no folder" in alone.error["what"]


def test_what_is_recorded_stays_and_the_rest_follows_when_ingest_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr(captures, "KERNELS", 2)
    monkeypatch.setattr(captures, "WAIT_S", 0.0)
    row = suite_of(tmp_path)
    held, really = [], profile_ingest
    monkeypatch.setattr(sys.modules[__name__], "profile_ingest", lambda pk, worker: held.append(pk))
    job = ran(row, "a", runs=1)
    assert (job.status, job.worker) == ("queued", "") and not KernelRun.objects.exists() and len(held) == 1
    really(held[0], "ingest-1")
    suite.run(job.pk, "worker-2")
    job.refresh_from_db()
    assert job.status == "done" and KernelRun.objects.filter(job=job).count() == 2 and Capture.objects.count() == 1


def test_a_capture_of_a_worker_that_was_killed_is_taken_over(tmp_path, monkeypatch):
    """Both of its rows were its own; this worker claims the job a moment before the capture's heartbeat is too old as well."""
    monkeypatch.setattr(captures, "KERNELS", 1)
    job = job_services.job_create(suite_of(tmp_path), builds=["a"], runs=1)
    asked = counters.ensure_capture(job, "a", 0, captures.OPTIONS).capture
    Capture.objects.filter(pk=asked.pk).update(status="running", worker="killed", attempts=1,
                                               heartbeat=Now() - STALE_AFTER + timedelta(seconds=1))
    alarm = threading.Timer(60, job_services.job_stop, [job])        # else it waits for ever
    alarm.start()
    suite.run(job.pk, "worker-1")
    alarm.cancel()
    job.refresh_from_db()
    asked.refresh_from_db()
    assert (job.status, asked.status, asked.worker, asked.attempts) == ("done", "done", "worker-1", 2)


def test_counters_of_one_capture_go_to_all_runs_of_their_build(tmp_path, monkeypatch):
    monkeypatch.setattr(captures, "KERNELS", 1)
    row = suite_of(tmp_path, metrics={"dram_bytes": {"max_increase": 0.1}, "tensor_use_pct": {"max_decrease": 0.1},
                                      "registers": {"max_increase": 0.1}})
    job = ran(row, "a", runs=2)
    asked = SuiteCapture.objects.get(job=job, number=-1).capture
    assert asked.tool == "ncu" and "dram__bytes_read.sum" in asked.options["metrics"]
    assert asked.profile.kind == Profile.Kind.COUNTERS
    rows = list(KernelRun.objects.filter(job=job))
    assert len(rows) == 2 and all(run.facts["counters_unknown"] == "ncu did not see a launch of it" for run in rows)
    seen = launches_read(asked.profile_id).to_pylist()[0]          # of the stand-in's report: a kernel that it did see
    sides = {name: "×".join(str(seen[f"{name}_{side}"]) for side in "xyz") for name in ("grid", "block")}
    SuiteKernel.objects.update(op=KernelStat.objects.get(profile=asked.profile, name=seen["name"]).short_name, shape=sides)
    counters.store_counters(job)
    run = KernelRun.objects.filter(job=job).first()
    assert run.facts["dram_bytes"] > 0 and "tensor_use_pct" in run.facts, run.facts


@pytest.mark.parametrize("refuse", [0, REFUSE_GRAPHICS])
def test_captures_that_are_runs_are_made_under_held_clocks(tmp_path, monkeypatch, library, refuse):
    """The driver's library is a stand-in; the GPU of this host has its UUID."""
    card = ImaginaryGpu(library, tmp_path / "gpu")
    card.set(refuse=refuse)
    for name, value in card.environ(tmp_path, tmp_path / "home" / "clocks" / f"{UUID}.json").items():
        if name != "PATH":
            monkeypatch.setenv(name, value)
    monkeypatch.setattr(settings, "HOME", tmp_path / "home")
    found = gpu.gpus()[0]
    monkeypatch.setattr(gpu, "gpus", lambda: [gpu.Gpu(**{**found.as_json(), "uuid": UUID})])
    GpuClockRule.objects.create(uuid=UUID, **ClockWish.read("1410").as_json())
    job = ran(suite_of(tmp_path), "a", runs=1)
    assert (job.status, job.error) == ("done", None) and card.now == (0, 0, 0) and card.changes == (2 if refuse else 4)
    runs, capture_row = list(KernelRun.objects.filter(job=job, rejected="")), Capture.objects.get()
    assert runs and job.environment["clock_lock"]["locked"] is (not refuse)
    assert job.environment["clock_lock"]["by"] == f"capture {capture_row.pk} on worker-1"
    if refuse:
        assert "no permission" in capture_row.log and all("timing" not in run.environment for run in runs)
        return
    assert "ridgepoint: clocks: SM clock locked at 1410 MHz, persistence mode on" in capture_row.log
    assert {run.environment["timing"] for run in runs} == {"captured, SM clock locked at 1410 MHz"}
    assert all(run.facts["clock_lock"]["sm_mhz"] == 1410 for run in runs)
    GpuClockRule.objects.all().delete()
    other = ran(job.suite, "b", runs=1)
    assert other.environment["clock_lock"] == {"locked": False, "why": "not asked for"} and card.changes == 4
    build, kernel = KernelRun.objects.filter(job=other).first().build, runs[0].kernel
    assert _without_other_timings(Baseline(kernel, "rolling", runs, [runs[0].build]), set()).runs == []
    unlocked = list(KernelRun.objects.filter(job=other, kernel=kernel))
    assert _without_other_timings(Baseline(kernel, "rolling", unlocked, [build]), {runs[0].environment["timing"]}).runs == []
    assert _without_other_timings(Baseline(kernel, "rolling", unlocked, [build]), set()).runs == unlocked


def test_a_capture_fails_where_clocks_are_required_and_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "HOME", tmp_path / "home")
    GpuClockRule.objects.create(uuid=gpu.gpus()[0].uuid, **ClockWish.read("1410", required=True).as_json())
    job = ran(suite_of(tmp_path), "a", runs=1)
    assert job.status == "failed" and "an owner requires that this GPU's clocks are held" in job.error["what"]
    assert Capture.objects.get().error["where"] == "clocks"
