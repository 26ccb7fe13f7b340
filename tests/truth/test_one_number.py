"""The same quantity is one number wherever it stands: on pages, in the API, in SQL, in files, and in the file that was loaded."""

from __future__ import annotations

import pytest

from profiles.models import Profile
from tests.truth.asking import Asking
from tests.truth.conftest import Library
from tests.truth.files import COUNTERS, FILES, SUMMARY, TRACE, each_file
from tests.truth.places import PAGES, PLACES, QUANTITIES, Asked, Said
from tests.truth.sums import Sums, sums_of

BY_NUMBER = {each.number: each for each in FILES}


@pytest.fixture(scope="module")
def sql(request: pytest.FixtureRequest, library: Library) -> dict[int, dict[str, Sums]]:
    """What SQL says of every file that this module is asked about."""
    items = [item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    files = {item.callspec.params["profile"] for item in items if hasattr(item, "callspec")}
    return sums_of(sorted(profile.pk for profile in map(library.ready, files) if profile.status == Profile.Status.READY))


@pytest.fixture(scope="module")
def said(profile: Profile, ask: Asking, sql: dict[int, dict[str, Sums]]) -> dict[str, Said]:
    """What every place says of the profile."""
    at = Asked(BY_NUMBER[profile.pk], profile, ask, sql[profile.pk])
    answers = {name: read(at) for name, read in PLACES.items()}
    return {name: answer for name, answer in answers.items() if answer is not None}


@pytest.fixture(scope="module")
def shown(profile: Profile, ask: Asking, said: dict[str, Said]) -> dict[str, Said]:
    """What its pages say besides."""
    at = Asked(BY_NUMBER[profile.pk], profile, ask, {})
    answers = {name: read(at) for name, read in PAGES.items()}
    return {name: answer for name, answer in answers.items() if answer is not None}


def assert_kernels(said: dict[str, Said], whole: Said) -> None:
    """Every kernel that a place names has the same time there: some name the first ones alone."""
    known = whole.by_kernel or {}
    for place, each in said.items():
        wrong = {name: (known.get(name), ns) for name, ns in (each.by_kernel or {}).items() if known.get(name) != ns}
        assert not wrong, (place, f"{len(wrong)} kernels, first (API, here)", next(iter(wrong.items())))


def assert_one(said: dict[str, Said], quantity: str) -> None:
    """Every place that says it says the same."""
    told = {place: value for place, each in said.items() if (value := getattr(each, quantity)) is not None}
    assert len(set(told.values())) <= 1, told


@each_file(TRACE, COUNTERS, SUMMARY)
def test_kernel_time_is_one_number(said: dict[str, Said]) -> None:
    assert_one(said, "kernel_ns")


@each_file(TRACE, COUNTERS, SUMMARY)
def test_launches_are_one_number(said: dict[str, Said]) -> None:
    assert_one(said, "launches")


@each_file(TRACE, COUNTERS, SUMMARY)
def test_kernels_are_one_number(said: dict[str, Said]) -> None:
    assert_one(said, "kernels")


@each_file(TRACE)
def test_wall_time_is_one_number(said: dict[str, Said]) -> None:
    assert_one(said, "wall_ns")


@each_file(TRACE)
def test_gpu_work_is_one_number(said: dict[str, Said]) -> None:
    assert_one(said, "work_ns")


@each_file(TRACE, COUNTERS, SUMMARY)
def test_the_time_of_a_kernel_is_one_number(said: dict[str, Said]) -> None:
    assert_kernels(said, said["API, kernels"])


@each_file(TRACE, COUNTERS, SUMMARY, sampled=True)
def test_pages_show_the_numbers_of_the_api(said: dict[str, Said], shown: dict[str, Said]) -> None:
    for quantity in QUANTITIES:
        assert_one({"API": said["API"], "API, kernels": said["API, kernels"], **shown}, quantity)
    assert_kernels(shown, said["API, kernels"])
