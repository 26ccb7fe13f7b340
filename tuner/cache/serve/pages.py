"""Page of what launches were served."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from tuner import texts
from tuner.cache.rules import Rule
from tuner.cache.serve import selectors

ROWS = 500


@require_safe
def served_list(request: HttpRequest) -> HttpResponse:
    """Show what launches were served (?days=7)."""
    text = request.GET.get("days", "")
    days = min(365, max(1, int(text))) if text.isdecimal() and len(text) < 9 else selectors.DAYS
    rows = selectors.launches_since(days)
    shares = selectors.rule_shares(rows)
    total = sum(row["launches"] for row in rows)
    untuned = [row for row in rows if row["rule"] == Rule.DEFAULT]
    return render(request, "tuner/cache/served.html", {
        "days": days, "choices": (1, 7, 30), "total": total, "asked": sum(row["asked"] for row in rows), "shares": shares,
        "default": next((share for share in shares if share["rule"] == Rule.DEFAULT), None),
        "first": next((_action(row) for row in rows if _action(row)), None),
        "rows": [{**row, "action": _action(row), "config": texts.config_in_order(row["cached"].config) if row["cached"] else None,
                  "shape": texts.in_order(row["operator"], row["cached"].shape) if row["cached"] else None,
                  "share_pct": 100 * row["launches"] / total if total else 0.0} for row in rows[:ROWS]],
        "more": max(0, len(rows) - ROWS), "untuned": len(untuned), "snapshots": selectors.recent_snapshots(),
        "address": request.build_absolute_uri("/").rstrip("/")})


def _action(row: dict[str, Any]) -> dict[str, Any] | None:
    query = selectors.tune_query(row)
    return {"query": urlencode(query), "operator": row["operator"], "bucket": row["shape_bucket"],
            "launches": row["launches"]} if query else None
