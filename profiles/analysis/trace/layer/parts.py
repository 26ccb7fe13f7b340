"""Which part of a transformer layer each call is, by its place and its sizes.

Attention is the anchor: the products before it are its projections (n of heads and KV heads times head size), the first behind it
the output projection (k = heads · head size); from there to the next attention stand gate and up (k = hidden), the activation, and
down (n = hidden). Where sizes are recorded they must fit, or the call stays "linear m × n × k": unknown is better than wrong.
Where none are (a replayed CUDA graph) only the plain order counts: one product, one or two, the activation, one, then one or three.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from profiles.analysis.trace.layer.calls import (
    ATTENTION,
    DOWN,
    FEED_FORWARD,
    GATE_UP,
    KV,
    OUTPUT,
    QKV,
    RESIDUAL,
    SEPARATE,
    UP,
    Calls,
    Q,
    Token,
)
from profiles.ingest.arrays import Ints

# ---- norms and rotary embeddings written in PyTorch's elementwise operators ----
# Norms and rotary embeddings written in PyTorch's elementwise operators, as models run without a compiler do them.
# Told by the order of the operators and, where they are recorded, by sizes that fit each other:
#
#     RMS norm            x to fp32, pow, mean, add, rsqrt, mul, back to its type, mul      (transformers' LlamaRMSNorm and its kin)
#     rotary embedding    mul, neg, cat, mul, add                                            (apply_rotary_pos_emb with rotate_half)

_LETTERS = {"pow": "p", "mean": "m", "add": "a", "rsqrt": "r", "mul": "x", "copy_": "c", "neg": "n", "cat": "t", "square": "p",
            "add_": "a", "mul_": "x"}
_RMS = re.compile("(c?)(pmarx)(c?)(x?)")
_ROTARY = re.compile("xntxa")


def written_out(row: Sequence[Token]) -> Iterator[tuple[str, range]]:
    """Yield (part, its places) for calls in order."""
    letters = "".join(_LETTERS.get(token.operator.removeprefix("aten::"), ".") for token in row)
    for match in _RMS.finditer(letters):
        first, last = match.start(2), match.end(2)
        size = _text(row[first])
        if not _fits(row[last - 1], size):
            continue
        if match[1] and _text(row[first - 1]) == size:
            first -= 1
        if match[3] and _text(row[last]) == size:
            last += 1
        if match[4] and last + 1 == match.end() and _fits(row[last], size):
            last += 1
        yield "RMS norm", range(first, last)
    for match in _ROTARY.finditer(letters):
        places = range(match.start(), match.end())
        if all(_fits(row[place], _text(row[places[-1]])) for place in (places[0], places[3])):
            yield "rotary embedding", places


def _text(token: Token) -> str:
    return token.work.text if token.work else ""


def _fits(token: Token, size: str) -> bool:
    """Whether a call works on tensors of this size; of what has no recorded sizes, nothing speaks against it."""
    return not size or not _text(token) or size in _text(token).split(" and ")


# ---- which part of a transformer layer each call is ----

SCORES, WEIGHTS, VALUES = "attention scores", "attention softmax", "attention values"
# The order in which a layer computes: of the rows of its table.
ORDER = ("RMS norm", "layer norm", QKV, Q, KV, SEPARATE, "rotary embedding", "KV cache write", SCORES, WEIGHTS, ATTENTION, VALUES,
         OUTPUT, GATE_UP, UP, "SiLU", "SiLU·mul", "GELU", "GELU·mul", "ReLU", "hard swish", DOWN, FEED_FORWARD, RESIDUAL)
MOST_CALLS = 2_000_000              # beyond, parts are told by names alone
_APART = 8                          # calls between a product of plain attention and its softmax


@dataclass
class Layout:
    """One attention: where it begins and ends among the calls, and its sizes (None: not recorded)."""

    first: int
    last: int
    heads: int | None = None
    kv_heads: int | None = None
    head_size: int | None = None


@dataclass
class Parts:
    """The part of every call, a number into `names` (0: none), and how many layers were passed forward."""

    part: Ints
    names: list[str] = field(default_factory=lambda: [""])
    layers: int = 0                 # forward, on all GPUs together
    sized_layers: int = 0           # of them with the sizes of their attention recorded
    backward_layers: int = 0
    gpus: int = 0                   # with any layer

    def number(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)


def parts_of(calls: Calls) -> Parts:
    """Return the part of each call."""
    parts = Parts(np.zeros(calls.token.size, np.int64))
    own = np.array([parts.number(token.part) if token.part else 0 for token in calls.tokens] or [0], np.int64)
    parts.part[:] = own[calls.token] if calls.token.size else 0
    if calls.token.size > MOST_CALLS:
        return parts
    tokens = calls.tokens
    is_relevant = np.array([_matters(token) for token in tokens] or [False], np.bool_)[calls.token]
    sizes_of: dict[tuple[int, ...], set[str]] = {}
    is_backward = np.array([token.is_backward for token in tokens] or [False], np.bool_)[calls.token]
    for device in np.unique(calls.device).tolist():
        every = np.flatnonzero((calls.device == device) & ~is_backward)
        for label, span in written_out([tokens[code] for code in calls.token[every].tolist()]):
            parts.part[every[span]] = parts.number(label)
        places = np.flatnonzero(is_relevant & (calls.device == device))
        row = [tokens[code] for code in calls.token[places].tolist()]
        forward = [index for index, token in enumerate(row) if not token.is_backward]
        labels = _label([row[index] for index in forward])
        for index, label in labels.items():
            parts.part[places[forward[index]]] = parts.number(label)
            token = row[forward[index]]
            if token.work is not None and token.work.kind == "product" and token.work.sizes:
                sizes_of.setdefault(tuple(sorted(token.work.sizes[1:])), set()).add(label)
        anchors = [row[forward[index]] for index, label in labels.items() if label in (ATTENTION, WEIGHTS)]
        parts.layers += len(anchors)
        parts.sized_layers += sum(token.work is not None for token in anchors)
        backward = parts.backward_layers
        _label_backward(parts, places, row, sizes_of)
        parts.gpus += bool(anchors) or parts.backward_layers > backward
    return parts


def _matters(token: Token) -> bool:
    return token.kind in ("product", "attention", "softmax") or bool(token.activation) or token.operator.startswith("aten::mul")


def _label_backward(parts: Parts, places: Ints, row: Sequence[Token], sizes_of: dict[tuple[int, ...], set[str]]) -> None:
    """Gradients of a product multiply the same three sizes in another order: known where one part alone has them."""
    passed = 0
    for index, token in enumerate(row):
        if not token.is_backward:
            continue
        if token.kind == "attention":
            parts.part[places[index]] = parts.number(f"{ATTENTION}, backward")
            passed += 1
        elif token.work is not None and token.work.kind == "product" and token.work.sizes:
            labels = sizes_of.get(tuple(sorted(token.work.sizes[1:])), set())
            if len(labels) == 1:
                parts.part[places[index]] = parts.number(f"{next(iter(labels))}, backward")
    parts.backward_layers += passed


def _label(row: Sequence[Token]) -> dict[int, str]:
    """Return place → part of the calls of one GPU that matter, backward ones aside."""
    labels: dict[int, str] = {}
    layouts = _attentions(row, labels)
    before = 0
    for number, layout in enumerate(layouts):
        after = layouts[number + 1].first if number + 1 < len(layouts) else len(row)
        _label_queries(row, range(before, layout.first), layout, labels)
        before = _label_behind(row, range(layout.last + 1, after), layout, labels, is_last=number + 1 == len(layouts))
    return labels


def _attentions(row: Sequence[Token], labels: dict[int, str]) -> list[Layout]:
    """Every attention: a fused kernel, or product, softmax, product whose sizes fit."""
    layouts = []
    for at, token in enumerate(row):
        if token.kind == "attention":
            sizes = token.work.sizes if token.work else ()
            labels[at] = ATTENTION
            layouts.append(Layout(at, at, *((sizes[1], sizes[2], sizes[5]) if len(sizes) == 6 else ())))
        elif token.kind == "softmax" and token.work is not None:
            scores = next((place for place in range(at - 1, max(-1, at - _APART), -1) if row[place].kind == "product"), None)
            values = next((each for each in range(at + 1, min(len(row), at + _APART)) if row[each].kind == "product"), None)
            if scores is None or values is None:
                continue
            a, b = (row[place].work for place in (scores, values))
            if a is None or b is None or len(a.sizes) != 4 or len(b.sizes) != 4 or a.sizes[0] < 2 or a.sizes[0] != b.sizes[0]:
                continue
            if a.sizes[2] == b.sizes[3] and a.sizes[1] == b.sizes[1]:
                labels |= {scores: SCORES, at: WEIGHTS, values: VALUES}
                layouts.append(Layout(scores, values, head_size=a.sizes[3]))
    return layouts


def _products(row: Sequence[Token], places: range, labels: dict[int, str]) -> list[int]:
    return [place for place in places if row[place].kind == "product" and place not in labels]


def _mnk(token: Token) -> tuple[int, int, int] | None:
    """m, n and k of a plain product."""
    sizes = token.work.sizes if token.work else ()
    return (sizes[1], sizes[2], sizes[3]) if len(sizes) == 4 and sizes[0] == 1 else None


def _label_queries(row: Sequence[Token], places: range, layout: Layout, labels: dict[int, str]) -> None:
    """The last products before an attention, where their n is that of its heads."""
    products = _products(row, places, labels)
    if not products:
        return
    heads, kv_heads, head = layout.heads, layout.kv_heads, layout.head_size
    if head is None:
        if len(products) in (1, 3) and not any(_mnk(row[product]) for product in products):
            labels |= dict.fromkeys(products, QKV if len(products) == 1 else SEPARATE)
        return
    last = products[-3:]
    known = [size for product in last if (size := _mnk(row[product])) is not None]
    if not known or _mnk(row[last[-1]]) is None:
        return
    if heads is None or kv_heads is None:                  # plain attention tells the size of a head alone: n = 3·k of one product
        if known[-1][1] == 3 * known[-1][2] and not known[-1][2] % head:
            labels[last[-1]] = QKV
    elif known[-1][1] == (heads + 2 * kv_heads) * head:
        labels[last[-1]] = QKV
    elif [each[1] for each in known] == [heads * head, kv_heads * head, kv_heads * head] and len({each[2] for each in known}) == 1:
        for product, name in zip(last, (Q, KV, KV) if heads != kv_heads else (SEPARATE,) * 3, strict=True):
            labels[product] = name


def _label_behind(row: Sequence[Token], places: range, layout: Layout, labels: dict[int, str], *, is_last: bool) -> int:
    """The products behind an attention: output, gate and up, down; returns where the next layer's may begin."""
    products = _products(row, places, labels)
    if not products:
        return places.start
    first = _mnk(row[products[0]])
    acts = [place for place in places if row[place].activation]
    if first is None:
        return _label_by_order(row, places, products, acts, layout, labels, is_last=is_last)
    hidden = first[1]
    width = layout.heads * layout.head_size if layout.heads and layout.head_size else None
    if first[2] == width or (width is None and layout.head_size and first[2] % layout.head_size == 0 and first[2] == first[1]):
        labels[products[0]] = OUTPUT
    else:
        return products[0]
    down = _label_feed_forward(row, products[1:], acts, hidden, labels)
    if acts:
        _join_gate(row, places, acts[0], labels)
    return (down if down is not None else products[0]) + 1


