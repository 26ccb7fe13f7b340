"""What kernels, signatures, contexts and GPUs are called: rows of PostgreSQL, whichever store keeps their sums."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from django.db.models import Model

from profiles.fleet.merge import Merged
from profiles.fleet.models import FleetContext, FleetGpu, FleetKernel, FleetSignature
from profiles.ingest.naming.names import short_name

PIECE = 2000


def write_names(merged: Merged) -> None:
    """Keep what is new. In the order of their keys: two writers never wait for each other crosswise."""
    _add(FleetKernel, {key: {"name": name} for key, name in merged.kernels.items()})
    _add(FleetSignature, {key: {"kernel_id": kernel, "grid": list(signature.grid), "block": list(signature.block),
                                "shared_bytes": signature.shared_bytes} for key, (kernel, signature) in merged.signatures.items()})
    _add(FleetContext, {key: context._asdict() for key, context in merged.contexts.items()})
    simulated = _simulated_gpus(merged)
    _add(FleetGpu, {key: {**gpu._asdict(), "simulated": key in simulated} for key, gpu in merged.gpus.items()})
    if simulated:
        FleetGpu.objects.filter(pk__in=simulated, simulated=False).update(simulated=True)


def _simulated_gpus(merged: Merged) -> set[int]:
    contexts = [key for key, context in merged.contexts.items() if context.simulated]
    if not contexts or "gpus" not in merged.tables:
        return set()
    columns = merged.tables["gpus"].columns
    return set(columns["gpu"][np.isin(columns["context"], contexts)].tolist())


def _add(model: type[Model], rows: dict[int, dict[str, Any]]) -> None:
    rows_of, keys = model._default_manager, sorted(rows)
    stored_keys: set[int] = set()
    for first in range(0, len(keys), PIECE):                # nearly all are: looking is cheaper than inserting in vain
        stored_keys.update(rows_of.filter(pk__in=keys[first:first + PIECE]).values_list("pk", flat=True))
    new = [key for key in keys if key not in stored_keys]
    if model is FleetKernel:
        for key in new:
            rows[key]["short_name"] = short_name(rows[key]["name"])
    rows_of.bulk_create([model(pk=key, **rows[key]) for key in new], ignore_conflicts=True, batch_size=PIECE)


def numbered(group: str) -> tuple[list[int], list[int], list[str]]:
    """Return the keys of GPUs ("host") or contexts, the number of each one's word, and the words in PostgreSQL's order."""
    pairs: Iterable[tuple[int, str]]
    if group == "host":
        pairs = FleetGpu.objects.order_by("host").values_list("id", "host")
    else:
        pairs = FleetContext.objects.order_by(group).values_list("id", group)
    words: list[str] = []
    ids, numbers = [], []
    for key, word in pairs:
        if not words or words[-1] != word:
            words.append(word)
        ids.append(key)
        numbers.append(len(words) - 1)
    return ids, numbers, words
