"""Names of a GPU's counters as its worker's ncu lists them, kept in Valkey: a form tells what a wildcard names before it runs.

Lost, they are said again when a worker starts; the worker that runs a capture asks ncu itself.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from profiles.base.refused import Refused
from profiles.capture.tools import ncu_metrics
from profiles.capture.tools.ncu import NcuOptions
from profiles.capture.tools.options import Options
from workers import jobs

log = logging.getLogger(__name__)
SHOWN = 12
_KEY = "ridgepoint:metrics:"
_KEPT_S = 30 * 24 * 3600


@dataclass(frozen=True)
class Match:
    """What a wildcard names on a GPU."""

    wildcard: str
    count: int
    first: list[str]

    def as_json(self) -> dict[str, object]:
        return {"wildcard": self.wildcard, "count": self.count, "first": self.first}


def names_store(gpu: str, program: str) -> None:
    """Ask a host's ncu for its GPU's base names and keep them. A failure is logged: captures ask again."""
    try:
        jobs.connection().set(_KEY + gpu, json.dumps(ncu_metrics.query(program)), ex=_KEPT_S)
    except Refused as error:
        log.warning("names of metrics for the form: %s", error)


def names_known(gpu: str) -> list[str]:
    """Return the base names of a GPU's counters, [] where no worker has said them."""
    kept = jobs.connection().get(_KEY + gpu) if gpu else None
    return list(json.loads(kept)) if kept else []


def matches(options: Options, gpu: str) -> list[Match]:
    """Return what each wildcard names on a GPU: [] where nothing is to be looked up or no name is known.

    Raises Refused as the worker would: for one that names nothing, and for too many.
    """
    wildcards = [name for name in options.metrics if ncu_metrics.is_wildcard(name)] if isinstance(options, NcuOptions) else []
    known = names_known(gpu) if wildcards else []
    if not known:
        return []

    def suffixed(bases: Sequence[str]) -> Sequence[str]:
        return [f"{base}.{suffix}" for base in bases for suffix in ncu_metrics.COMMON_SUFFIXES]

    found = ncu_metrics.resolve(wildcards, known, suffixed)
    return [Match(name, len(names), names[:SHOWN]) for name, names in found.items()]
