"""Runs from a file: JSON Lines, one line a run and kernel, as tests/data/h200/timing_runs.jsonl.gz has them.

    {"run": 1, "op": "matmul", "shape": {"M": 4096}, "config": {"BM": 128}, "clocks": "1980, 3201, 38, 108.6", "us": [195.5, …]}

`clocks` is "SM MHz, memory MHz, °C, W". Optional: `key`, `gpu`, `environment` (text, or {"cuda": …, "driver": …}),
`sm_clock_mhz`, `dtype`, and numbers to gate on: `registers`, `spills`, `smem_bytes`, `dram_bytes`, `metrics` {name: number}.
Shapes and configurations may be lists or texts too, samples texts of numbers. `us` is null where a run failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.gate.stats.records import HEAD, Head, Line, RecordError, RunsError, parse_line, read_head, read_lines, read_run
from tuner.gate.stats.runs import KernelRuns, Run, identity_text

__all__ = ["RunsError", "read_runs"]

MOST_LINES = 1_000_000
MOST_ALL_SAMPLES = 50_000_000       # 400 MB
MOST_KERNELS = 10_000
TELLING_SAMPLES = 5                 # equal one by one in two processes: one of them is a copy


@dataclass
class _Kernel:
    head: Head                                  # of its first line
    processes: dict[tuple[str, str, str], _Process] = field(default_factory=dict)

    def as_runs(self) -> KernelRuns:
        runs: dict[object, Run] = {}             # by samples: a process that was copied under other names is one witness
        notes: list[str] = []
        for each in self.processes.values():
            run = each.as_run()
            notes += each.notes
            first = runs.setdefault(run.us.tobytes() if _is_distinctive(run.us) else object(), run)
            if first is not run:
                notes.append(f"run {run.run} holds the samples of run {first.run}, one by one: counted once")
        return KernelRuns(self.head.op, self.head.shape, self.head.config, self.head.key, list(runs.values()), notes)


@dataclass
class _Process:
    """A process is one run: what it measured twice is not two witnesses."""

    first: Run
    parts: dict[bytes, NDArray[np.float64]]         # by their bytes: different ones in order
    notes: dict[str, None] = field(default_factory=dict)            # each once, in order

    def add(self, us: NDArray[np.float64]) -> None:
        if us.tobytes() in self.parts:
            self.notes[f"run {self.first.run} came more than once with the same samples: counted once"] = None
            return
        self.parts[us.tobytes()] = us
        self.notes[f"run {self.first.run} came more than once: a process is one run, so its samples were joined"] = None

    def as_run(self) -> Run:
        return self.first if len(self.parts) == 1 else replace(self.first, us=np.concatenate(list(self.parts.values())))


def _is_distinctive(us: NDArray[np.float64]) -> bool:
    """Whether two processes cannot have measured just these by chance: timers count in 32 ns, so a few may agree."""
    return len(us) >= TELLING_SAMPLES and bool(np.ptp(us) > 0)


def read_runs(source: str | Path | Iterable[str | bytes | Mapping[str, Any]]) -> list[KernelRuns]:
    """Read the runs of a file, of its lines, or of records that are parsed already. Raises RunsError.

    Gzip is told by the first bytes.
    """
    path = str(source) if isinstance(source, (str, Path)) else ""
    each_line: Iterable[str | bytes | Mapping[str, Any]] = read_lines(Path(source)) if isinstance(source, (str, Path)) else source
    kernels: dict[str, _Kernel] = {}
    heads: dict[str, tuple[_Kernel, Head]] = {}
    samples = 0
    for at, line in enumerate(each_line, 1):
        if at > MOST_LINES:
            raise RunsError(f"more than {MOST_LINES:,} lines", path=path, line=at, hint="split the file")
        if not isinstance(line, Mapping) and not line.strip():
            continue
        try:
            samples += _add_record(kernels, heads, line if isinstance(line, Mapping) else parse_line(line))
        except RecordError as wrong:
            raise RunsError(str(wrong), path=path, line=at) from None
        if samples > MOST_ALL_SAMPLES:
            raise RunsError(f"more than {MOST_ALL_SAMPLES:,} samples", path=path, line=at, hint="split the file")
    return [each.as_runs() for each in kernels.values()]


def _add_record(kernels: dict[str, _Kernel], heads: dict[str, tuple[_Kernel, Head]], record: Mapping[str, Any]) -> int:
    """How many samples it brought. What most lines share with others is checked once."""
    try:
        text = repr([record.get(name) for name in HEAD])
    except RecursionError:
        raise RecordError("nested too deep") from None
    if (known := heads.get(text)) is None:
        head = read_head(record)
        known = _ensure_kernel(kernels, head), head
        if len(heads) < MOST_KERNELS:
            heads[text] = known
    kernel, head = known
    line: Line = read_run(record, head)
    run = line.run
    process = (run.run, run.gpu, run.environment)
    if process in kernel.processes:
        kernel.processes[process].add(run.us)
    else:
        kernel.processes[process] = _Process(run, {run.us.tobytes(): run.us})
    kernel.processes[process].notes.update(dict.fromkeys(line.notes))
    return len(run.us)


def _ensure_kernel(kernels: dict[str, _Kernel], head: Head) -> _Kernel:
    identity = identity_text(head.op, head.shape, head.config, head.key)
    if identity not in kernels and len(kernels) >= MOST_KERNELS:
        raise RecordError(f"more than {MOST_KERNELS:,} kernels")
    return kernels.setdefault(identity, _Kernel(head))
