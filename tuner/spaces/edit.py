"""An edited space: values that a person leaves or adds, and constraints beside the operator's own."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from profiles.base.refused import Refused
from tuner.bring.edited import check_values, read_values
from tuner.tuning.space import Param, Space
from tuner.tuning.team.expressions import Expression
from tuner.tuning.trial import Config, Value, storable

# An edited space in words: how it differs from the operator's own.


def edit_text(space: Mapping[str, Any] | None) -> str:
    """Return "BM 64, 128 (without 16, 32); num_stages with 6; BM * BN <= 8192"; "" where it is the operator's own."""
    if not space:
        return ""
    parts = [parameter_text(name, values, space.get("own", {}).get(name, ())) for name, values in space["parameters"].items()]
    return "; ".join([*parts, *space["constraints"]])


def parameter_text(name: str, values: Sequence[Any], own: Sequence[Any]) -> str:
    """Return what of a parameter is left, taken out and added."""
    added, without = [value for value in values if value not in own], [value for value in own if value not in values]
    if not without:
        return f"{name} with {_listed(added)}"
    more = f", with {_listed(added)}" if added else ""
    return f"{name} {_listed([value for value in values if value in own] or values)} (without {_listed(without)}{more})"


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(map(str, values))


MAX_CONSTRAINTS = 16
COUNT_S = 1.0
LOOK_EVERY = 256                # configurations between two looks at the clock
TAKEN_OUT = "values taken out"
MOST_WARPS = 32
Values = Mapping[str, tuple[Value, ...]]


@dataclass(frozen=True)
class OwnSpace:
    """What an operator offers at one shape on one GPU.

    names     constants that constraints may use beside the parameters: dimensions, limits of the GPU
    fixed     why no value can be added; "" where some can
    left_out  own constraint → configurations that `walk` does not yield
    walk      values of every parameter → (configuration, own constraint that it breaks or "") of their combinations
    size      values of every parameter → combinations before any constraint
    unknown   why nobody knows the space yet, and what makes it known; "" where it is known
    takes     parameter → what it takes beside its own values, in words, "" nothing; {} where `fixed` says it of all
    refuses   parameter and a value that is added → why its kernels do not take it, "" they do
    """

    operator: str
    gpu: str
    params: tuple[Param, ...]
    names: Mapping[str, float]
    default: Config | None
    fixed: str
    left_out: Mapping[str, int]
    walk: Callable[[Values], Iterator[tuple[Config, str]]]
    size: Callable[[Values], int]
    unknown: str = ""
    takes: Mapping[str, str] = field(default_factory=dict)
    refuses: Callable[[str, Value], str] = lambda name, value: ""

    @property
    def values(self) -> dict[str, tuple[Value, ...]]:
        """Return parameter → its own values."""
        return {param.name: param.values for param in self.params}


class EditedSpaceJson(TypedDict):
    """Values by parameter, the edited ones and those of the operator itself, and constraints over them."""

    parameters: dict[str, list[Value]]
    constraints: list[str]
    own: dict[str, list[Value]]


@dataclass(frozen=True)
class Edit:
    """Parameters that have other values than the operator gives them (`own`), and constraints beside its own."""

    parameters: Values
    constraints: tuple[str, ...]
    own: Values

    def __bool__(self) -> bool:
        return bool(self.parameters or self.constraints)

    def as_json(self) -> EditedSpaceJson:
        """Return it as a row keeps it and the API says it."""
        return {"parameters": {name: list(values) for name, values in self.parameters.items()},
                "constraints": list(self.constraints), "own": {name: list(values) for name, values in self.own.items()}}


@dataclass(frozen=True)
class Count:
    """`left_out`: reason → configurations, the first broken one counts; not `whole`: time was up, `valid` is at least that many."""

    size: int
    valid: int
    left_out: Mapping[str, int]
    whole: bool


def read_edit(given: Any, own: OwnSpace) -> Edit:
    """Return {"parameters": {name: values}, "constraints": [expression]} checked against a space. Raises Refused."""
    if not isinstance(given, Mapping) or not set(given) <= {"parameters", "constraints", "own"}:
        raise Refused({"": 'must be an object of "parameters" and "constraints"'})
    parameters, constraints = given.get("parameters") or {}, given.get("constraints") or []
    if own.unknown and (parameters or constraints):
        raise Refused({"": f"nothing can be edited: {own.unknown}"})
    if not isinstance(parameters, Mapping):
        raise Refused({"parameters": "must be an object: parameter → list of its values"})
    if not isinstance(constraints, Sequence) or isinstance(constraints, str) or len(constraints) > MAX_CONSTRAINTS:
        raise Refused({"constraints": f"must be a list of at most {MAX_CONSTRAINTS} expressions"})
    wrong: dict[str, str] = {}
    edited: dict[str, tuple[Value, ...]] = {}
    for name, values in parameters.items():
        try:
            valid_values = _read_values(str(name), values, own)
            if set(valid_values) != set(own.values[str(name)]):
                edited[str(name)] = valid_values
        except ValueError as error:
            wrong[f"parameters.{str(name)[:60]}"] = str(error)
    rules = []
    for place, text in enumerate(constraints):
        try:
            rules.append(Expression(text, [*own.values, *own.names]).text.strip())
        except ValueError as error:
            wrong[f"constraints[{place}]"] = str(error)
    if wrong:
        raise Refused(wrong)
    return Edit(edited, tuple(dict.fromkeys(rules)), {name: own.values[name] for name in edited})


