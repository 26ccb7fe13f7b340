"""What passed whole is left out of the next run of the same change, and nothing else."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.run.passed import PASSED, LeaveOut, Note, passed_before

A, B, C, D = (f"tests/test_a.py::test_{name}" for name in "abcd")
OTHER = "tests/test_c.py::test_whole"


def report(name: str, when: str, outcome: str) -> pytest.TestReport:
    return pytest.TestReport(name, ("", None, ""), {}, outcome, None, when)         # type: ignore[arg-type]


def test_what_passed_whole_is_left_out_of_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "passed"
    place.write_text("tests/test_b.py::test_of_another_run\n")
    note = Note(place)
    note.pytest_collection_modifyitems([SimpleNamespace(nodeid=name) for name in (A, B, C, D, OTHER)])       # type: ignore[misc]
    for name, when, outcome in ((A, "call", "passed"), (B, "call", "passed"), (B, "teardown", "failed"), (C, "setup", "skipped"),
                                (D, "call", "failed"), (OTHER, "call", "passed")):
        note.pytest_runtest_logreport(report(name, when, outcome))
    note.pytest_sessionfinish()
    assert place.read_text().splitlines() == ["tests/test_b.py::test_of_another_run", A, "tests/test_c.py", OTHER]
    items, left = [SimpleNamespace(nodeid=name) for name in (A, B, C, D)], []
    config = SimpleNamespace(hook=SimpleNamespace(pytest_deselected=lambda items: left.extend(items)))
    monkeypatch.setenv(PASSED, str(place))
    LeaveOut(passed_before()).pytest_collection_modifyitems(config, items)                    # type: ignore[arg-type]
    assert [each.nodeid for each in items] == [B, C, D] and [each.nodeid for each in left] == [A]
    monkeypatch.setenv(PASSED, str(tmp_path / "none"))
    assert not passed_before()
