"""A guess for any GPU kernel before the first trial: log time of a configuration, up to a constant.

Each term is about one kind of parameter and holds for any operator: doublings away from a comfortable range, times a
round number. They are no fits; how far to trust them is for the search to learn (its model has a slope on their sum).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.tuning.operators.limits import Limits
from tuner.tuning.operators.operator import BYTES
from tuner.tuning.search.strategies.prior_knowledge import PriorKnowledge, size_dims
from tuner.tuning.search.strategies.roles import Role, Sizes, cut_dimension
from tuner.tuning.space import Space

# ---- what an SM holds of a kernel of products at a time ----
# By the sizes of its tiles: rules of the guess before the first trial. Two kinds of kernel multiply tiles. One has a side that is
# summed over (a matrix product): what is under way between memory and the tensor cores must cover a load's latency. The other
# multiplies twice with something between, and loads whole rows (attention: keys and values pass by while queries stay): a second
# program of the SM multiplies while the first one computes what is between.

SM_REGISTERS = 65_536
MOST_REGISTERS = 255         # of a thread
OTHER_REGISTERS = 40         # of a thread, beside tiles: addresses, counters
SM_SHARED_BYTES = 227 * 1024                 # where the GPU is not known
# of 16-bit products that an SM's tensor cores do in 0.8 µs, a load's latency (Little's law), by the major compute capability
FLOPS_IN_FLIGHT = {8: 2.5e6, 9: 6e6, 10: 12e6, 12: 2e6}
TYPICAL_FLOPS = 6e6
PRODUCT_ROWS = 16            # of a tile that a warp multiplies
TOO_LARGE = 0.25             # programs of an SM that cannot hold one


def element_bytes(dtype: str) -> int:
    """Return the bytes of an operand's element; 2 where the type is not known."""
    return BYTES.get(dtype, 2)


def flops_in_flight(gpu: Limits | None, dtype: str) -> float:
    """Return the FLOP that an SM must have under way to be busy; narrower elements multiply as many times faster."""
    return FLOPS_IN_FLIGHT.get(gpu.capability[0] if gpu else 0, TYPICAL_FLOPS) * 2 / element_bytes(dtype)


def flops_under_way(sides: Sequence[Array], sizes: Sizes, waves: Array | None, dtype: str, gpu: Limits | None) -> Array:
    """Return the FLOP of all loaded steps of the programs that share an SM, shape (N,), of a kernel that sums over a tile's side.

    sides  tile sides that are outputs, each (N,)
    waves  programs per SM, shape (N,); None where the shape does not tell
    """
    loaded_steps = np.maximum(1, sizes.stages - 1)
    step_bytes = sum(sides) * sizes.depth * element_bytes(dtype)
    programs = np.maximum(1, np.floor(_shared_bytes(gpu) / (step_bytes * loaded_steps)))
    if waves is not None:
        programs = np.minimum(programs, np.maximum(1, waves))
    return np.asarray(2 * math.prod(sides) * sizes.depth * loaded_steps * programs)


def resident_programs(sides: Sequence[Array], sizes: Sizes, width: float, dtype: str, gpu: Limits | None) -> Array:
    """Return the programs that share an SM, shape (N,), of a kernel whose operands' whole rows lie beside the tile.

    Registers hold scores in float32 and again as an operand, and the sums of the first side's rows; shared memory those rows, and
    two operands in every stage.

    width  elements of a row
    """
    rows, columns = sides[0], math.prod(sides[1:])
    registers = OTHER_REGISTERS + rows * (1.5 * columns + width) / sizes.threads
    by_registers = np.floor(SM_REGISTERS / (sizes.threads * np.minimum(registers, MOST_REGISTERS)))
    by_shared = np.floor(_shared_bytes(gpu) / (element_bytes(dtype) * width * (rows + 2 * columns * sizes.stages)))
    return np.asarray(np.where(by_shared < 1, TOO_LARGE, np.maximum(1, np.minimum(by_registers, by_shared))))


def warps_of_rows(rows: Array, sizes: Sizes) -> Array:
    """Return the warps that share the rows which one alone multiplies, shape (N,): above 1 they exchange sums of rows."""
    return np.asarray(PRODUCT_ROWS * sizes.threads / 32 / rows)


def _shared_bytes(gpu: Limits | None) -> int:
    return gpu.smem_bytes if gpu is not None and gpu.capability > (0, 0) else SM_SHARED_BYTES


# ---- a guess for any GPU kernel before the first trial ----

Array = NDArray[np.float64]

