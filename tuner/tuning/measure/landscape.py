"""Recorded landscapes: every configuration of a space measured once on a real GPU.

Format "h200": {"op", "gpu", "torch", "triton", "cuda", "space", "shapes": [{"shape", "flops", "bytes", "library_ms",
"rows": [{"config", "median_ms", "min_ms", "p90_ms", "n", "regs", "spills", "shared", "relerr", "compile_s"}
or {"config", "error"}]}]}.
An `error` that begins with "pruned" was never compiled: it is counted by reason and is no trial.

Also read: T4 results (schema T4/1.0.0 of the auto-tuning methodology) and Kernel Tuner cache files, one shape each. Their
outcomes carry `cost_s`, what the configuration took in all when it was recorded, and `objective_ms`, the value that the
recording tool itself minimised. Files may be gzip or xz.
"""

from __future__ import annotations

import gzip
import json
import lzma
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profiles.base.numbers import positive_number
from tuner.tuning.space import Space
from tuner.tuning.trial import Config, Measured, Outcome, Reason, Rejected, Value, config_key

MAX_EXPANDED_BYTES = 512 * 2**20
MAX_ROWS = 500_000
WRONG_RELATIVE_ERROR = 0.1      # a recorded result this far off is wrong in every dtype
_PRUNED = "pruned"
_ENVIRONMENT = ("torch", "triton", "cuda", "driver", "sms", "date")
_FACTS = (("regs", "registers"), ("spills", "spills"), ("shared", "smem_bytes"), ("relerr", "relative_error"),
          ("compile_s", "compile_s"))
_REASONS = (    # the words compilers and drivers use; the first line that matches gives the reason
    (Reason.RESOURCES, ("outofresource", "out of resource", "too many resources", "out of memory")),
    (Reason.TIMEOUT, ("timeout", "timed out", "hang")),
    (Reason.WRONG, ("wrong", "mismatch", "incorrect", "accuracy", "correctness")),
    (Reason.COMPILE, ("compil", "ptxas", "mlir", "llvm", "assert")),
    (Reason.CRASH, ("illegal", "crash", "segfault", "misaligned", "launch failure", "died", "runtime")),
)


class LandscapeError(ValueError):
    """A landscape file that cannot be used: where, what, and what to do."""

    def __init__(self, where: str, what: str, hint: str = "Give the file as it was recorded.") -> None:
        super().__init__(f"{where}: {what}. {hint}")
        self.where, self.what, self.hint = where, what, hint


