"""CUDA C++ from a bare file to a tuned operator on the GPU of this machine, as docs/bring.md tells it.

    python -m tests.gpu.bring.cuda_tutorial [--out FILE.json]

Needs torch, Triton, cuda-core and NVRTC. Each kernel is read, its adapter written, what its author has to write is written, the
default is checked and timed, and the space searched by the loop, compilers, child and checks of the tuner. Exit code 1 where one
does not go the whole way.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.gpu.known import of_operator
from tests.tuner.bring.cuda_files import KERNEL_TUNER, SCALE_ADD, TILED
from tuner.bring.check import check_file
from tuner.bring.cuda.check import read_sources
from tuner.bring.cuda.write import file_beside, write_cuda_adapter
from tuner.tuning.operators import find, limits
from tuner.tuning.search.finalists import measure_finalists
from tuner.tuning.search.loop import Budget, tune
from tuner.tuning.search.strategies import DEFAULT
from tuner.tuning.team import packages
from tuner.tuning.trial import Measured, Rejected, config_key
from workers.core import gpu
from workers.tune.sandbox import SandboxRunner

FACTS = ("registers", "spills", "smem_bytes", "occupancy_pct", "relative_error")
PROJECT = Path(__file__).resolve().parents[3]

# name → file, text, what the author changes in the adapter, what he compares with
KERNELS: dict[str, tuple[str, str, dict[str, str]]] = {
    "vector_add": ("add.py", KERNEL_TUNER, {'"n": 1048576': '"n": 1 << 26'}),
    "scale_add": ("scale.cu", SCALE_ADD, {
        'args["x"] + args["b"]': 'args["a"] * args["x"] + args["b"]', '"n": 4194304': '"n": 1 << 26',
        'cdiv(meta["n"], meta["block_size_x"])': 'cdiv(meta["n"], meta["block_size_x"] * meta["ITEMS_PER_THREAD"])'}),
    "tiled_matmul": ("tiled.cu", TILED, {
        "(16, 32, 64, 128)": "(4, 8, 16, 32, 64)",
        '"BM": 32, "BN": 32': '"BM": 16, "BN": 16', '("fp32", "fp16", "bf16")': '("bf16", "fp16")',
        '"M": 4096, "N": 4096, "K": 4096': '"M": 1000, "N": 1024, "K": 520'}),
}


def install(folder: Path, module: str) -> None:
    """Make the adapter a distribution on the path, as a team's wheel would."""
    info = folder / "acme_cuda-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-cuda\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[ridgepoint.operators]\nacme = {module}:OPERATORS\n")


def tune_it(name: str, budget_s: float) -> dict[str, Any]:
    """Search the operator's space with the tuner's own parts; return what was found beside default and library, times in µs."""
    packages.provide()
    card, operator = gpu.gpus()[0], find(name)
    assert operator is not None, f"{name} is not offered"
    shape, dtype = dict(operator.presets[0]), operator.dtypes[0]
    runner = SandboxRunner(name, shape, dtype, card.index, gpu_uuid=card.uuid, seed=5, environ=dict(os.environ))
    began_s = time.monotonic()
    try:
        session = runner.open()
        there = limits(session.gpu, session.compute_capability, session.environment.get("sms"))
        space, default = operator.space(shape, dtype, there), operator.default_config(shape, dtype, there)
        known = of_operator(operator, shape, dtype, there, default=default)
        budget = Budget(trials=200, seconds=budget_s, plateau=80)
        trials = list(tune(space, DEFAULT, runner, budget, 1, first=[default], known=known))
        finals = measure_finalists(runner, trials, default)
        used = runner.use()
    finally:
        runner.close()
    best, right = finals[0], [each for each in trials if isinstance(each.outcome, Measured)]
    refused = [each.outcome for each in trials if isinstance(each.outcome, Rejected)]
    rejected = Counter(f"{each.reason}: {each.message[:120]}" for each in refused)
    again = next(each for each in finals if config_key(each.config) == config_key(default))
    measured = next(each.outcome.facts for each in right if config_key(each.config) == config_key(best.config))
    assert best.median_ms is not None and again.median_ms is not None
    return {"shape": shape, "dtype": dtype, "space": len(space), "trials": len(trials), "right": len(right), "rejected": rejected,
            "default": dict(default), "default_us": again.median_ms * 1000, "best": dict(best.config),
            "best_us": best.median_ms * 1000, "library_us": (session.library_ms or 0) * 1000,
            "search_s": round(time.monotonic() - began_s - used.open_s, 2), "compile_core_s": round(used.compile_s, 2),
            "compiled": used.compiled, "facts": {name: measured.get(name) for name in FACTS}}


def go_the_whole_way(name: str, folder: Path, budget_s: float) -> dict[str, Any]:
    """Return what was said, written and measured of one kernel, from its bare file on."""
    file, text, changes = KERNELS[name]
    path = folder / file
    path.write_text(text)
    bare, = check_file(path)
    [source] = read_sources(path) or []
    adapter = folder / f"{path.stem}_ridgepoint.py"
    beside, script = file_beside(source, adapter)
    if script is not None:
        (folder / beside).write_text(script)
    draft = write_cuda_adapter(source, beside)
    written = draft.text
    for before, after in changes.items():
        assert before in written, (name, before)
        written = written.replace(before, after)
    adapter.write_text(written)
    found, = check_file(adapter, run=True)
    install(folder, adapter.stem)
    child = subprocess.run([sys.executable, "-m", "tests.gpu.bring.cuda_tutorial", "--tune", name, "--seconds", str(budget_s)],
                           capture_output=True, text=True, env={
        **os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(PROJECT))), packages.ENABLED: "acme-cuda"})
    tuned = json.loads(child.stdout.splitlines()[-1]) if child.returncode == 0 else {"failed": child.stderr[-3000:]}
    return {"name": name, "bare": bare.as_json(), "left_to_do": draft.to_do, "changed": changes, "adapter": written,
            "operator": found.as_json(), "tuned": tuned,
            "whole": found.measured is not None and not found.problems and "best_us" in tuned}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tune", default="")
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    if options.tune:
        print(json.dumps(tune_it(options.tune, options.seconds)))
        return 0
    import cuda.core
    import torch

    results = []
    for name in KERNELS:
        with tempfile.TemporaryDirectory() as folder:
            results.append(go_the_whole_way(name, Path(folder), options.seconds))
        each = results[-1]
        print(name, "whole" if each["whole"] else each["operator"]["problems"], each["operator"]["measured"], each["tuned"],
              flush=True)
    document = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda_core": cuda.core.__version__,
                "date": time.strftime("%Y-%m-%d"), "kernels": results}
    if options.out:
        options.out.write_text(json.dumps(document, indent=1, default=str))
    return 0 if all(each["whole"] for each in results) else 1


if __name__ == "__main__":
    sys.exit(main())
