"""The warm parent: forks share nothing, crash alone, end with whoever asked; a new process stands in where none can be forked."""

import errno
import json
import os
import signal
import socket
import threading
import time

import pytest

from tests.tuner.bring.own.programs import CARD
from tests.warm.parent import run_program
from tuner.tuning.measure import fork_server
from tuner.tuning.trial import Measured, Reason
from workers.core import warm
from workers.core.child import Child, ChildDied, safe_environment
from workers.tune.gpu_child import Limits
from workers.tune.sandbox import SandboxRunner

pytestmark = pytest.mark.process

FAKE, LEAVES_STATE = "tests.workers.core.fake_child", "tests.workers.tune.stateful_child"
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def keeper():
    """A parent with torch and Triton imported; one for all tests, as a worker has one for all jobs."""
    keeper = warm.Keeper(variables())
    warm.keep(keeper)
    keeper.tend()
    end = time.monotonic() + 120
    while not keeper.parent.ready and time.monotonic() < end:
        time.sleep(0.05)
        keeper.tend()
        assert keeper.parent is not None, keeper.why
    yield keeper
    warm.keep(None)
    keeper.close()


def variables():
    return {name: value for name, value in safe_environment().items() if name != "PYTEST_CURRENT_TEST"}


def ask(child: Child, **message):
    answer = child.ask(message, LIMIT_S, threading.Event())
    return answer["ok"]


def fork(module: str = LEAVES_STATE, **environ: str) -> Child:
    child = Child(module, environ)
    assert isinstance(child.process, warm.ForkedProcess)
    return child


