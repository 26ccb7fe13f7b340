"""`manage.py tune`: the same services as the pages, one JSON document or one line a row."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tuner.jobs import worker_services
from tuner.models import TuneJob
from tuner.tuning.trial import Reason, Rejected
from workers import jobs

pytestmark = pytest.mark.django_db
REPLAY = ("--device", "replay:matmul", "--strategy", "random")
SHAPE = ("M=1024", "N=1024", "K=1024")


@pytest.fixture(autouse=True)
def empty_queues() -> None:
    jobs.connection().flushdb()


def said(*arguments: Any) -> str:
    out = StringIO()
    call_command("tune", *map(str, arguments), stdout=out)
    return out.getvalue()


def told(*arguments: Any) -> Any:
    return json.loads(said(*arguments, "--json"))


def test_a_job_from_its_start_to_its_extension() -> None:
    job = told("new", "matmul", *SHAPE, *REPLAY, "--effort", "quick")
    assert (job["status"], job["budget_trials"], job["plateau"], job["dtype"]) == ("queued", 30, 15, "bf16")
    pk = job["id"]
    assert told("pause", pk)["status"] == "paused" and told("wait", pk)["status"] == "paused"
    assert told("resume", pk)["status"] == "queued"
    assert told("extend", pk, "--trials", 30)["budget_seconds"] == 180
    assert "M=1024 N=1024 K=1024  —" in said("show", pk)
    assert told("stop", pk)["status"] == "stopped" and [row["id"] for row in told("list", "--status", "stopped")] == [pk]


def test_the_queue_and_its_order() -> None:
    first, second = (told("new", "matmul", *SHAPE, *REPLAY)["id"] for _ in range(2))
    assert [row["id"] for row in told("queue")] == [first, second]
    assert [row["id"] for row in told("move", second, "--before", first)] == [second, first]


def test_a_group_of_typed_shapes() -> None:
    shapes = ["matmul:bf16:M=1024,N=1024,K=1024", "matmul:bf16:M=16,N=4096,K=4096"]
    group = told("group", "two of a model", *REPLAY, "--effort", "quick", *shapes)     # options may stand anywhere
    assert [job["shape"]["M"] for job in group["jobs"]] == [1024, 16] and TuneJob.objects.filter(group=group["id"]).count() == 2


def test_the_quarantine_is_listed_and_lifted() -> None:
    job = TuneJob.objects.get(pk=told("new", "matmul", *SHAPE, *REPLAY)["id"])
    worker_services.tune_claim(job.pk, "w")
    from tuner.jobs import quarantine

    quarantine.quarantine_config(job, Rejected(Reason.CRASH, "boom"), {"BLOCK": 1}, "9.0")
    row = told("quarantine")[0]
    assert row["lifted"] is None and "crash    in force" in said("quarantine")
    assert told("lift", row["id"])["lifted"]


@pytest.mark.parametrize(("arguments", "problem"), [
    (("new", "conv", "M=1"), "operator: choose one of matmul"), (("new", "matmul", "M=x"), "M=x: write a dimension like M=4096"),
    (("new", "matmul", *SHAPE, *REPLAY, "--trials", "0"), "budget_trials: must be between 1 and 100,000"),
    (("stop", "99"), "TuneJob matching query does not exist"), (("group", "g", "matmul"), "write a shape like matmul:bf16:M=4096"),
    (("group", "g"), "give 1 to 200 shapes"), (("group", "g", "--profile", "99"), "Profile matching query does not exist"),
])
def test_what_is_wrong_is_named(arguments: tuple[str, ...], problem: str) -> None:
    with pytest.raises(CommandError, match=problem.replace("(", "\\(")):
        said(*arguments)
