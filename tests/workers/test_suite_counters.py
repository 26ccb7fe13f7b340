"""Counters and timelines of an operator suite's builds: asked for, captured, read, put beside each other.

Real fresh processes, a real queue of rows and real ingest; ncu and torch.profiler are stand-ins that hand over what was recorded:
an H200's counter reports of two builds whose softmax really differs (tests/data/h200/buildA, buildB), and a trace.
"""

import csv
import gzip
import json
import os
import re

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.urls import reverse

from profiles.capture import command
from profiles.capture import selectors as capture_selectors
from profiles.ingest import ncu_report
from profiles.models import Capture, CaptureTarget, Profile
from profiles.services import profile_ingest
from tests.workers import stand_ins
from tuner.gates import counter_services as gate_counters
from tuner.models import Gate, GateKernel, KernelRun, Regression, Suite, SuiteCapture, SuiteJob, SuiteKernel
from tuner.suites import counter_selectors, counter_services, services
from workers import capture, facts, gpu, suite, suite_captures, suite_counters, suite_kernels

pytestmark = pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
H200 = stand_ins.PROJECT / "tests" / "data" / "h200"
TRACE = stand_ins.PROJECT / "tests" / "data" / "corpus" / "kineto" / "hta_triton_example_a100.json.gz"
CARD = gpu.Gpu(0, "GPU-0", "Imaginary GPU", "9.0", "1.0", 1)
CONFIG = {"STEPS": 3, "PER_SM": 32, "num_warps": 8}
KEY, GPU_KERNEL = "softmax R=64 C=64 fp16", "softmax_row"
OTHER = "layernorm R=64 C=64 fp16"
# Says what it was given, then hands over the recorded report of its build.
SCALE = {"Mbyte": 1e6, "Kbyte": 1e3, "byte": 1.0, "us": 1e3, "ns": 1.0}
NCU = """cat "$RIDGEPOINT_KERNELS"; echo; echo "in $TRITON_CACHE_DIR"
gunzip -c {folder}/build$(echo $RIDGEPOINT_BUILD | tr ab AB).ncu-rep.gz > "$report" """
LAUNCHER = """import os, shutil, sys
print(open(os.environ["RIDGEPOINT_KERNELS"]).read())
shutil.copy({trace!r}, sys.argv[sys.argv.index("--out") + 1])
"""


@pytest.fixture(autouse=True)
def host(tmp_path, monkeypatch):
    monkeypatch.setattr(suite, "after", lambda job_id: None)
    monkeypatch.setattr(settings, "HOME", tmp_path / "home")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(gpu, "gpus", lambda: [CARD])
    monkeypatch.setattr(gpu.tempfile, "gettempdir", lambda: str(tmp_path))
    stand_ins.ncu(tmp_path, NCU.replace("{folder}", str(H200)))
    (tmp_path / "launcher.py").write_text(LAUNCHER.format(trace=str(TRACE)))
    monkeypatch.setattr(command, "LAUNCHER", str(tmp_path / "launcher.py"))
    for build in ("a", "b"):
        (tmp_path / "builds" / build).mkdir(parents=True)
        (tmp_path / "builds" / build / "speeds.py").write_text(f"HASH = {build!r} * 64")
    run, take, read = capture.run, ncu_report._take, ncu_report._read

    def then_ingest(capture_id, worker):
        run(capture_id, worker)
        made = Capture.objects.get(pk=capture_id).profile_id
        if made is not None:
            profile_ingest(made, "ingest-1")

    def with_ranges(document, report, inside):
        """The recorded reports hold all that a program launched, without NVTX: the marks of this one, as ncu keeps them."""
        if document.get("name") == GPU_KERNEL:
            document["metrics"]["nvtx__ranges"] = f"ridgepoint | {KEY}"
            take(document, report, inside)

    monkeypatch.setattr(suite_captures.capture, "run", then_ingest)
    monkeypatch.setattr(ncu_report, "_take", with_ranges)
    # Without what is inside the launches, which takes seconds and is looked at nowhere here.
    monkeypatch.setattr(ncu_report, "_read", lambda path, container, source, plain=False: read(path, container, source, plain=True))
    can = capture_selectors.Ability(True, "ncu on Imaginary GPU")
    monkeypatch.setattr(capture_selectors, "ability", lambda: {"ncu": can, "torch": can})
    facts.ncu.cache_clear()
    yield
    facts.ncu.cache_clear()


