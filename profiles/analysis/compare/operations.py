"""Two sets of launches by what they compute: each operation on both sides, its work beside its time.

An operation that both sides have did more or less work, or the same work slower or faster; one that a single side has is gone or
new, or another of its kind took its place, or its passes over memory moved into kernels that a compiler fused. Work is FLOP of what
multiplies matrices and bytes (each operand and result of each launch once) of all else. Kinds add up to the kernels' time of both
sides, operations to their kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profiles.analysis.core.sentences import share_pct, si_text
from profiles.ingest.arrays import Floats, Ints, stable_order

KINDS = {
    "products": "Matrix products", "attention": "Attention", "convolutions": "Convolutions", "norms": "Norms",
    "softmax": "Softmax and loss", "rotary": "Rotary embedding", "activations": "Activations", "caches": "KV cache",
    "embeddings": "Embeddings",
    "pooling": "Pooling", "dropout": "Dropout", "masks": "Masks", "weights": "Weights made anew", "layouts": "Layouts converted",
    "pointwise": "Pointwise", "copies": "Copies and casts", "concatenations": "Concatenations", "fills": "Fills",
    "indexing": "Indexing and sorting", "reductions": "Reductions", "fused": "Fused by a compiler", "optimizer": "Optimizer",
    "communication": "Communication", "other": "Other kernels", "unknown": "Not told apart"}
BY_FLOP = ("products", "attention", "convolutions")     # the work of all else is the bytes that it moves
# Kinds of which one operation can stand for others: the same need met by another operator.
REPLACED = ("products", "convolutions", "attention", "norms", "optimizer", "communication", "caches")
# Passes over memory that a compiler puts into kernels of its own.
PASSES = ("norms", "softmax", "rotary", "activations", "embeddings", "dropout", "masks", "pointwise", "copies", "concatenations",
          "fills", "indexing", "reductions", "caches", "weights")
VERDICTS = {
    "more_work": "more work", "less_work": "less work", "slower": "same work, slower", "faster": "same work, faster",
    "unchanged": "unchanged", "unknown_slower": "slower, work unknown", "unknown_faster": "faster, work unknown",
    "more_launches": "more launches, work unknown", "fewer_launches": "fewer launches, work unknown", "gone": "gone", "new": "new",
    "replaced": "replaced", "moved": "moved into fused kernels", "unmoved": "moved out of fused kernels"}
SAME_WORK = 1.10            # work a step that differs by less is the same
KNOWN_SHARE = 0.9           # of an operation's time, of launches with known work: with less its work is not known
# How much identical code varies between processes, a change of the sum below it is none (`kernels.PROCESS_CV_PCT`, two sides).
NOISE_PCT = ((20_000.0, 7.4), (float("inf"), 2.6))      # mean launch below, ns -> %
MOST_NAMES = 3              # kernels and modules that a row names


@dataclass(frozen=True)
class Operation:
    """What a launch computes. Two sides' operations are the same where kind, phase and key are."""

    kind: str               # of KINDS
    phase: str              # "" | "backward"
    key: str
    title: str              # as people read it; may name a part of a layer that one side alone can tell
    module: str = ""        # class of the nn.Module around it, "" unknown

    @property
    def text(self) -> str:
        """Return what both sides match by."""
        return "\x1f".join((self.kind, self.phase, self.key))


UNKNOWN = Operation("unknown", "", "", "not told apart")


@dataclass(frozen=True)
class Work:
    """One operation on one side, a unit (all, a run or a step). FLOP and bytes are None where they are not known."""

    launches: float = 0.0
    ns: float = 0.0
    flop: float | None = None
    bytes: float | None = None
    kernels: tuple[str, ...] = ()           # full names, most time first


@dataclass(frozen=True)
class OperationRow:
    """An operation, or with `parts` a kind of them, on both sides."""

    kind: str               # of KINDS
    phase: str              # "" | "backward"; of a kind ""
    what: str
    modules: tuple[str, ...]
    old: Work
    new: Work
    verdict: str            # of VERDICTS
    says: str               # what is known of the work: "FLOP −50 %, bytes −96 %"
    parts: tuple[OperationRow, ...] = field(default=())     # largest change first

    @property
    def delta_ns(self) -> float:
        return self.new.ns - self.old.ns

    @property
    def change_pct(self) -> float | None:
        return share_pct(self.delta_ns, self.old.ns)

    def as_json(self) -> dict[str, Any]:
        row = asdict(self)
        return {**row, "delta_ns": self.delta_ns, "change_pct": self.change_pct, "parts": [part.as_json() for part in self.parts]}


