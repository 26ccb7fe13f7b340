"""Many runs at once: through COPY, whose rows PostgreSQL takes ten times as fast as those of an INSERT with its parameters."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from django.contrib.postgres.fields import ArrayField
from django.db import connection, models
from django.utils import timezone

from tuner.models import KernelRun

_COLUMNS = [field for field in KernelRun._meta.concrete_fields if not field.primary_key]


def runs_copied(rows: Sequence[KernelRun]) -> list[int]:
    """Store new rows; their ids, in the same order, which the rows then have too."""
    table, now = KernelRun._meta.db_table, timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval(pg_get_serial_sequence(%s, 'id')) FROM generate_series(1, %s)", [table, len(rows)])
        ids = [row[0] for row in cursor.fetchall()]
        with cursor.copy(f"COPY {table} (id, {', '.join(field.column for field in _COLUMNS)}) FROM STDIN") as copy:
            for pk, row in zip(ids, rows, strict=True):
                row.pk, row.created = pk, now
                copy.write_row([pk, *(_stored(field, getattr(row, field.attname)) for field in _COLUMNS)])
    return ids


def _stored(field: models.Field[Any, Any], value: Any) -> Any:
    if isinstance(field, ArrayField):
        return f"{{{','.join(map(repr, value))}}}"              # as PostgreSQL writes an array of numbers
    return json.dumps(value) if isinstance(field, models.JSONField) and value is not None else value


def percentiles_of(samples: Iterable[Sequence[float]]) -> list[dict[str, float | None]]:
    """Median and 95th percentile of each run, µs, as `run_services.percentiles` has them: all runs of one length in one go."""
    by_length: dict[int, list[tuple[int, Sequence[float]]]] = defaultdict(list)
    found: list[dict[str, float | None]] = []
    for at, us in enumerate(samples):
        by_length[len(us)].append((at, us))
        found.append({"p50_us": None, "p95_us": None})
    for length, each in by_length.items():
        if length:
            p50, p95 = np.percentile(np.array([us for _, us in each], dtype=np.float64), [50, 95], axis=1).tolist()
            for (at, _), middle, high in zip(each, p50, p95, strict=True):
                found[at] = {"p50_us": middle, "p95_us": high}
    return found
