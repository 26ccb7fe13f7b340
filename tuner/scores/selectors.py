"""What the leaderboard shows: the last run of `make bench-tuner` that came with this version."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings

LEADERBOARD = settings.BASE_DIR / "docs" / "leaderboard.json"


def changed_ns() -> int:
    """Return when the stored leaderboard changed last, 0 where there is none."""
    return LEADERBOARD.stat().st_mtime_ns if LEADERBOARD.exists() else 0


def leaderboard() -> dict[str, Any] | None:
    """Return the stored leaderboard as bench/tuner.py wrote it; None where nobody ran it."""
    if not LEADERBOARD.exists():
        return None
    return _read(LEADERBOARD, LEADERBOARD.stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _read(path: Path, changed_ns: int) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


def table(document: dict[str, Any], public: bool) -> list[dict[str, Any]]:
    """Return one line per space with a cell per method; `first` marks the best of the line."""
    names = [method["method"] for method in document["methods"]]
    lines = []
    for space in dict.fromkeys(row["space"] for row in document["rows"] if row["public"] == public):
        rows = {row["method"]: row for row in document["rows"] if row["space"] == space}
        some = next(iter(rows.values()))
        cells = [_cell(rows.get(name), public) for name in names]
        known = [cell["value"] for cell in cells if cell["value"] is not None]
        best = (max if public else min)(known, default=None)
        lines.append({"space": space, "configurations": some["configurations"], "random_expects": some["random_expects"],
                      "cells": [{**cell, "first": cell["value"] is not None and cell["value"] == best} for cell in cells]})
    return lines


def _cell(row: dict[str, Any] | None, public: bool) -> dict[str, Any]:
    if row is None:
        return {"value": None, "why": "not measured"}
    value = row["score"] if public else row["trials"]
    reached = f"{row['reached']} of {row['repeats']} searches came within 5 %"
    return {"value": value, "why": reached if value is not None else f"most searches never came within 5 %; {reached}"}


def standing(document: dict[str, Any], default: str) -> dict[str, Any]:
    """Return the default method and the best method that is not ours."""
    mine = next((each for each in document["methods"] if each["method"] == default), None)
    others = [each for each in document["methods"] if not each["ours"] and each["mean_score"] is not None]
    return {"mine": mine, "other": max(others, key=lambda each: each["mean_score"], default=None)}
