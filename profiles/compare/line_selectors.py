"""What the compare page says of a comparison: its rows with what they lead to, and the sentence at the top."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from profiles.analysis.compare.comparison import SIGNS, KernelChange, Row, Side, name_shape, verdict_text
from profiles.analysis.compare.why import CounterChange, Why
from profiles.analysis.core.sentences import pct_text, plain_number, share_pct, si_text
from profiles.base.words import dims_text
from profiles.compare.selectors import COUNTERS, ComparisonSide, KernelComparison
from profiles.models import KernelStat

_SHOWN: dict[str, Callable[[float], str]] = {
    "instructions": lambda value: si_text(value, ""), "wait": lambda value: f"{plain_number(value)} cycles",
    "warps": plain_number, "share": lambda value: pct_text(100 * value),
    "clock": lambda value: f"{value / 1e6:,.0f} MHz"}


def factor_bars(why: Why | None) -> list[dict[str, Any]]:
    """The parts of the change as bars: width in percent of twice the largest part, and side."""
    if why is None:
        return []
    largest = max(abs(factor.part_ns) for factor in why.factors) or 1.0
    return [{"factor": factor, "old": _SHOWN[factor.key](factor.old), "new": _SHOWN[factor.key](factor.new),
             "width": f"{50 * abs(factor.part_ns) / largest:.2f}", "worse": factor.part_ns > 0} for factor in why.factors]


@dataclass(frozen=True)
class Line:
    """A row of the compare table with its counters."""

    row: Row
    counters: list[CounterChange]
    old_kernel: int | None          # KernelStat ids, to link to
    new_kernel: int | None
    old_profile: int | None
    new_profile: int | None
    why: Why | None = None

    @property
    def url(self) -> str:
        """The kernel's page, the new one's before the old one's; "" where neither is stored."""
        sides = ((self.new_profile, self.new_kernel), (self.old_profile, self.old_kernel))
        return next((reverse("kernel", args=side) for side in sides if side[1]), "")

    @property
    def factors(self) -> list[dict[str, Any]]:
        return factor_bars(self.why)

    @property
    def stalls(self) -> list[dict[str, Any]]:
        return [{"name": stall.name, "old": stall.old, "new": stall.new, "delta": f"{stall.new - stall.old:+.2f}"}
                for stall in (self.why.stalls if self.why else ())]

    @property
    def sign(self) -> str:
        return SIGNS[self.row.verdict]

    @property
    def verdict_text(self) -> str:
        return verdict_text(self.row.verdict)

    @property
    def work_text(self) -> str:
        """"Work of a launch +112 %", "" where it is not known or the same."""
        change_pct = self.row.work_change_pct
        return f"work of a launch {change_pct:+.0f} %" if change_pct is not None and round(change_pct) else ""

    @property
    def shape_name(self) -> str:
        return name_shape(self.row)

    @property
    def full_name(self) -> str:
        side = self.row.new or self.row.old
        return side.name if side else self.row.kernel

    @property
    def launches_text(self) -> str:
        """"3", or "3 → 6" where they differ."""
        old, new = (f"{side.launches:,}" if side else "0" for side in (self.row.old, self.row.new))
        return old if old == new else f"{old} → {new}"

    @property
    def shape_text(self) -> str:
        """"512 / 256 / 204 → 4096 / 128 / 64": grid, block, registers; once where both sides agree."""
        texts = [_shape_text(side) if side else "—" for side in (self.row.old, self.row.new)]
        return texts[0] if texts[0] == texts[1] else " → ".join(texts)

    @property
    def counter_cells(self) -> list[CounterChange | None]:
        """Return the counters by column of COUNTERS; empty where the row has none."""
        by_name = {change.name: change for change in self.counters}
        return [by_name.get(name) for _, name, _ in COUNTERS] if by_name else []


def _shape_text(side: Side) -> str:
    def size(dims: tuple[int, int, int] | None) -> str:
        if dims is None:
            return "—"
        return dims_text(dims).removesuffix("×1").removesuffix("×1")

    registers = "—" if side.registers_per_thread is None else str(side.registers_per_thread)
    return f"{size(side.grid)} / {size(side.block)} / {registers}"


