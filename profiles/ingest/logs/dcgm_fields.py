"""What the fields of `dcgmi dmon` are: their words, the unit that dcgmi does not print, and how a mean reads.

Names and units: dcgm_fields.h and dcgm_fields.cpp of NVIDIA/DCGM. Bands of SM activity: DCGM's user guide, "Profiling metrics"
(0.8 and more is necessary for effective use, less than 0.5 likely ineffective); of the tensor pipes and of device memory: those
that public guides use (10, 30 and 50 %; 30, 60 and 80 %).
"""

from __future__ import annotations

from typing import NamedTuple


class Field(NamedTuple):
    """A field. `bands`: (least mean, how it reads), ascending, of a share from 0 to 1."""

    words: str
    unit: str = ""
    bands: tuple[tuple[float, str], ...] = ()


_SM = ((0.0, "low: the SMs idle more than half of the time"), (0.5, "moderate: below what effective use needs (80 %)"),
       (0.8, "high: enough for effective use, not yet a proof of it"))
_TENSOR = ((0.0, "hardly used: below 10 %"), (0.1, "low"), (0.3, "moderate"), (0.5, "high: bound by matrix products"))
_MEMORY = ((0.0, "low"), (0.3, "moderate"), (0.6, "high"), (0.8, "at its roof: bound by device memory"))
FIELDS: dict[str, Field] = {
    "GRACT": Field("graphics or compute engine busy"), "SMACT": Field("SM active: at least one warp resident", bands=_SM),
    "SMOCC": Field("SM occupancy: warps resident of those possible"), "TENSO": Field("tensor pipes active", bands=_TENSOR),
    "DRAMA": Field("device memory sending or receiving", bands=_MEMORY), "FP64A": Field("FP64 pipe active"),
    "FP32A": Field("FP32 pipe active (FMA)"), "FP16A": Field("FP16 pipe active"), "INTAC": Field("integer pipe active"),
    "TIMMA": Field("tensor pipes, integer products"), "THMMA": Field("tensor pipes, half-precision products"),
    "TDFMA": Field("tensor pipes, double-precision products"),
    "PCITX": Field("sent over PCIe", "B/s"), "PCIRX": Field("received over PCIe", "B/s"),
    "NVLTX": Field("sent over NVLink", "B/s"), "NVLRX": Field("received over NVLink", "B/s"),
    "TMPTR": Field("temperature of the GPU", "C"), "MMTMP": Field("temperature of the memory", "C"),
    "POWER": Field("power drawn", "W"), "TOTEC": Field("energy since the driver was loaded", "mJ"),
    "SMCLK": Field("SM clock", "MHz"), "MMCLK": Field("memory clock", "MHz"),
    "GPUTL": Field("a kernel ran (nvidia-smi's utilisation: says nothing of how many SMs)", "%"),
    "MCUTL": Field("memory was read or written", "%"), "FBUSD": Field("memory used", "MiB"), "FBFRE": Field("memory free", "MiB"),
    "FBTTL": Field("memory in all", "MiB"), "XIDER": Field("last XID error"),
}


def reading_of(name: str, mean: float | None) -> str:
    """Return how the mean of a field reads; "" where nothing is said of it."""
    field = FIELDS.get(name)
    if field is None or not field.bands or mean is None or not 0 <= mean <= 1.001:
        return ""
    return next(text for least, text in reversed(field.bands) if mean >= least)
