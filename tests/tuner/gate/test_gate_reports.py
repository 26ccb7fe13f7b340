"""What a pipeline takes away from a gate: every form of one document, with hostile names in it."""

import json
import math
import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.gate import client
from tuner.gate.reports import REPORTS, github, junit, markdown, words
from tuner.gate.stats.rule import ERROR_EXIT_CODE, EXIT_CODE, SIGN, Verdict
from tuner.gate.verdicts.selectors import exit_code
from tuner.models import Gate

SHA = "3f2a" + "0" * 36
HOSTILE = "matmul | `x` @team <b>\x00\x1b[31m\nM=4 ]( javascript:x"


def kernel(verdict="PASS", ratio=1.001, **more):
    return {"key": f"softmax R=8192 C=4096 fp16 {ratio}", "op": "softmax", "shape": {"R": 8192}, "config": None, "verdict": verdict,
            "reason": f"p50 {ratio}", "ratio_p50": ratio, "ci": [ratio - 0.01, ratio + 0.01], "ratio_p95": ratio,
            "baseline_us": 38.5, "candidate_us": 38.5 * ratio, "baseline_runs": 10, "candidate_runs": 5, "detectable": 0.034,
            **more}


def gate(*kernels, verdict="SLOWER", **more):
    return {"id": 7, "suite": "serving.fast", "build": SHA, "status": "done", "verdict": verdict, "reason": "One kernel is slower.",
            "alpha": 0.01, "created": "2026-11-22T00:25:00.123456+00:00", "finished": "2026-11-22T00:29:00+00:00",
            "environment": {"gpu": "NVIDIA H200", "toolkit": "cuda 13.0, triton 3.6.0", "driver": "580.1",
                            "recorded": "recorded on NVIDIA H200"},
            "kernels": list(kernels), "links": {"page": "https://guard.example/gates/7/"}, **more}


FOUR = gate(kernel("SLOWER", 1.081), kernel("AMBIGUOUS", 1.03),
            kernel("NO DATA", ratio_p50=None, ci=None, ratio_p95=None, detectable=None),
            kernel("FASTER", 0.9), kernel("PASS", 1.001))


# ---- words ----

@pytest.mark.parametrize(("ratio", "text"), [(1.081, "+8.1 %"), (0.9, "−10.0 %"), (1.0, "0.0 %"), (None, "—"), (float("nan"), "—"),
                                             (True, "—")])
def test_a_ratio_is_said_as_a_change(ratio, text):
    assert words.change_text(ratio) == text


def test_the_risks_are_stated_with_the_kernel_they_are_largest_for():
    lines = words.error_rates(gate(kernel(detectable=0.011, false_alarms=0.0002), kernel(ratio=1.01, detectable=0.056)))
    assert lines[0] == "A suite of identical code ends SLOWER in at most 1 % of gates."
    assert "0.02 %" in lines[1]
    assert lines[2] == "Smallest slowdown that these runs could show: 1.1 % to 5.6 %, largest for softmax R=8192 C=4096 fp16 1.01."
    assert "Unknown for 1 of 1 kernels" in words.error_rates(gate(kernel(detectable=None)))[1]


@pytest.mark.parametrize(("more", "code"), [
    ({"verdict": "PASS"}, 0), ({"verdict": "FASTER"}, 0), ({"verdict": "SLOWER"}, 1), ({"verdict": "AMBIGUOUS"}, 2),
    ({"verdict": "NO DATA"}, 2),
    ({"verdict": "", "status": "failed"}, 3), ({"verdict": "", "status": "stopped"}, 2),
    ({"verdict": "", "status": "measuring"}, None)])
def test_exit_codes(more, code):
    assert exit_code(Gate(status=more.get("status", "done"), verdict=more["verdict"])) == code


def test_the_client_knows_the_same_exit_codes_and_words():
    assert {client.PASS, client.SLOWER, client.UNDECIDED} == set(EXIT_CODE.values()) and client.ERROR == ERROR_EXIT_CODE
    assert (EXIT_CODE[Verdict.PASS], EXIT_CODE[Verdict.SLOWER], EXIT_CODE[Verdict.AMBIGUOUS]) == (
        client.PASS, client.SLOWER, client.UNDECIDED)
    assert set(client.MARK) == set(SIGN) == set(Verdict)


# ---- Markdown ----

