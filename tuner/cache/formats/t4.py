"""Trials in other tuners' formats: T4 results (1.0.0) and Kernel Tuner caches (1.1.0).

Both hold every trial, losers and failures too. They are read by `tuner.tuning.measure.landscape`; here they are written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from profiles.base.words import pairs_text
from tuner.tuning.trial import Config, Measured, Outcome, Reason

Record = tuple[Config, Outcome, datetime]
INVALIDITY = {       # tuner.tuning.trial.Reason -> T4
    Reason.COMPILE: "compile", Reason.RESOURCES: "compile", Reason.SPILLS: "constraints", Reason.WRONG: "correctness",
    Reason.CRASH: "runtime", Reason.TIMEOUT: "timeout", Reason.QUARANTINED: "constraints", Reason.OTHER: "runtime"}
ERRORS = {           # T4 -> the name of Kernel Tuner's error
    "compile": "CompilationFailedConfig", "constraints": "InvalidConfig", "correctness": "RuntimeFailedConfig",
    "runtime": "RuntimeFailedConfig", "timeout": "RuntimeFailedConfig"}


def write_t4(records: Sequence[Record], metadata: Mapping[str, str] | None = None) -> str:
    """Return T4 results: times in ms, compilation in ms (0 if unknown), raw times where kept."""
    about = {"timeunit": "milliseconds", **{name: value for name, value in (metadata or {}).items() if value}}
    results = [_result_json(*record) for record in records]
    return json.dumps({"metadata": about, "schema_version": "1.0.0", "results": results}, indent=1) + "\n"


def _result_json(config: Config, outcome: Outcome, at: datetime) -> dict[str, Any]:
    measured = isinstance(outcome, Measured)
    invalidity = "correct" if isinstance(outcome, Measured) else INVALIDITY[outcome.reason]
    return {
        "timestamp": at.isoformat(), "configuration": dict(config), "objectives": ["time"] if measured else [],
        "times": {"compilation": _compile_ms(outcome), "framework": 0, "search_algorithm": 0, "validation": 0,
                  "runtimes": _runtimes_ms(outcome)},
        "invalidity": invalidity, "correctness": 0 if invalidity == "correctness" else 1,
        "measurements": [{"name": "time", "value": outcome.median_ms, "unit": "ms"}] if isinstance(outcome, Measured) else []}


def write_kernel_tuner(records: Sequence[Record], *, kernel: str, gpu: str, shape: Mapping[str, int]) -> str:
    """Return a cache that Kernel Tuner resumes from or replays; `problem_size` is the shape."""
    names = list(dict.fromkeys(name for config, _, _ in records for name in config))
    values = {name: sorted({config[name] for config, _, _ in records if name in config}, key=lambda v: (isinstance(v, str), v))
              for name in names}
    document = {
        "schema_version": "1.1.0", "device_name": gpu, "kernel_name": kernel,
        "problem_size": pairs_text(shape), "tune_params_keys": names,
        "tune_params": values, "objective": "time",
        "cache": {",".join(str(config.get(name, "")) for name in names): _cache_line(config, outcome, moment)
                  for config, outcome, moment in records}}
    return json.dumps(document, indent=1) + "\n"


def _cache_line(config: Config, outcome: Outcome, at: datetime) -> dict[str, Any]:
    common = {**config, "compile_time": _compile_ms(outcome), "verification_time": 0, "benchmark_time": 0, "strategy_time": 0,
              "framework_time": 0, "timestamp": at.isoformat()}
    if isinstance(outcome, Measured):
        return {**common, "time": outcome.median_ms, "times": _runtimes_ms(outcome)}
    return {**common, "time": ERRORS[INVALIDITY[outcome.reason]], "times": []}


def _runtimes_ms(outcome: Outcome) -> list[float]:
    """Return raw samples; of a trial that kept none its median."""
    if not isinstance(outcome, Measured):
        return []
    samples = outcome.facts.get("samples_ms")
    return [float(ms) for ms in samples] if isinstance(samples, list) and samples else [outcome.median_ms]


def _compile_ms(outcome: Outcome) -> float:
    seconds = outcome.facts.get("compile_s")
    return 1000 * float(seconds) if isinstance(seconds, int | float) else 0.0
