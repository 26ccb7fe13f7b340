"""What clients read of the cache, and what they told of their launches."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import Max, Sum
from django.utils import timezone

from tuner.buckets import BUCKETS
from tuner.cache import WHY, Rule
from tuner.configs import selectors as configs
from tuner.models import CachedConfig, ConfigSnapshot, ServedCount
from tuner.operators import all_operators, find
from tuner.served import resolve

DAYS = 7
MEASURED = (Rule.EXACT, Rule.OTHER_TOOLKIT, Rule.SAME_ARCHITECTURE, Rule.NEAREST_BUCKET)     # in the order of the picture


def cache_now() -> dict[str, Any]:
    """All entries, and of every operator that has one or could: how its shapes are rounded."""
    entries = configs.entries()
    known, policies = all_operators(), configs.policies()
    operators = {}
    for name in {*known, *(entry.key.operator for entry in entries)}:
        operator = known.get(name)
        operators[name] = {
            "dims": [dim.name for dim in operator.dims] if operator else [], "dtypes": list(operator.dtypes) if operator else [],
            "exact": sorted(dim.name for dim in operator.dims if dim.exact) if operator else [],
            "policy": policies.get(name, BUCKETS).as_json()}
    return resolve.freeze(entries, operators)


def served_since(days: int = DAYS) -> list[dict[str, Any]]:
    """What was served, most launches first: one row for each operator, dtype, bucket, GPU, rule and entry."""
    since = timezone.localdate() - timedelta(days=days - 1)
    rows = (ServedCount.objects.filter(day__gte=since).order_by()
            .values("operator", "dtype", "shape_bucket", "gpu", "rule", "entry")
            .annotate(launches=Sum("launches"), last=Max("updated")).order_by("-launches"))
    living = {row.pk: row for row in CachedConfig.objects.filter(pk__in={row["entry"] for row in rows})}
    return [{**row, "cached": living.get(row["entry"])} for row in rows]


def shares(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Launches by the rule that served them, in the rules' order."""
    total = sum(row["launches"] for row in rows)
    found = []
    for rule in (*MEASURED, Rule.DEFAULT):
        launches = sum(row["launches"] for row in rows if row["rule"] == rule)
        if launches:
            found.append({"rule": str(rule), "why": WHY[rule], "launches": launches, "share_pct": 100 * launches / total})
    return found


def tune_query(row: dict[str, Any]) -> dict[str, str] | None:
    """The form of a new job filled in for a bucket that no entry of its own serves."""
    operator = find(row["operator"])
    if operator is None or row["rule"] == Rule.EXACT:
        return None
    dims = dict(part.split("=", 1) for part in row["shape_bucket"].split() if "=" in part)
    return {"operator": row["operator"], "dtype": row["dtype"], **dims} if dims.keys() == {d.name for d in operator.dims} else None


def snapshots_recent(count: int = 10) -> list[ConfigSnapshot]:
    return list(ConfigSnapshot.objects.defer("content")[:count])


def entry_launches(entry: CachedConfig, days: int = DAYS) -> int:
    """How many launches an entry served."""
    since = timezone.localdate() - timedelta(days=days - 1)
    return ServedCount.objects.filter(entry=entry.pk, day__gte=since).aggregate(n=Sum("launches"))["n"] or 0
