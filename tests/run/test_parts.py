"""What `make test` adds up: every part runs, whatever the others come to, and the exit code says so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run.parts import (
    BROWSER,
    GPU,
    LONG,
    MOST_ALONE,
    PROJECT,
    TOGETHER,
    Part,
    Sum,
    count_tests,
    failures_of,
    files_of_tests,
    in_order,
    make_parts,
    run_alone,
    run_parts,
)
from tests.scale import DEEP


def part(name: str, code: str) -> Part:
    return Part(name, (sys.executable, "-c", code), in_pytest=False)


def test_a_part_that_fails_keeps_no_other_from_running(capfd: pytest.CaptureFixture[str]) -> None:
    sums = run_parts((part("first", "print('F.\\n1 failed, 1 passed, 2 skipped in 0.10s'); raise SystemExit(1)"),
                      part("second", "print('# pass 30\\n# fail 0\\n# skipped 1')"), part("third", "raise SystemExit(3)")))
    assert [each.exit_code for each in sums] == [1, 0, 3]
    printed = capfd.readouterr().out.splitlines()
    assert [re.sub(r" in \d+ s", "", line) for line in printed[-4:]] == [
        "first:       1 passed, 1 failed, 2 skipped (exit code 1)", "second:      30 passed, 0 failed, 1 skipped",
        "third:       0 passed, 1 failed (exit code 3)", "31 passed, 2 failed, 3 skipped"]
    assert "F." in printed


def test_a_part_waits_for_the_one_that_it_follows_and_for_no_other(tmp_path: Path) -> None:
    """`slow` prints first and ends last: what `second` waits for is the end of `first`, not its turn to print."""
    def stamp(name: str, after: str, seconds: float) -> Part:
        code = f"import time; a = time.monotonic(); time.sleep({seconds}); open({str(tmp_path / name)!r}, 'w')" \
               ".write(f'{a} {time.monotonic()}')"
        return Part(name, (sys.executable, "-c", code), in_pytest=False, after=after)

    run_parts((stamp("slow", "", 2.5), stamp("first", "", 0.5), stamp("second", "first", 0.0)))
    times = {name: [float(word) for word in (tmp_path / name).read_text().split()] for name in ("slow", "first", "second")}
    assert times["first"][1] <= times["second"][0] and times["second"][1] < times["slow"][1]


def test_each_file_of_tests_is_in_one_queue_and_those_of_the_browser_in_its_own(tmp_path: Path) -> None:
    files = files_of_tests()
    parts = make_parts(tmp_path, files)
    browser, rest = ((tmp_path / name).read_text().split() for name in ("browser", "rest"))
    assert sorted([*browser, *rest]) == files and not any(path.startswith(GPU) for path in files)
    assert {path.split("/")[1] for path in browser} == {"browser", "ways"} and not any(path.startswith(BROWSER) for path in rest)
    lines = [set(line.split()) for line in (tmp_path / "rest").read_text().splitlines()]
    assert {path for path in files if path.startswith(TOGETHER)} in lines
    asked = [(word.rpartition("/")[2], part.after) for part in parts for word in part.command if word.startswith("--queue=")]
    assert asked == [*3 * [("rest", "")], ("browser", ""), ("rest", "browser")]


def test_the_longest_come_first_or_what_a_seed_says() -> None:
    files = files_of_tests()
    assert set(LONG) <= set(files)
    assert in_order(files, 1) == in_order(files, 1) != in_order(files, 2) != in_order(files, None)


def test_processes_share_a_queue(tmp_path: Path) -> None:
    """Each runs what it took, all of a file, with what a conftest of the folder gives to both files; nothing runs twice."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "conftest.py").write_text("import pytest\n\n@pytest.fixture(scope='session')\ndef once():\n    return []\n")
    for at, name in enumerate(("one", "two"), 1):
        (tmp_path / "inner" / f"test_{name}.py").write_text(
            f"def test_a(once):\n    once.append(1)\n\ndef test_{name}(once):\n    assert len(once) == {at}\n")
    (tmp_path / "queue").write_text("inner/test_one.py\ninner/test_two.py\ninner/test_none.py\n")
    (tmp_path / "inner" / "test_none.py").write_text("")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.run.queued", "-p", "no:django", "-p", "no:randomly",
               "--rootdir", ".", "--queue=queue"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    first, second = (subprocess.run(command, cwd=tmp_path, env={**env, "PYTHONPATH": str(PROJECT)}, text=True, capture_output=True)
                     for _ in range(2))
    assert (first.returncode, count_tests(first.stdout)) == (0, {"passed": 4}), first.stdout + first.stderr
    assert second.returncode == 5 and (tmp_path / "queue").read_text() == ""


@pytest.mark.parametrize(("printed", "counts"), [
    ("..\n2 passed in 1.20s\n", {"passed": 2}),
    ("E\n1 failed, 3 passed, 2 errors in 61.00s (0:01:01)\n", {"failed": 3, "passed": 3}),
    ("2 passed in 1s\nFAILED tests/a.py::b - said: 7 passed\n", {"passed": 2}),
    ("ℹ tests 4\nℹ pass 3\nℹ fail 1\nℹ skipped 0\n", {"passed": 3, "failed": 1, "skipped": 0}),
    ("node is not installed", {}),
])
def test_counts_come_from_the_closing_lines(printed: str, counts: dict[str, int]) -> None:
    assert count_tests(printed) == counts


def test_failures_are_named_as_pytest_takes_them() -> None:
    printed = "FAILED tests/a.py::test_b[x-y] - AssertionError: no - no\nERROR tests/c.py::test_d\nFAILED tests/c.py::test_d - E\n"
    assert failures_of(printed + "FAILED to start\n") == ("tests/a.py::test_b[x-y]", "tests/c.py::test_d")


def test_what_fails_alone_too_has_failed_and_what_passes_is_named(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_steady():\n    pass\n\ndef test_wrong():\n    assert 0\n")
    steady, wrong = (f"{tmp_path}/test_it.py::{name}" for name in ("test_steady", "test_wrong"))
    assert not run_alone([Sum({"failed": 2}, 1, failures=(steady, wrong))])
    assert f"UNSTEADY, failed beside the others and passed alone, to be mended: {steady}" in capfd.readouterr().out
    assert not DEEP or run_alone([Sum({"failed": 1}, 1, failures=(steady,))])          # each is a pytest of its own
    assert not run_alone([Sum({}, 2)]) and not run_alone([Sum({"failed": 99}, 1, failures=(steady,) * (MOST_ALONE + 1))])


def test_a_command_that_ends_badly_without_a_count_is_a_failure() -> None:
    assert Sum({}, 2).line == "0 passed, 1 failed" and Sum({"passed": 1}, 0).line == "1 passed, 0 failed"
