"""Traces by OpenTelemetry: a span for each request and each job, where a collector is named (OTEL_EXPORTER_OTLP_ENDPOINT).

The SDK's own exporter reads the OTEL_… variables. A job's span is a child of that of the request which enqueued it. Without a
collector nothing is imported and nothing is done.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
FLUSH_MS = 3000
Attributes = dict[str, str | int | float]


def is_on() -> bool:
    """Return whether a collector is named."""
    return any(os.environ.get(name) for name in ENDPOINTS)


@contextmanager
def span(name: str, kind: str, carrier: Mapping[str, str], attributes: Attributes) -> Iterator[Any]:
    """Record what runs inside, as a child of what `carrier` (headers, W3C traceparent) names.

    Yields the span, None without a collector. kind: "SERVER" for requests, "CONSUMER" for jobs.
    """
    if not is_on():
        yield None
        return
    from opentelemetry.propagate import extract
    from opentelemetry.trace import SpanKind

    tracer = _provider(os.getpid()).get_tracer("ridgepoint")
    with tracer.start_as_current_span(name, extract(carrier), SpanKind[kind], attributes) as recorded:
        yield recorded


def carried() -> dict[str, str]:
    """Return the headers that name the span that is recorded now; none without one."""
    carrier: dict[str, str] = {}
    if is_on():
        from opentelemetry.propagate import inject

        inject(carrier)
    return carrier


def flush() -> None:
    """Send what was recorded, before this process ends; a collector that is away holds it up for 3 s."""
    if is_on():
        _provider(os.getpid()).force_flush(FLUSH_MS)


@lru_cache(maxsize=1)
def _provider(pid: int) -> TracerProvider:
    """Return the provider of this process: a fork has none of its parent's threads."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "ridgepoint")}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
