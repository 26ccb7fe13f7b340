"""The first kernels of a profile in the order that a page's address asks for, and its kernel time by bound."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import F, Sum

from profiles.models import Profile
from profiles.profile.selectors import KernelLine, kernel_lines, kernel_rows

SORTS: dict[str, tuple[str, str, bool]] = {      # of the kernels of a page: (heading, column, most first)
    "name": ("Kernel", "short_name", False), "share": ("Share", "share_pct", True), "total": ("Time", "total_ns", True),
    "launches": ("Launches", "launches", True), "mean": ("Mean", "mean_ns", True), "bound": ("Bound", "bound", True),
}


@dataclass(frozen=True)
class SortColumn:
    """A heading of the kernels' table; `next` is the order that a click on it asks for."""

    title: str
    number: bool
    current: bool
    order: str                  # "ascending" | "descending"
    next: str


def sort_of(asked: str) -> tuple[str, bool]:
    """Return the column and whether the largest stand first, of "mean" or "-mean" (the other way round); else by share."""
    name, turned = asked.removeprefix("-"), asked.startswith("-")
    return (name, SORTS[name][2] != turned) if name in SORTS else ("share", True)


def sort_columns(asked: str) -> list[SortColumn]:
    name, descending = sort_of(asked)
    return [SortColumn(title, key not in ("name", "bound"), key == name, "descending" if descending else "ascending",
                       f"-{key}" if key == name and descending == most_first else key)
            for key, (title, _, most_first) in SORTS.items()]


def top_kernels(profile: Profile, asked: str, most: int) -> list[KernelLine]:
    """Return the first kernels in the order that the page's address asks for; unknown values stand last."""
    name, descending = sort_of(asked)
    column = F(SORTS[name][1])
    order = column.desc(nulls_last=True) if descending else column.asc(nulls_last=True)
    return kernel_lines(profile, list(kernel_rows(profile).order_by(order, "pk")[:most]))


def time_by_bound(profile: Profile) -> dict[str, int]:
    """Return the kernel time in ns of each bound, "" for kernels of which it is unknown."""
    sums = kernel_rows(profile).order_by().values_list("bound").annotate(ns=Sum("total_ns"))
    return {bound: int(ns) for bound, ns in sums if ns}
