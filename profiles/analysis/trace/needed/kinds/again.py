"""What is computed again: the forward pass within the backward pass, tables of positions in each layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from profiles.analysis.core.sentences import si_text
from profiles.analysis.trace.needed.facts import Avoidable, Facts, Item, element_bytes, is_plain_product, sizes_of, steps_of_names

# The forward pass computed again within the backward pass: activation checkpoints.

# Operators that autograd's formulas never call: where one runs inside a gradient, a forward pass does.
_FORWARD_ONLY = frozenset((
    "linear", "layer_norm", "rms_norm", "batch_norm", "group_norm", "conv1d", "conv2d", "conv3d", "embedding", "dropout", "gelu",
    "silu", "relu", "softmax", "scaled_dot_product_attention", "multi_head_attention_forward", "cross_entropy_loss",
    "native_layer_norm", "_fused_rms_norm", "_softmax", "_scaled_dot_product_flash_attention", "silu_", "relu_",
    "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_efficient_attention"))
_RECOMPUTES = ("CheckpointFunctionBackward", "checkpoint", "recompute")
LEAST_LAUNCHES = 4


def find_forward(facts: Facts) -> Iterator[Avoidable]:
    if not facts.is_backward.any():
        return
    mine, other = list[int](), list[int]()
    for sequence, places in facts.places(facts.fits(_is_forward) & facts.is_backward & ~facts.taken):
        mine += [sequence[place] for place in places]
        for before, after in pairwise(places):          # what runs between two of them
            between = sequence[before + 1:after]
            if len(between) <= 12 and all(facts.is_backward[each] and not facts.taken[each] and not _is_gradient(facts, each)
                                          for each in between):
                other += between
    if len(mine) < LEAST_LAUNCHES:
        return
    positions = sorted({*mine, *other})
    kept_bytes = sum(result_bytes(facts, position) for position in positions) / steps_of_names(facts.frame.names)
    share = 100.0 * facts.total_ns(positions) / max(1, int(facts.ns.sum()))
    yield Avoidable(positions, (0.0, float(facts.total_ns(other))),
                    f"the forward pass is computed again within the backward pass ({len(positions):,} launches)",
                    "the memory of the activations is there" + (f", {si_text(kept_bytes, 'B')} at most" if kept_bytes else ""),
                    numbers={"launches": len(positions), "share_pct": share, "kept_bytes": round(kept_bytes)})


def result_bytes(facts: Facts, position: int) -> int:
    """Return the bytes that a launch leaves behind, 0 where shapes are not known: what a checkpoint need not keep, at most."""
    item, sizes = facts.at(position), sizes_of(facts.at(position))
    size = next((tensor.size for tensor in item.tensors if tensor.size), 0) or 0
    if len(sizes) == 4:
        return size * sizes[0] * sizes[1] * sizes[2]
    if len(sizes) == 6:
        return size * sizes[0] * sizes[1] * sizes[3] * sizes[5]
    return size * item.elements


def _is_forward(item: Item) -> bool:
    path = item.path
    inside = path[:next((index for index, name in enumerate(path) if name.startswith("autograd::")), len(path))]
    return any(name in _FORWARD_ONLY for name in inside) or any(word in name for name in inside for word in _RECOMPUTES)


def _is_gradient(facts: Facts, position: int) -> bool:
    """Return whether a gradient's formula is the innermost around the launch: "MmBackward0"."""
    path = facts.at(position).path
    inside = path[:next((index for index, name in enumerate(path) if name.startswith("autograd::")), len(path))]
    return any(name.endswith(("Backward0", "Backward1", "Backward2")) for name in inside)


# Tables of positions computed again in each layer, and tables whose rows are looked up by a product.

_TABLES = ("cos", "sin", "polar", "arange")
FEWEST = 3                          # times a step
LEAST_ELEMENTS = 1 << 14
LOOKED_BACK = 6                     # launches from one-hot vectors to their product


def find_tables(facts: Facts) -> Iterator[Avoidable]:
    """Find sines and cosines of one size that are computed FEWEST times a step and more; of arguments without gradients."""
    steps = steps_of_names(facts.frame.names)
    tables = facts.which(lambda item: item.path[:1] and item.path[0].rstrip("_") in _TABLES and item.elements >= LEAST_ELEMENTS)
    mine = [table for table in tables if not facts.is_backward[table]]
    often = Counter(facts.item[position] for position in mine)
    again = [position for position in mine if often[facts.item[position]] >= FEWEST * steps]
    if again:
        computed = len(again)
        again = sorted({*again, *_casts(facts, set(again))})
        total = float(facts.total_ns(again))
        yield Avoidable(again, (total * steps / max(often.values()), total / FEWEST),
                        f"sines and cosines of one size are computed {computed:,} times",
                        "the positions are the same in each layer",
                        certain=False, numbers={"launches": len(again)})


def _casts(facts: Facts, tables: set[int]) -> Iterator[int]:
    """Yield copies to another type that follow a table at once and are as large."""
    for sequence in facts.sequences:
        for position, after in pairwise(sequence):
            item = facts.at(after)
            if position in tables and not facts.taken[after] and item.role == "copy" and item.is_within("_to_copy", "to") \
                    and item.elements == facts.at(position).elements:
                yield after


def find_lookups(facts: Facts) -> Iterator[Avoidable]:
    """Find products of one-hot vectors and a table: `aten::one_hot`, a cast, and a product that contracts it."""
    mine, stays, rows = list[int](), 0.0, 0
    if not any(item.is_within("one_hot") for item in facts.items):
        return
    for sequence, places in facts.places(facts.fits(is_plain_product) & ~facts.taken):
        for place in places:
            position = sequence[place]
            sizes = sizes_of(facts.at(position))
            before = [earlier for earlier in sequence[max(0, place - LOOKED_BACK):place]
                      if facts.at(earlier).elements == sizes[0] * sizes[1] * sizes[3] and not facts.taken[earlier]]
            if any(facts.at(earlier).is_within("one_hot") for earlier in before):
                size = element_bytes(facts.at(position))
                dram = facts.dram_bytes_s[position]
                mine += [*before, position]
                stays += 1e9 * 2 * size * sizes[1] * sizes[2] / float(dram) if dram > 0 else 0.0
                rows += sizes[1]
    if mine:
        total = float(facts.total_ns(mine))
        yield Avoidable(sorted(set(mine)), (min(total, stays), min(total, 3 * stays)),
                        f"{rows:,} rows of a table are looked up by products of one-hot vectors", numbers={"rows": rows})
