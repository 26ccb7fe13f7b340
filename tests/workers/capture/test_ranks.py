"""Captures of several processes: real launchers over programs of the CPU, with words that stand in for two GPUs."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest
from django.conf import settings

from profiles.base.refused import Refused
from profiles.capture import selectors, services
from profiles.capture.command import build_command, shell_text
from profiles.capture.tools.launchers import RANK
from profiles.capture.tools.ncu import NcuOptions
from profiles.capture.tools.nsys import NsysOptions, installed_nsys
from profiles.capture.tools.tool import Paths
from profiles.capture.tools.torch_profiler import TorchOptions
from profiles.models import Capture, CaptureTarget, Profile
from profiles.upload.services import profile_ingest
from tests.workers.capture.test_capture import wait_for
from tests.workers.tune import stand_ins
from workers import jobs
from workers.capture import run
from workers.capture.ranks import Launcher, Ranks, find_launcher
from workers.core import gpu

pytestmark = pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
TRAIN = """
import os, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
weights = torch.nn.Parameter(torch.ones(64, 64))
optimizer = torch.optim.SGD([weights], lr=0.1)
for _ in range(6):
    (weights @ weights).sum().backward()
    dist.all_reduce(weights.grad)
    optimizer.step()
    optimizer.zero_grad()
print("devices", os.environ["CUDA_VISIBLE_DEVICES"], "rank", dist.get_rank(), flush=True)
dist.destroy_process_group()
"""


@pytest.fixture
def two_gpus(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpu.nvml, "devices", list)
    monkeypatch.setattr(gpu.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(jobs, "publish", lambda *message: None)
    other = stand_ins.SMI_LINE.replace("0, GPU-1", "1, GPU-2", 1)
    stand_ins.nvidia_smi(tmp_path, f"{stand_ins.SMI_LINE}\n{other}")
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def ran(alice, argv, tool, **options):
    target = CaptureTarget.objects.create(name="train", argv=[str(part) for part in argv])
    row = Capture.objects.create(target=target, tool=tool, options=options, owner=alice)
    run.run(row.pk, "worker-1")
    row.refresh_from_db()
    return row


@pytest.mark.torch
def test_every_rank_of_torchrun_is_in_one_profile(alice, two_gpus, tmp_store, monkeypatch):
    """By a worker that sees one of the host's GPUs, as `manage.py serve` starts them: it leases the other's too."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv(gpu.OF_HOST, gpu.ALL)
    pytest.importorskip("torch")
    row = ran(alice, ["{python}", two_gpus / "train.py"], "torch", processes=2, wait=1, warmup=1, active=2, end_after=False)
    assert row.status == "done", (row.error, row.log)
    assert [each["name"] for each in selectors.file_rows(row)] == ["trace-rank0.json.gz", "trace-rank1.json.gz"]
    assert row.log.count("trace of 2 steps written") == 2 and row.log.count("ridgepoint: on NVIDIA H200") == 2
    assert "devices GPU-11111111-2222-3333-4444-555555555555,GPU-21111111" in row.log
    profile_ingest(row.profile_id, "ingest-1")
    profile = Profile.objects.get(pk=row.profile_id)
    assert profile.status == "ready" and set(profile.metadata["ranks"]) == {"rank 0", "rank 1"}, profile.error


@pytest.mark.skipif("missing" in installed_nsys(), reason="nsys is not installed here")
def test_nsys_writes_a_report_for_each_rank(alice, two_gpus, tmp_store):
    pytest.importorskip("torch")
    (two_gpus / "plain.py").write_text("import time\nfor _ in range(5):\n    time.sleep(0.02)\n")
    row = ran(alice, ["{python}", two_gpus / "plain.py"], "nsys", processes=2, trace=["osrt"], cpuctxsw="none")
    assert row.status == "done", (row.error, row.log)
    assert [each["name"] for each in selectors.file_rows(row)] == [
        "report-rank0.sqlite", "report-rank1.sqlite", "report-rank0.nsys-rep", "report-rank1.nsys-rep"]
    profile_ingest(row.profile_id, "ingest-1")
    profile = Profile.objects.get(pk=row.profile_id)
    assert profile.status == "ready" and len(profile.metadata["ranks"]) == 2, profile.error


def test_more_processes_than_gpus(alice, two_gpus):
    row = ran(alice, ["{python}", two_gpus / "train.py"], "torch", processes=3)
    assert row.status == "failed" and row.error["what"] == "this worker has 2 GPUs at hand, the capture asks for 3"


