"""The process that ncu counts: `ncu … python -m tuner.candidates.judge.counted`, the request on standard input: one launch.

The launches that count lie in the NVTX range `ridgepoint`, with a cold L2 before each, as a suite's do
(tuner.tuning.measure.counted).
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from tuner.candidates.judge import loading
from tuner.candidates.judge.child import read_request
from tuner.tuning.measure.counted import WARMUP, WarmKernel, launch_rounds
from tuner.tuning.operators import limits

ROUNDS = 1


def main() -> int:
    """Launch it; return the exit status."""
    request, device = read_request(), torch.device("cuda")
    own = loading.open_operator(request["operator"], request["shape"], request["dtype"], device, int(request["seed"]))
    properties = torch.cuda.get_device_properties(device)
    bounds = limits(properties.name, f"{properties.major}.{properties.minor}", properties.multi_processor_count)
    config = request["config"] or own.operator.default_config(request["shape"], request["dtype"], bounds)
    loaded = loading.load(loading.import_text(request["text"], Path.cwd(), own), own)
    for _ in range(WARMUP):
        loaded.launch(config)
    torch.cuda.synchronize()
    launch_rounds([WarmKernel("candidate", lambda: loaded.launch(config))], ROUNDS, True, device)
    return 0


if __name__ == "__main__":
    sys.exit(main())
