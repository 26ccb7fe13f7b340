"""Uploads in parts: the same names of runs are the same processes, unless a shard or another attempt of the pipeline is said."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from profiles.base.refused import Refused
from tests.tuner.gate.test_levels import H200, at, gate, runs
from tuner.gate.client import ci_attempt, gate_request, make_parser
from tuner.gate.pytest_plugin import as_lines
from tuner.gate.suites.processes import expected_kernels, missing_shards, read_upload
from tuner.gate.suites.upload_services import runs_store
from tuner.gate.verdicts import selectors, services
from tuner.models import Gate, KernelRun, Suite

LEVELS = {"softmax": 40.0, "matmul": 90.0, "add": 12.0}


@pytest.fixture
def suite() -> Suite:
    return Suite.objects.create(name="nightly", kind=Suite.Kind.UPLOADED, device="")


def names(build: str, op: str = "softmax") -> list[str]:
    return sorted(KernelRun.objects.filter(build__name=build, kernel__op=op).values_list("run", flat=True))


@pytest.mark.django_db
def test_the_same_names_are_the_same_processes_and_the_first_samples_count(suite: Suite) -> None:
    runs_store(suite, "b", runs({"softmax": 40.0}, 1), **H200)
    again = runs_store(suite, "b", runs({"softmax": 30.0}, 2), **H200)
    assert (again.stored, again.known, again.repeated) == (0, 0, 5) and names("b") == ["0", "1", "2", "3", "4"]
    assert min(KernelRun.objects.values_list("p50_us", flat=True)) > 35
    other = runs_store(suite, "b", runs({"matmul": 90.0}, 3), **H200)
    assert other.stored == 5 and names("b", "matmul") == names("b"), "another kernel of the same processes"
    elsewhere = runs_store(suite, "b", runs({"softmax": 20.0}, 4), **{**H200, "gpu": "NVIDIA B200"})
    assert elsewhere.stored == 5, "no process runs on two models at once"


@pytest.mark.django_db
def test_a_shard_and_another_attempt_are_other_processes(suite: Suite) -> None:
    runs_store(suite, "b", runs({"softmax": 40.0}, 1, count=2), shard="1/2", **H200)
    second = runs_store(suite, "b", runs({"softmax": 40.0}, 2, count=2), shard="shard 2 of 2", **H200)
    assert (second.stored, second.repeated) == (2, 0)
    assert names("b") == ["0 of shard 1/2", "0 of shard 2/2", "1 of shard 1/2", "1 of shard 2/2"]
    for seed, attempt, stored in ((3, "17.1", 2), (4, "17.2", 2), (5, "17.2", 0), (3, "17.3", 0)):   # the last sends samples again
        assert runs_store(suite, "c", runs({"softmax": 40.0}, seed, count=2), attempt=attempt, **H200).stored == stored
    assert names("c") == ["0", "0#2", "1", "1#2"]


@pytest.mark.parametrize(("shard", "says"), [("0/2", "i/n"), ("3/2", "i/n"), ("1", "i/n"), ("1/2/3", "i/n"), ("-1/2", "i/n"),
                                             ("1/1000", "i/n"), ("a of b", "i/n")])
def test_a_shard_that_is_none_is_refused(shard: str, says: str) -> None:
    with pytest.raises(Refused) as caught:
        read_upload(shard, "")
    assert says in caught.value.fields["shard"]


def test_shards_that_are_missing_are_those_of_the_newest_number() -> None:
    assert missing_shards(["", ""]) == ([], 0)
    assert missing_shards(["2/3", "", "1/3", "1/4"]) == ([3], 3)
    assert missing_shards(["1/1"]) == ([], 1)


def test_shards_of_kernels_are_asked_for_their_own_and_shards_of_processes_for_all() -> None:
    assert expected_kernels([("1/2", 1), ("1/2", 2), ("2/2", 3)]) == {"1/2": {1, 2}, "2/2": {3}}
    assert expected_kernels([("1/2", 1), ("1/2", 2), ("2/2", 1), ("2/2", 2), ("1/2", 3)]) == {"1/2": {1, 2, 3}, "2/2": {1, 2, 3}}


@pytest.mark.django_db
def test_a_gate_waits_for_all_shards_and_each_is_asked_for_its_own_kernels(suite: Suite) -> None:
    gate(suite, 0, LEVELS)
    gate(suite, 1, LEVELS)

    def part(number: str, ops: tuple[str, ...]) -> Gate:
        lines = [each for each in runs(LEVELS, 2) if each["op"] in ops]
        return services.create_gate(suite, "b2", at=at(2), environment=H200, records=lines, shard=number)

    first = part("1/2", ("softmax", "matmul"))
    assert (first.status, first.verdict) == ("waiting", "")
    document = selectors.gate_document(Gate.objects.get(pk=first.pk))
    assert document["exit_code"] is None and document["progress"]["says"] == document["reason"] == "waits for shard 2 of 2"
    with pytest.raises(Refused):
        services.create_gate(suite, "b2", at=at(2), environment=H200, shard="1/2")
    second = part("2/2", ("add",))
    first.refresh_from_db()
    assert (second.verdict, second.status) == ("PASS", "done")
    assert first.verdict == "PASS" and not first.reason.startswith("waits"), "who asked first is answered too"


@pytest.mark.django_db
def test_a_process_of_a_shard_that_leaves_a_kernel_out_is_said(suite: Suite) -> None:
    gate(suite, 0, LEVELS)
    gate(suite, 1, LEVELS)
    whole = runs(LEVELS, 2, count=3)
    less = [each for each in runs(LEVELS, 3, count=3) if each["op"] != "add"]
    runs_store(suite, "b2", whole, shard="1/2", **H200)
    found = services.create_gate(suite, "b2", at=at(2), environment=H200, records=less, shard="2/2")
    assert found.verdict == "AMBIGUOUS"
    assert "3 of 6 processes have no line of it (the first: 0 of shard 2/2)" in found.kernels.get(kernel__op="add").reason


@pytest.mark.django_db
def test_a_gate_says_that_processes_were_there_already(suite: Suite) -> None:
    for hour in range(2):
        gate(suite, hour, LEVELS)
    gate(suite, 2, LEVELS)
    again = services.create_gate(suite, "b2", at=at(2), environment=H200, records=runs(LEVELS, 9))
    assert again.verdict == "PASS" and any(note.startswith("15 runs that came are of processes that are there already")
                                           for note in again.report["notes"])
    more = services.create_gate(suite, "b2", at=at(2), environment=H200, records=runs(LEVELS, 9), attempt="8.2")
    assert not any("there already" in note for note in more.report["notes"]) and len(names("b2")) == 10


@pytest.mark.django_db
def test_the_page_and_the_api_take_a_shard(suite: Suite, client: Any, alice: Any) -> None:
    client.force_login(alice)
    lines = as_lines(runs({"softmax": 40.0}, 1, count=2))
    for number, seed in (("1/2", 1), ("1/2", 2)):
        file = SimpleUploadedFile("runs.jsonl", as_lines(runs({"softmax": 40.0}, seed, count=2)))
        answer = client.post(reverse("suite-upload", args=[suite.pk]), {"file": file, "build": "b", "gpu": "NVIDIA H200",
                                                                        "shard": number}, follow=True)
    assert "2 runs that came are of processes that are there already" in answer.content.decode()
    query = {"suite": "nightly", "build": "b", "gpu": "NVIDIA H200", "shard": "2/2"}
    told = client.post(reverse("api-runs"), lines, content_type="application/x-ndjson", query_params=query)
    assert told.status_code == 201 and told.json()["known"] == 2, "sample for sample the first shard's"
    told = client.post(reverse("api-runs"), as_lines(runs({"softmax": 40.0}, 3, count=2)), content_type="application/x-ndjson",
                       query_params=query)
    assert (told.json()["stored"], told.json()["repeated"]) == (2, 0)
    wrong = client.post(reverse("api-runs"), lines, content_type="application/x-ndjson", query_params={**query, "shard": "5/2"})
    assert wrong.status_code == 400 and "i/n" in str(wrong.json())


@pytest.mark.parametrize(("env", "attempt"), [
    ({"GITHUB_RUN_ID": "871", "GITHUB_RUN_ATTEMPT": "2", "GITHUB_JOB": "gate"}, "871.2"),
    ({"CI_JOB_ID": "55", "CI_PIPELINE_ID": "4"}, "55"),
    ({"BUILDKITE_JOB_ID": "0190-a", "BUILDKITE_RETRY_COUNT": "1"}, "0190-a"), ({"CIRCLE_WORKFLOW_JOB_ID": "c1"}, "c1"),
    ({"CIRCLE_BUILD_NUM": "9"}, "9"), ({"BUILD_BUILDID": "7", "SYSTEM_STAGEATTEMPT": "1", "SYSTEM_JOBATTEMPT": "3"}, "7.1.3"),
    ({"DRONE_BUILD_NUMBER": "12", "DRONE_STAGE_NUMBER": "1"}, "12.1"),
    ({"BITBUCKET_BUILD_NUMBER": "31", "BITBUCKET_STEP_RUN_NUMBER": "2"}, "31.2"),
    ({"BUILD_TAG": "jenkins-" + "x" * 200 + "-8"}, "x" * 118 + "-8"), ({}, "")])
def test_an_attempt_is_told_by_the_pipelines_variables(env: dict[str, str], attempt: str) -> None:
    assert ci_attempt(env) == attempt


def test_the_client_sends_shard_and_attempt_with_its_runs(tmp_path: Any, monkeypatch: Any) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_bytes(as_lines(runs({"softmax": 40.0}, 1, count=1)))
    monkeypatch.setenv("CI_JOB_ID", "55")
    monkeypatch.delenv("GITHUB_RUN_ID", raising=False)
    command = ["--suite", "s", "--build", "b", "--branch", "x"]
    asked = gate_request(make_parser().parse_args([*command, "--runs", str(file), "--shard", "2/4"]))
    assert (asked["shard"], asked["attempt"]) == ("2/4", "55")
    assert "attempt" not in gate_request(make_parser().parse_args(command))
