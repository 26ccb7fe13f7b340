"""Convolutions by the slow way: the image written out as a matrix first, or a bias added that a batch norm takes away again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from profiles.analysis.trace.needed.avoidable import Avoidable
from profiles.analysis.trace.needed.facts import Facts, Item

_SLOW = ("_slow_conv2d_forward", "_slow_conv2d_backward", "slow_conv3d", "slow_conv3d_forward", "slow_conv_dilated2d",
         "slow_conv_dilated3d", "slow_conv_transpose2d", "slow_conv_transpose3d", "thnn_conv2d", "thnn_conv2d_forward")
_COLUMNS = ("im2col", "vol2col", "col2im")
REACHED = 0.5                       # of its ceiling that a library's convolution reaches at best
FEWEST = 2


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
    mine = list[int]()
    for sequence in facts.sequences:
        for position, after in pairwise(sequence):
            item, norm = facts.at(position), facts.at(after)
            if facts.taken[position] or facts.is_backward[position] or item.role != "elementwise":
                continue
            is_bias = item.path[:1] in (("add_",), ("add",)) and item.is_within("_convolution", "convolution")
            if is_bias and norm.is_within("batch_norm", "native_batch_norm", "cudnn_batch_norm"):
                mine.append(position)
    if len(mine) >= FEWEST:
        yield Avoidable(mine, (0.0, 0.0), f"a bias is added before a batch norm takes it away ({len(mine):,} launches)",
                        numbers={"launches": len(mine)})


def _is_slow(item: Item) -> bool:
    if any(name in _SLOW for name in item.path):
        return True
    is_within = not item.path or item.is_within("conv2d", "conv3d", "convolution", "_convolution")
    return is_within and any(name in item.kernel[:200] for name in _COLUMNS)
