"""`make bench-gate`: how often the gate errs, on recorded runs, beside three other rules on the same draws.

Writes docs/gate-bench.md, which says how it is done (`HOW`).
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from bench.gate_pairs import calibration_table, pair_table, pairs
from bench.gate_runs import BASELINE, CANDIDATE, RULES, SETS, kernels, middle, some, verdicts
from tuner.gate.stats.rule import Verdict, worst_verdict
from tuner.gate.stats.runs import KernelRuns
from tuner.gate.stats.suite import judge

ROOT = Path(__file__).resolve().parent.parent
EFFECTS = (1.0, 1.05, 1.08, 1.10)
CHUNK = 50
HOW = """Suites are drawn from runs of identical code: 10 fresh runs are the baseline, 5 others the candidate. A slowdown is
injected into one kernel by multiplying the candidate's samples. A suite that ends AMBIGUOUS gets its re-run: as many fresh runs
of both builds as the verdict asks for, judged alone. Files of 24 runs have too few left for that; their re-run is the 9 that are
left, 4 to the candidate and 5 to the baseline, judged together with the first ones at the whole suite's level. The other rules
see the same draws, without a re-run: they know none."""
QUICK_US = 20.0                         # the bars are for kernels that take longer

# of the draws: the bars are the first one's
SHARE = {"h200": 1.0, "h200 small": 0.5, "h200 waiting": 0.5, "h200 shared": 0.5, "public": 0.3}


@dataclass
class Count:
    """Of one set and effect: suites by verdict, first and last; the slowed kernel by class, ours and the other rules'."""

    draws: int = 0
    first: Counter[str] = field(default_factory=Counter)
    last: Counter[str] = field(default_factory=Counter)
    kernel: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))       # "20 µs and more" -> verdicts
    rules: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))        # rule -> "suite", class -> called
    blamed: int = 0                     # suites in which a kernel that was not slowed is called SLOWER

    def add(self, other: Count) -> None:
        self.draws += other.draws
        self.blamed += other.blamed
        self.first += other.first
        self.last += other.last
        for mine, theirs in ((self.kernel, other.kernel), (self.rules, other.rules)):
            for name, counts in theirs.items():
                mine[name] += counts


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--draws", type=int, default=1000)
    options.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options.add_argument("--no-series", action="store_true", help="leave out the change points (a third of the time)")
    options.add_argument("--no-noise", action="store_true", help="leave out the generated noise (a third of the time)")
    given = options.parse_args()
    tasks = [(name, effect, start, CHUNK) for name in SETS for effect in EFFECTS
             for start in range(0, max(CHUNK, round(given.draws * SHARE[name])), CHUNK)]
    counts: dict[tuple[str, float], Count] = defaultdict(Count)
    with ProcessPoolExecutor(given.processes) as pool:
        for number, (task, count) in enumerate(zip(tasks, pool.map(_measured, tasks), strict=True), 1):
            counts[task[:2]].add(count)
            sys.stderr.write(f"\r{number}/{len(tasks)} {task[0]} {task[1]}   ")
        compared = list(pool.map(pairs, ("h200", "h200 small")))
    text = "\n".join(_page(counts, [row for rows in compared for row in rows], given))
    sys.stdout.write(text)
    if given.draws >= 1000 and not given.no_series and not given.no_noise:
        (ROOT / "docs" / "gate-bench.md").write_text(text)
    return 0


def _measured(task: tuple[str, float, int, int]) -> Count:
    name, effect, start, draws = task
    whole, count = kernels(name), Count()
    for draw in range(start, start + draws):
        random = np.random.default_rng([draw, list(SETS).index(name)])       # the same runs for each effect
        slowed = draw % len(whole) if effect != 1 else None
        order = random.permutation(min(len(kernel.runs) for kernel in whole))
        _one(count, whole, order, effect, slowed)
    return count


def _one(count: Count, whole: Sequence[KernelRuns], order: Any, effect: float, slowed: int | None) -> None:
    baseline = [some(kernel, order[:BASELINE]) for kernel in whole]
    candidate = [some(kernel, order[BASELINE:BASELINE + CANDIDATE], effect if at == slowed else 1.0)
                 for at, kernel in enumerate(whole)]
    first = judge(baseline, candidate, calibrated=False)
    called = at_first = {each.key: each.verdict for each in first.kernels}
    if first.verdict == Verdict.AMBIGUOUS:
        unsure = [at for at, kernel in enumerate(whole) if called[kernel.key] == Verdict.AMBIGUOUS]
        called = called | _again(whole, unsure, order, max(each.more_runs for each in first.kernels), effect, slowed)
    count.draws += 1
    count.first[first.verdict] += 1
    count.last[worst_verdict(called.values())] += 1
    count.blamed += any(called[kernel.key] == Verdict.SLOWER for at, kernel in enumerate(whole) if at != slowed)
    other: dict[str, list[bool]] = {rule: [] for rule in RULES}
    for b, c in zip(baseline, candidate, strict=True) if slowed is None else [(baseline[slowed], candidate[slowed])]:
        for rule, says in verdicts([run.us for run in b.runs], [run.us for run in c.runs]).items():
            other[rule].append(says)
    kind = "" if slowed is None else _kind(whole[slowed])
    for rule, says in other.items():
        count.rules[rule]["suite"] += any(says)
        count.rules[rule]["kernels"] += sum(says)
        count.rules[rule][kind] += any(says)
    if slowed is not None:
        count.kernel[kind][called[whole[slowed].key]] += 1
        count.kernel[kind][f"first {at_first[whole[slowed].key]}"] += 1


