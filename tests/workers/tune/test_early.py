"""What compiles while the GPU child still opens, and what a fork of the warm parent says of a kernel's source."""

import importlib
import os
import sys
from zlib import crc32

import pytest
import torch

from tests.scale import DEEP
from tuner.tuning.measure import child, offline
from tuner.tuning.operators import OPERATORS
from tuner.tuning.search.loop import Budget, tune
from tuner.tuning.space import Space
from tuner.tuning.trial import Measured, Rejected, config_key
from workers.core.child import SandboxError
from workers.tune import gpu_child
from workers.tune.gpu_child import Limits
from workers.tune.sandbox import EarlyStart, SandboxRunner

pytestmark = pytest.mark.process

CONFIGS = [{"build": "fine", "do": "fine", "n": n} for n in range(4)]
LIMITS = Limits(open_s=20, compile_s=10, run_s=10)


@pytest.fixture(autouse=True)
def without_spares(monkeypatch):
    monkeypatch.setattr(gpu_child, "SPARES", 0)         # no child dies here


def search(early, configs=CONFIGS, compilers=2, **shape):
    runner = SandboxRunner("fake", shape, "fp16", limits=LIMITS, compilers=compilers, child_module="tests.workers.core.fake_child",
                           compiler_module="tests.workers.tune.fake_compiler", early=early)
    try:
        runner.open()
        trials = list(tune(Space.listed(configs), "exhaustive", runner, Budget(), 0))
        return runner, trials, runner.use()
    finally:
        runner.close()


def test_what_began_early_is_compiled_once_and_measured_in_its_turn():
    runner, trials, use = search(lambda: EarlyStart("9.0", 1, "", CONFIGS[:2]))
    assert sorted(config_key(trial.config) for trial in trials) == sorted(map(config_key, CONFIGS))
    assert all(isinstance(trial.outcome, Measured) and trial.outcome.facts["registers"] == 128 for trial in trials)
    assert use.compiled == len(CONFIGS) and not runner._answered and not runner._begun


def test_a_configuration_that_nobody_asks_for_is_no_trial():
    other = [{"build": "refuse", "do": "fine", "n": 9}, {"build": "fine", "do": "fine", "n": 10}]
    _, trials, use = search(lambda: EarlyStart("9.0", 1, "", other), compilers=1)       # in turn: a search waits for none of these
    assert [trial.config["n"] for trial in trials] == [0, 1, 2, 3] and use.compiled == 6


def test_a_refused_one_is_a_trial_when_its_turn_comes():
    bad = {"build": "refuse", "do": "fine", "n": 7}
    _, trials, use = search(lambda: EarlyStart("9.0", 1, "", [bad]), [*CONFIGS, bad])
    assert [trial.config["n"] for trial in trials if isinstance(trial.outcome, Rejected)] == [7] and use.compiled == 5


def test_another_gpu_than_its_driver_described_compiles_anew():
    _, trials, use = search(lambda: EarlyStart("8.0", 108, "", CONFIGS[:2]))
    assert len(trials) == 4 and 4 <= use.compiled <= 6 and all(isinstance(trial.outcome, Measured) for trial in trials)


def test_what_cannot_be_said_early_is_said_once_the_child_is_open():
    def fails():
        raise SandboxError("no such space")

    _, trials, _ = search(fails)
    assert len(trials) == 4


def test_a_plain_empty_like_is_torchs_own_but_for_what_it_imports():
    before, usual = sys.modules.get("sympy"), torch.empty_like
    likes = [torch.empty((3, 5), device="meta", dtype=torch.float16), torch.empty((4, 6), device="meta").t(), torch.ones(2, 3)]
    try:
        offline.make_empty_like_plain()
        offline.make_empty_like_plain()
        plain = torch.empty_like(likes[0])
        assert sys.modules.get("sympy") is before
        made = [plain, *(torch.empty_like(like) for like in likes[1:]), torch.empty_like(likes[0], dtype=torch.int8)]
        torch.empty_like = usual
        expected = [*(torch.empty_like(like) for like in likes), torch.empty_like(likes[0], dtype=torch.int8)]
    finally:
        torch.empty_like = usual
    assert [(each.shape, each.stride(), each.dtype, each.device) for each in made] == [
        (each.shape, each.stride(), each.dtype, each.device) for each in expected]


def _in_fork(work):
    """Return the text that `work` returns in a fork of this process."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writing, work().encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return text


def test_the_source_of_a_kernel_has_one_hash_whatever_else_is_imported():
    """The warm parent imports every operator's kernels, a new process only one's: entries of the cache are kept by this hash."""
    def alone(operator):
        for name in [name for name in sys.modules if name.startswith(child.KERNELS)]:
            del sys.modules[name]
        return hash_of(operator)

    def hash_of(operator):
        return child.source_hash(importlib.import_module(operator.kernel_module), operator.name)

    some = {name: operator for name, operator in OPERATORS.items() if DEEP or crc32(name.encode()) % 3 == 0}
    each = {name: _in_fork(lambda operator=operator: alone(operator)) for name, operator in some.items()}
    for operator in OPERATORS.values():
        importlib.import_module(operator.kernel_module)
    assert len(some) >= 3 and {name: hash_of(operator) for name, operator in some.items()} == each
