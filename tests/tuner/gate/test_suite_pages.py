"""Suites over HTTP and from the command line: pages, API, file, schedule, calibration, the example."""

from __future__ import annotations

import gzip
import io
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from profiles.base.refused import Refused
from profiles.models import CaptureTarget
from tests.tuner.gate.test_suites import FILE, lines
from tuner.gate.builds.services import ensure_build
from tuner.gate.suite_pages import api as body_api
from tuner.gate.suite_pages import calibration_selectors, charts, page_selectors
from tuner.gate.suites import records, selectors, suite_services, upload_services
from tuner.gate.suites.definition import read_definition
from tuner.gate.suites.formats import kernel_line, limits_lines, read_kernel_lines, read_limits, read_toml
from tuner.gate.suites.job_services import queue_due_suites
from tuner.models import Gate, KernelRun, Suite, SuiteJob

pytestmark = pytest.mark.django_db
FORM = {"name": "decode", "title": "Decode", "kind": "operators", "device": "gpu", "runs": "5", "baseline_runs": "10",
        "kernels": "matmul M=16 N=4096 K=4096 bf16 cache\nsoftmax R=8192 C=4096 fp16 {STEPS=3 PER_SM=32 num_warps=8} #wide",
        "metrics": "registers max_increase=0.1\nspills max=0", "target_pct": "8"}
H200 = {"gpu": "NVIDIA H200", "toolkit": "cuda 13.0, triton 3.6.0", "driver": "580"}


@pytest.fixture
def suite(db: None) -> Suite:
    return suite_services.suite_put(read_toml(FILE), text=FILE).suite


@pytest.fixture
def uploaded(db: None) -> Suite:
    """Ten real recorded runs of matmul and softmax of build a, five of build b."""
    made = suite_services.suite_put(read_definition({"name": "ci", "kind": "uploaded"})).suite
    upload_services.runs_store(made, "a", lines(("matmul", "softmax"), runs=range(1, 16)), **H200)
    upload_services.runs_store(made, "b", lines(("matmul", "softmax"), runs=range(16, 21)), **H200)
    return made


def page(client: Client, person: Any, path: str, **post: Any) -> Any:
    client.force_login(person)
    return client.post(path, post) if post else client.get(path)


class TestLines:
    def test_lines_are_read_and_written_back(self) -> None:
        definition = read_definition({"name": "a", "kernel": read_kernel_lines(FORM["kernels"])})
        assert [kernel_line(kernel) for kernel in definition.kernels] == FORM["kernels"].splitlines()
        assert read_limits(FORM["metrics"]) == {"registers": {"max_increase": 0.1}, "spills": {"max": 0}}
        assert limits_lines(read_limits(FORM["metrics"])) == FORM["metrics"]

    @pytest.mark.parametrize("text", [
        "matmul M=1 fp16 bf16", "matmul M=", "matmul {BM}", pytest.param("a\n" * 3_001, id="too many")])
    def test_a_line_that_is_not_understood_is_said(self, text: str) -> None:
        with pytest.raises(Refused):
            read_kernel_lines(text)


