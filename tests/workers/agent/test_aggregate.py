"""Minutes of windows, compared with sums made one launch after the other."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest

from workers.agent import aggregate
from workers.agent.aggregate import REST, Aggregator, Sums
from workers.agent.launches import MINUTE_NS, Context, Gpu, KernelSums, Signature, Window, bucket_of, sum_durations
from workers.agent.wire import KERNELS_OF_GPU, Batch, make_batch, pack, unpack

SIGNATURES = [Signature(f"kernel_{number // 3}", (1 + number % 3, 1, 1), (128, 1, 1), 0) for number in range(120)]
CONTEXTS = [Context("train", "b1", "NVIDIA H200"), Context("serve", "b2", "NVIDIA H200")]
GPUS = [Gpu(f"GPU-{number}", "NVIDIA H200", "h") for number in range(4)]
Launches = list[tuple[Context, Gpu, int, float, list[int], list[int]]]         # minute, weight, signatures, durations


@pytest.fixture
def compacts_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregate, "PENDING_ROWS", 50)
    monkeypatch.setattr(aggregate, "PENDING_PAIRS", 70)


def windows(seed: int, number: int) -> tuple[list[Window], Launches]:
    chance, made, launches = np.random.default_rng(seed), [], []
    for _ in range(number):
        count = int(chance.integers(0, 400))
        key = chance.integers(0, len(SIGNATURES), count)
        durations = chance.lognormal(9, 0.6, count).astype(np.int64) * (1 + key)
        context, gpu = CONTEXTS[int(chance.integers(2))], GPUS[int(chance.integers(4))]
        minute, weight = int(chance.integers(100, 103)), float(chance.integers(1, 9))
        sums = sum_durations(key, durations, SIGNATURES)
        made.append(Window(context, gpu, minute * MINUTE_NS + 5, 10**9, int(weight * 10**9), sums))
        launches.append((context, gpu, minute, weight, key.tolist(), durations.tolist()))
    return made, launches


def table(batch: Batch, name: str) -> list[dict[str, Any]]:
    columns, (bucket, count) = batch.tables[name], batch.pairs.get(name, (np.zeros(0), np.zeros(0)))
    of: dict[str, list[Any]] = {"context": batch.contexts, "gpu": batch.gpus, "signature": batch.signatures}
    rows, at = [], 0
    for number in range(columns["minute"].size):
        row = {column: of[column][values[number]] if column in of else values[number].item() for column, values in columns.items()}
        own = slice(at, at + int(row.get("buckets", 0)))
        rows.append({**row, "sketch": dict(zip(bucket[own].tolist(), count[own].tolist(), strict=True))})
        at = own.stop
    return rows


@pytest.mark.parametrize("apart", [True, False], ids=["minute by minute", "all minutes at once"])
@pytest.mark.parametrize("seed", range(4))
def test_sums_are_those_of_the_launches(seed: int, apart: bool, compacts_often: None) -> None:
    made, launches = windows(seed, 60)
    aggregator, sums = Aggregator(), Sums()
    assert all(each.add(window) for window in made for each in (aggregator, sums))
    batch = unpack(pack(make_batch("a", 1, 2, aggregator.take() if apart else [sums.summed()])))

    seen: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    weighed: dict[tuple[Any, ...], float] = defaultdict(float)
    squares: dict[tuple[Any, ...], float] = defaultdict(float)
    for context, gpu, minute, weight, key, durations in launches:
        of_kernel: Counter[str] = Counter()
        for number, duration in zip(key, durations, strict=True):
            of_kernel[SIGNATURES[number].kernel] += duration
        for number, duration in zip(key, durations, strict=True):
            signature = SIGNATURES[number]
            keys: list[tuple[Any, ...]] = [(minute, context, signature), (minute, context, gpu), (minute, context, gpu, signature)]
            for place in keys:
                seen[place].append(duration)
                weighed[place] += weight * duration
            squares[minute, context, signature] += weight * duration * weight * of_kernel[signature.kernel]
            squares[minute, context, gpu] += weight * duration * weight * sum(durations)

    for name, more in (("kernels", ("context", "signature")), ("on_gpus", ("context", "gpu"))):
        rows = [row for row in table(batch, name) if row["launches"]]
        places: list[tuple[Any, ...]] = [tuple(row[column] for column in ("minute", *more)) for row in rows]
        assert len(set(places)) == len(places) and set(places) == {key for key in seen if len(key) == 3 and isinstance(
            key[2], Signature if name == "kernels" else Gpu)}
        for place, row in zip(places, rows, strict=True):
            durations = seen[place]
            assert (row["launches"], row["total_ns"], row["min_ns"], row["max_ns"]) == (
                len(durations), sum(durations), min(durations), max(durations))
            assert row["sketch"] == dict(Counter(bucket_of(np.array(durations)).tolist()))
            assert row["estimate_ns"] == pytest.approx(weighed[place]) and row["square"] == pytest.approx(squares[place])
    for row in table(batch, "on_gpus"):
        own = [each for each in launches if (each[2], each[0], each[1]) == (row["minute"], row["context"], row["gpu"])]
        assert row["windows"] == len(own) and row["wall_ns"] == sum(int(each[3] * 10**9) for each in own)

    on_gpus: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for row in table(batch, "gpu_kernels"):
        durations = seen[row["minute"], row["context"], row["gpu"], row["signature"]]
        assert (row["launches"], row["total_ns"]) == (len(durations), sum(durations))
        assert row["log_sum"] == pytest.approx(float(np.log(durations).sum()))
        on_gpus[row["minute"], row["context"], row["gpu"]].append(sum(durations))
    for where, totals in on_gpus.items():
        largest = sorted((sum(durations) for key, durations in seen.items() if len(key) == 4 and key[:3] == where), reverse=True)
        assert sorted(totals, reverse=True) == largest[:KERNELS_OF_GPU]


def test_a_window_without_launches_counts_as_watched() -> None:
    aggregator = Aggregator()
    aggregator.add(Window(CONTEXTS[0], GPUS[0], 0, 5, 10, KernelSums.of(), 3))
    rows = table(unpack(pack(make_batch("a", 1, 2, aggregator.take()))), "on_gpus")
    assert [(row["windows"], row["observed_ns"], row["wall_ns"], row["rank"], row["launches"], row["sketch"]) for row in rows] == [
        (1, 5, 10, 3, 0, {})]


def test_signatures_and_places_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregate, "MOST_SERIES", 10)
    aggregator = Aggregator(most_places=2)
    sums = sum_durations(np.arange(100), np.full(100, 1000), SIGNATURES)
    assert [aggregator.add(Window(CONTEXTS[0], gpu, 0, 1, 1, sums)) for gpu in (*GPUS, GPUS[0])] == [True, True, False, False, True]
    rows = table(unpack(pack(make_batch("a", 1, 2, aggregator.take()))), "kernels")
    assert len(rows) == 11 and {row["launches"] for row in rows if row["signature"] != REST} == {3}
    assert [row["launches"] for row in rows if row["signature"] == REST] == [3 * 90]
