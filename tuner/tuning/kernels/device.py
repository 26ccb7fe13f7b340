"""What a kernel may know of its GPU, also where it is compiled for one that is not here.

A compile process works on torch's "meta" device: tensors with a shape and no memory. It says once for which GPU it
compiles; then both questions have the same answers there as in the child that launches the kernel.
"""

from __future__ import annotations

import torch

_target: tuple[tuple[int, int], int] | None = None


def compile_for(capability: tuple[int, int], sms: int) -> None:
    """This process compiles for a GPU of this compute capability and so many multiprocessors."""
    global _target
    _target = (capability, sms)


def target_sms() -> int | None:
    """Multiprocessors of the GPU that this process compiles for; None where it compiles for none but its own."""
    return _target[1] if _target else None


def sms(device: torch.device) -> int:
    """Multiprocessors; 1 under Triton's interpreter, which has none."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    return target_sms() or 1


def capability(device: torch.device) -> tuple[int, int]:
    """Compute capability, (9, 0) for an H200; (0, 0) under Triton's interpreter."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device)
    return _target[0] if _target else (0, 0)
