"""Theoretical occupancy, what limits it, waves and tail: CUDA's rules on the limits of `profiles.analysis.core.gpus`.

Source: CUDA C++ Best Practices Guide, "Occupancy"; the granularities as NVIDIA's occupancy calculator uses them. Checked
against `launch__occupancy_limit_*` and the swept `launch__occupancy_per_*` of reports of 7.5, 8.0, 8.6 and 9.0 devices, and
against what NVIDIA's cuda_occupancy.h (CUDA 12.9) answers for 7.0 to 12.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from profiles.analysis.core import gpus
from profiles.analysis.core.gpus import Limits
from profiles.analysis.core.sentences import plain_number

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
    """Return the blocks per SM that the register file allows.

    Registers are given per warp in steps, warps counted in fours (schedulers).

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
    """Return the occupancy of blocks of `threads` threads.

    `smem_bytes`: static and dynamic shared memory of a block; barriers where known.
    """
    warps_per_block = -(-threads // gpu.warp_threads)
    limits = {
        "warps": gpu.warps_per_sm // warps_per_block if threads <= gpu.threads_per_block else 0,
        "registers": blocks_by_registers(gpu, threads, registers_per_thread),
        "shared_mem": blocks_by_smem(gpu, smem_bytes, smem_config_bytes),
        "blocks": gpu.blocks_per_sm,
    }
    if barriers is not None:
        limits["barriers"] = blocks_by_barriers(gpu, barriers)
    return from_limits(gpu, warps_per_block, limits)


def from_limits(gpu: Limits, warps_per_block: int, limits: dict[str, int]) -> Occupancy:
    """Return the occupancy where the limits are known already (a report states them)."""
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

    @property
    def text(self) -> str:
        return waves_text(self.waves)


def waves(blocks: int, blocks_per_sm: int, sm_count: int) -> Waves | None:
    """Return how a grid runs in waves; None where no block fits.

    All blocks are taken as equally long: an upper bound for what the tail costs.
    """
    slots = blocks_per_sm * sm_count
    if slots <= 0 or blocks <= 0:
        return None
    count = blocks / slots
    whole = math.ceil(count)
    tail = count - (whole - 1)
    return Waves(count, 100.0 * tail, 100.0 * (1.0 - count / whole))


def waves_text(count: float) -> str:
    """Return a number of waves as every page writes it: "0.03", "3.88", "124.1"."""
    return f"{count:,.1f}" if count >= 100 else f"{count:.2f}"


def waves_sentence(grid: Waves, blocks: int, slots: int, duration_ns: float | None = None) -> str:
    """Say what the grid's last wave costs at most, and which grid would fill it.

    `slots`: blocks that the GPU holds at once.
    """
    if grid.waves < 1:
        return (f"The grid's {blocks:,} blocks fill {plain_number(100 * grid.waves)} % of the {slots:,} that the GPU holds at "
                "once: the rest has nothing to do.")
    whole = math.ceil(grid.waves)
    text = f"{blocks:,} blocks are {waves_text(grid.waves)} wave{'s' if whole > 1 else ''} of {slots:,}"
    if grid.tail_pct > 99.5:
        return f"{text}, all of them full."
    text += f": {whole - 1:,} full, then a last one" if whole > 1 else ""
    cost = ""
    if duration_ns:
        lost = duration_ns * grid.loss_pct / 100.0
        cost = (f": at most {plain_number(grid.loss_pct)} % of the time ({plain_number(lost / 1000)} µs) if all blocks take "
                "equally long")
    joined = "," if whole > 1 else "; it is"
    less = f" {slots * (whole - 1):,} blocks would need one wave less." if whole > 1 else ""
    return f"{text}{joined} {plain_number(grid.tail_pct)} % full{cost}.{less}"


DEFAULT_SMEM_BYTES = 48 * 1024           # more per block only after cudaFuncSetAttribute(…MaxDynamicSharedMemorySize)
SMEM_STEP_BYTES = 1024                   # between two points of the curve
MAX_SMS, MAX_BLOCKS = 1024, 2**31 - 1    # a grid's x dimension


@dataclass(frozen=True)
class Question:
    """One launch on one architecture. Shared memory is static and dynamic together, without the driver's share."""

    compute_capability: str = "9.0"
    threads: int = 256
    registers: int = 32
    smem_bytes: int = 0
    barriers: int = 1
    smem_config_bytes: int | None = None     # the split with L1; None: the most an SM can give
    blocks: int | None = None                # of the grid, with sm_count for waves
    sm_count: int | None = None

    @property
    def gpu(self) -> Limits:
        return gpus.LIMITS[self.compute_capability]


# parameter -> its name, lowest and highest value that any architecture takes
FIELDS: dict[str, tuple[str, int, int]] = {
    "threads": ("Threads per block", 1, 1024),
    "registers": ("Registers per thread", 0, 255),
    "smem_bytes": ("Shared memory per block", 0, 227 * 1024),
    "barriers": ("Barriers per block", 0, 16),
    "smem_config_bytes": ("Shared memory of an SM", 0, 228 * 1024),
    "blocks": ("Blocks of the grid", 1, MAX_BLOCKS),
    "sm_count": ("SMs of the GPU", 1, MAX_SMS),
}


@dataclass(frozen=True)
class Curve:
    """Occupancy over one parameter, all others kept."""

    parameter: str
    title: str
    unit: str                            # of x: "count" | "bytes"
    at: int                              # where the kernel stands
    x: list[int]
    warps: list[int]
    blocks: list[int]
    limiters: list[str]                  # what limits there, in words


@dataclass(frozen=True)
class Rung:
    """What a kernel may use at most for this many blocks per SM. None: no amount is small enough."""

    blocks: int
    warps: int
    pct: float
    registers: int | None
    smem_bytes: int | None
    barriers: int | None
    here: bool                           # the kernel as it is


@dataclass(frozen=True)
class Answer:
    question: Question
    occupancy: Occupancy
    waves: Waves | None
    curves: list[Curve]
    ladder: list[Rung]
    sentence: str
    step: str                            # what the next block per SM takes, "" where there is none

def answer(question: Question) -> Answer:
    """Return the calculator's answer to a question."""
    result = occupancy_of(question)
    rungs = ladder(question)
    spread = waves(question.blocks, result.blocks_per_sm, question.sm_count) if question.blocks and question.sm_count else None
    return Answer(question, result, spread, curves(question), rungs, _sentence(question, result), _step(question, result, rungs))


def next_step(question: Question) -> str:
    """Return what the next block per SM takes, "" where there is none: `Answer.step` alone."""
    result = occupancy_of(question)
    more = result.blocks_per_sm + 1
    return _step(question, result, [_rung(question, more, 0)] if more <= _most_blocks(question, question.gpu) else [])


def occupancy_of(question: Question, **changed: int) -> Occupancy:
    variant = replace(question, **changed) if changed else question              # type: ignore[arg-type]
    return occupancy(variant.gpu, variant.threads, variant.registers, variant.smem_bytes, barriers=variant.barriers,
                     smem_config_bytes=variant.smem_config_bytes)


def curves(question: Question) -> list[Curve]:
    """Return occupancy over block size, registers and shared memory.

    The driver may enlarge the shared memory's split.
    """
    gpu, question = question.gpu, replace(question, smem_config_bytes=None)
    return [
        _curve(question, "threads", "count", [1, *range(gpu.warp_threads, gpu.threads_per_block + 1, gpu.warp_threads)]),
        _curve(question, "registers", "count", list(range(1, gpu.registers_per_thread + 1))),
        _curve(question, "smem_bytes", "bytes", list(range(0, gpu.smem_bytes_per_block + 1, SMEM_STEP_BYTES))),
    ]


def _curve(question: Question, parameter: str, unit: str, xs: list[int]) -> Curve:
    current = int(getattr(question, parameter))
    xs = sorted({*xs, current})
    values = [occupancy_of(question, **{parameter: x}) for x in xs]
    return Curve(parameter, FIELDS[parameter][0], unit, current, xs, [point.warps_per_sm for point in values],
                 [point.blocks_per_sm for point in values], [limiter_words(point.limiters) for point in values])


def ladder(question: Question) -> list[Rung]:
    """Return what a kernel may use for each number of blocks per SM.

    From one to as many as this block size allows at all; the driver may enlarge the shared memory's split.
    """
    gpu, now = question.gpu, occupancy_of(question).blocks_per_sm
    return [_rung(question, count, now) for count in range(1, _most_blocks(question, gpu) + 1)]


def _most_blocks(question: Question, gpu: gpus.Limits) -> int:
    """Blocks per SM that this block size allows, whatever else they use."""
    return min(gpu.blocks_per_sm, gpu.warps_per_sm // -(-question.threads // gpu.warp_threads))


def _rung(question: Question, count: int, now: int) -> Rung:
    gpu, warps = question.gpu, -(-question.threads // question.gpu.warp_threads)
    question = replace(question, smem_config_bytes=None)
    return Rung(
        blocks=count, warps=count * warps, pct=100.0 * count * warps / gpu.warps_per_sm,
        registers=_most(question, "registers", count, gpu.registers_per_thread, 1),
        smem_bytes=_most(question, "smem_bytes", count, gpu.smem_bytes_per_block, 0),
        barriers=_most(question, "barriers", count, FIELDS["barriers"][2], 0),
        here=count == now)


_LIMIT = {"registers": "registers", "smem_bytes": "shared_mem", "barriers": "barriers"}


def _most(question: Question, parameter: str, blocks: int, high: int, low: int) -> int | None:
    """The highest value that still allows so many blocks, by bisection: every limit falls as its parameter grows."""
    def fits(value: int) -> bool:
        return occupancy_of(question, **{parameter: value}).limits[_LIMIT[parameter]] >= blocks
    if not fits(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def limiter_words(limiters: Iterable[str]) -> str:
    """"registers and shared memory", the resources that allow the fewest blocks."""
    return " and ".join(LIMITER_WORDS.get(name, name) for name in limiters)


def _sentence(question: Question, result: Occupancy) -> str:
    gpu = question.gpu
    launch = (f"{question.threads} threads per block with {question.registers} registers each and "
              f"{kib_text(question.smem_bytes)} of shared memory")
    if not result.blocks_per_sm:
        limits = limiter_words(result.limiters)
        return f"{launch} cannot start on compute capability {question.compute_capability}: {limits} do not suffice."
    blocks = f"{result.blocks_per_sm} block{'' if result.blocks_per_sm == 1 else 's'}"
    return (f"{launch}: an SM of compute capability {question.compute_capability} holds {blocks}, {result.warps_per_sm} of its "
            f"{gpu.warps_per_sm} warps: occupancy {result.theoretical_pct:.4g} %, limited by {limiter_words(result.limiters)}.")


def _step(question: Question, result: Occupancy, rungs: list[Rung]) -> str:
    """What to give up for one more block per SM, and how many then fit."""
    rung = next((entry for entry in rungs if entry.blocks == result.blocks_per_sm + 1), None)
    if rung is None:
        return ""
    less: dict[str, int] = {}
    for parameter, most in (("registers", rung.registers), ("smem_bytes", rung.smem_bytes), ("barriers", rung.barriers)):
        if most is None:
            return ""
        if int(getattr(question, parameter)) > most:
            less[parameter] = most
    words = {"registers": "at most {} registers per thread (now {})", "smem_bytes": "at most {} of shared memory (now {})",
             "barriers": "at most {} barriers (now {})"}
    shown = [words[name].format(*((kib_text(most), kib_text(question.smem_bytes)) if name == "smem_bytes" else
                                  (most, getattr(question, name)))) for name, most in less.items()]
    then = occupancy_of(replace(question, smem_config_bytes=None), **less)
    if then.blocks_per_sm <= result.blocks_per_sm:
        return ""
    blocks = f"{then.blocks_per_sm} block{'' if then.blocks_per_sm == 1 else 's'}"
    if not shown:
        return f"With a larger share of the SM for shared memory, {blocks} would fit: {then.theoretical_pct:.4g} %."
    return f"With {' and '.join(shown)}, {blocks} would fit: {then.theoretical_pct:.4g} %."


def kib_text(count: int) -> str:
    """Return shared memory as CUDA's tables give it: 228 KiB, 16.4 KiB, 16 B."""
    return f"{count} B" if count < 1024 else f"{count / 1024:.4g} KiB"
