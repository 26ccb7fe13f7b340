"""Answers of the API as types: what pages of lists have in common, why something was refused, and how a row becomes an answer."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any, TypedDict, TypeVar, cast

Answer = TypeVar("Answer")


class Paged(TypedDict):
    """What `list_api.Page.answer` adds to a list."""

    count: int                      # of the whole list
    next_offset: int | None         # where the next page begins; null after the last


class RefusedJson(TypedDict):
    """Why a request was not done, where, and what to do."""

    error: str
    where: str
    hint: str


def make_answer(kind: type[Answer], row: object, **more: Any) -> Answer:
    """Return the TypedDict `kind` with its fields in their order: what `more` gives, else the row's attributes, as `plain`.

    An optional field that `more` lacks is left out.
    """
    optional = kind.__optional_keys__       # type: ignore[attr-defined]    # every TypedDict has it
    return cast(Answer, {name: plain(more[name] if name in more else getattr(row, name))
                         for name in kind.__annotations__ if name in more or name not in optional})


def plain(value: Any) -> Any:
    """Return a value as JSON has it: times as ISO 8601, dataclasses as objects, also in lists; objects stay as they are."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return value