def _read_values(name: str, given: Any, own: OwnSpace) -> tuple[Value, ...]:
    """Return values of a parameter in order, the operator's own spelling first. Raises ValueError."""
    mine = own.values.get(name)
    if mine is None:
        raise ValueError(f"{own.operator} has no such parameter; it has {', '.join(own.values)}")
    if not isinstance(given, str | list | tuple):
        raise ValueError("give a list of values")
    if not given:
        raise ValueError("leave at least one value")
    try:
        typed = read_values(name, given) if isinstance(given, str) else tuple(given)
        values = tuple(dict.fromkeys(_own_spelling(value, mine) for value in typed if isinstance(value, int | float | str)))
        if len(typed) > len(values) or set(values) - set(mine):
            check_values(name, typed)
    except Refused as refused:
        raise ValueError(refused.what) from refused
    for value in values:
        if value not in mine:
            _check_added(name, value, own)
    if all(isinstance(value, int | float) for value in values):
        return tuple(sorted(values, key=float))
    return (*(value for value in mine if value in values), *(value for value in values if value not in mine))


def _own_spelling(value: Value, mine: Sequence[Value]) -> Value:
    """Return the operator's own value that this one is (1.0 is 1, true is not), else itself."""
    return next((each for each in mine if each == value and isinstance(each, bool) == isinstance(value, bool)), value)


def _check_added(name: str, value: Value, own: OwnSpace) -> None:
    """Raise ValueError unless the operator takes a value that its space does not name."""
    mine = own.values[name]
    text = ", ".join(map(str, mine))
    if own.fixed:
        raise ValueError(f"{value}: {own.fixed}; it has {text}")
    if why := own.refuses(name, value):
        more = f", and takes {words}" if (words := own.takes.get(name)) else ""
        raise ValueError(f"{str(value)[:40]}: {why}; it has {text}{more}")
    if isinstance(value, str) and not storable(value):
        raise ValueError("a text has no NUL and no half of a character")
    if any(isinstance(value, str) != isinstance(own_value, str) or isinstance(value, bool) != isinstance(own_value, bool)
           or (isinstance(value, float) and isinstance(own_value, int)) for own_value in mine):
        raise ValueError(f"{value} is of another kind than {text}")
    if name == "num_warps" and value not in [1 << power for power in range(MOST_WARPS.bit_length())]:
        raise ValueError(f"{value}: a block has 1, 2, 4, 8, 16 or 32 warps")
    if name == "num_stages" and not 0 <= float(value) <= 16:
        raise ValueError(f"{value}: 0 to 16 stages")


def walk_edited(own: OwnSpace, edit: Edit) -> Iterator[tuple[Config, str]]:
    """Yield combinations of the edited values, each with the first constraint that it breaks or "". Raises Refused."""
    rules = [(text, Expression(text, [*own.values, *own.names])) for text in edit.constraints]
    for config, broken in own.walk({**own.values, **edit.parameters}):
        yield config, broken or _first_broken(config, rules, own.names)


def _first_broken(config: Config, rules: Sequence[tuple[str, Expression]], names: Mapping[str, float]) -> str:
    for place, (text, rule) in enumerate(rules):
        try:
            if not rule.value({**names, **config}):
                return text
        except ValueError as error:
            raise Refused({f"constraints[{place}]": str(error)}) from error
    return ""


def count_edited(own: OwnSpace, edit: Edit, limit_s: float = COUNT_S) -> Count:
    """Return how many configurations can run, as far as `limit_s` allows. Raises Refused."""
    end_s = time.monotonic() + limit_s
    left_out: Counter[str] = Counter(own.left_out)
    values, valid, whole = {**own.values, **edit.parameters}, 0, True
    for number, (_, broken) in enumerate(walk_edited(own, edit)):
        if number % LOOK_EVERY == 0 and time.monotonic() > end_s:
            whole = False
            break
        valid += not broken
        if broken:
            left_out[broken] += 1
    size = own.size(values)
    taken_out = size - valid - sum(left_out.values())
    if whole and taken_out:
        left_out[TAKEN_OUT] = taken_out
    return Count(size, valid, dict(left_out), whole)


def has_default(own: OwnSpace, edit: Edit) -> bool:
    """Return whether the operator's default configuration is in the edited space."""
    if own.default is None or any(own.default.get(name) not in values for name, values in edit.parameters.items()):
        return False
    of_default = {name: tuple(value for value in values if value == own.default.get(name)) for name, values in own.values.items()}
    added = {name: (own.default[name],) for name in edit.parameters}
    return any(not broken for _, broken in walk_edited(own, Edit({**of_default, **added}, edit.constraints, {})))


def edited_space(own: OwnSpace, edit: Edit) -> Space:
    """Return the space that a search sees. Raises Refused where nothing of it can run."""
    configs: list[Config] = []
    left_out: Counter[str] = Counter(own.left_out)
    for config, broken in walk_edited(own, edit):
        if broken:
            left_out[broken] += 1
        else:
            configs.append(config)
    values = {**own.values, **edit.parameters}
    if taken_out := own.size(values) - len(configs) - sum(left_out.values()):
        left_out[TAKEN_OUT] = taken_out
    if not configs:
        reasons = ", ".join(f"{count:,} × {reason}" for reason, count in left_out.most_common(5))
        raise Refused({"": f"no configuration is left on {own.gpu or 'this GPU'} ({reasons}): take less out"})
    return Space.listed(configs, left_out, values)
