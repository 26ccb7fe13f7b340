"""The readings in Prometheus' text format, with the histograms of jobs and what a process counted itself."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

import redis
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from workers import jobs
from workers.metrics.facts import FAMILIES, Readings, readings

# How long jobs took and how they ended: counted in Valkey, because a task's process ends with it.
#
# Lost with Valkey's data, which a scraper sees as any counter that begins anew.

log = logging.getLogger(__name__)
KEY = "ridgepoint:job-seconds"
BUCKETS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0)       # s
SERIES = 200                # tasks × endings that are told


@dataclass(frozen=True)
class Durations:
    """One task and ending: `counts` jobs by bucket, the last one above all of BUCKETS."""

    task: str
    status: str
    counts: tuple[int, ...]
    sum_s: float


def count_job(task: str, status: str, seconds: float) -> None:
    """Count a job that ended. Best effort: Valkey may be away."""
    name = f"{task}:{status}"
    try:
        with jobs.connection().pipeline() as batch:
            batch.hincrby(KEY, f"{name}:{bisect_left(BUCKETS, seconds)}", 1)
            batch.hincrbyfloat(KEY, f"{name}:sum", round(seconds, 3))
            batch.execute()
    except redis.RedisError as error:
        log.warning("a job's duration was not counted: %s", error)


def durations() -> Iterator[Durations]:
    """Return what was counted, by task and ending."""
    values_by_key: dict[tuple[str, str], dict[str, float]] = {}
    for key, value in jobs.connection().hgetall(KEY).items():
        task, status, what = str(key, "utf-8").split(":") if isinstance(key, bytes) else key.split(":")
        values_by_key.setdefault((task, status), {})[what] = float(value)
    for (task, status), values in sorted(values_by_key.items())[:SERIES]:
        counts = tuple(int(values.get(str(index), 0)) for index in range(len(BUCKETS) + 1))
        yield Durations(task, status, counts, values.get("sum", 0.0))


class ReadingsCollector(Collector):
    """Every family as a gauge, those without a value too: a dashboard finds each name."""

    def __init__(self, read: Readings) -> None:
        self.read = read

    def collect(self) -> Iterable[Metric]:
        for family in FAMILIES:
            metric = GaugeMetricFamily(family.name, family.help, labels=family.labels)
            for labels, value in self.read.of(family.name).items():
                metric.add_metric(labels, value)
            yield metric


class JobsCollector(Collector):
    """How long jobs took, of all workers."""

    def collect(self) -> Iterable[Metric]:
        metric = HistogramMetricFamily("ridgepoint_job_seconds", "Jobs that ended, by task and how", labels=("task", "status"))
        try:
            for each in durations():
                edges = [*map(str, BUCKETS), "+Inf"]
                metric.add_metric((each.task, each.status), list(zip(edges, accumulate(each.counts), strict=True)), each.sum_s)
        except redis.RedisError as error:
            log.warning("metrics of jobs were not read: %s", error)
        yield metric


def exposition(accept: str = "", also: Iterable[CollectorRegistry] = ()) -> tuple[bytes, str]:
    """Return the text and its content type, as what a scraper accepts asks for it; `also`: what this process counted."""
    registry = CollectorRegistry(auto_describe=False)
    for collector in (ReadingsCollector(readings()), JobsCollector(), *also):
        registry.register(collector)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type
