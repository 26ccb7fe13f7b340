"""What GPUs can do: one sourced row per model (data/gpus.json, versioned), limits and dense rates per compute capability.

A report's own figures (`…peak_sustained` × measured clock, `device__attribute_*`) always come first: see
`profiles.analysis.kernel.roofline`. This table answers where a file says nothing, and for the tuner. All rates are dense:
NVIDIA's headline tensor rates with sparsity are twice as high.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

# What work is counted in. Scalar pipes first, then the tensor pipe by operand type. Order is the order of legends.
PRECISIONS = {
    "fp64": "FP64",
    "fp32": "FP32",
    "fp16": "FP16",
    "fp64_tensor": "FP64 tensor",
    "tf32_tensor": "TF32 tensor",
    "fp16_tensor": "FP16 tensor",
    "bf16_tensor": "BF16 tensor",
    "fp8_tensor": "FP8 tensor",
    "fp6_tensor": "FP6 tensor",
    "fp4_tensor": "FP4 tensor",
    "int8_tensor": "INT8 tensor",
    "int4_tensor": "INT4 tensor",
    "int1_tensor": "INT1 tensor",
}


@dataclass(frozen=True)
class Limits:
    """What one SM of a compute capability holds. Bytes, counts; registers are 32-bit."""

    smem_bytes_per_sm: int
    blocks_per_sm: int
    warps_per_sm: int
    smem_bytes_per_block: int            # opt-in maximum
    smem_reserved_bytes_per_block: int   # by the driver
    smem_unit_bytes: int                 # allocation granularity
    registers_per_sm: int = 65_536
    registers_per_thread: int = 255
    register_unit: int = 256             # registers are given to a warp in these steps
    warp_unit: int = 4                   # an SM's warps are counted in these steps when registers are shared out
    threads_per_block: int = 1024
    warp_threads: int = 32
    barriers_per_slot: int = 0           # hardware barriers of an SM, per block that it can hold; 0 = they never limit

    @property
    def barriers_per_sm(self) -> int:
        return self.barriers_per_slot * self.blocks_per_sm


def _limits(smem_kib: int, blocks: int, warps: int, optin_kib: int, *, volta: bool = False, barriers: int = 0) -> Limits:
    return Limits(smem_kib * 1024, blocks, warps, optin_kib * 1024, 0 if volta else 1024, 256 if volta else 128,
                  barriers_per_slot=barriers)


# Source: NVIDIA/cccl libcudacxx/include/cuda/__device/arch_traits.h (Apache-2.0 WITH LLVM-exception) and the CUDA C++
# Programming Guide, "Technical Specifications per Compute Capability":
# https://docs.nvidia.com/cuda/cuda-c-programming-guide/#features-and-technical-specifications
# Barriers: NVIDIA's occupancy calculator (cuda_occupancy.h of CUDA 12.9), cudaOccMaxBlocksPerSMBlockBarrierLimit, from 9.0 on.
LIMITS: dict[str, Limits] = {
    "7.0": _limits(96, 32, 64, 96, volta=True), "7.5": _limits(64, 16, 32, 64, volta=True),
    "8.0": _limits(164, 32, 64, 163), "8.6": _limits(100, 16, 48, 99), "8.7": _limits(164, 16, 48, 163),
    "8.8": _limits(100, 16, 48, 99), "8.9": _limits(100, 24, 48, 99),
    "9.0": _limits(228, 32, 64, 227, barriers=2), "10.0": _limits(228, 32, 64, 227, barriers=2),
    "10.3": _limits(228, 32, 64, 227, barriers=2), "11.0": _limits(228, 24, 48, 227, barriers=1),
    "12.0": _limits(100, 24, 48, 99, barriers=1), "12.1": _limits(100, 24, 48, 99, barriers=1),
}


@dataclass(frozen=True)
class Gpu:
    """One model as its maker states it. Peaks are dense operations per second at `boost_hz`."""

    name: str
    compute_capability: str
    sm_count: int
    boost_hz: float
    dram_bytes_s: float
    l2_bytes: int
    peaks: dict[str, float]              # precision -> operations per second
    source: str                          # URL

    @property
    def limits(self) -> Limits:
        return LIMITS[self.compute_capability]

    @property
    def host_link_bytes_s(self) -> float | None:
        """Return the rate of its link to the host in one direction that nothing exceeds; None where it is no PCIe link.

        16 lanes of 8, 16 or 32 GT/s, 128 of 130 bits (PCI Express Base Specification 3.0 to 5.0, "Physical Layer").
        """
        if not re.fullmatch(r"[\d.]+", self.compute_capability) or re.match(r"GB|GH", self.name):
            return None
        generation = 3 if float(self.compute_capability) < 8 else 4 if float(self.compute_capability) < 9 else 5
        return 16 * 2.0 ** (generation - 3) * 8e9 / 8 * 128 / 130

    def peak_clock_hz(self, precision: str) -> float:
        """Return the SM clock that the data sheet's peak stands for.

        peak / (SMs × rate per SM and clock), else the boost clock.

        H100's and H200's data sheets count the tensor cores at 1830 MHz and the other pipes at 1980 MHz.
        """
        rate = ops_per_sm_cycle(self.compute_capability, precision)
        implied = self.peaks[precision] / (rate * self.sm_count) if rate and precision in self.peaks else self.boost_hz
        return implied if 0.85 < implied / self.boost_hz < 1.15 else self.boost_hz


def _gpu(row: dict[str, Any], sources: dict[str, str]) -> Gpu:
    return Gpu(row["name"], row["compute_capability"], int(row["sm_count"]), row["boost_mhz"] * 1e6, row["dram_gb_s"] * 1e9,
               int(row["l2_mib"] * 2**20), {name: value * 1e12 for name, value in row["tera_per_s"].items()},
               sources[row["source"]])


_FILE = json.loads((Path(__file__).parent / "data" / "gpus.json").read_text())
VERSION: str = _FILE["version"]              # of the table; pages say it beside every data-sheet figure
GPUS: tuple[Gpu, ...] = tuple(_gpu(row, _FILE["sources"]) for row in _FILE["gpus"])
# Peaks alone: occupancy limits and rates per clock are not known of these (AMD: its compute units count as SMs, its Infinity
# Cache as L2, its matrix cores as tensor cores).
OTHERS: tuple[Gpu, ...] = tuple(_gpu(row, _FILE["sources"]) for row in _FILE["others"])
# Dense operations (a multiply-add is two) per SM and clock.
OPS_PER_SM_CYCLE: dict[str, dict[str, int]] = _FILE["ops_per_sm_cycle"]["rates"]


def key(name: str) -> str:
    """'NVIDIA A100-SXM4-80GB' and 'a100 sxm4 80gb' are one name."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    return " ".join(w for w in words if w and w not in ("nvidia", "tesla", "gpu"))


