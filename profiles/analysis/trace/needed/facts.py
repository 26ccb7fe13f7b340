"""What is asked of every launch: its role, the operators around it, its work, and its least time at the GPU's ceilings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from profiles.analysis.core import gpus
from profiles.analysis.core.frame import Frame
from profiles.analysis.trace.layer.calls import BACKWARD
from profiles.analysis.trace.layer.ceilings import Ceilings, ceilings_of
from profiles.analysis.trace.layer.launches import LaunchWork, gpu_of_rows, launch_work, precision_of
from profiles.analysis.trace.layer.work import PRODUCTS, Call, Shape, Tensor, Work
from profiles.base.words import dims_text
from profiles.ingest.arrays import Bools, Floats, Ints
from profiles.ingest.trace import Category

MOST_LAUNCHES = 200_000             # each of which is looked at: some 0.2 ms
STEP = "ProfilerStep#"
LEVELS = 8                          # operators and ranges around a launch that are looked at

# What a launch does, by the operator's name without its namespace; else by the kernel's name, the first that fits.
_OPERATORS: dict[str, str] = {
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm", "_scaled_mm", "_int_mm", "mv", "addmv", "_grouped_mm", "matmul", "linear"),
                    "product"),
    **dict.fromkeys(("_softmax", "_log_softmax"), "softmax"),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), "softmax_backward"),
    **dict.fromkeys(("copy", "clone", "contiguous", "_to_copy", "repeat", "repeat_interleave"), "copy"),
    **dict.fromkeys(("cat", "_cat", "stack"), "cat"),
    **dict.fromkeys(("fill", "zero", "zeros", "zeros_like", "ones", "full", "arange", "scalar_tensor"), "fill"),
    **dict.fromkeys(("index", "index_select", "gather", "nonzero", "index_add", "index_copy", "index_put", "_index_put_impl",
                     "scatter", "scatter_add", "masked_select", "take", "where", "topk", "sort"), "index"),
    **dict.fromkeys(("native_layer_norm", "_fused_rms_norm", "native_batch_norm", "cudnn_batch_norm", "native_group_norm",
                     "native_batch_norm_backward", "cudnn_batch_norm_backward", "native_layer_norm_backward"), "norm"),
    **dict.fromkeys(("sum", "mean", "amax", "amin", "max", "min", "argmax", "any", "all", "logsumexp", "linalg_vector_norm",
                     "norm", "cumsum"), "reduction"),
}
_KERNELS: tuple[tuple[str, re.Pattern[str]], ...] = tuple((role, re.compile(pattern, re.IGNORECASE)) for role, pattern in (
    ("attention", r"flash|fmha|sdpa|mha_|attention_kernel|_attn_fwd|_attn_bwd"),
    ("layout", r"nchwToNhwc|nhwcToNchw|nhwcAddPadding|convertTensor_kernel|(?:nchw|nhwc)_?to_?(?:nhwc|nchw)"),
    ("softmax", r"softmax_?warp_?forward|cunn_SoftMaxForward|softmax_forward|SoftMaxForward"),
    ("softmax_backward", r"softmax_?warp_?backward|SoftMaxBackward"),
    ("product", r"nvjet|gemm|cutlass|xmma|wgmma|magma_|Cijk_|::mm_kernel|triton_tem_fused_.*mm"),
    ("product_helper", r"splitKreduce|splitk_?reduce"),
    ("cat", r"CatArrayBatchedCopy"),
    ("copy", r"direct_copy_kernel|bfloat16_copy|float16_copy|copy_device_to_device|triton_poi_fused_(?:_to_copy|clone)_\d*$"),
    ("fill", r"FillFunctor|arange_cuda|memset"),
    ("norm", r"layer_?norm|rms_?norm|batch_?norm|group_?norm"),
    ("index", r"index_elementwise|indexFunc|gather|scatter|DeviceSelect|write_indices|radix|topk|index_copy"),
    ("reduction", r"reduce_kernel|DeviceReduce"),
    ("elementwise", r"elementwise|multi_tensor_apply|triton_poi|triton_red|triton_per"),
))
_CONVOLUTION = re.compile(r"_(?:fprop|dgrad|wgrad)_|implicit_gemm|convolve|winograd", re.IGNORECASE)
FUSED = re.compile(r"^triton_|^_?fused_", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Item:
    """One kind of launch: a kernel that one operator launches with one set of arguments, within one path of operators."""

    kernel: str                         # full name
    operator: str                       # innermost around the launch call: "aten::copy_", "" unknown
    path: tuple[str, ...]               # from it outwards, operators and ranges without "aten::", at most LEVELS
    call: Call                          # of the operator whose work it does, else of the innermost
    work: Work | None
    is_part: bool                       # only helps the call's main kernel

    @cached_property
    def role(self) -> str:
        """Return "product", "attention", "convolution", "layout", a role of _OPERATORS or _KERNELS, or "other"."""
        for role in ("layout", "product_helper"):
            if _BY_ROLE[role].search(self.kernel[:400]):
                return role
        if self.work is not None and self.work.kind in PRODUCTS:
            return self.work.kind
        op = Call(self.operator, {}).base if self.operator else ""
        if op in _OPERATORS:
            return _OPERATORS[op]
        kind = next((role for role, pattern in _KERNELS if pattern.search(self.kernel[:400])), "")
        if kind == "product" and (any("conv" in name for name in self.path) or _CONVOLUTION.search(self.kernel[:400])):
            return "convolution"
        if not kind and self.work is not None:
            return "elementwise" if self.work.kind in ("elementwise", "fused", "optimizer") else self.work.kind
        return kind or "other"

    @cached_property
    def is_fused(self) -> bool:
        """Return whether a compiler made the kernel of several operators."""
        return bool(FUSED.match(self.kernel)) or self.operator.startswith("triton_")

    @cached_property
    def tensors(self) -> list[Tensor]:
        """Return the tensors of its call, those of lists too."""
        listed = [tensor for argument in range(min(len(self.call.dims), 8)) for tensor in self.call.tensor_list(argument)[:64]]
        return self.call.tensors() + listed

    @cached_property
    def shapes(self) -> list[Shape]:
        return [tensor.shape for tensor in self.tensors]

    @cached_property
    def elements(self) -> int:
        """Return the elements of its largest tensor, 0 without shapes."""
        return max((prod(shape) for shape in self.shapes if shape), default=0)

    def is_within(self, *names: str) -> bool:
        """Return whether an operator or range of one of these names is around the launch."""
        return any(name in self.path for name in names)


_BY_ROLE = dict(_KERNELS)


@dataclass(frozen=True, eq=False)
class Facts:
    """Every compute kernel in order of start, by position. Times in ns."""

    frame: Frame
    every: LaunchWork
    items: list[Item]
    number: Ints                        # into `items` by position
    ns: Ints
    start_ns: Ints
    end_ns: Ints
    floor_ns: Floats   # least time at the ceilings, NaN unknown
    dram_bytes_s: Floats   # of the launch's GPU, NaN unknown
    device: Ints
    is_backward: Bools      # autograd launched it
    is_update: Bools        # within an optimizer's step
    ceilings: Mapping[str, Ceilings]        # by GPU model
    models: list[str]                       # GPU model by number
    model: Ints                             # number into `models` by position
    taken: Bools = field(repr=False)       # by a kind before this one

    @cached_property
    def item(self) -> list[int]:
        """Return `number` as a list."""
        return list(self.number.tolist())

    def at(self, position: int) -> Item:
        return self.items[self.item[position]]

    @cached_property
    def lanes(self) -> list[Ints]:
        """Return the positions of each GPU in order of start."""
        return [np.flatnonzero(self.device == gpu).astype(np.int64) for gpu in np.unique(self.device).tolist()]

    @cached_property
    def sequences(self) -> list[list[int]]:
        """Return `lanes` as lists."""
        return [lane.tolist() for lane in self.lanes]

    def places(self, fits: Bools) -> Iterator[tuple[list[int], list[int]]]:
        """Yield each GPU's sequence and the places in it that fit, `fits` by position; GPUs where none does are left out."""
        for lane, sequence in zip(self.lanes, self.sequences, strict=True):
            if (places := np.flatnonzero(fits[lane])).size:
                yield sequence, places.tolist()

    def runs(self, fits: Bools) -> Iterator[list[int]]:
        """Yield the positions of each run of one GPU's launches that fit, `fits` by position."""
        for lane, sequence in zip(self.lanes, self.sequences, strict=True):
            edges = np.diff(np.concatenate([[False], fits[lane], [False]]).astype(np.int8))
            for begin, end in zip(np.flatnonzero(edges == 1).tolist(), np.flatnonzero(edges == -1).tolist(), strict=True):
                yield sequence[begin:end]

    @cached_property
    def has_backward(self) -> bool:
        return bool(self.is_backward.any()) or any("backward" in item.kernel.lower() or "bwd" in item.kernel.lower()
                                                   for item in self.items)

    @cached_property
    def has_shapes(self) -> bool:
        return any(item.shapes for item in self.items)

    @cached_property
    def positions_of(self) -> dict[int, list[int]]:
        """Return the positions of each item."""
        out: dict[int, list[int]] = {}
        for position, number in enumerate(self.item):
            out.setdefault(number, []).append(position)
        return out

    def where(self, *roles: str) -> Iterator[int]:
        """Yield the positions whose launch has one of these roles, those taken left out."""
        return self.which(lambda item: item.role in roles)

    def fits(self, test: Callable[[Item], object]) -> Bools:
        """Return of each position whether its item passes a test, which is asked once for each item."""
        return np.array([bool(test(item)) for item in self.items], np.bool_)[self.number]

    def which(self, test: Callable[[Item], object]) -> Iterator[int]:
        """Yield the positions whose item passes a test, those taken left out."""
        return (position for position in np.flatnonzero(self.fits(test)).tolist() if not self.taken[position])

    def total_ns(self, positions: list[int]) -> int:
        return int(self.ns[positions].sum())

    def rate(self, position: int, precision: str) -> float | None:
        """Return what the launch's GPU does of a precision, operations/s, "dram": bytes/s."""
        rate = self.ceilings[self.models[int(self.model[position])]].rate(precision)
        return rate[0] if rate else None


