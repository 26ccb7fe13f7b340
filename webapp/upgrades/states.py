"""The states of migrations, made in half the time: a field is copied where Django would take it apart and make it anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from django.db.models import Field
from django.utils.functional import cached_property

NESTED = frozenset({"base_field", "expression", "output_field"})        # fields within the field: these Django makes anew

_made_anew = Field.clone


@contextmanager
def fields_copied() -> Iterator[None]:
    """Within it `Field.clone` copies.

    Every operation of a migration renders the models around it again, ten thousand of them on the way to an empty database's
    tables, and half of that time went into taking apart the fields of their states, which nothing changes.
    """
    cast(Any, Field).clone = copy_field
    try:
        yield
    finally:
        cast(Any, Field).clone = _made_anew


def copy_field(field: Any) -> Any:
    """Return a field that no model has, like the given one, which no model has either."""
    if not NESTED.isdisjoint(field.__dict__):
        return _made_anew(field)
    copied = _copy(field)
    copied.creation_counter = Field.creation_counter                    # models list their fields in its order
    Field.creation_counter += 1
    if field.remote_field is not None:
        copied.remote_field = _copy(field.remote_field)
        copied.remote_field.field = copied
    return copied


def _copy(made: Any) -> Any:
    """Without what was only kept of an answer: it may be another once a model has the field."""
    copied = object.__new__(type(made))
    copied.__dict__.update(made.__dict__)
    for name in _kept_answers(type(made)).intersection(made.__dict__):
        del copied.__dict__[name]
    return copied


def _kept_answers(kind: type) -> frozenset[str]:
    """Return the names under which objects of this class keep what they computed once."""
    if kind not in _KEPT_OF:
        _KEPT_OF[kind] = frozenset(name for base in kind.__mro__ for name, value in vars(base).items()
                                   if isinstance(value, cached_property))
    return _KEPT_OF[kind]


_KEPT_OF: dict[type, frozenset[str]] = {}