@pytest.fixture
def nightly(tmp_path):
    row = Suite.objects.create(name="nightly", device="gpu", build_path=f"{tmp_path}/builds/{{build}}")
    for place, key in enumerate((KEY, OTHER)):
        SuiteKernel.objects.create(suite=row, key=key, op=key.split()[0], shape={"R": 64, "C": 64}, dtype="fp16",
                                   family=key.split()[0], config_from="given", config=CONFIG, place=place)
    return row


def ran(job):
    suite.run(job.pk, "worker-1", module="tests.workers.fresh_child")
    job.refresh_from_db()
    return job


def measured(row, *builds, runs=1):
    return ran(services.job_create(row, builds=list(builds), runs=runs))


def recorded(build, metrics):
    """Sums of these metrics over the launches of softmax, as ncu itself printed them, in B and ns; and the launches' number."""
    with gzip.open(H200 / f"build{build.upper()}_raw.csv.gz", "rt") as file:
        units, *rows = csv.DictReader(file)
    rows = [row for row in rows if row["Kernel Name"] == GPU_KERNEL]
    return sum(float(row[name].replace(",", "")) * SCALE[units[name]] for row in rows for name in metrics), len(rows)


def test_a_gated_metric_of_an_operator_suite_is_counted_for_each_build(nightly):
    Suite.objects.update(metrics={"dram_bytes": {"max_increase": 0.1}, "tensor_use_pct": {"max_decrease": 0.1}})
    nightly.refresh_from_db()
    job = measured(nightly, "a", "b", runs=2)
    assert (job.status, job.error) == ("done", None)
    asked = {row.build: row.capture for row in SuiteCapture.objects.filter(job=job)}
    assert set(asked) == {"a", "b"} and all(one.tool == "ncu" and one.options["set"] == "none" for one in asked.values())
    assert asked["a"].options["nvtx_include"] == "ridgepoint/" and "LaunchStats" in asked["a"].options["sections"]
    for build, one in asked.items():
        said = json.loads(next(line for line in one.log.splitlines() if line.startswith("{")))
        assert [each["key"] for each in said["kernels"]] == [KEY, OTHER] and said["kind"] == "cold" and said["rounds"] == 3
        assert said["kernels"][0]["config"] == CONFIG and said["kernels"][0]["source_hash"] == build * 64
        assert f"/compiled/suite-{nightly.pk}-GPU-0" in one.log
        total, launches = recorded(build, ("dram__bytes_read.sum", "dram__bytes_write.sum"))
        assert launches == 3
        for run in KernelRun.objects.filter(job=job, build__name=build, kernel__key=KEY):
            assert run.facts["dram_bytes"] == pytest.approx(total / launches, rel=1e-6)
            assert 0 <= run.facts["tensor_use_pct"] < 1, "a softmax has next to nothing for tensor cores"
        other = KernelRun.objects.filter(job=job, build__name=build, kernel__key=OTHER).first()
        assert other.facts["counters_unknown"] == "ncu did not see a launch of it"
    assert CaptureTarget.objects.get(name=suite_kernels.TARGET).enabled is False


def test_where_ncu_is_missing_each_run_says_so_and_none_is_asked_for(nightly, tmp_path, monkeypatch):
    Suite.objects.update(metrics={"dram_bytes": {"max_increase": 0.1}})
    nightly.refresh_from_db()
    (tmp_path / "ncu").unlink()
    monkeypatch.setattr(facts, "NCU_PLACES", (str(tmp_path / "nowhere"),))
    monkeypatch.setattr(facts.shutil, "which", lambda name: None)
    facts.ncu.cache_clear()
    job = measured(nightly, "a")
    assert job.status == "done" and not Capture.objects.exists()
    assert "ncu is neither on PATH" in KernelRun.objects.first().facts["counters_unknown"]
    cannot = capture_selectors.Ability(False, "The gpu worker on node7 has no Nsight Compute: it is not installed.")
    monkeypatch.setattr(capture_selectors, "ability", lambda: {"ncu": cannot})
    with pytest.raises(services.SuiteError, match="node7 has no Nsight Compute"):
        counter_services.counters_ask(nightly, [KEY], ["a"])


