"""Pages, API and command of builds and regressions: answers, links that lead somewhere, and hostile questions."""

from __future__ import annotations

import json
import re
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from profiles.models import Profile
from tests.tuner.gate.builds.test_build_series import DAY, ENV, measure
from tests.tuner.gate.builds.test_builds import gate
from tuner.gate.builds.selectors import slow_builds
from tuner.gate.builds.services import build_of_profile, ensure_build
from tuner.gate.history import api
from tuner.gate.history.series_services import update_series
from tuner.gate.regressions.services import change_regression, update_regressions
from tuner.models import BaselineChange, Build, KernelRun, Regression, Suite, SuiteKernel

pytestmark = pytest.mark.django_db
HOSTILE = ["\0", "\ud800", "x" * 5000, "%00", "' OR 1=1 --", "../../etc/passwd", "<script>alert(1)</script>"]


@pytest.fixture(autouse=True)
def nothing_waits(monkeypatch: Any, sign_in_mode: None) -> None:
    monkeypatch.setattr("workers.jobs.enqueue", lambda *entry: None)


@pytest.fixture
def as_alice(alice: Any) -> Client:
    client = Client()
    client.force_login(alice)
    return client


@pytest.fixture
def as_bob(bob: Any) -> Client:
    client = Client()
    client.force_login(bob)
    return client


@pytest.fixture
def suite() -> Suite:
    suite = Suite.objects.create(name="nightly", kind="uploaded")
    for place, (key, family) in enumerate([("matmul M=64", "matmul"), ("matmul M=4096", "matmul"), ("softmax M=64", "softmax")]):
        SuiteKernel.objects.create(suite=suite, key=key, op=family, family=family, place=place, dtype="bf16",
                                   shape={"M": 64, "N": 64, "K": 64} if family == "matmul" else {"R": 64, "C": 64})
    return suite


@pytest.fixture
def measured(suite: Suite) -> list[Build]:
    """Ten builds, five runs each; matmul M=4096 is 8 % slower from b10 on."""
    return measure(suite, {"matmul M=64": [20.0] * 16, "matmul M=4096": [200.0] * 10 + [216.0] * 6, "softmax M=64": [30.0] * 16})


def test_before_anything_was_measured_the_page_says_what_to_do(as_bob: Any) -> None:
    assert "No build yet" in as_bob.get(reverse("build-list")).content.decode()
    Suite.objects.create(name="empty")
    assert "No suite has a run yet" in as_bob.get(reverse("build-list")).content.decode()
    assert as_bob.get(reverse("api-series")).json()["series"] == []


