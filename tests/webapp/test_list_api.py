"""Lists of the API come in pages: `limit` and `offset` ask, `next_offset` and the header `Link` read on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.utils import timezone

from profiles.analysis.kernel.counters import launch_facts
from profiles.ingest.trace import CounterLaunch, Device
from profiles.models import CeilingRun, KernelShape, KernelStat, LaunchCounters, Profile
from profiles.overview.api import MOST_COUNTED
from profiles.upload.services import profile_create
from webapp.models import ShareLink
from workers.list_api import MOST, USUAL

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tmp_store")]
KERNELS = MOST + USUAL + 1


@pytest.fixture
def profile(olga: Any) -> Profile:
    return profile_create(owner=olga, file=ContentFile(b"{}", name="t.json"), worker="test")


@pytest.fixture
def kernels(profile: Profile) -> list[KernelStat]:
    return KernelStat.objects.bulk_create([KernelStat(
        profile=profile, name=f"kernel_{number}", short_name=f"kernel_{number}", category="compute", launches=1,
        total_ns=KERNELS - number) for number in range(KERNELS)])


def test_kernels_of_a_profile_come_in_pages_and_whole_as_a_file(api: Any, olga: Any, profile: Profile, kernels: Any) -> None:
    url = f"/api/profiles/{profile.pk}/kernels/"
    first, much = api(olga).get(url).json(), api(olga).get(url, {"limit": 99_999, "offset": USUAL}).json()
    assert (len(first["kernels"]), first["count"], first["next_offset"]) == (USUAL, KERNELS, USUAL)
    assert (len(much["kernels"]), much["next_offset"]) == (MOST, USUAL + MOST)
    assert much["kernels"][0]["name"] == f"kernel_{USUAL}"
    last = api(olga).get(url, {"offset": USUAL + MOST}).json()
    assert [row["name"] for row in last["kernels"]] == [f"kernel_{KERNELS - 1}"] and last["next_offset"] is None
    assert api(olga).get(url, {"kernel": kernels[-1].pk}).json()["kernels"] == last["kernels"]
    assert api(olga).get(url, {"format": "csv"}).content.count(b'\n"kernel_') == KERNELS


def test_counted_launches_and_shapes_come_in_pages(api: Any, olga: Any, profile: Profile) -> None:
    kernel, other = (KernelStat.objects.create(profile=profile, name=name, short_name=name, category="compute", launches=1)
                     for name in "ab")
    facts = launch_facts(CounterLaunch(0, "a", Device(0, "NVIDIA H200"), None, None, None, None, {})).as_json()
    LaunchCounters.objects.bulk_create([LaunchCounters(profile=profile, kernel=kernel if index else other, index=index, facts=facts)
                                        for index in range(MOST_COUNTED + 2)])
    KernelShape.objects.bulk_create([KernelShape(kernel=kernel, grid=f"{n},1,1", block="1,1,1", launches=1, total_ns=n, min_ns=n,
                                                 max_ns=n, p50_ns=n, p95_ns=n) for n in (1, 2, 3)])
    url = f"/api/profiles/{profile.pk}/"
    page = api(olga).get(url + "counters/", {"limit": 5000}).json()
    assert (len(page["launches"]), page["next_offset"], page["count"]) == (MOST_COUNTED, MOST_COUNTED, MOST_COUNTED + 2)
    mine = api(olga).get(url + "counters/", {"kernel": kernel.pk, "offset": MOST_COUNTED}).json()
    assert [row["index"] for row in mine["launches"]] == [MOST_COUNTED + 1]
    shapes = api(olga).get(url + "kernel-shapes/", {"kernel": kernel.pk, "limit": 2}).json()
    assert [row["grid"] for row in shapes["kernel_shapes"]] == ["3,1,1", "2,1,1"] and shapes["next_offset"] == 2


def test_a_bare_array_is_read_on_by_its_header(api: Any, olga: Any, profile: Profile) -> None:
    now = timezone.now()
    ShareLink.objects.bulk_create([ShareLink(digest=f"{number:064}", profile=profile, created=now,
                                             expires=now + timedelta(days=1 + number)) for number in range(3)])
    url, seen = f"/api/sharing/{profile.pk}/?limit=2", []
    while url:
        answer = api(olga).get(url)
        seen += [row["id"] for row in answer.json()]
        url = answer.headers.get("Link", "").partition("<")[2].partition(">")[0]
    assert sorted(seen) == sorted(ShareLink.objects.values_list("pk", flat=True))


def test_measured_ceilings_come_in_pages(api: Any, olga: Any) -> None:
    CeilingRun.objects.all().delete()           # those that come with the product
    made = [CeilingRun.objects.create(gpu=f"GPU {number}").pk for number in range(3)]
    page = api(olga).get("/api/ceilings/", {"limit": 2, "offset": 1}).json()
    assert [row["id"] for row in page["results"]] == made[1::-1] and (page["count"], page["next_offset"]) == (3, None)


@pytest.mark.parametrize("asked", ["limit=x", "offset=-1", "offset=1e3", "limit=\u0663", "offset=" + "9" * 10])
def test_what_is_no_number_is_named(api: Any, olga: Any, profile: Profile, asked: str) -> None:
    answer = api(olga).get(f"/api/profiles/{profile.pk}/kernels/?{asked}")
    assert answer.status_code == 400 and answer.json()["fields"] == {asked.partition("=")[0]: ["a whole number from 0 on"]}


def test_nothing_is_asked_and_nothing_is_beyond_the_end(api: Any, olga: Any, profile: Profile) -> None:
    """Neither leads on: whoever follows `next_offset` comes to an end."""
    KernelStat.objects.create(profile=profile, name="a", short_name="a", category="compute", launches=1)
    for asked in ({"limit": 0}, {"offset": 10**8}, {"limit": "", "offset": "1"}):
        page = api(olga).get(f"/api/profiles/{profile.pk}/kernels/", asked).json()
        assert (page["kernels"], page["count"], page["next_offset"]) == ([], 1, None)
