"""Ingest of a 56 MB Kineto file: read, analyse and store, each in a process of its own, beside Holistic Trace Analysis
loading the same file in the same run.

Ours is everything from opening the file to stored columns, tiles, kernel table and breakdown; HTA's is
`TraceAnalysis(...)`, which parses the file into a data frame. Interpreter start and imports count for neither. The
better of two runs each, in turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.traces import repeated

ROOT = Path(__file__).resolve().parent.parent
COPIES = 15                           # of 3.7 MB: 56 MB
RUNS = 2
BUDGET, BUDGET_STORED_PCT = 8.0, 10.0
REFERENCE_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
_HTA = """
import json, logging, os, resource, sys, time
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
began = time.perf_counter()
TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=os.path.dirname(sys.argv[1]))
print(json.dumps({"seconds": time.perf_counter() - began,
                  "peak_rss_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))
"""
_DECODE = """
import json, sys, time
from profiles.ingest.events import EVENTS
data = open(sys.argv[1], "rb").read()
data = data[data.index(b"[", data.index(b'"traceEvents"')):data.rindex(b"]") + 1]
began = time.perf_counter()
EVENTS.decode(data)
print(json.dumps({"seconds": time.perf_counter() - began}))
"""


def run() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="ridgepoint-bench-") as folder:
        file = Path(folder) / "trace.json"
        size = repeated(COPIES, file)
        ours, theirs = [], []
        for _ in range(RUNS):
            ours.append(_measured([sys.executable, "-m", "bench.ingest_once", str(file)]))
            if REFERENCE_PYTHON.exists():
                theirs.append(_measured([str(REFERENCE_PYTHON), "-c", _HTA, str(file)]))
        decode = min(_measured([sys.executable, "-c", _DECODE, str(file)])["seconds"] for _ in range(RUNS))
    best = min(ours, key=lambda each: each["seconds"])
    seconds, what = best["seconds"], f"ingest {size / 1e6:.0f} MB Kineto, {best['records']:,} records"
    hta = min(theirs, key=lambda each: each["seconds"]) if theirs else None
    stored_pct = 100 * best["stored_bytes"] / size
    return [
        {"what": what, "measured": f"{seconds:.2f} s",
         "reference": f"Holistic Trace Analysis {hta['seconds']:.1f} s" if hta else "Holistic Trace Analysis is not installed",
         "ratio": hta["seconds"] / seconds if hta else None, "budget": f"≥ {BUDGET:g}× faster",
         "ok": hta["seconds"] / seconds >= BUDGET if hta else None},
        {"what": "the same, beside typed decoding alone", "measured": f"{seconds:.2f} s",
         "reference": f"one msgspec pass {decode:.2f} s", "ratio": seconds / decode, "budget": "", "ok": None},
        {"what": "peak memory of that ingest", "measured": f"{best['peak_rss_bytes'] / 1e6:.0f} MB",
         "reference": f"Holistic Trace Analysis {hta['peak_rss_bytes'] / 1e6:.0f} MB" if hta else "",
         "ratio": hta["peak_rss_bytes"] / best["peak_rss_bytes"] if hta else None, "budget": "", "ok": None},
        {"what": "stored columns and tiles", "measured": f"{best['stored_bytes'] / 1e6:.1f} MB", "reference": "raw JSON",
         "ratio": stored_pct / 100, "budget": f"≤ {BUDGET_STORED_PCT:g} %", "ok": stored_pct <= BUDGET_STORED_PCT},
    ]


def _measured(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
                          timeout=1800)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found
