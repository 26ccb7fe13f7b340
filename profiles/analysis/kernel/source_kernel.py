"""Kernels of a report whose launches hold instructions, as `findings_source` looks at them: one launch each, its places in words.

Worth: NVIDIA's own estimate for the same fault (`NVIDIA`), named as theirs, where a rule states none; at most what the fault adds
to the work of its unit (`advising.gains`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from profiles.analysis.core.result import Finding
from profiles.analysis.core.sentences import pct_of, pct_text
from profiles.analysis.kernel.advising import gains
from profiles.analysis.kernel.counters import launch_facts
from profiles.analysis.kernel.facts import LaunchFacts
from profiles.analysis.kernel.instructions import Instructions, Line, Numbers, lines
from profiles.ingest.naming.names import short_name
from profiles.ingest.trace import CounterLaunch, Report, SourceFile

SHARE_PCT = 0.5                  # kernels below this share of the report's time are left out
HIGH_PCT = 25.0                  # of the report's time that a finding must be worth to be called high
LAUNCHES = 6                     # of a kernel, of different grids, that are looked at
ADVICE = {
    "uncoalesced": "Let neighbouring threads of a warp touch neighbouring addresses: change the index or the layout, go through "
                   "shared memory for transposes, use wider aligned loads.",
    "bank_conflicts": "Pad the rows of the shared array by one element or swizzle the index, so that the threads of a warp fall "
                      "into different banks.",
    "divergence": "Let the threads of a warp take the same way: sort or regroup the work by case, or replace the branches by "
                  "predicated arithmetic.",
    "spills": "Let it use more registers (launch bounds, maxrregcount), keep fewer values live, or make array indices known "
              "when it is compiled.",
    "atomics": "Reduce within the warp (shuffles) and the block (shared memory) first, so that one thread does one atomic; "
               "spread them over several addresses.",
    "double": "A constant without the suffix f, or a double in between, makes the whole expression fp64: write 0.5f, use float.",
    "epilogue": "Overlap the epilogue of one tile with the products of the next (persistent, warp-specialised kernel), store "
                "through shared memory with TMA or 128-bit stores, fuse fewer operations into it.",
    "tail": "Start the longest blocks first, make blocks smaller or of equal length, or let persistent blocks share the rest "
            "(stream-K).",
}
# NVIDIA's rules about the same fault, and a word that their title must hold. Of several the lowest estimate counts.
NVIDIA: dict[str, tuple[tuple[str, str], ...]] = {
    "uncoalesced": (("UncoalescedGlobalAccess", ""),),
    "bank_conflicts": (("SharedMemoryConflicts", "Bank"), ("UncoalescedSharedAccess", "")),
    "divergence": (("ThreadDivergence", ""),),
    "spills": (("MemoryCacheAccessPattern", "Local"),),
    "double": (("SOLFPRoofline", "FP64"),),
}


@dataclass(frozen=True)
class Kernel:
    """One kernel: its longest launch with instructions, and the time of all its launches."""

    launch: CounterLaunch
    files: Sequence[SourceFile]
    total_ns: float
    report_ns: float
    launch_ns: float = 0.0           # of `launch` alone

    @property
    def title(self) -> str:
        return short_name(self.launch.kernel)

    @cached_property
    def instructions(self) -> Instructions:
        if self.launch.instructions is None:
            raise ValueError("a launch without instructions")
        return Instructions(self.launch.instructions)

    @cached_property
    def facts(self) -> LaunchFacts:
        return launch_facts(self.launch)

    @cached_property
    def lines(self) -> list[Line]:
        return lines(self.instructions)

    def sum(self, name: str) -> float:
        return float(self.instructions.values(name).sum())

    def at(self, values: Numbers) -> tuple[str, float]:
        """The line (or instruction) that holds most of `values`, in words, and its share in percent."""
        total = float(values.sum())
        placed = [line for line in self.lines if line.line is not None]
        if placed:
            best = max(placed, key=lambda line: float(values[line.rows].sum()))
            if float(values[best.rows].sum()) > 0:
                return self.words(best), 100.0 * float(values[best.rows].sum()) / total
        row = int(np.argmax(values))
        return self.instruction(row), pct_of(float(values[row]), total)

    def words(self, line: Line) -> str:
        """"line 24 of landscape.py"."""
        name = self.files[line.file].name if line.file is not None and line.file < len(self.files) else ""
        short = name.replace("\\", "/").rsplit("/", 1)[-1]
        near = self.caller(line)
        return f"line {line.line}" + (f" of {short}" if short else "") + (f" (inlined after line {near})" if near else "")

    def caller(self, line: Line) -> int | None:
        """Return the last line before an inlined one that is in the kernel's main file.

        The report knows the innermost place of an instruction, not who called.
        """
        file = self.instructions.place >> 32
        files = file[self.instructions.place >= 0]
        main = int(np.bincount(files).argmax()) if files.size else None
        if main is None or line.file == main or not line.rows.size:
            return None
        before = np.flatnonzero(file[:int(line.rows[0])] == main)
        return int(self.instructions.place[before[-1]] & 0xFFFFFFFF) if before.size else None

    def instruction(self, row: int) -> str:
        return f"“{self.instructions.readable_sass[row]}” at 0x{int(self.instructions.offset[row]):x}"

    def share(self, opcodes: Sequence[str], metric: str) -> tuple[Numbers, float]:
        """Return what instructions of these opcodes hold of a metric.

        Per row, and in percent of all.
        """
        values = np.where(np.isin(self.instructions.base_opcode, opcodes), self.instructions.values(metric), 0.0)
        total = self.sum(metric)
        return values, pct_of(float(values.sum()), total)

    def say(self, rule: str, title: str, numbers: dict[str, float | str], *, worth_ns: float | None = None, advice: str = "",
            severity: str = "medium") -> Finding:
        evidence = dict(numbers)
        if worth_ns is None and (estimate := self.nvidia_pct(rule)) is not None:
            most = gains.most_pct(rule, self.facts)              # as the advice about the kernel caps it
            pct = estimate if most is None else min(estimate, most)
            worth_ns, evidence["nvidia_estimate_pct"] = self.total_ns * pct / 100.0, estimate
            title = f"{title}; NVIDIA estimates up to {pct_text(estimate)} less time"
            title += f", here at most {pct_text(pct)}" if pct < estimate - 0.5 else ""
        if worth_ns is not None and worth_ns >= HIGH_PCT / 100.0 * self.report_ns:
            severity = "high"
        return Finding(f"source.{rule}", severity, f"{self.title}: {title}", advice or ADVICE[rule], evidence, worth_ns,
                     self.launch.kernel)

    def nvidia_pct(self, rule: str) -> float | None:
        """Return NVIDIA's estimate for the fault of one of our rules, or None.

        In percent of the kernel's whole time.
        """
        estimates = [each.speedup_pct for each in self.launch.rules for identifier, word in NVIDIA.get(rule, ())
                 if each.identifier == identifier and word in each.title and each.speedup_scope == "global" and each.speedup_pct]
        return min(estimates, default=None)


def kernels_of(report: Report) -> list[list[Kernel]]:
    """The launches of each kernel that are looked at, the longest of each grid first."""
    times: dict[str, float] = {}
    longest: dict[str, dict[object, tuple[float, CounterLaunch]]] = {}
    for launch in report.launches:
        duration = launch.metrics.get("gpu__time_duration.sum")
        if launch.incomplete or not isinstance(duration, int | float):
            continue
        times[launch.kernel] = times.get(launch.kernel, 0.0) + duration
        of_grid = longest.setdefault(launch.kernel, {})
        if launch.instructions is not None and duration > of_grid.get((launch.grid, launch.block), (-1.0, None))[0]:
            of_grid[launch.grid, launch.block] = (float(duration), launch)
    total = sum(times.values())
    out = []
    for name, of_grid in longest.items():
        if of_grid and times[name] >= SHARE_PCT / 100.0 * total:
            ranked = sorted(of_grid.values(), key=lambda pair: -pair[0])[:LAUNCHES]
            out.append([Kernel(launch, report.files, times[name], total, duration) for duration, launch in ranked])
    return out
