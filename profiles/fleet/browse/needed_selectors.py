"""What the fleet's kernels need at least, as far as captures show their shapes: the fleet's grade.

A signature's launches need what those of the same kernel, grid and block needed in captures on the same model of GPU: the mean over
their shapes, weighted by launches. Which of several shapes ran is not known, so the least and the greatest are the ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from django.db.models import F, Sum

from profiles.analysis.core.sentences import pct_of, share_pct
from profiles.base.answers import make_answer
from profiles.base.words import dims_text
from profiles.fleet.models import FleetContext, FleetSignature
from profiles.fleet.selectors import SpanJson, question_of, span
from profiles.fleet.store import Question, Window
from profiles.fleet.stores import fleet_store
from profiles.models import KernelShape, Profile

MOST_SIGNATURES = 2_000             # of each model of GPU
MOST_MODELS = 8
TOLERANCE = 1.05                    # a least time above the mean launch by more is wrong: what a cache holds comes from no DRAM


@dataclass(frozen=True)
class Floor:
    """Least time of a launch, ns: mean over the launches of its shapes in captures, least and greatest of them."""

    mean_ns: float
    low_ns: float
    high_ns: float


@dataclass(frozen=True)
class FleetNeeded:
    """Times in ns of GPU time in kernels. `known_ns`: of signatures whose least time captures tell; `needed_ns` is of these."""

    window: Window | None
    took_ns: float
    known_ns: float
    needed_ns: float
    low_ns: float
    high_ns: float
    signatures: int                     # of which it is known

    @property
    def needed_pct(self) -> float | None:
        """Return the share of the known time that the work needs at least, 0-100."""
        return share_pct(self.needed_ns, self.known_ns)

    @property
    def known_pct(self) -> float:
        return pct_of(self.known_ns, self.took_ns)

    def as_json(self) -> FleetNeededJson:
        return make_answer(FleetNeededJson, self, **span(self.window))


class FleetNeededJson(SpanJson):
    """`FleetNeeded` and its shares, 0-100."""

    took_ns: float
    known_ns: float
    needed_ns: float
    low_ns: float
    high_ns: float
    signatures: int
    needed_pct: float | None
    known_pct: float


def fleet_needed(query: Mapping[str, str]) -> FleetNeeded:
    """Return what the kernels of a question (`selectors.question_of`, its group left aside) took and need at least.

    Raises:
        Refused: a moment that is none.
    """
    whole = question_of({**query, "group": "kernel"}, 1)
    if whole is None:
        return FleetNeeded(None, 0.0, 0.0, 0.0, 0.0, 0.0, 0)
    estimates = [estimate for model in _models(whole) for estimate in _of_model(query, model)]
    took_ns = fleet_store().top(whole)[1].estimate_ns
    known_ns, needed_ns, low_ns, high_ns = (sum((estimate[index] for estimate in estimates), 0.0) for index in range(4))
    return FleetNeeded(whole.window, took_ns, known_ns, needed_ns, low_ns, high_ns, len(estimates))


def _models(question: Question) -> list[str]:
    """Return the models of GPU of a question that captures with shapes are of."""
    rows = FleetContext.objects.all()
    if "context" in question.where:
        rows = rows.filter(id__in=question.where["context"])
    models = [model for model in rows.order_by("gpu_model").values_list("gpu_model", flat=True).distinct() if model]
    shown = set(KernelShape.objects.filter(floor_ns__isnull=False, kernel__profile__gpu__in=models).order_by()
                .values_list("kernel__profile__gpu", flat=True).distinct())
    return [model for model in models if model in shown][:MOST_MODELS]


def _of_model(query: Mapping[str, str], model: str) -> list[tuple[float, float, float, float]]:
    """Return (time, least time: mean, low, high) of signatures on one model of GPU; of which none is known are left out."""
    question, floors = question_of({**query, "gpu_model": model, "group": "signature"}, None), _floors(model)
    if question is None or not floors:
        return []
    out = []
    for _, key, launches, total_ns, estimate_ns in fleet_store().over_time(question, list(floors), question.window.to_hour + 1):
        if total_ns:                    # of one launch the same share as of all that the estimate stands for
            floor = floors[key]
            mean, low, high = (estimate_ns * min(1.0, floor_ns * launches / total_ns)
                               for floor_ns in (floor.mean_ns, floor.low_ns, floor.high_ns))
            out.append((estimate_ns, mean, low, high))
    return out


def _floors(model: str) -> dict[int, Floor]:
    """Return the least time of a launch by signature, as ready captures on a model of GPU show it."""
    rows = (KernelShape.objects.filter(
        kernel__profile__gpu=model, kernel__profile__status=Profile.Status.READY, floor_ns__isnull=False,
        floor_ns__lte=TOLERANCE * F("total_ns") / F("launches")).order_by()
        .values_list("kernel__name", "grid", "block", "floor_ns").annotate(sum=Sum("launches")))
    shapes: dict[tuple[str, str, str], list[tuple[float, int]]] = {}
    for name, grid, block, floor_ns, launches in rows:
        shapes.setdefault((name, grid, block), []).append((floor_ns, launches))
    signatures = FleetSignature.objects.filter(kernel__name__in={name for name, _, _ in shapes}).select_related("kernel")
    named = {signature.id: shapes.get((signature.kernel.name, dims_text(signature.grid), dims_text(signature.block)))
             for signature in signatures.order_by("id")}
    return {key: Floor(sum(floor * many for floor, many in floors) / sum(many for _, many in floors),
                       min(floor for floor, _ in floors), max(floor for floor, _ in floors))
            for key, floors in islice(((key, floors) for key, floors in named.items() if floors), MOST_SIGNATURES)}
