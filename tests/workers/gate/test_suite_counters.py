"""Counters and timelines of an operator suite's builds: asked for, captured, read, put beside each other.

Real fresh processes, a real queue of rows and real ingest. ncu and torch.profiler are stand-ins that hand over what they recorded
on an H200 of the same program (tests/gpu/counters_on_gpu.py): of build "slow", softmax has a worse configuration, and clamp reads
half of its input a second time.
"""

import json
import os
import re

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.urls import reverse

from profiles.base.refused import Refused
from profiles.capture import selectors as capture_selectors
from profiles.capture.tools import ncu, torch_profiler
from profiles.models import Capture, CaptureTarget, Profile
from profiles.upload.services import profile_ingest
from tests.workers.tune import stand_ins
from tuner.gate.suites import counters as counter_selectors
from tuner.gate.suites import counters as counter_services
from tuner.gate.suites import job_services, run_services
from tuner.gate.verdicts import decide_services
from tuner.models import Gate, GateKernel, KernelRun, Regression, Suite, SuiteCapture, SuiteJob, SuiteKernel
from workers.capture import run as capture
from workers.core import gpu
from workers.fresh import captured
from workers.gate import captures, counters, suite

pytestmark = pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
RECORDED = stand_ins.PROJECT / "tests" / "data" / "h200" / "counters"
CARD = gpu.Gpu(0, "GPU-0", "Imaginary GPU", "9.0", "1.0", 1)
CONFIG = {"STEPS": 3, "PER_SM": 32, "num_warps": 8}
KEY, CLAMP, OTHER = "softmax R=8192 C=4096 fp16", "acme_clamp N=33554432 fp16", "layernorm R=64 C=64 fp16"
INPUT_BYTES = 2 * 2**25              # of softmax and of clamp, each read once: 8192 × 4096 halves
# Says what it was given, then hands over the recorded report of its build.
NCU = """cat "$RIDGEPOINT_KERNELS"; echo; echo "in $TRITON_CACHE_DIR"
case " $* " in *" --set full "*) what=everything;; *) what=few;; esac
gunzip -c {folder}/$RIDGEPOINT_BUILD-$what.ncu-rep.gz > "$report" """
LAUNCHER = """import os, shutil, sys
print(open(os.environ["RIDGEPOINT_KERNELS"]).read())
shutil.copy(f"{folder}/{os.environ['RIDGEPOINT_BUILD']}-timeline.json.gz", sys.argv[sys.argv.index("--out") + 1])
"""


@pytest.fixture(autouse=True)
def host(tmp_path, monkeypatch):
    monkeypatch.setattr(suite, "continue_followers", lambda job_id: None)
    monkeypatch.setattr(settings, "HOME", tmp_path / "home")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(gpu, "gpus", lambda: [CARD])
    monkeypatch.setattr(gpu.tempfile, "gettempdir", lambda: str(tmp_path))
    stand_ins.ncu(tmp_path, NCU.replace("{folder}", str(RECORDED)))
    (tmp_path / "launcher.py").write_text(LAUNCHER.replace("{folder}", str(RECORDED)))
    monkeypatch.setattr(torch_profiler, "LAUNCHER", str(tmp_path / "launcher.py"))
    for build in ("base", "slow"):
        (tmp_path / "builds" / build).mkdir(parents=True)
        (tmp_path / "builds" / build / "speeds.py").write_text(f"HASH = {build[0]!r} * 64")
    monkeypatch.setattr(captures.run, "run", stand_ins.then_ingest(capture.run, profile_ingest))
    can = capture_selectors.Ability(True, "ncu on Imaginary GPU")
    monkeypatch.setattr(capture_selectors, "ability", lambda: {"ncu": can, "torch": can})
    ncu.installed_ncu.cache_clear()
    yield
    ncu.installed_ncu.cache_clear()


