"""Rows of a profile into PostgreSQL through COPY: one statement however many kernels there are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from django.db import connection

from profiles.analysis.core.kernels import KERNEL_COLUMNS, KernelRow
from profiles.models import KernelStat


def text(value: str, limit: int | None = None) -> str:
    """Return what PostgreSQL can hold of a text: no NUL, no lone surrogate.

    A file may carry either.
    """
    whole = value if value.isascii() else value.encode("utf-8", "replace").decode()     # the first is quick, and nearly all
    whole = whole.replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return whole if limit is None else whole[:limit]


def json_safe(value: Any) -> Any:
    """Return `value` as jsonb takes it: clean text, and no NaN or infinity (unknown is null)."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {text(str(key)): json_safe(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(item) for item in value]
    return value


def kernels_copy(profile_id: int, kernels: Sequence[KernelRow]) -> dict[str, int]:
    """COPY of the kernel table; returns the row id of each kernel name."""
    limits = {field.name: getattr(field, "max_length", None) for field in KernelStat._meta.concrete_fields}
    sql = f"COPY {KernelStat._meta.db_table} (profile_id, {', '.join(KERNEL_COLUMNS)}) FROM STDIN"
    with connection.cursor() as cursor:
        with cursor.copy(sql) as copy:
            for kernel in kernels:
                copy.write_row([profile_id, *_fields(kernel, limits)])
        cursor.execute(f"SELECT name, id FROM {KernelStat._meta.db_table} WHERE profile_id = %s", [profile_id])
        return dict(cursor.fetchall())


def _fields(kernel: KernelRow, limits: dict[str, int | None]) -> Iterable[Any]:
    for column in KERNEL_COLUMNS:
        value = getattr(kernel, column)
        yield text(value, limits[column]) if isinstance(value, str) else value
