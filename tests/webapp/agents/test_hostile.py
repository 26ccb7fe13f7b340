"""Arguments that nobody should send are answered as errors of the tool, and written down cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.webapp.agents.conftest import Site, Told, call
from webapp.agents.models import AgentCall
from webapp.agents.services import ANSWER_CHARS, ARGUMENTS_CHARS

pytestmark = [pytest.mark.servers, pytest.mark.django_db(transaction=True)]


def nested(depth: int) -> Any:
    inner: Any = 1
    for _ in range(depth):
        inner = {"M": inner}
    return inner


SHAPE = {"M": 64, "N": 64, "K": 64}
PROBLEM = {"operator": "matmul", "gpu": "x"}
HOSTILE = {
    "huge text": ("list_profiles", {"q": "x" * 500_000}),
    "huge id": ("get_job", {"job": 10**30}),
    "negative": ("list_jobs", {"limit": -1}),
    "too many": ("list_jobs", {"limit": 10**9}),
    "wrong type": ("get_kernel", {"profile": ["1"], "kernel": {"a": 1}}),
    "nothing": ("get_kernel", {}),
    "nested": ("get_problem", {**PROBLEM, "shape": nested(50)}),
    "wide": ("get_problem", {**PROBLEM, "shape": {f"D{n}": 1 for n in range(5000)}}),
    "named as an argument": ("get_problem", {**PROBLEM, "shape": {"operator": 1, "dtype": 2, "gpu": 3, "query": 4, "path": 5}}),
    "NUL": ("get_problem", {**PROBLEM, "gpu": "a\0b", "shape": SHAPE}),
    "a path": ("get_operator", {"operator": "packages/../../profiles/1"}),
    "a flag": ("get_problem", {**PROBLEM, "shape": {"M": True, "N": "x", "K": None}}),
    "not a number": ("start_tune_job", {"operator": "matmul", "shape": SHAPE, "device": "gpu", "first": [{"BM": float("nan")}]}),
    "for ever": ("start_tune_job", {"operator": "matmul", "shape": SHAPE, "device": "gpu", "budget_seconds": float("inf")}),
    "code": ("start_tune_job", {"operator": "__import__('os').system('id')", "shape": SHAPE, "device": "gpu"}),
    "a device": ("start_tune_job", {"operator": "matmul", "shape": SHAPE, "device": "replay:../../etc/passwd"}),
    "no such tool": ("drop_tables", {"x": 1}),
    "a tool's name": ("x" * 10_000, {}),
}


@pytest.mark.parametrize("mode", ["auto", pytest.param("legacy", marks=pytest.mark.deep_only)])
def test_hostile_arguments_are_errors_of_the_tool(site: Site, alice: Any, token_of: Callable[..., str], mode: str) -> None:
    token = token_of(alice)
    for name, (tool, arguments) in HOSTILE.items():
        told = call(site.mcp, token, tool, arguments, mode)
        assert isinstance(told, Told), (name, told)
        assert "Traceback" not in told and told != f"Error executing tool {tool}", (name, told)
    rows = list(AgentCall.objects.all())
    assert len(rows) == len(HOSTILE) and {row.outcome for row in rows} == {"refused"} and not any(row.writes for row in rows)
    assert max(len(row.arguments) for row in rows) == ARGUMENTS_CHARS and max(len(row.answer) for row in rows) <= ANSWER_CHARS
    assert call(site.mcp, token, "list_jobs")["total"] == 0


def test_words_are_words(site: Site, alice: Any, token_of: Callable[..., str]) -> None:
    token = token_of(alice)
    for words in ("%00", "a" * 200, "'; DROP TABLE x; --", "<script>", "../../etc/passwd"):
        assert call(site.mcp, token, "search", {"q": words}) == {"groups": []}, words
