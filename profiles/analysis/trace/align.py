"""One clock for the ranks of a job: by the base time that every file states, or by the collectives that all took part in.

A collective ends on every rank when its last participant has delivered: the ends of the same all-reduce on two ranks lie
within microseconds of each other, whoever came late to its begin. So the median difference of matched ends is the
difference of two clocks, and what is left of the differences after the shift is the residual that goes with the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from profiles.analysis.core.kernels import dictionary, numbers
from profiles.analysis.core.sentences import time_text
from profiles.analysis.trace.breakdown import STEP
from profiles.ingest.trace import Category

Int64 = npt.NDArray[np.int64]
MAX_COLLECTIVES = 4096       # of a rank, the first; more do not sharpen a median
MAX_OFFSET = 512             # collectives by which one recording may begin before the other
LEAST_MATCHED = 4
AGREEMENT = 0.9              # of the best agreement of names and sizes: offsets that are considered
TOLERANCE_NS = 50_000        # base times stand while the collectives contradict them by less
SPREADS = 4                  # … or by less than this many of their own spreads


@dataclass(frozen=True)
class Collectives:
    """GPU kernels of collectives in the order of their begin, and the starts of the numbered steps. Times in ns from the
    first record of the rank's own file."""

    signature: tuple[tuple[str, int], ...]       # (kernel name without its arguments, bytes or -1)
    end_ns: Int64
    step: dict[int, int]                         # step number -> its start


@dataclass(frozen=True)
class RankClock:
    label: str
    base_ns: int | None                          # epoch ns of time 0, where the file states it
    collectives: Collectives


@dataclass(frozen=True)
class RankShift:
    label: str
    shift_ns: int                                # to be added to the rank's times
    matched: int                                 # collectives found on it and on the first rank
    residual_ns: float | None                    # median |difference of their ends| after the shift; None: none matched
    residual_p95_ns: float | None


@dataclass(frozen=True)
class Alignment:
    """`rule`: "base time" | "collectives" | "none"."""

    rule: str
    ranks: tuple[RankShift, ...]
    base_ns: int | None                          # epoch ns of the common time 0, where base times are stated
    sentence: str                                # for people

    def as_json(self) -> dict[str, Any]:
        worst = max((rank.residual_ns for rank in self.ranks if rank.residual_ns is not None), default=None)
        return {"rule": self.rule, "residual_ns": worst, "sentence": self.sentence,
                "ranks": [{"label": rank.label, "shift_ns": rank.shift_ns, "matched_collectives": rank.matched,
                           "residual_ns": rank.residual_ns, "residual_p95_ns": rank.residual_p95_ns} for rank in self.ranks]}


def collectives(slices: pa.Table) -> Collectives:
    """Return the collectives and steps of one rank's slices.

    `slices` has the columns name, category, start_ns, dur_ns, bytes and instant of SLICES.
    """
    category, start, dur = (numbers(slices, name) for name in ("category", "start_ns", "dur_ns"))
    codes, names = dictionary(slices, "name")
    real = ~numbers(slices, "instant").astype(np.bool_)
    rows = np.flatnonzero((category == Category.COMMUNICATION) & real)
    rows = rows[np.argsort(start[rows], kind="stable")][:MAX_COLLECTIVES]
    moved = numbers(slices, "bytes")[rows].tolist()
    number_of = {code: int(step_match[1]) for code, name in enumerate(names) if (step_match := STEP.search(name))}
    steps = np.flatnonzero((category == Category.ANNOTATION) & np.isin(codes, list(number_of)))
    return Collectives(tuple((names[code].split("(")[0], size) for code, size in zip(codes[rows].tolist(), moved, strict=True)),
                       start[rows] + dur[rows], {number_of[int(codes[row])]: int(start[row]) for row in steps.tolist()})


