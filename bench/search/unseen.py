"""Trials until the default search is within 5 and 3 % of the best of landscapes that it was not made on.

    python -m bench.search.unseen [--seeds 8]

docs/operators-landscapes.json.xz: shapes of the operators in none of their lists, recorded on an H200 by `python -m
tests.gpu.record.ratios OUT --every --shapes tests/gpu/landscapes.json`. Each is searched with what a job of a new installation
knows (tuner.tuning.search.recorded_searches), and without.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import lzma
import statistics
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.gpu.known import of_operator
from tuner.tuning.operators import Limits, find, limits
from tuner.tuning.search.recorded_searches import recorded_searches
from tuner.tuning.search.strategies import DEFAULT, STRATEGIES
from tuner.tuning.space import Space
from tuner.tuning.trial import Config, Measured, Outcome, Reason, Rejected, Trial, config_key

FILE = Path(__file__).parents[2] / "docs" / "operators-landscapes.json.xz"
WITHIN = (0.05, 0.03)
NEVER = 999


@dataclasses.dataclass(frozen=True)
class Recorded:
    """One shape; `first` are the configurations that a job tries before its search."""

    name: str
    space: Space
    outcomes: Mapping[str, Outcome]
    first: list[Config]
    known: Any
    is_whole: bool

    @property
    def best_ms(self) -> float:
        return min(each.median_ms for each in self.outcomes.values() if isinstance(each, Measured))


def load() -> Iterator[Recorded]:
    document = json.loads(lzma.decompress(FILE.read_bytes()))
    for one in document["shapes"]:
        yield _recorded(one, limits(document["gpu"], "9.0", document["environment"]["sms"]))


def _recorded(one: Mapping[str, Any], gpu: Limits) -> Recorded:
    operator, shape, dtype = find(one["operator"]), one["shape"], one["dtype"]
    assert operator is not None
    configs = [dict(zip(one["names"], values, strict=True)) for *values, _ in one["rows"]]
    outcomes: list[Outcome] = [Rejected(Reason(us), "") if isinstance(us, str) else Measured(us / 1e3, us / 1e3, us / 1e3, 1, {})
                               for *_, us in one["rows"]]
    space = operator.space(shape, dtype, gpu)
    is_whole = len(configs) >= len(space)
    default = dict(operator.default_config(shape, dtype, gpu))
    first = [default, *operator.published_starts(space, shape, dtype, gpu)]
    return Recorded(f"{one['operator']} {' × '.join(map(str, shape.values()))}", space if is_whole else Space.listed(configs),
                    dict(zip(map(config_key, configs), outcomes, strict=True)), first,
                    of_operator(operator, shape, dtype, gpu, default=default), is_whole)


def trials_within(recorded: Recorded, seed: int, *, informed: bool) -> list[int]:
    """Return, for each of WITHIN, the trials until one is so near the best; NEVER where none was."""
    known = recorded.known
    if informed:
        known = dataclasses.replace(known, past=recorded_searches(known))
    search = STRATEGIES[DEFAULT].make(recorded.space, np.random.default_rng(seed), known)
    found, count, waiting = dict.fromkeys(WITHIN, NEVER), 0, list(recorded.first)
    seen: set[str] = set()
    while found[WITHIN[-1]] == NEVER and (config := waiting.pop(0) if waiting else next(iter(search.ask(1)), None)):
        key = config_key(config)
        if key in seen or key not in recorded.outcomes:         # of a part of the space: not recorded
            continue
        seen.add(key)
        outcome = recorded.outcomes[key]
        search.tell([Trial(count, config, outcome)])
        count += 1
        for share in WITHIN:
            if isinstance(outcome, Measured) and outcome.median_ms <= recorded.best_ms * (1 + share):
                found[share] = min(found[share], count)
    return [found[share] for share in WITHIN]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=8)
    seeds = range(options.parse_args().seeds)
    table = []
    for recorded in load():
        medians = [statistics.median(counts) for informed in (False, True)
                   for counts in zip(*(trials_within(recorded, seed, informed=informed) for seed in seeds), strict=True)]
        table.append(medians)
        part = "" if recorded.is_whole else " of more"
        cells = " | ".join(f"{each:g}" for each in medians)
        sys.stdout.write(f"| {recorded.name} | {len(recorded.outcomes):,}{part} | {cells} |\n")
    for name, of in (("median", statistics.median), ("worst", max)):
        sys.stdout.write(f"| **{name}** | | {' | '.join(f'**{of(column):g}**' for column in zip(*table, strict=True))} |\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
