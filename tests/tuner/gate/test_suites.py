"""Suites as rows and files: definitions, orders to measure, fresh runs, uploads."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiles.base.refused import Refused
from tuner.gate.suites import job_services, run_services, selectors, suite_services, upload_services
from tuner.gate.suites import selectors as run_selectors
from tuner.gate.suites.definition import DefinitionError, kernel_key, read_definition
from tuner.gate.suites.formats import definition_toml, read_toml
from tuner.models import Build, KernelRun, Suite, SuiteJob
from workers.leases import Superseded

RECORDED = Path(__file__).resolve().parents[2] / "data" / "h200" / "timing_runs.jsonl.gz"
FILE = """\
name = "guard"
device = "replay:timing_runs"
runs = 2

[rule]
floor = 0.03

[metrics]
registers = {max_increase = 0.1}

[[kernel]]
op = "matmul"
shape = {M = 4096, N = 4096, K = 4096}
config = {BM = 128, BN = 256, BK = 64, GM = 8, num_warps = 8, num_stages = 3}

[[kernel]]
op = "softmax"
shapes = [{R = 8192, C = 4096}, {R = 1024, C = 4096}]
dtypes = ["fp16", "bf16"]
config = "cache"
[kernel.rule]
target = 0.1
"""


def lines(ops: tuple[str, ...] = ("matmul",), configs: int = 1, runs: range = range(1, 6)) -> list[dict[str, Any]]:
    """Real recorded runs: of each operator the first so many configurations."""
    seen: dict[str, list[str]] = {}
    found = []
    for line in gzip.decompress(RECORDED.read_bytes()).splitlines():
        each = json.loads(line)
        mine = seen.setdefault(each["op"], [])
        if (config := json.dumps(each["config"])) not in mine:
            mine.append(config)
        if each["op"] in ops and mine.index(config) < configs and each["run"] in runs:
            found.append(each)
    return found


@pytest.fixture
def suite(db: None) -> Suite:
    return suite_services.suite_put(read_toml(FILE), text=FILE).suite


@pytest.fixture
def uploaded(db: None) -> Suite:
    return suite_services.suite_put(read_definition({"name": "ci", "kind": "uploaded"})).suite


@pytest.mark.django_db               # operators of teams are rows
class TestDefinition:
    def test_a_file_is_read_and_written_back(self) -> None:
        definition = read_toml(FILE)
        assert [kernel.key for kernel in definition.kernels] == [
            "matmul M=4096 N=4096 K=4096 bf16", "softmax R=8192 C=4096 fp16", "softmax R=8192 C=4096 bf16",
            "softmax R=1024 C=4096 fp16", "softmax R=1024 C=4096 bf16"]
        assert definition.kernels[0].config_from == "given" and definition.kernels[1].config_from == "cache"
        assert definition.kernels[4].rule == {"target": 0.1}
        assert read_toml(definition_toml(definition)) == definition

    @pytest.mark.parametrize(("change", "field", "line"), [
        (("runs = 2", "runs = true"), "runs", 3),
        (("runs = 2", "runs = 0"), "runs", 3),
        (("runs = 2", "every_hours = nan"), "every_hours", 3),
        (("floor = 0.03", "floor = -1"), "rule.floor", 6),
        (("floor = 0.03", "flor = 0.03"), "rule.flor", 6),
        (("floor = 0.03", "floor = 0.2"), "rule", 5),
        (("max_increase = 0.1", "more = 0.1"), "metrics.registers", 9),
        (('op = "matmul"', 'op = "nope"'), "kernel[0].op", 12),
        (("K = 4096}", 'K = "x"}'), "kernel[0].shape.K", 13),
        (("K = 4096}", f"K = {10**30}}}"), "kernel[0].shape.K", 13),
        (('config = "cache"', 'config = "best"'), "kernel[1].config", 20),
        (('"fp16", "bf16"', '"fp16", "fp16"'), "kernel[1]", 16),
        (('name = "guard"', 'name = "../etc"'), "name", 1),
        (("target = 0.1", "target = inf"), "kernel[1].rule.target", 22),
        (('name = "guard"', 'name = "guard"\nbuild_path = "relative/{build}"'), "build_path", 2),
    ])
    def test_a_mistake_is_named_with_its_line(self, change: tuple[str, str], field: str, line: int) -> None:
        with pytest.raises(DefinitionError) as caught:
            read_toml(FILE.replace(*change))
        assert (field, line) in [(one.field, one.line) for one in caught.value.problems]

    @pytest.mark.parametrize("data", [b"\xff\xfe", "a = [" * 3000, "name =", "x" * 300_000, f"runs = {'9' * 5000}"])
    def test_what_is_no_toml_is_refused(self, data: bytes | str) -> None:
        with pytest.raises(DefinitionError):
            read_toml(data)

    @pytest.mark.parametrize("document", [
        None, [], "x", {"name": "a", "kernel": {}}, {"name": "a", "kernel": [1]}, {"name": "a", "kernel": [{"op": []}]},
        {"name": "a", "kind": "target"}, {"name": "a", "kind": "uploaded", "every_hours": 1}, {"name": "a\0", "kind": "uploaded"},
        {"name": "a", "kind": "uploaded", "capture_slower": True}, {"name": "a", "kind": "uploaded", "capture_slower": "yes"},
        {"name": "a", "kind": "uploaded", "title": "\ud800"}, {"name": "a", "kind": "uploaded", "policy": {"warmup": 10**400}},
        {"name": "a", "kind": ["uploaded"]}, {"name": "a", "kind": "uploaded", "metrics": {"x": {"max": True}}},
        {"name": "a", "kind": "uploaded", "rule": {"alpha": 0}}, {"name": "a", "kind": "uploaded", "rule": {"beta": 0.6}},
        {"name": "a", "kind": "uploaded", "rule": {"target": 1e-200, "floor": 0}},
        {"name": "a", "kernel": [{"op": "matmul", "shapes": []}]},
        {"name": "a", "kernel": [{"op": "matmul", "shape": {"M": True, "N": 1, "K": 1}}]},
    ])
    def test_hostile_documents_are_refused_not_crashed_on(self, document: Any) -> None:
        with pytest.raises(DefinitionError):
            read_definition(document)

    def test_a_tag_tells_equal_problems_apart(self) -> None:
        kernel = {"op": "softmax", "shape": {"R": 8, "C": 8}}
        found = read_definition({"name": "a", "kernel": [kernel, {**kernel, "tag": "slow"}]})
        assert [each.key for each in found.kernels] == ["softmax R=8 C=8 fp16", "softmax R=8 C=8 fp16 slow"]


class TestSuite:
    def test_applying_a_file_twice_changes_nothing(self, suite: Suite) -> None:
        again = suite_services.suite_put(read_toml(FILE), text=FILE)
        assert not again.anything and not again.created
        assert selectors.definition_of(suite) == read_toml(FILE)

    def test_a_file_says_whether_a_slower_verdict_is_looked_into(self, suite: Suite) -> None:
        text = FILE.replace("runs = 2", "capture_slower = true\nruns = 2", 1)
        assert suite_services.suite_put(read_toml(text), text=text).fields == ["capture_slower"]
        assert definition_toml(read_toml(text)).count(
            "capture_slower = true") == 1
        assert "capture_slower" in suite_services.suite_put(read_toml(FILE), text=FILE).fields

    def test_what_a_file_no_longer_names_goes_or_is_switched_off(self, suite: Suite) -> None:
        matmul = suite.kernels.get(op="matmul")
        run_services.run_record(None, matmul, "b1", number=0, run="1", us=[1.0, 2.0])
        short = read_toml(FILE.partition("[[kernel]]")[0] + '[[kernel]]\nop = "layernorm"\nshape = {R = 64, C = 4096}\n')
        changed = suite_services.suite_put(short)
        assert changed.kernels == {"layernorm R=64 C=4096 fp16": "added", matmul.key: "switched off", **{
            key: "removed" for key in changed.kernels if key.startswith("softmax")}}
        assert suite.kernels.count() == 2 and not suite.kernels.get(op="matmul").enabled
        assert suite_services.suite_put(read_toml(FILE)).kernels[matmul.key] == "changed"

    def test_only_owners_say_where_code_lies(self, alice: Any, olga: Any) -> None:
        kernel = {"op": "softmax", "shape": {"R": 8, "C": 8}}
        definition = read_definition({"name": "a", "build_path": "/srv/{build}", "kernel": [kernel]})
        with pytest.raises(Refused) as caught:
            suite_services.suite_put(definition, owner=alice)
        assert list(caught.value.fields) == ["build_path"]
        assert suite_services.suite_put(definition, owner=olga).created

    def test_a_device_that_is_not_there_is_named(self, db: None) -> None:
        with pytest.raises(Refused) as caught:
            suite_services.suite_put(read_toml(FILE.replace("timing_runs", "nothing")))
        assert "replay:timing_runs" in caught.value.fields["device"]


class TestJob:
    def test_builds_are_interleaved_and_what_has_a_row_is_not_measured_again(self, suite: Suite) -> None:
        job = job_services.job_create(suite, builds=["a", {"build": "b"}], runs=3)
        turns = job_services.job_turns_left(job)
        assert [(turn.number, turn.build) for turn in turns] == [(0, "a"), (0, "b"), (1, "b"), (1, "a"), (2, "a"), (2, "b")]
        assert all(len(turn.kernels) == 5 for turn in turns)
        for kernel in turns[0].kernels:
            run_services.run_record(job, kernel, "a", number=0, run=job_services.run_label(job, "a", 0), us=[10.0, 11.0, 12.0])
        run_services.run_record(job, turns[0].kernels[0], "b", number=0, run="x", rejected="out of memory")
        rest = job_services.job_turns_left(job)
        assert [(turn.number, turn.build, len(turn.kernels)) for turn in rest][:2] == [(0, "b", 4), (1, "b", 5)]

    def test_a_claimed_job_is_held_until_it_is_stopped(self, suite: Suite) -> None:
        job = job_services.job_create(suite, builds=["a"])
        held = job_services.job_claim(job.pk, "w1")
        assert held is not None and job_services.job_claim(job.pk, "w2") is None and SuiteJob.leases.is_held(job.pk, "w1")
        assert job_services.job_set_session(held, "w1", environment={"driver": "580"}, recorded="recorded on X")
        assert job_services.job_stop(job) and not job_services.job_stop(job)
        assert not SuiteJob.leases.is_held(job.pk, "w1") and not job_services.job_finish(held, "w1")
        with pytest.raises(Superseded):
            run_services.run_record(held, suite.kernels.first(), "a", number=0, run="1", us=[1.0], worker="w1")
        assert SuiteJob.objects.get().status == "stopped" and not KernelRun.objects.exists()

    def test_a_lost_job_is_taken_by_the_next_worker(self, suite: Suite) -> None:
        job = job_services.job_create(suite, builds=["a"])
        job_services.job_claim(job.pk, "w1")
        SuiteJob.objects.update(heartbeat=None)
        again = job_services.job_claim(job.pk, "w2")
        assert again is not None and again.attempts == 2 and job_services.run_label(again, "a", 1) == f"job {job.pk} run 1.2"
        assert job_services.job_fail(again, "w2", "child", "it died", "see the log")
        assert SuiteJob.objects.get().error == {"where": "child", "what": "it died", "hint": "see the log"}

    @pytest.mark.parametrize(("given", "field"), [
        ({"builds": []}, "builds"), ({"builds": [""]}, "builds"), ({"builds": ["a", "a"]}, "builds"),
        ({"builds": ["a\n"]}, "builds"),
        ({"builds": ["../x"]}, "builds"), ({"builds": [{"build": 3}]}, "builds"), ({"builds": ["a"], "runs": 0}, "runs"),
        ({"builds": ["a"], "runs": True}, "runs"), ({"builds": ["a"], "kernels": ["nope"]}, "kernels"),
        ({"builds": ["a"], "kernels": []}, "kernels"), ({"builds": ["a"], "device": "tpu"}, "device"),
        ({"builds": ["a"], "reason": "x"}, "reason"),
        ({"builds": [{"build": "a", "configs": {"nope": {"x": 1}}}]}, "configs"),
        ({"builds": [{"build": "a", "configs": {"matmul M=4096 N=4096 K=4096 bf16": {"x": float("nan")}}}]}, "configs"),
        ({"builds": [{"build": "a", "configs": []}, {"build": "b", "configs": 3}]}, "configs"),
    ])
    def test_a_wrong_order_names_the_field(self, suite: Suite, given: dict[str, Any], field: str) -> None:
        with pytest.raises(Refused) as caught:
            job_services.job_create(suite, **given)
        assert list(caught.value.fields) == [field] and not SuiteJob.objects.exists() and not Build.objects.exists()

    def test_uploaded_and_switched_off_suites_are_not_measured(self, suite: Suite, uploaded: Suite) -> None:
        suite_services.suite_switch(suite, False)
        for one in (suite, uploaded):
            with pytest.raises(Refused) as caught:
                job_services.job_create(one, builds=["a"])
            assert list(caught.value.fields) == ["suite"]


class TestRuns:
    def test_percentiles_are_numpys_and_a_run_is_stored_once(self, suite: Suite) -> None:
        job, kernel, us = job_services.job_create(suite, builds=["a"]), suite.kernels.first(), [5.0, 1.0, 9.5, 2.25]
        row = run_services.run_record(job, kernel, "a", number=0, run="1", us=np.array(us), sm_clock_mhz=1980,
                                  facts={"registers": np.int64(64)})
        assert (row.p50_us, row.p95_us, row.n) == (np.percentile(us, 50), np.percentile(us, 95), 4) and row.us == us
        assert run_services.run_record(job, kernel, "a", number=0, run="other", us=[3.0]).pk == row.pk
        assert run_services.run_record(None, kernel, "a", number=7, run="1", us=[3.0]).pk == row.pk
        assert KernelRun.objects.get().facts == {"registers": 64}

    @pytest.mark.parametrize("us", [[], [float("nan")], [1.0, -2.0], [0.0], [float("inf")], [True], ["1"], [10**400], [1e12]])
    def test_what_is_no_time_is_rejected_with_its_reason(self, suite: Suite, us: list[Any]) -> None:
        row = run_services.run_record(None, suite.kernels.first(), "a", number=0, run="1", us=us)
        assert row.rejected and row.us == [] and row.p50_us is None
        assert run_selectors.runs_of(KernelRun.objects.select_related("kernel")) == []

    def test_rows_become_kernel_runs(self, uploaded: Suite) -> None:
        upload_services.runs_store(uploaded, "a", lines(("matmul", "softmax")), gpu="NVIDIA H200",
                            toolkit="cuda 13.0, triton 3.6.0", driver="580")
        found = run_selectors.runs_of(KernelRun.objects.filter(kernel__suite=uploaded, rejected="").select_related("kernel"))
        assert [(each.op, len(each.runs)) for each in found] == [("matmul", 5), ("softmax", 5)]
        first = found[0]
        assert first.key == kernel_key("matmul", {"M": 4096, "N": 4096, "K": 4096}, "") == "matmul M=4096 N=4096 K=4096"
        assert first.config == lines()[0]["config"] and first.runs[0].sm_clock_mhz == 1980.0
        assert first.runs[0].environment == "cuda 13.0, triton 3.6.0, driver 580" and first.runs[0].gpu == "NVIDIA H200"
        assert np.array_equal(first.runs[0].us, lines()[0]["us"])


class TestUpload:
    def test_the_same_file_twice_counts_once(self, uploaded: Suite) -> None:
        first = upload_services.runs_store(uploaded, "a", lines(), gpu="NVIDIA H200")
        again = upload_services.runs_store(uploaded, "a", lines(runs=range(1, 8)) + lines()[:1], gpu="NVIDIA H200")
        assert (first.stored, first.known, again.stored, again.known) == (5, 0, 2, 6)
        assert KernelRun.objects.count() == 7 and again.runs[:5] == first.runs

    def test_one_run_sent_under_several_names_counts_once_unless_all_its_samples_are_one_value(self, uploaded: Suite) -> None:
        renamed = [{**lines()[0], "run": at} for at in range(5)]
        assert upload_services.runs_store(uploaded, "a", renamed, gpu="NVIDIA H200").stored == 1
        steady = [{**each, "us": [5.024] * 20} for each in renamed]
        assert upload_services.runs_store(uploaded, "b", steady, gpu="NVIDIA H200").stored == 5
        assert upload_services.runs_store(uploaded, "b", steady, gpu="NVIDIA H200").known == 5

    def test_lines_of_one_process_are_one_run(self, uploaded: Suite) -> None:
        halves = [{**each, "us": each["us"][part::2]} for each in lines(runs=range(1, 3)) for part in (0, 1)]
        first = upload_services.runs_store(uploaded, "a", halves, gpu="NVIDIA H200")
        assert (first.stored, upload_services.runs_store(uploaded, "a", halves, gpu="NVIDIA H200").known) == (2, 2)
        assert [(run.run, run.n) for run in KernelRun.objects.order_by("pk")] == [("1", 100), ("2", 100)]

    def test_names_too_long_for_a_row_are_not_one_kernel(self, uploaded: Suite) -> None:
        shapes = [{"a": "x" * 200, "b": "y" * 190 + end} for end in "12"]
        sent = [{**each, "shape": shape} for shape in shapes for each in lines(runs=range(1, 3))]
        keys = upload_services.runs_store(uploaded, "a", sent, gpu="NVIDIA H200").kernels
        assert len(keys) == 2 and {len(key) for key in keys} == {300}
        assert upload_services.runs_store(uploaded, "a", sent, gpu="NVIDIA H200").known == 4

    def test_several_configurations_of_a_problem_are_several_kernels(self, uploaded: Suite) -> None:
        stored = upload_services.runs_store(uploaded, "a", lines(("softmax",), configs=2), gpu="NVIDIA H200")
        assert stored.kernels == [f"softmax R=8192 C=4096 STEPS={steps} PER_SM=32 num_warps=8" for steps in (3, 2)]
        assert upload_services.runs_store(uploaded, "b", lines(("softmax",)), gpu="NVIDIA H200").kernels == stored.kernels[:1]
        single = [{**each, "config": {"STEPS": 1}} for each in lines(("matmul",))]
        assert upload_services.runs_store(uploaded, "a", single, gpu="NVIDIA H200").kernels == ["matmul M=4096 N=4096 K=4096"]
        again = upload_services.runs_store(uploaded, "b", lines(("matmul",)), gpu="NVIDIA H200")
        assert again.kernels == ["matmul M=4096 N=4096 K=4096"]

    def test_a_suite_with_declared_kernels_takes_those_alone(self, suite: Suite) -> None:
        assert upload_services.runs_store(suite, "a", lines(), gpu="NVIDIA H200").kernels == ["matmul M=4096 N=4096 K=4096 bf16"]
        for ops, says in ((("layernorm",), "declares no such"), (("softmax",), "say dtype")):
            with pytest.raises(Refused, match=says):
                upload_services.runs_store(suite, "a", lines(ops), gpu="NVIDIA H200")

    def test_bad_samples_are_kept_as_rejected(self, uploaded: Suite) -> None:
        text = (b'{"run": 1, "op": "k", "us": [1.0, NaN]}\n{"run": 2, "op": "k", "us": [1.0, 2.0], "registers": 32}\n'
                b'{"run": 3, "op": "k", "us": [5e-324]}\n')
        stored = upload_services.runs_store(uploaded, "a", gzip.compress(text), gpu="NVIDIA H200")
        assert (stored.stored, stored.rejected) == (3, 2)
        assert stored.why == [f"sample {at}: times in µs are from 1e-6 to 1e9" for at in ("1 is nan", "0 is 4.94066e-324")]
        assert KernelRun.objects.get(run="2").facts == {"registers": 32}

    @pytest.mark.parametrize(("data", "says"), [
        (b"", "no runs"), (b"{}", "line 1: run"), (b'{"run": 1, "us": [1]}', "line 1: op"), (b"\n[1]", "line 2: a run"),
        (b'{"run": 1, "op": "a", "us": [1]}\n{"run": true}', "line 2: run"), (b"{" * 5000, "line 1"), (b"[" * 100_000, "line 1"),
        (b'{"run": 1, "op": "a\\u0000", "us": [1]}', "line 1: op"), (b'{"run": 1, "op": "\\ud800", "us": [1]}', "line 1: op"),
        (b'{"run": 1, "op": "a", "config": {"x": NaN}, "us": [1]}', "line 1: config.x"),
        (b'{"run": 1, "op": "a", "shape": [1], "us": [1]}', "line 1: shape"), (gzip.compress(b"{}", mtime=0)[:-6], "gzip"),
        (b'{"run": 1, "op": "a", "registers": ' + b"9" * 4400 + b', "us": [1]}', "line 1"),
        (b'{"run": 1, "op": "a", "us": [1], "facts": {"x": {"y": 1}}}', "line 1: facts.x"),
    ])
    def test_a_bad_line_is_named_and_nothing_is_stored(self, uploaded: Suite, data: bytes, says: str) -> None:
        with pytest.raises(Refused) as caught:
            upload_services.runs_store(uploaded, "a", data, gpu="NVIDIA H200")
        assert says in caught.value.fields["runs"] and not KernelRun.objects.exists()

    def test_the_gpu_must_be_said(self, uploaded: Suite) -> None:
        with pytest.raises(Refused) as caught:
            upload_services.runs_store(uploaded, "a", lines())
        assert list(caught.value.fields) == ["gpu"]
