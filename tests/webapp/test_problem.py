"""The page of a kernel problem: what it knows, its two buttons, the links that lead to it, the finished CI files."""

import json
import re
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from profiles.models import KernelFamily, KernelShape, KernelStat, Profile
from tuner.cache.entries import services as config_services
from tuner.gate.builds.services import ensure_build
from tuner.gate.suites.run_services import run_record
from tuner.models import CachedConfig, Quarantine, Regression, Suite, SuiteKernel, TuneJob
from tuner.tuning.measure.runner import Session
from tuner.tuning.operators import OPERATORS, limits
from tuner.tuning.search.finalists import Finalist
from tuner.tuning.trial import Measured
from webapp.problem import address, pages, services, states

pytestmark = pytest.mark.django_db

GPU, SHAPE = "NVIDIA H200", {"M": 1024, "N": 1024, "K": 1024}
TUNE = {"operator": "matmul", "dtype": "bf16", **SHAPE}
PROBLEM = address.Problem("matmul", "bf16", SHAPE, GPU)
BEST = {**OPERATORS["matmul"].default_config(SHAPE, "bf16", limits(GPU)), "BM": 128, "BN": 256, "num_warps": 8}


def launches(name: str = "nvjet_sm90_tst_64x64", *, build: str = "b1", mean_ns: int = 20_000, tune: dict[str, Any] | None = None,
             op: str = "matmul", **shape: Any) -> KernelShape:
    """A kernel of a ready trace with one shape."""
    profile = Profile.objects.create(name=f"train @ {build}", status="ready", kind="trace", gpu=GPU, build=build, file_name="f",
                                     upload_key="k", sha256=build)
    family = KernelFamily.objects.get_or_create(name=name, function=name, op=op)[0]
    stat = KernelStat.objects.create(profile=profile, name=name, short_name=name, category="compute", launches=10, family=family,
                                     total_ns=10 * mean_ns, mean_ns=mean_ns, min_ns=1, max_ns=1, share_pct=50)
    return KernelShape.objects.create(kernel=stat, launches=10, total_ns=10 * mean_ns, min_ns=1, max_ns=1,
                                      tune=TUNE if tune is None else tune, **shape)


def finished_job(best_ms: float = 0.02, library_ms: float | None = None) -> TuneJob:
    outcome = Measured(best_ms, best_ms, best_ms, 20, {})
    finalist = Finalist(BEST, outcome)
    job = TuneJob.objects.create(
        operator="matmul", shape=SHAPE, dtype="bf16", device="gpu", strategy="local", budget_trials=9, budget_seconds=9,
        status="done", gpu=GPU, best_ms=best_ms, best_config=BEST, default_ms=0.03, library_ms=library_ms,
        finalists=[finalist.as_json()], finished=timezone.now())
    config_services.config_put(job, Session(gpu=GPU, compute_capability="9.0", environment={"cuda": "13.0"}), outcome, "",
                               finalists=[finalist])
    return job


def text(client: Client, url: str) -> str:
    answer = client.get(url, follow=True)
    assert answer.status_code == 200, (url, answer.status_code)
    return answer.content.decode()


def state(page: str, name: str) -> str:
    return page.split(f'id="state-{name}"')[1].split("</li>")[0]


@pytest.fixture
def alice(client: Client, alice: Any) -> Client:
    client.force_login(alice)
    return client


def test_a_problem_adds_up_its_launches_and_draws_its_builds(alice: Client) -> None:
    launches(build="b1", mean_ns=20_000)
    launches(build="b2", mean_ns=30_000)
    launches("other_gemm", build="b3", mean_ns=9_000, tune={**TUNE, "M": 2048})
    page = text(alice, PROBLEM.url)
    assert re.search(r">20<.{0,9} launches", page) and "25" in state(page, "profiled") and "trend-json" in page
    history = page.split('id="history"')[1].split("<script")[0]
    assert "b1" in page and "b2" in page and "b3" not in history
    for name, says in (("tuned", "not yet"), ("served", "the default"), ("guarded", "not yet")):
        assert says in state(page, name)
    assert "no worker has an NVIDIA H200" in state(page, "tuned") or "Replay" in state(page, "tuned")     # said before it is queued


def test_kernels_and_families_lead_to_their_problem_of_most_time(alice: Client) -> None:
    row = launches()
    for query in (f"shape={row.pk}", f"kernel={row.kernel_id}", f"family={row.kernel.family_id}"):
        assert alice.get(f"/kernels/problem/?{query}")["Location"] == PROBLEM.url


