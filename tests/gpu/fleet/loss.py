"""What collecting costs four workloads: `python -m tests.gpu.fleet.loss FOLDER [--only graph] [--seconds 100]`.

Each workload is a process of its own, measured against itself: before CUPTI came, and by interleaved blocks. FOLDER/loss.jsonl has
one line a phase as soon as it is known; a death is a line too. CUDA_VISIBLE_DEVICES says which GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

NAMES = ("graph", "gemm", "training", "eager")


def run(name: str, seconds: float, folder: Path) -> None:
    """Run one process, copy its lines."""
    log = folder / f"{name}.log"
    with log.open("w+") as errors, (folder / "loss.jsonl").open("a") as results:
        child = subprocess.Popen([sys.executable, "-X", "faulthandler", "-m", "tests.gpu.fleet.child", name, str(seconds)],
                                 stdout=subprocess.PIPE, stderr=errors, text=True)
        assert child.stdout
        for line in child.stdout:
            if line.startswith("{"):
                results.write(line)
                results.flush()
                sys.stdout.write(line[:700].rstrip() + "\n")
                sys.stdout.flush()
        try:
            status = child.wait(30)
        except subprocess.TimeoutExpired:
            child.kill()
            status = child.wait()
        if status:
            errors.seek(0)
            died = json.dumps({"workload": name, "phase": "died", "status": status, "words": errors.read()[-800:]})
            results.write(died + "\n")
            sys.stdout.write(died + "\n")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--only", nargs="*", default=NAMES, choices=NAMES)
    asked.add_argument("--seconds", type=float, default=100, help="of the agent by itself, each workload")
    options = asked.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        run(name, options.seconds, options.folder)


if __name__ == "__main__":
    main()
