"""What kernels, signatures, contexts and GPUs are called: rows of PostgreSQL, whichever store keeps their sums."""

from __future__ import annotations

from typing import Any

from django.db.models import Model

from profiles.analysis.core.names import short_name
from profiles.fleet.merge import Merged
from profiles.fleet.models import FleetContext, FleetGpu, FleetKernel, FleetSignature

PIECE = 2000


def write_names(merged: Merged) -> None:
    """Keep what is new. In the order of their keys: two writers never wait for each other crosswise."""
    _add(FleetKernel, {key: {"name": name} for key, name in merged.kernels.items()})
    _add(FleetSignature, {key: {"kernel_id": kernel, "grid": list(one.grid), "block": list(one.block),
                                "shared_bytes": one.shared_bytes} for key, (kernel, one) in merged.signatures.items()})
    _add(FleetContext, {key: one._asdict() for key, one in merged.contexts.items()})
    _add(FleetGpu, {key: one._asdict() for key, one in merged.gpus.items()})


def _add(model: type[Model], rows: dict[int, dict[str, Any]]) -> None:
    rows_of, keys = model._default_manager, sorted(rows)
    known: set[int] = set()
    for first in range(0, len(keys), PIECE):                # nearly all are: looking is cheaper than inserting in vain
        known.update(rows_of.filter(pk__in=keys[first:first + PIECE]).values_list("pk", flat=True))
    new = [key for key in keys if key not in known]
    if model is FleetKernel:
        for key in new:
            rows[key]["short_name"] = short_name(rows[key]["name"])
    rows_of.bulk_create([model(pk=key, **rows[key]) for key in new], ignore_conflicts=True, batch_size=PIECE)