def _label_feed_forward(row: Sequence[Token], products: Sequence[int], acts: Sequence[int], hidden: int,
                        labels: dict[int, str]) -> int | None:
    """Gate and up take hidden to the inner size, down takes it back; returns where down stands."""
    sized = [(product, size) for product in products if (size := _mnk(row[product])) is not None]
    if not acts:
        return None
    for place, (product, (m, n, k)) in enumerate(sized):
        if n != hidden or place == 0:
            continue
        upward = [(other, size) for other, size in sized[:place] if size[2] == hidden and size[0] == m]
        inner = {size[1] for _, size in upward}
        if len(inner) != 1 or not upward or len(upward) > 2 or not any(upward[0][0] < act < product for act in acts):
            continue
        wide = inner.pop()
        if wide == k:
            name = GATE_UP if len(upward) == 2 else UP
        elif wide == 2 * k and len(upward) == 1:
            name = GATE_UP
        else:
            continue
        labels |= {other: name for other, _ in upward} | {product: DOWN}
        return product
    return None


def _join_gate(row: Sequence[Token], places: range, act: int, labels: dict[int, str]) -> None:
    """SiLU and the product with what it gates are one part, where they are two kernels."""
    name = row[act].activation
    labels[act] = name
    if name.endswith("·mul") or row[act].work is None:
        return
    for at in range(act + 1, min(places.stop, act + 4)):
        work = row[at].work
        if row[at].operator.startswith("aten::mul") and work is not None and work.text == row[act].work.text:      # type: ignore[union-attr]
            labels |= {act: f"{name}·mul", at: f"{name}·mul"}
            return


