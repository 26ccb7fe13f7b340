"""Results of benchmark programs become runs that the gate judges."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.core.management import call_command

from profiles.base.refused import Refused
from tests.product import PROJECT, clean_env
from tuner.gate.benchmarks import runs_of

PYTEST = {"machine_info": {}, "version": "5.2.0", "benchmarks": [
    {"name": "test_sum[1000]", "fullname": "test_x.py::test_sum[1000]", "params": {"n": 1000}, "group": None,
     "stats": {"median": 1.1e-5, "rounds": 3, "iterations": 1, "data": [1.0e-5, 1.1e-5, 1.2e-5]}}]}
GOOGLE = {"context": {"num_cpus": 2}, "benchmarks": [
    {"name": "BM_copy/1024/threads:4", "run_name": "BM_copy/1024/threads:4", "run_type": "iteration", "repetition_index": 0,
     "iterations": 10, "real_time": 2.5, "cpu_time": 1.0, "time_unit": "ms"},
    {"name": "BM_copy/1024/threads:4", "run_name": "BM_copy/1024/threads:4", "run_type": "iteration", "repetition_index": 1,
     "iterations": 10, "real_time": 2.6, "cpu_time": 1.0, "time_unit": "ms"},
    {"name": "BM_copy/1024/threads:4_mean", "run_name": "BM_copy/1024/threads:4", "run_type": "aggregate",
     "aggregate_name": "mean", "real_time": 2.55, "time_unit": "ms"},
    {"name": "BM_broken", "run_type": "iteration", "error_occurred": True, "error_message": "no device"}]}
TRITON = "N,Triton (ms),Torch (ms)\n1024.0,0.5,0.25\n2048.0,1.0,\n"


def nvbench(folder: Path, samples: Any, **state: Any) -> Path:
    (folder / "result.json-bin").mkdir(exist_ok=True)
    np.asarray(samples, "<f4").tofile(folder / "result.json-bin" / "0.bin")
    summary = {"tag": "nv/json/bin:nv/cold/sample_times", "data": [
        {"name": "filename", "type": "string", "value": "result.json-bin/0.bin"},
        {"name": "size", "type": "int64", "value": str(len(samples))}]}
    return write(folder, {"devices": [{"id": 0, "name": "NVIDIA H200"}], "benchmarks": [{"name": "copy", "states": [
        {"name": "Device=0 Size=2^20", "device": 0, "is_skipped": False, "summaries": [summary],
         "axis_values": [{"name": "Size", "type": "int64", "value": "1048576"}], **state}]}]})


def write(folder: Path, content: Any) -> Path:
    path = folder / "result.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_rounds_of_pytest_benchmark(tmp_path: Path) -> None:
    assert runs_of(write(tmp_path, PYTEST), "1") == [{
        "run": "1", "op": "test_x.py::test_sum", "shape": {"n": 1000}, "config": None, "us": pytest.approx([10.0, 11.0, 12.0])}]


def test_repetitions_of_google_benchmark(tmp_path: Path) -> None:
    copy, broken = runs_of(write(tmp_path, GOOGLE), "1")
    assert (copy["op"], copy["shape"], copy["us"]) == ("BM_copy", {"0": 1024, "threads": 4}, [2500.0, 2600.0])
    assert (broken["us"], broken["error"]) == (None, "no device")


def test_samples_of_nvbench(tmp_path: Path) -> None:
    run, = runs_of(nvbench(tmp_path, [1e-3, 2e-3]), "1")
    assert (run["op"], run["shape"], run["gpu"]) == ("copy", {"Size": 1048576}, "NVIDIA H200")
    assert run["us"] == pytest.approx([1000, 2000], rel=1e-6)
    many, = runs_of(nvbench(tmp_path, np.linspace(1, 2, 250_001)), "1")
    assert len(many["us"]) == 83_334 and many["us"][0] == 1e6 and many["us"][-1] == pytest.approx(2e6, rel=1e-4)
    skipped, = runs_of(nvbench(tmp_path, [1.0], is_skipped=True, skip_reason="too large", axis_values=None, summaries=None), "1")
    assert (skipped["us"], skipped["error"], skipped["shape"]) == (None, "too large", {})


def test_numbers_of_triton(tmp_path: Path) -> None:
    runs = runs_of(write(tmp_path, TRITON), "1")
    assert [(run["op"], run["shape"], run["us"]) for run in runs] == [
        ("Triton", {"N": 1024}, [500.0]), ("Torch", {"N": 1024}, [250.0]), ("Triton", {"N": 2048}, [1000.0])]
    rates = write(tmp_path, TRITON.replace("(ms)", "(GB/s)"))
    with pytest.raises(Refused, match="'GB/s' is no unit of time"):
        runs_of(rates, "1")
    assert runs_of(write(tmp_path, TRITON.replace("(ms)", "(time)")), "1", "us")[0]["us"] == [0.5]


@pytest.mark.parametrize(("name", "kernels"), [
    ("pytest_benchmark.json", {("test_x.py::test_sum", 1000, 8), ("test_x.py::test_sum", 2000, 8)}),
    ("google_benchmark.json", {("sum_range", 1000, 5), ("sum_range", 2000, 5), ("broken", None, 0)}),
    ("triton_report.csv", {("Triton", 1024, 1), ("Torch", 1024, 1), ("Triton", 2048, 1), ("Torch", 2048, 1)})])
def test_files_as_the_programs_write_them(name: str, kernels: set[tuple[str, int | None, int]]) -> None:
    runs = runs_of(PROJECT / "tests" / "data" / "benchmarks" / name, "1")
    assert {(run["op"], next(iter(run["shape"].values()), None), len(run["us"] or ())) for run in runs} == kernels
    assert all(1 < value < 10_000 for run in runs for value in run["us"] or ())         # µs


def without_data() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(PYTEST))
    del document["benchmarks"][0]["stats"]["data"]
    return document


@pytest.mark.parametrize(("content", "said"), [
    (without_data(), "has no samples"), ({}, "results of none of pytest-benchmark"), ("", "results of none of"),
    ("[" * 100_000, "results of none of"), ({"machine_info": 1, "benchmarks": 3}, "benchmarks is no list"),
    ({"machine_info": 1, "benchmarks": [None]}, "fullname is no str"), ({"machine_info": 1, "benchmarks": []}, "no result in it"),
    ({"context": {}, "benchmarks": [{"name": "a", "real_time": "x"}]}, "real_time is no float"),
    ({"context": {}, "benchmarks": [{"name": "a", "real_time": 1, "time_unit": "h"}]}, "is none of ns, us, ms, s"),
    ({"devices": [], "benchmarks": [{"name": "a", "states": [{"summaries": []}]}]}, "has no samples"),
    ({"devices": [], "benchmarks": [{"name": "a", "states": [3]}]}, "not as that program writes it"),
    ("a,b (ms)\n1\n", "line 2 has 1 columns"), ("a,b (ms)\n1,x\n", "'x' is no number")])
def test_what_is_wrong_is_named(tmp_path: Path, content: Any, said: str) -> None:
    with pytest.raises(Refused, match=said):
        runs_of(write(tmp_path, content), "1")


@pytest.mark.parametrize("name", ["/etc/hostname", "../../x", "result.json-bin/../../x", "other/0.bin", ""])
def test_samples_are_read_beside_the_file_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / "x").write_bytes(bytes(4))
    folder = tmp_path / "inside"
    folder.mkdir()
    path = nvbench(folder, [1.0])
    path.write_text(path.read_text().replace("result.json-bin/0.bin", name))
    with pytest.raises(Refused, match="are not beside the file"):
        runs_of(path, "1")


@pytest.mark.process
def test_the_gate_judges_what_the_command_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(7)

    for build, median in (("before", 1.0e-3), ("after", 1.2e-3)):
        files = []
        for process in range(6):
            document = json.loads(json.dumps(PYTEST))
            document["benchmarks"][0]["stats"]["data"] = list(median * (1 + 0.002 * rng.standard_normal(100)))
            files.append(tmp_path / f"{build}-{process}.json")
            files[-1].write_text(json.dumps(document))
        call_command("runs", *map(str, files), "--out", str(tmp_path / f"{build}.jsonl"))
        assert "6 runs of 1 kernels from 6 files" in capsys.readouterr().err
    with pytest.raises(SystemExit) as judged:
        call_command("gate", "--baseline", str(tmp_path / "before.jsonl"), "--candidate", str(tmp_path / "after.jsonl"))
    assert judged.value.code == 1 and capsys.readouterr().out.startswith("SLOWER")
    refused = subprocess.run([sys.executable, str(PROJECT / "manage.py"), "runs", str(tmp_path / "none.json")],
                             capture_output=True, text=True, timeout=120, env=clean_env(tmp_path / "home"))
    assert refused.returncode == 3 and "No such file" in refused.stderr
    assert not (tmp_path / "home").exists()
