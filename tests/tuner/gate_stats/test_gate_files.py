"""Files of runs: what is read, what is refused and where, and that nothing in them can ask for more than its share."""

import gzip
import json

import numpy as np
import pytest

from tests.tuner.gate_stats.gate_runs import H200
from tuner.gate.stats import records
from tuner.gate.stats import records as lines
from tuner.gate.stats.records import RunsError, read_runs
from tuner.gate.stats.results import suite_json
from tuner.gate.stats.suite import judge

LINE = {"run": 1, "op": "k", "shape": {"N": 1}, "config": {"B": 2}, "clocks": "1980, 3201, 38, 108.5", "us": [1.5, 2, 3.25]}


def line(**changes):
    return json.dumps({**LINE, **changes})


def refused(*lines):
    with pytest.raises(RunsError) as caught:
        read_runs(lines)
    return caught.value


def test_the_recorded_file():
    found = read_runs(H200 / "timing_runs.jsonl.gz")
    assert len(found) == 13 and all(len(kernel.runs) == 24 for kernel in found)
    first = found[0].runs[0]
    assert first.run == "1" and first.us[0] == 195.488 and len(first.us) == 100 and first.sm_clock_mhz == 1980
    small = read_runs(H200 / "timing_runs_small.jsonl.gz")[0].runs[0]
    assert small.gpu == "NVIDIA H200" and "cuda 13.0" in small.environment and small.facts["registers"] > 0


def test_every_way_to_hand_it_over(tmp_path):
    plain, packed = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    text = line() + "\r\n\n" + line(run="two")
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    for source in (plain, packed, str(plain), text.splitlines(), [LINE, {**LINE, "run": "two"}]):
        (kernel,) = read_runs(source)
        assert [run.run for run in kernel.runs] == ["1", "two"] and kernel.runs[1].us.tolist() == [1.5, 2, 3.25]
    assert read_runs([]) == [] and read_runs(["", "  "]) == []


def test_kernels_are_told_apart_by_everything_that_names_them():
    lines = [line(), line(op="other"), line(shape={"N": 2}), line(config=None), line(dtype="fp16"), line(key="k")]
    assert len(read_runs(lines)) == 6
    assert len(read_runs([line(shape={"N": 1, "M": 2}), line(shape={"M": 2, "N": 1}, run=2)])) == 1


@pytest.mark.parametrize("said", [[4096, 64], "4096x64", 4096, [[1, 2], [3]], {"block": [16, 8]}, {"a": {"b": 1}}, 0])
def test_files_of_other_peoples_making_name_shapes_and_configurations_as_they_like(said):
    found = suite_json(judge(read_runs([line(shape=said, config=said, run=at, us=[9 + at / 100]) for at in range(5)]),
                          read_runs([line(shape=said, config=said, run=at, us=[9.001 + at / 100]) for at in range(5)])))
    assert found["verdict"] == "PASS" and found["kernels"][0]["shape"] == found["kernels"][0]["config"] == said
    assert read_runs([line(shape=said)])[0].name.startswith("k ")


def test_a_number_is_the_same_however_it_is_written():
    """A column with a gap becomes floats in pandas, and all is text in a CSV file."""
    ways = [{"N": 64, "M": 2}, {"M": 2.0, "N": 64.0}, {"N": "64", "M": "2.0"}]
    assert len(read_runs([line(shape=way, config=way, run=at) for at, way in enumerate(ways)])) == 1
    assert len(read_runs([line(shape={"N": value}) for value in (64, 65, "x64", True, None, "")])) == 6
    assert len(read_runs([line(config=nothing) for nothing in ({}, None)])) == 1
    [kernel] = read_runs([line(run=1.0, us=["1.5", " 2e0", "NaN"]), line(run=2, us=7.25)])
    assert kernel.runs[0].run == "1" and kernel.runs[0].us[:2].tolist() == [1.5, 2] and np.isnan(kernel.runs[0].us[2])
    assert kernel.runs[1].us.tolist() == [7.25]


def test_a_run_that_failed_is_kept_for_the_verdict():
    failed = {name: value for name, value in LINE.items() if name != "us"} | {"run": 3, "error": "out of\nmemory"}
    [kernel] = read_runs([line(), line(run=2, us=None), failed])
    assert [len(run.us) for run in kernel.runs] == [3, 0, 0] and kernel.notes == ["run 3 has no samples: out of memory"]


def test_a_process_is_one_run():
    (kernel,) = read_runs([line(), line()])
    assert len(kernel.runs) == 1 and "counted once" in kernel.notes[0]
    (kernel,) = read_runs([line(), line(us=[9.0]), line(us=[8.0]), line(us=[9.0])])
    assert kernel.runs[0].us.tolist() == [1.5, 2, 3.25, 9, 8]
    (kernel,) = read_runs([line(gpu="A"), line(gpu="B")])
    assert len(kernel.runs) == 2, "the same number on another GPU is another process"