def rows(compared: KernelComparison) -> list[Line]:
    old, new = _kernel_ids(compared.old), _kernel_ids(compared.new)
    lines = []
    for index, row in enumerate(compared.result.rows):
        a = old.get(row.old.name, (None, None)) if row.old else (None, None)
        b = new.get(row.new.name, (None, None)) if row.new else (None, None)
        lines.append(Line(row, compared.counters.get(index, []), a[0], b[0], a[1], b[1], compared.whys.get(index)))
    return lines


@dataclass(frozen=True)
class KernelLine:
    """A kernel of the compare table; its shapes are lines of their own below it."""

    change: KernelChange
    shapes: list[Line]              # largest change first

    @property
    def sign(self) -> str:
        return SIGNS[self.change.verdict]

    @property
    def verdict_text(self) -> str:
        return self.change.says or verdict_text(self.change.verdict)

    @property
    def first(self) -> Line:
        return self.shapes[0]

    @property
    def is_open(self) -> bool:
        """Whether some shape changed beyond its noise: shown without a click."""
        return self.change.verdict in ("slower", "faster")

    @property
    def launches_text(self) -> str:
        old, new = f"{self.change.old_launches:,}", f"{self.change.new_launches:,}"
        return old if old == new else f"{old} → {new}"


def kernel_lines(compared: KernelComparison, lines: list[Line]) -> list[KernelLine]:
    """Return the kernels, largest change first; `lines` as `rows` returned them."""
    return [KernelLine(change, [lines[index] for index in change.rows]) for change in compared.result.kernels]


def _kernel_ids(side: ComparisonSide) -> dict[str, tuple[int, int]]:
    """Kernel name -> (KernelStat id, profile id) in the newest profile that has it."""
    rows = KernelStat.objects.filter(profile__in=[profile.pk for profile in side.profiles]).order_by("profile_id")
    return {name: (pk, profile_id) for name, pk, profile_id in rows.values_list("name", "pk", "profile_id")}


@dataclass(frozen=True)
class Answer:
    """The sentence at the top, in pieces."""

    direction: str                  # "slower" | "faster" | "unchanged"
    delta_ns: float
    delta_pct: float | None
    from_launches_ns: float
    from_duration_ns: float
    verdicts: dict[str, int]
    worst: Row | None               # largest of those that changed beyond noise
    best: Row | None

    @property
    def size_ns(self) -> float:
        return abs(self.delta_ns)

    @property
    def sign(self) -> str:
        return "+" if (self.delta_pct or 0) > 0 else ""

    @property
    def counts(self) -> str:
        """"3 kernels slower, 1 faster, 1 unchanged"."""
        words = {"slower": "slower", "faster": "faster", "unchanged": "within the noise", "unknown": "cannot be told",
                 "other_work": "of another amount of work", "new": "new", "gone": "gone"}
        parts = [f"{count} {words[verdict]}" for verdict, count in self.verdicts.items() if count]
        if not parts:
            return "No kernel ran on either side"
        first, *rest = parts
        number, word = first.split(" ", 1)
        return ", ".join([f"{number} kernel{'' if number == '1' else 's'} {word}", *rest])


def answer(compared: KernelComparison) -> Answer:
    result = compared.result
    slower = [row for row in result.rows if row.verdict == "slower"]
    faster = [row for row in result.rows if row.verdict == "faster"]
    changed = slower or faster or any(row.verdict in ("new", "gone", "unknown", "other_work") for row in result.rows)
    direction = "unchanged" if not result.delta_ns or not changed else "slower" if result.delta_ns > 0 else "faster"
    return Answer(
        direction, result.delta_ns, share_pct(result.delta_ns, result.old_total_ns),
        sum(row.from_launches_ns for row in result.rows), sum(row.from_duration_ns for row in result.rows),
        result.verdicts(), max(slower, key=lambda row: row.delta_ns, default=None),
        min(faster, key=lambda row: row.delta_ns, default=None))
