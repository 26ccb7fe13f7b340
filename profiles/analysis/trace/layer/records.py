"""Work as rows: by kernel and shape, as other analyses ask for it, and by part of a layer.

The same part with the same sizes is one row, whatever its layer and step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiles.analysis.core.frame import Frame
from profiles.analysis.trace.layer.calls import Calls, Token
from profiles.analysis.trace.layer.ceilings import Ceilings, Judged, judge
from profiles.analysis.trace.layer.launches import Floats, LaunchWork, gpu_of_rows, precision_of
from profiles.analysis.trace.layer.parts import ORDER, Parts
from profiles.analysis.trace.operators.tree import readable
from profiles.ingest.arrays import Ints, stable_order

_NAMES = {"product": "linear", "convolution": "convolution", "attention": "attention", "norm": "norm"}


@dataclass
class Row:
    """One part with one size. Amounts are sums of all its calls; None is unknown."""

    part: str
    is_named: bool                  # told by structure, sizes or name; else called by its operator and sizes
    operator: str
    sizes: str
    dtype: str
    kind: str
    precision: str
    gpu: str
    calls: int = 0
    launches: int = 0
    total_ns: int = 0
    flop: float | None = 0.0
    bytes: float | None = 0.0
    longest: int = 0                # slice id
    longest_ns: int = -1
    note: str = ""
    kernel: str = ""                # the one with most time
    is_sized: bool = True           # its operators' sizes are recorded
    dimensions: tuple[int, ...] = ()    # of one call, as `Work.sizes`

    def judged(self, ceilings: Ceilings) -> Judged:
        return judge(self.flop, self.bytes, self.total_ns, self.calls, self.precision, ceilings)


def rows_of(frame: Frame, every: LaunchWork, calls: Calls, parts: Parts) -> list[Row]:
    """Return the rows in the order of a layer, what has no place in it behind, most time first.

    Time is of all kernels of a call, those that only help it too. A part of several elementwise operators (an RMS norm, a rotary
    embedding written in PyTorch) is one row: its bytes are those of its operators together, a fused kernel would move less.
    """
    gpu, models = gpu_of_rows(frame, every.rows[calls.gpu_row]) if calls.token.size else (np.zeros(0, np.int64), [""])
    moved = _bytes(every, calls)
    rows: dict[tuple[str, ...], Row] = {}
    pairs, index = np.unique(np.stack([calls.token, parts.part, gpu]), axis=1, return_inverse=True)
    index = index.reshape(-1)
    count = np.bincount(index)
    ns, launches = np.bincount(index, calls.ns), np.bincount(index, calls.launches)
    every_bytes = np.bincount(index, moved)
    order = np.lexsort((calls.ns, index))
    last = np.zeros(count.size, np.int64)
    last[index[order]] = order
    for group in stable_order(-ns).tolist():
        code, number, model = (int(cell) for cell in pairs[:, group])
        token, name = calls.tokens[code], parts.names[number]
        made = _row(token, name, calls.precision[code], models[model])
        row = rows.setdefault((made.part, made.operator, made.sizes, made.dtype, made.gpu, str(made.is_sized)), made)
        work, many = token.work, int(count[group])
        row.calls += many
        row.launches += int(launches[group])
        row.total_ns += int(ns[group])
        row.flop = None if row.flop is None or work is None or work.flop is None else row.flop + many * float(work.flop)
        row.bytes = None if row.bytes is None or np.isnan(every_bytes[group]) else row.bytes + float(every_bytes[group])
        if calls.ns[last[group]] > row.longest_ns:
            row.longest_ns, row.longest = int(calls.ns[last[group]]), int(frame["id"][calls.longest[last[group]]])
    place = {name: position for position, name in enumerate(ORDER)}

    def rank(row: Row) -> tuple[int, int, int]:
        base = row.part.removesuffix(", backward")
        return (0 if row.is_named and base in place else 1, place.get(base, 0) + len(place) * (base != row.part), -row.total_ns)
    return sorted(rows.values(), key=rank)


def _bytes(every: LaunchWork, calls: Calls) -> Floats:
    """Bytes of each call: of its work, or where lists have no type in the file, what their kernels' names say."""
    by_work = np.array([np.nan if entry.bytes is None else float(entry.bytes) for entry in every.works] + [np.nan])
    work = every.work[calls.gpu_row]
    share = every.bytes[calls.gpu_row]
    return np.where(np.isnan(by_work[work]), np.where(calls.launches == 1, share, np.nan), by_work[work])


def _row(token: Token, part: str, precision: str, gpu: str) -> Row:
    work = token.work
    sizes, dtype = (work.text, work.dtype) if work else ("", "")
    operator = readable(token.operator).removeprefix("aten::")[:120]
    if not part:
        named = _NAMES.get(token.kind, "")
        suffix = ", backward" if token.is_backward else ""
        label = f"{named or operator} {sizes}".strip() + suffix if operator or named else ""
        return Row(label or token.kernel[:200], False, operator, sizes, dtype, token.kind, precision, gpu, kernel=token.kernel,
                   note=work.note if work else "", is_sized=work is not None, dimensions=work.sizes if work else ())
    if token.is_backward and not part.endswith("backward"):
        part += ", backward"
    if token.kind not in ("product", "attention") and operator in _ELEMENTS:        # one row, whatever each of them reads
        operator = sizes = dtype = ""
    return Row(part, True, operator, sizes, dtype, token.kind, precision, gpu, kernel=token.kernel,
               note=work.note if work else "", is_sized=work is not None, dimensions=work.sizes if work else ())


