"""Where each layer begins and ends among the calls, what is added to its residual stream, and when no GPU work runs within it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from profiles.analysis.core import intervals
from profiles.analysis.core.frame import Frame
from profiles.analysis.trace.layer.calls import (
    ATTENTION,
    BLOCKS,
    DOWN,
    FEED_FORWARD,
    KV,
    OUTPUT,
    PRODUCT_PARTS,
    QKV,
    RESIDUAL,
    SEPARATE,
    Calls,
    Token,
)
from profiles.analysis.trace.layer.calls import Q as QUERY
from profiles.analysis.trace.layer.parts import MOST_CALLS, SCORES, WEIGHTS, Parts
from profiles.analysis.trace.layer.work import PRODUCTS
from profiles.ingest.arrays import Ints

GAPS = "gaps without GPU work"
_FIRST = frozenset((QKV, QUERY, KV, SEPARATE))
_AROUND_ATTENTION = frozenset((*_FIRST, OUTPUT))
_NORMS = frozenset(("RMS norm", "layer norm"))
_LAST = frozenset((OUTPUT, DOWN, FEED_FORWARD, RESIDUAL))
_TOGETHER = 4                       # calls between two kernels of one attention
_BEFORE, _BEHIND = 16, 3            # calls of a norm before a layer's first product, calls of an addition behind its last


@dataclass(frozen=True)
class Gaps:
    """Time within passes of a layer in which no GPU work runs, on all GPUs together."""

    passes: int
    span_ns: int                    # of all passes, from the first call's start to the last one's end
    idle_ns: int
    longest_ns: int                 # the most of one pass

    @property
    def idle_pct(self) -> float:
        return 100.0 * self.idle_ns / max(self.span_ns, 1)


def complete_parts(calls: Calls, parts: Parts) -> None:
    """Name what follows from parts that are told: additions of the residual stream, and layers told by their ranges alone."""
    if calls.token.size > MOST_CALLS:
        return
    add_residuals(calls, parts)
    is_attention = np.isin(np.array(parts.names)[parts.part], (ATTENTION, WEIGHTS))
    for device in np.unique(calls.device).tolist():
        places = np.flatnonzero(calls.device == device)
        if is_attention[places].any():
            continue
        if not _attends(calls, parts, places):          # "fc1", "mlp": a recommender's or an image classifier's as well
            named = np.isin(np.array(parts.names)[parts.part[places]], sorted(PRODUCT_PARTS | {RESIDUAL}))
            parts.part[places[named]] = 0
            continue
        for place in places.tolist():
            token = calls.tokens[int(calls.token[place])]
            if parts.part[place] == 0 and token.hint in BLOCKS:
                parts.part[place] = parts.number(token.hint)
        passes = _named_passes(parts, calls, places)
        parts.layers += passes
        parts.gpus += bool(passes)


def _attends(calls: Calls, parts: Parts, places: Ints) -> bool:
    """Whether any name on one GPU is that of attention: of the block, or of the projections around it."""
    return any(parts.names[code] in _AROUND_ATTENTION or calls.tokens[token].hint == ATTENTION
               for code, token in set(zip(parts.part[places].tolist(), calls.token[places].tolist(), strict=True)))


def _named_passes(parts: Parts, calls: Calls, places: Ints) -> int:
    """Return how often a layer is passed whose parts are told by the names of their ranges alone.

    A layer has one output projection and one down projection; else one stretch of attention.
    """
    tokens = [calls.tokens[code] for code in calls.token[places].tolist()]
    names = ["" if token.is_backward else parts.names[code]
             for code, token in zip(parts.part[places].tolist(), tokens, strict=True)]
    for label in (OUTPUT, DOWN):
        matches = [name for name, token in zip(names, tokens, strict=True) if name == label and token.kind in PRODUCTS]
        if matches:
            return len(matches)
    return len([index for index, name in enumerate(names) if name == ATTENTION and (not index or names[index - 1] != name)])


def add_residuals(calls: Calls, parts: Parts) -> None:
    """Name the additions that follow an output or a down projection and work on as many elements as it writes."""
    code = parts.number(RESIDUAL)
    for name in (OUTPUT, DOWN):
        if name not in parts.names:
            continue
        for place in np.flatnonzero(parts.part == parts.names.index(name)).tolist():
            for behind in range(place + 1, min(place + 1 + _BEHIND, calls.token.size)):
                token = calls.tokens[int(calls.token[behind])]
                if calls.device[behind] != calls.device[place] or token.is_backward:
                    break
                if parts.part[behind] == 0 and _adds(token, calls.tokens[int(calls.token[place])]):
                    parts.part[behind] = code
                    break
                if token.kind in ("product", "attention"):
                    break


def _adds(token: Token, product: Token) -> bool:
    """Whether a call adds a tensor of a product's result; of what has no recorded sizes, nothing speaks against it."""
    if token.operator not in ("aten::add", "aten::add_"):
        return False
    if token.work is None or product.work is None or len(product.work.sizes) != 4:
        return token.work is None and product.work is None
    sizes = token.work.text.split(" and ")[0].split("×")
    if not all(size.strip().isdecimal() for size in sizes):
        return False
    return prod(int(size) for size in sizes) == prod(product.work.sizes[:3])