class TestForm:
    def test_a_suite_is_made_and_changed(self, client: Client, alice: Any) -> None:
        assert page(client, alice, "/suites/new/", **FORM).status_code == 302
        made = Suite.objects.get()
        keys = ["matmul M=16 N=4096 K=4096 bf16", "softmax R=8192 C=4096 fp16 wide"]
        assert [kernel.key for kernel in made.kernels.all()] == keys
        assert made.rule == {"target": 0.08} and made.metrics["spills"] == {"max": 0} and made.owner == alice
        shown = client.get(f"/suites/{made.pk}/edit/").content.decode()
        assert "softmax R=8192 C=4096 fp16 {STEPS=3 PER_SM=32 num_warps=8} #wide" in shown
        changed = {**FORM, "name": "other", "runs": "7", "kernels": FORM["kernels"].splitlines()[0]}
        again = client.post(f"/suites/{made.pk}/edit/", changed)
        made.refresh_from_db()
        assert again.status_code == 302 and made.runs == 7 and made.name == "decode" and made.kernels.count() == 1

    def test_what_a_file_says_of_a_kernel_stays_when_the_page_saves(self, client: Client, alice: Any, suite: Suite) -> None:
        form = page(client, alice, f"/suites/{suite.pk}/edit/").context["form"]
        posted = {name: form[name].value() for name in form.fields if form[name].value() is not None}
        assert client.post(f"/suites/{suite.pk}/edit/", posted).status_code == 302
        assert selectors.definition_of(Suite.objects.get()) == read_toml(FILE)

    @pytest.mark.parametrize(("change", "field", "says"), [
        ({"kernels": "matmul M=16 N=4096 K=4096 bf16\nnope X=1"}, "kernels", "line 2: no operator"),
        ({"kernels": "\n\nmatmul M=16 bf16"}, "kernels", "line 3: "), ({"name": "a b"}, "name", "letters"),
        ({"name": "a\0b"}, "name", ""), ({"device": "tpu"}, "device", "choose"), ({"kind": "target"}, "target", "capture target"),
        ({"metrics": "registers more=1"}, "metrics", "unknown"), ({"target_pct": "1"}, "target_pct", "floor"),
        ({"every_hours": "nan"}, "every_hours", ""), ({"runs": "10000"}, "runs", ""),
    ])
    def test_a_mistake_stands_beside_its_field(self, client: Client, alice: Any, change: dict[str, str], field: str,
                                               says: str) -> None:
        answer = page(client, alice, "/suites/new/", **{**FORM, **change})
        assert answer.status_code == 400 and not Suite.objects.exists()
        assert says in " ".join(answer.context["form"].errors.get(field, ["missing"]))

    def test_a_file_is_applied_and_its_mistakes_are_shown_with_lines(self, client: Client, alice: Any) -> None:
        bad = page(client, alice, "/suites/apply/", text=FILE.replace("runs = 2", "runs = x"))
        assert bad.status_code == 400 and "line 3" in bad.content.decode()
        sent = SimpleUploadedFile("suite.toml", FILE.encode())
        assert page(client, alice, "/suites/apply/", file=sent).status_code == 302
        assert Suite.objects.get().definition == FILE
        assert read_toml(client.get(f"/suites/{Suite.objects.get().pk}/suite.toml").content) == read_toml(FILE)

    def test_a_target_suite_needs_an_enabled_target(self, client: Client, alice: Any) -> None:
        CaptureTarget.objects.create(name="layer", argv=["true"])
        posted = {**FORM, "kind": "target", "target": "layer"}
        assert page(client, alice, "/suites/new/", **posted).status_code == 302
        assert Suite.objects.get().target.name == "layer" and not Suite.objects.get().kernels.exists()

    def test_roles(self, client: Client, bob: Any, alice: Any, olga: Any, suite: Suite) -> None:
        for path, post in (("/suites/new/", FORM), (f"/suites/{suite.pk}/run/", {"build": "a", "runs": 1}),
                           (f"/suites/{suite.pk}/switch/", {"do": "off"}), ("/examples/guard/", {"x": 1})):
            assert page(client, bob, path, **post).status_code == 403
        assert page(client, alice, f"/suites/{suite.pk}/delete/", name=suite.name).status_code == 403
        assert page(client, alice, "/suites/new/", **{**FORM, "build_path": "/srv/{build}"}).status_code == 400
        page(client, olga, f"/suites/{suite.pk}/delete/", name="wrong")
        assert Suite.objects.exists()
        page(client, olga, f"/suites/{suite.pk}/delete/", name=suite.name)
        assert not Suite.objects.exists()


