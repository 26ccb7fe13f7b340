"""Ingest of Kineto files of 57 MB, 470 MB and 2 GB: read, analyse and store, each in a process of its own.

Beside it in the same run: Holistic Trace Analysis loading the same file (it needs some five minutes for 470 MB; with
RIDGEPOINT_BENCH_QUICK set only the small file is given to it), and a bare gunzip plus one typed decoding pass of the same
file, in chunks, that keeps nothing. Ours is everything from opening the file to stored columns, tiles, kernel table,
breakdown and findings; interpreter start and imports count for none. The small file is measured twice, in turns.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import generator

ROOT = Path(__file__).resolve().parent.parent
REFERENCE_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
STORED_PCT, PEAK_BYTES, DECODE_RATIO = 10.0, 600e6, 4.0
_HTA = """
import json, logging, os, resource, sys, time
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
began = time.perf_counter()
TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=os.path.dirname(sys.argv[1]))
print(json.dumps({"seconds": time.perf_counter() - began,
                  "peak_rss_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))
"""


@dataclass(frozen=True)
class Size:
    """One file: how large, how often each side reads it, and what it is held to."""

    label: str
    raw_bytes: int
    runs: int
    faster: float | None            # than Holistic Trace Analysis, at least; None: that is not run
    ranks: int


SIZES = (Size("57 MB", 57_000_000, 2, 8, 1), Size("470 MB", 470_000_000, 1, 30, 1), Size("2 GB", 2_000_000_000, 1, None, 20))


def run() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="ridgepoint-bench-") as folder:
        return [row for size in SIZES for row in _rows(size, Path(folder))]


def _rows(size: Size, folder: Path) -> list[dict[str, Any]]:
    plain, packed = folder / "trace.json", folder / "trace.json.gz"
    written, _ = generator.write(plain, raw_bytes=size.raw_bytes, ranks=size.ranks)
    with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=1) as target:
        shutil.copyfileobj(source, target, 1 << 22)
    compared = size.faster is not None and REFERENCE_PYTHON.exists() and not (
        size.raw_bytes > 100_000_000 and "RIDGEPOINT_BENCH_QUICK" in os.environ)
    ours, theirs, gzipped, decode = [], [], [], []
    for _ in range(size.runs):
        ours.append(_measured([sys.executable, "-m", "bench.once.ingest", str(plain)]))
        if compared:
            theirs.append(_measured([str(REFERENCE_PYTHON), "-c", _HTA, str(plain)]))
        gzipped.append(_measured([sys.executable, "-m", "bench.once.ingest", str(packed)]))
        decode.append(_measured([sys.executable, "-m", "bench.once.decode", str(packed)]))
    plain.unlink()
    packed.unlink()
    best, bare = min(ours, key=_seconds), min(decode, key=_seconds)
    what = f"ingest {size.label} of Kineto JSON, {best['records']:,} records"
    return [*_beside_hta(size, what, best, min(theirs, key=_seconds) if theirs else None),
            _beside_decoding(f"the same {size.label} gzipped", min(gzipped, key=_seconds), bare),
            *_of_bounds(size, written, best, min(theirs, key=_seconds) if theirs else None)]


def _seconds(measured: dict[str, Any]) -> float:
    return float(measured["seconds"])


def _beside_hta(size: Size, what: str, best: dict[str, Any], hta: dict[str, Any] | None) -> list[dict[str, Any]]:
    if hta is None:
        why = "" if size.faster is None else "Holistic Trace Analysis was not run"
        return [{"what": what, "measured": f"{best['seconds']:.2f} s", "reference": why, "ratio": None,
                 "budget": "" if size.faster is None else f"≥ {size.faster:g}× faster", "ok": None}]
    ratio = hta["seconds"] / best["seconds"]
    return [{"what": what, "measured": f"{best['seconds']:.2f} s", "reference": f"Holistic Trace Analysis {hta['seconds']:.1f} s",
             "ratio": ratio, "budget": f"≥ {size.faster:g}× faster", "ok": size.faster is not None and ratio >= size.faster}]


def _beside_decoding(what: str, gzipped: dict[str, Any], bare: dict[str, Any]) -> dict[str, Any]:
    ratio = gzipped["seconds"] / bare["seconds"]
    return {"what": what, "measured": f"{gzipped['seconds']:.2f} s",
            "reference": f"gunzip {bare['gunzip_seconds']:.2f} s + one typed pass {bare['seconds'] - bare['gunzip_seconds']:.2f} s",
            "ratio": ratio, "budget": f"≤ {DECODE_RATIO:g}×", "ok": ratio <= DECODE_RATIO}


def _of_bounds(size: Size, written: int, best: dict[str, Any], hta: dict[str, Any] | None) -> list[dict[str, Any]]:
    peak, stored_pct = best["peak_rss_bytes"], 100 * best["stored_bytes"] / written
    return [
        {"what": f"peak memory at {size.label}", "measured": f"{peak / 1e6:.0f} MB",
         "reference": f"Holistic Trace Analysis {hta['peak_rss_bytes'] / 1e6:.0f} MB" if hta else "",
         "ratio": hta["peak_rss_bytes"] / peak if hta else None, "budget": f"≤ {PEAK_BYTES / 1e6:.0f} MB",
         "ok": peak <= PEAK_BYTES},
        {"what": f"stored columns and tiles at {size.label}", "measured": f"{best['stored_bytes'] / 1e6:.1f} MB",
         "reference": "raw JSON", "ratio": stored_pct / 100, "budget": f"≤ {STORED_PCT:g} %", "ok": stored_pct <= STORED_PCT}]


def _measured(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
                          timeout=3600)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found
