"""The process that compiles samples of CUDA C++ for GPUs that need not be here; it opens no GPU and runs nothing of the text.

Started by `process` as `python -m tuner.bring.cuda.compiling PARENT_PID`; request and answers as those of `tuner.bring.child`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

from profiles.analysis.core import gpus
from profiles.analysis.kernel.occupancy import occupancy
from tuner.bring.forked import bound_data, in_fork
from tuner.tuning import wire
from tuner.tuning.cuda import nvrtc
from tuner.tuning.cuda.defines import without_defines

GPUS = {"sm_80": (8, 0), "sm_90": (9, 0), "sm_100": (10, 0)}
AT_ONCE = 16                # compiles, of which each takes some processes
MAX_DATA_BYTES = 8 << 30


def main(argv: Sequence[str]) -> int:
    """Answer one request; return the exit status."""
    wire.enter_child(int(argv[0]))
    request = json.loads(sys.stdin.readline())
    bound_data(MAX_DATA_BYTES)
    nvrtc.load()                        # once, for all forks
    with os.fdopen(int(os.environ["RIDGEPOINT_ANSWER_FD"]), "w") as answer:
        saying = threading.Lock()

        def compile_here(asked: tuple[dict[str, Any], str]) -> None:
            job, gpu = asked
            told = in_fork(compile_one, job, gpu, limit_s=request["compile_s"])
            with saying:
                answer.write(json.dumps({"compiled": job["name"], "gpu": gpu, "config": job["config"], **told}, default=str) + "\n")
                answer.flush()

        with ThreadPoolExecutor(min(os.cpu_count() or 1, AT_ONCE)) as pool:
            list(pool.map(compile_here, product(request["compile"], GPUS)))
    os.write(int(os.environ["RIDGEPOINT_WHOLE_FD"]), b".")
    return 0


def compile_one(job: Mapping[str, Any], gpu: str) -> dict[str, Any]:
    """Return the facts of one configuration for one GPU, or why it does not compile."""
    began_s = time.monotonic()
    try:
        file = Path(job["file"])
        text = without_defines(job["text"], frozenset(job["loose"]) & job["defines"].keys())
        binary = nvrtc.compile_function(text, job["expression"], job["defines"], nvrtc.arch_of(GPUS[gpu]), folder=file.parent,
                                        name=file.name)
        result: dict[str, Any] = {"registers": binary.n_regs, "spills": binary.n_spills, "smem_bytes": binary.static_smem_bytes,
                "occupancy_pct": None}
        limits = gpus.limits(".".join(map(str, GPUS[gpu])))
        if limits is not None and binary.n_regs:
            residency = occupancy(limits, job["threads"], binary.n_regs, binary.static_smem_bytes)
            result["occupancy_pct"] = round(residency.theoretical_pct, 2)
    except Exception as error:
        kind = "" if isinstance(error, nvrtc.CompileFailed) else f"{type(error).__name__}: "
        result = {"error": f"{kind}{error}"[:600]}
    return {**result, "seconds": round(time.monotonic() - began_s, 2)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
