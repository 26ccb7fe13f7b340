"""A simulated year of a team's CI: what the gate says of 20 builds a day, beside other rules on the same builds.

60 kernels of 5 to 500 µs whose runs differ by 0.3 to 2 %, 5 runs a build, 420 builds a month: 55 % on main, the others pull
requests from forks, of which one in 50 has a slowdown of its own. Each month main gets three regressions (+6 to +25 % in one to
three kernels) and two improvements, of which a third is reverted later; each quarter a toolkit that moves every kernel by 2 %. Each
build is a session of its own (0.7 %); 3 % of them run on a flaky host: four times the noise, and 5 % slower from the first run to
the last. What the gate finds is fixed 6 to 27 builds later. The verdict function answers, without rows: baselines of the newest
ten runs of one level and toolkit, sessions by the suite's own history, re-runs of both builds in turn. Kernels that pass whatever
the others do (estimate within 1.5 %, high end below 4.5 %, by the gate's own interval) are not handed to it: they are most.

`python -m bench.gate_year [months [processes]]` prints the table, a month takes half a minute; with OTAVA_PYTHON, a Python that has
apache-otava, its method as well.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bench.gate_year.rules import Score, other_rules, table
from tuner.gate.stats.distributions import cutoff
from tuner.gate.stats.plan import plan_runs
from tuner.gate.stats.results import KernelVerdict
from tuner.gate.stats.rule import Rule, Verdict
from tuner.gate.stats.runs import EarlierLevel, KernelRuns, Run
from tuner.gate.stats.sessions import Sessions, common_shift, estimate_sessions
from tuner.gate.stats.suite import judge

Floats = NDArray[np.float64]
KERNELS, RUNS, MONTH, QUARTER = 60, 5, 420, 3
MAIN, OWN_SLOWDOWN, FLAKY, REVERTED = 0.55, 0.02, 0.03, 1 / 3
SESSION, NOISY, DRIFT, TOOLKIT = 0.007, 4.0, 0.05, 0.02
RE_RUNS, MOST_FRESH = 2, 40     # as tuner.gate.verdicts.selectors has them
REAL = 1.02                 # a smaller change of the code is no slowdown


@dataclass
class Slowdown:
    """A regression of main."""

    build: int
    kernels: list[int]
    factor: float
    caught: int | None = None
    fixed: bool = False


@dataclass
class Build:
    number: int
    on_main: bool
    code: Floats                    # (kernels,): factor of the code, without toolkit and noise
    toolkit: int
    us: Floats                      # (runs, kernels): run medians
    own: int | None = None          # kernel that a pull request makes slower
    flaky: bool = False
    barred: set[int] = field(default_factory=set)           # kernels that were SLOWER or undecided: no baseline
    faster: set[int] = field(default_factory=set)           # … a level begins here


class Team:
    """A quarter: builds as they come, and the gate's answer to each."""

    def __init__(self, quarter: int) -> None:
        self.random = np.random.default_rng([2026, quarter])
        self.level_us = np.exp(self.random.uniform(np.log(5), np.log(500), KERNELS))
        self.noise = np.exp(self.random.uniform(np.log(0.003), np.log(0.02), KERNELS))
        self.code, self.toolkits = np.ones(KERNELS), [np.ones(KERNELS)]
        self.builds: list[Build] = []
        self.main: list[Build] = []
        self.slowdowns: list[Slowdown] = []
        self.due: dict[int, list[tuple[str, Slowdown]]] = defaultdict(list)          # build → what happens to the code
        self.score, self.first = Score("the gate"), Score("its first verdict alone")
        self.sessions = Sessions()
        self._plan_events()

    def _plan_events(self) -> None:
        random, builds = self.random, MONTH * QUARTER
        for month in range(QUARTER):
            for kind, count, low, high, most in (("regression", 3, 1.06, 1.25, 3), ("gain", 2, 0.75, 0.94, 2)):
                for _ in range(count):
                    at = int(random.integers(30, MONTH - 30)) + month * MONTH
                    one = Slowdown(at, sorted(random.choice(KERNELS, int(random.integers(1, most + 1)), replace=False).tolist()),
                                   float(random.uniform(low, high)))
                    self.due[at].append((kind, one))
                    if kind == "gain" and random.random() < REVERTED:
                        self.due[min(builds - 1, at + int(random.integers(20, 60)))].append(("revert", one))
        self.new_toolkit = int(random.integers(builds // 4, 3 * builds // 4))

    def run(self, months: int = QUARTER) -> None:
        waiting: list[tuple[str, Slowdown]] = []
        for number in range(MONTH * months):
            if number == self.new_toolkit:
                self.toolkits.append(np.exp(TOOLKIT * self.random.standard_normal(KERNELS)))
            waiting += self.due.pop(number, [])
            on_main = bool(self.random.random() < MAIN)
            if on_main:
                for kind, one in waiting:
                    self._change_code(kind, one, number)
                waiting = []
            build = self._measured(number, on_main)
            if number % 20 == 0:
                self.sessions = self._history()
            self._gate(build)
            self.builds.append(build)
            if on_main:
                self.main.append(build)

    def _change_code(self, kind: str, one: Slowdown, number: int) -> None:
        factor = one.factor if kind in ("regression", "gain") else 1 / one.factor
        self.code = self.code.copy()
        self.code[one.kernels] *= factor
        if kind in ("regression", "revert"):
            self.slowdowns.append(Slowdown(number, one.kernels, factor))
        if kind == "fix":
            one.fixed = True

    def _measured(self, number: int, on_main: bool) -> Build:
        code, own = self.code, None
        if not on_main and self.random.random() < OWN_SLOWDOWN:
            own, code = int(self.random.integers(KERNELS)), code.copy()
            code[own] *= self.random.uniform(1.06, 1.25)
        flaky = bool(self.random.random() < FLAKY)
        build = Build(number, on_main, code, len(self.toolkits) - 1, np.empty(0), own, flaky)
        build.us = self._runs(build, np.arange(RUNS), RUNS, float(np.exp(SESSION * self.random.standard_normal())))
        return build

    def _runs(self, build: Build, places: NDArray[np.int64], of: int, session: float, flaky: bool | None = None) -> Floats:
        """Run medians at these places of a session's `of` runs."""
        is_flaky = build.flaky if flaky is None else flaky
        noise = self.noise * (NOISY if is_flaky else 1)
        drift = 1 + DRIFT * places / max(1, of - 1) if is_flaky else np.ones(len(places))
        level = self.level_us * build.code * self.toolkits[build.toolkit] * session
        found: Floats = level * drift[:, None] * np.exp(noise * self.random.standard_normal((len(places), KERNELS)))
        return found

    # ---- the gate ----

    def _history(self) -> Sessions:
        of = [build for build in self.main[-20:] if build.toolkit == len(self.toolkits) - 1]
        return estimate_sessions({str(at): [build.us[:, at].tolist() for build in of if at not in build.barred]
                                  for at in range(0, KERNELS, 3)}, 2)

    def _baselines(self, build: Build) -> tuple[list[list[Build]], list[list[Build]]]:
        """Of each kernel: builds of the newest level, ten runs of them, and of the level before."""
        newest: list[list[Build]] = [[] for _ in range(KERNELS)]
        before: list[list[Build]] = [[] for _ in range(KERNELS)]
        past = [other for other in self.main if other.toolkit == build.toolkit][:-61:-1]
        for at in range(KERNELS):
            started = False
            for other in past:
                level = before[at] if started else newest[at]
                if at not in other.barred and len(level) * RUNS < 2 * RUNS:
                    level.append(other)
                started = started or at in other.faster
                if len(level) * RUNS >= 2 * RUNS and (started or level is before[at]):
                    break
        return newest, before

    def _gate(self, build: Build) -> None:
        newest, before = self._baselines(build)
        measured = [at for at in range(KERNELS) if newest[at]]
        if not measured:                            # the first build under a toolkit: no other can be compared with it
            self.score.no_baseline += 1
            return
        called, more = self._first_verdicts(build, newest, before, measured)
        self._count(self.first, build, called, newest)
        for _ in range(RE_RUNS):
            doubtful = [at for at, verdict in called.items() if verdict in (Verdict.AMBIGUOUS, Verdict.SLOWER)]
            if not doubtful:
                break
            least = max(RUNS, *(more.get(at, 0) for at in doubtful))
            runs = min(MOST_FRESH, max(least, plan_runs(len(doubtful), least, least).needed_each))
            again = self._again(build, newest, doubtful, runs)
            called |= {int(each.key): each.verdict for each in again}
            more |= {int(each.key): each.more_runs for each in again}
            self.score.further_rounds += 1
            if Verdict.SLOWER in (each.verdict for each in again):
                break
        self._count(self.score, build, called, newest)
        build.barred = {at for at, verdict in called.items() if verdict in (Verdict.AMBIGUOUS, Verdict.SLOWER)}
        build.faster = {at for at, verdict in called.items() if verdict == Verdict.FASTER}

    def _first_verdicts(self, build: Build, newest: Sequence[list[Build]], before: Sequence[list[Build]],
                        measured: list[int]) -> tuple[dict[int, Verdict], dict[int, int]]:
        """Verdicts against stored runs, and the runs that each asks for; the sessions' shift is of all kernels."""
        base = {at: np.concatenate([other.us[:, at] for other in newest[at]]) for at in measured}
        pairs = {at: np.sort(np.log((build.us[:, at, None] / base[at][None, :]).ravel())) for at in measured}
        shift = common_shift([float(np.median(pairs[at])) for at in measured], self.sessions.limit(Rule().alpha))
        called, doubtful = {}, []
        for at in measured:
            middle, high = float(np.median(pairs[at])), float(pairs[at][_high_place(RUNS, len(base[at]))])
            passes = all(abs(middle - moved) < np.log(1.015) and high - moved < np.log(1.045) for moved in (0.0, shift))
            called[at] = Verdict.PASS
            if not passes:
                doubtful.append(at)
        if not doubtful:
            return called, {}
        earlier = {str(at): EarlierLevel("before", _kernel(at, np.concatenate([other.us[:, at] for other in before[at]])).runs)
                   for at in doubtful if before[at]}
        stored = [_kernel(at, base[at]) for at in doubtful]
        ways = [judge(stored, [_kernel(at, build.us[:, at] * np.exp(-moved)) for at in doubtful], calibrated=False, earlier=earlier,
                      family=len(measured)).kernels for moved in dict.fromkeys((0.0, shift))]
        without = {int(each.key): each.verdict for each in ways[-1]}
        for each in ways[0]:
            at = int(each.key)
            called[at] = _joined(each.verdict, without[at])
        return called, {int(each.key): each.more_runs for each in ways[0]}

    def _again(self, build: Build, newest: Sequence[list[Build]], doubtful: list[int], runs: int) -> Sequence[KernelVerdict]:
        """Fresh runs of both builds in turn, A B B A, in one session."""
        session, flaky = float(np.exp(SESSION * self.random.standard_normal())), bool(self.random.random() < FLAKY)
        partner = newest[doubtful[0]][0]
        ours_at = np.array([2 * pair + (1 - pair % 2) for pair in range(runs)])
        theirs_at = np.array([2 * pair + pair % 2 for pair in range(runs)])
        ours, theirs = (self._runs(which, places, 2 * runs, session, flaky)
                        for which, places in ((build, ours_at), (partner, theirs_at)))
        return judge([_kernel(at, theirs[:, at]) for at in doubtful], [_kernel(at, ours[:, at]) for at in doubtful],
                     calibrated=False).kernels

    # ---- what is true ----

    def _count(self, score: Score, build: Build, called: dict[int, Verdict], newest: Sequence[list[Build]]) -> None:
        score.builds += 1
        slower = [at for at, verdict in called.items() if verdict == Verdict.SLOWER]
        real = [at for at in called if build.code[at] / np.mean([other.code[at] for other in newest[at]]) > REAL]
        if build.own is not None:
            score.own += 1
            score.own_caught += build.own in slower
        if [at for at in slower if at not in real] or (not real and Verdict.AMBIGUOUS in called.values()):
            score.false_builds.add(build.number)
        mine = {at for one in self.slowdowns if one.build == build.number for at in one.kernels}
        for at in slower:
            if at in real and at not in mine and at != build.own:
                open_one = next((one for one in self.slowdowns if at in one.kernels and not one.fixed), None)
                if open_one is not None and open_one.build not in score.caught:
                    score.wrong_blames += 1
        for one in self.slowdowns:
            if one.build not in score.caught and not one.fixed and set(one.kernels) & set(slower) and build.on_main:
                score.caught[one.build] = 1 + len([other for other in self.main if other.number >= one.build])
                if score is self.score:
                    self.due[build.number + int(self.random.integers(6, 28))].append(("fix", one))


def _kernel(at: int, us: Floats) -> KernelRuns:
    return KernelRuns("generated", {"kernel": at}, None, str(at), [Run(str(run), us[run:run + 1]) for run in range(len(us))])


@lru_cache(maxsize=64)
def _high_place(candidates: int, baselines: int) -> int:
    """Return which of the sorted pair ratios is the high end of the gate's interval."""
    return -max(1, cutoff(candidates, baselines, Rule().beta))


def _joined(raw: Verdict, without: Verdict) -> Verdict:
    """As tuner.gate.stats.suite joins a verdict and the one without the session's own speed."""
    if raw == without or raw in (Verdict.NO_DATA, Verdict.AMBIGUOUS):
        return raw
    if Verdict.SLOWER in (raw, without):
        return Verdict.AMBIGUOUS
    return without if raw == Verdict.FASTER else raw


def scores_of(quarter: int, months: int = QUARTER) -> list[Score]:
    """Run a quarter, or its first months; return the score of each rule."""
    team = Team(quarter)
    team.run(months)
    found = [team.score, team.first, *other_rules(team.main, team.builds, {one.build: one.kernels for one in team.slowdowns})]
    for each in found:
        each.slowdowns, each.months = len(team.slowdowns), months
    return found


def main(months: int, processes: int) -> None:
    scores: dict[str, Score] = {}
    lengths = [min(QUARTER, months - start) for start in range(0, months, QUARTER)]
    with ProcessPoolExecutor(processes) as pool:
        for found in pool.map(scores_of, range(len(lengths)), lengths):
            for each in found:
                scores.setdefault(each.name, Score(each.name)).add(each)
            print(f"{scores[found[0].name].months} months:", *table(list(scores.values())), sep="\n", file=sys.stderr, flush=True)
    print("\n".join(table(list(scores.values()))))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12, int(sys.argv[2]) if len(sys.argv) > 2 else 1)
