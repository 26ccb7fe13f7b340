"""A verdict for each part of a layer: how near it is to its ceiling, and what about its dimensions keeps it from it.

Dimensions: tensor cores take 16 bytes of a row at once, so M, N and K of a product should be multiples of 8 in 16 bits, of 16 in 8
bits, of 4 in 32 (NVIDIA, "Matrix Multiplication Background User's Guide", Tensor Core Requirements). A product of 128³ and less is
one tile: it keeps one SM busy (ibid., Tile Quantization: tiles of 256×128 and 128×128). With few rows a product reads all of its
weights for each of them, so it is bound by memory (ibid., "Math And Memory Bounds").
"""

from __future__ import annotations

from collections.abc import Sequence

from profiles.analysis.core.sentences import pct_text, time_text
from profiles.analysis.trace.layer.ceilings import Judged
from profiles.analysis.trace.layer.folded import Row
from profiles.analysis.trace.layer.ranges import GATE_UP, KV, SEPARATE
from profiles.analysis.trace.operators.matmuls import BYTES
from profiles.ingest.naming.bands import BANDS

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
    return "; ".join(each for each in said if each)


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
