"""Counters of single instructions, and of the source lines that these belong to.

Sources: Nsight Compute documentation, "Source Page" and Kernel Profiling Guide, "Metrics Reference" (source metrics,
`smsp__pcsamp_…`, `inst_executed`, `memory_l2_theoretical_sectors_global…`, `memory_l1_wavefronts_shared…`). The share of a
line is its samples of every state ÷ all samples of the launch, which is how NVIDIA's own marks count
("This line is responsible for 16.7% of all warp stalls").
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from profiles.analysis.kernel.stalls import ALIASES, SAMPLE_PREFIX
from profiles.ingest.arrays import stable_order
from profiles.ingest.trace import INSTRUCTIONS

Numbers = np.ndarray[tuple[int], np.dtype[np.float64]]
Rows = np.ndarray[tuple[int], np.dtype[np.int64]]
NOT_ISSUED = "_not_issued"
SAMPLES, SAMPLES_NOT_ISSUED, THREADS = "samples", "samples_not_issued", "threads_per_warp"
_ADDRESS = re.compile(r"(?:`\(\.L_\w+\) )?0x([0-9a-f]{7,16})")


@dataclass(frozen=True)
class Measure:
    """Something that heats a line: a metric of the report, or made of several of them."""

    name: str                    # of the metric, or ours
    label: str
    unit: str                    # as `SummaryColumn.unit`; "" plain
    meaning: str
    adds_up: bool = True         # false: a ratio, which is made of sums and not summed


# What a line can be heated by, in the order of the menu. Everything else that a report has per instruction follows.
MEASURES = (
    Measure(SAMPLES, "Stall samples", "samples", "How often a sampled warp stood at this instruction, in whatever state."),
    Measure(SAMPLES_NOT_ISSUED, "Stall samples, nothing issued", "samples",
            "Of these, those in cycles in which the scheduler issued from no warp: latency that nothing hid."),
    Measure("inst_executed", "Warp instructions", "count", "How often a warp executed it."),
    Measure("thread_inst_executed_true", "Thread instructions", "count",
            "How often a thread executed it, predicated-off ones left out."),
    Measure(THREADS, "Threads per warp instruction", "threads",
            "Active threads, predicated-off ones left out; 32 is full.", adds_up=False),
    Measure("memory_l2_theoretical_sectors_global", "Global sectors", "sectors",
            "32-byte sectors that its global accesses ask of L2 by their addresses."),
    Measure("derived__memory_l2_theoretical_sectors_global_excessive", "Global sectors, excessive", "sectors",
            "Beyond what fully coalesced accesses of the same size would ask."),
    Measure("memory_l2_theoretical_sectors_global_ideal", "Global sectors, ideal", "sectors",
            "What fully coalesced accesses of the same size would ask."),
    Measure("memory_l2_theoretical_sectors_local", "Local sectors", "sectors",
            "32-byte sectors of local memory: register spills, and arrays indexed at run time."),
    Measure("memory_l1_tag_requests_global", "L1 tag requests, global", "requests", "Tag lookups in L1 of its global accesses."),
    Measure("memory_l1_wavefronts_shared", "Shared wavefronts", "wavefronts", "Passes through shared memory."),
    Measure("derived__memory_l1_wavefronts_shared_excessive", "Shared wavefronts, excessive", "wavefronts",
            "Passes beyond the ideal: bank conflicts."),
    Measure("memory_l1_wavefronts_shared_ideal", "Shared wavefronts, ideal", "wavefronts", "Passes without bank conflicts."),
    Measure("smsp__branch_targets_threads_divergent", "Divergent branches", "count", "Branches whose threads went different ways."),
)


class Instructions:
    """The instructions of one launch, as columns by address. Metrics are 0 where the report says nothing of a row; which
    rows it speaks of: `known`."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """Return the names of the report's metrics per instruction."""
        return tuple(name for name in self.table.column_names if name not in INSTRUCTIONS.names)

    @cached_property
    def address(self) -> Rows:
        return np.asarray(self.table["address"].to_numpy(zero_copy_only=False), np.int64)

    @cached_property
    def offset(self) -> Rows:
        """Return the bytes from the first instruction."""
        return self.address - (self.address[0] if len(self) else 0)

    @cached_property
    def sass(self) -> list[str]:
        return [str(text) for text in self.table["sass"].to_pylist()]

    @cached_property
    def readable_sass(self) -> list[str]:
        """SASS with the targets of jumps as offsets: "BRA 0x7f7c1b7a8e70" -> "BRA +0x2070"."""
        first, last = (int(self.address[0]), int(self.address[-1])) if len(self) else (0, -1)

        def offset(match: re.Match[str]) -> str:
            address = int(match[1], 16)
            return f"+0x{address - first:x}" if first <= address <= last else match[0]

        return [_ADDRESS.sub(offset, text) for text in self.sass]

    @cached_property
    def opcode(self) -> list[str]:
        """Return the opcode with its modifiers, without the predicate.

        "@!P0 LDG.E.128 R4, …" -> "LDG.E.128".
        """
        return [next((word for word in text.split() if not word.startswith("@")), "") for text in self.sass]

    @cached_property
    def base_opcode(self) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
        """The opcode alone: "LDG"."""
        return np.array([text.split(".", 1)[0].rstrip(";") for text in self.opcode], np.str_)

    @cached_property
    def place(self) -> Rows:
        """File and line as one number (file · 2³² + line); −1 where unknown."""
        file = np.asarray(self.table["file"].fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
        line = np.asarray(self.table["line"].fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
        return np.where((file < 0) | (line < 0), -1, (file << 32) | np.maximum(line, 0))

    def values(self, name: str) -> Numbers:
        """Return a measure or metric per instruction.

        Zeros where it was not collected (`has` tells).
        """
        if name == SAMPLES:
            return self._sum(self.reasons.values())
        if name == SAMPLES_NOT_ISSUED:
            return self._sum(self.reasons_not_issued.values())
        if name == THREADS:
            return ratio(self.values("thread_inst_executed_true"), self.values("inst_executed"))
        if name not in self.metrics:
            return np.zeros(len(self))
        return np.nan_to_num(np.asarray(self.table[name].to_numpy(zero_copy_only=False), np.float64))

    def known(self, name: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """The rows of which the report says something."""
        return np.asarray(self.table[name].is_valid().to_numpy(zero_copy_only=False), np.bool_)

    def has(self, name: str) -> bool:
        if name == SAMPLES:
            return bool(self.reasons)
        if name == SAMPLES_NOT_ISSUED:
            return bool(self.reasons_not_issued)
        if name == THREADS:
            return self.has("thread_inst_executed_true") and self.has("inst_executed")
        return name in self.metrics

    @cached_property
    def reasons(self) -> dict[str, Numbers]:
        """Samples of each warp state."""
        return {ALIASES.get(reason, reason): self.values(SAMPLE_PREFIX + reason) for reason in self._reason_names("")}

    @cached_property
    def reasons_not_issued(self) -> dict[str, Numbers]:
        return {ALIASES.get(reason, reason): self.values(SAMPLE_PREFIX + reason + NOT_ISSUED)
                for reason in self._reason_names(NOT_ISSUED)}

    def _reason_names(self, ending: str) -> list[str]:
        return [name[len(SAMPLE_PREFIX):len(name) - len(ending)] for name in self.metrics
                if name.startswith(SAMPLE_PREFIX) and name.endswith(NOT_ISSUED) == bool(ending)]

    def _sum(self, columns: object) -> Numbers:
        total = np.zeros(len(self))
        for column in columns:  # type: ignore[attr-defined]
            total += column
        return total

    @cached_property
    def measures(self) -> list[Measure]:
        """Return what the lines of this launch can be heated by.

        Only what was collected and is not zero throughout.
        """
        measures = [measure for measure in MEASURES if self.has(measure.name) and self.values(measure.name).any()]
        named = {measure.name for measure in MEASURES}
        rest = [Measure(name, name, "count", "A metric of the report.") for name in self.metrics
                if name not in named and not name.startswith(("smsp__pcsamp_", "thread_inst_executed")) and self.values(name).any()]
        return measures + rest


def ratio(above: Numbers, below: Numbers) -> Numbers:
    """0 where nothing stands below."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


@dataclass(frozen=True)
class Line:
    """A source line: its instructions, and each measure over them. `file` and `line` are None for those without a place."""

    file: int | None
    line: int | None
    rows: Rows
    values: Mapping[str, float]
    reasons: Mapping[str, float]      # samples by warp state, most first, without zeros


def lines(instructions: Instructions) -> list[Line]:
    """Return the lines of a launch, hottest by samples first.

    By warp instructions where nothing was sampled.
    """
    if not len(instructions):
        return []
    places, line_of = np.unique(instructions.place, return_inverse=True)
    names = dict.fromkeys([measure.name for measure in instructions.measures if measure.adds_up] + [
        name for name in ("inst_executed", "thread_inst_executed_true") if instructions.has(name)])
    sums: dict[str, Numbers] = {name: _per_line(line_of, instructions.values(name), len(places)) for name in names}
    if instructions.has(THREADS):
        sums[THREADS] = ratio(sums["thread_inst_executed_true"], sums["inst_executed"])
    reasons = {name: _per_line(line_of, values, len(places)) for name, values in instructions.reasons.items()}
    order = stable_order(line_of)
    starts = np.searchsorted(line_of[order], np.arange(len(places) + 1))
    rows = [Line(
        file=None if place < 0 else int(place >> 32), line=None if place < 0 else int(place & 0xFFFFFFFF),
        rows=order[starts[index]:starts[index + 1]], values={name: float(values[index]) for name, values in sums.items()},
        reasons=_most_first({name: float(values[index]) for name, values in reasons.items()}),
    ) for index, place in enumerate(places.tolist())]
    return sorted(rows, key=lambda each: (-each.values.get(SAMPLES, 0.0), -each.values.get("inst_executed", 0.0)))


def _per_line(line_of: Rows, values: Numbers, count: int) -> Numbers:
    return np.asarray(np.bincount(line_of, values, count), np.float64)


def reasons_at(instructions: Instructions, row: int) -> dict[str, float]:
    """Samples by warp state of one instruction, most first."""
    return _most_first({name: float(values[row]) for name, values in instructions.reasons.items()})


def _most_first(counts: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(((name, count) for name, count in counts.items() if count), key=lambda pair: -pair[1]))


@dataclass(frozen=True)
class Check:
    """A metric's instances added up beside the total that the report states for the launch."""

    metric: str
    total: float
    added: float

    @property
    def agrees(self) -> bool:
        return abs(self.added - self.total) <= 1e-9 * max(1.0, abs(self.total))


def checks(instructions: Instructions, totals: Mapping[str, float | str | None]) -> list[Check]:
    """Every metric per instruction of which the launch has a total."""
    results = []
    for name in instructions.metrics:
        total = totals.get(name)
        if isinstance(total, int | float):
            results.append(Check(name, float(total), float(instructions.values(name).sum())))
    return results


def hottest(instructions: Instructions, name: str, most: int) -> Sequence[int]:
    """Return the rows with the greatest values, those without any left out."""
    values = instructions.values(name)
    order = stable_order(-values)[:most]
    return [int(row) for row in order if values[row] > 0]