def test_the_comment_shows_the_worst_first_and_folds_what_passed():
    text = markdown.comment(FOUR)
    table, folded = text.split("<details>")
    assert [row.split("|")[1].strip() for row in table.splitlines() if row.startswith("| ") and "runs |" not in row] == [
        "▲ SLOWER", "? AMBIGUOUS", "∅ NO DATA", "▼ FASTER"]
    assert "✓ PASS" in folded and "1 kernel more" in folded
    assert text.startswith("### ❌ SLOWER: 3f2a00000000 of serving.fast, softmax")
    assert "+8.1 %" in table and "+7.1 … +9.1 %" in table and "10 / 5" in table
    assert "[Evidence: samples, clocks and counters of both builds](https://guard.example/gates/7/)" in text
    assert "recorded on NVIDIA H200" in text and "at most 1 %" in text


def test_names_of_others_stay_names():
    text = markdown.comment(gate(kernel("SLOWER", 1.2, key=HOSTILE, reason=HOSTILE), build=HOSTILE,
                              reason="see https://bad.example @all"))
    row = next(line for line in text.splitlines() if line.startswith("| ▲"))
    assert row.count("|") - row.count("\\|") == 9                # eight cells
    assert "@team" not in text.replace(row, "").replace("`matmul | 'x' @team <b> [31m M=4 ]( javascript:x`", "")
    assert "https://bad.example" not in text and "@all" not in text and "\x1b" not in text
    assert "<b>" not in text.replace("`", "\n`").splitlines()[0]


@pytest.mark.parametrize("limit", [1500, 5000, 60_000])
def test_a_comment_of_many_kernels_stays_in_its_bounds_and_counts_what_it_leaves_out(limit):
    many = gate(*(kernel("SLOWER", 1.2, key=f"µ{n} " + "x" * 200) for n in range(100)), *(kernel(key=f"k{n}") for n in range(1900)))
    text = markdown.comment(many, limit)
    assert len(text.encode()) <= limit
    shown = sum(line.startswith(("| ▲", "| ✓")) for line in text.splitlines())
    assert f"{2000 - shown:,} kernels more on the gate's page." in text and "[Evidence" in text


def test_a_gate_that_goes_on_says_how_far_it_is():
    text = markdown.comment(gate(verdict="", status="measuring", reason="", progress={"says": "12 of 65 runs"}))
    assert text.startswith("### ⏳ 3f2a00000000 of serving.fast is being measured: 12 of 65 runs")


def test_a_file_without_a_gate_is_enough():
    offline = {"verdict": "PASS", "kernels": [{"op": "matmul", "shape": {"M": 4096}, "config": {"BM": 128}, "verdict": "PASS",
                                               "ratio_p50": 1.0, "ci": [0.99, 1.01], "ratio_p95": 1.0, "reason": "noise"}]}
    assert "`matmul M=4096 BM=128`" in markdown.comment(offline)
    for report in REPORTS.values():
        assert report.make(offline)


# ---- JUnit ----

def test_junit_counts_what_it_holds():
    root = ET.fromstring(junit.junit_xml(FOUR))
    suite = root.find("testsuite")
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5", "failures": "1", "errors": "1", "skipped": "1"}
    assert [[child.tag for child in case if child.tag != "system-out"] for case in suite.iter("testcase")] == [
        ["failure"], ["skipped"], ["error"], [], []]
    assert suite.find("testcase/failure").get("type") == "SLOWER"
    assert float(suite.find("testcase").get("time")) == pytest.approx(38.5e-6 * 1.081, abs=1e-9)
    assert {each.get("name"): each.get("value") for each in suite.iter("property")}["recorded"] == "recorded on NVIDIA H200"
    assert suite.find("testcase").get("classname") == "ridgepoint.serving_fast"
    assert root.get("skipped") is None                          # junit-10.xsd of Jenkins' xUnit plugin knows none there


# junit-10.xsd of Jenkins' xUnit plugin: element -> (attributes, those of them that must be there, children)
JENKINS = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, set(), {"testsuite"}),
    "testsuite": ({"name", "tests", "failures", "errors", "group", "time", "skipped", "timestamp", "hostname", "id", "url"},
                  {"name", "tests", "failures", "errors"}, {"testsuite", "properties", "testcase", "system-out", "system-err"}),
    "properties": (set(), set(), {"property"}), "property": ({"name", "value"}, {"name", "value"}, set()),
    "testcase": ({"name", "time", "classname", "group"}, {"name"}, {"skipped", "error", "failure", "system-out", "system-err"}),
    **{name: ({"type", "message"}, set(), set()) for name in ("failure", "error", "skipped")},
    "system-out": (set(), set(), set()),
}
SUREFIRE_TIME = re.compile(r"(([0-9]{0,3},)*[0-9]{3}|[0-9]{0,3})*(\.[0-9]*)?")


@pytest.mark.parametrize("of", [FOUR, gate(verdict="", status="failed", error={"what": "the GPU is gone"}),
                                gate(kernel(HOSTILE, candidate_us=3e12, metrics=[{"metric": HOSTILE, "verdict": "SLOWER"}]))])
