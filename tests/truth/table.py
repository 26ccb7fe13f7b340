"""What files hold by a count of our own, by another tool, and by Ridgepoint: `python -m tests.truth.table` writes docs/truth.md.

Our own counts are `tests/truth/counted.py` (json) and the query here (sqlite3): nothing of Ridgepoint reads a file for them.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from profiles import ingest
from profiles.ingest.trace import Category, Report, Trace
from tests.truth import counted

ROOT = Path(__file__).resolve().parents[2]
DATA, PAGE = ROOT / "tests" / "data", ROOT / "docs" / "truth.md"
HTA: dict[str, Any] = json.loads((DATA / "hta_truth.json").read_text())
FOLDERS = ("corpus/kineto", "h200", "ranks", "causes", "natural")
MOST_BYTES = 4_000_000          # of a packed file: larger ones are counted in tests/truth
KERNELS = (Category.COMPUTE, Category.COMMUNICATION)
WORK = (*KERNELS, Category.MEMCPY, Category.MEMSET)
# nsys SQLite -> what `nsys stats -r cuda_gpu_kern_sum --format csv` says of it
NSYS = {"h200/nsys/node.sqlite.gz": "h200/nsys/node_cuda_gpu_kern_sum.csv",
        "h200/nsys/graph.sqlite.gz": "h200/nsys/graph_cuda_gpu_kern_sum.csv",
        "corpus/nsys/fuser_h200_report1.sqlite.gz": "corpus/nsys_stats/fuser_h200_cuda_gpu_kern_sum.csv"}
TRACED = """SELECT name FROM sqlite_master WHERE name IN ('CUPTI_ACTIVITY_KIND_KERNEL', 'CUPTI_ACTIVITY_KIND_GRAPH_TRACE')"""
# report -> what `ncu --page raw --csv` says of it
NCU = {f"h200/{name}.ncu-rep.zst": f"h200/{name}_raw.csv.gz" for name in ("full", "buildA", "buildB")}
# why another tool's number is another: what it counts by its own definition
DEFINITIONS = dict.fromkeys((
    "hta_alexnet_a100_critical_path.json.gz", "hta_cuda_event_sync_multi_stream_a100.json.gz", "hta_triton_example_a100.json.gz",
    "kineto_docs_out_of_order_h100.json", "vllm_mi300_decode_full_graph_capture_rank0.pt.trace.json.gz"),
    "HTA counts every record with a stream as a kernel, also `cuda_sync` and operators that ran on the CPU")
DEFINITIONS["graph.sqlite.gz"] = "nsys' sum of kernels leaves out graphs that were traced as a whole"


@dataclass(frozen=True)
class Row:
    """One quantity of one file; None where nobody counted it. `tolerance`: of the other tool's number, which it rounds."""

    file: str
    quantity: str
    own: int | None
    other: float | None
    tool: str
    ridgepoint: int
    tolerance: float = 0.0

    @property
    def is_same(self) -> bool:
        return (self.own is None or self.own == self.ridgepoint) and (
            self.other is None or abs(self.other - self.ridgepoint) <= self.tolerance)

    @property
    def why(self) -> str:
        """Return why a number is another; "" where all agree, or nobody knows."""
        return "" if self.is_same or self.own not in (None, self.ridgepoint) else DEFINITIONS.get(Path(self.file).name, "")

    def line(self) -> str:
        own, other = ("" if value is None else f"{value:,.0f}" for value in (self.own, self.other))
        said = "yes" if self.is_same else f"definition: {self.why}" if self.why else "**no**"
        return f"| `{self.file}` | {self.quantity} | {own} | {other and f'{other} ({self.tool})'} | {self.ridgepoint:,} | {said} |"


def rows() -> Iterator[Row]:
    """Yield the rows of every file, those of one tool together."""
    for file in kineto_files():
        yield from of_kineto(file)
    for file, csv_file in NSYS.items():
        yield from of_nsys(file, csv_file)
    for file, csv_file in NCU.items():
        yield from of_ncu(file, csv_file)


def kineto_files() -> list[str]:
    """Return the Kineto traces of a modest size, as paths below tests/data."""
    found = [path for folder in FOLDERS for path in sorted((DATA / folder).glob("*.json*"))]
    paths = [path for path in found if path.stat().st_size <= MOST_BYTES and "truth" not in path.name]
    return [path.relative_to(DATA).as_posix() for path in paths if _is_kineto(path)]


def _is_kineto(path: Path) -> bool:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        begin = file.read(200_000)
    marks = (b'"cat": "kernel"', b'"schemaVersion"', b"deviceProperties")
    return b'"traceEvents"' in begin and any(mark in begin for mark in marks)


