"""What a warm parent makes ready between requests, so that no fork does."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch and Triton are not installed (make test tries)")
pytest.importorskip("triton", reason="torch and Triton are not installed (make test tries)")

from tuner.bring.travel import measuring
from tuner.tuning.measure import warm

pytestmark = pytest.mark.torch


def test_modules_that_forks_run_are_made_ready_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fences need torch's compiler and SymPy: four seconds, which an own kernel's first trial took."""
    made: list[str] = []
    monkeypatch.setattr(measuring, "make_ready", lambda: made.append("fences"))
    steps = warm.prepare_more(("tuner.bring.travel.measuring", "tuner.bring.travel.compiling", "no_such_module"))
    next(steps)
    assert made == ["fences"]
    next(steps), next(steps)
    assert made == ["fences"]


def test_making_ready_imports_what_the_fences_of_a_problem_import() -> None:
    import sys

    measuring.make_ready()
    before = set(sys.modules)
    measuring.make_ready()
    assert set(sys.modules) == before and "torch._dynamo" in before
