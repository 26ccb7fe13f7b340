"""How soon a compile process has its first kernel: a fork of a worker's warm parent, and a new process.

One softmax for sm_90, compiled without a GPU, its binaries in a new folder each time. What a whole job takes on a GPU is measured
by `python tests/gpu/warm_start.py FOLDER` and stands in docs/tuner-gpu.md.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from typing import Any

from tuner.tuning.operators import OPERATORS, limits
from workers.core import warm
from workers.core.child import Child, safe_environment
from workers.tune.sandbox import COMPILER

REPEATS = 3
LIMIT_S = 300.0
SHAPE, DTYPE, CAPABILITY, SMS = {"R": 2048, "C": 2048}, "fp16", "9.0", 132
BUDGET = 0.5                 # of a new process's time: it is mostly imports


def run() -> list[dict[str, Any]]:
    keeper = warm.Keeper(safe_environment(), CAPABILITY)
    began_s = time.monotonic()
    keeper.tend()
    while keeper.parent is not None and not keeper.parent.ready:
        time.sleep(0.02)
        keeper.tend()
    ready_s = time.monotonic() - began_s
    try:
        if keeper.parent is None:
            return [{"what": "first kernel of a compile process", "measured": f"— ({keeper.why[:200]})",
                     "reference": "a new process", "ratio": None, "budget": "", "ok": None}]
        new_s = statistics.median(first_kernel_s() for _ in range(REPEATS))
        warm.keep(keeper)
        forked_s = statistics.median(first_kernel_s() for _ in range(REPEATS))
    finally:
        warm.keep(None)
        keeper.close()
    ratio = forked_s / new_s
    return [{"what": "first kernel of a compile process, forked of a warm parent", "measured": f"{forked_s:.2f} s",
             "reference": f"a new process: {new_s:.2f} s; the parent was ready after {ready_s:.2f} s", "ratio": ratio,
             "budget": f"≤ {BUDGET:g} of it", "ok": ratio <= BUDGET}]


def first_kernel_s() -> float:
    """Return seconds from the start of a compile process to its first compiled kernel."""
    config = OPERATORS["softmax"].default_config(SHAPE, DTYPE, limits("", CAPABILITY, SMS))
    with tempfile.TemporaryDirectory() as folder:
        began_s, stop = time.monotonic(), threading.Event()
        child = Child(COMPILER, {"TRITON_CACHE_DIR": folder})
        try:
            for request in ({"do": "open", "operator": "softmax", "shape": SHAPE, "dtype": DTYPE, "seed": 1,
                             "compute_capability": CAPABILITY, "sms": SMS}, {"do": "compile", "config": dict(config)}):
                answer = child.ask(request, LIMIT_S, stop)
                if "ok" not in answer:
                    raise RuntimeError(str(answer)[:500])
            return time.monotonic() - began_s
        finally:
            child.close()
