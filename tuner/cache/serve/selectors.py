"""Snapshot content that clients read, and counts of their launches."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import lru_cache
from typing import Any, TypedDict

from django.db.models import Max, Sum
from django.utils import timezone

from tuner.cache.buckets import BUCKETS
from tuner.cache.entries import selectors as configs
from tuner.cache.entries.bans import read_bans
from tuner.cache.rules import OWN_BUCKET, WHY, Rule, State
from tuner.cache.serve import resolve
from tuner.models import CachedConfig, ConfigSnapshot, ServedCount, TrialRow
from tuner.tuning.operators import all_operators, find
from tuner.tuning.trial import config_key

DAYS = 7
MOST_REVOKED = 10_000
MEASURED = tuple(rule for rule in Rule if rule != Rule.DEFAULT)        # in the order of the picture


def cache_content(verified: bool = False) -> dict[str, Any]:
    """Return all entries, or the verified ones, and how each operator's shapes are rounded."""
    entries = configs.entries()
    by_name, policies = all_operators(), configs.bucket_policies()
    operators: dict[str, dict[str, Any]] = {}
    for name in {*by_name, *(entry.key.operator for entry in entries)}:
        operator = by_name.get(name)
        operators[name] = {
            "dims": [dim.name for dim in operator.dims] if operator else [], "dtypes": list(operator.dtypes) if operator else [],
            "exact": sorted(dim.name for dim in operator.dims if dim.exact) if operator else [],
            "policy": policies.get(name, BUCKETS).as_json(), "absent": dict(operator.absent) if operator else {}}
    plain = {}
    for entry in entries:
        absent = tuple(operators[entry.key.operator]["absent"].items())
        if config := _plain_config(entry.id, config_key(entry.config), absent):
            plain[entry.id] = config
    return resolve.freeze(entries, operators, plain, verified)


@lru_cache(maxsize=16384)
def _plain_config(entry: int, key: str, absent: tuple[tuple[str, Any], ...]) -> dict[str, Any] | None:
    """Return the fastest trial of the entry's job that names no newer parameter.

    None where the entry's own configuration does, or no such trial was measured to the end.
    """
    own = json.loads(key)
    if all(own.get(name, value) == value for name, value in absent):
        return None
    job = CachedConfig.objects.values_list("job", flat=True).get(pk=entry)
    same = {f"config__{name}": value for name, value in absent}
    trials = TrialRow.objects.filter(job=job, outcome="measured", **same).order_by("median_ms").values_list("config", "facts")
    fastest = next((config for config, facts in trials.iterator() if facts.get("ended") != "raced"), None) if job else None
    return {name: value for name, value in fastest.items() if name not in dict(absent)} if fastest else None


def launches_since(days: int = DAYS) -> list[dict[str, Any]]:
    """Return launches and questions of `days` by operator, dtype, bucket, GPU, rule and entry, most first."""
    since = timezone.localdate() - timedelta(days=days - 1)
    rows = (ServedCount.objects.filter(day__gte=since).order_by()
            .values("operator", "dtype", "shape_bucket", "gpu", "rule", "entry")
            .annotate(launches=Sum("launches"), asked=Sum("asked"), last=Max("updated")).order_by("-launches", "-asked"))
    living = {row.pk: row for row in CachedConfig.objects.filter(pk__in={row["entry"] for row in rows})}
    return [{**row, "cached": living.get(row["entry"])} for row in rows]


class ShareJson(TypedDict):
    """Launches that a rule served."""

    rule: str
    why: str
    launches: int
    asked: int
    share_pct: float


def rule_shares(rows: list[dict[str, Any]]) -> list[ShareJson]:
    """Return launches by rule, in the rules' order; a rule that was only asked for has no share."""
    total = sum(row["launches"] for row in rows)
    shares = list[ShareJson]()
    for rule in (*MEASURED, Rule.DEFAULT):
        launches = sum(row["launches"] for row in rows if row["rule"] == rule)
        inquiries = sum(row["asked"] for row in rows if row["rule"] == rule)
        if launches or inquiries:
            shares.append({"rule": str(rule), "why": WHY[rule], "launches": launches, "asked": inquiries,
                           "share_pct": 100 * launches / total if total else 0.0})
    return shares


def tune_query(row: dict[str, Any]) -> dict[str, str] | None:
    """Return a filled-in form for a bucket that no entry of its own serves; None otherwise."""
    operator = find(row["operator"])
    if operator is None or row["rule"] in OWN_BUCKET:
        return None
    dims = dict(part.split("=", 1) for part in row["shape_bucket"].split() if "=" in part)
    return {"operator": row["operator"], "dtype": row["dtype"], **dims} if dims.keys() == {d.name for d in operator.dims} else None


def revoked_entries(snapshot: str = "", toolkit: str | None = None) -> list[int]:
    """Return entries in quarantine, the newest first: a snapshot from before still holds them.

    snapshot  judge the configurations that it holds, which may not be those that serve now
    toolkit   of the launches: what is quarantined under it too; None: each entry's own alone
    """
    bans = read_bans()
    taken_out = CachedConfig.objects.filter(state=State.QUARANTINED).order_by("-updated", "-pk")
    record = ConfigSnapshot.objects.filter(pk=snapshot).first() if snapshot and bans.operators else None
    entries = [resolve.thaw(entry) for entry in record.content["entries"]] if record else [
        configs.as_entry(row) for row in CachedConfig.objects.filter(operator__in=bans.operators).order_by("-pk")]
    toolkits = [[entry.key.toolkit, *([] if toolkit is None else [toolkit])] for entry in entries]
    ids = [entry.id for entry, under in zip(entries, toolkits, strict=True) if any(bans.holding(
        entry.key.operator, entry.key.dtype, entry.config, entry.key.compute_capability, toolkit_name, entry.key.source_hash)
        for toolkit_name in under)]
    return list(dict.fromkeys([*taken_out.values_list("pk", flat=True)[:MOST_REVOKED], *ids]))[:MOST_REVOKED]


def recent_snapshots() -> list[ConfigSnapshot]:
    """Return the newest snapshots."""
    return list(ConfigSnapshot.objects.defer("content")[:10])


def entry_launches(entry: CachedConfig, days: int = DAYS) -> int:
    """Return how many launches an entry served."""
    return _sum_of(entry, "launches", days)


def entry_asked(entry: CachedConfig) -> int:
    """Return how often an entry was asked for by who then launched it himself, or did not."""
    return _sum_of(entry, "asked", DAYS)


def _sum_of(entry: CachedConfig, column: str, days: int) -> int:
    since = timezone.localdate() - timedelta(days=days - 1)
    return ServedCount.objects.filter(entry=entry.pk, day__gte=since).aggregate(n=Sum(column))["n"] or 0
