"""Search each operator of a step, and write what was found as the file that a job's client reads while the server is away.

The rules are the product's own: the winner of the finals is cached only where it is faster than the default by the whole interval
(`default_check`), the library stands beside it where it is surely faster, and `cache.serve.resolve` makes the document that
GET api/configs/snapshot/ answers. Only the rows between them, which need a database, are left out.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.gpu.known import of_operator
from tuner.cache import buckets, rules
from tuner.cache.default_check import Verdict, check_default, check_library, library_gain, winner_is_default
from tuner.cache.serve.resolve import content_id, freeze, resolve
from tuner.tuning.measure.runner import Session
from tuner.tuning.operators import OPERATORS, limits
from tuner.tuning.search.finalists import Finalist, measure_finalists
from tuner.tuning.search.loop import Budget, tune
from tuner.tuning.search.strategies import DEFAULT
from tuner.tuning.trial import Config, Measured, config_key
from workers.tune.sandbox import SandboxRunner

LARGE_FLOPS = 1e12           # an operator with more is searched for twice as long: to check one configuration takes seconds / 10


@dataclass(frozen=True)
class Found:
    """An operator at one shape: the cache's entry, and what a person is told of the search."""

    entry: rules.Entry
    session: Session
    row: dict[str, Any]


def search(runner: SandboxRunner, number: int, operator_name: str, dtype: str, shape: Mapping[str, int], seconds: float) -> Found:
    """Search one shape for some seconds from nothing; the finalists, the default and the library are measured again in turn.

    Raises RuntimeError where nothing could be measured.
    """
    began_s, operator = time.monotonic(), OPERATORS[operator_name]
    runner.move(operator_name, shape, dtype)
    session = runner.open()
    device = limits(session.gpu, session.compute_capability, session.environment.get("sms"))
    space, default = operator.space(shape, dtype, device), operator.default_config(shape, dtype, device)
    known = of_operator(operator, shape, dtype, device, default=default)
    longer = 2 if operator.flops(shape) > LARGE_FLOPS else 1
    trials = list(tune(space, DEFAULT, runner, Budget(seconds=longer * seconds), 5,
                       first=[default, *operator.published_starts(space, shape, dtype, device)], known=known))
    finals = [one for one in measure_finalists(runner, trials, default) if isinstance(one.outcome, Measured)]
    if not finals:
        raise RuntimeError(f"nothing measured in {len(trials)} trials")
    return _found(number, operator_name, dtype, shape, session, finals, default,
                  {"tried": len(trials), "space": len(space), "seconds": round(time.monotonic() - began_s, 2)})


def _found(number: int, operator: str, dtype: str, shape: Mapping[str, int], session: Session, finals: list[Finalist],
           default: Config, told: dict[str, Any]) -> Found:
    winner = finals[0]
    measured = next((one for one in finals if config_key(one.config) == config_key(default)), None)
    check = winner_is_default() if measured is winner else check_default(_times(winner), _times(measured) if measured else None)
    kept = measured if measured and check.verdict in (Verdict.EQUAL, Verdict.SLOWER) else winner
    library_ms = winner.outcome.facts.get("library_ms") if isinstance(winner.outcome, Measured) else None
    library = check_library(_times(winner), library_ms)
    environment = session.environment
    key = rules.Key(operator, dtype, _bucket(operator, shape), session.gpu, session.compute_capability,
                    rules.toolkit_text(environment), str(environment.get("source_hash") or ""),
                    str(environment.get("driver") or ""), str(session.policy.get("kind") or ""))
    gain = check.low - 1 if check.verdict == Verdict.FASTER and check.low is not None else None
    entry = rules.Entry(number, key, dict(kept.config), shape=dict(shape), gain=gain,
                        library=library_gain(library.as_json()) if library else None)
    row = {**told, "config": dict(kept.config), "ours_ms": kept.median_ms, "library_ms": library_ms,
           "default_check": check.as_json(), "library_check": library.as_json() if library else None}
    return Found(entry, session, row)


def _times(one: Finalist) -> dict[str, Any]:
    return {"median_ms": one.median_ms, "facts": one.outcome.facts}


def _bucket(operator: str, shape: Mapping[str, int]) -> str:
    return buckets.bucket(shape, [dim.name for dim in OPERATORS[operator].dims if dim.exact])


def snapshot(found: list[Found], gpu: str, toolkit: str) -> dict[str, Any]:
    """Return the document that a client of this GPU and toolkit is sent, the cache being what was found."""
    operators = {name: {"dims": [dim.name for dim in one.dims], "dtypes": list(one.dtypes),
                        "exact": sorted(dim.name for dim in one.dims if dim.exact),
                        "policy": buckets.BUCKETS.as_json(), "absent": dict(one.absent)} for name, one in OPERATORS.items()}
    content = freeze([one.entry for one in found], operators)
    capability = found[0].session.compute_capability if found else ""
    return resolve(content_id(content), content, rules.Key("", "", "", gpu, capability, toolkit))
