"""One launch of a team's operator on the GPU of this machine: is it right, and how long does the default take?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tuner.tuning.measure.accuracy import TOLERANCE, check_config
from tuner.tuning.team.adapter import TritonOperator
from tuner.tuning.team.problem import make_problem

LAUNCHES, WARM_UPS = 50, 10


def run_default(adapter: TritonOperator, shape: Mapping[str, int], dtype: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return {"gpu", "shape", "dtype", "config", "us", "error", "wrong"}, or {"failed"}.

    us     median of LAUNCHES launches by CUDA events, µs
    error  ‖out − reference‖ / ‖reference‖, and `wrong` why the result is not right ("" where it is): tuner.tuning.measure.accuracy
    """
    if not torch.cuda.is_available():
        return {"failed": "no GPU here"}
    try:
        problem = make_problem(adapter, shape, dtype, torch.device("cuda"), 0)
        _, verdict = check_config(problem, dict(config), 0, adapter.tolerance.get(dtype, TOLERANCE.get(dtype, TOLERANCE["bf16"])))
        for _ in range(WARM_UPS):
            problem.launch(dict(config))
        times_us = []
        for _ in range(LAUNCHES):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            problem.launch(dict(config))
            end.record()
            end.synchronize()
            times_us.append(begin.elapsed_time(end) * 1000)
    except Exception as error_met:
        return {"failed": f"{type(error_met).__name__}: {error_met}"[:600]}
    return {"gpu": torch.cuda.get_device_name(), "shape": dict(shape), "dtype": dtype, "config": dict(config),
            "us": sorted(times_us)[len(times_us) // 2], "error": verdict.relative_error,
            "wrong": "" if verdict.right else verdict.message}
