"""The example of the guard: a suite over recorded H200 runs, a baseline and two builds.

Every number is one that was recorded: a "run" is one recorded process, and the replay worker serves others of them.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction

from tuner.cache.rules import toolkit_text
from tuner.gate.builds.services import ensure_build
from tuner.gate.suites.definition import read_definition
from tuner.gate.suites.run_services import run_record
from tuner.gate.suites.suite_services import suite_put
from tuner.gate.verdicts.services import create_gate
from tuner.models import Suite
from tuner.tuning.measure.replay import RecordedRuns, load_recorded, recorded_files

NAME, STEM = "example-h200", "timing_runs"
BASELINE_RUNS = 10
KERNELS: list[dict[str, Any]] = [
    {"op": "matmul", "shape": {"M": 4096, "N": 4096, "K": 4096}, "dtype": "bf16",
     "config": {"BM": 128, "BN": 256, "BK": 64, "GM": 8, "num_warps": 8, "num_stages": 3}},
    {"op": "softmax", "shape": {"R": 8192, "C": 4096}, "dtype": "fp16", "config": {"STEPS": 3, "PER_SM": 32, "num_warps": 8}},
    {"op": "layernorm", "shape": {"R": 8192, "C": 4096}, "dtype": "fp16",
     "config": {"BLOCK": 1024, "num_warps": 4, "num_stages": 2}},
]
SLOWER = {"softmax R=8192 C=4096 fp16": {"STEPS": 3, "PER_SM": 8, "num_warps": 8}}      # recorded too: 7 % slower
BUILDS = (("example-1", "the recorded configurations"), ("example-2", "the same code again"),
          ("example-3", "softmax with 8 programs on each SM instead of 32"))


def is_available() -> bool:
    """Return whether this installation holds the recorded runs."""
    return STEM in recorded_files()


def load(owner: Any) -> Suite:
    """Return the suite, made once; a replay worker judges its builds."""
    there = Suite.objects.filter(name=NAME).first()
    if there is not None:
        return there
    runs = load_recorded(STEM)
    with transaction.atomic():
        suite = suite_put(read_definition({"name": NAME, "title": "Triton kernels of an H200, recorded", "device": f"replay:{STEM}",
                                "baseline_runs": BASELINE_RUNS, "kernel": KERNELS}), owner=owner, new=True).suite
        (first, title), *later = BUILDS
        ensure_build(first, title=title)
        for kernel in suite.kernels.all():
            _store_runs(kernel, first, runs)
        for name, title in later:
            create_gate(suite, name, owner=owner, title=title, parent=first, configs=SLOWER if name == "example-3" else None)
    return suite


def _store_runs(kernel: Any, build: str, runs: RecordedRuns) -> None:
    recorded = runs.look_up(kernel.op, kernel.shape, kernel.dtype, kernel.config) or {}
    for number, (label, run) in enumerate(sorted(recorded.items())[:BASELINE_RUNS]):
        run_record(None, kernel, build, number=number, run=f"recorded run {label}", us=run.us, sm_clock_mhz=run.sm_clock_mhz,
                   facts={**dict(run.facts), "recorded_run": label, "recorded_in": STEM}, config=kernel.config, gpu=runs.gpu,
                   toolkit=toolkit_text(runs.environment), driver=runs.driver, environment=runs.environment, recorded=runs.label)
