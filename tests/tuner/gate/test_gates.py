"""Gates from request to verdict on uploaded suites: recorded runs of an H200, and what must be refused or cannot be known."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from profiles.base.refused import Refused
from tuner.gate.baselines import selectors as baseline_selectors
from tuner.gate.baselines.selectors import Env
from tuner.gate.baselines.services import record_baseline_change
from tuner.gate.builds.services import ensure_build
from tuner.gate.stats.records import read_runs
from tuner.gate.stats.results import suite_json
from tuner.gate.stats.rule import Verdict
from tuner.gate.stats.suite import judge
from tuner.gate.verdicts import decide_services, selectors, services
from tuner.models import Build, Gate, KernelRun, Regression, Suite

pytestmark = pytest.mark.django_db
RECORDED = Path(__file__).resolve().parents[2] / "data" / "h200" / "timing_runs.jsonl.gz"
H200 = {"gpu": "NVIDIA H200", "toolkit": "cuda 13.0, triton 3.6.0", "driver": "580.159"}
LINES = [json.loads(line) for line in gzip.decompress(RECORDED.read_bytes()).splitlines()]
FASTEST: dict[str, Any] = {}
for each in LINES:
    FASTEST.setdefault(each["op"], each["config"])       # the first recorded configuration of each operator


def records(runs: Sequence[int], slower: dict[str, float] | None = None, ops: Sequence[str] = ("matmul", "softmax", "layernorm"),
            label: str = "") -> list[dict[str, Any]]:
    """Real recorded runs of one configuration of each operator; `slower` multiplies an operator's samples."""
    found = []
    for line in LINES:
        if line["op"] in ops and line["run"] in runs and line["config"] == FASTEST[line["op"]]:
            factor = (slower or {}).get(line["op"], 1.0)
            found.append({"run": f"{label}{line['run']}", "op": line["op"], "shape": line["shape"],
                          "us": [us * factor for us in line["us"]]})
    return found


@pytest.fixture
def suite() -> Suite:
    return Suite.objects.create(name="nightly", kind=Suite.Kind.UPLOADED, device="")


def gate(suite: Suite, build: str, runs: Sequence[int], slower: dict[str, float] | None = None, hour: int = 0,
         **given: Any) -> Gate:
    """The gate of a build that was committed so many hours after the first; its samples in an order of their own."""
    at = timezone.now() - timedelta(days=9) + timedelta(hours=hour)
    sent = [{**line, "us": [*line["us"][hour:], *line["us"][:hour]]} for line in records(runs, slower)]
    return services.create_gate(suite, build, at=at, environment=given.pop("environment", H200), records=sent, **given)


def test_a_slower_build_is_told_from_an_equal_one_and_neither_becomes_the_other(suite: Suite) -> None:
    first = gate(suite, "b1", range(1, 11))
    assert (first.status, first.verdict) == ("done", "NO DATA")
    assert "first of this suite" in first.reason and selectors.exit_code(first) == 0, "a first build is no failure"
    same = gate(suite, "b2", range(11, 16), hour=1)
    assert (same.verdict, same.status) == ("PASS", "done")
    worse = gate(suite, "b3", range(16, 21), {"softmax": 1.08}, hour=2)
    assert worse.verdict == "SLOWER"
    row = worse.kernels.first()
    assert row.kernel.op == "softmax" and row.verdict == "SLOWER"
    assert 1.06 < row.low <= row.ratio_p50 <= row.high < 1.10
    assert {each.verdict for each in worse.kernels.exclude(pk=row.pk)} == {"PASS"}
    assert row.regression == Regression.objects.get() and row.regression.family == "softmax"
    assert len(row.candidate_runs) == 5 and len(row.baseline_runs) == 10
    builds = set(KernelRun.objects.filter(pk__in=row.baseline_runs).values_list("build__name", flat=True))
    assert builds == {"b1", "b2"}                         # the newest ten runs of builds that passed
    after = gate(suite, "b4", range(20, 25), hour=3)
    assert after.verdict == "PASS"                        # b3 was SLOWER in softmax: its runs are no baseline
    assert "b3" not in after.kernels.get(kernel__op="softmax").facts["baseline"]["builds"]
    assert "b3" in after.kernels.get(kernel__op="matmul").facts["baseline"]["builds"]


