"""The topic "layer": what the parts of a transformer layer compute, move and take, and how near each kernel is to the ceiling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from profiles.analysis.core import gpus
from profiles.analysis.core.frame import Frame
from profiles.analysis.core.result import Result, cut_to_fit
from profiles.analysis.core.sentences import pct_text, si_text, time_text
from profiles.analysis.trace.layer.calls import GATE_UP, KV, SEPARATE, calls_of
from profiles.analysis.trace.layer.ceilings import Ceilings, Judged, ceilings_of
from profiles.analysis.trace.layer.collectives import CollectiveWork, collective_work
from profiles.analysis.trace.layer.launches import launch_work, typed_works
from profiles.analysis.trace.layer.parts import Parts, parts_of
from profiles.analysis.trace.layer.records import KernelWork, Row, records_of, rows_of
from profiles.analysis.trace.layer.spans import GAPS, Gaps, complete_parts, gaps_within, layer_spans, others_ns
from profiles.analysis.trace.operators.matmuls import BYTES
from profiles.ingest.naming.bands import BANDS
from profiles.ingest.trace import Cell, CellRows, SummaryTable, summary_columns

# The tables of the topic "layer".

# A verdict for each part of a layer: how near it is to its ceiling, and what about its dimensions keeps it from it.
#
# Dimensions: tensor cores take 16 bytes of a row at once, so M, N and K of a product should be multiples of 8 in 16 bits, of 16
# in 8 bits, of 4 in 32 (NVIDIA, "Matrix Multiplication Background User's Guide", Tensor Core Requirements). A product of 128³
# and less is one tile: it keeps one SM busy (ibid., Tile Quantization: tiles of 256×128 and 128×128). With few rows a product
# reads all of its weights for each of them, so it is bound by memory (ibid., "Math And Memory Bounds").

SMALL = 128                         # of each dimension: one tile
FEW_ROWS = 64                       # below, a product's weights weigh more than its rows on every GPU with tensor cores
LOW_PCT, GOOD_PCT, BEST_PCT = BANDS["sm"].limits
_SHORT_US, _ = BANDS["kernel_us"].limits
_IN_A_ROW = {GATE_UP: 2, KV: 2, SEPARATE: 3}       # products of one input that one product could be


def verdict_of(part: str, kind: str, sizes: Sequence[int], dtype: str, call_ns: float, calls_per_layer: float | None,
               judged: Judged) -> str:
    """Return what to think of a part, "" where nothing is known. `sizes`: of a product (batch, m, n, k); `call_ns`: of one call."""
    said = [_reach(judged), *dimension_faults(kind, sizes, dtype)]
    is_product = kind == "product" and len(sizes) == 4
    if is_product and judged.side == "memory" and 0 < sizes[1] <= FEW_ROWS < min(sizes[2:]):
        rows = f"{sizes[1]} row{'s' * (sizes[1] > 1)}"
        said.append(f"small batch: {rows} read {sizes[2]}×{sizes[3]} weights, so more rows cost little")
    count = _IN_A_ROW.get(part.removesuffix(", backward"))
    if count and calls_per_layer is not None and calls_per_layer >= count:
        wide = f" of n = {count * sizes[2]}" if len(sizes) == 4 else ""
        little = ", little to win so near the ceiling" if (judged.roof_pct or 0.0) >= BEST_PCT else ""
        said.append(f"{count} independent products of one input in a row: merge their weights into one product{wide}, or overlap "
                    f"them on two streams{little}")
    if call_ns < 1e3 * _SHORT_US:
        said.append(f"{time_text(call_ns)} a call: start and tail weigh below {_SHORT_US:g} µs, fuse it with its neighbours")
    return "; ".join(remark for remark in said if remark)


def _reach(judged: Judged) -> str:
    """How near the ceiling a part comes."""
    pct = judged.roof_pct
    if pct is None or judged.mark:
        return ""
    name = f"{pct_text(pct)} of its {judged.limit} ceiling"
    if pct >= BEST_PCT:
        return f"near its ceiling ({name})"
    if pct >= GOOD_PCT:
        return f"good ({name})"
    return f"{'moderate' if pct >= LOW_PCT else 'low'} ({name})"


def dimension_faults(kind: str, sizes: Sequence[int], dtype: str) -> list[str]:
    """Return what about the dimensions of a product keeps tensor cores from their rate, each named."""
    if kind != "product" or len(sizes) != 4:
        return []
    batch, m, n, k = sizes
    size = BYTES.get(dtype.split(" ")[0])
    faults = []
    step = 16 // size if size in (1, 2, 4) else 0
    odd = [f"{name} = {value}" for name, value in (("N", n), ("K", k)) if step and value % step]
    if odd and min(n, k) > 1:
        faults.append(f"{' and '.join(odd)} {'are' if len(odd) > 1 else 'is'} no multiple of {step}: pad for tensor cores")
    if max(m, n, k) <= SMALL and batch < 16:
        faults.append(f"{m}×{n}×{k} is at most one tile of {SMALL}³: it cannot fill the GPU, batch or fuse it")
    return faults


def gap_verdict(idle_pct: float, share_text: str) -> str:
    """Return what to think of the time without GPU work within a layer."""
    if idle_pct >= BANDS["idle"].limits[0]:
        return f"{BANDS['idle'].reading(idle_pct)} ({share_text}): the host is too slow, look at it before any kernel"
    if idle_pct >= 10.0:
        return f"{share_text} of a layer waits for the host: launch fewer kernels, CUDA graphs or torch.compile"
    return "little: the host keeps up"


def row_verdict(row: Row, passes: int, judged: Judged) -> str:
    """Return the verdict of a row of the layer's table."""
    return verdict_of(row.part, row.kind, row.dimensions, row.dtype, row.total_ns / max(row.calls, 1),
                      row.calls / passes if passes else None, judged)