@lru_cache(maxsize=256)
def lookup(name: str) -> Gpu | None:
    """Return the row of a device by the name its driver gives it, or None.

    A near miss (A10G for A10) is no match.
    """
    gpu_key = key(name)
    return next((gpu for gpu in GPUS if key(gpu.name) == gpu_key), None)


@lru_cache(maxsize=256)
def peaks_of(name: str) -> Gpu | None:
    """Return the row whose peaks hold for a device, of GPUS or of OTHERS, or None."""
    gpu_key = key(name)
    return lookup(name) or next((gpu for gpu in OTHERS if key(gpu.name) == gpu_key), None)


def limits(compute_capability: str | None) -> Limits | None:
    return LIMITS.get(compute_capability or "")


def ops_per_sm_cycle(compute_capability: str | None, precision: str) -> int | None:
    """Dense operations per SM and clock, None where unknown."""
    return OPS_PER_SM_CYCLE.get(compute_capability or "", {}).get(precision)


# Which roof lies over work: the one classification by a roofline, of counted launches and of dimensions alike.

MEMORY, COMPUTE = "memory", "compute"


def roof_side(intensity: float | None, ridge: float | None) -> str:
    """Return the roof that is lower at an intensity (FLOP per byte), "" where one of the two is not known.

    `ridge`: the intensity at which memory and arithmetic take as long (Williams, Waterman, Patterson, CACM 52(4), 2009).
    """
    if intensity is None or ridge is None:
        return ""
    return MEMORY if intensity < ridge else COMPUTE