def test_the_document_says_everything_once(suite: Suite) -> None:
    gate(suite, "b1", range(1, 11))
    told = selectors.gate_document(gate(suite, "b2", range(11, 16), {"matmul": 1.1}, hour=1, url="https://ci/1"), base="https://h")
    assert (told["verdict"], told["exit_code"], told["status"], told["asked_url"]) == ("SLOWER", 1, "done", "https://ci/1")
    assert told["links"]["page"] == f"https://h/gates/{told['id']}/" and "build_a=b1&build_b=b2" in told["links"]["compare"]
    worst = told["kernels"][0]
    assert (worst["op"], worst["verdict"], worst["ci"][0] < worst["ratio_p50"] < worst["ci"][1]) == ("matmul", "SLOWER", True)
    assert worst["ratio_p95"] and worst["detectable"] is not None and worst["shape"] == {"M": 4096, "N": 4096, "K": 4096}
    assert told["environment"] == {**H200, "recorded": ""} and told["alpha"] == 0.01 and told["plan"]["enough"] is True
    json.dumps(told, allow_nan=False)


@pytest.mark.parametrize(("factor", "verdict"), [(1.03, "PASS"), (1.08, "SLOWER")])
def test_rows_and_files_get_the_same_answer(suite: Suite, factor: float, verdict: str) -> None:
    gate(suite, "b1", range(1, 11))
    rows = selectors.gate_document(gate(suite, "b2", range(11, 16), {"softmax": factor}, hour=1))
    files = suite_json(judge(*(read_runs(records(runs, slower)) for runs, slower in ((range(1, 11), None),
                                                                            (range(11, 16), {"softmax": factor})))))
    assert rows["verdict"] == files["verdict"] == verdict and rows["reason"] == files["reason"] and "softmax" in rows["reason"]
    names = ("verdict", "reason", "ratio_p50", "ci", "ratio_p95", "ci_p95", "p_value", "detectable", "false_alarms", "change")
    assert {each["op"]: [each[name] for name in names] for each in rows["kernels"]} == \
        {each["op"]: [each[name] for name in names] for each in files["kernels"]}


def test_an_accepted_change_is_the_baseline_from_then_on(suite: Suite, alice: Any) -> None:
    gate(suite, "b1", range(1, 11))
    worse = gate(suite, "b2", range(11, 21), {"softmax": 1.08}, hour=1)
    assert worse.verdict == "SLOWER"
    record_baseline_change(suite, "intended", build=worse.build, note="exact exponent", author=alice,
                    kernel=suite.kernels.get(op="softmax"))
    assert gate(suite, "b3", range(1, 6), {"softmax": 1.08}, hour=2).verdict == "PASS"
    again = gate(suite, "b4", range(6, 11), {"softmax": 1.08 * 1.08}, hour=3)
    assert again.verdict == "SLOWER" and again.kernels.first().facts["baseline"]["builds"] == ["b3", "b2"]


def test_pinned_runs_stay_until_somebody_rolls_on(suite: Suite) -> None:
    first = gate(suite, "b1", range(1, 11))
    for n in range(2, 5):                                 # each 1.5 % slower: never SLOWER, and the rolling baseline creeps along
        gate(suite, f"b{n}", range(5 * n, 5 * n + 5), {"softmax": 1.015 ** (n - 1)}, hour=n)
    kernel = suite.kernels.get(op="softmax")
    rolling = baseline_selectors.load_baselines([kernel], Env(*H200.values()))[kernel.pk]
    assert (rolling.mode, [build.name for build in rolling.builds]) == ("rolling", ["b4", "b3"])
    record_baseline_change(suite, "pin", build=first.build, kernel=kernel)
    pinned = baseline_selectors.load_baselines([kernel], Env(*H200.values()))[kernel.pk]
    assert (pinned.mode, [build.name for build in pinned.builds], len(pinned.runs)) == ("pinned", ["b1"], 10)
    record_baseline_change(suite, "roll", kernel=kernel)
    assert baseline_selectors.load_baselines([kernel], Env(*H200.values()))[kernel.pk].mode == "rolling"
    with pytest.raises(Refused, match="no runs"):
        record_baseline_change(suite, "pin", build=ensure_build("b9"), kernel=kernel)
    with pytest.raises(Refused, match="why the change was intended"):
        record_baseline_change(suite, "intended", build=first.build)


