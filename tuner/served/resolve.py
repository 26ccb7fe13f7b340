"""From the cache's entries to what one GPU and toolkit are served: every rule applied, so that a client only rounds a shape.

Pure. The rules are tuner.cache's; here each entry gets its place in their order once, at its own bucket and at another one.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from tuner.buckets import Buckets, parse
from tuner.cache import WHY, Entry, Key, Loss, Origin, Rule, Served, State, consider, order, unknown_loss
from tuner.trial import Config

VERSION = 1
_PLACES = {(origin, rule): float(i * len(Rule) + j) for i, origin in enumerate(Origin) for j, rule in enumerate(Rule)}


def freeze(entries: Sequence[Entry], operators: Mapping[str, Mapping[str, Any]],
           plain: Mapping[int, Config] | None = None) -> dict[str, Any]:
    """All entries and how each operator's shapes are rounded, as JSON: what a snapshot's id stands for.

    plain   entry → what is fastest for kernels without the operator's newer parameters, where that is another configuration
    """
    frozen = sorted((asdict(entry) for entry in entries), key=lambda entry: int(entry["id"]))
    return {"operators": {name: dict(operators[name]) for name in sorted(operators)}, "entries": frozen,
            "plain": {str(number): dict(config) for number, config in sorted((plain or {}).items())}}


def identity(content: Mapping[str, Any]) -> str:
    """The same entries have the same id on every server."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def thaw(entry: Mapping[str, Any]) -> Entry:
    return Entry(**{**entry, "key": Key(**entry["key"]), "state": State(entry["state"]), "origin": Origin(entry["origin"])})


def resolve(name: str, content: Mapping[str, Any], wanted: Key, loss: Loss = unknown_loss) -> dict[str, Any]:
    """The document that a client reads. `wanted` says GPU, compute capability, toolkit and driver."""
    buckets: dict[tuple[str, str, str], list[Ways]] = {}
    for entry in map(thaw, content["entries"]):
        operator = content["operators"][entry.key.operator]
        policy, exact = Buckets.from_json(operator["policy"]), operator["exact"]
        asked = replace(wanted, operator=entry.key.operator, dtype=entry.key.dtype)
        ways = (entry, _home(entry, asked, exact, policy, loss), _away(entry, asked, exact, policy, loss))
        buckets.setdefault((entry.key.operator, entry.key.dtype, entry.key.bucket), []).append(ways)
    kept = sorted((ways for same in buckets.values() for ways in _useful(same)), key=lambda ways: _rest(ways[0]))
    rows = [{**_row(*ways), "plain": content["plain"].get(str(ways[0].id))} for ways in kept]
    return {"version": VERSION, "id": name, "gpu": wanted.gpu, "compute_capability": wanted.compute_capability,
            "toolkit": wanted.toolkit, "why": {str(rule): why for rule, why in WHY.items()}, "operators": content["operators"],
            "entries": rows}


Ways = tuple[Entry, Served | None, tuple[Served, float] | None]


def _useful(same: Sequence[Ways]) -> list[Ways]:
    """Of the entries of one bucket: the first at home, and whoever reaches further away than those before it."""
    found: list[Ways] = []
    homes = sorted((ways for ways in same if ways[1]), key=lambda ways: order(ways[1]) if ways[1] else ())
    if homes:
        entry, home, _ = homes[0]
        found.append((entry, home, None))
    reached = 0.0
    for entry, _, away in sorted((ways for ways in same if ways[2]), key=lambda ways: order(ways[2][0]) if ways[2] else ()):
        if away and away[1] > reached:
            reached = away[1]
            found.append((entry, None, away))
    return found


def _home(entry: Entry, asked: Key, exact: Collection[str], policy: Buckets, loss: Loss) -> Served | None:
    found = consider(entry, replace(asked, bucket=entry.key.bucket), exact, policy, loss)
    return found if isinstance(found, Served) else None


def _away(entry: Entry, asked: Key, exact: Collection[str], policy: Buckets, loss: Loss) -> tuple[Served, float] | None:
    """How it serves another bucket, and up to which distance: only an entry that is guarded may end before the policy does."""
    dims = parse(entry.key.bucket)
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
        text = " ".join(f"{each}={other if each == name else value}" for each, value in sorted(dims.items()))
        found = consider(entry, replace(asked, bucket=text), exact, anywhere, loss)
        if not isinstance(found, Served):
            break
        first, reach = first or found, apart
    return (first, reach) if first else None


def _distances(most: float) -> list[float]:
    return [*(count / 8 for count in range(1, math.ceil(most * 8))), most] if most else []


def _row(entry: Entry, home: Served | None, away: tuple[Served, float] | None) -> dict[str, Any]:
    return {"id": entry.id, "operator": entry.key.operator, "dtype": entry.key.dtype, "bucket": entry.key.bucket,
            "home": [_PLACES[entry.origin, home.rule], str(home.rule)] if home else None,
            "away": [_PLACES[entry.origin, away[0].rule], str(away[0].rule), away[1]] if away else None,
            "config": dict(entry.config)}


def _rest(entry: Entry) -> tuple[float, ...]:
    """What tuner.cache.order looks at after origin, rule and distance: the order of the list."""
    return order(Served(Rule.EXACT, entry))[3:]