def test_the_page_answers_draws_and_leads_on(as_bob: Any, suite: Suite, measured: list[Build],
                                                django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(60):
        text = as_bob.get(reverse("build-list")).content.decode()
    assert re.search(r"Yes: matmul is [78]\.\d % slower \([\d.]+ to [\d.]+ %\) since build b10; looked at 3 kernels", text)
    assert '<h2 class="mono">matmul M=4096</h2>' in text                       # the worst is shown without asking
    assert "Found: b10 is slower, and b9, the build before it, is not." in text
    assert text.count('class="small-series"') == 3
    assert f'{reverse("tune-new")}?operator=matmul&amp;dtype=bf16&amp;M=64' in text
    assert f'{reverse("build", args=["b10"])}?against=b9' in text
    other = as_bob.get(reverse("build-list"), {"kernel": "softmax M=64", "suite": "nightly"}).content.decode()
    assert '<h2 class="mono">softmax M=64</h2>' in other and "No change of level" in other
    assert "There is no suite absent" in as_bob.get(reverse("build-list"), {"suite": "absent"}).content.decode()


def test_its_cost_does_not_grow_with_builds_or_kernels(as_bob: Any, suite: Suite) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as found:
            assert as_bob.get(reverse("build-list")).status_code == 200
        return len(found)

    measure(suite, {"softmax M=64": [30.0] * 6})
    queries()
    few = queries()
    for at in range(5):
        SuiteKernel.objects.create(suite=suite, key=f"more {at}", op="x", family="x", place=9 + at)
    measure(suite, {f"more {at}": [10.0] * 12 for at in range(5)}, first=6)
    assert queries() <= few + 1


def test_the_builds_of_profiles_stand_among_the_others(as_bob: Any, alice: Any, suite: Suite, measured: list[Build]) -> None:
    profiles = [Profile.objects.create(name=name, build=name, status="ready", kind="trace", owner=alice)
                for name in ("old", "new/2")]
    text = as_bob.get(reverse("build-list")).content.decode()
    assert 'name="build_a" value="old"' in text and 'name="build_b" value="new/2"' in text
    assert 'name="build_a" value="b3"' not in text                             # it has no profile to compare
    only = as_bob.get(reverse("build-list"), {"with": "profiles"}).content.decode()
    assert 'value="old"' in only and 'href="/builds/b3/"' not in only.partition('id="builds"')[2]
    assert as_bob.get(reverse("build", args=["new/2"])).status_code == 200
    assert not Build.objects.filter(name="new/2").exists()                     # looking writes nothing
    made = build_of_profile(profiles[1].pk)
    assert made is not None and made.at == profiles[1].created
    assert "1 build" not in as_bob.get(reverse("build-list"), {"q": "new/"}).content.decode()


def test_one_build_stands_beside_another_with_verdicts(as_bob: Any, suite: Suite, measured: list[Build]) -> None:
    text = as_bob.get(reverse("build", args=["b10"]), {"against": "baseline"}).content.decode()
    assert "b10 against the baseline: 1 of 3 kernels SLOWER: matmul M=4096" in text
    assert "New<" in text
    found = as_bob.get(reverse("api-build", args=["b10"]), {"against": "b2"}).json()
    assert found["compared"]["against"] == "b2"
    worst = found["compared"]["judged"]["kernels"][0]
    assert worst["key"] == "matmul M=4096" and worst["ratio_p50"] == pytest.approx(1.08, abs=0.01)
    assert found["regressions"]["begun"][0]["good"] == "b9"
    assert as_bob.get(reverse("build", args=["absent"])).status_code == 404
    assert as_bob.get(reverse("api-build", args=["absent"])).status_code == 404


def test_the_series_over_http_holds_runs_and_changes(as_bob: Any, suite: Suite, measured: list[Build]) -> None:
    found = as_bob.get(reverse("api-series"), {"suite": "nightly", "kernel": "matmul M=4096"}).json()
    one, = found["series"]
    assert [len(build["us"]) for build in one["builds"]] == [5] * 16
    assert one["changes"][0]["build"] == "b10" and one["computed"] is True
    assert as_bob.get(reverse("api-series"), {"suite": "nightly", "gpu": "absent"}).status_code == 404
    assert (found["count"], found["next_offset"]) == (1, None)


def test_the_series_come_in_pages_of_kernels(as_bob: Any, suite: Suite, measured: list[Build],
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "SERIES", 2)
    first = as_bob.get(reverse("api-series"), {"suite": "nightly", "limit": 1000}).json()
    last = as_bob.get(reverse("api-series"), {"suite": "nightly", "offset": first["next_offset"]}).json()
    keys = [[one["kernel"] for one in page["series"]] for page in (first, last)]
    assert list(map(len, keys)) == [2, 1] and first["count"] == last["count"] == 3 and last["next_offset"] is None
    assert sorted(keys[0] + keys[1]) == ["matmul M=4096", "matmul M=64", "softmax M=64"]


def test_a_regression_is_answered_on_its_page(as_alice: Any, as_bob: Any, suite: Suite, measured: list[Build]) -> None:
    row = Regression.objects.get()
    page, change = reverse("regression", args=[row.pk]), reverse("regression-change", args=[row.pk])
    assert "found by the trend" in as_bob.get(page).content.decode()
    assert as_bob.post(change, {"state": "fixed"}).status_code == 403
    refused = as_alice.post(change, {"state": "intended", "note": "", "fixed_in": "typed"})
    assert refused.status_code == 400 and 'value="typed"' in refused.content.decode()
    assert as_alice.post(change, {"state": "intended", "note": ""}).status_code == 400
    assert as_alice.post(change, {"state": "no such", "note": "x"}).status_code == 400
    assert as_alice.post(change, {"state": "acknowledged", "note": "looking", "next": "https://example.org/"}).url == page
    as_alice.post(change, {"state": "intended", "note": "more accurate"})
    assert BaselineChange.objects.get().build.name == "b10"
    text = as_bob.get(page).content.decode()
    assert "◇ intended" in text and text.index("more accurate") > text.index("looking")
    listed = as_bob.get(reverse("regression-list")).content.decode()
    assert "Nothing is slower now: 1 regression, all taken up or fixed" in listed
    assert "intended" in as_bob.get(reverse("build-list"), {"kernel": "matmul M=4096"}).content.decode()


def test_regressions_over_http(as_alice: Any, as_bob: Any, suite: Suite, measured: list[Build]) -> None:
    update_regressions(gate(suite, measured[12], measured[3], k1=1.08))
    url = reverse("api-regressions")
    row, = as_bob.get(url, {"state": "watched", "suite": "nightly"}).json()["results"]
    assert (row["family"], row["build"], row["good"], row["state"]) == ("matmul", "b10", "b9", "open")
    assert as_bob.get(url, {"state": "fixed"}).json()["count"] == 0
    one = reverse("api-regression", args=[row["id"]])
    assert as_bob.get(one).json()["told_by"][0]["build"] == "b12"
    assert as_bob.post(one, {"state": "fixed"}, content_type="application/json").status_code == 403
    wrong = as_alice.post(one, {"state": "fixed", "fixed_in": "b3"}, content_type="application/json")
    assert wrong.status_code == 400 and "fixed_in" in json.dumps(wrong.json())
    fixed = as_alice.post(one, {"state": "fixed", "fixed_in": "b15", "note": "reverted"}, content_type="application/json").json()
    assert (fixed["fixed_in"], fixed["history"][-1]["who"]) == ("b15", "alice")


def test_builds_known_to_be_slower_can_be_left_out_of_baselines(suite: Suite, measured: list[Build], alice: Any) -> None:
    at = {build.name: (build.at.timestamp(), build.pk) for build in measured}
    assert slow_builds(suite, ENV) == {"matmul M=4096": [(at["b10"], None)]}
    row = change_regression(Regression.objects.get(), "fixed", by=alice, fixed_in=measured[14])
    assert slow_builds(suite, ENV) == {"matmul M=4096": [(at["b10"], at["b14"])]}
    change_regression(row, "environment", by=alice)
    assert slow_builds(suite, ENV) == {}


def test_a_build_is_told_over_http(as_alice: Any, as_bob: Any) -> None:
    url = reverse("api-builds")
    body = {"name": "4f2c1e", "parent": "aa01", "branch": "main", "title": "Pad", "at": "2026-11-01T10:00:00+00:00"}
    assert as_bob.post(url, body, content_type="application/json").status_code == 403
    assert as_alice.post(url, body, content_type="application/json").json()["at"] == "2026-11-01T10:00:00+00:00"
    assert as_bob.get(url, {"q": "pad"}).json()["results"][0]["parent"] == "aa01"
    for field, value in [("at", "yesterday"), ("at", "2026-13-99T00:00:00"), ("url", "javascript:alert(1)"), ("name", "a/../b"),
                         ("name", "\ud800"), ("parent", "a\0"), ("at", "9999-12-31T23:59:59+00:00"), ("name", 10 ** 400)]:
        wrong = as_alice.post(url, json.dumps({**body, field: value}), content_type="application/json")
        assert wrong.status_code == 400, (field, value)
        assert field in json.dumps(wrong.json())
    for offset in ("-1", "1.0", " 1", "x", "1" * 10):
        assert as_bob.get(url, {"offset": offset}).json()["fields"] == {"offset": ["a whole number from 0 on"]}


@pytest.mark.parametrize(("fields", "told"), [
    ({"at": "yesterday"}, {"at": ["a date and time, as 2026-11-21T18:30:00+00:00"]}),
    ({"at": 5}, {"at": ["a date and time, as 2026-11-21T18:30:00+00:00"]}),
    ({"at": None}, {"at": ["This field may not be null."]}),
    ({"at": "9999-12-31T23:59:59"}, {"at": ["when the build was committed: after 1990, and not in the future"]}),
    ({"at": "0001-01-01T00:00:00+14:00"}, {"at": ["when the build was committed: after 1990, and not in the future"]}),
    ({"name": "a/../b"}, {"name": ['a name, not a path: no "." or ".." between slashes, no slash at an end']}),
    ({"url": "x"}, {"url": ["an address that begins with http:// or https://, at most 500 characters"]})])
def test_what_is_wrong_with_a_build_is_told_in_one_shape(as_alice: Any, fields: Any, told: Any) -> None:
    wrong = as_alice.post(reverse("api-builds"), json.dumps({"name": "b", **fields}), content_type="application/json")
    (name, [what]), = told.items()
    assert wrong.status_code == 400
    assert wrong.json() == {"error": f"{name}: {what}", "where": name, "hint": "correct these fields", "fields": told}


@pytest.mark.parametrize(("name", "fields"), [
    ("build-list", ("suite", "on", "gpu", "branch", "kernel", "q", "of", "page", "kind")),
    ("regression-list", ("state", "suite", "gpu", "build", "q")), ("api-builds", ("q", "branch")), ("api-builds", ("offset",)),
    ("api-regressions", ("state", "suite")), ("api-series", ("on", "kernel", "branch")), ("build", ("on", "suite", "against"))])
def test_hostile_questions_are_answered(as_bob: Any, suite: Suite, name: str, fields: tuple[str, ...]) -> None:
    measure(suite, {"softmax M=64": [30.0] * 4})
    for text in HOSTILE:
        value = text.encode("utf-8", "surrogatepass")
        answer = as_bob.get(reverse(name, args=["b2"] if name == "build" else []), dict.fromkeys(fields, value))
        assert answer.status_code in {200, 400, 404}, (name, text)
        assert b"<script>alert(1)" not in answer.content or answer["Content-Type"] == "application/json"


def test_measuring_what_the_plan_names_needs_a_suite_that_can(as_alice: Any, as_bob: Any, suite: Suite,
                                                              measured: list[Build]) -> None:
    body = {"suite": "nightly", "kernel": "matmul M=4096", "gpu": "NVIDIA H200", "build": ["b4"]}
    assert as_bob.post(reverse("bisect-measure"), body).status_code == 403
    answer = as_alice.post(reverse("bisect-measure"), body, follow=True)
    assert "runs are uploaded" in answer.content.decode()
    assert as_alice.post(reverse("bisect-measure"), {**body, "suite": "\0"}).status_code == 404
    assert as_alice.post(reverse("bisect-measure"), {**body, "kernel": "\0"}, follow=True).status_code == 200


def test_a_wide_range_is_a_plan_and_the_command_says_the_same(as_bob: Any, suite: Suite) -> None:
    builds = measure(suite, {"softmax M=64": [30.0] * 8})
    between = [ensure_build(f"x{at}", at=DAY.replace(hour=8, minute=at)) for at in range(7)]
    measure(suite, {"softmax M=64": [33.0] * 8}, first=9)
    text = as_bob.get(reverse("build-list")).content.decode()
    assert "Bisect" in text
    assert all(build.name in text for build in between)
    assert "by b9 (8 builds)" in text                       # of which seven were never measured
    out = StringIO()
    call_command("builds", stdout=out)
    assert re.search(r"Yes: softmax is \d+\.\d % slower", out.getvalue())
    for arguments, expected in [((builds[1].name,), "softmax M=64"), (("--list",), "b16"), (("--regressions",), "since b9"),
                                (("b9", "--against", "b2"), "b9 against b2"), (("b9", "--json"), '"judged"')]:
        out = StringIO()
        call_command("builds", *arguments, stdout=out)
        assert expected in out.getvalue()
    for wrong in (("absent",), ("b9", "--against", "absent"), ("--suite", "absent"), ("--seen",), ("x", "--seen", "--at", "soon"),
                  ("x", "--seen", "--url", "ftp://x")):
        with pytest.raises(CommandError) as refused:
            call_command("builds", *wrong, stdout=StringIO())
        assert refused.value.returncode == 3


def test_new_runs_that_nobody_looked_at_are_said(as_bob: Any, suite: Suite, measured: list[Build]) -> None:
    KernelRun.objects.create(kernel=suite.kernels.get(key="softmax M=64"), build=measured[-1], run="late", p50_us=30.0, n=1, **ENV)
    assert "Updating…" in as_bob.get(reverse("build-list")).content.decode()
    update_series(suite.pk)
    assert "Updating…" not in as_bob.get(reverse("build-list")).content.decode()
