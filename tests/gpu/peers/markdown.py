"""Markdown of what tests.gpu.peers.record recorded: a line a shape, and how many reach the best peer.

    python -m tests.gpu.peers.markdown peers.json[.gz]
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

HEAD = ("| operator | dtype | shape | ours µs | library µs | others µs | best ÷ ours | served | best ÷ served |\n"
        "|---|---|---|---|---|---|---|---|---|")


def line(row: dict[str, Any]) -> str:
    """Return the line of one shape."""
    what = f"| {row['operator']} | {row['dtype']} | {' '.join(f'{name}={size}' for name, size in row['shape'].items())} |"
    times = {name: f"{1000 * ms:.4g}" for name, ms in row["times_ms"].items()}
    others = ", ".join(f"{name} {us}" for name, us in times.items() if name not in ("ours", "library")) or "—"
    ours = f"**{row['ours_ratio']:.2f}**" if row["ours_ratio"] else "—"
    return (f"{what} {times.get('ours', '—')} | {times['library']} | {others} | {ours} | {row['served']} "
            f"| {row['served_ratio']:.2f} |")


def summary(rows: list[dict[str, Any]]) -> str:
    """Return how many shapes are at least as fast as the best of library and peers; 1 % is what repeated runs differ by."""
    ours = sum((row["ours_ratio"] or 0.0) >= 0.99 for row in rows)
    served = sum(row["served_ratio"] >= 0.99 for row in rows)
    return (f"Of {len(rows)} shapes our kernel is within 1 % of the best or ahead at {ours}, what is served at {served}; "
            f"the lowest served is {min(row['served_ratio'] for row in rows):.2f}.")


def main(path: Path) -> None:
    with (gzip.open(path, "rt") if path.suffix == ".gz" else path.open()) as stream:
        rows = [row for row in json.load(stream)["shapes"] if "times_ms" in row]
    order = list(dict.fromkeys(row["operator"] for row in rows))
    print(summary(rows), "", HEAD, *map(line, sorted(rows, key=lambda row: order.index(row["operator"]))), sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
