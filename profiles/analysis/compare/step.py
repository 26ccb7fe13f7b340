"""The step of two sides side by side: its time, what it needed, what it did besides, what was foretold of that, and the causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from profiles.analysis.core.sentences import pct_of, pct_text, time_text
from profiles.analysis.trace.needed.needs import NEEDED, NOT_KNOWN, PARTS
from profiles.analysis.trace.needed.table import KINDS
from profiles.analysis.trace.needed.topic import GENERIC, LEAST_TAIL, interval_text, part_title

WITHIN = 0.25                       # of what was foretold: nearer is as foretold
REMAINS = 0.1                       # of a kind's time: a side with less does without it, though its page may not say so
SAID_CAUSES = 2
LEAST_CAUSE = 0.02                  # of the longer step, that a cause must change by to be said


@dataclass(frozen=True)
class StepPart:
    """One part of a step, ns; its kind is of `trace.needed`."""

    name: str
    title: str
    old_ns: float
    new_ns: float

    @property
    def delta_ns(self) -> float:
        return self.new_ns - self.old_ns


@dataclass(frozen=True)
class StepCause(StepPart):
    """One cause of the account (`trace.account`): its time from the first to the last record over the steps, a mean of the GPUs."""


@dataclass(frozen=True)
class Foretold:
    """A kind that one side has and the other has not: what its removal was to win a step, at least and at most."""

    kind: str
    title: str
    least_ns: float
    most_ns: float
    came: bool                      # it is on the new side alone


@dataclass(frozen=True)
class StepChange:
    """Means over the steps of all GPUs of each side; the range is of its shortest and longest step. ns."""

    old_ns: float
    new_ns: float
    old_range_ns: tuple[int, int]
    new_range_ns: tuple[int, int]
    old_steps: int
    new_steps: int
    old_tail_ns: float              # of the last step's work, a GPU: what ran on behind its end on the CPU
    new_tail_ns: float
    parts: list[StepPart]           # they add up to the step
    causes: list[StepCause]         # largest change first
    foretold: list[Foretold]

    @property
    def delta_ns(self) -> float:
        return self.new_ns - self.old_ns

    @property
    def change_pct(self) -> float:
        return pct_of(self.delta_ns, self.old_ns)

    @property
    def foretold_ns(self) -> tuple[float, float] | None:
        """Return by how much the step was to shrink, least and most: of what went without what came. None where no kind did.

        What nearly every run does that is not compiled shows where another kind no longer claims it: it is no loss.
        """
        gone, came = ([forecast for forecast in self.foretold if forecast.came is side] for side in (False, True))
        came = [forecast for forecast in came if forecast.kind != GENERIC]
        if not gone and not came:
            return None
        return (sum(forecast.least_ns for forecast in gone) - sum(forecast.most_ns for forecast in came),
                sum(forecast.most_ns for forecast in gone) - sum(forecast.least_ns for forecast in came))

    @property
    def outcome(self) -> str:
        """Return "as foretold", "less than foretold" or "more than foretold"; "" where nothing was."""
        bounds = self.foretold_ns
        if bounds is None:
            return ""
        least, most = bounds
        room = WITHIN * max(abs(least), abs(most))
        return "less than foretold" if -self.delta_ns < least - room else \
            "more than foretold" if -self.delta_ns > most + room else "as foretold"

    @property
    def outcome_text(self) -> str:
        """Return "foretold 10.2 to 10.4 ms less, was 11.3 ms: as foretold"; "" where nothing was."""
        bounds = self.foretold_ns
        if bounds is None:
            return ""
        least, most = bounds
        foretold = f"{interval_text(max(0.0, least), most)} less" if most > 0 else f"{interval_text(max(0.0, -most), -least)} more"
        was = f"{time_text(abs(self.delta_ns))} {'less' if self.delta_ns <= 0 else 'more'}"
        return f"foretold {foretold}, was {was}: {self.outcome}"

    @property
    def needs_text(self) -> str:
        """Return what the work needs at least on both sides, "" where one side does not say."""
        sums = {part.name: (part.old_ns, part.new_ns) for part in self.parts}
        old, new = sums.get(NEEDED, (0.0, 0.0))
        unknown = sums.get(NOT_KNOWN, (0.0, 0.0))
        if not old or not new or 10 * unknown[0] > self.old_ns or 10 * unknown[1] > self.new_ns:
            return ""
        return f"its work needs {time_text(old)} → {time_text(new)} at least"

    @property
    def tails_text(self) -> str:
        """Return what of each side's last step ran on behind its end on the CPU, "" where that is little."""
        old, new = (ns if ns >= LEAST_TAIL * step_ns else 0.0
                    for ns, step_ns in ((self.old_tail_ns, self.old_ns), (self.new_tail_ns, self.new_ns)))
        return f"Of the last step {time_text(old)} → {time_text(new)} ran on behind its end on the CPU." if old or new else ""

    @property
    def changed_causes(self) -> list[StepCause]:
        """Return the causes that changed by LEAST_CAUSE of the longer step or more, largest change first."""
        return [cause for cause in self.causes if abs(cause.delta_ns) >= LEAST_CAUSE * max(self.old_ns, self.new_ns)]

    @property
    def answer(self) -> str:
        """Return what a page says first: the step, its least time, what went and came, and the causes that changed most."""
        pct = f"{'+' if self.change_pct > 0 else '−'}{pct_text(abs(self.change_pct))}"
        sentences = [f"A step takes {time_text(self.old_ns)} → {time_text(self.new_ns)} ({pct})"
                     + (f"; {self.needs_text}" if self.needs_text else "")]
        for came, word in ((False, "Gone"), (True, "New")):
            names = [forecast.title.lower() for forecast in self.foretold if forecast.came is came]
            sentences += [f"{word}: {', '.join(names)}"] if names else []
        sentences += [self.outcome_text[:1].upper() + self.outcome_text[1:]] if self.outcome_text else []
        causes = [f"{each.title} {time_text(each.old_ns)} → {time_text(each.new_ns)}" for each in self.changed_causes[:SAID_CAUSES]]
        sentences += [f"Causes that changed most: {', '.join(causes)}"] if causes else []
        return " ".join([*(f"{sentence}." for sentence in sentences), *([self.tails_text] if self.tails_text else [])])

    def as_json(self) -> dict[str, Any]:
        bounds = self.foretold_ns
        return {**asdict(self), "delta_ns": self.delta_ns, "change_pct": self.change_pct, "answer": self.answer,
                "foretold_least_ns": bounds[0] if bounds else None, "foretold_most_ns": bounds[1] if bounds else None,
                "outcome": self.outcome,
                **{name: [{**asdict(part), "delta_ns": part.delta_ns} for part in rows]
                   for name, rows in (("parts", self.parts), ("causes", self.causes))}}