ROWS = 300
_TEXT = 300


def passes_of(row: Row, layers: int, sized: int) -> int:
    """Return how many layers a part stands in: those whose attention has sizes, or those without, as its own are; 0: in none."""
    if not row.is_named or not layers:
        return 0
    if not sized:                       # one kind of layer: a single part may have sizes all the same, a person's
        return layers
    return sized if row.is_sized else (layers - sized or layers)


def row_json(row: Row, ceilings: Ceilings, passes: int) -> dict[str, Any]:
    """Return one part with its amounts per layer (None where it is of none) and how near it came to its ceiling."""
    parts = passes or 1
    return {"part": row.part[:_TEXT], "is_named": row.is_named, "operator": row.operator, "sizes": row.sizes, "dtype": row.dtype,
            "kind": row.kind, "precision": row.precision, "gpu": row.gpu, "calls": row.calls, "launches": row.launches,
            "total_ns": row.total_ns, "flop": row.flop, "bytes": row.bytes,
            "per_layer_ns": row.total_ns / parts if passes else None,
            "flop_per_layer": _over(row.flop, parts) if passes else None,
            "bytes_per_layer": _over(row.bytes, parts) if passes else None, "note": row.note,
            "kernel": row.kernel[:_TEXT], "longest": row.longest, "verdict": row_verdict(row, passes, row.judged(ceilings)),
            **asdict(row.judged(ceilings))}


def _over(amount: float | None, parts: int) -> float | None:
    return None if amount is None else amount / parts


@dataclass(frozen=True)
class Whole:
    """What a layer's shares are of. `gaps` None: where layers begin and end is not known, so they hold the named parts alone."""

    kernels_ns: int                 # of all kernels of the trace, collectives too
    gaps: Gaps | None = None
    others_ns: int = 0              # of calls within layers that are no named part


