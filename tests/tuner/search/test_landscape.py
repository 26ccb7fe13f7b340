import gzip
import json
import math
from pathlib import Path

import pytest

from tests.tuner.search.conformance import RunnerTests
from tuner.tuning.measure.landscape import Landscape, LandscapeError, reason_of
from tuner.tuning.measure.replay import ReplayRunner, replay_cost_s
from tuner.tuning.trial import Measured, Reason, Rejected

FOLDER = Path(__file__).parents[2] / "data/h200/landscapes"


class TestReplayRunner(RunnerTests):
    @pytest.fixture
    def runner(self):
        return ReplayRunner(Landscape.load(FOLDER / "attention.json.gz"), 1)

    @pytest.fixture
    def space(self):
        return Landscape.load(FOLDER / "attention.json.gz").space(1)


def test_recorded_matmul():
    landscape = Landscape.load(FOLDER / "matmul.json.gz")
    assert landscape.recorded == "recorded on NVIDIA H200, torch 2.11.0, Triton 3.6.0"
    assert (landscape.operator, landscape.stem, len(landscape.shapes)) == ("matmul", "matmul", 4)
    space = landscape.space(0)
    assert (len(space), space.size) == (602, 720)
    assert space.pruned == {"shared memory": 70, "accumulator registers": 48}
    assert landscape.index_of({"K": 4096, "M": 16, "N": 4096}) == 1
    assert landscape.index_of({"M": 1}) is None


def test_what_was_compiled_and_failed_is_a_trial_with_its_reason():
    outcomes = Landscape.load(FOLDER / "attention.json.gz").at(1).outcomes
    rejected = [outcome for _, outcome in outcomes.values() if isinstance(outcome, Rejected)]
    assert len(rejected) == 37
    assert {outcome.reason for outcome in rejected} == {Reason.RESOURCES}
    assert len(outcomes) == 300 - 28


def test_session_carries_label_and_environment():
    session = ReplayRunner(Landscape.load(FOLDER / "softmax.json.gz"), 1, speed=50).open()
    assert session.gpu == "NVIDIA H200" and session.recorded.startswith("recorded on NVIDIA H200")
    assert session.library_ms == pytest.approx(0.1229, rel=1e-3)
    assert session.environment["cuda"] == "13.0"
    assert "÷ 50" in session.policy["replay_pace"]


def test_pace_is_bounded():
    quick, slow = Measured(1, 1, 1, 20, {"compile_s": 0.0}), Measured(1, 1, 1, 20, {"compile_s": 999.0})
    assert replay_cost_s(quick, 50) == 0.08
    assert replay_cost_s(slow, 50) == 0.5
    assert replay_cost_s(Rejected(Reason.COMPILE, facts={"compile_s": 10.0}), 50) == pytest.approx(0.2)


def write(tmp_path, document, name="x.json.gz"):
    path = tmp_path / name
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path


def rows(*rows):
    return {"op": "mystery", "gpu": "G", "shapes": [{"shape": {"Q": 7}, "rows": list(rows)}]}


def test_an_unknown_operator_defines_its_own_space(tmp_path):
    path = write(tmp_path, rows({"config": {"U": 2, "mode": "a"}, "median_ms": 2.0},
                                {"config": {"U": 1, "mode": "b"}, "error": "PTXASError: no"},
                                {"config": {"U": 4, "mode": "b"}, "error": "pruned: too wide"}))
    landscape = Landscape.load(path)
    space = landscape.space(0)
    assert [p.values for p in space.params] == [(1, 2), ("a", "b")]
    assert space.pruned == {"too wide": 1}
    outcomes = [outcome for _, outcome in landscape.at(0).outcomes.values()]
    assert isinstance(outcomes[0], Measured) and outcomes[1].reason == Reason.COMPILE


def test_a_wildly_wrong_result_cannot_win(tmp_path):
    path = write(tmp_path, rows({"config": {"U": 2}, "median_ms": 1.0, "relerr": 3.5},
                                {"config": {"U": 4}, "median_ms": 1.0, "relerr": math.nan}))
    assert {o.reason for _, o in Landscape.load(path).at(0).outcomes.values()} == {Reason.WRONG}


