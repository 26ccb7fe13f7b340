"""Fresh runs of kernels: the one shape that every source of timings is brought to before it is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profiles.analysis.gate.names import parts


@dataclass(frozen=True)
class Run:
    """One kernel in one fresh process."""

    run: str                                    # label of the process: kernels of one process share it
    us: NDArray[np.float64]                     # (samples,), µs, in the order taken
    sm_clock_mhz: float | None = None           # median while it was timed; None: not sampled
    gpu: str = ""                               # model
    environment: str = ""                       # "cuda 13.0, triton 3.6.0, driver 580.159"; "": not said
    facts: Mapping[str, Any] = field(default_factory=dict)     # registers, spills, smem_bytes, any metric by name
    id: int | None = None                       # of the row it comes from


@dataclass(frozen=True)
class KernelRuns:
    """All runs of one kernel on one side of a comparison."""

    op: str
    shape: Any = field(default_factory=dict)    # a mapping; in files of other people's making also a list, a text, a number
    config: Any = None                          # a mapping, or the same; None: not said
    key: str = ""                               # of the suite's kernel; "": a file's, told apart by op, shape and config
    runs: Sequence[Run] = ()
    notes: Sequence[str] = ()                   # what the reader had to say: "run 3 was there twice"

    @property
    def name(self) -> str:
        """For people: "matmul M=4096 N=4096 K=4096"."""
        return self.key or " ".join([self.op, *parts(self.shape)])
