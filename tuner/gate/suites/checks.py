"""Checks of single fields of a suite's definition; what is wrong is collected, with the line where a file has it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from profiles.base.refused import Refused
from tuner.gate.stats.metrics import LIMITS, check_limits
from tuner.gate.stats.rule import RANGES, Rule, finite_number
from tuner.tuning.measure.policy import Policy
from tuner.tuning.trial import storable

CONFIGS = ("default", "cache")
MAX_METRICS = 50
MAX_HOURS = 24 * 365


@dataclass(frozen=True)
class Problem:
    field: str                       # "kernel[2].shape.M"; "" for the file as a whole
    what: str                        # what is wrong and what would be valid
    line: int | None = None          # of the file, from 1

    def __str__(self) -> str:
        return ": ".join(filter(None, (f"line {self.line}" if self.line else "", self.field, self.what)))


class DefinitionError(Refused):
    """The definition cannot be used; every problem that was found, and for the API the first of each field."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        fields: dict[str, str] = {}
        for one in problems:
            fields.setdefault(one.field, f"line {one.line}: {one.what}" if one.line else one.what)
        super().__init__(fields, whole="suite")
        self.problems = list(problems)

    def __str__(self) -> str:
        return "; ".join(map(str, self.problems[:5]))


class FieldChecks:
    """`lines` says where a field stands in its file."""

    def __init__(self, lines: Mapping[str, int] | None = None) -> None:
        self.problems: list[Problem] = []
        self.lines = lines or {}

    def say(self, name: str, what: str) -> None:
        where = name
        while where and where not in self.lines:      # of kernel[2].shape.M the nearest that the file names
            where = where.rpartition(".")[0]
        self.problems.append(Problem(name, what, self.lines.get(where)))

    def unknown(self, where: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
        for name in given:
            if name not in known:
                short = str(name)[:40].encode("ascii", "backslashreplace").decode()
                self.say(f"{where}.{short}".lstrip("."), f"unknown; there are {', '.join(known)}")

    def text(self, name: str, value: Any, most: int) -> str:
        if not isinstance(value, str) or len(value) > most or not storable(value) or not (value.isprintable() or not value):
            self.say(name, f"text of at most {most} printable characters")
            return ""
        return value.strip()

    def choice(self, name: str, value: Any, known: Sequence[str]) -> str:
        if value not in known:
            self.say(name, f"one of {', '.join(known)}")
            return known[0]
        return str(value)

    def flag(self, name: str, value: Any) -> bool:
        if not isinstance(value, bool):
            self.say(name, "true or false")
        return value is True

    def whole(self, name: str, value: Any, low: int, high: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.say(name, f"a whole number from {low} to {high}")
            return low
        return value

    def number(self, name: str, value: Any, low: float, high: float) -> float | None:
        number = finite_number(value)
        if number is None or not low <= number <= high:
            self.say(name, f"a number from {low:g} to {high:g}")
            return None
        return number

    def hours(self, value: Any) -> float | None:
        return None if value is None else self.number("every_hours", value, 0.25, MAX_HOURS)

    def build_path(self, value: Any) -> str:
        path = self.text("build_path", value, 500)
        if path and (not path.startswith("/") or path.count("{build}") != 1 or ".." in path.split("/")):
            self.say("build_path", "an absolute path on the workers with one {build} in it: /srv/builds/{build}")
        return path

    def config(self, name: str, value: Any) -> tuple[str, Mapping[str, Any] | None]:
        if value in CONFIGS:
            return str(value), None
        plain = isinstance(value, Mapping) and 0 < len(value) <= 64 and all(
            isinstance(key, str) and storable(key) and len(key) <= 60 and is_plain_value(each) for key, each in value.items())
        if not plain:
            self.say(name, 'one of default, cache, or the configuration\'s parameters, each a number or a text')
            return "default", None
        return "given", dict(value)

    def rule(self, name: str, value: Any) -> dict[str, Any]:
        """Fields of Rule that differ from its defaults' names and kinds."""
        if not isinstance(value, Mapping):
            self.say(name, f"a table with any of {', '.join(RANGES)}")
            return {}
        self.unknown(name, value, tuple(RANGES))
        found = {key: number for key, each in value.items() if key in RANGES
                 and (number := self.number(f"{name}.{key}", each, *RANGES[key])) is not None}
        rule = Rule(**found)
        if rule.floor > rule.target or rule.floor_p95 > rule.target_p95:
            self.say(name, "a floor lies at or below its target")
        return found

    def metrics(self, name: str, value: Any) -> dict[str, dict[str, Any]]:
        """Metric -> how far it may go: {"max_increase": 0.1}, as fractions for increases, plain values for max and min."""
        if not isinstance(value, Mapping) or len(value) > MAX_METRICS:
            self.say(name, f"a table of at most {MAX_METRICS} metrics, each with {', '.join(LIMITS)}")
            return {}
        if any(not isinstance(metric, str) or not 0 < len(metric) <= 120 or not storable(metric) or not metric.isprintable()
               for metric in value):
            self.say(name, "a metric's name is 1 to 120 printable characters")
            return {}
        problems = check_limits(value)
        for where, problem in problems.items():
            self.say(f"{name}.{where[:160]}", problem)
        return {} if problems else {metric: dict(limits) for metric, limits in value.items()}

    def policy(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            self.say("policy", "a table of measuring fields: min_samples, max_samples, kind …")
            return {}
        try:
            if any(_is_wild(each) for each in value.values()):
                raise ValueError("policy: numbers are finite and at most 1e9")
            policy = Policy.read({str(name)[:60]: each for name, each in value.items()})
        except ValueError as error:
            self.say("policy", str(error).removeprefix("policy: ")[:300])
            return {}
        return {name: getattr(policy, name) for name in value}


def is_plain_value(value: Any, most_characters: int = 200) -> bool:
    """Return whether a parameter has this value as files and columns hold it: a short text, true or false, a finite number."""
    if isinstance(value, str):
        return storable(value) and len(value) <= most_characters
    if isinstance(value, bool):
        return True
    return (isinstance(value, int) and abs(value) < 2**53) or (isinstance(value, float) and math.isfinite(value))


def _is_wild(value: Any) -> bool:
    return isinstance(value, int | float) and not abs(value) <= 1e9