class TestPages:
    def test_the_list_and_a_suite_without_runs(self, client: Client, bob: Any, suite: Suite) -> None:
        assert "1 suite watches" in page(client, bob, "/suites/").content.decode()
        shown = client.get(f"/suites/{suite.pk}/").content.decode()
        assert "not measured yet" in shown and "not measured in this environment" in shown
        assert client.get(f"/suites/{suite.pk}/calibration/").status_code == 200
        assert "too few" in shown                       # 2 against 10 runs decide nothing: said before anything is run

    def test_a_suite_shows_the_newest_build_and_every_run(self, client: Client, bob: Any, uploaded: Suite) -> None:
        shown = page(client, bob, f"/suites/{uploaded.pk}/").content.decode()
        softmax = uploaded.kernels.get(op="softmax")
        newest = np.median([run.p50_us for run in KernelRun.objects.filter(kernel=softmax, build__name="b")])
        assert f"{newest:.2f}" in shown and shown.count("<circle class=\"run-dot") == 40 and shown.count("run-dot newest") == 10
        kernel = client.get(f"/suites/{uploaded.pk}/kernels/{softmax.pk}/").content.decode()
        assert f"takes {newest:.2f} µs" in kernel and kernel.count('<tr id="run-') == 20

    def test_environments_are_not_mixed(self, client: Client, bob: Any, uploaded: Suite) -> None:
        upload_services.runs_store(uploaded, "b", lines(("softmax",), runs=range(21, 25)), **{**H200, "driver": "590"})
        found = page(client, bob, f"/suites/{uploaded.pk}/")
        assert found.context["environment"]["driver"] == "590" and len(found.context["environments"]) == 2
        runs = {line.kernel.op: line.runs for line in found.context["lines"]}
        assert runs == {"matmul": 0, "softmax": 4}
        other = client.get(f"/suites/{uploaded.pk}/?driver=580")
        assert {line.kernel.op: line.runs for line in other.context["lines"]} == {"matmul": 20, "softmax": 20}

    def test_queries_do_not_grow_with_kernels(self, client: Client, bob: Any, uploaded: Suite,
                                              django_assert_max_num_queries: Any) -> None:
        upload_services.runs_store(uploaded, "b", lines(("layernorm", "softmax"), configs=4), **H200)
        client.force_login(bob)
        client.get("/suites/")
        with django_assert_max_num_queries(32):
            client.get(f"/suites/{uploaded.pk}/")

    def test_measure_stop_and_upload_from_the_page(self, client: Client, alice: Any, suite: Suite) -> None:
        answer = page(client, alice, f"/suites/{suite.pk}/run/", build="a", other="b", runs=3)
        job = SuiteJob.objects.get()
        assert answer.status_code == 302 and [each["build"] for each in job.builds] == ["a", "b"] and job.runs == 3
        assert "no replay worker" in client.get(f"/suites/{suite.pk}/").content.decode()
        client.post(f"/suites/{suite.pk}/jobs/{job.pk}/stop/")
        assert SuiteJob.objects.get().status == "stopped"
        bad = client.post(f"/suites/{suite.pk}/run/", {"build": "../x", "runs": 3})
        assert bad.status_code == 400 and "path" in bad.context["run"].errors["build"][0]
        data = gzip.compress("\n".join(map(json.dumps, lines())).encode())
        said = {"build": "a", "gpu": "NVIDIA H200"}
        sent = client.post(f"/suites/{suite.pk}/upload/", {"file": SimpleUploadedFile("r.gz", data), **said})
        assert sent.status_code == 302 and KernelRun.objects.count() == 5
        wrong = client.post(f"/suites/{suite.pk}/upload/", {"file": SimpleUploadedFile("r", b"[1]"), **said})
        assert wrong.status_code == 400 and "line 1" in wrong.context["upload"].errors["file"][0]


