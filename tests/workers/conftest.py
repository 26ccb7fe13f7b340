"""The stand-in of the driver's library, built once."""

import pytest

from tests.workers.clocks.library import compile_library, compiler


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    if compiler() is None:
        pytest.skip("no C compiler: the stand-in of the driver's library is not built")
    return compile_library(tmp_path_factory.mktemp("nvml"))
