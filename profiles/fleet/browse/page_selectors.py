"""The fleet's page: the kernels that own most of it, with trend, what could be won back, and where to go from each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.urls import reverse
from django.utils.http import urlencode

from profiles.analysis.core.identity import identity
from profiles.analysis.core.shapes import bare
from profiles.analysis.core.tunable import tuned_operator
from profiles.families.share_selectors import Share, known_families, recoverable_shares
from profiles.fleet import selectors
from profiles.fleet.browse.addresses import GROUP_WORDS, NEXT, View, dims_words, shape_words
from profiles.fleet.capture_services import are_there
from profiles.fleet.days import DAY_HOURS
from profiles.fleet.selectors import KnownShape, Top, TopRow, known_shapes, question_of
from profiles.fleet.store import ON_GPUS, Question, Window
from profiles.fleet.stores import fleet_store
from profiles.ingest.naming.names import is_collective
from profiles.models import FleetContext

# GPU time of groups beside the window before, over the time that both windows hold data for.

MOST_PIECES = 12                        # of time that both hold: each is asked by itself
NS_OF_HOUR = 3.6e12
Span = tuple[int, int]                  # hours, the end excluded


@dataclass(frozen=True)
class Trend:
    """`now_ns`, `before_ns`: GPU time by group over the hours compared. `why`: why nothing is compared, "" where something is."""

    now_ns: dict[Any, float] = field(default_factory=dict)
    before_ns: dict[Any, float] = field(default_factory=dict)
    hours: int = 0                      # compared of each window
    window_hours: int = 0
    before_wall_hours: float | None = None
    why: str = ""

    @property
    def words(self) -> str:
        """Return what is compared, "" where it is both windows as a whole."""
        return "" if self.why or self.hours == self.window_hours else \
            f"{self.hours:,} of {self.window_hours:,} hours, those that both windows hold data for"


def trend(question: Question, keys: Sequence[Any], now_ns: dict[Any, float]) -> Trend:
    """Return the GPU time of groups in a window and in the one of its length before it; `now_ns` is that of the whole window."""
    window = question.window
    length = window.to_hour - window.from_hour
    filled = filled_spans(Window(window.from_hour - length, window.to_hour))
    both = common(filled, [(first + length, last + length) for first, last in filled])
    both = common(both, [(window.from_hour, window.to_hour)])
    if not both:
        return Trend(window_hours=length, why=f"no data of the window before ({length:,} h)")
    if len(both) > MOST_PIECES:
        return Trend(window_hours=length, why=f"the windows hold data for {len(both)} stretches of time: too many to compare")
    hours = sum(last - first for first, last in both)
    before, wall_hours = dict.fromkeys(keys, 0.0), 0.0
    now = dict(now_ns) if hours == length else dict.fromkeys(keys, 0.0)
    for first, last in both:
        if hours < length:
            _add(now, question, Window(first, last), keys)
        earlier = Window(first - length, last - length)
        _add(before, question, earlier, keys)
        wall_hours += fleet_store().coverage(Question(earlier, question.group, question.where, None)).wall_ns / NS_OF_HOUR
    return Trend(now, before, hours, length, wall_hours)


def _add(sums: dict[Any, float], question: Question, window: Window, keys: Sequence[Any]) -> None:
    window_question = Question(window, question.group, question.where, None)
    for _, key, _, _, estimate_ns in fleet_store().over_time(window_question, keys, window.to_hour + 1):
        sums[key] += estimate_ns


def filled_spans(window: Window) -> list[Span]:
    """Return when any GPU had data: whole days, those where data begins or ends by the hour."""
    days = {hour // DAY_HOURS for hour in _steps(window, DAY_HOURS)}
    out: list[Span] = []
    for day in sorted(days):
        span = (max(day * DAY_HOURS, window.from_hour), min((day + 1) * DAY_HOURS, window.to_hour))
        if {day - 1, day + 1} <= days:
            out.append(span)
            continue
        hours = sorted(_steps(Window(*span), 1))        # none where only the day's sum is kept: then it counts as whole
        out += [(hour, hour + 1) for hour in hours] or [span]
    joined: list[Span] = []
    for first, last in out:
        if joined and joined[-1][1] == first:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined


def _steps(window: Window, step_hours: int) -> set[int]:
    hours = fleet_store().watched(Question(window, "gpu_model", {}, None), step_hours)
    return {hour for hour, _, coverage, _, _ in hours if coverage.wall_ns}


def common(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """Return what two lists of spans share."""
    shared = [(max(first, begin), min(last, end)) for first, last in one for begin, end in other]
    return sorted(span for span in shared if span[0] < span[1])


TOP_ROWS = 20
MOST_MODELS = 8                     # of GPUs, for which shares to win back are looked up
HOUR_NS = 3.6e12
_PRICE = re.compile(r"\s*(\d+(?:\.\d+)?)\s+(\S.{0,15})\s*")


@dataclass(frozen=True)
class Price:
    """What an hour of a GPU costs."""

    amount: float
    currency: str

    def of(self, hours: float) -> str:
        return f"{self.number(hours)} {self.currency}"

    def number(self, hours: float) -> str:
        """Return what hours cost, without the currency."""
        cost = hours * self.amount
        return f"{cost:,.0f}" if cost >= 1000 else "<0.01" if 0 < cost < 0.005 else f"{cost:,.2f}"


def price() -> Price | None:
    """Return the price that the settings state ("3.20 USD"); None where they state none that can be read."""
    match = _PRICE.fullmatch(settings.GPU_HOUR_PRICE)
    return Price(float(match[1]), match[2].strip()) if match else None


@dataclass(frozen=True)
class Recoverable:
    """GPU time that could be won back: an estimate, with its ends; `part_pct` of the row's time is what it speaks of."""

    ns: float
    low_ns: float
    high_ns: float
    part_pct: float
    said: str


