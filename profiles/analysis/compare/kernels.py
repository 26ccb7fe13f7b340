"""Two sets of kernel launches side by side: what changed, by how much, and whether more than noise.

`analysis.matching` says which kernel is which. One name may stand for several problems (a Triton `matmul` at two sizes), and
a new build may change the grid of each; the docstring of `match_shapes` says how launches find each other. Where both sides
say what problem a launch worked on (the framework operator around it and its input shapes: the column "problem"), launches of
one problem meet first: a persistent kernel has one grid for every problem. Each shape has a verdict of its own; a kernel's is
that of its worst shape, which it names.

The change of a kernel's time splits exactly in two: ``total_new - total_old = (n_new - n_old) * mean_old + n_new *
(mean_new - mean_old)``: more launches, and slower launches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from profiles.analysis.compare.launches import SHAPE
from profiles.analysis.compare.matching import Kernel, match
from profiles.analysis.core.names import short_names

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# How much medians of identical code vary from process to process on an H200 with free clocks (coefficient of variation,
# the worst seen in 24 processes): kernels below `below_ns`, percent. One profile is one process, so no number of
# launches within it sees this part of the noise. Over all pairs of those processes (13 kernels) identical code is called
# changed in 2.0 % of the comparisons with 3 launches a side, in 0.8 % of those with 100.
PROCESS_CV_PCT = ((20_000.0, 2.6), (float("inf"), 0.9))
# One launch has no spread of its own: the widest that identical code showed within a process on the same GPU. A change
# beyond it is one, a smaller one cannot be told.
ONE_LAUNCH_CV_PCT = 6.0
SIGMAS = 2.0            # a change counts when it is beyond this many standard deviations of the noise
MAX_SHAPES = 64         # a kernel with more launch shapes than this is compared as a whole
VERDICTS = ("slower", "faster", "unchanged", "unknown", "new", "gone")
WORST = ("slower", "faster", "unknown", "new", "gone", "unchanged")        # of a kernel's shapes the first of these is its verdict
_LEFT = -1              # a launch of which a problem is not known on both sides


@dataclass(frozen=True)
class Side:
    """The launches of one kernel (and shape) on one side. Durations in ns; sd_ns is None with one launch."""

    name: str
    launches: int
    total_ns: float
    mean_ns: float
    p50_ns: float
    min_ns: float
    max_ns: float
    sd_ns: float | None
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    registers_per_thread: int | None
    smem_bytes: int | None
    indexes: tuple[int, ...] = field(default=(), repr=False)      # positions of the launches in their profile


@dataclass(frozen=True)
class Row:
    """One kernel (and shape) on both sides. Totals are per run or per step when the comparison is."""

    kernel: str                 # short name
    shape: str                  # "1 of 2" where one kernel has several rows
    problem: str                # operator and input shapes, "aten::mm 4096×4096, 4096×1024"; "" where not known on both sides
    old: Side | None
    new: Side | None
    matched: str                # how the launches found each other
    confidence: str             # that both sides are the same kernel: "certain" | "high" | "medium" | "low" | "" = one side only
    old_total_ns: float
    new_total_ns: float
    delta_ns: float
    from_launches_ns: float     # delta_ns == from_launches_ns + from_duration_ns
    from_duration_ns: float
    change_pct: float | None    # of the mean duration
    noise_pct: float | None     # a change of the mean below this is noise
    verdict: str                # "slower" | "faster" | "unchanged" | "unknown" | "new" | "gone"

    def as_json(self) -> dict[str, Any]:
        row = asdict(self)
        for side in (row["old"], row["new"]):
            if side:
                del side["indexes"]
        return row


@dataclass(frozen=True)
class KernelChange:
    """One kernel with all of its shapes. Totals are sums of its rows; `verdict` is that of the shape that is worst off."""

    kernel: str                 # short name
    rows: tuple[int, ...]       # positions in Comparison.rows, largest change first
    verdict: str                # as Row's
    says: str                   # "1 of 3 shapes slower: 4096×4096, 4096×1024 +5.1 %"; "" where it has one shape
    old_total_ns: float
    new_total_ns: float
    old_launches: int
    new_launches: int
    change_pct: float | None    # of the mean duration over all shapes

    @property
    def delta_ns(self) -> float:
        return self.new_total_ns - self.old_total_ns

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "rows": list(self.rows), "delta_ns": self.delta_ns}


@dataclass(frozen=True)
class Comparison:
    rows: list[Row]             # one per kernel and shape, largest change first
    old_total_ns: float
    new_total_ns: float
    kernels: list[KernelChange] = field(default_factory=list)       # largest change first

    def kernel_verdicts(self) -> dict[str, int]:
        """Return how many kernels have each verdict, a kernel of several shapes once."""
        return {verdict: sum(kernel.verdict == verdict for kernel in self.kernels) for verdict in VERDICTS}

    @property
    def delta_ns(self) -> float:
        return self.new_total_ns - self.old_total_ns

    def verdicts(self) -> dict[str, int]:
        return {verdict: sum(row.verdict == verdict for row in self.rows) for verdict in VERDICTS}


def compare(old: pa.Table, new: pa.Table, *, old_units: float = 1, new_units: float = 1) -> Comparison:
    """Return the kernel-by-kernel comparison of two LAUNCHES tables.

    Totals are divided by `old_units` and `new_units` (steps or runs). Both tables may have a column "problem" (text, "" where
    unknown) beside those of LAUNCHES: then launches of one problem meet each other.
    """
    rows: list[Row] = []
    kernels: list[list[Row]] = []
    old_shapes, new_shapes = _shapes(old), _shapes(new)
    problems = _problems(old, new)
    for kernel, old_rows, new_rows, confidence, how in _kernels(old, new, old_shapes, new_shapes):
        a, b = old.take(pa.array(old_rows)), new.take(pa.array(new_rows))
        pairs = match_problems(problems.old[old_rows], problems.new[new_rows],
                               *_shape_codes(old_shapes[old_rows], new_shapes[new_rows]))
        mine = []
        for number, (in_a, in_b, matched, problem) in enumerate(pairs, 1):
            label = f"{number} of {len(pairs)}" if len(pairs) > 1 else ""
            told = matched if confidence == "certain" or not confidence else f"{how}; launches by {matched}"
            mine.append(_row(kernel, label, a, in_a, b, in_b, told, confidence, old_units, new_units,
                             problems.texts[problem] if problem != _LEFT else ""))
        rows += mine
        kernels.append(mine)
    rows.sort(key=lambda row: -abs(row.delta_ns))
    places = {id(row): at for at, row in enumerate(rows)}
    changes = [_kernel_change(sorted(mine, key=lambda row: places[id(row)]), places) for mine in kernels]
    changes.sort(key=lambda kernel: kernel.rows[0])
    changes.sort(key=lambda kernel: -abs(kernel.delta_ns))
    return Comparison(rows, _sum(old) / old_units, _sum(new) / new_units, changes)


@dataclass(frozen=True)
class _Problems:
    """The problem of every launch of both sides as numbers into `texts`; _LEFT where it is not known."""

    old: Ints
    new: Ints
    texts: list[str]


def _problems(old: pa.Table, new: pa.Table) -> _Problems:
    """Every launch is _LEFT unless both sides state problems."""
    if "problem" not in old.column_names or "problem" not in new.column_names:
        return _Problems(np.full(len(old), _LEFT), np.full(len(new), _LEFT), [])
    whole = pa.chunked_array([*old["problem"].cast(pa.string()).chunks, *new["problem"].cast(pa.string()).chunks], pa.string())
    coded = pc.dictionary_encode(whole).combine_chunks()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.chunk(0) if coded.num_chunks else pa.array([], pa.string()).dictionary_encode()
    texts = [text or "" for text in coded.dictionary.to_pylist()]
    known = np.array([bool(text) for text in texts] + [False])
    codes = pc.fill_null(coded.indices, len(texts)).to_numpy(zero_copy_only=False).astype(np.int64)
    codes = np.where(known[codes], codes, _LEFT)
    return _Problems(codes[:len(old)], codes[len(old):], texts)


def match_problems(old_problems: Ints, new_problems: Ints, old: Ints, new: Ints) -> list[tuple[Ints, Ints, str, int]]:
    """Pair the launches of one kernel: those of one problem with each other, by `match_shapes` within; all others as if no
    problem were known. The last of each is the problem's number, _LEFT where there is none.

    A kernel of more than MAX_SHAPES problems is paired by launch shapes alone.
    """
    both = [each for each in _in_order(old_problems) if each != _LEFT and (new_problems == each).any()]
    if len(both) > MAX_SHAPES or not both:
        return [(*pair, _LEFT) for pair in match_shapes(old, new)]
    out: list[tuple[Ints, Ints, str, int]] = []
    for each in both:
        out += [(*pair, each) for pair in _within(old, new, old_problems == each, new_problems == each)]
    rest_old, rest_new = ~np.isin(old_problems, both), ~np.isin(new_problems, both)
    if rest_old.any() or rest_new.any():
        out += [(*pair, _LEFT) for pair in _within(old, new, rest_old, rest_new)]
    words = "operator shapes"
    return [(a, b, how if problem == _LEFT else words if how == "name" else f"{words}; {how}", problem)
            for a, b, how, problem in out]


def _within(old: Ints, new: Ints, in_old: npt.NDArray[np.bool_], in_new: npt.NDArray[np.bool_]) -> list[tuple[Ints, Ints, str]]:
    """`match_shapes` of a part of the launches, as positions among all of them."""
    at_old, at_new = np.flatnonzero(in_old), np.flatnonzero(in_new)
    return [(at_old[a], at_new[b], how) for a, b, how in match_shapes(old[at_old], new[at_new])]


def _kernel_change(rows: Sequence[Row], places: Mapping[int, int]) -> KernelChange:
    """`rows` are those of one kernel, largest change first."""
    verdict = min((row.verdict for row in rows), key=WORST.index)
    old_ns, new_ns = sum(row.old_total_ns for row in rows), sum(row.new_total_ns for row in rows)
    old_launches, new_launches = (sum(side.launches for row in rows if (side := getattr(row, name))) for name in ("old", "new"))
    change_pct = rows[0].change_pct
    if len(rows) > 1:
        change_pct = None
        means = [sum(side.total_ns for row in rows if (side := getattr(row, name))) / count if count else 0.0
                 for name, count in (("old", old_launches), ("new", new_launches))]
        if all(means):
            change_pct = 100 * (means[1] / means[0] - 1)
    return KernelChange(rows[0].kernel, tuple(places[id(row)] for row in rows), verdict, _say_shapes(rows, verdict), old_ns, new_ns,
                        old_launches, new_launches, change_pct)


def _say_shapes(rows: Sequence[Row], verdict: str) -> str:
    """"1 of 3 shapes slower: 4096×4096, 4096×1024 +5.1 %"; the shape of most change among those of the verdict."""
    if len(rows) == 1:
        return ""
    mine = [row for row in rows if row.verdict == verdict]
    if verdict == "unchanged":
        return f"all {len(rows)} shapes unchanged"
    words = {"unknown": "cannot be told"}.get(verdict, verdict)
    text = f"{len(mine)} of {len(rows)} shapes {words}"
    if verdict in ("slower", "faster"):
        worst = max(mine, key=lambda row: abs(row.change_pct or 0.0))
        text += f": {name_shape(worst)} {worst.change_pct:+.1f} %"
        if verdict == "slower" and (faster := sum(row.verdict == "faster" for row in rows)):
            text += f"; {faster} faster"
    return text


def name_shape(row: Row) -> str:
    """Return what tells a row's shape from the others of its kernel: the problem's sizes, else its grid and block."""
    if row.problem:
        return row.problem.split(" ", 1)[-1]
    side = row.new or row.old
    if side is None or side.grid is None:
        return f"shape {row.shape}" if row.shape else ""
    grid, block = ("×".join(map(str, dims)) if dims else "" for dims in (side.grid, side.block))
    return f"grid {grid}" + (f", block {block}" if block else "")


def match_shapes(old: Ints, new: Ints) -> list[tuple[Ints, Ints, str]]:
    """Pair the launches of one kernel by the shape code of each, in launch order.

    Codes are common to both sides.

    1. One shape on each side: the same work, whatever the grid.
    2. The same shapes on both sides: by shape.
    3. As many launches on both sides, and the k-th always meets one partner shape (two old shapes may meet one new
       shape, as when a persistent kernel replaces a gridded one): by order.
    4. Else equal shapes first; what is left in order of first launch; where that does not come out even, as a whole.
    """
    every = np.arange
    shapes_old, shapes_new = set(old.tolist()), set(new.tolist())
    if not len(old) or not len(new):
        return [(every(len(old)), every(len(new)), "on one side only")]
    if max(len(shapes_old), len(shapes_new)) > MAX_SHAPES:
        return [(every(len(old)), every(len(new)), "name; too many launch shapes to tell apart")]
    if len(shapes_old) == len(shapes_new) == 1:
        return [(every(len(old)), every(len(new)), "name")]
    if shapes_old == shapes_new:
        return [_pair(old, new, shape, shape, "launch shape") for shape in _in_order(old)]
    if len(old) == len(new):
        joint = list(dict.fromkeys(zip(old.tolist(), new.tolist(), strict=True)))
        if len(joint) <= max(len(shapes_old), len(shapes_new)):
            return [(at := np.flatnonzero((old == a) & (new == b)), at, "launch order") for a, b in joint]
    return _pair_shapes(old, new, shapes_old & shapes_new)


def _pair_shapes(old: Ints, new: Ints, same: set[int]) -> list[tuple[Ints, Ints, str]]:
    pairs = [_pair(old, new, shape, shape, "launch shape") for shape in _in_order(old) if shape in same]
    left_old = [shape for shape in _in_order(old) if shape not in same]
    left_new = [shape for shape in _in_order(new) if shape not in same]
    if len(left_old) == len(left_new):
        return pairs + [_pair(old, new, a, b, "order of first launch") for a, b in zip(left_old, left_new, strict=True)]
    how = "name; launch shapes could not be told apart" if left_old and left_new else "on one side only"
    return [*pairs, (np.flatnonzero(np.isin(old, left_old)), np.flatnonzero(np.isin(new, left_new)), how)]


def _pair(old: Ints, new: Ints, shape_old: int, shape_new: int, how: str) -> tuple[Ints, Ints, str]:
    return np.flatnonzero(old == shape_old), np.flatnonzero(new == shape_new), how


def _in_order(codes: Ints) -> list[int]:
    return list(dict.fromkeys(codes.tolist()))


def _kernels(old: pa.Table, new: pa.Table, old_shapes: Ints, new_shapes: Ints) -> Iterator[tuple[str, Ints, Ints, str, str]]:
    """(short name, rows in old, rows in new, confidence that they are one kernel, what it rests on) of every kernel."""
    at_old, at_new = _rows_by_name(old), _rows_by_name(new)
    index_old, index_new = old["index"].to_numpy(), new["index"].to_numpy()
    size_old, size_new = _sizes(old_shapes), _sizes(new_shapes)
    pairs = match([Kernel(name, index_old[rows], int(np.median(size_old[rows]))) for name, rows in at_old.items()],
                  [Kernel(name, index_new[rows], int(np.median(size_new[rows]))) for name, rows in at_new.items()])
    none = np.empty(0, np.int64)
    labels = {**short_names(at_old), **short_names(at_new)}         # of a kernel of both, the new side's
    for pair in pairs:
        yield labels[pair.new], at_old[pair.old], at_new[pair.new], pair.confidence, pair.how
    matched_old, matched_new = {pair.old for pair in pairs}, {pair.new for pair in pairs}
    for name in (name for name in at_old if name not in matched_old):
        yield labels[name], at_old[name], none, "", ""
    for name in (name for name in at_new if name not in matched_new):
        yield labels[name], none, at_new[name], "", ""


def _shapes(table: pa.Table) -> Ints:
    """Grid, block and the rest of SHAPE of every launch, -1 where unknown: read once, however many kernels there are."""
    columns = [pc.fill_null(table[name], -1).to_numpy().astype(np.int64) for name in SHAPE]
    return np.stack(columns, axis=1) if len(table) else np.empty((0, len(SHAPE)), np.int64)


def _sizes(shapes: Ints) -> Floats:
    """Threads of every launch: grid × block; 0 where unknown."""
    sizes: Floats = np.prod(np.maximum(shapes[:, :6], 0).astype(np.float64), axis=1)
    return sizes


def _rows_by_name(table: pa.Table) -> dict[str, Ints]:
    if not len(table):
        return {}
    names = pc.dictionary_encode(table["name"]).combine_chunks()
    codes = names.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    index = table["index"].to_numpy()
    order = np.lexsort((index, codes))
    starts = np.flatnonzero(np.r_[True, np.diff(codes[order]) > 0])
    texts = names.dictionary.to_pylist()
    return {texts[codes[rows[0]]]: rows for rows in np.split(order, starts[1:])}


def _shape_codes(old: Ints, new: Ints) -> tuple[Ints, Ints]:
    """The shape of every launch of one kernel as a number common to both sides."""
    both = np.concatenate([old, new])
    if len(both) and (both == both[0]).all():           # most kernels have one shape: nothing to sort
        return np.zeros(len(old), np.int64), np.zeros(len(new), np.int64)
    _, codes = np.unique(both, axis=0, return_inverse=True)
    flat = codes.reshape(-1).astype(np.int64)
    return flat[:len(old)], flat[len(old):]


def _row(kernel: str, label: str, a: pa.Table, in_a: Ints, b: pa.Table, in_b: Ints, matched: str, confidence: str,
         old_units: float, new_units: float, problem: str = "") -> Row:
    old, new = _side(a, in_a), _side(b, in_b)
    old_ns, new_ns = (old.total_ns if old else 0.0) / old_units, (new.total_ns if new else 0.0) / new_units
    delta_ns = new_ns - old_ns
    if old is None or new is None:
        return Row(kernel, label, problem, old, new, matched, "", old_ns, new_ns, delta_ns, delta_ns, 0.0, None, None,
                   "new" if old is None else "gone")
    from_launches_ns = (new.launches / new_units - old.launches / old_units) * old.mean_ns
    change_pct = 100 * (new.mean_ns / old.mean_ns - 1) if old.mean_ns else None
    noise_pct = _noise_pct(old, new, _durations(a, in_a), _durations(b, in_b))
    return Row(kernel, label, problem, old, new, matched, confidence, old_ns, new_ns, delta_ns, from_launches_ns,
               delta_ns - from_launches_ns, change_pct, noise_pct,
               _verdict(change_pct, noise_pct, min(old.launches, new.launches) > 1))


def _side(table: pa.Table, rows: Ints) -> Side | None:
    if not len(rows):
        return None
    first, last = table.slice(int(rows[0]), 1).to_pylist()[0], _durations(table, rows)
    return Side(
        name=first["name"], launches=len(rows), total_ns=float(last.sum()), mean_ns=float(last.mean()),
        p50_ns=float(np.median(last)), min_ns=float(last.min()), max_ns=float(last.max()),
        sd_ns=float(last.std(ddof=1)) if len(last) > 1 else None,
        grid=_three(first, "grid"), block=_three(first, "block"),
        registers_per_thread=first["registers_per_thread"], smem_bytes=first["smem_bytes"],
        indexes=tuple(table["index"].to_numpy()[rows].tolist()),
    )


def _three(launch: dict[str, Any], name: str) -> tuple[int, int, int] | None:
    x, y, z = (launch[f"{name}_{axis}"] for axis in "xyz")
    return None if x is None or y is None or z is None else (x, y, z)


def _durations(table: pa.Table, rows: Ints) -> Floats:
    durations: Floats = table["dur_ns"].to_numpy()[rows]
    return durations


def _sum(table: pa.Table) -> float:
    return float(pc.sum(table["dur_ns"]).as_py() or 0.0)


def _noise_pct(old: Side, new: Side, a: Floats, b: Floats) -> float | None:
    """`SIGMAS` standard deviations of the relative change of the mean, if nothing had changed.

    The part between processes (PROCESS_CV_PCT, once per side) and the part within: where both sides have as many
    launches the k-th are paired, so that launches of different problems do not count as noise.
    """
    if not old.mean_ns:
        return None
    if old.sd_ns is None or new.sd_ns is None:
        error_ns = old.mean_ns * 2**0.5 * ONE_LAUNCH_CV_PCT / 100
    elif len(a) == len(b):
        error_ns = float(np.std(b - a, ddof=1)) / len(a) ** 0.5
    else:
        error_ns = (old.sd_ns**2 / len(a) + new.sd_ns**2 / len(b)) ** 0.5
    process = next(pct for below_ns, pct in PROCESS_CV_PCT if old.mean_ns < below_ns) / 100
    return float(100 * SIGMAS * (2 * process**2 + (error_ns / old.mean_ns) ** 2) ** 0.5)


def _verdict(change_pct: float | None, noise_pct: float | None, several: bool) -> str:
    if change_pct is None or noise_pct is None:
        return "unknown"
    if abs(change_pct) <= noise_pct:
        return "unchanged" if several else "unknown"
    return "slower" if change_pct > 0 else "faster"


@dataclass(frozen=True)
class CounterChange:
    """One counter of a kernel on both sides: medians over its launches."""

    name: str
    unit: str
    old: float | None
    new: float | None


def counter_changes(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]],
                    wanted: Sequence[tuple[str, str, str]]) -> list[CounterChange]:
    """Return the medians of `wanted` over the launches of each side.

    `wanted` names "part.key" in the facts' JSON, the name for people and the unit.
    """
    changes = [CounterChange(name, unit, _median(old, path), _median(new, path)) for path, name, unit in wanted]
    return [change for change in changes if change.old is not None or change.new is not None]


def _median(facts: Sequence[Mapping[str, Any]], path: str) -> float | None:
    values = [value for each in facts if isinstance(value := _at(each, path), (int, float))]
    return float(np.median(values)) if values else None


def _at(facts: Mapping[str, Any], path: str) -> Any:
    value: Any = facts
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
