"""The results of test_tuner_on_gpu.py as the tables of docs/tuner-gpu.md.

    python -m tests.gpu.tuner_report RESULTS.json > docs/tuner-gpu.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HEAD = """# The tuner on an H200

Measured by `tests/gpu/test_tuner_on_gpu.py` (`make test-gpu`) on {gpu}, torch {torch}, Triton {triton}, {date}.
Each shape of the recorded landscapes is searched cold: no history, no other shape, seed 1, at most {seconds} s and {trials} trials,
ended earlier by {plateau} trials without a gain.
"""
FIRST_BUDGET = {"seconds": 14, "trials": 240, "plateau": 90}        # of the first run, which does not say it
COLUMNS = ("operator, shape", "space", "trials", "best µs", "÷ recorded best", "÷ library", "within 2 % after", "search s",
           "GPU held s", "of that checking and timing", "compile core-s", "racing saved GPU-s")


def main(path: Path) -> None:
    document = json.loads(path.read_text())
    stages, machine = document["stages"], document["environment"]
    gpus = machine.get("gpus") or [{"name": "an NVIDIA H200"}]
    budget = next((stage["budget"] for stage in stages.values() if "budget" in stage), FIRST_BUDGET)
    print(HEAD.format(**budget, gpu=gpus[0]["name"], torch=machine["torch"].get("version", "?"),
                      triton=machine["triton"].get("version", "?"), date=document["date"][:10]))
    table(COLUMNS, [cold(name, stage) for name, stage in stages.items() if name.startswith("cold ")])
    print("""
÷ recorded best: the exhaustive recording's fastest time over the tuned one's; above 1 the wider kernels of today are faster.
÷ library: cuBLAS or torch in the same session over the tuned time. GPU held: seconds in which a configuration was checked and
timed; in the rest of the search the compilers worked, and the GPU was free for another job. What is not checking and timing of it
is moving inputs and binaries.
""")
    if "hostile space" in stages:
        hostile(stages["hostile space"])
    if "compile ahead" in stages:
        ahead(stages["compile ahead"])


def table(head: tuple[str, ...], rows: list[list[str]]) -> None:
    print(f"| {' | '.join(head)} |")
    print(f"|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def cold(name: str, stage: dict[str, Any]) -> list[str]:
    shape = " ".join(f"{dim}={size}" for dim, size in stage["shape"].items())
    use, soon = stage["use"], stage["within_2"]
    return [f"{name.split()[1]} {shape}", f"{stage['space']:,}", str(stage["trials"]), f"{stage['best_ms'] * 1e3:.4g}",
            f"{stage['reached']:.3f}", f"{stage['library_ratio']:.2f}",
            f"{soon['trials']} trials, {soon['seconds']:.1f} s" if soon else "—", f"{use['wall_s'] - use['open_s']:.1f}",
            f"{use['busy_s']:.2f}", f"{100 * stage['working_share']:.0f} %" if stage.get("working_share") else "—",
            f"{use['compile_s']:.0f}", f"{stage['racing_saved_s']:.2f}"]


def hostile(stage: dict[str, Any]) -> None:
    print("## A space that hangs, crashes, lies and spills\n")
    print(f"{stage['trials']} configurations, each fault named, none among the finalists.\n")
    table(("fault", "outcome"), [[fault, said.replace("\n", " ")[:110]] for fault, said in stage["said"].items()])
    gaps = ", ".join(f"{fault} {seconds} s" for fault, seconds in stage["replaced_after_s"].items())
    print(f"\nFrom a fault that killed the measuring child to the next finished trial: {gaps}.\n")


def ahead(stage: dict[str, Any]) -> None:
    print("## Compiling ahead\n")
    print("The same random search of matmul 2048³, for as long:\n")
    rows = [[label, str(stage[label]["trials"]), f"{stage[label]['compile_s']:.1f}", f"{stage[label]['busy_s']:.2f}"]
            for label in ("in the child", "ahead")]
    table(("compiled", "trials", "compile core-s", "GPU held s"), rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
