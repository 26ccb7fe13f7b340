"""What each launch of a trace computes: its operation, as both sides of a comparison name it, with its FLOP and bytes.

An operation outlives the kernels that do it: attention is one, whether a fused kernel does it or two products with a softmax
between them; experts one after the other and grouped products are products of the same weights. What a launch does is read from its
operator, its place in a layer (`trace.layer.parts`), the kinds that `trace.needed` recognises, and last from its kernel's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from profiles.analysis.compare.operations import Operation
from profiles.analysis.core.frame import Frame
from profiles.analysis.core.identity import identity
from profiles.analysis.trace.communication.collectives import operation as collective
from profiles.analysis.trace.layer.calls import calls_of
from profiles.analysis.trace.layer.parts import MOST_CALLS, SCORES, VALUES, WEIGHTS, parts_of
from profiles.analysis.trace.layer.work import PRODUCTS, Call
from profiles.analysis.trace.needed.facts import Facts, Item, facts_of, sizes_of, times
from profiles.analysis.trace.needed.kinds import attention, caches, repeated, training, weights
from profiles.ingest.arrays import Bools, Floats, Int32
from profiles.ingest.trace import Category

# What tells that a launch belongs to an operation which its operator does not name: a finder of `trace.needed` for each.
_FINDERS = (("scores", attention.find_scores), ("repeated", repeated.find), ("caches", caches.find),
            ("masks", attention.find_masks), ("weights", weights.find), ("gradients", training.find_zeroed),
            ("updates", training.find_updates))
_OPTIMIZER = re.compile(r"(?:^|::)_?fused_(?:adam|adamw|sgd|adagrad|lamb)|_foreach_"
                        r"|multi_tensor_apply_kernel.*(?:adam|sgd|lamb(?!da))", re.IGNORECASE)
_ACTIVATION = re.compile(r"^(?:silu|gelu|relu|leaky_relu|hardtanh|hardswish|mish|elu|sigmoid|tanh|clamp_min|threshold|glu)_?"
                         r"(?:_backward)?$")
_ACTIVATIONS = ("SiLU", "SiLU·mul", "GELU", "GELU·mul", "ReLU", "hard swish")      # parts of a layer
_NORM = (("batch norm", "batch_?norm|batchnorm|bn_fw|bn_bw"), ("group norm", "group_?norm"), ("RMS norm", "rms_?norm"),
         ("layer norm", "layer_?norm"))
_BY_ROLE = {"copy": "copies", "cat": "concatenations", "fill": "fills", "index": "indexing", "reduction": "reductions",
            "softmax": "softmax", "softmax_backward": "softmax", "elementwise": "pointwise"}
# By `identity(kernel).op`, where nothing else says what a launch does.
_BY_NAME = {"matmul": "product", "convolution": "convolution", "norm": "norm", "softmax": "softmax", "embedding": "embedding",
            "sort": "index", "scan": "reduction", "reduce": "reduction", "copy": "copy", "fill": "fill",
            "elementwise": "elementwise"}
_ROTARY = re.compile(r"rotary|(?:^|[_:])rope(?:_|\b)", re.IGNORECASE)
_CACHE = re.compile(r"reshape_and_cache|store_kv_?cache|concat_and_cache|write_kv", re.IGNORECASE)
_ACTIVATES = re.compile(r"silu|gelu|swiglu|\brelu|act_and_mul", re.IGNORECASE)
_COMPILED = ("CompiledF", "Torch-Compiled", "## Call CompiledF")      # operators that hold all of a compiled graph's kernels
_AROUND_ATTENTION = ("copy", "fill")        # roles of launches right beside it that only bring its tensors into shape
_INSIDE_ATTENTION = ("copy", "elementwise", "fill", "index", "softmax", "softmax_backward", "other", "reduction",
                     "product_helper")
_PASSES = (*_BY_ROLE, "norm", "layout", "product_helper")       # roles of launches that multiply no matrices
MOST_TITLE = 120


@dataclass(frozen=True)
class LaunchOperations:
    """Every kernel of a trace in order of start (`Frame.kernels`). Amounts are NaN where they are not known.

    `flop` and `bytes` are the launch's share of its call's, so that they add up; `call_work` is what the whole call computes (FLOP
    of products, bytes of all else): the measure of whether two launches of one kernel did the same.
    """

    operation: Int32        # number into `operations`
    by_kernel: Int32        # the same without operators and places: what a replayed graph can be matched with
    operations: list[Operation]
    has_operator: Bools     # the trace says which operator launched it; of a collective its name says all
    flop: Floats                            # of products, convolutions and attention; passes over memory count none
    bytes: Floats
    call_work: Floats


def launch_operations(frame: Frame) -> LaunchOperations | None:
    """Return what each kernel launch of a trace computes; None without compute kernels, or with too many of them."""
    facts = facts_of(frame)
    if facts is None:
        return None
    kernels = frame.kernels.astype(np.int64)
    position = np.full(frame.rows, -1, np.int64)
    position[facts.every.rows] = np.arange(facts.every.rows.size)
    place = position[kernels]
    parts, claims, modules = _parts(frame, facts), _claims(facts), _modules(frame, facts)
    attention = _attention(facts, parts, claims)
    number: dict[Operation, int] = {}
    numbers_by_key: dict[tuple[object, ...], tuple[int, int]] = {}
    plain = dict[tuple[str, bool], Operation]()
    of_position = np.zeros((facts.every.rows.size, 2), np.int32)
    for index, item in enumerate(facts.item):
        phase = "update" if facts.is_update[index] else "backward" if facts.is_backward[index] else ""
        key = (item, parts[index], claims[index], bool(attention[index]), phase, modules[index])
        if key not in numbers_by_key:
            full_operation = _operation(facts.items[item], *key[1:])
            kernel = (facts.items[item].kernel, bool(attention[index]))
            if kernel not in plain:
                plain[kernel] = _operation(_plain_item(kernel[0]), "", "", kernel[1], "", "")
            numbers_by_key[key] = number.setdefault(full_operation, len(number)), number.setdefault(plain[kernel], len(number))
        of_position[index] = numbers_by_key[key]
    operation = np.zeros((kernels.size, 2), np.int32)
    has_operator = np.ones(kernels.size, np.bool_)
    mine = place[place >= 0]
    operation[place >= 0] = of_position[mine]
    has_operator[place >= 0] = np.array([_says_operator(item) for item in facts.items], np.bool_)[facts.item][mine]
    for index in np.flatnonzero(place < 0).tolist():
        name = collective(frame.text(int(kernels[index])))
        operation[index] = number.setdefault(Operation("communication", "", name, name), len(number))
    columns = []
    for amounts in _amounts(facts):
        column = np.full(kernels.size, np.nan)
        column[place >= 0] = amounts[mine]
        columns.append(column)
    return LaunchOperations(operation[:, 0], operation[:, 1], list(number), has_operator, *columns)


def _says_operator(item: Item) -> bool:
    return bool(item.operator) and not item.operator.startswith(_COMPILED)


def _plain_item(kernel: str) -> Item:
    """A launch as a trace without operators would have it."""
    return Item(kernel, "", (), Call("", {}), None, False)


def _amounts(facts: Facts) -> tuple[Floats, Floats, Floats]:
    """FLOP and bytes of each launch's share, and the work of its whole call. What only helps a call has no share: 0."""
    every = facts.every
    helper = every.is_part & (every.work >= 0)
    amounts = [work.flop if work.kind in PRODUCTS and work.flop is not None else work.bytes for work in every.works]
    whole = np.array([np.nan if amount is None else float(amount) for amount in [*amounts, None]])[every.work]
    is_pass = np.array([item.role in _PASSES or (item.work is not None and item.work.kind not in PRODUCTS)
                        for item in facts.items], np.bool_)[facts.item]
    return np.where(helper | is_pass, 0.0, every.flop), np.where(helper, 0.0, every.bytes), whole


