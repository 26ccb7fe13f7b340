"""Triton without a GPU: compile for any GPU and read resource use from the binary.

`aim` replaces Triton's driver, which would open CUDA, by one that knows its target. Tensors come from torch's "meta"
device: Triton looks at their type and at the alignment of their address alone, and 0 is aligned as what CUDA allocates.
So the binary gets the same key in Triton's cache folder as in the child that launches it, which then finds it there.
"""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver as nvidia
from triton.runtime import driver

from profiles.analysis.core import gpus
from profiles.analysis.kernel.occupancy import occupancy
from tuner.tuning.kernels import device
from tuner.tuning.trial import Reason

WARP = 32
_USAGE = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)")
_TOOL_TIMEOUT_S = 20.0


class FixedTarget:
    """Answers what Triton asks its driver while it compiles."""

    def __init__(self, compute_capability: tuple[int, int]) -> None:
        major, minor = compute_capability
        self.arch = 10 * major + minor
        self._target = GPUTarget("cuda", self.arch, WARP)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        """Return a number per target: Triton keeps one compiler and kernel table per device."""
        return self.arch

    def get_current_stream(self, device: int | None = None) -> int:
        return 0


def set_target(compute_capability: str, sms: int) -> None:
    """Make this process compile for `compute_capability` ("9.0") whatever GPU is present."""
    major, minor = (int(part) for part in compute_capability.split("."))
    driver.set_active(FixedTarget((major, minor)))
    device.compile_for((major, minor), sms)


def make_empty_like_plain() -> None:
    """Let `empty_like` of a tensor without memory import nothing: torch's own way takes a second to import sympy."""
    usual = torch.empty_like
    if getattr(usual, "is_plain", False):
        return

    @functools.wraps(usual)
    def empty_like(like: torch.Tensor, **given: Any) -> torch.Tensor:
        if like.device.type != "meta" or given.keys() - {"dtype"} or not like.is_contiguous():
            return usual(like, **given)
        return torch.empty(like.shape, dtype=given.get("dtype") or like.dtype, device="meta")

    empty_like.is_plain = True                          # type: ignore[attr-defined]
    torch.empty_like = empty_like


def static_facts(kernels: Any, compute_capability: str) -> dict[str, Any]:
    """Return static facts of the compiled kernels of one configuration; the one with most registers.

    registers      per thread
    spills         4-byte words per thread in local memory: the stack frame that ptxas gave it, as the driver counts it
    smem_bytes     per block, static and dynamic, without the driver's share
    occupancy_pct  theoretical, by `profiles.analysis.kernel.occupancy`; None for a GPU generation that table does not know
    """
    rows = [_facts(kernel, compute_capability) for kernel in _compiled_kernels(kernels)]
    return max(rows, key=lambda facts: (facts.get("registers", 0), facts.get("smem_bytes", 0)), default={})


def _compiled_kernels(kernels: Any) -> Sequence[Any]:
    launched = kernels if isinstance(kernels, list | tuple) else [kernels]
    return [kernel for kernel in launched if hasattr(kernel, "asm") and "cubin" in kernel.asm]


def _facts(kernel: Any, compute_capability: str) -> dict[str, Any]:
    threads = _thread_count(kernel)
    facts: dict[str, Any] = {"smem_bytes": int(kernel.metadata.shared), "threads": threads}
    used = _function_resources(kernel.asm["cubin"])
    if used:
        facts["registers"], stack_bytes = max(used)
        facts["spills"] = stack_bytes // 4
    limits = gpus.limits(compute_capability)
    if limits is not None and used:
        residency = occupancy(limits, threads, facts["registers"], facts["smem_bytes"])
        facts |= {"occupancy_pct": round(residency.theoretical_pct, 2), "blocks_per_sm": residency.blocks_per_sm,
                  "occupancy_limiters": list(residency.limiters)}
    return facts


def _thread_count(kernel: Any) -> int:
    """Return threads per block as the PTX requires; warp specialisation adds to num_warps."""
    required = re.search(r"\.reqntid\s+(\d+)", str(kernel.asm.get("ptx", "")))
    return int(required[1]) if required else WARP * int(kernel.metadata.num_warps)


def _function_resources(cubin: bytes) -> list[tuple[int, int]]:
    """Return (registers, stack bytes) per function by cuobjdump; empty where it is missing."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        try:
            usage = subprocess.run([triton.knobs.nvidia.cuobjdump.path, "-res-usage", file.name], capture_output=True, text=True,
                                   timeout=_TOOL_TIMEOUT_S, check=True).stdout
        except (OSError, RuntimeError, subprocess.SubprocessError):
            return []
    return [(int(match[2]), int(match[3])) for match in _USAGE.finditer(usage)]


class Launchers:
    """Builds the C launcher of each signature ahead: up to Triton 3.6 it costs the child 0.3 s.

    Built here once, it lies in the cache folder beside the binaries. It is linked with CUDA's library and calls nothing of it;
    where that library is missing, there is no GPU to launch on.
    """

    def __init__(self) -> None:
        self._wanted = hasattr(nvidia, "make_launcher")

    def build(self, kernels: Any) -> None:
        for kernel in [candidate for candidate in _compiled_kernels(kernels) if hasattr(candidate, "src")] if self._wanted else ():
            try:
                nvidia.CudaLauncher(kernel.src, kernel.metadata)
            except Exception:               # no C compiler, no libcuda: the child says what is missing, if it is
                self._wanted = False


def why_not_start(facts: dict[str, Any], compute_capability: str) -> str | None:
    """Return why no block of the kernel fits on an SM; None when one does or nobody knows."""
    limits = gpus.limits(compute_capability)
    if limits is None or facts.get("blocks_per_sm") != 0:
        return None
    if facts["smem_bytes"] > limits.smem_bytes_per_block:
        return f"shared memory: {facts['smem_bytes']:,} bytes per block, the GPU gives {limits.smem_bytes_per_block:,}"
    if facts["threads"] > limits.threads_per_block:
        return f"threads: {facts['threads']:,} per block, the GPU runs {limits.threads_per_block:,}"
    return f"registers: {facts['registers']} × {facts['threads']:,} threads, an SM has {limits.registers_per_sm:,}"


def is_resources(error: BaseException) -> bool:
    """Return whether Triton itself says that the GPU is too small."""
    names: Iterable[str] = (cls.__name__ for cls in type(error).__mro__)
    return "OutOfResources" in names


def reason_of(error: BaseException) -> Reason:
    """Return the rejection reason of a compile error."""
    return Reason.RESOURCES if is_resources(error) else Reason.COMPILE
