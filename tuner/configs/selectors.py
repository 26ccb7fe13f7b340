"""What pages, API and launches read of the cache: entries as the rules want them, the answer to a launch, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import QuerySet

from tuner import cache, operators
from tuner.buckets import BUCKETS, Buckets
from tuner.configs.tested_selectors import bucket_loss, losses
from tuner.formats import triton_text
from tuner.models import BucketPolicy, CachedConfig, Quarantine, TuneJob
from tuner.operators import limits
from tuner.texts import config_in_order
from tuner.trial import config_key

OPEN = "open"                      # of a state filter: worth a look


def config_list() -> QuerySet[CachedConfig]:
    return CachedConfig.objects.select_related("job", "imported")


def config_filter(query: Mapping[str, str]) -> QuerySet[CachedConfig]:
    """Entries by ?operator=, ?gpu=, ?dtype=, ?state=, ?origin=."""
    rows = config_list()
    for name in ("operator", "gpu", "dtype", "state", "origin", "toolkit"):
        if query.get(name):
            rows = rows.filter(**{name: query[name]})
    return rows


# ---- buckets ----

def policies() -> dict[str, Buckets]:
    """Bucket policies that somebody chose, by operator; every other operator has BUCKETS."""
    return {row.operator: Buckets(row.exact_up_to, row.steps_per_doubling, row.max_distance)
            for row in BucketPolicy.objects.all()}


def policy_of(operator: str) -> Buckets:
    return policies().get(operator, BUCKETS)


def exact_of(operator: str) -> tuple[str, ...]:
    """Dimensions that are never rounded: the kernel's code depends on them."""
    known = operators.find(operator)
    return tuple(dim.name for dim in known.dims if dim.exact) if known else ()


def bucket(operator: str, shape: Mapping[str, int]) -> str:
    return cache.bucket(shape, exact_of(operator), policy_of(operator))


def loss() -> cache.Loss:
    """What a step away from an entry's key costs, as far as trials tell."""
    return losses()


# ---- entries ----

def entries(**where: Any) -> list[cache.Entry]:
    """Every row as the rules see it. One whose configuration is quarantined on its GPU's class is quarantined."""
    banned = quarantined()
    return [entry_of(row, banned) for row in config_list().filter(**where)]


def quarantined() -> frozenset[tuple[str, str, str, str]]:
    """(operator, dtype, configuration, compute capability) in force."""
    return frozenset(Quarantine.objects.filter(lifted=None).values_list("operator", "dtype", "config_key", "capability"))


def entry_of(row: CachedConfig, banned: frozenset[tuple[str, str, str, str]] = frozenset()) -> cache.Entry:
    key = cache.Key(row.operator, row.dtype, row.shape_bucket, row.gpu, row.compute_capability, row.toolkit,
                    row.source_hash, row.driver, row.policy)
    text = config_key(row.config)
    held = any((row.operator, row.dtype, text, capability) in banned for capability in (row.compute_capability, ""))
    state = cache.State.QUARANTINED if held else cache.State(row.state)
    guard = row.evidence.get("guard") or {}
    low = guard.get("low") if guard.get("verdict") == "faster" else None
    return cache.Entry(row.pk, key, row.config, bool(row.recorded), state, cache.Origin(row.origin), row.shape,
                       None if low is None else low - 1)


# ---- what a launch gets ----

def wanted_key(operator: str, dtype: str, gpu: str, shape: Mapping[str, int], **environment: str) -> cache.Key:
    """`environment`: toolkit, driver, policy, source_hash, compute_capability, each "" for any."""
    capability = environment.pop("compute_capability", "") or limits(gpu).compute_capability
    return cache.Key(operator, dtype, bucket(operator, shape), gpu, capability, **environment)