def _parts(frame: Frame, facts: Facts) -> list[str]:
    """The part of a layer of each launch, as its call has it; "" where it has none."""
    every = facts.every
    count = every.rows.size
    calls = calls_of(frame, every)
    parts = parts_of(calls)
    if calls.token.size > MOST_CALLS:
        return [""] * count
    own = np.where(every.call >= 0, every.call, frame.rows + np.arange(count))
    _, first, index = np.unique(own, return_index=True, return_inverse=True)
    sequence = np.lexsort((first, facts.device[first]))         # the order of `calls_of`
    rank = np.empty(first.size, np.int64)
    rank[sequence] = np.arange(first.size)
    return [parts.names[code] for code in parts.part[rank[index.reshape(-1)]].tolist()]


def _claims(facts: Facts) -> list[str]:
    """Which finder of `_FINDERS` recognises each launch, "" for none; each launch once, as `trace.needed` claims them."""
    out = [""] * len(facts.item)
    for name, find in _FINDERS:
        for avoidable in find(facts):
            positions = list(dict.fromkeys(avoidable.positions))
            if positions and not facts.taken[positions].any():
                facts.taken[positions] = True
                for position in positions:
                    out[position] = name
    return out


def _modules(frame: Frame, facts: Facts) -> list[str]:
    """The class of the innermost nn.Module around each launch, where stacks were recorded: "LlamaMLP"."""
    rows = frame.rows_by_name(lambda name: name.startswith("nn.Module: "), Category.PYTHON)
    operator = frame.operator[facts.every.rows].astype(np.int64)
    if not rows.size:
        return [""] * operator.size
    inner = np.where(operator >= 0, frame.nearest(rows)[np.maximum(operator, 0)], -1)
    codes, index = np.unique(np.where(inner >= 0, frame["name"][np.maximum(inner, 0)], -1), return_inverse=True)
    named = ["" if code < 0 else re.sub(r"_\d+$", "", frame.names[code].removeprefix("nn.Module: ")[:MOST_TITLE])
             for code in codes.tolist()]
    return [named[number] for number in index.reshape(-1).tolist()]


