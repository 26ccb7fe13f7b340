"""Retention: what is old goes with its files, what is needed stays; quota: what does not fit is refused."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.management import call_command
from django.utils import timezone

from profiles.models import Capture, CaptureTarget, Finding, Keeping, Profile, TimelineNote
from profiles.upload.services import profile_create, profile_ingest
from tests.profiles.pages.test_services import TINY
from tuner.cache.compiled import services as compiled
from tuner.models import CachedConfig, Candidate, CompiledFile, TuneJob
from webapp.models import AuditEntry, Project
from workers import jobs
from workers.retention import run as retention
from workers.retention.run import KINDS
from workers.scope import within

pytestmark = [pytest.mark.django_db, pytest.mark.servers, pytest.mark.usefixtures("tmp_store", "sign_in_mode")]
OLD = timedelta(days=100)


@pytest.fixture(autouse=True)
def nothing_from_before(db: None) -> None:
    Profile._base_manager.all().delete()


def profile(name: str = "old", *, age: timedelta = OLD, ready: bool = True, **fields: Any) -> Profile:
    content = json.dumps({**TINY, "name": name}).encode() if ready else b"{}"
    made = profile_create(owner=None, file=ContentFile(content, name=f"{name}.json"), worker="test", name=name, **fields)
    profile_ingest(made.pk, "test")
    Profile._base_manager.filter(pk=made.pk).update(created=timezone.now() - age)
    made.refresh_from_db()
    assert made.status == ("ready" if ready else "failed")
    return made


def keeping(project: int = 1, **days: int) -> Keeping:
    row = retention.settings_of(project)
    Keeping._base_manager.filter(pk=row.pk).update(days=days)
    row.refresh_from_db()
    return row


def stored(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_old_profiles_go_with_their_files_and_young_ones_stay(tmp_path: Path, django_capture_on_commit_callbacks: Any) -> None:
    young, before = profile("young", age=timedelta(days=1)), stored(tmp_path)
    old, failed = profile(), profile("broken", ready=False)
    assert stored(tmp_path) > before
    said = retention.look({"traces": 30, "failed": 30})
    assert said["traces"] == {"days": 30, "old": 1, "go": 1, "kept": {}, "bytes": old.upload_bytes + (old.stored_bytes or 0)}
    assert Profile.objects.count() == 3             # a look deletes nothing
    with django_capture_on_commit_callbacks(execute=True):
        report = retention.clean(keeping(traces=30, failed=30))
    assert (report["traces"]["gone"], report["failed"]["gone"]) == (1, 1)
    assert list(Profile.objects.all()) == [young] and stored(tmp_path) == before
    assert {old.pk, failed.pk} == {int(pk) for pk in AuditEntry.objects.filter(action="deleted", kind="profile").values_list(
        "target_id", flat=True)}


def test_a_kind_without_a_limit_is_kept_for_ever() -> None:
    profile(age=timedelta(days=9000))
    assert retention.look({}) == {} and retention.clean(keeping(counters=1))["counters"]["gone"] == 0
    assert Profile.objects.count() == 1


KEPT = {
    "has the tag “keep”": lambda row: Profile.objects.filter(pk=row.pk).update(tags=["keep"]),
    "has notes on its timeline": lambda row: TimelineNote.objects.create(profile=row, start_ns=0, end_ns=1, text="look"),
    "a capture is compared with it": lambda row: Capture.objects.create(
        target=CaptureTarget.objects.create(name="t", argv=["x"]), tool="ncu", status="done", baseline=row),
}


@pytest.mark.parametrize("reason", KEPT)
def test_what_is_needed_stays_and_the_report_says_why(reason: str) -> None:
    row = profile()
    KEPT[reason](row)
    report = retention.clean(keeping(traces=30))
    assert report["traces"]["kept"] == {reason: 1} and report["traces"]["gone"] == 0
    assert Profile.objects.filter(pk=row.pk).exists()


def test_a_profile_that_is_kept_for_two_reasons_counts_once() -> None:
    row = profile()
    for reason in KEPT:
        KEPT[reason](row)
    for number in range(3):
        TimelineNote.objects.create(profile=row, start_ns=number, end_ns=9, text="again")
    assert retention.look({"traces": 30})["traces"]["kept"] == {"has the tag “keep”": 1}


def test_compiled_files_go_by_when_they_were_used_and_bytes_of_two_stay(tmp_path: Path) -> None:
    for key, data in (("a", b"one"), ("b", b"one"), ("c", b"other"), ("d", b"new")):
        compiled.put_file(owner=None, tool="triton", key=key, name="k.cubin", data=data)
    CompiledFile.objects.filter(key__in="ac").update(used=timezone.now() - OLD)
    assert retention.look({"compiled": 30})["compiled"] == {"days": 30, "old": 2, "go": 2, "kept": {}, "bytes": 5}
    assert retention.clean(keeping(compiled=30))["compiled"]["gone"] == 2
    assert compiled.get_files("triton", "b", ["k.cubin"]) == {"k.cubin": b"one"}
    assert compiled.get_files("triton", "c", ["k.cubin"]) == {}
    assert stored(tmp_path) == len(b"one" + b"new")


def test_candidates_go_unless_they_were_accepted_or_another_followed() -> None:
    def make(**fields: Any) -> Candidate:
        return Candidate.objects.create(operator="softmax", dtype="fp16", text="x", **{"status": "done", **fields})

    first, accepted, old, waiting = make(), make(review="accepted"), make(), make(status="waiting")
    later = make(parent=first, series=first)
    Candidate.objects.exclude(pk=later.pk).update(created=timezone.now() - OLD)
    report = retention.clean(keeping(candidates=30))
    assert report["candidates"]["kept"] == {"was accepted": 1, "a later attempt follows it": 1}
    assert report["candidates"]["gone"] == 1 and set(Candidate.objects.all()) == {first, accepted, waiting, later}
    assert not Candidate.objects.filter(pk=old.pk).exists()


def test_a_tune_job_whose_configuration_is_served_stays() -> None:
    common = {"operator": "matmul", "shape": {"M": 64}, "dtype": "bf16", "device": "replay:matmul", "status": "done",
              "budget_trials": 8, "budget_seconds": 60.0}
    served, other = TuneJob.objects.create(**common), TuneJob.objects.create(**common)
    CachedConfig.objects.create(operator="matmul", dtype="bf16", shape={"M": 64}, shape_bucket="M=64", gpu="H200",
                                config={"BLOCK": 64}, job=served)
    TuneJob.objects.update(created=timezone.now() - OLD)
    report = retention.clean(keeping(jobs=30))
    assert report["jobs"]["kept"] == {"a configuration of it is served": 1} and list(TuneJob.objects.all()) == [served]
    assert other.pk != served.pk


def test_a_run_touches_no_other_project() -> None:
    other = Project.objects.create(slug="other", name="Other")
    with within(other.pk):
        theirs = profile("theirs")
    mine = profile("mine")
    keeping(traces=30)
    with within(1):
        retention.ask(retention.settings_of(1))
        assert retention.run(1) is not None
    assert not Profile._base_manager.filter(pk=mine.pk).exists() and Profile._base_manager.filter(pk=theirs.pk).exists()


def test_every_kind_can_be_looked_at_and_its_reasons_asked() -> None:
    said = retention.look(dict.fromkeys(KINDS, 1))
    assert set(said) == set(KINDS) and all(each["old"] == 0 for each in said.values())


# ---- when it runs ----

def test_once_a_night_where_there_are_limits_and_again_where_a_worker_was_lost(django_capture_on_commit_callbacks: Any) -> None:
    Keeping._base_manager.all().delete()
    row = retention.settings_of(1)
    assert retention.wake_nightly() == []
    Keeping._base_manager.update(days={"traces": 30}, created=timezone.now() - timedelta(days=2))
    with django_capture_on_commit_callbacks(execute=True):
        assert retention.wake_nightly() == [1]
    assert 1 in jobs.waiting("keeping") and retention.wake_nightly() == []
    Keeping._base_manager.update(state="running", touched=timezone.now() - timedelta(minutes=11))
    assert retention.wake_nightly() == [1]
    assert retention.run(1) is not None and retention.run(1) is None
    row.refresh_from_db()
    assert row.state == "" and row.ran is not None and row.report["traces"]["gone"] == 0 and retention.wake_nightly() == []


# ---- quota ----

def test_an_upload_beyond_the_quota_is_refused_with_507_and_one_that_fits_is_not(api: Any, alice: Any, olga: Any) -> None:
    owner, engineer = api(olga), api(alice)
    used = profile("there").upload_bytes
    content = json.dumps(TINY).encode()
    assert owner.put("/api/storage/", {"quota_bytes": 10**9}, format="json").status_code == 200
    fits = engineer.post("/api/profiles/", {"file": ContentFile(content, name="a.json")}, format="multipart")
    assert fits.status_code == 201
    owner.put("/api/storage/", {"quota_bytes": used}, format="json")
    answer = engineer.post("/api/profiles/", {"file": ContentFile(content, name="b.json")}, format="multipart")
    assert answer.status_code == 507 and "quota" in answer.json()["error"] and "Retry-After" not in answer.headers
    assert Profile.objects.count() == 2


def test_without_a_quota_no_sum_is_made(django_assert_num_queries: Any) -> None:
    from profiles.retention.services import require_quota

    with django_assert_num_queries(1):
        require_quota(10)


# ---- page, API, command ----

def test_owners_set_limits_and_engineers_see_them(client: Any, olga: Any, alice: Any) -> None:
    profile()
    client.force_login(alice)
    assert client.get("/storage/").status_code == 200
    assert client.post("/storage/change/", {"do": "save", "traces": "30"}).status_code == 403
    client.force_login(olga)
    assert client.post("/storage/change/", {"do": "save", "traces": "30", "quota": "1.5"}).status_code == 302
    row = retention.settings_of(1)
    assert row.days == {"traces": 30} and row.quota_bytes == 1_500_000_000
    page = client.get("/storage/").content.decode()
    assert "30 days" in page and "would go" in page
    assert AuditEntry.objects.filter(kind="retention", action="changed").exists()
    bad = client.post("/storage/change/", {"do": "save", "traces": "-1"})
    assert bad.status_code == 400 and "a whole number" in bad.content.decode() and retention.settings_of(1).days == {"traces": 30}
    client.post("/storage/change/", {"do": "run"})
    assert retention.settings_of(1).state == "waiting"


@pytest.mark.parametrize("given", [
    {"days": {"nothing": 3}}, {"days": {"traces": 0}}, {"quota_bytes": -5}, {"days": {"traces": 10**9}}])
def test_what_cannot_be_a_limit(given: dict[str, Any], api: Any, olga: Any) -> None:
    assert api(olga).put("/api/storage/", given, format="json").status_code == 400


def test_by_command_first_dry(alice: Any, django_capture_on_commit_callbacks: Any) -> None:
    row = profile()
    keeping(traces=30)
    out = StringIO()
    call_command("retention", "--dry-run", stdout=out)
    assert "traces: 1 older than 30 days, 1 would go" in out.getvalue() and Profile.objects.filter(pk=row.pk).exists()
    out = StringIO()
    call_command("retention", "--project", "main", "--json", stdout=out)
    assert json.loads(out.getvalue())["main"]["traces"]["gone"] == 1 and not Profile.objects.filter(pk=row.pk).exists()
    assert Finding.objects.filter(profile=row.pk).count() == 0
