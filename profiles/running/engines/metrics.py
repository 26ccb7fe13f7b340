"""What a serving engine's own metrics say: requests, latencies and time per output token, from Prometheus text.

Names: vllm/v1/metrics/loggers.py (0.33.0), sglang/srt/observability/metrics_collector.py (0.5.23). Series of all labels are
added."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

PATH = "/metrics"
MOST_BYTES = 8 << 20
LATENCIES = {
    "vllm": {"e2e": "vllm:e2e_request_latency_seconds", "ttft": "vllm:time_to_first_token_seconds"},
    "sglang": {"e2e": "sglang:e2e_request_latency_seconds", "ttft": "sglang:time_to_first_token_seconds"}}
TOKENS = {"vllm": "vllm:inter_token_latency_seconds", "sglang": "sglang:inter_token_latency_seconds"}
REQUESTS = {"vllm": "vllm:request_success_total", "sglang": "sglang:num_requests_total"}
NO_METRICS = {"vllm": "its /metrics hold no such series", "sglang": "SGLang has metrics only with --enable-metrics"}
_LINE = re.compile(r'([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+([^\s{}]+)(?:\s+-?\d+)?')
_EDGE = re.compile(r'(?:^|,)\s*le="([^"]*)"')


@dataclass
class Histogram:
    """`buckets`: upper edge in s -> how many were at most so long."""

    buckets: dict[float, float] = field(default_factory=dict)
    total_s: float = 0.0
    count: float = 0.0


@dataclass(frozen=True)
class Reading:
    histograms: Mapping[str, Histogram]
    counters: Mapping[str, float]

    def requests(self, kind: str) -> float | None:
        """Return how many requests the engine has served, None where it does not say."""
        return self.counters.get(REQUESTS[kind])


def read_metrics(text: str, kind: str) -> Reading:
    """Return the series that are asked about; lines that are none, and numbers that are not finite, are left out."""
    wanted = {*LATENCIES[kind].values(), TOKENS[kind]}
    histograms: dict[str, Histogram] = {}
    counters: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#") or not (found := _LINE.fullmatch(line.strip())):
            continue
        name, labels, value = found[1], found[2] or "", _number(found[3])
        if value is None or value < 0:
            continue
        base, _, part = name.rpartition("_")
        if name == REQUESTS[kind]:
            counters[name] = counters.get(name, 0.0) + value
        elif base in wanted:
            own = histograms.setdefault(base, Histogram())
            edge = _EDGE.search(labels) if part == "bucket" else None
            upper = _number(edge[1], True) if edge else None
            if upper is not None:
                own.buckets[upper] = own.buckets.get(upper, 0.0) + value
            elif part == "sum":
                own.total_s += value
            elif part == "count":
                own.count += value
    return Reading(histograms, counters)


def edge_of(histogram: Histogram, threshold_s: float) -> float | None:
    """Return the bucket's edge from which on requests count as slow: the first that is no less. None above the last."""
    return min((each for each in histogram.buckets if each >= threshold_s and math.isfinite(each)), default=None)


def slow_between(before: Histogram, now: Histogram, edge_s: float) -> float:
    """Return how many requests ended between two readings and took longer than an edge; 0 where the engine was started anew."""
    ended = now.count - before.count
    return max(0.0, ended - (now.buckets.get(edge_s, 0.0) - before.buckets.get(edge_s, 0.0))) if ended > 0 else 0.0


def tokens_between(before: Reading, now: Reading, kind: str) -> tuple[int, float] | None:
    """Return (output tokens, their time in ms) between two readings; None where none came."""
    first, last = before.histograms.get(TOKENS[kind]), now.histograms.get(TOKENS[kind])
    if first is None or last is None or last.count <= first.count or last.total_s <= first.total_s:
        return None
    return int(last.count - first.count), 1e3 * (last.total_s - first.total_s)


def _number(text: str, infinite: bool = False) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) or (infinite and value == math.inf) else None
