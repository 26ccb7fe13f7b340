"""The same bytes count once in sums over profiles: uploaded twice, or alone and again among the ranks of a job."""

from __future__ import annotations

from typing import Any

import pytest
from django.template.loader import render_to_string
from django.test import Client

from profiles.families import selectors
from profiles.families.page_selectors import family_page
from profiles.library.selectors import fleet
from profiles.models import Finding, Profile, held_by
from profiles.profile.counted_selectors import counted_in
from tests.profiles.pages.test_families import family_of, kernels
from tests.profiles.pages.test_services import create, upload
from webapp import overview

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tmp_store")]


def made(*files: str) -> Profile:
    """A ready trace of these files, each a rank, with one kernel of 1 ms a file and as much time to win."""
    first, *more = (upload(f"{name}.json", {"traceEvents": [], "rank": name}) for name in files)
    profile = create(first, more_files=more, name="+".join(files))
    Profile.objects.filter(pk=profile.pk).update(status="ready", kind="trace", gpu="NVIDIA H200")
    profile.refresh_from_db()
    kernels("softmax_row", profile=profile, total_ns=len(files) * 1_000_000)
    Finding.objects.create(profile=profile, rule="cause_x", severity="high", title="idle", worth_ns=1e6 * len(files))
    return profile


def names() -> list[str]:
    return sorted(profile.name for profile in fleet({}))


def test_a_trace_alone_and_again_in_a_job_counts_in_the_job(client: Client, alice: Any) -> None:
    alone = made("r0")
    assert names() == ["r0"] and counted_in(alone) == []
    job = made("r0", "r1")
    made("r7")                                              # of other bytes
    assert names() == ["r0+r1", "r7"] and counted_in(alone) == [job] and counted_in(job) == []
    assert selectors.ranking({}).total_ns == 3_000_000
    assert [fix.profile.name for fix in overview.jobs_to_fix()] == ["r0+r1", "r7"]
    runs = {run.profile.pk: run for run in family_page(family_of("softmax_row"))["runs"]}
    assert runs[alone.pk].same_as == job and runs[job.pk].same_as is None
    client.force_login(alice)
    assert client.get(f"/api/profiles/{alone.pk}/").json()["counted_in"] == [job.pk]
    assert f"Sums count {job.name}" in render_to_string("profiles/_about.html", {"profile": alone, "counted_in": counted_in(alone)})
    job.delete()
    assert names() == ["r0", "r7"]


def test_only_who_has_all_of_the_files_holds_them() -> None:
    made("a", "b")
    made("b", "c")
    assert names() == ["a+b", "b+c"]                        # each has a rank that the other lacks
    made("c", "b")
    assert names() == ["a+b", "b+c"]                        # the same two files in another order: the older one counts
    made("a", "b", "c")
    assert names() == ["a+b+c"]
    assert held_by(Profile.objects.filter(name="a+b")).count() == 0         # only what is asked about can hold


def test_a_filter_that_leaves_the_job_out_counts_the_trace() -> None:
    alone, job = made("r0"), made("r0", "r1")
    Profile.objects.filter(pk=alone.pk).update(build="b1")
    Profile.objects.filter(pk=job.pk).update(build="b2")
    assert [profile.pk for profile in fleet({"build": "b1"})] == [alone.pk] and [profile.pk for profile in fleet({})] == [job.pk]
