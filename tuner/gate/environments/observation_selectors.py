"""Fresh runs of a suite as the attribution wants them: one median each, with what it was measured under."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.gate.stats.effects import Observation
from tuner.gate.stats.explanation import FACTS
from tuner.gate.stats.rule import finite_number
from tuner.models import Build, KernelRun, Suite

MOST_RUNS = 60_000             # newest runs of a suite that are looked at
MOST_KERNELS = 60              # of a suite, in its order
MOST_BUILDS = 30               # newest builds that were measured in more than one environment, and …
NEWEST_BUILDS = 6              # … the newest of all: older ones of a single environment tell nothing of environments
_PART = re.compile(r"^([A-Za-z][\w.+-]*) (\S.*)$")


@dataclass(frozen=True, order=True)
class Environment:
    """What a build was measured under."""

    gpu: str = ""
    toolkit: str = ""
    driver: str = ""

    @property
    def text(self) -> str:
        return ", ".join(filter(None, (self.gpu, self.toolkit, f"driver {self.driver}" if self.driver else ""))) or "unknown"

    @property
    def factors(self) -> dict[str, str]:
        return {**toolkit_parts(self.toolkit), "driver": self.driver, "gpu": self.gpu}


@dataclass(frozen=True)
class Cells:
    """All that a suite's runs tell of builds and environments. Builds are in their order, environments in order of first runs."""

    observations: list[Observation] = field(default_factory=list)
    where: list[Environment] = field(default_factory=list)          # of each observation
    kernels: list[str] = field(default_factory=list)
    builds: list[str] = field(default_factory=list)                 # oldest first
    environments: list[Environment] = field(default_factory=list)
    newest: tuple[str, Environment] | None = None                   # build and environment of the newest run
    labels: list[str] = field(default_factory=list)                 # of recordings that the runs come from
    left_out: str = ""                                              # what the bounds left out


def toolkit_parts(toolkit: str) -> dict[str, str]:
    """"cuda 13.0, triton 3.6.0" → {"cuda": "13.0", "triton": "3.6.0"}; what names neither stands as `cuda` with its whole text."""
    versions: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in toolkit.split(","))):
        named = _PART.match(part)
        if named and named[1].lower() in ("cuda", "triton"):
            versions.setdefault(named[1].lower(), named[2])
        else:
            versions["cuda"] = ", ".join(filter(None, (versions.get("cuda", ""), part)))
    return versions


def runs_by_kind(suite: Suite) -> dict[str, int]:
    """Return how many runs were measured here, and how many are recorded: {"measured": 120, "recorded": 0}."""
    rows = KernelRun.objects.filter(kernel__suite=suite, rejected="")
    recorded = rows.exclude(recorded="").count()
    return {"measured": rows.count() - recorded, "recorded": recorded}


def reads_recorded(counts: Mapping[str, int], asked: str) -> bool:
    """Return whether recorded runs are looked at: as `asked` says, else where nothing was measured here."""
    return asked == "recorded" if asked in ("measured", "recorded") else not counts["measured"] and bool(counts["recorded"])


def load_cells(suite: Suite, *, kernels: Collection[str] | None = None, recorded: bool = False,
          builds: Collection[str] | None = None) -> Cells:
    """Return runs of the suite's enabled kernels; `recorded`: those of recordings instead of measured ones."""
    kernel_ids = dict(suite.kernels.filter(enabled=True).values_list("key", "pk")[:MOST_KERNELS + 1])
    keys = [key for key in list(kernel_ids)[:MOST_KERNELS] if kernels is None or key in kernels]
    rows = KernelRun.objects.filter(kernel__in=[kernel_ids[key] for key in keys], rejected="", p50_us__gt=0)
    rows = rows.exclude(recorded="") if recorded else rows.filter(recorded="")
    if builds is not None:
        rows = rows.filter(build__name__in=list(builds))
    groups = list(rows.order_by().values_list("build", "gpu", "toolkit", "driver").distinct())       # before any run is read
    order = {build.name: (build.at, build.pk) for build in Build.everything.in_bulk({group[0] for group in groups}).values()}
    places = _places(groups)
    names = sorted(order, key=lambda name: order[name])
    several = [name for name in names if len(places[order[name][1]]) > 1][-MOST_BUILDS:]
    kept = set(names) if builds is not None else {*several, *names[-NEWEST_BUILDS:]}
    runs = list(rows.filter(build__in=[order[name][1] for name in kept]).order_by("-id").values_list(
        "kernel__key", "p50_us", "build__name", "gpu", "toolkit", "driver", "recorded",
        *(f"facts__{name}" for name in FACTS))[:MOST_RUNS])[::-1]
    left = [f"{len(names) - len(kept)} older builds that were measured in one environment alone" if len(names) > len(kept) else "",
            f"kernels after the first {MOST_KERNELS}" if len(kernel_ids) > MOST_KERNELS else "",
            f"runs before the newest {MOST_RUNS:,}" if len(runs) == MOST_RUNS else ""]
    return _build_cells(runs, [name for name in names if name in kept], keys,
                  " and ".join(filter(None, left)))


def _places(observations: Iterable[tuple[Any, ...]]) -> dict[int, set[tuple[Any, ...]]]:
    """Build -> where it was measured."""
    places: dict[int, set[tuple[Any, ...]]] = {}
    for build, *place in observations:
        places.setdefault(build, set()).add(tuple(place))
    return places


def _build_cells(rows: list[tuple[Any, ...]], builds: list[str], kernels: list[str], left_out: str) -> Cells:
    where = [Environment(row[3], row[4], row[5]) for row in rows]
    observations = [Observation(row[0], row[1], {"build": row[2], **environment.factors}, _facts(row[7:]))
                    for row, environment in zip(rows, where, strict=True)]
    key_set = {row[0] for row in rows}
    return Cells(observations, where, [key for key in kernels if key in key_set], builds, list(dict.fromkeys(where)),
                 (rows[-1][2], where[-1]) if rows else None, sorted({row[6] for row in rows if row[6]}), left_out)


def _facts(values: tuple[Any, ...]) -> Mapping[str, Any]:
    return {name: value for name, value in zip(FACTS, values, strict=True) if finite_number(value) is not None}