def test_junit_holds_what_jenkins_schema_allows_and_nothing_else(of):
    for element in ET.fromstring(junit.junit_xml(of)).iter():
        attributes, needed, children = JENKINS[element.tag]
        assert needed <= set(element.attrib) <= attributes and {child.tag for child in element} <= children
        if element.tag in ("testsuites", "testsuite"):
            assert SUREFIRE_TIME.fullmatch(element.get("time"))


def test_junit_of_a_gate_without_a_verdict_is_one_error():
    failed = gate(kernel(), verdict="", status="failed", error={"where": "worker", "what": "the GPU is gone", "hint": "start it"})
    suite = ET.fromstring(junit.junit_xml(failed)).find("testsuite")
    assert (suite.get("tests"), suite.get("errors")) == ("1", "1")
    assert suite.find("testcase/error").get("message") == "the GPU is gone start it"


def test_a_first_build_fails_no_test():
    first = gate(kernel("NO DATA"), kernel("NO DATA"), verdict="NO DATA", offer={"first": True, "says": "no baseline yet"})
    suite = ET.fromstring(junit.junit_xml(first)).find("testsuite")
    assert (suite.get("tests"), suite.get("skipped"), suite.get("errors")) == ("2", "2", "0")


# ---- GitHub ----

@pytest.mark.parametrize(("more", "state"), [
    ({"verdict": "PASS"}, ("completed", "success")), ({"verdict": "FASTER"}, ("completed", "success")),
    ({"verdict": "SLOWER"}, ("completed", "failure")), ({"verdict": "AMBIGUOUS"}, ("completed", "neutral")),
    ({"verdict": "NO DATA"}, ("completed", "action_required")),
    ({"verdict": "NO DATA", "offer": {"first": False}}, ("completed", "action_required")),
    ({"verdict": "NO DATA", "offer": {"first": True}}, ("completed", "success")),
    ({"verdict": "", "status": "failed"}, ("completed", "action_required")),
    ({"verdict": "", "status": "stopped"}, ("completed", "neutral")),
    ({"verdict": "", "status": "measuring"}, ("in_progress", None)),
    ({"verdict": "", "status": "waiting"}, ("queued", None))])
def test_a_check_run_concludes_as_the_gate_does(more, state):
    body = github.check_run(gate(**more))
    assert (body["status"], body.get("conclusion")) == state


def test_a_check_run_keeps_to_githubs_limits():
    many = gate(*(kernel("SLOWER", 1.2, key=f"µ{n} " + "x" * 290, reason="µ" * 5000) for n in range(3000)))
    body = github.check_run(many)
    assert len(body["output"]["summary"].encode()) <= 65_535 and len(body["output"]["annotations"]) == 50
    assert max(len(each["message"].encode()) for each in body["output"]["annotations"]) <= 64 * 1024
    assert max(len(each["title"]) for each in body["output"]["annotations"]) <= 255
    assert (body["head_sha"], body["external_id"], body["details_url"]) == (SHA, "gate-7", "https://guard.example/gates/7/")
    assert (body["started_at"], body["completed_at"]) == ("2026-11-22T00:25:00Z", "2026-11-22T00:29:00Z")


def test_who_wants_undecided_to_block_says_so():
    body = github.check_run(gate(verdict="AMBIGUOUS", build="nightly"), head_sha="A" * 40, undecided="action_required")
    assert (body["conclusion"], body["head_sha"]) == ("action_required", "a" * 40)
    assert github.check_run(gate(build="nightly"))["head_sha"] == ""


# ---- whatever is in it ----

scalars = st.one_of(st.none(), st.booleans(), st.floats(allow_nan=True), st.text(max_size=40))


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(name=st.text(max_size=60), reason=st.text(max_size=200), ratio=scalars,
       ci=st.one_of(st.none(), st.lists(scalars, max_size=3)),
       verdict=st.sampled_from(["SLOWER", "AMBIGUOUS", "NO DATA", "FASTER", "PASS"]))
def test_every_form_can_be_made_and_read_whatever_the_names(name, reason, ratio, ci, verdict):
    finite = None if isinstance(ratio, float) and not math.isfinite(ratio) else ratio
    ends = None if ci is None or any(isinstance(end, float) and not math.isfinite(end) for end in ci) else ci
    found = gate(kernel(verdict, 1.0, key=name, reason=reason) | {"ratio_p50": finite, "ci": ends}, verdict=verdict, build=name)
    made = {kind: report.make(found) for kind, report in REPORTS.items()}
    ET.fromstring(made["junit"])
    assert json.loads(made["json"])["kernels"][0]["key"] == name
    assert json.loads(made["github"])["output"]["summary"].startswith("### ")
    assert len(made["md"].decode().split("\n### ")) == 1
