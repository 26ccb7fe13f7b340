"""The readings in Prometheus' text format, with the histograms of jobs and what a process counted itself."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import accumulate

import redis
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from workers.metrics.durations import BUCKETS, durations
from workers.metrics.facts import FAMILIES, Readings, readings

log = logging.getLogger(__name__)


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
