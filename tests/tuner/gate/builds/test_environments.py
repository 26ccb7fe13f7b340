"""Builds × environments over rows: the matrix, who did it, bisect plans, re-validation; page, API, command."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import numpy as np
import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from profiles.base.refused import Refused
from tests.public_timing import samples
from tests.recordings import timing_runs
from tests.tuner.cache.test_config_cache import ENVIRONMENT, GPU, SHAPE, put
from tuner.cache import rules
from tuner.cache.entries import services
from tuner.cache.entries.services import notice_environment
from tuner.gate.builds.services import ensure_build
from tuner.gate.environments import bisect_services
from tuner.gate.environments.bisect_services import measure_bisect
from tuner.gate.environments.observation_selectors import Environment, load_cells, toolkit_parts
from tuner.gate.stats.explanation import explain
from tuner.gate.suites.job_services import job_claim, job_create
from tuner.gate.suites.run_services import run_record
from tuner.models import CachedConfig, GpuEnvironment, KernelRun, RevalidationPolicy, Suite, SuiteJob, SuiteKernel
from tuner.revalidation import policy_services
from workers import jobs, sweep

pytestmark = pytest.mark.django_db

A4000 = "NVIDIA RTX A4000"
LABEL = "recorded on NVIDIA RTX A4000"
KERNEL = "softmax R=8192 C=4096 fp16"
TIMES = [line["us"] for (_, op, config), line in timing_runs().items()
         if op == "softmax" and json.loads(config) == {"STEPS": 3, "PER_SM": 32, "num_warps": 8}]
OLD, NEW = ("cuda 12.8, triton 3.5.0", "570.10"), ("cuda 12.8, triton 3.5.0", "580.20")


def kernel_of(suite: Suite, key: str = KERNEL, **fields: Any) -> SuiteKernel:
    op, *dims = key.split()
    shape = {name: int(value) for name, value in (part.split("=") for part in dims if "=" in part)}
    return SuiteKernel.objects.get_or_create(suite=suite, key=key, defaults={"op": op, "family": op, "shape": shape, **fields})[0]


def runs(kernel: SuiteKernel, build: str, environment: tuple[str, str], us: Any, *, gpu: str = GPU, recorded: str = "",
         facts: dict[str, Any] | None = None, by: float = 1.0) -> None:
    """Fresh runs as a worker stores them."""
    row = ensure_build(build)
    KernelRun.objects.bulk_create([
        KernelRun(kernel=kernel, build=row, run=f"{environment} {number} {timezone.now().timestamp()}", number=number,
                  us=list(times), p50_us=float(np.median(times)), p95_us=float(np.percentile(times, 95)), n=len(times), gpu=gpu,
                  toolkit=environment[0], driver=environment[1], recorded=recorded, facts=facts or {})
        for number, times in enumerate(np.asarray(us) * by)])


def drawn(seed: int, number: int = 5) -> Any:
    return np.array(TIMES)[np.random.default_rng(seed).choice(len(TIMES), number, replace=False)]


@pytest.fixture
def client_of(alice, bob, olga, sign_in_mode):
    """`client_of("olga")`: a browser of hers."""
    def make(name: str) -> Client:
        client = Client()
        client.force_login({"alice": alice, "bob": bob, "olga": olga}[name])
        return client
    return make


@pytest.fixture
def viewer(client_of):
    return client_of("bob")


@pytest.fixture
def suite(alice):
    return Suite.objects.create(name="main", device="gpu", owner=alice, runs=3)


@pytest.fixture
def line(suite):
    """Builds b00 … b15, a minute apart; b00 and b15 are measured, the latter 5 % slower."""
    now = timezone.now()
    names = [f"b{number:02}" for number in range(16)]
    for number, name in enumerate(names):
        ensure_build(name, at=now - timedelta(minutes=100 - number))
    kernel = kernel_of(suite)
    runs(kernel, "b00", OLD, drawn(0, 10))
    runs(kernel, "b15", OLD, drawn(1, 10), by=1.05)
    return names


# ---- matrix and attribution ----

def test_the_recorded_toolkits_are_attributed_over_rows_page_api_and_command(suite, viewer):
    for name, rows in samples().items():
        front, cuda = name.split("_CUDA-")
        runs(kernel_of(suite, f"gemm M=4096 {front}"), "paper", (f"cuda {cuda}", ""), rows[100:110], gpu=A4000, recorded=LABEL)
    answer = viewer.get(reverse("api-environments"), {"suite": "main"}).json()
    assert answer["recorded"] and answer["labels"] == [LABEL] and answer["runs"] == {"measured": 0, "recorded": 50}
    effects = {one["kernel"]: one["effects"] for one in answer["by_kernel"]}
    (nvcc,), (cupy,) = effects["gemm M=4096 CUDA"], effects["gemm M=4096 CUPY"]
    assert nvcc["ratio"] == pytest.approx(19.319 / 19.872, abs=4e-4) and nvcc["low"] < nvcc["ratio"] < nvcc["high"]
    assert cupy["ratio"] == pytest.approx(18.903 / 19.029, abs=4e-4) and effects["gemm M=4096 NVCUDA"] == []
    assert answer["compared"]["counts"] == {"environment": 1, "neither": 1}
    text = viewer.get(reverse("environments"), {"suite": "main"}).content.decode()
    assert "Build paper from cuda 11.2 to cuda 12.3: 1 of 2 kernels changed, 1 by the environment" in text
    assert LABEL in text and "<svg" in text and "−2.8" in text
    out = StringIO()
    call_command("environments", "--suite", "main", stdout=out)
    assert "cuda 12.3 against 11.2" in out.getvalue() and "environment" in out.getvalue()


def test_a_drivers_slowdown_is_not_the_builds(suite, viewer):
    """Build b under the new driver is 6 % slower than a under the old one, and so is a: nobody blames b."""
    kernel = kernel_of(suite)
    runs(kernel, "a", OLD, drawn(2), facts={"registers": 60})
    runs(kernel, "a", NEW, drawn(3), by=1.06, facts={"registers": 170})
    runs(kernel, "b", NEW, drawn(4), by=1.06, facts={"registers": 170})
    observations = load_cells(suite, kernels=[kernel.key]).observations
    old, new, b = ({"build": build, **Environment(GPU, *where).factors} for build, where in (("a", OLD), ("a", NEW), ("b", NEW)))
    told = explain(observations, old, b)
    assert told.kind == "environment" and "the environment and not the build" in told.says
    assert explain(observations, new, b).kind == "neither"
    page = viewer.get(reverse("environments"), {"suite": "main", "before": "0|a", "after": "1|b"})
    text = page.content.decode()
    assert "From build a under driver 570.10 to build b under driver 580.20: " in text
    assert "registers" in text and "170" in text
    (change,) = page.context["picture"].facts
    assert (change.factor, change.level, change.before, change.after) == ("driver", "580.20", 60, 170)
    assert page.context["picture"].compared.counts == {"environment": 1}
    assert [cell.runs for _, row in page.context["picture"].matrix.rows for cell in row] == [5, 0, 5, 5]


def test_what_changed_together_is_not_guessed_and_the_missing_cell_is_named(suite, viewer):
    kernel = kernel_of(suite)
    runs(kernel, "a", OLD, drawn(5))
    runs(kernel, "b", NEW, drawn(6), by=1.06)
    answer = viewer.get(reverse("api-environments"), {"suite": "main"}).json()
    assert [one["kind"] for one in answer["compared"]["kernels"]] == ["unknown"]
    assert any(cell["build"] == "b" and cell["driver"] == "570.10" for cell in answer["missing"])
    assert {one["factor"]: one["ratio"] for one in answer["effects"]}["build"] is None
    text = viewer.get(reverse("environments")).content.decode()
    assert "Tells apart what cannot be told now" in text and "Measure next: " in text


def test_recorded_runs_are_never_mixed_with_measured_ones(suite):
    kernel = kernel_of(suite)
    runs(kernel, "a", OLD, drawn(7))
    runs(kernel, "a", OLD, drawn(8), recorded=LABEL, by=3)
    assert len(load_cells(suite).observations) == len(load_cells(suite, recorded=True).observations) == 5
    assert max(one.us for one in load_cells(suite).observations) < 50


def test_old_builds_of_one_environment_are_left_out_and_said(suite):
    kernel = kernel_of(suite)
    for number in range(12):
        runs(kernel, f"n{number:02}", OLD, drawn(number, 2))
    runs(kernel, "n00", NEW, drawn(3, 2))
    held = load_cells(suite)
    assert held.builds == ["n00", *(f"n{number:02}" for number in range(6, 12))]
    assert held.left_out == "5 older builds that were measured in one environment alone"


def test_the_toolkits_text_is_taken_apart():
    assert toolkit_parts("cuda 13.0, triton 3.6.0") == {"cuda": "13.0", "triton": "3.6.0"}
    assert toolkit_parts("rocm 6.4") == {"cuda": "rocm 6.4"}
    assert toolkit_parts("") == {} and toolkit_parts("unknown") == {"cuda": "unknown"}


def test_the_page_holds_its_queries_and_bears_any_address(suite, viewer, django_assert_max_num_queries):
    for place in range(6):
        kernel = kernel_of(suite, f"softmax R={2 ** place} C=64 fp16")
        for build, environment in (("a", OLD), ("a", NEW), ("b", NEW)):
            runs(kernel, build, environment, drawn(place, 3))
    with django_assert_max_num_queries(25):
        assert viewer.get(reverse("environments"), {"suite": "main"}).status_code == 200
    for query in ({"suite": "no"}, {"before": "9|a", "after": "x"}, {"before": "1|"}, {"kernel": "'"},
                  {"runs": "neither"}, {"before": "99999999999|a"}, {"after": "²|a"}):
        assert viewer.get(reverse("environments"), query).status_code == 200
    assert viewer.get(reverse("api-environments"), {"suite": "no"}).status_code == 404
    assert viewer.get(reverse("api-environments"), {"suite": "a\x00"}).status_code == 400
    assert viewer.get(reverse("api-environments"), {"suite": "main", "runs": "x"}).json()["fields"].keys() == {"runs"}
    assert viewer.get(reverse("api-environments"), {"suite": "main", "kernel": "x"}).status_code == 400
    with pytest.raises(CommandError, match="no suite is named x"):
        call_command("environments", "--suite", "x")


def test_an_empty_product_says_what_to_do(viewer):
    text = viewer.get(reverse("environments")).content.decode()
    assert "No suite yet" in text and reverse("suite-new") in text


def test_the_example_shows_what_a_toolkit_did(client_of):
    alice = client_of("alice")
    assert 'id="example"' in alice.get(reverse("environments")).content.decode()
    assert client_of("bob").post(reverse("examples-environments")).status_code == 403
    page = alice.post(reverse("examples-environments"), follow=True)
    assert page.request["QUERY_STRING"] == "suite=example-toolkits" and b'id="example"' not in page.content
    (mean,) = page.context["picture"].attribution.suite
    assert mean.ratio == pytest.approx(0.9827, abs=1e-3) and page.context["recorded"]
    assert "gemm nvcc" in page.content.decode() and "recorded on NVIDIA RTX A4000" in page.content.decode()
    alice.post(reverse("examples-environments"))
    assert KernelRun.objects.count() == 50


# ---- bisect ----

def test_a_bisect_finds_the_build_in_as_many_rounds_as_it_says(suite, line, viewer):
    culprit, kernel, rounds = 11, SuiteKernel.objects.get(suite=suite), []
    while True:
        answer = viewer.get(reverse("api-bisect"), {"suite": "main", "kernel": KERNEL, "good": "b00", "bad": "b15"}).json()
        if not answer["measure"]:
            break
        rounds.append(answer["rounds"])
        (name,) = answer["measure"]
        runs(kernel, name, OLD, drawn(20 + len(rounds), 3), by=1.05 if line.index(name) >= culprit else 1.0)
    assert answer["bad"] == "b11" and answer["says"].startswith("Found: b11") and answer["suspects"] == ["b11"]
    assert rounds == [4, 3, 2, 1]


def test_its_ends_come_from_the_series(suite, line):
    kernel = SuiteKernel.objects.get(suite=suite)
    for number in (1, 2):
        runs(kernel, line[number], OLD, drawn(number))
    for number in (13, 14):
        runs(kernel, line[number], OLD, drawn(number), by=1.05)
    found = bisect_services.plan_bisect(suite, KERNEL)
    assert (found.plan.good, found.plan.bad) == ("b02", "b13") and found.plan.measure == ["b07"]
    assert "series" in found.why and not found.why_not
    three = bisect_services.plan_bisect(suite, KERNEL, at_once=3).plan
    assert len(three.measure) == 3


def test_the_plans_builds_are_measured_in_turn(suite, line, client_of, alice):
    kernel = SuiteKernel.objects.get(suite=suite)
    suite.device = "replay:timing_runs"
    suite.save()
    kernel.config_from, kernel.config = "given", {"STEPS": 3, "PER_SM": 32, "num_warps": 8}
    kernel.save()
    job = measure_bisect(suite, KERNEL, ["b05", "b10"], alice)
    assert (job.reason, job.kernels, job.runs, [each["build"] for each in job.builds]) == ("bisect", [KERNEL], 3, ["b05", "b10"])
    made = client_of("alice").post(reverse("api-bisect"), json.dumps({"suite": "main", "kernel": KERNEL, "builds": ["b07"]}),
                                   content_type="application/json")
    assert made.status_code == 201 and SuiteJob.objects.get(pk=made.json()["job"]).reason == "bisect"
    suite.kind = Suite.Kind.UPLOADED
    suite.save()
    with pytest.raises(Refused, match="uploaded"):
        measure_bisect(suite, KERNEL, ["b05"], alice)


def test_bisect_says_what_is_wrong(suite, line, viewer):
    def ask(**query: str) -> Any:
        return viewer.get(reverse("api-bisect"), {"suite": "main", "kernel": KERNEL, **query})

    assert ask(kernel="x").status_code == ask(suite="x").status_code == ask(good="nobody").status_code == 404
    assert ask(good="b15", bad="b00").status_code == 404 and "is newer than" in ask(good="b15", bad="b00").json()["error"]
    assert ask(at_once="99").status_code == ask(at_once="x").status_code == ask(kernel="").status_code == 400
    assert ask(gpu="NVIDIA B200").status_code == 404 and ask(good="a\x00").status_code == 400
    assert ask(gpu=GPU).json()["says"].startswith("No build is known to be slower")      # two builds are no series
    assert viewer.post(reverse("api-bisect"), {"suite": "main", "kernel": KERNEL}).status_code == 403


# ---- re-validation ----

NEWER = {**ENVIRONMENT, "triton": "3.7.1"}


def test_a_new_environment_makes_winners_doubtful_and_queues_the_hottest(alice, django_capture_on_commit_callbacks):
    cold, hot = put(ms=0.29), put(shape={**SHAPE, "M": 2048}, ms=0.15)
    RevalidationPolicy.objects.create(by_itself=True, most_entries=1, by=alice)
    with django_capture_on_commit_callbacks(execute=True):
        assert notice_environment(GPU, rules.toolkit_text(NEWER), "580.159")
    cold.refresh_from_db()
    hot.refresh_from_db()
    assert cold.state == hot.state == rules.State.UNVERIFIED and "was seen since" in hot.state_why
    (job,) = SuiteJob.objects.filter(reason="revalidate")
    assert list(job.about["entries"].values()) == [hot.pk] and job.owner == alice and job.device == f"gpu:{GPU}"
    assert policy_services.wake_revalidations() == []                     # the bound holds for this environment
    RevalidationPolicy.objects.update(most_entries=5)
    (other,) = policy_services.wake_revalidations()
    assert list(SuiteJob.objects.get(pk=other).about["entries"].values()) == [cold.pk]
    SuiteJob.objects.filter(reason="revalidate").update(status="failed")
    assert policy_services.wake_revalidations() == []                     # what failed is not tried over and over
    assert not notice_environment(GPU, rules.toolkit_text(NEWER), "580.159")


def test_nothing_is_queued_by_itself_unless_the_switch_is_on(client_of, django_capture_on_commit_callbacks):
    put()
    with django_capture_on_commit_callbacks(execute=True):
        notice_environment(GPU, rules.toolkit_text(NEWER), "580.159")
    assert not SuiteJob.objects.filter(reason="revalidate").exists()
    told = policy_services.overview()
    assert len(told["doubtful"]) == 1 and told["seconds"] > 0
    alice, olga = client_of("alice"), client_of("olga")
    page = alice.get(reverse("environments")).content.decode()
    assert "measured under an older toolkit" in page and ">1 stale</b>" in page and "Auto-revalidate off" in page
    assert "1 hottest: about" in page and "Measure 1 again" in page and ">Auto-revalidate<" not in page
    assert alice.post(reverse("environments-policy"), {"by_itself": "1"}).status_code == 403
    with django_capture_on_commit_callbacks(execute=True):
        olga.post(reverse("environments-policy"), {"by_itself": "1", "most_entries": "3", "most_seconds": "600"})
    assert (RevalidationPolicy.objects.get().most_entries, SuiteJob.objects.filter(reason="revalidate").count()) == (3, 1)
    page = alice.get(reverse("environments")).content.decode()
    assert 'Auto-revalidate <span title="for each GPU model and environment">on' in page


def test_a_person_queues_them_from_the_page_the_api_and_the_command(client_of):
    put()
    notice_environment(GPU, rules.toolkit_text(NEWER), "580.159")
    alice = client_of("alice")
    assert client_of("bob").post(reverse("environments-revalidate")).status_code == 403
    assert alice.post(reverse("environments-revalidate")).status_code == 302
    assert SuiteJob.objects.filter(reason="revalidate").count() == 1
    assert alice.post(reverse("api-environments-revalidate")).json() == {"jobs": []}       # it waits already
    out = StringIO()
    call_command("environments", "--revalidate", "--by-itself", "on", "--most-entries", "7", "--json", stdout=out)
    told = json.loads(out.getvalue())
    assert told["revalidation"]["by_itself"] and told["revalidation"]["most_entries"] == 7 and told["jobs"] == []


def test_a_forgotten_environment_makes_nothing_doubtful_any_more(client_of):
    """Two toolkits that were tried: each is forgotten its own way, and only the last doubt that goes lets a winner stand."""
    entry, other = put(), put(shape={**SHAPE, "M": 2048})
    services.config_set_state(other, rules.State.UNVERIFIED, None, "looks odd")
    notice_environment(GPU, rules.toolkit_text(NEWER), "580.159")
    notice_environment(GPU, "cuda 14.0, triton 4.0.0", "580.159")
    first, second = GpuEnvironment.objects.order_by("pk").filter(toolkit__in=[rules.toolkit_text(NEWER), "cuda 14.0, triton 4.0.0"])
    alice, olga = client_of("alice"), client_of("olga")
    forget = reverse("environment-forget", args=[first.pk])
    assert forget not in alice.get(reverse("environments")).content.decode() and alice.post(forget).status_code == 403
    assert forget in olga.get(reverse("environments")).content.decode()
    page = olga.post(forget, follow=True).content.decode()
    entry.refresh_from_db()
    assert "0 winners are verified again" in page
    assert entry.state == "unverified" and "triton 4.0.0 was seen since" in entry.state_why
    assert olga.post(forget).status_code == 404
    assert alice.delete(reverse("api-environment", args=[second.pk])).status_code == 403
    answer = olga.delete(reverse("api-environment", args=[second.pk])).json()
    entry.refresh_from_db()
    other.refresh_from_db()
    assert answer["verified"] == 1 and entry.state == "verified" and "was forgotten by olga" in entry.state_why
    assert other.state == "unverified" and "looks odd" in other.state_why                   # that was a person's word


def test_what_another_source_made_old_is_not_made_valid_by_forgetting():
    entry = put()
    assert entry.source_hash
    notice_environment(GPU, rules.toolkit_text(NEWER), "580.159")
    CachedConfig.objects.create(**{field.name: getattr(entry, field.name) for field in CachedConfig._meta.fields
                                   if field.name not in ("id", "source_hash", "toolkit")},
                                source_hash="f" * 64, toolkit=rules.toolkit_text(NEWER))
    environment = GpuEnvironment.objects.get(toolkit=rules.toolkit_text(NEWER))
    out = StringIO()
    call_command("environments", "--forget", str(environment.pk), stdout=out)
    entry.refresh_from_db()
    assert "0 winners are verified again" in out.getvalue()
    assert entry.state == "unverified" and entry.state_why.startswith("the kernel's source changed")
    with pytest.raises(CommandError, match="no environment has the id"):
        call_command("environments", "--forget", str(environment.pk))


@pytest.mark.parametrize("body", [{}, {"by_itself": "maybe"}, {"by_itself": True, "most_entries": 0},
                                  {"by_itself": True, "most_seconds": -1}, {"by_itself": True, "most_entries": 10 ** 30},
                                  {"by_itself": True, "most_seconds": 1e308}])
def test_the_switch_refuses_what_makes_no_sense(client_of, body):
    answer = client_of("olga").put(reverse("api-environments-policy"), json.dumps(body), content_type="application/json")
    assert answer.status_code == 400 and answer.json()["fields"]
    assert not RevalidationPolicy.objects.exists()


def test_the_sweep_notices_what_a_tune_job_made_doubtful(alice):
    put()
    RevalidationPolicy.objects.create(by_itself=True, by=alice)
    put(environment=NEWER, shape={**SHAPE, "N": 2048})              # a job ran under the newer Triton
    jobs.connection().delete(sweep._TURN_KEY, sweep._DOUBT_KEY)
    assert len(sweep.sweep()["revalidate"]) == 1


def test_a_job_of_a_suite_under_a_new_driver_makes_winners_doubtful(suite, alice):
    entry = put()
    kernel = kernel_of(suite, "matmul M=512 N=512 K=512 bf16")
    job = job_create(suite, builds=["b1"], runs=1, owner=alice)
    claimed = job_claim(job.pk, "w")
    run_record(claimed, kernel, "b1", number=0, run="r0", us=list(TIMES[0]), gpu=GPU, toolkit=rules.toolkit_text(ENVIRONMENT),
               driver="590.1", worker="w")
    entry.refresh_from_db()
    assert entry.state == rules.State.UNVERIFIED