def test_a_process_copied_under_other_names_is_one_witness():
    us = [5.12, 5.088, 5.12, 5.184, 5.152]
    few = us[:4]
    [kernel] = read_runs([line(run=1, us=us), line(run=2, us=us), line(run=3, us=us[::-1]), line(run=4, us=few),
                          line(run=5, us=few)])
    assert [run.run for run in kernel.runs] == ["1", "3", "4", "5"], "four samples may agree by chance, five do not"
    assert kernel.notes == ["run 2 holds the samples of run 1, one by one: counted once"]


def test_samples_that_are_numbers_but_no_times_are_kept_for_the_verdict():
    (kernel,) = read_runs(['{"run": 1, "op": "k", "us": [NaN, Infinity, -1, 0, null, 1e999]}'])
    assert np.isnan(kernel.runs[0].us[[0, 4]]).all() and kernel.shape == {} and kernel.config is None


@pytest.mark.parametrize(("changes", "what"), [
    ({"us": [1, True]}, "us[1]"),
    ({"us": ["1x"]}, "us[0]"), ({"us": ["1_0"]}, "us[0]"), ({"us": {}}, "us[0]"), ({"us": [[1]]}, "us[0]"),
    ({"us": [10**400]}, "too large"), ({"op": ""}, "op:"), ({"op": 5}, "op:"), ({"op": "a" * 301}, "op:"), ({"op": "a\0"}, "op:"),
    ({"op": "a\ud800"}, "op:"), ({"shape": [[[[1]]]]}, "shape[0][0][0]: nested"), ({"shape": [float("nan")]}, "shape[0]"),
    ({"shape": {"N": float("inf")}}, "shape.N"),
    ({"shape": {f"N{at}": 1 for at in range(65)}}, "shape:"), ({"shape": {"a\n": 1}}, "names"), ({"config": "x" * 301}, "config:"),
    ({"run": True}, "run:"), ({"run": None}, "run:"), ({"run": 1.5}, "run:"), ({"gpu": 5}, "gpu:"),
    ({"environment": [1]}, "environment:"),
    ({"metrics": {"x": "y"}}, "metrics.x"), ({"metrics": {"x": True}}, "metrics.x"),
])
def test_a_line_that_is_no_run_is_refused_with_its_field(changes, what):
    error = refused(line(), line(**changes))
    assert error.line == 2 and what in error.what and error.hint


@pytest.mark.parametrize("text", ["{", "[1]", "5", "null", "nonsense", '{"us": [1' + "0" * 6000 + "]}", "[" * 100_000,
                                  '{"a":' * 50_000 + "1" + "}" * 50_000, b"\xff\xfe{"])
def test_what_is_no_json_object_is_refused(text):
    assert refused(line(), line(run=2), text).line == 3


def test_files_that_end_too_soon_are_refused_with_the_line_reached(tmp_path):
    lines = [line(run=at, us=np.random.default_rng(at).random(50).tolist()) for at in range(200)]
    path = tmp_path / "runs.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode())[:-2000])
    with pytest.raises(RunsError, match="damaged or cut short") as caught:
        read_runs(path)
    assert caught.value.line > 1 and str(path) in caught.value.where
    path.write_bytes(b"\x1f\x8b" + b"nonsense")
    with pytest.raises(RunsError):
        read_runs(path)
    path.write_text(line() + "\n" + line()[:40])
    with pytest.raises(RunsError, match="line 2"):
        read_runs(path)
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(RunsError, match=str(missing)):
            read_runs(missing)


def test_bounds(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "MOST_LINES", 5)
    assert refused(*[line(run=at) for at in range(6)]).line == 6
    monkeypatch.setattr(records, "MOST_SAMPLES", 2)
    assert "samples" in refused(line()).what
    monkeypatch.setattr(records, "MOST_SAMPLES", 10)
    monkeypatch.setattr(records, "MOST_ALL_SAMPLES", 5)
    assert refused(line(), line(run=2)).line == 2
    monkeypatch.setattr(records, "MOST_ALL_SAMPLES", 100)
    monkeypatch.setattr(records, "MOST_KERNELS", 1)
    assert "kernels" in refused(line(), line(op="b")).what
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b" " * 2**22))
    monkeypatch.setattr(lines, "MOST_BYTES", 2**21)
    monkeypatch.setattr(lines, "MOST_LINE_BYTES", 2**23)
    with pytest.raises(RunsError, match="unpacked"):
        read_runs(path)
    monkeypatch.setattr(lines, "MOST_BYTES", 2**24)
    monkeypatch.setattr(lines, "MOST_LINE_BYTES", 2**20)
    with pytest.raises(RunsError, match="a line of more than"):
        read_runs(path)


def test_clocks_that_cannot_be_read_are_not_known():
    for clocks in ("", "x", "[]", None, ["1980"], "-5, 1", "nan", "0"):
        assert read_runs([line(clocks=clocks)])[0].runs[0].sm_clock_mhz is None
    assert read_runs([line(clocks={"sm_mhz": 1800})])[0].runs[0].sm_clock_mhz == 1800
    assert read_runs([line(sm_clock_mhz=1700.5)])[0].runs[0].sm_clock_mhz == 1700.5
