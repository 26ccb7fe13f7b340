"""Runs from a file: JSON Lines, one line a run and kernel, as tests/data/h200/timing_runs.jsonl.gz has them.

    {"run": 1, "op": "matmul", "shape": {"M": 4096}, "config": {"BM": 128}, "clocks": "1980, 3201, 38, 108.6", "us": [195.5, …]}

`clocks` is "SM MHz, memory MHz, °C, W". Optional: `key`, `gpu`, `environment` (text, or {"cuda": …, "driver": …}),
`sm_clock_mhz`, `dtype`, and numbers to gate on: `registers`, `spills`, `smem_bytes`, `dram_bytes`, `metrics` {name: number}.
A file is hostile until read: what it may hold is bounded, and what is no run is refused with its line and field. A sample that
is a number but no time (NaN, zero, negative) is kept: the verdict says what it means.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profiles.analysis.gate.metrics import number
from profiles.analysis.gate.runs import KernelRuns, Run

MOST_LINES = 1_000_000
MOST_BYTES = 512 * 2**20            # unpacked
MOST_LINE_BYTES = 4 * 2**20
MOST_SAMPLES = 100_000              # of one run
MOST_ALL_SAMPLES = 50_000_000       # 400 MB
MOST_KERNELS = 10_000
MOST_TEXT = 300
MOST_FIELDS = 64                    # of a shape, a configuration, a line's metrics
FACTS = ("registers", "spills", "smem_bytes", "dram_bytes", "tensor_pct")
VERSIONS = ("cuda", "triton", "torch", "driver", "toolkit")
HEAD = ("op", "shape", "config", "key", "dtype", "gpu", "environment", *VERSIONS)
CHUNK = 2**20
TELLING_SAMPLES = 5                 # equal one by one in two processes: one of them is a copy
EXPECTED = "expected JSON Lines: one object a run and kernel, with run, op, shape and us (samples in µs)"


class RunsError(ValueError):
    """The file cannot be read: `where` (file and line), `what`, `hint`."""

    def __init__(self, what: str, *, path: str = "", line: int | None = None,
                 hint: str = EXPECTED) -> None:
        self.what, self.path, self.line, self.hint = what, path, line, hint
        self.where = ", ".join(part for part in (path, f"line {line}" if line else "") if part)
        super().__init__(f"{self.where}: {what}" if self.where else what)


@dataclass
class _Kernel:
    op: str
    shape: Mapping[str, Any]
    config: Mapping[str, Any] | None
    key: str
    processes: dict[tuple[str, str, str], _Process] = field(default_factory=dict)

    def as_runs(self) -> KernelRuns:
        runs: dict[object, Run] = {}             # by samples: a process that was copied under other names is one witness
        notes: list[str] = []
        for each in self.processes.values():
            run = each.as_run()
            notes += each.notes
            first = runs.setdefault(run.us.tobytes() if _telling(run.us) else object(), run)
            if first is not run:
                notes.append(f"run {run.run} holds the samples of run {first.run}, one by one: counted once")
        return KernelRuns(self.op, self.shape, self.config, self.key, list(runs.values()), notes)


@dataclass
class _Process:
    """A process is one run: what it measured twice is not two witnesses."""

    first: Run
    parts: dict[bytes, NDArray[np.float64]]         # by their bytes: different ones in order
    notes: set[str] = field(default_factory=set)

    def add(self, us: NDArray[np.float64]) -> None:
        if us.tobytes() in self.parts:
            self.notes.add(f"run {self.first.run} came more than once with the same samples: counted once")
            return
        self.parts[us.tobytes()] = us
        self.notes.add(f"run {self.first.run} came more than once: a process is one run, so its samples were joined")

    def as_run(self) -> Run:
        return self.first if len(self.parts) == 1 else replace(self.first, us=np.concatenate(list(self.parts.values())))


def _telling(us: NDArray[np.float64]) -> bool:
    """Whether two processes cannot have measured just these by chance: timers count in 32 ns, so a few may agree."""
    return len(us) >= TELLING_SAMPLES and bool(np.ptp(us) > 0)


def read(source: str | Path | Iterable[str | bytes | Mapping[str, Any]]) -> list[KernelRuns]:
    """A file (gzip is told by its first bytes), lines of one, or records that are parsed already. Raises RunsError."""
    path = str(source) if isinstance(source, (str, Path)) else ""
    lines: Iterable[str | bytes | Mapping[str, Any]] = _lines(Path(source)) if isinstance(source, (str, Path)) else source
    kernels: dict[str, _Kernel] = {}
    heads: dict[str, _Head] = {}
    samples = 0
    for at, line in enumerate(lines, 1):
        if at > MOST_LINES:
            raise RunsError(f"more than {MOST_LINES:,} lines", path=path, line=at, hint="split the file")
        if not isinstance(line, Mapping) and not line.strip():
            continue
        try:
            samples += _add(kernels, heads, line if isinstance(line, Mapping) else _parse(line))
        except _Wrong as wrong:
            raise RunsError(str(wrong), path=path, line=at) from None
        if samples > MOST_ALL_SAMPLES:
            raise RunsError(f"more than {MOST_ALL_SAMPLES:,} samples", path=path, line=at, hint="split the file")
    return [each.as_runs() for each in kernels.values()]


class _Wrong(Exception):
    """What is wrong with a line."""


def _lines(path: Path) -> Iterator[bytes]:
    """Lines without their ends. Errors of the file and of its compression become RunsError with the line reached."""
    at, kept, total = 0, b"", 0
    try:
        with path.open("rb") as opened:
            packed = opened.read(2) == b"\x1f\x8b"
            opened.seek(0)
            source = gzip.GzipFile(fileobj=opened) if packed else opened
            while chunk := source.read1(CHUNK):
                total += len(chunk)
                if total > MOST_BYTES:
                    raise RunsError(f"more than {MOST_BYTES >> 20} MiB unpacked", path=str(path), line=at + 1,
                                    hint="split the file")
                *whole, kept = (kept + chunk).split(b"\n")
                if len(kept) > MOST_LINE_BYTES:
                    raise RunsError(f"a line of more than {MOST_LINE_BYTES >> 20} MiB", path=str(path), line=at + len(whole) + 1)
                for line in whole:
                    at += 1
                    yield line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise RunsError(f"the compressed file is damaged or cut short ({error})", path=str(path), line=at + 1,
                        hint="write or copy it again") from None
    except OSError as error:
        raise RunsError(error.strerror or str(error), path=str(path), hint="name a file of runs that can be read") from None
    if kept:
        yield kept


def _parse(line: str | bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except UnicodeDecodeError:
        raise _Wrong("no UTF-8 text") from None
    except RecursionError:
        raise _Wrong("nested too deep") from None
    except json.JSONDecodeError as error:
        raise _Wrong(f"no JSON: {error.msg} at column {error.colno} (was the file cut short?)") from None
    except ValueError:
        raise _Wrong("a number has too many digits") from None
    if not isinstance(found, dict):
        raise _Wrong("expected an object")
    return found


@dataclass(frozen=True)
class _Head:
    """What most lines of a file share with another: checked once."""

    kernel: _Kernel
    gpu: str
    environment: str


def _add(kernels: dict[str, _Kernel], heads: dict[str, _Head], record: Mapping[str, Any]) -> int:
    """How many samples it brought."""
    try:
        text = repr([record.get(name) for name in HEAD])
    except RecursionError:
        raise _Wrong("nested too deep") from None
    head = heads.get(text)
    if head is None:
        head = _head(kernels, record)
        if len(heads) < MOST_KERNELS:
            heads[text] = head
    run = _run(record, head)
    process = (run.run, run.gpu, run.environment)
    if process in head.kernel.processes:
        head.kernel.processes[process].add(run.us)
    else:
        head.kernel.processes[process] = _Process(run, {run.us.tobytes(): run.us})
    return len(run.us)


def _head(kernels: dict[str, _Kernel], record: Mapping[str, Any]) -> _Head:
    op, shape, config = _name(record, "op"), _flat(record, "shape") or {}, _flat(record, "config")
    key = _name(record, "key", "")
    if (dtype := _name(record, "dtype", "")) and "dtype" not in shape:
        shape = {**shape, "dtype": dtype}
    identity = json.dumps([op, shape, config, key], sort_keys=True)
    if identity not in kernels and len(kernels) >= MOST_KERNELS:
        raise _Wrong(f"more than {MOST_KERNELS:,} kernels")
    return _Head(kernels.setdefault(identity, _Kernel(op, shape, config, key)), _gpu(record), _environment(record))


def _run(record: Mapping[str, Any], head: _Head) -> Run:
    label = record.get("run")
    if isinstance(label, bool) or not isinstance(label, (int, str)):
        raise _Wrong("run: expected a number or a name of the process")
    samples = record.get("us")
    if not isinstance(samples, list):
        raise _Wrong("us: expected a list of times in µs")
    if len(samples) > MOST_SAMPLES:
        raise _Wrong(f"us: more than {MOST_SAMPLES:,} samples")
    if not set(map(type, samples)) <= {int, float, type(None)}:
        at, value = next((at, value) for at, value in enumerate(samples) if type(value) not in (int, float, type(None)))
        raise _Wrong(f"us[{at}]: expected a number, not {json.dumps(value, default=str)[:40]}")
    try:
        us = np.asarray(samples, dtype=np.float64)          # null becomes NaN
    except OverflowError:
        raise _Wrong("us: a number is too large") from None
    facts = {name: record[name] for name in FACTS if number(record.get(name)) is not None}
    for name, value in (_flat(record, "metrics") or {}).items():
        if number(value) is None:
            raise _Wrong(f"metrics.{name}: expected a number")
        facts[name] = value
    return Run(_text(str(label), "run"), us, _clock(record), head.gpu, head.environment, facts)


def _gpu(record: Mapping[str, Any]) -> str:
    """The model: text, or the `name` of an object."""
    said = record.get("gpu")
    return _name(said, "name", "") if isinstance(said, Mapping) else _name(record, "gpu", "")


def _clock(record: Mapping[str, Any]) -> float | None:
    """SM MHz; a clock that cannot be read is not known."""
    value = record.get("sm_clock_mhz")
    if value is None:
        text = record.get("clocks")
        if isinstance(text, Mapping):
            value = text.get("sm_mhz")
        elif isinstance(text, str):
            try:
                value = float(text.split(",")[0])
            except ValueError:
                value = None
    found = number(value)
    return found if found is not None and found > 0 else None


def _environment(record: Mapping[str, Any]) -> str:
    """"cuda 13.0, driver 580.159": names in order, so that the same environment has the same text."""
    said = record.get("environment")
    if isinstance(said, str):
        return _text(said, "environment")
    known = _flat(record, "environment") or {}
    for name in VERSIONS:
        if isinstance(record.get(name), (str, int, float)) and name not in known:
            known = {**known, name: record[name]}
    return _text(", ".join(f"{name} {known[name]}" for name in sorted(known)), "environment")


def _name(record: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = record.get(name, default)
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or (not value and default is None):
        raise _Wrong(f"{name}: expected a name")
    return _text(value, name)


def _flat(record: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """An object of names and plain values."""
    value = record.get(name)
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise _Wrong(f"{name}: expected an object")
    if len(value) > MOST_FIELDS:
        raise _Wrong(f"{name}: more than {MOST_FIELDS} fields")
    for field_name, each in value.items():
        _text(str(field_name), f"{name}'s names")
        if isinstance(each, str):
            _text(each, f"{name}.{field_name}")
        elif each is not None and not isinstance(each, bool) and number(each) is None:
            raise _Wrong(f"{name}.{field_name}: expected text, a finite number, true or false")
    return dict(value)


def _text(value: str, where: str) -> str:
    if len(value) > MOST_TEXT:
        raise _Wrong(f"{where}: longer than {MOST_TEXT} characters")
    if not value.isprintable() and any(ord(letter) < 32 or 0xD800 <= ord(letter) <= 0xDFFF for letter in value):
        raise _Wrong(f"{where}: has characters that are no text")
    return value
