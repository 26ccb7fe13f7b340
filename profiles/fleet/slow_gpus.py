"""Which GPU takes longer than the others at the same kernels, by how much, since when. Pure.

The mean logarithm of a signature's durations on one GPU in one hour, less the median of all GPUs that ran it in that hour, is how
much longer the GPU took at it; over signatures the median, weighted by time, is its score of the hour. A GPU's level is the
median of its scores since they last changed. Healthy GPUs differ from each other as well: what counts as slower exceeds
DEVIATIONS times the spread of all GPUs' levels, and LEAST_PCT. The spread is Qn (Rousseeuw, Croux, "Alternatives to the median
absolute deviation", JASA 1993, section 3): slow GPUs hardly move it, up to half of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

LEAST_PCT = 2.0                     # slower than that: less is what one GPU differs from another
DEVIATIONS = 5.5                    # of the spread between GPUs and hours
SPLIT_DEVIATIONS = 5.0              # by which the means of two stretches of hours must differ
LEAST_GPUS = 4                      # that share a signature in an hour
LEAST_LAUNCHES = 20                 # of a GPU that could be compared
MOST_SPLITS = 4
MOST_PAIRED = 1000                  # GPUs whose levels are compared pair by pair

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Level:
    """A GPU's place among the others. `slower_pct` is negative where it is faster; None where it cannot be compared."""

    gpu: int
    verdict: str                    # "SLOWER" | "OK" | "UNKNOWN"
    slower_pct: float | None
    since_hour: int | None          # first hour of the stretch that the level stands for; of SLOWER alone
    hours: int
    launches: int                   # that could be compared
    signatures: int
    limit_pct: float | None         # what counts as slower here
    why: str = ""


def judge_gpus(rows: Sequence[tuple[int, int, int, int, int, int, float]], models: dict[int, str] | None = None) -> list[Level]:
    """Return the level of every GPU, the slowest first.

    Args:
        rows: (hour, GPU, signature, context, launches, total_ns, log_sum), `FleetStore.gpu_hours`.
        models: GPU -> model; only GPUs of one model are compared.
    """
    out: list[Level] = []
    table = np.array([row[:6] for row in rows], np.int64).reshape(-1, 6)
    logs = np.array([row[6] for row in rows], np.float64)
    of_gpu = np.array([(models or {}).get(int(gpu), "") for gpu in table[:, 1]], object)
    for model in sorted(set(of_gpu.tolist())):
        chosen = of_gpu == model
        out += _judge_model(table[chosen], logs[chosen])
    order = {"SLOWER": 0, "UNKNOWN": 2, "OK": 1}
    return sorted(out, key=lambda each: (order[each.verdict], -(each.slower_pct or 0.0), each.gpu))


def _judge_model(table: Ints, logs: Floats) -> list[Level]:
    kept = table[:, 4] > 0
    table, logs = table[kept], logs[kept]
    mean = logs / table[:, 4]
    excess, shared = _excess(table, mean)
    gpus = np.unique(table[:, 1])
    table, excess = table[shared], excess[shared]
    order = np.argsort(table[:, 1], kind="stable")          # rows of one GPU lie together: none is looked for in those of all
    table, excess = table[order], excess[order]
    own_rows = {int(gpu): slice(first, end) for gpu, first, end in zip(
        gpus, np.searchsorted(table[:, 1], gpus), np.searchsorted(table[:, 1], gpus, "right"), strict=True)}
    scores = {gpu: _scores(table[rows], excess[rows]) for gpu, rows in own_rows.items()}
    noise = _hour_noise([values for _, values in scores.values()])
    stretches = {gpu: _last_stretch(values, noise) for gpu, (_, values) in scores.items() if values.size}
    levels = {gpu: float(np.median(scores[gpu][1][first:])) for gpu, first in stretches.items()}
    between = _spread(np.array(list(levels.values())))
    out = []
    for gpu in gpus.tolist():
        mine = table[own_rows[gpu]]
        launches, signatures = int(mine[:, 4].sum()), int(np.unique(mine[:, 2]).size)
        if gpu not in levels or launches < LEAST_LAUNCHES:
            why = (f"no kernel of it ran on {LEAST_GPUS - 1} other GPUs of its model in the same hour" if gpu not in levels
                   else f"{launches} launches could be compared; {LEAST_LAUNCHES} are needed")
            out.append(Level(gpu, "UNKNOWN", None, None, 0, launches, signatures, None, why))
            continue
        hours, values = scores[gpu]
        own = values[stretches[gpu]:]
        spread = np.hypot(between, 1.2533 * noise / np.sqrt(own.size))       # a median's error is that of a mean × √(π/2)
        limit = max(np.log1p(LEAST_PCT / 100), DEVIATIONS * spread)
        slower = levels[gpu] > limit
        out.append(Level(gpu, "SLOWER" if slower else "OK", 100 * float(np.expm1(levels[gpu])),
                         int(hours[stretches[gpu]]) if slower else None, int(own.size), launches, signatures,
                         100 * float(np.expm1(limit))))
    return out


