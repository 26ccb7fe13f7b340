"""How a gate is said in one line. Unknown is an em dash, never zero."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from profiles.analysis.gate.rule import ORDER
from tuner.gates.reports.document import GateDocument, KernelDocument, kernel_name, subject

MARK = {"SLOWER": "▲", "FASTER": "▼", "AMBIGUOUS": "?", "NO DATA": "∅", "PASS": "✓"}
UNKNOWN = "—"


def number(value: Any) -> float | None:
    """A finite number, or None."""
    fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if fits else None


def change(ratio: Any) -> str:
    """1.081 -> "+8.1 %"."""
    found = number(ratio)
    if found is None:
        return UNKNOWN
    return f"{round(100 * (found - 1), 1) + 0.0:+.1f} %".replace("-", "\N{MINUS SIGN}")         # + 0.0: never "−0.0"


def interval(ci: Any) -> str:
    """[1.072, 1.09] -> "+7.2 … +9.0 %"."""
    ends = [number(end) for end in ci] if isinstance(ci, list | tuple) and len(ci) == 2 else [None, None]
    if any(end is None for end in ends):
        return UNKNOWN
    return " … ".join(change(end).removesuffix(" %") for end in ends) + " %"


def share(value: Any) -> str:
    """0.034 -> "3.4 %", 0.0002 -> "0.02 %"; two digits, and what is smaller than shown says so."""
    found = number(value)
    if found is None:
        return UNKNOWN
    return "< 0.001 %" if 0 < found < 0.00001 else f"{100 * found:.2g} %" if abs(found) < 0.1 else f"{100 * found:.0f} %"


def time_us(value: Any) -> str:
    """184.8 -> "184.8 µs"; four significant digits."""
    found = number(value)
    if found is None:
        return UNKNOWN
    return f"{found:.4g} µs" if found < 10_000 else f"{found / 1000:.4g} ms"


def headline(of: GateDocument) -> str:
    """Verdict, build and suite, and what weighs most."""
    verdict, status = of.get("verdict", ""), of.get("status", "done")
    if not verdict:
        says = (of.get("progress") or {}).get("says", "")
        told = {"failed": "ended with an error", "stopped": "was stopped before it was decided",
                "waiting": "waits for runs"}.get(status, "is being measured")
        return f"{subject(of)} {told}" + (f": {says}" if says and status == "measuring" else "")
    return f"{verdict}: {subject(of)}" + (f", {worst}" if (worst := _worst(of)) else "")


def counted(of: GateDocument) -> str:
    """"1 SLOWER, 12 PASS", worst first."""
    found = Counter(str(kernel.get("verdict", "")) for kernel in of.get("kernels", ()))
    return ", ".join(f"{found[verdict]} {verdict}" for verdict in ORDER if found[verdict])


def rates(of: GateDocument) -> list[str]:
    """What may be wrong with the answer: the risk of a false SLOWER, and what could not have been seen."""
    lines = []
    kernels = list(of.get("kernels", ()))
    if (alpha := number(of.get("alpha"))) is not None:
        lines.append(f"A suite of identical code ends SLOWER in at most {share(alpha)} of gates.")
    known = [(value, kernel) for kernel in kernels if (value := number(kernel.get("false_alarms"))) is not None]
    if known:
        value, kernel = max(known, key=lambda each: each[0])
        often = f"at most {share(value)} of comparisons end SLOWER ({kernel_name(kernel)})" if value else "none ends SLOWER"
        lines.append(f"Among the baseline's own runs, {often}.")
    found = [(value, kernel) for kernel in kernels if (value := number(kernel.get("detectable"))) is not None]
    if found:
        low, high = min(found, key=lambda each: each[0]), max(found, key=lambda each: each[0])
        ends = share(low[0]) if len(found) == 1 else f"{share(low[0])} to {share(high[0])}, largest for {kernel_name(high[1])}"
        lines.append(f"Smallest slowdown that these runs could show: {ends}.")
    unknown = sum(number(kernel.get("detectable")) is None for kernel in kernels)
    if unknown and kernels:
        lines.append(f"Unknown for {unknown} of {len(kernels)} kernels: too few runs to tell what they could show.")
    return lines


def where(of: GateDocument) -> str:
    """GPU, toolkit, driver and whether it was recorded."""
    place = of.get("environment") or {}
    driver = f"driver {place['driver']}" if place.get("driver") else ""
    return ", ".join(str(part) for part in (place.get("gpu"), place.get("toolkit"), driver, place.get("recorded")) if part)


def _worst(of: GateDocument) -> str:
    kernel: KernelDocument | None = next(iter(of.get("kernels", ())), None)
    if kernel is None or of.get("verdict") == "PASS":
        return counted(of)
    ratio = f" {change(kernel.get('ratio_p50'))}" if number(kernel.get("ratio_p50")) is not None else ""
    more = sum(each.get("verdict") == kernel.get("verdict") for each in of.get("kernels", ())) - 1
    return f"{kernel_name(kernel)}{ratio}" + (f" and {more} more" if more > 0 else "")
