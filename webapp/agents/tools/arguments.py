"""What tools take: bounds and descriptions of arguments, and how long what they answer may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, get_type_hints

from pydantic import Field

MOST_ID = 2**63 - 1
TEXT_CHARS = 400                # of one text in an answer

Limit = Annotated[int, Field(ge=1, le=100, description="rows to answer at most, 1 to 100")]
Offset = Annotated[int, Field(ge=0, le=1_000_000, description="rows to leave out before the first, to read on")]
Profile = Annotated[int, Field(ge=1, le=MOST_ID, description="id of a profile, as list_profiles gives it")]
Kernel = Annotated[int, Field(ge=1, le=MOST_ID, description="id of a kernel of that profile, as list_worst_kernels gives it")]
Job = Annotated[int, Field(ge=1, le=MOST_ID, description="id of a tune job")]
Capture = Annotated[int, Field(ge=1, le=MOST_ID, description="id of a capture")]
Words = Annotated[str, Field(max_length=200, description="words that names must hold; empty: all")]
Operator = Annotated[str, Field(min_length=1, max_length=60, description="name of an operator, as list_operators gives it")]
Dtype = Annotated[str, Field(
    max_length=16, description="element type, as list_operators gives it (bf16, fp16, …); empty: the operator's first")]
Gpu = Annotated[str, Field(max_length=120, description="GPU model as its driver names it, for example NVIDIA H200")]
Size = Annotated[int, Field(ge=1, le=2**31 - 1)]
Shape = Annotated[dict[Annotated[str, Field(max_length=20)], Size], Field(
    max_length=12, description="sizes in elements by the operator's dimension names, for example {M: 4096, N: 4096, K: 4096}")]


def fields_of(kind: Any, *names: str) -> tuple[str, ...]:
    """Return names of fields. Raises AttributeError for one that the API's answers of the type `kind` do not have."""
    if unknown := set(names) - set(get_type_hints(kind)):
        raise AttributeError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
    return names


def pick(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return these fields of a row, texts cut; what the row lacks is null."""
    return {name: cut(row.get(name)) for name in names}


def cut(value: Any) -> Any:
    """Return a value with its texts cut at TEXT_CHARS; lists and objects too."""
    if isinstance(value, str):
        return value if len(value) <= TEXT_CHARS else f"{value[:TEXT_CHARS]}…"
    if isinstance(value, Mapping):
        return {name: cut(element) for name, element in value.items()}
    if isinstance(value, Sequence):
        return [cut(element) for element in value]
    return value


def top(rows: Sequence[Any], limit: int, *names: str) -> list[dict[str, Any]]:
    """Return these fields of the first rows."""
    return [pick(row, *names) for row in rows[:limit]]
