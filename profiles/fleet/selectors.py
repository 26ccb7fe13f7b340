"""What the fleet's sums say: the kernels that own most of it, with intervals where they were sampled."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from typing import Any, NotRequired, TypedDict, cast

import numpy as np
from django.db.models import Max, Q, QuerySet, Sum

from profiles.analysis.core.sentences import pct_of
from profiles.base.refused import Refused
from profiles.base.words import dims_text
from profiles.fleet.days import too_coarse
from profiles.fleet.merge import key_of
from profiles.fleet.models import FleetContext, FleetGpu, FleetKernel, FleetSignature
from profiles.fleet.store import GROUPS, ON_CONTEXTS, ON_GPUS, Coverage, Question, SumRow, Window
from profiles.fleet.stores import fleet_store
from profiles.models import KernelShape, Profile
from workers.agent.launches import quantiles

COMPLETE = 0.999                    # of the time watched: totals are what was counted, no estimates
Z95 = 1.96                          # normal quantile of a two-sided interval of 95 %
FILTERS = ("job", "build", "gpu_model", "model", "host", "gpu", "kernel", "signature", "simulated")
HOUR_S = 3600


@dataclass(frozen=True)
class Top:
    """`window` is what was asked in whole hours: sums are kept by the hour."""

    window: Window | None
    group: str
    rows: list[TopRow]
    launches: int
    total_ns: int
    estimate_ns: float
    coverage: Coverage
    simulated: bool
    gaps: tuple[str, ...] = ()          # parts of the window that its sums leave out

    def as_json(self) -> TopJson:
        return {**span(self.window), "group": self.group, "launches": self.launches, "total_ns": self.total_ns,
                "estimate_ns": self.estimate_ns,
                "observed_ns": self.coverage.observed_ns, "wall_ns": self.coverage.wall_ns, "windows": self.coverage.windows,
                "complete": self.coverage.share >= COMPLETE, "simulated": self.simulated, "gaps": list(self.gaps),
                "rows": self.rows}


SpanJson = TypedDict("SpanJson", {"from": str | None, "to": str | None})


class TopRow(TypedDict):
    """One line of the fleet's list. `interval_pct`: half of the 95 % interval of `estimate_ns`, None where all was counted.

    What a signature, GPU, build, job … also is comes behind.
    """

    key: int | str
    name: str
    kernel: str
    launches: int
    total_ns: int
    estimate_ns: float
    estimate_launches: float
    interval_pct: float | None
    share_pct: float
    p50_ns: float | None
    p95_ns: float | None
    min_ns: int | None
    max_ns: int | None
    grid: NotRequired[list[int]]
    block: NotRequired[list[int]]
    shared_bytes: NotRequired[int]
    gpu_uuid: NotRequired[str]
    gpu_model: NotRequired[str]
    build: NotRequired[str]
    job: NotRequired[str]
    model: NotRequired[str]
    host: NotRequired[str]
    simulated: NotRequired[bool]


class TopJson(SpanJson):
    """The fleet's list; `wall_ns`: time that was watched, of which `observed_ns` was counted in `windows`."""

    group: str
    launches: int
    total_ns: int
    estimate_ns: float
    observed_ns: int
    wall_ns: int
    windows: int
    complete: bool
    simulated: bool
    gaps: list[str]
    rows: list[TopRow]


def span(window: Window | None) -> SpanJson:
    """A window as documents say it."""
    return {"from": moment(window.from_hour) if window else None, "to": moment(window.to_hour) if window else None}


def moment(hour: int) -> str:
    return datetime.fromtimestamp(hour * HOUR_S, UTC).isoformat().replace("+00:00", "Z")


def gap_words(parts: Sequence[tuple[str, Window]]) -> tuple[str, ...]:
    """Say which parts of a window are left out, and why; `parts` of `days.too_coarse`."""
    return tuple(f"{_minute(part.from_hour)} to {_minute(part.to_hour)} UTC is left out: only sums of whole {level}s are kept of it"
                 for level, part in parts)


def _minute(hour: int) -> str:
    return f"{datetime.fromtimestamp(hour * HOUR_S, UTC):%Y-%m-%d %H:%M}"


