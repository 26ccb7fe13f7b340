"""A suite job through real processes: each run a fresh one, builds' own code, what dies, what hangs, Stop, the real child."""

import functools
import threading
import time

import pytest
from django.conf import settings

from tuner.gate.suites import job_services
from tuner.models import CachedConfig, KernelRun, Suite, SuiteJob, SuiteKernel
from workers.clocks import hold
from workers.core import gpu
from workers.fresh import runner
from workers.fresh.processes import FreshRuns, Limits
from workers.gate import suite

pytestmark = pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
CARD = gpu.Gpu(0, "GPU-0", "Imaginary GPU", "9.0", "1.0", 1)
CHILD = "tests.workers.gate.fresh_child"
CONFIG = {"STEPS": 3, "PER_SM": 32, "num_warps": 8}


@pytest.fixture(autouse=True)
def host(monkeypatch, tmp_path):
    monkeypatch.setattr(suite, "continue_followers", lambda job_id: None)
    monkeypatch.setattr(settings, "HOME", tmp_path / "home")
    monkeypatch.setattr(gpu, "gpus", lambda: [CARD])
    monkeypatch.setattr(gpu.tempfile, "gettempdir", lambda: str(tmp_path))
    for name in ("RIDGEPOINT_SECRET_KEY", "PGPASSWORD", "AWS_S3_SECRET_ACCESS_KEY", "AWS_SECURITY_TOKEN"):
        monkeypatch.setenv(name, "private")


@pytest.fixture
def builds(tmp_path):
    """Folders of builds, as CI puts them on a worker."""
    root = tmp_path / "builds"

    def put(name, text):
        (root / name).mkdir(parents=True)
        (root / name / "speeds.py").write_text(text)

    nothing_private = ("import os\nassert 'private' not in os.environ.values()\n"
                       "assert not {'DATABASE_URL', 'REDIS_URL'} & set(os.environ)\n")
    put("a", f"{nothing_private}US = {{'softmax': 10.0}}\nHASH = 'a' * 64")
    put("b", "US = {'softmax': 12.0}\nHASH = 'b' * 64")
    return put


def suite_of(tmp_path, *operators, **fields):
    row = Suite.objects.create(name="nightly", device="gpu", build_path=f"{tmp_path}/builds/{{build}}", **fields)
    for place, op in enumerate(operators):
        SuiteKernel.objects.create(suite=row, key=f"{op} R=64 C=64 fp16", op=op, shape={"R": 64, "C": 64}, dtype="fp16", family=op,
                                   place=place, config_from="given", config=CONFIG)
    return row


def ran(row, *builds, runs=2):
    job = job_services.job_create(row, builds=list(builds), runs=runs)
    suite.run(job.pk, "worker-1", module=CHILD)
    job.refresh_from_db()
    return job, list(KernelRun.objects.filter(job=job).select_related("build", "kernel").order_by("pk"))


def test_each_run_is_a_fresh_process_of_its_builds_code(tmp_path, builds):
    (tmp_path / "home" / "compiled" / "suite-987654321-GPU-0" / "of a suite that is gone").mkdir(parents=True)
    job, rows = ran(suite_of(tmp_path, "softmax", "layernorm"), "a", "b")
    assert (job.status, job.error, job.recorded) == ("done", None, "")
    assert job.environment["gpu"] == "Imaginary GPU" and job.environment["clock_lock"] == {"locked": False, "why": "not asked for"}
    assert [(row.build.name, row.number, row.kernel.op) for row in rows] == [
        (build, number, op) for build, number in (("a", 0), ("b", 0), ("b", 1), ("a", 1)) for op in ("softmax", "layernorm")]
    pids = [row.facts["pid"] for row in rows]
    assert len(set(pids)) == 4 and all(one == other for one, other in zip(pids[::2], pids[1::2], strict=True))
    assert len({(row.build.name, row.run) for row in rows}) == 4
    for row in rows[::2]:
        slow = row.build.name == "b"
        assert row.p50_us == pytest.approx(12.0 if slow else 10.0, abs=0.2) and row.n == 100 and row.p50_us < row.p95_us
        assert row.source_hash == row.build.name * 64 and row.config == CONFIG and row.facts["config_from"] == "given"
        assert (row.gpu, row.gpu_uuid, row.toolkit, row.driver) == ("Imaginary GPU", "GPU-0", "cuda 13.0, triton 3.6.0", "1.0")
        assert row.sm_clock_mhz == 1980 and row.facts["registers"] == 32 and row.environment["torch"] == "2.11.0"
        assert row.environment["timing"] == "cold, 100 samples after 50"
        assert row.facts["compile_s"] == 0.0, "a process that measures nothing compiled before"
    [kept] = (tmp_path / "home" / "compiled").iterdir()
    assert kept.name == f"suite-{job.suite_id}-GPU-0" and {file.name for file in kept.iterdir()} == {"softmax", "layernorm"}


def test_a_kernel_that_kills_or_hangs_its_process_is_a_rejected_run_and_the_others_go_on(tmp_path, builds, monkeypatch):
    monkeypatch.setattr(runner, "FreshRuns", functools.partial(FreshRuns, limits=Limits(run_s=2.0)))
    builds("c", "DO = {'softmax': 'die', 'layernorm': 'hang', 'rmsnorm': 'refuse'}")
    job, rows = ran(suite_of(tmp_path, "softmax", "layernorm", "rmsnorm", "silu_mul"), "c", runs=1)
    why = {row.kernel.op: row.rejected for row in rows}
    assert job.status == "done" and why["silu_mul"] == ""
    assert "exited with status 3; it printed: last words" in why["softmax"]
    assert why["layernorm"] == "run: no answer within 2 s" and why["rmsnorm"] == "compile: CompilationError: no"
    runs = {row.kernel.op: row.run for row in rows}
    assert runs["silu_mul"].endswith("process 3") and runs["softmax"].endswith("run 0")


