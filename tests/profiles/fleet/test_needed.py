"""The fleet's grade: least times of captured shapes over the time of the same launches, and of how much that is known."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from profiles.models import KernelShape, KernelStat, Profile
from tests.profiles.fleet.records import KERNELS, make_records, write_records

pytestmark = pytest.mark.django_db


def captured(gpu: str, kernel: str, shapes: list[tuple[str, int, float, float | None]]) -> None:
    """A ready capture; `shapes`: grid, launches, mean ns, least ns."""
    profile = Profile.objects.create(name="capture", kind=Profile.Kind.TRACE, status=Profile.Status.READY, gpu=gpu)
    stat = KernelStat.objects.create(profile=profile, name=kernel, short_name=kernel, category="compute", launches=1, total_ns=1)
    for grid, launches, mean_ns, floor_ns in shapes:
        total_ns = round(launches * mean_ns)
        KernelShape.objects.create(kernel=stat, grid=grid, block="256×1×1", launches=launches, total_ns=total_ns, min_ns=1,
                                   max_ns=1, floor_ns=floor_ns)


def test_the_grade_is_that_of_the_launches_whose_shapes_are_known(client: Client, alice: Any, tmp_path: Path) -> None:
    client.force_login(alice)
    records = make_records(2000)
    call_command("fleet", "feed", str(write_records(tmp_path / "r.jsonl.gz", records)), stdout=io.StringIO())
    product = KERNELS[2][0]
    url = reverse("api-fleet-needed")
    empty = client.get(url).json()
    assert empty["needed_pct"] is None and empty["known_pct"] == 0 and empty["took_ns"] == sum(each["dur_ns"] for each in records)
    assert "with known shapes" not in client.get(reverse("fleet")).content.decode()
    # two shapes of one grid, 3 launches of 60 µs at least and one of 100; another GPU's, or what cannot be, counts nothing
    captured("NVIDIA H200", product, [("132×1×1", 3, 120e3, 60e3), ("132×1×1", 1, 120e3, 100e3), ("264×1×1", 1, 200e3, 400e3)])
    captured("NVIDIA A100", product, [("264×1×1", 1, 240e3, 100e3)])
    captured("NVIDIA H200", KERNELS[3][0], [("132×1×1", 1, 300e3, None)])
    mine = [each for each in records if each["kernel"] == product and each["grid"][0] == 132]
    took = sum(each["dur_ns"] for each in mine)
    found = client.get(url).json()
    assert (found["signatures"], found["known_ns"]) == (1, pytest.approx(took))
    assert found["needed_ns"] == pytest.approx(70e3 * len(mine)) and found["needed_pct"] == pytest.approx(7e6 * len(mine) / took)
    assert (found["low_ns"], found["high_ns"]) == (pytest.approx(60e3 * len(mine)), pytest.approx(100e3 * len(mine)))
    assert found["known_pct"] == pytest.approx(100 * took / found["took_ns"])
    one = [each for each in mine if each["job"] == "job-1"]
    of_job = client.get(url, {"job": "job-1"}).json()
    assert of_job["known_ns"] == pytest.approx(sum(each["dur_ns"] for each in one))
    html = client.get(reverse("fleet")).content.decode()
    assert re.search(r'that they took; 1 grid and block"\s*>needed, of the <span[^>]*>[^<]*</span> with known shapes', html)
    assert client.get(url, {"from": "yesterday"}).status_code == 400
    assert client.get(url, {"job": "nobody"}).json()["took_ns"] == 0
