"""What a store of the fleet's sums answers, whichever database keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from profiles.fleet.merge import Merged
from profiles.fleet.slow.compared import GpuHours
from profiles.fleet.tables import BY_NAME, FactTable

GROUPS = ("kernel", "signature", "build", "job", "model", "gpu_model", "gpu", "host")
ON_CONTEXTS = ("build", "job", "model", "gpu_model")
SAMPLED = 1.001                         # a row's estimate ÷ what was seen of it: above, its windows did not watch everything
ON_GPUS = ("gpu", "host")               # groups that come from the sums of GPUs, not from those of kernels


@dataclass(frozen=True)
class Window:
    """Hours since 1970, the end excluded."""

    from_hour: int
    to_hour: int


@dataclass(frozen=True)
class Question:
    """Sums of a window by group. `where`: column of a table -> its keys; what it does not name is not filtered."""

    window: Window
    group: str = "kernel"
    where: Mapping[str, Sequence[int]] = field(default_factory=dict)
    limit: int | None = 20


@dataclass(frozen=True)
class SumRow:
    """`key`: a number for "kernel", "signature", "gpu", words for the other groups. `sketch`: bucket -> launches.

    `sampled_ns`: the part of `estimate_ns` from rows of windows that did not watch everything; `square` is of it alone.
    """

    key: Any
    launches: int
    total_ns: int
    estimate_launches: float
    estimate_ns: float
    sampled_ns: float
    square: float
    min_ns: int | None
    max_ns: int | None
    sketch: Mapping[int, int] | None = None


@dataclass(frozen=True)
class Coverage:
    """Of the GPUs that a question is about: windows, how long they watched, and of how long.

    `sampled`: the same of rows alone whose windows did not watch everything.
    """

    windows: int = 0
    observed_ns: int = 0
    wall_ns: int = 0
    sampled: Coverage | None = None

    @property
    def share(self) -> float:
        return min(1.0, self.observed_ns / self.wall_ns) if self.wall_ns else 0.0


def answering_table(question: Question) -> FactTable:
    """Return the table whose sums answer a question by group: the smallest that knows what is filtered."""
    where = set(question.where)
    if question.group in ON_GPUS:
        return BY_NAME["gpu_kernels" if where & {"signature", "kernel"} else "gpus"]
    if where & {"gpu", "host"}:
        return BY_NAME["gpu_kernels"]
    if "gpu_model_key" in where:
        where -= {"context"}                # the same filter, said in the keys of every table
    if question.group == "kernel" and where <= {"gpu_model_key", "kernel"}:
        return BY_NAME["totals"]
    # windows of a job are those of its GPUs: their squares, not those of each kernel, tell how far its time is certain
    on_contexts = question.group in ON_CONTEXTS and not set(question.where) & {"signature", "kernel"}
    return BY_NAME["contexts" if on_contexts else "kernels"]


def watching_table(question: Question) -> FactTable:
    """Return the table that knows how long was watched what a question is about."""
    return BY_NAME["gpus" if question.group in ON_GPUS or set(question.where) & {"gpu", "host"} else "contexts"]


def sum_row(row: Sequence[Any]) -> SumRow:
    """Return the row whose columns are SumRow's, as a database says them."""
    key, launches, total, more, estimate, sampled, square, least, most = row
    return SumRow(key, int(launches or 0), int(total or 0), float(more or 0), float(estimate or 0), float(sampled or 0),
                  float(square or 0),
                  None if least is None or not launches else int(least), None if most is None or not launches else int(most))


@dataclass(frozen=True)
class Forgotten:
    """What went with some contexts: rows of all tables, and GPUs and signatures that no other context has."""

    rows: int
    gpus: Sequence[int]
    signatures: Sequence[int]


class FleetStore(Protocol):
    shares_transaction: bool            # with the rows of batches: where it does not, a merge is named before it is written

    def write(self, merged: Merged, token: str = "") -> None:
        """Keep the rows of a merge; the caller's transaction decides whether they stay.

        Where the sums are in another database than the batches, they stay at once, and those of one `token` stay once.
        """

    def top(self, question: Question) -> tuple[list[SumRow], SumRow]:
        """Return the groups with most estimated time, sketches included, and the sum of all groups."""

    def coverage(self, question: Question) -> Coverage:
        """Return what was watched."""

    def over_time(self, question: Question, keys: Sequence[Any], step_hours: int) -> list[tuple[int, Any, int, int, float]]:
        """Return (first hour of a step, key, launches, total_ns, estimate_ns) of some groups.

        A row of a day or month that reaches beyond a step does not count: `days.too_coarse` tells where that leaves a gap.
        """

    def watched(self, question: Question, step_hours: int | None = None) -> list[tuple[int, Any, Coverage, int, float]]:
        """Return (first hour of a step, group, coverage, total_ns, estimate_ns) of each group's GPUs; one step without its length.

        Any group but "kernel" and "signature".
        """

    def watched_gpus(self, question: Question) -> list[tuple[int, int, Coverage, float]]:
        """Return (GPU, context, coverage, estimate_ns) of a window; `sampled` is left out of the coverage."""

    def telemetry(self, question: Question, step_hours: int | None = None,
                  columns: Sequence[str] = tuple(BY_NAME["telemetry"].sums)) -> list[tuple[int, int, dict[str, float]]]:
        """Return (first hour of a step, GPU, sums of columns of the table "telemetry") of GPUs; one step without its length."""

    def gpu_hours(self, question: Question) -> GpuHours:
        """Return the kernels that GPUs spend most time in, by hour."""

    def extent(self) -> Window | None:
        """Return the first and the last hour with rows, None where there is none."""

    def compact(self, day: int, before: int) -> None:
        """Add up parts of one key in the hours of a day before an hour (both since 1970)."""

    def roll_up(self, days: Sequence[int]) -> None:
        """Sum the hours of days (numbers since 1970) to days, and parts of one key to one row."""

    def roll_up_months(self, months: Sequence[int]) -> None:
        """Sum the days of months (the number of their first day) to months, of those whose days are all summed."""

    def drop_before(self, level: str, at: int) -> None:
        """Forget what is older, in hours or days as the level counts; by whole partitions."""

    def forget(self, contexts: Sequence[int], gpu_model_keys: Sequence[int]) -> Forgotten:
        """Remove the sums of contexts, those of all their jobs by GPU model, and the sensors of GPUs that nothing else ran on."""
