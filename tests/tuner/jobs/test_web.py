"""Jobs and the cache over HTTP: who may do what, errors that name the field, pages without JavaScript."""

import pytest
from django.urls import reverse

from tuner import devices
from tuner.jobs import create_services, selectors
from tuner.models import CachedConfig, TuneJob
from tuner.tuning.trial import Measured
from workers import jobs
from workers.tune import lead

pytestmark = pytest.mark.django_db

SHAPE = {"M": 1024, "N": 1024, "K": 1024}
JOB = {"operator": "matmul", "shape": SHAPE, "dtype": "bf16", "device": "replay:matmul", "strategy": "local",
       "budget_trials": 20, "budget_seconds": 60}


@pytest.fixture(autouse=True)
def replay_worker():
    jobs.announce("replay@test", {"queues": ["replay"], "replay": ["matmul"], "gpus": []})
    yield
    jobs.retire("replay@test")


@pytest.fixture
def unwatched(monkeypatch):
    """Run without the thread that looks for a stop: it could not see this test's open transaction."""
    from contextlib import contextmanager

    @contextmanager
    def watched(over, turn):
        yield lead.Stop()
    monkeypatch.setattr(lead, "watch_for_stop", watched)


@pytest.fixture
def done(unwatched):
    job = create_services.tune_create(owner=None, **JOB)
    lead.run(job.pk, "w1", replay_speed=0)
    job.refresh_from_db()
    assert job.status == "done"
    return job


# ---- API ----

