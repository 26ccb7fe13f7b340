"""What a kernel's occupancy would be with other registers, shared memory or block size, on any architecture.

The curves are those of NVIDIA's occupancy calculator (Nsight Compute, "Occupancy Calculator"); the rules are those of
`profiles.analysis.occupancy`. The ladder turns them round: what one more block per SM asks of a kernel.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from profiles.analysis import gpus
from profiles.analysis.gpus import Limits
from profiles.analysis.occupancy import LIMITER_WORDS, Occupancy, Waves, occupancy, waves

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
    found: Occupancy
    waves: Waves | None
    curves: list[Curve]
    ladder: list[Rung]
    sentence: str
    step: str                            # what the next block per SM takes, "" where there is none

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def answer(question: Question) -> Answer:
    found = of(question)
    rungs = ladder(question)
    spread = waves(question.blocks, found.blocks_per_sm, question.sm_count) if question.blocks and question.sm_count else None
    return Answer(question, found, spread, curves(question), rungs, _sentence(question, found), _step(question, found, rungs))


def of(question: Question, **changed: int) -> Occupancy:
    asked = replace(question, **changed) if changed else question              # type: ignore[arg-type]
    return occupancy(asked.gpu, asked.threads, asked.registers, asked.smem_bytes, barriers=asked.barriers,
                     smem_config_bytes=asked.smem_config_bytes)


def curves(question: Question) -> list[Curve]:
    """Over block size, registers and shared memory; the driver may enlarge the shared memory's split."""
    gpu, question = question.gpu, replace(question, smem_config_bytes=None)
    return [
        _curve(question, "threads", "count", [1, *range(gpu.warp_threads, gpu.threads_per_block + 1, gpu.warp_threads)]),
        _curve(question, "registers", "count", list(range(1, gpu.registers_per_thread + 1))),
        _curve(question, "smem_bytes", "bytes", list(range(0, gpu.smem_bytes_per_block + 1, SMEM_STEP_BYTES))),
    ]


def _curve(question: Question, parameter: str, unit: str, xs: list[int]) -> Curve:
    at = int(getattr(question, parameter))
    xs = sorted({*xs, at})
    found = [of(question, **{parameter: x}) for x in xs]
    return Curve(parameter, FIELDS[parameter][0], unit, at, xs, [each.warps_per_sm for each in found],
                 [each.blocks_per_sm for each in found], [limiter_words(each) for each in found])


def ladder(question: Question) -> list[Rung]:
    """From one block per SM to as many as this block size allows at all; the driver may enlarge the shared memory's split."""
    gpu, warps = question.gpu, -(-question.threads // question.gpu.warp_threads)
    now = of(question).blocks_per_sm
    question = replace(question, smem_config_bytes=None)
    return [Rung(
        blocks=count, warps=count * warps, pct=100.0 * count * warps / gpu.warps_per_sm,
        registers=_most(question, "registers", count, gpu.registers_per_thread, 1),
        smem_bytes=_most(question, "smem_bytes", count, gpu.smem_bytes_per_block, 0),
        barriers=_most(question, "barriers", count, FIELDS["barriers"][2], 0),
        here=count == now,
    ) for count in range(1, min(gpu.blocks_per_sm, gpu.warps_per_sm // warps) + 1)]


_LIMIT = {"registers": "registers", "smem_bytes": "shared_mem", "barriers": "barriers"}


def _most(question: Question, parameter: str, blocks: int, high: int, low: int) -> int | None:
    """The highest value that still allows so many blocks, by bisection: every limit falls as its parameter grows."""
    def allowed(value: int) -> bool:
        return of(question, **{parameter: value}).limits[_LIMIT[parameter]] >= blocks
    if not allowed(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if allowed(middle) else (low, middle - 1)
    return low


def limiter_words(found: Occupancy) -> str:
    return " and ".join(LIMITER_WORDS.get(name, name) for name in found.limiters)


def _sentence(question: Question, found: Occupancy) -> str:
    gpu = question.gpu
    launch = (f"{question.threads} threads per block with {question.registers} registers each and "
              f"{kib_text(question.smem_bytes)} of shared memory")
    if not found.blocks_per_sm:
        return f"{launch} cannot start on compute capability {question.compute_capability}: {limiter_words(found)} do not suffice."
    blocks = f"{found.blocks_per_sm} block{'' if found.blocks_per_sm == 1 else 's'}"
    return (f"{launch}: an SM of compute capability {question.compute_capability} holds {blocks}, {found.warps_per_sm} of its "
            f"{gpu.warps_per_sm} warps: occupancy {found.theoretical_pct:.4g} %, limited by {limiter_words(found)}.")


def _step(question: Question, found: Occupancy, rungs: list[Rung]) -> str:
    """What to give up for one more block per SM, and how many then fit."""
    rung = next((each for each in rungs if each.blocks == found.blocks_per_sm + 1), None)
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
    then = of(replace(question, smem_config_bytes=None), **less)
    if then.blocks_per_sm <= found.blocks_per_sm:
        return ""
    blocks = f"{then.blocks_per_sm} block{'' if then.blocks_per_sm == 1 else 's'}"
    if not shown:
        return f"With a larger share of the SM for shared memory, {blocks} would fit: {then.theoretical_pct:.4g} %."
    return f"With {' and '.join(shown)}, {blocks} would fit: {then.theoretical_pct:.4g} %."


def kib_text(count: int) -> str:
    """Shared memory as CUDA's tables give it: 228 KiB, 16.4 KiB, 16 B."""
    return f"{count} B" if count < 1024 else f"{count / 1024:.4g} KiB"
