"""Multi-tensor operators of optimizers: lists of tensors, and how large they are where the file leaves their sizes out.

PyTorch records no sizes of a "TensorList" in many versions. The backward pass names them: it accumulates the gradient of every
parameter, with its sizes. A multi-tensor kernel walks its list in chunks of CHUNK elements of one tensor, a block each
(ATen/native/cuda/MultiTensorApply.cuh, `kChunkSize`), so a call whose launches have as many blocks as the gradients of one backward
pass have chunks updates these parameters. Where the counts differ, the sizes stay unknown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import reduce
from math import gcd, prod

import numpy as np

from profiles.analysis.core.frame import Frame
from profiles.analysis.trace.layer.work import Call, Work
from profiles.ingest.arrays import Ints
from profiles.ingest.trace import Category

CHUNK = 65_536
MOST_CALLS = 20_000             # of optimizers in one trace
MOST_GRADIENTS = 1_000_000
MOST_MICRO_BATCHES = 64         # backward passes that accumulate before one step
_ACCUMULATES = "torch::autograd::AccumulateGrad"
_KERNEL = "multi_tensor_apply"

# operations for each element of `_foreach_…`
FOREACH = {"add": 1, "sub": 1, "mul": 1, "div": 1, "sqrt": 1, "reciprocal": 1, "neg": 1, "abs": 1, "exp": 1, "pow": 1, "lerp": 3,
           "addcmul": 3, "addcdiv": 3, "maximum": 1, "clamp_min": 1, "clamp_max": 1, "norm": 2, "copy": 0, "zero": 0}
# operations, and how many lists as long as the parameters are read or written. Adam (Kingma and Ba, arXiv 1412.6980, algorithm 1;
# decay as AdamW): m 3, v 4, root, division, epsilon, bias corrections 4, decay 2, step 1; parameters and both moments are read and
# written, gradients read. Adagrad: one sum of squares.
FUSED = {"_fused_adam": (14, 7), "_fused_adamw": (14, 7), "_fused_adagrad": (7, 5)}
_SGD, _SGD_MOMENTUM = (2, 3), (5, 5)


def multi_tensor(call: Call) -> Work | None:
    """Return the work of `_foreach_…` and `_fused_…` by the lists of tensors whose sizes the call records."""
    lists = [tensors for argument in range(min(len(call.dims), 8)) if (tensors := call.tensor_list(argument))]
    if not lists or (not call.base.startswith("_fused_") and len(lists) != _lists(call)):
        return None
    elements = sum(tensor.elements for tensor in lists[0])
    given = [sum(tensor.elements for tensor in tensors) for tensors in lists]
    uneven = call.base.startswith("_foreach_") and len(set(given)) > 1          # a list of one-element tensors beside the others
    return _work(call, len(lists[0]), elements, sum(given) + elements if uneven else None)


def _lists(call: Call) -> int:
    return sum(call.type(argument) == "TensorList" for argument in range(len(call.dims)))


def _work(call: Call, tensors: int, elements: int, moved: int | None = None, note: str = "") -> Work | None:
    """Return the work of a call on so many parameters; None where nothing says what it reads and writes."""
    if call.base.startswith("_foreach_"):
        name = call.base.removeprefix("_foreach_")
        if name not in FOREACH:
            return None
        lists = max(1, _lists(call))
        # every list read and the first (or a new one as large) written; these three either read or write it alone
        operations, passes = FOREACH[name], {"zero": 1, "norm": lists, "copy": lists}.get(name, lists + 1)
    elif call.base == "_fused_sgd":
        operations, passes = _SGD_MOMENTUM if call.text(4).strip() not in ("", "0", "0.", "0.0") else _SGD
    elif call.base in FUSED:
        operations, passes = FUSED[call.base]
    else:
        return None
    return Work("optimizer", operations * elements, None, "", f"{tensors} tensors, {elements} elements",
                elements=passes * elements if moved is None else moved, note=note)


def is_optimizer(name: str) -> bool:
    """Return whether an operator works on lists of tensors by a rule of this module."""
    base = name.removeprefix("aten::").rstrip("_")
    return name.startswith("aten::") and (
        base in FUSED or base == "_fused_sgd" or (base.startswith("_foreach_") and base.removeprefix("_foreach_") in FOREACH))


def add_parameter_sizes(frame: Frame, rows: Ints, call: Ints, work: Ints, works: list[Work]) -> Ints:
    """Return the number of each launch's work, with that of optimizers' calls without sizes; their work is added to `works`.

    `rows`, `call`, `work`: each launch, the operator it belongs to and the number of its work, -1 unknown.
    """
    codes = np.array([code for code, name in enumerate(frame.names) if is_optimizer(name)], np.int64)
    mine = np.flatnonzero(call >= 0)
    mine = mine[np.isin(frame["name"][call[mine]], codes)]
    every = np.unique(call[mine])
    lacking = np.unique(call[mine[work[mine] < 0]])
    if not lacking.size or lacking.size > MOST_CALLS:
        return work
    sizes_of = _sizes_by_blocks(_backward_passes(frame, every))
    blocks = _blocks(frame, rows[mine], call[mine])
    work, numbers = work.copy(), dict[tuple[int, int, int], int]()
    for row in lacking.tolist():
        if (sizes := sizes_of.get(blocks.get(row, 0))) is None:
            continue
        key = (int(frame["name"][row]), int(frame["detail"][row]), blocks[row])
        if key not in numbers:
            entry = _work(Call(frame.text(row), frame.arguments(row)), *sizes, note="sizes of the gradients of a backward pass")
            numbers[key] = -1 if entry is None else len(works)
            works += [] if entry is None else [entry.bounded()]
        if numbers[key] >= 0:
            work[mine[call[mine] == row]] = numbers[key]
    return work


Sizes = Counter[tuple[int, ...]]


def _backward_passes(frame: Frame, steps: Ints) -> list[Sizes]:
    """Return the sizes of the gradients accumulated between optimizers' calls, by process and what lies between."""
    codes = np.array([code for code, name in enumerate(frame.names) if name == _ACCUMULATES], np.int64)
    gradients = np.flatnonzero(np.isin(frame["name"], codes) & (frame["category"] == Category.CPU_OP))[:MOST_GRADIENTS]
    ends = np.sort(frame["start_ns"][steps])
    between = np.searchsorted(ends, frame["start_ns"][gradients])
    passes: dict[tuple[str | None, int], Sizes] = {}
    shapes: dict[int, tuple[int, ...]] = {}
    for row, place in zip(gradients.tolist(), between.tolist(), strict=True):
        detail = int(frame["detail"][row])
        if detail not in shapes:
            tensor = Call(_ACCUMULATES, frame.arguments(row)).tensor(0)
            shapes[detail] = tensor.shape if tensor is not None else ()
        process = frame.tracks[int(frame["track"][row])].pid
        passes.setdefault((process, place), Counter())[shapes[detail]] += 1
    return [sizes for sizes in passes.values() if () not in sizes]