@pytest.fixture
def nightly(tmp_path):
    row = Suite.objects.create(name="nightly", device="gpu", build_path=f"{tmp_path}/builds/{{build}}")
    for place, key in enumerate((KEY, CLAMP, OTHER)):
        op, *dims, dtype = key.split()
        shape = {name: int(size) for name, size in (dim.split("=") for dim in dims)}
        SuiteKernel.objects.create(suite=row, key=key, op=op, shape=shape, dtype=dtype, family=op, config_from="given",
                                   config=CONFIG, place=place)
    return row


def ran(job):
    suite.run(job.pk, "worker-1", module="tests.workers.gate.fresh_child")
    job.refresh_from_db()
    return job


def measured(row, *builds, runs=1):
    return ran(job_services.job_create(row, builds=list(builds), runs=runs))


def stored(row, *builds):
    """A run of each kernel of each build, as a worker stored them before."""
    for build in builds:
        for kernel in row.kernels.all():
            run_services.run_record(None, kernel, build, number=0, run=f"{build} 0", us=[10.0, 10.1], config=CONFIG,
                                source_hash=build[0] * 64, gpu=CARD.name, toolkit="cuda 13.0, triton 3.6.0", driver="1.0")


def test_a_gated_metric_of_an_operator_suite_is_counted_for_each_build(nightly):
    """One small report a build, of several kernels: its launches are told apart by the NVTX ranges that they lie in."""
    Suite.objects.update(metrics={"dram_bytes": {"max_increase": 0.1}, "tensor_use_pct": {"max_decrease": 0.1},
                                  "dram__bytes_read.sum": {"max_increase": 0.1}})
    nightly.refresh_from_db()
    job = measured(nightly, "base", "slow")
    assert (job.status, job.error) == ("done", None)
    asked = {row.build: row.capture for row in SuiteCapture.objects.filter(job=job)}
    assert set(asked) == {"base", "slow"} and all(one.tool == "ncu" and one.options["set"] == "none" for one in asked.values())
    assert asked["base"].options["nvtx_include"] == "ridgepoint/" and "LaunchStats" in asked["base"].options["sections"]
    for build, one in asked.items():
        said = json.loads(next(line for line in one.log.splitlines() if line.startswith("{")))
        assert [each["key"] for each in said["kernels"]] == [KEY, CLAMP, OTHER] and said["kind"] == "cold" and said["rounds"] == 3
        assert said["kernels"][0]["config"] == CONFIG and said["kernels"][0]["source_hash"] == build[0] * 64
        assert f"/compiled/suite-{nightly.pk}-GPU-0" in one.log
    facts_of = {(run.build.name, run.kernel.key): run.facts
                for run in KernelRun.objects.filter(job=job).select_related("build", "kernel")}
    for build, key in (("base", KEY), ("slow", KEY), ("base", CLAMP)):
        assert facts_of[build, key]["dram__bytes_read.sum"] == pytest.approx(INPUT_BYTES, rel=0.001)
    again = facts_of["slow", CLAMP]["dram__bytes_read.sum"] / INPUT_BYTES
    assert 1.3 < again < 1.5, "half of it read once more; some of that half is still in L2"
    for build in ("base", "slow"):
        assert facts_of[build, CLAMP]["dram_bytes"] > facts_of[build, CLAMP]["dram__bytes_read.sum"]
        assert facts_of[build, CLAMP]["tensor_use_pct"] == 0
        assert facts_of[build, OTHER]["counters_unknown"] == "ncu did not see a launch of it"
    found = counter_selectors.kernel_counters(SuiteKernel.objects.get(key=CLAMP), "base", "slow")
    traffic = next(each for each in found.beside.numbers if each.name == "DRAM bytes read")
    assert traffic.pct == pytest.approx(100 * (again - 1), abs=0.5) and found.compare, "they stand in the evidence, too"
    assert CaptureTarget.objects.get(name=captured.TARGET).enabled is False


