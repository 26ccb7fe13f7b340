"""Causes add up to wall time for each GPU: in the document, and in the bars of the pages."""

from __future__ import annotations

import re
from typing import Any

from profiles.models import Profile
from tests.truth.asking import Asking
from tests.truth.files import TRACE, each_file

BAR = re.compile(r'<div class="bars"[^>]*>(.*?)</div>', re.DOTALL)
PART = re.compile(r'title="[^"]*?: (\d+) ns,')
NAMED = re.compile(r'title="[^"]*?: \d+ ns, [^"]*? of (\d+) ns')


@each_file(TRACE)
def test_causes_add_up_to_the_wall_time_of_each_gpu(profile: Profile, ask: Asking) -> None:
    numbers, gpus = ask.topic("causes")["numbers"], _gpus(profile)
    sums = dict.fromkeys((each["gpu"] for each in numbers["gpus"]), 0)
    for row in numbers["causes"]:
        sums[row["gpu"]] += row["wall_ns"]
    assert sums == dict.fromkeys(gpus, profile.wall_ns)
    means = sum(group["wall_ns"] for group in numbers["groups"])            # each is rounded
    assert abs(means - profile.wall_ns * bool(gpus)) <= len(numbers["groups"])


@each_file(TRACE, sampled=True)
def test_bars_of_causes_and_time_add_up(profile: Profile, ask: Asking) -> None:
    count = len(_gpus(profile))
    for address in ("", "analysis/causes/", "analysis/time/") if count else ():
        bars = BAR.findall(ask.text(address))
        assert len(bars) >= count, address
        for bar in bars[:count]:                                             # below stand those of phases
            assert sum(map(int, PART.findall(bar))) == profile.wall_ns, address
            assert {int(ns) for ns in NAMED.findall(bar)} <= {profile.wall_ns}, address


def _gpus(profile: Profile) -> list[int]:
    devices: list[dict[str, Any]] = profile.summary["devices"]
    return [each["index"] for each in devices]
