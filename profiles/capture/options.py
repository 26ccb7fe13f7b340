"""What can be asked of a capture: options of ncu and of torch.profiler, checked field by field.

What people type ends in an argument vector, never in a shell string, and cannot begin with a dash.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

SETS = {
    "full": "every section, 30 to 50 replay passes", "detailed": "most sections, no source counters",
    "basic": "speed of light, launch, occupancy: few passes", "roofline": "the rooflines only",
    "none": "only the sections and metrics named below"}
SECTIONS = (
    "SpeedOfLight", "SpeedOfLight_RooflineChart", "SpeedOfLight_HierarchicalTensorRooflineChart", "LaunchStats",
    "Occupancy", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "MemoryWorkloadAnalysis_Chart",
    "MemoryWorkloadAnalysis_Tables", "SchedulerStats", "WarpStateStats", "InstructionStats", "SourceCounters",
    "PmSampling", "WorkloadDistribution")
REPLAY = {
    "kernel": "each kernel again, its memory restored in between", "application": "the whole program once per pass",
    "range": "the range between profiler start and stop", "app-range": "the whole program, the range once per pass"}
CACHE = {"all": "flushed before each pass", "none": "left as the program leaves them"}
CLOCKS = {"none": "left alone, as in production", "base": "locked to the base clock while profiling"}
STEPS = {"auto": "the program's own steps", "whole": "the whole run"}

MAX_NAMES, MAX_LAUNCHES, MAX_STEPS = 64, 10_000, 1000
TIME_LIMIT_S = (5, 6 * 3600)
_MAX_REGEX_CHARS = 300
_SECTION = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")
_METRIC = re.compile(r"((group|breakdown|pmsampling):)?[A-Za-z][A-Za-z0-9_]*__[A-Za-z0-9_.]+")
_NVTX = re.compile(r"[A-Za-z0-9_@][A-Za-z0-9_@ .:/\[\]*+-]{0,199}")

Read = Callable[[Any], Any]


class OptionsError(ValueError):
    """`errors`: field -> what is wrong and what would be valid."""

    def __init__(self, errors: dict[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {what}" for name, what in errors.items()))
        self.errors = errors


@dataclass(frozen=True)
class Options:
    """`parse` takes a form's strings as well as an API's JSON."""

    READ: ClassVar[dict[str, Read]] = {}      # field -> its reader, which raises ValueError with what would be valid

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Absent fields keep their defaults. Raises OptionsError, which names every invalid field."""
        errors = {name: f"unknown; there are {', '.join(cls.READ)}" for name in given if name not in cls.READ}
        values: dict[str, Any] = {}
        for name, read in cls.READ.items():
            try:
                values |= {name: read(given[name])} if name in given else {}
            except ValueError as error:
                errors[name] = str(error)
        options = cls(**values)
        if errors := errors | options.problems():
            raise OptionsError(errors)
        return options

    def problems(self) -> dict[str, str]:
        """What is wrong between fields that are valid by themselves."""
        return {}

    def as_json(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def _choice(of: Mapping[str, str]) -> Read:
    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in of:
            raise ValueError(f"one of {', '.join(of)}")
        return value
    return read


def _whole(low: int, high: int) -> Read:
    def read(value: Any) -> int:
        text = str(value).strip()
        if isinstance(value, bool) or not re.fullmatch(r"-?[0-9]{1,12}", text) or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low:,} to {high:,}")
        return int(text)
    return read


def _yes(value: Any) -> bool:
    if value in (True, "on", "true", "1"):
        return True
    if value in (False, None, "", "off", "false", "0"):
        return False
    raise ValueError("true or false")


def _names(pattern: re.Pattern[str], example: str) -> Read:
    """A list, or text with commas, spaces or lines between the names; each name once."""
    def read(value: Any) -> tuple[str, ...]:
        parts = re.split(r"[\s,]+", value) if isinstance(value, str) else value
        if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
            raise ValueError(f"a list of names such as {example}")
        names = tuple(dict.fromkeys(part for part in parts if part))
        bad = next((name for name in names if len(name) > 200 or not pattern.fullmatch(name)), None)
        if bad is not None:
            raise ValueError(f"{bad[:60]!r} is no name such as {example}")
        if len(names) > MAX_NAMES:
            raise ValueError(f"at most {MAX_NAMES} names, not {len(names)}")
        return names
    return read


def _regex(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _MAX_REGEX_CHARS or not value.isprintable():
        raise ValueError(f"a regular expression of at most {_MAX_REGEX_CHARS} printable characters on one line")
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"no regular expression ({error}); a name such as matmul is one") from error
    return value.strip()


def _nvtx(value: Any) -> str:
    text = str(value or "").strip()
    if text and not _NVTX.fullmatch(text):
        raise ValueError("an NVTX range such as step/ or Domain@range/, at most 200 characters, no dash at its start")
    return text


@dataclass(frozen=True)
class NcuOptions(Options):
    """A replay with hardware counters by Nsight Compute."""

    kernel: str = ""                       # regular expression on the kernel's name; empty: every kernel
    set: str = "full"
    sections: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    launch_skip: int = 0                   # matching launches passed over first
    launch_count: int = 10                 # matching launches profiled
    replay_mode: str = "kernel"
    cache_control: str = "all"
    clock_control: str = "none"
    nvtx_include: str = ""                 # only launches within this NVTX range
    import_source: bool = True             # source lines into the report
    time_limit_s: int = 600

    READ = {
        "kernel": _regex, "set": _choice(SETS), "sections": _names(_SECTION, "SpeedOfLight"),
        "metrics": _names(_METRIC, "dram__bytes.sum"), "launch_skip": _whole(0, 10**9),
        "launch_count": _whole(1, MAX_LAUNCHES), "replay_mode": _choice(REPLAY), "cache_control": _choice(CACHE),
        "clock_control": _choice(CLOCKS), "nvtx_include": _nvtx, "import_source": _yes,
        "time_limit_s": _whole(*TIME_LIMIT_S)}

    def problems(self) -> dict[str, str]:
        if self.set == "none" and not self.sections and not self.metrics:
            return {"set": "with the set none, name at least one section or metric"}
        return {}


@dataclass(frozen=True)
class TorchOptions(Options):
    """A trace by torch.profiler."""

    steps: str = "auto"
    wait: int = 1                          # steps passed over: the first compile and allocate
    warmup: int = 1                        # steps with the profiler on, thrown away
    active: int = 3                        # steps recorded
    record_shapes: bool = True
    with_stack: bool = False
    profile_memory: bool = False
    end_after: bool = True                 # end the program once the trace is written
    time_limit_s: int = 600

    READ = {
        "steps": _choice(STEPS), "wait": _whole(0, MAX_STEPS), "warmup": _whole(0, MAX_STEPS),
        "active": _whole(1, MAX_STEPS), "record_shapes": _yes, "with_stack": _yes, "profile_memory": _yes,
        "end_after": _yes, "time_limit_s": _whole(*TIME_LIMIT_S)}


OPTIONS: dict[str, type[NcuOptions] | type[TorchOptions]] = {"ncu": NcuOptions, "torch": TorchOptions}
