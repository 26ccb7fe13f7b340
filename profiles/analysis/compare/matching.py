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
import pyarrow as pa
import pyarrow.compute as pc

from profiles.analysis.core.digest import SHAPE
from profiles.analysis.core.identity import Identity, identity
from profiles.ingest.arrays import Bools, Ints, stable_order
from profiles.ingest.naming.names import short_name

# Which launches of one kernel meet each other: by the problem that they worked on, by launch shape, by order.
#
# One name may stand for several problems (a Triton `matmul` at two sizes), and a new build may change the grid of each; the
# docstring of `match_shapes` says how launches find each other. Where both sides say what problem a launch worked on (the
# framework operator around it and its input shapes: the column "problem"), launches of one problem meet first: a persistent
# kernel has one grid for every problem.


MAX_SHAPES = 64         # a kernel with more launch shapes than this is compared as a whole
NO_PROBLEM = -1         # a launch of which a problem is not known on both sides


@dataclass(frozen=True)
class Problems:
    """The problem of every launch of both sides as numbers into `texts`; NO_PROBLEM where it is not known."""

    old: Ints
    new: Ints
    texts: list[str]


def problems_of(old: pa.Table, new: pa.Table) -> Problems:
    """Return the problem of every launch of two LAUNCHES tables, NO_PROBLEM unless both sides state problems."""
    if "problem" not in old.column_names or "problem" not in new.column_names:
        return Problems(np.full(len(old), NO_PROBLEM), np.full(len(new), NO_PROBLEM), [])
    whole = pa.chunked_array([*old["problem"].cast(pa.string()).chunks, *new["problem"].cast(pa.string()).chunks], pa.string())
    coded = pc.dictionary_encode(whole).combine_chunks()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.chunk(0) if coded.num_chunks else pa.array([], pa.string()).dictionary_encode()
    texts = [text or "" for text in coded.dictionary.to_pylist()]
    is_stated = np.array([bool(text) for text in texts] + [False])
    codes = pc.fill_null(coded.indices, len(texts)).to_numpy(zero_copy_only=False).astype(np.int64)
    codes = np.where(is_stated[codes], codes, NO_PROBLEM)
    return Problems(codes[:len(old)], codes[len(old):], texts)


def shapes_of(table: pa.Table) -> Ints:
    """Return grid, block and the rest of SHAPE of every launch, shape (launches, len(SHAPE)), -1 where unknown.

    Read once, however many kernels there are.
    """
    columns = [pc.fill_null(table[name], -1).to_numpy().astype(np.int64) for name in SHAPE]
    return np.stack(columns, axis=1) if len(table) else np.empty((0, len(SHAPE)), np.int64)


def shape_codes(old: Ints, new: Ints) -> tuple[Ints, Ints]:
    """Return the shape of every launch of one kernel as a number common to both sides."""
    both = np.concatenate([old, new])
    if len(both) and (both == both[0]).all():           # most kernels have one shape: nothing to sort
        return np.zeros(len(old), np.int64), np.zeros(len(new), np.int64)
    _, codes = np.unique(both, axis=0, return_inverse=True)
    flat = codes.reshape(-1).astype(np.int64)
    return flat[:len(old)], flat[len(old):]


def match_problems(old_problems: Ints, new_problems: Ints, old: Ints, new: Ints) -> list[tuple[Ints, Ints, str, int]]:
    """Pair the launches of one kernel: those of one problem with each other, by `match_shapes` within; all others as if no
    problem were known. The last of each is the problem's number, NO_PROBLEM where there is none.

    A kernel of more than MAX_SHAPES problems is paired by launch shapes alone.
    """
    both = [code for code in _in_order(old_problems) if code != NO_PROBLEM and (new_problems == code).any()]
    if len(both) > MAX_SHAPES or not both:
        return [(*pair, NO_PROBLEM) for pair in match_shapes(old, new)]
    out: list[tuple[Ints, Ints, str, int]] = []
    for code in both:
        out += [(*pair, code) for pair in _within(old, new, old_problems == code, new_problems == code)]
    rest_old, rest_new = ~np.isin(old_problems, both), ~np.isin(new_problems, both)
    if rest_old.any() or rest_new.any():
        out += [(*pair, NO_PROBLEM) for pair in _within(old, new, rest_old, rest_new)]
    words = "operator shapes"
    return [(a, b, how if problem == NO_PROBLEM else words if how == "name" else f"{words}; {how}", problem)
            for a, b, how, problem in out]


def _within(old: Ints, new: Ints, in_old: Bools, in_new: Bools) -> list[tuple[Ints, Ints, str]]:
    """`match_shapes` of a part of the launches, as positions among all of them."""
    at_old, at_new = np.flatnonzero(in_old), np.flatnonzero(in_new)
    return [(at_old[a], at_new[b], how) for a, b, how in match_shapes(old[at_old], new[at_new])]