def _attention(facts: Facts, parts: Sequence[str], claims: Sequence[str]) -> Bools:
    """Which launches compute an attention: fused, or written out with what stands between its products and right beside them."""
    out = np.zeros(len(facts.item), np.bool_)
    named = (SCORES, WEIGHTS, VALUES)
    is_attention = [item.role == "attention" or identity(item.kernel).op == "attention" for item in facts.items]
    for sequence in facts.sequences:
        core = [index for index, position in enumerate(sequence)
                if parts[position] in named or claims[position] in ("scores", "repeated") or is_attention[facts.item[position]]]
        for first, last in _blocks(facts, sequence, core):
            out[sequence[first:last + 1]] = True
            for step in (-1, 1):
                at = (first if step < 0 else last) + step
                while 0 <= at < len(sequence) and _only_shapes(facts.at(sequence[at]), parts[sequence[at]], claims[sequence[at]]):
                    out[sequence[at]] = True
                    at += step
    return out


def _blocks(facts: Facts, sequence: Sequence[int], core: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Runs of launches that compute one attention, with the passes over its scores that stand between them."""
    for index, place in enumerate(core):
        if index == 0 or not _is_joined(facts, sequence, core[index - 1], place):
            first = place
        if index + 1 == len(core) or not _is_joined(facts, sequence, place, core[index + 1]):
            yield first, place


def _is_joined(facts: Facts, sequence: Sequence[int], before: int, after: int) -> bool:
    between = [facts.at(position) for position in sequence[before + 1:after]]
    return len(between) <= attention.LOOKED and all(
        item.role in _INSIDE_ATTENTION and not item.is_within("linear") for item in between)


def _only_shapes(item: Item, part: str, claim: str) -> bool:
    return not part and not claim and item.role in _AROUND_ATTENTION and not item.is_fused


def _operation(item: Item, part: str, claim: str, is_attention: bool, phase: str, module: str) -> Operation:
    """Return what a launch computes. Phase "update" is an optimizer's; its operators are one kind, however many there are."""
    base = part.removesuffix(", backward")
    op = "" if item.operator.startswith(_COMPILED) else Call(item.operator, {}).base
    function = identity(item.kernel).function
    named, role = op or function, _role(item, op)
    is_optimizer = phase == "update" or claim == "updates" or (item.work is not None and item.work.kind == "optimizer") \
        or bool(_OPTIMIZER.search(item.operator) or _OPTIMIZER.search(item.kernel[:400]))
    if claim == "gradients":
        return Operation("optimizer", "", "zeroed", "gradients set to zero", module)
    if is_optimizer:
        return Operation("optimizer", "", named, named, module)
    if is_attention:
        return Operation("attention", phase, "attention", "attention", module)
    if role in ("product", "product_helper"):
        return _product(item, base, phase, module, function)
    if role == "convolution":
        return Operation("convolutions", phase, _filters(item), _filters(item) or function, module)
    if role == "layout":
        return Operation("layouts", phase, "layouts", "NCHW and NHWC converted", module)
    if role == "norm" or base.endswith(" norm"):
        norm = base if base.endswith(" norm") else _norm_name(item)
        return Operation("norms", phase, norm, norm, module)
    if base == "rotary embedding" or _ROTARY.search(function):
        return Operation("rotary", phase, "rotary", "rotary embedding", module)
    if base == "KV cache write" or claim == "caches" or _CACHE.search(function):
        return Operation("caches", phase, "caches", "KV cache", module)
    if claim in ("masks", "weights"):
        return Operation(claim, phase, claim, {"masks": "mask of attention", "weights": "weights made anew"}[claim], module)
    if item.is_fused:
        return Operation("fused", phase, function, function[:MOST_TITLE], module)
    if _ACTIVATION.match(op) or (base in _ACTIVATIONS and op not in ("mul", "div")):
        # of a gate written in two operators the product is pointwise work: on the other side it may be the same, and unnamed
        return Operation("activations", phase, *((op, op) if _ACTIVATION.match(op) else (base, base)), module)
    if not op and role in ("elementwise", "other") and _ACTIVATES.search(function):
        return Operation("activations", phase, function, function[:MOST_TITLE], module)
    if "dropout" in named or "dropout" in item.kernel[:400]:
        return Operation("dropout", phase, "dropout", "dropout", module)
    if "pool" in op or "pool" in function.lower():
        return Operation("pooling", phase, op or function, op or function, module)
    if role == "embedding" or "embedding" in op or item.is_within("embedding"):
        return Operation("embeddings", phase, "embedding", "embedding", module)
    kind = "pointwise" if op == "where" else _BY_ROLE.get(role, "other")
    return Operation(kind, phase, named, named[:MOST_TITLE], module)


def _role(item: Item, op: str) -> str:
    """The item's role; of a convolution's kernels all but its layouts', and where it says nothing what the kernel's name says."""
    is_convolution = (item.work is not None and item.work.kind == "convolution") or "convolution" in op
    if is_convolution and item.role not in ("layout", "fill", "copy"):
        return "convolution"
    return _BY_NAME.get(identity(item.kernel).op, item.role) if item.role == "other" else item.role


def _product(item: Item, part: str, phase: str, module: str, function: str) -> Operation:
    """A product by its weights' shape: rows may be any number, and are summed. A gradient's has all three sizes, in any order."""
    sizes = sizes_of(item)
    if len(sizes) != 4:
        named = function if not item.operator or item.operator.startswith(_COMPILED) else item.operator
        return Operation("products", phase, named, named[:MOST_TITLE], module)
    batch, rows, columns, inner = sizes
    title = item.call.base
    if phase == "backward":
        key = times(sorted((rows, columns, inner)))
    elif batch > 1:
        key = times((batch, columns, inner))
    else:
        key, title = times((columns, inner)), part or "product"
    return Operation("products", phase, key, f"{title} {key}", module)


def _filters(item: Item) -> str:
    """"3×3, 64 to 128 channels" of a convolution with known shapes; what it runs over is summed."""
    text = item.work.text.removeprefix("backward, ") if item.work is not None else ""
    match = re.match(r"[\d×]+, \d+ to \d+ channels", text)
    return match[0] if match else ""


def _norm_name(item: Item) -> str:
    text = f"{item.operator} {item.kernel[:400]}"
    return next((name for name, pattern in _NORM if re.search(pattern, text, re.IGNORECASE)), "norm")

