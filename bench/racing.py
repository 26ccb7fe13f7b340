"""What racing saves and what it risks on the raw samples of the public tuning spaces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.search.race_replay import RISK, load_samples, replay_race, run_duels

SPACES = Path(__file__).resolve().parent.parent / "tests" / "data" / "public_spaces"
RUNS, DUELS = 100, 5_000
SAVED, LOST = 0.80, 0.01


def run() -> list[dict[str, Any]]:
    return [_row(path) for path in sorted(SPACES.glob("*.json.xz"))]


def _row(path: Path) -> dict[str, Any]:
    samples = load_samples(path)
    raced = [replay_race(samples, seed) for seed in range(RUNS)]
    lost, fought = run_duels(samples, 0, DUELS)
    saved = sum(one.saved for one in raced) / RUNS
    warm = sum(one.saved_with_warmup for one in raced) / RUNS
    winners = sum(one.lost for one in raced)
    return {
        "what": f"racing at risk {RISK:.0%}: {path.name.split('.')[0].removesuffix('_T4')}",
        "measured": f"{saved:.1%} of the sampling time saved ({warm:.1%} with a warm-up each), winner lost in {winners} of {RUNS} "
                    f"runs and in {lost} of {fought:,} duels with one that is 0-5 % slower",
        "reference": f"all {samples.shape[1]} samples of {len(samples):,} configurations", "ratio": 1 / (1 - saved),
        "budget": f"≥ {SAVED:.0%} saved, lost in ≤ {LOST:.0%}", "ok": saved >= SAVED and winners <= LOST * RUNS}
