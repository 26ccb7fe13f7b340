"""Recordings in place of a GPU: a runner that replays a landscape, and fresh runs, each one recorded process, drawn once.

A file of runs is JSONL (or gzip of it) as `tuner.tuning.measure.fresh.recorded_line` writes it: one line a process and kernel.
Where its lines do not say on what they were measured, ABOUT does.
"""

from __future__ import annotations

import gzip
import json
import random
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from profiles.base.numbers import positive_number
from tuner.tuning.measure.landscape import Landscape, LandscapeError
from tuner.tuning.measure.runner import Incumbent, Session
from tuner.tuning.operators import OPERATORS
from tuner.tuning.trial import Config, Measured, Outcome, config_key

SPEED = 50.0                    # a watched replay runs so much faster than the recording …
TRIAL_S = (0.08, 0.5)           # … but a trial takes at least and at most this long


class ReplayRunner:
    """`speed` 0 answers at once; else a trial takes its recorded cost ÷ `speed`, within TRIAL_S."""

    ahead = 1

    def __init__(self, landscape: Landscape, shape_index: int, *, speed: float = 0.0) -> None:
        self.landscape = landscape
        self.recorded = landscape.at(shape_index)
        self.speed = speed
        self._stopped = threading.Event()

    def open(self) -> Session:
        recording = self.recorded
        return Session(
            gpu=self.landscape.gpu, compute_capability=self.landscape.compute_capability,
            recorded=self.landscape.recorded, environment=dict(self.landscape.environment), policy=self._policy(),
            library_ms=recording.library_ms, flops=recording.flops, bytes=recording.bytes)

    def _policy(self) -> dict[str, Any]:
        policy: dict[str, Any] = {"timing": "as recorded: median of n samples each",
                                  "finalists": "recorded values, not measured again"}
        if self.speed:
            low, high = TRIAL_S
            policy["replay_pace"] = f"recorded cost ÷ {self.speed:g}, {low:g} to {high:g} s a trial"
        return policy

    def measure(self, configs: Sequence[Config], incumbent: Incumbent | None = None) -> Iterator[tuple[Config, Outcome]]:
        """Yield recorded outcomes; they are complete, so nothing is raced."""
        for config in configs:
            outcome = self._outcome(config)
            if self.speed:
                self._stopped.wait(replay_cost_s(outcome, self.speed))
            if self._stopped.is_set():
                return
            yield config, outcome

    def finalists(self, configs: Sequence[Config]) -> list[tuple[Config, Outcome]]:
        return [(config, self._outcome(config)) for config in configs]

    def _outcome(self, config: Config) -> Outcome:
        recorded = self.recorded.outcomes.get(config_key(config))
        if recorded is None:
            raise LandscapeError(self.landscape.stem, f"{config_key(config)} was not recorded",
                                 "Ask for configurations of its space only.")
        return recorded[1]

    def stop(self) -> None:
        self._stopped.set()

    def close(self) -> None:
        self._stopped.set()


def recorded_cost_s(outcome: Outcome) -> float:
    """Return what a trial cost when recorded: compiling and timed samples, in s."""
    compile_s = outcome.facts.get("compile_s", 0.0)
    timed_s = outcome.n * outcome.median_ms / 1000 if isinstance(outcome, Measured) else 0.0
    return float(compile_s) + timed_s


def replay_cost_s(outcome: Outcome, speed: float) -> float:
    """Return how long a replayed trial takes at `speed`, in s."""
    low, high = TRIAL_S
    return min(high, max(low, recorded_cost_s(outcome) / speed))


DATA = Path(__file__).resolve().parents[3] / "tests" / "data"
PATTERN = "*/timing_runs*.jsonl.gz"
MAX_LINES, MAX_EXPANDED_BYTES, MAX_SAMPLES = 100_000, 256 * 2**20, 10_000
# shared/recordings/INDEX.md: what the first file leaves to its description.
ABOUT: Mapping[str, Mapping[str, str]] = {
    "timing_runs": {"gpu": "NVIDIA H200", "driver": "580.159", "cuda": "13.0", "torch": "2.11.0", "triton": "3.6.0"}}
