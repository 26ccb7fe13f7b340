"""A suite in words: what a file in the team's repository, a form and the API all say, checked field by field. Standard library.

    name = "llama-decode"
    runs = 5                       # fresh processes of a candidate build
    device = "gpu:NVIDIA H200"

    [[kernel]]
    op = "matmul"
    shape = {M = 4096, N = 4096, K = 4096}      # or shapes = [{…}, {…}]
    dtype = "bf16"                              # or dtypes = ["bf16", "fp16"]
    config = "cache"                            # "default", "cache", or the parameters themselves

What is wrong with single fields is collected, with the line where a file has it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NotRequired, Required, TypedDict, cast

from profiles.base.answers import Scalar
from profiles.base.refused import Refused
from tuner.gate.stats.metrics import LIMITS, check_limits
from tuner.gate.stats.rule import RANGES, Rule, finite_number
from tuner.tuning.measure.policy import Policy
from tuner.tuning.operators import all_operators, find
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
        for problem in problems:
            fields.setdefault(problem.field, f"line {problem.line}: {problem.what}" if problem.line else problem.what)
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
            isinstance(key, str) and storable(key) and len(key) <= 60 and is_plain_value(element) for key, element in value.items())
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
        numbers = {key: number for key, setting in value.items() if key in RANGES
                   and (number := self.number(f"{name}.{key}", setting, *RANGES[key])) is not None}
        rule = Rule(**numbers)
        if rule.floor > rule.target or rule.floor_p95 > rule.target_p95:
            self.say(name, "a floor lies at or below its target")
        return numbers

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
            if any(_is_wild(setting) for setting in value.values()):
                raise ValueError("policy: numbers are finite and at most 1e9")
            policy = Policy.read({str(name)[:60]: setting for name, setting in value.items()})
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


KINDS = ("operators", "target", "uploaded")
MAX_KERNELS, MAX_RUNS = 3_000, 200
NAME = re.compile(r"[A-Za-z0-9_-]{1,60}\Z")
TOP = ("name", "title", "kind", "device", "target", "build_path", "runs", "baseline_runs", "every_hours", "capture_slower",
       "enabled", "rule", "metrics", "policy", "kernel")
KERNEL = ("op", "shape", "shapes", "dtype", "dtypes", "config", "tag", "enabled", "rule", "metrics")


@dataclass(frozen=True)
class KernelDefinition:
    key: str
    op: str
    shape: Mapping[str, int]
    dtype: str
    config_from: str = "default"                      # "default" | "cache" | "given"
    config: Mapping[str, Any] | None = None
    tag: str = ""
    enabled: bool = True
    rule: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Definition:
    name: str
    title: str = ""
    kind: str = "operators"
    device: str = "gpu"
    target: str = ""                                  # name of the capture target
    build_path: str = ""
    runs: int = 5
    baseline_runs: int = 10
    every_hours: float | None = None
    capture_slower: bool = False                      # counters of both builds where a verdict is SLOWER
    enabled: bool = True
    rule: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)
    kernels: Sequence[KernelDefinition] = ()


def kernel_key(op: str, shape: Mapping[str, Any], dtype: str, tag: str = "") -> str:
    """Return a kernel's canonical key, "matmul M=4096 N=4096 K=4096 bf16"; `tag` tells equal problems apart.

    Dimensions stand in the operator's order.
    """
    operator = find(op)
    names = [dim.name for dim in operator.dims] if operator else []
    ordered = (*(name for name in names if name in shape), *sorted(name for name in shape if name not in names))
    return " ".join(filter(None, (op, *(f"{name}={shape[name]}" for name in ordered), dtype, tag)))


class Reader(FieldChecks):
    """Reads one document and collects what is wrong with it."""

    def definition(self, document: Any) -> Definition:
        if not isinstance(document, Mapping):
            self.say("", "a suite is an object with name and kernels")
            raise DefinitionError(self.problems)
        self.unknown("", document, (*TOP, "kernels"))
        kind = self.choice("kind", document.get("kind", "operators"), KINDS)
        name = self.text("name", document.get("name", ""), 60)
        if not NAME.match(name):
            self.say("name", "1 to 60 letters, digits, - and _")
        definition = Definition(
            name=name, title=self.text("title", document.get("title", ""), 200), kind=kind,
            device=self.text("device", document.get("device", "gpu"), 120) or "gpu",
            target=self.text("target", document.get("target", ""), 120),
            build_path=self.build_path(document.get("build_path", "")),
            runs=self.whole("runs", document.get("runs", 5), 1, MAX_RUNS),
            baseline_runs=self.whole("baseline_runs", document.get("baseline_runs", 10), 1, MAX_RUNS),
            every_hours=self.hours(document.get("every_hours")),
            capture_slower=self.flag("capture_slower", document.get("capture_slower", False)),
            enabled=self.flag("enabled", document.get("enabled", True)),
            rule=self.rule("rule", document.get("rule", {})), metrics=self.metrics("metrics", document.get("metrics", {})),
            policy=self.policy(document.get("policy", {})),
            kernels=self.kernels(document.get("kernel", document.get("kernels", [])), kind))
        if kind == "target" and not definition.target:
            self.say("target", "name the capture target whose kernels are watched")
        if kind != "target" and definition.target:
            self.say("target", 'only a suite of kind "target" has one')
        if kind == "uploaded" and definition.capture_slower:
            self.say("capture_slower", "runs of this suite are uploaded: nothing here can launch its kernels")
        if kind == "uploaded" and definition.every_hours is not None:
            self.say("every_hours", "runs of this suite are uploaded: nothing here can measure them on a schedule")
        if self.problems:
            raise DefinitionError(self.problems)
        return definition

    def kernels(self, given: Any, kind: str) -> list[KernelDefinition]:
        if not isinstance(given, list):
            self.say("kernel", "a list of kernels: [[kernel]]")
            return []
        if kind != "operators" and given:
            self.say("kernel", f'kernels of a suite of kind "{kind}" are those that its runs hold: leave them out')
            return []
        if kind == "operators" and not given:
            self.say("kernel", "at least one: [[kernel]] with op, shape and dtype")
        kernels_by_key: dict[str, KernelDefinition] = {}
        if len(given) > MAX_KERNELS:
            self.say("kernel", f"at most {MAX_KERNELS:,} kernels")
        read = ((at, kernel) for at, each in enumerate(given[:MAX_KERNELS]) for kernel in self.kernel(f"kernel[{at}]", each))
        for number, (index, kernel) in enumerate(read):
            if number >= MAX_KERNELS:           # shapes × dtypes multiply: what follows is not looked at
                self.say("kernel", f"at most {MAX_KERNELS:,} kernels")
                break
            if kernel.key in kernels_by_key:
                self.say(f"kernel[{index}]", f"{kernel.key} is there already; give one of the two a tag")
            kernels_by_key.setdefault(kernel.key, kernel)
        return list(kernels_by_key.values())

    def kernel(self, where: str, given: Any) -> Iterator[KernelDefinition]:
        """One entry, which may name several shapes and types."""
        if not isinstance(given, Mapping):
            self.say(where, "a kernel is a table with op, shape and dtype")
            return
        self.unknown(where, given, KERNEL)
        op = self.text(f"{where}.op", given.get("op", ""), 200)
        operator = find(op)
        if operator is None:
            self.say(f"{where}.op", f"no operator of this name; there are {', '.join(all_operators())}")
            return
        tag = self.text(f"{where}.tag", given.get("tag", ""), 60)
        config_from, config = self.config(f"{where}.config", given.get("config", "default"))
        shared: dict[str, Any] = {"config_from": config_from, "config": config, "tag": tag,
                  "enabled": self.flag(f"{where}.enabled", given.get("enabled", True)),
                  "rule": self.rule(f"{where}.rule", given.get("rule", {})),
                  "metrics": self.metrics(f"{where}.metrics", given.get("metrics", {}))}
        for name, shape in self.several(where, given, "shape", None):
            for dtype_name, dtype in self.several(where, given, "dtype", operator.dtypes[0]):
                if not isinstance(shape, Mapping):
                    self.say(name, f"a table of whole numbers: {', '.join(dim.name for dim in operator.dims)}")
                    continue
                wrong = operator.problems(shape, dtype if isinstance(dtype, str) else "")
                for of, problem in wrong.items():
                    self.say(dtype_name if of == "dtype" else name if of == "shape" else f"{name}.{of}", problem)
                if not wrong:
                    plain = {dim.name: int(shape[dim.name]) for dim in operator.dims}
                    yield KernelDefinition(kernel_key(op, plain, dtype, tag), op, plain, dtype, **shared)

    def several(self, where: str, given: Mapping[str, Any], name: str, default: Any) -> list[tuple[str, Any]]:
        """`shape` or `shapes`, `dtype` or `dtypes`: each with the field's name."""
        many = given.get(f"{name}s")
        if many is None:
            return [(f"{where}.{name}", given.get(name, default))]
        if name in given or not isinstance(many, list) or not 1 <= len(many) <= MAX_KERNELS:
            self.say(f"{where}.{name}s", f"a list of 1 to {MAX_KERNELS:,}, and no {name} beside it")
            return []
        return [(f"{where}.{name}s[{index}]", element) for index, element in enumerate(many)]


