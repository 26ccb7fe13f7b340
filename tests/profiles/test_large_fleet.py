"""The ranking of all kernels reads few families, however many there are, and an unchanged large fleet is summed once."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import numpy as np
import pytest

from profiles.analysis.core import shapes
from profiles.analysis.kernel.worth import worth
from profiles.families import kept_selectors, selectors, services
from profiles.models import FamilyRule, KernelFamily, KernelShape, KernelStat, Profile
from profiles.upload.services import profile_delete, profile_update
from tests.profiles.ingest.corpus import mostly_deep
from tests.profiles.pages.test_families import family_of, kernels

GPU = "NVIDIA H200"


@pytest.fixture(autouse=True)
def nothing_from_before(db: None) -> None:
    """A process that outlived the test of another file may have written since its rows were emptied."""
    Profile.objects.all().delete()
    FamilyRule.objects.all().delete()
    KernelFamily.objects.all().delete()



@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fleet counts as a large one."""
    monkeypatch.setattr(kept_selectors, "LARGE_ROWS", -10)
    monkeypatch.setattr(kept_selectors, "_kept", type(kept_selectors._kept)())


def fleet(names: int, seed: int) -> None:
    """A trace of so many kernels of random time, and a counter report of a third of them."""
    chance = random.Random(seed)
    trace = kernels(*(f"made_up_kernel{'x' * at}" for at in range(names)))
    for stat in trace.kernels.all():
        stat.total_ns = chance.randrange(1, 50) * 1_000
        stat.save()
    report = Profile.objects.create(name="report", status="ready", kind="counters", gpu=GPU, file_name="f", upload_key="k")
    kernels(*(f"made_up_kernel{'x' * at}" for at in range(0, names, 3)), profile=report)
    KernelShape.objects.bulk_create([
        KernelShape(kernel=stat, bucket=10, launches=1, total_ns=1_000, min_ns=1, max_ns=1, roof_pct=chance.uniform(5, 99),
                    roof_side="memory") for stat in report.kernels.all()])


@pytest.mark.django_db
@pytest.mark.parametrize("seed", mostly_deep(range(4), "0"))
def test_the_first_lines_are_those_of_the_whole_ranking(seed: int, django_assert_max_num_queries: Any) -> None:
    fleet(60, seed)
    stats = KernelStat.objects.filter(profile__kind="trace")
    everything = worth(selectors.family_times(stats, selectors.family_counters()), selectors.family_counters())
    with django_assert_max_num_queries(14):
        found = selectors.ranking({}, 7)
    assert [line.family.pk for line in found.lines] == [one.family for one in everything[:7]]
    assert [line.worth for line in found.lines] == everything[:7]
    assert [line.worth.total_ns for line in found.longest] == sorted((one.total_ns for one in everything), reverse=True)[:12]
    assert found.count == len(everything) == 60 and found.total_ns == sum(one.total_ns for one in everything)
    assert found.known_ns == pytest.approx(sum(one.known_ns for one in everything))
    assert found.recoverable_ns == pytest.approx(sum(one.recoverable_ns or 0.0 for one in everything))


@pytest.mark.django_db
def test_families_of_no_line_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet(60, 0)
    read: list[int] = []
    whole = selectors.family_times
    monkeypatch.setattr(selectors, "family_times",
                        lambda stats, counted: read.append(stats.values("family").distinct().count()) or whole(stats, counted))
    selectors.ranking({}, 1)
    assert read[0] <= 12 + 20 + 20          # the longest, as many as were counted, and those


@pytest.mark.django_db
@pytest.mark.usefixtures("large", "tmp_store")
def test_an_unchanged_large_fleet_is_summed_once_and_every_change_shows(alice: Any, django_assert_num_queries: Any) -> None:
    kernels("softmax_row", "jacobi_step")
    assert selectors.ranking({}).total_ns == 2_000_000
    with django_assert_num_queries(1):
        assert selectors.ranking({}).total_ns == 2_000_000
    later = kernels("softmax_row")
    assert selectors.ranking({}).total_ns == 3_000_000 and selectors.ranking({"build": "b"}).total_ns == 0
    profile_update(later, build="b")
    assert selectors.ranking({"build": "b"}).total_ns == 1_000_000
    services.family_rename(family_of("softmax_row"), "Our softmax", by=alice)
    assert "Our softmax" in [line.name for line in selectors.ranking({}).lines]
    edit = services.family_merge(family_of("softmax_row"), family_of("jacobi_step"), by=alice)
    assert selectors.ranking({}).count == 1
    services.edit_undo(edit, by=alice)
    assert selectors.ranking({}).count == 2
    profile_delete(later)
    assert selectors.ranking({}).total_ns == 2_000_000 and KernelFamily.objects.count() == 2


def test_the_launches_to_skip_of_many_names_take_no_memory_for_each() -> None:
    """4,000 shapes over 200,000 launches: one count per launch for each shape took 6.4 GB."""
    launches, names = 200_000, 4_000
    codes = np.arange(launches, dtype=np.int64) % names
    texts = [f"void kernel_{at}(int)" for at in range(names)]
    geometry = np.ones((launches, 6), np.int64)
    found = shapes.group_shapes(codes, geometry, np.arange(launches, dtype=np.float64), texts.__getitem__)
    tracemalloc.start()
    skips = shapes._skips(codes, texts, found)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 50_000_000
    one = next(at for at, shape in enumerate(found) if shape.kernel == "void kernel_3999(int)")
    assert skips[one] == launches // names - 1                      # its own launches before the longest, which is the last
    ten = next(at for at, shape in enumerate(found) if shape.kernel == "void kernel_399(int)")
    assert skips[ten] == 49 + 49 * 10                               # and those of kernel_3990 and so on, which ncu takes for it


def test_names_are_searched_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["alpha", "beta", "gamma"]
    found = shapes.group_shapes(np.array([0, 1, 2]), np.ones((3, 6), np.int64), np.array([3.0, 2.0, 1.0]), texts.__getitem__)
    assert shapes._skips(np.array([0, 1, 2]), texts, found) == [0, 0, 0]
    monkeypatch.setattr(shapes, "SEARCHED_CHARS", 2 * len("alpha\nbeta\ngamma"))
    assert shapes._skips(np.array([0, 1, 2]), texts, found) == [0, 0, None]
