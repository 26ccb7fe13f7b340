"""What GPUs can do: one sourced row per model, limits and dense rates per compute capability.

A report's own figures (`…peak_sustained` × measured clock, `device__attribute_*`) always come first: see
`profiles.analysis.roofline`. This table answers where a file says nothing, and for the tuner. All rates are dense:
NVIDIA's headline tensor rates with sparsity are twice as high.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

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

_AMPERE_CONSUMER = {"fp32": 256, "fp64": 4, "fp16_tensor": 1024, "bf16_tensor": 1024, "tf32_tensor": 512, "int8_tensor": 2048}
# Dense operations (a multiply-add is two) per SM and clock. 9.0 as `…sparsity_off.sum.peak_sustained` of an H200 says.
# Source of the others: NVIDIA's architecture white papers (V100, Turing, A100, GA102, AD102, H100, Blackwell).
OPS_PER_SM_CYCLE: dict[str, dict[str, int]] = {
    "7.0": {"fp32": 128, "fp64": 64, "fp16": 256, "fp16_tensor": 1024},
    "7.5": {"fp32": 128, "fp64": 4, "fp16": 256, "fp16_tensor": 1024, "int8_tensor": 2048},
    "8.0": {"fp32": 128, "fp64": 64, "fp16": 512, "fp64_tensor": 128, "tf32_tensor": 1024, "fp16_tensor": 2048,
            "bf16_tensor": 2048, "int8_tensor": 4096},
    "8.6": _AMPERE_CONSUMER, "8.8": _AMPERE_CONSUMER,
    "8.9": {**_AMPERE_CONSUMER, "fp8_tensor": 2048},
    "9.0": {"fp32": 256, "fp64": 128, "fp16": 512, "fp64_tensor": 256, "tf32_tensor": 2048, "fp16_tensor": 4096,
            "bf16_tensor": 4096, "fp8_tensor": 8192, "int8_tensor": 8192},
    "10.0": {"fp32": 256, "tf32_tensor": 4096, "fp16_tensor": 8192, "bf16_tensor": 8192, "fp8_tensor": 16384,
             "fp4_tensor": 32768},
    "12.0": {"fp32": 256, "fp64": 4, "tf32_tensor": 512, "fp16_tensor": 1024, "bf16_tensor": 1024, "fp8_tensor": 2048,
             "fp4_tensor": 4096},
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


def _gpu(name: str, cc: str, sms: int, mhz: float, gb_s: float, l2_mb: float, source: str, **tera: float) -> Gpu:
    return Gpu(name, cc, sms, mhz * 1e6, gb_s * 1e9, int(l2_mb * 2**20), {k: v * 1e12 for k, v in tera.items()}, source)


_V100 = "https://images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf"
_T4 = "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/tesla-t4/t4-tensor-core-datasheet-951643.pdf"
_A100 = ("https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/"
         "nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf")
_A10 = "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a10/pdf/a10-datasheet.pdf"
_A40 = "https://images.nvidia.com/content/Solutions/data-center/a40/nvidia-a40-datasheet.pdf"
_GA102 = "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"
_AD102 = "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf"
_L4 = "https://resources.nvidia.com/en-us-data-center-overview/l4-gpu-datasheet"
_L40S = "https://resources.nvidia.com/en-us-l40s/l40s-datasheet-28413"
_H100 = "https://resources.nvidia.com/en-us-tensor-core/gtc22-whitepaper-hopper"
_H200 = "https://www.nvidia.com/en-us/data-center/h200/"
_GH200 = "https://resources.nvidia.com/en-us-grace-cpu/grace-hopper-superchip"
_B200 = "https://resources.nvidia.com/en-us-blackwell-architecture"
_GB202 = "https://images.nvidia.com/aem-dam/Solutions/geforce/blackwell/nvidia-rtx-blackwell-gpu-architecture.pdf"
_HOPPER = {"fp64": 33.5, "fp64_tensor": 66.9, "fp32": 66.9, "tf32_tensor": 494.7, "fp16_tensor": 989.4,
           "bf16_tensor": 989.4, "fp8_tensor": 1979.0, "int8_tensor": 1979.0}
_A100_PEAKS = {"fp64": 9.7, "fp64_tensor": 19.5, "fp32": 19.5, "tf32_tensor": 156.0, "fp16_tensor": 312.0,
               "bf16_tensor": 312.0, "int8_tensor": 624.0}

GPUS: tuple[Gpu, ...] = (
    _gpu("V100-SXM2", "7.0", 80, 1530, 900, 6, _V100, fp64=7.8, fp32=15.7, fp16_tensor=125),
    _gpu("T4", "7.5", 40, 1590, 320, 4, _T4, fp32=8.1, fp16_tensor=65, int8_tensor=130),
    _gpu("A100-SXM4-80GB", "8.0", 108, 1410, 2039, 40, _A100, **_A100_PEAKS),
    _gpu("A100-SXM4-40GB", "8.0", 108, 1410, 1555, 40, _A100, **_A100_PEAKS),
    _gpu("A100 80GB PCIe", "8.0", 108, 1410, 1935, 40, _A100, **_A100_PEAKS),
    _gpu("A100-PCIE-40GB", "8.0", 108, 1410, 1555, 40, _A100, **_A100_PEAKS),
    _gpu("A10", "8.6", 72, 1695, 600, 6, _A10, fp32=31.2, tf32_tensor=62.5, fp16_tensor=125, bf16_tensor=125, int8_tensor=250),
    _gpu("A40", "8.6", 84, 1740, 696, 6, _A40, fp32=37.4, tf32_tensor=74.8, fp16_tensor=149.7, bf16_tensor=149.7,
         int8_tensor=299.3),
    _gpu("GeForce RTX 3070", "8.6", 46, 1725, 448, 4, _GA102, fp32=20.3, fp16_tensor=81.3, bf16_tensor=40.6, tf32_tensor=20.3),
    _gpu("GeForce RTX 3080", "8.6", 68, 1710, 760, 5, _GA102, fp32=29.8, fp16_tensor=119, bf16_tensor=59.5, tf32_tensor=29.8),
    _gpu("GeForce RTX 3090", "8.6", 82, 1695, 936, 6, _GA102, fp32=35.6, fp16_tensor=142, bf16_tensor=71, tf32_tensor=35.6),
    _gpu("GeForce RTX 4090", "8.9", 128, 2520, 1008, 72, _AD102, fp32=82.6, tf32_tensor=82.6, fp16_tensor=165.2,
         bf16_tensor=165.2, fp8_tensor=330.3, int8_tensor=660.6),
    _gpu("L4", "8.9", 58, 2040, 300, 48, _L4, fp32=30.3, tf32_tensor=60, fp16_tensor=121, bf16_tensor=121, fp8_tensor=242,
         int8_tensor=242),
    _gpu("L40S", "8.9", 142, 2520, 864, 96, _L40S, fp32=91.6, tf32_tensor=183, fp16_tensor=362, bf16_tensor=362, fp8_tensor=733,
         int8_tensor=733),
    _gpu("H100 80GB HBM3", "9.0", 132, 1830, 3352, 50, _H100, **_HOPPER),
    _gpu("H100 SXM5", "9.0", 132, 1830, 3352, 50, _H100, **_HOPPER),
    _gpu("H100 PCIe", "9.0", 114, 1755, 2039, 50, _H100, fp64=25.6, fp64_tensor=51.2, fp32=51.2, tf32_tensor=378,
         fp16_tensor=756, bf16_tensor=756, fp8_tensor=1513, int8_tensor=1513),
    _gpu("H200", "9.0", 132, 1830, 4800, 50, _H200, **_HOPPER),
    _gpu("GH200 120GB", "9.0", 132, 1830, 4000, 50, _GH200, **_HOPPER),
    _gpu("B200", "10.0", 148, 1965, 8000, 126, _B200, fp32=75, tf32_tensor=1125, fp16_tensor=2250, bf16_tensor=2250,
         fp8_tensor=4500, fp4_tensor=9000),
    _gpu("GeForce RTX 5090", "12.0", 170, 2407, 1792, 96, _GB202, fp32=104.8, tf32_tensor=104.8, fp16_tensor=209.5,
         bf16_tensor=209.5, fp8_tensor=419, int8_tensor=838),
)


def _key(name: str) -> str:
    """'NVIDIA A100-SXM4-80GB' and 'a100 sxm4 80gb' are one name."""
    words = re.split(r"[^a-z0-9]+", name.lower())
    return " ".join(w for w in words if w and w not in ("nvidia", "tesla", "gpu"))


@lru_cache(maxsize=256)
def lookup(name: str) -> Gpu | None:
    """The row of a device by the name its driver gives it, or None: a near miss (A10G for A10) is no match."""
    wanted = _key(name)
    return next((gpu for gpu in GPUS if _key(gpu.name) == wanted), None)


def limits(compute_capability: str | None) -> Limits | None:
    return LIMITS.get(compute_capability or "")


def ops_per_sm_cycle(compute_capability: str | None, precision: str) -> int | None:
    """Dense operations per SM and clock, None where unknown."""
    return OPS_PER_SM_CYCLE.get(compute_capability or "", {}).get(precision)
