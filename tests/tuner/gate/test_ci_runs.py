"""Uploads in parts: the same names of runs are the same processes, unless a shard or another attempt of the pipeline is said.

Which branch a pipeline runs for, by the variables as each CI documents them; and what a checkout says of its history.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from profiles.base.refused import Refused
from tests.tuner.gate.builds.test_levels import H200, at, gate, runs
from tuner.gate import pytest_plugin
from tuner.gate.client import (
    BRANCH_VARIABLES,
    SHA_VARIABLES,
    ci_attempt,
    ci_branch,
    gate_request,
    git_branch,
    git_history,
    make_parser,
)
from tuner.gate.pytest_plugin import as_lines
from tuner.gate.suites.records import expected_kernels, missing_shards, read_upload
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


GITHUB = {"GITHUB_ACTIONS": "true", "GITHUB_REPOSITORY": "acme/kernels"}
PULL = {**GITHUB, "GITHUB_EVENT_NAME": "pull_request", "GITHUB_REF": "refs/pull/12/merge", "GITHUB_REF_NAME": "12/merge"}
GITLAB = {"GITLAB_CI": "true", "CI_PROJECT_PATH": "acme/kernels", "CI_DEFAULT_BRANCH": "main"}
MERGE = {**GITLAB, "CI_PIPELINE_SOURCE": "merge_request_event", "CI_MERGE_REQUEST_IID": "7",
         "CI_MERGE_REQUEST_PROJECT_PATH": "acme/kernels"}
JENKINS = {"JENKINS_URL": "https://ci.example/"}
BUILDKITE = {"BUILDKITE": "true", "BUILDKITE_REPO": "git@github.com:acme/kernels.git", "BUILDKITE_PULL_REQUEST": "false"}
CIRCLE = {"CIRCLECI": "true", "CIRCLE_PROJECT_USERNAME": "acme"}
AZURE = {"TF_BUILD": "True", "BUILD_REASON": "IndividualCI"}
DRONE = {"DRONE": "true", "DRONE_REPO": "acme/kernels"}
BITBUCKET = {"BITBUCKET_BUILD_NUMBER": "31", "BITBUCKET_REPO_FULL_NAME": "acme/kernels"}


@pytest.mark.parametrize(("env", "branch"), [
    ({**GITHUB, "GITHUB_EVENT_NAME": "push", "GITHUB_REF": "refs/heads/main", "GITHUB_REF_NAME": "main"}, "main"),
    ({**GITHUB, "GITHUB_EVENT_NAME": "push", "GITHUB_REF": "refs/heads/main", "GITHUB_RUN_ATTEMPT": "3"}, "main"),
    ({**GITHUB, "GITHUB_EVENT_NAME": "workflow_dispatch", "GITHUB_REF": "refs/heads/tune/rope"}, "tune/rope"),
    ({**GITHUB, "GITHUB_EVENT_NAME": "push", "GITHUB_REF": "refs/tags/v1.2", "GITHUB_REF_TYPE": "tag"}, "tags/v1.2"),
    ({**GITHUB, "GITHUB_EVENT_NAME": "merge_group", "GITHUB_REF": "refs/heads/gh-readonly-queue/main/pr-12-4f2c"},
     "gh-readonly-queue/main/pr-12-4f2c"),
    ({**PULL, "GITHUB_HEAD_REF": "main", "GITHUB_BASE_REF": "main"}, "pull/12/main"),                 # the payload is not there
    ({**GITHUB, "GITHUB_REPOSITORY": "eve/kernels", "GITHUB_EVENT_NAME": "push", "GITHUB_REF": "refs/heads/main",
      "RIDGEPOINT_REPOSITORY": "acme/kernels"}, "eve:main"),                                           # a fork's own pipeline
    ({**GITLAB, "CI_PIPELINE_SOURCE": "push", "CI_COMMIT_BRANCH": "main", "CI_COMMIT_REF_NAME": "main"}, "main"),
    ({**GITLAB, "CI_PIPELINE_SOURCE": "web", "CI_COMMIT_BRANCH": "rope", "CI_COMMIT_REF_NAME": "rope"}, "rope"),
    ({**GITLAB, "CI_PIPELINE_SOURCE": "push", "CI_COMMIT_TAG": "v1.2", "CI_COMMIT_REF_NAME": "v1.2"}, "tags/v1.2"),
    ({**MERGE, "CI_MERGE_REQUEST_SOURCE_PROJECT_PATH": "acme/kernels", "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME": "rope"}, "rope"),
    ({**MERGE, "CI_MERGE_REQUEST_SOURCE_PROJECT_PATH": "eve/kernels", "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME": "main"},
     "pull/7/main"),
    ({**MERGE, "CI_MERGE_REQUEST_EVENT_TYPE": "merge_train", "CI_MERGE_REQUEST_SOURCE_PROJECT_PATH": "acme/kernels",
      "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME": "main"}, "pull/7/main"),
    ({**JENKINS, "GIT_BRANCH": "origin/main"}, "main"), ({**JENKINS, "BRANCH_NAME": "main", "GIT_BRANCH": "main"}, "main"),
    ({**JENKINS, "GIT_BRANCH": "refs/remotes/upstream/main"}, "main"),
    ({**JENKINS, "GIT_BRANCH": "origin/tune/rope"}, "tune/rope"), ({**JENKINS, "TAG_NAME": "v1", "BRANCH_NAME": "v1"}, "tags/v1"),
    ({**JENKINS, "BRANCH_NAME": "PR-12", "CHANGE_ID": "12", "CHANGE_BRANCH": "main", "CHANGE_TARGET": "main", "CHANGE_FORK": "eve"},
     "pull/12/main"),
    ({**JENKINS, "BRANCH_NAME": "PR-12", "CHANGE_ID": "12", "CHANGE_BRANCH": "rope", "CHANGE_TARGET": "main"}, "rope"),
    ({**BUILDKITE, "BUILDKITE_BRANCH": "main"}, "main"),
    ({**BUILDKITE, "BUILDKITE_BRANCH": "v1", "BUILDKITE_TAG": "v1"}, "tags/v1"),
    ({**BUILDKITE, "BUILDKITE_BRANCH": "eve:main", "BUILDKITE_PULL_REQUEST": "12",
      "BUILDKITE_PULL_REQUEST_REPO": "https://github.com/eve/kernels.git"}, "pull/12/main"),
    ({**BUILDKITE, "BUILDKITE_BRANCH": "rope", "BUILDKITE_PULL_REQUEST": "12",
      "BUILDKITE_PULL_REQUEST_REPO": "https://github.com/acme/kernels.git"}, "rope"),
    ({**CIRCLE, "CIRCLE_BRANCH": "main"}, "main"), ({**CIRCLE, "CIRCLE_TAG": "v1"}, "tags/v1"),
    ({**CIRCLE, "CIRCLE_BRANCH": "pull/12", "CIRCLE_PR_NUMBER": "12", "CIRCLE_PR_USERNAME": "eve"}, "pull/12"),
    ({**AZURE, "BUILD_SOURCEBRANCH": "refs/heads/main"}, "main"), ({**AZURE, "BUILD_SOURCEBRANCH": "refs/tags/v1"}, "tags/v1"),
    ({**AZURE, "BUILD_REASON": "PullRequest", "BUILD_SOURCEBRANCH": "refs/pull/12/merge", "SYSTEM_PULLREQUEST_ISFORK": "True",
      "SYSTEM_PULLREQUEST_PULLREQUESTNUMBER": "12", "SYSTEM_PULLREQUEST_SOURCEBRANCH": "refs/heads/main"}, "pull/12/main"),
    ({**DRONE, "DRONE_BUILD_EVENT": "push", "DRONE_BRANCH": "main"}, "main"),
    ({**DRONE, "DRONE_BUILD_EVENT": "pull_request", "DRONE_BRANCH": "main", "DRONE_PULL_REQUEST": "12",
      "DRONE_SOURCE_BRANCH": "main"}, "pull/12/main"),
    ({**DRONE, "DRONE_BUILD_EVENT": "tag", "DRONE_TAG": "v1", "DRONE_BRANCH": "main"}, "tags/v1"),
    ({**BITBUCKET, "BITBUCKET_BRANCH": "main"}, "main"), ({**BITBUCKET, "BITBUCKET_TAG": "v1"}, "tags/v1"),
    ({**BITBUCKET, "BITBUCKET_BRANCH": "rope", "BITBUCKET_PR_ID": "12", "BITBUCKET_PR_DESTINATION_BRANCH": "main"}, "rope"),
    # the pull request's target is what these call the branch, and a fork's own main is "main" to its own pipeline
    ({**GITHUB, "GITHUB_EVENT_NAME": "pull_request_target", "GITHUB_REF": "refs/heads/main", "GITHUB_HEAD_REF": "rope"},
     "pull/rope"),
    ({**GITLAB, "CI_PIPELINE_SOURCE": "external_pull_request_event", "CI_EXTERNAL_PULL_REQUEST_IID": "4",
      "CI_COMMIT_BRANCH": "main", "CI_EXTERNAL_PULL_REQUEST_SOURCE_BRANCH_NAME": "main"}, "pull/4/main"),
    ({**MERGE, "CI_PIPELINE_SOURCE": "parent_pipeline", "CI_MERGE_REQUEST_SOURCE_PROJECT_PATH": "eve/kernels",
      "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME": "main"}, "pull/7/main"),
    ({**JENKINS, "GIT_BRANCH": "detached"}, ""), ({**JENKINS, "GIT_BRANCH": "refs/remotes/origin/main"}, "main"),
    ({**JENKINS, "GIT_BRANCH": "origin/main", "gitlabMergeRequestIid": "9", "gitlabSourceBranch": "main",
      "gitlabSourceNamespace": "eve", "gitlabTargetNamespace": "acme"}, "pull/9/main"),
    ({**JENKINS, "GIT_BRANCH": "origin/main", "ghprbPullId": "9", "ghprbSourceBranch": "rope", "ghprbGhRepository": "acme/kernels",
      "ghprbAuthorRepoGitUrl": "https://github.com/acme/kernels.git"}, "rope"),
    ({**JENKINS, "GIT_BRANCH": "origin/main", "ghprbPullId": "9", "ghprbSourceBranch": "rope", "ghprbGhRepository": "acme/kernels",
      "ghprbAuthorRepoGitUrl": "https://github.com/eve/kernels.git"}, "pull/9/rope"),
    ({**JENKINS, "GIT_BRANCH": "origin/main", "GERRIT_CHANGE_NUMBER": "77", "GERRIT_EVENT_TYPE": "patchset-created"}, "pull/77"),
    ({**JENKINS, "GIT_BRANCH": "origin/main", "GERRIT_CHANGE_NUMBER": "77", "GERRIT_EVENT_TYPE": "change-merged"}, "main"),
    ({**CIRCLE, "CIRCLE_BRANCH": "main", "CIRCLE_PROJECT_USERNAME": "eve", "CIRCLE_PROJECT_REPONAME": "kernels",
      "RIDGEPOINT_REPOSITORY": "acme/kernels"}, "eve:main"),
    ({**AZURE, "BUILD_SOURCEBRANCH": "refs/heads/main", "BUILD_REPOSITORY_NAME": "eve/kernels",
      "RIDGEPOINT_REPOSITORY": "acme/kernels"}, "eve:main"),
    ({**DRONE, "DRONE_BRANCH": "main", "DRONE_REPO": "eve/kernels", "RIDGEPOINT_REPOSITORY": "acme/kernels"}, "eve:main"),
    ({**BUILDKITE, "BUILDKITE_BRANCH": "main", "RIDGEPOINT_REPOSITORY": "Acme/kernels"}, "main"),
    ({"CI": "woodpecker", "CI_COMMIT_PULL_REQUEST": "8", "CI_COMMIT_SOURCE_BRANCH": "main", "CI_COMMIT_BRANCH": "main"},
     "pull/8/main"),
    ({"CI": "woodpecker", "CI_COMMIT_BRANCH": "rope"}, "rope"), ({"CI": "true"}, ""),
    ({"TRAVIS": "true", "TRAVIS_BRANCH": "main", "TRAVIS_PULL_REQUEST": "5", "TRAVIS_PULL_REQUEST_BRANCH": "main",
      "TRAVIS_PULL_REQUEST_SLUG": "eve/kernels", "TRAVIS_REPO_SLUG": "acme/kernels"}, "pull/5/main"),
    ({"TRAVIS": "true", "TRAVIS_BRANCH": "main", "TRAVIS_PULL_REQUEST": "false"}, "main"),
    ({"APPVEYOR": "True", "APPVEYOR_REPO_BRANCH": "main", "APPVEYOR_PULL_REQUEST_NUMBER": "5", "APPVEYOR_REPO_NAME": "acme/kernels",
      "APPVEYOR_PULL_REQUEST_HEAD_REPO_NAME": "acme/kernels", "APPVEYOR_PULL_REQUEST_HEAD_REPO_BRANCH": "rope"}, "rope"),
    ({"SEMAPHORE": "true", "SEMAPHORE_GIT_BRANCH": "main", "SEMAPHORE_GIT_PR_NUMBER": "5", "SEMAPHORE_GIT_PR_BRANCH": "main",
      "SEMAPHORE_GIT_PR_SLUG": "eve/kernels", "SEMAPHORE_GIT_REPO_SLUG": "acme/kernels"}, "pull/5/main"),
    ({"CIRRUS_CI": "true", "CIRRUS_BRANCH": "pull/5", "CIRRUS_PR": "5"}, "pull/5"),
    ({"CODEBUILD_BUILD_ID": "k:1", "CODEBUILD_WEBHOOK_TRIGGER": "pr/5", "CODEBUILD_WEBHOOK_HEAD_REF": "refs/heads/main"},
     "pull/5/main"),
    ({"CODEBUILD_BUILD_ID": "k:1", "CODEBUILD_WEBHOOK_TRIGGER": "branch/main"}, "main"),
    ({"CODEBUILD_BUILD_ID": "k:1", "CODEBUILD_WEBHOOK_TRIGGER": "tag/v1"}, "tags/v1"), ({}, ""),
])
def test_only_the_base_repositorys_own_main_is_the_main_line(env: dict[str, str], branch: str) -> None:
    assert ci_branch(env) == branch


@pytest.mark.parametrize(("head", "source", "branch"), [
    ("eve/kernels", "main", "pull/12/main"), ("eve/kernels", "rope", "pull/12/rope"), ("acme/kernels", "rope", "rope")])
def test_githubs_payload_says_whose_branch_it_is(tmp_path: Path, head: str, source: str, branch: str) -> None:
    payload = tmp_path / "event.json"
    payload.write_text(json.dumps({"number": 12, "pull_request": {
        "head": {"ref": source, "repo": {"full_name": head}}, "base": {"ref": "main", "repo": {"full_name": "acme/kernels"}}}}))
    assert ci_branch({**PULL, "GITHUB_HEAD_REF": source, "GITHUB_EVENT_PATH": str(payload)}) == branch


RUN = {"event": "pull_request", "head_branch": "main", "pull_requests": []}


@pytest.mark.parametrize(("kind", "payload", "branch"), [
    ("workflow_run", {"workflow_run": {**RUN, "head_repository": {"full_name": "eve/kernels"}}}, "eve:main"),
    ("workflow_run", {"workflow_run": {**RUN, "head_repository": {"full_name": "acme/kernels"}}}, "pull/main"),
    ("workflow_run", {"workflow_run": {**RUN, "event": "push", "head_repository": {"full_name": "acme/kernels"}}}, "main"),
    ("workflow_run", {"workflow_run": {**RUN, "head_repository": None}}, "fork:main"),
    ("issue_comment", {"issue": {"number": 12, "pull_request": {"url": "https://x"}}}, "pull/12"),
    ("issue_comment", {"issue": {"number": 12}}, "main"), ("schedule", {}, "main"),
    ("pull_request_review", {"pull_request": {"number": 12, "head": {"ref": "rope", "repo": {"full_name": "acme/kernels"}},
                                              "base": {"repo": {"full_name": "acme/kernels"}}}}, "rope"),
    ("pull_request_target", {"number": 12, "pull_request": {"head": {"ref": "main", "repo": None}, "base": []}}, "pull/12/main")])
def test_events_that_run_on_the_bases_main_for_somebody_elses_branch(tmp_path: Path, kind: str, payload: Any, branch: str) -> None:
    file = tmp_path / "event.json"
    file.write_text(json.dumps({"repository": {"full_name": "acme/kernels"}, **payload}))
    on_main = {**GITHUB, "GITHUB_EVENT_NAME": kind, "GITHUB_REF": "refs/heads/main"}
    assert ci_branch({**on_main, "GITHUB_EVENT_PATH": str(file)}) == branch


@pytest.mark.git
def test_a_checkout_says_its_history(tmp_path: Path, monkeypatch: Any) -> None:
    def git(*arguments: str, **env: str) -> str:
        who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main"]
        told = subprocess.run(["git", *who, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True,
                              env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **env})
        return told.stdout.strip()

    git("init", "-q")
    shas = []
    for number in range(3):
        git("commit", "-q", "--allow-empty", "-m", str(number), GIT_COMMITTER_DATE=f"2026-05-0{number + 1}T12:00:00+00:00")
        shas.append(git("rev-parse", "HEAD"))
    monkeypatch.chdir(tmp_path)
    for name in BRANCH_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert git_history(shas[2]) == {"ancestors": [shas[1], shas[0]], "at": "2026-05-03T12:00:00Z"}
    assert git_branch(shas[2]) == "main"
    assert git_history(shas[1]) == {} and git_branch("nightly-3") == "", "of another commit the checkout says nothing"
    asked = gate_request(make_parser().parse_args(["--suite", "s", "--build", shas[2]]))
    assert (asked["branch"], asked["ancestors"], asked["at"]) == ("main", [shas[1], shas[0]], "2026-05-03T12:00:00Z")
    git("checkout", "-q", "--detach")
    assert git_branch(shas[2]) == "", "nobody knows"
    git("update-ref", "refs/remotes/upstream/main", shas[2])
    git("symbolic-ref", "refs/remotes/upstream/HEAD", "refs/remotes/upstream/main")
    assert git_branch(shas[2]) == "main", "whatever the remote is called"


def test_the_plugin_knows_the_same_cis_commits() -> None:
    assert pytest_plugin.COMMITS == SHA_VARIABLES