def match_shapes(old: Ints, new: Ints) -> list[tuple[Ints, Ints, str]]:
    """Pair the launches of one kernel by the shape code of each, in launch order.

    Codes are common to both sides.

    1. One shape on each side: the same work, whatever the grid.
    2. The same shapes on both sides: by shape.
    3. As many launches on both sides, and the k-th always meets one partner shape (two old shapes may meet one new
       shape, as when a persistent kernel replaces a gridded one): by order.
    4. Else equal shapes first; what is left in order of first launch; where that does not come out even, as a whole.
    """
    every = np.arange
    shapes_old, shapes_new = set(old.tolist()), set(new.tolist())
    if not len(old) or not len(new):
        return [(every(len(old)), every(len(new)), "on one side only")]
    if max(len(shapes_old), len(shapes_new)) > MAX_SHAPES:
        return [(every(len(old)), every(len(new)), "name; too many launch shapes to tell apart")]
    if len(shapes_old) == len(shapes_new) == 1:
        return [(every(len(old)), every(len(new)), "name")]
    if shapes_old == shapes_new:
        return [_pair(old, new, shape, shape, "launch shape") for shape in _in_order(old)]
    if len(old) == len(new):
        joint = list(dict.fromkeys(zip(old.tolist(), new.tolist(), strict=True)))
        if len(joint) <= max(len(shapes_old), len(shapes_new)):
            return [(rows := np.flatnonzero((old == a) & (new == b)), rows, "launch order") for a, b in joint]
    return _pair_shapes(old, new, shapes_old & shapes_new)


def _pair_shapes(old: Ints, new: Ints, same: set[int]) -> list[tuple[Ints, Ints, str]]:
    pairs = [_pair(old, new, shape, shape, "launch shape") for shape in _in_order(old) if shape in same]
    left_old = [shape for shape in _in_order(old) if shape not in same]
    left_new = [shape for shape in _in_order(new) if shape not in same]
    if len(left_old) == len(left_new):
        return pairs + [_pair(old, new, a, b, "order of first launch") for a, b in zip(left_old, left_new, strict=True)]
    how = "name; launch shapes could not be told apart" if left_old and left_new else "on one side only"
    return [*pairs, (np.flatnonzero(np.isin(old, left_old)), np.flatnonzero(np.isin(new, left_new)), how)]


def _pair(old: Ints, new: Ints, shape_old: int, shape_new: int, how: str) -> tuple[Ints, Ints, str]:
    return np.flatnonzero(old == shape_old), np.flatnonzero(new == shape_new), how


def _in_order(codes: Ints) -> list[int]:
    return list(dict.fromkeys(codes.tolist()))


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
    by_old, by_new = {kernel.name: kernel for kernel in old}, {kernel.name: kernel for kernel in new}
    same = [Match(name, name, "certain", "name") for name in by_old if name in by_new]
    gone, added = [kernel for kernel in old if kernel.name not in by_new], [kernel for kernel in new if kernel.name not in by_old]
    if not gone or not added:
        return same
    places = _places(old, new, by_old.keys() & by_new.keys())
    identities = {kernel.name: identity(kernel.name) for kernel in (*gone, *added)}
    alone = _sole_families(identities, gone), _sole_families(identities, added)
    if len(gone) * len(added) > MOST_PAIRS:
        pairs = [(a, b) for b in added for a in _of_family(gone, identities, identities[b.name])]
    else:
        pairs = [(a, b) for a in gone for b in added]
    judged = [(score, a, b, confidence, how) for a, b in pairs
              for score, confidence, how in [_judge(a, b, identities, places, alone)] if confidence]
    judged.sort(key=lambda each: (-each[0], int(each[1].positions[0]), int(each[2].positions[0])))
    side_names: set[tuple[int, str]] = set()
    for _, a, b, confidence, how in judged:
        if (0, a.name) not in side_names and (1, b.name) not in side_names:
            side_names |= {(0, a.name), (1, b.name)}
            same.append(Match(a.name, b.name, confidence, how))
    return same


def _sole_families(identities: dict[str, Identity], kernels: Sequence[Kernel]) -> set[str]:
    """Families of which one kernel alone is left."""
    return {key for key, count in Counter(identities[kernel.name].key for kernel in kernels).items() if count == 1}


def _of_family(kernels: Sequence[Kernel], identities: dict[str, Identity], wanted: Identity) -> list[Kernel]:
    return [kernel for kernel in kernels if identities[kernel.name].key == wanted.key][:50]


def _judge(a: Kernel, b: Kernel, identities: dict[str, Identity], places: Counter[tuple[str, str]],
           alone: tuple[set[str], set[str]]) -> tuple[float, str, str]:
    """(score, confidence, evidence); "" where nothing speaks for the pair, or both are known to do nothing of the same."""
    if a.operations and b.operations and not a.operations & b.operations:
        return 0.0, "", ""
    first, second = identities[a.name], identities[b.name]
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
    likenesses = [(short, "short name"), (family, f"family {first.label}"), (operation and not family, f"operation {first.op}"),
            (here, f"place in the sequence ({min(place_pct, 100.0):.0f} % of its launches)"), (launches, "number of launches"),
                  (threads, "number of threads")]
    score = 4.0 * family + 2.0 * short + 2.0 * operation + 2.0 * min(place_pct, 100.0) / 100 + 0.5 * launches + 0.5 * threads
    return score, confidence, "renamed: same " + ", ".join(words for holds, words in likenesses if holds)


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
            counts.update((names_old[a_lo + offset], names_new[b_lo + offset]) for offset in range(a_hi - a_lo)
                         if a[a_lo + offset] == -1 and b[b_lo + offset] == -1)
    return counts


def _sequence(kernels: Sequence[Kernel]) -> list[str]:
    """Names of the first launches, in order."""
    position = np.concatenate([kernel.positions[:SEQUENCE] for kernel in kernels] or [np.empty(0, np.int64)])
    which = np.concatenate([np.full(min(len(kernel.positions), SEQUENCE), number) for number, kernel in enumerate(kernels)]
                           or [np.empty(0, np.int64)])
    order = stable_order(position)[:SEQUENCE]
    return [kernels[number].name for number in which[order].tolist()]
