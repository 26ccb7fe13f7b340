"""A capture from its row to a profile, with processes that stand in for ncu and nvidia-smi where there is no GPU."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from django.conf import settings
from django.core.files.storage import default_storage

from profiles.capture import services
from profiles.capture.tools import ncu
from profiles.ingest import scratch
from profiles.models import Capture, CaptureTarget, Profile
from tests.workers.tune import stand_ins
from workers import jobs
from workers.capture import run
from workers.capture.log import LINES_AT_ONCE, TAIL_CHARS, CaptureLog
from workers.core import gpu

# The list of applications makes the flush after each test cascade: a swapped-out token table of knox stays behind.
pytestmark = pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
GPU_WORKER = {
    "queues": ["gpu"],
    "host": "node7",
    "gpus": [{"index": 0, "name": "NVIDIA H200"}],
    "tools": {"ncu": {"path": "/opt/ncu", "version": "2025.3.1"}, "torch": {"version": "2.11.0"}},
}


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host with one GPU by the words of its tools."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpu.nvml, "devices", list)
    monkeypatch.setattr(gpu.tempfile, "gettempdir", lambda: str(tmp_path))
    stand_ins.nvidia_smi(tmp_path)
    stand_ins.ncu(tmp_path)
    ncu.installed_ncu.cache_clear()
    yield tmp_path
    ncu.installed_ncu.cache_clear()


@pytest.fixture
def told(monkeypatch):
    """What was published, as (topic, event, data)."""
    messages = []
    monkeypatch.setattr(jobs, "publish", lambda *message: messages.append(message))
    return messages


def queued(alice, argv=("sleep", "0"), tool="ncu", **options) -> Capture:
    target = CaptureTarget.objects.create(name="target", argv=list(argv))
    return Capture.objects.create(target=target, tool=tool, options=options, owner=alice, build="4f2c1e", tags=["a"])


def ran(row: Capture) -> Capture:
    run.run(row.pk, "worker-1")
    row.refresh_from_db()
    return row


def test_a_report_becomes_a_profile(alice, host, told, tmp_store):
    row = ran(queued(alice, kernel="matmul"))
    assert (row.status, row.error, row.worker) == ("done", None, "worker-1") and row.finished >= row.started
    profile = row.profile
    assert (profile.name, profile.build, profile.tags, profile.owner) == ("target: ncu matmul", "4f2c1e", ["a"], alice)
    assert profile.status == Profile.Status.UPLOADED and profile.upload_bytes > 10_000
    assert default_storage.exists(profile.upload_key)
    assert "--kernel-name regex:matmul" in profile.notes
    lines = row.log.splitlines()
    assert (
        lines[0].startswith(f"$ {host}/ncu --export ")
        and lines[1] == "ridgepoint: on NVIDIA H200 (GPU 0, driver 580.159.04)"
    )
    assert any("44 passes" in line for line in lines)
    streamed = [
        line for topic, event, data in told if (topic, event) == (f"capture.{row.pk}", "log") for line in data["lines"]
    ]
    assert streamed == lines
    assert [data["status"] for topic, event, data in told if (topic, event) == (f"capture.{row.pk}", "status")] == [
        "running",
        "done",
    ]


@pytest.mark.parametrize(
    ("body", "what", "hint"),
    [
        (
            'echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"; exit 1',
            "performance counters",
            "CAP_SYS_ADMIN",
        ),
        ('echo "==WARNING== No kernels were profiled."', "no launch matched", "regular expression"),
        ('echo "==ERROR== Failed to find metric foo__bar"; exit 1', "metric is not known", "--query-metrics"),
        (
            'echo "==ERROR== Failed to initialize the profiler: LibraryNotLoaded"; exit 1',
            "could not start its profiler",
            "container",
        ),
        ('echo "something new"; exit 9', "the last line was: something new", "log"),
    ],
)
def test_common_failures_are_recognised(alice, host, told, body, what, hint):
    stand_ins.ncu(host, body)
    row = ran(queued(alice))
    assert row.status == "failed" and row.profile is None
    assert what in row.error["what"] and hint in row.error["hint"] and row.error["where"].startswith("ncu, exit status")
    assert body.split('"')[1] in row.log                    # the log is whole, however soon the tool failed


def test_wildcards_are_looked_up_before_the_program_runs(alice, host, told, tmp_store):
    row = ran(queued(alice, kernel="matmul", metrics=["dram__bytes.sum", "sm__inst_*.sum"]))
    assert row.status == "done", row.error
    assert "--metrics dram__bytes.sum,sm__inst_executed.sum,sm__inst_issued.sum" in row.log.splitlines()[0]
    assert "ridgepoint: sm__inst_*.sum is 2 metrics: sm__inst_executed.sum, sm__inst_issued.sum" in row.log
    assert row.facts["metrics"] == {"sm__inst_*.sum": ["sm__inst_executed.sum", "sm__inst_issued.sum"]}


def test_a_wildcard_that_matches_nothing_is_refused(alice, host, told):
    row = ran(queued(alice, metrics=["tex__*"]))
    assert (row.status, row.log, row.error["where"]) == ("failed", "", "Nsight Compute")
    assert row.error["what"] == "tex__* matches none of the 3 metrics of this GPU"


def test_a_section_folder_is_one_that_the_workers_owner_named(alice, host, told, tmp_store, monkeypatch):
    assert "no section folder team" in ran(queued(alice, section_folder="team")).error["what"]
    monkeypatch.setenv("RIDGEPOINT_NCU_SECTIONS", f"team={host}")
    row = Capture.objects.create(target=CaptureTarget.objects.get(), tool="ncu", options={"section_folder": "team"}, owner=alice)
    assert f"--section-folder {host}" in ran(row).log


def test_without_ncu_it_says_where_it_looked(alice, host, told, monkeypatch):
    (host / "ncu").unlink()
    monkeypatch.setattr(ncu, "NCU_PLACES", ("/nowhere/*/ncu",))
    row = ran(queued(alice))
    assert row.status == "failed" and "/nowhere/*/ncu" in row.error["what"] and row.error["where"] == "ncu"


def test_without_a_gpu(alice, host, told):
    stand_ins.nvidia_smi(host, "No devices were found")
    assert ran(queued(alice)).error["what"] == "this worker sees no NVIDIA GPU"


def test_a_program_that_fails_after_its_report_keeps_the_report(alice, host, told, tmp_store):
    stand_ins.ncu(host, stand_ins.PROFILES + "\nexit 3")
    row = ran(queued(alice))
    assert row.status == "done" and "ended with status 3; what it wrote is kept" in row.log


def test_a_stop_ends_the_tool_within_a_second_or_so(alice, host, told):
    stand_ins.ncu(host, "echo started; setsid sleep 81.25 & sleep 81.5")
    row = queued(alice)
    thread = threading.Thread(target=run.run, args=(row.pk, "worker-1"))
    thread.start()
    wait_for(lambda: "started" in Capture.objects.get(pk=row.pk).log)
    asked = time.monotonic()
    assert services.capture_stop(row)
    thread.join(30)
    assert time.monotonic() - asked < 20          # "within a second" on an idle machine; the tool sleeps for over a minute
    row.refresh_from_db()
    assert row.status == "cancelled" and row.profile is None
    assert not subprocess.run(["pgrep", "-f", "-x", "sleep 81.(25|5)"], capture_output=True).stdout
    assert not services.capture_stop(row)


def test_the_time_limit(alice, host, told, monkeypatch):
    stand_ins.ncu(host, "sleep 60")
    monkeypatch.setitem(ncu.NcuOptions.READ, "time_limit_s", int)
    row = ran(queued(alice, time_limit_s=1))
    assert row.status == "failed" and row.error["where"] == "time limit" and "not done within 1 s" in row.error["what"]


def test_a_queued_capture_can_be_stopped_and_is_not_run(alice, host, told):
    row = queued(alice)
    services.capture_stop(row)
    assert ran(row).status == "cancelled" and row.log == ""


def test_a_row_is_run_once(alice, host, told, tmp_store):
    row = ran(queued(alice))
    run.run(row.pk, "worker-2")
    assert Profile.objects.count() == 1


def test_what_a_killed_worker_left_is_taken_up(alice, host, told, tmp_store):
    from datetime import timedelta

    from django.utils import timezone

    row = queued(alice)
    Capture.objects.filter(pk=row.pk).update(status="running", worker="dead", heartbeat=timezone.now())
    assert ran(row).worker == "dead"
    Capture.objects.filter(pk=row.pk).update(heartbeat=timezone.now() - timedelta(seconds=11))
    assert ran(row).status == "done" and row.worker == "worker-1"


def test_a_worker_killed_in_the_middle_leaves_no_process_and_no_folder_for_long(alice, host, told):
    stand_ins.ncu(host, "echo started; setsid sleep 82.25 & sleep 82.5")
    row = queued(alice)
    program = (
        "import django, os, sys; sys.path.insert(0, os.getcwd()); django.setup()\n"
        f"from workers.capture import run; run.run({row.pk}, 'worker-1')"
    )
    from django.db import connection

    database = connection.settings_dict
    url = f"postgresql://{database['USER']}@/{database['NAME']}?host={database['HOST']}&port={database['PORT']}"
    worker = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=stand_ins.PROJECT,
        env={**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "webapp.settings", "TMPDIR": str(host)},
    )
    wait_for(lambda: "started" in Capture.objects.get(pk=row.pk).log)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    wait_for(lambda: not subprocess.run(["pgrep", "-f", "-x", "sleep 82.(25|5)"], capture_output=True).stdout)
    assert len(list(host.glob("ridgepoint-*"))) > 1                     # its folder, beside the lock of the GPU
    with scratch.folder():                                              # as the next capture makes one
        pass
    assert [path.suffix for path in host.glob("ridgepoint-*")] == [".lock"]


def test_a_capture_that_kills_its_worker_again_and_again_fails(alice, host, told):
    row = queued(alice)
    Capture.objects.filter(pk=row.pk).update(status="running", worker="dead", heartbeat=None, attempts=2)
    stand_ins.ncu(host, "echo started; exit 1")
    assert ran(row).attempts == 3 and "started" in row.log               # the third try is one
    Capture.objects.filter(pk=row.pk).update(status="running", worker="dead", heartbeat=None, error=None)
    row = ran(row)
    assert (row.status, row.profile, row.log) == ("failed", None, "")       # the fourth is none: nothing was started
    assert row.error["where"] == "worker" and row.error["what"] == "3 workers died over this capture"
    assert "logs" in row.error["hint"] and row.finished and row.heartbeat is None


def test_targets_do_not_see_the_products_secrets(alice, host, told, tmp_store, tmp_path):
    stand_ins.ncu(host, f"env > {tmp_path}/seen\nexit 1")
    row = queued(alice)
    row.target.env = {"MINE": "1"}
    row.target.save()
    ran(row)
    seen = dict(line.split("=", 1) for line in (tmp_path / "seen").read_text().splitlines() if "=" in line)
    assert seen["MINE"] == "1" and seen["CUDA_VISIBLE_DEVICES"].startswith("GPU-1111")
    assert not {"DATABASE_URL", "REDIS_URL", "RIDGEPOINT_SECRET_KEY"} & set(seen)


@pytest.mark.torch
@pytest.mark.deep_only          # test_steps_that_a_program_counts_itself; optimizers: test_every_rank_of_torchrun_is_in_one_profile
def test_a_torch_trace_of_a_real_program(alice, host, told, tmp_store):
    pytest.importorskip("torch")
    row = ran(queued(alice, ["{python}", "-m", "workers.targets.layer", "--steps", "9"], tool="torch", active=2))
    assert row.status == "done", row.error
    assert row.profile.file_name.endswith("trace.json.gz") and row.profile.name == "target: torch.profiler"
    assert "ridgepoint: trace of 2 steps written" in row.log and "step 8" not in row.log


@pytest.mark.torch
def test_a_program_without_steps_is_recorded_whole(alice, host, told, tmp_store, tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "plain.py").write_text(
        "import sys, torch\nprint('asked', sys.argv[1:])\n(torch.ones(9, 9) @ torch.ones(9, 9)).sum()\n"
    )
    row = ran(queued(alice, ["{python}", str(tmp_path / "plain.py"), "--out", "x"], tool="torch"))
    assert row.status == "done", row.error
    assert row.log.count("asked ['--out', 'x']") == 2 and "recorded as a whole" in row.log


@pytest.mark.torch
def test_steps_that_a_program_counts_itself(alice, host, told, tmp_store, tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "serve.py").write_text(
        "import builtins, torch\nstep = getattr(builtins, 'ridgepoint_step', lambda: None)\n"
        "for i in range(3):\n    torch.ones(9).sum()\n    step()\n"
    )
    row = ran(queued(alice, ["{python}", str(tmp_path / "serve.py")], tool="torch", wait=0, warmup=0, active=2))
    assert row.status == "done" and "trace of 2 steps" in row.log
    assert row.profile.file_name.endswith("trace.json.gz") and row.profile.name == "target: torch.profiler"
    layer = CaptureTarget.objects.create(name="layer", argv=["{python}", "-m", "workers.targets.layer", "--steps", "4"])
    late = ran(Capture.objects.create(target=layer, tool="torch", options={"wait": 9}, owner=alice))
    assert late.error["what"] == "the program ended before recording began" and "step 3" in late.log


def test_the_log_is_bounded_and_clean(alice, told):
    row = queued(alice)
    Capture.objects.filter(pk=row.pk).update(status="running", worker="w")
    log = CaptureLog(row.pk, "w")
    log.feed(b"caf\xc3")
    log.feed(b"\xa9\r\n10%\r50%\r100%\nnul\x00 \x1b[31mred\n" + b"y" * 10_000)
    log.close()
    assert log.flush(force=True)
    lines = [line for _, _, data in told for line in data["lines"]]
    assert lines[:3] == ["café", "100%", "nul� red"] and len(lines[3]) < 2100
    log.feed(b"line\n" * 50_000)
    assert log.flush(force=True)
    assert len(told[-1][2]["lines"]) == LINES_AT_ONCE + 1
    assert len(Capture.objects.get(pk=row.pk).log) == TAIL_CHARS
    Capture.objects.filter(pk=row.pk).update(status="cancelled")
    assert not log.flush(force=True)


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)
