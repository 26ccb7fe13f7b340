"""A job that is done offers to use and to guard what it found, on its own page."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.core.cache import cache
from django.urls import reverse

from tuner.jobs import create_services
from tuner.models import SuiteKernel, TuneJob
from workers import jobs
from workers.tune import lead

pytestmark = pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
SHAPE = {"M": 1024, "N": 1024, "K": 1024}


def test_a_done_job_is_used_and_guarded_in_place(client: Any, alice: Any, bob: Any, sign_in_mode: None) -> None:
    jobs.connection().flushdb()
    cache.clear()
    job = create_services.tune_create(owner=None, operator="matmul", shape=SHAPE, dtype="bf16", device="replay:matmul",
                                      strategy="local", budget_trials=60, budget_seconds=60)
    client.force_login(alice)
    page = reverse("tune", args=[job.pk])
    assert "Use this" not in client.get(page).content.decode()          # it has not run yet
    lead.run(job.pk, "w", replay_speed=0)
    job = TuneJob.objects.get(pk=job.pk)
    cache.clear()
    text = client.get(page).content.decode()
    line = "import ridgepoint_client; config = ridgepoint_client.best(&quot;matmul&quot;, &quot;bf16&quot;, M=1024, N=1024, K=1024)"
    assert "Use this" in text and line in text and "Guard this" in text
    fields = {"operator": "matmul", "dtype": "bf16", **SHAPE, "gpu": job.gpu}
    answer = client.post(reverse("problem-guard"), {**fields, "back_job": job.pk})
    assert answer.status_code == 302 and answer["Location"] == page
    assert SuiteKernel.objects.get().op == "matmul"
    text = client.get(page).content.decode()
    assert "Guard this" not in text and "Open the suite" in text
    assert client.post(reverse("problem-guard"), {**fields, "back_job": "https://elsewhere"})["Location"].startswith("/kernels/problem/")
    SuiteKernel.objects.all().delete()
    client.force_login(bob)                                             # a viewer reads, and changes nothing
    text = client.get(page).content.decode()
    assert "Use this" in text and "Guard this" not in text
