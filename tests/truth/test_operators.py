"""The operator of a kernel's shape is that of the Operators page, and the innermost one around the launch call in the file."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from profiles.analysis.trace.operators.tree import readable
from profiles.ingest.naming.names import clip_name
from profiles.models import Profile
from tests.truth.asking import Asking
from tests.truth.counted import count
from tests.truth.files import FILES, TRACE, each_file

OUTSIDE = "(launched outside any operator)"
MOST_CHARS = 120                # of an operator's name at a kernel shape
ALIKE_CHARS = 100               # of names that two pages clip at different lengths
PATHS = {each.number: each.path for each in FILES}


@each_file(TRACE)
def test_shapes_have_the_operators_of_the_operators_page(profile: Profile, ask: Asking) -> None:
    """Both share out the same kernels; the page adds copies and sets to the operators that made them."""
    document = ask.topic("operators")
    table = next((each["rows"] for each in document["tables"] if each["title"] == "Operators"), [])
    of_page = {_name(row[0]): row[3] for row in table}
    of_shapes: dict[str, int] = defaultdict(int)
    for row in _shapes(ask):
        of_shapes[_name(row["operator"])] += row["total_ns"]
    if not of_page:                         # no operator, or nothing but ranges: then no shape names one
        assert set(of_shapes) <= {""}
        return
    beyond = {name for name in of_page if name.startswith("(the other ")}
    more = {name: ns - of_page.get(name, 0) for name, ns in of_shapes.items() if name or not beyond}
    assert not {name: ns for name, ns in more.items() if ns > 0 and not _folded(ask)}
    copies_ns = document["numbers"]["gpu_ns"] - (profile.gpu_time_ns or 0)
    if not beyond and not _folded(ask):
        assert sum(ns - of_shapes.get(name, 0) for name, ns in of_page.items()) == copies_ns


@each_file(TRACE, where=lambda file: file.format == "kineto")
def test_shapes_have_the_innermost_operator_of_the_file(profile: Profile, ask: Asking) -> None:
    expected: dict[str, dict[str, int]] = defaultdict(dict)
    for kernel, by_operator in count(PATHS[profile.pk]).operator_ns.items():
        for operator, ns in by_operator.items():
            name = clip_name(operator, MOST_CHARS)
            expected[kernel][name] = expected[kernel].get(name, 0) + ns
    told: dict[str, dict[str, int]] = defaultdict(dict)
    for row in _shapes(ask):
        told[row["name"]][row["operator"]] = told[row["name"]].get(row["operator"], 0) + row["total_ns"]
    wrong = {name: (expected[name], told[name]) for name in expected if name not in _folded(ask) and told[name] != expected[name]}
    assert not wrong, f"{len(wrong)} of {len(expected)} kernels, first (file, shapes): {next(iter(wrong.items()))}"


@each_file(TRACE, where=lambda file: file.format == "kineto")
def test_the_operators_page_has_the_innermost_operator_of_the_file(profile: Profile, ask: Asking) -> None:
    document = ask.topic("operators")
    table = next((each["rows"] for each in document["tables"] if each["title"] == "Operators"), [])
    expected: dict[str, int] = defaultdict(int)
    for operator, ns in count(PATHS[profile.pk]).work_by_operator_ns.items():
        expected[_name(operator)] += ns
    if not table:
        assert document["numbers"].get("kind") == "range" or set(expected) <= {""}
        return
    told = {_name(row[0]): row[3] for row in table if not row[0].startswith("(the other ")}
    wrong = {name: (expected.get(name, 0), ns) for name, ns in told.items() if expected.get(name, 0) != ns}
    assert not wrong, f"{len(wrong)} of {len(told)} operators, first (file, page): {next(iter(wrong.items()))}"


def _shapes(ask: Asking) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ask.json("api/kernel-shapes/")["kernel_shapes"]
    return rows


def _folded(ask: Asking) -> set[str]:
    """Return the kernels with more shapes than have a row: those left name no operator."""
    return {row["name"] for row in _shapes(ask) if row["shapes"] > 1}


def _name(operator: str) -> str:
    return "" if operator == OUTSIDE else readable(operator)[:ALIKE_CHARS]