def steps_of_names(names: Sequence[str]) -> int:
    """Return how many steps torch.profiler marked, 1 where none."""
    return max(1, sum(1 for name in names if name.startswith(STEP)))


def facts_of(frame: Frame, given: Mapping[str, Any] | None = None) -> Facts | None:
    """Return the facts of a trace; None without compute kernels, or with more than MOST_LAUNCHES.

    `given`: {"ceilings": {model: {"label", "rates"}}} as `trace.layer.topic` has it.
    """
    every = launch_work(frame)
    rows = every.rows
    if not rows.size or rows.size > MOST_LAUNCHES:
        return None
    model, models = gpu_of_rows(frame, rows)
    measured = {gpus.key(name): rates for name, rates in (given or {}).get("ceilings", {}).items()}
    ceilings = {name: ceilings_of(name, measured.get(gpus.key(name))) for name in models}
    number, items = _items(frame, every)
    dram = np.array([(ceilings[name].rate("dram") or (np.nan, ""))[0] for name in models])[model]
    backward, update = (_is_inside(frame, every, fits, kinds) for fits, kinds in (
        (lambda name: name.startswith(BACKWARD), (Category.CPU_OP,)),
        (lambda name: "Optimizer.step" in name[:80], (Category.ANNOTATION, Category.CPU_OP))))
    return Facts(frame, every, items, number, every.ns, frame["start_ns"][rows].astype(np.int64),
                 frame.end_ns[rows].astype(np.int64), _floors(every, items, number, model, models, ceilings, dram), dram,
                 frame["device"][rows].astype(np.int64), backward, update, ceilings, models, model, np.zeros(rows.size, np.bool_))