def test_runs_of_another_environment_are_never_mixed_in(suite: Suite) -> None:
    gate(suite, "b1", range(1, 11))
    bumped = gate(suite, "b2", range(11, 16), {"softmax": 1.2}, hour=1, environment={**H200, "driver": "590.44"})
    assert (bumped.verdict, selectors.exit_code(bumped)) == ("NO DATA", 2)
    assert "driver 580.159 → 590.44" in bumped.reason and "b1" in bumped.reason
    offer = selectors.gate_document(bumped)["offer"]
    assert offer["baseline"] == "b1" and not offer["measurable"]
    # b1 is measured under the new driver as well: now the build can be told from the driver
    services.create_gate(suite, "b1", environment={**H200, "driver": "590.44"}, records=records(range(14, 24)))
    assert services.measure_gate_again(bumped).verdict == "SLOWER"
    here = baseline_selectors.measured_environments(suite)
    assert here[0] == Env(**{**H200, "driver": "590.44"}) and len(here) == 2


def test_mixed_runs_of_one_build_have_no_verdict(suite: Suite) -> None:
    gate(suite, "b1", range(1, 11))
    mixed = records(range(11, 16))
    for line in mixed[:3]:
        line["gpu"] = "NVIDIA B200"
    found = services.create_gate(suite, "b2", environment=H200, records=mixed)
    assert found.verdict == "NO DATA" and "2 environments" in found.reason, found.reason
    named = services.create_gate(suite, "b2", environment={"gpu": "NVIDIA B300"})
    assert named.status == "done" and named.verdict == "NO DATA" and "asked for gpu NVIDIA B300" in named.reason


def test_samples_that_are_no_times_are_no_data(suite: Suite) -> None:
    gate(suite, "b1", range(1, 11))
    broken = records(range(11, 16))
    for line in broken:
        line["us"] = [float("nan"), *line["us"][1:]] if line["op"] == "softmax" else line["us"]
    found = services.create_gate(suite, "b2", environment=H200, records=broken)
    assert (found.verdict, found.kernels.first().kernel.op) == ("NO DATA", "softmax")
    assert "sample 0 is nan" in found.kernels.first().reason
    assert {row.verdict for row in found.kernels.exclude(kernel__op="softmax")} == {"PASS"}


def test_a_damaged_run_among_good_ones_clears_no_build_until_enough_good_ones_are_there(suite: Suite) -> None:
    gate(suite, "b1", range(1, 11))
    sent = records(range(11, 16))
    for line in sent:
        line["us"] = [None, *line["us"][1:]] if (line["op"], line["run"]) == ("softmax", "13") else line["us"]
    found = services.create_gate(suite, "b2", environment=H200, records=sent)
    row = found.kernels.first()
    assert (found.verdict, row.kernel.op, row.facts["more_runs"]) == ("AMBIGUOUS", "softmax", 1)
    assert "13: sample 0 is no number" in row.reason and "4 against 10 runs" in row.reason
    assert {each.verdict for each in found.kernels.exclude(kernel__op="softmax")} == {"PASS"}
    services.create_gate(suite, "b2", environment=H200, records=records([16]))
    assert services.measure_gate_again(found).verdict == "PASS"


def test_kernels_that_no_earlier_build_has_are_the_first_of_their_name_not_of_the_suite(suite: Suite) -> None:
    gate(suite, "b1", range(1, 11))
    renamed_from = records(range(11, 16))
    renamed = [{**line, "op": f"new_{line['op']}"} for line in renamed_from]
    found = services.create_gate(suite, "b2", environment=H200, records=renamed)
    assert found.verdict == "NO DATA" and "the first of these kernels" in found.reason, found.reason
    gone = found.reason.partition("; gone since the build before: ")[2]
    assert gone and all(line["op"] in gone for line in renamed_from[:3]), found.reason


