"""Triton without a GPU: compile for a GPU that need not be here, and read from the binary what it will use.

`aim` replaces Triton's driver, which would open CUDA, by one that knows its target. Tensors come from torch's "meta"
device: Triton looks at their type and at the alignment of their address alone, and 0 is aligned as what CUDA allocates.
So the binary gets the same key in Triton's cache folder as in the child that launches it, which then finds it there.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver as nvidia
from triton.runtime import driver

from profiles.analysis import gpus
from profiles.analysis.occupancy import occupancy
from tuner.kernels import device
from tuner.trial import Reason

WARP = 32
_USAGE = re.compile(r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+)")
_TOOL_TIMEOUT_S = 20.0


class FixedTarget:
    """What Triton asks its driver while it compiles."""

    def __init__(self, compute_capability: tuple[int, int]) -> None:
        major, minor = compute_capability
        self.arch = 10 * major + minor
        self._target = GPUTarget("cuda", self.arch, WARP)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        """A number of its own for each target: Triton keeps one compiler and one table of kernels per device."""
        return self.arch

    def get_current_stream(self, device: int | None = None) -> int:
        return 0


def aim(compute_capability: str, sms: int) -> None:
    """From now on this process compiles for "9.0", and never for the GPU it may stand beside."""
    major, minor = (int(part) for part in compute_capability.split("."))
    driver.set_active(FixedTarget((major, minor)))
    device.compile_for((major, minor), sms)


def static_facts(kernels: Any, compute_capability: str) -> dict[str, Any]:
    """Of one compiled kernel, or of several that one configuration launches: the one with the most registers speaks.

    registers      per thread
    spills         4-byte words per thread in local memory: the stack frame that ptxas gave it, as the driver counts it
    smem_bytes     per block, static and dynamic, without the driver's share
    occupancy_pct  theoretical, by `profiles.analysis.occupancy`; None for a GPU generation that table does not know
    """
    each = [_facts(kernel, compute_capability) for kernel in _listed(kernels)]
    return max(each, key=lambda facts: (facts.get("registers", 0), facts.get("smem_bytes", 0)), default={})


def _listed(kernels: Any) -> Sequence[Any]:
    found = kernels if isinstance(kernels, list | tuple) else [kernels]
    return [kernel for kernel in found if hasattr(kernel, "asm") and "cubin" in kernel.asm]


def _facts(kernel: Any, compute_capability: str) -> dict[str, Any]:
    threads = _threads(kernel)
    facts: dict[str, Any] = {"smem_bytes": int(kernel.metadata.shared), "threads": threads}
    used = _resources(kernel.asm["cubin"])
    if used:
        facts["registers"], stack_bytes = max(used)
        facts["spills"] = stack_bytes // 4
    limits = gpus.limits(compute_capability)
    if limits is not None and used:
        held = occupancy(limits, threads, facts["registers"], facts["smem_bytes"])
        facts |= {"occupancy_pct": round(held.theoretical_pct, 2), "blocks_per_sm": held.blocks_per_sm,
                  "occupancy_limiters": list(held.limiters)}
    return facts


def _threads(kernel: Any) -> int:
    """Threads per block as the PTX requires them: with warp specialisation there are more than num_warps says."""
    required = re.search(r"\.reqntid\s+(\d+)", str(kernel.asm.get("ptx", "")))
    return int(required[1]) if required else WARP * int(kernel.metadata.num_warps)


def _resources(cubin: bytes) -> list[tuple[int, int]]:
    """(registers, stack bytes) of each function, by the cuobjdump that comes with Triton; empty where it is missing."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        try:
            said = subprocess.run([triton.knobs.nvidia.cuobjdump.path, "-res-usage", file.name], capture_output=True, text=True,
                                  timeout=_TOOL_TIMEOUT_S, check=True).stdout
        except (OSError, RuntimeError, subprocess.SubprocessError):
            return []
    return [(int(found[2]), int(found[3])) for found in _USAGE.finditer(said)]


class Launchers:
    """The C code that calls a kernel: up to Triton 3.6 each signature has its own, which takes the child 0.3 s to build.

    Built here once, it lies in the cache folder beside the binaries. It is linked with CUDA's library and calls nothing of it;
    where that library is missing, there is no GPU to launch on.
    """

    def __init__(self) -> None:
        self._wanted = hasattr(nvidia, "make_launcher")

    def build(self, kernels: Any) -> None:
        for kernel in _listed(kernels) if self._wanted else ():
            try:
                nvidia.CudaLauncher(kernel.src, kernel.metadata)
            except Exception:               # no C compiler, no libcuda: the child says what is missing, if it is
                self._wanted = False


def cannot_start(facts: dict[str, Any], compute_capability: str) -> str | None:
    """Why no block of this kernel fits on an SM, in words; None when one does or nobody knows."""
    limits = gpus.limits(compute_capability)
    if limits is None or facts.get("blocks_per_sm") != 0:
        return None
    if facts["smem_bytes"] > limits.smem_bytes_per_block:
        return f"shared memory: {facts['smem_bytes']:,} bytes per block, the GPU gives {limits.smem_bytes_per_block:,}"
    if facts["threads"] > limits.threads_per_block:
        return f"threads: {facts['threads']:,} per block, the GPU runs {limits.threads_per_block:,}"
    return f"registers: {facts['registers']} × {facts['threads']:,} threads, an SM has {limits.registers_per_sm:,}"


def is_resources(error: BaseException) -> bool:
    """Does Triton itself say that the GPU is too small?"""
    names: Iterable[str] = (cls.__name__ for cls in type(error).__mro__)
    return "OutOfResources" in names


def reason_of(error: BaseException) -> Reason:
    return Reason.RESOURCES if is_resources(error) else Reason.COMPILE