def test_one_that_another_worker_can_run_is_left_to_it(alice, two_gpus, monkeypatch):
    facts = {"name": "gpu@big", "host": "big", "queues": ["gpu"], "gpus": [{"name": "NVIDIA H200"}] * 8,
             "tools": {"torch": {"version": "2.11"}}}
    monkeypatch.setattr(jobs, "workers", lambda: [facts])
    row = ran(alice, ["{python}", two_gpus / "train.py"], "torch", processes=4)
    assert (row.status, row.worker, row.attempts, row.error) == ("queued", "", 0, None)


@pytest.mark.parametrize(("launcher", "words"), [
    ("torchrun", "python -m torch.distributed.run --standalone --nproc-per-node 4 --no-python nsys profile --output "
                 "'./report-rank%q{RANK}' "),
    ("mpirun", "mpirun -n 4 python workers/capture/rank.py mpirun . nsys profile --output './report-rank%q{RANK}' "),
    ("mpiexec", "mpiexec -n 4 python workers/capture/rank.py mpiexec . nsys profile --output './report-rank%q{RANK}' "),
    ("srun", "srun --nodes=1 --ntasks=4 python workers/capture/rank.py srun . nsys profile --output './report-rank%q{RANK}' "),
    ("program", "nsys profile --output ./report "),
])
def test_the_launcher_stands_before_the_tool(launcher, words):
    argv = build_command(NsysOptions(processes=4, launcher=launcher), ["./a.out", "1"])
    assert shell_text(argv).startswith(words) and argv[-2:] == ["./a.out", "1"]


def test_what_cannot_be_captured_as_several_processes():
    with pytest.raises(Refused) as refused:
        NcuOptions.parse({"processes": 2})
    assert "waits for the others for ever" in refused.value.fields["processes"]
    module = ["{python}", "-m", "torch.distributed.run", "x.py"]
    for target in (["torchrun", "train.py"], ["/usr/bin/mpirun", "-n", "2", "./a"], module):
        with pytest.raises(Refused, match="waits for the others for ever"):
            build_command(NcuOptions(), target)
    with pytest.raises(Refused, match="the target begins with torchrun itself") as refused:
        build_command(NsysOptions(processes=2), ["torchrun", "train.py"])
    assert list(refused.value.fields) == ["launcher"]
    assert build_command(NsysOptions(processes=2, launcher="program"), ["torchrun", "train.py"])[0] == "nsys"
    with pytest.raises(Refused) as refused:
        build_command(TorchOptions(processes=2, launcher="program"), ["{python}", "train.py"])
    assert list(refused.value.fields) == ["launcher"]
    for words in (["torchrun", "--nnodes=2", "t.py"], ["srun", "-N2", "./a"], ["srun", "--nodes", "2-4", "./a"],
                  ["mpirun", "-H", "a,b", "./a"],
                  ["srun", "-w", "node[1-2]", "./a"], ["{python}", "-m", "torch.distributed.run", "--nnodes", "4", "t.py"],
                  ["mpiexec", "-hosts", "a,b", "{python}", "t.py"], ["deepspeed", "--num_nodes=2", "t.py"]):
        with pytest.raises(Refused, match=r"runs on several hosts .*agent on each host"):
            build_command(NsysOptions(), words)
    for words in (["torchrun", "--nnodes=1", "t.py"], ["torchrun", "t.py", "--nnodes", "4"],
                  ["srun", "-N", "1", "-w", "node1", "./a"],
                  ["{python}", "t.py", "--nodes=3"], ["mpirun", "--host", "localhost:2", "./a"], ["./a", "-N2"]):
        assert build_command(NsysOptions(), words)[-len(words[1:]):] == words[1:]
    for wrong in ({"processes": 0}, {"processes": 65}, {"launcher": "--x"}):
        with pytest.raises(Refused):
            NsysOptions.parse(wrong)


def test_a_launcher_that_is_not_there(tmp_path):
    options = NsysOptions(processes=2, launcher="mpirun")
    with pytest.raises(Refused, match="no mpirun on its PATH") as refused:
        find_launcher(options, 2, {"PATH": str(tmp_path)})
    assert list(refused.value.fields) == ["launcher"]
    stand_ins.executable(tmp_path / "mpirun", "#!/bin/sh\necho something else\n")
    with pytest.raises(Refused, match="neither Open MPI nor MPICH: something else"):
        find_launcher(options, 2, {"PATH": str(tmp_path)})
    assert find_launcher(NsysOptions(processes=2), 2, {}) == find_launcher(NcuOptions(), 1, {}) == Launcher()


