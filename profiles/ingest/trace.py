"""The one in-memory shape of a profile between the stages: columns, never one object per launch.

A reader in ``profiles.ingest`` turns a file into a `Trace` (what ran when), a `Report` (hardware counters per launch) or
a `Summary` (sums that the tool made; it wrote no times of its records); everything in ``profiles.analysis`` and
``profiles.store.trace`` starts from these three and never asks the file again.

Time is int64 nanoseconds since the trace's first record (`Trace.base_ns` holds the wall clock of that moment where the
file knows it). Missing is a null, never -1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any, cast

import pyarrow as pa

from profiles.ingest.windows import MISSING, MISSING32, SLICES, Slices, TableSlices, Window, table_of

__all__ = ["MISSING", "MISSING32", "SLICES"]      # of profiles.ingest.windows, for all who import them from here


class TraceError(Exception):
    """A file that cannot be read: where in it (byte, line or section), what is wrong, and what to do about it."""

    def __init__(self, where: str, what: str, hint: str) -> None:
        super().__init__(f"{where}: {what}. {hint}")
        self.where, self.what, self.hint = where, what, hint

    def as_json(self) -> dict[str, str]:
        return {"where": self.where, "what": self.what, "hint": self.hint}


class DifferentJobs(TraceError):
    """Files that were to be ranks of one job and are not: each can be read as a profile of its own."""

    KIND, SAME_RANK = "different jobs", "the same rank"

    def __init__(self, where: str, what: str, hint: str, same_rank: bool = False) -> None:
        """`same_rank`: all that they contradict each other in is their rank, as engines do that each count from 0."""
        super().__init__(where, what, hint)
        self.same_rank = same_rank

    def as_json(self) -> dict[str, str]:
        return {**super().as_json(), "kind": self.KIND, **({"why": self.SAME_RANK} if self.same_rank else {})}


class Category(IntEnum):
    """What a slice is. The numbers are stored (columns, tiles) and known to static/js/timeline: append only."""

    COMPUTE = 0         # GPU kernel that computes
    COMMUNICATION = 1   # GPU kernel of a collective (NCCL, RCCL, …)
    MEMCPY = 2
    MEMSET = 3
    RUNTIME = 4         # CUDA/HIP runtime or driver call on the CPU
    CPU_OP = 5          # framework operator
    PYTHON = 6
    ANNOTATION = 7      # user_annotation, NVTX, ProfilerStep
    GPU_ANNOTATION = 8  # the same, drawn over the GPU lane: not work
    SYNC = 9            # synchronisation record on a GPU lane: not work
    OVERHEAD = 10       # the profiler's own
    OTHER = 11


KERNELS = (Category.COMPUTE, Category.COMMUNICATION)
GPU_WORK = (Category.COMPUTE, Category.COMMUNICATION, Category.MEMCPY, Category.MEMSET)
MAX_GPUS = 1_024            # of a trace: many analyses look at each on its own

# Counter samples (ph "C", GPU metrics): one row per sample.
SAMPLES = pa.schema([("track", pa.int32()), ("time_ns", pa.int64()), ("value", pa.float64())])

# Flow ends that correlation ids do not already say (forward -> backward, user flows).
FLOWS = pa.schema([
    ("flow", pa.int64()), ("kind", pa.dictionary(pa.int32(), pa.string())),
    ("track", pa.int32()), ("time_ns", pa.int64()), ("is_end", pa.bool_()),
])


@dataclass(frozen=True)
class Track:
    """One row group of the timeline: a CPU thread, a GPU stream or a counter."""

    kind: str                      # "thread" | "stream" | "counter" | "other"
    name: str                      # "stream 7", "thread 476 (python)"
    group: str                     # process or GPU it is drawn under: "python (476)", "GPU 0"
    sort: int = 0
    pid: str | None = None
    tid: str | None = None
    device: int | None = None
    stream: int | None = None
    unit: str | None = None        # counters only


@dataclass(frozen=True)
class Device:
    """A GPU as the file describes it. Unknown is None."""

    index: int
    name: str
    compute_capability: str | None = None   # "9.0"
    sm_count: int | None = None
    memory_bytes: int | None = None


@dataclass
class Doubt:
    """What cannot be, or is not all there. `kind` is a row of `analysis.trace.plausibility.kinds`, which gives label and sentence.

    Times are ns since the trace's first record, None where unknown.
    """

    kind: str
    count: int
    of: int | None = None                    # how many there are in all, where a share says more
    first_ns: int | None = None
    last_ns: int | None = None
    by: int | None = None                    # how many make it so: kernels that cover others
    ns: int | None = None                    # time that is in doubt
    of_ns: int | None = None                 # all time of its kind
    names: list[str] = field(default_factory=list)       # kernels whose own time is in doubt, the most time first
    where: str = ""                          # "byte 978"
    label: str = ""                          # row of the report
    sentence: str = ""                       # what stands before everything else where it touches the result
    touches: bool = False                    # the result: not only a remark


@dataclass
class Integrity:
    """What became of every record of the file. read == kept + sum(not_kept)."""

    records_read: int = 0
    records_kept: int = 0
    kinds: dict[str, int] = field(default_factory=dict)      # records read by kind, as the file names them
    not_kept: dict[str, int] = field(default_factory=dict)   # reason -> records
    repaired: dict[str, int] = field(default_factory=dict)   # what was mended or looks wrong but was kept -> records
    remarks: dict[str, int] = field(default_factory=dict)    # kept as the file says, and worth knowing -> records
    truncated_at: str | None = None                          # "byte 20727": the file ends before its end
    notes: list[str] = field(default_factory=list)           # sentences for people
    plausibility: list[Doubt] = field(default_factory=list)  # readers add theirs, `analysis.trace.plausibility` completes it

    def count(self, kind: str, n: int = 1) -> None:
        self.kinds[kind] = self.kinds.get(kind, 0) + n

    def drop(self, reason: str, n: int = 1) -> None:
        if n:
            self.not_kept[reason] = self.not_kept.get(reason, 0) + n

    def repair(self, what: str, n: int = 1) -> None:
        if n:
            self.repaired[what] = self.repaired.get(what, 0) + n

    def remark(self, what: str, n: int = 1) -> None:
        if n:
            self.remarks[what] = self.remarks.get(what, 0) + n

    def settle(self) -> None:
        """Take all that was read and not dropped as kept."""
        self.records_kept = self.records_read - sum(self.not_kept.values())

    def end_early(self, damage: str | None) -> None:
        """Say that the compressed file ends early, and where: `damage` of its source, nothing where it is whole."""
        if damage:
            self.truncated_at = damage.split(":")[0]
            self.notes.append(f"The compressed file ends early: {damage}.")

    def move_doubts(self, by_ns: int) -> None:
        """Move the times of all doubts: readers note them on the clock of the file."""
        for doubt in self.plausibility:
            doubt.first_ns, doubt.last_ns = (None if time is None else time + by_ns for time in (doubt.first_ns, doubt.last_ns))

    def absorb(self, part: dict[str, Any]) -> None:
        """Add the counts of a part of the file, as its `as_json` gives them. Lists of kinds stay bounded."""
        self.records_read += part["records_read"]
        for name, most, other in (("kinds", 500, "other kinds"), ("repaired", 500, "others"), ("remarks", 500, "others"),
                                  ("not_kept", 50, "other kinds of record that are not read yet")):
            mine = getattr(self, name)
            for key, count in part[name].items():
                bucket = key if key in mine or len(mine) < most else other
                mine[bucket] = mine.get(bucket, 0) + count

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Trace:
    """What ran when. Tables follow SLICES, SAMPLES, FLOWS.

    `slices` is a table, or of a large trace something that gives windows; `windows()` serves both.
    """

    def __init__(self, format: str, slices: pa.Table | Slices, tracks: list[Track], devices: list[Device],
                 integrity: Integrity, samples: pa.Table | None = None, flows: pa.Table | None = None,
                 base_ns: int | None = None, rank: int | None = None, metadata: dict[str, Any] | None = None) -> None:
        self.format = format                 # reader's name: "kineto"
        table: pa.Table | None = slices if isinstance(slices, pa.Table) else None
        self.parts: Slices = cast(Slices, slices) if table is None else TableSlices(table)
        self._table = table
        self.tracks, self.devices, self.integrity = tracks, devices, integrity
        self.samples = SAMPLES.empty_table() if samples is None else samples
        self.flows = FLOWS.empty_table() if flows is None else flows
        self.base_ns = base_ns               # epoch ns of time 0
        self.rank = rank
        self.metadata: dict[str, Any] = {} if metadata is None else metadata     # versions and settings the file states
        self.tables: list[SummaryTable] = []      # what the file says beside the timeline (memory snapshots)
        self.colours: dict[str, str] = {}    # name of slices -> "#rrggbb" where the program chose one (NVTX, cname)
        self.digest: Any = None              # analysis.digest's, made once

    @property
    def slices(self) -> pa.Table:
        """Return all slices as one table: for small traces and tests."""
        if self._table is None:
            self._table = table_of(self.parts)
        return self._table

    def windows(self) -> Iterator[Window]:
        """Yield all slices in order of time.

        Each window has some 100,000 rows, more only where many begin at one moment.
        """
        return self.parts.windows()


@dataclass(frozen=True)
class Rule:
    """One finding of NVIDIA's guided analysis, as the report holds it."""

    identifier: str
    section: str
    title: str
    severity: str                            # "optimization" | "warning" | "error" | "ok" | "info"
    text: str
    speedup_pct: float | None = None         # NVIDIA's own estimate
    speedup_scope: str | None = None         # "global" | "local"
    focus: tuple[dict[str, Any], ...] = ()   # metrics it rests on: {"name", "value", "info"}


