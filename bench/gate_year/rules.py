"""Other rules on the simulated year's builds, and the score that all of them are counted by. See bench.gate_year.

github-action-benchmark: a value above `alert-threshold` times that of the build before (2 by default). Otava: E-divisive with
Student's t in windows of 50 builds, p < 0.001 (its defaults), over the newest 100 builds of main each night, by the package itself
in a process of its own: `OTAVA_PYTHON` names a Python that has it. Both read a build's median of run medians and know no toolkit.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

NIGHT, WINDOW, NEAR, REAL = 11, 100, 2, 1.02        # builds of main a day; read each night; beside the true one; a slowdown
OTAVA = """
import json, sys
from otava.analysis import compute_change_points
for line in sys.stdin:
    points, _ = compute_change_points(json.loads(line), window_len=50, max_pvalue=0.001)
    print(json.dumps([[int(point.index), point.stats.forward_rel_change()] for point in points]), flush=True)
"""


@dataclass
class Score:
    name: str
    builds: int = 0
    months: int = 0
    slowdowns: int = 0                                          # planted, and reverts of gains
    caught: dict[int, int] = field(default_factory=dict)        # build → builds of main until it was called, itself included
    false_builds: set[int] = field(default_factory=set)
    wrong_blames: int = 0
    own: int = 0                                                # pull requests with a slowdown of their own
    own_caught: int = 0
    no_baseline: int = 0
    further_rounds: int = 0

    def add(self, other: Score) -> None:
        """Add a quarter, whose builds have numbers of their own."""
        offset = 1_000_000 * (self.months + 1)
        self.caught |= {offset + build: count for build, count in other.caught.items()}
        self.false_builds |= {offset + build for build in other.false_builds}
        for name in ("builds", "months", "slowdowns", "wrong_blames", "own", "own_caught", "no_baseline", "further_rounds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def table(scores: Sequence[Score]) -> Iterator[str]:
    yield ("| rule | false reds a month | slowdowns of main caught | at their own build | builds until caught: median, worst "
           "| wrong blames | slow pull requests caught |")
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for one in scores:
        waits = sorted(one.caught.values())
        delay = f"{np.median(waits):.0f}, {waits[-1]}" if waits else "—"
        own = f"{one.own_caught} of {one.own}" if one.own else "—"
        yield (f"| {one.name} | {len(one.false_builds) / max(1, one.months):.1f} | {len(waits)} of {one.slowdowns} "
               f"| {sum(wait <= 1 for wait in waits)} | {delay} | {one.wrong_blames} | {own} |")


def other_rules(main: Sequence[Any], builds: Sequence[Any], slowdowns: Mapping[int, Sequence[int]]) -> list[Score]:
    """Return the scores of each rule; `slowdowns`: build of main → kernels."""
    return [*(_beside_the_one_before(builds, threshold, slowdowns) for threshold in (2.0, 1.1, 1.05)), *_otava(main, slowdowns)]


def _beside_the_one_before(builds: Sequence[Any], threshold: float, slowdowns: Mapping[int, Sequence[int]]) -> Score:
    score = Score(f"github-action-benchmark, alert-threshold {threshold * 100:.0f} %{' (default)' if threshold == 2 else ''}")
    last: Any = None
    for build in builds:
        score.builds += 1
        if last is not None:
            ratio = np.median(build.us, axis=0) / np.median(last.us, axis=0)
            alerts = set(np.flatnonzero(ratio > threshold).tolist())
            real = set(np.flatnonzero(build.code / last.code > REAL).tolist())
            if alerts - real:
                score.false_builds.add(build.number)
            if build.on_main and build.number in slowdowns and alerts & set(slowdowns[build.number]):
                score.caught[build.number] = 1
            if build.own is not None:
                score.own += 1
                score.own_caught += build.own in alerts
        last = build if build.on_main else last
    return score


def _otava(main: Sequence[Any], slowdowns: Mapping[int, Sequence[int]]) -> list[Score]:
    python = os.environ.get("OTAVA_PYTHON")
    if not python:
        return []
    places = {build.number: place for place, build in enumerate(main)}
    true = [(places[build], set(kernels)) for build, kernels in slowdowns.items() if build in places]
    scores = [Score("Otava, each night"), Score("Otava, each night, changes of 5 % and more")]
    told: list[set[tuple[int, int]]] = [set(), set()]
    with subprocess.Popen([python, "-c", OTAVA], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        for end in range(2 * NIGHT, len(main) + 1, NIGHT):
            start = max(0, end - WINDOW)
            medians = np.array([np.median(build.us, axis=0) for build in main[start:end]])
            for kernel in range(medians.shape[1]):
                process.stdin.write(json.dumps(medians[:, kernel].tolist()) + "\n")
                process.stdin.flush()
                for index, change in json.loads(process.stdout.readline()):
                    for score, seen, least in zip(scores, told, (0.0, 0.05), strict=True):
                        if change > least and not any((kernel, start + index + near) in seen for near in range(-3, 4)):
                            seen.add((kernel, start + index))
                            _count(score, main, start + index, kernel, end, true)
    return scores


def _count(score: Score, main: Sequence[Any], place: int, kernel: int, end: int, true: Sequence[tuple[int, set[int]]]) -> None:
    near = [at for at, kernels in true if kernel in kernels and abs(at - place) <= NEAR]
    if not near:
        score.false_builds.add(main[place].number)
        return
    at = min(near, key=lambda each: abs(each - place))
    score.wrong_blames += at != place
    score.caught.setdefault(main[at].number, end - at)
