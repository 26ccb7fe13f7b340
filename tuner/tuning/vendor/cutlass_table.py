"""Tables of `cutlass_profiler` read as configurations: a dry run lists kernels, a run says how one did.

Columns: tools/profiler/src/performance_report.cpp of NVIDIA/cutlass; names of kernels: gemm_operation.py of its cutlass_library.
A table is somebody's program's output: its size, rows and cells are bounded.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.tuning.trial import Config, Value

MAX_BYTES, MAX_ROWS, MAX_CELL = 32 << 20, 100_000, 400
NEEDED = ("Provider", "OperationKind", "Operation", "Disposition", "Status", "m", "n", "k", "A", "B", "C", "D", "accum", "op_class",
          "cta_m", "cta_n", "cta_k", "stages", "min_cc", "Runtime")
KERNEL = re.compile(r"[A-Za-z0-9_]{1,300}")
TYPES = {"bf16": ("bf16", "bf16"), "fp16": ("f16", "f16"), "fp32": ("f32", "f32"), "fp8": ("e4m3", "bf16")}     # of A and B, of D
DIRECT, TRANSPOSED = "direct", "transposed"
_LAYOUTS = {True: "row", False: "column"}
_ALIGNED = re.compile(r"_align(\d+)(?:_|$)")
_EPILOGUES = re.compile(r"_(epi_[a-z_]+?)(?=_[0-9]|$)")
SPLITS, RASTERS, SWIZZLES = (1, 2, 4, 8), ("heuristic", "along_m", "along_n"), (1, 2, 4, 8)
PARAMETERS = ("KERNEL", "ORIENTATION", "ARCH", "TILE", "CLUSTER", "STAGES", "WARPS", "CLASS", "ALIGN", "SCHEDULE", "EPILOGUE",
              "SPLIT_K", "RASTER", "SWIZZLE")
FOREIGN, ACCUMULATES, TF32 = "of other types or layouts", "accumulates in less than float32", "computes in tf32"
UNALIGNED, UNREADABLE = "rows do not start at its alignment", "its row cannot be read"
Row = Mapping[str, str]


class TableError(ValueError):
    """Output that is no table of the profiler."""


@dataclass(frozen=True)
class Product:
    """C[M, N] = A[M, K] · B[K, N] by rows; `columns`: B lies by columns, as torch.nn.Linear keeps its weights."""

    m: int
    n: int
    k: int
    dtype: str
    columns: bool

    def arguments(self, orientation: str) -> tuple[str, ...]:
        """Return sizes and operands as the profiler is told them; transposed it computes Cᵀ = Bᵀ · Aᵀ."""
        sizes = (self.m, self.n, self.k) if orientation == DIRECT else (self.n, self.m, self.k)
        operands = zip("ABD", self.operands(orientation), strict=True)
        return (*(f"--{name}={size}" for name, size in zip("mnk", sizes, strict=True)),
                *(f"--{name}={operand}" for name, operand in operands))

    def operands(self, orientation: str) -> tuple[str, str, str]:
        """Return "bf16:row" of A, B and D."""
        operand, result = TYPES[self.dtype]
        rows = (True, not self.columns, True) if orientation == DIRECT else (self.columns, False, False)
        return f"{operand}:{_LAYOUTS[rows[0]]}", f"{operand}:{_LAYOUTS[rows[1]]}", f"{result}:{_LAYOUTS[rows[2]]}"

    @property
    def lengths(self) -> tuple[int, int, int]:
        """Return elements of a row of A, of B's lines as they lie, and of D."""
        return self.k, self.k if self.columns else self.n, self.n


def read_rows(text: bytes) -> list[dict[str, str]]:
    """Return the rows of a table, by the names of its header. Raises TableError.

    Lines of other output before and between are passed over, as are rows with too few or too many cells.
    """
    if len(text) > MAX_BYTES:
        raise TableError(f"a table of more than {MAX_BYTES >> 20} MiB")
    header: list[str] = []
    rows: list[dict[str, str]] = []
    for line in text.decode("utf-8", "replace").splitlines():
        try:
            cells = [cell.strip() for cell in next(csv.reader([line]), [])]
        except csv.Error:
            continue
        if set(NEEDED) <= set(cells):
            header = cells
        elif header and len(cells) == len(header) and all(len(cell) <= MAX_CELL for cell in cells):
            rows.append(dict(zip(header, cells, strict=True)))
            if len(rows) > MAX_ROWS:
                raise TableError(f"a table of more than {MAX_ROWS:,} rows")
    if not header:
        raise TableError(f"no table of cutlass_profiler: {text[:200].decode('utf-8', 'replace').strip()!r}")
    return rows


def list_configs(rows: Sequence[Row], product: Product, orientation: str, capability: int) -> tuple[list[Config], Counter[str]]:
    """Return the configurations of a dry run's rows for a product, and what was left out by reason.

    capability   90 for compute capability 9.0
    """
    configs: dict[str, Config] = {}
    left_out: Counter[str] = Counter()
    for row in rows:
        try:
            why = _why_not(row, product, orientation, capability)
        except TableError:
            why = UNREADABLE
        if why:
            left_out[why] += 1
            continue
        for more in _variations(row["Operation"]):
            config = {**kernel_facts(row), "ORIENTATION": orientation, **more}
            configs[f"{row['Operation']} {sorted(more.items())}"] = {name: config[name] for name in PARAMETERS}
    return list(configs.values()), left_out


