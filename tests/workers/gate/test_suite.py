"""A suite job on a worker: recorded runs in place of a GPU, rows, interleaving, resuming, stopping, and what is refused."""

import json
import statistics
import threading
import time

import pytest
from django.conf import settings

from tests import recordings
from tuner.gate.suites import job_services
from tuner.models import KernelRun, Suite, SuiteJob, SuiteKernel
from tuner.tuning.measure import fresh
from tuner.tuning.measure.replay import RecordedError, RecordedRuns, RunDraw, load_recorded
from workers import tasks
from workers.core.periodic import Stop
from workers.gate import suite

pytestmark = pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
SOFTMAX = {"STEPS": 3, "PER_SM": 32, "num_warps": 8}
SLOWER = {"STEPS": 3, "PER_SM": 8, "num_warps": 8}
LAYERNORM = {"BLOCK": 1024, "num_warps": 4, "num_stages": 2}


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """What follows a job is others' to test."""
    monkeypatch.setattr(suite, "continue_followers", lambda job_id: None)


@pytest.fixture
def nightly():
    row = Suite.objects.create(name="nightly", device="replay:timing_runs", runs=3)
    for place, (op, config) in enumerate((("softmax", SOFTMAX), ("layernorm", LAYERNORM))):
        SuiteKernel.objects.create(suite=row, key=f"{op} R=8192 C=4096 fp16", op=op, shape={"R": 8192, "C": 4096}, dtype="fp16",
                                   family=op, config_from="given", config=config, place=place)
    return row


def rows(job):
    return list(KernelRun.objects.filter(job=job).select_related("build", "kernel").order_by("pk"))


def test_recorded_runs_become_fresh_runs_in_turn(nightly):
    key = "softmax R=8192 C=4096 fp16"
    job = job_services.job_create(nightly, builds=["a", {"build": "b", "configs": {key: SLOWER}}], runs=3)
    suite.run(job.pk, "worker-1", pace=0)
    job.refresh_from_db()
    assert (job.status, job.error, job.recorded) == ("done", None, "recorded on NVIDIA H200, torch 2.11.0, Triton 3.6.0")
    assert job.environment["gpu"] == "NVIDIA H200" and job.environment["driver"] == "580.159"
    found = rows(job)
    assert [(row.build.name, row.number) for row in found[::2]] == [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2), ("b", 2)]
    truth = recordings.timing_runs()
    for row in found:
        line = truth[row.facts["recorded_run"], row.kernel.op, recordings.key(row.config)]
        assert row.us == line["us"] and row.n == 100 and row.p50_us == pytest.approx(statistics.median(line["us"]))
        assert row.sm_clock_mhz == float(line["clocks"].split(",")[0])
        assert (row.gpu, row.toolkit, row.driver) == ("NVIDIA H200", "cuda 13.0, triton 3.6.0", "580.159")
        assert row.recorded == job.recorded and row.facts["config_from"] == ("build" if row.config == SLOWER else "given")
    drawn = [row.facts["recorded_run"] for row in found[::2]]
    assert len(set(drawn)) == 6, "no recorded process serves twice while others have not served"
    pairs = zip(found[::2], found[1::2], strict=True)
    assert all(a.facts["recorded_run"] == b.facts["recorded_run"] and a.run == b.run for a, b in pairs)
    softmax = {row.build.name: row.p50_us for row in found if row.kernel.op == "softmax"}
    assert softmax["b"] > 1.04 * softmax["a"]


def test_another_job_of_a_build_has_other_processes_until_all_have_served(nightly):
    first = job_services.job_create(nightly, builds=["a"], runs=14)
    second = job_services.job_create(nightly, builds=["a"], runs=12)
    for job in (first, second):
        suite.run(job.pk, "worker-1", pace=0)
    taken = [row.facts["recorded_run"] for job in (first, second) for row in rows(job)[::2] if not row.rejected]
    assert sorted(taken) == list(range(1, 25))
    spent = [row for row in rows(second) if row.rejected]
    assert len(spent) == 4 and "all 24 recorded processes were served for build a" in spent[0].rejected


def test_what_is_not_recorded_is_rejected_and_says_what_is(nightly):
    nightly.kernels.update(config={"STEPS": 1, "PER_SM": 1, "num_warps": 1})
    SuiteKernel.objects.create(suite=nightly, key="rmsnorm", op="rmsnorm", shape={"R": 1, "C": 8}, dtype="bf16", family="rmsnorm")
    job = job_services.job_create(nightly, builds=["a"], runs=1)
    suite.run(job.pk, "worker-1", pace=0)
    job.refresh_from_db()
    assert job.status == "done"
    why = {row.kernel.op: row.rejected for row in rows(job)}
    assert '"PER_SM":32' in why["softmax"] and "layernorm R=8192" in why["rmsnorm"].replace("C=4096 R=8192", "R=8192")
    assert all(row.p50_us is None and row.us == [] for row in rows(job))


def test_a_killed_workers_runs_are_not_measured_again(nightly):
    job = job_services.job_create(nightly, builds=["a", "b"], runs=2)
    claimed = job_services.job_claim(job.pk, "worker-1")
    with suite._runner(claimed, "worker-1", Stop(), 0, "") as (runner, about):      # as run() does, until it dies in the third run
        turns = job_services.job_turns_left(claimed)
        for turn in turns[:3]:
            for kernel, taken in list(runner.run(turn, None))[:1 if turn is turns[2] else 2]:
                suite.Measuring(claimed, "worker-1", runner, about)._record(turn, kernel, taken)
    before = {row.pk: row.us for row in rows(job)}
    assert len(before) == 5
    SuiteJob.objects.filter(pk=job.pk).update(heartbeat=None)
    suite.run(job.pk, "worker-2", pace=0)
    job.refresh_from_db()
    after = rows(job)
    assert job.status == "done" and len(after) == 8 and {row.pk: row.us for row in after if row.pk in before} == before
    halves = [row for row in after if (row.build.name, row.number) == ("b", 1)]
    assert len({row.facts["recorded_run"] for row in halves}) == 1 and len({row.run for row in halves}) == 2


