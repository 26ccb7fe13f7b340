"""Images in NCHW before convolutions that compute in NHWC: layouts are converted at each, norms and pooling read the slower one."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from profiles.analysis.trace.needed.avoidable import Avoidable
from profiles.analysis.trace.needed.facts import Facts

LEAST_SHARE = 0.01                  # of the kernels' time: fewer conversions are those of the input and the result
REACHED = (0.7, 0.3)               # of DRAM's ceiling that channels-last norms and pooling reach, at best, at worst
_GROUP_NORM = re.compile(r"group_?norm", re.IGNORECASE)
_CHANNELS_FIRST = ("batch_norm", "max_pool", "avg_pool", "adaptive_avg_pool")


def find(facts: Facts) -> Iterator[Avoidable]:
    conversions = [each for each in facts.where("layout") if "addpadding" not in facts.at(each).kernel.lower()]
    if not conversions or facts.total_ns(conversions) < LEAST_SHARE * int(facts.ns.sum()):
        return
    slow, stays_best, stays_worst = list[int](), 0.0, 0.0
    for position, number in enumerate(facts.item):
        kernel = facts.items[number].kernel[:300].lower()
        if facts.taken[position] or "channels_last" in kernel or "nhwc" in kernel or not any(
                name in kernel for name in _CHANNELS_FIRST):
            continue
        floor, ns = float(facts.floor_ns[position]), float(facts.ns[position])
        slow.append(position)
        if np.isnan(floor):
            stays_best, stays_worst = stays_best + 0.3 * ns, stays_worst + ns
        else:
            stays_best, stays_worst = stays_best + min(ns, floor / REACHED[0]), stays_worst + min(ns, floor / REACHED[1])
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