def test_where_ncu_is_missing_each_run_says_so_and_none_is_asked_for(nightly, tmp_path, monkeypatch):
    Suite.objects.update(metrics={"dram_bytes": {"max_increase": 0.1}})
    nightly.refresh_from_db()
    (tmp_path / "ncu").unlink()
    monkeypatch.setattr(ncu, "NCU_PLACES", (str(tmp_path / "nowhere"),))
    monkeypatch.setattr(ncu.shutil, "which", lambda name: None)
    ncu.installed_ncu.cache_clear()
    job = measured(nightly, "base")
    assert job.status == "done" and not Capture.objects.exists()
    assert "ncu is neither on PATH" in KernelRun.objects.first().facts["counters_unknown"]
    cannot = capture_selectors.Ability(False, "The gpu worker on node7 has no Nsight Compute: it is not installed.")
    monkeypatch.setattr(capture_selectors, "ability", lambda: {"ncu": cannot})
    with pytest.raises(Refused, match="node7 has no Nsight Compute"):
        counter_services.request_counters(nightly, [KEY], ["base"])


def test_both_builds_are_captured_and_put_beside_each_other(nightly, alice, bob, client, api, capsys):
    """From the button at a verdict to the numbers on its page, at the regression and in the API."""
    stored(nightly, "base", "slow")
    old, new = (KernelRun.objects.get(build__name=build, kernel__key=KEY) for build in ("base", "slow"))
    gate = Gate.objects.create(suite=nightly, build=new.build, status="done", verdict="SLOWER", gpu="Imaginary GPU")
    regression = Regression.objects.create(suite=nightly, build=new.build, good=old.build, family="softmax", kernels=[KEY],
                                           gpu="Imaginary GPU")
    row = GateKernel.objects.create(gate=gate, kernel=old.kernel, verdict="SLOWER", ratio_p50=1.2, baseline_us=10.0,
                                    candidate_us=12.0, baseline_runs=[old.pk], candidate_runs=[new.pk], reason="slower")
    page, ask = (reverse(name, args=[gate.pk, row.pk]) for name in ("gate-kernel", "gate-kernel-counters"))
    client.force_login(bob)
    assert "needs the role engineer" in client.get(page).content.decode() and client.post(ask).status_code == 403
    client.force_login(alice)
    assert "Capture counters of both builds" in client.get(page).content.decode()
    assert client.post(ask).headers["Location"] == f"{page}#counters"
    waiting = " ".join(client.get(page).content.decode().split())
    job = SuiteJob.objects.get(reason="counters")
    assert f"Job {job.pk} waits for a GPU worker" in waiting and 'id="capture-counters"' not in waiting
    assert client.post(reverse("regression-counters", args=[regression.pk])).status_code == 302
    sent = api(alice).post("/api/suites/nightly/counters/", {"kernels": [KEY], "builds": ["slow", "base"]}, format="json")
    assert sent.status_code == 201 and sent.json()["id"] == job.pk, "asked for three times, captured once"
    assert sent.json()["device"] == "gpu:Imaginary GPU" and sent.json()["progress"]["says"] == "0 of 4 captures"

    assert ran(job).status == "done", job.error
    assert KernelRun.objects.filter(job=job).count() == 0
    rows = list(SuiteCapture.objects.filter(job=job).select_related("capture__profile").order_by("pk"))
    assert [(row.build, row.capture.tool) for row in rows] == [
        ("base", "ncu"), ("slow", "ncu"), ("base", "torch"), ("slow", "torch")]
    assert rows[0].capture.profile.name == f"{KEY}: ncu all kernels" and rows[0].capture.profile.build == "base"
    assert "--set full" in rows[0].capture.log and "--clock-control none" in rows[0].capture.log and KEY in rows[2].capture.log

    told = api(alice).get("/api/suites/nightly/counters/", {"kernel": KEY, "baseline": "base", "build": "slow"}).json()
    numbers = {each["name"]: each for each in told["numbers"]}
    assert numbers["Time under ncu"]["change_pct"] > 0 and numbers["Registers per thread"]["baseline"] == 32
    assert numbers["DRAM bytes read"]["baseline"] == pytest.approx(INPUT_BYTES, rel=0.001)
    assert told["why"]["delta_ns"] == pytest.approx(sum(each["part_ns"] for each in told["why"]["factors"]), rel=1e-6)
    assert told["why"]["sentence"] and told["advice"] and told["job"] is None
    for link in told["links"].values():
        assert client.get(link).status_code == 200
    for each in (page, reverse("regression", args=[regression.pk])):
        said = client.get(each).content.decode()
        assert "Cause: " in said and "Capture again" in said
        assert told["links"]["timelines"] in said
    call_command("suites", "counters", "nightly", "--kernel", KEY, "--build", "base", "--build", "slow")
    printed = capsys.readouterr().out
    assert re.search(r"Time under ncu +3\d\.\d µs +3\d\.\d µs +\+\d\.\d %", printed) and "a warp waits" in printed, printed
    assert "4 of 4 captures" in client.get(reverse("suite", args=[nightly.pk])).content.decode()
    for query, status in (({"kernel": KEY}, 400), ({"kernel": "x", "baseline": "base", "build": "slow"}, 404),
                          ({"kernel": "\0", "baseline": "base", "build": "slow"}, 400)):
        assert api(alice).get("/api/suites/nightly/counters/", query).status_code == status