def _blocks(frame: Frame, rows: Ints, call: Ints) -> dict[int, int]:
    """Return the blocks of all multi-tensor launches of each call; one with an unknown grid leaves its call out."""
    kernels = np.array([code for code, name in enumerate(frame.names) if _KERNEL in name], np.int64)
    counted = np.isin(frame["name"][rows], kernels)
    grid = frame["grid_x"][rows[counted]].astype(np.int64)
    out: dict[int, int] = {}
    for row, blocks in zip(call[counted].tolist(), grid.tolist(), strict=True):
        out[row] = out.get(row, 0) + blocks if blocks > 0 and out.get(row, 0) >= 0 else -1
    return out


def _sizes_by_blocks(passes: Sequence[Sizes]) -> dict[int, tuple[int, int]]:
    """Return (tensors, elements) of the gradients that fill so many chunks; without a number that several fill which differ.

    Gradients of a pass as they are come before a part of them: those of one of several micro-batches.
    """
    whole, part = defaultdict[int, set[tuple[int, int]]](set), defaultdict[int, set[tuple[int, int]]](set)
    for sizes in map(Counter, map(dict, {frozenset(counter.items()) for counter in passes})):        # passes repeat each other
        common = reduce(gcd, sizes.values())
        whole[_chunks(sizes, 1)].add(_sums(sizes, 1))
        for times in range(2, MOST_MICRO_BATCHES + 1):
            if common % times == 0:
                part[_chunks(sizes, times)].add(_sums(sizes, times))
    return {blocks: next(iter(sums)) for blocks, sums in {**part, **whole}.items() if blocks > 0 and len(sums) == 1}


def _chunks(sizes: Sizes, times: int) -> int:
    return sum(count // times * -(-prod(shape) // CHUNK) for shape, count in sizes.items())


def _sums(sizes: Sizes, times: int) -> tuple[int, int]:
    return sum(sizes.values()) // times, sum(count // times * prod(shape) for shape, count in sizes.items())