@dataclass(frozen=True)
class Actions:
    """Addresses of filled-in forms; "" where there is none."""

    deep: str = ""
    counters: str = ""
    tune: str = ""
    guard: str = ""
    family: str = ""


@dataclass(frozen=True)
class Line:
    """One row of the page: the API's row, and what is known beside the sums. `before_ns` None: nothing to compare with."""

    row: TopRow
    label: str                          # of a group that is no kernel
    drill: str                          # address of what lies below; "" for an unknown name
    drill_word: str
    op: str = ""
    now_ns: float | None = None         # of the time that is compared
    before_ns: float | None = None
    recoverable: Recoverable | None = None
    actions: Actions = field(default_factory=Actions)
    cost: str = ""
    cost_value: float | None = None
    recoverable_cost: str = ""
    shapes: Sequence[KnownShape] = ()   # of a signature, as captures show it

    @property
    def hours(self) -> float:
        return self.row["estimate_ns"] / HOUR_NS

    @property
    def trend(self) -> float | None:
        """Return the ratio of its GPU time to that of the window before, over the time compared."""
        return self.now_ns / self.before_ns if self.before_ns and self.now_ns is not None else None

    @property
    def before_hours(self) -> float | None:
        return None if self.before_ns is None else self.before_ns / HOUR_NS

    @property
    def is_new(self) -> bool:
        return self.before_ns == 0 and bool(self.now_ns)

    @property
    def shape(self) -> str:
        """Return grid, block and shared memory of a signature."""
        return shape_words(self.row)

    @property
    def short_shape(self) -> str:
        return f"{dims_words(self.row.get('grid'))} · {dims_words(self.row.get('block'))}"

    @property
    def recoverable_hours(self) -> float | None:
        return None if self.recoverable is None else self.recoverable.ns / HOUR_NS

    @property
    def recoverable_low(self) -> float | None:
        return None if self.recoverable is None else self.recoverable.low_ns / HOUR_NS

    @property
    def recoverable_high(self) -> float | None:
        return None if self.recoverable is None else self.recoverable.high_ns / HOUR_NS


@dataclass(frozen=True)
class FleetPage:
    top: Top
    lines: list[Line]
    price: Price | None
    recoverable_ns: float | None        # of the lines, as far as it is known
    compared: Trend                     # what the column of trends rests on
    of_gpus: bool                       # sums of single GPUs: of the kernels with most time, without quantiles

    @property
    def listed_pct(self) -> float:
        return min(100.0, sum(line.row["share_pct"] for line in self.lines))

    @property
    def hours(self) -> float:
        return self.top.estimate_ns / HOUR_NS

    @property
    def cost(self) -> str:
        return self.price.of(self.hours) if self.price else ""

    @property
    def recoverable_hours(self) -> float | None:
        return None if self.recoverable_ns is None else self.recoverable_ns / HOUR_NS

    @property
    def recoverable_cost(self) -> str:
        return self.price.of(self.recoverable_hours) if self.price and self.recoverable_hours is not None else ""


def fleet_page(view: View) -> FleetPage:
    """Return the rows of an address, as many as TOP_ROWS; their numbers are those of `selectors.top`."""
    top = selectors.top(view.asked, TOP_ROWS)
    question = view.question
    cost = price()
    if question is None or view.window is None:
        return FleetPage(top, [], cost, None, Trend(), False)
    keys = [row["key"] for row in top.rows]
    compared = trend(question, keys, {row["key"]: row["estimate_ns"] for row in top.rows})
    named = {row["kernel"] for row in top.rows if row["kernel"] and view.group in ("kernel", "signature")}
    families = known_families(named)
    recoverable = _recoverable(question, view, top.rows, families)
    shapes = known_shapes([key for key in keys if isinstance(key, int)]) if view.group == "signature" else {}
    running = _running(view) if named else ""
    lines = [_line(view, row, families, compared, recoverable.get(row["key"]), cost,
                   shapes.get(row["key"], []) if isinstance(row["key"], int) else [], running) for row in top.rows]
    gains_ns = [line.recoverable.ns for line in lines if line.recoverable]
    return FleetPage(top, lines, cost, sum(gains_ns) if gains_ns else None, compared, from_gpu_sums(question))


