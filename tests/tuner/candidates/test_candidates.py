"""Candidates as rows: who may submit, how many a day, what is refused, the review, the API, the pages and the command."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from profiles.base.refused import Refused
from tests.tuner.candidates.files import CHANGED, DIFF, KERNEL, LAUNCH, OWN, SHAPE
from tuner.candidates import selectors, services
from tuner.candidates.services import Submitter
from tuner.models import Candidate, CandidatePermit
from webapp.models import AuditEntry
from workers import jobs
from workers.row_kinds import ROW_KINDS

pytestmark = pytest.mark.django_db
BODY = {"operator": "softmax", "shape": SHAPE, "dtype": "fp16", "text": KERNEL, "note": "exp2 in place of exp"}
ROWS = [{"name": "candidate", "median_us": 40.0, "low_us": 39.9, "high_us": 40.2, "n": 50, "min_us": 39.5, "p90_us": 41.0},
        {"name": "default", "median_us": 50.0, "low_us": 49.9, "high_us": 50.2, "n": 50, "min_us": 49.5, "p90_us": 51.0,
         "ratio": 0.8, "low": 0.79, "high": 0.81, "confidence": 0.9, "verdict": "FASTER", "says": "−20.0 %"}]
CHECK = {"seed": 3, "right": True, "message": "", "relative_error": 2e-4, "worst_error": 3e-4, "changed": [], "late": ""}
ANSWER = {"rows": ROWS, "against": "default", "checks": [CHECK, CHECK], "again": CHECK, "replaced": [],
          "repeats": {"launches": 3, "differing": 7}, "loaded": {"form": "kernel", "names": ["softmax_row"]},
          "streams": {"launches": 80, "event_ms": 4.0, "left_ms": 0.01, "own_left_ms": 0.01, "late": False},
          "compiled": {"gpu": "sm_90", "registers": 28, "spills": 0, "smem_bytes": 16, "occupancy_pct": 100.0, "kernels": 1},
          "counters": {"why": "ncu is not on this worker"}, "own": {"default": {"STEPS": 2}}}


def permit(operator: str = "softmax", **more: Any) -> CandidatePermit:
    made = services.permit_set(operator, True, by=None, **more)
    assert made is not None
    return made


def submit(person: Any, **more: Any) -> Candidate:
    return services.candidate_create(Submitter(person), **{**BODY, **more})


def judged(person: Any, **fields: Any) -> Candidate:
    candidate = submit(person)
    Candidate.objects.filter(pk=candidate.pk).update(**{
        "status": "done", "verdict": "FASTER", "reason": "−20.0 % beside the default configuration", "answer": ANSWER,
        "gpu": "NVIDIA H200", **fields})
    candidate.refresh_from_db()
    return candidate


# who may, and how much


def test_nothing_runs_where_no_owner_allowed_it(alice: Any, api: Callable[..., Any]) -> None:
    with pytest.raises(Refused, match="an owner allows them"):
        submit(alice)
    answered = api(alice).post("/api/candidates/", BODY, format="json")
    assert answered.status_code == 403 and "softmax may not run" in json.dumps(answered.json()) and not Candidate.objects.exists()
    permit("matmul")
    with pytest.raises(Refused):
        submit(alice)


def test_engineers_submit_owners_allow_and_review_viewers_look(api: Any, olga: Any, alice: Any, bob: Any) -> None:
    allow = {"operator": "softmax", "allowed": True, "per_day": 5, "seconds": 60}
    for person in (alice, bob):
        assert api(person).post("/api/candidates/permits/", allow, format="json").status_code == 403
    assert api(olga).post("/api/candidates/permits/", allow, format="json").json()["permit"]["seconds"] == 60
    assert api(bob).post("/api/candidates/", BODY, format="json").status_code == 403
    assert api(alice, "read").post("/api/candidates/", BODY, format="json").status_code == 403
    made = api(alice).post("/api/candidates/", BODY, format="json")
    assert made.status_code == 201 and made.json()["status"] == "waiting" and "Waits for a GPU worker" in made.json()["waits"]
    pk = made.json()["id"]
    assert (made.json()["seconds"], made.json()["by"], made.json()["token"]) == (60, "alice", "test")
    for person, status in ((bob, 403), (alice, 403), (olga, 400)):       # of what was not measured nothing can be said
        assert api(person).post(f"/api/candidates/{pk}/review/", {"decision": "accepted"}, format="json").status_code == status
    assert api(bob).post(f"/api/candidates/{pk}/cancel/").status_code == 403
    assert api(bob).get(f"/api/candidates/{pk}/?text=1").json()["text"] == KERNEL
    assert api(alice).post(f"/api/candidates/{pk}/cancel/").json()["status"] == "cancelled"
    forbid = {"operator": "softmax", "allowed": False}
    assert api(olga).post("/api/candidates/permits/", forbid, format="json").json() == {"permit": None}
    assert api(alice).post("/api/candidates/", BODY, format="json").status_code == 403
    lines = list(AuditEntry.objects.filter(kind="candidate permit").order_by("id"))
    assert [(line.action, line.actor_name) for line in lines] == [("made", "olga"), ("deleted", "olga")]


def test_a_day_has_so_many_for_each_token_and_for_a_person_on_the_page(api: Any, alice: Any) -> None:
    permit(per_day=2)
    one, other = api(alice), api(alice)
    for _ in range(2):
        assert one.post("/api/candidates/", BODY, format="json").status_code == 201
    told = one.post("/api/candidates/", BODY, format="json")
    assert told.status_code == 403 and "2 of the 2 candidates of softmax" in json.dumps(told.json())
    assert other.post("/api/candidates/", BODY, format="json").status_code == 201
    for _ in range(2):
        submit(alice)
    with pytest.raises(Refused, match="00:00 UTC"):
        submit(alice)
    for wrong in ({"per_day": "0"}, {"seconds": "5"}, {"seconds": "x"}, {"per_day": "99999999999"}):
        with pytest.raises(Refused, match="a whole number from"):
            services.permit_set("softmax", True, by=None, **wrong)
    with pytest.raises(Refused, match="choose one of"):
        services.permit_set("nothing", True, by=None)
    with pytest.raises(Refused, match="all_reduce_rmsnorm runs on several GPUs, candidates on one: choose one of matmul"):
        services.permit_set("all_reduce_rmsnorm", True, by=None)


# what is taken


@pytest.mark.parametrize(("change", "field", "words"), [
    ({"operator": "nothing"}, "operator", "choose one of"), ({"text": " "}, "text", "a whole Python file"),
    ({"text": "#" * 300_000}, "text", "at most 262,144"), ({"shape": {"R": 8}}, "C", "must be a whole number"),
    ({"shape": {"R": 8, "C": 9, "Z": 1}}, "shape", "has no Z"), ({"dtype": "int4"}, "dtype", "takes fp16"),
    ({"config": {"a b": 1}}, "config", "no name of a parameter"), ({"config": {"a": [1]}}, "config", "a number, a flag"),
    ({"config": {f"p{n}": 1 for n in range(17)}}, "config", "at most 16"),
    ({"text": DIFF.replace("tl.max", "tl.min")}, "text", "the diff is not applied: hunk 1"),
    ({"text": DIFF.replace(OWN.path, "setup.py")}, "text",
     "it changes setup.py; the operator's files are tuner/tuning/kernels/row"),
])
def test_what_is_not_taken_says_why(alice: Any, change: dict[str, Any], field: str, words: str) -> None:
    permit()
    with pytest.raises(Refused, match=words) as refused:
        submit(alice, **change)
    assert list(refused.value.fields) == [field] and not Candidate.objects.exists()


def test_a_diff_becomes_the_whole_file_beside_the_operator_s_own(alice: Any) -> None:
    permit()
    candidate = submit(alice, text=DIFF)
    assert (candidate.text, candidate.diff, candidate.base_path) == (CHANGED, DIFF, OWN.path) and candidate.base_hash == OWN.hash
    assert submit(alice).diff == ""
    tma = "tuner/tuning/kernels/matmul_tma.py"
    inner = services.read_text("matmul", f"--- a/{tma}\n+++ b/{tma}\n@@ -1,0 +2 @@\n+# more\n")
    assert inner[2] is not None and inner[2].path == tma and "# more" in inner[0]


def test_attempts_make_a_series_and_take_what_their_parent_had(alice: Any) -> None:
    permit()
    first = submit(alice)
    second = services.candidate_create(Submitter(alice), operator="softmax", text=LAUNCH, parent=first)
    third = services.candidate_create(Submitter(alice), operator="softmax", text=LAUNCH, parent=second, shape={"R": 16, "C": 64})
    assert (second.shape, second.dtype, third.shape) == (SHAPE, "fp16", {"R": 16, "C": 64})
    assert [each.pk for each in selectors.attempts_of(second)] == [first.pk, second.pk, third.pk]
    assert {each.pk for each in selectors.candidate_list({"series": first.pk})} == {first.pk, second.pk, third.pk}
    permit("layernorm")
    with pytest.raises(Refused, match="is one of softmax"):
        services.candidate_create(Submitter(alice), operator="layernorm", text=LAUNCH, parent=first)


def test_it_is_woken_where_it_can_go_on(alice: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    permit()
    candidate = submit(alice)
    queue = ROW_KINDS["candidate"].queue
    assert queue(candidate) == "gpu" and not selectors.ability()["able"] and selectors.first_queues(candidate) == ["compile", "gpu"]
    compiler = {"queues": ["compile"], "gpus": []}
    monkeypatch.setattr(jobs, "workers", lambda: [compiler, {"queues": ["gpu"], "gpus": []}])
    assert queue(candidate) == "compile" and "none is running" in selectors.ability()["why"]
    assert selectors.first_queues(candidate) == ["compile"]
    candidate.stage = "measure"
    assert queue(candidate) == "gpu"
    card = {"name": "NVIDIA H200", "cc": "9.0"}
    monkeypatch.setattr(jobs, "workers", lambda: [compiler, {"queues": ["gpu"], "gpus": [card]}])
    candidate.stage = "compile"
    assert queue(candidate) == "gpu" and selectors.ability()["able"] and selectors.target_capability() == ("9.0", 132)
    candidate.wanted_gpu = "NVIDIA B200"
    assert "Waits for a worker with NVIDIA B200: there are NVIDIA H200" in selectors.ability(candidate)["why"]


# review


def test_a_verdict_stands_as_not_reviewed_until_a_person_accepts_it(api: Any, alice: Any, olga: Any) -> None:
    permit()
    candidate = judged(alice)
    assert selectors.standing(candidate) == "measured, not reviewed"
    done = services.candidate_review(candidate, "accepted", "read it", Submitter(olga))
    assert (done.review, done.reviewed_by, selectors.standing(done)) == ("accepted", olga, "accepted by olga") and done.reviewed
    told = api(olga).post(f"/api/candidates/{candidate.pk}/review/", {"decision": "declined", "note": "no"}, format="json")
    assert told.json()["standing"] == "declined by olga" and told.json()["review_note"] == "no"
    lines = list(AuditEntry.objects.filter(kind="candidate", action="changed").order_by("id"))
    assert [line.changes["review"] for line in lines] == [["open", "accepted"], ["accepted", "declined"]]
    assert lines[1].actor_name == "olga" and lines[1].token == "test"


def test_what_is_wrong_is_not_accepted_and_a_program_reviews_nothing_of_its_own(api: Any, alice: Any, olga: Any) -> None:
    permit()
    wrong = judged(alice, verdict="WRONG", reason="relative error 1.1")
    with pytest.raises(Refused, match=r"it is WRONG: relative error 1\.1"):
        services.candidate_review(wrong, "accepted", "", Submitter(olga))
    assert services.candidate_review(wrong, "declined", "", Submitter(olga)).review == "declined"
    with pytest.raises(Refused, match="it is waiting"):
        services.candidate_review(submit(alice), "declined", "", Submitter(olga))
    program = api(olga)
    made = program.post("/api/candidates/", BODY, format="json").json()
    Candidate.objects.filter(pk=made["id"]).update(status="done", verdict="FASTER", answer=ANSWER)
    for client in (program, api(olga)):         # another token of the same person is as good
        told = client.post(f"/api/candidates/{made['id']}/review/", {"decision": "accepted"}, format="json")
        assert told.status_code == 400 and "do it on the page" in json.dumps(told.json())
    candidate = Candidate.objects.get(pk=made["id"])
    assert services.candidate_review(candidate, "accepted", "", Submitter(olga)).review == "accepted"


# API


def test_the_list_filters_and_pages(api: Any, alice: Any) -> None:
    permit()
    one, two = judged(alice), submit(alice)
    told = api(alice).get("/api/candidates/?limit=1").json()
    assert told["total"] == 2 and [each["id"] for each in told["candidates"]] == [two.pk]
    row = api(alice).get("/api/candidates/?verdict=FASTER").json()["candidates"][0]
    assert (row["id"], row["median_us"], row["ratio"], row["against"], row["standing"]) == (
        one.pk, 40.0, 0.8, "default", "measured, not reviewed")
    assert api(alice).get("/api/candidates/?operator=matmul").json()["candidates"] == []
    assert api(alice).get("/api/candidates/?limit=x").status_code == 400


def test_source_and_text_are_read(api: Any, alice: Any) -> None:
    told = api(alice).get("/api/candidates/source/softmax/").json()
    assert told["allowed"] is False and told["files"][0]["path"] == OWN.path and told["files"][0]["text"] == OWN.text
    assert api(alice).get("/api/candidates/source/nothing/").status_code == 404
    permit()
    candidate = submit(alice, text=DIFF)
    assert api(alice).get(f"/api/candidates/{candidate.pk}/text/").content.decode() == CHANGED
    answered = api(alice).get(f"/api/candidates/{candidate.pk}/text/?diff=1")
    assert answered.content.decode() == DIFF and f"candidate-{candidate.pk}.diff" in answered["Content-Disposition"]


def test_a_file_is_sent_as_a_part_of_a_form(api: Any, alice: Any) -> None:
    permit()
    answered = api(alice).post("/api/candidates/", {"operator": "softmax", "upload": io.BytesIO(KERNEL.encode())})
    assert answered.status_code == 201 and answered.json()["shape"] == {"R": 8192, "C": 4096}
    assert Candidate.objects.get().text == KERNEL
    for wrong in ({"shape": [1]}, {"config": 3}, {"parent": 10**9}, {"text": None}, {"operator": "x" * 100}):
        assert api(alice).post("/api/candidates/", {**BODY, **wrong}, format="json").status_code == 400


# pages


@pytest.fixture
def engineer(client: Client, alice: Any, sign_in_mode: None) -> Client:
    client.force_login(alice)
    return client


def words(client: Client, name: str, *args: Any, query: str = "") -> str:
    return str(client.get(reverse(name, args=args) + query).content.decode())


def test_the_page_begins_with_the_verdict_and_shows_what_it_rests_on(engineer: Client, alice: Any) -> None:
    permit()
    candidate = judged(alice)
    page = words(engineer, "candidate", candidate.pk)
    for each in ("▼ FASTER", "−20.0 % beside the default configuration", "measured, not reviewed", "this candidate",
                 "default configuration", "results on fresh inputs, 1 of 2", "7 elements differ between 3 launches",
                 "not collected: ncu is not on this worker", "28 registers", "exp2 in place of exp", "line-new", "tok-k",
                 "Submit again", "NVIDIA H200", "function by function"):
        assert each in page, each
    assert "Accept" not in page
    whole = words(engineer, "candidate", submit(alice, text=DIFF).pk)
    assert "Waits for a GPU worker" in whole and "Cancel" in whole and "line-old" in whole and "Download the diff" in whole


def test_owners_review_on_the_page(client: Client, alice: Any, olga: Any, sign_in_mode: None) -> None:
    permit()
    candidate = judged(alice)
    client.force_login(olga)
    assert "Accept" in words(client, "candidate", candidate.pk)
    client.post(reverse("candidate-review", args=[candidate.pk]), {"decision": "accepted", "note": "read"})
    assert "accepted by olga" in words(client, "candidate", candidate.pk)
    waiting = submit(alice)
    answered = client.post(reverse("candidate-review", args=[waiting.pk]), {"decision": "accepted"})
    assert answered.status_code == 400 and "nothing was measured" in answered.content.decode()
    client.force_login(alice)
    assert client.post(reverse("candidate-review", args=[candidate.pk]), {"decision": "declined"}).status_code == 403


def test_the_form_is_filled_from_a_problem_and_from_an_attempt(engineer: Client, alice: Any) -> None:
    page = words(engineer, "candidate-new", query="?operator=softmax&dtype=bf16&R=64&C=256&gpu=NVIDIA+H200")
    assert 'value="R=64 C=256"' in page and 'value="NVIDIA H200"' in page and "may not run in this project" in page
    assert "softmax_row" in page and OWN.path in page
    permit()
    candidate = submit(alice, config={"num_warps": 4})
    page = words(engineer, "candidate-new", query=f"?parent={candidate.pk}")
    assert "exp2((v" in page and "num_warps=4" in page and f"candidate {candidate.pk}" in page
    typed = {"operator": "softmax", "text": LAUNCH, "shape": "R=8 C=100", "dtype": "fp16", "config": "num_warps=4 X=True y=a",
             "note": "again", "parent": str(candidate.pk), "gpu": ""}
    answered = engineer.post(reverse("candidate-new"), typed)
    made = Candidate.objects.latest("pk")
    assert answered.status_code == 302 and made.series == candidate and made.config == {"num_warps": 4, "X": True, "y": "a"}
    refused = (({"shape": "R=x"}, "expected a whole number"), ({"config": "a"}, "expected NAME=VALUE"), ({"text": ""}, "a whole"),
               ({"text": "import torch\ndef launch(:\n"}, "it is no Python file: line 2: invalid syntax"),
               ({"shape": "R=8"}, "must be a whole number"), ({"parent": "99999999"}, "Not submitted"))
    for wrong, said in refused:
        answered = engineer.post(reverse("candidate-new"), {**typed, **wrong})
        assert answered.status_code == 400 and said in answered.content.decode(), wrong
    assert Candidate.objects.count() == 2


@pytest.mark.parametrize("text", ["%PDF-1.7\0", "\ufffdELF"])          # as a browser reads bytes that are no text
def test_a_file_that_is_no_text_is_refused_at_once(engineer: Client, text: str) -> None:
    permit()
    answered = engineer.post(reverse("candidate-new"), {"operator": "softmax", "text": text, "shape": "", "dtype": "", "config": "",
                                                        "note": "", "parent": "", "gpu": ""})
    assert answered.status_code == 400 and "it is no text in UTF-8" in answered.content.decode() and not Candidate.objects.exists()


def test_a_browser_ends_the_lines_of_a_diff_with_cr_lf(engineer: Client) -> None:
    permit()
    typed = {"operator": "softmax", "text": DIFF.replace("\n", "\r\n"), "shape": "R=8 C=100", "dtype": "fp16", "config": "",
             "note": "one\r\ntwo", "parent": "", "gpu": ""}
    assert engineer.post(reverse("candidate-new"), typed).status_code == 302
    made = Candidate.objects.get()
    assert (made.text, made.diff, made.note) == (CHANGED, DIFF, "one\ntwo")


def test_what_others_wrote_is_escaped(engineer: Client, alice: Any) -> None:
    permit()
    hostile = "<script>alert(1)</script>"
    candidate = submit(alice, text=f"# {hostile}\nx = '{hostile}'\n", note=hostile)
    answer = {**ANSWER, "checks": [{**CHECK, "message": hostile, "right": False, "changed": [hostile]}], "dropped": hostile,
              "counters": {"why": hostile}}
    Candidate.objects.filter(pk=candidate.pk).update(status="done", verdict="WRONG", reason=hostile, answer=answer, gpu=hostile)
    for page in (words(engineer, "candidate", candidate.pk), words(engineer, "candidate-list"),
                 words(engineer, "candidate-new", query=f"?parent={candidate.pk}")):
        assert hostile not in page and "&lt;script&gt;" in page


def test_the_list_shows_permits_and_lets_owners_change_them(client: Client, alice: Any, olga: Any, sign_in_mode: None) -> None:
    client.force_login(olga)
    assert "no operator lets candidates run" in words(client, "candidate-list")
    client.post(reverse("candidate-permit"), {"operator": "softmax", "allowed": "yes", "per_day": "7", "seconds": "90"})
    assert CandidatePermit.objects.get().per_day == 7
    judged(alice)
    page = words(client, "candidate-list", query="?verdict=FASTER")
    assert "▼ FASTER" in page and "Forbid" in page and "−20" in page
    wrong = client.post(reverse("candidate-permit"), {"operator": "softmax", "allowed": "yes", "seconds": "1"})
    assert wrong.status_code == 400 and "a whole number from 30" in wrong.content.decode()
    client.post(reverse("candidate-permit"), {"operator": "softmax", "allowed": "no"})
    assert not CandidatePermit.objects.exists()
    client.force_login(alice)
    assert client.post(reverse("candidate-permit"), {"operator": "softmax", "allowed": "yes"}).status_code == 403


def test_an_unknown_operator_s_candidates_are_still_shown(engineer: Client, alice: Any) -> None:
    permit()
    candidate = judged(alice)
    Candidate.objects.filter(pk=candidate.pk).update(operator="gone", answer={}, shape={}, verdict="odd")
    assert "gone" in words(engineer, "candidate", candidate.pk) and "gone" in words(engineer, "candidate-list")
    assert engineer.get(reverse("candidate-new") + f"?parent={candidate.pk}").status_code == 200


# the command


def command(*arguments: str) -> tuple[int, Any]:
    out = io.StringIO()
    status = 0
    try:
        call_command("candidates", *arguments, stdout=out, stderr=io.StringIO())
    except SystemExit as left:
        status = int(left.code or 0)
    except CommandError as error:
        return error.returncode, str(error)
    text = out.getvalue()
    return status, json.loads(text) if "--json" in arguments else text


def test_the_command_submits_and_its_exit_code_says_the_verdict(alice: Any, tmp_path: Any) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(KERNEL)
    asked = ("submit", str(path), "--operator", "softmax", "--shape", "R=8,C=100", "--wait", "0", "--json")
    status, said = command(*asked)
    assert status == 5 and "operator: candidates of softmax may not run" in said
    assert command("allow", "softmax", "--per-day", "9", "--json")[1]["per_day"] == 9
    status, said = command(*asked)
    assert (status, said["status"], said["shape"]) == (2, "waiting", SHAPE)
    for verdict, code in (("FASTER", 0), ("SAME", 0), ("SLOWER", 1), ("AMBIGUOUS", 2), ("WRONG", 3), ("FAILED", 4)):
        Candidate.objects.filter(pk=said["id"]).update(status="done", verdict=verdict, reason="so", answer=ANSWER)
        assert command("show", str(said["id"]), "--json")[0] == code
    assert "measured, not reviewed" in command("show", str(said["id"]))[1] and "40.00 µs" in command("show", str(said["id"]))[1]
    Candidate.objects.filter(pk=said["id"]).update(status="failed", verdict="", error={"where": "x", "what": "no sandbox"})
    assert command("show", str(said["id"]))[0] == 5
    assert command("show", str(said["id"]), "--text")[1] == KERNEL
    assert [each["id"] for each in command("list", "--json")[1]] == [said["id"]]
    assert command("source", "softmax", "--json")[1]["files"][0]["text"] == OWN.text
    assert command("show", "99999999")[0] == 5 and command("submit", str(tmp_path / "no.py"), "--operator", "softmax")[0] == 5
    assert command("forbid", "softmax")[0] == 0 and not CandidatePermit.objects.exists()
