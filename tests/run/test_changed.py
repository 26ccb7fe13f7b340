"""Which tests a change can reach: up its imports, through templates and scripts, by the addresses that tests name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.run import changed
from tests.run.durations import remember, seconds_by_file

pytestmark = pytest.mark.slow


@pytest.mark.deep_only
def test_distance_is_the_number_of_imports() -> None:
    far = changed.distances(["profiles/sql/process.py"])
    assert far["profiles.sql.process"] == 0 and far["profiles.sql.services"] == 1 and far["profiles.sql.track_api"] == 2
    assert "tuner.gate.stats.results" not in far


@pytest.fixture
def of_profiles_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """To read what everything imports takes ten seconds."""
    few = {name: path for name, path in changed.known().items() if name.startswith(("profiles.overview", "profiles.kernel"))}
    monkeypatch.setattr(changed, "known", lambda: few)
    caches = (changed.imported_by, changed.imports_of, changed.named_by)
    for each in caches:
        each.cache_clear()
    yield
    for each in caches:
        each.cache_clear()


def test_a_template_counts_as_who_names_it(of_profiles_alone: None) -> None:
    assert changed.distances(["templates/profiles/upload.html"])["profiles.overview.pages"] == 0
    partial = changed.distances(["templates/profiles/_kernels.html"])
    assert min(partial.values()) >= 0 and any(each.startswith("profiles.") for each in partial)


def test_an_address_leads_to_its_view() -> None:
    assert changed.view_module("/profiles/1/") == ("profiles.overview.pages",) and changed.view_module("/nowhere/at/all") == ()
    assert "profiles.overview.pages" in changed.reached(Path(changed.ROOT / "tests/profiles/pages/test_pages.py"))


@pytest.mark.deep_only
def test_the_nearest_are_chosen_and_the_rest_is_named() -> None:
    chosen, left = changed.choose(["profiles/sql/process.py"], minutes=0.5)
    assert "tests/profiles/sql/test_sql.py" in {each.path for each in chosen + left}
    assert not {each.path for each in chosen} & {each.path for each in left}
    assert "tests/tuner/gate_stats/test_suite.py" not in {each.path for each in chosen + left}
    assert [each.distance for each in chosen] == sorted(each.distance for each in chosen)


def test_times_are_kept_by_test_and_summed_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIDGEPOINT_TEST_CACHE", str(tmp_path))
    assert seconds_by_file() == {}
    remember({"tests/a.py::x": 1.0, "tests/a.py::y": 2.0, "tests/b.py::z": 5.0})
    remember({"tests/a.py::x": 4.0})
    assert seconds_by_file() == {"tests/a.py": 6.0, "tests/b.py": 5.0}
