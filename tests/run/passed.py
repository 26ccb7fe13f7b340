"""Plugin: what passed in one run is not run again in the next of the same change.

RIDGEPOINT_PASSED names a file. A run with `--note-passed` adds to it each test that passed whole, and each file all of whose tests
did; every other run leaves those out. CI does so: what passes where torch, Triton, git and Chromium are missing needs none of them.
"""

from __future__ import annotations

import fcntl
import os
from collections import defaultdict
from pathlib import Path

import pytest

PASSED = "RIDGEPOINT_PASSED"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--note-passed", action="store_true", help=f"add what passes to the file that {PASSED} names")


def pytest_configure(config: pytest.Config) -> None:
    place = os.environ.get(PASSED)
    if place and not config.option.note_passed:
        config.pluginmanager.register(LeaveOut(passed_before()))
    elif place:
        config.pluginmanager.register(Note(Path(place)))


def passed_before() -> set[str]:
    """Return the names of the tests and files that passed in an earlier run of the same change."""
    place = Path(os.environ.get(PASSED) or os.devnull)
    return set(place.read_text().splitlines()) if place.exists() else set()


class Note:
    """Writes the names of tests whose call passed and of which no other part failed, as the run ends."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.passed: set[str] = set()
        self.failed: set[str] = set()
        self.tests_by_file: dict[str, set[str]] = defaultdict(set)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:          # those that a mark or a choice leaves out of this run too
            self.tests_by_file[item.nodeid.split("::")[0]].add(item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        whole = self.passed - self.failed
        files = {file for file, tests in self.tests_by_file.items() if tests <= whole}
        with self.place.open("a") as out:
            fcntl.flock(out, fcntl.LOCK_EX)         # the processes of a run end together
            out.writelines(f"{name}\n" for name in sorted(whole | files))


class LeaveOut:
    """Deselects the tests that the file names; each process of a run reads the same file."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in self.names])
        items[:] = [item for item in items if item.nodeid not in self.names]