class TestApi:
    def test_a_file_is_put_twice(self, api: Any, alice: Any) -> None:
        client = api(alice)
        first = client.put("/api/suites/guard/", FILE, content_type="application/toml").json()
        again = client.put("/api/suites/guard/", FILE, content_type="application/toml").json()
        assert first["made"] and not again["made"] and again["kernels"] == {} and again["says"].endswith("nothing changed.")
        assert not first["plan"]["enough"] and first["plan"]["needed_candidate"] > 2
        told = client.get("/api/suites/guard/").json()
        assert client.put("/api/suites/guard/", told["definition"], format="json").json()["kernels"] == {}
        assert read_toml(client.get("/api/suites/guard/toml/").content) == read_toml(FILE)
        assert client.get(f"/api/suites/{told['id']}/").json()["name"] == "guard"
        assert client.patch("/api/suites/guard/", {"enabled": False}, format="json").json()["enabled"] is False

    @pytest.mark.parametrize(("body", "field"), [
        ('{"name": "x", "kind": "uploaded"}', "name"),
        ('{"kernel": 3}', "kernel"), ('{"runs": NaN}', "detail"), ("[1]", "suite"), ('"x"', "suite"),
        ('{"title": "\\ud800", "kind": "uploaded"}', "title"), ('{"rule": {"alpha": true}, "kind": "uploaded"}', "rule.alpha"),
        ('{"runs": ' + "9" * 400 + ', "kind": "uploaded"}', "runs"), ("[" * 100_000, "detail"),
    ])
    def test_a_bad_definition_is_a_400_with_its_field(self, api: Any, alice: Any, body: str, field: str) -> None:
        answer = api(alice).put("/api/suites/guard/", body, content_type="application/json")
        assert answer.status_code == 400 and (field == "detail" or field in answer.json()["fields"]) and not Suite.objects.exists()

    def test_jobs_are_queued_followed_and_stopped(self, api: Any, alice: Any, bob: Any, suite: Suite) -> None:
        assert api(bob).post("/api/suites/guard/jobs/", {"builds": ["a"]}, format="json").status_code == 403
        client = api(alice)
        job = client.post("/api/suites/guard/jobs/", {"builds": ["a", {"build": "b"}], "runs": 2}, format="json").json()
        assert job["progress"] == {"done": 0, "wanted": 20, "left_s": None, "processes": 0, "says": "0 of 20 kernel runs"}
        assert client.post(f"/api/suite-jobs/{job['id']}/stop/").json()["status"] == "stopped"
        for given, field in (({"builds": [3]}, "builds"), ({"builds": "a"}, "builds"),
                             ({"builds": ["a"], "kernels": ["x"]}, "kernels")):
            answer = client.post("/api/suites/guard/jobs/", given, format="json")
            assert answer.status_code == 400 and field in answer.json()["fields"]

    def test_runs_are_sent_as_json_and_as_lines(self, api: Any, alice: Any) -> None:
        client = api(alice)
        client.put("/api/suites/ci/", {"kind": "uploaded"}, format="json")
        told = client.post("/api/runs/", {"suite": "ci", "build": "a", "gpu": "NVIDIA H200", "runs": lines()}, format="json").json()
        assert told["stored"] == 5 and told["kernels"] == ["matmul M=4096 N=4096 K=4096"]
        text = "\n".join(map(json.dumps, lines())).encode()
        again = client.post("/api/runs/?suite=ci&build=a&gpu=NVIDIA H200", text, content_type="application/x-ndjson").json()
        assert (again["stored"], again["known"]) == (0, 5)
        other = "\n".join(json.dumps({**line, "us": line["us"][::-1]}) for line in lines()).encode()
        packed = client.post("/api/runs/?suite=ci&build=b&gpu=NVIDIA H200", gzip.compress(other), content_type="application/gzip")
        assert packed.json()["stored"] == 5
        read_back = client.get("/api/runs/?suite=ci&build=b&samples=1&limit=2").json()
        assert read_back["total"] == 5 and read_back["runs"][1]["us"] == lines()[3]["us"][::-1]
        odd = {"driver": "5\0", "cuda": "\ud800", "a\0": {"\ud800": "b\0"}}                   # what no row can hold is left out
        sent = {"suite": "ci", "build": "c", "gpu": "NVIDIA H200", "environment": odd, "runs": lines()}
        assert client.post("/api/runs/", json.dumps(sent), content_type="application/json").status_code == 201
        assert KernelRun.objects.filter(build__name="c", driver="5", toolkit="cuda ?", environment__a={"?": "b"}).count() == 5

    @pytest.mark.parametrize(("body", "field"), [
        ({}, "runs"), ({"suite": "nope", "runs": []}, "suite"), ({"suite": "ci", "runs": []}, "runs"),
        ({"suite": "ci", "build": "a", "runs": [{"run": 1}]}, "runs"), ({"suite": "ci", "build": 3, "runs": [1]}, "build"),
        ({"suite": "ci", "build": "a", "gpu": 3, "runs": [1]}, "gpu"), ({"suite": "ci", "build": "a\0", "runs": lines()}, "gpu"),
        ({"suite": "ci", "build": "a\0", "gpu": "G", "runs": lines()}, "build"), ({"suite": "ci", "x": 1, "runs": []}, "x"),
        ({"suite": "ci", "build": "a", "gpu": "\ud800", "runs": lines()}, "gpu"), ({"suite": {"a": 1}, "runs": []}, "suite"),
        ({"suite": "ci", "build": "a", "gpu": "G", "environment": [], "runs": lines()}, "environment"),
    ])
    def test_bad_uploads_are_a_400_with_the_field(self, api: Any, alice: Any, body: Any, field: str) -> None:
        suite_services.suite_put(read_definition({"name": "ci", "kind": "uploaded"}))
        answer = api(alice).post("/api/runs/", json.dumps(body), content_type="application/json")
        assert answer.status_code == 400 and field in answer.json()["fields"] and not KernelRun.objects.exists()

    @pytest.mark.parametrize(("body", "fields"), [
        ([], {"runs": ['a JSON object with suite, build, gpu and "runs", or JSON lines']}),
        ({"suite": "ci", "build": "a"}, {"runs": ["a list of runs in the format of timing_runs.jsonl"]}),
        ({"suite": "ci", "runs": "{}"}, {"runs": ["a list of runs in the format of timing_runs.jsonl"]}),
        ({"suite": "no", "runs": []}, {"suite": ["no suite of this name; there are ci"]}),
        ({"suite": None, "runs": []}, {"suite": ["no suite of this name; there are ci"]}),
        ({"suite": "ci", "build": None, "runs": []}, {"build": ["a git sha or a name"]}),
        ({"suite": "ci", "build": "a\0", "gpu": "G", "runs": lines()}, {"build": ["at most 80 printable characters"]}),
        ({"suite": "ci", "build": "a", "x": 1, "runs": []}, {"x": ["unknown; see /api/docs/"]}),
        ({"suite": "ci", "gpu": 3, "driver": "\0", "recorded": None, "runs": []},
         {"gpu": ["text"], "driver": ["text"], "recorded": ["text"]}),
        ({"suite": "ci", "environment": None, "runs": []}, {"environment": ["a table: cuda, triton, driver …"]}),
        ({"suite": "ci", "environment": "cuda", "runs": []}, {"environment": ["a table: cuda, triton, driver …"]}),
    ])
    def test_an_upload_is_told_what_would_be_right(self, api: Any, alice: Any, body: Any, fields: Any) -> None:
        suite_services.suite_put(read_definition({"name": "ci", "kind": "uploaded"}))
        answer = api(alice).post("/api/runs/", json.dumps(body), content_type="application/json")
        assert answer.status_code == 400 and answer.json()["fields"] == fields

    @pytest.mark.parametrize("body", [{}, {"enabled": 1}, {"enabled": "true"}, {"enabled": None}, [True]])
    def test_a_switch_takes_true_and_false_alone(self, api: Any, alice: Any, suite: Suite, body: Any) -> None:
        answer = api(alice).patch(f"/api/suites/{suite.name}/", body, format="json")
        assert answer.status_code == 400 and answer.json()["fields"] == {"enabled": ["true or false"]}

    def test_too_much_is_refused(self, api: Any, alice: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        client = api(alice)
        client.put("/api/suites/ci/", {"kind": "uploaded"}, format="json")
        monkeypatch.setattr(records, "MAX_SAMPLES_IN_ALL", 450)
        many = client.post("/api/runs/", {"suite": "ci", "build": "a", "gpu": "G", "runs": lines()}, format="json")
        assert "450 samples" in many.json()["fields"]["runs"][0] and not KernelRun.objects.exists()
        for parser, media in ((body_api.JsonLinesParser, "application/x-ndjson"),
                              (body_api.BoundedJsonParser, "application/json")):
            monkeypatch.setattr(parser, "most", 1000)
            assert client.post("/api/runs/?suite=ci&build=a&gpu=G", b"{" + b" " * 1000, content_type=media).status_code == 400
        long = client.put("/api/suites/ci/", "#" * 600_000, content_type="application/toml")
        assert long.status_code == 400 and "at most 524,288" in long.json()["error"]

    def test_the_plan_is_told_before_anything_is_run(self, api: Any, bob: Any) -> None:
        told = api(bob).get("/api/suites/plan/?kernels=13&runs=5&baseline_runs=10").json()
        assert told["enough"] and not api(bob).get("/api/suites/plan/?kernels=13&runs=2&baseline_runs=10").json()["enough"]
        assert api(bob).get("/api/suites/plan/?kernels=0&runs=x&baseline_runs=10").status_code == 400


class TestCalibration:
    def test_identical_runs_against_each_other(self, api: Any, bob: Any, uploaded: Suite) -> None:
        told = api(bob).get("/api/suites/ci/calibration/").json()
        assert [one["build"] for one in told["kernels"]] == ["a", "a"] and all(one["runs"] == 15 for one in told["kernels"])
        assert told["false_alarms"] == 1 - np.prod([1 - one["slower"] for one in told["kernels"]]) <= 0.01
        assert 0.02 <= told["detectable"] <= 0.06 and told["detectable"] == max(one["detectable"] for one in told["kernels"])
        assert "1,000 comparisons each" in told["says"]
        uploaded.kernels.filter(op="softmax").update(rule={"target": 0.2})          # of this kernel alone: a gate judges it by that
        Suite.objects.filter(pk=uploaded.pk).update(runs=40, baseline_runs=40)      # 1,600 pairs each: fewer comparisons are made
        told = api(bob).get("/api/suites/ci/calibration/").json()
        by_op = {one["op"]: one["detectable"] for one in told["kernels"]}
        assert by_op["softmax"] >= 0.18 > 0.06 >= by_op["matmul"] and "625 comparisons each" in told["says"]

    def test_without_runs_it_says_so(self, suite: Suite, uploaded: Suite) -> None:
        assert "nothing is known" in calibration_selectors.calibrate_suite(suite, None).says
        KernelRun.objects.filter(number__gte=3).delete()
        _, environment = page_selectors.chosen_environment(uploaded, {})
        assert "No build has 5 runs" in calibration_selectors.calibrate_suite(uploaded, environment).says


class TestSchedule:
    def test_what_is_due_is_queued_once(self, suite: Suite) -> None:
        Suite.objects.update(every_hours=6, due=timezone.now() - timedelta(minutes=1))
        ensure_build("old")
        ensure_build("new", branch="main")
        ensure_build("newest", branch="topic")
        assert queue_due_suites() == [suite.pk] and queue_due_suites() == []
        job, row = SuiteJob.objects.get(), Suite.objects.get()
        assert job.reason == "schedule" and job.builds == [{"build": "new"}]
        assert timedelta(hours=5.9) < row.due - timezone.now() < timedelta(hours=6.1)
        Suite.objects.update(due=timezone.now())
        assert queue_due_suites() == [] and SuiteJob.objects.count() == 1              # the first is still measured
        suite_services.suite_switch(suite, False)
        Suite.objects.update(due=timezone.now())
        assert queue_due_suites() == []


class TestCharts:
    def test_dots_stand_where_their_time_is(self) -> None:
        rows = [charts.Row("k", [charts.Dot(us, "") for us in (99.0, 100.0, 103.0)], 100.0)]
        found = charts.relative_strips(rows)
        assert found is not None and found.zero_at is not None
        at = [dot.at for dot in found.rows[0].dots]
        assert at[1] == found.zero_at and (at[2] - at[1]) == pytest.approx(3 * (at[1] - at[0]), abs=0.01)
        assert charts.relative_strips([charts.Row("k", [], None)]) is None and charts.time_strips([]) is None

    def test_an_outlier_is_drawn_at_the_end_and_marked(self) -> None:
        dots = [charts.Dot(us, "") for us in [100.0] * 200 + [900.0]]
        found = charts.relative_strips([charts.Row("k", dots, 100.0)])
        assert found is not None
        placed = found.rows[0].dots
        assert [dot.beyond for dot in placed].count(True) == 1 and placed[-1].at == charts.RIGHT

    @pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (184.2, 185.9), (0.001, 0.0013), (5.0, 90_000.0)])
    def test_ticks_are_few_and_inside(self, low: float, high: float) -> None:
        assert 2 <= len(charts.ticks(low, high)) <= 9 and all(low <= tick <= high for tick in charts.ticks(low, high))


