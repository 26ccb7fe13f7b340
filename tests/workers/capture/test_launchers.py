"""Real launchers: mpirun of Open MPI and MPICH and srun start two ranks, which become one profile; none outlives a stop."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from datetime import timedelta

import psutil
import pytest
from django.conf import settings

from profiles.capture import selectors, services
from profiles.capture.tools.tool import program_help
from profiles.models import Capture, CaptureTarget, Profile
from profiles.upload.services import profile_ingest
from tests.workers.capture import slurm_node
from tests.workers.capture.test_capture import wait_for
from tests.workers.capture.test_ranks import two_gpus  # noqa: F401 - a fixture
from workers import leases
from workers.capture import run

pytestmark = [pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS), pytest.mark.torch]
MARK = "RIDGEPOINT_TEST_MARK"
# each rank leaves a process in a session of its own, as a data loader's daemon would
TRAIN = """
import os, subprocess, sys, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
subprocess.Popen(["sleep", "3600"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
weights = torch.nn.Parameter(torch.ones(64, 64))
optimizer = torch.optim.SGD([weights], lr=0.1)
steps = int(sys.argv[1])
for step in range(steps):
    (weights @ weights).sum().backward()
    dist.all_reduce(weights.grad)
    optimizer.step()
    optimizer.zero_grad()
    if step == 4:
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "CUDA_VISIBLE_DEVICES")
        print("up", os.getpid(), *(os.environ[name] for name in names), flush=True)
    if steps > 100:
        time.sleep(0.05)
print("ended", rank, flush=True)
dist.destroy_process_group()
"""
GPUS = "GPU-11111111-2222-3333-4444-555555555555,GPU-21111111-2222-3333-4444-555555555555"


def mpirun_of(kind):
    """Return an mpirun of Open MPI or MPICH; None where there is none."""
    words = {"openmpi": r"Open MPI|OpenRTE", "mpich": "HYDRA"}
    for name in ("mpirun", f"mpirun.{kind}", "mpiexec.hydra"):
        path = shutil.which(name)
        if path and re.search(words[kind], program_help([path, "--version"])):
            return path
    return None


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    try:
        with slurm_node.running(tmp_path_factory.mktemp("slurm")) as environ:
            yield environ
    except slurm_node.NoSlurm as error:
        pytest.skip(str(error))


@pytest.fixture(params=["openmpi", "mpich", "srun"])
def started(request, two_gpus, monkeypatch):  # noqa: F811
    """Give (launcher, its kind) after which nothing that carries the mark is left."""
    pytest.importorskip("torch")
    (two_gpus / "train.py").write_text(TRAIN)
    monkeypatch.setattr(leases, "STALE_AFTER", timedelta(minutes=5))        # no process here keeps the heartbeat
    environ = {}
    if request.param == "srun":
        environ = request.getfixturevalue("slurm")
        monkeypatch.setenv("SLURM_CONF", environ["SLURM_CONF"])
    else:
        path = mpirun_of(request.param)
        if path is None:
            pytest.skip(f"no mpirun of {request.param} is installed here (Debian: apt-get install {request.param}-bin or mpich)")
        if os.path.basename(path) != "mpirun":
            (two_gpus / "mpirun").symlink_to(path)
    mark = uuid.uuid4().hex
    yield request.param, mark
    wait_for(lambda: not marked(mark))
    if request.param == "srun":
        wait_for(lambda: not slurm_node.ask(environ, "squeue", "--noheader"))
        wait_for(lambda: "slurmstepd" not in {each.info["name"] for each in psutil.process_iter(["name", "status"])
                                              if each.info["status"] != psutil.STATUS_ZOMBIE})


def marked(mark):
    """Return the processes that have the target's variable: the launcher, its daemons, ranks and all that they started."""
    found = []
    for each in psutil.process_iter():
        try:
            if each.environ().get(MARK) == mark and each.status() != psutil.STATUS_ZOMBIE:
                found.append(each)
        except psutil.Error:
            continue
    return found


def capture(alice, folder, started, steps, **options):
    kind, mark = started
    launcher = "srun" if kind == "srun" else "mpirun"
    target = CaptureTarget.objects.create(name="train", argv=["{python}", f"{folder}/train.py", str(steps)], env={MARK: mark})
    return Capture.objects.create(target=target, tool="torch", owner=alice, options={
        "processes": 2, "launcher": launcher, "wait": 1, "warmup": 1, "active": 2, "end_after": False, **options})


def ranks_up(row):
    """Return {rank: pid} of the ranks that said that they are up."""
    lines = Capture.objects.get(pk=row.pk).log.splitlines()
    said = [line.split()[3:] for line in lines if line.startswith("[rank ") and line.split()[2] == "up"]
    return {words[1]: int(words[0]) for words in said}


def running(row):
    thread = threading.Thread(target=run.run, args=(row.pk, "worker-1"))
    thread.start()
    wait_for(lambda: len(ranks_up(row)) == 2 or not thread.is_alive())
    row.refresh_from_db()
    assert thread.is_alive(), (row.error, row.log)
    return thread


def ended(thread, row):
    thread.join(60)
    assert not thread.is_alive()
    row.refresh_from_db()
    return row


def test_every_rank_is_in_one_profile(alice, two_gpus, started, tmp_store):  # noqa: F811
    row = capture(alice, two_gpus, started, 6)
    run.run(row.pk, "worker-1")
    row.refresh_from_db()
    assert row.status == "done", (row.error, row.log)
    assert [each["name"] for each in selectors.file_rows(row)] == ["trace-rank0.json.gz", "trace-rank1.json.gz"]
    for rank in "01":
        lines = [line for line in row.log.splitlines() if line.startswith(f"[rank {rank}] ")]
        assert any(line.endswith(f"{rank} 2 {rank} {GPUS}") for line in lines), row.log
        assert any("trace of 2 steps written" in line for line in lines)
    profile_ingest(row.profile_id, "ingest-1")
    profile = Profile.objects.get(pk=row.profile_id)
    assert profile.status == "ready" and set(profile.metadata["ranks"]) == {"rank 0", "rank 1"}, profile.error


def test_a_stop_keeps_what_every_rank_recorded(alice, two_gpus, started, tmp_store):  # noqa: F811
    row = capture(alice, two_gpus, started, 100_000, active=1000)
    thread = running(row)
    assert len(marked(started[1])) >= 6
    assert services.capture_stop(row)
    ended(thread, row)
    assert row.status == "done", (row.error, row.log)
    assert [each["name"] for each in selectors.file_rows(row)] == ["trace-rank0.json.gz", "trace-rank1.json.gz"]
    assert "ended by the stop; what it had recorded is kept" in row.log


def test_a_rank_that_is_killed(alice, two_gpus, started, tmp_store):  # noqa: F811
    row = capture(alice, two_gpus, started, 100_000, active=1000)
    thread = running(row)
    os.kill(ranks_up(row)["1"], signal.SIGKILL)
    ended(thread, row)
    if row.status == "done":
        assert "1 of 2 ranks wrote" in row.log
    else:
        assert row.status == "failed" and "killed" in row.error["what"], row.error


def test_a_row_that_another_worker_has(alice, two_gpus, started, tmp_store):  # noqa: F811
    row = capture(alice, two_gpus, started, 100_000, active=1000)
    thread = running(row)
    Capture.objects.filter(pk=row.pk).update(worker="worker-2")
    began_s = time.monotonic()
    thread.join(30)
    assert not thread.is_alive() and time.monotonic() - began_s < 15


def test_a_worker_that_is_killed(two_gpus, started):  # noqa: F811
    """The fixture sees to it that no rank is left, and that Slurm has its allocation back."""
    launcher = "srun" if started[0] == "srun" else "mpirun"
    environ = {**os.environ, MARK: started[1], "PYTHONPATH": str(settings.BASE_DIR)}
    done = subprocess.run([sys.executable, "-m", "tests.workers.capture.launch_child", launcher, str(two_gpus)], env=environ,
                          cwd=settings.BASE_DIR, stdout=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL and done.stdout == "[rank 0] up\n[rank 1] up\n"
