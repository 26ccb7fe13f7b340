"""Limits of a thread block per GPU, from profiles.analysis.core.gpus and the device itself."""

from __future__ import annotations

from dataclasses import dataclass

from profiles.analysis.core import gpus

_UNKNOWN_SMEM_BYTES = 48 * 1024     # what every CUDA GPU gives a block that does not opt in to more


@dataclass(frozen=True)
class Limits:
    """Limits of one thread block on one GPU."""

    gpu: str
    compute_capability: str
    smem_bytes: int                    # shared memory a block may opt in to
    sms: int
    registers_per_thread: int = 255
    threads: int = 1024

    @property
    def capability(self) -> tuple[int, int]:
        """Return (9, 0) for "9.0"; (0, 0) when it is not known."""
        major, _, minor = self.compute_capability.partition(".")
        return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)

    @property
    def warpgroup_mma(self) -> bool:
        """Return whether the GPU has Hopper's tensor-core instruction on shared-memory operands."""
        return self.compute_capability == "9.0"


def limits(gpu: str, compute_capability: str | None = None, sms: int | None = None) -> Limits:
    """Return limits by the device's name; what the device reports goes before the table."""
    model = gpus.lookup(gpu)
    capability = compute_capability or (model.compute_capability if model else "")
    sm_count = sms or (model.sm_count if model else 1)
    gpu_limits = gpus.limits(capability)
    if gpu_limits is None:
        return Limits(gpu, capability, _UNKNOWN_SMEM_BYTES, sm_count)
    return Limits(gpu, capability, gpu_limits.smem_bytes_per_block, sm_count, gpu_limits.registers_per_thread,
                  gpu_limits.threads_per_block)
