"""A function between its callers and its callees: small trees with known sums, and every function of a recorded trace."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from profiles import ingest
from profiles.analysis.core.frame import frame_of
from profiles.analysis.trace.operators.topic import operators_result
from profiles.charts.operators import Box, functions, sandwich, tree_context
from profiles.ingest.trace import Trace
from profiles.topics import services
from profiles.topics.table import topic_of
from profiles.upload import services as services_upload
from tests.profiles.ingest.corpus import DATA
from tests.profiles.kernel.test_kernel_tabs import read

TOPIC = topic_of("operators")


def node(name: str, parent: int, total_ns: int, own_ns: int = 0, count: int = 1) -> dict[str, Any]:
    return {"name": name, "parent": parent, "total_ns": total_ns, "own_ns": own_ns, "count": count}


# main 100 ( f 60 ( g 50 ( f 15 ) ) · g 30 ( f 20 ) )
TREE = [node("main", -1, 100, 10, 9), node("f", 0, 60, 10, 5), node("g", 1, 50, 35, 4), node("f", 2, 15, 15, 1),
        node("g", 0, 30, 10, 3), node("f", 4, 20, 20, 2)]


def of_row(found: list[Box], row: int) -> dict[str, int]:
    return {box.full_name: box.total_ns for box in found if box.row == row}


def test_callers_stand_above_and_callees_below_with_their_sums() -> None:
    found = sandwich(TREE, "f")
    assert found is not None and (found.total_ns, found.count) == (80, 7)        # 60 and 20: the call within itself counts once
    assert of_row(found.callees, 0) == {"f": 80} and of_row(found.callees, 1) == {"g": 50} and of_row(found.callees, 2) == {"f": 15}
    last = found.caller_rows - 1
    assert of_row(found.callers, last) == {"f": 80} and of_row(found.callers, last - 1) == {"main": 60, "g": 20}
    assert of_row(found.callers, last - 2) == {"main": 20}


def test_the_list_of_functions_counts_a_call_within_itself_once() -> None:
    assert functions(TREE) == [("main", 100), ("g", 80), ("f", 80)] and sandwich(TREE, "gone") is None and functions([]) == []


@pytest.mark.parametrize("kind", ["stacks", "modules"])
def test_the_sums_of_every_function_agree_with_the_tree(kind: str) -> None:
    read_trace = ingest.read(DATA / "h200" / "kineto_layer_stack.json.gz")
    assert isinstance(read_trace, Trace)
    nodes = operators_result(frame_of(read_trace)).numbers[kind]
    outermost, above = defaultdict[str, int](int), list[set[str]]()
    for each in nodes:
        around = above[each["parent"]] | {nodes[each["parent"]]["name"]} if each["parent"] >= 0 else set()
        above.append(around)
        if each["name"] not in around:
            outermost[each["name"]] += each["total_ns"]
    listed = functions(nodes)
    assert len(listed) >= 3 and dict(listed) == {name: ns for name, ns in outermost.items() if name in dict(listed)}
    for name, total_ns in listed:
        found = sandwich(nodes, name)
        assert found is not None and found.total_ns == total_ns
        for boxes in (found.callers, found.callees):
            by_row = defaultdict[int, int](int)
            for box in boxes:
                by_row[box.row] += box.total_ns
            assert max(by_row.values()) == total_ns                             # no row holds more than the function
        assert of_row(found.callees, 0) == of_row(found.callers, found.caller_rows - 1) == {name: total_ns}


def test_the_page_shows_a_function_between_both(alice: Any, tmp_store: Any, client: Client) -> None:
    profile = read("kineto_layer_stack.json.gz")
    address = f"/profiles/{profile.pk}/analysis/operators/"
    assert TOPIC is not None
    services.topic_make(profile, TOPIC)
    whole = client.get(address, {"tree": "stacks"})
    assert whole.status_code == 200
    page = whole.content.decode()
    assert "Callers and callees of" in page and 'data-save="callers"' not in page
    name = next(name for name, _ in whole.context["functions"] if "aten::" in name)
    page = client.get(address, {"tree": "stacks", "of": name}).content.decode()
    assert 'data-save="callers"' in page and 'data-save="callees"' in page and 'data-save="tree"' not in page
    page = client.get(address, {"tree": "stacks", "of": "nowhere"}).content.decode()
    assert "No box “nowhere”" in page and 'data-save="tree"' in page


def table(title: str, columns: list[str], rows: list[list[Any]]) -> dict[str, Any]:
    return {"title": title, "columns": [{"name": name, "unit": "", "text": False} for name in columns], "rows": rows}


def test_scopes_of_a_table_are_a_tree() -> None:
    scopes = table("Scopes", ["Depth", "Scope or kernel", "Time", "Own time", "Launches"], [
        [0, "step", 100, 0, 5], [1, "\u2003forward", 60, 10, 3], [2, "\u2003\u2003gemm", 50, 50, 2], [1, "\u2003gemm", 40, 40, 2]])
    found = tree_context([scopes], "gemm")
    assert [(box.full_name, box.row, box.total_ns) for box in found["boxes"]] == [
        ("step", 0, 100), ("forward", 1, 60), ("gemm", 1, 40), ("gemm", 2, 50)]
    assert found["functions"][0] == ("step", 100) and ("gemm", 90) in found["functions"]
    assert found["sandwich"].total_ns == 90 and found["sandwich"].count == 4 and found["whole_ns"] == 100
    assert {box.name for box in found["sandwich"].callers} == {"gemm", "forward", "step"}
    assert tree_context([], "x") == {} and tree_context([scopes], "gone")["sandwich"] is None


def test_calls_of_a_table_are_callers_and_callees() -> None:
    every = table("Functions", ["Function", "File", "Calls", "Primitive calls", "Own", "Share", "Cumulative"], [
        ["main", "a.py:1", 1, 1, 5, 5.0, 100], ["work", "a.py:9", 4, 4, 30, 30.0, 80], ["sleep", None, 4, 4, 50, 50.0, 50]])
    names = ["Caller", "Callee", "Caller's file", "Callee's file", "Calls", "Primitive calls", "Own", "Cumulative"]
    calls = table("Calls", names, [
        ["main", "work", "a.py:1", "a.py:9", 4, 4, 30, 80], ["work", "sleep", "a.py:9", None, 4, 4, 50, 50],
        ["main", "work", "b.py:1", "b.py:9", 1, 1, 1, 1]])
    found = tree_context([every, calls], "work (a.py:9)")
    assert found["boxes"] == [] and found["functions"][0] == ("main (a.py:1)", 100)
    around = found["sandwich"]
    assert [(box.full_name, box.row, box.total_ns) for box in around.callers] == [
        ("work (a.py:9)", 1, 80), ("main (a.py:1)", 0, 80)]
    assert [(box.full_name, box.row, box.width) for box in around.callees] == [
        ("work (a.py:9)", 0, "100.0000"), ("sleep", 1, "62.5000")]


@pytest.mark.django_db
def test_pages_of_proton_and_of_cprofile_have_them(alice: Any, tmp_store: Any, client: Client) -> None:
    for file, name in (("corpus/proton/tritonbench_h100_softmax.hatchet", "softmax_kernel"),
                       ("cprofile/json_re_sleep.prof", "<built-in method time.sleep>")):
        path = Path("tests/data") / file
        made = services_upload.profile_create(owner=alice, file=SimpleUploadedFile(path.name, path.read_bytes()))
        assert services_upload.profile_ingest(made.pk, "test")
        assert "Callers and callees" in client.get(f"/profiles/{made.pk}/").content.decode()
        page = client.get(f"/profiles/{made.pk}/", {"of": name}).content.decode()
        assert 'data-save="callers"' in page and 'data-save="callees"' in page, file
        assert "No box “gone”" in client.get(f"/profiles/{made.pk}/", {"of": "gone"}).content.decode()
