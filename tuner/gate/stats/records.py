"""A file of runs, line by line: plain or gzip, its size bounded, each field checked; `files` has the format.

What is no run is refused with its field. A sample that is a number but no time (NaN, zero, negative) is kept, and so is a run
that failed (`us` is null): the verdict says what it means.
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

from tuner.gate.stats.rule import finite_number
from tuner.gate.stats.runs import KernelRuns, Run, identity_text

MOST_BYTES = 512 * 2**20            # unpacked
MOST_LINE_BYTES = 4 * 2**20
CHUNK = 2**20
EXPECTED = "expected JSON Lines: one object a run and kernel, with run, op, shape and us (samples in µs)"


class RunsError(ValueError):
    """The file cannot be read: `where` (file and line), `what`, `hint`."""

    def __init__(self, what: str, *, path: str = "", line: int | None = None,
                 hint: str = EXPECTED) -> None:
        self.what, self.path, self.line, self.hint = what, path, line, hint
        self.where = ", ".join(part for part in (path, f"line {line}" if line else "") if part)
        super().__init__(f"{self.where}: {what}" if self.where else what)


class RecordError(Exception):
    """What is wrong with a line."""


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield lines without their ends.

    Errors of the file and of its compression become RunsError with the line reached.
    """
    index, rest, total = 0, b"", 0
    try:
        with path.open("rb") as opened:
            packed = opened.peek(2)[:2] == b"\x1f\x8b"      # a pipe cannot go back
            source = gzip.GzipFile(fileobj=opened) if packed else opened
            while chunk := source.read1(CHUNK):
                total += len(chunk)
                if total > MOST_BYTES:
                    raise RunsError(f"more than {MOST_BYTES >> 20} MiB unpacked", path=str(path), line=index + 1,
                                    hint="split the file")
                *whole, rest = (rest + chunk).split(b"\n")
                if len(rest) > MOST_LINE_BYTES:
                    raise RunsError(f"a line of more than {MOST_LINE_BYTES >> 20} MiB", path=str(path), line=index + len(whole) + 1)
                for line in whole:
                    index += 1
                    yield line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise RunsError(f"the compressed file is damaged or cut short ({error})", path=str(path), line=index + 1,
                        hint="write or copy it again") from None
    except OSError as error:
        raise RunsError(error.strerror or str(error), path=str(path), hint="name a file of runs that can be read") from None
    if rest:
        yield rest


def parse_line(line: str | bytes) -> Mapping[str, Any]:
    """Return the object of a line. Raises RecordError."""
    try:
        record = json.loads(line)
    except UnicodeDecodeError:
        raise RecordError("no UTF-8 text") from None
    except RecursionError:
        raise RecordError("nested too deep") from None
    except json.JSONDecodeError as error:
        raise RecordError(f"no JSON: {error.msg.removesuffix(' at')} at column {error.colno} (was the file cut short?)") from None
    except ValueError:
        raise RecordError("a number has too many digits") from None
    if not isinstance(record, dict):
        raise RecordError("expected an object")
    return record


MOST_SAMPLES = 100_000              # of one run
MOST_TEXT = 300
MOST_FIELDS = 64                    # of a shape, a configuration, a line's metrics
DEEPEST = 3                         # lists in objects in objects
FACTS = ("registers", "spills", "smem_bytes", "dram_bytes", "tensor_pct")
VERSIONS = ("cuda", "triton", "torch", "driver", "toolkit")
HEAD = ("op", "shape", "config", "key", "dtype", "gpu", "environment", *VERSIONS)      # what lines share with others

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Head:
    """Which kernel, and where it ran."""

    op: str
    shape: Any                                  # as the file says it
    config: Any
    key: str
    gpu: str
    environment: str


@dataclass(frozen=True)
class Line:
    run: Run
    notes: list[str] = field(default_factory=list)


def read_head(record: Mapping[str, Any]) -> Head:
    """Return which kernel a line is of, and where it ran. Raises RecordError."""
    op, shape, config = _name(record, "op"), _named(record, "shape"), _named(record, "config")
    if (dtype := _name(record, "dtype", "")) and isinstance(shape or {}, Mapping) and "dtype" not in (shape or {}):
        shape = {**(shape or {}), "dtype": dtype}
    return Head(op, {} if shape is None else shape, config, _name(record, "key", ""), _gpu(record), _environment(record))


def read_run(record: Mapping[str, Any], head: Head) -> Line:
    """Return the run of a line. Raises RecordError."""
    label = record.get("run")
    if isinstance(label, float) and label.is_integer():
        label = int(label)                      # pandas makes a float of a column that has a gap
    if isinstance(label, bool) or not isinstance(label, (int, str)):
        raise RecordError("run: expected a number or a name of the process" if "run" in record else
                    "run: not there; name the process, since the samples of one agree better than those of two")
    facts = {name: record[name] for name in FACTS if finite_number(record.get(name)) is not None}
    metrics = record.get("metrics")
    if metrics is not None and not isinstance(metrics, Mapping):
        raise RecordError("metrics: expected an object")
    for name, value in (_value(metrics, "metrics") or {}).items():
        if finite_number(value) is None:
            raise RecordError(f"metrics.{name}: expected a number")
        facts[name] = value
    name = _text(str(label), "run")
    us = _samples(record)
    failed = record.get("error") or record.get("rejected")
    notes = [f"run {name} has no samples: {' '.join(str(failed).split())[:MOST_TEXT]}"] if not us.size and failed else []
    return Line(Run(name, us, _clock(record), head.gpu, head.environment, facts), notes)