def compare_operations(old: pa.Table, new: pa.Table, operations: Iterable[Operation], *, old_units: float = 1,
                       new_units: float = 1) -> list[OperationRow]:
    """Return the kinds of operations of two LAUNCHES tables, largest change first, each with its operations.

    Both tables have the columns "operation" and "by_kernel" (`Operation.text`), "has_operator", "flop" and "bytes" beside those of
    LAUNCHES. `operations`: those of both sides, for titles and modules. Where one side alone does not say which operators launched
    its kernels (a replayed graph), both are matched by their kernels.
    """
    titles, modules = _titles(operations)
    column = "operation" if _says_operators(old) == _says_operators(new) else "by_kernel"
    sides = (_works(old, column, old_units), _works(new, column, new_units))
    rows: dict[str, list[OperationRow]] = {}
    for text in dict.fromkeys((*sides[0], *sides[1])):
        kind, phase, _ = text.split("\x1f", 2)
        a, b = (side.get(text, Work()) for side in sides)
        rows.setdefault(kind, []).append(_row(kind, phase, titles.get(text, text), modules.get(text, ()), a, b))
    fused = _sum_of(rows.get("fused", ()))
    kinds = []
    for kind, mine in rows.items():
        mine = _replaced(kind, mine) if kind in REPLACED else mine
        mine = [_moved(row, fused) for row in mine] if kind in PASSES else mine
        mine.sort(key=lambda row: (-abs(row.delta_ns), -row.new.ns))
        whole = _row(kind, "", KINDS[kind], (), *_sum_of(mine))
        kinds.append(replace(_moved(whole, fused) if kind in PASSES else whole, parts=tuple(mine)))
    return sorted(kinds, key=lambda row: (-abs(row.delta_ns), -row.new.ns))


