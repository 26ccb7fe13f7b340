"""Options of a capture tool, checked field by field: the same rules for a form's strings and an API's JSON.

What people type ends in an argument vector, never in a shell string, and cannot begin with a dash.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from profiles.base.refused import Refused

MAX_NAMES = 64
TIME_LIMIT_S = (5, 6 * 3600)
_MAX_REGEX_CHARS = 300

Read = Callable[[Any], Any]


@dataclass(frozen=True)
class Options:
    """Options of one tool. A subclass names its tool, its fields with their defaults, and a reader for each field."""

    TOOL: ClassVar[str] = ""                  # the tool's name in `CAPTURE_TOOLS`
    READ: ClassVar[dict[str, Read]] = {}      # field -> its reader, which raises ValueError with what would be valid
    REFUSED: ClassVar[dict[str, str]] = {}    # field of other tools -> why this one cannot have it

    time_limit_s: int = 600

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Return the options that a form's strings or an API's JSON give; absent fields keep their defaults.

        Raises Refused, which names every invalid field.
        """
        unknown = f"unknown; there are {', '.join(cls.READ)}"
        errors = {name: cls.REFUSED.get(name, unknown) for name in given if name not in cls.READ}
        values: dict[str, Any] = {}
        for name, reader in cls.READ.items():
            try:
                values |= {name: reader(given[name])} if name in given else {}
            except ValueError as error:
                errors[name] = str(error)
        options = cls(**values)
        if errors := errors | options.problems():
            raise Refused(errors)
        return options

    def problems(self) -> dict[str, str]:
        """Return what is wrong between fields that are valid by themselves, by field."""
        return {}

    def as_json(self) -> dict[str, Any]:
        """Return the fields as `parse` takes them and as a capture's row keeps them."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in
                ((name, getattr(self, name)) for name in self.READ)}


@dataclass(frozen=True)
class ProgramOptions(Options):
    """Options of a tool that slows a program down: what it costs can be measured by a run without it."""

    plain_run: bool = False        # run the program once more, without the tool

    def cut_short(self) -> str:
        """Return why the program may not run to its end under the tool, "" where it does: then the two times compare."""
        return ""

    def problems(self) -> dict[str, str]:
        why = self.cut_short()
        return {"plain_run": f"nothing to compare: {why}"} if self.plain_run and why else {}


def choice_of(choices: Mapping[str, str]) -> Read:
    """Return a reader that takes one of the names in `choices`."""
    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return value
    return read


def whole_number(low: int, high: int) -> Read:
    """Return a reader that takes a whole number from `low` to `high`, as a number or as text."""
    def read(value: Any) -> int:
        text = str(value).strip()
        if isinstance(value, bool) or not re.fullmatch(r"-?[0-9]{1,12}", text) or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low:,} to {high:,}")
        return int(text)
    return read


def names_like(pattern: re.Pattern[str], example: str) -> Read:
    """Return a reader of a list, or of text with commas, spaces or lines between the names; it keeps each name once."""
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


def text_like(pattern: re.Pattern[str], valid: str, *, empty: bool = True) -> Read:
    """Return a reader of one text that `pattern` takes whole, without the blanks around it; `valid` says which would be."""
    def read(value: Any) -> str:
        text = value.strip() if isinstance(value, str) else None
        if text is None or not (pattern.fullmatch(text) or (empty and not text)):
            raise ValueError(valid)
        return text
    return read


def read_yes_or_no(value: Any) -> bool:
    """Return a tick box or a JSON boolean as a bool; absent text is a no."""
    if value in (True, "on", "true", "1"):
        return True
    if value in (False, None, "", "off", "false", "0"):
        return False
    raise ValueError("true or false")


def read_regex(value: Any) -> str:
    """Return a regular expression that compiles, without the blanks around it."""
    if not isinstance(value, str) or len(value) > _MAX_REGEX_CHARS or not value.isprintable():
        raise ValueError(f"a regular expression of at most {_MAX_REGEX_CHARS} printable characters on one line")
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"no regular expression ({error}); a name such as matmul is one") from error
    return value.strip()


def read_regexes(value: Any) -> str:
    """Return one alternation of several regular expressions: a list, or text with one a line. An empty one is left out."""
    parts = value.splitlines() if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or len(parts) > MAX_NAMES:
        raise ValueError(f"at most {MAX_NAMES} regular expressions, one a line")
    return read_regex("|".join(dict.fromkeys(regex for part in parts if (regex := read_regex(part)))))
