"""What an address of the fleet's pages asks: a window, a group, filters; and the addresses that keep them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from django.utils import timezone
from django.utils.http import urlencode

from profiles.base.refused import Refused
from profiles.fleet.selectors import FILTERS, HOUR_S, hour_of, moment, names_of, question_of
from profiles.fleet.store import GROUPS, Question, Window
from profiles.fleet.stores import fleet_store
from profiles.models import FleetContext

DAY_HOURS = 24
WINDOWS = {"1d": "last 24 hours", "7d": "last 7 days", "30d": "last 30 days", "90d": "last 90 days", "all": "all that is kept"}
_DAYS = {"1d": 1, "7d": 7, "30d": 30, "90d": 90}
DEFAULT_WINDOW = "7d"
GROUP_WORDS = {"kernel": "kernel", "signature": "shape", "build": "build", "job": "job", "model": "model", "gpu_model": "GPU model",
               "gpu": "GPU", "host": "host"}
BY_GROUPS = ("job", "model", "build", "gpu_model")          # of the chart over time
NEXT = {"kernel": "signature", "signature": "build", "build": "host", "host": "gpu", "gpu": "kernel", "job": "kernel",
        "model": "job", "gpu_model": "kernel"}              # where a row leads
_KEPT = ("window", "from", "to", "group", "by", *FILTERS)
MOST_WORD = 4096
MOST_CHOICES = 200


@dataclass(frozen=True)
class Filter:
    """A filter that is set: its value in words, and the address without it."""

    name: str
    label: str
    value: str
    url: str


@dataclass(frozen=True)
class View:
    """`words`: the address; `asked`: the same with its window in hours, as the API takes it. `window` None: no data."""

    words: Mapping[str, str]
    asked: Mapping[str, str]
    window: Window | None
    extent: Window | None
    error: str = ""
    filters: tuple[Filter, ...] = field(default_factory=tuple)

    @property
    def group(self) -> str:
        return self.words.get("group") or "kernel"

    @property
    def by(self) -> str:
        return self.words.get("by") or "job"

    @property
    def question(self) -> Question | None:
        """Return the question of the address; None where no row can answer."""
        return question_of(self.asked) if self.window else None

    @property
    def api_query(self) -> str:
        return urlencode(self.asked)

    def link(self, **changes: str) -> str:
        """Return the query string with changes; "" takes a word away."""
        return "?" + urlencode({name: value for name, value in {**self.words, **changes}.items() if value})

    @property
    def kept(self) -> list[tuple[str, str]]:
        """Return what the form of filters has no field for."""
        return [(name, self.words[name]) for name in ("group", "by", "kernel", "signature", "gpu") if name in self.words]

    @property
    def scope(self) -> dict[str, str]:
        """Return what the other pages of the fleet take over: the window and the filters, not the group."""
        return {name: value for name, value in self.words.items() if name not in ("group", "by", "kernel", "signature")}

    @property
    def scope_query(self) -> str:
        return urlencode(self.scope)


def view_of(query: Mapping[str, str]) -> View:
    """Return what an address asks. What cannot be read is said in `error`, and the rest of it is kept."""
    words = {name: value for name in _KEPT if (value := query.get(name, "").strip()[:MOST_WORD])}
    extent = fleet_store().extent()
    error = ""
    if words.get("group", "kernel") not in GROUPS:
        error = f"group {words.pop('group')[:40]!r} is none of {', '.join(GROUPS)}"
    if words.get("by", "job") not in BY_GROUPS:
        words.pop("by")
    if words.get("window", DEFAULT_WINDOW) not in WINDOWS:
        words.pop("window")
    try:
        window = _window(words, extent)
    except Refused as refused:
        error, window = str(refused), None
    filters = {name: words[name] for name in FILTERS if name in words}
    params = {"group": words.get("group", "kernel"), **filters}
    if window:
        params |= {"from": moment(window.from_hour), "to": moment(window.to_hour)}
    view = View(words, params, window, extent, error)
    shown = [Filter(name, GROUP_WORDS.get(name, name), _filter_words(name, value), view.link(**{name: ""}))
             for name, value in filters.items()]
    return View(words, params, window, extent, error, tuple(shown))


def _window(words: Mapping[str, str], extent: Window | None) -> Window | None:
    """The hours of an address: `from` and `to`, else the last days before now, or before the end of what there is."""
    given_first = hour_of(words["from"]) if words.get("from") else None
    given_last = hour_of(words["to"], up=True) if words.get("to") else None
    if extent is None:
        return None
    now = int(timezone.now().timestamp() // HOUR_S) + 1
    end = now if extent.from_hour < now < extent.to_hour else extent.to_hour
    last = end if given_last is None else given_last
    if given_first is not None:
        first = given_first
    else:
        days = _DAYS.get(words.get("window", DEFAULT_WINDOW))
        first = extent.from_hour if days is None else last - DAY_HOURS if days == 1 else \
            -(-last // DAY_HOURS) * DAY_HOURS - days * DAY_HOURS          # whole days, the last one until now
        first = max(first, extent.from_hour)
    return Window(first, last) if first < last else None


def _filter_words(name: str, value: str) -> str:
    if name in ("kernel", "signature") and value.isascii() and value.isdecimal() and int(value) < 2**63:
        named = names_of(name, [int(value)]).get(int(value))
        if named:
            return f"{named['name']} {shape_words(named)}" if name == "signature" else str(named["name"])
    return value


def shape_words(named: Mapping[str, object]) -> str:
    """Return "grid 132×1×1 block 256×1×1 shared 1,024 B" of a signature."""
    grid, block, shared = named.get("grid") or [], named.get("block") or [], named.get("shared_bytes") or 0
    text = f"grid {dims_words(grid)} block {dims_words(block)}" if any([*_numbers(grid), *_numbers(block)]) else "shape unknown"
    return text + (f" shared {shared:,} B" if shared else "")


def _numbers(dims: object) -> list[int]:
    return [int(dim) for dim in dims] if isinstance(dims, list | tuple) else []


def dims_words(dims: object) -> str:
    """Return "132×1×1"."""
    return "×".join(map(str, _numbers(dims)))


def choices() -> dict[str, list[str]]:
    """Return what filters may be set to: words that occur, without the unknown one."""
    def words(name: str) -> list[str]:
        rows = FleetContext.objects.exclude(**{name: ""}).order_by(name)
        return list(rows.values_list(name, flat=True).distinct()[:MOST_CHOICES])

    return {name: words(name) for name in ("job", "model", "build", "gpu_model")}


def simulated_state(where: Mapping[str, Sequence[int]]) -> str:
    """Return "all" or "some" where contexts of a question are simulated, else ""."""
    contexts = FleetContext.objects.filter(id__in=where["context"]) if "context" in where else FleetContext.objects.all()
    kinds = set(contexts.order_by().values_list("simulated", flat=True).distinct())
    return "" if True not in kinds else "some" if False in kinds else "all"


def window_text(window: Window) -> str:
    """Return "2026-11-04 00:00 to 2026-11-05 00:00 UTC"."""
    first, last = (datetime.fromtimestamp(hour * HOUR_S, UTC) for hour in (window.from_hour, window.to_hour))
    return f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"
