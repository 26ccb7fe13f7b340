"""Sentences of the builds pages: the answer before the pictures, and each picture for those who cannot see it."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.gate.history.page_selectors import Page
from tuner.gate.history.series_selectors import Series, Step
from tuner.gate.stats.results import percent_text, us_text
from tuner.models import Regression


def size_text(row: Regression) -> str:
    """"8.2 % slower (7.1 to 9.3 %)", or that it is not its time that got worse."""
    if row.ratio is None or row.ratio <= 1:
        return "worse, though not in its median time"
    interval = f" ({100 * (row.low - 1):.1f} to {100 * (row.high - 1):.1f} %)" if row.low and row.high else ""
    return f"{100 * (row.ratio - 1):.1f} % slower{interval}"


def plural(count: int, word: str) -> str:
    """Return "1 build", "2 builds"."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def page_sentence(page: Page) -> str:
    """Did we get slower?"""
    where = page.choice.where["gpu"] or "an unknown GPU"
    looked = f"{plural(len(page.found), 'kernel')} of {page.choice.suite.name} over {plural(page.builds, 'build')} on {where}"
    own = [row for row in page.regressions if row.ratio is not None]
    if page.regressions:
        worst = max(own, key=lambda row: row.ratio or 0.0) if own else page.regressions[0]
        more = len(page.regressions) - 1
        tail = f", and {plural(more, 'more regression')}" if more else ""
        since = f"since build {worst.build.name}" if worst.kind == worst.Kind.STEP else f"by drift up to build {worst.build.name}"
        return (f"Did we get slower? Yes: {worst.family} is {size_text(worst)} {since}{tail}; "
                f"looked at {looked}.")
    slower = [(curve, step) for curve in page.found for step in curve.steps if step.slower and step is curve.steps[-1]]
    if slower:
        curve, step = max(slower, key=lambda each: each[1].ratio)
        return (f"No regression is open: {curve.kernel.key} is {step.change_pct:.1f} % slower since build {step.build}, "
                f"which was taken up or is below the floor; looked at {looked}.")
    if not any(len(curve.points) >= 4 for curve in page.found):
        return f"Too early to say: {looked}. A change shows once two builds before it and two after it were measured."
    return f"Did we get slower? No: no change to a slower speed among {looked}."


def series_text(series: Series, verdicts: Mapping[str, str] | None = None) -> str:
    """The large picture in words. `verdicts`: build -> what its gate said."""
    levels = [point.median_us for point in series.points if point.median_us]
    first, last = series.points[0].build.name, series.points[-1].build.name
    text = (f"{series.kernel.key}: run medians of {plural(len(series.points), 'build')} from {first} to {last}, "
            f"{us_text(min(levels))} to {us_text(max(levels))} µs; {last} is at {us_text(levels[-1])} µs.")
    slower = [build for build, verdict in (verdicts or {}).items() if verdict == "SLOWER"]
    if slower:
        text += f" A gate says SLOWER of {', '.join(slower[-5:])}."
    if series.steps:
        return f"{text} {' '.join(step_text(step) for step in series.steps)}"
    return f"{text} {'No change of level is sure yet: two builds at a speed make one.' if slower else 'No change of level.'}"


def step_text(step: Step) -> str:
    """Return one change of level as a sentence."""
    interval = f", interval {percent_text(step.low)} to {percent_text(step.high)}" if step.low and step.high else ""
    where = f"with build {step.build}" if step.between == 1 else (
        f"most likely with build {step.build}, surely after {step.good} and by {step.bad} ({plural(step.between, 'build')})")
    word = "slower" if step.slower else "faster"
    return f"{abs(step.change_pct):.1f} % {word} {where}{interval}: {us_text(step.before_us)} → {us_text(step.after_us)} µs."


def regressions_sentence(counts: Mapping[str, int], worst: Regression | None) -> str:
    """Of a list of regressions: state → how many, and the largest of those that wait."""
    if not counts:
        return "No regression: no gate and no series found a kernel slower."
    if worst is None:
        return f"Nothing is slower now: {plural(sum(counts.values()), 'regression')}, all taken up or fixed."
    summary = ", ".join(f"{counts[state]:,} {state}" for state in ("open", "acknowledged") if counts.get(state))
    return f"{summary}; the largest: {worst.family} is {size_text(worst)} since build {worst.build.name} of {worst.suite.name}."