BALANCE = 100.0              # FLOP per byte of the algorithm, from where tensor cores matter more than memory
TYPICAL_SMS = 100            # when the GPU is not known
IN_FLIGHT_BYTES = 40_000     # per SM, to cover memory's latency: 4.8 TB/s × 1 µs / 132 SMs (Little's law)
SM_THREADS = 2048
FEW_THREADS = 1024           # resident on an SM: above, memory-bound kernels gain little
LOADS = (8, 32)              # elements per thread: a 16-byte load of 16-bit values, up to four of them
ACCUMULATORS = 128           # fp32 values of the output tile that a thread keeps in registers
OPERANDS = 64                # … when whole operands live beside them, because no side is summed over in steps
REUSE = 32                   # values of a·b / (a + b) of an output tile, at which loads and tensor cores take equally long
CACHE_LINE = 64              # 16-bit values
DEEP = (3, 4)                # pipeline stages
WARP_GROUP = 4               # warps that issue one product on Hopper; fewer multiply at half the rate (PTX ISA, wgmma)
HEAD = 64                    # elements of a row where the shape does not tell
BLOCK_THREADS = (128, 256)   # threads of a CUDA block
THREAD_WORK = (2, 8)         # outputs of a CUDA thread
WARP = 32
ODD_COST = 0.15               # log time for each doubling of what a block's sides hold beside powers of two


@dataclass(frozen=True)
class Grid:
    """The programs of a launch.

    sides   tile sides that are outputs, cut to the matrix
    waste   log of computed over needed
    waves   programs per SM; None where the shape does not tell
    width   elements of the last dimension that no tile cuts: of an operand's row
    """

    sides: list[Array]
    waste: Array
    waves: Array | None
    width: float


def guess_slowness(space: Space, prior: PriorKnowledge, sizes: Sizes, weights: Mapping[str, float] | None = None) -> Array:
    """Return the guessed log time over the fastest guess, shape (N,); a rule without weight counts once."""
    terms = rule_terms(space, prior, sizes)
    total = sum(((weights or {}).get(rule, 1.0) * term for rule, term in terms.items()), np.zeros(len(space)))
    return np.asarray(total - total.min(initial=np.inf)) if len(space) else total


def rule_terms(space: Space, prior: PriorKnowledge, sizes: Sizes) -> Mapping[str, Array]:
    """Return what each rule adds to the log time, by rule, shapes (N,); the mean where values leave two readings of the roles."""
    if not len(space):
        return {}
    terms, instead = _terms(space, prior, sizes), sizes.instead()
    if instead is None:
        return terms
    other, nothing = _terms(space, prior, instead), np.zeros(len(space))
    return {rule: 0.5 * (terms.get(rule, nothing) + other.get(rule, nothing)) for rule in {**terms, **other}}


def _terms(space: Space, prior: PriorKnowledge, sizes: Sizes) -> Mapping[str, Array]:
    if sizes.has(Role.WARPS):
        return _tiles(space, prior, sizes)
    return _blocks(space, sizes) if sizes.has(Role.THREADS) else {}


def compute_share(prior: PriorKnowledge) -> float:
    """Return 0 for memory-bound to 1 for tensor-core-bound, from FLOP per byte; between where unknown."""
    if not prior.flops or not prior.bytes:
        return 0.5
    intensity = prior.flops / prior.bytes
    return intensity / (intensity + BALANCE)


def make_grid(space: Space, prior: PriorKnowledge, sizes: Sizes) -> Grid:
    """Return the grid of tiles over the dimensions that their names match."""
    shape = {name: size for name, size in size_dims(prior.shape).items() if size > 1}
    sms = prior.gpu.sms if prior.gpu and prior.gpu.sms > 1 else TYPICAL_SMS
    columns = sizes.columns(Role.TILE)
    last = list(shape)[-1] if shape else ""
    whole = dict(shape)                                # dimensions that no tile cuts
    cut, waste, programs, matched = [], np.zeros(len(space)), np.ones(len(space)), 0
    for index in columns:
        side = sizes.values(index)
        dim = cut_dimension(space.params[index].name, shape) or (last if len(columns) == 1 else "")
        extent = shape.get(dim)
        if extent:
            whole.pop(dim, None)
            count = np.ceil(extent / side)
            waste += np.log(count * side / extent)
            programs = programs * count
            side = np.minimum(side, extent)
            matched += 1
        cut.append(side)
    width = next(reversed(whole.values()), HEAD)
    if len(columns) <= 1:
        rows = math.prod(size for name, size in shape.items() if name != last)
        return Grid(cut, waste, np.full(len(space), rows / sms) if shape else None, width)
    return Grid(cut, waste, programs / sms if matched == len(columns) and sizes.has(Role.DEPTH) else None, width)


def _tiles(space: Space, prior: PriorKnowledge, sizes: Sizes) -> dict[str, Array]:
    """Return the rules of kernels with tiles and warps."""
    compute = compute_share(prior)
    memory = 1 - compute
    programs = make_grid(space, prior, sizes)
    summed, tiles = sizes.has(Role.DEPTH), len(programs.sides)
    area = math.prod(programs.sides) if tiles else _row_elements(prior)
    elements = (sizes.tile if tiles else area) / sizes.threads
    room = ACCUMULATORS if summed else OPERANDS
    rules = {
        "work outside of the matrix": programs.waste * (0.2 + 0.8 * compute if summed or tiles > 1 else 0.7),
        "elements of a thread": memory * 0.15 * doublings_outside(elements, *LOADS),
        "accumulators of a thread": compute * (0.12 * doublings_outside(elements, room / 4, room)
                                               + 0.35 * doublings_outside(elements, 0, room)),
    }
    if tiles > 1:
        rules["reuse of operands"] = compute * np.log1p(REUSE * sum(1 / side for side in programs.sides))
    if sizes.has(Role.STAGES):
        rules["loads under way"] = (0.15 if summed or tiles != 1 else 0.05) * doublings_outside(sizes.stages, *DEEP)
    if summed:
        rules["cache lines"] = 0.12 * doublings_outside(sizes.depth, CACHE_LINE, CACHE_LINE)
    if tiles > 1:
        rules |= _products(space, prior, programs, sizes, compute)
    return rules | _occupancy(programs, sizes, compute, prior.dtype)


