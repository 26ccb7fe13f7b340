"""What one thread block may use, by compute capability.

Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": maximum shared memory per thread block
(opt-in), 32-bit registers per block, registers per thread, threads per block. The number of SMs comes from the GPU's name.
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024


@dataclass(frozen=True)
class Limits:
    """Limits of one thread block on one GPU."""

    gpu: str
    compute_capability: str
    smem_bytes: int                    # shared memory a block may opt in to
    sms: int
    registers_per_block: int = 65_536
    registers_per_thread: int = 255
    threads: int = 1024

    @property
    def warpgroup_mma(self) -> bool:
        """Hopper's asynchronous tensor-core instruction: it reads both operands from shared memory."""
        return self.compute_capability == "9.0"


_SMEM_KIB = {"7.0": 96, "7.5": 64, "8.0": 163, "8.6": 99, "8.7": 163, "8.9": 99, "9.0": 227, "10.0": 227, "10.3": 227, "12.0": 99}
_GPUS = {    # name in the device's own words -> compute capability, SMs
    "H200": ("9.0", 132), "H100 PCIe": ("9.0", 114), "H100": ("9.0", 132), "GH200": ("9.0", 132), "H20": ("9.0", 78),
    "B200": ("10.0", 148), "GB200": ("10.0", 148), "B300": ("10.3", 148),
    "A100": ("8.0", 108), "A30": ("8.0", 56), "A40": ("8.6", 84), "A10G": ("8.6", 80), "A10": ("8.6", 72), "RTX 3090": ("8.6", 82),
    "L40S": ("8.9", 142), "L40": ("8.9", 142), "L4": ("8.9", 58), "RTX 4090": ("8.9", 128),
    "V100": ("7.0", 80), "T4": ("7.5", 40), "RTX 5090": ("12.0", 170),
}
_UNKNOWN_SMEM_KIB = 48     # what every CUDA GPU gives without opting in


def limits(gpu: str, compute_capability: str | None = None, sms: int | None = None) -> Limits:
    """Limits by the device's name; what the device reports about itself goes before the table."""
    known = next((facts for name, facts in _GPUS.items() if name in gpu.replace("-", " ").split("(")[0]), None)
    capability = compute_capability or (known[0] if known else "")
    smem = _SMEM_KIB.get(capability, _UNKNOWN_SMEM_KIB) * KIB
    return Limits(gpu=gpu, compute_capability=capability, smem_bytes=smem, sms=sms or (known[1] if known else 1))