Documents = Sequence[Mapping[str, Any]]


def step_change(old: Documents, new: Documents, old_causes: Documents = (), new_causes: Documents = ()) -> StepChange | None:
    """Return how the step changed; None where one side has no steps.

    A document is the `numbers` of the topic "needed" or "causes" of one trace.
    """
    sides = (old, new)
    gpus = [[gpu for numbers in side for gpu in numbers["gpus"] if gpu["steps"]] for side in sides]
    if not all(gpus):
        return None
    counts = [sum(gpu["steps"] for gpu in side) for side in gpus]
    walls = [sum(gpu["wall_ns"] for gpu in side) / count for side, count in zip(gpus, counts, strict=True)]
    steps = [[ns for gpu in side for ns in step_times(gpu)] or [round(wall)] for side, wall in zip(gpus, walls, strict=True)]
    tails = [sum(gpu.get("tail_ns", 0) for gpu in side) / len(side) for side in gpus]
    sums = [_sums(side, count) for side, count in zip(gpus, counts, strict=True)]
    names = [name for name in (*PARTS, *(kind.name for kind in KINDS)) if name in sums[0] or name in sums[1]]
    parts = [StepPart(name, part_title(name), sums[0].get(name, 0.0), sums[1].get(name, 0.0)) for name in names]
    return StepChange(walls[0], walls[1], (min(steps[0]), max(steps[0])), (min(steps[1]), max(steps[1])), counts[0], counts[1],
                      tails[0], tails[1], parts, _causes(old_causes, new_causes), _foretold(sides, sums))


def step_times(gpu: Mapping[str, Any]) -> list[int]:
    """Return the times of a GPU's steps, ns, of the last one to the end of what it launched: their mean is then that of the window.

    Where nothing waits for the GPU its work runs on behind the last step, and the CPU's steps may all be shorter than that mean.
    """
    times = list(gpu["step_ns"])
    behind_ns = gpu["wall_ns"] - sum(times)
    if len(times) == gpu["steps"] and behind_ns > 0:
        times[-1] += behind_ns
    return times


def _sums(gpus: Documents, steps: int) -> dict[str, float]:
    sums: dict[str, float] = {}
    for gpu in gpus:
        for name, ns in gpu["parts"].items():
            sums[name] = sums.get(name, 0.0) + ns / steps
    return sums


def _foretold(sides: tuple[Documents, Documents], sums: Sequence[Mapping[str, float]]) -> list[Foretold]:
    before, after = ({kind["kind"]: kind for numbers in side for kind in numbers["kinds"]} for side in sides)

    def is_without(side: int, kind: str) -> bool:
        return sums[side].get(kind, 0.0) <= REMAINS * sums[1 - side].get(kind, 0.0)

    rows = [(kind, before[kind], False) for kind in before if kind not in after and is_without(1, kind)] + \
        [(kind, after[kind], True) for kind in after if kind not in before and is_without(0, kind)]
    return [Foretold(kind, row["title"], row["gain_step_least_ns"], row["gain_step_most_ns"], came) for kind, row, came in rows]


def _causes(old: Documents, new: Documents) -> list[StepCause]:
    """Return the causes of both accounts a step, means over the traces of a side; [] where one has none."""
    sides = [[numbers for numbers in side if numbers.get("groups") and numbers.get("steps")] for side in (old, new)]
    if not all(sides) or [len(side) for side in sides] != [len(old), len(new)]:
        return []
    titles, sums = dict[str, str](), (dict[str, float](), dict[str, float]())
    for side, times in zip(sides, sums, strict=True):
        steps = sum(numbers["steps"] for numbers in side)
        for group in (group for numbers in side for group in numbers["groups"]):
            titles[group["cause"]] = group["label"]
            times[group["cause"]] = times.get(group["cause"], 0.0) + group["wall_ns"] / steps
    rows = [StepCause(name, title, sums[0].get(name, 0.0), sums[1].get(name, 0.0)) for name, title in titles.items()]
    return sorted(rows, key=lambda row: -abs(row.delta_ns))