def layer_table(rows: Sequence[Row], ceilings: Mapping[str, Ceilings], parts: Parts, steps: int, trace: Whole) -> SummaryTable:
    """Return the parts of a layer in their order, the gaps in it, and behind them all other work by operator and sizes."""
    kernels_ns, gaps = trace.kernels_ns, trace.gaps
    layers, sized, gpus = parts.layers or parts.backward_layers, parts.sized_layers, max(parts.gpus, 1)
    whole = sum(row.total_ns for row in rows if row.is_named and (row.is_sized or not sized))
    whole += gaps.idle_ns + trace.others_ns if gaps else 0
    columns = summary_columns("Part: text | Sizes: text | Time per layer: ns | Least per layer: ns | Of the layer: pct | "
                              "Verdict: text | Of its ceiling: pct | Bound by: text | Type: text | FLOP per layer: FLOP | "
                              "Least bytes per layer: bytes | FLOP per byte: FLOP/B | Beyond it: text | Ceiling: text | "
                              "Rate: FLOP/s | Bandwidth: B/s | Operator: text | Calls per layer | Calls: count | Time: ns | "
                              "Of all kernels: pct | Kernel: kernel | Longest: slice")
    out: CellRows = []
    for row in rows[:ROWS]:
        judged = row.judged(ceilings[row.gpu])
        per = passes_of(row, layers, sized)
        of_layer = 100.0 * row.total_ns / max(whole, 1) if per and (row.is_sized or not sized) else None
        out.append([row.part[:_TEXT], _narrow(row.sizes), row.total_ns / per if per else None,
                    _over(judged.floor_ns, per) if per else None, of_layer,
                    row_verdict(row, per, judged) or None, judged.roof_pct, judged.side or None, row.dtype or None,
                    _over(row.flop, per) if per else row.flop, _over(row.bytes, per) if per else row.bytes, judged.intensity,
                    _beyond(judged.mark, judged.why), judged.ceiling or None, judged.flop_s, judged.bytes_s, row.operator or None,
                    _short(row.calls / per) if per else None, row.calls, row.total_ns, 100.0 * row.total_ns / max(kernels_ns, 1),
                    row.kernel[:1_500] or None, row.longest])
    if len(rows) > ROWS:
        rest = rows[ROWS:]
        spent = sum(row.total_ns for row in rest)
        names = [column.name for column in columns]
        blank: list[Cell] = [None] * len(columns)
        blank[0], blank[names.index("Time")] = f"(the other {len(rest):,})", spent
        blank[names.index("Calls")] = sum(row.calls for row in rest)
        blank[names.index("Of all kernels")] = 100.0 * spent / max(kernels_ns, 1)
        out.append(blank)
    if gaps and layers:
        behind = sum(row.is_named for row in rows[:ROWS])
        out.insert(behind, _gap_row([column.name for column in columns], gaps, whole))
    if not layers:
        return SummaryTable("Work by operator and sizes", columns, out, "No transformer layer was told in this trace. " + _NOTE)
    folded, per_gpu = f"{layers:,} layers passed", layers // gpus
    if steps > 1 and layers % (gpus * steps) == 0:
        folded = f"{per_gpu // steps:,} layer{'s' if per_gpu > steps else ''} in each of {steps:,} steps"
    on = f" on {gpus:,} GPUs" if gpus > 1 else ""
    return SummaryTable(f"Parts of a layer, × {layers:,}{on}", columns, out, (
        f"Per layer is the mean of {folded}{on} (passes of attention"
        + (f", {sized:,} of them with sizes" if 0 < sized < layers else "") + "); what has no part is called by its operator and "
        f"sizes, with its amounts in all. {_gaps_note(trace, layers)}{_NOTE}"))


def _gaps_note(trace: Whole, layers: int) -> str:
    if trace.gaps is None:
        return "Where a layer begins and ends is not known: its shares are of its named parts. "
    other = f", {time_text(trace.others_ns / layers)} of other kernels" if trace.others_ns else ""
    span = time_text(trace.gaps.span_ns / trace.gaps.passes)
    return (f"A layer, forward, takes {span} from its first kernel to its last; shares are of its parts{other} and its gaps "
            "together. ")


_NOTE = ("From shapes: products 2·M·N·K, attention 4·queries·keys·head size per head, half of it under a causal mask; bytes are "
         "the least, each input read once and each result written once. Least is at the ceiling; the "
         "topic Needed leaves out what need not be. Time holds every kernel of the operator, copies and "
         "reductions around it too.")


def _gap_row(names: Sequence[str], gaps: Gaps, whole_ns: int) -> list[Cell]:
    """Return the row of time without GPU work: no kernel's time, so none of all kernels'."""
    share = 100.0 * gaps.idle_ns / max(whole_ns, 1)
    cells: dict[str, Cell] = {
        "Part": GAPS, "Time per layer": gaps.idle_ns / gaps.passes, "Of the layer": share, "Calls": gaps.passes,
        "Time": gaps.idle_ns, "Verdict": gap_verdict(gaps.idle_pct, pct_text(gaps.idle_pct)), "Of all kernels": 0.0}
    return [cells.get(name) for name in names]