def _items(frame: Frame, every: LaunchWork) -> tuple[Ints, list[Item]]:
    """Number the kinds of launches: by kernel, operator with its arguments, work and path."""
    operator = frame.operator[every.rows].astype(np.int64)
    levels, current = [], operator
    is_step = np.array([name.startswith(STEP) for name in frame.names] + [False], np.bool_)      # each would have its own items
    for _ in range(LEVELS):
        code = np.where(current >= 0, frame["name"][np.maximum(current, 0)], -1).astype(np.int64)
        levels.append(np.where(is_step[code], -1, code))
        current = frame.enclosing(np.where(current >= 0, frame.parent[np.maximum(current, 0)], -1),
                                  Category.CPU_OP, Category.ANNOTATION)
    call = np.where(every.call >= 0, every.call, operator)
    detail = np.where(call >= 0, frame["detail"][np.maximum(call, 0)], -1).astype(np.int64)
    first, number = _distinct([frame["name"][every.rows].astype(np.int64), detail, every.work, every.is_part.astype(np.int64),
                               *levels])
    items = []
    for place in first.tolist():
        row, work = int(call[place]), int(every.work[place])
        codes = [int(level[place]) for level in levels]
        path = tuple(frame.names[code].removeprefix("aten::")[:200] for code in codes if code >= 0)
        name = frame.text(int(operator[place])) if operator[place] >= 0 else ""
        items.append(Item(frame.text(int(every.rows[place])), name, path,
                          Call(frame.text(row) if row >= 0 else "", frame.arguments(row) if row >= 0 else {}),
                          every.works[work] if work >= 0 else None, bool(every.is_part[place])))
    return number, items


