"""Kernel files are imported, called and compiled in forks of one parent. In new processes: test_check.py, own/test_own.py."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tuner.bring import process


@pytest.fixture(scope="session", autouse=True)
def children_are_forks() -> Iterator[None]:
    """As those of a process that has imported torch already."""
    with pytest.MonkeyPatch.context() as patch:
        if find_spec("torch") and find_spec("triton"):
            from tests.warm.parent import Fork

            patch.setattr(process, "may_fork", lambda module: True)
            patch.setattr(process, "_Forked", Fork)
        yield
