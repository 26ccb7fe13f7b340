"""Captures through pages and the API: who may, what is said, what is queued."""

import pytest
from django.conf import settings
from django.urls import reverse

from profiles.base.refused import Refused
from profiles.capture import services
from profiles.models import Capture, CaptureTarget
from workers import jobs

# The list of applications makes the flush after each test cascade: a swapped-out token table of knox stays behind.
pytestmark = pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
WORKER = {
    "queues": ["gpu"],
    "host": "node7",
    "gpus": [{"index": 0, "name": "NVIDIA H200"}],
    "tools": {"ncu": {"path": "/opt/ncu", "version": "2025.3.1"}, "torch": {"missing": "torch is not installed here"}},
}


@pytest.fixture(autouse=True)
def _clean_queue(sign_in_mode):
    jobs.connection().flushdb()
    yield
    jobs.connection().flushdb()


@pytest.fixture
def target():
    return CaptureTarget.objects.create(name="train", argv=["{python}", "-m", "train"], env={"SECRET": "x"})


@pytest.fixture
def worker():
    jobs.announce("gpu@node7", WORKER)


def signed_in(client, person):
    client.force_login(person)
    return client


def entries():
    from rq import Queue

    return Queue("gpu", connection=jobs.connection()).count


def test_the_form_says_why_nobody_can_capture(client, alice, target):
    page = signed_in(client, alice).get(reverse("capture-new")).content.decode()
    assert "Nobody can capture at the moment" in page and "No gpu worker is running" in page
    assert 'name="ncu-kernel"' in page and 'name="torch-active"' in page  # the fields are there all the same
    assert 'id="capture-submit" disabled' in page
    assert page.count("No gpu worker is running") == 1 and "manage.py worker gpu" in page        # once, not at each tool


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gpus": []}, "sees no NVIDIA GPU"),
        ({"tools": {"ncu": {"missing": "ncu is neither on PATH"}}}, "has no Nsight Compute: ncu is neither on PATH"),
    ],
)
def test_the_form_says_what_the_worker_lacks(client, alice, target, change, words):
    jobs.announce("gpu@node7", {**WORKER, **change})
    page = signed_in(client, alice).get(reverse("capture-new")).content.decode()
    assert words in page and page.count("sees no NVIDIA GPU") <= 1


def test_one_tool_may_be_there_and_the_other_not(client, alice, target, worker):
    page = signed_in(client, alice).get(reverse("capture-new")).content.decode()
    assert "Nsight Compute 2025.3.1 on NVIDIA H200 (node7)" in page and "torch is not installed here" in page
    assert 'id="capture-submit">' in page


def test_the_query_string_fills_the_form(client, alice, target, worker):
    page = signed_in(client, alice).get(
        reverse("capture-new"),
        {"kernel": "void a::b<4>(int)", "target": target.pk, "build": "4f2c", "launch_count": "2"},
    )
    assert page.context["tools"]["ncu"]["kernel"].value() == "b"
    assert page.context["tools"]["ncu"]["launch_count"].value() == "2"
    assert page.context["what"]["build"].value() == "4f2c"


def test_a_form_queues_a_capture(client, alice, target, worker):
    answer = signed_in(client, alice).post(
        reverse("capture-new"),
        {
            "tool": "ncu",
            "target": target.pk,
            "build": "4f2c",
            "tags": "a, b",
            "ncu-kernel": "matmul",
            "ncu-set": "basic",
            "ncu-launch_count": "3",
            "ncu-sections": ["Occupancy"],
            "ncu-metrics": "dram__bytes.sum",
        },
    )
    capture = Capture.objects.get()
    assert answer.url == reverse("capture", args=[capture.pk])
    assert (capture.owner, capture.build, capture.tags, capture.status) == (alice, "4f2c", ["a", "b"], "queued")
    assert capture.options["sections"] == ["Occupancy"] and capture.options["import_source"] is False
    assert entries() == 1
    page = client.get(answer.url).content.decode()
    assert "Waiting for a gpu worker" in page and "--section Occupancy" in page and "Stop" in page


def test_what_was_typed_stays_beside_its_error(client, alice, target, worker):
    answer = signed_in(client, alice).post(
        reverse("capture-new"),
        {"tool": "ncu", "target": target.pk, "ncu-kernel": "mat(", "ncu-set": "full", "ncu-launch_count": "many"},
    )
    page = answer.content.decode()
    assert answer.status_code == 400 and not Capture.objects.exists() and entries() == 0
    assert ">\nmat(</textarea>" in page and "no regular expression" in page and "a whole number from 1 to 10,000" in page