def of_kineto(file: str) -> Iterator[Row]:
    own = counted.count(DATA / file)
    trace = ingest.read(DATA / file)
    if not isinstance(trace, Trace) or not own.launches:
        return
    slices = trace.slices
    kind, ns = slices["category"].to_numpy(), slices["dur_ns"].to_numpy()
    is_kernel, is_work = np.isin(kind, KERNELS), np.isin(kind, WORK)
    said = HTA["files"].get(Path(file).name, {}).get("kernel_sum_us", {})
    # HTA's tables are whole µs: each record may be off by half of one
    tool, half_us = f"HTA {HTA['hta']}", 500.0 * own.launches
    sums = [float(said.get(name, 0)) for name in ("COMPUTATION", "COMMUNICATION")]
    yield Row(file, "kernel launches", own.launches, None, "", int(is_kernel.sum()))
    yield Row(file, "kernel time (ns)", own.kernel_ns, 1000 * sum(sums) if said else None, tool, int(ns[is_kernel].sum()), half_us)
    yield Row(file, "GPU work with copies (ns)", own.work_ns, None, "", int(ns[is_work].sum()))


def of_nsys(file: str, csv_file: str) -> Iterator[Row]:
    with tempfile.NamedTemporaryFile(suffix=".sqlite") as plain:
        plain.write(gzip.decompress((DATA / file).read_bytes()))
        plain.flush()
        with sqlite3.connect(plain.name) as tables:
            each = " UNION ALL ".join(f'SELECT "end" - start AS ns FROM {name}' for name, in tables.execute(TRACED).fetchall())
            launches, ns = tables.execute(f"SELECT count(*), sum(ns) FROM ({each})").fetchone()
    said = list(csv.DictReader((DATA / csv_file).read_text().splitlines()))
    trace = ingest.read(DATA / file)
    assert isinstance(trace, Trace)
    kind, durations = trace.slices["category"].to_numpy(), trace.slices["dur_ns"].to_numpy()
    is_kernel = np.isin(kind, KERNELS)
    yield Row(file, "kernel launches", launches, sum(int(row["Instances"]) for row in said), "nsys stats", int(is_kernel.sum()))
    yield Row(file, "kernel time (ns)", ns, sum(int(row["Total Time (ns)"]) for row in said), "nsys stats",
              int(durations[is_kernel].sum()))


def of_ncu(file: str, csv_file: str) -> Iterator[Row]:
    text = gzip.decompress((DATA / csv_file).read_bytes()).decode()
    head, units, *launches = csv.reader(io.StringIO(text))
    at = head.index("gpu__time_duration.sum")
    scale = {"nsecond": 1.0, "ns": 1.0, "usecond": 1e3, "us": 1e3, "msecond": 1e6, "ms": 1e6}[units[at]]
    report = ingest.read(DATA / file)
    assert isinstance(report, Report)
    total_ns = sum(float(each[at].replace(",", "")) for each in launches) * scale
    yield Row(file, "kernel launches", None, len(launches), "ncu --csv", len(report.launches))
    ns = sum(float(each.metrics["gpu__time_duration.sum"]) for each in report.launches)
    yield Row(file, "kernel time (ns)", None, total_ns, "ncu --csv", round(ns), 1.0)


HEAD = """# Are the numbers those of the files?

Sums that Ridgepoint reads, beside a count of our own that shares no code with it (`tests/truth/counted.py`: `json` and decimal
numbers; `sqlite3` for Nsight Systems), and beside another tool's count where one is kept: Holistic Trace Analysis (its tables are
whole µs, so half a µs a launch is allowed), `nsys stats`, `ncu --csv`. Files are those of `tests/data` up to 4 MB; larger ones are
counted in the same way by `tests/truth`, which also holds pages, API, SQL and exports to one number, with no exception today. No
output of TraceLens is kept here, so none stands beside.

Written by `python -m tests.truth.table`, which counts anew; nothing below is typed.
"""
COLUMNS = "| file | quantity | own count | other tool | Ridgepoint | agree |\n|---|---|---|---|---|---|"


def page(made: list[Row]) -> str:
    """Return the document."""
    files, unlike = {row.file for row in made}, [row for row in made if not row.is_same]
    own, other = sum(row.own is not None for row in made), sum(row.other is not None for row in made)
    unexplained = sum(not row.why for row in unlike)
    said = (f"{len(made)} quantities of {len(files)} files: {own} counted by ourselves, {other} by another tool. "
            f"{len(made) - len(unlike)} agree; {len(unlike) - unexplained} differ by another tool's definition, "
            f"{unexplained} otherwise.")
    return "\n".join([HEAD, said, "", COLUMNS, *(row.line() for row in made), ""])


def main() -> int:
    made = list(rows())
    PAGE.write_text(page(made))
    wrong = [row.line() for row in made if not row.is_same and not row.why]
    sys.stdout.write("\n".join([f"{len(made)} rows in {PAGE.relative_to(ROOT)}", *wrong]) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
