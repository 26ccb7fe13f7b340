"""How a job is timed can be chosen on the page, over HTTP and as a command; it reaches the child and is part of the evidence."""

import json

import pytest
from django.core.management import call_command
from django.urls import reverse

from profiles.base.refused import Refused
from tuner.jobs import create_services
from tuner.jobs.forms import TuneForm
from tuner.models import TuneJob
from tuner.tuning.measure.policy import KINDS, TITLES, Policy, policy_rows

pytestmark = pytest.mark.django_db
GPU_JOB = {"operator": "softmax", "shape": {"R": 64, "C": 256}, "dtype": "fp16", "device": "gpu", "strategy": "random",
           "budget_trials": 5, "budget_seconds": 5.0}


def test_a_job_is_timed_cold_unless_it_says_otherwise():
    assert create_services.tune_create(owner=None, **GPU_JOB).timing == "cold"
    job = create_services.tune_create(owner=None, **GPU_JOB, timing="graph")
    assert TuneJob.objects.get(pk=job.pk).timing == "graph"


@pytest.mark.parametrize(("given", "words"), [
    ({"timing": "hot"}, "choose one of cold, warm, graph"),
    ({"timing": "warm", "operator": "matmul", "shape": {"M": 4096, "N": 4096, "K": 4096}, "dtype": "bf16",
      "device": "replay:matmul"},
     "a replay serves times as they were recorded")])
def test_what_cannot_be_is_told_at_its_field(given, words):
    with pytest.raises(Refused) as error:
        create_services.tune_create(owner=None, **{**GPU_JOB, **given})
    assert set(error.value.fields) == {"timing"} and words in error.value.fields["timing"]


def test_it_reaches_the_child(monkeypatch):
    """As `kind` of the policy that opens the session, which comes back with every number."""
    from workers.core import gpu
    from workers.core.periodic import Stop
    from workers.tune import runner

    card = gpu.Gpu(0, "GPU-1", "NVIDIA H200", "9.0", "580", 1)
    seen = {}

    class Runner:
        def __init__(self, *args, policy, **kwargs):
            seen.update(policy)

        def stop(self):
            pass

        close = stop

    monkeypatch.setattr(runner.gpu, "gpus", lambda: [card])
    monkeypatch.setattr(runner, "SandboxRunner", Runner)
    job = create_services.tune_create(owner=None, **GPU_JOB, timing="warm")
    with runner.open_runner(job, "worker-1", Stop(), 0.0):
        pass
    assert seen == {"kind": "warm"}


def test_the_api_takes_it_and_gives_it_back(client):
    made = client.post(reverse("api-tune-list"), json.dumps({**GPU_JOB, "timing": "warm"}), content_type="application/json")
    assert made.status_code == 201 and made.json()["timing"] == "warm"
    wrong = client.post(reverse("api-tune-list"), json.dumps({**GPU_JOB, "timing": "no"}), content_type="application/json")
    assert wrong.status_code == 400 and "choose one of cold, warm, graph" in wrong.content.decode()


def test_the_command_takes_it(capsys):
    call_command("tune", "new", "softmax", "R=64", "C=256", "--timing", "graph", "--json")
    assert json.loads(capsys.readouterr().out)["timing"] == "graph"


def test_the_page_offers_every_way_in_words(client):
    page = client.get(reverse("tune-new")).content.decode()
    assert 'name="timing"' in page and all(title in page for title in TITLES.values()) and set(TITLES) == set(KINDS)


def test_an_old_form_without_the_field_is_cold():
    form = TuneForm({"operator": "softmax", "shape": "R=64 C=256", "dtype": "fp16", "device": "gpu", "strategy": "random"},
                    devices=[("gpu", "GPU")], operators=[("softmax", "Softmax")])
    form.is_valid()
    assert form.cleaned_data["timing"] == "cold"


def test_a_recorded_policy_reads_as_sentences():
    words = dict(policy_rows({**Policy(kind="warm").as_json(), "tolerance": 0.008, "l2_bytes": 1000}))
    assert "L2 as the launch before left it" in words["timed with"]
    assert "10 to 50 until the median is known to ±1%" in words["samples"]
    assert "1% risk" in words["racing"] and "75%" in words["throttling"] and "8 rounds of 5" in words["finalists"]
    assert "0.008" in words["right when"] and words["l2 bytes"] == "1000"
    assert dict(policy_rows({**Policy(risk=0.0).as_json()}))["racing"].startswith("off")
    assert policy_rows({"timing": "as recorded: median of n samples each"}) == [("timing", "as recorded: median of n samples each")]