# One row per SASS instruction of a kernel, by address. `file` is the index in `Report.files`, null where the cubin has no
# line information; `ptx` is empty where the report has none.
INSTRUCTIONS = pa.schema([
    ("address", pa.int64()), ("sass", pa.string()), ("ptx", pa.string()), ("file", pa.int32()), ("line", pa.int32()),
])

# Periodic samples inside a launch (PM sampling): time since the launch's first sample.
PERIODIC = pa.schema([
    ("metric", pa.dictionary(pa.int32(), pa.string())), ("unit", pa.dictionary(pa.int32(), pa.string())),
    ("label", pa.dictionary(pa.int32(), pa.string())), ("time_ns", pa.int64()), ("value", pa.float64()),
])


@dataclass(frozen=True)
class SourceFile:
    """A source file that a report's kernels were built from."""

    name: str
    text: str | None = None                  # None: the report does not hold it (--import-source yes)


@dataclass(frozen=True)
class SourceMark:
    """A mark of NVIDIA's guided analysis at an instruction or a line."""

    kind: str                                # "sass" | "source"
    rule: str
    text: str
    address: int | None = None
    file: str | None = None
    line: int | None = None


@dataclass
class CounterLaunch:
    """One profiled launch with its counters, in base units (ns, bytes, hz, percent 0-100)."""

    index: int
    kernel: str                              # demangled, full
    device: Device
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    context: int | None
    stream: int | None
    metrics: dict[str, float | str]          # metric name -> value; absent is unknown
    rules: list[Rule] = field(default_factory=list)
    incomplete: str | None = None            # why this launch must stay out of sums
    instructions: pa.Table | None = None     # INSTRUCTIONS and one float64 column per metric: null where it has no value
    periodic: pa.Table | None = None         # PERIODIC: what ran inside the launch, over time
    marks: tuple[SourceMark, ...] = ()       # set by NVIDIA's rules