def config_best(operator: str, dtype: str, gpu: str, shape: Mapping[str, int], toolkit: str = "", *, why: bool = False,
                **environment: str) -> dict[str, Any]:
    """The configuration that a launch gets, which rule served it, and why. `why`: with every entry that was considered."""
    wanted = wanted_key(operator, dtype, gpu, shape, toolkit=toolkit, **environment)
    rows = {row.pk: row for row in config_list().filter(operator=operator, dtype=dtype)}
    banned, exact, policy, expected = quarantined(), exact_of(operator), policy_of(operator), loss()
    known = [entry_of(row, banned) for row in rows.values()]
    served = cache.lookup(known, wanted, exact, policy, expected)
    answer: dict[str, Any] = {
        "operator": operator, "dtype": dtype, "gpu": gpu, "shape": dict(shape), "bucket": wanted.bucket,
        "compute_capability": wanted.compute_capability, "toolkit": toolkit}
    if served is None:
        rule = cache.Rule.DEFAULT
        answer |= {"rule": rule, "why": cache.WHY[rule], "config": default_config(operator, dtype, gpu, shape), "entry": None,
                   "expected_loss": None, "differs": [], "distance": None}
    else:
        same = dict(served.entry.shape) in ({}, dict(shape))
        expected_loss = served.loss if same or served.rule != cache.Rule.EXACT else bucket_loss(operator, policy)
        answer |= {"rule": served.rule, "why": served.why, "config": config_in_order(served.entry.config),
                   "entry": config_json(rows[served.entry.id]), "expected_loss": expected_loss, "differs": list(served.differs),
                   "distance": served.distance}
    if why:
        answer["considered"] = [
            _considered(entry, rows[entry.id], cache.consider(entry, wanted, exact, policy, expected), served) for entry in known]
        answer["considered"].sort(key=lambda one: (not one["serves"], one["refused"] is not None, one["order"], one["id"]))
        answer["rules"] = rule_table(answer["considered"], served.rule if served else cache.Rule.DEFAULT)
    return answer


def default_config(operator: str, dtype: str, gpu: str, shape: Mapping[str, int]) -> dict[str, Any]:
    known = operators.find(operator)
    return dict(config_in_order(known.default_config(shape, dtype, limits(gpu)))) if known else {}


def _considered(entry: cache.Entry, row: CachedConfig, found: cache.Served | str, served: cache.Served | None) -> dict[str, Any]:
    """One line of "why this one": an entry, and how it could serve or why not."""
    told: dict[str, Any] = {
        "id": entry.id, "bucket": entry.key.bucket, "gpu": entry.key.gpu, "toolkit": entry.key.toolkit, "origin": str(entry.origin),
        "state": str(entry.state), "recorded": row.recorded, "config": config_in_order(entry.config), "median_ms": row.median_ms,
        "serves": served is not None and served.entry.id == entry.id}
    if isinstance(found, str):
        return {**told, "rule": None, "refused": found, "order": [], "differs": [], "expected_loss": None}
    return {**told, "rule": str(found.rule), "refused": None, "order": list(cache.order(found)), "differs": list(found.differs),
            "expected_loss": found.loss}


def rule_table(considered: Sequence[Mapping[str, Any]], served: cache.Rule) -> list[dict[str, Any]]:
    """Each rule in order: how many entries it found, and whether it is the one that served."""
    return [{"rule": str(rule), "why": why, "found": sum(one["rule"] == rule for one in considered), "served": rule == served}
            for rule, why in cache.WHY.items()]


def config_json(row: CachedConfig) -> dict[str, Any]:
    names = ("id", "operator", "dtype", "shape", "shape_bucket", "gpu", "compute_capability", "toolkit", "driver", "policy",
             "source_hash", "config", "median_ms", "default_ms", "library_ms", "evidence", "recorded", "state", "state_why",
             "origin")
    return {**{name: getattr(row, name) for name in names}, "job": row.job_id, "imported": row.imported_id,
            "updated": row.updated.isoformat(), "triton": triton_text.call(config_in_order(row.config))}


def key_jobs(row: CachedConfig) -> Sequence[TuneJob]:
    """Finished jobs for the same operator, dtype, GPU and shape, newest first: the history of a key."""
    return list(TuneJob.objects.filter(operator=row.operator, dtype=row.dtype, gpu=row.gpu, recorded=row.recorded,
                                       shape=row.shape, status=TuneJob.Status.DONE)[:200])
