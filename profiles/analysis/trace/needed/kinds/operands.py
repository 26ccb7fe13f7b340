"""Operands copied right before a product that could read them as they lie: transposed, cut out of a larger tensor, or expanded."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod

from profiles.analysis.trace.needed.avoidable import Avoidable, sizes_of, times
from profiles.analysis.trace.needed.facts import Facts, Item

LOOKED_AHEAD = 4                    # launches between the copy and its product
LEAST_ELEMENTS = 1 << 18


def find(facts: Facts) -> Iterator[Avoidable]:
    """Find copies of one type whose source a library's product takes: one stride of its last two dimensions is 1, or one is 0.

    cuBLAS takes each operand transposed or not, with a leading dimension, and one stride between the matrices of a batch
    (cuBLAS documentation, cublasGemmStridedBatchedEx). Strides are needed: `record_shapes=True` of PyTorch 2.2 and later.
    """
    mine: dict[str, list[int]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for sequence in facts.sequences:
        for at, position in enumerate(sequence):
            how = "" if facts.taken[position] or facts.is_update[position] else _how(facts.at(position))
            if not how or (how == "expanded" and facts.is_backward[position]):
                continue
            shape = facts.at(position).shapes[0]
            for ahead, after in enumerate(sequence[at + 1:at + 1 + LOOKED_AHEAD]):
                sizes = sizes_of(facts.at(after))
                if facts.at(after).role == "product" and len(sizes) == 4:
                    if _is_operand(shape, sizes) or (not ahead and _is_folded(shape, sizes)):
                        mine.setdefault(how, []).append(position)
                        shapes.setdefault(how, shape)
                    break
    for how, positions in mine.items():
        yield Avoidable(positions, (0.0, 0.0),
                        f"{how} operands are copied before their products {len(positions):,} times ({times(shapes[how])})",
                        numbers={"launches": len(positions), "how": how})


def _how(item: Item) -> str:
    """Return how the source of a copy lies that a product could read: "transposed", "cut out", "expanded"; "" else."""
    strides = item.call.strides[1] if len(item.call.strides) > 1 else None
    if item.role != "copy" or len(item.shapes) < 2 or item.elements < LEAST_ELEMENTS or not isinstance(strides, list):
        return ""
    target, source = item.tensors[0], item.tensors[1]
    shape = source.shape
    if target.dtype != source.dtype or target.shape != shape or not 2 <= len(shape) <= 4 or len(strides) != len(shape):
        return ""
    if not all(type(stride) is int and stride >= 0 for stride in strides):
        return ""
    if any(stride == 0 and size > 1 for stride, size in zip(strides, shape, strict=True)):
        return "expanded"
    rows, columns = strides[-2:]
    batches = [(size, stride) for size, stride in zip(shape[:-2], strides[:-2], strict=True) if size > 1]
    if any(outer[1] != inner[0] * inner[1] for outer, inner in pairwise(batches)):
        return ""                       # no single stride between the matrices
    if rows == 1 and columns >= shape[-2] and shape[-2] > 1:
        return "transposed"
    return "cut out" if columns == 1 and rows > shape[-1] and not batches else ""


def _is_operand(shape: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    batch, rows, columns, inner = sizes
    many = prod(shape[:-2])
    matrices = {(rows, inner), (inner, rows), (inner, columns), (columns, inner)}
    return many in (1, batch) and shape[-2:] in matrices


def _is_folded(shape: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """Return whether a batch of matrices is the rows of one product; what lies between could read it as well."""
    batch, rows, _, inner = sizes
    return batch == 1 and len(shape) > 2 and (prod(shape[:-1]), shape[-1]) == (rows, inner)
