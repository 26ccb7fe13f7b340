"""Answers of the API as types: what pages of lists have in common, why something was refused, and how a row becomes an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import date
from functools import cache
from typing import Any, NotRequired, TypedDict, TypeVar, cast, get_origin, get_type_hints

Answer = TypeVar("Answer")


class Paged(TypedDict):
    """What pages of lists add (`list_api.Page.answer`)."""

    count: int                      # of the whole list
    next_offset: int | None         # where the next page begins; null after the last


class Listed(Paged):
    """A list with the addresses of its neighbours (`list_api.Pages`)."""

    next: str | None
    previous: str | None


@dataclass(frozen=True)
class Choice:
    """One line of a list: its value in the form, its name, and what tells it from its like (build, GPU, kind, date)."""

    value: str
    title: str
    note: str

    @property
    def text(self) -> str:
        """Return both for a plain option."""
        return f"{self.title} · {self.note}" if self.note else self.title


Scalar = int | float | str | bool | None            # a value of a configuration, a cell of a table


# what a tool or host reports
Facts = Mapping[str, Scalar | Sequence[Scalar] | Mapping[str, Scalar | Sequence[Scalar] | Mapping[str, Scalar]]]


# what a finding rests on: numbers with their units in their names, and the few names and parts that they are of
Numbers = dict[str, Scalar | list[Scalar | list[Scalar]] | dict[str, Scalar]]


class FindingJson(TypedDict):
    """One finding of an analysis; `worth_ns`: what there is to win; `kernel`: its full name, where it is about one."""

    rule: str
    severity: str
    title: str
    advice: str
    numbers: Numbers
    worth_ns: float | None
    kernel: str | None


class ErrorJson(TypedDict):
    """Why a job failed: where, what was wrong, and what to do."""

    where: str
    what: str
    hint: str
    kind: NotRequired[str]              # "no room": a profile is read again once the disk has more than `free_bytes`
    free_bytes: NotRequired[int]


class RefusedJson(TypedDict):
    """Why a request was not done, where, and what to do."""

    error: str
    where: str
    hint: str


def make_answer(kind: type[Answer], row: object, /, **more: Any) -> Answer:
    """Return the TypedDict `kind` with its fields in their order: what `more` gives, else the row's attributes, as `plain`.

    An optional field that `more` lacks is left out.
    """
    return cast(Answer, {name: plain(more[name] if name in more else getattr(row, name))
                         for name, is_optional in _fields_of(cast(Any, kind)) if name in more or not is_optional})


@cache
def _fields_of(kind: Any) -> list[tuple[str, bool]]:
    """Return names of fields, and whether each is optional: Python's own word for it does not see through annotations as text."""
    return [(name, get_origin(hint) is NotRequired) for name, hint in get_type_hints(kind, include_extras=True).items()]


def plain(value: Any) -> Any:
    """Return a value as JSON has it: times and days as ISO 8601, dataclasses as objects, also in lists; a dict stays as it is."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return [plain(member) for member in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return value
