"""Theoretical occupancy of a trace's kernels, calculated where the file states none.

Kineto writes 0 where it did not compute its estimate ("est. achieved occupancy %"), and Nsight Systems states none. Block size,
registers and shared memory of each launch are in the file, so CUDA's rules (`profiles.analysis.kernel.occupancy`) give the
theoretical occupancy: what fits an SM at once, an upper bound for what was achieved. The grid sets a second bound: warps of all
its blocks over the warps that the GPU's SMs hold.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from profiles.analysis.core import gpus
from profiles.analysis.core.digest import Digest
from profiles.analysis.kernel.occupancy import occupancy
from profiles.ingest.trace import KERNELS

MOST_NAMES, MOST_FORMS = 500, 20_000
_BLOCK, _GRID = ("block_x", "block_y", "block_z"), ("grid_x", "grid_y", "grid_z")


def calculated_occupancy(digest: Digest) -> dict[str, float]:
    """Return kernel name -> occupancy in percent, weighted by time, for kernels whose file states none or 0.

    Of the MOST_NAMES with most time. Left out: a GPU that is not in the table of GPUs, a launch without block size or registers.
    """
    work = digest.work
    rows = np.flatnonzero(np.isin(work["category"], [int(kind) for kind in KERNELS]) & ~work["instant"])
    if not rows.size:
        return {}
    stated = np.nan_to_num(work["occupancy_pct"][rows].astype(np.float64), nan=0.0) > 0
    asked = rows[~np.isin(work["name"][rows], np.unique(work["name"][rows[stated]]))]
    if not asked.size:
        return {}
    keys = [work["name"][asked], work["device"][asked], work["registers_per_thread"][asked], work["smem_bytes"][asked],
            _product(work, _BLOCK, asked), _product(work, _GRID, asked)]
    forms, place = np.unique(np.stack([key.astype(np.int64) for key in keys]), axis=1, return_inverse=True)
    spent = np.bincount(place.reshape(-1), weights=np.maximum(work["dur_ns"][asked], 1), minlength=forms.shape[1])
    sums: dict[int, list[float]] = {}
    for at in np.argsort(-spent, kind="stable")[:MOST_FORMS].tolist():
        name, device, registers, smem, threads, blocks = forms[:, at].tolist()
        pct = _occupancy_pct(digest.device_names.get(device, ""), registers, max(smem, 0), threads, blocks)
        if pct is not None:
            one = sums.setdefault(name, [0.0, 0.0])
            one[0] += pct * spent[at]
            one[1] += spent[at]
    most = sorted(sums, key=lambda name: -sums[name][1])[:MOST_NAMES]
    return {digest.names[name]: float(sums[name][0] / sums[name][1]) for name in most}


def _product(work: Mapping[str, np.ndarray], axes: tuple[str, ...], rows: np.ndarray) -> np.ndarray:
    """Of three sides; 0 where one is not known."""
    sides = [work[axis][rows].astype(np.int64) for axis in axes]
    product: np.ndarray = np.where(np.all([side > 0 for side in sides], axis=0), np.prod(sides, axis=0), 0)
    return product


def _occupancy_pct(device: str, registers: int, smem_bytes: int, threads: int, blocks: int) -> float | None:
    gpu = gpus.lookup(device)
    if gpu is None or not 0 < threads <= gpu.limits.threads_per_block or not 0 < registers <= gpu.limits.registers_per_thread:
        return None
    fits = occupancy(gpu.limits, threads, registers, smem_bytes)
    if not fits.blocks_per_sm:
        return None
    warps = blocks * -(-threads // gpu.limits.warp_threads)
    there_pct = 100.0 * warps / (gpu.sm_count * gpu.limits.warps_per_sm)
    return min(fits.theoretical_pct, there_pct) if blocks > 0 else fits.theoretical_pct
