"""The example of /environments/: one GEMM, three front ends, two CUDA versions, recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from django.conf import settings
from django.db import transaction

from tuner.gate.suites.definition import read_definition
from tuner.gate.suites.suite_services import suite_put
from tuner.gate.suites.upload_services import runs_store
from tuner.models import Suite

FILE = Path(settings.BASE_DIR) / "tests" / "data" / "public_timing" / "samples_ns.npz"
NAME, BUILD = "example-toolkits", "kernel_tuner_paper"
GPU, LABEL = "NVIDIA RTX A4000", "recorded on NVIDIA RTX A4000, fjwillemsen/kernel_tuner_paper"
SHAPE = {"M": 4096, "N": 4096, "K": 4096}
FRONT_ENDS = {"CUDA": "nvcc", "CUPY": "CuPy", "NVCUDA": "NVRTC"}
RUNS = 10                      # of the 1,000 of each file, evenly over the time that they took


def is_available() -> bool:
    """Return whether this installation holds the recorded samples."""
    return FILE.is_file()


def load(owner: Any) -> Suite:
    """Return the suite with its runs, made once."""
    old_suite = Suite.objects.filter(name=NAME).first()
    if old_suite is not None:
        return old_suite
    with np.load(FILE, allow_pickle=False) as file, transaction.atomic():
        suite = suite_put(read_definition({"name": NAME, "title": "A GEMM under two CUDA versions, recorded", "kind": "uploaded"}),
                          owner=owner, new=True).suite
        for name in sorted(file.files, key=lambda name: name.rpartition("-")[2]):      # the older toolkit first
            front, _, cuda = name.partition("_CUDA-")
            rows = file[name]
            lines = [{"run": f"CUDA {cuda} {number}", "op": f"gemm {FRONT_ENDS[front]}", "shape": SHAPE, "dtype": "fp32",
                      "us": [float(us) for us in rows[number] / 1e3]} for number in range(0, len(rows), len(rows) // RUNS)]
            runs_store(suite, BUILD, lines, gpu=GPU, toolkit=f"cuda {cuda}", recorded=LABEL, owner=owner)
    return suite
