"""The findings of NVIDIA's guided analysis as people read them: markup resolved, ranked by the estimated speedup.

Markup (Nsight Compute, "Python Report Interface"): ``@section:<id>:<text>@``, ``@url:<text>:<link>@``,
``@sass:<address>:<text>@``, ``@source:<file>:<line>:<text>@``.
A *global* estimate is the decrease of the kernel's whole run time; a *local* one is the gain of a part of the hardware
in isolation, and says nothing about time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

_MARKUP = re.compile(r"@(section|url|sass|source):(.*?)@(?=[\s.,;:)!?\]]|$)", re.DOTALL)


@dataclass(frozen=True)
class Piece:
    """A run of text; `href` where it is a link to the web."""

    text: str
    href: str = ""


def pieces(text: str) -> list[Piece]:
    """Text of a rule without markup, links kept as links (only https ones)."""
    pieces: list[Piece] = []
    position = 0
    for match in _MARKUP.finditer(text):
        if match.start() > position:
            pieces.append(Piece(text[position:match.start()]))
        pieces.append(_piece(match[1], match[2]))
        position = match.end()
    if position < len(text):
        pieces.append(Piece(text[position:]))
    return pieces


def _piece(kind: str, body: str) -> Piece:
    if kind == "url":
        label, _, link = body.partition(":")
        return Piece(label, link if link.startswith("https://") else "")
    parts = body.split(":")
    return Piece(parts[-1] if len(parts) > 1 else body)


def plain(text: str) -> str:
    return "".join(piece.text for piece in pieces(text))


def worth_ns(rule: dict[str, Any], duration_ns: float | None) -> float | None:
    """Return the time that NVIDIA's estimate would win back of one launch.

    None for local estimates.
    """
    pct = rule.get("speedup_pct")
    if rule.get("speedup_scope") != "global" or pct is None or duration_ns is None:
        return None
    return float(duration_ns * min(pct, 100.0) / 100.0)


def rank_rules(rules: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort rules: global estimates by size, then local ones, then other advice, then the rest.

    The rest stays in the report's order.
    """
    def rank(rule: dict[str, Any]) -> tuple[int, float]:
        scope, pct = rule.get("speedup_scope"), rule.get("speedup_pct") or 0.0
        advice = rule.get("severity") in ("optimization", "warning", "error")
        return (0 if scope == "global" and pct else 1 if scope == "local" and pct else 2 if advice else 3, -pct)
    return sorted(rules, key=rank)


def merge_launch_rules(launch_rules: Sequence[tuple[float | None, Sequence[dict[str, Any]]]]) -> list[dict[str, Any]]:
    """Return, for each rule and title, the one worth most over a kernel's launches.

    `launch_rules`: (duration_ns, rules).

    `launches` counts how many say it, `worth_ns` sums what the estimates would win back over all of them.
    """
    best: dict[tuple[str, str], dict[str, Any]] = {}
    for duration_ns, rules in launch_rules:
        for rule in rules:
            key = (rule["identifier"], rule["title"])
            gain = worth_ns(rule, duration_ns)
            entry = best.get(key)
            count = (entry["launches"] if entry else 0) + 1
            total = ((entry["worth_ns"] if entry else None) or 0.0) + (gain or 0.0)
            keep = entry if entry and (entry.get("speedup_pct") or 0) >= (rule.get("speedup_pct") or 0) else rule
            best[key] = {**keep, "launches": count, "worth_ns": total or None}
    return rank_rules(best.values())