DTYPES = {"matmul": "bf16", "softmax": "fp16", "layernorm": "fp16", "attention": "fp16"}     # … of the kernels in it
ENVIRONMENT = ("driver", "cuda", "torch", "triton")
FACTS = ("registers", "spills", "smem_bytes")


class RecordedError(ValueError):
    """A file of recorded runs that cannot be used; the text says where and why."""


Problem = tuple[str, str, str]             # operator, canonical shape, dtype


@dataclass(frozen=True)
class RecordedRun:
    """One kernel in one recorded process; `us` in the order taken."""

    run: int
    us: tuple[float, ...]
    sm_clock_mhz: float | None = None
    facts: Mapping[str, Any] = ()              # type: ignore[assignment]


class RecordedRuns:
    """All runs of one file, by (operator, shape, dtype) and configuration."""

    def __init__(self, stem: str, lines: Iterator[Mapping[str, Any]]) -> None:
        about: dict[str, str] = dict(ABOUT.get(stem, {}))
        self.stem = stem
        self._runs: dict[Problem, dict[str, dict[int, RecordedRun]]] = {}
        self._configs: dict[Problem, list[dict[str, Any]]] = {}
        for number, line in enumerate(lines, 1):
            if "rejected" not in line:
                self._add(line, f"{stem}, line {number}")
            for name in ("gpu", *ENVIRONMENT):
                if isinstance(line.get(name), str):
                    about.setdefault(name, line[name])
        self.gpu = about.pop("gpu", "")
        self.driver = about.get("driver", "")
        self.environment: dict[str, str] = about
        self.runs: list[int] = sorted({run for configs in self._runs.values() for runs in configs.values() for run in runs})

    def _add(self, line: Mapping[str, Any], where: str) -> None:
        op, shape, config, us, run = (line.get(name) for name in ("op", "shape", "config", "us", "run"))
        if not isinstance(op, str) or not isinstance(shape, dict) or not isinstance(config, dict):
            raise RecordedError(f"{where}: op, shape and config are needed")
        if not isinstance(us, list) or not us or len(us) > MAX_SAMPLES or not all(map(positive_number, us)):
            raise RecordedError(f"{where}: us must be 1 to {MAX_SAMPLES:,} times above 0")
        if isinstance(run, bool) or not isinstance(run, int):
            raise RecordedError(f"{where}: run must be a whole number")
        clocks = str(line.get("clocks") or "").split(",")
        clock = line.get("sm_clock_mhz", float(clocks[0]) if clocks[0].strip().isdigit() else None)
        problem = (op, config_key(shape), str(line.get("dtype") or DTYPES.get(op, "")))
        key = _config_identity(op, config)
        runs = self._runs.setdefault(problem, {})
        if key not in runs:
            self._configs.setdefault(problem, []).append(dict(config))
        runs.setdefault(key, {})[run] = RecordedRun(run, tuple(float(sample) for sample in us), clock,
                                                     {name: line[name] for name in FACTS if name in line})

    @property
    def label(self) -> str:
        """Return the label shown with every number of the file."""
        said = [f"{name} {self.environment[key]}".replace("+cu130", "") for key, name in (("torch", "torch"), ("triton", "Triton"))
                if self.environment.get(key)]
        return "recorded on " + ", ".join([self.gpu or "an unnamed GPU", *said])

    def kernels(self) -> list[tuple[str, dict[str, Any], str, list[dict[str, Any]]]]:
        """Return (operator, shape, dtype, configurations) in the file's order."""
        return [(op, json.loads(shape), dtype, [dict(config) for config in configs])
                for (op, shape, dtype), configs in self._configs.items()]

    def configs(self, op: str, shape: Mapping[str, Any], dtype: str) -> list[dict[str, Any]]:
        """Return the configurations recorded of a problem."""
        return [dict(config) for config in self._configs.get((op, config_key(shape), dtype), [])]

    def look_up(self, op: str, shape: Mapping[str, Any], dtype: str, config: Config) -> Mapping[int, RecordedRun] | None:
        """Return recorded run → samples; None where this was never recorded."""
        return self._runs.get((op, config_key(shape), dtype), {}).get(_config_identity(op, config))

    def why_not(self, op: str, shape: Mapping[str, Any], dtype: str, config: Config | None) -> str:
        """Return what is recorded instead of what was asked for."""
        there = self.configs(op, shape, dtype)
        if there:
            config_name = config_key(config) if config else "its default configuration"
            return f"{config_name} is not recorded in {self.stem}; recorded are {', '.join(config_key(other) for other in there)}"
        problems = "; ".join(f"{name} {' '.join(f'{dim}={value}' for dim, value in of.items())} {kind}"
                             for name, of, kind, _ in self.kernels())
        return f"this operator, shape and dtype is not recorded in {self.stem}; recorded are {problems}"


