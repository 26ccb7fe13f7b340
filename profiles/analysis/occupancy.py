"""Theoretical occupancy, what limits it, waves and tail: CUDA's rules on the limits of `profiles.analysis.gpus`.

Source: CUDA C++ Best Practices Guide, "Occupancy"; the granularities as NVIDIA's occupancy calculator uses them. Checked
against `launch__occupancy_limit_*` and the swept `launch__occupancy_per_*` of reports of 7.5, 8.0, 8.6 and 9.0 devices, and
against what NVIDIA's cuda_occupancy.h (CUDA 12.9) answers for 7.0 to 12.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from profiles.analysis.gpus import Limits

LIMITER_WORDS = {
    "warps": "the warps an SM can hold", "registers": "registers", "shared_mem": "shared memory",
    "blocks": "the blocks an SM can hold", "barriers": "barriers",
}


@dataclass(frozen=True)
class Occupancy:
    """How many blocks and warps of a kernel one SM can hold at once."""

    blocks_per_sm: int
    warps_per_sm: int
    theoretical_pct: float               # 0-100 of the warps an SM can hold
    limits: dict[str, int]               # limiter -> blocks per SM it would allow
    limiters: tuple[str, ...]            # those that allow the fewest


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def blocks_by_registers(gpu: Limits, threads: int, registers_per_thread: int) -> int:
    """Blocks per SM that the register file allows: given per warp in steps, warps counted in fours (schedulers).

    0 where a block cannot start at all: the hardware checks one block with its warps rounded up to fours.
    """
    if registers_per_thread <= 0:
        return gpu.blocks_per_sm
    per_warp, block_warps = _up(registers_per_thread * gpu.warp_threads, gpu.register_unit), -(-threads // gpu.warp_threads)
    if per_warp * _up(block_warps, gpu.warp_unit) > gpu.registers_per_sm:
        return 0
    return gpu.registers_per_sm // per_warp // gpu.warp_unit * gpu.warp_unit // block_warps


def blocks_by_smem(gpu: Limits, smem_bytes: int, smem_config_bytes: int | None = None) -> int:
    """Blocks per SM that shared memory allows, 0 where one block asks for more than it may.

    `smem_bytes` per block without the driver's share. `smem_config_bytes`: the split between L1 and shared memory that the
    driver chose for this launch (launch__shared_mem_config_size), else the most the SM can give. A block that needs more than
    that split gets a larger one, with room for one.
    """
    if smem_bytes > gpu.smem_bytes_per_block:
        return 0
    per_block = _up(smem_bytes + gpu.smem_reserved_bytes_per_block, gpu.smem_unit_bytes)
    if not per_block:
        return gpu.blocks_per_sm
    return max(1, (smem_config_bytes or gpu.smem_bytes_per_sm) // per_block)


def blocks_by_barriers(gpu: Limits, barriers: int) -> int:
    """Blocks per SM that its hardware barriers allow; never more than the blocks an SM can hold."""
    if barriers <= 0 or not gpu.barriers_per_sm:
        return gpu.blocks_per_sm
    return min(gpu.blocks_per_sm, gpu.barriers_per_sm // barriers)


def occupancy(gpu: Limits, threads: int, registers_per_thread: int, smem_bytes: int, *,
              smem_config_bytes: int | None = None, barriers: int | None = None) -> Occupancy:
    """Of a block of `threads` threads with `smem_bytes` (static and dynamic) of shared memory; barriers where known."""
    warps_per_block = -(-threads // gpu.warp_threads)
    found = {
        "warps": gpu.warps_per_sm // warps_per_block if threads <= gpu.threads_per_block else 0,
        "registers": blocks_by_registers(gpu, threads, registers_per_thread),
        "shared_mem": blocks_by_smem(gpu, smem_bytes, smem_config_bytes),
        "blocks": gpu.blocks_per_sm,
    }
    if barriers is not None:
        found["barriers"] = blocks_by_barriers(gpu, barriers)
    return from_limits(gpu, warps_per_block, found)


def from_limits(gpu: Limits, warps_per_block: int, limits: dict[str, int]) -> Occupancy:
    """The same where the limits are known already (a report states them)."""
    blocks = min(limits.values())
    warps = min(blocks * warps_per_block, gpu.warps_per_sm)
    return Occupancy(blocks, warps, 100.0 * warps / gpu.warps_per_sm, limits,
                     tuple(name for name, allowed in limits.items() if allowed == blocks))


@dataclass(frozen=True)
class Waves:
    """A grid runs in waves of as many blocks as the GPU holds at once; the last one may be partly empty."""

    waves: float
    tail_pct: float                      # how full the last wave is, 0-100; 100 = no tail
    loss_pct: float                      # of the GPU's block slots over all waves, 0-100, left empty by the tail


def waves(blocks: int, blocks_per_sm: int, sm_count: int) -> Waves | None:
    """None where nothing fits. All blocks are taken as equally long: an upper bound for what the tail costs."""
    slots = blocks_per_sm * sm_count
    if slots <= 0 or blocks <= 0:
        return None
    count = blocks / slots
    whole = math.ceil(count)
    tail = count - (whole - 1)
    return Waves(count, 100.0 * tail, 100.0 * (1.0 - count / whole))


def waves_sentence(found: Waves, blocks: int, slots: int, duration_ns: float | None = None) -> str:
    """What the grid's last wave costs at most, and which grid would fill it. `slots`: blocks that the GPU holds at once."""
    if found.waves < 1:
        return (f"The grid's {blocks:,} blocks fill {100 * found.waves:.3g} % of the {slots:,} that the GPU holds at once: the "
                "rest has nothing to do.")
    whole = math.ceil(found.waves)
    said = f"{blocks:,} blocks run in {whole} wave{'s' if whole > 1 else ''} of {slots:,}"
    if found.tail_pct > 99.5:
        return f"{said}, all of them full."
    cost = ""
    if duration_ns:
        lost = duration_ns * found.loss_pct / 100.0
        cost = f": at most {found.loss_pct:.3g} % of the time ({lost / 1000:.3g} µs) if all blocks take equally long"
    return f"{said}; the last one is {found.tail_pct:.3g} % full{cost}. {slots * (whole - 1):,} blocks would need one wave less."
