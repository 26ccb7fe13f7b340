"""The way through a capture: a form that is filled in, what it costs, the page that it ends as, counters of its slowest kernel."""

import pytest
from django.conf import settings
from django.core.files.base import ContentFile
from django.urls import reverse

from profiles.capture import cost_selectors
from profiles.capture.forms import ABOUT
from profiles.capture.tools import CAPTURE_TOOLS
from profiles.capture.tools.ncu import NcuOptions
from profiles.capture.tools.torch_profiler import TorchOptions
from profiles.models import Capture, CaptureTarget
from profiles.upload.services import profile_ingest
from tests.profiles.ingest.corpus import DATA
from tests.profiles.pages.test_services import create, recording
from workers import jobs

pytestmark = [pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS), pytest.mark.usefixtures("tmp_store")]
WORKER = {"queues": ["gpu"], "host": "node7", "gpus": [{"index": 0, "name": "NVIDIA H200"}],
          "tools": {"ncu": {"path": "/opt/ncu", "version": "2025.3.1"}, "torch": {"version": "2.11.0"}}}
STEPS = {"first": {"n": 1, "median_ms": 90, "min_ms": 90, "max_ms": 90},
         "recording": {"n": 3, "median_ms": 15, "min_ms": 14, "max_ms": 17},
         "after": {"n": 3, "median_ms": 10, "min_ms": 9, "max_ms": 11}}


@pytest.fixture(autouse=True)
def _queue(sign_in_mode):
    jobs.connection().flushdb()
    jobs.announce("gpu@node7", WORKER)
    yield
    jobs.connection().flushdb()


@pytest.fixture
def target():
    return CaptureTarget.objects.create(name="train", argv=["{python}", "-m", "train"])


def done(target, alice, tool="torch", profile=None, **fields):
    return Capture.objects.create(target=target, tool=tool, owner=alice, status="done", profile=profile, **fields)


def form(client, person, **query):
    client.force_login(person)
    answer = client.get(reverse("capture-new"), query)
    assert answer.status_code == 200
    return answer


@pytest.mark.parametrize(
    ("about", "tool", "field", "value"),
    [("kernel", "ncu", "launch_count", 1), ("memory", "torch", "memory", "end"), ("step", "torch", "active", None),
     ("server", "torch", "steps", "whole")],
)
def test_the_form_begins_with_what_is_looked_at(client, alice, target, about, tool, field, value):
    answer = form(client, alice, about=about)
    assert answer.context["tool"] == tool and answer.context["about"].name == about
    assert answer.context["tools"][tool].initial.get(field) == value


def test_every_tool_is_proposed_for_something():
    proposed = {tool for about in ABOUT.values() for tool in about.tools}
    assert proposed == set(CAPTURE_TOOLS)
    assert all(CAPTURE_TOOLS[tool].options.parse(options) for about in ABOUT.values() for tool, options in about.options.items())


def test_the_last_options_of_a_program_come_back(client, alice, olga, target):
    done(target, olga, options={"active": 9})
    mine = done(target, alice, options={"active": 7, "with_stack": True})
    done(target, olga, options={"active": 5})
    answer = form(client, alice, about="step", target=target.pk)
    assert answer.context["tools"]["torch"].initial["active"] == 7 and f"capture {mine.pk}" in answer.content.decode()
    fresh = form(client, alice, about="step", target=target.pk, fresh=1)
    assert "active" not in fresh.context["tools"]["torch"].initial
    assert form(client, alice, about="step", target=target.pk, active=4).context["tools"]["torch"].initial["active"] == "4"


def test_a_capture_is_made_again_as_it_was(client, alice, target):
    first = done(target, alice, options={"active": 7}, build="b1", tags=["x", "y"])
    done(target, alice, options={"active": 9})
    answer = form(client, alice, again=first.pk)
    assert answer.context["tool"] == "torch" and answer.context["tools"]["torch"].initial["active"] == 7
    assert answer.context["what"].initial == {"target": str(target.pk), "build": "b1", "model": "", "tags": "x, y"}
    assert form(client, alice, again="9" * 30).context["tool"] and form(client, alice, again="x").status_code == 200


