"""Launch records of a made-up fleet, and what is exactly true of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

START_NS = 1_793_800_000_000_000_000 // 3_600_000_000_000 * 3_600_000_000_000      # an hour of November 2026
HOUR_NS = 3_600_000_000_000
_ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::{}<float>, std::array<char*, {}ul> >(int)"
KERNELS = [(_ELEMENTWISE.format("FillFunctor", 1), 3e3), (_ELEMENTWISE.format("CUDAFunctor_add", 3), 9e3),
           ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT", 120e3), ("_attn_fwd", 300e3), ("rms_norm", 5e3)]


def make_records(count: int, seed: int = 1, hours: int = 3, gpus: int = 8, slow: Mapping[int, tuple[float, int]] | None = None,
                 spread: float = 0.05) -> list[dict[str, Any]]:
    """`slow`: GPU -> (factor, from which hour on)."""
    chance = np.random.default_rng(seed)
    out = []
    for number in range(count):
        kernel, base_ns = KERNELS[int(chance.integers(len(KERNELS)))]
        gpu, at_ns = number % gpus, int(chance.integers(hours * HOUR_NS))
        size = int(chance.integers(1, 3))
        factor, since = (slow or {}).get(gpu, (1.0, 0))
        dur_ns = base_ns * size * chance.lognormal(0, spread) * (factor if at_ns // HOUR_NS >= since else 1.0)
        out.append({"ts_ns": START_NS + at_ns, "dur_ns": int(dur_ns), "kernel": kernel, "grid": [132 * size, 1, 1],
                    "block": [256, 1, 1], "shared_bytes": 1024 * size, "gpu_uuid": f"GPU-{gpu:04}", "gpu_model": "NVIDIA H200",
                    "host": f"host-{gpu // 4}", "job": f"job-{gpu % 2}", "rank": gpu, "build": "b1" if at_ns < HOUR_NS else "b2"})
    return out


def write_records(path: Path, records: Iterable[Mapping[str, Any]]) -> Path:
    with gzip.open(path, "wt", compresslevel=1) as file:
        for record in records:
            file.write(json.dumps(record) + "\n")
    return path