def test_nothing_measured_ends_the_job_with_the_first_reason(tmp_path, builds):
    builds("c", "DO = {'softmax': 'die'}\nprint('no text: \\0', flush=True)")
    job, rows = ran(suite_of(tmp_path, "softmax"), "c", runs=5)
    assert job.status == "failed" and "no text: �" in job.error["what"] and "last words" in job.error["what"] and len(rows) == 1


def test_a_build_without_its_code_is_not_measured_with_other_code(tmp_path, builds):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "builds" / "out").symlink_to(tmp_path / "elsewhere")
    row = suite_of(tmp_path, "softmax")
    for build, said in (("nowhere", "has no folder"), ("out", "leads out of"), ("a b", "cannot be a folder's name")):
        job, rows = ran(row, build, runs=1)
        assert job.status == "failed" and said in job.error["what"] and rows == []


def test_the_cache_says_which_configuration_runs(tmp_path, builds):
    row = suite_of(tmp_path, "softmax")
    row.kernels.update(config_from="cache", config=None)
    served = {"STEPS": 2, "PER_SM": 8, "num_warps": 4, "ROWS": 1, "BLOCK": 0}
    entry = CachedConfig.objects.create(
        operator="softmax", dtype="fp16", shape={"R": 64, "C": 64}, shape_bucket="R=64 C=64", gpu="Imaginary GPU",
        compute_capability="9.0", toolkit="cuda 13.0, triton 3.6.0", config=served, median_ms=0.01)
    _, rows = ran(row, "a", runs=1)
    assert rows[0].facts["config"] == rows[0].config
    assert {**served, **rows[0].config} == served and rows[0].facts["cache_entry"] == entry.pk
    _, again = ran(row, {"build": "b", "configs": {rows[0].kernel.key: CONFIG}}, runs=1)
    assert again[0].config == CONFIG and again[0].facts["config_from"] == "build"


def test_stop_ends_a_hanging_process_within_a_second(tmp_path, builds):
    builds("c", "DO = {'layernorm': 'hang'}")
    job = job_services.job_create(suite_of(tmp_path, "softmax", "layernorm"), builds=["c"], runs=2)
    worker = threading.Thread(target=suite.run, args=(job.pk, "worker-1"), kwargs={"module": CHILD})
    worker.start()
    end = time.monotonic() + 20
    while not KernelRun.objects.filter(job=job).exists() and time.monotonic() < end:
        time.sleep(0.02)
    job_services.job_stop(job)
    began = time.monotonic()
    worker.join(timeout=30)
    assert time.monotonic() - began < 20          # at once when idle; the process hangs for a minute
    job.refresh_from_db()
    assert job.status == "stopped" and KernelRun.objects.filter(job=job).count() == 1


def test_a_worker_with_another_gpu_leaves_the_job_to_those_that_have_it(tmp_path, builds, monkeypatch):
    row = suite_of(tmp_path, "softmax")
    there = [{"name": "w2", "queues": ["gpu"], "gpus": [{"name": "Other GPU"}]}]
    monkeypatch.setattr(suite.jobs, "workers", lambda: there)
    job = job_services.job_create(row, builds=["a"], runs=1, device="gpu:Other GPU")
    suite.run(job.pk, "worker-1", module=CHILD)
    job.refresh_from_db()
    assert (job.status, job.worker, job.attempts) == ("queued", "", 0)
    there.clear()
    suite.run(job.pk, "worker-1", module=CHILD)
    assert "no worker has an Other GPU" in SuiteJob.objects.get(pk=job.pk).error["what"]


def test_clocks_are_left_alone_and_a_refusal_is_said(monkeypatch):
    with hold.hold_clocks("GPU-0", "a test") as said:
        assert said == {"locked": False, "why": "not asked for"}
    monkeypatch.setenv(hold.ASKED, "fast")
    with hold.hold_clocks("GPU-0", "a test") as said:
        assert not said["locked"] and "'fast'" in said["why"]
    monkeypatch.setenv(hold.ASKED, "1410")
    with hold.hold_clocks("GPU-0", "a test") as said:
        assert not said["locked"] and said["why"]


@pytest.mark.torch
def test_the_real_child_times_a_kernel_in_fresh_processes(tmp_path):
    row = suite_of(tmp_path, "softmax", policy={"min_samples": 5, "max_samples": 5, "warmup": 1, "batch": 5})
    row.kernels.update(config_from="default", config=None)
    Suite.objects.update(build_path="")
    row.refresh_from_db()
    job = job_services.job_create(row, builds=["a"], runs=1)
    suite.run(job.pk, "worker-1", module="tests.workers.tune.interpreted_child")
    job.refresh_from_db()
    taken = KernelRun.objects.get(job=job)
    assert (job.status, job.error, taken.rejected) == ("done", None, "") and taken.n == 5 and taken.p50_us > 0
    assert len(taken.source_hash) == 64 and taken.facts["relative_error"] < 2e-3 and set(taken.config) >= {"STEPS", "PER_SM"}
