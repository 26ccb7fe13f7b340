"""Sums of `nsys stats` (kernels, API calls, copies, ranges) to a `Summary`: exactly what the tool printed."""

from __future__ import annotations

from profiles.ingest.naming.names import is_collective
from profiles.ingest.nsys.stats_table import Table
from profiles.ingest.trace import Cell, Integrity, KernelSum, Summary, SummaryColumn, SummaryTable

FORMAT = "nsys-stats"
_COUNTS = frozenset({"Instances", "Num Calls", "Calls", "Count", "QCount", "NVTX Inst", "Kern Inst"})
# what the columns are -> what people call the table; the first that fits
_TITLES = (
    (("gridxyz", "instances", "name"), "CUDA GPU kernels by grid and block (cuda_gpu_kern_gb_sum)"),
    (("kavg", "kernel name"), "Kernel launch and execution (cuda_kern_exec_sum)"),
    (("kern inst", "nvtx range"), "Kernels by NVTX range (nvtx_kern_sum)"),
    (("total proj time", "range"), "NVTX ranges on the GPU (nvtx_gpu_proj_sum)"),
    (("style", "range"), "NVTX ranges (nvtx_sum)"),
    (("category", "operation"), "CUDA GPU work (cuda_gpu_sum)"),
    (("num calls", "name"), "API calls"),
    (("instances", "name"), "CUDA GPU kernels (cuda_gpu_kern_sum)"),
    (("total time", "operation"), "CUDA GPU copies and sets by time (cuda_gpu_mem_time_sum)"),
    (("total", "operation"), "CUDA GPU copies and sets by size (cuda_gpu_mem_size_sum)"),
)


def title(table: Table) -> str:
    known = next((name for columns, name in _TITLES if table.has(*columns)), "nsys stats")
    return known if not table.title or f"({table.title})" in known else f"{known.split(' (')[0]} ({table.title})"


def summary(tables: list[Table], integrity: Integrity) -> Summary:
    """The kernels of the table that states them best, and every table as it is."""
    chosen = min((table for table in tables if _rank(table) is not None), key=lambda table: _rank(table) or 0, default=None)
    kernels = _kernels(chosen) if chosen else []
    if chosen is not None and chosen.has("kavg"):
        integrity.notes.append("This report has no total time: a kernel's total is its mean, rounded to 0.1 ns, times its "
                               "launches.")
    integrity.records_kept = integrity.records_read - sum(integrity.not_kept.values())
    return Summary(FORMAT, kernels, [_summary_table(table) for table in tables], integrity,
                   metadata={"reports": ", ".join(dict.fromkeys(title(table) for table in tables))})


def _rank(table: Table) -> int | None:
    """Which table's kernels are counted where a file has several: they sum the same launches."""
    for rank, columns in enumerate((("instances", "name", "total time"), ("category", "operation", "instances", "total time"),
                                    ("kavg", "count", "kernel name"))):
        if table.has(*columns) and not table.has("style"):
            return 2 * rank + table.has("gridxyz")
    return None


def _kernels(table: Table) -> list[KernelSum]:
    if table.has("kavg"):
        return [kernel for row in table.rows if (kernel := _execution_sum(table, row))]
    name = "operation" if table.has("category") else "name"
    rows = [row for row in table.rows if not table.has("category") or "KERNEL" in table.text(row, "category").upper()]
    return [KernelSum(
        name=table.text(row, name) or "kernel without a name", launches=table.whole(row, "instances") or 0,
        total_ns=table.whole(row, "total time") or 0, category=_category(table.text(row, name)), mean_ns=table.real(row, "avg"),
        p50_ns=table.real(row, "med"), min_ns=table.real(row, "min"), max_ns=table.real(row, "max"),
        std_ns=table.real(row, "stddev"), grid=table.triple(row, "gridxyz"), block=table.triple(row, "blockxyz")) for row in rows]


def _execution_sum(table: Table, row: list[Cell]) -> KernelSum | None:
    name, mean, launches = table.text(row, "kernel name"), table.real(row, "kavg"), table.whole(row, "count")
    if not name or mean is None or not launches:
        return None
    return KernelSum(name=name, launches=launches, total_ns=round(mean * launches), category=_category(name), mean_ns=mean,
                     p50_ns=table.real(row, "kmed"), min_ns=table.real(row, "kmin"), max_ns=table.real(row, "kmax"),
                     std_ns=table.real(row, "kstddev"))


def _category(name: str) -> str:
    return "communication" if is_collective(name) else "compute"


def _summary_table(table: Table) -> SummaryTable:
    columns = [table.column_header(at) for at in range(len(table.names))]
    return SummaryTable(
        title(table),
        [SummaryColumn(name, "count" if name in _COUNTS else unit, text) for name, unit, text in columns],
        [[table.value(row, at, text) for at, (_, _, text) in enumerate(columns)] for row in table.rows],
        note="As nsys stats summed it; percentages are of this table, rounded to 0.1.")
