"""The pages of gates over runs that were recorded on an H200: what they say, where they lead, what they refuse."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from django.urls import reverse
from django.utils import timezone

from profiles.models import Profile
from tests.tuner.gate.recorded_suite import KEY, SLOWER, TWO, suite_made
from tuner.gate.builds.services import ensure_build
from tuner.gate.suites.job_services import job_create
from tuner.gate.suites.run_services import run_record
from tuner.gate.verdicts import evidence_selectors, page_selectors, services
from tuner.models import Build, Gate, GateKernel, KernelRun, Regression, Suite, SuiteJob, SuiteKernel
from webapp import finder, overview
from workers.gate import suite

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("unwatched")]


@pytest.fixture(scope="module")
def baseline_once(unwatched: None, made_once: None) -> None:
    """A suite whose first build was measured; what a test changes of its rows is undone after it."""
    row = suite_made(TWO)
    ensure_build("b1", at=timezone.now() - timedelta(days=2))
    suite.run(job_create(row, builds=["b1"], runs=10).pk, "w0", pace=0)


@pytest.fixture
def nightly(baseline_once: None, db: None) -> Suite:
    return Suite.objects.get()


@pytest.fixture
def slower(nightly: Suite) -> Gate:
    gate = services.create_gate(nightly, "b2", at=timezone.now() - timedelta(days=1), configs={KEY: SLOWER}, title="Fewer programs",
                                url="https://git.example.org/pull/7")
    while job := gate.jobs.filter(status="queued").first():
        suite.run(job.pk, "w1", pace=0)
    gate.refresh_from_db()
    assert gate.verdict == "SLOWER"
    return gate


def seen(client: Any, url: str, status: int = 200) -> str:
    answer = client.get(url)
    assert answer.status_code == status, url
    text: str = answer.content.decode()
    return text


def words(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page)).replace("\N{NO-BREAK SPACE}", " ")


def test_a_slower_build_is_told_with_its_numbers_and_leads_on(client: Any, alice: Any, slower: Gate) -> None:
    client.force_login(alice)
    row = slower.kernels.get(kernel__key=KEY)
    page = seen(client, f"/gates/{slower.pk}/")
    said = words(page)
    assert f"b2 is ▲ slower: {KEY} +{(row.ratio_p50 - 1) * 100:.1f} %" in said
    assert "· 1 SLOWER" in said and "· 1 PASS" in said and "exit code 1" in said and "recorded on NVIDIA H200" in said
    assert "interleaved with the baseline's build" in said.replace("&#x27;", "'")
    assert "at most 1 %" in said, "the risk of a false alarm stands on the page"
    assert f"/gates/{slower.pk}/kernels/{row.pk}/" in page or f'href="kernels/{row.pk}/"' in page
    assert "<script>" not in page and " style=" not in page.split("<main")[1]
    listed = seen(client, "/gates/?suite=nightly&verdict=SLOWER")
    assert "▲ slower" in listed and f"/gates/{slower.pk}/" in listed
    assert "0 match" in words(seen(client, "/gates/?verdict=PASS"))


def test_the_evidence_is_the_runs_that_were_compared(client: Any, alice: Any, slower: Gate) -> None:
    client.force_login(alice)
    row = slower.kernels.get(kernel__key=KEY)
    page = seen(client, f"/gates/{slower.pk}/kernels/{row.pk}/")
    used = KernelRun.objects.filter(pk__in=[*row.baseline_runs, *row.candidate_runs])
    assert {int(pk) for pk in re.findall(r'<tr id="run-(\d+)"', page)} == {run.pk for run in used}
    assert {int(pk) for pk in re.findall(r'<a href="#run-(\d+)"', page)} == {run.pk for run in used}, "each dot leads to its run"
    # recomputed from the samples themselves
    medians = {side: [np.median(KernelRun.objects.get(pk=pk).us) for pk in ids]
               for side, ids in (("baseline", row.baseline_runs), ("candidate", row.candidate_runs))}
    assert row.ratio_p50 == pytest.approx(np.median(medians["candidate"]) / np.median(medians["baseline"]), rel=0.01)
    for side in evidence_selectors.compared_sides(evidence_selectors.run_rows(row)):
        assert side.p50_us == pytest.approx(np.median(medians[side.name]))
        assert side.cv_pct == pytest.approx(100 * np.std(medians[side.name], ddof=1) / np.mean(medians[side.name]))
    sides = evidence_selectors.compared_sides(evidence_selectors.run_rows(row))
    assert dict(evidence_selectors.config_rows(sides))["PER_SM"] == ["32", "8"]
    # the closed loop
    links = {urlsplit(link.replace("&amp;", "&")).path: parse_qs(urlsplit(link.replace("&amp;", "&")).query)
             for link in re.findall(r'href="([^"]+)"', page)}
    assert links["/tune/new/"] == {"operator": ["softmax"], "dtype": ["fp16"], "R": ["8192"], "C": ["4096"]}
    assert links["/cache/why/"]["gpu"] == ["NVIDIA H200"] and links["/captures/new/"]["build"] in (["b1"], ["b2"])
    assert "/compare/" not in links, "no profile of either build: nothing to compare"
    form = client.get("/tune/new/", {"operator": "softmax", "dtype": "fp16", "R": "8192", "C": "4096"}).content.decode()
    assert "R=8192 C=4096" in form
    for build in ("b1", "b2"):
        Profile.objects.create(name=build, build=build, status="ready", kind="trace", file_name="t", upload_key="k")
    again = seen(client, f"/gates/{slower.pk}/kernels/{row.pk}/")
    assert "/compare/?build_a=b1&amp;build_b=b2" in again and "▸ timeline" in again
    row.facts["environment"] = {"kind": "environment", "says": "the driver did <it>", "parts": [], "total": None}
    row.save()
    assert "environment: the driver did &lt;it&gt;" in words(seen(client, f"/gates/{slower.pk}/kernels/{row.pk}/"))
    assert "Both timelines" in again and "▸ Counters of both" not in again, "no counter report of either"


def test_home_search_and_compare_know_of_it(client: Any, alice: Any, slower: Gate) -> None:
    client.force_login(alice)
    home = seen(client, "/")
    regression = Regression.objects.get()
    evidence = f"/gates/{slower.pk}/kernels/{slower.kernels.get(kernel__key=KEY).pk}/"
    assert "1 kernel family got slower" in words(home) and evidence in home and "/tune/new/?operator=softmax" in home
    assert f"/regressions/{regression.pk}/" in home
    kinds = {group.kind: group.hits for group in finder.find("b2")}
    assert [gate.pk for gate in kinds["gates"]] == [slower.pk] and kinds["builds"][0]["build"] == "b2"
    assert [each.name for each in {group.kind: group.hits for group in finder.find("softmax fp16")}["suites"]] == ["nightly"]
    assert str(slower.pk) in seen(client, "/search/?q=nightly") and "/builds/b2/" in seen(client, "/search/?q=b2")
    assert page_selectors.gates_between("b1", "b2") == [slower] and page_selectors.gates_between("b2", "b1") == []
    assert f"/gates/{slower.pk}/" in client.get("/compare/?build_a=b1&build_b=b2").content.decode(), "neither has a profile"
    regression.state = "intended"
    regression.save()
    assert "got slower" not in words(seen(client, "/")).split("Workers")[0]


def test_what_is_measured_shows_and_can_be_stopped(client: Any, alice: Any, bob: Any, nightly: Suite) -> None:
    client.force_login(alice)
    answer = client.post("/gates/new/", {"suite": "nightly", "build": "b9", "runs": "6", "title": "New", "url": ""})
    gate = Gate.objects.get()
    assert (answer.status_code, answer["Location"]) == (302, f"/gates/{gate.pk}/")
    assert (gate.build.name, gate.owner, gate.jobs.get().runs, gate.environment) == ("b9", alice, 6, {})
    client.post("/gates/new/", {"suite": "nightly", "build": "b10", "gpu": "NVIDIA H200", "driver": "580.159.04"})
    named = Gate.objects.get(build__name="b10")
    assert named.environment == {"gpu": "NVIDIA H200", "driver": "580.159.04"}
    services.stop_gate(named)
    page = seen(client, f"/gates/{gate.pk}/")
    assert "Measuring b9" in words(page) and 'data-under-way="yes"' in page and "Stop" in page
    busy = [each for each in overview.in_progress() if each.kind == "gate"]
    assert [(each.row, each.progress["wanted"], each.topic) for each in busy] == [(gate, 12, f"gate.{gate.pk}")]
    assert f"/gates/{gate.pk}/" in seen(client, "/") and f"/gates/{gate.pk}/" in seen(client, "/workers/")
    client.force_login(bob)
    for url in (f"/gates/{gate.pk}/stop/", f"/gates/{gate.pk}/again/", "/gates/new/"):
        assert client.post(url).status_code == 403, url
    assert "Stop" not in seen(client, f"/gates/{gate.pk}/").split("<main")[1]
    client.force_login(alice)
    assert client.get(f"/gates/{gate.pk}/stop/").url == f"/gates/{gate.pk}/"
    assert client.put(f"/gates/{gate.pk}/stop/").status_code == 405
    client.post(f"/gates/{gate.pk}/stop/")
    gate.refresh_from_db()
    assert gate.status == "stopped" and "Stopped before a verdict" in words(seen(client, f"/gates/{gate.pk}/"))


def test_a_further_round_is_asked_for_of_one_kernel(client: Any, alice: Any, slower: Gate) -> None:
    client.force_login(alice)
    client.post(f"/gates/{slower.pk}/again/", {"runs": "6", "kernel": KEY})
    job = slower.jobs.order_by("-id").first()
    assert job is not None and (job.runs, job.kernels, job.status) == (6, [KEY], "queued")
    assert sorted(each["build"] for each in job.builds) == ["b1", "b2"], "both in turn"
    told = client.get(f"/api/gates/{slower.pk}/").json()["progress"]
    assert told["waits"] and told["says"] == f"round 3: 0 of 12 kernel runs; it waits: {told['waits']}", "no worker is there"
    assert "measuring again" in words(seen(client, f"/gates/{slower.pk}/")) or "Measuring b2" in words(
        seen(client, f"/gates/{slower.pk}/"))

    # the evidence shows its runs while they are taken, beside the verdict so far; other kernels are not measured
    judged, other = slower.kernels.get(kernel__key=KEY), slower.kernels.exclude(kernel__key=KEY).first()
    at = f"/gates/{slower.pk}/kernels/"
    assert "0 of 12 runs" in words(seen(client, f"{at}{judged.pk}/"))
    assert "Measuring now" not in seen(client, f"{at}{other.pk}/")
    for number, build in enumerate(("b1", "b2", "b2")):
        run_record(job, judged.kernel, build, number=number, run=f"again {number}", us=[41.0 + number] * 20, gpu=slower.gpu)
    text = words(seen(client, f"{at}{judged.pk}/"))
    assert "3 of 12 runs" in text and re.search(r"b2 ?2 ?42\.50 ?42\.00, 43\.00", text)


def test_a_gate_goes_on_to_say_the_rule_that_it_was_judged_by(slower: Gate) -> None:
    Suite.objects.update(rule={"target": 0.2, "floor": 0.1})
    SuiteKernel.objects.update(rule={"target": 0.3})
    row = GateKernel.objects.select_related("gate", "kernel__suite").get(gate=slower, kernel__key=KEY)
    assert (page_selectors.kernel_rule(row).target, page_selectors.gate_rule(slower).floor) == (0.05, 0.02)


def test_bad_questions_are_answered_with_their_field(client: Any, alice: Any, slower: Gate) -> None:
    client.force_login(alice)
    before = SuiteJob.objects.count()
    for given, field in (({"suite": "nope", "build": "b"}, "suite"), ({"suite": "nightly", "build": ""}, "build"),
                         ({"suite": "nightly", "build": "../x"}, "build"), ({"suite": "nightly\0", "build": "b"}, "suite"),
                         ({"suite": "nightly", "build": "b\0"}, "build"), ({"suite": "nightly", "build": "b", "runs": "0"}, "runs"),
                         ({"suite": "nightly", "build": "b", "runs": "1e9"}, "runs"),
                         ({"suite": "nightly", "build": "b", "gpu": "GTX 480"}, "gpu"),
                         ({"suite": "nightly", "build": "b", "against": "b\0"}, "against"),
                         ({"suite": "nightly", "build": "b", "url": "javascript:alert(1)"}, "url")):
        answer = client.post("/gates/new/", given)
        assert answer.status_code == 400, given
        page = answer.content.decode()
        assert "field-error" in page or "Not started" in page, field
        assert f'id="id_{field}"' in page and answer.context["form"].errors.keys() >= {field}, given
    for runs in ("0", "-1", "x", "99999", "１２"):
        client.post(f"/gates/{slower.pk}/again/", {"runs": runs})
        assert "Not measured again" in words(seen(client, f"/gates/{slower.pk}/")), runs
    client.post(f"/gates/{slower.pk}/again/", {"kernel": "nope\0"})
    assert SuiteJob.objects.count() == before and Gate.objects.count() == 1
    for url in (f"/gates/{slower.pk + 1}/", f"/gates/{slower.pk}/kernels/{10**12}/", f"/gates/{10**17}/"):
        seen(client, url, 404)
    seen(client, "/gates/?suite=%00", 400)
    seen(client, "/gates/?suite=nope&verdict=x&build=%25_&status=%ff&gpu=" + "9" * 3000)


def test_a_gate_without_numbers_says_why(client: Any, alice: Any, nightly: Suite) -> None:
    """NO DATA, a failure, kernels whose runs were rejected: dashes with their reason, no picture of nothing."""
    client.force_login(alice)
    gate = Gate.objects.create(suite=nightly, build=Build.objects.get(name="b1"), status="done", verdict="NO DATA",
                               reason="No baseline <b>.")
    kernel = nightly.kernels.get(key=KEY)
    run = KernelRun.objects.create(kernel=kernel, build=gate.build, run="dead", rejected="the process died: signal 9")
    row = GateKernel.objects.create(gate=gate, kernel=kernel, verdict="NO DATA", reason="one side has no run",
                                    candidate_runs=[run.pk])
    page = seen(client, f"/gates/{gate.pk}/")
    assert "No baseline &lt;b&gt;." in page and "<svg class=\"intervals\"" not in page and "one side has no run" in page
    page = seen(client, f"/gates/{gate.pk}/kernels/{row.pk}/")
    assert "signal 9" in page and "<svg class=\"strips\"" not in page
    failed = Gate.objects.create(suite=nightly, build=gate.build, status="failed",
                                 error={"where": "gate", "what": "no worker", "hint": "x"})
    assert "no worker" in words(seen(client, f"/gates/{failed.pk}/"))
    gate.report = {"offer": {"says": "no baseline yet", "baseline": "", "measurable": False}}
    gate.save()
    assert "Measure again" in page and "Here, interleaved" not in seen(client, f"/gates/{gate.pk}/")
    nightly.kind = "uploaded"
    nightly.save()
    sent = seen(client, f"/gates/{gate.pk}/")
    assert "Judge again" in sent and "take turns, so that" not in sent and "?build=b1#upload" in sent
    assert "take turns on this kernel" not in seen(client, f"/gates/{gate.pk}/kernels/{row.pk}/")
    assert 'value="b1"' in seen(client, f"/suites/{nightly.pk}/?build=b1")


def test_pages_ask_as_many_questions_for_many_gates_as_for_few(client: Any, alice: Any, slower: Gate,
                                                              django_assert_max_num_queries: Any) -> None:
    client.force_login(alice)
    for n in range(12):
        copy = Gate.objects.create(suite=slower.suite, build=slower.build, status="done", verdict="SLOWER", report=slower.report)
        for row in slower.kernels.all():
            GateKernel.objects.create(gate=copy, kernel=row.kernel, verdict=row.verdict, ratio_p50=row.ratio_p50, place=n,
                                      baseline_runs=row.baseline_runs, candidate_runs=row.candidate_runs)
    with django_assert_max_num_queries(25):
        seen(client, "/gates/")
    with django_assert_max_num_queries(45):
        seen(client, f"/gates/{slower.pk}/")
    with django_assert_max_num_queries(40):
        seen(client, f"/gates/{slower.pk}/kernels/{slower.kernels.first().pk}/")
    with django_assert_max_num_queries(60):
        seen(client, reverse("home"))
