"""Two sets of kernel launches side by side: what changed, by how much, and whether more than noise.

`matching` says which kernel is which, `launch_matching` which launches of one kernel meet: one name may stand for several problems
and launch shapes. Each shape has a verdict of its own (`noise`); a kernel's is that of its worst shape, which it names.

The change of a kernel's time splits exactly in two: ``total_new - total_old = (n_new - n_old) * mean_old + n_new *
(mean_new - mean_old)``: more launches, and slower launches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profiles.analysis.compare.comparison import Comparison, KernelChange, Row, Side, name_shape, verdict_text
from profiles.analysis.compare.matching import NO_PROBLEM, Kernel, match, match_problems, problems_of, shape_codes, shapes_of
from profiles.ingest.arrays import Floats, Ints
from profiles.ingest.naming.names import short_names

# ---- how large a change of a kernel's time must be to be one ----
# The noise of identical code, within a process and between them.

# How much medians of identical code vary from process to process on an H200 with free clocks (coefficient of variation,
# the worst seen in 24 processes): kernels below `below_ns`, percent. One profile is one process, so no number of
# launches within it sees this part of the noise. Over all pairs of those processes (13 kernels) identical code is called
# changed in 2.0 % of the comparisons with 3 launches a side, in 0.8 % of those with 100.
PROCESS_CV_PCT = ((20_000.0, 2.6), (float("inf"), 0.9))
# One launch has no spread of its own: the widest that identical code showed within a process on the same GPU. A change
# beyond it is one, a smaller one cannot be told.
ONE_LAUNCH_CV_PCT = 6.0
SIGMAS = 2.0            # a change counts when it is beyond this many standard deviations of the noise


def noise_pct_of(old: Side, new: Side, a: Floats, b: Floats) -> float | None:
    """Return `SIGMAS` standard deviations of the relative change of the mean, if nothing had changed; `a`, `b`: durations, ns.

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


def verdict_of(change_pct: float | None, noise_pct: float | None, several: bool) -> str:
    """Return "slower", "faster", "unchanged" or "unknown"; `several`: both sides have more than one launch."""
    if change_pct is None or noise_pct is None:
        return "unknown"
    if abs(change_pct) <= noise_pct:
        return "unchanged" if several else "unknown"
    return "slower" if change_pct > 0 else "faster"


def work_change_pct_of(a: Floats, b: Floats) -> float | None:
    """Return the change of the mean work of a launch; None where that of one is not known, or there was none."""
    if not len(a) or not len(b) or np.isnan(a).any() or np.isnan(b).any() or not a.mean():
        return None
    return float(100 * (b.mean() / a.mean() - 1))


# ---- two sets of kernel launches side by side ----

OTHER_WORK_PCT = 10.0   # work of a launch that differs by more is another: it is neither slower nor faster
# Of a kernel's shapes the first of these is its verdict.
WORST = ("slower", "faster", "unknown", "other_work", "new", "gone", "unchanged")


def compare(old: pa.Table, new: pa.Table, *, old_units: float = 1, new_units: float = 1) -> Comparison:
    """Return the kernel-by-kernel comparison of two LAUNCHES tables.

    Totals are divided by `old_units` and `new_units` (steps or runs). Both tables may have a column "problem" (text, "" where
    unknown) beside those of LAUNCHES: then launches of one problem meet each other. With the columns "operation" (text) and "work"
    (of the launch's call, NaN unknown) kernels of other names meet only where they do the same operation, and a shape whose
    launches do another amount of work is neither slower nor faster.
    """
    rows: list[Row] = []
    kernels: list[list[Row]] = []
    old_shapes, new_shapes = shapes_of(old), shapes_of(new)
    problems = problems_of(old, new)
    for kernel, old_rows, new_rows, confidence, how in _kernels(old, new, old_shapes, new_shapes):
        a, b = old.take(pa.array(old_rows)), new.take(pa.array(new_rows))
        pairs = match_problems(problems.old[old_rows], problems.new[new_rows],
                               *shape_codes(old_shapes[old_rows], new_shapes[new_rows]))
        mine = []
        for number, (in_a, in_b, matched, problem) in enumerate(pairs, 1):
            label = f"{number} of {len(pairs)}" if len(pairs) > 1 else ""
            pairing = matched if confidence == "certain" or not confidence else f"{how}; launches by {matched}"
            mine.append(_row(kernel, label, a, in_a, b, in_b, pairing, confidence, old_units, new_units,
                             problems.texts[problem] if problem != NO_PROBLEM else ""))
        rows += mine
        kernels.append(mine)
    rows.sort(key=lambda row: -abs(row.delta_ns))
    places = {id(row): place for place, row in enumerate(rows)}
    changes = [_kernel_change(sorted(mine, key=lambda row: places[id(row)]), places) for mine in kernels]
    changes.sort(key=lambda kernel: kernel.rows[0])
    changes.sort(key=lambda kernel: -abs(kernel.delta_ns))
    return Comparison(rows, _sum(old) / old_units, _sum(new) / new_units, changes)


