"""Uploaded runs before they are rows: JSON lines in the format of timing_runs.jsonl, checked one by one. Standard library.

    {"run": 1, "op": "matmul", "shape": {"M": 4096, …}, "config": {…}, "us": [195.488, …], "clocks": "1980, 3201, 38, 108.56"}

One line is one kernel in one fresh process; kernels of one process share `run`. Beside these a line may say dtype, tag,
sm_clock_mhz, registers, spills, smem_bytes, facts, metrics, gpu, gpu_uuid (the card), toolkit (or cuda and triton), driver,
source_hash and rejected.

The process of a run is known by its name: two uploads of a build with the same names of runs are the same processes, unless they
say that they are shard i of n, or come from another attempt of the pipeline. No rows are read here.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from profiles.base.refused import Refused
from tuner.gate.stats.metrics import mixed_units
from tuner.gate.stats.rule import finite_number
from tuner.gate.stats.sides import SHORTEST_US
from tuner.gate.suites.definition import is_plain_value
from tuner.tuning.trial import storable

MOST_SHARDS = 999
MOST_ATTEMPT = 120              # characters
SHARD = re.compile(r"(?:shard\s+)?(\d{1,3})\s*(?:/|\bof\b)\s*(\d{1,3})", re.IGNORECASE)
UPLOAD = "upload"               # of KernelRun.environment: {"shard"?: "2/4", "attempt"?: text, "process"?: the run's own name}


@dataclass(frozen=True)
class Upload:
    """What is said of all runs of one upload."""

    shard: str = ""             # "2/4"
    attempt: str = ""           # of the pipeline's job: its id and how often it was tried

    def label(self, run: str) -> str:
        """Return the name of a process: runs of two shards are never one."""
        return f"{run} of shard {self.shard}" if self.shard else run

    def facts(self, label: str, stored: str) -> dict[str, Any]:
        """Return what the row keeps of it; `stored`: its name where `label` was taken by another attempt."""
        fields = {"shard": self.shard, "attempt": self.attempt, "process": label if label != stored else ""}
        return {name: value for name, value in fields.items() if value}


def read_upload(shard: str, attempt: str) -> Upload:
    """Return what a request says. Raises Refused."""
    if len(attempt) > MOST_ATTEMPT or not (attempt or " ").isprintable():
        raise Refused({"attempt": f"at most {MOST_ATTEMPT} printable characters"})
    if not shard.strip():
        return Upload("", attempt.strip())
    match = SHARD.fullmatch(shard.strip())
    number, of = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= of <= MOST_SHARDS:
        raise Refused({"shard": f"i/n, the first is 1 and n at most {MOST_SHARDS}: 2/4"})
    return Upload(f"{number}/{of}", attempt.strip())


def missing_shards(shards: Iterable[str]) -> tuple[list[int], int]:
    """Return which of how many shards have sent nothing; `shards` of a build's runs, newest first. ([], 0) where none is said.

    A pipeline that was split anew is judged by its newest number of shards.
    """
    pairs = [(int(number), int(of)) for number, _, of in (shard.partition("/") for shard in shards if shard)]
    if not pairs:
        return [], 0
    newest = pairs[0][1]
    here = {number for number, of in pairs if of == newest}
    return [number for number in range(1, newest + 1) if number not in here], newest


def repeated_note(repeated: int) -> str:
    """Return what is said of runs that were measured under the name of a process that is there; "" of none."""
    if not repeated:
        return ""
    lines, are = ("run", "is") if repeated == 1 else ("runs", "are")
    return (f"{repeated:,} {lines} that came {are} of processes that are there already, with other samples: the first ones count. "
            "Name new processes otherwise, or say shard i/n or the attempt")


def shards_note(missing: Sequence[int], of: int) -> str:
    """Return which shards a gate waits for; "" where none is missing."""
    if not missing:
        return ""
    named = ", ".join(map(str, missing[:10])) + (" …" if len(missing) > 10 else "")
    return f"waits for shard{'s' if len(missing) > 1 else ''} {named} of {of}"


def shard_of(environment: Mapping[str, Any]) -> str:
    """Return the shard that a stored run is of, "" without one."""
    upload = environment.get(UPLOAD)
    return str(upload.get("shard") or "") if isinstance(upload, Mapping) else ""


def expected_kernels(rows: Iterable[tuple[str, int]]) -> dict[str, set[int]]:
    """Return shard → kernels that each of its processes should have; `rows`: (shard, kernel).

    Shards that hold kernels of their own are asked for those alone; shards of processes, for all that any of them has.
    """
    of: dict[str, set[int]] = defaultdict(set)
    for shard, kernel in rows:
        of[shard].add(kernel)
    every = set().union(*of.values())
    shared = [kernel for kernel in every if sum(kernel in group for group in of.values()) > 1]
    return {shard: every if 2 * len(shared) > len(every) else mine for shard, mine in of.items()}


MAX_BYTES = 32 * 2**20                   # of the file, unpacked
MAX_RECORDS, MAX_SAMPLES = 50_000, 20_000
MAX_SAMPLES_IN_ALL = 2_000_000           # of one upload: 13 kernels × 24 runs × 100 samples are 31,200
MIN_US, MAX_US = 1e-6, 1e9               # µs: a sample longer than 1,000 s is no measurement of a kernel
FACTS = ("registers", "spills", "smem_bytes")
WORDS = {"dtype": 16, "tag": 60, "gpu": 120, "toolkit": 80, "driver": 40, "source_hash": 64, "cuda": 40, "triton": 40,
         "gpu_uuid": 80}


@dataclass(frozen=True)
class Record:
    """One line. `us` in µs in the order taken; empty where it was rejected, and then `rejected` says why."""

    line: int
    run: str
    op: str
    shape: Mapping[str, Any]
    config: Mapping[str, Any] | None
    us: tuple[float, ...]
    rejected: str = ""
    sm_clock_mhz: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)       # those of WORDS that the line says


def read_records(given: bytes | Iterable[Any]) -> list[Record]:
    """Return every line of a file (JSONL, or gzip of it), or every object of a list.

    Refused says the line and the field.
    """
    lines = _read_objects(bytes(given)) if isinstance(given, bytes | bytearray) else enumerate(given, start=1)
    records: list[Record] = []
    samples = 0
    for number, line in lines:
        if len(records) >= MAX_RECORDS:
            raise Refused({"runs": f"more than {MAX_RECORDS:,} lines; send them in parts"})
        records.append(_read_record(number, line))
        samples += len(records[-1].us)
        if samples > MAX_SAMPLES_IN_ALL:
            raise Refused({"runs": f"more than {MAX_SAMPLES_IN_ALL:,} samples; send them in parts"})
    if not records:
        raise Refused({"runs": "no runs: one JSON object a line, with op, shape, run and us"})
    return records


def _read_objects(data: bytes) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(_unpack(data).split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line)
        except RecursionError as error:
            raise _line_error(number, "", "nested too deeply") from error
        except json.JSONDecodeError as error:
            message = error.msg.removesuffix(" at")
            raise _line_error(number, "", f"not JSON: {message} at column {error.colno}; was the file cut short?") from error
        except ValueError as error:
            raise _line_error(number, "", f"not JSON: {str(error)[:120]}") from error


def _unpack(data: bytes) -> bytes:
    if data[:2] == b"\x1f\x8b":
        try:
            with gzip.open(io.BytesIO(data)) as packed:
                data = packed.read(MAX_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise Refused({"runs": f"not a whole gzip file: {error}"[:200]}) from error
    if len(data) > MAX_BYTES:
        raise Refused({"runs": f"more than {MAX_BYTES >> 20} MiB; send them in parts"})
    return data


def _read_record(number: int, given: Any) -> Record:
    if not isinstance(given, Mapping):
        raise _line_error(number, "", "a run is a JSON object")
    words = {name: _text(number, name, text, most) for name, most in WORDS.items() if (text := given.get(name)) is not None}
    words = {**_environment(number, given.get("environment")), **words}
    rejected = _text(number, "rejected", given.get("rejected") or "", 300, cut=True)
    problem = rejected or samples_problem(given.get("us"))
    return Record(
        line=number, run=_run(number, given.get("run")), op=_op(number, given.get("op")),
        shape=_table(number, "shape", given.get("shape", {})), config=_config(number, given.get("config")),
        us=() if problem else tuple(float(value) for value in given["us"]), rejected=problem or "",
        sm_clock_mhz=_clock(given), facts=_facts(number, given), words=words)


def samples_problem(us: Any) -> str | None:
    """Return why these are no samples, in words; None when they are.

    A run with such samples is kept as rejected: nothing is guessed.
    """
    if not isinstance(us, list | tuple) or not us:
        return "no samples"
    if len(us) > MAX_SAMPLES:
        return f"{len(us):,} samples; at most {MAX_SAMPLES:,}"
    for index, value in enumerate(us):
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"sample {index} is no number"
        if MIN_US <= value < SHORTEST_US:
            return f"sample {index} is {value:g} µs, shorter than any launch ({SHORTEST_US:g} µs): units?"
        if not MIN_US <= value <= MAX_US:
            text = f"{value:g}" if isinstance(value, float) or abs(value) < 10**15 else "too large"
            return f"sample {index} is {text}: times in µs are from 1e-6 to 1e9"
    return mixed_units(us) or None


def _environment(number: int, value: Any) -> dict[str, str]:
    """From a table {"cuda": "13.0", "triton": …, "driver": …} or its text "cuda 13.0, triton 3.6.0, driver 580.159"."""
    if value is None:
        return {}
    if isinstance(value, str):
        parts = [part.strip() for part in _text(number, "environment", value, 200).split(",")]
        driver = next((part.removeprefix("driver ") for part in parts if part.startswith("driver ")), "")
        toolkit = ", ".join(part for part in parts if part and not part.startswith("driver "))
        return {name: word for name, word in (("toolkit", toolkit[:80]), ("driver", driver[:40])) if word}
    table = _table(number, "environment", value)
    return {name: str(table[name])[:40] for name in ("cuda", "triton", "driver") if table.get(name)}


def _run(number: int, value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**15:
        return str(value)
    if isinstance(value, str) and value.strip():
        return _text(number, "run", value, 60)
    raise _line_error(number, "run", "a number or a name of the fresh process, the same for all kernels of it")


def _op(number: int, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _line_error(number, "op", "the operator's or kernel's name")
    return _text(number, "op", value, 200)


def _config(number: int, value: Any) -> Mapping[str, Any] | None:
    return _table(number, "config", value) or None if value is not None else None


def _table(number: int, name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or len(value) > 64:
        raise _line_error(number, name, "a table of plain values")
    for key, element in value.items():
        if not isinstance(key, str) or not 0 < len(key) <= 60 or not storable(key) or not is_plain_value(element):
            raise _line_error(number, f"{name}.{_quote(key)}", "a finite number or a text of at most 200 characters")
    return dict(value)


def _facts(number: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """registers, spills, smem_bytes and any metric by name."""
    facts = {name: given[name] for name in FACTS if given.get(name) is not None}
    for table in ("facts", "metrics"):
        facts |= _table(number, table, given.get(table) or {})
    return _table(number, "facts", facts)


def _clock(given: Mapping[str, Any]) -> float | None:
    """Median SM clock in MHz: `sm_clock_mhz`, else the first of nvidia-smi's "SM, memory, °C, W"; None: not sampled."""
    value = given.get("sm_clock_mhz")
    if value is None and isinstance(given.get("clocks"), str):
        try:
            value = float(given["clocks"].split(",")[0][:40])
        except ValueError:
            return None
    clock = finite_number(value)
    return clock if clock is not None and 0 < clock < 1e5 else None


def _text(number: int, name: str, value: Any, most: int, cut: bool = False) -> str:
    if not isinstance(value, str) or not storable(value) or (len(value) > most and not cut):
        raise _line_error(number, name, f"text of at most {most} characters")
    return value.strip()[:most]


def _quote(name: Any) -> str:
    return str(name)[:40].encode("ascii", "backslashreplace").decode()


def _line_error(number: int, name: str, what: str) -> Refused:
    return Refused({"runs": ": ".join(filter(None, (f"line {number}", name, what)))})
