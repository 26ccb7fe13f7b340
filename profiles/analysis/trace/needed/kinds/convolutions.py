"""Convolutions by the slow way: the image written out as a matrix first, or a bias added that a batch norm takes away again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profiles.analysis.trace.needed.avoidable import Avoidable
from profiles.analysis.trace.needed.facts import Facts, Item

_SLOW = ("_slow_conv2d_forward", "_slow_conv2d_backward", "slow_conv3d", "slow_conv3d_forward", "slow_conv_dilated2d",
         "slow_conv_dilated3d", "slow_conv_transpose2d", "slow_conv_transpose3d", "thnn_conv2d", "thnn_conv2d_forward")
_COLUMNS = ("im2col", "vol2col", "col2im")
REACHED = 0.5                       # of its ceiling that a library's convolution reaches at best
FEWEST = 2
LOOKED_AHEAD = 6                    # launches from a bias to its batch norm
SMALL = 1000                        # times fewer elements: passed over on the way there


def find_written_out(facts: Facts) -> Iterator[Avoidable]:
    """Find convolutions that PyTorch computes itself, as columns and products; `unfold` of one's own is none of them."""
    mine = [position for position, number in enumerate(facts.item) if not facts.taken[position] and _is_slow(facts.items[number])]
    if len(mine) < FEWEST:
        return
    products = [each for each in mine if facts.at(each).role in ("product", "convolution")]
    floors = facts.floor_ns[products]
    total = float(facts.total_ns(mine))
    known = bool(products) and not np.isnan(floors).any()
    best = min(total, float(floors.sum()) / REACHED) if known else 0.0
    yield Avoidable(mine, (best, max(best, 0.7 * total)),
                    f"convolutions are written out as columns and multiplied ({len(mine):,} launches)",
                    numbers={"launches": len(mine)})


def find_biases(facts: Facts) -> Iterator[Avoidable]:
    """Find sums of a bias behind a convolution and right before a batch norm, which subtracts the mean and the bias with it."""
    mine, sums = list[int](), list[int]()
    for sequence in facts.sequences:
        for at, position in enumerate(sequence):
            item = facts.at(position)
            if facts.taken[position]:
                continue
            if item.role == "reduction" and item.is_within("convolution_backward"):
                sums.append(position)           # the bias's own gradient
            is_bias = item.role == "elementwise" and item.path[:1] in (("add_",), ("add",)) and item.is_within(
                "_convolution", "convolution") and not facts.is_backward[position]
            if is_bias and _is_before_norm(facts, sequence[at + 1:at + 1 + LOOKED_AHEAD], item.elements):
                mine.append(position)
    if len(mine) >= FEWEST:
        mine += sums if len(sums) <= len(mine) else []      # else some biases are of other layers
        yield Avoidable(mine, (0.0, 0.0), f"a bias is added before a batch norm takes it away ({len(mine):,} launches)",
                        numbers={"launches": len(mine)})


def _is_before_norm(facts: Facts, after: list[int], elements: int) -> bool:
    """Return whether a batch norm is the next launch that is not far smaller (its counter of batches, its zeros)."""
    for position in after:
        item = facts.at(position)
        if item.elements * SMALL > elements or not item.shapes:
            return item.is_within("batch_norm", "native_batch_norm", "cudnn_batch_norm")
    return False


def _is_slow(item: Item) -> bool:
    if any(name in _SLOW for name in item.path):
        return True
    is_within = not item.path or item.is_within("conv2d", "conv3d", "convolution", "_convolution")
    return is_within and any(name in item.kernel[:200] for name in _COLUMNS)