def _excess(table: Ints, mean: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """How much longer than the median of its hour each row is, as a logarithm, and whether enough GPUs ran it."""
    order = np.lexsort((mean, table[:, 3], table[:, 2], table[:, 0]))
    key = table[order][:, [0, 2, 3]]
    edges = np.flatnonzero(np.append(True, np.any(key[1:] != key[:-1], axis=1))) if order.size else np.empty(0, np.int64)
    ends = np.append(edges[1:], order.size)
    size = ends - edges
    low, high = edges + (size - 1) // 2, edges + size // 2
    ranked = mean[order]
    middle = (ranked[low] + ranked[high]) / 2
    excess, shared = np.empty(order.size), np.empty(order.size, np.bool_)
    excess[order] = ranked - np.repeat(middle, size)
    shared[order] = np.repeat(size >= LEAST_GPUS, size)
    return excess, shared


def _scores(table: Ints, excess: Floats) -> tuple[Ints, Floats]:
    """Hours of a GPU and its score in each: the median over signatures, weighted by time."""
    hours = np.unique(table[:, 0])
    scores = np.empty(hours.size)
    for at, hour in enumerate(hours.tolist()):
        mine = table[:, 0] == hour
        order = np.argsort(excess[mine], kind="stable")
        weight = np.cumsum(table[mine][order, 5].astype(np.float64) + 1.0)
        scores[at] = excess[mine][order][np.searchsorted(weight, weight[-1] / 2)]
    return hours, scores


def _spread(values: Floats) -> float:
    """Standard deviation of what is normal among values, by Qn; of more than MOST_PAIRED by the median absolute deviation."""
    count = values.size
    if count < 2:
        return 0.0
    if count > MOST_PAIRED:
        return 1.4826 * float(np.median(np.abs(values - np.median(values))))
    apart = np.sort(np.abs(values[:, None] - values[None, :])[np.triu_indices(count, 1)])
    half = count // 2 + 1
    small = count / (count + 1.4) if count % 2 else count / (count + 3.8)          # the paper's correction of small samples
    return 2.2219 * small * float(apart[half * (half - 1) // 2 - 1])


def _hour_noise(series: Sequence[Floats]) -> float:
    """Spread of scores from one hour to the next, over all GPUs."""
    steps = [np.diff(values) for values in series if values.size > 1]
    joined = np.concatenate(steps) if steps else np.empty(0)
    return 1.4826 * float(np.median(np.abs(joined))) / np.sqrt(2.0) if joined.size else 0.0


def _last_stretch(values: Floats, noise: float) -> int:
    """Where the last stretch of hours with one level begins: the split that explains most, again in what follows it."""
    first = 0
    for _ in range(MOST_SPLITS):
        rest = values[first:]
        if rest.size < 2:
            break
        count = np.arange(1, rest.size)
        before = np.cumsum(rest)[:-1] / count
        after = (rest.sum() - np.cumsum(rest)[:-1]) / (rest.size - count)
        error = max(noise, 1e-4) * np.sqrt(1 / count + 1 / (rest.size - count))
        found = int(np.argmax(np.abs(after - before) / error))
        if abs(after[found] - before[found]) < max(SPLIT_DEVIATIONS * error[found], np.log1p(LEAST_PCT / 100)):
            break
        first += found + 1
    return first
