"""Resolve the cache for one GPU and toolkit: all rules applied, a client only rounds shapes.

Pure. The rules are tuner.cache.rules's; here each entry gets its place in their order once, at its own bucket and at another one.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tuner.cache.buckets import Buckets, parse_bucket
from tuner.cache.rules import (
    WHY,
    Entry,
    Key,
    Loss,
    Match,
    Origin,
    Rule,
    State,
    is_verified,
    match_entry,
    serving_order,
    unknown_loss,
    why_of,
)
from tuner.tuning.trial import Config

VERSION = 1          # what older clients read; fields are added to it
FORM = 2             # of a frozen content: 2 tells a launch's own shape from another one of its bucket
MOST_HELD = 500      # quarantined entries that a document names with their reasons
_PLACES = {(origin, rule): float(i * len(Rule) + j) for i, origin in enumerate(Origin) for j, rule in enumerate(Rule)}


def freeze(entries: Sequence[Entry], operators: Mapping[str, Mapping[str, Any]],
           plain: Mapping[int, Config] | None = None, verified: bool = False) -> dict[str, Any]:
    """Return entries and bucket policies as JSON: what a snapshot's id stands for.

    verified  of the entries only those that `rules.is_verified`
    plain   entry → what is fastest for kernels without the operator's newer parameters, where that is another configuration
    """
    selection = [entry for entry in entries if not verified or is_verified(entry)]
    frozen = sorted((asdict(entry) for entry in selection), key=lambda entry: int(entry["id"]))
    only = {"verified": True} if verified else {}
    return {"form": FORM, **only, "operators": {name: dict(operators[name]) for name in sorted(operators)}, "entries": frozen,
            "plain": {str(number): dict(config) for number, config in sorted((plain or {}).items())}}


def content_id(content: Mapping[str, Any]) -> str:
    """Return the id of a content; equal entries have equal ids on every server."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def thaw(entry: Mapping[str, Any]) -> Entry:
    """Return the entry of a frozen one."""
    return Entry(**{**entry, "key": Key(**entry["key"]), "state": State(entry["state"]), "origin": Origin(entry["origin"])})


def resolve(name: str, content: Mapping[str, Any], request: Key, loss: Loss = unknown_loss) -> dict[str, Any]:
    """Return the document that a client reads; `request`: GPU, capability, toolkit, driver."""
    buckets: dict[tuple[str, str, str], list[Ways]] = {}
    holds: list[dict[str, Any]] = []
    for entry in map(thaw, content["entries"]):
        operator = content["operators"][entry.key.operator]
        policy, exact = Buckets.from_json(operator["policy"]), operator["exact"]
        key = replace(request, operator=entry.key.operator, dtype=entry.key.dtype)
        ways = Ways(entry, _match_home(entry, key, exact, policy, loss, entry.shape or None),
                    _match_home(entry, key, exact, policy, loss, None), _match_away(entry, key, exact, policy, loss))
        if len(holds) < MOST_HELD and (why := _why_held(entry, key, exact, policy, loss)):
            holds.append({"id": entry.id, "operator": entry.key.operator, "dtype": entry.key.dtype, "bucket": entry.key.bucket,
                          "why": why})
        buckets.setdefault((entry.key.operator, entry.key.dtype, entry.key.bucket), []).append(ways)
    pool = sorted((ways for same in buckets.values() for kind in (False, True)          # each kind as if the other were not there
                   for ways in _drop_unreachable([way for way in same if way.entry.recorded == kind])),
                  key=lambda ways: _list_order(ways.entry))
    rows = [{**_row_json(ways), "plain": content["plain"].get(str(ways.entry.id))} for ways in pool]
    return {"version": VERSION, "id": name, "verified": content.get("verified", False),
            "gpu": request.gpu, "compute_capability": request.compute_capability,
            "toolkit": request.toolkit,
            "why": {str(rule): why_of(rule, request.toolkit) for rule in WHY}, "operators": content["operators"],
            "entries": rows, "held": holds}


def tells_recordings(document: Mapping[str, Any]) -> bool:
    """Return whether every row says if it is a recording."""
    return all("recorded" in entry for entry in document["entries"])


