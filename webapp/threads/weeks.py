"""Weeks as digests name them. Apart from what they hold: every worker's sweep asks which one is due."""

from __future__ import annotations

from datetime import date


def week_of(day: date) -> str:
    """Return the ISO week of a day: "2026-W48"."""
    year, week, _ = day.isocalendar()
    return f"{year}-W{week:02d}"
