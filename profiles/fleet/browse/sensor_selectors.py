"""What the sensors of a GPU said in a window, beside the median of its model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from profiles.fleet.slow.gpu_selectors import GpuRow
from profiles.fleet.store import Question, Window
from profiles.fleet.stores import fleet_store
from profiles.fleet.tables import BY_NAME, EVENTS, TELEMETRY
from profiles.models import FleetGpu

MINUTE_S = 60.0
DRAWN = 12                              # slow GPUs that are shown one by one
# column -> (label, unit)
SENSORS: dict[str, tuple[str, str]] = {
    "sm_mhz": ("SM clock", "MHz"), "memory_mhz": ("memory clock", "MHz"), "temperature_c": ("temperature", "°C"),
    "power_w": ("power", "W"), "throttle_pct": ("throttled", "%"), "thermal_pct": ("thermal slowdown", "%"),
    "xid_errors": ("XID errors", ""), "ecc_errors": ("ECC errors", "")}
Means = Mapping[str, float | None]


@dataclass(frozen=True)
class Sensor:
    """One sensor of one GPU. `median` of all GPUs of its model that tell it; None is unknown."""

    name: str
    label: str
    unit: str
    value: float | None
    median: float | None

    @property
    def text(self) -> str:
        return _text(self.value, self.unit)

    @property
    def median_text(self) -> str:
        return _text(self.median, self.unit)


@dataclass(frozen=True)
class GpuLine:
    row: GpuRow
    sensors: list[Sensor]

    @property
    def minutes_known(self) -> bool:
        return any(sensor.value is not None for sensor in self.sensors)


def _text(value: float | None, unit: str) -> str:
    if value is None:
        return "—"
    digits = 1 if unit == "%" and 0 < value < 10 else 0
    return f"{value:,.{digits}f} {unit}".strip()


def means_of(sums: Mapping[str, float], names: Sequence[str] = TELEMETRY) -> dict[str, float | None]:
    """Return means of a row of `FleetStore.telemetry`, with all sensors its events too; None where no minute knew it."""
    out: dict[str, float | None] = {
        name: sums[f"sum_{name}"] / sums[f"n_{name}"] if sums[f"n_{name}"] else None for name in names}
    if names != TELEMETRY:
        return out
    out |= {name: sums[name] if sums[f"n_{name}"] else None for name in EVENTS}
    for name in ("throttle", "thermal"):
        seconds, minutes = sums[f"{name}_s"], sums[f"n_{name}_s"]
        out[f"{name}_pct"] = min(100.0, 100.0 * seconds / (minutes * MINUTE_S)) if minutes else None
    return out


def telemetry_by_gpu(window: Window, gpus: Sequence[int] | None = None,
                     names: Sequence[str] = TELEMETRY) -> dict[int, dict[str, float | None]]:
    """Return GPU -> means over a window, with all sensors their events too; GPUs without a minute are left out."""
    question = Question(window, "gpu", {} if gpus is None else {"gpu": list(gpus)}, None)
    columns = [f"{part}_{name}" for name in names for part in ("sum", "n")]
    columns = list(BY_NAME["telemetry"].sums) if names == TELEMETRY else columns
    sums: dict[int, dict[str, float]] = {}
    for _, gpu, values in fleet_store().telemetry(question, None, columns):
        before = sums.get(gpu)
        sums[gpu] = values if before is None else {name: before[name] + value for name, value in values.items()}
    return {gpu: means_of(values, names) for gpu, values in sums.items()}


def known_median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def gpu_lines(window: Window, rows: Sequence[GpuRow]) -> list[GpuLine]:
    """Return GPUs with their sensors over a window, beside the medians of all GPUs of their models."""
    if not rows:
        return []
    means = telemetry_by_gpu(window)
    gpus = {(uuid, host): pk for pk, uuid, host in
            FleetGpu.objects.filter(uuid__in=[row.gpu_uuid for row in rows]).values_list("id", "uuid", "host")}
    of_model: dict[str, list[int]] = defaultdict(list)
    for gpu, model in FleetGpu.objects.values_list("id", "model"):
        if gpu in means:
            of_model[model].append(gpu)
    medians = {model: {name: known_median(means[gpu][name] for gpu in of_model[model]) for name in SENSORS}
               for model in {row.gpu_model for row in rows}}
    lines = []
    for row in rows:
        mine = means.get(gpus.get((row.gpu_uuid, row.host), -1), {})
        beside = medians[row.gpu_model]
        lines.append(GpuLine(row, [Sensor(name, label, unit, mine.get(name), beside.get(name))
                                   for name, (label, unit) in SENSORS.items()]))
    return lines