def _products(space: Space, prior: PriorKnowledge, programs: Grid, sizes: Sizes, compute: float) -> dict[str, Array]:
    """Return the rules of how well the tensor cores are kept busy."""
    rules, sides, summed = {}, programs.sides, sizes.has(Role.DEPTH)
    if (summed or prior.flops) and prior.gpu is not None and prior.gpu.warpgroup_mma:
        rules["warps of a product"] = compute * 0.5 * doublings_outside(sizes.threads / WARP, WARP_GROUP, math.inf)
    if not sizes.has(Role.STAGES):
        return rules
    if summed:
        waves = None if programs.waves is None else programs.waves * sizes.product(Role.SPLIT)
        needed = flops_in_flight(prior.gpu, prior.dtype)
        under_way = flops_under_way(sides, sizes, waves, prior.dtype, prior.gpu)
        rules["products under way"] = compute * 0.2 * doublings_outside(under_way, needed, math.inf)
        return rules
    resident = resident_programs(sides, sizes, programs.width, prior.dtype, prior.gpu)
    shares = compute * ~_fills_sm(space, prior)
    rules["programs of an SM"] = shares * 0.25 * doublings_outside(resident, 2, math.inf)
    rules["warps of the same rows"] = shares * 0.4 * doublings_outside(warps_of_rows(sides[0], sizes), 0, 1)
    return rules


def _fills_sm(space: Space, prior: PriorKnowledge) -> NDArray[np.bool_]:
    """Return whether one program keeps an SM busy, shape (N,)."""
    fills = np.zeros(len(space), dtype=bool)
    for index, param in enumerate(space.params):
        values = prior.fills_sm.get(param.name, ())
        fills |= np.array([value in values for value in param.values], dtype=bool)[space.rows[:, index]]
    return fills


def _occupancy(programs: Grid, sizes: Sizes, compute: float, dtype: str) -> dict[str, Array]:
    """Return the rules of how well the programs fill the SMs."""
    memory, rules = 1 - compute, {}
    if sizes.has(Role.PROGRAMS):
        resident = np.minimum(SM_THREADS, sizes.product(Role.PROGRAMS) * sizes.threads)
        return {"threads of an SM": 0.25 * doublings_outside(resident, FEW_THREADS, math.inf)}
    if programs.waves is None:
        return {}
    waves = programs.waves
    if not sizes.has(Role.SPLIT):
        rules["idle SMs of the last wave"] = compute * 0.7 * np.log(np.ceil(waves) / waves)
    if sizes.has(Role.DEPTH) and len(programs.sides) > 1:
        tile_bytes = sum(programs.sides) * sizes.depth * element_bytes(dtype)
        flying = tile_bytes * np.maximum(1, sizes.stages - 1) * np.minimum(waves * sizes.product(Role.SPLIT), 2)
        rules["bytes under way"] = memory * 0.4 * doublings_outside(flying, IN_FLIGHT_BYTES, math.inf)
    else:
        resident = np.minimum(SM_THREADS, waves * sizes.threads)
        rules["threads of an SM"] = memory * 0.25 * doublings_outside(resident, FEW_THREADS, math.inf)
    return rules


def _blocks(space: Space, sizes: Sizes) -> dict[str, Array]:
    """Return the rules of kernels with CUDA blocks and outputs per thread."""
    terms = {
        "threads of a block": 0.2 * doublings_outside(sizes.threads, *BLOCK_THREADS),
        "lanes of a warp left idle": np.log(np.ceil(sizes.threads / WARP) * WARP / sizes.threads),
    }
    if np.ptp(sizes.odd):
        terms["sides that divide few problems"] = ODD_COST * sizes.odd
    if sizes.has(Role.WORK):
        terms["outputs of a thread"] = 0.1 * doublings_outside(sizes.product(Role.WORK), *THREAD_WORK)
    return terms


def _row_elements(prior: PriorKnowledge) -> Array:
    """Return the elements of a row: what a program without a tile takes."""
    shape = list(size_dims(prior.shape).values())
    return np.array(shape[-1] if shape else 4096.0)


def doublings_outside(x: Array, low: float, high: float) -> Array:
    """Return the doublings by which `x` lies outside low … high."""
    below = np.log2(low / x) if low > 0 else -np.inf
    return np.asarray(np.maximum(0, np.maximum(below, np.log2(x / high) if math.isfinite(high) else -np.inf)))
