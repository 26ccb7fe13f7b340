"""`python -m tests.fuzzing [--seconds N] [--format kineto …]`: mutate, judge, shrink, keep what was found.

Hypothesis chooses and shrinks the mutations; what is left is cut down byte by byte and kept under tests/data/fuzz. The exit
status is 1 when something new was found.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from tests.fuzzing.judge import Verdict, judged, prepare
from tests.fuzzing.mutations import Mutation, mutate, mutations_of
from tests.fuzzing.seeds import DATA, FORMATS, seeds

FOUND = DATA / "fuzz"
ROUND = 25                      # cases between two looks at the clock
SHRINK_SECONDS = 40.0
_WHOLE = st.integers(0, 1 << 40)


class Wrong(AssertionError):
    """Hypothesis tells faults apart by the type and place of what is raised; the words say which one it is."""


class Fuzz:
    """The cases of one format."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.path = kind, folder / f"case-{kind}"
        self.outcomes: Counter[str] = Counter()
        self.slowest = Verdict("", {}, 0.0, 0)
        self.last: tuple[str, bytes] = ("", b"")
        self.known: set[str] = set()

    def judge(self, content: bytes) -> Verdict:
        self.path.write_bytes(content)
        found = judged(self.path)
        self.outcomes[found.told.get("status", "ended")] += 1
        self.slowest = max(self.slowest, found, key=lambda each: each.seconds)
        return found

    def case(self, which: int, other: int, mutations: list[Mutation]) -> None:
        files = seeds(self.kind)
        content = mutate(files[which % len(files)], mutations, files[other % len(files)])
        found = self.judge(content)
        if found.wrong and found.wrong not in self.known:
            self.last = found.wrong, content
            raise Wrong(found.wrong)

    def run(self, number: int) -> tuple[str, bytes] | None:
        """One round; what was found, as small as Hypothesis made it."""
        mutation = st.tuples(st.sampled_from(mutations_of(self.kind, seeds(self.kind)[0])), _WHOLE, _WHOLE)
        test = given(st.integers(0, 7), st.integers(0, 7), st.lists(mutation, min_size=1, max_size=4))(
            lambda which, other, mutations: self.case(which, other, mutations))
        try:
            seeded(number)(settings(max_examples=ROUND, deadline=None, database=None, suppress_health_check=list(HealthCheck),
                                    phases=[Phase.generate, Phase.shrink], report_multiple_bugs=False)(test))()
        except Wrong:
            return self.last
        return None

    def smaller(self, wrong: str, content: bytes) -> bytes:
        """The same fault with fewer bytes: pieces are left out, the halves first."""
        end, size = time.monotonic() + SHRINK_SECONDS, max(len(content) // 2, 1)
        while size and time.monotonic() < end:
            at, before = 0, len(content)
            while at < len(content) and time.monotonic() < end:
                shorter = content[:at] + content[at + size:]
                if self.judge(shorter).wrong == wrong:
                    content = shorter
                else:
                    at += size
            size = size // 2 if len(content) == before else min(size, max(len(content) // 2, 1))
        return content


def keep(kind: str, content: bytes) -> Path:
    """The input as a test: tests/data/fuzz/<format>-<digest>."""
    FOUND.mkdir(exist_ok=True)
    path = FOUND / f"{kind}-{hashlib.sha256(content).hexdigest()[:10]}"
    path.write_bytes(content)
    return path


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing")
    parser.add_argument("--seconds", type=float, default=300.0, help="for all formats together")
    parser.add_argument("--format", nargs="*", default=FORMATS, choices=FORMATS)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given_ = parser.parse_args()
    prepare()
    end, found = time.monotonic() + given_.seconds, 0
    with tempfile.TemporaryDirectory() as folder:
        fuzzes = [Fuzz(kind, Path(folder)) for kind in given_.format]
        for number in itertools.count(given_.seed):
            for fuzz in fuzzes:
                if time.monotonic() > end:
                    _tell(fuzzes, given_.seed)
                    return 1 if found else 0
                if result := fuzz.run(number):
                    wrong, content = result
                    fuzz.known.add(wrong)
                    path = keep(fuzz.kind, fuzz.smaller(wrong, content))
                    found += 1
                    sys.stdout.write(f"{fuzz.kind}: {wrong}\n    kept as {path.relative_to(Path.cwd())}, "
                                     f"{path.stat().st_size} bytes\n")
                    sys.stdout.flush()
    return 0


def _tell(fuzzes: list[Fuzz], seed: int) -> None:
    for fuzz in fuzzes:
        outcomes = ", ".join(f"{count} {status}" for status, count in sorted(fuzz.outcomes.items()))
        sys.stdout.write(f"{fuzz.kind:12} {sum(fuzz.outcomes.values()):6} cases: {outcomes}; "
                         f"slowest {fuzz.slowest.seconds:.1f} s\n")
    sys.stdout.write(f"seed {seed}\n")


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.fuzzing.settings")
    sys.exit(main())
