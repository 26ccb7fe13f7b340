"""Statistical standing of finalists: medians of the same rounds are compared in pairs.

Test: sign flips. Were two configurations equally fast, the sign of the difference of any round would be a coin's. So of
all 2^R sign patterns of the R differences (of log medians), the share whose sum is at least the observed one is an exact
one-sided p-value. Rounds are few and the test forces no shape on their noise: with a tie in them, rank tests fall back on
a normal approximation that can never get small with so few. The fastest was chosen by the same rounds from all rivals:
p is multiplied by their number (Bonferroni). So the truly fastest is called slower with a chance of RISK at most.

A difference below EQUAL_WITHIN is none, however sure: medians of identical code differ by 0.1-0.9 % from one process to
the next (recorded on an H200), and one session cannot see that. Where there are no rounds (recorded values), TIE_WITHIN decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from profiles.analysis.core import gpus

RISK = 0.05                # of calling the truly fastest slower
EQUAL_WITHIN = 0.005
TIE_WITHIN = 0.01
FEWEST_ROUNDS = 6          # 2⁻⁶ = 1.6 %: with fewer no difference could be shown
EXACT_ROUNDS = 14          # of these at most, all sign patterns are counted


@dataclass(frozen=True)
class Entry:
    """A finalist: its median and its median per round; rounds pair up across finalists."""

    median_ms: float
    round_ms: Sequence[float] = ()
    facts: Mapping[str, Any] | None = None       # registers, smem_bytes: for ties


@dataclass(frozen=True)
class Standing:
    """Where a finalist stands against the fastest."""

    slower_by: float               # median over rounds of the ratio, minus one
    p: float | None                # adjusted; None for the fastest, and where there are no rounds
    equal: bool
    why: str
    rounds: int = 0                # that were compared


def standings(entries: Sequence[Entry]) -> list[Standing]:
    """Return one standing per entry, in their order."""
    if not entries:
        return []
    lead = min(range(len(entries)), key=lambda i: entries[i].median_ms)
    ratios = [_ratios(entry, entries[lead]) for entry in entries]
    fastest = Standing(0.0, None, True, "fastest", len(ratios[lead]))
    return [fastest if i == lead else _standing(entry, entries[lead], ratios[i], len(entries) - 1)
            for i, entry in enumerate(entries)]


def _standing(entry: Entry, lead: Entry, ratios: Sequence[float], rivals: int) -> Standing:
    if len(ratios) < FEWEST_ROUNDS:
        by = entry.median_ms / lead.median_ms - 1
        return Standing(by, None, by <= TIE_WITHIN, f"medians {by:.2%} apart; without rounds a tie is {TIE_WITHIN:.0%}")
    by = float(np.expm1(np.median(ratios)))
    p = min(1.0, sign_flip_p(ratios) * rivals)
    seen = f"{by:+.2%} over {len(ratios)} rounds"
    if by <= EQUAL_WITHIN:
        return Standing(by, p, True, f"{seen}: less than processes of identical code differ ({EQUAL_WITHIN:.1%})", len(ratios))
    if p > RISK:
        return Standing(by, p, True, f"{seen}, not told apart (sign flips, p = {p:.2f} > {RISK:g})", len(ratios))
    return Standing(by, p, False, f"{seen} (sign flips, p = {p:.3f})", len(ratios))


def _ratios(entry: Entry, lead: Entry) -> list[float]:
    """Return log of entry over lead, round by round."""
    return [float(np.log(own / other)) for own, other in zip(entry.round_ms, lead.round_ms, strict=False)]


def sign_flip_p(differences: Sequence[float]) -> float:
    """Return the exact one-sided p of a sum this large under random signs."""
    values = np.asarray(differences[:EXACT_ROUNDS], dtype=np.float64)
    patterns = (np.arange(2 ** len(values))[:, None] >> np.arange(len(values)) & 1) * 2 - 1
    sums = patterns @ np.abs(values)
    return float(np.mean(sums >= values.sum() - 1e-12 * np.abs(values).sum()))


def finalist_order(standing: Standing, entry: Entry) -> tuple[float, ...]:
    """Return the sort key of a finalist, the winner first.

    Among equals no slower than TIE_WITHIN: fewer registers (room for other code), then code that fits more GPUs, less shared
    memory, the time. Noise that hides more than that must not choose the winner, nor may values recorded one by one."""
    if not standing.equal or standing.slower_by > TIE_WITHIN or standing.rounds < FEWEST_ROUNDS:
        return (2.0 - standing.equal, entry.median_ms)
    facts = entry.facts or {}
    registers, smem = facts.get("registers"), facts.get("smem_bytes")
    return (0.0, registers if isinstance(registers, int) else float("inf"), -capability_count(smem),
            smem if isinstance(smem, int) else float("inf"), entry.median_ms)


def capability_count(smem_bytes: Any) -> int:
    """Return on how many compute capabilities a block with this shared memory fits; 0 if unknown."""
    if not isinstance(smem_bytes, int):
        return 0
    return sum(limits.smem_bytes_per_block >= smem_bytes for limits in gpus.LIMITS.values())