# Operators of which norms, rotary embeddings and activations are written where no fused kernel is called.
_ELEMENTS = frozenset(("mul", "add", "sub", "pow", "mean", "rsqrt", "neg", "cat", "copy_", "silu", "gelu", "cos", "sin", "bmm",
                       "div", "sum", "mul_", "add_", "div_"))


SHAPES, TYPED = "from shapes", "typed"
MOST_RECORDS = 4_000


@dataclass(frozen=True)
class KernelWork:
    """All launches of one kernel with one operator's shapes on one model of GPU.

    `flop`, `bytes` are of all launches together; None is unknown. `part_of`: it helps the operator, whose work another kernel does.
    """

    kernel: str                         # full name
    operator: str
    dims: str                           # shapes as the operator was given them: "2048×4096, 4096×12288"
    text: str                           # the same as sizes of the problem: "2048 × 12288 × 4096"
    kind: str                           # of work.KINDS, "" unknown
    dtype: str
    precision: str                      # of gpus.PRECISIONS, whose ceiling holds; "" unknown
    gpu: str
    launches: int
    total_ns: int
    min_ns: int
    max_ns: int
    flop: int | None
    bytes: int | None
    basis: str                          # "from shapes" | "typed" | "" (no shapes)
    part_of: bool
    note: str
    longest: int                        # slice id

    def judged(self, ceilings: Ceilings) -> Judged:
        return judge(self.flop, self.bytes, self.total_ns, self.launches, self.precision, ceilings)

    def floor_ns(self, ceilings: Ceilings) -> float | None:
        """Return the least time of all launches together: the longer of FLOP at the peak and bytes at DRAM bandwidth."""
        return self.judged(ceilings).floor_ns


def records_of(frame: Frame, every: LaunchWork) -> list[KernelWork]:
    """Return the work of every compute kernel by kernel and shape, most time first; without shapes `flop` and `bytes` are None.

    The records hold every launch of every compute kernel exactly once (up to MOST_RECORDS of them).
    """
    if not every.rows.size:
        return []
    names = frame["name"][every.rows].astype(np.int64)
    has_call = every.call >= 0
    operator = np.where(has_call, frame["name"][np.maximum(every.call, 0)], -1).astype(np.int64)
    detail = np.where(has_call, frame["detail"][np.maximum(every.call, 0)], -1).astype(np.int64)
    gpu, models = gpu_of_rows(frame, every.rows)
    index = _numbers(names, operator, detail, every.work, every.is_part.astype(np.int64), gpu)
    total = np.bincount(index, every.ns)
    order = np.lexsort((every.ns, index))
    starts = np.flatnonzero(np.diff(index[order], prepend=-1))
    ends = np.append(starts[1:], order.size)
    flop, moved = np.bincount(index, every.flop), np.bincount(index, every.bytes)
    out = []
    for group in stable_order(-total)[:MOST_RECORDS].tolist():
        longest, shortest = int(order[ends[group] - 1]), int(order[starts[group]])
        number, row = int(every.work[longest]), int(every.call[longest])
        work = every.works[number] if number >= 0 else None
        kernel = frame.names[int(names[longest])]
        part = bool(every.is_part[longest])
        is_known = work is not None and not part
        out.append(KernelWork(
            kernel, frame.text(row) if row >= 0 else "", dims_text(frame, row), work.text if work else "",
            work.kind if work else "", work.dtype if work else "",
            precision_of(work, kernel) if work and is_known else "", models[int(gpu[longest])],
            int(ends[group] - starts[group]), int(total[group]), int(every.ns[shortest]), int(every.ns[longest]),
            _whole(flop[group]) if is_known else None, _whole(moved[group]) if is_known else None,
            "" if work is None else TYPED if every.is_typed[longest] else SHAPES, part, work.note if work else "",
            int(frame["id"][every.rows[longest]])))
    return out


def _numbers(*keys: Ints) -> Ints:
    """Number each row's combination of keys from 0."""
    index = np.zeros(keys[0].size, np.int64)
    for key in keys:
        _, dense = np.unique(key, return_inverse=True)
        _, index = np.unique(index * (int(dense.max(initial=0)) + 1) + dense.reshape(-1), return_inverse=True)
        index = index.reshape(-1)
    return index


def _whole(value: float) -> int | None:
    return None if np.isnan(value) else round(float(value))


def dims_text(frame: Frame, row: int, most: int = 200) -> str:
    """Return the shapes of a call's tensors: "2048×4096, 4096×12288"; of a list how many."""
    dims = frame.arguments(row).get("Input Dims") if row >= 0 else None
    if not isinstance(dims, list):
        return ""
    shown = [f"{len(shape)} tensors" if isinstance(shape[0], list) else "×".join(map(str, shape))
             for shape in dims[:64] if isinstance(shape, list) and shape]
    return ", ".join(shown)[:most]
