"""Roofline: work, bytes and roofs of a launch from its counters.

Sources: Williams, Waterman, Patterson, "Roofline" (CACM 2009); which metrics count what: Nsight Compute, "Roofline
Charts", and its SpeedOfLight_…RooflineChart sections. Formulas:

    FLOP, scalar   2·fma + add + mul thread instructions (half: packed pairs, so 4·fma + 2·add + 2·mul)
    FLOP, tensor   sm__ops_path_tensor_….sum (already operations; scalar counters do not see tensor work)
    bytes          dram__bytes_read.sum + dram__bytes_write.sum
    roofs          …peak_sustained per cycle × the clock measured in the same report

The compute roof of a mix of precisions is the rate at which one pipe would be full: total / max(work_p / peak_p).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from profiles.analysis import gpus

Metrics = Mapping[str, float | str]
DURATION = "gpu__time_duration.sum"
_SASS = "sass_thread_inst_executed_op_"
# precision -> letter of its instructions, operations per fma, per add or mul
SCALAR = {"fp64": ("d", 2, 1), "fp32": ("f", 2, 1), "fp16": ("h", 4, 2)}
_TENSOR = re.compile(
    r"^sm__ops_path_tensor_(?:op_([a-z]+)_)?src_([a-z0-9_]+?)(?:_dst_([a-z0-9]+))?(?:_sparsity_(on|off))?\.sum$"
)
# What a src_… part is counted as. One counter for several types is named by the rate they share.
_SRC = {"fp16_bf16_tf32": "fp16", "fp4_fp6_fp8": "fp8", "fp4_fp6": "fp6"}
# Operations of one warp instruction: 2·M·N·K of its shape (PTX ISA, "Matrix Shape"; SASS names M16 N8 K16 as 16816).
# A warp-group instruction (…GMMA) is counted once for each of its four warps.
OPCODES = "sass__inst_executed_per_opcode_with_modifier_all"
_OPCODE = re.compile(r"^" + OPCODES + r"\[([A-Z]+MMA)\.(?:SP\.)?([0-9x]+)\.?(.*)\]$")
_SHAPES = {"884": 8 * 8 * 4, "1684": 16 * 8 * 4, "1688": 16 * 8 * 8, "16816": 16 * 8 * 16, "16832": 16 * 8 * 32,
           "16864": 16 * 8 * 64, "8816": 8 * 8 * 16, "8832": 8 * 8 * 32}
TENSOR_PIPE = (
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor.sum",
    "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active",
)


@dataclass(frozen=True)
class Work:
    """Operations of one launch by precision. `unknown`: why a part of the work is not counted."""

    by_precision: dict[str, float]
    source: dict[str, str]                    # precision -> metric it rests on
    unknown: str | None = None
    note: str | None = None                   # what to know about the counts

    @property
    def total(self) -> float:
        return sum(self.by_precision.values())


@dataclass(frozen=True)
class Roofs:
    """Ceilings at the clocks of the measurement. Rates are dense operations per second, bytes per second."""

    dram_bytes_s: float | None
    l2_bytes_s: float | None
    compute: dict[str, float]                 # precision -> operations per second at sm_clock_hz
    per_cycle: dict[str, float]               # the same per SM clock cycle of the whole GPU
    sm_clock_hz: float | None
    source: dict[str, str]                    # "dram", "l2" or precision -> where the figure is from


@dataclass(frozen=True)
class Point:
    """Where a launch (or the sum of several) stands. Unknown is None; `reason` says why there is no dot."""

    duration_ns: float | None
    flop: float | None                        # all precisions
    by_precision: dict[str, float]
    precision: str | None                     # the one whose pipe would be full first
    dram_bytes: float | None
    intensity: float | None                   # FLOP per DRAM byte
    flop_s: float | None
    compute_roof: float | None                # FLOP/s of this mix of precisions
    dram_bytes_s: float | None                # achieved
    dram_roof: float | None                   # bytes/s
    ridge: float | None                       # intensity at which both roofs meet
    side: str | None                          # "memory" | "compute": which roof is lower at this intensity
    roof: float | None                        # FLOP/s attainable at this intensity
    roof_pct: float | None                    # of that roof reached, 0-100
    reason: str | None = None
    notes: tuple[str, ...] = field(default=())


def number(metrics: Metrics, *names: str) -> float | None:
    """The first of these metrics that holds a number."""
    for name in names:
        value = metrics.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    return None


def work(metrics: Metrics) -> Work:
    """Operations by precision; precisions without work are left out. Empty and `unknown` where nothing was counted."""
    found: dict[str, float] = {}
    source: dict[str, str] = {}
    counted = False
    for precision in SCALAR:
        flop = _scalar(metrics, precision)
        if flop is not None:
            counted = True
            if flop > 0:
                found[precision] = flop
                source[precision] = f"smsp__{_SASS}{SCALAR[precision][0]}{{fma,add,mul}}_pred_on"
    tensor = _tensor(metrics) or (tensor_opcodes(metrics) if OPCODES in metrics else None)
    for precision, (operations, name) in (tensor or {}).items():
        if operations > 0:
            found[precision], source[precision] = operations, name
    return Work(found, source, _unknown(metrics, counted, tensor is not None), _half_note(metrics, found))


def _unknown(metrics: Metrics, scalar_counted: bool, tensor_counted: bool) -> str | None:
    if not scalar_counted and not tensor_counted:
        return "no FLOP counters in the report: capture with --set roofline or --set full"
    if not tensor_counted and any((number(metrics, name) or 0) > 0 for name in TENSOR_PIPE):
        return "tensor cores were used, but this report does not count their operations (ncu 2025 or newer does)"
    return None


def _half_note(metrics: Metrics, found: dict[str, float]) -> str | None:
    """HFMA2.MMA is also how compilers set a register; where it is all the half-precision work, that is said."""
    opcodes = {name[len(OPCODES) + 1:-1] for name in metrics
               if name.startswith((f"{OPCODES}[HFMA", f"{OPCODES}[HADD", f"{OPCODES}[HMUL"))}
    if "fp16" in found and opcodes == {"HFMA2.MMA"}:
        return "all FP16 operations counted are HFMA2.MMA instructions, which compilers also use to set registers"
    return None


def _scalar(metrics: Metrics, precision: str) -> float | None:
    """Operations of one scalar pipe: exact `.sum` where collected, else per elapsed cycle × elapsed cycles."""
    letter, per_fma, per_other = SCALAR[precision]
    total, known = 0.0, False
    for operation, weight in (("fma", per_fma), ("add", per_other), ("mul", per_other)):
        base = f"smsp__{_SASS}{letter}{operation}_pred_on.sum"
        count = number(metrics, base)
        if count is None:
            rate = number(metrics, f"{base}.per_cycle_elapsed")
            cycles = cycles_elapsed(metrics)
            if rate is None or cycles is None:
                continue
            count = rate * cycles
        known = True
        total += weight * count
    return total if known else None


def cycles_elapsed(metrics: Metrics) -> float | None:
    """Elapsed SM cycles of the launch."""
    cycles = number(metrics, "smsp__cycles_elapsed.avg", "sm__cycles_elapsed.avg", "sm__cycles_elapsed.max")
    if cycles is not None:
        return cycles
    clock, duration = sm_clock(metrics), number(metrics, DURATION)
    return None if clock is None or duration is None else clock * duration * 1e-9


def sm_clock(metrics: Metrics) -> float | None:
    """Mean SM clock during the measurement, Hz."""
    return number(metrics, "smsp__cycles_elapsed.avg.per_second", "sm__cycles_elapsed.avg.per_second",
                  "gpc__cycles_elapsed.avg.per_second")


def _tensor(metrics: Metrics) -> dict[str, tuple[float, str]]:
    """precision -> (operations, metric). Aggregates repeat what the leaves count: one of the two is taken, never both.

    Leaves name the instruction (`op_hgmma_…`) or the sparsity; aggregates neither. The aggregate of a source type over
    all destinations comes first, then per destination its aggregate, then its leaves: by instruction, else by sparsity.
    """
    groups: dict[str, dict[str, dict[str, list[tuple[float, str]]]]] = {}
    for name in metrics:
        match = _TENSOR.match(name)
        value = number(metrics, name) if match else None
        if match is None or value is None:
            continue
        op, src, dst, sparsity = match.groups()
        level = "op" if op else "sparsity" if sparsity else "aggregate"
        groups.setdefault(src, {}).setdefault(dst or "", {}).setdefault(level, []).append((value, name))
    found: dict[str, tuple[float, str]] = {}
    for src, by_dst in groups.items():
        precision = f"{_SRC.get(src, src)}_tensor"
        operations, name = _tensor_source(by_dst)
        before = found.get(precision, (0.0, name))
        found[precision] = (before[0] + operations, before[1] if before[0] else name)
    return found


def _tensor_source(by_dst: dict[str, dict[str, list[tuple[float, str]]]]) -> tuple[float, str]:
    whole = by_dst.get("", {}).get("aggregate")
    if whole:
        return whole[0]
    total, names = 0.0, []
    for levels in by_dst.values():
        level = next(levels[kind] for kind in ("aggregate", "op", "sparsity") if kind in levels)
        total += sum(value for value, _ in level)
        names += [name for value, name in level if value] or [level[0][1]]
    return total, " + ".join(dict.fromkeys(names))


def tensor_opcodes(metrics: Metrics) -> dict[str, tuple[float, str]] | None:
    """The same from executed tensor instructions: exact, 2·M·N·K each. None where one of them is not understood."""
    found: dict[str, tuple[float, str]] = {}
    for name, count in metrics.items():
        opcode = name[len(OPCODES) + 1:]
        if not name.startswith(OPCODES + "[") or opcode.startswith(("HFMA", "HADD", "HMUL")):
            continue
        match = _OPCODE.match(name)
        operations = _instruction_operations(match[1], match[2]) if match else None
        if match is None or operations is None or not isinstance(count, (int, float)):
            return None
        precision = _opcode_precision(match[1], match[3])
        before = found.get(precision, (0.0, ""))[0]
        found[precision] = (before + operations * count, OPCODES)
    return found


def tensor_instructions(metrics: Metrics) -> dict[str, float]:
    """Operations by tensor instruction ("hgmma", "hmma", …), where the report tells them apart."""
    found: dict[str, float] = {}
    for name in metrics:
        match = _TENSOR.match(name)
        value = number(metrics, name) if match and match[1] else None
        if match and value:
            found[match[1]] = found.get(match[1], 0.0) + value
    return found


def _instruction_operations(opcode: str, shape: str) -> float | None:
    """Operations that one warp contributes by one tensor instruction of a shape ("16816", "64x128x16")."""
    sides = shape.split("x")
    if opcode.endswith("GMMA") and len(sides) == 3:
        return 2.0 * int(sides[0]) * int(sides[1]) * int(sides[2]) / 4
    return 2.0 * _SHAPES[shape] if shape in _SHAPES else None


def _opcode_precision(opcode: str, modifiers: str) -> str:
    kind = opcode[0]
    if kind == "H":
        return f"{next((k for k in ('BF16', 'TF32') if k in modifiers), 'FP16').lower()}_tensor"
    if kind == "I":
        return "int4_tensor" if "S4" in modifiers or "U4" in modifiers else "int8_tensor"
    return {"D": "fp64_tensor", "B": "int1_tensor"}.get(kind, "fp8_tensor")


def dram_bytes(metrics: Metrics) -> float | None:
    """Bytes read from and written to device memory."""
    read, write = number(metrics, "dram__bytes_read.sum"), number(metrics, "dram__bytes_write.sum")
    if read is not None and write is not None:
        return read + write
    total = number(metrics, "dram__bytes.sum")
    if total is not None:
        return total
    rate, duration = number(metrics, "dram__bytes.sum.per_second"), number(metrics, DURATION)
    return None if rate is None or duration is None else rate * duration * 1e-9


def roofs(
    metrics: Metrics, device: str = "", compute_capability: str | None = None, sm_count: int | None = None
) -> Roofs:
    """Ceilings: what the report states first, then `profiles.analysis.gpus`; a roof nobody states is absent."""
    model = gpus.lookup(device)
    clock = sm_clock(metrics)
    source: dict[str, str] = {}
    per_cycle = _stated_rates(metrics, source)
    for precision in gpus.PRECISIONS:
        rate = gpus.ops_per_sm_cycle(compute_capability, precision)
        if precision not in per_cycle and rate and sm_count:
            per_cycle[precision] = float(rate * sm_count)
            source[precision] = f"{rate} operations per SM and clock of compute capability {compute_capability}"
    compute = {precision: rate * clock for precision, rate in per_cycle.items()} if clock else {}
    for precision, peak in (model.peaks if model else {}).items():
        if precision not in compute:
            compute[precision] = peak
            source[precision] = f"data sheet at {model.boost_hz / 1e6:.0f} MHz: {model.source}" if model else ""
    return Roofs(_dram_roof(metrics, model, source), _l2_roof(metrics, source), compute, per_cycle, clock, source)


def _stated_rates(metrics: Metrics, source: dict[str, str]) -> dict[str, float]:
    """Dense operations per cycle of the whole GPU as `…peak_sustained` states them."""
    per_cycle: dict[str, float] = {}
    for precision, (letter, per_fma, _) in SCALAR.items():
        name = f"sm__{_SASS}{letter}fma_pred_on.sum.peak_sustained"
        rate = number(metrics, name)
        if rate:
            per_cycle[precision], source[precision] = per_fma * rate, name
    for name in metrics:
        if not name.endswith(".sum.peak_sustained"):
            continue
        match = _TENSOR.match(name.removesuffix(".peak_sustained"))
        rate = number(metrics, name) if match else None
        # an aggregate over sparsities states the sparse rate: only leaves that say "off", or types without sparsity
        if match is None or rate is None or not (match[4] == "off" or match[2] in ("fp64", "int1")):
            continue
        precision = f"{_SRC.get(match[2], match[2])}_tensor"
        if rate > per_cycle.get(precision, 0.0):
            per_cycle[precision], source[precision] = rate, name
    return per_cycle


def _dram_roof(metrics: Metrics, model: gpus.Gpu | None, source: dict[str, str]) -> float | None:
    per_cycle, clock = (
        number(metrics, "dram__bytes.sum.peak_sustained"),
        number(metrics, "dram__cycles_elapsed.avg.per_second"),
    )
    if per_cycle and clock:
        source["dram"] = "dram__bytes.sum.peak_sustained × dram__cycles_elapsed.avg.per_second"
        return per_cycle * clock
    if model is None:
        return None
    source["dram"] = f"data sheet: {model.source}"
    return model.dram_bytes_s


def _l2_roof(metrics: Metrics, source: dict[str, str]) -> float | None:
    """What the L2 can hand to the SMs: 32 B per cycle and port (`lts__lts2xbar…`), at the L2's clock."""
    per_cycle, clock = (
        number(metrics, "lts__lts2xbar_cycles_active.sum.peak_sustained"),
        number(metrics, "lts__cycles_elapsed.avg.per_second"),
    )
    if not per_cycle or not clock:
        return None
    source["l2"] = "lts__lts2xbar_cycles_active.sum.peak_sustained × 32 B × lts__cycles_elapsed.avg.per_second"
    return 32.0 * per_cycle * clock


