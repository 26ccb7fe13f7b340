"""The step of two traces side by side: its time, what it needed, what need not have been, and what was foretold of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from profiles.analysis.trace.needed.needs import PARTS
from profiles.analysis.trace.needed.table import KINDS
from profiles.analysis.trace.needed.topic import VERSION, part_title
from profiles.models import Profile
from profiles.store.timeline import timeline
from profiles.store.topics import topic_read

NEEDED = "needed"                   # the topic


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
    parts: list[StepPart]           # they add up to the step
    foretold: list[Foretold]

    @property
    def delta_ns(self) -> float:
        return self.new_ns - self.old_ns

    @property
    def change_pct(self) -> float:
        return 100 * self.delta_ns / self.old_ns if self.old_ns else 0.0

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "delta_ns": self.delta_ns,
                "parts": [{**asdict(part), "delta_ns": part.delta_ns} for part in self.parts]}


def step_change(old: Sequence[Profile], new: Sequence[Profile]) -> StepChange | None:
    """Return how the step changed, None where one side has no steps or what it needs is not stored yet."""
    sides = [[numbers for profile in profiles if (numbers := _numbers(profile)) is not None] for profiles in (old, new)]
    if [len(side) for side in sides] != [len(old), len(new)]:
        return None
    gpus = [[gpu for numbers in side for gpu in numbers["gpus"] if gpu["steps"]] for side in sides]
    if not all(gpus):
        return None
    counts = [sum(gpu["steps"] for gpu in side) for side in gpus]
    walls = [sum(gpu["wall_ns"] for gpu in side) / count for side, count in zip(gpus, counts, strict=True)]
    steps = [[ns for gpu in side for ns in step_times(gpu)] or [round(wall)] for side, wall in zip(gpus, walls, strict=True)]
    sums = [_sums(side, count) for side, count in zip(gpus, counts, strict=True)]
    names = [name for name in (*PARTS, *(kind.name for kind in KINDS)) if name in sums[0] or name in sums[1]]
    parts = [StepPart(name, part_title(name), sums[0].get(name, 0.0), sums[1].get(name, 0.0)) for name in names]
    return StepChange(walls[0], walls[1], (min(steps[0]), max(steps[0])), (min(steps[1]), max(steps[1])), counts[0], counts[1],
                      parts, _foretold(*sides))


def step_times(gpu: Mapping[str, Any]) -> list[int]:
    """Return the times of a GPU's steps, ns, of the last one to the end of what it launched: their mean is then that of the window.

    Where nothing waits for the GPU its work runs on behind the last step, and the CPU's steps may all be shorter than that mean.
    """
    times = list(gpu["step_ns"])
    behind_ns = gpu["wall_ns"] - sum(times)
    if len(times) == gpu["steps"] and behind_ns > 0:
        times[-1] += behind_ns
    return times


def without_needs(profiles: Sequence[Profile]) -> list[Profile]:
    """Return the traces of which this version has not stored what they need; their pages make it."""
    return [profile for profile in profiles if profile.kind == Profile.Kind.TRACE and _numbers(profile) is None]


def _numbers(profile: Profile) -> Mapping[str, Any] | None:
    """The numbers of a profile's analysis as it is stored, {"gpus": []} where it holds no GPU work."""
    try:
        document = topic_read(profile.pk, NEEDED, VERSION, int(timeline(profile.pk).document["written"]))
    except FileNotFoundError:
        return {"gpus": [], "kinds": []}
    if document is None:
        return None
    return document["numbers"] if document["applies"] else {"gpus": [], "kinds": []}


def _sums(gpus: Sequence[Mapping[str, Any]], steps: int) -> dict[str, float]:
    sums: dict[str, float] = {}
    for gpu in gpus:
        for name, ns in gpu["parts"].items():
            sums[name] = sums.get(name, 0.0) + ns / steps
    return sums


def _foretold(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> list[Foretold]:
    before, after = ({kind["kind"]: kind for numbers in side for kind in numbers["kinds"]} for side in (old, new))
    rows = [(kind, before[kind], False) for kind in before if kind not in after] + \
        [(kind, after[kind], True) for kind in after if kind not in before]
    return [Foretold(kind, row["title"], row["gain_step_least_ns"], row["gain_step_most_ns"], came) for kind, row, came in rows]