def _kernel_change(rows: Sequence[Row], places: Mapping[int, int]) -> KernelChange:
    """`rows` are those of one kernel, largest change first."""
    verdict = min((row.verdict for row in rows), key=WORST.index)
    old_ns, new_ns = sum(row.old_total_ns for row in rows), sum(row.new_total_ns for row in rows)
    old_launches, new_launches = (sum(side.launches for row in rows if (side := getattr(row, name))) for name in ("old", "new"))
    old_mean_ns, new_mean_ns = (sum(side.total_ns for row in rows if (side := getattr(row, name))) / count if count else None
                                for name, count in (("old", old_launches), ("new", new_launches)))
    change_pct = rows[0].change_pct
    if len(rows) > 1:
        change_pct = 100 * (new_mean_ns / old_mean_ns - 1) if old_mean_ns and new_mean_ns else None
    return KernelChange(rows[0].kernel, tuple(places[id(row)] for row in rows), verdict, _say_shapes(rows, verdict), old_ns, new_ns,
                        old_launches, new_launches, change_pct, old_mean_ns, new_mean_ns)


def _say_shapes(rows: Sequence[Row], verdict: str) -> str:
    """"1 of 3 shapes slower: 4096×4096, 4096×1024 +5.1 %"; the shape of most change among those of the verdict."""
    if len(rows) == 1:
        return ""
    mine = [row for row in rows if row.verdict == verdict]
    if verdict == "unchanged":
        return f"all {len(rows)} shapes unchanged"
    words = "cannot be told" if verdict == "unknown" else verdict_text(verdict)
    text = f"{len(mine)} of {len(rows)} shapes {words}"
    if verdict in ("slower", "faster"):
        worst = max(mine, key=lambda row: abs(row.change_pct or 0.0))
        text += f": {name_shape(worst)} {worst.change_pct:+.1f} %"
        if verdict == "slower" and (faster := sum(row.verdict == "faster" for row in rows)):
            text += f"; {faster} faster"
    return text


def _kernels(old: pa.Table, new: pa.Table, old_shapes: Ints, new_shapes: Ints) -> Iterator[tuple[str, Ints, Ints, str, str]]:
    """(short name, rows in old, rows in new, confidence that they are one kernel, what it rests on) of every kernel."""
    at_old, at_new = _rows_by_name(old), _rows_by_name(new)
    index_old, index_new = old["index"].to_numpy(), new["index"].to_numpy()
    size_old, size_new = _sizes(old_shapes), _sizes(new_shapes)
    done = _operations(old, new)
    pairs = match([Kernel(name, index_old[rows], int(np.median(size_old[rows])), done[0](rows)) for name, rows in at_old.items()],
                  [Kernel(name, index_new[rows], int(np.median(size_new[rows])), done[1](rows)) for name, rows in at_new.items()])
    none = np.empty(0, np.int64)
    labels = {**short_names(at_old), **short_names(at_new)}         # of a kernel of both, the new side's
    for pair in pairs:
        yield labels[pair.new], at_old[pair.old], at_new[pair.new], pair.confidence, pair.how
    matched_old, matched_new = {pair.old for pair in pairs}, {pair.new for pair in pairs}
    for name in (name for name in at_old if name not in matched_old):
        yield labels[name], at_old[name], none, "", ""
    for name in (name for name in at_new if name not in matched_new):
        yield labels[name], none, at_new[name], "", ""


def _operations(old: pa.Table, new: pa.Table) -> list[Callable[[Ints], frozenset[str]]]:
    """For each side what tells the operations of some of its launches; none unless both sides state them."""
    if not all("operation" in table.column_names and "has_operator" in table.column_names for table in (old, new)):
        return [lambda _: frozenset()] * 2
    return [_operations_of(table) for table in (old, new)]


def _operations_of(table: pa.Table) -> Callable[[Ints], frozenset[str]]:
    texts, has_operator = np.array(table["operation"].to_pylist(), object), table["has_operator"].to_numpy()

    def done(rows: Ints) -> frozenset[str]:
        return frozenset(texts[rows].tolist()) if has_operator[rows].all() else frozenset()
    return done


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
    noise_pct = noise_pct_of(old, new, _durations(a, in_a), _durations(b, in_b))
    verdict = verdict_of(change_pct, noise_pct, min(old.launches, new.launches) > 1)
    work_change_pct = _work_change_pct(old, new, a, in_a, b, in_b)
    if work_change_pct is not None and abs(work_change_pct) > OTHER_WORK_PCT:
        verdict = "other_work"
    return Row(kernel, label, problem, old, new, matched, confidence, old_ns, new_ns, delta_ns, from_launches_ns,
               delta_ns - from_launches_ns, change_pct, noise_pct, verdict, work_change_pct)


def _work_change_pct(old: Side, new: Side, a: pa.Table, in_a: Ints, b: pa.Table, in_b: Ints) -> float | None:
    """The change of a launch's mean work: as the columns "work" say it, of ATen's kernels where they do not by their threads.

    ATen launches as many threads as a tensor has elements for each to take (`at::native::launch_*_kernel`, CUDALoops.cuh): the same
    kernel with more of them works on more.
    """
    has_work = "work" in a.column_names and "work" in b.column_names
    works = [table["work"].to_numpy()[rows] if has_work else np.full(rows.size, np.nan) for table, rows in ((a, in_a), (b, in_b))]
    if any(np.isnan(work).any() for work in works) and old.name == new.name and "at::native" in old.name:
        threads = [_sizes(shapes_of(table.take(pa.array(rows)))) for table, rows in ((a, in_a), (b, in_b))]
        works = [np.where(counts > 0, counts, np.nan) for counts in threads]
    return work_change_pct_of(*works)


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