def name_bucket_hits(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document that was stored before rules told shapes of a bucket apart, its bucket hits named so.

    A pinned snapshot serves the configurations that it did; only its word was wrong.
    """
    if all("same" in entry for entry in document["entries"]):
        return dict(document)
    homes = [entry["home"] and [entry["home"][0], str(Rule.BUCKET) if entry["home"][1] == Rule.EXACT else entry["home"][1]]
             for entry in document["entries"]]
    return {**document, "why": {str(rule): why for rule, why in WHY.items()},
            "entries": [{**entry, "home": home} for entry, home in zip(document["entries"], homes, strict=True)]}


@dataclass(frozen=True)
class Ways:
    """How an entry serves the shape that it was measured at, its bucket, and other buckets up to a distance."""

    entry: Entry
    same: Match | None
    home: Match | None
    away: tuple[Match, float] | None


def _drop_unreachable(same: Sequence[Ways]) -> list[Ways]:
    """Return, of one bucket, the first at home, the first at its own shape, and those that reach further than the ones before."""
    reachable: list[Ways] = []
    homes = sorted((ways for ways in same if ways.home), key=lambda ways: _order(ways.home))
    if homes:
        first = homes[0]
        reachable.append(replace(first, away=None))
        shapes = [first.entry.shape]
        for ways in sorted((ways for ways in homes[1:] if ways.same), key=lambda ways: _order(ways.same)):
            if ways.entry.shape not in shapes and _order(ways.same) < _order(first.home):
                shapes.append(ways.entry.shape)
                reachable.append(replace(ways, away=None))
    reached = 0.0
    for ways in sorted((ways for ways in same if ways.away), key=lambda ways: _order(ways.away[0] if ways.away else None)):
        if ways.away and ways.away[1] > reached:
            reached = ways.away[1]
            reachable.append(replace(ways, same=None, home=None))
    return reachable


def _order(match: Match | None) -> tuple[float, ...]:
    return serving_order(match) if match else ()


def _match_home(entry: Entry, asked: Key, exact: Collection[str], policy: Buckets, loss: Loss,
                shape: Mapping[str, int] | None) -> Match | None:
    match = match_entry(entry, replace(asked, bucket=entry.key.bucket), exact, policy, loss, shape)
    return match if isinstance(match, Match) else None


def _why_held(entry: Entry, asked: Key, exact: Collection[str], policy: Buckets, loss: Loss) -> str:
    """Return why a quarantine keeps an entry from serving its own bucket; "" where none does, or it would not serve anyway."""
    if entry.recorded or not (entry.state == State.QUARANTINED or entry.barred):
        return ""
    at_home = replace(asked, bucket=entry.key.bucket)
    why = match_entry(entry, at_home, exact, policy, loss)
    free = match_entry(replace(entry, state=State.UNVERIFIED, barred=()), at_home, exact, policy, loss)
    return why if isinstance(why, str) and isinstance(free, Match) else ""


def _match_away(entry: Entry, asked: Key, exact: Collection[str], policy: Buckets, loss: Loss) -> tuple[Match, float] | None:
    """Return how an entry serves other buckets and up to which distance; a guarded one may end early."""
    dims = parse_bucket(entry.key.bucket)
    name = next((name for name, value in dims.items()
                 if name not in exact and value >= max(1, policy.exact_up_to) and policy.on_grid(value)), None)
    if name is None:
        return None
    anywhere = replace(policy, steps_per_doubling=0.0)       # what a distance means to the rules, wherever grid points are
    first, reach = None, 0.0
    distances = [policy.max_distance] if entry.gain is None else _distances(policy.max_distance)
    for apart in distances:
        other = int(dims[name] * 2**apart)
        if other == dims[name]:
            continue
        text = " ".join(f"{dim}={other if dim == name else value}" for dim, value in sorted(dims.items()))
        match = match_entry(entry, replace(asked, bucket=text), exact, anywhere, loss)
        if not isinstance(match, Match):
            break
        first, reach = first or match, apart
    return (first, reach) if first else None


def _distances(most: float) -> list[float]:
    return [*(count / 8 for count in range(1, math.ceil(most * 8))), most] if most else []


def _row_json(ways: Ways) -> dict[str, Any]:
    entry, home, away = ways.entry, ways.home, ways.away
    return {"id": entry.id, "operator": entry.key.operator, "dtype": entry.key.dtype, "bucket": entry.key.bucket,
            "state": str(entry.state), "origin": str(entry.origin), "recorded": entry.recorded, "shape": dict(entry.shape),
            "same": [_PLACES[entry.origin, ways.same.rule], str(ways.same.rule)] if ways.same else None,
            "home": [_PLACES[entry.origin, home.rule], str(home.rule)] if home else None,
            "away": [_PLACES[entry.origin, away[0].rule], str(away[0].rule), away[1]] if away else None,
            "config": dict(entry.config), "library": entry.library}


def _list_order(entry: Entry) -> tuple[float, ...]:
    """Return the sort key after origin, rule and distance, as tuner.cache.rules.serving_order."""
    return serving_order(Match(Rule.EXACT, entry))[3:]