def test_nothing_is_queued_that_nobody_could_run(client, alice, target):
    answer = signed_in(client, alice).post(
        reverse("capture-new"), {"tool": "ncu", "target": target.pk, "ncu-set": "full"}
    )
    assert answer.status_code == 400 and "No gpu worker is running" in answer.content.decode() and entries() == 0


def test_viewers_look_and_do_not_touch(client, bob, alice, target, worker):
    capture = Capture.objects.create(target=target, tool="ncu", owner=alice)
    signed_in(client, bob)
    assert client.get(reverse("capture-list")).status_code == 200
    assert client.get(reverse("capture", args=[capture.pk])).status_code == 200
    assert 'id="capture-stop"' not in client.get(reverse("capture", args=[capture.pk])).content.decode()
    assert client.post(reverse("capture-new"), {"tool": "ncu", "target": target.pk}).status_code == 403
    assert client.post(reverse("capture-stop", args=[capture.pk])).status_code == 403
    assert client.get(reverse("capture-targets")).status_code == 403


def test_only_owners_define_what_may_run(client, alice, olga):
    assert signed_in(client, alice).post(reverse("capture-targets"), {"name": "x", "argv": "rm"}).status_code == 403
    signed_in(client, olga)
    bad = client.post(reverse("capture-targets"), {"name": "", "argv": "-x 'y", "cwd": "relative", "env": "1=2"})
    assert (
        bad.status_code == 400 and "close the quotes" in bad.content.decode() and "NAME=value" in bad.content.decode()
    )
    client.post(
        reverse("capture-targets"),
        {"name": "train", "argv": "{python} -m train --name 'two words; $HOME'", "env": "A=1\nB=x=y", "enabled": "on"},
    )
    made = CaptureTarget.objects.get()
    assert made.argv == ["{python}", "-m", "train", "--name", "two words; $HOME"] and made.env == {"A": "1", "B": "x=y"}
    page = client.get(reverse("capture-targets"), {"edit": made.pk}).content.decode()
    assert "{python} -m train" in page
    client.post(reverse("capture-targets"), {"edit": made.pk, "name": "train", "argv": "./a.out"})
    made.refresh_from_db()
    assert made.argv == ["./a.out"] and not made.enabled


def test_the_examples_are_one_click(client, olga):
    for _ in range(2):
        assert signed_in(client, olga).post(
            reverse("capture-targets"), {"examples": "1", "next": "new"}
        ).url == reverse("capture-new")
    assert [row.name for row in CaptureTarget.objects.order_by("name")] == [
        "Example: Triton matmul",
        "Example: transformer layer",
    ]


def test_the_list_filters(client, alice, target):
    Capture.objects.create(
        target=target, tool="ncu", owner=alice, status="failed", error={"where": "a", "what": "b", "hint": ""}
    )
    Capture.objects.create(target=target, tool="torch", owner=alice, status="done")
    signed_in(client, alice)
    assert len(client.get(reverse("capture-list")).context["page"]) == 2
    assert [row.tool for row in client.get(reverse("capture-list"), {"status": "failed"}).context["page"]] == ["ncu"]


def test_api_preview_create_follow_stop(api, alice, target, worker):
    client = api(alice)
    asked = {"target": target.pk, "tool": "ncu", "options": {"kernel": "matmul", "metrics": ["dram__bytes.sum"]}}
    preview = client.post(reverse("api-capture-preview"), asked, format="json").json()
    assert (
        preview["fields"] == {}
        and "regex:matmul" in preview["argv"]
        and preview["argv"][-3:] == ["python", "-m", "train"]
    )
    assert preview["able"] and preview["queue"] == "Starts at once: a worker is idle."
    made = client.post(reverse("api-captures"), asked, format="json")
    assert "1 capture before it" in client.post(reverse("api-capture-preview"), asked, format="json").json()["queue"]
    assert (
        made.status_code == 201 and made.json()["status"] == "queued" and made.json()["command"] == preview["command"]
    )
    listed = client.get(reverse("api-captures")).json()
    assert listed["count"] == 1 and "log" not in listed["results"][0] and listed["ability"]["ncu"]["able"]
    url = reverse("api-capture", args=[made.json()["id"]])
    assert client.get(url).json()["log"] == ""
    assert client.post(reverse("api-capture-stop", args=[made.json()["id"]])).json()["status"] == "cancelled"