def test_stop_is_seen_within_a_second(nightly):
    job = job_services.job_create(nightly, builds=["a"], runs=20)
    worker = threading.Thread(target=suite.run, args=(job.pk, "worker-1"), kwargs={"pace": 20.0})
    worker.start()
    while not KernelRun.objects.filter(job=job).exists():
        time.sleep(0.01)
    assert job_services.job_stop(job)
    began = time.monotonic()
    worker.join(timeout=30)
    assert time.monotonic() - began < 20          # at once when idle; the job would go on for minutes
    job.refresh_from_db()
    assert job.status == "stopped" and 0 < KernelRun.objects.filter(job=job).count() < 40


def test_an_unknown_recording_fails_the_job_with_what_there_is(nightly):
    job = job_services.job_create(nightly, builds=["a"], runs=1)
    SuiteJob.objects.filter(pk=job.pk).update(device="replay:none")
    suite.run(job.pk, "worker-1", pace=0)
    job.refresh_from_db()
    assert job.status == "failed" and "timing_runs" in job.error["what"]


def test_a_draw_serves_the_least_used_first_and_is_the_seeds():
    runs = list(range(1, 25))
    one, other = (RunDraw(runs, 7, {"a": [1, 2, 3]}) for _ in range(2))
    first = [one.next("b") for _ in range(24)]
    assert first == [other.next("b") for _ in range(24)] and set(first[-3:]) == {1, 2, 3} and one.next("b") is None
    assert [RunDraw(runs, 8, {}).next("b") for _ in range(1)] != [] and sorted(first) == runs


def test_an_error_that_nobody_expected_ends_the_job_and_its_gate_goes_on(nightly, monkeypatch):
    told = []
    monkeypatch.setattr(suite, "continue_followers", told.append)
    monkeypatch.setattr(suite, "load_recorded", lambda stem: 1 / 0)
    job = job_services.job_create(nightly, builds=["a"], runs=1)
    tasks.run_suite(job.pk)
    job.refresh_from_db()
    assert (job.status, job.heartbeat) == ("failed", None) and "ZeroDivisionError" in job.error["what"] and told == [job.pk]


def test_a_suite_is_sampled_as_its_policy_says_and_no_other_way():
    assert fresh.make_policy({"max_ms": 100.0}) == {**fresh.POLICY, "max_ms": 100.0}
    assert fresh.policy_text(fresh.make_policy({})) == "cold, 100 samples after 50"
    for wrong in ({"lead_ms": -1.0}, {"lead_ms": 1e9}, {"samples": 3}, {"batch": True}, {"kind": "hot"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            fresh.make_policy(wrong)


def test_a_run_is_written_as_the_line_that_is_read():
    wanted = fresh.KernelRequest("k", "softmax", {"R": 8192, "C": 4096}, "fp16", SOFTMAX)
    clocks = {name: {"median": value} for name, value in (("sm_clock_mhz", 1980), ("memory_clock_mhz", 3201),
                                                         ("temperature_c", 35), ("power_w", 205))}
    taken = fresh.KernelSamples("k", [38.5, 38.25], config=SOFTMAX, session={"gpu": "NVIDIA H200", "cuda": "13.0", "driver": "1"},
                                facts={"registers": 32, "spills": 0, "smem_bytes": 1024, "clocks": clocks})
    line = fresh.recorded_line(3, wanted, taken)
    assert line["clocks"] == "1980, 3201, 35, 205" and line["sm_clock_mhz"] == 1980
    died = fresh.recorded_line(4, wanted, fresh.KernelSamples("k", rejected="died"))
    held = RecordedRuns("a-file", iter([json.loads(json.dumps(line)), died]))
    assert (held.gpu, held.driver, held.runs) == ("NVIDIA H200", "1", [3])
    one = held.look_up("softmax", wanted.shape, "fp16", SOFTMAX)[3]
    assert one.us == (38.5, 38.25) and one.sm_clock_mhz == 1980 and one.facts["registers"] == 32
    for broken in ({"us": [0.0]}, {"us": [True]}, {"us": []}, {"run": "1"}, {"shape": None}):
        with pytest.raises(RecordedError, match="line 1"):
            RecordedRuns("a-file", iter([{**line, **broken}]))


def test_recorded_runs_know_what_they_hold():
    for small in (load_recorded("timing_runs_small"), load_recorded("timing_runs_lead")):
        assert len(small.kernels()) == 8 and small.gpu == "NVIDIA H200" and "NVIDIA H200, torch 2.11" in small.label
    held = load_recorded("timing_runs")
    assert [(op, dtype, len(configs)) for op, _, dtype, configs in held.kernels()] == [
        ("matmul", "bf16", 4), ("softmax", "fp16", 5), ("layernorm", "fp16", 4)]
    there = held.look_up("matmul", {"N": 4096, "K": 4096, "M": 4096}, "bf16", {
        "BM": 128, "BN": 256, "BK": 64, "GM": 8, "num_warps": 8, "num_stages": 3,
        "KERNEL": "tiles", "SPLIT_K": 1, "STORE": "direct"})
    assert there is not None and len(there) == 24, "a configuration with newer parameters at their old values is the recorded one"
    assert held.look_up("matmul", {"N": 4096, "K": 4096, "M": 4096}, "fp16", {"BM": 128}) is None
    with pytest.raises(RecordedError, match="timing_runs"):
        load_recorded("../timing_runs")
