"""Runs the parts of the test suite at once, whatever becomes of each, and sums them up.

    python -m tests.run.parts [--again TIMES] [--core] [--note-passed]

A part is a command. Those of pytest take the files of tests from a queue, so that all end at about the same time; where the
browser's process ends, another one takes of the others' files: no test of the database runs beside Playwright's loop. What the
first prints is passed on as it comes, that of the others when those before them have ended. The exit code is 1 when a part failed.
Tests that failed beside the others run once more alone: those that pass then are named as unsteady, to be mended, and fail nothing.
With --again: the whole suite TIMES times, each time in another random order, and a test that fails once has failed.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.run.core import has_core_tests
from tests.run.durations import seconds_by_file
from tests.run.passed import passed_before

PROJECT = Path(__file__).resolve().parents[2]
GPU = "tests/gpu/"          # all of it needs one: it is not even imported
PYTEST = (sys.executable, "-m", "pytest", "-m", "not gpu", "-p", "no:cacheprovider", "-p", "tests.run.passed",
          "-p", "tests.run.queued")
BROWSER = ("tests/browser/", "tests/ways/")
TOGETHER = "tests/truth/"   # its database of all public files is made by one process, once
COUNTED = re.compile(r"(\d+) (passed|failed|errors?|skipped)\b")           # pytest's closing line
NODE_COUNTED = re.compile(r"^(?:#|ℹ) (pass|fail|skipped) (\d+)$")           # those of node --test
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?::.+?)(?: - .*)?$")              # of pytest's short summary
MOST_ALONE = 12                 # failed tests that run once more: of more it is no matter of load
WORDS = {"pass": "passed", "fail": "failed", "error": "failed", "errors": "failed"}


@dataclass(frozen=True)
class Part:
    """`after`: of the part that it waits for, which must stand before it."""

    name: str
    command: tuple[str, ...]
    in_pytest: bool = True
    after: str = ""


@dataclass
class Sum:
    """What one part came to: tests by "passed", "failed" and "skipped", the exit code of its command, and how long it ran."""

    counts: dict[str, int] = field(default_factory=dict)
    exit_code: int = 0
    seconds: float = 0.0
    failures: tuple[str, ...] = ()          # tests by the names that pytest takes

    @property
    def failed(self) -> int:
        """Return the number of failed tests; at least 1 where the command failed without naming one."""
        return self.counts.get("failed", 0) or int(self.exit_code != 0)

    @property
    def line(self) -> str:
        skipped = f", {self.counts['skipped']} skipped" if self.counts.get("skipped") else ""
        return f"{self.counts.get('passed', 0)} passed, {self.failed} failed{skipped}"


# what takes longest where no run was timed yet: begun first, so that no process is left with one of them at the end
LONG = (
    "tests/webapp/test_serve.py",
    "tests/workers/core/test_worker.py",
    "tests/deploy/test_proxies.py",
    "tests/profiles/running/test_fetches.py",
    "tests/workers/capture/test_running.py",
    "tests/workers/capture/test_capture.py",
    "tests/profiles/running/test_hosts.py",
    "tests/profiles/fleet/test_clickhouse_store.py",
    "tests/tuner/candidates/test_judged.py",
    "tests/tuner/bring/test_pasted.py",
    "tests/tuner/bring/own/test_own.py",
    "tests/webapp/projects/test_walls.py",
    "tests/workers/test_stages.py",
    "tests/webapp/test_outage.py",
    "tests/truth/test_pages.py",
    "tests/webapp/schema/test_schema_fuzz.py",
    "tests/tuner/measure/test_team.py",
    "tests/profiles/pages/test_ingest_command.py",
    "tests/profiles/ingest/test_hostile.py",
)


def files_of_tests() -> list[str]:
    """Return the files of tests that need no GPU, but for those that passed whole before."""
    found = {str(path.relative_to(PROJECT)) for path in (PROJECT / "tests").rglob("test_*.py")}
    return sorted(path for path in found - passed_before() if not path.startswith(GPU))


def in_order(files: list[str], seed: int | None) -> list[str]:
    """Return them longest first, or as a seed says."""
    seconds = {**{path: float(len(LONG) - at) for at, path in enumerate(LONG)}, **seconds_by_file()}
    ordered = sorted(files, key=lambda path: (-seconds.get(path, 0.0), path))
    if seed is not None:
        random.Random(seed).shuffle(ordered)
    return ordered


def lines_of(files: list[str]) -> Iterator[str]:
    """Yield the lines of a queue: a file each, those of `TOGETHER` in one, where the first of them stands."""
    together = [path for path in files if path.startswith(TOGETHER)]
    for path in files:
        if path in together[:1]:
            yield " ".join(together)
        elif path not in together:
            yield path


def make_parts(folder: Path, files: list[str], *, core: bool = False, seed: int | None = None, extra: tuple[str, ...] = ()
               ) -> tuple[Part, ...]:
    """Write the queues of these files to a folder and return the parts that empty them.

    Four processes keep the two processors of the smallest machine busy, since some wait (three left them a quarter of the time
    idle); each more costs what it imports. The core waits for little: two and one more.
    """
    if core:
        files = [path for path in files if not path.startswith(BROWSER) and has_core_tests(PROJECT / path)]
    browser, rest = Path(folder, "browser"), Path(folder, "rest")
    alone = [path for path in files if path.startswith(BROWSER)]            # of one process: as they stand
    browser.write_text("".join(f"{path}\n" for path in (alone if seed is None else in_order(alone, seed))))
    others = [path for path in files if not path.startswith(BROWSER)]
    rest.write_text("".join(f"{line}\n" for line in lines_of(in_order(others, seed))))
    command = (*PYTEST, *(("--core", "-p", "no:playwright") if core else ()),
               *(("-p", "randomly", f"--randomly-seed={seed}") if seed is not None else ()), *extra)
    pythons = [Part(f"Python {number}", (*command, f"--queue={rest}")) for number in range(1, 4 if core else 5)]
    if not browser.read_text():
        return tuple(pythons)
    return (*pythons[:3], Part("browser", (*command, f"--queue={browser}")), replace(pythons[3], after="browser"))


JAVASCRIPT = Part("JavaScript", ("make", "--no-print-directory", "js"), in_pytest=False)


def run_part(part: Part, turn: threading.Event | None = None, ended: threading.Event | None = None) -> Sum:
    """Run one part and return what it came to. Its output is passed on at once, dots included, from its `turn` on.

    ended  set when its command has: what was printed may still wait for its turn
    """
    began = time.monotonic()
    process = subprocess.Popen(part.command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    printed, shown = bytearray(), 0
    while block := os.read(process.stdout.fileno(), 1 << 16):
        printed += block
        if turn is None or turn.is_set():
            shown = _show(printed, shown)
    code = process.wait()
    seconds = time.monotonic() - began
    if ended is not None:
        ended.set()
    if turn is not None:
        turn.wait()
    _show(printed, shown)
    text = printed.decode(errors="replace")
    return Sum(count_tests(text), 0 if part.in_pytest and code == 5 else code, seconds, failures_of(text))      # 5: no test


def _show(printed: bytearray, shown: int) -> int:
    sys.stdout.buffer.write(printed[shown:])
    sys.stdout.buffer.flush()
    return len(printed)


def count_tests(printed: str) -> dict[str, int]:
    """Return the numbers of the last closing line of pytest, or of the closing lines of `node --test`."""
    counts: dict[str, int] = {}
    for line in reversed(printed.splitlines()):
        if " in " in line and (found := COUNTED.findall(line)):
            for number, word in found:
                counts[WORDS.get(word, word)] = counts.get(WORDS.get(word, word), 0) + int(number)
            return counts
    for line in printed.splitlines():
        if match := NODE_COUNTED.match(line.strip()):
            counts[WORDS.get(match[1], match[1])] = int(match[2])
    return counts


def failures_of(printed: str) -> tuple[str, ...]:
    """Return the tests that failed or could not begin, each once."""
    return tuple(dict.fromkeys(match[1] for line in printed.splitlines() if (match := FAILED.match(line))))


def run_alone(sums: list[Sum]) -> bool:
    """Run the tests that failed once more, one after the other and nothing beside them. Return whether all pass now."""
    failures = [name for each in sums for name in each.failures]
    if any(each.exit_code not in (0, 1) or (each.exit_code and not each.failures) for each in sums) or len(failures) > MOST_ALONE:
        return False
    print(f"--- once more, alone: {len(failures)} that failed beside the others", flush=True)
    alone = run_part(Part("alone", (sys.executable, "-m", "pytest", "-m", "not gpu", *failures)))
    steady = [name for name in failures if name not in alone.failures]
    if steady:
        print(f"UNSTEADY, failed beside the others and passed alone, to be mended: {', '.join(steady)}", flush=True)
    return alone.exit_code == 0


def run_parts(parts: tuple[Part, ...]) -> list[Sum]:
    """Run all parts, at once or each after another, print one line for each and one for all, and return what they came to."""
    turns = [threading.Event() for _ in parts]
    ended = {part.name: threading.Event() for part in parts}

    def run(number: int) -> Sum:
        if parts[number].after:
            ended[parts[number].after].wait()
        try:
            return run_part(parts[number], turns[number], ended[parts[number].name])
        finally:
            ended[parts[number].name].set()
            if number + 1 < len(parts):
                turns[number + 1].set()

    turns[0].set()
    with ThreadPoolExecutor(len(parts)) as pool:
        sums = list(pool.map(run, range(len(parts))))
    total = Sum()
    for part, each in zip(parts, sums, strict=True):
        code = f" (exit code {each.exit_code})" if each.exit_code else ""
        print(f"{part.name + ':':12} {each.line} in {each.seconds:.0f} s{code}")
        for word in ("passed", "skipped"):
            total.counts[word] = total.counts.get(word, 0) + each.counts.get(word, 0)
        total.counts["failed"] = total.counts.get("failed", 0) + each.failed
    print(total.line, flush=True)
    return sums


def run_files(files: list[str], *others: Part, **options: Any) -> list[Sum]:
    """Run these files of tests (options: those of `make_parts`) and the other parts beside them."""
    from tests.warm.parent import offered  # what is imported for it, `make test-core` has no use for

    with tempfile.TemporaryDirectory(prefix="rp-queue-") as folder, nullcontext() if options.get("core") else offered():
        return run_parts((*make_parts(Path(folder), files, **options), *others))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--again", type=int, default=0, metavar="TIMES", help="that many times, each in a random order")
    parser.add_argument("--core", action="store_true", help="only tests that need no server, no browser and no second process")
    parser.add_argument("--note-passed", action="store_true", help="add what passes to the file of RIDGEPOINT_PASSED")
    options = parser.parse_args()
    if options.core:
        sums = run_files(files_of_tests(), core=True, extra=("--note-passed",) if options.note_passed else ())
        return int(any(each.exit_code for each in sums))
    if not options.again:
        sums = run_files(files_of_tests(), JAVASCRIPT)
        return int(any(each.exit_code for each in sums) and not run_alone(sums))
    failed = []
    for number in range(1, options.again + 1):
        seed = int.from_bytes(os.urandom(3), "big")
        print(f"--- {number} of {options.again}, order {seed}", flush=True)
        if any(each.exit_code for each in run_files(files_of_tests(), JAVASCRIPT, seed=seed)):
            failed.append(str(seed))
    told = f"; failed with --randomly-seed={', '.join(failed)}" if failed else ""
    print(f"{options.again - len(failed)} of {options.again} times without a failure{told}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