def test_t4_and_kernel_tuner_files(tmp_path):
    t4 = Landscape.load(write(tmp_path, {"results": [
        {"configuration": {"bx": 32}, "times": {"compilation": 500, "runtimes": [3, 1, 2]}, "invalidity": "correct",
         "measurements": [{"name": "time", "value": 2.25}]},
        {"configuration": {"bx": 64}, "times": {}, "invalidity": "compile"},
        {"configuration": {"bx": 128}, "invalidity": "constraints"}]}, "conv_T4.json.gz"))
    assert (t4.operator, t4.space(0).pruned, len(t4.space(0))) == ("conv", {"constraints": 1}, 2)
    measured = next(o for _, o in t4.at(0).outcomes.values() if isinstance(o, Measured))
    assert (measured.median_ms, measured.min_ms, measured.n, measured.facts) == (
        2, 1, 3, {"compile_s": 0.5, "cost_s": 0.506, "objective_ms": 2.25})
    cache = Landscape.load(write(tmp_path, {
        "device_name": "RTX", "kernel_name": "Xgemm", "tune_params_keys": ["A"], "tune_params": {"A": [8, 4]},
        "cache": {"4": {"A": 4, "time": 1.5, "times": [1.4, 1.6]}, "8": {"A": 8, "time": "RuntimeFailedConfig"}}}))
    assert cache.space(0).params[0].values == (8, 4)
    assert {o.reason for _, o in cache.at(0).outcomes.values() if isinstance(o, Rejected)} == {Reason.CRASH}


@pytest.mark.parametrize(("text", "reason"), [
    ("OutOfResources: out of resource: shared memory, Required: 270336", Reason.RESOURCES),
    ("CompilationError: at 3:4", Reason.COMPILE), ("PTXASError: x", Reason.COMPILE),
    ("RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered", Reason.CRASH),
    ("timeout after 60 s", Reason.TIMEOUT), ("wrong: relative error 0.3", Reason.WRONG), ("?", Reason.OTHER),
])
def test_reasons(text, reason):
    assert reason_of(text) == reason


@pytest.mark.parametrize(("content", "says"), [
    (b"", "no JSON"), (b"\x1f\x8b\x08trunc", "cannot be read"), (b"\xfd7zXZ\0\0\4", "cannot be read"),
    (b"[1]", "not an object"), (b"{}", "no landscape"),
    (b"[" * 100_000, "no JSON"),
    (b'{"shapes": []}', "empty or no list"), (b'{"shapes": [{"rows": []}]}', 'no "shape"'),
    (b'{"shapes": [{"shape": {}, "rows": [{"config": {"a": 1}}]}]}', "neither a positive median_ms nor an error"),
    (b'{"shapes": [{"shape": {}, "rows": [{"config": {"a": []}, "median_ms": 1}]}]}', "neither number nor text"),
    (b'{"shapes": [{"shape": {}, "rows": [{"config": {"a": 1}, "median_ms": 1}, {"config": {"b": 1}, "error": "x"}]}]}',
     "those before it others"),
])
def test_a_wrong_file_says_what_is_wrong(tmp_path, content, says):
    path = tmp_path / "bad.json.gz"
    path.write_bytes(content)
    with pytest.raises(LandscapeError, match=says):
        Landscape.load(path)


def test_values_that_are_equal_and_of_two_types(tmp_path):
    path = write(tmp_path, rows({"config": {"U": 1}, "median_ms": 2.0}, {"config": {"U": True}, "median_ms": 1.0}))
    with pytest.raises(LandscapeError, match="shape 0: a configuration stands twice"):
        Landscape.load(path).space(0)


def test_a_shape_that_is_not_there():
    with pytest.raises(LandscapeError, match="there is no shape 9"):
        ReplayRunner(Landscape.load(FOLDER / "softmax.json.gz"), 9)


def test_a_bomb_is_cut_off(tmp_path, monkeypatch):
    monkeypatch.setattr("tuner.tuning.measure.landscape.MAX_EXPANDED_BYTES", 1000)
    with pytest.raises(LandscapeError, match="holds more than"):
        Landscape.load(write(tmp_path, {"op": "x" * 5000}))
