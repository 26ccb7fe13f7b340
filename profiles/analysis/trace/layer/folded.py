"""The parts of a layer as rows: the same part with the same sizes is one row, whatever its layer and step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiles.analysis.core.frame import Frame
from profiles.analysis.trace.layer.calls import Calls, Token
from profiles.analysis.trace.layer.ceilings import Ceilings, Judged, judge
from profiles.analysis.trace.layer.launches import Floats, LaunchWork, gpu_of_rows
from profiles.analysis.trace.layer.parts import ORDER, Parts
from profiles.analysis.trace.operators.tree import readable
from profiles.ingest.arrays import stable_order

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
    for at in stable_order(-ns).tolist():
        code, number, model = (int(each) for each in pairs[:, at])
        token, name = calls.tokens[code], parts.names[number]
        made = _row(token, name, calls.precision[code], models[model])
        row = rows.setdefault((made.part, made.operator, made.sizes, made.dtype, made.gpu, str(made.is_sized)), made)
        work, many = token.work, int(count[at])
        row.calls += many
        row.launches += int(launches[at])
        row.total_ns += int(ns[at])
        row.flop = None if row.flop is None or work is None or work.flop is None else row.flop + many * float(work.flop)
        row.bytes = None if row.bytes is None or np.isnan(every_bytes[at]) else row.bytes + float(every_bytes[at])
        if calls.ns[last[at]] > row.longest_ns:
            row.longest_ns, row.longest = int(calls.ns[last[at]]), int(frame["id"][calls.longest[last[at]]])
    place = {name: at for at, name in enumerate(ORDER)}

    def rank(row: Row) -> tuple[int, int, int]:
        base = row.part.removesuffix(", backward")
        return (0 if row.is_named and base in place else 1, place.get(base, 0) + len(place) * (base != row.part), -row.total_ns)
    return sorted(rows.values(), key=rank)


def _bytes(every: LaunchWork, calls: Calls) -> Floats:
    """Bytes of each call: of its work, or where lists have no type in the file, what their kernels' names say."""
    by_work = np.array([np.nan if one.bytes is None else float(one.bytes) for one in every.works] + [np.nan])
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