def read_definition(document: Any, lines: Mapping[str, int] | None = None) -> Definition:
    """Return a definition from JSON or a parsed file.

    DefinitionError names every wrong field, with its line where a file has it.
    """
    return Reader(lines).definition(document)


class DefinedKernelJson(TypedDict):
    """A kernel of a suite's file; `config`: "default", "cache", or its parameters."""

    op: str
    shape: dict[str, int]
    dtype: str
    config: str | dict[str, Scalar]
    tag: NotRequired[str]
    rule: NotRequired[dict[str, float]]
    metrics: NotRequired[dict[str, dict[str, Scalar]]]
    enabled: NotRequired[bool]


class DefinitionJson(TypedDict, total=False):
    """What a suite's file says (docs/suites.md); what is not said is as usual."""

    name: Required[str]
    title: str
    kind: Required[str]
    device: Required[str]
    target: str
    build_path: str
    runs: Required[int]
    baseline_runs: Required[int]
    every_hours: float | None
    capture_slower: bool
    enabled: bool
    rule: dict[str, float]
    metrics: dict[str, dict[str, Scalar]]
    policy: dict[str, Scalar]
    kernel: list[DefinedKernelJson]


def definition_document(definition: Definition) -> DefinitionJson:
    """Return what `read_definition` takes: only what is said, in the order in which people write it."""
    plain = Definition(definition.name)
    document: dict[str, Any] = {"name": definition.name}
    for name in TOP[1:-1]:
        value = getattr(definition, name)
        if value != getattr(plain, name) or name in ("kind", "runs", "baseline_runs", "device"):
            document[name] = dict(value) if isinstance(value, Mapping) else value
    if definition.kernels:
        document["kernel"] = [_kernel_document(kernel) for kernel in definition.kernels]
    return cast(DefinitionJson, document)


def _kernel_document(kernel: KernelDefinition) -> dict[str, Any]:
    config: Any = dict(kernel.config) if kernel.config_from == "given" and kernel.config else kernel.config_from
    document = {"op": kernel.op, "shape": dict(kernel.shape), "dtype": kernel.dtype, "config": config}
    extra = {"tag": kernel.tag, "rule": dict(kernel.rule), "metrics": dict(kernel.metrics)}
    return document | {name: value for name, value in extra.items() if value} | ({} if kernel.enabled else {"enabled": False})