def _again(whole: Sequence[KernelRuns], unsure: list[int], order: Any, more: int, effect: float,
           slowed: int | None) -> dict[str, Verdict]:
    """Verdicts of the re-run, for these kernels."""
    left = order[BASELINE + CANDIDATE:]
    fresh = len(left) >= 2 * more
    b_runs, c_runs = left[:more], left[more:2 * more]
    if not fresh:
        half = len(left) - len(left) // 2
        b_runs = np.concatenate([order[:BASELINE], left[:half]])
        c_runs = np.concatenate([order[BASELINE:BASELINE + CANDIDATE], left[half:]])
    found = judge([some(whole[at], b_runs) for at in unsure],
                  [some(whole[at], c_runs, effect if at == slowed else 1.0) for at in unsure],
                  family=None if fresh else len(whole), calibrated=False)
    return {each.key: each.verdict for each in found.kernels}


def _kind(kernel: KernelRuns) -> str:
    return "20 µs and more" if middle(kernel) >= QUICK_US else "under 20 µs"


def _page(counts: dict[tuple[str, float], Count], compared: list[dict[str, Any]], given: argparse.Namespace) -> Iterator[str]:
    yield "# Error rates of the gate on recorded runs\n"
    yield (f"`make bench-gate`, {datetime.date.today()}, {BASELINE} baseline and {CANDIDATE} "
           f"candidate runs, Python {platform.python_version()}, numpy {np.__version__}, scipy {scipy.__version__}.\n")
    yield f"{HOW}\n"
    yield "## Identical code: share of suites\n"
    yield "| suite | draws | SLOWER | AMBIGUOUS at first | AMBIGUOUS after the re-run | " + " | ".join(RULES) + " |"
    yield "|---|--:|--:|--:|--:|" + "--:|" * len(RULES)
    yield "| *bar* | | ≤ 1 % | | ≤ 5 % |" + " |" * len(RULES)
    for name, title in SETS.items():
        count = counts[name, 1.0]
        ours = (count.last[Verdict.SLOWER], count.first[Verdict.AMBIGUOUS], count.last[Verdict.AMBIGUOUS])
        rest = (count.rules[rule]["suite"] for rule in RULES)
        yield f"| {title} | {count.draws:,} | " + " | ".join(_share(each, count.draws) for each in (*ours, *rest)) + " |"
    yield "\nThe other rules: a suite counts where they call any of its kernels slower.\n"
    yield "## One kernel slower: share of draws in which it is called SLOWER\n"
    yield "AMBIGUOUS does not count as called. In brackets: at first, before any re-run.\n"
    yield "| suite | kernels | slower by | ours | passed by ours | " + " | ".join(RULES) + " |"
    yield "|---|---|--:|--:|--:|" + "--:|" * len(RULES)
    yield "| *bar* | 20 µs and more | +5 / +8 / +10 % | ≥ 80 / 95 / 99 % | |" + " |" * len(RULES)
    for (name, effect), count in counts.items():
        for kind, says in sorted(count.kernel.items()) if effect != 1 else ():
            draws = sum(says[verdict] for verdict in Verdict)
            first = _share(says[f"first {Verdict.SLOWER}"], draws)
            cells = [f"**{_share(says[Verdict.SLOWER], draws)}** ({first})",
                     _share(says[Verdict.PASS] + says[Verdict.FASTER], draws)]
            cells += [_share(count.rules[rule][kind], draws) for rule in RULES]
            yield f"| {name} | {kind} | +{(effect - 1) * 100:.0f} % | " + " | ".join(cells) + " |"
    blamed, suites = sum(count.blamed for count in counts.values()), sum(count.draws for count in counts.values())
    yield f"\nA kernel that was not slowed was called SLOWER in {blamed} of these {suites:,} suites.\n"
    yield from pair_table(compared)
    yield from calibration_table()
    if not given.no_noise:
        yield from _noise_table(given)
    yield from _around_table(given)
    if not given.no_series:
        yield from _series_table()


def _noise_table(given: argparse.Namespace) -> Iterator[str]:
    from bench import gate_noise

    yield "## Noise made to order: generated, not recorded\n"
    yield (gate_noise.__doc__ or "").split("\n\n")[1].replace("\n", " ") + "\n"
    draws = max(gate_noise.CHUNK, given.draws // 4)
    yield (f"{draws:,} draws of each row with identical builds, {gate_noise.slowed_draws(draws):,} of each with a slowdown. "
           "The last three rows break what docs/gate.md says that the gate assumes.\n")
    yield from gate_noise.table(draws, given.processes)
    yield ""


def _around_table(given: argparse.Namespace) -> Iterator[str]:
    from bench import gate_around

    yield "## Steps, days that differ, missing kernels: generated, not recorded\n"
    yield (gate_around.__doc__ or "").split("\n\n")[1].replace("\n", " ") + "\n"
    draws = max(10, given.draws // 5)
    yield f"{draws:,} draws of each row.\n"
    yield from gate_around.table(draws)
    yield ""


def _series_table() -> Iterator[str]:
    from bench import gate_series

    yield "## Change points in series of builds\n"
    yield (gate_series.__doc__ or "").split("\n\n")[1].replace("\n", " ") + "\n"
    yield "Bars: +2 % found within 8 builds, at most one false change point per 500 builds.\n"
    yield gate_series.table(list(gate_series.rows(draws=300, builds=2000)))


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "—"


if __name__ == "__main__":
    sys.exit(main())