def test_a_family_leads_to_the_problem_of_the_profiles_that_overview_shows(alice: Client) -> None:
    row = launches(build="b1")
    hotter = launches(build="b2", mean_ns=90_000, tune={**TUNE, "M": 2048})
    assert hotter.kernel.family_id == row.kernel.family_id
    family = f"/kernels/problem/?family={row.kernel.family_id}"
    assert "M=2048" in alice.get(family)["Location"]
    assert alice.get(f"{family}&build=b1")["Location"] == PROBLEM.url
    assert f"family={row.kernel.family_id}&amp;build=b1" in text(alice, "/?build=b1")


def test_a_backward_kernel_that_was_stored_as_the_operators_is_not_counted(alice: Client) -> None:
    launches(build="b1")
    stored = launches("matmul_backward_kernel", build="b2", mean_ns=90_000)
    assert re.search(r">10<.{0,9} launches", text(alice, PROBLEM.url))
    assert "backward pass" in text(alice, f"/kernels/problem/?shape={stored.pk}")


@pytest.mark.parametrize("query", ["", "operator=matmul", "operator=matmul&dtype=fp64&M=8&N=8&K=8&gpu=x", "shape=99999",
                                   "kernel=x", "operator=matmul&dtype=bf16&M=0&N=8&K=8", "family=" + "9" * 30])
def test_what_names_no_problem_is_not_found(alice: Client, query: str) -> None:
    assert alice.get(f"/kernels/problem/?{query}").status_code == 404


@pytest.mark.parametrize(("name", "op", "why"), [
    ("void gemv2T_kernel_val<int, int, double, double, double, double, 128, 16, 4, 4>(cublasGemvParamsEx<int, double>)",
     "matmul", "fp64"),
    ("void at::native::vectorized_layer_norm_kernel<float, float, false>(int, float, float const*)", "norm", "fp32")])
def test_a_kernel_of_another_type_offers_its_own_and_no_job(alice: Client, name: str, op: str, why: str) -> None:
    row = launches(name, op=op, tune={}, grid="64×1×1")
    page = text(alice, f"/kernels/problem/?kernel={row.kernel_id}")
    tuned = state(page, "tuned")
    assert why in tuned and "Bring this kernel" in tuned and "problem-tune" not in page and "/kernels/problem/tune/" not in page
    assert row.kernel.short_name[:30].replace("<", "&lt;") in page


def test_tune_queues_a_filled_in_job_once(alice: Client) -> None:
    launches()
    for _ in range(2):
        answer = alice.post("/kernels/problem/tune/", PROBLEM.fields)
        assert answer.status_code == 302 and answer["Location"] == PROBLEM.url
    [job] = TuneJob.objects.all()
    assert (job.operator, job.dtype, job.shape, job.status, job.effort) == ("matmul", "bf16", SHAPE, "queued", "normal")
    assert states.job_device(PROBLEM).value == job.device and f"/tune/{job.pk}/" in state(text(alice, PROBLEM.url), "tuned")


def test_a_finished_job_is_served_with_its_line(alice: Client) -> None:
    finished_job()
    page = text(alice, PROBLEM.url)
    assert "1.50× the default" in state(page, "tuned") and "exact" in state(page, "served")
    assert "best(&quot;matmul&quot;, &quot;bf16&quot;, M=1024, N=1024, K=1024).config" in state(page, "served")


def test_served_is_what_a_launch_on_this_gpu_gets(alice: Client) -> None:
    """Under the newest toolkit that ran there; a recording where there is nothing else, with how a job asks for it."""
    finished_job()
    Quarantine.objects.create(signature="x", operator="matmul", dtype="bf16", config=BEST, config_key="", capability="9.0",
                              toolkit="cuda 12.8", reason="crash")
    assert "exact" in state(text(alice, PROBLEM.url), "served"), "it crashed under a toolkit that nobody runs there any more"
    config_services.record_environment(GPU, "cuda 13.1")
    served = state(text(alice, PROBLEM.url), "served")
    assert "older toolkit" in served and "unverified" in served
    CachedConfig.objects.update(recorded="recorded on NVIDIA H200")
    served = state(text(alice, PROBLEM.url), "served")
    assert ">recorded<" in served and "RIDGEPOINT_RECORDED=1" in served


def test_a_library_that_wins_is_kept(alice: Client) -> None:
    finished_job(best_ms=0.0208, library_ms=0.02)
    page = text(alice, PROBLEM.url)
    assert "keep cuBLAS: 1.04× faster than the best found" in state(page, "tuned")
    assert "the library" in state(page, "served") and ".library" in state(page, "served")


