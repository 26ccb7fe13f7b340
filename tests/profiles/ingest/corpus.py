"""Where the real files are, and what is known about them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).resolve().parents[2] / "data"
CORPUS, H200 = DATA / "corpus", DATA / "h200"
TRUTH: list[dict[str, Any]] = [json.loads(line) for line in (CORPUS / "truth.jsonl").read_text().splitlines()]


def larger_are_deep(paths: Iterable[Path], most_bytes: int = 40_000) -> list[Any]:
    """Return the files of a test that all files pass: `make test` takes those of at most so many bytes, `make test-deep` all."""
    return [path if path.stat().st_size <= most_bytes else pytest.param(path, marks=pytest.mark.deep_only) for path in paths]


def mostly_deep(cases: Iterable[Any], *asked: str) -> list[Any]:
    """Return the cases of a test: `make test` takes those whose text ends in one of `asked`, `make test-deep` all.

    Raises AssertionError where one of `asked` names none.
    """
    cases = list(cases)
    assert all(any(str(case).endswith(name) for case in cases) for name in asked), (asked, cases)
    return [case if str(case).endswith(asked) else pytest.param(case, marks=pytest.mark.deep_only) for case in cases]
