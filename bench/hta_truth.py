"""What Holistic Trace Analysis says of traces, as JSON: the oracle of tests/profiles/analysis/trace/test_hta_truth.py.

    HTA_DISABLE_NS_ROUNDING=1 .venv-bench/bin/python -m bench.hta_truth FILE… > tests/data/hta_truth.json

Runs in the bench's own environment (`make bench` makes it). HTA parses each file as rank 0 of a job of one; without the
variable it cuts all times to whole µs.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

from hta.trace_analysis import TraceAnalysis


def said_of(path: Path) -> dict[str, Any]:
    """Times in µs as HTA prints them; None where it says nothing."""
    with tempfile.TemporaryDirectory() as folder:
        analysis = TraceAnalysis(trace_files={0: str(path.resolve())}, trace_dir=folder, include_last_profiler_step=True)
        time = analysis.get_temporal_breakdown(visualize=False).iloc[0].to_dict()
        _, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=10_000, duration_ratio=1.0)
        overlap = analysis.get_comm_comp_overlap(visualize=False).iloc[0].to_dict()
        idle = _idle(analysis)
    overlap_pct = float(overlap["comp_comm_overlap_pctg"])
    return {
        "temporal": {name: float(value) for name, value in time.items() if name.endswith("(us)")},
        "overlap_pct": None if math.isnan(overlap_pct) else overlap_pct,
        "idle_us": idle,
        "kernel_sum_us": {str(kind): float(rows["sum (us)"].sum()) for kind, rows in kernels.groupby("kernel_type")},
    }


def _idle(analysis: TraceAnalysis) -> dict[str, dict[str, float]] | None:
    """stream -> what its gaps waited for -> µs; None where HTA fails (it needs every launch call)."""
    try:
        rows, _ = analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
    except Exception:
        return None
    found: dict[str, dict[str, float]] = {}
    for row in rows.to_dict("records"):
        found.setdefault(str(row["stream"]), {})[str(row["idle_category"])] = float(row["idle_time"])
    return found


def main(paths: list[str]) -> None:
    found = {}
    for path in map(Path, paths):
        try:
            found[path.name] = said_of(path)
        except Exception as error:
            found[path.name] = {"error": f"{type(error).__name__}: {error}"[:200]}
    json.dump({"hta": importlib.metadata.version("HolisticTraceAnalysis"), "files": found}, sys.stdout, indent=1)


if __name__ == "__main__":
    main(sys.argv[1:])
