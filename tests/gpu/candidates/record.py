"""Candidates judged on the GPU of this machine: good ones, wrong ones, ones that cheat, faults of the device; and a stopwatch.

    python -m tests.gpu.candidates.record [--out FILE.json] [--only WORD] [--seconds 500] [--warm]

Needs the tree, torch and Triton alone: no Django, no server. Writes after each candidate, so that a run that is cut short loses
nothing. With --warm the judges are forks of a warm parent, as a worker keeps one. Exit code 1 where a verdict is another one than
expected, 2 where no GPU is here.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from tests.gpu.candidates.files import BEST, FAULTS, GOOD, SHAPE, WRONG
from tests.gpu.candidates.judging import PROJECT, judge, walls
from tests.gpu.warm_parent import warm_parent
from tuner.tuning.operators import OPERATORS as OPERATORS_HERE
from workers.core import gpu

OPERATORS = {       # an operator's own file as a candidate of it: SAME as itself
    "matmul": ({"M": 4096, "N": 4096, "K": 4096}, "bf16"), "layernorm": ({"R": 8192, "C": 4096}, "fp16"),
    "attention": ({"B": 4, "H": 32, "N": 2048, "D": 128, "causal": 1}, "fp16"),
    "decode_attention": ({"B": 16, "H": 32, "KV": 8, "N": 8192, "D": 128}, "bf16"),
    "grouped_matmul": ({"M": 4096, "E": 8, "N": 2816, "K": 2048}, "bf16"), "add_rmsnorm": ({"R": 8192, "C": 4096}, "bf16")}
SAME = ("SAME", "AMBIGUOUS")
FAULT_S = 45.0


class Record:
    """What was judged so far, with what was expected."""

    def __init__(self, out: Path | None, seconds: float, only: str) -> None:
        self.out, self.only, self.end_s = out, only, time.monotonic() + seconds
        self.cases: dict[str, Any] = {}
        self.wrong: list[str] = []
        cards = gpu.gpus()
        nodes = [str(path) for path in gpu.device_nodes(cards[0])] if cards else []
        self.facts = {"gpus": [card.as_json() for card in cards], "walls": walls() or "made", "kernel": platform.release(),
                      "python": platform.python_version(), "nodes": nodes}

    def judge(self, name: str, text: str, verdicts: tuple[str, ...], words: str = "", **asked: Any) -> None:
        """Judge one, compare with what is expected, write everything down."""
        if self.only not in name or time.monotonic() > self.end_s:
            return
        told = judge(text, **asked)
        good = told["verdict"] in verdicts and words in told["reason"]
        self.cases[name] = {"as_expected": good, "expected": list(verdicts), **told}
        if not good:
            self.wrong.append(name)
        print(f"{'ok ' if good else 'NOT'} {told['took_s']:6.1f} s  {name}: {told['verdict']} {told['reason'][:150]}", flush=True)
        if not good:
            print(f"      expected {' or '.join(verdicts)} {words!r}; stderr: {told['ending']['said'][-300:]!r}", flush=True)
        self.write()

    def write(self) -> None:
        if self.out is not None:
            document = {"facts": self.facts, "shape": SHAPE, "best": BEST, "unexpected": self.wrong, "cases": self.cases}
            self.out.write_text(json.dumps(document, indent=1, default=str))


def main() -> int:
    """Run; return the exit code."""
    asked = argparse.ArgumentParser()
    asked.add_argument("--out", type=Path)
    asked.add_argument("--only", default="", help="candidates whose name holds this word")
    asked.add_argument("--seconds", type=float, default=500.0, help="begin none after so long")
    asked.add_argument("--warm", action="store_true", help="judge by forks of a warm parent")
    given = asked.parse_args()
    if not gpu.gpus():
        print("no NVIDIA GPU: neither NVML nor nvidia-smi shows one")
        return 2
    record = Record(given.out, given.seconds, given.only)
    print(json.dumps(record.facts), flush=True)
    record.write()
    with warm_parent(gpu.gpus()[0]) if given.warm else nullcontext() as keeper:
        if keeper is not None:
            record.facts["warm_parent"] = keeper.state()
        judge_all(record)
    print(f"{len(record.cases) - len(record.wrong)} of {len(record.cases)} as expected; not: {record.wrong}")
    return 1 if record.wrong else 0


def judge_all(record: Record) -> None:
    for name, (text, config, best, verdicts, words) in GOOD.items():
        record.judge(f"good: {name}", text, verdicts, words, config=config, best=best)
    for name, (text, words) in WRONG.items():
        record.judge(f"wrong: {name}", text, ("WRONG",), words)
    for name, text in FAULTS.items():
        record.judge(f"fault: {name}", text, ("FAILED",), wall_s=FAULT_S)
        record.judge(f"after {name}", GOOD["torch"][0], ("SLOWER",))
    for name, (shape, dtype) in OPERATORS.items():
        text = (PROJECT / f"{OPERATORS_HERE[name].kernel_module.replace('.', '/')}.py").read_text()
        record.judge(f"itself: {name}", text, SAME, operator=name, shape=shape, dtype=dtype)


if __name__ == "__main__":
    sys.exit(main())