def _titles(operations: Iterable[Operation]) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Titles and modules by text. Of several titles those that name a part of a layer, which a plain "product" does not."""
    titles: dict[str, dict[str, None]] = {}
    modules: dict[str, dict[str, None]] = {}
    for operation in operations:
        titles.setdefault(operation.text, {})[operation.title] = None
        if operation.module:
            modules.setdefault(operation.text, {})[operation.module] = None
    return ({text: _join_titles(list(names)) for text, names in titles.items()},
            {text: tuple(names)[:MOST_NAMES] for text, names in modules.items()})


def _join_titles(names: list[str]) -> str:
    """"Q projection, output projection 4096×2048"."""
    telling = [name for name in names if not name.startswith("product ")] or names
    sizes = {name.rpartition(" ")[2] for name in telling}
    if len(telling) > 1 and len(sizes) == 1:
        return f"{', '.join(name.rpartition(' ')[0] for name in telling[:MOST_NAMES])} {sizes.pop()}".strip()
    return ", ".join(telling[:MOST_NAMES])


def _says_operators(table: pa.Table) -> bool:
    ns = table["dur_ns"].to_numpy()
    return bool(ns[table["has_operator"].to_numpy()].sum() >= KNOWN_SHARE * ns.sum())


def _works(table: pa.Table, column: str, units: float) -> dict[str, Work]:
    """The work of each operation of one side, a unit."""
    if not len(table):
        return {}
    texts = pc.dictionary_encode(table[column].combine_chunks())
    codes = texts.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    names = texts.dictionary.to_pylist()
    ns = table["dur_ns"].to_numpy()
    count, total = np.bincount(codes, minlength=len(names)), np.bincount(codes, ns, len(names)).astype(np.float64)
    flop, moved = (_known_sums(table[name].to_numpy(), codes, ns, total) for name in ("flop", "bytes"))
    kernels = _kernels(table, codes, ns, len(names))
    return {name: Work(float(count[at]) / units, float(total[at]) / units, _per(flop[at], units), _per(moved[at], units),
                       kernels[at]) for at, name in enumerate(names)}


def _known_sums(amount: Floats, codes: Ints, ns: Floats, total: Floats) -> list[float | None]:
    is_counted = ~np.isnan(amount)
    sums = np.bincount(codes[is_counted], amount[is_counted], total.size)
    share = np.bincount(codes[is_counted], ns[is_counted], total.size) / np.maximum(total, 1.0)
    return [float(value) if part >= KNOWN_SHARE else None for value, part in zip(sums.tolist(), share.tolist(), strict=True)]


def _kernels(table: pa.Table, codes: Ints, ns: Floats, count: int) -> list[tuple[str, ...]]:
    """The kernels of most time of each operation."""
    names = pc.dictionary_encode(table["name"].combine_chunks())
    kernel = names.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    pairs, index = np.unique(codes * len(names.dictionary) + kernel, return_inverse=True)
    time = np.bincount(index.reshape(-1), ns)
    out: list[list[str]] = [[] for _ in range(count)]
    texts = names.dictionary.to_pylist()
    for row in stable_order(-time).tolist():
        operation, number = divmod(int(pairs[row]), len(texts))
        if len(out[operation]) < MOST_NAMES:
            out[operation].append(texts[number])
    return [tuple(kernel_names) for kernel_names in out]


def _per(value: float | None, units: float) -> float | None:
    return None if value is None else value / units


def _row(kind: str, phase: str, what: str, modules: tuple[str, ...], old: Work, new: Work) -> OperationRow:
    return OperationRow(kind, phase, what, modules, old, new, _verdict(kind, old, new), _say_work(old, new))


def _verdict(kind: str, old: Work, new: Work) -> str:
    """Return what became of an operation: first whether both sides have it, then its work, then its time for the same work."""
    if not old.launches or not new.launches:
        return "new" if new.launches else "gone"
    noise_pct = max(next(pct for below_ns, pct in NOISE_PCT if side.ns / side.launches < below_ns) for side in (old, new))
    change_pct = 100 * (new.ns / old.ns - 1) if old.ns else 0.0
    amounts = _amounts(kind, old, new)
    if amounts is None and max(old.launches, new.launches) > SAME_WORK * min(old.launches, new.launches):
        return "more_launches" if new.launches > old.launches else "fewer_launches"
    if amounts is None:
        return "unchanged" if abs(change_pct) <= noise_pct else "unknown_slower" if change_pct > 0 else "unknown_faster"
    if max(amounts) > SAME_WORK * min(amounts):
        return "more_work" if amounts[1] > amounts[0] else "less_work"
    return "unchanged" if abs(change_pct) <= noise_pct else "slower" if change_pct > 0 else "faster"


def _amounts(kind: str, old: Work, new: Work) -> tuple[float, float] | None:
    """The work of both sides in one unit: FLOP where the kind is bound by it, else bytes; None where one is not known."""
    pairs = [(old.flop, new.flop), (old.bytes, new.bytes)]
    for a, b in pairs if kind in BY_FLOP else pairs[::-1]:
        if a is not None and b is not None and a + b > 0:
            return a, b
    return None


def _say_work(old: Work, new: Work) -> str:
    phrases = []
    for name, unit, a, b in (("FLOP", "FLOP", old.flop, new.flop), ("bytes", "B", old.bytes, new.bytes)):
        if old.launches and new.launches:
            if a and b is not None:
                change = 100 * (b / a - 1)
                phrases.append(f"{name} {'the same' if abs(change) < 0.5 else f'{change:+.0f} %'.replace('-', '−')}")
        elif a or b:
            phrases.append(si_text(a or b or 0.0, unit))
    return ", ".join(phrases)


def _sum_of(rows: Iterable[OperationRow]) -> tuple[Work, Work]:
    rows = list(rows)
    return _add([row.old for row in rows]), _add([row.new for row in rows])


def _add(works: Sequence[Work]) -> Work:
    """The sum of several; an amount is known where it is of KNOWN_SHARE of the time."""
    total = sum(work.ns for work in works)

    def known(name: str) -> float | None:
        mine = [work for work in works if getattr(work, name) is not None]
        return sum(getattr(work, name) for work in mine) if total and sum(work.ns for work in mine) >= KNOWN_SHARE * total else None

    names = dict.fromkeys(name for work in sorted(works, key=lambda work: -work.ns) for name in work.kernels)
    return Work(sum(work.launches for work in works), total, known("flop"), known("bytes"), tuple(names)[:MOST_NAMES])


def _replaced(kind: str, rows: list[OperationRow]) -> list[OperationRow]:
    """The rows, those gone and those new of one phase as one where both are: others of the same kind took their place."""
    out = [row for row in rows if row.verdict not in ("gone", "new")]
    for phase in dict.fromkeys(row.phase for row in rows):
        gone, new = ([row for row in rows if row.verdict == verdict and row.phase == phase] for verdict in ("gone", "new"))
        if not gone or not new:
            out += gone + new
            continue
        old_work, new_work = _add([row.old for row in gone]), _add([row.new for row in new])
        what = f"{_list_names(gone)} → {_list_names(new)}"
        modules = tuple(dict.fromkeys(name for row in (*gone, *new) for name in row.modules))[:MOST_NAMES]
        same = _verdict(kind, old_work, new_work)
        verdict = "replaced" if same not in ("more_work", "less_work") else same
        out.append(OperationRow(kind, phase, what, modules, old_work, new_work, verdict, _say_work(old_work, new_work)))
    return out


def _list_names(rows: Sequence[OperationRow]) -> str:
    names = [row.what for row in sorted(rows, key=lambda row: -max(row.old.ns, row.new.ns))]
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _moved(row: OperationRow, fused: tuple[Work, Work]) -> OperationRow:
    """The row, its passes told as moved where they are fewer on the side that has more fused kernels."""
    before, after = fused
    if row.verdict in ("gone", "less_work", "fewer_launches") and after.launches > SAME_WORK * before.launches \
            and row.new.launches * SAME_WORK < row.old.launches:
        return replace(row, verdict="moved")
    if row.verdict in ("new", "more_work", "more_launches") and before.launches > SAME_WORK * after.launches \
            and row.old.launches * SAME_WORK < row.new.launches:
        return replace(row, verdict="unmoved")
    return row

