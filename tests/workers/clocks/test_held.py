"""Clocks held and put back by real processes, signals and the real nvidia-ml-py, over a stand-in of the driver's library.

The library is `stand_in_nvml.c`: what a driver does with these calls on a GPU is not shown here.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.conf import settings

from tests.workers.clocks.job import WAIT_S, Job
from tests.workers.clocks.library import (
    REFUSE_BACK,
    REFUSE_GRAPHICS,
    REFUSE_MEMORY,
    REFUSE_PERSISTENCE,
    UUID,
    ImaginaryGpu,
)
from tuner.clocks.wish import ClockWish
from workers.clocks import driver, held

pytestmark = pytest.mark.process


class Host:
    """A host with one imaginary GPU: its temporary folder, and homes of installations."""

    def __init__(self, library, root):
        self.root, self.gpu = root, ImaginaryGpu(library, root / "gpu")
        (root / "tmp").mkdir()
        self.gpu.set()

    def environ(self, home):
        saved = self.folder(home) / f"{UUID}.json"
        return {**self.gpu.environ(self.root / "tmp", saved), "RIDGEPOINT_HOME": str(self.root / home),
                "RIDGEPOINT_SECRET_KEY": "none"}

    def folder(self, home="home"):
        return self.root / home / "clocks"

    def state(self, home="home"):
        return held.read_state(UUID, self.folder(home))

    def start(self, by, graphics="75%", *rest, home="home"):
        """Start a job; return it and what it was told."""
        process = Job(self.environ(home), UUID, by, graphics, *rest)
        return process, process.told()

    @contextmanager
    def job(self, by, *args, **options):
        process, told = self.start(by, *args, **options)
        try:
            yield told
        finally:
            end(process)

    def put_back_left(self, home="home"):
        """What a worker does when it starts, in a process of its own; return what it says."""
        code = ("import json, sys; from pathlib import Path; from workers.clocks import held; "
                "print(json.dumps(held.put_back_left(Path(sys.argv[1]))))")
        done = subprocess.run([sys.executable, "-c", code, str(self.folder(home))], cwd=settings.BASE_DIR, env=self.environ(home),
                              capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def guardians(self):
        """Pids of the processes that hold clocks on this host."""
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"workers.clocks.guardian" in words and str(self.root).encode() in b" ".join(words):
                found.append(int(entry))
        return found


@pytest.fixture
def host(library, tmp_path):
    return Host(library, tmp_path)


def end(process):
    assert process.wait() == 0


def wait_for(what):
    until = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.02)


def test_clocks_and_persistence_are_held_for_a_job_and_put_back(host):
    with host.job("tune job 7 on w1", "75%", "1593", "persistence") as told:
        assert host.gpu.now == (1, 1485, 1593)
        assert (told["locked"], told["sm_mhz"], told["memory_mhz"], told["persistence"]) == (True, 1485, 1593, True)
        assert told["by"] == "tune job 7 on w1" and told["why"] == ""
        found = told["found"]
        assert (found["persistence"], found["sm_clock_mhz"], found["max_sm_mhz"], found["reasons"]) == (0, 345, 1980, ["idle"])
        assert found["application_sm_mhz"] is None and "not readable" in found["locked_clocks"]
        state = host.state()
        assert state["found"] == found and state["changes"] == ["persistence mode", "graphics clock", "memory clock"]
        assert state["boot"] == held.boot_id()
    assert host.gpu.now == (0, 0, 0) and host.state() is None and host.gpu.changes == 6
    assert held.present(UUID, host.folder())["last"]["sm_mhz"] == 1485
    assert host.guardians() == []


def test_what_was_on_before_stays_on(host):
    host.gpu.set(persistence=1)
    with host.job("a", "1410", "persistence") as told:
        assert host.gpu.now == (1, 1410, 0) and host.state()["changes"] == ["graphics clock"]
        assert told["persistence"] is True
    assert host.gpu.now == (1, 0, 0)


def test_a_clock_between_two_steps_is_the_one_below(host):
    with host.job("a", "1400") as told:
        assert told["sm_mhz"] == 1395 and host.gpu.now == (0, 1395, 0) and told["persistence"] is False


def test_the_state_is_on_the_disk_before_anything_is_changed(host):
    """The library itself looks for the file at each of its changes."""
    with host.job("a", "1410", "1593", "persistence"):
        assert host.gpu.changes == 3
    assert (host.gpu.changes, host.gpu.unsaved) == (6, 0)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_job_that_dies_leaves_nothing_behind(host, number):
    process, _ = host.start("a", "1410", "persistence")
    assert host.gpu.now == (1, 1410, 0)
    os.killpg(process.pid, number)              # as a worker ends its task: the whole group
    process.wait()
    wait_for(lambda: host.gpu.now == (0, 0, 0) and host.state() is None)
    wait_for(lambda: not host.guardians())


def test_signals_for_a_whole_service_do_not_keep_the_guardian_from_it(host):
    process, _ = host.start("a", "1410")
    [guardian] = host.guardians()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(guardian, number)
    assert host.gpu.now == (0, 1410, 0) and host.guardians() == [guardian]
    os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: host.gpu.now == (0, 0, 0))


def test_a_guardian_that_is_killed_is_made_up_for_by_its_job(host):
    process, _ = host.start("a", "1410", "persistence")
    os.kill(host.guardians()[0], signal.SIGKILL)
    wait_for(lambda: not host.guardians())
    assert host.put_back_left() == {}, "the job measures on and holds the lock"
    assert host.gpu.now == (1, 1410, 0)
    end(process)
    assert host.gpu.now == (0, 0, 0) and host.state() is None


def test_the_next_worker_puts_back_what_was_left_when_everything_was_killed(host):
    process, _ = host.start("a", "1410", "1593", "persistence")
    os.kill(host.guardians()[0], signal.SIGKILL)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: not host.guardians())
    assert host.gpu.now == (1, 1410, 1593)
    assert host.put_back_left() == {UUID: ""}
    assert host.gpu.now == (0, 0, 0) and host.state() is None
    assert host.put_back_left() == {}


def test_the_next_job_puts_back_first_what_was_left(host):
    process, _ = host.start("a", "1410", "persistence")
    os.kill(host.guardians()[0], signal.SIGKILL)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with host.job("b", "1200") as told:
        assert told["found"]["persistence"] == 0 and told["found"]["reasons"] == ["idle"], "as before the first one"
        assert host.gpu.now == (0, 1200, 0)
    assert host.gpu.now == (0, 0, 0)


def test_after_a_new_start_of_the_host_nothing_is_changed(host):
    state = {"uuid": UUID, "boot": "of yesterday", "by": "a", "since": "", "found": {"persistence": 0},
             "changes": ["persistence mode", "graphics clock"]}
    held.write_json(host.folder() / f"{UUID}.json", state)
    host.gpu.set(persistence=1)
    assert host.put_back_left() == {UUID: ""} and host.state() is None
    assert host.gpu.now == (1, 0, 0) and host.gpu.changes == 0


def test_two_jobs_hold_as_the_first_does_until_the_last_has_gone(host):
    first, _ = host.start("job 1", "1410", "persistence")
    second, told = host.start("job 2", "1410", "persistence")
    assert told["locked"] and told["sm_mhz"] == 1410 and told["by"] == "job 1" and told["why"] == ""
    end(first)
    assert host.gpu.now == (1, 1410, 0)
    third, told = host.start("job 3", "1200")
    assert told["sm_mhz"] == 1410, "nobody's clock changes while it measures"
    assert "job 1 holds them already as it asked: 1410 MHz" in told["why"]
    os.killpg(second.pid, signal.SIGKILL)
    second.wait()
    wait_for(lambda: len(host.guardians()) == 1)
    assert host.gpu.now == (1, 1410, 0) and host.put_back_left() == {}
    end(third)
    assert host.gpu.now == (0, 0, 0) and host.state() is None


def test_many_that_come_and_go_at_once_leave_what_they_found(host):
    jobs = [Job(host.environ("home"), UUID, f"job {at}", "1410", "persistence") for at in range(4)]
    for job in jobs:
        assert job.told()["locked"] and job.wait() == 0
    assert host.gpu.now == (0, 0, 0) and host.state() is None and host.guardians() == []


def test_another_installation_neither_changes_nor_puts_back(host):
    first, _ = host.start("job 1", "1410")
    with host.job("job 2", "1200", home="other") as told:
        assert not told["locked"] and "another installation" in told["why"] and host.gpu.now == (0, 1410, 0)
        end(first)
        assert host.gpu.now == (0, 0, 0), "who only looked on keeps nobody from putting back"


@pytest.mark.parametrize(("refuse", "now", "locked", "words"), [
    (REFUSE_GRAPHICS, (1, 0, 0), False, "graphics clock: no permission; the worker needs root or CAP_SYS_ADMIN"),
    (REFUSE_PERSISTENCE | REFUSE_GRAPHICS, (0, 0, 0), False, "persistence mode: no permission"),
    (REFUSE_MEMORY, (1, 1410, 0), True, "memory clock: no permission"),
])
def test_a_refusal_is_said_and_the_job_runs(host, refuse, now, locked, words):
    host.gpu.set(refuse=refuse)
    with host.job("a", "1410", "1593", "persistence") as told:
        assert told["locked"] is locked and words in told["why"] and host.gpu.now == now
        assert "memory_mhz" not in told, "where the graphics clock runs free the memory's is not held either"
    assert host.gpu.now == (0, 0, 0) and host.state() is None


def test_a_job_that_must_have_them_fails_where_the_driver_refuses(host):
    host.gpu.set(refuse=REFUSE_GRAPHICS)
    process, told = host.start("a", "1410", "persistence", "required")
    assert "an owner requires" in told["failed"] and "no permission" in told["failed"]
    end(process)
    assert host.gpu.now == (0, 0, 0)


@pytest.mark.parametrize(("graphics", "memory", "words"), [
    ("2500", "", "graphics clock: the driver offers graphics clocks of 345 to 1980 MHz, not 2500"),
    ("1410", "1600", "memory clock: the driver offers memory clocks of 1593, 2619 MHz, not 1600")])
def test_a_clock_that_the_driver_lacks_changes_nothing(host, graphics, memory, words):
    with host.job("a", graphics, *filter(None, [memory]), "persistence") as told:
        assert not told["locked"] and told["why"] == words and host.gpu.now == (0, 0, 0) and host.gpu.changes == 0


def test_what_cannot_be_put_back_stays_known_until_it_can(host):
    process, _ = host.start("a", "1410", "persistence")
    host.gpu.refuse(REFUSE_BACK)
    end(process)
    assert host.gpu.now == (1, 1410, 0) and host.state()["changes"] == ["persistence mode", "graphics clock"]
    assert "not put back" in held.present(UUID, host.folder())["last"]["left"]
    assert "no permission" in host.put_back_left()[UUID]
    host.gpu.refuse(0)
    assert host.put_back_left() == {UUID: ""} and host.gpu.now == (0, 0, 0)


def test_a_gpu_that_the_driver_does_not_know_is_a_refusal(host):
    other = "GPU-00000000-1111-0000-0000-000000000000"
    job = Job(host.environ("home"), other, "a", "1410")
    assert "the driver: Not Found" in job.told()["why"]
    end(job)


def test_a_worker_without_the_binding_says_so_and_changes_nothing(tmp_path, monkeypatch):
    """Workers that have no GPU have no nvidia-ml-py either, and import this all the same."""
    monkeypatch.setattr(driver, "pynvml", None)
    monkeypatch.setattr(held.tempfile, "gettempdir", lambda: str(tmp_path))
    lock = held.lock_file(UUID)
    told = held.take(lock, UUID, tmp_path / "clocks", ClockWish("1410"), "a")
    assert (told["locked"], told["why"]) == (False, "nvidia-ml-py is not installed on this worker")
    assert held.leave(lock, UUID, tmp_path / "clocks") == "" and held.put_back_left(tmp_path / "clocks") == {}
    os.close(lock)


def test_a_name_that_is_no_uuid_reaches_no_path():
    with pytest.raises(ValueError, match="no GPU's UUID"):
        held.lock_file("../../etc/passwd")
