"""Where the binaries of kernels lie that tests compile."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from tests.kept.folder import cache_folder
from tests.scale import DEEP

KEPT_S = 14 * 86400         # then a binary is compiled anew, whatever Triton's key says


@pytest.fixture(scope="session")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which Triton keeps binaries from one run to the next: their key is a hash of source, options and compiler.

    `make test-deep` compiles everything anew.
    """
    if DEEP:
        return tmp_path_factory.mktemp("triton")
    folder = cache_folder() / "triton"
    folder.mkdir(parents=True, exist_ok=True)
    for each in folder.iterdir():
        if each.stat().st_mtime < time.time() - KEPT_S:
            shutil.rmtree(each, ignore_errors=True)
    return folder
