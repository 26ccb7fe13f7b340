"""GPU time of groups beside the window before, over the time that both windows hold data for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from profiles.fleet.days import DAY_HOURS
from profiles.fleet.store import Question, Window
from profiles.fleet.stores import fleet_store

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
    asked = Question(window, question.group, question.where, None)
    for _, key, _, _, estimate_ns in fleet_store().over_time(asked, keys, window.to_hour + 1):
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
    found = fleet_store().watched(Question(window, "gpu_model", {}, None), step_hours)
    return {hour for hour, _, coverage, _, _ in found if coverage.wall_ns}


def common(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """Return what two lists of spans share."""
    shared = [(max(first, begin), min(last, end)) for first, last in one for begin, end in other]
    return sorted(span for span in shared if span[0] < span[1])
