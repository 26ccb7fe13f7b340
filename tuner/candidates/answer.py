"""What the process that judges a candidate says, read like an upload: known parts alone, each with its type and its bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from profiles.base.answers import Facts, Scalar
from tuner.tuning.trial import cleaned

MOST_SAMPLES, MOST_ROUNDS, MOST_ITEMS, MOST_TEXT, MOST_DEPTH = 4000, 400, 60, 600, 4
FORMS = ("launch", "module", "kernel")
TIMED = ("candidate", "default", "best", "library")
LONGEST_MS = 1e7


class CheckedJson(TypedDict):
    """A result beside the reference's, on inputs of a seed; `changed`: inputs that it wrote to; `late`: work after its stream."""

    seed: int
    right: bool
    message: str
    relative_error: float | None
    worst_error: float | None
    changed: list[str]
    late: str


class LoadedJson(TypedDict):
    form: str
    names: list[str]


class RepeatsJson(TypedDict):
    launches: int
    differing: int


class StreamsJson(TypedDict, total=False):
    launches: int
    late: bool
    event_ms: float
    left_ms: float
    own_left_ms: float


class CompiledJson(TypedDict, total=False):
    """What the compiler made of it without a GPU."""

    registers: float | None
    spills: float | None
    smem_bytes: float | None
    occupancy_pct: float | None
    kernels: float | None
    seconds: float | None
    gpu: str
    config: dict[str, Scalar]


class RefusedFileJson(TypedDict):
    what: str


class BeforeJson(TypedDict):
    default_ms: float


class FailedJson(TypedDict):
    where: str
    what: str


class TimedJson(TypedDict, total=False):
    """A contender's times in turn with the others; against a baseline the ratio candidate / baseline, its bounds and verdict."""

    name: str
    median_us: float
    low_us: float
    high_us: float
    n: int
    min_us: float
    p90_us: float
    ratio: float
    low: float
    high: float
    confidence: float
    verdict: str
    says: str


class AnswerJson(TypedDict, total=False):
    """What the judge measured, as far as it came; `times`: by contender, `rows`: the same compared; `twice`: parts told twice."""

    device: Facts
    own: Facts
    policy: Facts
    facts: Facts
    streams: StreamsJson
    loaded: LoadedJson
    checks: list[CheckedJson]
    again: CheckedJson
    replaced: list[str]
    times: dict[str, Facts]
    repeats: RepeatsJson
    compiled: CompiledJson
    not_compiled: str
    dropped: str
    counters: dict[str, Scalar]             # of ncu; {"why"} where none were collected
    crashed: bool
    ended: bool
    refused: RefusedFileJson
    before: BeforeJson
    failed: FailedJson
    twice: list[str]
    rows: list[TimedJson]
    against: str


class Answer:
    """The parts that were told so far. A part that is told twice is told by somebody else than the judge."""

    def __init__(self) -> None:
        self.parts: dict[str, Any] = {}
        self.stage = ""

    def hear(self, line: Any) -> bool:
        """Take one line of the answer; return whether the stage changed. What is no line of one is left out."""
        if not isinstance(line, dict):
            return False
        before = self.stage
        for name, value in line.items():
            if name == "stage" and isinstance(value, str):
                self.stage = cleaned(value)[:60]
            elif name in _READ:
                self._take(name, value)
        return self.stage != before

    def _take(self, name: str, value: Any) -> None:
        if name in self.parts:
            twice = self.parts.setdefault("twice", [])
            if name not in twice:
                twice.append(name)
            return
        try:
            self.parts[name] = _READ[name](cleaned(value))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            what = f"it told what is no answer ({name}: {error})"[:MOST_TEXT]
            self.parts.setdefault("failed", {"where": "process", "what": what})


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("no text")
    return value[:MOST_TEXT]


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("neither true nor false")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
        raise ValueError("no whole number")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or abs(value) >= 1 << 53:
        raise ValueError("no number")
    return value


def _ms(value: Any) -> float:
    if not 0 < _number(value) < LONGEST_MS:
        raise ValueError("no time of a launch")
    return float(value)


def _list(read: Callable[[Any], Any], most: int = MOST_ITEMS, least: int = 0) -> Callable[[Any], list[Any]]:
    def read_list(value: Any) -> list[Any]:
        if not isinstance(value, list) or not least <= len(value) <= most:
            raise ValueError(f"no list of {least} to {most}")
        return [read(element) for element in value]
    return read_list


def _maybe(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda told: None if told is None else read(told)


def _plain(value: Any, depth: int = 0) -> Any:
    """Return any JSON within bounds."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value[:MOST_TEXT]
    if isinstance(value, int | float):
        return _number(value)
    if depth >= MOST_DEPTH or len(value) > MOST_ITEMS:
        raise ValueError("too much")
    if isinstance(value, list):
        return [_plain(element, depth + 1) for element in value]
    return {_text(name)[:60]: _plain(element, depth + 1) for name, element in value.items()}


def _facts(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("no object")
    facts: dict[str, Any] = _plain(value)
    return facts


def _check(told: Mapping[str, Any]) -> dict[str, Any]:
    return {"seed": _whole(told["seed"]), "right": _flag(told["right"]), "message": _text(told["message"]),
            "relative_error": _maybe(_number)(told["relative_error"]), "worst_error": _maybe(_number)(told["worst_error"]),
            "changed": _list(_text)(told["changed"]), "late": _text(told["late"])}


def _streams(told: Mapping[str, Any]) -> dict[str, Any]:
    if not told:
        return {}
    return {"launches": _whole(told["launches"]), "late": _flag(told["late"]),
            **{name: _number(told[name]) for name in ("event_ms", "left_ms", "own_left_ms")}}


def _times(told: Mapping[str, Any]) -> dict[str, Any]:
    times = {}
    for name in TIMED:
        if name in told:
            entry = told[name]
            beside = {key: value for key, value in entry.items() if key not in ("samples_ms", "round_ms", "compared", "wrong")}
            times[name] = {**_facts(beside), "samples_ms": _list(_ms, MOST_SAMPLES, 1)(entry["samples_ms"]),
                           "round_ms": _list(_ms, MOST_ROUNDS, 1)(entry["round_ms"]), "compared": _whole(entry["compared"]),
                           "wrong": _text(entry["wrong"])}
    if "candidate" not in times or "default" not in times:
        raise ValueError("not every one that is timed")
    return times


_READ: Mapping[str, Callable[[Any], Any]] = {
    "device": _facts, "own": _facts, "policy": _facts, "facts": _facts, "streams": _streams,
    "loaded": lambda told: {"form": FORMS[FORMS.index(told["form"])], "names": _list(_text)(told["names"])},
    "checks": _list(_check, 8, 1), "again": _check, "replaced": _list(_text), "times": _times,
    "repeats": lambda told: {"launches": _whole(told["launches"]), "differing": _whole(told["differing"])},
    "compiled": lambda told: {**{name: _maybe(_number)(told.get(name)) for name in (
        "registers", "spills", "smem_bytes", "occupancy_pct", "kernels", "seconds")},
        "gpu": _text(told["gpu"])[:12], "config": _facts(told["config"])},
    "not_compiled": _text, "dropped": _text, "crashed": _flag, "ended": _flag,
    "refused": lambda told: {"what": _text(told["what"])}, "before": lambda told: {"default_ms": _ms(told["default_ms"])},
    "failed": lambda told: {"where": _text(told["where"])[:20], "what": _text(told["what"])}}
