"""`profiles.fleet.slow.slow_gpus` a GPU and an hour at a time, as it was before it took all at once: it must say the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from profiles.fleet.slow.compared import Floats, Ints, Row
from profiles.fleet.slow.slow_gpus import DEVIATIONS, LEAST_GPUS, LEAST_LAUNCHES, LEAST_PCT, Level, _last_stretch, _spread


def judge_rows(rows: Sequence[Row], models: dict[int, str] | None = None) -> list[Level]:
    """Return the level of every GPU, the slowest first."""
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


def _hour_noise(series: Sequence[Floats]) -> float:
    """Spread of scores from one hour to the next, over all GPUs."""
    steps = [np.diff(values) for values in series if values.size > 1]
    joined = np.concatenate(steps) if steps else np.empty(0)
    return 1.4826 * float(np.median(np.abs(joined))) / np.sqrt(2.0) if joined.size else 0.0