def test_both_builds_are_captured_and_put_beside_each_other(nightly, alice, bob, client, api, capsys):
    """From the button at a verdict to the numbers on its page, at the regression and in the API."""
    job = measured(nightly, "a", "b")
    old, new = (KernelRun.objects.get(job=job, build__name=build, kernel__key=KEY) for build in ("a", "b"))
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
    waiting = client.get(page).content.decode()
    job = SuiteJob.objects.get(reason="counters")
    assert f"Job {job.pk} waits for a GPU worker" in waiting and 'id="capture-counters"' not in waiting
    assert client.post(reverse("regression-counters", args=[regression.pk])).status_code == 302
    sent = api(alice).post("/api/suites/nightly/counters/", {"kernels": [KEY], "builds": ["b", "a"]}, format="json")
    assert sent.status_code == 201 and sent.json()["id"] == job.pk, "asked for three times, captured once"
    assert sent.json()["device"] == "gpu:Imaginary GPU" and sent.json()["progress"]["says"] == "0 of 4 captures"

    assert ran(job).status == "done", job.error
    assert KernelRun.objects.filter(job=job).count() == 0
    rows = list(SuiteCapture.objects.filter(job=job).select_related("capture__profile").order_by("pk"))
    assert [(row.build, row.capture.tool) for row in rows] == [("a", "ncu"), ("b", "ncu"), ("a", "torch"), ("b", "torch")]
    assert rows[0].capture.profile.name == f"{KEY}: ncu all kernels" and rows[0].capture.profile.build == "a"
    assert "--set full" in rows[0].capture.log and "--clock-control none" in rows[0].capture.log and KEY in rows[2].capture.log

    told = api(alice).get("/api/suites/nightly/counters/", {"kernel": KEY, "baseline": "a", "build": "b"}).json()
    numbers = {each["name"]: each for each in told["numbers"]}
    for build, side in (("a", "baseline"), ("b", "build")):
        total, launches = recorded(build, ("gpu__time_duration.sum",))
        assert numbers["Time under ncu"][side] == pytest.approx(total / launches, rel=0.02)
    assert numbers["Time under ncu"]["change_pct"] > 150 and numbers["Achieved occupancy"]["change_pct"] < -50
    assert "warps in flight" in told["why"]["sentence"] and told["advice"] and told["job"] is None
    for link in told["links"].values():
        assert client.get(link).status_code == 200
    for each in (page, reverse("regression", args=[regression.pk])):
        said = client.get(each).content.decode()
        assert "Why the time differs, by counters:" in said and "warps in flight" in said and "Capture again" in said
        assert told["links"]["timelines"] in said
    call_command("suites", "counters", "nightly", "--kernel", KEY, "--build", "a", "--build", "b")
    printed = capsys.readouterr().out
    assert re.search(r"Time under ncu +31\.9 µs +8\d\.\d µs +\+1\d\d\.\d %", printed) and "warps in flight" in printed, printed
    assert "4 of 4 captures" in client.get(reverse("suite", args=[nightly.pk])).content.decode()
    for query, status in (({"kernel": KEY}, 400), ({"kernel": "x", "baseline": "a", "build": "b"}, 404),
                          ({"kernel": "\0", "baseline": "a", "build": "b"}, 400)):
        assert api(alice).get("/api/suites/nightly/counters/", query).status_code == status


def test_a_slower_verdict_asks_for_them_where_the_suite_says_so(nightly, alice):
    job = measured(nightly, "a", "b")
    old, new = (KernelRun.objects.get(job=job, build__name=build, kernel__key=KEY) for build in ("a", "b"))
    gate = Gate.objects.create(suite=nightly, build=new.build, status="done", verdict="SLOWER", owner=alice)
    GateKernel.objects.create(gate=gate, kernel=old.kernel, verdict="SLOWER", ratio_p50=1.2, baseline_runs=[old.pk],
                              candidate_runs=[new.pk])
    assert gate_counters.counters_wanted(gate) is None
    nightly.capture_slower = True
    nightly.save()
    gate.suite.refresh_from_db()
    wanted = gate_counters.counters_wanted(gate)
    assert wanted is not None and wanted.kernels == [KEY] and [each["build"] for each in wanted.builds] == ["a", "b"]
    assert wanted.builds[0]["configs"] == {KEY: CONFIG} and wanted.owner == alice
    Gate.objects.update(verdict="PASS")
    gate.refresh_from_db()
    assert gate_counters.counters_wanted(gate) is None


