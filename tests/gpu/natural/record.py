"""Record traces of slow habits and of their twins, with what the twin saves in wall time a step.

    python -m tests.gpu.natural.record FOLDER [--of more|models|others] [--only NAME …]

Writes NAME.json.gz, NAME__without.json.gz and truth.json (milliseconds a step, median of 12, twice, without the profiler; GPU,
versions, date). Needs torch and, for some cases, transformers.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import gzip
import json
import shutil
import statistics
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from tests.gpu.natural.cases import CASES, Step
from tests.gpu.natural.models import MODELS
from tests.gpu.natural.more import MORE
from tests.gpu.natural.others import OTHERS

CASES_OF = {"cases": CASES, "more": MORE, "models": MODELS, "others": OTHERS}
WARM_STEPS, TIMED_STEPS, PROFILED_STEPS = 4, 12, 3


def measure_ms(step: Step) -> float:
    times = []
    for _ in range(TIMED_STEPS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times)


def record(step: Step, path: Path) -> None:
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, record_shapes=True,
                                schedule=torch.profiler.schedule(wait=1, warmup=1, active=PROFILED_STEPS)) as profiler:
        for _ in range(PROFILED_STEPS + 2):
            step()
            torch.cuda.synchronize()
            profiler.step()
    plain = path.with_suffix("")
    profiler.export_chrome_trace(str(plain))
    with plain.open("rb") as source, gzip.open(path, "wb", 9) as target:
        shutil.copyfileobj(source, target)
    plain.unlink()


def run_case(make: Any, folder: Path) -> dict[str, Any]:
    steps = dict(zip(("with", "without"), make(), strict=True))
    for step in steps.values():
        for _ in range(WARM_STEPS):
            step()
    row: dict[str, Any] = {"case": make.__name__, "with_ms": [], "without_ms": []}
    for _ in range(2):
        for name, step in steps.items():
            row[f"{name}_ms"].append(round(measure_ms(step), 3))
    row["saved_ms"] = round(statistics.mean(row["with_ms"]) - statistics.mean(row["without_ms"]), 3)
    for name, step in steps.items():
        record(step, folder / f"{make.__name__}{'' if name == 'with' else '__without'}.json.gz")
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--of", choices=CASES_OF, default="cases", help="a module of tests/gpu/natural; more needs torch alone")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    about = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "date": datetime.date.today().isoformat()}
    for make in CASES_OF[asked.of]:
        if asked.only and make.__name__ not in asked.only:
            continue
        began = time.monotonic()
        try:
            rows.append(run_case(make, asked.folder))
        except Exception as error:              # the others are recorded all the same
            traceback.print_exc()
            rows.append({"case": make.__name__, "error": f"{type(error).__name__}: {error}"[:300]})
        print(json.dumps(rows[-1]), f"{time.monotonic() - began:.1f} s", flush=True)
        (asked.folder / "truth.json").write_text(json.dumps({**about, "cases": rows}, indent=1) + "\n")
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
