"""Convolutions by the slow way: the image written out as a matrix first, or a bias added that a batch norm takes away again."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from profiles.analysis.trace.needed.facts import Avoidable, Facts, Item

_SLOW = ("_slow_conv2d_forward", "_slow_conv2d_backward", "slow_conv3d", "slow_conv3d_forward", "slow_conv_dilated2d",
         "slow_conv_dilated3d", "slow_conv_transpose2d", "slow_conv_transpose3d", "thnn_conv2d", "thnn_conv2d_forward")
_COLUMNS = ("im2col", "vol2col", "col2im")
REACHED = 0.5                       # of its ceiling that a library's convolution reaches at best
FEWEST = 2
LOOKED_AHEAD = 6                    # launches from a bias to its batch norm
SMALL = 1000                        # times fewer elements: passed over on the way there


def find_written_out(facts: Facts) -> Iterator[Avoidable]:
    """Find convolutions that PyTorch computes itself, as columns and products; `unfold` of one's own is none of them."""
    mine = list(facts.which(_is_slow))
    if len(mine) < FEWEST:
        return
    products = [position for position in mine if facts.at(position).role in ("product", "convolution")]
    floors = facts.floor_ns[products]
    total = float(facts.total_ns(mine))
    is_known = bool(products) and not np.isnan(floors).any()
    best = min(total, float(floors.sum()) / REACHED) if is_known else 0.0
    yield Avoidable(mine, (best, max(best, 0.7 * total)),
                    f"convolutions are written out as columns and multiplied ({len(mine):,} launches)",
                    numbers={"launches": len(mine)})


def find_biases(facts: Facts) -> Iterator[Avoidable]:
    """Find sums of a bias behind a convolution and right before a batch norm, which subtracts the mean and the bias with it."""
    sums = list(facts.which(lambda item: item.role == "reduction" and item.is_within("convolution_backward")))     # its gradient
    mine = [sequence[place] for sequence, places in facts.places(facts.fits(_adds_bias) & ~facts.is_backward & ~facts.taken)
            for place in places
            if _is_before_norm(facts, sequence[place + 1:place + 1 + LOOKED_AHEAD], facts.at(sequence[place]).elements)]
    if len(mine) >= FEWEST:
        mine += sums if len(sums) <= len(mine) else []      # else some biases are of other layers
        yield Avoidable(mine, (0.0, 0.0), f"a bias is added before a batch norm takes it away ({len(mine):,} launches)",
                        numbers={"launches": len(mine)})


def _adds_bias(item: Item) -> bool:
    return item.role == "elementwise" and item.path[:1] in (("add_",), ("add",)) and item.is_within("_convolution", "convolution")


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


# Images in NCHW before convolutions that compute in NHWC: layouts are converted at each, norms and pooling read the slower one.

LEAST_SHARE = 0.01                  # of the kernels' time: fewer conversions are those of the input and the result
LAYOUT_REACHED = (0.7, 0.3)               # of DRAM's ceiling that channels-last norms and pooling reach, at best, at worst
_GROUP_NORM = re.compile(r"group_?norm", re.IGNORECASE)
_CHANNELS_FIRST = ("batch_norm", "max_pool", "avg_pool", "adaptive_avg_pool")


def find_layouts(facts: Facts) -> Iterator[Avoidable]:
    conversions = [conversion for conversion in facts.where("layout") if "addpadding" not in facts.at(conversion).kernel.lower()]
    if not conversions or facts.total_ns(conversions) < LEAST_SHARE * int(facts.ns.sum()):
        return
    slow, stays_best, stays_worst = list[int](), 0.0, 0.0
    for position in facts.which(_is_channels_first):
        floor, ns = float(facts.floor_ns[position]), float(facts.ns[position])
        slow.append(position)
        if np.isnan(floor):
            stays_best, stays_worst = stays_best + 0.3 * ns, stays_worst + ns
        else:
            stays_best += min(ns, floor / LAYOUT_REACHED[0])
            stays_worst += min(ns, floor / LAYOUT_REACHED[1])
    convolutions = sum(1 for _ in facts.where("convolution"))
    if any(_GROUP_NORM.search(item.kernel[:300]) or any("group_norm" in name for name in item.path) for item in facts.items):
        yield Avoidable(conversions, (0.0, float(facts.total_ns(conversions))),
                        f"layouts are converted {len(conversions):,} times around {convolutions:,} convolutions",
                        "group norm, which is slower on NHWC, does not lose as much: measure it", certain=False,
                        numbers={"conversions": len(conversions), "convolutions": convolutions})
        return
    yield Avoidable([*conversions, *slow], (stays_best, stays_worst),
                    f"layouts are converted {len(conversions):,} times around {convolutions:,} convolutions"
                    + (", and batch norm and pooling run on NCHW" if slow else ""),
                    numbers={"conversions": len(conversions), "convolutions": convolutions,
                             "conversion_ns": facts.total_ns(conversions), "norm_and_pooling_ns": facts.total_ns(slow)})


def _is_channels_first(item: Item) -> bool:
    kernel = item.kernel[:300].lower()
    return any(name in kernel for name in _CHANNELS_FIRST) and "channels_last" not in kernel and "nhwc" not in kernel
