"""The recorded GEMM timings of tests/data/public_timing, as tests and benches draw from them."""

from functools import lru_cache
from pathlib import Path

import numpy as np

FILE = Path(__file__).parent / "data" / "public_timing" / "samples_ns.npz"


@lru_cache(maxsize=1)
def samples():
    """front end and toolkit → samples in µs, (runs, samples of a run), in the order taken."""
    with np.load(FILE, allow_pickle=False) as file:
        return {name: file[name] / 1e3 for name in file.files}


@lru_cache(maxsize=1)
def medians_us():
    """The same → median of each run, µs."""
    return {name: np.median(values, axis=1) for name, values in samples().items()}
