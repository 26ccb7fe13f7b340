"""Reading counters: names to numbers, elapsed cycles and clocks. A metric that was not collected is None, never 0."""

from __future__ import annotations

from collections.abc import Mapping

Metrics = Mapping[str, float | str]
DURATION = "gpu__time_duration.sum"


def number(metrics: Metrics, *names: str) -> float | None:
    """The first of these metrics that holds a number."""
    for name in names:
        value = metrics.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    return None


def elapsed_cycles(metrics: Metrics) -> float | None:
    """Elapsed SM cycles of the launch."""
    cycles = number(metrics, "smsp__cycles_elapsed.avg", "sm__cycles_elapsed.avg", "sm__cycles_elapsed.max")
    if cycles is not None:
        return cycles
    clock, duration = sm_clock(metrics), number(metrics, DURATION)
    return None if clock is None or duration is None else clock * duration * 1e-9


def sm_clock(metrics: Metrics) -> float | None:
    """Mean SM clock during the measurement, Hz."""
    return number(metrics, "smsp__cycles_elapsed.avg.per_second", "sm__cycles_elapsed.avg.per_second",
                  "gpc__cycles_elapsed.avg.per_second")


def dram_bytes(metrics: Metrics) -> float | None:
    """Return the bytes read from and written to device memory."""
    read_bytes, write = number(metrics, "dram__bytes_read.sum"), number(metrics, "dram__bytes_write.sum")
    if read_bytes is not None and write is not None:
        return read_bytes + write
    total = number(metrics, "dram__bytes.sum")
    if total is not None:
        return total
    rate, duration = number(metrics, "dram__bytes.sum.per_second"), number(metrics, DURATION)
    return None if rate is None or duration is None else rate * duration * 1e-9