def hour_of(text: str, *, up: bool = False) -> int:
    """Return the hour of a moment (ISO 8601, UTC where no zone is said, or seconds since 1970), the next one with `up`.

    Raises:
        Refused: it is no moment.
    """
    try:
        stamp = float(text)
    except ValueError:
        try:
            instant = datetime.fromisoformat(text.strip())
        except ValueError as error:
            raise Refused(f"{text[:60]!r} is no moment: write 2026-11-23, 2026-11-23T14:00 or seconds since 1970",
                          whole="question") from error
        stamp = (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()
    if not 0 <= stamp < 2**33:
        raise Refused(f"{text[:60]!r} lies outside 1970 to 2242", whole="question")
    return math.ceil(stamp / HOUR_S) if up else int(stamp // HOUR_S)


def question_of(query: Mapping[str, str], limit: int | None = 20) -> Question | None:
    """Return the question that words ask: "from", "to", "group" and FILTERS; None where no row can answer.

    Raises:
        Refused: an unknown group, or a moment that is none.
    """
    group = query.get("group") or "kernel"
    if group not in GROUPS:
        raise Refused(f"group {group[:40]!r} is none of {', '.join(GROUPS)}", whole="question")
    extent = fleet_store().extent()
    first = hour_of(query["from"]) if query.get("from") else extent.from_hour if extent else 0
    last = hour_of(query["to"], up=True) if query.get("to") else extent.to_hour if extent else 0
    where = _where(query)
    if first >= last or where is None or extent is None:
        return None
    return Question(Window(first, last), group, where, limit)


def _where(query: Mapping[str, str]) -> dict[str, list[int]] | None:
    """The keys of what is filtered; None where nothing has such a name."""
    where: dict[str, list[int]] = {}
    wanted = {name: query[name] for name in ("job", "build", "gpu_model", "model") if query.get(name)}
    simulated = {"yes": True, "no": False}.get(query.get("simulated", ""))
    if wanted or simulated is not None:
        contexts = FleetContext.objects.filter(**wanted)
        contexts = contexts if simulated is None else contexts.filter(simulated=simulated)
        where["context"] = list(contexts.values_list("id", flat=True))
        if set(wanted) <= {"gpu_model"}:        # the sums of all jobs know it too, and are few
            models = contexts.values_list("gpu_model", "simulated").distinct()
            where["gpu_model_key"] = [key_of("gpu_model", *model_key) for model_key in models]
    gpus = FleetGpu.objects.filter(**{name: query[word] for name, word in (("host", "host"), ("uuid", "gpu")) if query.get(word)})
    if query.get("host") or query.get("gpu"):
        where["gpu"] = list(gpus.values_list("id", flat=True))
    if query.get("kernel"):
        where["kernel"] = list(_kernels(query["kernel"]).values_list("id", flat=True))
    if query.get("signature"):
        where["signature"] = [int(query["signature"])] if is_key(query["signature"]) else []
    return None if any(not keys for keys in where.values()) else where


def _kernels(word: str) -> QuerySet[FleetKernel]:
    return FleetKernel.objects.filter(Q(name=word) | Q(id=int(word)) if is_key(word) else Q(name=word))


def is_key(word: str) -> bool:
    """Return whether a word is a number as `merge.key_of` makes them: 63 bits, so up to 19 digits."""
    return word.isascii() and word.isdecimal() and len(word) < 20 and int(word) < 2**63


def top(query: Mapping[str, str], limit: int | None = 20) -> Top:
    """Return the groups with most time."""
    question = question_of(query, limit)
    simulated = FleetContext.objects.filter(simulated=True).exists()
    if question is None:
        return Top(None, query.get("group") or "kernel", [], 0, 0, 0.0, Coverage(), simulated)
    return top_of(question, simulated)


def top_of(question: Question, simulated: bool = False) -> Top:
    store = fleet_store()
    rows, whole = store.top(question)
    coverage = store.coverage(question)
    names = names_of(question.group, [row.key for row in rows])
    # of a GPU, a host or a job its own windows are the sample
    own = {key: extent for _, key, extent, _, _ in store.watched(question)} if question.group in (*ON_GPUS, *ON_CONTEXTS) else {}
    lines = [_row(row, whole, own.get(row.key, coverage), names.get(row.key, {})) for row in rows]
    return Top(question.window, question.group, lines, whole.launches, whole.total_ns, whole.estimate_ns, coverage, simulated,
               gap_words(too_coarse(question.window)))


def names_of(group: str, keys: Sequence[Any]) -> dict[Any, dict[str, Any]]:
    """What groups are called: "name", "kernel" and what else is known of them."""
    if group == "kernel":
        return {kernel.id: {"name": kernel.short_name, "kernel": kernel.name} for kernel in FleetKernel.objects.filter(id__in=keys)}
    if group == "signature":
        return {row.id: {"name": row.kernel.short_name, "kernel": row.kernel.name, "grid": row.grid, "block": row.block,
                         "shared_bytes": row.shared_bytes}
                for row in FleetSignature.objects.filter(id__in=keys).select_related("kernel")}
    if group == "gpu":
        return {gpu.id: {"name": gpu.uuid, "gpu_uuid": gpu.uuid, "gpu_model": gpu.model, "host": gpu.host,
                         "simulated": gpu.simulated} for gpu in FleetGpu.objects.filter(id__in=keys)}
    made_up: QuerySet[FleetGpu] | QuerySet[FleetContext] = FleetGpu.objects.filter(simulated=True) if group == "host" else \
        FleetContext.objects.filter(simulated=True)
    simulated = set(made_up.filter(**{f"{group}__in": list(keys)}).values_list(group, flat=True))
    return {key: {"name": key, group: key, "simulated": key in simulated} for key in keys}


def _row(row: SumRow, whole: SumRow, coverage: Coverage, named: Mapping[str, Any]) -> TopRow:
    p50_ns: float | None = None
    p95_ns: float | None = None
    if row.sketch:
        bucket, count = (np.array(list(values), np.int64) for values in (row.sketch.keys(), row.sketch.values()))
        p50_ns, p95_ns = quantiles(bucket, count, (0.5, 0.95), row.min_ns, row.max_ns)
    line: dict[str, Any] = {
        "key": row.key, "name": str(named.get("name", row.key)), "kernel": str(named.get("kernel", "")), "launches": row.launches,
        "total_ns": row.total_ns, "estimate_ns": row.estimate_ns, "estimate_launches": row.estimate_launches,
        "interval_pct": interval_pct(row, coverage),
        "share_pct": pct_of(row.estimate_ns, whole.estimate_ns),
        "p50_ns": p50_ns, "p95_ns": p95_ns, "min_ns": row.min_ns, "max_ns": row.max_ns}
    return cast(TopRow, line | {key: value for key, value in named.items() if key not in line})


def interval_pct(row: SumRow, coverage: Coverage) -> float | None:
    """Return half of the 95 % interval of an estimate in percent of it; None where everything was watched.

    Windows are a sample of the time, each standing for the time since the one before: the variance of their sum is
    n/(n-1) · (Σy² - (Σy)²/n) · (1-c), y what a window stands for, c the share of the time watched (Cochran, "Sampling Techniques",
    section 2.6, with the finite population correction). What was watched whole adds to the estimate and not to the interval.
    """
    sampled = coverage.sampled or coverage
    n, c = sampled.windows, sampled.share
    if c >= COMPLETE or not row.sampled_ns:
        return None
    if n < 2:
        return 100.0 * row.sampled_ns / row.estimate_ns
    spread = max(0.0, row.square - row.sampled_ns ** 2 / n) * n / (n - 1) * (1.0 - c)
    return 100.0 * Z95 * math.sqrt(spread) / row.estimate_ns


# What deep captures taught about launches: the operator and the shapes of a kernel with one grid and block.
#
# Sums of launches hold no shapes. A trace with shapes does, and every profile's `KernelShape` rows keep them by kernel, grid and
# block: they are the dictionary. Several shapes behind one signature are several, none is unknown.

MOST_SIGNATURES = 500
MOST_SHAPES = 8                     # of one signature that are listed


@dataclass(frozen=True)
class KnownShape:
    """`profile`, `slice_id`: the newest capture that shows it, and its longest launch there. `floor_ns`: least time of a launch."""

    operator: str
    dims: str
    dtype: str
    launches: int                   # in captures
    floor_ns: float | None
    profile: int
    slice_id: int | None


def known_shapes(signatures: Collection[int]) -> dict[int, list[KnownShape]]:
    """Return what is known of signatures, the shapes with most launches in captures first; of which nothing is, it has none."""
    rows = list(FleetSignature.objects.filter(id__in=list(signatures)[:MOST_SIGNATURES]).select_related("kernel"))
    places = {(row.kernel.name, dims_text(row.grid), dims_text(row.block)): row.id for row in rows}
    if not places:
        return {}
    condition = reduce(or_, (Q(kernel__name=name, grid=grid, block=block) for name, grid, block in places))
    shapes = (KernelShape.objects.filter(condition, kernel__profile__status=Profile.Status.READY).exclude(operator="").order_by()
              .values_list("kernel__name", "grid", "block", "operator", "dims", "dtype")
              .annotate(sum=Sum("launches"), floor=Max("floor_ns"), newest=Max("kernel__profile"), slice=Max("slice_id")))
    out: dict[int, list[KnownShape]] = {}
    for name, grid, block, operator, dims, dtype, launches, floor_ns, profile, slice_id in shapes:
        out.setdefault(places[name, grid, block], []).append(
            KnownShape(operator, dims, dtype, launches, floor_ns, profile, slice_id))
    return {key: sorted(every, key=lambda one: (-one.launches, one.operator, one.dims))[:MOST_SHAPES] for key, every in out.items()}