def _why_not(row: Row, product: Product, orientation: str, capability: int) -> str:
    if row["Provider"].upper() != "CUTLASS" or row["OperationKind"].lower() != "gemm" or not KERNEL.fullmatch(row["Operation"]):
        return "no GEMM of CUTLASS"
    a, b, d = product.operands(orientation)
    void = f"void:{d.partition(':')[2]}"
    if (row["A"], row["B"], row["D"]) != (a, b, d) or row["C"] not in (d, void):
        return FOREIGN
    if row["accum"] != "f32":
        return ACCUMULATES
    if product.dtype == "fp32" and row["op_class"] != "simt":
        return TF32
    if _number(row["min_cc"]) > capability or _number(row.get("max_cc", "") or "9999") < capability:
        return "for another GPU"
    align = int(kernel_facts(row)["ALIGN"])
    return UNALIGNED if any(length % align for length in product.lengths) else ""


def kernel_facts(row: Row) -> dict[str, Value]:
    """Return what a row and its kernel's name say: tile, cluster, stages, warps, alignment, schedule, epilogue."""
    name = row["Operation"]
    aligned = _ALIGNED.search(name)
    after = name[aligned.end():] if aligned else ""
    epilogue = _EPILOGUES.search(f"_{after}")
    schedule = f"_{after}"[:epilogue.start()].strip("_") if epilogue else after
    stages = _number(row["stages"])
    return {"KERNEL": name, "ARCH": f"sm{_number(row['min_cc'])}", "TILE": _shape(row, "cta"), "CLUSTER": _shape(row, "cluster"),
            "STAGES": stages, "WARPS": _shape(row, "warps"), "CLASS": row["op_class"], "ALIGN": int(aligned[1]) if aligned else 1,
            "SCHEDULE": schedule[:120] or "default", "EPILOGUE": epilogue[1][:120] if epilogue else "default"}


def _variations(kernel: str) -> list[dict[str, Value]]:
    """Return what the profiler can vary of a kernel: split K of CUTLASS 2 kernels, raster and swizzle of CUTLASS 3 kernels."""
    if "cutlass3x" in kernel:
        return [{"SPLIT_K": 1, "RASTER": raster, "SWIZZLE": swizzle} for raster in RASTERS for swizzle in SWIZZLES]
    return [{"SPLIT_K": split, "RASTER": RASTERS[0], "SWIZZLE": 1} for split in SPLITS]


def _shape(row: Row, name: str) -> str:
    return "x".join(str(_number(row.get(f"{name}_{axis}", "") or "1")) for axis in "mnk")


def _number(text: str) -> int:
    try:
        value = int(text)
    except ValueError as error:
        raise TableError(f"{text[:60]!r} is no whole number") from error
    if not 0 <= value < 1 << 31:
        raise TableError(f"{value} is out of range")
    return value


def run_arguments(config: Config, product: Product) -> list[str]:
    """Return the profiler's arguments for one configuration. Raises ValueError for one that names no kernel of CUTLASS."""
    kernel, orientation = config.get("KERNEL"), config.get("ORIENTATION")
    if not isinstance(kernel, str) or not KERNEL.fullmatch(kernel) or orientation not in (DIRECT, TRANSPOSED):
        raise ValueError("the configuration must name KERNEL, as cutlass_profiler does, and ORIENTATION: direct or transposed")
    split, raster, swizzle = (config.get(name) for name in ("SPLIT_K", "RASTER", "SWIZZLE"))
    if split not in SPLITS or raster not in RASTERS or swizzle not in SWIZZLES:
        raise ValueError(f"SPLIT_K is one of {SPLITS}, RASTER of {RASTERS}, SWIZZLE of {SWIZZLES}")
    more = [f"--raster_order={raster}", f"--swizzle_size={swizzle}"] if "cutlass3x" in kernel else [f"--split_k_slices={split}"]
    return [f"--kernels={kernel}", *product.arguments(str(orientation)), *more]


def read_result(text: bytes, kernel: str) -> tuple[float | None, str, str]:
    """Return ms of a launch, disposition and status of the row of a kernel. Raises TableError where there is none."""
    rows = [row for row in read_rows(text) if row["Operation"] == kernel and row["Provider"].upper() == "CUTLASS"]
    if not rows:
        raise TableError("the table has no row of the kernel: it does not take the problem")
    row = rows[0]
    try:
        ms = float(row["Runtime"])
    except ValueError:
        ms = math.nan
    return ms if math.isfinite(ms) and 0 < ms < 1e6 else None, row["Disposition"].lower()[:60], row["Status"].lower()[:60]


def apply_text(config: Config) -> str:
    """Return the command that runs a configuration; "" of one without parameters."""
    if not config:
        return ""
    more = (f"--raster_order={config.get('RASTER')} --swizzle_size={config.get('SWIZZLE')}"
            if "cutlass3x" in str(config.get("KERNEL")) else f"--split_k_slices={config.get('SPLIT_K')}")
    return f"cutlass_profiler --operation=Gemm --kernels={config.get('KERNEL')} {more}"
