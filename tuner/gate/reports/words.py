"""How a gate is said in one line. Unknown is an em dash, never zero."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tuner.gate.reports.document import GateDocument, KernelDocument, kernel_name, subject
from tuner.gate.stats.results import percent_text
from tuner.gate.stats.rule import ORDER, finite_number

UNKNOWN = "—"


def change_text(ratio: Any) -> str:
    """1.081 -> "+8.1 %"."""
    return percent_text(finite_number(ratio))


def interval_text(ci: Any) -> str:
    """[1.072, 1.09] -> "+7.2 … +9.0 %"."""
    ends = [finite_number(end) for end in ci] if isinstance(ci, list | tuple) and len(ci) == 2 else [None, None]
    if any(end is None for end in ends):
        return UNKNOWN
    return " … ".join(change_text(end).removesuffix(" %") for end in ends) + " %"


def share_text(value: Any) -> str:
    """0.034 -> "3.4 %", 0.0002 -> "0.02 %"; two digits, and what is smaller than shown says so."""
    found = finite_number(value)
    if found is None:
        return UNKNOWN
    return "< 0.001 %" if 0 < found < 0.00001 else f"{100 * found:.2g} %" if abs(found) < 0.1 else f"{100 * found:.0f} %"


def time_text(value: Any) -> str:
    """184.8 -> "184.8 µs"; four significant digits."""
    found = finite_number(value)
    if found is None:
        return UNKNOWN
    return f"{found:.4g} µs" if found < 10_000 else f"{found / 1000:.4g} ms"


def headline(of: GateDocument) -> str:
    """Return verdict, build and suite, and what weighs most."""
    verdict, status = of.get("verdict", ""), of.get("status", "done")
    if not verdict:
        says = (of.get("progress") or {}).get("says", "")
        told = {"failed": "ended with an error", "stopped": "was stopped before it was decided",
                "waiting": "waits for runs"}.get(status, "is being measured")
        return f"{subject(of)} {told}" + (f": {says}" if says and status == "measuring" else "")
    return f"{verdict}: {subject(of)}" + (f", {worst}" if (worst := _worst_kernel(of)) else "")


def verdict_counts(of: GateDocument) -> str:
    """"1 SLOWER, 12 PASS", worst first."""
    found = Counter(str(kernel.get("verdict", "")) for kernel in of.get("kernels", ()))
    return ", ".join(f"{found[verdict]} {verdict}" for verdict in ORDER if found[verdict])


def error_rates(of: GateDocument) -> list[str]:
    """Return what may be wrong with the answer: the risk of a false SLOWER, and what could not be seen."""
    lines = []
    kernels = list(of.get("kernels", ()))
    if (alpha := finite_number(of.get("alpha"))) is not None:
        lines.append(f"A suite of identical code ends SLOWER in at most {share_text(alpha)} of gates.")
    known = [(value, kernel) for kernel in kernels if (value := finite_number(kernel.get("false_alarms"))) is not None]
    if known:
        value, kernel = max(known, key=lambda each: each[0])
        often = f"at most {share_text(value)} of comparisons end SLOWER ({kernel_name(kernel)})" if value else "none ends SLOWER"
        lines.append(f"Among the baseline's own runs, {often}.")
    found = [(value, kernel) for kernel in kernels if (value := finite_number(kernel.get("detectable"))) is not None]
    if found:
        low, high = min(found, key=lambda each: each[0]), max(found, key=lambda each: each[0])
        ends = share_text(low[0])
        if len(found) > 1:
            ends += f" to {share_text(high[0])}, largest for {kernel_name(high[1])}"
        lines.append(f"Smallest slowdown that these runs could show: {ends}.")
    unknown = sum(finite_number(kernel.get("detectable")) is None for kernel in kernels)
    if unknown and kernels:
        lines.append(f"Unknown for {unknown} of {len(kernels)} kernels: too few runs to tell what they could show.")
    return lines


def place_text(of: GateDocument) -> str:
    """Return GPU, toolkit, driver and whether it was recorded."""
    place = of.get("environment") or {}
    driver = f"driver {place['driver']}" if place.get("driver") else ""
    return ", ".join(str(part) for part in (place.get("gpu"), place.get("toolkit"), driver, place.get("recorded")) if part)


def _worst_kernel(of: GateDocument) -> str:
    kernel: KernelDocument | None = next(iter(of.get("kernels", ())), None)
    if kernel is None or of.get("verdict") == "PASS":
        return verdict_counts(of)
    by = kernel.get("decided") or {"quantity": "p50", "ratio": kernel.get("ratio_p50"), "ci": None}
    ratio = f" {change_text(by['ratio'])}" if finite_number(by["ratio"]) is not None else ""
    ratio = f" {by['quantity']}{ratio}" if ratio and by["quantity"] != "p50" else ratio
    more = sum(each.get("verdict") == kernel.get("verdict") for each in of.get("kernels", ())) - 1
    return f"{kernel_name(kernel)}{ratio}" + (f" and {more} more" if more > 0 else "")