def test_a_slower_verdict_asks_for_them_where_the_suite_says_so(nightly, alice):
    stored(nightly, "base", "slow")
    old, new = (KernelRun.objects.get(build__name=build, kernel__key=KEY) for build in ("base", "slow"))
    gate = Gate.objects.create(suite=nightly, build=new.build, status="done", verdict="SLOWER", owner=alice)
    GateKernel.objects.create(gate=gate, kernel=old.kernel, verdict="SLOWER", ratio_p50=1.2, baseline_runs=[old.pk],
                              candidate_runs=[new.pk])
    assert decide_services.capture_slower_kernels(gate) is None
    nightly.capture_slower = True
    nightly.save()
    gate.suite.refresh_from_db()
    wanted = decide_services.capture_slower_kernels(gate)
    assert wanted is not None and wanted.kernels == [KEY] and [each["build"] for each in wanted.builds] == ["base", "slow"]
    assert wanted.builds[0]["configs"] == {KEY: CONFIG} and wanted.owner == alice
    Gate.objects.update(verdict="PASS")
    gate.refresh_from_db()
    assert decide_services.capture_slower_kernels(gate) is None


def test_one_number_of_a_launch_that_is_several_gpu_kernels():
    """Three launches, each a product of 30 µs and a reduction of 10 µs: bytes add up, shares are weighted by time."""
    product = {"dram__bytes_read.sum": 90.0, "dram__bytes_write.sum": 10.0, "pipe.pct": 80.0, counters.TIME: 30_000.0}
    reduction = {"dram__bytes_read.sum": 15.0, "dram__bytes_write.sum": 5.0, "pipe.pct": 0.0, counters.TIME: 10_000.0}
    names, make = counters.KNOWN["dram_bytes"]
    assert counters._per_launch([product, reduction] * 3, names, make) == 120.0
    assert counters._per_launch([product, reduction] * 3, ("pipe.pct",), max) == 60.0
    assert counters._per_launch([{counters.TIME: 1.0}], names, make) is None


def test_a_request_that_names_nothing_is_refused(nightly, alice, api):
    for body in ([], {}, {"kernels": "x", "builds": ["base"]}, {"kernels": [KEY], "builds": [{}]}, {"kernels": [KEY], "builds": []},
                 {"kernels": ["\0"], "builds": ["base"]}, {"kernels": [KEY] * 21, "builds": ["base"]},
                 {"kernels": [KEY], "builds": ["nowhere"]}):
        assert api(alice).post("/api/suites/nightly/counters/", body, format="json").status_code == 400, body
    assert not SuiteJob.objects.exists()


