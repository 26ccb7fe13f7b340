"""The gate on a real GPU, without Django: fresh processes, builds in turn, then the verdict. Numbers as JSON.

    python tests/gpu/gate_on_gpu.py OUT.json [--runs 5] [--seconds 240]

Three builds: "base"; "same", identical code; "slow", where one kernel has a worse configuration and another worse code, each
really slower. The baseline has twice the candidates' runs. AMBIGUOUS is measured again, in turn with the baseline, and decides.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from tuner.gate.stats.results import suite_json
from tuner.gate.stats.runs import KernelRuns, Run
from tuner.gate.stats.suite import judge
from tuner.tuning.measure.fresh import KernelRequest, KernelSamples
from tuner.tuning.team.packages import ENABLED
from workers.core import gpu
from workers.fresh.processes import FreshRuns, Side

PACKAGE = Path(__file__).resolve().parents[1] / "packages"
MATMUL = {"BM": 128, "BN": 256, "BK": 64, "GM": 8, "num_warps": 8, "num_stages": 3, "KERNEL": "tiles", "SPLIT_K": 1,
          "STORE": "direct"}
SOFTMAX = {"STEPS": 3, "PER_SM": 32, "num_warps": 8, "ROWS": 1, "BLOCK": 0}
KERNELS = [
    KernelRequest("matmul", "matmul", {"M": 4096, "N": 4096, "K": 4096}, "bf16", MATMUL),
    KernelRequest("softmax", "softmax", {"R": 8192, "C": 4096}, "fp16", SOFTMAX),
    KernelRequest("layernorm", "layernorm", {"R": 8192, "C": 4096}, "fp16",
           {"BLOCK": 1024, "num_warps": 4, "num_stages": 2, "PASSES": 2, "ROWS": 1}),
    KernelRequest("small softmax", "softmax", {"R": 1024, "C": 1024}, "fp16", {**SOFTMAX, "STEPS": 2, "PER_SM": 4, "num_warps": 4}),
    KernelRequest("small matmul", "matmul", {"M": 16, "N": 4096, "K": 4096}, "bf16",
           {**MATMUL, "BM": 16, "BN": 64, "BK": 128, "num_warps": 4, "num_stages": 4}),
    KernelRequest("clamp", "acme_clamp", {"N": 1 << 25}, "fp16", {"BLOCK": 2048, "num_warps": 8}),
]
SLOWER = {"softmax": {**SOFTMAX, "PER_SM": 8}}             # +7 % when the landscape was recorded
# A team's own slip: the kernel reads half of its input a second time, from the other end.
CODE = ("    tl.store(y + i, tl.maximum(v, low).to(y.dtype.element_ty), mask=i < N)",
        "    again = tl.load(x + N - 1 - i, mask=i < N // 2, other=0.0).to(tl.float32)\n"
        "    tl.store(y + i, (tl.maximum(v, low) + 0.0 * again).to(y.dtype.element_ty), mask=i < N)")
EXPECTED = {"softmax": "SLOWER", "clamp": "SLOWER"}
MOST_AGAIN = 12


@dataclass
class Build:
    name: str
    side: Side
    configs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    taken: dict[str, list[KernelSamples]] = field(default_factory=dict)

    def wanted(self, keys: Sequence[str]) -> list[KernelRequest]:
        return [KernelRequest(one.key, one.operator, one.shape, one.dtype, self.configs.get(one.key, one.config))
                for one in KERNELS if one.key in keys]

    def runs(self, start: Mapping[str, int] | None = None) -> list[KernelRuns]:
        """As the gate judges them; `start`: of each kernel only the runs from this one on."""
        found = []
        for one in KERNELS:
            mine = self.taken.get(one.key, [])[(start or {}).get(one.key, 0):]
            if start is None or one.key in start:
                found.append(KernelRuns(one.operator, one.shape, None, one.key, tuple(
                    Run(f"{self.name} {at}", np.asarray(taken.us), taken.sm_clock_mhz, str(taken.session.get("gpu")), "",
                        {name: taken.facts[name] for name in ("registers", "spills", "smem_bytes") if name in taken.facts})
                    for at, taken in enumerate(mine) if not taken.rejected)))
        return found


class Session:
    """Fresh runs on the first GPU, one line of output for each."""

    def __init__(self) -> None:
        card = gpu.gpus()[0]
        self.gpu, self.processes, self.began_s = card.as_json(), 0, time.monotonic()
        self.fresh = FreshRuns(card.index, gpu_uuid=card.uuid, environ={ENABLED: "acme-kernels"})

    def measure(self, order: Sequence[Build], keys: Sequence[str]) -> None:
        """One fresh run of each build in this order."""
        for at, build in enumerate(order):
            then = order[at + 1].side if at + 1 < len(order) else None
            for taken in self.fresh.run(build.side, build.wanted(keys), seed=self.processes, then=then):
                build.taken.setdefault(taken.key, []).append(taken)
                if taken.rejected:
                    print(f"{build.name}, {taken.key}: {taken.rejected}", flush=True)
            self.processes += 1
        print(f"{self.processes} runs after {time.monotonic() - self.began_s:.0f} s", flush=True)


def builds_in(folder: Path) -> dict[str, Build]:
    for name in ("good", "bad"):
        shutil.copytree(PACKAGE, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    kernels = folder / "bad" / "acme_kernels" / "kernels.py"
    text = kernels.read_text()
    head, clamp = text.split("def clamp(")
    assert CODE[0] in clamp
    kernels.write_text(f"{head}def clamp({clamp.replace(*CODE)}")
    sides = {name: Side(name, folder / code, folder / f"{name}-compiled")
             for name, code in (("base", "good"), ("same", "good"), ("slow", "bad"))}
    return {name: Build(name, side, SLOWER if name == "slow" else {}) for name, side in sides.items()}


def verdict(session: Session, base: Build, build: Build, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The first look; what it cannot tell is measured again, both builds in turn, and decided by those runs alone."""
    first = judge(base.runs(), build.runs())
    final = {kernel.key: kernel for kernel in first.kernels}
    unsure = [kernel for kernel in first.kernels if kernel.verdict == "AMBIGUOUS"]
    if unsure:
        more = min(MOST_AGAIN, max(kernel.more_runs for kernel in unsure) or 5)
        keys = [kernel.key for kernel in unsure]
        start = [{key: len(one.taken[key]) for key in keys} for one in (base, build)]
        for at in range(more):
            session.measure([base, build] if at % 2 == 0 else [build, base], keys)
        again = judge(base.runs(start[0]), build.runs(start[1]))
        final |= {kernel.key: kernel for kernel in again.kernels}
        rounds.append({"build": build.name, "kernels": keys, "runs_of_each": more, "verdict": again.verdict})
    return {"first": suite_json(first), "verdicts": {key: kernel.verdict.value for key, kernel in final.items()},
            "reasons": {key: kernel.reason for key, kernel in final.items()}}


