"""Where the level of a series could have changed, by `ruptures`; `changes` decides which of them are changes."""

from __future__ import annotations

import math
import sys
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

MIN_BUILDS = 2             # on each side: one build alone may have had a bad session


def unavailable() -> str:
    """Why no change can be found here; "" where it can."""
    python = ".".join(map(str, sys.version_info[:2]))
    there = find_spec("ruptures") is not None
    return "" if there else f"Change points are not looked for: the library ruptures is not there for Python {python}."


def proposed(medians: NDArray[np.float64], noise: float) -> list[int]:
    """Starts of segments. The penalty is that of the BIC for a mean of known variance; merging takes away what is too much."""
    import ruptures  # here, since it takes 1 s, and only who looks for changes needs it

    penalty = 2.0 * math.log(len(medians)) * noise ** 2
    search = ruptures.KernelCPD(kernel="linear", min_size=MIN_BUILDS).fit((medians - medians.mean()).reshape(-1, 1))
    return [int(end) for end in search.predict(pen=penalty)[:-1]]
