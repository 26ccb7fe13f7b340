"""Pages with the example recordings loaded, at the server: time from the request to the last byte, p95 of 30."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.test import Client
from django.urls import reverse

from profiles.models import LaunchCounters, Profile
from profiles.upload.services import profile_ingest
from tuner.jobs import create_services
from tuner.models import TuneJob
from webapp import accounts
from webapp.examples import profiles
from workers.tune import lead

REQUESTS, BUDGET_MS = 30, 100.0


def run() -> list[dict[str, Any]]:
    _load_examples()
    settings.ALLOWED_HOSTS = ["testserver"]
    client = Client()
    reference_ms = _p95_ms(client, reverse("health"))
    rows = []
    for name, url in _pages():
        p95_ms = _p95_ms(client, url)
        rows.append({
            "what": f"page: {name}, p95 of {REQUESTS}", "measured": f"{p95_ms:.1f} ms",
            "reference": f"health check {reference_ms:.1f} ms",
            "ratio": p95_ms / reference_ms, "budget": f"< {BUDGET_MS:.0f} ms", "ok": p95_ms < BUDGET_MS})
    return rows


def _load_examples() -> None:
    profiles.load(accounts.local_user())
    for profile in Profile.objects.exclude(status__in=[Profile.Status.READY, Profile.Status.FAILED]):
        profile_ingest(profile.pk, "bench")


def _pages() -> Iterator[tuple[str, str]]:
    yield "home", reverse("home")
    yield "profiles", reverse("profile-list")
    trace = Profile.objects.filter(kind="trace", status="ready").order_by("-launches").first()
    counters = Profile.objects.filter(kind="counters", status="ready").order_by("-launches").first()
    if trace:
        yield f"profile of {trace.launches:,} launches", reverse("profile", args=[trace.pk])
        yield "timeline", reverse("timeline", args=[trace.pk])
    if counters:
        yield "profile with counters", reverse("profile", args=[counters.pk])
        yield "roofline", reverse("roofline", args=[counters.pk])
        launch = LaunchCounters.objects.filter(profile=counters).first()
        if launch:
            yield "kernel", reverse("kernel", args=[counters.pk, launch.kernel_id])
    yield "kernels", reverse("kernel-list")
    yield "workers", reverse("workers")
    yield "tune", reverse("tune-list")
    job = _tune_job()
    yield f"tune job of {job.trials.count()} trials", reverse("tune", args=[job.pk])
    yield "its snapshot", f"{reverse('tune-snapshot', args=[job.pk])}?after=-1"
    yield "compare", reverse("compare")


def _tune_job() -> TuneJob:
    """A whole recorded space, replayed at once."""
    job = create_services.tune_create(owner=None, operator="matmul", shape={"M": 4096, "N": 4096, "K": 4096}, dtype="bf16",
                                      device="replay:matmul", strategy="exhaustive", effort="full")
    lead.run(job.pk, "bench", replay_speed=0)
    return job


def _p95_ms(client: Client, url: str) -> float:
    times = []
    for _ in range(REQUESTS):
        began = time.perf_counter()
        answer = client.get(url)
        body = b"".join(answer.streaming_content) if answer.streaming else answer.content
        times.append((time.perf_counter() - began) * 1e3)
        if answer.status_code != 200 or not body:
            raise RuntimeError(f"{url} answered {answer.status_code}")
    return sorted(times)[int(0.95 * (REQUESTS - 1))]
