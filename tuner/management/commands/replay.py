"""Search a recorded landscape from the command line: what the tuner would have tried, in order, and what it found."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from tuner.tuning.measure.landscape import Landscape, LandscapeError
from tuner.tuning.measure.replay import ReplayRunner
from tuner.tuning.search import recorded_searches
from tuner.tuning.search.finalists import best_trial
from tuner.tuning.search.loop import Budget, tune
from tuner.tuning.search.strategies import DEFAULT, STRATEGIES
from tuner.tuning.search.strategies.prior_knowledge import PriorKnowledge
from tuner.tuning.trial import Config, Rejected, Trial, config_key

SEEDS_PER_SHAPE = 3      # best configurations taken over from each shape of --history


class Command(BaseCommand):
    help = "Search a recorded landscape (h200, T4 or Kernel Tuner file) and print the trials and the winner."
    requires_system_checks: list[str] = []      # `manage.py check` runs them: they load every page

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("landscape", help="LANDSCAPE.json.gz")
        parser.add_argument("--shape", type=int, default=0, metavar="I", help="index of the shape in the file")
        parser.add_argument("--strategy", default=DEFAULT, choices=list(STRATEGIES), help=f"default: {DEFAULT}")
        parser.add_argument("--seed", type=int, default=0, metavar="K")
        parser.add_argument("--trials", type=int, metavar="N", help="at most N trials (default: all that there are)")
        parser.add_argument("--history", nargs="+", action="extend", default=[], metavar="LANDSCAPE:SHAPE",
                            help="what was measured at these other shapes is known: to learn from, or their winners first")
        parser.add_argument("--json", action="store_true", help="exactly one JSON document on standard output")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["seed"] < 0 or (options["trials"] is not None and options["trials"] < 1):
            raise CommandError("--seed must be 0 or more, --trials 1 or more")
        try:
            trials = _run_search(options)
        except LandscapeError as error:
            raise CommandError(str(error)) from error
        result = _result_json(options["strategy"], trials)
        if options["json"]:
            self.stdout.write(json.dumps(result))
        else:
            self._table(result)

    def _table(self, result: dict[str, Any]) -> None:
        for number, trial in enumerate(result["trials"]):
            came = f"{trial['median_ms']:.6g} ms" if trial["outcome"] == "measured" else f"rejected: {trial['reason']}"
            self.stdout.write(f"{number:5}  {came:24}  {config_key(trial['config'])}")
        winner = result["winner"]
        winner_text = f"{winner['median_ms']:.6g} ms {config_key(winner['config'])}" if winner else "none could be measured"
        self.stdout.write(f"{result['strategy']}: {len(result['trials'])} trials, winner {winner_text}")


def _run_search(options: dict[str, Any]) -> list[Trial]:
    landscape = Landscape.load(options["landscape"])
    shape_index, method = options["shape"], STRATEGIES[options["strategy"]]
    knowledge = recorded_searches.recorded_knowledge(landscape, shape_index, [_find_shape(item) for item in options["history"]])
    first = [] if knowledge.default is None else [knowledge.default]
    if not method.transfers:
        first += _other_winners(knowledge)
    runner = ReplayRunner(landscape, shape_index)
    budget = Budget(trials=options["trials"])
    return list(tune(landscape.space(shape_index), options["strategy"], runner, budget, options["seed"],
                     first=first, known=knowledge))


def _find_shape(item: str) -> tuple[Landscape, int]:
    path, _, index = item.rpartition(":")
    if not path or not index.isdigit():
        raise CommandError(f"--history {item}: give LANDSCAPE.json.gz:SHAPE, the index of a shape after a colon")
    return Landscape.load(path), int(index)


def _other_winners(prior: PriorKnowledge) -> list[Config]:
    """The best configurations of other shapes, for a method that cannot learn from them itself: first the best of each."""
    ranked = []
    for past in prior.past:
        timed = sorted((trial for trial in past.trials if trial.median_ms is not None), key=lambda trial: trial.median_ms or 0)
        ranked.append([trial.config for trial in timed[:SEEDS_PER_SHAPE]])
    return [configs[place] for place in range(SEEDS_PER_SHAPE) for configs in ranked if place < len(configs)]


def _result_json(strategy: str, trials: list[Trial]) -> dict[str, Any]:
    winner = best_trial(trials)
    return {
        "strategy": strategy,
        "trials": [{
            "config": dict(trial.config),
            "outcome": "rejected" if isinstance(trial.outcome, Rejected) else "measured",
            "reason": str(trial.outcome.reason) if isinstance(trial.outcome, Rejected) else None,
            "median_ms": trial.median_ms,
        } for trial in trials],
        "winner": {"config": dict(winner.config), "median_ms": winner.median_ms} if winner else None,
    }