def kernel_table(records: Sequence[KernelWork], ceilings: Mapping[str, Ceilings]) -> SummaryTable:
    """Return one row per kernel and shape."""
    columns = summary_columns("Kernel: kernel | Operator: text | Sizes: text | Type: text | Launches: count | Time: ns | "
                              "FLOP: FLOP | Least bytes: bytes | FLOP per byte: FLOP/B | Bound by: text | "
                              "Of its ceiling: pct | Beyond it: text | Least time: ns | Ceiling: text | Rate: FLOP/s | "
                              "Bandwidth: B/s | Shapes: text | Basis: text | Remark: text | Longest: slice")
    rows: CellRows = []
    for record in records[:ROWS]:
        judged = record.judged(ceilings[record.gpu])
        basis = "part of the operator" if record.part_of else record.basis
        rows.append([record.kernel[:1_500], record.operator.removeprefix("aten::")[:_TEXT] or None, _narrow(record.text),
                     record.dtype or None, record.launches, record.total_ns, record.flop, record.bytes, judged.intensity,
                     judged.side or None, judged.roof_pct, _beyond(judged.mark, judged.why), judged.floor_ns,
                     judged.ceiling or None, judged.flop_s, judged.bytes_s, record.dims or None, basis or "no shapes",
                     record.note or None, record.longest])
    more = f" The first {ROWS} of {len(records):,} rows." if len(records) > ROWS else ""
    return SummaryTable("Kernels by shape", columns, rows, (
        "FLOP and bytes of all launches of a row. The least time is the longer of FLOP at the peak and bytes at DRAM bandwidth; a "
        "kernel that only helps its operator has none of its own." + more))


def collective_table(moved: Sequence[CollectiveWork]) -> SummaryTable:
    columns = summary_columns("Kernel: kernel | Operation: text | Ranks: count | Type: text | Launches: count | Time: ns | "
                              "Message: bytes | On the bus: bytes | Algorithm bandwidth: B/s | Bus bandwidth: B/s | "
                              "Longest: slice")
    rows: CellRows = [[each.kernel[:1_500], each.operation, each.ranks, each.dtype or None, each.launches, each.total_ns,
                               each.message_bytes, each.bus_bytes, each.algorithm_bytes_s, each.bus_bytes_s, each.longest]
                              for each in moved]
    return SummaryTable("Collectives by size", columns, rows, (
        "Bus bandwidth as nccl-tests defines it, over the whole time of the kernel: waiting for other ranks included. The topic "
        "Communication parts the two."))


def _beyond(mark: str, why: str) -> str | None:
    return f"{mark}: {why}" if mark else None


def _narrow(sizes: str) -> str | None:
    """"2048 × 12288 × 4096" -> "2048×12288×4096": columns are narrow."""
    return sizes.replace(" × ", "×") or None


def _short(value: float | None) -> float | None:
    """Three significant digits: a number without a unit shows as it is."""
    return None if value is None else float(f"{value:.3g}")


DOCUMENT_RECORDS = 1_000            # of work by kernel and shape that the document holds
STEP = "ProfilerStep#"


def layer_result(frame: Frame, given: Mapping[str, Any] | None = None) -> Result:
    """Return the parts of a layer and every kernel with its work from shapes.

    `given`: what the trace does not say: {"ceilings": {model: {"label", "rates"}}, "typed": {kernel: {"operator", "dims",
    "dtype"}}}.
    `numbers`: work (rows by kernel and shape), layer (rows of the parts), layers, gpus (their ceilings), known_pct, compute_ns,
    kernels_ns (collectives too: what shares of the kernel time are of, here as on every page).
    """
    every = launch_work(frame, typed_works((given or {}).get("typed", {})))
    records = records_of(frame, every)
    if not records:
        return Result("No compute kernel in this trace: there is no work to hold against a ceiling.", applies=False)
    total, kernels = int(every.ns.sum()), int(frame["dur_ns"][frame.kernels].sum())
    known_ns = sum(entry.total_ns for entry in records if entry.flop is not None or entry.bytes is not None or entry.part_of)
    calls = calls_of(frame, every)
    parts = parts_of(calls)
    complete_parts(calls, parts)
    rows = rows_of(frame, every, calls, parts)
    named = [row for row in rows if row.is_named]
    if not known_ns and not named:
        return Result(f"{time_text(total)} of kernels, and no operator's input shapes: record with torch.profiler and "
                      "record_shapes=True to see their FLOP, bytes and share of the ceiling.", applies=False)
    measured = {gpus.key(name): rates for name, rates in (given or {}).get("ceilings", {}).items()}
    ceilings = {name: ceilings_of(name, measured.get(gpus.key(name))) for name in sorted({record.gpu for record in records})}
    steps = _steps(frame)
    layers = parts.layers or parts.backward_layers
    spans = layer_spans(calls, parts) if parts.sized_layers in (0, parts.layers) else []
    gaps = gaps_within(frame, calls, spans if len(spans) == parts.layers else [])
    trace = Whole(kernels, gaps, others_ns(calls, parts, spans) if gaps else 0)
    tables = [layer_table(rows, ceilings, parts, steps, trace), kernel_table(records, ceilings)]
    moved = collective_work(frame)
    if moved:
        tables.append(collective_table(moved))
    numbers: dict[str, Any] = {
        "compute_ns": total, "kernels_ns": kernels, "known_pct": 100.0 * known_ns / max(total, 1), "layers": layers, "steps": steps,
        "sized_layers": parts.sized_layers, "gaps": asdict(gaps) | {"idle_pct": gaps.idle_pct} if gaps else None,
        "layer": [row_json(row, ceilings[row.gpu], passes_of(row, layers, parts.sized_layers)) for row in rows[:ROWS]],
        "work": [_record_json(record, ceilings[record.gpu]) for record in records[:DOCUMENT_RECORDS]],
        "collectives": [asdict(each) | {"bus_bytes_s": each.bus_bytes_s, "algorithm_bytes_s": each.algorithm_bytes_s}
                        for each in moved],
        "gpus": {name: _ceilings_json(ceiling) for name, ceiling in ceilings.items()}}
    return Result(_answer(named, records, ceilings, numbers), numbers, [cut_to_fit(table) for table in tables])


