"""The readings to an OpenTelemetry collector: OTLP over HTTP, by the SDK's own exporter, which reads the OTEL_… variables.

Off unless OTEL_EXPORTER_OTLP_ENDPOINT (or …_METRICS_ENDPOINT) names a collector. One worker sends for all of them; a collector
that is away holds up nothing: a thread of its own waits for it, and the next turn is skipped while it does.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from django.db import connections

from workers import jobs
from workers.metrics.facts import FAMILIES, Family, readings

if TYPE_CHECKING:       # the SDK is imported where a collector is named: other workers are spared it
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics import MeterProvider

log = logging.getLogger(__name__)
ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"            # ms, as the SDK's own reader takes it
DEFAULT_INTERVAL_MS, LEAST_INTERVAL_MS = 60_000, 1_000
FLUSH_MS = 30_000
_TURN_KEY = "ridgepoint:otlp"
_sending = threading.Lock()
_provider: MeterProvider | None = None


def is_on() -> bool:
    """Return whether a collector is named."""
    return any(os.environ.get(name) for name in ENDPOINTS)


def interval_ms() -> int:
    """Return how often readings are sent."""
    text = os.environ.get(INTERVAL, "")
    return max(LEAST_INTERVAL_MS, int(text)) if text.isdecimal() else DEFAULT_INTERVAL_MS


def send_when_due() -> bool:
    """Send in a thread where it is time and no other worker does; return whether it began. Called by the workers' sweep."""
    if not is_on() or _sending.locked() or not jobs.take_turn(_TURN_KEY, interval_ms()):
        return False
    readings()          # here, so that the thread asks no database: the process may fork while it sends
    threading.Thread(target=_send_quietly, name="otlp", daemon=True).start()
    return True


def _send_quietly() -> None:
    try:
        if not send():
            log.warning("OpenTelemetry: the collector did not take the metrics; trying again in %d s", interval_ms() // 1000)
    except Exception as error:
        log.warning("OpenTelemetry: %s: %s", type(error).__name__, error)
    finally:
        connections.close_all()


def send() -> bool:
    """Send the readings now; False where the collector did not take them."""
    global _provider
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    with _sending:
        if _provider is None:
            # no thread of the reader's own: the sweep says when, and one worker of all
            reader = PeriodicExportingMetricReader(OTLPMetricExporter(), export_interval_millis=math.inf)
            _provider = make_provider(reader)
        return bool(_provider.force_flush(FLUSH_MS))


def make_provider(reader: Any) -> MeterProvider:
    """Return a provider with a gauge for each family, read when it is collected."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource

    provider = MeterProvider([reader], Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "ridgepoint")}),
                             shutdown_on_exit=False)
    meter = provider.get_meter("ridgepoint")
    for family in FAMILIES:
        meter.create_observable_gauge(family.name, [_observe(family)], family.unit, family.help)
    return provider


def _observe(family: Family) -> Callable[[CallbackOptions], Iterable[Observation]]:
    from opentelemetry.metrics import Observation

    def observe(_: CallbackOptions) -> Iterable[Observation]:
        return [Observation(value, dict(zip(family.labels, labels, strict=True)))
                for labels, value in readings().of(family.name).items()]
    return observe