def _samples(record: Mapping[str, Any]) -> Floats:
    samples = record.get("us")
    if samples is None and ("us" in record or record.get("error") or record.get("rejected")):
        return np.empty(0)                      # the run failed
    if samples is None:
        raise RecordError("us: not there; expected a list of times in µs")
    if not isinstance(samples, list):
        samples = [samples]                     # a single number is a single sample
    if len(samples) > MOST_SAMPLES:
        raise RecordError(f"us: more than {MOST_SAMPLES:,} samples")
    if not set(map(type, samples)) <= {int, float, type(None)}:
        samples = [_sample(index, value) for index, value in enumerate(samples)]
    try:
        return np.asarray(samples, dtype=np.float64)          # null becomes NaN
    except OverflowError:
        raise RecordError("us: a number is too large") from None


def _sample(at: int, value: Any) -> int | float | None:
    """A number, also one that is written as a text: "195.5", "NaN"."""
    if type(value) in (int, float, type(None)):
        return value                            # type: ignore[no-any-return]
    if isinstance(value, str) and len(value) < 40 and "_" not in value:
        try:
            return float(value)
        except ValueError:
            pass
    raise RecordError(f"us[{at}]: expected a number, not {json.dumps(value, default=str)[:40]}")


def _gpu(record: Mapping[str, Any]) -> str:
    """The model: text, or the `name` of an object."""
    gpu = record.get("gpu")
    return _name(gpu, "name", "") if isinstance(gpu, Mapping) else _name(record, "gpu", "")


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
    mhz = finite_number(value)
    return mhz if mhz is not None and mhz > 0 else None


def _environment(record: Mapping[str, Any]) -> str:
    """"cuda 13.0, driver 580.159": names in order, so that the same environment has the same text."""
    environment = record.get("environment")
    if isinstance(environment, str):
        return _text(environment, "environment")
    if environment is not None and not isinstance(environment, Mapping):
        raise RecordError("environment: expected text or an object")
    versions = dict(_value(environment, "environment") or {})
    for name in VERSIONS:
        if isinstance(record.get(name), (str, int, float)) and name not in versions:
            versions[name] = record[name]
    return _text(", ".join(f"{name} {versions[name]}" for name in sorted(versions)), "environment")


def _name(record: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = record.get(name, default)
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or (not value and default is None):
        raise RecordError(f"{name}: expected a name")
    return _text(value, name)


def _named(record: Mapping[str, Any], name: str) -> Any:
    """A shape, a configuration: an object, a list, a text or a number."""
    return _value(record.get(name), name)


def _value(value: Any, where: str, depth: int = DEEPEST) -> Any:
    """Names, finite numbers, true, false and null, and lists and objects of them; all of it short."""
    if isinstance(value, str):
        return _text(value, where)
    if value is None or isinstance(value, bool) or finite_number(value) is not None:
        return value
    if not isinstance(value, (Mapping, list)):
        raise RecordError(f"{where}: expected text, a finite number, true or false")
    if depth == 0:
        raise RecordError(f"{where}: nested too deep")
    if len(value) > MOST_FIELDS:
        raise RecordError(f"{where}: more than {MOST_FIELDS} fields")
    if isinstance(value, list):
        return [_value(element, f"{where}[{index}]", depth - 1) for index, element in enumerate(value)]
    return {_text(str(name), f"{where}'s names"): _value(element, f"{where}.{name}", depth - 1) for name, element in value.items()}


def _text(value: str, where: str) -> str:
    if len(value) > MOST_TEXT:
        raise RecordError(f"{where}: longer than {MOST_TEXT} characters")
    if not value.isprintable() and any(ord(letter) < 32 or 0xD800 <= ord(letter) <= 0xDFFF for letter in value):
        raise RecordError(f"{where}: has characters that are no text")
    return value


# Runs from a file: JSON Lines, one line a run and kernel, as tests/data/h200/timing_runs.jsonl.gz has them.
#
# {"run": 1, "op": "matmul", "shape": {"M": 4096}, "config": {"BM": 128}, "clocks": "1980, 3201, 38, 108.6", "us": [195.5, …]}
#
# `clocks` is "SM MHz, memory MHz, °C, W". Optional: `key`, `gpu`, `environment` (text, or {"cuda": …, "driver": …}),
# `sm_clock_mhz`, `dtype`, and numbers to gate on: `registers`, `spills`, `smem_bytes`, `dram_bytes`, `metrics` {name: number}.
# Shapes and configurations may be lists or texts too, samples texts of numbers. `us` is null where a run failed.

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
        for process in self.processes.values():
            run = process.as_run()
            notes += process.notes
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
    for number, line in enumerate(each_line, 1):
        if number > MOST_LINES:
            raise RunsError(f"more than {MOST_LINES:,} lines", path=path, line=number, hint="split the file")
        if not isinstance(line, Mapping) and not line.strip():
            continue
        try:
            samples += _add_record(kernels, heads, line if isinstance(line, Mapping) else parse_line(line))
        except RecordError as wrong:
            raise RunsError(str(wrong), path=path, line=number) from None
        if samples > MOST_ALL_SAMPLES:
            raise RunsError(f"more than {MOST_ALL_SAMPLES:,} samples", path=path, line=number, hint="split the file")
    return [kernel.as_runs() for kernel in kernels.values()]


def _add_record(kernels: dict[str, _Kernel], heads: dict[str, tuple[_Kernel, Head]], record: Mapping[str, Any]) -> int:
    """How many samples it brought. What most lines share with others is checked once."""
    try:
        text = repr([record.get(name) for name in HEAD])
    except RecursionError:
        raise RecordError("nested too deep") from None
    if (pair := heads.get(text)) is None:
        head = read_head(record)
        pair = _ensure_kernel(kernels, head), head
        if len(heads) < MOST_KERNELS:
            heads[text] = pair
    kernel, head = pair
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