def _steps(frame: Frame) -> int:
    """Return how many steps the trace marks, each name once per mark; 0 where it marks none."""
    return sum(1 for name in frame.names if name.startswith(STEP))


def _record_json(record: KernelWork, ceilings: Ceilings) -> dict[str, Any]:
    return asdict(record) | {"kernel": record.kernel[:1_500]} | asdict(record.judged(ceilings))


def _ceilings_json(ceilings: Ceilings) -> dict[str, Any]:
    return {"sheet": dict(ceilings.sheet), "measured": dict(ceilings.measured), "label": ceilings.label,
            "l2_bytes": ceilings.l2_bytes}


def _answer(named: Sequence[Row], records: Sequence[KernelWork], ceilings: Mapping[str, Ceilings],
            numbers: Mapping[str, Any]) -> str:
    """One sentence or two: the layer, the parts that take most, and the kernel farthest from its ceiling."""
    judged = [(record, record.judged(ceilings[record.gpu])) for record in records if not record.part_of]
    rated = [(record, each) for record, each in judged if each.roof_pct is not None and not each.mark and each.floor_ns is not None]
    text = ""
    layers = numbers["layers"]
    if named and layers:
        sized = numbers["sized_layers"]
        of_these = [row for row in named if row.is_sized or not sized]
        spent = sum(row.total_ns for row in of_these)
        by_part: dict[str, int] = {}
        for row in of_these:
            by_part[row.part] = by_part.get(row.part, 0) + row.total_ns
        whole = max(numbers["kernels_ns"], 1)
        shares = ", ".join(f"{part} {pct_text(100 * ns / whole)}" for part, ns in
                           sorted(by_part.items(), key=lambda pair: -pair[1])[:3])
        text = (f"The parts of a layer take {time_text(spent / (sized or layers))} (mean of {sized or layers:,}), "
                f"{pct_text(100 * spent / whole)} of all kernel time: {shares}. ")
    if rated:
        flop = sum(record.flop or 0 for record in records)
        record, verdict = max(rated, key=lambda pair: pair[0].total_ns - (pair[1].floor_ns or 0.0))
        text += (f"Shapes are known of {pct_text(numbers['known_pct'])} of {time_text(numbers['compute_ns'])} of kernels, "
                 f"{si_text(flop, 'FLOP')} together; farthest above its least time is `{_plain(record)}`: "
                 f"{pct_text(verdict.roof_pct or 0)} of {verdict.ceiling.split(',')[0]}, "
                 f"{time_text(record.total_ns - (verdict.floor_ns or 0))} (from shapes).")
    else:
        text += (f"Shapes are known of {pct_text(numbers['known_pct'])} of {time_text(numbers['compute_ns'])} of kernels; "
                 + _why_unrated(judged, ceilings))
    return text


def _why_unrated(judged: Sequence[tuple[KernelWork, Judged]], ceilings: Mapping[str, Ceilings]) -> str:
    """Say why no kernel leads: ceilings that are not known, or shares that are none."""
    if not any(ceiling.sheet or ceiling.measured for ceiling in ceilings.values()):
        return "no ceilings are known of this GPU."
    if any(verdict.mark for _, verdict in judged):
        return "each share of a ceiling is above 100 % and marked."
    if not any(record.flop is not None or record.bytes is not None for record, _ in judged):
        return "no FLOP or bytes follow from them, so there is no share of a ceiling."
    return "the ceilings known of this GPU are not those of their types."


def _plain(record: KernelWork) -> str:
    return f"{record.operator.removeprefix('aten::') or record.kernel} {record.text}".replace("`", "'")[:160].strip()
