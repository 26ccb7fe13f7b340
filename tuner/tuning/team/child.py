"""The process that imports a team's package: describes operators, prunes spaces.

Started by workers.tune.team as `python -m tuner.tuning.team.child PID describe PACKAGE` or `… PID prune OPERATOR DTYPE
SHAPE-AS-JSON`; PID is the worker's, with which it ends. The answer is JSON on the file descriptor that RIDGEPOINT_ANSWER_FD
names; what a package prints is not read as an answer.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ["CUDA_VISIBLE_DEVICES"] = ""       # before torch: describing needs no GPU and may take none from a measurement

import torch

from profiles.base.refused import Refused
from tuner.tuning import wire
from tuner.tuning.kernels.problem import torch_dtype
from tuner.tuning.operators import find
from tuner.tuning.team import packages


def describe(package: str) -> list[dict[str, Any]]:
    """Return the description of every operator of a package."""
    return [packages.describe_adapter(adapter) for adapter in packages.load_adapters(package).values()]


def prune(name: str, dtype: str, shape: dict[str, int]) -> dict[str, Any]:
    """Apply Triton's own steps in order: early_config_prune, then the perf_model's top_k."""
    if find(name) is None:
        raise Refused(f"no enabled package offers {name}")
    kernel = packages.adapter_of(name).kernel
    configs = list(getattr(kernel, "configs", ()))
    args = dict(packages.adapter_of(name).arguments(shape, torch_dtype(dtype), torch.device("meta")))
    kernel.nargs = args
    early = list(kernel.early_config_prune(configs, args)) if kernel.early_config_prune else configs
    left = list(kernel.prune_configs({}))
    return {"kept": [packages.config_json(config) for config in left],
            "pruned": {reason: count for reason, count in (("early_config_prune", len(configs) - len(early)),
                                                           ("perf_model's top_k", len(early) - len(left))) if count}}


def main(worker_pid: str, *argv: str) -> int:
    """Answer one question of the worker; return the exit status."""
    wire.enter_child(int(worker_pid))         # a package that hangs outlives no worker
    packages.provide()
    try:
        answer: Any = {"ok": describe(argv[1]) if argv[0] == "describe" else prune(argv[1], argv[2], json.loads(argv[3]))}
    except Exception as error:        # a team's code may raise anything: it is told, not hidden
        answer = {"failed": f"{type(error).__name__}: {error}"[:1000]}
    with os.fdopen(int(os.environ["RIDGEPOINT_ANSWER_FD"]), "w") as file:
        json.dump(answer, file, allow_nan=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