@dataclass(frozen=True)
class RecordedShape:
    """One shape: what was pruned, and an outcome for every other configuration."""

    shape: Mapping[str, int]
    outcomes: Mapping[str, tuple[Config, Outcome]]      # canonical text -> configuration, outcome
    pruned: Mapping[str, int]
    library_ms: float | None = None
    flops: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Landscape:
    """A recorded file: operator, GPU and shapes."""
    stem: str                                # file name without .json.gz
    operator: str
    gpu: str
    shapes: Sequence[RecordedShape]
    environment: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Sequence[Value]] = field(default_factory=dict)     # of each parameter, in the file's order
    dtype: str | None = None
    compute_capability: str | None = None

    @classmethod
    def load(cls, path: Path | str) -> Landscape:
        """Read and check a file. Raises LandscapeError."""
        path = Path(path)
        document, stem = _read(path), path.name.removesuffix(".gz").removesuffix(".xz").removesuffix(".json")
        for key, reader in _READERS:
            if key in document:
                return reader(document, stem)
        raise LandscapeError(path.name, "this JSON is no landscape",
                             "Known are files with shapes, T4 results and Kernel Tuner caches.")

    @property
    def recorded(self) -> str:
        """Return the label shown with every number of this file."""
        versions = [f"{name} {str(self.environment[key]).split('+')[0]}"
                    for key, name in (("torch", "torch"), ("triton", "Triton")) if self.environment.get(key)]
        return "recorded on " + ", ".join([self.gpu or "an unnamed GPU", *versions])

    def at(self, shape_index: int) -> RecordedShape:
        """Return the recorded shape of an index. Raises LandscapeError."""
        if not 0 <= shape_index < len(self.shapes):
            raise LandscapeError(self.stem, f"there is no shape {shape_index}",
                                 f"It has {len(self.shapes)}, numbered from 0.")
        return self.shapes[shape_index]

    def index_of(self, shape: Mapping[str, int]) -> int | None:
        """Return the index of a shape; None where it was not recorded."""
        return next((i for i, recording in enumerate(self.shapes) if dict(recording.shape) == dict(shape)), None)

    def space(self, shape_index: int) -> Space:
        """Return the space recorded at this shape."""
        recording = self.at(shape_index)
        try:
            return Space.listed([config for config, _ in recording.outcomes.values()], recording.pruned, self.values)
        except ValueError as error:                         # 1, 1.0 and true are one value
            raise LandscapeError(f"{self.stem}: shape {shape_index}", str(error),
                                 "Write the values of a parameter as one type.") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as raw:
            magic = raw.read(6)
        opened = gzip.open if magic[:2] == b"\x1f\x8b" else lzma.open if magic == b"\xfd7zXZ\0" else open
        with opened(path, "rb") as stream:
            text = stream.read(MAX_EXPANDED_BYTES + 1)
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise LandscapeError(str(path.name), f"cannot be read: {error}") from error
    if len(text) > MAX_EXPANDED_BYTES:
        raise LandscapeError(path.name, f"holds more than {MAX_EXPANDED_BYTES // 2**20} MiB")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LandscapeError(path.name, f"is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise LandscapeError(path.name, f"holds a {type(document).__name__}, not an object")
    return document


def reason_of(message: str) -> Reason:
    """Return the reason of a recorded error text."""
    text = message.lower()
    return next((reason for reason, words in _REASONS if any(word in text for word in words)), Reason.OTHER)


def _read_h200(document: dict[str, Any], stem: str) -> Landscape:
    shapes = _check_list(document["shapes"], f"{stem}: shapes")
    return Landscape(
        stem=stem, operator=str(document.get("op") or stem), gpu=str(document.get("gpu") or ""),
        shapes=[_read_h200_shape(shape, f"{stem}: shape {i}") for i, shape in enumerate(shapes)],
        environment={key: document[key] for key in _ENVIRONMENT if key in document},
        values=_parameter_values(document.get("space")), dtype=_text_or_none(document.get("dtype")),
        compute_capability=_text_or_none(document.get("cc")))


def _read_h200_shape(shape: Any, where: str) -> RecordedShape:
    if not isinstance(shape, dict) or not isinstance(shape.get("shape"), dict):
        raise LandscapeError(where, 'has no "shape"')
    outcomes: dict[str, tuple[Config, Outcome]] = {}
    pruned: Counter[str] = Counter()
    for number, row in enumerate(_check_list(shape.get("rows"), f"{where}, rows")):
        here = f"{where}, row {number}"
        config = _read_config(row, "config", here)
        error = row.get("error")
        if isinstance(error, str) and error.lower().startswith(_PRUNED):
            pruned[error[len(_PRUNED):].strip(" :") or "pruned"] += 1
        else:
            _add_outcome(outcomes, config, _read_h200_outcome(row, here), here)
    return RecordedShape(dict(shape["shape"]), outcomes, pruned, positive_number(shape.get("library_ms")),
                         _whole_or_none(shape.get("flops")), _whole_or_none(shape.get("bytes")))


def _read_h200_outcome(row: dict[str, Any], where: str) -> Outcome:
    facts = {name: row[key] for key, name in _FACTS if row.get(key) is not None}
    if row.get("error") is not None:
        return Rejected(reason_of(str(row["error"])), str(row["error"])[:500], facts)
    median = positive_number(row.get("median_ms"))
    if median is None:
        raise LandscapeError(where, "has neither a positive median_ms nor an error")
    error = row.get("relerr")
    if isinstance(error, float) and not error <= WRONG_RELATIVE_ERROR:      # NaN too
        return Rejected(Reason.WRONG, f"relative error {error:.3g}", facts)
    low, high = positive_number(row.get("min_ms")) or median, positive_number(row.get("p90_ms")) or median
    return Measured(median, low, high, _whole_or_none(row.get("n")) or 1, facts)


def _read_t4(document: dict[str, Any], stem: str) -> Landscape:
    """Read T4 results: configuration, times (ms) and invalidity per record."""
    outcomes: dict[str, tuple[Config, Outcome]] = {}
    pruned: Counter[str] = Counter()
    for number, row in enumerate(_check_list(document["results"], f"{stem}: results")):
        where = f"{stem}: result {number}"
        config = _read_config(row, "configuration", where)
        invalidity = str(row.get("invalidity", "correct"))
        times = row.get("times") if isinstance(row.get("times"), dict) else {}
        if invalidity == "constraints":
            pruned["constraints"] += 1
        elif invalidity != "correct":
            facts = {**_compile_s(times.get("compilation")), **_cost_s(times.values())}
            _add_outcome(outcomes, config, Rejected(reason_of(invalidity), invalidity, facts), where)
        else:
            facts = {**_compile_s(times.get("compilation")), **_cost_s(times.values()), **_objective(_t4_time(row))}
            _add_outcome(outcomes, config, _sampled_outcome(times.get("runtimes"), facts, where), where)
    return Landscape(stem=stem, operator=stem.removesuffix("_T4"), gpu="", shapes=[RecordedShape({}, outcomes, pruned)])


def _read_kernel_tuner(document: dict[str, Any], stem: str) -> Landscape:
    """Read a Kernel Tuner cache: parameters, times (ms) or an error name per entry."""
    cache = document["cache"]
    names = document.get("tune_params_keys")
    if not isinstance(cache, dict) or not isinstance(names, list) or len(cache) > MAX_ROWS:
        raise LandscapeError(stem, "has no cache and tune_params_keys as Kernel Tuner writes them")
    outcomes: dict[str, tuple[Config, Outcome]] = {}
    for key, row in cache.items():
        where = f"{stem}: {key[:80]}"
        if not isinstance(row, dict):
            raise LandscapeError(where, "is no record")
        config = _read_config({"config": {name: row.get(name) for name in names}}, "config", where)
        time = row.get("time")
        facts = {**_compile_s(row.get("compile_time")), **_cost_s(row.get(name) for name in _KERNEL_TUNER_COSTS)}
        if isinstance(time, str):
            _add_outcome(outcomes, config, Rejected(reason_of(time), time, facts), where)
        else:
            outcome = _sampled_outcome(row.get("times") or [time], {**facts, **_objective(time)}, where)
            _add_outcome(outcomes, config, outcome, where)
    return Landscape(
        stem=stem, operator=str(document.get("kernel_name") or stem), gpu=str(document.get("device_name") or ""),
        shapes=[RecordedShape({}, outcomes, {})], values=_parameter_values(document.get("tune_params")))


_READERS: tuple[tuple[str, Callable[[dict[str, Any], str], Landscape]], ...] = (
    ("shapes", _read_h200), ("results", _read_t4), ("cache", _read_kernel_tuner))


_KERNEL_TUNER_COSTS = ("compile_time", "verification_time", "benchmark_time", "framework_time", "strategy_time")


def _t4_time(row: dict[str, Any]) -> Any:
    """Return the measurement called "time", in ms."""
    measurements = row.get("measurements")
    times = [m for m in measurements if isinstance(m, dict) and m.get("name") == "time"] if isinstance(measurements, list) else []
    return times[0].get("value") if times else None


def _cost_s(parts_ms: Iterable[Any]) -> dict[str, float]:
    """Return the sum of what a file says in ms, numbers or lists, as {"cost_s": …}."""
    flat = [value for part in parts_ms for value in (part if isinstance(part, list) else [part])]
    times_ms = [ms for ms in map(positive_number, flat) if ms is not None]
    return {"cost_s": sum(times_ms) / 1000} if times_ms else {}


def _objective(ms: Any) -> dict[str, float]:
    value = positive_number(ms)
    return {} if value is None else {"objective_ms": value}


def _sampled_outcome(runtimes: Any, facts: Mapping[str, float], where: str) -> Outcome:
    """Return an outcome from raw times in ms."""
    times = sorted(t for t in (positive_number(value) for value in (runtimes or ())) if t is not None)
    if not times:
        raise LandscapeError(where, "is called correct and has no times")
    p90 = times[min(len(times) - 1, math.ceil(0.9 * len(times)) - 1)]
    return Measured(statistics.median(times), times[0], p90, len(times), facts)


def _compile_s(compile_ms: Any) -> dict[str, float]:
    value = positive_number(compile_ms)
    return {} if value is None else {"compile_s": value / 1000}


def _add_outcome(outcomes: dict[str, tuple[Config, Outcome]], config: Config, outcome: Outcome, where: str) -> None:
    if outcomes and config.keys() != next(iter(outcomes.values()))[0].keys():
        raise LandscapeError(where, f"has parameters {sorted(config)}, those before it others")
    outcomes.setdefault(config_key(config), (config, outcome))     # of one that is repeated the first counts


def _read_config(row: Any, key: str, where: str) -> dict[str, Value]:
    config = row.get(key) if isinstance(row, dict) else None
    if not isinstance(config, dict) or not config:
        raise LandscapeError(where, f'has no "{key}"')
    bad = [name for name, value in config.items()
           if not isinstance(value, int | float | str) or (isinstance(value, float) and not math.isfinite(value))]
    if bad:
        raise LandscapeError(where, f"{bad[0]} is neither number nor text")
    return dict(config)


def _check_list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise LandscapeError(where, "is empty or no list")
    if len(value) > MAX_ROWS:
        raise LandscapeError(where, f"has {len(value):,} entries; at most {MAX_ROWS:,}")
    return value


def _parameter_values(space: Any) -> dict[str, list[Value]]:
    """Return parameter -> its values in the file's order, where the file says so."""
    return {str(name): v for name, v in space.items() if isinstance(v, list)} if isinstance(space, dict) else {}


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole_or_none(value: Any) -> int | None:
    number = positive_number(value)
    return None if number is None else int(number)