def test_a_kernel_that_is_asked_about_is_not_mixed_with_the_last_one(client, alice, target):
    done(target, alice, tool="ncu", options={"kernel": "softmax", "launch_skip": 40, "set": "basic",
                                             "metrics": ["dram__bytes.sum", "a__b"]})
    answer = form(client, alice, tool="ncu", target=target.pk, kernel=["void gemm<int>(int)", "matmul"])
    filled = answer.context["tools"]["ncu"].initial
    assert filled["kernel"] == "gemm\nmatmul" and "launch_skip" not in filled
    assert filled["set"] == "basic" and filled["metrics"] == "dram__bytes.sum\na__b"


def test_a_capture_of_counters_ends_as_its_kernel_beside_the_baseline(client, api, alice, target):
    old, new = (profile_ingest(recording(f"build{build}.ncu-rep.zst").pk, "test") for build in "AB")
    capture = done(target, alice, tool="ncu", profile=new, baseline=old)
    kernel = new.kernels.first()
    beside = old.kernels.filter(short_name=kernel.short_name).first()
    url = reverse("kernel", args=[new.pk, kernel.pk]) + (f"?baseline={beside.pk}" if beside else "")
    told = api(alice).get(reverse("api-capture", args=[capture.pk])).json()
    assert told["result"] == url and told["baseline"] == old.pk
    client.force_login(alice)
    assert f'href="{url}"' in client.get(reverse("capture", args=[capture.pk])).content.decode()
    assert client.get(url).status_code == 200
    capture.baseline.delete()
    assert "baseline=" not in api(alice).get(reverse("api-capture", args=[capture.pk])).json()["result"]


def test_a_memory_snapshot_ends_as_the_page_of_memory(api, alice, target):
    data = (DATA / "recorded" / "torch_snapshot.pickle").read_bytes()
    snapshot = profile_ingest(create(ContentFile(data, name="snapshot.pickle")).pk, "test")
    capture = done(target, alice, profile=snapshot)
    told = api(alice).get(reverse("api-capture", args=[capture.pk])).json()
    assert told["result"] == reverse("topic", args=[snapshot.pk, "memory"])


def test_a_trace_is_compared_with_its_baseline(api, alice, target):
    a, b = (profile_ingest(recording("kineto_layer.json.gz").pk, "test") for _ in range(2))
    capture = done(target, alice, profile=b)
    url = reverse("api-capture", args=[capture.pk])
    assert api(alice).get(url).json()["result"] == reverse("profile", args=[b.pk])
    Capture.objects.update(baseline=a)
    assert api(alice).get(url).json()["result"] == f"{reverse('compare')}?a={a.pk}&b={b.pk}"
    b.status = "ingesting"
    b.save()
    told = api(alice).get(url).json()
    assert told["result"] == "" and told["profile_status"] == "ingesting"


def test_the_program_is_the_one_that_made_what_is_named(client, alice, target):
    other = CaptureTarget.objects.create(name="a program that comes first", argv=["{python}", "x.py"])
    done(other, alice, build="b0")
    trace = profile_ingest(recording("kineto_layer.json.gz").pk, "test")
    slowest = trace.kernels.exclude(category="communication").first()
    link = reverse("kernel-capture", args=[trace.pk, slowest.pk])
    client.force_login(alice)
    asked = client.get(link, follow=True)
    assert asked.context["what"].initial.get("target") is None and "choose the program" in asked.content.decode()
    assert form(client, alice, build="b1").context["what"].fields["target"].empty_label     # neither is known: nothing is guessed
    done(target, alice, profile=trace, build="b1")
    assert client.get(link, follow=True).context["what"].initial["target"] == str(target.pk)
    name = slowest.name.split("<")[0].split("(")[0].split()[-1]
    for query in ({"profile": trace.pk}, {"kernel": name.split("::")[-1]}, {"build": "b1"}, {"kernel": "no_such", "build": "b1"}):
        assert form(client, alice, **query).context["what"].initial["target"] == str(target.pk), query
    assert form(client, alice, build="b0").context["what"].initial["target"] == str(other.pk)
    target.enabled = False
    target.save()
    assert "target" not in form(client, alice, kernel=name.split("::")[-1]).context["what"].initial


