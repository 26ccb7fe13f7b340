"""What the fields of `dcgmi dmon` are: their words, the unit that dcgmi does not print, and how a mean reads.

Names and units: dcgm_fields.h and dcgm_fields.cpp of NVIDIA/DCGM. Bands with their sources: `ingest.naming.bands`.
"""

from __future__ import annotations

from typing import NamedTuple

from profiles.ingest.naming.bands import BANDS

NO_BAND = "no guide calls a value of it good or bad"


class Field(NamedTuple):
    """A field. `band`: of BANDS, that calls its mean, a share from 0 to 1 where it has no unit; "idle" calls what is left of it."""

    words: str
    unit: str = ""
    band: str = ""


FIELDS: dict[str, Field] = {
    "GRACT": Field("graphics or compute engine busy", band="idle"),
    "SMACT": Field("SM active: at least one warp resident", band="sm_active"),
    "SMOCC": Field("SM occupancy: warps resident of those possible"), "TENSO": Field("tensor pipes active", band="tensor"),
    "DRAMA": Field("device memory sending or receiving", band="dram"), "FP64A": Field("FP64 pipe active", band="unit"),
    "FP32A": Field("FP32 pipe active (FMA)", band="unit"), "FP16A": Field("FP16 pipe active", band="unit"),
    "INTAC": Field("integer pipe active", band="unit"), "TIMMA": Field("tensor pipes, integer products", band="tensor"),
    "THMMA": Field("tensor pipes, half-precision products", band="tensor"),
    "TDFMA": Field("tensor pipes, double-precision products", band="tensor"),
    "PCITX": Field("sent over PCIe", "B/s"), "PCIRX": Field("received over PCIe", "B/s"),
    "NVLTX": Field("sent over NVLink", "B/s"), "NVLRX": Field("received over NVLink", "B/s"),
    "TMPTR": Field("temperature of the GPU", "C"), "MMTMP": Field("temperature of the memory", "C"),
    "POWER": Field("power drawn", "W"), "TOTEC": Field("energy since the driver was loaded", "mJ"),
    "SMCLK": Field("SM clock", "MHz"), "MMCLK": Field("memory clock", "MHz"),
    "GPUTL": Field("a kernel ran (nvidia-smi's utilisation: says nothing of how many SMs)", "%", "idle"),
    "MCUTL": Field("memory was read or written", "%"), "FBUSD": Field("memory used", "MiB"), "FBFRE": Field("memory free", "MiB"),
    "FBTTL": Field("memory in all", "MiB"), "XIDER": Field("last XID error"),
}


def reading_of(name: str, mean: float | None) -> str:
    """Return how the mean of a field reads; NO_BAND where none calls it, "" where it is unknown or no such value."""
    field = FIELDS.get(name)
    if field is None or mean is None:
        return ""
    if name == "XIDER":
        return "no error" if mean == 0 else "the driver reported an error: look its number up in NVIDIA's list of XID errors"
    if not field.band:
        return NO_BAND
    pct = mean if field.unit == "%" else 100.0 * mean
    if not 0 <= pct <= 100.1:
        return ""
    return BANDS[field.band].reading(max(0.0, 100.0 - pct) if field.band == "idle" else pct)
