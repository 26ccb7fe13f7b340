"""Home, search, workers, health and the frame around them."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client, override_settings

from profiles.families.services import families_assign
from profiles.models import Finding, KernelStat, Profile
from tuner.models import TuneJob
from workers import jobs

pytestmark = pytest.mark.django_db
LISTS = ("/", "/profiles/", "/profiles/upload/", "/kernels/", "/compare/", "/fleet/", "/fleet/agents/", "/tune/", "/tune/new/",
         "/captures/", "/captures/new/", "/builds/", "/gates/", "/gates/new/", "/suites/", "/suites/new/", "/regressions/",
         "/environments/", "/notified/", "/cache/", "/cache/revalidations/", "/workers/", "/status/", "/search/?q=gemm",
         "/accounts/tokens/")


@pytest.fixture
def alice(client: Client) -> Client:
    client.force_login(get_user_model().objects.create_superuser("alice", password="x"))
    return client


def profile(**given: Any) -> Profile:
    fields = {
        "name": "train",
        "status": "ready",
        "kind": "trace",
        "file_name": "t.json.gz",
        "upload_key": "k",
        "gpu_time_ns": 5_000_000,
    }
    return Profile.objects.create(**{**fields, **given})


def kernel(owner: Profile, name: str = "sm90_gemm", **given: Any) -> KernelStat:
    fields = {
        "short_name": name,
        "category": "compute",
        "launches": 3,
        "total_ns": 3_000_000,
        "mean_ns": 1e6,
        "p50_ns": 1e6,
        "p95_ns": 1e6,
        "min_ns": 1,
        "max_ns": 2,
        "share_pct": 60.0,
    }
    return KernelStat.objects.create(profile=owner, name=f"void {name}<float>(int)", **{**fields, **given})


def text(client: Client, url: str) -> str:
    answer = client.get(url)
    assert answer.status_code == 200, answer.status_code
    return answer.content.decode()


def test_empty_home_offers_files_examples_and_how_to_make_one(alice: Client) -> None:
    page = text(alice, "/")
    assert "Load the example recordings" in page and "torch.profiler" in page and "ncu --set full" in page
    assert "recorded on NVIDIA H200" in page


def test_home_ranks_kernels_by_what_could_be_won_back(alice: Client) -> None:
    run = profile()
    small, big = kernel(run, "small_add", total_ns=10_000), kernel(run, "sm90_gemm", total_ns=3_000_000)
    families_assign({each.name: each.pk for each in (small, big)})
    for worth_ns, title in ((2_000_000, "low occupancy"), (1_000_000, "the same kernel again")):
        Finding.objects.create(profile=run, kernel=big, rule="r", severity="high", title=title, worth_ns=worth_ns)
    Finding.objects.create(profile=run, rule="gpu_idle", severity="high", title="GPU 0 idle", worth_ns=500_000)
    page = text(alice, "/")
    assert page.index("sm90_gemm") < page.index("small_add")
    assert "low occupancy" in page and "the same kernel again" not in page
    assert "/tune/new/" not in page.split("id=\"live-fixes\"")[1].split("</section>")[0]         # neither type nor shape is known
    assert "/captures/new/?tool=ncu&amp;kernel=sm90_gemm" in page
    assert "the file names no GPU: its roofs are unknown" in page        # unknown is said with its reason, never zero or all of it
    assert "Beyond kernels" in page and "GPU 0 idle" in page


def test_home_shows_jobs_in_progress_and_what_failed(alice: Client) -> None:
    running = profile(
        name="big", status="ingesting", summary={"progress": {"phase": "reading", "done_bytes": 5, "total_bytes": 10}}
    )
    profile(name="hurt", status="failed", error={"where": "byte 7", "what": "no JSON", "hint": "export it again"})
    TuneJob.objects.create(
        operator="matmul",
        shape={"M": 64},
        dtype="bf16",
        device="replay:matmul",
        strategy="random",
        budget_trials=9,
        budget_seconds=60,
        recorded="recorded on NVIDIA H200",
    )
    page = text(alice, "/")
    assert f'data-topic="profile.{running.pk}"' in page and 'value="5"' in page
    assert "byte 7: no JSON. export it again" in page
    assert "M 64" in page and "recorded on NVIDIA H200" in page


def test_names_from_files_are_escaped(alice: Client) -> None:
    run = profile(name="<script>alert(1)</script>")
    kernel(run, "<img src=x>")
    for url in ("/", "/search/?q=script", "/search/?q=img"):
        page = text(alice, url)
        assert "<script>alert" not in page and "<img src=x>" not in page


def test_search_finds_profiles_kernels_builds_jobs(alice: Client) -> None:
    run = profile(build="4f2c1e", tags=["nightly"])
    kernel(run, "layer_norm_fwd")
    job = TuneJob.objects.create(
        operator="softmax",
        shape={"rows": 8},
        dtype="fp16",
        device="gpu",
        strategy="random",
        budget_trials=9,
        budget_seconds=60,
    )
    assert f"/kernels/{run.kernels.get().pk}/" in text(alice, "/search/?q=NORM+layer")
    assert f"/profiles/{run.pk}/" in text(alice, "/search/?q=nightly")
    assert "?build=4f2c1e" in text(alice, "/search/?q=4f2c")
    assert f"/tune/{job.pk}/" in text(alice, f"/search/?q=%23{job.pk}")
    assert "Nothing is called" in text(alice, "/search/?q=norm+zzz")
    assert "Type a word" in text(alice, "/search/")


def test_workers_page_and_api_say_who_measures_and_what_is_missing(alice: Client) -> None:
    jobs.announce(
        "w1",
        {
            "queues": ["ingest"],
            "host": "box",
            "pid": 7,
            "gpus": [],
            "busy": None,
            "since": 1767225600.0,
            "tools": {"ncu": {"missing": "not in PATH <b>"}},
            "replay": [],
        },
    )
    try:
        page = text(alice, "/workers/")
        assert (
            "box" in page
            and "not in PATH &lt;b&gt;" in page
            and "No gpu worker" in page
            and "No ingest worker" not in page
        )
        found = alice.get("/api/workers/").json()
        assert found["workers"][0]["host"] == "box"
        assert {queue["name"] for queue in found["queues"]} == set(jobs.QUEUES)
        assert {lack["queue"] for lack in found["missing"]} == {"replay", "gpu", "messages"}
    finally:
        jobs.retire("w1")


def test_nobody_measures(alice: Client) -> None:
    assert "No worker</span>" in text(alice, "/workers/")


def test_health_needs_no_sign_in(client: Client) -> None:
    assert client.get("/health/").json() == {"status": "ok", "database": "ok", "redis": "ok"}


@override_settings(LOCAL_MODE=False)
def test_pages_need_sign_in(client: Client) -> None:
    for url in ("/", "/search/", "/workers/"):
        assert client.get(url).status_code == 302
    assert client.get("/api/workers/").status_code in (401, 403)
    assert "Sign in" in text(client, "/accounts/login/")


def test_frame_has_no_inline_script_and_marks_the_page(alice: Client) -> None:
    page = text(alice, "/workers/")
    assert 'aria-current="page">Workers' in page
    for part in page.split("<script")[1:]:
        assert part.split(">")[0].find("src=") > 0 or "application/json" in part.split(">")[0]
    assert " onclick=" not in page and "javascript:" not in page


def test_every_list_begins_with_its_answer(alice: Client) -> None:
    assert [url for url in LISTS if 'class="answer' not in text(alice, url)] == []


def test_unknown_address_says_so(alice: Client) -> None:
    answer = alice.get("/nothing/")
    assert answer.status_code == 404
    assert "There is nothing at" in answer.content.decode()