def test_ranks_below_a_long_path(tmp_path):
    folder = tmp_path / ("x" * 200)
    folder.mkdir()
    ranks = Ranks(folder)
    rank = subprocess.Popen([sys.executable, run.PROJECT / RANK, "srun", folder, "sleep", "3600"],
                            env={**os.environ, "SLURM_PROCID": "1"})
    ranks.accept()
    assert ranks.send(signal.SIGTERM) and rank.wait(20) == 128 + signal.SIGTERM
    ranks.close()
    gone = subprocess.run([*rank.args], env={**os.environ, "SLURM_PROCID": "1"}, capture_output=True, text=True, timeout=20)
    assert gone.returncode == 78 and gone.stdout.startswith("ridgepoint: rank 1 does not reach the worker in ")
    alone = subprocess.run([*rank.args], env={"PATH": "/bin"}, capture_output=True, text=True, timeout=20)
    assert alone.returncode == 78 and "srun cannot be used: it set none of SLURM_PROCID" in alone.stdout


def test_gpus_that_slurm_manages(tmp_path):
    """Alone it asks Slurm for GPUs and keeps those that it is given; in an allocation, whose GPUs it leases, it asks for none."""
    options = NsysOptions(processes=2, launcher="srun")
    stand_ins.executable(tmp_path / "srun", "#!/bin/sh\n")
    stand_ins.executable(tmp_path / "sinfo", "#!/bin/sh\necho gpu:h200:8\n")
    alone = find_launcher(options, 2, {"PATH": f"{tmp_path}:/bin"})
    assert alone.grants_gpus and alone.words[-1] == "--gpus=2" and "--overlap" not in alone.words
    inside = find_launcher(options, 2, {"PATH": f"{tmp_path}:/bin", "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "gpu-3"})
    assert not inside.grants_gpus and inside.words[0] == "--nodelist=gpu-3" and inside.words[-1] == "--overlap"
    assert find_launcher(options, 0, {"PATH": f"{tmp_path}:/bin"}).words[-1] == "--job-name=ridgepoint"


def test_ability_counts_gpus(monkeypatch):
    facts = {"name": "gpu@a", "host": "a", "queues": ["gpu"], "gpus": [{"name": "NVIDIA H200"}] * 2,
             "tools": {"nsys": {"version": "2025.3"}}}
    monkeypatch.setattr(jobs, "workers", lambda: [facts])
    assert selectors.ability_for(NsysOptions(processes=2)).able
    able = selectors.ability_for(NsysOptions(processes=4))
    assert not able.able and able.why == "4 GPUs are asked for; the worker with most has 2 (a)."
    facts |= {"gpus": facts["gpus"][:1], "host_gpus": 4}           # a worker for each GPU, as `manage.py serve` starts them
    assert selectors.ability_for(NsysOptions(processes=4)).able and not selectors.ability_for(NsysOptions(processes=5)).able
    facts |= {"gpus": [], "host_gpus": 0}
    assert not selectors.ability_for(NsysOptions()).able
    able = selectors.ability_for(NsysOptions(trace=("nvtx",), processes=4))
    assert able.able and "without a GPU: NVTX, OS runtime" in able.why and json.dumps(able.as_json())
    assert selectors.ability()["nsys"].able and not selectors.ability()["ncu"].able
    assert selectors.ability_sentence(selectors.ability()).startswith("What needs no GPU can be captured now with Nsight Systems.")
    assert Paths().installed == {}


@pytest.mark.skipif("missing" in installed_nsys(), reason="nsys is not installed here")
def test_a_stop_lets_every_rank_finish_its_report(alice, two_gpus, tmp_store):
    pytest.importorskip("torch")
    (two_gpus / "plain.py").write_text("import time\nprint('up', flush=True)\nfor _ in range(4000):\n    time.sleep(0.05)\n")
    target = CaptureTarget.objects.create(name="train", argv=["{python}", str(two_gpus / "plain.py")])
    row = Capture.objects.create(target=target, tool="nsys", owner=alice,
                                 options={"processes": 2, "trace": ["osrt"], "cpuctxsw": "none"})
    thread = threading.Thread(target=run.run, args=(row.pk, "worker-1"))
    thread.start()
    wait_for(lambda: Capture.objects.get(pk=row.pk).log.splitlines().count("up") == 2)
    assert services.capture_stop(row)
    thread.join(180)
    row.refresh_from_db()
    assert row.status == "done", (row.error, row.log)
    assert [each["name"] for each in selectors.file_rows(row)][:2] == ["report-rank0.sqlite", "report-rank1.sqlite"]