def test_what_cannot_be_captured_says_why(nightly, monkeypatch):
    for keys, builds, said in (([KEY], ["base"], "base has no run of softmax"), ([KEY], [], "name 1 to 4 builds"),
                               (["nothing"], ["base"], "no enabled kernel 'nothing'"), ([], ["base"], "name 1 to 20 kernels")):
        with pytest.raises(Refused, match=said):
            counter_services.request_counters(nightly, keys, builds)
    for wrong in (["--kernel", "x", "--build", "base", "--build", "slow"], ["--kernel", KEY, "--build", "base"]):
        with pytest.raises(CommandError):
            call_command("suites", "counters", "nightly", *wrong)
    stored(nightly, "base")
    KernelRun.objects.update(recorded="recorded on NVIDIA H200")
    with pytest.raises(Refused, match="nothing can be launched again"):
        counter_services.request_counters(nightly, [KEY], ["base"])
    Suite.objects.update(kind="uploaded")
    assert "measured elsewhere" in counter_selectors.why_no_capture(SuiteKernel.objects.select_related("suite").first(), ["base"])


def test_a_killed_workers_captures_stay_and_the_rest_follows(nightly, tmp_path, monkeypatch):
    """The first worker is gone after the first capture; what failed says why, and the page shows it."""
    stored(nightly, "base", "slow")
    job = counter_services.request_counters(nightly, [KEY], ["base", "slow"])
    really, made = captures.run.run, []

    def dies(capture_id, worker):
        if made:
            raise KeyboardInterrupt                     # as a signal: nothing is written any more
        made.append(capture_id)
        really(capture_id, worker)

    monkeypatch.setattr(captures.run, "run", dies)
    with pytest.raises(KeyboardInterrupt):
        ran(job)
    assert SuiteCapture.objects.filter(job=job, capture__status="done").count() == 1
    monkeypatch.setattr(captures.run, "run", really)
    stand_ins.ncu(tmp_path, 'echo "==ERROR== ERR_NVGPUCTRPERM"; exit 1')
    SuiteJob.objects.update(heartbeat=None)
    suite.run(job.pk, "worker-2", module="tests.workers.gate.fresh_child")
    job.refresh_from_db()
    assert job.status == "done" and SuiteCapture.objects.filter(job=job).count() == 4
    assert SuiteCapture.objects.get(job=job, build="base", number=-1).capture_id == made[0]
    found = counter_selectors.kernel_counters(SuiteKernel.objects.get(key=KEY), "base", "slow")
    assert found.beside.old is not None and found.beside.new is None
    assert [(shot.build, shot.error["what"]) for shot in found.failed] == [
        ("slow", "the driver does not let this user read performance counters")]
    only = ran(counter_services.request_counters(nightly, [KEY], ["slow"]))
    assert only.status == "failed" and "performance counters" in only.error["what"] and "CAP_SYS_ADMIN" in only.error["hint"]


def test_a_capture_of_another_gpus_runs_waits_for_a_worker_that_has_it(nightly, monkeypatch):
    stored(nightly, "base")
    job = counter_services.request_counters(nightly, [KEY], ["base"])
    row = counters.ensure_capture(job, "base", -1, counters.planned_captures(job)[0][1])
    monkeypatch.setattr(gpu, "gpus", lambda: [gpu.Gpu(0, "GPU-1", "Other GPU", "9.0", "1.0", 1)])
    capture.run(row.capture_id, "worker-1")
    row.capture.refresh_from_db()
    assert (row.capture.status, row.capture.worker, row.capture.attempts) == ("queued", "", 0)
    assert not Profile.objects.exists()
