"""The sandbox with real child processes that crash, hang and lie; no GPU needed."""

import os
import subprocess
import sys
import threading
import time

import pytest

from tuner.tuning import wire
from tuner.tuning.trial import Measured, Reason, Rejected
from workers.core.child import SandboxError
from workers.tune.gpu_child import Limits
from workers.tune.sandbox import SandboxRunner

pytestmark = pytest.mark.process

LIMITS = Limits(open_s=20, compile_s=1.0, run_s=1.0, finalists_s=5, max_opens=2)


def make(**shape: int) -> SandboxRunner:
    return SandboxRunner("fake", shape, "fp16", limits=LIMITS, child_module="tests.workers.core.fake_child")


@pytest.fixture
def runner():
    runner = make()
    runner.open()
    yield runner
    runner.close()


def one(runner: SandboxRunner, do: str):
    [(config, outcome)] = runner.measure([{"do": do}])
    assert config == {"do": do}
    return outcome


def test_open_says_what_it_found():
    runner = make()
    session = runner.open()
    runner.close()
    assert (session.gpu, session.compute_capability, session.library_ms) == ("Imaginary GPU", "9.0", 2.0)
    assert session.recorded == "" and session.environment["driver"] == "1.0" and session.policy == {"cold_l2": True}


def test_measured_carries_facts_of_compile_and_run(runner):
    outcome = one(runner, "fine")
    assert isinstance(outcome, Measured)
    assert (outcome.median_ms, outcome.n) == (1.0, 10)
    assert (outcome.facts["compile_s"], outcome.facts["ended"]) == (0.25, "settled")


def test_every_configuration_is_checked_on_other_inputs(runner):
    seeds = {outcome.facts["seed"] for _, outcome in runner.measure([{"do": "fine"}] * 3)}
    assert len(seeds) == 3


@pytest.mark.parametrize(("do", "reason", "words"), [
    ("refuse", Reason.COMPILE, "CompilationError"),
    ("compile-hang", Reason.TIMEOUT, "compile: no answer within 1 s"),
    ("exit", Reason.CRASH, "exited with status 3; it printed: last words"),
    ("segfault", Reason.CRASH, "died of SIGSEGV"),
    ("hang", Reason.TIMEOUT, "run: no answer within 1 s"),
    ("lie", Reason.WRONG, "relative error 0.5"),
    ("resources", Reason.RESOURCES, "shared memory"),
    ("sticky", Reason.CRASH, "illegal memory access"),
    ("garbage", Reason.CRASH, "message of"),
])
def test_a_bad_configuration_is_an_outcome_and_the_next_one_is_measured(runner, do, reason, words):
    outcome = one(runner, do)
    assert isinstance(outcome, Rejected) and outcome.reason is reason and words in outcome.message
    assert isinstance(one(runner, "fine"), Measured)


def test_wrong_results_keep_the_child_and_crashes_replace_it(runner):
    first = one(runner, "fine").facts["pid"]
    one(runner, "lie")
    assert one(runner, "fine").facts["pid"] == first and runner.replaced == 0
    one(runner, "segfault")
    assert one(runner, "fine").facts["pid"] != first and runner.replaced == 1


def test_a_dead_child_is_replaced(runner):
    one(runner, "exit")
    assert isinstance(one(runner, "fine"), Measured)


def test_the_output_of_a_kernel_does_not_disturb_the_protocol(runner):
    assert isinstance(one(runner, "chatter"), Measured)
    assert isinstance(one(runner, "fine"), Measured)


def test_a_hung_child_takes_its_own_children_along(runner):
    one(runner, "hang-with-child")
    left = subprocess.run(["pgrep", "-f", "sleep 61.5"], capture_output=True, text=True).stdout
    assert left == ""


def test_stop_ends_a_measurement_at_once(runner):
    runner._child.limits = Limits(run_s=60)
    threading.Timer(0.5, runner.stop).start()
    started = time.monotonic()
    assert list(runner.measure([{"do": "hang"}, {"do": "fine"}])) == []
    assert time.monotonic() - started < 20            # at once when idle; it hangs for a minute
    assert runner.finalists([{"do": "fine"}]) == []


def test_finalists_share_a_session(runner):
    answers = runner.finalists([{"do": "fine", "x": 1}, {"do": "fine", "x": 2}])
    assert [config["x"] for config, _ in answers] == [1, 2]
    assert len({outcome.facts["pid"] for _, outcome in answers}) == 1


def test_finalists_that_crash_are_rejected_together(runner):
    answers = runner.finalists([{"do": "fine"}, {"do": "exit"}])
    assert [outcome.reason for _, outcome in answers] == [Reason.CRASH] * 2


def test_a_session_that_cannot_open_says_why():
    with pytest.raises(SandboxError, match="no such shape") as caught:
        make(fail=1).open()
    assert caught.value.hint == "choose another"
    with pytest.raises(SandboxError, match="2 times in a row: exited with status 4"):
        make(die=1).open()


def test_only_known_operators_can_be_named(db):
    with pytest.raises(SandboxError, match="unknown operator 'os'"):
        SandboxRunner("os", {}, "fp16")


def test_the_child_dies_with_its_worker():
    """A worker killed with SIGKILL leaves no process on the GPU."""
    program = ("from tests.workers.tune.test_sandbox import make; import time\n"
               "runner = make(); pid = runner.open().environment['pid']\n"
               "assert pid in runner._child.pids; print(*runner._child.pids, flush=True); time.sleep(60)")
    worker = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    pids = [int(pid) for pid in worker.stdout.readline().split()]
    worker.kill()
    worker.wait()
    end = time.monotonic() + 5
    while any(alive(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.02)
    assert len(pids) == 3 and not any(alive(pid) for pid in pids)


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_messages_survive_being_cut_anywhere():
    data = wire.encode({"a": "é" * 10}) + wire.encode({"b": [1, 2]})
    for cut in range(len(data)):
        decoder, found = wire.Decoder(), []
        for part in (data[:cut], data[cut:]):
            decoder.feed(part)
            while (message := decoder.next()) is not None:
                found.append(message)
        assert found == [{"a": "é" * 10}, {"b": [1, 2]}]
    decoder.feed(wire.encode({"rejected": {"message": "no\0thing \ud800 \\u0000", "facts": {"x\0": [["\0", 1]]}}}))
    assert decoder.next() == {"rejected": {"message": "no�thing ? \\u0000", "facts": {"x�": [["�", 1]]}}}     # as rows hold it


def test_a_closed_worker_ends_the_child():
    runner = make()
    pid = runner.open().environment["pid"]
    runner.close()
    assert not alive(pid) and not os.path.exists(f"/proc/{pid}")
