"""Which GPU takes longer than the others at the same kernels, by how much, since when. Pure.

The mean logarithm of a signature's durations on one GPU in one hour, less the median of all GPUs that ran it in that hour, is how
much longer the GPU took at it; over signatures the median, weighted by time, is its score of the hour. A GPU's level is the
median of its scores since they last changed. Healthy GPUs differ from each other as well: what counts as slower exceeds
DEVIATIONS times the spread of all GPUs' levels, and LEAST_PCT. The spread is Qn (Rousseeuw, Croux, "Alternatives to the median
absolute deviation", JASA 1993, section 3): slow GPUs hardly move it, up to half of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from profiles.fleet.slow.compared import LEAST_GPUS, Floats, Ints, edges_of, named

LEAST_PCT = 2.0                     # slower than that: less is what one GPU differs from another
DEVIATIONS = 5.5                    # of the spread between GPUs and hours
SPLIT_DEVIATIONS = 5.0              # by which the means of two stretches of hours must differ
LEAST_LAUNCHES = 20                 # of a GPU that could be compared
MOST_SPLITS = 4
MOST_PAIRED = 1000                  # GPUs whose levels are compared pair by pair


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


def judge_compared(rows: pa.Table, models: dict[int, str] | None = None) -> list[Level]:
    """Return the level of every GPU, the slowest first.

    Args:
        rows: compared with those of their hours (`compared.COMPARED`, hour after hour).
        models: GPU -> model; only GPUs of one model are compared.
    """
    out: list[Level] = []
    gpus, codes = named(rows, "gpu")
    present = np.zeros(gpus.size, np.bool_)
    present[codes] = True
    of_gpu = [(models or {}).get(gpu, "") for gpu in gpus.tolist()]
    for model in sorted({its for its, here in zip(of_gpu, present.tolist(), strict=True) if here}):
        chosen = np.array([its == model for its in of_gpu])
        out += _judge_model(rows if (chosen | ~present).all() else rows.filter(pa.array(chosen[codes])))
    order = {"SLOWER": 0, "UNKNOWN": 2, "OK": 1}
    return sorted(out, key=lambda each: (order[each.verdict], -(each.slower_pct or 0.0), each.gpu))


def _judge_model(rows: pa.Table) -> list[Level]:
    names, place = named(rows, "gpu")
    present = np.zeros(names.size, np.bool_)
    present[place] = True
    gpus = np.sort(names[present])                          # without those of other models
    number = np.searchsorted(gpus, names)
    excess = rows["excess"].to_numpy()
    shared = ~np.isnan(excess)
    gpu, hour, excess = number[place][shared], rows["hour"].to_numpy()[shared].astype(np.int64), excess[shared]
    signatures = _signatures(rows, gpu, shared, gpus.size)
    edges = edges_of(hour * gpus.size + gpu)
    scores = _scores(edges, excess, rows["total_ns"].to_numpy()[shared])
    launches = np.zeros(gpus.size, np.int64)
    if edges.size:
        np.add.at(launches, gpu[edges], np.add.reduceat(rows["launches"].to_numpy()[shared], edges))
    order = np.lexsort((hour[edges], gpu[edges]))           # of each GPU one hour after the other
    of_gpu, of_hour, scores = gpu[edges][order], hour[edges][order], scores[order]
    size = np.bincount(of_gpu, minlength=gpus.size)         # hours that each GPU has a score of
    begin = np.cumsum(size) - size
    steps = np.diff(scores)[np.diff(of_gpu) == 0]
    noise = 1.4826 * float(np.median(np.abs(steps))) / np.sqrt(2.0) if steps.size else 0.0
    first = _last_stretches(scores, begin, size, noise)
    level = np.full(gpus.size, np.nan)
    for own, chosen, values in _by_size(scores, begin + first, size - first):
        if own:
            level[chosen] = np.median(values, axis=1)
    between = _spread(level[size > 0])
    own_hours = size - first
    spread = np.hypot(between, 1.2533 * noise / np.sqrt(np.maximum(own_hours, 1)))   # a median's error is that of a mean × √(π/2)
    limit = np.maximum(np.log1p(LEAST_PCT / 100), DEVIATIONS * spread)
    out = []
    for row, gpu_key in enumerate(gpus.tolist()):
        mine, kinds = int(launches[row]), int(signatures[row])
        if not size[row] or mine < LEAST_LAUNCHES:
            why = (f"no kernel of it ran on {LEAST_GPUS - 1} other GPUs of its model in the same hour" if not size[row]
                   else f"{mine} launches could be compared; {LEAST_LAUNCHES} are needed")
            out.append(Level(gpu_key, "UNKNOWN", None, None, 0, mine, kinds, None, why))
            continue
        slower = bool(level[row] > limit[row])
        since = int(of_hour[begin[row] + first[row]]) if slower else None
        out.append(Level(gpu_key, "SLOWER" if slower else "OK", 100 * float(np.expm1(level[row])), since, int(own_hours[row]), mine,
                         kinds, 100 * float(np.expm1(limit[row]))))
    return out


def _signatures(rows: pa.Table, gpu: Ints, shared: npt.NDArray[np.bool_], gpus: int) -> Ints:
    """How many signatures of each GPU could be compared in any hour."""
    names, place = named(rows, "signature")
    pairs = pc.unique(pa.array(gpu * names.size + place[shared])).to_numpy()
    return np.bincount(pairs // max(1, names.size), minlength=gpus)


def _scores(edges: Ints, excess: Floats, total_ns: Ints) -> Floats:
    """The score of each GPU and hour, whose rows begin at `edges` in the order of `excess`: the median, weighted by time."""
    if not edges.size:
        return np.empty(0)
    size = np.diff(np.append(edges, excess.size))
    weight = total_ns + 1
    whole = np.add.reduceat(weight, edges)
    before = np.cumsum(weight) - weight
    own = before - np.repeat(before[edges], size) + weight          # whole numbers: exact, even where the sum of all GPUs wraps
    middle = edges + np.add.reduceat((2 * own < np.repeat(whole, size)).astype(np.int64), edges)
    return excess[middle]


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


def _by_size(values: Floats, begin: Ints, size: Ints) -> Iterator[tuple[int, Ints, Floats]]:
    """Yield stretches of one length together: it, which stretches, and their values, one row each."""
    for length in np.unique(size).tolist():
        rows = np.flatnonzero(size == length)
        yield length, rows, values[begin[rows][:, None] + np.arange(length)]


def _last_stretches(scores: Floats, begin: Ints, size: Ints, noise: float) -> Ints:
    """`_last_stretch` of many GPUs at once; most have none to split, and only those that may are looked at one by one."""
    out = np.zeros(size.size, np.int64)
    for length, rows, values in _by_size(scores, begin, size):
        if length < 2:
            continue
        count = np.arange(1, length)
        sums = np.cumsum(values, axis=1)
        apart = np.abs((sums[:, -1:] - sums[:, :-1]) / (length - count) - sums[:, :-1] / count)
        error = max(noise, 1e-4) * np.sqrt(1 / count + 1 / (length - count))
        limit = 0.999 * np.maximum(SPLIT_DEVIATIONS * error, np.log1p(LEAST_PCT / 100))        # rounding must not lose one
        for index in np.flatnonzero((apart >= limit).any(axis=1)).tolist():
            out[rows[index]] = _last_stretch(values[index], noise)
    return out


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
        split = int(np.argmax(np.abs(after - before) / error))
        if abs(after[split] - before[split]) < max(SPLIT_DEVIATIONS * error[split], np.log1p(LEAST_PCT / 100)):
            break
        first += split + 1
    return first