class TestCommand:
    def run(self, *arguments: str) -> Any:
        out = io.StringIO()
        call_command("suites", *arguments, stdout=out)
        return json.loads(out.getvalue()) if "--json" in arguments else out.getvalue()

    def test_apply_show_measure_upload_export(self, tmp_path: Path) -> None:
        path, runs, out = tmp_path / "guard.toml", tmp_path / "runs.jsonl", tmp_path / "out.toml"
        path.write_text(FILE)
        runs.write_text("\n".join(map(json.dumps, lines())))
        assert self.run("apply", str(path), "--json")[0]["made"] and "nothing changed" in self.run("apply", str(path))
        assert "too few" in self.run("show", "guard") and "guard" in self.run("list")
        assert self.run("upload", "guard", str(runs), "--build", "a", "--gpu", "NVIDIA H200", "--json")["stored"] == 5
        assert "5 runs, newest build a" in self.run("show", "guard")
        assert self.run("measure", "guard", "--build", "a", "--build", "b", "--json")["status"] == "queued"
        self.run("export", "guard", "--out", str(out))
        assert read_toml(out.read_bytes()) == read_toml(FILE)
        assert len(self.run("calibrate", "guard", "--json")["kernels"]) == 5

    def test_mistakes_name_file_and_line(self, tmp_path: Path) -> None:
        path = tmp_path / "bad.toml"
        path.write_text(FILE.replace("runs = 2", "runs = 0"))
        with pytest.raises(CommandError, match=r"bad.toml: line 3: runs"):
            self.run("apply", str(path))
        for arguments in (("show", "nope"), ("apply", str(tmp_path / "none")), ("measure", "nope", "--build", "a")):
            with pytest.raises(CommandError):
                self.run(*arguments)


def test_the_example_is_made_once_and_its_builds_are_asked_for(client: Client, alice: Any) -> None:
    for _ in range(2):
        answer = page(client, alice, "/examples/guard/", x=1)
        assert answer.status_code == 302
    made = Suite.objects.get()
    assert KernelRun.objects.filter(build__name="example-1").count() == 30 and made.kernels.count() == 3
    assert set(KernelRun.objects.values_list("recorded", flat=True)) == {"recorded on NVIDIA H200, torch 2.11.0, Triton 3.6.0"}
    assert sorted(Gate.objects.values_list("build__name", flat=True)) == ["example-2", "example-3"]
    assert SuiteJob.objects.count() == 2
