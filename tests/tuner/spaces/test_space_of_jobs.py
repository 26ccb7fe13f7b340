"""A job with an edited space: made by page, API, command and group, searched, shown, repeated, and no other job's double."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any
from urllib.parse import urlencode

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.urls import reverse

from profiles.base.refused import Refused
from tuner.jobs import create_services, groups, worth_selectors
from tuner.models import CachedConfig, TuneJob
from tuner.tuning.trial import config_key
from webapp.problem import states
from webapp.problem.address import Problem
from workers import jobs
from workers.tune import lead

pytestmark = pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
SHAPE = {"M": 1024, "N": 1024, "K": 1024}
JOB: dict[str, Any] = {"operator": "matmul", "shape": SHAPE, "dtype": "bf16", "device": "replay:matmul", "strategy": "default",
                       "budget_trials": 40, "budget_seconds": 60}
SPACE = {"parameters": {"BM": [64], "num_warps": [4, 8]}, "constraints": ["BN * BK <= 8192"]}
KEPT = {**SPACE, "own": {"BM": [16, 32, 64, 128, 256], "num_warps": [2, 4, 8]}}
TEXT = "BM 64 (without 16, 32, 128, 256); num_warps 4, 8 (without 2); BN * BK <= 8192"


@pytest.fixture(autouse=True)
def replay_worker() -> Any:
    jobs.announce("replay@test", {"queues": ["replay"], "replay": ["matmul"], "gpus": []})
    yield
    jobs.retire("replay@test")


def run(job: TuneJob) -> TuneJob:
    lead.run(job.pk, "w1", replay_speed=0)
    job.refresh_from_db()
    return job


def make(**changes: Any) -> TuneJob:
    return create_services.tune_create(**{"owner": None, **JOB, "space": SPACE, **changes})


def fits(config: dict[str, Any]) -> bool:
    return config["BM"] == 64 and config["num_warps"] in (4, 8) and config["BN"] * config["BK"] <= 8192


def test_the_search_sees_the_edited_space_alone_and_its_winner_is_cached() -> None:
    wide = run(make(space=None, strategy="random", shape={"M": 4096, "N": 4096, "K": 4096}))
    assert wide.space is None and not all(fits(each.config) for each in wide.trials.all())
    job = run(make())
    assert (job.status, job.error, job.space) == ("done", None, KEPT)
    assert job.trials.count() == 40 and all(fits(trial.config) for trial in job.trials.all())
    assert job.valid_size == 602 - job.pruned["values taken out"] - job.pruned["BN * BK <= 8192"] and job.space_size == 720
    # the default lies outside: no trial, yet measured with the finalists, as what the winner is compared with
    default = next(each for each in job.finalists if each["default"])
    assert not fits(default["config"]) and job.finalists[0]["config"] == job.best_config and fits(job.best_config)
    assert job.default_ms == default["median_ms"] and not job.trials.filter(config_key=config_key(default["config"])).exists()
    entry = CachedConfig.objects.get(job=job)
    assert (entry.state, entry.evidence["space"], entry.default_ms) == ("verified", KEPT, job.default_ms)
    assert entry.config == job.best_config and entry.evidence["guard"]["verdict"] == "faster"


def test_a_default_that_is_faster_than_all_of_the_space_does_not_win_and_is_what_is_served() -> None:
    job = run(make(space={"parameters": {"BM": [16], "BN": [32]}}, effort="full", budget_trials=None, budget_seconds=None))
    assert job.best_config["BM"] == 16 and job.best_ms > job.default_ms
    entry = CachedConfig.objects.get(job=job)
    assert entry.config["BM"] == 128 and entry.median_ms == job.default_ms and entry.evidence["guard"]["verdict"] == "slower"


def test_a_space_that_the_worker_cannot_search_ends_the_job_with_the_reason() -> None:
    job = make()
    TuneJob.objects.filter(pk=job.pk).update(space={"parameters": {"BM": [512]}, "constraints": []})
    run(job)
    assert job.status == "failed" and job.error["what"] == (
        "the edited space: parameters.BM: 512: only these were recorded; it has 16, 32, 64, 128, 256")


def test_the_api_takes_it_and_names_what_is_wrong(api: Any, alice: Any) -> None:
    url, client = reverse("api-tune-list"), api(alice)
    made = client.post(url, {**JOB, "space": SPACE}, format="json")
    assert made.status_code == 201 and made.json()["space"] == KEPT
    assert client.get(reverse("api-tune", args=[made.json()["id"]])).json()["space"] == KEPT
    wrong = {"parameters": {"BM": [48], "XX": [1]}, "constraints": ["BM >", "BN > 1"]}
    fields = client.post(url, {**JOB, "space": wrong}, format="json").json()["fields"]
    assert set(fields) == {"space.parameters.BM", "space.parameters.XX", "space.constraints[0]"}
    for change, words in (({"space": {"constraints": ["BM > 999"]}}, "nothing of it can run"), ({"space": [1]}, "an object of"),
                          ({"space": SPACE, "only": [{"BM": 64}]}, "searches no space")):
        assert words in client.post(url, {**JOB, **change}, format="json").json()["fields"]["space"][0]
    own = client.post(url, {**JOB, "space": {"parameters": {"num_warps": [8, 4, 2]}}}, format="json")
    assert own.json()["space"] is None and TuneJob.objects.count() == 2


def test_the_count_follows_an_edit_and_makes_nothing(api: Any, alice: Any, bob: Any) -> None:
    url, asked = reverse("api-tune-space"), {name: JOB[name] for name in ("operator", "shape", "dtype", "device")}
    told = api(alice).post(url, asked, format="json").json()
    assert (told["size"], told["valid"], told["whole"], told["text"], told["gpu"]) == (720, 602, True, "", "NVIDIA H200")
    assert told["parameters"][0] == {"name": "BM", "values": [16, 32, 64, 128, 256]} and told["fixed"] == "only these were recorded"
    edited = api(alice).post(url, {**asked, "space": SPACE}, format="json").json()
    assert edited["text"] == TEXT and edited["has_default"] is False and 0 < edited["valid"] < 602
    assert {"reason": "BN * BK <= 8192", "yours": True}.items() <= next(e for e in edited["left_out"] if e["yours"]).items()
    wrong = api(alice).post(url, {**asked, "space": {"parameters": {"BM": [1]}}}, format="json").json()
    assert wrong["valid"] is None and "parameters.BM" in wrong["fields"] and wrong["parameters"]
    gpu = api(alice).post(url, {**asked, "device": "gpu:NVIDIA A100-SXM4-80GB"}, format="json").json()
    assert gpu["gpu"] == "NVIDIA A100-SXM4-80GB" and {"TMA: from compute capability 9.0"} <= {e["reason"] for e in gpu["left_out"]}
    for change, field in (({"shape": {"M": 1}}, "N"), ({"dtype": "fp64"}, "dtype"), ({"operator": "conv"}, "operator"),
                          ({"device": "replay:none"}, "device"), ({"space": 3}, "space")):
        answer = api(alice).post(url, {**asked, "device": "gpu", **change}, format="json")
        assert answer.status_code == 400 and field in answer.json()["fields"], change
    assert api(bob).post(url, asked, format="json").status_code == 403 and not TuneJob.objects.exists()


def test_the_form_carries_it_keeps_what_was_wrong_and_repeats_it(client: Any, alice: Any) -> None:
    client.force_login(alice)
    shape = " ".join(f"{name}={value}" for name, value in SHAPE.items())
    form = {"operator": "matmul", "shape": shape, "dtype": "bf16", "device": "replay:matmul", "strategy": "local",
            "effort": "quick"}
    wrong = client.post(reverse("tune-new"), {**form, "space": json.dumps({"parameters": {"BM": [48]}})})
    assert wrong.status_code == 400 and b"parameters.BM: 48: only these were recorded" in wrong.content and b"[48]" in wrong.content
    for text, words in (("{", b"this is no JSON"), ("[" * 5000, b"this is no JSON"), ("3", b"must be an object")):
        assert words in client.post(reverse("tune-new"), {**form, "space": text}).content
    checked = client.post(reverse("api-tune-check"), {"form": urlencode({**form, "space": '{"constraints": ["BM >"]}'})},
                          content_type="application/json")
    assert list(checked.json()["fields"]) == ["space"] and checked.json()["fields"]["space"].startswith("constraints[0]: ")
    assert client.post(reverse("tune-new"), {**form, "space": json.dumps(SPACE)}).status_code == 302
    job = TuneJob.objects.get()
    assert job.space == KEPT
    page = client.get(reverse("tune", args=[job.pk])).content.decode()
    assert "space edited:" in page and "BM 64 (without 16, 32, 128, 256)" in page
    create_services.TuneJob.objects.filter(pk=job.pk).update(status="done")
    page = client.get(reverse("tune", args=[job.pk])).content.decode()
    assert f"space_of={job.pk}" in page
    asked = {"space_of": job.pk, "operator": "matmul", "device": "replay:matmul", **SHAPE}
    again = client.get(reverse("tune-new"), asked).content.decode()
    assert "&quot;BM&quot;: [64]" in again and client.get(reverse("tune-new"), {"space_of": "x"}).status_code == 200


def test_several_shapes_are_each_searched_in_it_and_bounded(client: Any, alice: Any) -> None:
    shapes = [{"operator": "matmul", "shape": dict(SHAPE), "dtype": "bf16"},
              {"operator": "matmul", "shape": {"M": 16, "N": 4096, "K": 4096}, "dtype": "bf16"}]
    budget = {"device": "replay:matmul", "strategy": "random", "effort": "quick"}
    group = groups.group_create(owner=alice, name="two", shapes=shapes, space={"parameters": {"BM": [16]}}, **budget)
    assert {job.space["parameters"]["BM"][0] for job in group.jobs.all()} == {16}
    with pytest.raises(Refused) as caught:
        groups.group_create(owner=alice, name="two", shapes=[*shapes[:1], {**shapes[1], "space": {"constraints": ["?"]}}], **budget)
    assert list(caught.value.fields) == ["shapes[1].space.constraints[0]"]
    with pytest.raises(Refused, match="at most 20 shapes"):
        groups.group_create(owner=alice, name="many", shapes=shapes * 11, space=SPACE, **budget)


def test_the_command_takes_values_and_constraints() -> None:
    out = StringIO()
    new = ("tune", "new", "matmul", *(f"{name}={value}" for name, value in SHAPE.items()), "--device", "replay:matmul")
    call_command(*new, "--values", "BM=64", "--values", "num_warps=4,8", "--constraint", "BN * BK <= 8192", "--json", stdout=out)
    assert json.loads(out.getvalue())["space"] == KEPT
    with pytest.raises(CommandError, match=r"space.parameters.BM: 65: only these were recorded"):
        call_command(*new, "--values", "BM=65")
    with pytest.raises(CommandError, match="write values like BM=64,128"):
        call_command(*new, "--values", "BM")


def test_the_command_and_the_api_add_values_to_an_operator_of_ours(api: Any, alice: Any) -> None:
    out = StringIO()
    new = ("tune", "new", "matmul", "M=4096", "N=4096", "K=4096", "--device", "gpu")
    call_command(*new, "--values", "BM=128,512", "--values", "num_warps=8,16", "--constraint", "BN <= 128", "--json", stdout=out)
    space = json.loads(out.getvalue())["space"]
    assert space["parameters"] == {"BM": [128, 512], "num_warps": [8, 16]} and space["own"]["num_warps"] == [2, 4, 8]
    with pytest.raises(CommandError, match=r"space.parameters.num_warps: 12: its kernels are not written for that value"):
        call_command(*new, "--values", "num_warps=12")
    with pytest.raises(CommandError, match="nothing of it can run"):
        call_command(*new, "--values", "BM=65536")
    asked = {"operator": "matmul", "shape": {"M": 4096, "N": 4096, "K": 4096}, "dtype": "bf16", "device": "gpu"}
    client, tall, unknown = api(alice), {"parameters": {"BM": [65536]}}, {"parameters": {"KERNEL": ["fastest"]}}
    answer = client.post(reverse("api-tune-space"), {**asked, "space": tall}, format="json").json()
    assert answer["valid"] == 0 and "accumulator registers" in {each["reason"] for each in answer["left_out"]}
    fields = client.post(reverse("api-tune-list"), {**asked, "space": unknown}, format="json").json()
    assert "not written for that value" in fields["fields"]["space.parameters.KERNEL"][0]


def test_an_edited_search_speaks_for_no_other(client: Any, alice: Any) -> None:
    problem = Problem("matmul", "bf16", SHAPE, "NVIDIA H200")
    edited = run(make(strategy="random"))
    assert worth_selectors.finished_jobs("matmul") == [] and states.tuned(problem).done == edited
    whole = run(make(space=None))
    later = run(make(strategy="random"))
    assert worth_selectors.finished_jobs("matmul") == [whole] and states.tuned(problem).done == whole
    assert [job.pk for job in states.tuned(problem).jobs] == [later.pk, whole.pk, edited.pk]
    client.force_login(alice)
    page = client.get(reverse("tune-compare"), {"a": whole.pk, "b": later.pk}).content.decode()
    assert "the operator&#x27;s own" in page and "BM 64 (without" in page
