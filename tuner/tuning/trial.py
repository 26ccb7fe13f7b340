"""A configuration, and what came of trying it. A failure is a value with a reason, not an exception."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Value = int | float | str | bool
Config = Mapping[str, Value]
MOST_ERROR_CHARS = 2000


def config_key(config: Config) -> str:
    """Canonical text of a configuration: equal configurations have equal keys, in any order of their parameters."""
    return json.dumps(dict(config), sort_keys=True, separators=(",", ":"))


def storable(text: str) -> bool:
    """Whether a database row can hold a text: PostgreSQL keeps no NUL, and half of a surrogate pair is no character."""
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


def error_text(error: Exception) -> str:
    """Return an exception's type and text, of a long one the first MOST_ERROR_CHARS characters."""
    text = f"{type(error).__name__}: {error}".strip()
    return text if len(text) <= MOST_ERROR_CHARS else text[:MOST_ERROR_CHARS] + " …"


def cleaned(value: Any) -> Any:
    """Others' words as PostgreSQL keeps them, in text and in JSON: no NUL, no half of a surrogate pair."""
    if isinstance(value, str):
        return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {cleaned(name): cleaned(element) for name, element in value.items()}
    return [cleaned(element) for element in value] if isinstance(value, list) else value


class Reason(StrEnum):
    """Why a configuration was rejected."""

    COMPILE = "compile"                  # the compiler refused it
    RESOURCES = "resources"              # registers, shared memory or threads beyond the GPU
    SPILLS = "spills"                    # compiled to code that lives off local memory: not worth a measurement
    WRONG = "wrong"                      # output differs from the reference
    CRASH = "crash"                      # illegal access, dead child
    TIMEOUT = "timeout"                  # compile or run over its limit
    IMPOSSIBLE = "impossible"            # faster than the GPU can be: it did not do the work, or was not measured right
    QUARANTINED = "quarantined"          # crashed, hung or lied before, somewhere in the fleet
    OTHER = "other"


@dataclass(frozen=True)
class Measured:
    """Times in ms over n samples, taken as `Policy` says."""

    median_ms: float
    min_ms: float
    p90_ms: float
    n: int
    facts: Mapping[str, Any] = field(default_factory=dict)   # registers, spills, smem_bytes, relative_error, compile_s, clocks


@dataclass(frozen=True)
class Rejected:
    reason: Reason
    message: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


Outcome = Measured | Rejected


@dataclass(frozen=True)
class Trial:
    """One configuration that was compiled or run, in the order asked."""

    number: int
    config: Config
    outcome: Outcome
    at_s: float = 0.0                    # seconds of job time when it was known

    @property
    def median_ms(self) -> float | None:
        return self.outcome.median_ms if isinstance(self.outcome, Measured) else None
