"""The bisect plan as the builds page shows it: which builds lie between, what is known of each, what to measure next."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.builds.page_selectors import Page
from tuner.environments.bisect_selectors import Bisect, bisect

WORDS = {"good": ("✓", "at the old speed"), "bad": ("▲", "at the new speed"), "unclear": ("?", "at neither speed"),
         "skip": ("✕", "could not be measured"), "next": ("▸", "to measure next"), "": ("·", "not measured")}
MOST_SHOWN = 60


@dataclass(frozen=True)
class Named:
    name: str
    css: str
    sign: str
    title: str


@dataclass(frozen=True)
class Shown:
    found: Bisect
    builds: list[Named]         # from the last good one to the first slow one
    left_out: int               # in the middle, where there are too many to show


def of_page(page: Page) -> Shown | None:
    """Of the chosen kernel's slowdown that is still there; None where there is none, or its build is known and measured."""
    good, bad = _ends(page)
    if not good:
        return None
    try:
        found = bisect(page.choice.suite, page.chosen.kernel.key, gpu=page.choice.where["gpu"], good=good, bad=bad)
    except LookupError:
        return None
    planned = (found.environment.toolkit, found.environment.driver, found.recorded)
    if planned != tuple(page.choice.where[name] for name in ("toolkit", "driver", "recorded")):
        return None         # the newest runs are of another environment, and the plan is of that one
    names = [good, *found.plan.between, bad]
    half = MOST_SHOWN // 2
    shown = names if len(names) <= MOST_SHOWN else [*names[:half], *names[-half:]]
    return Shown(found, [_named(name, found) for name in shown], len(names) - len(shown))


def _ends(page: Page) -> tuple[str, str]:
    """(last good build, first slow build) of the regression nobody answered, else of the newest step; "" where neither is."""
    key = page.chosen.kernel.key
    row = next((row for row in page.regressions if key in row.kernels and row.good is not None), None)
    if row is not None and row.good is not None:
        return row.good.name, row.build.name
    step = page.chosen.steps[-1] if page.chosen.steps else None
    return (step.good, step.bad) if step is not None and step.slower else ("", "")


def _named(name: str, found: Bisect) -> Named:
    known = "next" if name in found.plan.measure else found.sides.get(name, "")
    sign, title = WORDS.get(known, WORDS[""])
    return Named(name, f"is-{known}" if known else "", sign, title)
