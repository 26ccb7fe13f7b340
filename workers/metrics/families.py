"""What a metric is: a name, its labels and unit; and a reading of one."""

from __future__ import annotations

from dataclasses import dataclass

LABEL_CHARS = 80
Labels = tuple[str, ...]
Reading = tuple[str, Labels, float]


@dataclass(frozen=True)
class Family:
    """One metric. `name` as Prometheus has it; `unit` as UCUM, for OpenTelemetry."""

    name: str
    help: str
    labels: Labels = ()
    unit: str = "1"


def label(text: str) -> str:
    """A label's value: bounded, never empty."""
    return text[:LABEL_CHARS] or "unknown"
