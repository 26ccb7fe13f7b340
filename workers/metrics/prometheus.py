"""The readings in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from workers.metrics.facts import FAMILIES, Readings, readings


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


def exposition(accept: str = "") -> tuple[bytes, str]:
    """Return the text and its content type, as what a scraper accepts asks for it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ReadingsCollector(readings()))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type