def from_gpu_sums(question: Question) -> bool:
    """Return whether the sums of single GPUs answer: of the kernels with most time, without quantiles."""
    where = set(question.where)
    return bool(where & {"signature", "kernel"}) if question.group in ON_GPUS else bool(where & {"gpu", "host"})


def _recoverable(question: Question, view: View, rows: Sequence[TopRow], families: Mapping[str, int]) -> dict[Any, Recoverable]:
    """By row: its time on each model of GPU × the share that could be won back there."""
    if view.group not in ("kernel", "signature") or not rows:
        return {}
    names = {row["kernel"] for row in rows}
    whole_ns = {row["key"]: row["estimate_ns"] for row in rows}
    shares: dict[Any, list[tuple[float, Share]]] = {}
    models = _gpu_models(question)
    for model in filter(None, models):
        found = recoverable_shares(names, model, families)
        time_ns = (whole_ns if len(models) == 1 else _on_gpu_model(question, view, model, list(whole_ns))) if found else {}
        for row in rows:
            if row["kernel"] in found and time_ns.get(row["key"]):
                shares.setdefault(row["key"], []).append((time_ns[row["key"]], found[row["kernel"]]))
    return {key: Recoverable(sum(ns * share.share for ns, share in parts), sum(ns * share.low for ns, share in parts),
                             sum(ns * share.high for ns, share in parts),
                             min(100.0, 100.0 * sum(ns for ns, _ in parts) / (whole_ns[key] or 1.0)),
                             "; ".join(dict.fromkeys(share.said for _, share in parts)))
            for key, parts in shares.items()}


def _gpu_models(question: Question) -> list[str]:
    contexts = FleetContext.objects.filter(id__in=question.where["context"]) if "context" in question.where else \
        FleetContext.objects.all()
    return list(contexts.order_by("gpu_model").values_list("gpu_model", flat=True).distinct()[:MOST_MODELS])


def _on_gpu_model(question: Question, view: View, model: str, keys: Sequence[Any]) -> dict[Any, float]:
    """GPU time of groups on one model of GPU, in ns."""
    asked = question_of({**view.asked, "gpu_model": model}, None)
    if asked is None:
        return {}
    where = dict(asked.where)
    if asked.group == "kernel" and set(where) <= {"context", "gpu_model_key", "kernel"} and "context" not in question.where:
        where.pop("context")                            # the sums of all jobs tell models of GPU apart, and are few
    found = fleet_store().over_time(Question(asked.window, asked.group, where, None), keys, question.window.to_hour + 1)
    return {key: estimate for _, key, _, _, estimate in found}


def _line(view: View, row: TopRow, families: Mapping[str, int], compared: Trend, recoverable: Recoverable | None,
          cost: Price | None, shapes: Sequence[KnownShape], running: str) -> Line:
    key = row["name"] if view.group in ("gpu", "host", "build", "job", "model", "gpu_model") else str(row["key"])
    below = NEXT[view.group]
    drill = view.link(**{view.group: key, "group": below}) if key else ""
    what = identity(row["kernel"]) if row["kernel"] else None
    hours = row["estimate_ns"] / HOUR_NS
    return Line(row, row["name"], drill, GROUP_WORDS[below], what.op if what else "", compared.now_ns.get(row["key"]),
                compared.before_ns.get(row["key"]), recoverable,
                _actions(row["kernel"], view, families.get(row["kernel"]), running) if row["kernel"] else Actions(),
                cost.number(hours) if cost else "", hours * cost.amount if cost else None,
                cost.of(recoverable.ns / HOUR_NS) if cost and recoverable else "", shapes)


def _running(view: View) -> str:
    """Where running processes (of the job that is looked at) are captured, "" where none can be."""
    job = view.words.get("job", "")
    place = {name: view.words[name] for name in ("job", "host", "gpu") if view.words.get(name)}
    query = f"?{urlencode(place)}" if place else ""
    return reverse("fleet-captures") + query if are_there(job) else ""


def _actions(kernel: str, view: View, family: int | None, running: str) -> Actions:
    """Where to go from a kernel: the forms ask for what the fleet does not know (the program, the shape)."""
    place = {name: view.words[name] for name in ("build", "model") if name in view.words}
    operator = tuned_operator(kernel)
    deep = {"tool": "torch", **place}
    counters = {"tool": "ncu", "kernel": re.escape(bare(kernel)), **place}
    return Actions(
        running or f"{reverse('capture-new')}?{urlencode(deep)}",
        # replaying a collective on one rank waits for the others for good
        "" if is_collective(kernel) else f"{reverse('capture-new')}?{urlencode(counters)}",
        f"{reverse('tune-new')}?{urlencode({'operator': operator})}" if operator else "",
        f"{reverse('suite-new')}?{urlencode({'operator': operator})}" if operator else "",
        reverse("family", args=[family]) if family else "")