def test_what_cannot_be_captured_says_why(nightly, monkeypatch):
    for keys, builds, said in (([KEY], ["a"], "a has no run of softmax"), (["nothing"], ["a"], "no enabled kernel 'nothing'"),
                               ([KEY], [], "name 1 to 4 builds"), ([], ["a"], "name 1 to 20 kernels")):
        with pytest.raises(services.SuiteError, match=said):
            counter_services.counters_ask(nightly, keys, builds)
    for wrong in (["--kernel", "x", "--build", "a", "--build", "b"], ["--kernel", KEY, "--build", "a"]):
        with pytest.raises(CommandError):
            call_command("suites", "counters", "nightly", *wrong)
    measured(nightly, "a")
    KernelRun.objects.update(recorded="recorded on NVIDIA H200")
    with pytest.raises(services.SuiteError, match="nothing can be launched again"):
        counter_services.counters_ask(nightly, [KEY], ["a"])
    Suite.objects.update(kind="uploaded")
    assert "measured elsewhere" in counter_selectors.why_not(SuiteKernel.objects.select_related("suite").first(), ["a"])


def test_a_killed_workers_captures_stay_and_the_rest_follows(nightly, tmp_path, monkeypatch):
    """The first worker is gone after the first capture; what failed says why, and the page shows it."""
    measured(nightly, "a", "b")
    job = counter_services.counters_ask(nightly, [KEY], ["a", "b"])
    really, made = suite_captures.capture.run, []

    def dies(capture_id, worker):
        if made:
            raise KeyboardInterrupt                     # as a signal: nothing is written any more
        made.append(capture_id)
        really(capture_id, worker)

    monkeypatch.setattr(suite_captures.capture, "run", dies)
    with pytest.raises(KeyboardInterrupt):
        ran(job)
    assert SuiteCapture.objects.filter(job=job, capture__status="done").count() == 1
    monkeypatch.setattr(suite_captures.capture, "run", really)
    stand_ins.ncu(tmp_path, 'echo "==ERROR== ERR_NVGPUCTRPERM"; exit 1')
    SuiteJob.objects.update(heartbeat=None)
    suite.run(job.pk, "worker-2", module="tests.workers.fresh_child")
    job.refresh_from_db()
    assert job.status == "done" and SuiteCapture.objects.filter(job=job).count() == 4
    assert SuiteCapture.objects.get(job=job, build="a", number=-1).capture_id == made[0]
    found = counter_selectors.counters_of(SuiteKernel.objects.get(key=KEY), "a", "b")
    assert found.beside.old is not None and found.beside.new is None
    assert [(shot.build, shot.error["what"]) for shot in found.failed] == [
        ("b", "the driver does not let this user read performance counters")]
    only = ran(counter_services.counters_ask(nightly, [KEY], ["b"]))
    assert only.status == "failed" and "performance counters" in only.error["what"] and "CAP_SYS_ADMIN" in only.error["hint"]


def test_a_capture_of_another_gpus_runs_waits_for_a_worker_that_has_it(nightly, monkeypatch):
    measured(nightly, "a")
    job = counter_services.counters_ask(nightly, [KEY], ["a"])
    row = suite_counters._asked(job, "a", -1, suite_counters.orders(job)[0][1])
    monkeypatch.setattr(gpu, "gpus", lambda: [gpu.Gpu(0, "GPU-1", "Other GPU", "9.0", "1.0", 1)])
    capture.run(row.capture_id, "worker-1")
    row.capture.refresh_from_db()
    assert (row.capture.status, row.capture.worker, row.capture.attempts) == ("queued", "", 0)
    assert not Profile.objects.exists()
