"""Markdown of what record/ratios.py recorded: one line a shape, or with --groups one for each operator, products by their rows.

    python tests/gpu/ratio_table.py [--groups] ratios.json[.xz]
"""

from __future__ import annotations

import json
import lzma
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

HEAD = ("| operator | dtype | shape | library ms | Triton ms | library ÷ Triton | rate | kernel | configuration |\n"
        "|---|---|---|---|---|---|---|---|---|")
ROWS = ((1, 64), (65, 256), (257, 2500), (2501, 1 << 20))       # of a product's first matrix


def table(document: dict[str, Any]) -> str:
    return "\n".join([HEAD, *(line(row) for row in document["shapes"])])


def groups(document: dict[str, Any]) -> str:
    """Return shapes, how many reach 1.00 and 0.97 of the library, and the least, middle and greatest ratio of each group."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in document["shapes"]:
        rows = row["shape"].get("M")
        place = "" if rows is None else next((f", {low} to {high} rows" for low, high in ROWS if low <= rows <= high), "")
        found[f"{row['operator']} {row['dtype']}{place}"].append(row["ratio_again"] or row["ratio"])
    lines = [f"| {name} | {len(each)} | {sum(one >= 1 for one in each)} | {sum(one >= 0.97 for one in each)} | {min(each):.2f} "
             f"| {statistics.median(each):.2f} | {max(each):.2f} |" for name, each in sorted(found.items())]
    head = "| operator | shapes | ≥ 1.00 | ≥ 0.97 | least | median | greatest |\n|---|---|---|---|---|---|---|"
    return "\n".join([head, *lines])


def line(row: dict[str, Any]) -> str:
    what = f"| {row['operator']} | {row['dtype']} | {' '.join(f'{name}={size}' for name, size in row['shape'].items())} |"
    final = next((one for one in row.get("finalists", []) if one.get("library")), None)
    best_ms, ratio = (final["median_ms"], final["library"]) if final else (row.get("best_ms"), row.get("ratio"))
    if best_ms is None or ratio is None:
        return f"{what} {number(row.get('library_ms'))} | — | — | — | | {row.get('error') or 'nothing could be measured'} |"
    config = final["config"] if final else row["best"]
    rate = (f"{row['tflops'] * row['best_ms'] / best_ms:.0f} TFLOP/s" if row["tflops"] and row["tflops"] > 50
            else f"{row['gb_per_s'] * row['best_ms'] / best_ms:.0f} GB/s")
    rest = " ".join(f"{name}={value}" for name, value in config.items() if name != "KERNEL")
    return (f"{what} {number(ratio * best_ms)} | {number(best_ms)} | **{ratio:.2f}** | {rate} | {config.get('KERNEL', '')} "
            f"| {rest} |")


def number(ms: float | None) -> str:
    return "—" if ms is None else f"{ms:.4f}"


if __name__ == "__main__":
    path = Path(sys.argv[-1])
    with (lzma.open(path, "rt") if path.suffix == ".xz" else path.open()) as stream:
        print((groups if "--groups" in sys.argv else table)(json.load(stream)))