def test_one_run_is_too_few_and_says_how_many_are_not(suite: Suite) -> None:
    gate(suite, "b1", range(1, 11))
    few = gate(suite, "b2", range(11, 12), {"softmax": 1.5}, hour=1)
    assert few.verdict in ("AMBIGUOUS", "NO DATA") and selectors.exit_code(few) == 2
    assert selectors.gate_document(few)["plan"]["enough"] is False
    # more runs of the same build come: the gate is judged again with all of them
    decide_services.advance_gates_of_build(suite, "b2")
    services.create_gate(suite, "b2", environment=H200, records=records(range(12, 17), {"softmax": 1.5}))
    assert services.measure_gate_again(few).verdict == "SLOWER"


def test_a_gate_waits_for_runs_that_are_sent_later(suite: Suite) -> None:
    from tuner.gate.suites.upload_services import runs_store
    gate(suite, "b1", range(1, 11))
    waits = services.create_gate(suite, "b2")
    assert (waits.status, selectors.exit_code(waits), waits.verdict) == ("waiting", None, "")
    assert decide_services.advance_gate(waits.pk) is None
    runs_store(suite, "b2", records(range(11, 16), {"layernorm": 1.1}), **H200)
    decide_services.advance_gates_of_build(suite, "b2")
    waits.refresh_from_db()
    assert (waits.status, waits.verdict) == ("done", "SLOWER")
    assert decide_services.advance_gate(waits.pk) is None        # twice does no harm


def test_a_later_build_and_a_side_branch_are_no_baseline(suite: Suite) -> None:
    gate(suite, "main1", range(1, 11))
    gate(suite, "later", range(1, 11), hour=9)
    gate(suite, "side", range(11, 21), hour=1, branch="try-it")
    kernel = suite.kernels.get(op="softmax")
    side = Build.objects.create(name="side2", at=timezone.now() - timedelta(days=9) + timedelta(hours=2), branch="try-it")
    found = baseline_selectors.load_baselines([kernel], Env(*H200.values()), side)[kernel.pk]
    assert [build.name for build in found.builds] == ["main1"]
    named = baseline_selectors.load_baselines([kernel], Env(**H200), side, against=Build.objects.get(name="later"))[kernel.pk]
    assert (named.mode, len(named.runs)) == ("against", 10)


def test_baselines_take_as_many_queries_for_one_kernel_as_for_many(suite: Suite, django_assert_max_num_queries: Any) -> None:
    for n in range(1, 5):
        gate(suite, f"b{n}", range(5 * n - 4, 5 * n + 1), hour=n)
    kernels = list(suite.kernels.select_related("suite"))
    assert len(kernels) == 3
    with django_assert_max_num_queries(10):
        baseline_selectors.load_baselines(kernels, Env(**H200))


@pytest.mark.parametrize(("given", "field"), [
    ({"suite": "none"}, "suite"), ({"build": ""}, "build"), ({"build": "a\0b"}, "build"), ({"build": "../../etc"}, "build"),
    ({"environment": {"gpu": 7}}, "environment"), ({"environment": {"colour": "red"}}, "environment"),
    ({"environment": {"gpu": "\ud800"}}, "environment"), ({"against": "b"}, "against"), ({"against": "nobody"}, "against"),
    ({"url": "javascript:alert(1)"}, "url"), ({"runs": 5}, "runs"), ({"records": []}, "runs"), ({"records": [{}]}, "runs")])
def test_what_cannot_be_is_refused_and_leaves_nothing(suite: Suite, given: dict[str, Any], field: str) -> None:
    with pytest.raises(Refused) as refused:
        services.create_gate(**{"suite": suite, "build": "b", "environment": H200, **given})
    assert any(field in name for name in refused.value.fields), refused.value.fields
    assert not Gate.objects.exists() and not Build.objects.exists()


def test_every_verdict_has_its_exit_code(suite: Suite) -> None:
    row = Gate(suite=suite, build=ensure_build("b"), status=Gate.Status.DONE)
    codes = {}
    for verdict in Verdict:
        row.verdict = verdict
        codes[str(verdict)] = selectors.exit_code(row)
    assert codes == {"PASS": 0, "SLOWER": 1, "FASTER": 0, "AMBIGUOUS": 2, "NO DATA": 2}
    row.status = Gate.Status.FAILED
    assert selectors.exit_code(row) == 3
