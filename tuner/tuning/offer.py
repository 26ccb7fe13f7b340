"""A space that only the machine with the GPU knows: what its library or program offers for one problem.

The process that owns the GPU lists it on opening a session; it travels as JSON (tuner.tuning.wire, the job's row), and is read with
bounds like everything that comes from such a process.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tuner.tuning.space import Param, Space
from tuner.tuning.trial import Config, Value, config_key

MAX_CONFIGS = 20_000
MAX_PARAMS, MAX_REASONS, MAX_TEXT = 24, 32, 200


@dataclass(frozen=True)
class Offer:
    """What can be run at one shape on one GPU.

    space    all of it, with what was left out by reason
    library  whose it is, with the version: "cublasLt 13.1.0"
    default  row of what the library itself chooses; None where it chooses nothing of these
    starts   rows in the library's own order of preference, best first
    about    counts of the listing, for the record: plain numbers and texts
    """

    space: Space
    library: str
    default: int | None = None
    starts: tuple[int, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, configs: Sequence[Config], library: str, *, preferred: Sequence[Config] = (),
           pruned: Mapping[str, int] | None = None, values: Mapping[str, Sequence[Value]] | None = None,
           about: Mapping[str, Any] | None = None) -> Offer:
        """Return the offer of these configurations, each once; `preferred`: the library's order, its first is the default.

        Beyond MAX_CONFIGS they are left out and counted; what is preferred is kept.
        """
        unique = list({config_key(config): config for config in (*preferred, *configs)}.values())
        left_out = dict(pruned or {})
        if len(unique) > MAX_CONFIGS:
            left_out[f"beyond the first {MAX_CONFIGS:,}"] = len(unique) - MAX_CONFIGS
        space = Space.listed(unique[:MAX_CONFIGS], left_out, values)
        rows = [row for config in preferred if (row := space.row(config)) is not None]
        return cls(space, library, rows[0] if rows else None, tuple(dict.fromkeys(rows)), about or {})

    @property
    def default_config(self) -> Config | None:
        """Return the configuration that the library itself chooses."""
        return None if self.default is None else self.space.config(self.default)

    def as_json(self) -> dict[str, Any]:
        """Return the offer as JSON, a row of value indices for each configuration."""
        params = [{"name": param.name, "values": list(param.values)} for param in self.space.params]
        return {"library": self.library, "params": params, "rows": self.space.rows.tolist(), "pruned": self.space.pruned,
                "default": self.default, "starts": list(self.starts), "about": dict(self.about)}


def values_by_size(configs: Sequence[Config], names: Sequence[str]) -> dict[str, list[Value]]:
    """Return parameter → its values as people read them: "64x32" by its product, then its first number; words first."""
    return {name: sorted({config[name] for config in configs}, key=_size) for name in names if configs}


def _size(value: Value) -> tuple[int, int, str]:
    numbers = [int(part) for part in re.findall(r"\d+", str(value))]
    return (math.prod(max(1, number) for number in numbers), numbers[0], str(value)) if numbers else (0, 0, str(value))


def read_offer(told: Any) -> Offer:
    """Return the offer of its JSON. Raises ValueError that says what is wrong."""
    try:
        return _read(told)
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"no listing of configurations: {error!r}"[:MAX_TEXT]) from error


def _read(told: Any) -> Offer:
    entries = told["params"]
    if not isinstance(entries, list) or len(entries) > MAX_PARAMS:
        raise ValueError(f"a listing has at most {MAX_PARAMS} parameters")
    params = tuple(Param(_text(entry["name"]), tuple(map(_value, entry["values"]))) for entry in entries)
    if not isinstance(told["rows"], list) or len(told["rows"]) > MAX_CONFIGS:
        raise ValueError(f"a listing has at most {MAX_CONFIGS:,} configurations")
    rows = np.array(told["rows"], dtype=np.int32).reshape(len(told["rows"]), len(params))
    if len(rows) and (rows.min() < 0 or (rows >= [len(param.values) for param in params]).any()):
        raise ValueError("a configuration of the listing names a value that its parameter lacks")
    pruned = {_text(reason): _count(count) for reason, count in list(told["pruned"].items())[:MAX_REASONS]}
    about = {_text(name): _value(value) for name, value in list(told.get("about", {}).items())[:MAX_REASONS]}
    starts = [_row(row, len(rows)) for row in told["starts"][:MAX_CONFIGS]]
    default = None if told["default"] is None else _row(told["default"], len(rows))
    return Offer(Space(params, rows, pruned), _text(told["library"]), default, tuple(starts), about)


def _row(value: Any, most: int) -> int:
    if not 0 <= _count(value) < most:
        raise ValueError(f"the listing has no configuration {value}")
    return int(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
        raise ValueError(f"{str(value)[:60]!r} is no count")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise ValueError(f"{str(value)[:60]!r} is no text of at most {MAX_TEXT} characters")
    return value


def _value(value: Any) -> Value:
    if isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 1 << 53):
        return value
    return _text(value)