class RunDraw:
    """Draws recorded processes as fresh runs of builds, those that served others least first.

    One process never serves a build twice: two runs of a build are two processes, as on a GPU. `seed` is the job's.
    """

    def __init__(self, runs: Sequence[int], seed: int, served: Mapping[str, Sequence[int]]) -> None:
        self._random = random.Random(seed)
        self._runs = list(runs)
        self._served = {build: set(numbers) for build, numbers in served.items()}
        self._times = Counter(number for numbers in self._served.values() for number in numbers)

    def next(self, build: str) -> int | None:
        """Return a recorded process for one more run of the build; None when it had all."""
        mine = self._served.setdefault(build, set())
        left = [run for run in self._runs if run not in mine]
        if not left:
            return None
        fewest = min(self._times[run] for run in left)
        run = self._random.choice([run for run in left if self._times[run] == fewest])
        mine.add(run)
        self._times[run] += 1
        return run


def recorded_files() -> dict[str, Path]:
    """Return stem → file of the recorded runs in the repository."""
    return {path.name.removesuffix(".jsonl.gz"): path for path in sorted(DATA.glob(PATTERN))}


def load_recorded(stem: str) -> RecordedRuns:
    """Return the recorded runs of a stem. Raises RecordedError."""
    path = recorded_files().get(stem)
    if path is None:
        raise RecordedError(f"there are no recorded runs {stem[:80]!r}; known are {', '.join(recorded_files())}")
    return _load(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _load(path: Path, changed_ns: int) -> RecordedRuns:
    return RecordedRuns(path.name.removesuffix(".jsonl.gz"), _read_lines(path))


def _read_lines(path: Path) -> Iterator[Mapping[str, Any]]:
    with gzip.open(path, "rb") as stream:
        text = stream.read(MAX_EXPANDED_BYTES + 1)
    rows = text.splitlines()
    if len(text) > MAX_EXPANDED_BYTES or len(rows) > MAX_LINES:
        raise RecordedError(f"{path.name} holds more than {MAX_LINES:,} lines or {MAX_EXPANDED_BYTES // 2**20} MiB")
    for number, row in enumerate(rows, 1):
        try:
            line = json.loads(row)
        except (ValueError, RecursionError) as error:
            raise RecordedError(f"{path.name}, line {number}: no JSON ({error})") from error
        if not isinstance(line, dict):
            raise RecordedError(f"{path.name}, line {number}: no object")
        yield line


def _config_identity(op: str, config: Config) -> str:
    """Return a key equal for configurations that name the same; what nothing reads was recorded too, each value by itself."""
    operator = OPERATORS.get(op)
    return config_key(operator.named(config) if operator else config)