def test_guard_makes_one_entry_and_keeps_those_that_are_there(alice: Client) -> None:
    services.guard(address.Problem("matmul", "bf16", {**SHAPE, "M": 64}, GPU), None)
    for _ in range(2):
        assert alice.post("/kernels/problem/guard/", PROBLEM.fields)["Location"] == PROBLEM.url
    [suite] = Suite.objects.all()
    assert suite.name == "problems-nvidia-h200" and suite.device == f"gpu:{GPU}"
    assert [(row.shape["M"], row.dtype, row.config_from) for row in suite.kernels.all()] == [
        (64, "bf16", "cache"), (1024, "bf16", "cache")]
    page = text(alice, PROBLEM.url)
    assert "no run yet" in state(page, "guarded") and "--suite problems-nvidia-h200" in page and "http://testserver" in page


def test_a_regression_shows_its_chart_and_the_guard_its_run(alice: Client) -> None:
    """Of just this kernel on this GPU: the same suite's other kernels, and the same kernel elsewhere, have none here."""
    kernel = services.guard(PROBLEM, None)
    other = services.guard(address.Problem("matmul", "bf16", {**SHAPE, "M": 64}, GPU), None)
    where = {"gpu": GPU, "toolkit": "cuda 13.0", "driver": "580", "recorded": "recorded on NVIDIA H200"}
    builds = [ensure_build(name) for name in ("good-1", "bad-2")]
    for build, us in zip(builds, (20.0, 26.0), strict=True):
        for number in range(5):
            for each in (kernel, other):
                run_record(None, each, build.name, number=number, run=f"run {number}", us=[us + number / 10] * 5, environment={},
                           **where)
    for key, gpu, build in ((kernel.key, GPU, builds[1]), (other.key, GPU, builds[0]), (kernel.key, "NVIDIA A100", builds[1])):
        Regression.objects.create(suite=kernel.suite, family="matmul", build=build, good=builds[0], kernels=[key], ratio=1.3,
                                  found_by="series", **{**where, "gpu": gpu})
    page = text(alice, PROBLEM.url)
    mine = Regression.objects.get(kernels=[kernel.key], gpu=GPU)
    figures = re.findall(r'data-figure="(regression-[0-9]+)"', page)
    assert figures == [f"regression-{mine.pk}"] and f'id="regression-{mine.pk}"' in page and "watched-json" in page
    guarded = state(page, "guarded")
    assert "bad-2" in guarded and "26.4" in guarded and "recorded" in guarded


def test_a_reader_may_look_and_change_nothing(client: Client, bob: Any) -> None:
    client.force_login(bob)
    page = text(client, PROBLEM.url)
    assert "/kernels/problem/tune/" not in page and "/kernels/problem/guard/" not in page
    for path in ("tune", "guard"):
        assert client.post(f"/kernels/problem/{path}/", PROBLEM.fields).status_code == 403
    assert not TuneJob.objects.exists() and not SuiteKernel.objects.exists()


def test_every_page_of_it_leads_there(alice: Client) -> None:
    row, job = launches(), finished_job()
    kernel, entry = services.guard(PROBLEM, None), CachedConfig.objects.get()
    where = PROBLEM.url.replace("&", "&amp;")
    assert where in text(alice, f"/tune/{job.pk}/") and where in text(alice, f"/cache/{entry.pk}/")
    assert "/kernels/problem/?operator=matmul" in text(alice, f"/suites/{kernel.suite_id}/kernels/{kernel.pk}/")
    assert f"/kernels/problem/?kernel={row.kernel_id}" in text(alice, f"/profiles/{row.kernel.profile_id}/kernels/")
    assert f"/kernels/problem/?family={row.kernel.family_id}" in text(alice, "/kernels/")
    assert f"/kernels/problem/?family={row.kernel.family_id}" in text(alice, "/")


def test_the_ci_files_name_this_server_and_suite_and_nothing_of_the_examples() -> None:
    made = pages.pipelines("https://perf.team", "problems-nvidia-h200")
    assert [each.system for each in made] == ["GitHub Actions", "GitLab", "Jenkins", "Buildkite"]
    for each in made:
        assert "--suite problems-nvidia-h200" in each.text and "guard.example" not in each.text and "serving" not in each.text
        assert "https://perf.team" in each.text, each.system
    assert json.dumps(made[0].text)