def is_there(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def test_it_is_ready_without_cuda_and_says_how_long_it_took(keeper):
    assert keeper.state()["ready"] and keeper.state()["seconds"] > 0
    assert not [what for what in keeper.parent.ready["without"] if "no kernel compiled" in what]


def test_a_job_that_changes_all_it_can_changes_nothing_of_the_next(keeper, tmp_path):
    first = fork(TRITON_CACHE_DIR=str(tmp_path / "a"))
    before = ask(first, do="look")
    ask(first, do="change")
    changed = ask(first, do="look")
    first.close()
    second = fork(TRITON_CACHE_DIR=str(tmp_path / "b"))
    after = ask(second, do="look")
    second.close()
    own = ("pid", "cache", "random", "numpy", "torch_seed")
    assert {name: value for name, value in changed.items() if name not in own} != {
        name: value for name, value in before.items() if name not in own}
    assert {name: value for name, value in after.items() if name not in own} == {
        name: value for name, value in before.items() if name not in own}
    assert all(before[name] != after[name] for name in own[:4])


def test_a_fork_has_what_a_new_process_has(keeper, tmp_path):
    forked = fork(TRITON_CACHE_DIR=str(tmp_path))
    here = ask(forked, do="look")
    forked.close()
    warm.keep(None)
    try:
        new = Child(LEAVES_STATE, {"TRITON_CACHE_DIR": str(tmp_path)})
        there = ask(new, do="look")
        new.close()
    finally:
        warm.keep(keeper)
    own = ("pid", "random", "numpy", "torch_seed")
    assert {name: value for name, value in here.items() if name not in own} == {
        name: value for name, value in there.items() if name not in own}


@pytest.mark.parametrize(("do", "reason", "words"), [
    ("segfault", Reason.CRASH, "died of SIGSEGV"), ("exit", Reason.CRASH, "exited with status 3; it printed: last words"),
    ("hang", Reason.TIMEOUT, "no answer within 1 s"), ("sticky", Reason.CRASH, "illegal memory access"),
    ("garbage", Reason.CRASH, "message of")])
def test_a_fork_that_dies_leaves_the_next_unharmed(keeper, do, reason, words):
    runner = SandboxRunner("fake", {}, "fp16", limits=Limits(open_s=20, compile_s=1.0, run_s=1.0, finalists_s=5, max_opens=2),
                           child_module=FAKE)
    runner.open()
    try:
        assert isinstance(runner._child._child.process, warm.ForkedProcess)
        [(_, refused)] = runner.measure([{"do": do}])
        assert refused.reason is reason and words in refused.message
        [(_, fine)] = runner.measure([{"do": "fine"}])
        assert isinstance(fine, Measured) and runner.replaced == 1
    finally:
        runner.close()
    assert keeper.parent.look()


def test_a_request_is_refused_where_the_host_can_fork_no_more(monkeypatch):
    """The loop goes on: forks that live must not end because another one cannot start."""
    def refuse():
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(fork_server.os, "fork", refuse)
    requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with requests, theirs, control:
        report, *pipes = [os.open(os.devnull, os.O_RDWR) for _ in range(4)]
        assert fork_server.Server(requests, report)._start(b'{"module": "x", "environ": {}}', [*pipes, asked.detach()]) is None
        assert "nothing can be forked" in json.loads(control.recv(4096))["refused"]
        os.close(report)


def test_what_a_fork_started_ends_with_it(keeper):
    child = fork()
    started = ask(child, do="start")
    pid = child.process.pid
    child.close()
    assert wait_until(lambda: not is_there(started) and not is_there(pid))


def test_forks_end_with_whoever_asked(keeper):
    """As where the process of a task is killed: its end of the socket is closed by the kernel, and nothing else happens."""
    child = fork()
    pid = child.process.pid
    assert is_there(pid)
    child.process.close()
    assert wait_until(lambda: not is_there(pid))


def test_what_this_process_set_meanwhile_is_nothing_for_forks(keeper, monkeypatch):
    """An import may set variables, as scikit-learn's does in the search."""
    monkeypatch.setenv("SET_MEANWHILE", "1")
    child = fork()
    assert "SET_MEANWHILE" not in ask(child, do="look")["variables"]
    child.close()


def test_variables_that_imports_have_read_already_need_a_new_process(keeper, caplog):
    child = Child(FAKE, {"TRITON_INTERPRET": "1"})
    assert not isinstance(child.process, warm.ForkedProcess) and ask(child, do="open", shape={})["gpu"]
    child.close()
    assert "TRITON_INTERPRET" in caplog.text


def test_a_parent_that_holds_a_gpu_forks_no_more_and_is_replaced(tmp_path):
    lone = warm.Keeper({**variables(), "HOLDS": "it holds /dev/nvidia0"}, module="tests.workers.tune.holding_parent")
    warm.keep(lone)
    try:
        lone.tend()
        first = lone.parent
        child = Child(FAKE, {"HOLDS": "it holds /dev/nvidia0"})
        assert not isinstance(child.process, warm.ForkedProcess) and ask(child, do="open", shape={})["gpu"]
        child.close()
        assert wait_until(lambda: lone.parent.look() and bool(lone.parent.retire))
        lone.tend(busy=True)
        assert lone.parent is first
        lone.tend()
        assert lone.parent is not first and "holds" in lone.state()["last"]
    finally:
        warm.keep(None)
        lone.close()


def test_a_dead_parent_is_no_end_of_jobs_and_another_takes_its_place(caplog):
    lone = warm.Keeper(variables(), module="tests.workers.tune.holding_parent")
    warm.keep(lone)
    try:
        lone.tend()
        forked = Child(FAKE, {})
        assert isinstance(forked.process, warm.ForkedProcess)
        os.kill(lone.parent.process.pid, signal.SIGKILL)
        with pytest.raises(ChildDied):
            forked.ask({"do": "run", "config": {"do": "hang"}}, LIMIT_S, threading.Event())
        forked.close()
        child = Child(FAKE, {})
        assert not isinstance(child.process, warm.ForkedProcess) and ask(child, do="open", shape={})["gpu"]
        child.close()
        lone.tend()
        assert lone.parent is None and "ended with -9" in lone.state()["why"] and "the warm parent is gone" in caplog.text
        lone._next_start_s = 0.0
        lone.tend()
        assert lone.parent is not None and lone.parent.look()
    finally:
        warm.keep(None)
        lone.close()


def test_workers_that_measure_or_compile_keep_one_where_their_owner_lets_them(monkeypatch):
    from workers import process

    started = []
    monkeypatch.setenv("RIDGEPOINT_TOKEN_OF_THIS_TEST", "x")

    class Started(warm.Keeper):
        def tend(self, busy=False):
            started.append(self)

    monkeypatch.setattr(warm, "Keeper", Started)
    try:
        assert process._keep_warm(["ingest", "replay", "messages"]) == {}
        monkeypatch.setenv(warm.OFF, "0")
        assert process._keep_warm(["compile"]) == {}
        monkeypatch.delenv(warm.OFF)
        kept = process._keep_warm(["compile"])
        assert started[0] is kept["warm"] and warm._kept == {False: kept["warm"], **(
            {} if process.sandboxed.why_not() else {True: kept["warm_walled"]})}
        monkeypatch.setattr(process.gpu, "gpus", lambda: [CARD])
        kept = process._keep_warm(["gpu"])
        assert warm._kept == {False: kept["warm"], True: kept["warm_walled"]}
        secrets = {"DATABASE_URL", "RIDGEPOINT_TOKEN_OF_THIS_TEST"}
        assert "RIDGEPOINT_TOKEN_OF_THIS_TEST" in kept["warm"]._environ and not secrets & kept["warm_walled"]._environ.keys()
    finally:
        warm.keep(None)
        warm.keep(None, walled=True)


LOOKS_FOR_NONE = """
import importlib, torch
from workers.core.warm_walled import ALSO

def looked(*given):
    raise AssertionError("a GPU is looked for: torch._cuda_getDeviceCount forbids its use in every fork")

for name in ("is_available", "device_count", "init", "_lazy_init"):
    setattr(torch.cuda, name, looked)
ready = [module.make_ready() for module in map(importlib.import_module, ALSO) if hasattr(module, "make_ready")]
print(len(ready))
"""


@pytest.mark.torch
def test_what_is_made_ready_looks_for_no_gpu() -> None:
    assert run_program(LOOKS_FOR_NONE)[0].split() == ["2"]
