"""Launches the tuner's Triton matmul a few times: a single kernel for a counter replay.

    python -m workers.targets.matmul [--size 4096] [--launches 3] [--bm 128 --bn 256 --bk 64 --warps 8 --stages 3]
"""

from __future__ import annotations

import argparse

import torch

from tuner.tuning.kernels.matmul import Matmul


def main() -> None:
    parser = argparse.ArgumentParser()
    defaults = {"size": 4096, "launches": 3, "bm": 128, "bn": 256, "bk": 64, "warps": 8, "stages": 3}
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    problem = Matmul(dict.fromkeys("MNK", options.size), "bf16", torch.device("cuda"), 0)
    config = {"BM": options.bm, "BN": options.bn, "BK": options.bk, "GM": 8, "num_warps": options.warps,
              "num_stages": options.stages}
    for _ in range(options.launches):
        problem.launch(config)
    torch.cuda.synchronize()
    print(f"{options.launches} launches of {options.size}³ {config}", flush=True)


if __name__ == "__main__":
    main()