def _label_by_order(row: Sequence[Token], places: range, products: Sequence[int], acts: Sequence[int], layout: Layout,
                    labels: dict[int, str], *, is_last: bool) -> int:
    """Without sizes: only where exactly the products of one layer stand around one activation, or one is fused with it."""
    if len(acts) != 1:
        return products[0]
    if acts[0] in products:                                # gate, up and activation in one kernel, a router may stand before it
        behind = [product for product in products if product > acts[0]]
        labels |= {products[0]: OUTPUT, acts[0]: GATE_UP} if products[0] != acts[0] else {acts[0]: GATE_UP}
        labels |= {behind[0]: DOWN} if behind else {}
        return (behind[0] if behind else acts[0]) + 1
    labels[acts[0]] = row[acts[0]].activation
    ahead, behind = [product for product in products if product < acts[0]], [product for product in products if product > acts[0]]
    fits = len(ahead) in (2, 3) and (len(behind) in (2, 4) or (is_last and len(behind) >= 1)) and layout.head_size is None
    if not fits:
        return products[-1] + 1
    gated = row[acts[0]].activation.endswith("·mul")
    labels |= {ahead[0]: OUTPUT, **dict.fromkeys(ahead[1:], GATE_UP if gated else UP), behind[0]: DOWN}
    return behind[0] + 1
