"""What XProf's collectors say of GPU work in one text, the same in trace JSON and in XPlane.

CUPTI: `regs:38 static_shared:0 dynamic_shared:16 grid:160,1,1 block:1024,1,1 occ_pct:50`, before 2021 `shm:0`; rocprofiler:
`grid:16,1,1 block:512,1,1 private_mem:0 group_mem:0 occ_pct:0`; copies: `kind_src:pinned kind_dst:device size:4 dest:1 async:1`
(xla/backends/profiler/gpu of openxla/xla: cupti_collector, rocm_collector).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from profiles.ingest.core.events import MISSING

_PAIR = re.compile(r"(\w+):([\w.,]+)")
_NONE = (MISSING, MISSING, MISSING)
_CHARS = 1000


class Shape(NamedTuple):
    """Of one launch; MISSING and NaN where it is not said."""

    grid: tuple[int, int, int] = _NONE
    block: tuple[int, int, int] = _NONE
    registers_per_thread: int = MISSING
    smem_bytes: int = MISSING
    occupancy_pct: float = float("nan")


def shape_of(text: str) -> Shape:
    """Return the shape of a launch from `kernel_details`.

    An occupancy of 0 is one that was not measured.
    """
    said = dict(_PAIR.findall(text[:_CHARS]))
    shared = [_whole(said[key]) for key in ("shm", "static_shared", "dynamic_shared", "group_mem") if key in said]
    occupancy = said.get("occ_pct", "")
    return Shape(_triple(said.get("grid", "")), _triple(said.get("block", "")), _whole(said.get("regs", "")),
                 sum(shared) if shared and MISSING not in shared else MISSING,
                 float(occupancy) if re.fullmatch(r"\d{1,3}(\.\d+)?", occupancy) and float(occupancy) > 0 else float("nan"))


def bytes_of(text: str) -> int:
    """Return the bytes from `memcpy_details` and `memset_details`."""
    said = dict(_PAIR.findall(text[:_CHARS]))
    return next((_whole(said[key]) for key in ("size", "num_bytes") if key in said), MISSING)


def _whole(text: str) -> int:
    return int(text) if text.isdigit() and len(text) < 19 else MISSING


def _triple(text: str) -> tuple[int, int, int]:
    parts = [_whole(part) for part in text.split(",")]
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 and all(0 <= part < 2**31 for part in parts) else _NONE
