"""The program of the GPU child itself, on the CPU: session facts, correctness before time, policy."""

import shutil
from pathlib import Path

import pytest

from tests.tuner.measure.chosen import WITHOUT_TORCH

pytest.importorskip("torch", reason=WITHOUT_TORCH)
pytest.importorskip("triton", reason=WITHOUT_TORCH)

from tuner.tuning.measure import timing
from tuner.tuning.measure.runner import Incumbent
from tuner.tuning.trial import Measured, Reason, Rejected
from workers.core.child import SandboxError
from workers.tune import gpu_child
from workers.tune.gpu_child import Limits
from workers.tune.sandbox import SandboxRunner

pytestmark = pytest.mark.torch

SOFTMAX = {"STEPS": 1, "PER_SM": 1, "num_warps": 4}
POLICY = {"max_samples": 10, "min_samples": 5, "rounds": 2}


def make(operator="softmax", shape=None, dtype="fp16") -> SandboxRunner:
    return SandboxRunner(operator, shape or {"R": 4, "C": 100}, dtype, policy=POLICY, seed=7, limits=Limits(open_s=60),
                         child_module="tests.workers.tune.interpreted_child")


@pytest.fixture(scope="module", autouse=True)
def without_spares():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_child, "SPARES", 0)           # each imports torch
        yield


@pytest.fixture(scope="module")
def runner():
    runner = make()
    runner.session = runner.open()
    yield runner
    runner.close()


def test_session_states_versions_policy_and_library(runner):
    session = runner.session
    assert {"torch", "triton", "cuda", "source_hash"} <= set(session.environment)
    assert len(session.environment["source_hash"]) == 64
    assert session.policy.items() >= {"statistic": "median", "cold_l2": False, "rounds": 2}.items()
    assert session.library_ms > 0
    assert (session.flops, session.bytes) == (5 * 400, 2 * 2 * 400)


def test_a_right_configuration_is_measured_with_its_error(runner):
    [(_, outcome)] = runner.measure([SOFTMAX])
    assert isinstance(outcome, Measured)
    assert 0 < outcome.facts["relative_error"] < 2e-3
    assert outcome.min_ms <= outcome.median_ms <= outcome.p90_ms and outcome.n == len(outcome.facts["samples_ms"]) >= 5


@pytest.mark.parametrize(("lie", "words"), [
    ("unwritten", "400 elements are not finite"), ("scaled", "relative error 0.05"), ("one element", "worst element")])
def test_a_wrong_configuration_is_never_timed(runner, lie, words):
    [(_, outcome)] = runner.measure([{**SOFTMAX, "lie": lie}])
    assert isinstance(outcome, Rejected) and outcome.reason is Reason.WRONG and words in outcome.message


def test_an_error_that_leaves_the_device_alive_keeps_the_child(runner):
    [(_, outcome)] = runner.measure([{**SOFTMAX, "lie": "raises"}])
    assert outcome.reason is Reason.OTHER and "ZeroDivisionError" in outcome.message and runner.replaced == 0


def test_finalists_are_interleaved(runner):
    other = {**SOFTMAX, "num_warps": 8}
    answers = runner.finalists([SOFTMAX, other])
    assert [config for config, _ in answers] == [SOFTMAX, other]
    for _, outcome in answers:
        facts = outcome.facts
        assert outcome.n == 10 and facts["interleaved"] == 3 and len(facts["round_ms"]) == len(facts["library_round_ms"]) == 2
        assert facts["library_ms"] > 0 and 0 < facts["relative_error"] < 2e-3
    assert answers[0][1].facts["library_ms"] == answers[1][1].facts["library_ms"]


def test_a_race_is_decided_in_the_child_and_says_what_it_saved(runner):
    [(_, whole)] = runner.measure([SOFTMAX])
    runner.open()                               # forgets how noisy this machine was: the prior decides at the first sample
    answer = runner._child.ask({"do": "run", "config": SOFTMAX, "seed": 1, "incumbent": {
        "median_ms": whole.median_ms / 1000, "samples_ms": [whole.median_ms / 1000] * 10}}, 30.0)
    assert answer["ended"] == "raced" and answer["n"] == 1
    racing = answer["facts"]["racing"]
    assert racing["risk"] == 0.01 and racing["probability"] <= 0.01 and racing["saved_s"] > 0
    assert racing["samples"] == 1 < racing["instead_of"]


def test_an_incumbent_without_a_time_is_no_race(runner):
    [(_, outcome)] = runner.measure([SOFTMAX], Incumbent(0.0))
    assert isinstance(outcome, Measured) and outcome.facts["ended"] != "raced" and "racing" not in outcome.facts


def test_a_shape_the_kernel_cannot_take_is_refused_with_words(runner):
    """The last of this child: it is asked for another operator."""
    runner.move("attention", {"B": 1, "H": 1, "N": 16, "D": 24, "causal": 0}, "fp16")
    with pytest.raises(SandboxError, match="D must be a power of two"):
        runner.open()


def test_the_interval_of_the_median_is_distribution_free():
    assert timing.half_width([1.0] * 20) == 0
    assert timing.half_width([float(i) for i in range(1, 21)]) == pytest.approx((15 - 6) / 2 / 10.5)


def test_the_hash_of_a_kernels_source_covers_the_files_its_kernels_stand_in(monkeypatch, tmp_path):
    import tuner
    from tuner.tuning.kernels import matmul, norms, quantised_matmul
    from tuner.tuning.measure.child import source_hash

    modules = (matmul, norms, quantised_matmul)
    before = [source_hash(module, "x") for module in modules]
    assert len(set(before)) == 3
    copy = tmp_path / "tuner"
    shutil.copytree(Path(tuner.__file__).parent / "tuning" / "kernels", copy / "tuning" / "kernels")
    monkeypatch.setattr(tuner, "__path__", [str(copy)])
    for module in modules:
        monkeypatch.setattr(module, "__file__", str(copy / "tuning" / "kernels" / Path(module.__file__).name))

    def changed_by(name):
        file = copy / "tuning" / "kernels" / name
        text = file.read_text()
        file.write_text(text + "\n")
        after = [source_hash(module, "x") for module in modules]
        file.write_text(text)
        return [now != was for now, was in zip(after, before, strict=True)]

    assert changed_by("norms.py") == [False, True, False]
    assert changed_by("matmul_tma.py") == [True, False, True]
    assert changed_by("hopper/int4_warp_groups.py") == [False, False, True]
    assert changed_by("hopper/matmul_warp_groups.py") == [True, False, True]          # two steps from the quantised products
    assert changed_by("problem.py") == changed_by("device.py") == [False, False, False]          # they hold no kernel
