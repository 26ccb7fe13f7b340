"""Which kernel of a new build is which of the old one, with the evidence: a rebuild renames kernels, a library brings others.

Names that both sides have are the same kernel. The others are paired by what is known of them: the family (the function and
element type behind the name), the operation, where they stand in the sequence of launches, how many launches there are, and
how many threads. A pair's confidence is stated; what has no counterpart is not comparable, and said to be so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np
import numpy.typing as npt

from profiles.analysis.core.identity import Identity, identity
from profiles.ingest.naming.names import short_name

Ints = npt.NDArray[np.int64]
SEQUENCE = 1_000                # launches of each side that are laid beside each other
SAME_PLACE_PCT = 50.0           # of the launches that meet: more is the same place
MOST_PAIRS = 40_000             # of unknown names of both sides that are looked at: beyond, families alone decide


@dataclass(frozen=True)
class Kernel:
    """All launches of one name on one side. `threads`: of all launches together, by their median grid and block; 0: unknown.

    `operations`: what its launches compute; empty where that is not known of all.
    """

    name: str
    positions: Ints             # among the kernels of its profile, ascending
    threads: int = 0
    operations: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Match:
    """`confidence`: "certain" (the same name) | "high" | "medium" | "low". `how` says what it rests on."""

    old: str
    new: str
    confidence: str
    how: str


def match(old: Sequence[Kernel], new: Sequence[Kernel]) -> list[Match]:
    """Pairs of kernels, each at most once; who is in none has no counterpart."""
    by_old, by_new = {each.name: each for each in old}, {each.name: each for each in new}
    same = [Match(name, name, "certain", "name") for name in by_old if name in by_new]
    gone, added = [each for each in old if each.name not in by_new], [each for each in new if each.name not in by_old]
    if not gone or not added:
        return same
    places = _places(old, new, by_old.keys() & by_new.keys())
    known = {each.name: identity(each.name) for each in (*gone, *added)}
    alone = _sole_families(known, gone), _sole_families(known, added)
    if len(gone) * len(added) > MOST_PAIRS:
        pairs = [(a, b) for b in added for a in _of_family(gone, known, known[b.name])]
    else:
        pairs = [(a, b) for a in gone for b in added]
    judged = [(score, a, b, confidence, how) for a, b in pairs
              for score, confidence, how in [_judge(a, b, known, places, alone)] if confidence]
    judged.sort(key=lambda each: (-each[0], int(each[1].positions[0]), int(each[2].positions[0])))
    taken: set[tuple[int, str]] = set()
    for _, a, b, confidence, how in judged:
        if (0, a.name) not in taken and (1, b.name) not in taken:
            taken |= {(0, a.name), (1, b.name)}
            same.append(Match(a.name, b.name, confidence, how))
    return same


def _sole_families(known: dict[str, Identity], kernels: Sequence[Kernel]) -> set[str]:
    """Families of which one kernel alone is left."""
    return {key for key, count in Counter(known[each.name].key for each in kernels).items() if count == 1}


def _of_family(kernels: Sequence[Kernel], known: dict[str, Identity], wanted: Identity) -> list[Kernel]:
    return [each for each in kernels if known[each.name].key == wanted.key][:50]


def _judge(a: Kernel, b: Kernel, known: dict[str, Identity], places: Counter[tuple[str, str]],
           alone: tuple[set[str], set[str]]) -> tuple[float, str, str]:
    """(score, confidence, evidence); "" where nothing speaks for the pair, or both are known to do nothing of the same."""
    if a.operations and b.operations and not a.operations & b.operations:
        return 0.0, "", ""
    first, second = known[a.name], known[b.name]
    family, operation = first.key == second.key, bool(first.op) and first.op == second.op
    short = short_name(a.name) == short_name(b.name)
    place_pct = 100.0 * places[a.name, b.name] / max(1, min(len(a.positions), len(b.positions), SEQUENCE))
    launches, threads = len(a.positions) == len(b.positions), _near(a.threads, b.threads)
    here = place_pct >= SAME_PLACE_PCT
    only = family and first.key in alone[0] and second.key in alone[1]
    if (family and (only or here or short)) or (operation and here and launches):
        confidence = "high" if family else "medium"
    elif family or (operation and (here or (launches and threads))):
        confidence = "medium" if family and (launches or threads) else "low"
    elif here and launches and (threads or not a.threads or not b.threads):
        confidence = "low"
    else:
        return 0.0, "", ""
    said = [(short, "short name"), (family, f"family {first.label}"), (operation and not family, f"operation {first.op}"),
            (here, f"place in the sequence ({min(place_pct, 100.0):.0f} % of its launches)"), (launches, "number of launches"),
            (threads, "number of threads")]
    score = 4.0 * family + 2.0 * short + 2.0 * operation + 2.0 * min(place_pct, 100.0) / 100 + 0.5 * launches + 0.5 * threads
    return score, confidence, "renamed: same " + ", ".join(words for holds, words in said if holds)


def _near(a: int, b: int) -> bool:
    """Within a factor of √2: the same power of two at most."""
    return a > 0 and b > 0 and abs(np.log2(a / b)) <= 0.5


def _places(old: Sequence[Kernel], new: Sequence[Kernel], common: set[str]) -> Counter[tuple[str, str]]:
    """How often an old and a new name stand at the same place: between the same launches of names that both sides have,
    and as many of them on both sides."""
    if not common:
        return Counter()
    names_old, names_new = _sequence(old), _sequence(new)
    code = {name: number for number, name in enumerate(sorted(common))}
    # what both sides do not have is one mark: it separates, and never matches itself across a gap of another length
    a, b = [code.get(name, -1) for name in names_old], [code.get(name, -1) for name in names_new]
    counts: Counter[tuple[str, str]] = Counter()
    for _, a_lo, a_hi, b_lo, b_hi in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if a_hi - a_lo == b_hi - b_lo:
            counts.update((names_old[a_lo + at], names_new[b_lo + at]) for at in range(a_hi - a_lo)
                         if a[a_lo + at] == -1 and b[b_lo + at] == -1)
    return counts


def _sequence(kernels: Sequence[Kernel]) -> list[str]:
    """Names of the first launches, in order."""
    position = np.concatenate([each.positions[:SEQUENCE] for each in kernels] or [np.empty(0, np.int64)])
    which = np.concatenate([np.full(min(len(each.positions), SEQUENCE), number) for number, each in enumerate(kernels)]
                           or [np.empty(0, np.int64)])
    order = np.argsort(position, kind="stable")[:SEQUENCE]
    return [kernels[number].name for number in which[order].tolist()]
