"""How much a search may spend, by name: budgets between "measure the default" and "measure everything"."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """`plateau`: trials in a row that win less than 1 % end the search; None: they do not."""

    title: str
    trials: int
    seconds: float
    plateau: int | None
    explanation: str


# `quick` is what a search needs on recorded spaces to come within 5 % of the best (median 20 trials); `normal` leaves room
# for the hard ones (60); `full` ends when the space does.
EFFORTS: dict[str, Effort] = {
    "none": Effort("None", 1, 120, None, "Only the default configuration, beside the vendor library: is there anything to win?"),
    "quick": Effort("Quick", 30, 90, 15, "Within 5 % of the best on most recorded spaces."),
    "normal": Effort("Normal", 100, 180, 40, "The search ends when 40 trials in a row won nothing."),
    "thorough": Effort("Thorough", 400, 1200, 120, "For a kernel that many GPUs run all day."),
    "full": Effort("Full", 100_000, 24 * 3600, None, "Every configuration of the space, however long it takes."),
}
DEFAULT = "normal"
