"""Racing replayed on recorded raw samples: what it saves, and whether the winner survives.

Used by the tests and by `python -m bench racing`. A run measures every configuration of a space in random order, as the
GPU child would: whole where there is no incumbent, else until the race is lost.
"""

from __future__ import annotations

import json
import lzma
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.tuning.measure.statistics import Noise, Race, reference_ms

Samples = NDArray[np.float64]          # [configuration, sample] in ms, in the order taken
RISK = 0.01


@dataclass(frozen=True)
class RaceReplay:
    """The result of one run over a space."""

    saved: float                       # share of the sampling time
    saved_with_warmup: float           # … when each configuration also pays for one launch that nothing can save
    lost: bool                         # the configuration with the best median was dropped
    slower_by: float                   # of the best that was kept, against the best of all
    whole: int                         # configurations that were measured to the end


def load_samples(path: Path) -> Samples:
    """Return raw samples (ms) per configuration of a T4 or Kernel Tuner file; failures left out."""
    with lzma.open(path) as stream:
        document = json.load(stream)
    rows = [row for row in _runtimes(document) if isinstance(row, list) and row]
    fewest = min(len(row) for row in rows)
    return np.array([row[:fewest] for row in rows], dtype=np.float64)


def _runtimes(document: dict[str, Any]) -> list[Any]:
    if "results" in document:
        return [row["times"].get("runtimes") for row in document["results"] if row.get("invalidity", "correct") == "correct"]
    return [row.get("times") for row in document["cache"].values()]


def replay_race(samples: Samples, seed: int, risk: float = RISK) -> RaceReplay:
    """Race every configuration in random order; return what was saved and who won."""
    medians = np.median(samples, axis=1)
    whole_n, winner = samples.shape[1], int(medians.argmin())
    noise, best_ms, reference = Noise(), float("inf"), 0.0
    spent, whole, kept = 0.0, 0, False
    for row in np.random.default_rng(seed).permutation(len(samples)):
        taken = samples[row].tolist()
        race = Race(reference, noise, risk) if reference else None
        lost = race.lost(taken[:-1]) if race else None
        n = lost.samples if lost else whole_n
        spent += sum(taken[:n])
        if lost:
            continue
        whole += 1
        kept = kept or row == winner
        noise.learn(taken)
        if medians[row] < best_ms:
            best_ms, reference = float(medians[row]), reference_ms(taken, float(medians[row]))
    total, once = float(samples.sum()), float(samples[:, 0].sum())
    return RaceReplay(1 - spent / total, 1 - (spent + once) / (total + once), not kept, best_ms / float(medians[winner]) - 1, whole)


def run_duels(samples: Samples, seed: int, count: int, within: float = 0.05, risk: float = RISK) -> tuple[int, int]:
    """Return (lost, run) races that the faster of two could lose; it is faster by 0 to `within`.

    A search has one such race at most, most have none: there the winner meets incumbents that are far slower.
    """
    rng = np.random.default_rng(seed)
    medians = np.median(samples, axis=1)
    order = np.argsort(medians)[:len(medians) // 2 + 1]
    lost = run = 0
    while run < count:
        slower = int(rng.integers(1, len(order)))
        first = int(np.searchsorted(medians[order], medians[order[slower]] * (1 - within)))
        faster = order[int(rng.integers(first, slower))] if first < slower else None
        if faster is None:
            continue
        incumbent = samples[order[slower]].tolist()
        noise = Noise()
        for row in [order[slower], *rng.choice(order, 9)]:
            noise.learn(samples[row].tolist())
        race = Race(reference_ms(incumbent, float(medians[order[slower]])), noise, risk)
        run += 1
        lost += race.lost(samples[faster].tolist()[:-1]) is not None
    return lost, run
