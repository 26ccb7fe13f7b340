"""Which launches of one kernel meet each other: by the problem that they worked on, by launch shape, by order.

One name may stand for several problems (a Triton `matmul` at two sizes), and a new build may change the grid of each; the
docstring of `match_shapes` says how launches find each other. Where both sides say what problem a launch worked on (the framework
operator around it and its input shapes: the column "problem"), launches of one problem meet first: a persistent kernel has one grid
for every problem.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from profiles.analysis.compare.launches import SHAPE

Ints = npt.NDArray[np.int64]

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
    known = np.array([bool(text) for text in texts] + [False])
    codes = pc.fill_null(coded.indices, len(texts)).to_numpy(zero_copy_only=False).astype(np.int64)
    codes = np.where(known[codes], codes, NO_PROBLEM)
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
    both = [each for each in _in_order(old_problems) if each != NO_PROBLEM and (new_problems == each).any()]
    if len(both) > MAX_SHAPES or not both:
        return [(*pair, NO_PROBLEM) for pair in match_shapes(old, new)]
    out: list[tuple[Ints, Ints, str, int]] = []
    for each in both:
        out += [(*pair, each) for pair in _within(old, new, old_problems == each, new_problems == each)]
    rest_old, rest_new = ~np.isin(old_problems, both), ~np.isin(new_problems, both)
    if rest_old.any() or rest_new.any():
        out += [(*pair, NO_PROBLEM) for pair in _within(old, new, rest_old, rest_new)]
    words = "operator shapes"
    return [(a, b, how if problem == NO_PROBLEM else words if how == "name" else f"{words}; {how}", problem)
            for a, b, how, problem in out]


def _within(old: Ints, new: Ints, in_old: npt.NDArray[np.bool_], in_new: npt.NDArray[np.bool_]) -> list[tuple[Ints, Ints, str]]:
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
            return [(at := np.flatnonzero((old == a) & (new == b)), at, "launch order") for a, b in joint]
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
