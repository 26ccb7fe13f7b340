"""How large hostile files are: a tenth in `make test`, whole in `make test-deep` (RIDGEPOINT_DEEP=1)."""

from __future__ import annotations

import os

import pytest

DEEP = os.environ.get("RIDGEPOINT_DEEP") == "1"
CHANGED_KERNELS = "RIDGEPOINT_CHANGED_KERNELS"      # paths of tuner/tuning/kernels, as of PATH: their tests are run whole
MIB = 1 << 20
BASE_BYTES = 200 * MIB          # what reading any file takes: it does not shrink with the file


def scale(size: int) -> int:
    """Return a size, or a tenth of it."""
    return size if DEEP else size // 10


def scale_bound(memory_bytes: int) -> int:
    """Return the memory that a file of `scale`d size may take, where the whole one may take `memory_bytes`."""
    return memory_bytes if DEEP else BASE_BYTES + (memory_bytes - BASE_BYTES) // 10


deep_only = pytest.mark.skipif(not DEEP, reason="takes minutes: make test-deep runs it")