def point(duration_ns: float | None, done: Work, moved_bytes: float | None, ceilings: Roofs) -> Point:
    """Where this work in this time stands under these roofs."""
    seconds = duration_ns * 1e-9 if duration_ns else None
    flop = done.total if done.by_precision or done.unknown is None else None
    intensity = flop / moved_bytes if flop and moved_bytes else None
    flop_s = flop / seconds if flop is not None and seconds else None
    full_s = {p: amount / ceilings.compute[p] for p, amount in done.by_precision.items() if ceilings.compute.get(p)}
    precision = max(full_s, key=lambda p: full_s[p]) if full_s else max(
        done.by_precision, key=lambda p: done.by_precision[p], default=None)
    whole = flop is not None and len(full_s) == len(done.by_precision)
    compute_roof = flop / max(full_s.values()) if flop and full_s and whole else None
    ridge = compute_roof / ceilings.dram_bytes_s if compute_roof and ceilings.dram_bytes_s else None
    side = None if intensity is None or ridge is None else "memory" if intensity < ridge else "compute"
    roof = None
    if compute_roof and intensity is not None and ceilings.dram_bytes_s:
        roof = min(compute_roof, intensity * ceilings.dram_bytes_s)
    return Point(
        duration_ns=duration_ns, flop=flop, by_precision=done.by_precision, precision=precision, dram_bytes=moved_bytes,
        intensity=intensity, flop_s=flop_s, compute_roof=compute_roof,
        dram_bytes_s=moved_bytes / seconds if moved_bytes is not None and seconds else None,
        dram_roof=ceilings.dram_bytes_s, ridge=ridge, side=side, roof=roof,
        roof_pct=100.0 * flop_s / roof if flop_s and roof else None,
        reason=_no_dot(duration_ns, flop, moved_bytes, done), notes=(done.note,) if done.note else (),
    )


def _no_dot(duration_ns: float | None, flop: float | None, moved_bytes: float | None, done: Work) -> str | None:
    if not duration_ns:
        return "its duration was not measured"
    if done.unknown:
        return done.unknown
    if not flop:
        return "no floating-point or tensor operations: it moves data or works on integers"
    if not moved_bytes:
        return ("no bytes moved to or from DRAM" if moved_bytes == 0.0 else
                "no DRAM byte counters in the report: capture with --set full")
    return None