def test_a_wildcard_is_shown_and_refused_before_it_runs(api, alice, target, worker):
    def asked(*metrics):
        return {"target": target.pk, "tool": "ncu", "options": {"metrics": list(metrics)}}

    url = reverse("api-capture-preview")
    unknown = api(alice).post(url, asked("sm__inst_*.sum"), format="json").json()
    assert unknown["metrics"] == [] and unknown["fields"] == {}                     # nobody said: the worker asks ncu
    jobs.connection().set("ridgepoint:metrics:NVIDIA H200", '["dram__bytes", "sm__inst_executed", "sm__inst_issued"]')
    told = api(alice).post(url, asked("sm__inst_*.sum", "dram__bytes.sum"), format="json").json()
    assert told["metrics"] == [
        {"wildcard": "sm__inst_*.sum", "count": 2, "first": ["sm__inst_executed.sum", "sm__inst_issued.sum"]}]
    assert "sm__inst_*.sum" in told["command"]
    refused = api(alice).post(reverse("api-captures"), asked("tex__*"), format="json")
    assert refused.status_code == 400 and refused.json()["fields"] == {
        "metrics": ["tex__* matches none of the 3 metrics of this GPU"]}


@pytest.mark.parametrize("name", ["api-capture-preview", "api-captures"])
def test_a_key_that_no_field_takes_is_refused(api, alice, target, worker, name):
    asked = {"target": target.pk, "tool": "ncu", "option": {"kernel": "matmul"}, "launch_count": 3}
    wrong = api(alice).post(reverse(name), asked, format="json")
    assert wrong.status_code == 400 and {"option", "launch_count"} <= set(wrong.json()["fields"])
    assert not Capture.objects.exists()


def test_api_errors_name_fields_or_workers(api, alice, bob, target):
    wrong = api(alice).post(
        reverse("api-captures"), {"target": 0, "tool": "ncu", "options": {"set": "x", "y": 1}}, format="json"
    )
    assert wrong.status_code == 400 and set(wrong.json()["fields"]) == {"target", "set", "y"}
    nobody = api(alice).post(reverse("api-captures"), {"target": target.pk, "tool": "ncu"}, format="json")
    assert nobody.status_code == 409 and "No gpu worker" in nobody.json()["error"]
    assert (
        api(bob).post(reverse("api-captures"), {"target": target.pk, "tool": "ncu"}, format="json").status_code == 403
    )


def test_api_targets_keep_environments_to_owners(api, alice, olga, target):
    assert "env" not in api(alice).get(reverse("api-capture-targets")).json()["results"][0]
    assert api(olga).get(reverse("api-capture-targets")).json()["results"][0]["env"] == {"SECRET": "x"}
    assert (
        api(alice).post(reverse("api-capture-targets"), {"name": "x", "argv": ["a"]}, format="json").status_code == 403
    )
    made = api(olga).post(reverse("api-capture-targets"), {"name": "x", "argv": ["a", " b "]}, format="json")
    assert made.status_code == 201 and CaptureTarget.objects.get(name="x").argv == ["a", " b "]
    assert (
        api(olga).post(reverse("api-capture-targets"), {"name": "x", "argv": ["-a"]}, format="json").status_code == 400
    )


def test_a_disabled_target_cannot_be_captured(alice, target, worker):
    target.enabled = False
    target.save()
    with pytest.raises(Refused, match="enabled"):
        services.capture_create(owner=alice, target=target, tool="ncu", options={})


def test_ticks_of_the_last_capture_come_back(client, alice, target, worker):
    Capture.objects.create(target=target, tool="nsys", owner=alice, options={"trace": ["nvtx", "python-gil"], "delay": 3})
    page = signed_in(client, alice).get(reverse("capture-new"), {"target": target.pk, "tool": "nsys"})
    drawn = page.context["tools"]["nsys"]
    assert drawn["trace"].value() == ["nvtx", "python-gil"] and drawn["delay"].value() == 3
    assert page.content.decode().count('name="nsys-trace" value="nvtx"') == 1
    asked = client.get(reverse("capture-new"), {"target": target.pk, "tool": "nsys", "trace": "cuda,osrt", "fresh": "1"})
    assert asked.context["tools"]["nsys"]["trace"].value() == ["cuda", "osrt"]