def test_a_job_is_made_and_a_worker_woken_on_commit(api, alice, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        answer = api(alice).post(reverse("api-tune-list"), JOB, format="json")
    assert answer.status_code == 201
    job = TuneJob.objects.get()
    assert (answer.json()["id"], answer.json()["status"], job.owner) == (job.pk, "queued", alice)
    assert list(answer.json()["shape"]) == ["M", "N", "K"]
    assert job.pk in jobs.waiting("tune")


@pytest.mark.parametrize(("change", "field"), [
    ({"operator": "conv"}, "device"), ({"shape": {"M": 1}}, "shape"), ({"dtype": "fp8"}, "dtype"),
    ({"device": "tpu"}, "device"), ({"device": "replay:../../etc/passwd"}, "device"),
    ({"strategy": "magic"}, "strategy"),
    ({"budget_trials": 0}, "budget_trials"), ({"budget_seconds": -1}, "budget_seconds"), ({"seed": -1}, "seed"),
    ({"device": "gpu", "shape": {"M": 0, "N": 4, "K": 4}}, "M"), ({"shape": {"M": "x"}}, "shape"),
    ({"device": "gpu", "operator": "conv"}, "operator"), ({"budget_seconds": "NaN"}, "budget_seconds"),
])
def test_each_wrong_field_is_named(api, alice, change, field):
    answer = api(alice).post(reverse("api-tune-list"), {**JOB, **change}, format="json")
    assert answer.status_code == 400
    assert field in answer.json()["fields"]
    assert not TuneJob.objects.exists()


def test_viewers_read_and_do_not_tune(api, bob, done, sign_in_mode):
    client = api(bob)
    assert client.get(reverse("api-tune", args=[done.pk])).status_code == 200
    assert client.post(reverse("api-tune-list"), JOB, format="json").status_code == 403
    assert client.post(reverse("api-tune-stop", args=[done.pk])).status_code == 403
    assert api().get(reverse("api-tune-list")).status_code in (401, 403)


def test_trials_after_a_number(api, bob, done):
    client, url = api(bob), reverse("api-trials", args=[done.pk])
    everything = client.get(url).json()
    assert [t["number"] for t in everything["trials"]] == list(range(20))
    assert everything["next_after"] is None
    assert [t["number"] for t in client.get(url, {"after": 16}).json()["trials"]] == [17, 18, 19]
    page = client.get(url, {"after": -1, "limit": 5}).json()
    assert (len(page["trials"]), page["next_after"]) == (5, 4)
    assert client.get(url, {"after": "x"}).status_code == 400


def test_stop(api, alice):
    job = create_services.tune_create(owner=alice, **JOB)
    answer = api(alice).post(reverse("api-tune-stop", args=[job.pk]))
    assert answer.json()["status"] == "stopped"


def test_the_best_configuration_names_the_rule_that_served_it(api, bob, done):
    client, url = api(bob), reverse("api-config-best")
    asked = {"operator": "matmul", "dtype": "bf16", "gpu": "NVIDIA H200", **SHAPE}
    nothing = client.get(url, asked).json()                # the job replayed a recording, and nobody asked for one
    assert (nothing["rule"], nothing["entry"]) == ("default", None) and "RIDGEPOINT_RECORDED=1" in nothing["why"]
    exact = client.get(url, {**asked, "recorded": 1}).json()
    assert nothing["recording"] == exact["entry"]["id"] and exact["why"].startswith("recorded, not measured here")
    assert (exact["rule"], exact["config"], exact["entry"]["job"]) == ("exact", done.best_config, done.pk)
    assert exact["entry"]["recorded"].startswith("recorded on NVIDIA H200")
    near = client.get(url, {"operator": "matmul", "gpu": "NVIDIA H200", "M": 2048, "N": 1024, "K": 1024, "recorded": 1}).json()
    assert near["rule"] == "nearest bucket"
    other = client.get(url, {"operator": "matmul", "gpu": "NVIDIA H100 80GB HBM3", **SHAPE, "recorded": 1}).json()
    assert other["rule"] == "same architecture"
    softmax = client.get(url, {"operator": "softmax", "gpu": "NVIDIA H200", "R": 64, "C": 128}).json()
    assert (softmax["rule"], softmax["entry"]) == ("default", None)
    wrong = client.get(url, {"operator": "matmul", "gpu": "NVIDIA H200", "M": 64})
    assert wrong.status_code == 400 and set(wrong.json()["fields"]) == {"N", "K"}


def test_configs(api, bob, done):
    (entry,) = api(bob).get(reverse("api-configs"), {"operator": "matmul"}).json()["configs"]
    assert entry["triton"].startswith("triton.Config({'BM': ")
    assert api(bob).get(reverse("api-configs"), {"operator": "softmax"}).json()["configs"] == []


# ---- what the cache keeps ----

def test_a_slower_result_for_the_same_shape_does_not_replace_the_entry(done, unwatched):
    before = CachedConfig.objects.get()
    worse = create_services.tune_create(owner=None, **{**JOB, "budget_trials": 1})
    lead.run(worse.pk, "w1", replay_speed=0)
    after = CachedConfig.objects.get()
    assert (after.config, after.job_id) == (before.config, before.job_id)
    assert [h["kept"] for h in after.evidence["history"]] == [True, False]
    landscape = devices.load_landscape("matmul")
    recorded = landscape.at(landscape.index_of(SHAPE)).outcomes.values()
    best, _ = min(((config, found.median_ms) for config, found in recorded if isinstance(found, Measured)), key=lambda one: one[1])
    better = create_services.tune_create(owner=None, **JOB, only=[best])
    lead.run(better.pk, "w1", replay_speed=0)
    assert CachedConfig.objects.get().job_id == better.pk


def test_a_search_in_which_nothing_could_be_measured_fails_with_the_reasons(unwatched, monkeypatch, django_assert_num_queries):
    job = create_services.tune_create(owner=None, **{**JOB, "budget_trials": 3})
    from tuner.tuning.measure.replay import ReplayRunner
    from tuner.tuning.trial import Reason, Rejected
    monkeypatch.setattr(ReplayRunner, "_outcome", lambda self, config: Rejected(Reason.RESOURCES, "too much"))
    lead.run(job.pk, "w1", replay_speed=0)
    job.refresh_from_db()
    assert job.status == "failed" and "3 × resources" in job.error["what"]
    with django_assert_num_queries(1):       # a trial that is rejected between two would have a reason that one of them lacks
        assert selectors.failures_by_reason(job) == [{"reason": "resources", "count": 3, "message": "too much"}]


# ---- pages ----

@pytest.mark.parametrize("name", ["tune-list", "tune-new", "cache-list"])
def test_empty_pages(client, alice, name):
    client.force_login(alice)
    assert client.get(reverse(name)).status_code == 200


def test_pages_of_a_finished_job(client, bob, done):
    client.force_login(bob)
    entry = CachedConfig.objects.get()
    for url in (reverse("tune-list"), reverse("tune", args=[done.pk]) + "?scale=linear", reverse("cache-list"),
                reverse("cache", args=[entry.pk])):
        answer = client.get(url)
        assert answer.status_code == 200
        assert "recorded on NVIDIA H200, torch 2.11.0, Triton 3.6.0" in answer.content.decode()
    page = client.get(reverse("tune", args=[done.pk])).content.decode()
    assert "TFLOP/s" in page and "triton.Config(" in page and "602" in page
    assert "M 1024 · N 1024 · K 1024" in page
    assert client.get(reverse("tune-new")).status_code == 403
    assert client.post(reverse("tune-stop", args=[done.pk])).status_code == 403


def test_the_form_is_filled_from_the_address(client, alice):
    client.force_login(alice)
    page = client.get(reverse("tune-new"), {"operator": "softmax", "R": 2048, "C": 32768, "budget_trials": 7})
    form = page.context["form"]
    assert form["shape"].value() == "R=2048 C=32768"
    assert [form[name].value() for name in ("operator", "device", "dtype")] == ["softmax", "replay:softmax", "fp16"]
    assert form["budget_trials"].value() == "7"


def test_the_form_says_why_nothing_runs(client, alice):
    jobs.retire("replay@test")
    client.force_login(alice)
    page = client.get(reverse("tune-new")).content.decode()
    assert "no replay worker is running" in page and "no gpu worker is running" in page


def test_the_form_keeps_what_was_typed_and_names_what_is_wrong(client, alice):
    client.force_login(alice)
    typed = {"operator": "matmul", "shape": "M=77, N=1 K=1", "dtype": "bf16", "device": "replay:matmul",
             "strategy": "random", "budget_trials": "20", "budget_seconds": "60", "seed": ""}
    page = client.post(reverse("tune-new"), typed)
    assert page.status_code == 400
    text = page.content.decode()
    assert "not recorded; this landscape holds: M=4096 N=4096 K=4096" in text and ">\nM=77, N=1 K=1</textarea>" in text
    assert "is not understood" in client.post(reverse("tune-new"), {**typed, "shape": "4096x4096"}).content.decode()
    made = client.post(reverse("tune-new"), {**typed, "shape": "M=1024 N=1024 K=1024"})
    assert made.status_code == 302
    assert made.url == reverse("tune", args=[TuneJob.objects.get().pk])


def test_a_waiting_job_says_why_it_waits_and_stops_by_a_button(client, alice):
    client.force_login(alice)
    jobs.retire("replay@test")
    job = create_services.tune_create(owner=alice, **JOB)
    page = " ".join(client.get(reverse("tune", args=[job.pk])).content.decode().split())
    assert "Waiting for a replay worker" in page and "No replay worker is running" in page
    client.post(reverse("tune-stop", args=[job.pk]))
    job.refresh_from_db()
    assert job.status == "stopped"


def test_the_page_of_a_failed_job_says_where_what_and_what_to_do(client, bob):
    job = create_services.tune_create(owner=None, **JOB)
    TuneJob.objects.filter(pk=job.pk).update(
        status="failed", error={"where": "GPU child", "what": "it did <b>not</b> start", "hint": "look at its log"})
    client.force_login(bob)
    page = client.get(reverse("tune", args=[job.pk])).content.decode()
    assert "GPU child" in page and "it did &lt;b&gt;not&lt;/b&gt; start" in page and "look at its log" in page
