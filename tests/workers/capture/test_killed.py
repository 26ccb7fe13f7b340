"""SIGKILL in the middle of a capture, to the tool, the program or one rank: a clear state, and no process left behind."""

import os
import subprocess

import pytest
from django.conf import settings

from profiles.capture import selectors
from profiles.models import Capture
from profiles.upload.services import profile_ingest
from tests.workers.capture.test_capture import host, queued, ran, told  # noqa: F401
from tests.workers.capture.test_ranks import ran as ran_ranks
from tests.workers.capture.test_ranks import two_gpus  # noqa: F401
from tests.workers.tune import stand_ins

pytestmark = pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
SLEEP = f"sleep 85.{os.getpid()}"
STEPS = """
import os, signal, subprocess, time
subprocess.Popen(["setsid"] + {sleep!r}.split())
for number in range(200):
    time.sleep(0.02)
    print("made", number, flush=True)
    ridgepoint_step()
    if number == {at}:
        os.kill(os.getpid(), signal.SIGKILL)
"""
RANKS = """
import os, signal
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
weights = torch.nn.Parameter(torch.ones(64, 64))
optimizer = torch.optim.SGD([weights], lr=0.1)
for number in range(500):
    (weights @ weights).sum().backward()
    dist.all_reduce(weights.grad)
    optimizer.step()
    optimizer.zero_grad()
    if number == {at} and dist.get_rank() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def left(pattern):
    return subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True).stdout.split()


def test_a_tool_that_is_killed(alice, host, told):  # noqa: F811
    stand_ins.ncu(host, f"echo started; setsid {SLEEP} & kill -9 $$")
    row = ran(queued(alice))
    assert (row.status, row.profile, row.heartbeat) == ("failed", None, None) and row.finished
    assert row.error["where"] == "ncu, exit status 137" and row.error["what"] == "ended by SIGKILL before a report was written"
    assert "dmesg" in row.error["hint"] and "started" in row.log and not left(f"^{SLEEP}$")


def test_a_tool_that_is_killed_after_its_report_keeps_it(alice, host, told, tmp_store):  # noqa: F811
    stand_ins.ncu(host, stand_ins.PROFILES + f"\nsetsid {SLEEP} & kill -9 $$")
    row = ran(queued(alice))
    assert row.status == "done" and "ended with status 137; what it wrote is kept" in row.log and not left(f"^{SLEEP}$")


@pytest.mark.torch
@pytest.mark.parametrize(("at", "active", "status"), [
    (4, 50, "failed"),
    pytest.param(9, 2, "done", marks=pytest.mark.deep_only)])      # test_a_tool_that_is_killed_after_its_report_keeps_it
def test_a_program_that_is_killed(alice, host, told, tmp_store, at, active, status):  # noqa: F811
    """Before its trace is written nothing is left to keep; afterwards it is."""
    pytest.importorskip("torch")
    (host / "steps.py").write_text(STEPS.format(sleep=SLEEP, at=at))
    row = ran(queued(alice, ["{python}", str(host / "steps.py")], tool="torch", active=active, end_after=False))
    assert row.status == status, (row.error, row.log)
    if status == "failed":
        assert row.error["what"] == "ended by SIGKILL before a report was written" and f"made {at}" in row.log
        assert not Capture.objects.get(pk=row.pk).files.exists()
    else:
        assert "ended with status 137; what it wrote is kept" in row.log
    assert not left(f"^{SLEEP}$") and not left(str(host / "steps.py"))


@pytest.mark.torch
def test_one_rank_of_torchrun_is_killed(alice, two_gpus, tmp_store):  # noqa: F811
    """The other fails with it and leaves what it had recorded: a profile of that rank, and the reason in the log."""
    pytest.importorskip("torch")
    (two_gpus / "ranks.py").write_text(RANKS.format(at=6))
    row = ran_ranks(alice, ["{python}", two_gpus / "ranks.py"], "torch", processes=2, wait=1, warmup=1, active=400)
    assert not left(str(two_gpus / "ranks.py"))
    assert row.status == "done" and row.heartbeat is None, (row.error, row.log)
    assert [each["name"] for each in selectors.file_rows(row)] == ["trace-rank1.json.gz"]
    assert "the command ended with status 1; what it wrote is kept" in row.log and "SIGKILL" in row.log
    profile_ingest(row.profile_id, "ingest-1")
    row.profile.refresh_from_db()
    assert row.profile.status == "ready", row.profile.error


@pytest.mark.torch
@pytest.mark.deep_only          # test_a_program_that_is_killed, test_one_rank_of_torchrun_is_killed
def test_one_rank_is_killed_before_anything_was_recorded(alice, two_gpus, tmp_store):  # noqa: F811
    pytest.importorskip("torch")
    (two_gpus / "ranks.py").write_text(RANKS.format(at=1))
    row = ran_ranks(alice, ["{python}", two_gpus / "ranks.py"], "torch", processes=2, wait=100, warmup=1, active=2)
    assert (row.status, row.profile) == ("failed", None) and row.error["what"] and row.error["hint"], row.log
    assert not left(str(two_gpus / "ranks.py"))
