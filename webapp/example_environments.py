"""An example for /environments/: one GEMM through three front ends under two CUDA versions, as others recorded it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from django.conf import settings
from django.db import transaction

from tuner.models import Suite
from tuner.suites.definition import read
from tuner.suites.services import runs_store, suite_put

FILE = Path(settings.BASE_DIR) / "tests" / "data" / "public_timing" / "samples_ns.npz"
NAME, BUILD = "example-toolkits", "kernel_tuner_paper"
GPU, LABEL = "NVIDIA RTX A4000", "recorded on NVIDIA RTX A4000, fjwillemsen/kernel_tuner_paper"
SHAPE = {"M": 4096, "N": 4096, "K": 4096}
FRONT_ENDS = {"CUDA": "nvcc", "CUPY": "CuPy", "NVCUDA": "NVRTC"}
RUNS = 10                      # of the 1,000 of each file, evenly over the time that they took


def there() -> bool:
    """Whether this installation holds the recorded samples."""
    return FILE.is_file()


def load(owner: Any) -> Suite:
    """The suite with its runs, made once."""
    known = Suite.objects.filter(name=NAME).first()
    if known is not None:
        return known
    with np.load(FILE, allow_pickle=False) as file, transaction.atomic():
        suite = suite_put(read({"name": NAME, "title": "A GEMM under two CUDA versions, recorded", "kind": "uploaded"}),
                          owner=owner, new=True).suite
        for name in sorted(file.files, key=lambda name: name.rpartition("-")[2]):      # the older toolkit first
            front, _, cuda = name.partition("_CUDA-")
            rows = file[name]
            lines = [{"run": f"CUDA {cuda} {number}", "op": f"gemm {FRONT_ENDS[front]}", "shape": SHAPE, "dtype": "fp32",
                      "us": [float(us) for us in rows[number] / 1e3]} for number in range(0, len(rows), len(rows) // RUNS)]
            runs_store(suite, BUILD, lines, gpu=GPU, toolkit=f"cuda {cuda}", recorded=LABEL, owner=owner)
    return suite