def _distinct(keys: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Return the first place of each combination of keys, and the number of each place's combination, in the order of the keys."""
    first, number = np.zeros(1, np.int64), np.zeros(keys[0].size, np.int64)
    for key in keys:
        codes, code = np.unique(key, return_inverse=True)
        _, first, number = np.unique(number * codes.size + code, return_index=True, return_inverse=True)
    return first.astype(np.int64), number.astype(np.int64)


def _is_inside(frame: Frame, every: LaunchWork, fits: Any, kinds: tuple[Category, ...]) -> Bools:
    """Return which launches were made within a slice of some categories whose name fits."""
    rows = frame.rows_by_name(fits, *kinds)
    operator = frame.operator[every.rows].astype(np.int64)
    if not rows.size:
        return np.zeros(every.rows.size, np.bool_)
    return (operator >= 0) & (frame.nearest(rows)[np.maximum(operator, 0)] >= 0)


def _floors(every: LaunchWork, items: list[Item], number: Ints, model: Ints, models: list[str], ceilings: Mapping[str, Ceilings],
            dram: Floats) -> Floats:
    """Return the longer of FLOP at the peak and bytes at DRAM bandwidth of each launch, ns; NaN unknown."""
    keys = number * len(models) + model
    codes, place = np.unique(keys, return_inverse=True)
    peaks = []
    for code in codes.tolist():
        item, gpu = items[code // len(models)], models[code % len(models)]
        precision = precision_of(item.work, item.kernel) if item.work is not None and not item.is_part else ""
        rate = ceilings[gpu].rate(precision) if precision else None
        peaks.append(rate[0] if rate else np.nan)
    peak = np.array(peaks)[place.reshape(-1)]
    floors: Floats = 1e9 * np.fmax(every.flop / peak, every.bytes / dram)
    return floors


# Work that need not be, as kinds find it, and the table's row of a kind.

ROOF_SHARES = (0.9, 0.5)            # of its ceiling that a kernel in place of others reaches at best, at worst


@dataclass(frozen=True)
class Avoidable:
    """Launches that would go, or be others. Times are of the whole trace, ns."""

    positions: Sequence[int]
    stays_ns: tuple[float, float] = (0.0, 0.0)      # what takes their place, least and most
    what: str = ""                      # "keys and values of 8 heads are copied to 32 before attention"
    condition: str = ""                 # what the trace cannot say, "only the last token of each sequence is read"
    certain: bool = True                # shapes or names prove it; else it looks so
    host_shares: tuple[float, float] = (0.0, 1.0)   # of the host time of these launches that goes with them, least and most
    is_region: bool = False             # everything launched from the first to the last of them goes, waits for the GPU too
    rows: Sequence[int] = ()            # of the frame: copies that go with them, or alone
    numbers: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Kind:
    """One way to do more than is needed."""

    name: str
    title: str                          # a label: "logits that nobody reads"
    change: str                         # one line of code
    not_worth: str                      # when it is not
    source: str
    find: Callable[[Facts], Iterable[Avoidable]]


def floor_ns(facts: Facts, position: int, flop: float, moved: float, precision: str) -> float | None:
    """Return the least time of other work on the same GPU, ns; None where a ceiling is not known."""
    peak, dram = facts.rate(position, precision), facts.dram_bytes_s[position]
    if np.isnan(dram) or (flop and peak is None):
        return None
    return 1e9 * max(flop / peak if peak else 0.0, moved / float(dram))


def between(floor: float | None, total: float) -> tuple[float, float]:
    """Return what work of a least time takes, at best and at worst (ROOF_SHARES), `total` at most; unknown: from nothing to all."""
    if floor is None:
        return 0.0, total
    best, worst = ROOF_SHARES
    return min(total, floor / best), min(total, floor / worst)


def sizes_of(item: Item) -> tuple[int, ...]:
    """Return a product's batch, m, n, k, an attention's batch, heads, KV heads, queries, keys, head size; () unknown."""
    return item.work.sizes if item.work is not None else ()


def is_plain_product(item: Item) -> bool:
    """Return whether a launch is a product of known batch, m, n and k."""
    return item.role == "product" and len(sizes_of(item)) == 4


def element_bytes(item: Item) -> int:
    """Return the bytes of an element of its first tensor whose type is known; 2 where none is."""
    return next((tensor.size for tensor in item.tensors if tensor.size), 2) or 2


def times(shape: Sequence[int]) -> str:
    return dims_text(shape)
