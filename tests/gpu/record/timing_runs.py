"""Record fresh runs of small kernels on this GPU: what the noise of kernels of 5 to 20 µs is like, from process to process.

    python tests/gpu/record/timing_runs.py OUT.jsonl [--runs 24] [--seconds 420]

Each run is a new process, as a suite job's is (`workers.fresh.processes`);
all lines of one (op, shape, config) are identical code, the two
configurations of a shape are truly different. Lines as `tuner.tuning.measure.fresh.recorded_line`. The GPU's settings are left
alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tuner.tuning.measure.fresh import KernelRequest, recorded_line
from workers.core import gpu
from workers.fresh.processes import CHILD, FreshRuns, Side

KERNELS: tuple[tuple[str, str, dict[str, int], tuple[dict[str, object], ...]], ...] = (
    ("softmax", "fp16", {"R": 1024, "C": 1024}, (
        {"STEPS": 2, "PER_SM": 4, "num_warps": 4, "ROWS": 1, "BLOCK": 0},
        {"STEPS": 2, "PER_SM": 2, "num_warps": 4, "ROWS": 1, "BLOCK": 0})),
    ("layernorm", "fp16", {"R": 64, "C": 16384}, (
        {"BLOCK": 8192, "num_warps": 8, "num_stages": 2, "PASSES": 2, "ROWS": 1},
        {"BLOCK": 2048, "num_warps": 8, "num_stages": 2, "PASSES": 2, "ROWS": 1})),
    ("rmsnorm", "bf16", {"R": 512, "C": 4096}, (
        {"BLOCK": 4096, "num_warps": 8, "num_stages": 1, "PASSES": 1, "ROWS": 1},
        {"BLOCK": 4096, "num_warps": 4, "num_stages": 1, "PASSES": 1, "ROWS": 1})),
    ("add_rmsnorm", "bf16", {"R": 512, "C": 4096}, (
        {"BLOCK": 4096, "num_warps": 8, "num_stages": 1, "PASSES": 1, "ROWS": 1},
        {"BLOCK": 4096, "num_warps": 8, "num_stages": 1, "PASSES": 2, "ROWS": 1})),
    ("silu_mul", "bf16", {"R": 512, "C": 4096}, (
        {"ROWS": 1, "BLOCK": 1024, "num_warps": 4}, {"ROWS": 1, "BLOCK": 4096, "num_warps": 4})),
    ("matmul", "bf16", {"M": 16, "N": 4096, "K": 4096}, (
        {"BM": 16, "BN": 64, "BK": 128, "GM": 8, "num_warps": 4, "num_stages": 4, "KERNEL": "tiles", "SPLIT_K": 1,
         "STORE": "direct"},
        {"BM": 16, "BN": 32, "BK": 128, "GM": 8, "num_warps": 4, "num_stages": 4, "KERNEL": "tiles", "SPLIT_K": 1,
         "STORE": "direct"})),
    ("row_sum", "fp32", {"R": 1024, "C": 1024}, (
        {"ROWS": 1, "BLOCK": 1024, "SPLIT": 1, "num_warps": 4, "num_stages": 2},
        {"ROWS": 4, "BLOCK": 1024, "SPLIT": 1, "num_warps": 4, "num_stages": 2})),
    ("transpose", "fp16", {"R": 1024, "C": 1024}, (
        {"BM": 64, "BN": 64, "ORDER": "rows", "num_warps": 4}, {"BM": 32, "BN": 64, "ORDER": "rows", "num_warps": 4})),
)
WANTED = [KernelRequest(f"{op} {number} {place}", op, shape, dtype, config)                         # type: ignore[arg-type]
          for number, (op, dtype, shape, configs) in enumerate(KERNELS) for place, config in enumerate(configs)]


def record(out: Path, runs: int, seconds: float, child: str) -> int:
    """Runs that were recorded; each is written when its process has ended."""
    cards = gpu.gpus()
    card = cards[0] if cards else None
    fresh = FreshRuns(card.index if card else 0, gpu_uuid=card.uuid if card else "", module=child)
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ridgepoint-record-") as folder, out.open("w") as file:
        side = Side("recorded", compiled=Path(folder))
        for key, why in fresh.prepare(side, WANTED).items():
            print(f"{key}: {why}", flush=True)
        print(f"compiled after {time.monotonic() - began_s:.1f} s", flush=True)
        try:
            for run in range(1, runs + 1):
                started_s = time.monotonic()
                for wanted, taken in zip(WANTED, fresh.run(side, WANTED, seed=run, then=side), strict=True):
                    if taken.rejected:
                        print(f"run {run}, {wanted.key}: {taken.rejected}", flush=True)
                        continue
                    file.write(json.dumps(recorded_line(run, wanted, taken)) + "\n")
                file.flush()
                print(f"run {run}: {time.monotonic() - started_s:.1f} s", flush=True)
                if time.monotonic() - began_s > seconds:
                    return run
        finally:
            fresh.close()
    return runs


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=420.0)
    parser.add_argument("--child", default=CHILD, help="another program for the processes, for a try without a GPU")
    given = parser.parse_args()
    print(record(given.out, given.runs, given.seconds, given.child), "runs")
