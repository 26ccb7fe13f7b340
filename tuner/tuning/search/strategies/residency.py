"""What an SM holds of a kernel of products at a time, by the sizes of its tiles: rules of the guess before the first trial.

Two kinds of kernel multiply tiles. One has a side that is summed over (a matrix product): what is under way between memory and the
tensor cores must cover a load's latency. The other multiplies twice with something between, and loads whole rows (attention:
keys and values pass by while queries stay): a second program of the SM multiplies while the first one computes what is between.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.tuning.operators.limits import Limits
from tuner.tuning.operators.operator import BYTES
from tuner.tuning.search.strategies.sizes import Sizes

Array = NDArray[np.float64]

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
