"""What each kernel's launches took in one captured profile: what a benchmark suite makes runs of."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from profiles.base.words import dims_text
from profiles.compare.frame_selectors import steady
from profiles.ingest.naming.capture_names import capture_name
from profiles.models import KernelStat, Profile
from profiles.store.counters import metrics_by_name
from profiles.store.launches import launches_read

SIDES = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
MOST_LAUNCHES = 2000          # of one kernel and shape; of more, as many evenly from first to last


@dataclass(frozen=True)
class KernelLaunches:
    """Launches of one kernel with one grid and block: one problem, as far as a trace tells."""

    name: str                           # short; with a digest where two kernels share it
    grid: str                           # "512×1×1"; "" where the trace does not say
    block: str
    us: NDArray[np.float64]             # in the order launched
    launches: int                       # of which `us` holds MOST_LAUNCHES at most
    total_us: float
    family: str = ""
    registers: int | None = None
    smem_bytes: int | None = None


def launches_by_kernel(profile: Profile) -> list[KernelLaunches]:
    """Return the launches of each kernel and shape, the longest in all first.

    Steps that compile or warm up are left out where the trace marks its steps.
    """
    table = launches_read(profile.pk)
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in ("dur_ns", "index")}
    kept = columns["dur_ns"] > 0
    counting = steady(profile) if profile.kind == Profile.Kind.TRACE else None
    if counting is not None and counting.steps and counting.launches.size:
        kept &= counting.launches[np.minimum(columns["index"], counting.launches.size - 1)]
    if not kept.any():
        return []
    encoded = table["name"].combine_chunks()
    codes, names = encoded.indices.to_numpy(), encoded.dictionary.to_pylist()
    shape = np.stack([np.nan_to_num(table[side].to_numpy(zero_copy_only=False), nan=-1).astype(np.int64) for side in SIDES], axis=1)
    groups, group = np.unique(np.column_stack([codes, shape])[kept], axis=0, return_inverse=True)
    rows, group = np.flatnonzero(kept), group.reshape(-1)
    shorts = _names([names[code] for code in dict.fromkeys(groups[:, 0].tolist())])
    families = dict(KernelStat.objects.filter(profile=profile, family__isnull=False).values_list("name", "family__name"))
    kernels = []
    for number, (code, *sides) in enumerate(groups.tolist()):
        mine = rows[group == number]
        mine = mine[np.argsort(columns["index"][mine], kind="stable")]
        us = columns["dur_ns"][mine].astype(np.float64) / 1000
        some = np.unique(np.linspace(0, us.size - 1, MOST_LAUNCHES).astype(int)) if us.size > MOST_LAUNCHES else slice(None)
        facts = {name: _most(table[column].to_numpy(zero_copy_only=False)[mine]) for name, column in
                 (("registers", "registers_per_thread"), ("smem_bytes", "smem_bytes"))}
        kernels.append(KernelLaunches(shorts[names[code]], _dim3(sides[:3]), _dim3(sides[3:]), us[some], us.size, float(us.sum()),
                              families.get(names[code], ""), **facts))
    return sorted(kernels, key=lambda one: (-one.total_us, one.name, one.grid, one.block))


def _names(full: list[str]) -> dict[str, str]:
    """Short names; two kernels that share one (instances of a template) get a digest of the full name behind it."""
    shorts = {name: capture_name(name)[:120] for name in full}
    shared = Counter(shorts.values())
    return {name: f"{short} #{sha256(name.encode()).hexdigest()[:6]}" if shared[short] > 1 else short
            for name, short in shorts.items()}


def _dim3(sides: list[int]) -> str:
    return dims_text(sides) if min(sides) > 0 else ""


def _most(values: NDArray[np.float64]) -> int | None:
    known = values[np.isfinite(values.astype(np.float64))]
    return int(known.max()) if known.size else None


def counters_by_kernel(profile: Profile, metrics: list[str]) -> dict[tuple[str, str, str], dict[str, float]]:
    """Return the median of each counter over a kernel's launches: (name, grid, block) → counter → median.

    Keys as `launches_by_kernel` names them; of a report, the launches that have the counter.
    """
    table = launches_read(profile.pk)
    indexes = table["index"].to_pylist()
    said = metrics_by_name(profile.pk, metrics, indexes)
    shorts = _names(sorted(set(table["name"].to_pylist())))
    values: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for row in table.to_pylist():
        sides = [row[side] if row[side] is not None else -1 for side in SIDES]
        key = (shorts[row["name"]], _dim3(sides[:3]), _dim3(sides[3:]))
        for metric, value in said.get(row["index"], {}).items():
            values.setdefault(key, {}).setdefault(metric, []).append(value)
    return {key: {metric: float(np.median(each)) for metric, each in by_metric.items()} for key, by_metric in values.items()}