@dataclass
class Report:
    """Hardware counters of some launches (Nsight Compute)."""

    format: str                              # "ncu-rep" | "ncu-csv"
    launches: list[CounterLaunch]
    units: dict[str, str]                    # metric name -> base unit
    integrity: Integrity
    metadata: dict[str, Any] = field(default_factory=dict)   # driver, CUDA, ncu version, command line
    files: list[SourceFile] = field(default_factory=list)


Cell = str | int | float | None
CellRows = list[list[Cell]]                # one cell per column; None is unknown


@dataclass(frozen=True)
class KernelSum:
    """One kernel as a tool summed it. What the file does not state is None; nothing is estimated."""

    name: str                                # demangled, full
    launches: int
    total_ns: int
    category: str = "compute"                # "compute" | "communication"
    mean_ns: float | None = None             # None: total / launches
    p50_ns: float | None = None
    p95_ns: float | None = None
    min_ns: float | None = None
    max_ns: float | None = None
    std_ns: float | None = None
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers_per_thread: int | None = None
    smem_bytes: int | None = None            # static + dynamic, per block
    occupancy_pct: float | None = None       # 0-100, as the file states it


@dataclass(frozen=True)
class SummaryColumn:
    """A column of a `SummaryTable`. `unit` chooses how numbers show: "ns", "bytes", "pct" (0-100), "count", "" (plain), or
    an SI unit ("FLOP/s", "B/s"); "slice" (id of one) and "window" ("start-end" in ns, text) become links into the timeline.
    Text columns have unit "" and `text` true."""

    name: str
    unit: str = ""
    text: bool = False


def summary_columns(line: str) -> list[SummaryColumn]:
    """Return the columns that one line names, each with its unit: "kernel: kernel | rank: text | takes: ns | mean depth"."""
    pairs = (column.partition(": ") for column in line.split(" | "))
    return [SummaryColumn(name, unit if unit != "text" else "", unit in ("text", "kernel", "tune")) for name, _, unit in pairs]


@dataclass
class SummaryTable:
    """A table as the file holds it (API calls, ranges, copies, problems that were profiled), in base units."""

    title: str
    columns: list[SummaryColumn]
    rows: CellRows
    note: str = ""                           # one sentence for people: what is summed over what


def with_rows(tables: Iterable[SummaryTable]) -> list[SummaryTable]:
    return [table for table in tables if table.rows]


@dataclass
class Summary:
    """Statistics without a timeline: what a tool summed before it wrote the file."""

    format: str                              # "nsys-stats" | "proton" | "cutlass" | …
    kernels: list[KernelSum]                 # several of one name (per grid, per scope) become one row of the kernel table
    tables: list[SummaryTable]
    integrity: Integrity
    devices: list[Device] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