def layer_spans(calls: Calls, parts: Parts) -> list[tuple[int, int]]:
    """Return (first call, last call) of each forward pass of a layer, GPU after GPU; of passes without an end nothing."""
    names = np.array(parts.names)
    labels = names[parts.part]
    spans: list[tuple[int, int]] = []
    for device in np.unique(calls.device).tolist():
        places = np.flatnonzero(calls.device == device)
        mine = [str(label) for label in labels[places].tolist()]
        anchors = _anchors(mine)
        ended = 0
        for number, anchor in enumerate(anchors):
            until = anchors[number + 1] if number + 1 < len(anchors) else len(mine)
            last = next((index for index in range(until - 1, anchor, -1) if mine[index] in _LAST), None)
            if last is None:
                continue
            first = _first(mine, ended, anchor)
            spans.append((int(places[first]), int(places[last])))
            ended = last + 1
    return spans


def _anchors(labels: list[str]) -> list[int]:
    """Return where each layer's attention stands, else, where none is told, its output or its down projection."""
    for kinds in ({ATTENTION, WEIGHTS}, {OUTPUT}, {DOWN}):
        anchors = [index for index, label in enumerate(labels) if label in kinds]
        if kinds == {ATTENTION, WEIGHTS}:              # several kernels of one attention are one
            anchors = [anchor for place, anchor in enumerate(anchors) if not place or anchor - anchors[place - 1] > _TOGETHER]
        if anchors:
            return anchors
    return []


def _first(labels: list[str], ended: int, anchor: int) -> int:
    """Return the first call of the layer whose attention stands at `anchor`: its norm, else its first projection."""
    heads = [index for index in range(ended, anchor) if labels[index] in _FIRST]
    if not heads:
        return next((index for index in range(ended, anchor) if labels[index] == SCORES), anchor)
    first = heads[-1]
    for head in reversed(heads):                          # one layer's projections stand close together
        if first - head > _BEFORE:
            break
        first = head
    norm = first
    for index in range(first - 1, max(ended, first - _BEFORE) - 1, -1):
        if labels[index] not in _NORMS:
            break
        norm = index
    return norm


def gaps_within(frame: Frame, calls: Calls, spans: list[tuple[int, int]]) -> Gaps | None:
    """Return the time without GPU work within passes; None where no pass is known."""
    if not spans:
        return None
    first, last = (np.array(column, np.int64) for column in zip(*spans, strict=True))
    start, end, device = calls.start_ns[first], calls.end_ns[last], calls.device[first]
    idle = np.zeros(first.size, np.int64)
    for number in np.unique(device).tolist():
        rows = frame.work[frame["device"][frame.work] == number]
        busy = intervals.union(frame["start_ns"][rows].astype(np.int64), frame.end_ns[rows].astype(np.int64))
        mine = device == number
        idle[mine] = end[mine] - start[mine] - intervals.overlap_ns(busy, start[mine], end[mine])
    return Gaps(first.size, int((end - start).sum()), int(idle.sum()), int(idle.max()))


def others_ns(calls: Calls, parts: Parts, spans: list[tuple[int, int]]) -> int:
    """Return the kernel time of calls within passes that are no named part."""
    inside: Ints = np.zeros(calls.token.size + 1, np.int64)
    for first, last in spans:
        inside[first] += 1
        inside[last + 1] -= 1
    return int(calls.ns[(np.cumsum(inside)[:-1] > 0) & (parts.part == 0)].sum())