def align(ranks: Sequence[RankClock]) -> Alignment:
    """Decide how to put the ranks on the clock of the first.

    Base times where all state them and the collectives do not contradict them; else matched collectives; else every rank starts at
    0 and nothing is aligned.
    """
    bases = [rank.base_ns for rank in ranks if rank.base_ns is not None]
    stated = len(bases) == len(ranks)
    by_base = [rank.base_ns - min(bases) if stated and rank.base_ns is not None else 0 for rank in ranks]
    differences = [_end_differences(ranks[0].collectives, rank.collectives, by_base[i] - by_base[0] if stated else None)
             for i, rank in enumerate(ranks)]
    measured = all(ends.size >= LEAST_MATCHED for ends in differences)
    by_ends = [by_base[0] - round(float(np.median(ends))) if ends.size else by_base[i] for i, ends in enumerate(differences)]
    contradicted = measured and any(
        abs(by_ends[i] - by_base[i]) > max(TOLERANCE_NS, SPREADS * _spread(ends)) for i, ends in enumerate(differences))
    rule = "base time" if stated and not contradicted else "collectives" if measured else "none"
    shifts = by_base if rule != "collectives" else by_ends
    first = min(shifts)
    shifted = tuple(_shift(rank.label, shifts[i] - first, shifts[i] - shifts[0], differences[i]) for i, rank in enumerate(ranks))
    base_ns = min(bases) + first - min(by_base) if stated else None
    contradiction_ns = max(abs(b - a) for a, b in zip(by_base, by_ends, strict=True)) if stated else None
    return Alignment(rule, shifted, base_ns, _sentence(rule, shifted, contradiction_ns))


def _shift(label: str, shift_ns: int, against_first_ns: int, ends: Int64) -> RankShift:
    left = np.abs(ends + against_first_ns)
    known = left.size > 0
    return RankShift(label, int(shift_ns), int(left.size), float(np.median(left)) if known else None,
                     float(np.quantile(left, 0.95)) if known else None)


def _spread(ends: Int64) -> float:
    """Median absolute deviation from the median."""
    return float(np.median(np.abs(ends - np.median(ends)))) if ends.size else 0.0


def _end_differences(first: Collectives, other: Collectives, shift_ns: int | None) -> Int64:
    """Differences of the ends (other - first, each on its own clock) of the collectives that are the same.

    The recordings may begin some collectives apart: of all offsets at which names and sizes agree best, the one that fits
    the stated clocks (`shift_ns`), else the numbered steps, else the offset nearest to 0.
    """
    ids: dict[tuple[str, int], int] = {}
    mine, theirs = (np.array([ids.setdefault(each, len(ids)) for each in part.signature], np.int64) for part in (first, other))
    candidates: list[tuple[float, int, Int64]] = []
    for offset in range(-min(MAX_OFFSET, theirs.size), min(MAX_OFFSET, mine.size) + 1):
        a, b = max(offset, 0), max(-offset, 0)
        n = min(mine.size - a, theirs.size - b)
        if n >= LEAST_MATCHED and n * 3 >= min(mine.size, theirs.size):
            same = mine[a:a + n] == theirs[b:b + n]
            candidates.append((float(same.mean()), offset, (other.end_ns[b:b + n] - first.end_ns[a:a + n])[same]))
    best = max((share for share, _, _ in candidates), default=0.0)
    fitting = [(offset, ends) for share, offset, ends in candidates if share >= AGREEMENT * best and ends.size >= LEAST_MATCHED]
    if not fitting:
        return np.empty(0, np.int64)
    by_steps = _shift_by_steps(first, other)
    for expected, tolerance_ns in ((shift_ns, TOLERANCE_NS), (by_steps, None), (shift_ns, None)):
        if expected is not None:
            _, ends = min(fitting, key=lambda each: abs(float(np.median(each[1])) + expected))
            if tolerance_ns is None or abs(float(np.median(ends)) + expected) <= tolerance_ns:
                return ends
    return min(fitting, key=lambda each: abs(each[0]))[1]


def _shift_by_steps(first: Collectives, other: Collectives) -> int | None:
    common = sorted(first.step.keys() & other.step.keys())
    return round(float(np.median([first.step[n] - other.step[n] for n in common]))) if common else None


def _sentence(rule: str, ranks: Sequence[RankShift], contradiction_ns: int | None) -> str:
    matched = min(rank.matched for rank in ranks)
    apart = time_text(max((rank.residual_ns or 0.0 for rank in ranks), default=0.0))
    if rule == "none":
        return ("The clocks of the ranks are not aligned: not every file states when it began, and too few collectives are "
                "common to all ranks. Every rank starts at 0.")
    if rule == "base time":
        checked = (f"the ends of {matched:,} matched collectives then differ by {apart} (median)" if matched
                   else "no collective is common to all ranks, so nothing checks it")
        return f"Clocks aligned by the base time that every file states; {checked}."
    why = ("not every file states when it began" if contradiction_ns is None
           else f"the stated base times contradict them by {time_text(contradiction_ns)}")
    return f"Clocks aligned by the ends of {matched:,} matched collectives, because {why}; they then differ by {apart} (median)."
