"""The JSON API of profiles with tokens, as scripts and CI use it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from profiles.models import Profile
from profiles.topics.services import topic_make
from profiles.topics.table import topic_of
from profiles.upload.services import profile_ingest
from tests.profiles.pages.test_services import TINY, create, recording, upload

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tmp_store", "sign_in_mode")]
DATA = Path(__file__).parents[2] / "data"
URL = "/api/profiles/"


def sent(content: Any = TINY, name: str = "t.json") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content if isinstance(content, bytes) else json.dumps(content).encode())


def ready(file: str = "", **fields: Any) -> Profile:
    profile = recording(file, **fields) if file else create(upload(), **fields)
    return profile_ingest(profile.pk, "test")


def test_upload_with_a_token_answers_201_with_the_profile(api, alice):
    answer = api(alice).post(URL, {"file": sent(), "build": "4f2c1e", "tags": "a, b", "model": "m", "notes": "n"})
    assert answer.status_code == 201, answer.json()
    body = answer.json()
    assert (body["status"], body["build"], body["tags"], body["owner"]) == ("uploaded", "4f2c1e", ["a", "b"], "alice")
    row = Profile.objects.get(pk=body["id"])
    assert row.owner == alice and row.upload_bytes == body["upload_bytes"]
    assert body["links"]["self"].endswith(f"/api/profiles/{row.pk}/")


def test_a_log_without_times_ends_when_its_file_was_written(api, alice):
    """dcgmi states no time: who sends the file says when it was last written, in any zone, and reading it again keeps that."""
    log = b"#Entity   SMACT   POWER\nID\nGPU 0  0.9  600.5\nGPU 0  0.7  500.0\n"
    answer = api(alice).post(URL, {"file": sent(log, "gpus.txt"), "written": "2026-11-29T23:10:05+01:00"})
    pk = answer.json()["id"]
    for _ in range(2):
        profile_ingest(pk, "test")
        metadata = api(alice).get(f"{URL}{pk}/").json()["metadata"]
        assert metadata["clock"] == "not stated; the file was last written 2026-11-29 22:10:05 UTC, no row is later"
        Profile.objects.filter(pk=pk).update(status="uploaded", worker="")
    several = api(alice).post(URL, {"file": [sent(log, "a.txt"), sent(log, "b.txt")], "written": "2026-11-29T23:10:05Z"})
    assert [each["metadata"] for each in several.json()["profiles"]] == [{}, {}], "one time is not that of several files"
    refused = api(alice).post(URL, {"file": sent(log, "gpus.txt"), "written": "yesterday"})
    assert refused.status_code == 400 and "written" in refused.content.decode()


def test_several_files_are_several_profiles_and_one_bad_one_spoils_nothing(api, alice):
    answer = api(alice).post(URL, {"file": [sent(name="a.json"), sent(b"", "empty.json"), sent(name="b.json")]})
    assert answer.status_code == 201
    assert [each["name"] for each in answer.json()["profiles"]] == ["a.json", "b.json"]
    error, = answer.json()["errors"]
    assert error["file"] == "empty.json" and "empty" in error["error"] and error["hint"]


def test_a_request_that_is_sent_again_finds_the_profile_that_it_made(api, alice, olga):
    key = {"HTTP_IDEMPOTENCY_KEY": "4f0a"}
    first = api(alice).post(URL, {"file": sent(), "build": "1"}, **key).json()["id"]
    again = api(alice).post(URL, {"file": sent(), "build": "1"}, **key)
    assert (again.status_code, again.json()["id"], Profile.objects.count()) == (201, first, 1)
    assert api(olga).post(URL, {"file": sent()}, **key).json()["id"] != first, "a key is of one account"
    assert api(alice).post(URL, {"file": sent()}, HTTP_IDEMPOTENCY_KEY="other").json()["id"] != first
    taken = api(alice).post(URL, {"file": sent(name="u.json")}, **key)
    assert taken.status_code == 409 and f"profile {first}" in taken.json()["error"]
    assert api(alice).post(URL, {"file": sent()}, HTTP_IDEMPOTENCY_KEY="k" * 81).status_code == 400

    made = [api(alice).post(URL, {"file": [sent(name="a.json"), sent(name="b.json")]},
                            HTTP_IDEMPOTENCY_KEY="two").json()["profiles"]
            for _ in range(2)]
    assert [row["id"] for row in made[0]] == [row["id"] for row in made[1]]
    together = [api(alice).post(URL, {"file": [sent(name="r0.json"), sent(name="r1.json")], "together": "1"},
                                HTTP_IDEMPOTENCY_KEY="job").json()["id"] for _ in range(2)]
    assert together[0] == together[1]


@pytest.mark.parametrize("data", [{}, {"file": ""}, {"file": b""}])
def test_nothing_or_an_empty_file_is_400_with_where_and_hint(api, alice, data):
    given = {"file": sent(b"")} if data.get("file") == b"" else data
    answer = api(alice).post(URL, given)
    assert answer.status_code == 400 and set(answer.json()) == {"error", "where", "hint"}
    assert not Profile.objects.exists()


def test_too_large_is_refused(api, alice, settings):
    settings.UPLOAD_MAX_BYTES = 50
    answer = api(alice).post(URL, {"file": sent()})
    assert answer.status_code == 400 and "at most 50" in answer.json()["error"]


def test_who_may_what(api, alice, bob, olga):
    assert api().post(URL, {"file": sent()}).status_code in (401, 403)
    assert api().get(URL).status_code in (401, 403)
    assert api(bob).post(URL, {"file": sent()}).status_code == 403
    profile = ready()
    assert api(bob).get(f"{URL}{profile.pk}/").status_code == 200
    assert api(bob).patch(f"{URL}{profile.pk}/", {"notes": "x"}, format="json").status_code == 403
    assert api(bob).delete(f"{URL}{profile.pk}/").status_code == 403
    assert api(alice).patch(f"{URL}{profile.pk}/", {"notes": "x"}, format="json").json()["notes"] == "x"
    assert api(olga).delete(f"{URL}{profile.pk}/").status_code == 204
    assert not Profile.objects.exists()


def test_a_token_that_may_only_read_cannot_upload(api, alice):
    assert api(alice, scope="read").post(URL, {"file": sent()}).status_code == 403


def test_one_profile_with_everything(api, bob):
    profile = ready("kineto_train.json.gz", build="b1")
    topic_make(profile, topic_of("causes"))
    body = api(bob).get(f"{URL}{profile.pk}/").json()
    assert body["launches"] == 948 and body["integrity"]["records_read"] == 10_949
    device, = body["summary"]["devices"]
    assert device["compute_ns"] + device["communication_ns"] + device["memory_ns"] + device["idle_ns"] == device["wall_ns"]
    assert body["busy_pct"] == pytest.approx(100 * device["busy_ns"] / device["wall_ns"])
    assert body["findings"][0]["rule"] == "cause_host_launch" and body["findings"][0]["numbers"]["leads"] == 1
    assert body["duplicates"] == [] and body["progress"] is None


def test_the_same_bytes_again_are_taken_and_said(api, alice):
    first = api(alice).post(URL, {"file": sent()}).json()
    second = api(alice).post(URL, {"file": sent(name="again.json")}).json()
    assert second["duplicates"] == [first["id"]] and second["sha256"] == first["sha256"]


def test_failed_profile_says_why(api, bob):
    profile = profile_ingest(create(upload(content=b"nonsense")).pk, "test")
    error = api(bob).get(f"{URL}{profile.pk}/").json()["error"]
    assert error["where"] and error["what"] and error["hint"]


def test_list_filters_orders_and_pages(api, bob):
    for number in range(3):
        create(upload(), build=f"b{number}", model="m" if number else "", tags=[f"t{number}"], name=f"run {number}")
    client = api(bob)
    assert client.get(URL, {"build": "b1"}).json()["count"] == 1
    assert client.get(URL, {"tag": "t2"}).json()["results"][0]["name"] == "run 2"
    assert client.get(URL, {"model": "m"}).json()["count"] == 2
    assert client.get(URL, {"q": "RUN 0"}).json()["count"] == 1
    assert client.get(URL, {"status": "ready"}).json()["count"] == 0
    page = client.get(URL, {"limit": 2, "order": "name"}).json()
    assert [each["name"] for each in page["results"]] == ["run 0", "run 1"] and "offset=2" in page["next"]
    assert client.get(URL, {"order": "no; drop table", "unknown": "x"}).json()["count"] == 3


def test_tables_as_files(api, bob):
    profile = ready("kineto_train.json.gz")
    answer = api(bob).get(f"{URL}{profile.pk}/kernels/", {"as": "csv"})
    assert answer["Content-Type"].startswith("text/csv") and "attachment" in answer["Content-Disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert sum(int(row["total_ns"]) for row in rows) == 10_876_979
    assert len(api(bob).get(f"{URL}{profile.pk}/kernels/", {"as": "json"}).json()) == len(rows)
    assert api(bob).get(f"{URL}{profile.pk}/kernels/").json()["kernels"][0]["launches"] == 32
    assert len(list(csv.reader(io.StringIO(api(bob).get(URL, {"as": "csv"}).content.decode())))) == 2


def test_names_from_files_are_no_formulas_in_a_spreadsheet(api, bob):
    events = [{**TINY["traceEvents"][0], "name": "=HYPERLINK(1)"}]
    profile = profile_ingest(create(upload(content={**TINY, "traceEvents": events})).pk, "test")
    content = api(bob).get(f"{URL}{profile.pk}/kernels/", {"as": "csv"}).content.decode()
    assert "'=HYPERLINK(1)" in content and "\n=" not in content and '"=' not in content


def test_compare_builds(api, bob):
    ready("buildA.ncu-rep.zst", build="A")
    ready("buildB.ncu-rep.zst", build="B")
    body = api(bob).get("/api/compare/", {"build_a": "A", "build_b": "B"}).json()
    assert body["verdicts"] == {
        "slower": 3, "faster": 1, "unchanged": 1, "unknown": 0, "other_work": 0, "new": 0, "gone": 0}
    assert body["comparable"] and body["kind"] == "counters" and body["per"] == "total"
    for row in body["rows"]:
        assert row["delta_ns"] == pytest.approx(row["from_launches_ns"] + row["from_duration_ns"])
    large = next(row for row in body["rows"] if row["old"]["grid"] == [512, 1, 1])
    rate = next(each for each in large["counters"] if each["name"] == "Compute rate")
    assert rate["old"] == pytest.approx(2 * 4096**3 / 184_768e-9, rel=0.01) and rate["new"] < rate["old"] / 2
    table = list(csv.DictReader(io.StringIO(api(bob).get(
        "/api/compare/", {"build_a": "A", "build_b": "B", "as": "csv"}).content.decode())))
    assert len(table) == 5 and {row["verdict"] for row in table} == {"slower", "faster", "unchanged"}


def test_compare_of_other_gpus_says_so_and_of_unequal_steps_is_per_step(api, bob):
    a, b = ready("kineto_layer.json.gz"), ready("kineto_layer_stack.json.gz")
    body = api(bob).get("/api/compare/", {"a": a.pk, "b": b.pk}).json()
    assert body["per"] == "step" and "per step" in body["notes"][0]           # 4 steps and 2
    Profile.objects.filter(pk=b.pk).update(gpu="NVIDIA A100")
    assert api(bob).get("/api/compare/", {"a": a.pk, "b": b.pk}).json()["comparable"] is False


@pytest.mark.parametrize("query", [{}, {"a": "1"}, {"a": "x", "b": "y"}, {"a": "999999", "b": "999999"},
                                   {"build_a": "no", "build_b": "such"}, {"a": "9" * 40, "b": "1"}])
def test_compare_of_nothing_is_400_with_a_hint(api, bob, query):
    answer = api(bob).get("/api/compare/", query)
    assert answer.status_code == 400 and answer.json()["hint"]


def test_the_schema_names_these_routes(api, bob):
    answer = api(bob).get("/api/schema/?format=json")
    assert answer.status_code == 200
    paths = answer.json()["paths"]
    assert {"get", "post"} <= set(paths["/api/profiles/"]) and "/api/compare/" in paths


def test_files_sent_together_are_one_profile(api, alice):
    ranks = [sent(name="rank0.json"), sent(name="rank1.json")]
    answer = api(alice).post(URL, {"file": ranks, "together": "true", "build": "4f2c1e"})
    assert answer.status_code == 201, answer.json()
    assert [each["name"] for each in answer.json()["metadata"]["files"]] == ["rank0.json", "rank1.json"]
    assert Profile.objects.get().build == "4f2c1e"


def straggler(rank: int, name: str) -> SimpleUploadedFile:
    return sent((DATA / "ranks" / f"straggler_even_rank{rank}.json.gz").read_bytes(), name)


def refused(client: Any) -> Profile:
    twice = [straggler(0, "one.json.gz"), straggler(0, "two.json.gz")]
    answer = client.post(URL, {"file": twice, "together": "true", "tags": "ci"})
    return profile_ingest(answer.json()["id"], "test")


def test_files_of_different_jobs_become_profiles_of_their_own_and_the_refused_one_goes(api, alice):
    profile = refused(api(alice))
    assert profile.status == Profile.Status.FAILED and profile.error["kind"] == "different jobs"
    assert profile.error["what"].startswith("not a rank of the same job: it is rank 0, as one.json.gz is: two runs, or two")
    answer = api(alice).post(f"{URL}{profile.pk}/apart/")
    assert answer.status_code == 201
    assert [each["name"] for each in answer.json()["profiles"]] == ["one.json.gz", "two.json.gz"]
    rows = list(Profile.objects.order_by("pk"))
    assert [row.name for row in rows] == ["one.json.gz", "two.json.gz"] and {row.owner for row in rows} == {alice}
    assert all(row.tags == ["ci"] for row in rows)
    assert profile_ingest(rows[1].pk, "test").status == Profile.Status.READY
    assert api(alice).post(f"{URL}{profile.pk}/apart/").status_code == 404


def test_only_what_was_refused_as_ranks_is_taken_apart(api, alice, bob):
    profile = ready()
    answer = api(alice).post(f"{URL}{profile.pk}/apart/")
    assert answer.status_code == 400 and "were not refused" in answer.json()["error"]
    assert api(bob).post(f"{URL}{profile.pk}/apart/").status_code == 403 and Profile.objects.get() == profile


def test_a_page_takes_apart_as_well(client, alice):
    client.force_login(alice)
    profile = refused(client)
    assert b"Load as profiles of their own" in client.get(f"/profiles/{profile.pk}/").content
    assert client.post(f"/profiles/{profile.pk}/apart/").url == "/profiles/"
    assert sorted(Profile.objects.values_list("name", flat=True)) == ["one.json.gz", "two.json.gz"]


@pytest.mark.parametrize("files, names, name", [
    (("a.json.gz", "b.json.gz"), {}, "2 ranks, nccl"), (("pre_rank0.json.gz", "pre_rank1.json.gz"), {}, "pre"),
    (("a.json.gz", "b.json.gz"), {"name": "mine"}, "mine")])
def test_a_job_whose_files_share_no_name_is_called_what_they_state(api, alice, files, names, name):
    ranks = [straggler(rank, each) for rank, each in enumerate(files)]
    answer = api(alice).post(URL, {"file": ranks, "together": "true", **names})
    assert profile_ingest(answer.json()["id"], "test").name == name


def test_names_are_asked_before_anything_is_sent(api, alice, bob):
    asked = {"files": ["train_rank0.json.gz", "train_rank1.json.gz"]}
    assert api(alice).post(f"{URL}names/", asked, format="json").json() == {"ranks": True, "job": "train"}
    assert api(alice).post(f"{URL}names/", {"files": ["a.json"]}, format="json").json() == {"ranks": False, "job": ""}
    assert api(alice).post(f"{URL}names/", {"files": ["a"] * 1001}, format="json").status_code == 400
    assert api(bob).post(f"{URL}names/", asked, format="json").status_code == 403
