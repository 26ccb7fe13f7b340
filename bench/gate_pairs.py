"""Two tables of docs/gate-bench.md: real pairs of configurations told apart, and what `calibrate` says of each kernel."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from bench.gate_runs import BASELINE, CANDIDATE, FILES, SETS, kernels, middle, some
from tuner.gate.stats.calibration import calibrate
from tuner.gate.stats.runs import KernelRuns
from tuner.gate.stats.suite import judge


def pairs(name: str) -> list[dict[str, Any]]:
    """Each two different configurations of one problem: what 100 comparisons of 5 with 10 runs say."""
    groups: dict[str, list[KernelRuns]] = defaultdict(list)
    for kernel in kernels(name):
        groups[f"{kernel.op} {kernel.shape}"].append(replace(kernel, key=""))
    rows = []
    for group in groups.values():
        for before in group:
            for after in group:
                if before is after:
                    continue
                true = middle(after) / middle(before)
                says: Counter[str] = Counter()
                for draw in range(100):
                    order = np.random.default_rng(draw).permutation(len(before.runs))
                    found = judge([some(before, order[:BASELINE])], [some(after, order[BASELINE:BASELINE + CANDIDATE])],
                                  calibrated=False).kernels[0]
                    says[found.verdict] += 1
                    says[f"change {found.change}"] += 1
                rows.append({"set": name, "op": before.op, "us": middle(before), "true": true, **says})
    return rows


def pair_table(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield "## Real pairs of configurations up to 15 % apart\n"
    yield ("One configuration as the baseline, another of the same problem as the candidate, 100 draws. True: by all 24 runs of "
           "both. SLOWER is right above +5 %, FASTER below −2 %, PASS within ±2 %; between +2 and +5 % SLOWER or PASS, and "
           "“surely different” says that they were told apart.\n")
    yield "| kernel | baseline | true | SLOWER | FASTER | PASS | AMBIGUOUS | surely different | right |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    for row in sorted(rows, key=lambda row: row["true"]):
        if 1 / 1.15 <= row["true"] <= 1.15:
            sure = row.get("change slower", 0) + row.get("change faster", 0)
            cells = [row.get(verdict, 0) for verdict in ("SLOWER", "FASTER", "PASS", "AMBIGUOUS")]
            yield (f"| {row['op']} | {row['us']:.1f} µs | {(row['true'] - 1) * 100:+.1f} % | " + " | ".join(map(str, cells))
                   + f" | {sure} | {_right(row)} |")
    yield ""


def _right(row: dict[str, Any]) -> str:
    slower, faster, passed = row.get("SLOWER", 0), row.get("FASTER", 0), row.get("PASS", 0)
    if row["true"] >= 1.05:
        return str(slower)
    if row["true"] <= 0.98:
        return str(faster)
    return str(passed if row["true"] <= 1.02 else slower + passed)


def calibration_table() -> Iterator[str]:
    yield "## Calibration: what `calibrate` says of each kernel\n"
    yield "1,000 comparisons of a kernel with itself at its suite's level; detectable is called SLOWER in 95 % of them.\n"
    yield "| kernel | CV of run medians | CV of p95 | SLOWER | AMBIGUOUS at first | detectable |"
    yield "|---|--:|--:|--:|--:|--:|"
    for name in SETS:
        for each in calibrate(kernels(name)) if name in FILES else ():
            us = middle(next(kernel for kernel in kernels(name) if kernel.key == each.key))
            cells = [f"{value * 100:.2g} %" if value is not None else "—"
                     for value in (each.cv, each.cv_p95, each.slower, each.ambiguous, each.detectable)]
            yield f"| {each.op}, {us:,.1f} µs | " + " | ".join(cells) + " |"
    yield ""