def main(out: Path, runs: int, seconds: float) -> dict[str, Any]:
    """Everything that was measured and said; written to `out` after each step."""
    session = Session()
    keys = [one.key for one in KERNELS]
    document: dict[str, Any] = {"gpu": session.gpu, "expected": EXPECTED, "rounds": []}
    with tempfile.TemporaryDirectory(prefix="ridgepoint-gate-") as folder:
        builds = builds_in(Path(folder))
        base, same, slow = builds.values()
        try:
            for build in builds.values():
                for key, why in session.fresh.prepare(build.side, build.wanted(keys)).items():
                    print(f"{build.name}, {key}: {why}", flush=True)
            document["prepare_s"] = time.monotonic() - session.began_s
            for number in range(runs):
                order = [base, same, base, slow]
                session.measure(order if number % 2 == 0 else order[::-1], keys)
                if time.monotonic() - session.began_s > seconds:
                    break
            document["measured_s"] = time.monotonic() - session.began_s
            document["processes"] = session.processes
            for build in (same, slow):
                document[build.name] = verdict(session, base, build, document["rounds"])
                out.write_text(json.dumps(document, indent=1))
        finally:
            session.fresh.close()
            document["runs"] = [_line(build.name, key, at, taken) for build in builds.values()
                                for key, mine in build.taken.items() for at, taken in enumerate(mine)]
            document["seconds"] = time.monotonic() - session.began_s
            out.write_text(json.dumps(document, indent=1))
    return document


def _line(build: str, key: str, number: int, taken: KernelSamples) -> dict[str, Any]:
    kept = ("registers", "spills", "smem_bytes", "clocks", "compile_s", "throttled")
    session = {name: taken.session.get(name) for name in ("gpu", "driver", "cuda", "torch", "triton")}
    about = {name: getattr(taken, name) for name in ("config", "rejected", "source_hash", "sm_clock_mhz", "process")}
    facts = {name: taken.facts[name] for name in kept if name in taken.facts}
    return {"build": build, "kernel": key, "number": number, **about, **session, **facts, "us": list(taken.us)}


def shown(document: Mapping[str, Any]) -> str:
    seconds = [document.get(name, 0.0) for name in ("prepare_s", "measured_s", "seconds")]
    lines = [f"{document.get('processes')} processes; prepared after {seconds[0]:.0f} s, measured after {seconds[1]:.0f} s, "
             f"all done after {seconds[2]:.0f} s"]
    for name in ("same", "slow"):
        told = document.get(name, {})
        for kernel in told.get("first", {}).get("kernels", []):
            key = kernel["key"]
            lines.append(f"{name:5} {key:14} {kernel['verdict']:9} → {told['verdicts'][key]:9} {kernel['ratio_p50']:.4f} "
                         f"{kernel['ci']} {kernel['reason'][:150]}")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=180.0)
    given = parser.parse_args()
    print(shown(main(given.out, given.runs, given.seconds)))
