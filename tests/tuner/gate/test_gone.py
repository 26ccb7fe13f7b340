"""Kernels that a build has no line of: red until somebody says that they were meant to go, wherever a verdict is read."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse

from profiles.base.refused import Refused
from tests.tuner.gate.test_levels import H200, at, gate, runs
from tuner.gate.client import gate_request, make_parser
from tuner.gate.reports import REPORTS, github
from tuner.gate.verdicts import decide_services, selectors, services
from tuner.models import BaselineChange, Gate, Suite

pytestmark = pytest.mark.django_db
ALL = {"softmax": 40.0, "matmul": 90.0, "add": 12.0}
LEFT = {"softmax": 40.0, "matmul": 90.0}


@pytest.fixture
def suite() -> Suite:
    return Suite.objects.create(name="nightly", kind=Suite.Kind.UPLOADED, device="")


@pytest.fixture
def vanished(suite: Suite) -> Gate:
    """The gate of b2, which has no line of a kernel that b0 and b1 have."""
    gate(suite, 0, ALL)
    gate(suite, 1, ALL)
    return gate(suite, 2, LEFT)


def test_a_kernel_that_vanishes_is_red_everywhere(vanished: Gate) -> None:
    document = selectors.gate_document(vanished)
    assert (vanished.verdict, document["exit_code"]) == ("NO DATA", 2)
    gone = next(each for each in document["kernels"] if each["verdict"] == "NO DATA")
    assert "1 of 3 kernels without data: add N=64: b1 has runs of it" in vanished.reason
    assert gone["key"] == "add N=64" and gone["gone"] and "b1 has runs of it and this build has not" in gone["reason"]
    junit = REPORTS["junit"].make(document).decode()
    assert 'name="add N=64"' in junit and 'errors="1"' in junit and "--allow-gone" in junit
    assert github.check_run(document, head_sha="a" * 40)["conclusion"] == "action_required"
    assert "add N=64" in REPORTS["md"].make(document).decode()


def test_a_build_that_is_slower_too_says_what_is_gone_in_the_same_line(suite: Suite) -> None:
    for hour in range(2):
        gate(suite, hour, ALL)
    found = gate(suite, 2, {"softmax": 44.0, "matmul": 90.0})
    assert found.verdict == "SLOWER" and found.reason.endswith("; gone since the build before: add N=64")
    assert found.reason in REPORTS["md"].make(selectors.gate_document(found)).decode().replace("\\", "")


def test_it_stays_red_until_somebody_accepts_it(suite: Suite, vanished: Gate, alice: Any) -> None:
    for hour in (3, 4, 5):
        assert gate(suite, hour, LEFT).verdict == "NO DATA", "the baseline has forgotten it; the gate before has not"
    last = decide_services.accept_gone(Gate.objects.get(build__name="b5"), by=alice)
    assert last.verdict == "PASS"
    change = BaselineChange.objects.get(action="gone")
    assert (change.kernel.key, change.build.name, change.author) == ("add N=64", "b5", alice)
    assert gate(suite, 6, LEFT).verdict == "PASS"
    with pytest.raises(Refused, match="none of its kernels is gone"):
        decide_services.accept_gone(last, by=alice)
    assert gate(suite, 7, ALL).verdict == "PASS", "it is back"
    assert gate(suite, 8, LEFT).verdict == "NO DATA", "and gone again: that is another matter"


def test_the_option_lets_a_build_go_and_says_so(suite: Suite, vanished: Gate) -> None:
    allowed = gate(suite, 3, LEFT, allow_gone=True)
    assert allowed.verdict == "PASS" and "gone, as --allow-gone says: add N=64" in allowed.report["notes"]
    assert gate(suite, 4, LEFT).verdict == "NO DATA", "a request speaks for its own build"
    asked = gate_request(make_parser().parse_args(["--suite", "s", "--build", "b", "--allow-gone"]))
    assert asked["allow_gone"] is True


def test_the_page_and_the_api_accept_it(vanished: Gate, client: Any, alice: Any) -> None:
    client.force_login(alice)
    page = client.get(reverse("gate", args=[vanished.pk])).content.decode()
    assert "Accept 1 gone kernel" in page
    answer = client.post(reverse("gate-gone", args=[vanished.pk]))
    assert answer.status_code == 302
    vanished.refresh_from_db()
    assert vanished.verdict == "PASS"
    assert "Accept 1 gone" not in client.get(reverse("gate", args=[vanished.pk])).content.decode()
    again = client.post(reverse("api-gate-gone", args=[vanished.pk]))
    assert again.status_code == 409


def test_processes_that_leave_a_kernel_out_are_said(suite: Suite) -> None:
    gate(suite, 0, ALL)
    gate(suite, 1, ALL)
    lines = [each for each in runs(ALL, 2) if each["op"] != "add" or each["run"] in ("0", "1", "2")]
    found = services.create_gate(suite, "b2", at=at(2), environment=H200, records=lines)
    add = found.kernels.get(kernel__op="add")
    assert found.verdict == "AMBIGUOUS" and "2 of 5 processes have no line of it (the first: 3)" in add.reason
    alone = [{**each, "run": f"{each['op']} {each['run']}"} for each in runs(ALL, 3)]
    assert services.create_gate(suite, "b3", at=at(3), environment=H200, records=alone).verdict == "PASS", "a process a kernel"


def test_a_suite_whose_kernels_are_all_renamed_says_which_are_gone(suite: Suite, alice: Any) -> None:
    for hour in range(2):
        gate(suite, hour, ALL)
    renamed = {f"{name}_v2": us for name, us in ALL.items()}
    found = gate(suite, 2, renamed)
    said = {row.kernel.op: row for row in found.kernels.select_related("kernel")}
    assert found.verdict == "NO DATA" and {op for op, row in said.items() if row.facts.get("gone")} == set(ALL)
    assert gate(suite, 3, renamed).verdict == "NO DATA", "still nobody said that they were meant to go"
    accepted = decide_services.accept_gone(Gate.objects.get(build__name="b3"), by=alice)
    assert not any(row.facts.get("gone") for row in accepted.kernels.all())
    assert gate(suite, 4, renamed).verdict == "PASS"


def test_one_kernel_under_another_name_type_or_shape_is_gone_and_new(suite: Suite) -> None:
    for hour in range(2):
        gate(suite, hour, ALL)
    for hour, change in ((2, {"op": "Add"}), (3, {"dtype": "fp16"}), (4, {"shape": {"N": 65}}), (5, {"tag": "x"})):
        lines = [{**each, **(change if each["op"] == "add" else {})} for each in runs(ALL, hour)]
        found = services.create_gate(suite, f"b{hour}", at=at(hour), environment=H200, records=lines)
        rows = found.kernels.filter(verdict="NO DATA").select_related("kernel")
        told = {row.kernel.key: bool(row.facts.get("gone")) for row in rows}
        assert found.verdict == "NO DATA" and told["add N=64"] and len(told) == 2 and sum(told.values()) == 1
        found.build.delete()


def test_a_kernel_without_a_good_run_is_no_pass(suite: Suite) -> None:
    for hour in range(2):
        gate(suite, hour, ALL)
    for hour, bad in ((2, None), (3, []), (4, [float("nan")]), (5, [0.0] * 5)):
        lines = [{**each, **({"us": bad} if each["op"] == "add" else {})} for each in runs(ALL, hour)]
        found = services.create_gate(suite, f"b{hour}", at=at(hour), environment=H200, records=lines)
        assert found.verdict == "NO DATA" and found.kernels.get(kernel__op="add").verdict == "NO DATA"
        found.build.delete()