def test_counters_of_a_kernel_that_has_some_are_taken_beside_them(client, alice, target):
    old = profile_ingest(recording("buildA.ncu-rep.zst").pk, "test")
    client.force_login(alice)
    page = client.get(reverse("kernel-capture", args=[old.pk, old.kernels.first().pk]), follow=True)
    assert page.context["what"].initial["baseline"] == str(old.pk) and f'value="{old.pk}" selected' in page.content.decode()


def test_the_baseline_is_chosen_on_the_form(client, alice, target):
    old = profile_ingest(recording("buildA.ncu-rep.zst").pk, "test")
    assert str(old.pk) in form(client, alice, tool="ncu", baseline=old.pk).content.decode()
    asked = {"tool": "ncu", "target": target.pk, "ncu-set": "basic", "baseline": old.pk}
    assert client.post(reverse("capture-new"), asked).status_code == 302
    assert Capture.objects.get().baseline == old
    refused = client.post(reverse("capture-new"), {**asked, "baseline": 999_999})
    assert refused.status_code == 400 and Capture.objects.count() == 1


def test_what_recording_cost_is_shown_and_expected_of_the_next(client, api, alice, target):
    capture = done(target, alice, facts={"steps": STEPS, "wall_s": 12.5, "write_s": 0.4})
    client.force_login(alice)
    page = client.get(reverse("capture", args=[capture.pk])).content.decode()
    assert all(words in page for words in ("a step took 1.50 times as long while it recorded", "1.50×", "15.0"))
    assert api(alice).get(reverse("api-capture", args=[capture.pk])).json()["cost"]["ratio"] == 1.5
    Capture.objects.update(facts={"steps": {**STEPS, "after": {"n": 3, "median_ms": 10, "min_ms": 9, "max_ms": 16}}})
    assert "within the spread of steps" in client.get(reverse("capture", args=[capture.pk])).content.decode()
    asked = {"target": target.pk, "tool": "torch", "options": {}}
    preview = api(alice).post(reverse("api-capture-preview"), asked, format="json").json()
    assert f"within the spread of steps (measured, capture {capture.pk}); steps 0 to 36 % longer" in preview["slowdown"]
    other = CaptureTarget.objects.create(name="other", argv=["{python}", "x.py"])
    assert "docs/fleet-loss.md" in cost_selectors.expected(TorchOptions(), other)
    assert cost_selectors.expected(TorchOptions(), other).startswith("not measured with this program; ")
    assert "44 times" in cost_selectors.expected(NcuOptions(), other)


@pytest.mark.parametrize("facts", [{}, {"steps": "x"}, {"steps": {"recording": {"median_ms": "1"}}},
                                   {"steps": {"after": [1]}, "wall_s": True},
                                   {"steps": {"recording": {"n": 1, "median_ms": 5, "min_ms": 5, "max_ms": 5}}}])
def test_facts_of_any_kind_make_no_page_fail(client, alice, target, facts):
    capture = done(target, alice, facts=facts)
    assert cost_selectors.cost(capture).ratio is None
    client.force_login(alice)
    assert client.get(reverse("capture", args=[capture.pk])).status_code == 200


def test_again_with_counters_is_one_click(client, alice, bob, target):
    trace = profile_ingest(recording("kineto_layer.json.gz").pk, "test")
    capture = done(target, alice, profile=trace)
    url = reverse("profile-counters", args=[trace.pk])
    client.force_login(alice)
    assert f'action="{url}"' in client.get(reverse("capture", args=[capture.pk])).content.decode()
    answer = client.post(url)
    made = Capture.objects.latest("pk")
    assert answer.url == reverse("capture", args=[made.pk]) and made.tool == "ncu" and made.target == target
    slowest = trace.kernels.exclude(category="communication").first()
    assert made.options["launch_count"] == 1 and made.options["kernel"] and made.options["kernel"].replace("\\", "") in slowest.name
    client.force_login(bob)
    assert client.post(url).status_code == 403


def test_counters_of_an_uploaded_trace_ask_for_the_program(client, alice, target):
    trace = profile_ingest(recording("kineto_layer.json.gz").pk, "test")
    client.force_login(alice)
    answer = client.post(reverse("profile-counters", args=[trace.pk]))
    assert answer.status_code == 302 and answer.url.startswith(reverse("capture-new")) and "kernel=" in answer.url
    assert not Capture.objects.exists()
