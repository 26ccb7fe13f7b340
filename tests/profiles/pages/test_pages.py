"""Pages of profiles: they answer with computed numbers, escape what files say, and refuse who may not."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from profiles.families import pages as family_pages
from profiles.families.services import families_assign
from profiles.models import KernelStat, Profile
from profiles.overview import pages as profile_pages
from profiles.topics.services import topic_make
from profiles.topics.table import topic_of
from profiles.upload.services import profile_ingest
from tests.profiles.ingest.ncu.test_ncu_csv import SINGLE
from tests.profiles.pages.test_services import TINY, create, recording, upload

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tmp_store", "sign_in_mode")]


def page(person: Any, url: str, status: int = 200, **query: Any) -> str:
    client = Client()
    client.force_login(person)
    answer = client.get(url, query)
    assert answer.status_code == status, (url, answer.status_code)
    return answer.content.decode()


def text(markup: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", markup))).replace("\xa0", " ")


def ready(file: str, **fields: Any) -> Profile:
    return profile_ingest(recording(file, **fields).pk, "test")


def test_empty_pages_say_what_to_do(bob):
    for url, what in (("/profiles/", "No profile yet"), ("/kernels/", "No kernel yet"), ("/builds/", "No build yet"),
                      ("/compare/", "Choose two profiles")):
        assert what in text(page(bob, url))


def test_profile_page_of_a_trace(alice):
    profile = ready("kineto_train.json.gz", build="b1", recorded="recorded on NVIDIA H200, 2026-11-21")
    assert "GPU 0 busy 29 % of 37.4 ms" in text(page(alice, f"/profiles/{profile.pk}/"))     # until the account is made
    topic_make(profile, topic_of("causes"))
    shown = page(alice, f"/profiles/{profile.pk}/")
    plain = text(shown)
    assert ("The host cannot feed the GPU: idle for it 60 % of the time, 5.61 ms a step (in operators and launches 26 %, launching "
            "small kernels 20 %, in other code 15 %), most of it in aten::copy_; one CUDA graph wins 13.2 ms at most.") in plain
    assert "Causes" in plain and "add up to the wall time" in shown and "recorded on NVIDIA H200" in plain
    parts = [int(ns) for ns in re.findall(r'title="[^"]*?: (\d+) ns, [^"]* of 37396352 ns', shown)]
    assert sum(parts) == 37_396_352                                   # the bar's parts add up to wall time
    assert shown.count('class="step"') == 4 and "/timeline/?w=" in shown
    assert "all 10,949 records kept" in plain and "▸ tune" in plain


def test_profile_page_of_counters(alice):
    profile = ready("buildA.ncu-rep.zst", build="A")
    plain = text(page(alice, f"/profiles/{profile.pk}/"))
    assert "15 launches of 4 kernels take 1.66 ms; attn_fwd takes 52 % of it, latency-bound." in plain
    assert "Roofline" in plain and "Counted launches" in plain


def test_profile_page_while_waiting_and_when_failed(alice):
    waiting = create(upload(), worker="w")
    assert "is being read" in page(alice, f"/profiles/{waiting.pk}/")
    failed = profile_ingest(create(upload(content=b"nonsense")).pk, "test")
    plain = text(page(alice, f"/profiles/{failed.pk}/"))
    assert failed.error["what"] in plain and failed.error["hint"] in plain and "Import another file" in plain


def test_names_of_files_and_kernels_are_escaped(alice):
    evil = '<script>alert("x")</script>'
    events = [{**TINY["traceEvents"][0], "name": evil}]
    profile = profile_ingest(create(upload(content={**TINY, "traceEvents": events, "traceName": evil}), name=evil,
                                    build=evil, model=evil, tags=["<b>x</b>"], notes=evil).pk, "test")
    for url in (f"/profiles/{profile.pk}/", "/profiles/", "/kernels/", "/builds/", "/compare/",
                f"/compare/?a={profile.pk}&b={profile.pk}", f"/profiles/{profile.pk}/delete/"):
        shown = page(alice if "delete" not in url else _owner(), url)
        assert evil not in shown and "<b>x</b>" not in shown, url


def _owner() -> Any:
    from tests.conftest import _person

    return _person("owner2", "owner")


def test_trace_without_gpu_work(alice):
    events = [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10, "dur": 5}]
    profile = profile_ingest(create(upload(content={"schemaVersion": 1, "traceEvents": events})).pk, "test")
    assert "No GPU work" in text(page(alice, f"/profiles/{profile.pk}/"))


def test_list_shows_marks_and_filters(alice):
    ready("kineto_layer.json.gz", build="b1")
    create(upload(), build="b2")
    shown = page(alice, "/profiles/")
    assert "✓ whole" in shown and 'data-live="' in shown
    assert "1 of 2 profiles match" in text(page(alice, "/profiles/", build="b1"))
    assert "None match" in text(page(alice, "/profiles/", build="none"))


def test_upload_form_without_scripts(alice):
    client = Client()
    client.force_login(alice)
    good, empty = SimpleUploadedFile("a.json", json.dumps(TINY).encode()), SimpleUploadedFile("e.json", b"")
    answer = client.post("/profiles/upload/", {"file": [good], "build": "b9", "tags": "x y"})
    profile = Profile.objects.get()
    assert answer.status_code == 302 and answer["Location"] == f"/profiles/{profile.pk}/"
    assert profile.build == "b9" and profile.tags == ["x", "y"] and profile.owner == alice
    answer = client.post("/profiles/upload/", {"file": [empty], "build": "kept as typed"})
    assert answer.status_code == 400 and "the file is empty" in answer.content.decode()
    assert "kept as typed" in answer.content.decode()


def test_edit_download_and_delete(alice, bob, olga):
    profile = profile_ingest(create(upload()).pk, "test")
    client = Client()
    client.force_login(alice)
    assert client.post(f"/profiles/{profile.pk}/", {"name": "new name", "tags": "a b", "notes": "n"}).status_code == 302
    profile.refresh_from_db()
    assert (profile.name, profile.tags, profile.notes) == ("new name", ["a", "b"], "n")
    answer = client.get(f"/profiles/{profile.pk}/", {"download": "0"})
    assert b"".join(answer.streaming_content) == json.dumps(TINY).encode()
    assert answer["Content-Disposition"].startswith("attachment") and answer["Content-Type"] == "application/octet-stream"
    assert client.get(f"/profiles/{profile.pk}/", {"download": "7"}).status_code == 404
    assert client.get(f"/profiles/{profile.pk}/", {"download": "../x"}).status_code == 404
    reader = Client()
    reader.force_login(bob)
    assert reader.post(f"/profiles/{profile.pk}/", {"name": "mine"}).status_code == 403
    assert reader.get("/profiles/upload/").status_code == 403
    assert reader.post(f"/profiles/{profile.pk}/delete/").status_code == 403
    owner = Client()
    owner.force_login(olga)
    assert "Delete new name?" in owner.get(f"/profiles/{profile.pk}/delete/").content.decode()
    assert owner.post(f"/profiles/{profile.pk}/delete/").status_code == 302
    assert not Profile.objects.exists()


def test_forms_need_the_csrf_token(alice):
    profile = create(upload())
    client = Client(enforce_csrf_checks=True)
    client.force_login(alice)
    assert client.post(f"/profiles/{profile.pk}/", {"name": "x"}).status_code == 403
    assert client.post("/profiles/upload/", {}).status_code == 403


def test_compare_and_builds_pages(bob):
    for build in "AB":
        ready(f"build{build}.ncu-rep.zst", build=build)
    shown = page(bob, "/compare/", build_a="A", build_b="B")
    plain = text(shown)
    assert "A → B: ▲ +853 µs (+51.4 %)" in plain
    assert "3 kernels slower, 1 faster, 1 within the noise" in plain
    assert "bars-json" in shown and "arrows-json" in shown and "512 / 256 / 204 → 4096 / 128 / 64" in plain
    assert "▼ −853 µs" in text(page(bob, "/compare/", build_a="B", build_b="A"))
    assert "+117 %" in text(page(bob, "/builds/")) and "compare B with A" in text(page(bob, "/builds/"))
    assert "give the ids of two ready profiles" in page(bob, "/compare/", 400, a="1", b="x").lower()


def test_compare_on_other_gpus_is_said_in_bold(bob):
    for build in "AB":
        ready(f"build{build}.ncu-rep.zst", build=build)
    Profile.objects.filter(build="B").update(gpu="NVIDIA A100")
    assert "<b>Not comparable: different GPUs.</b> A: NVIDIA H200; B: NVIDIA A100" in page(
        bob, "/compare/", build_a="A", build_b="B")


def test_fleet_of_kernels(bob):
    ready("kineto_train.json.gz", build="b1")
    ready("buildA.ncu-rep.zst", build="A")
    plain = text(page(bob, "/kernels/"))
    assert "of 10.9 ms of kernel time" in plain and "1 trace" in plain and "1 build" in plain
    assert "attn_fwd" not in plain                          # chosen launches of a counter report own no GPU-hours
    assert "attn_fwd" in text(page(bob, "/kernels/", kind="counters"))
    assert "nvjet" not in text(page(bob, "/kernels/", q="layer_norm")).split("Share of")[-1]


def test_kernel_and_roofline_pages_are_reached(bob):
    profile = ready("buildA.ncu-rep.zst", build="A")
    kernel = profile.kernels.first()
    assert kernel.short_name in page(bob, f"/profiles/{profile.pk}/kernels/{kernel.pk}/")
    assert "matmul" in page(bob, f"/profiles/{profile.pk}/roofline/")
    page(bob, f"/profiles/{profile.pk + 1}/kernels/{kernel.pk}/", 404)


def test_the_kernels_of_a_profile_are_bounded(bob, monkeypatch):
    monkeypatch.setattr(profile_pages, "KERNELS", 2)
    profile = ready("buildA.ncu-rep.zst", build="A")
    kernels = [kernel.short_name for kernel in profile.kernels.all()]

    def listed(**params):
        table = page(bob, f"/profiles/{profile.pk}/kernels/", **params).split('id="kernels"')[1].split("</section>")[0]
        assert f"{len(kernels)} kernels" in text(table)
        return [name for name in kernels if f'<span class="kn-f">{name}</span>' in table], "?kernels=all" in table

    assert listed() == (kernels[:2], True) and listed(kernels="all") == (kernels, False)


def test_the_list_of_all_kernels_is_bounded(client, alice, monkeypatch):
    client.force_login(alice)
    monkeypatch.setattr(family_pages, "LISTED", 2)
    profile = Profile.objects.create(name="many", status="ready", kind="trace")
    KernelStat.objects.bulk_create([
        KernelStat(profile=profile, name=name, short_name=name, category="compute", launches=1, total_ns=at, mean_ns=at,
                   p50_ns=at, p95_ns=at, min_ns=at, max_ns=at, share_pct=20) for at, name in enumerate("abcde", 1)])
    families_assign(dict(KernelStat.objects.filter(profile=profile).values_list("name", "pk")))
    page = client.get("/kernels/").content.decode()
    assert page.count("<tr>") == 3 and "more with less headroom" in page


def test_pages_of_counters_without_a_duration_show_the_counters_and_no_time(alice):
    profile = profile_ingest(create(upload("single.csv", SINGLE.encode()), build="b1").pk, "test")
    assert (profile.status, profile.gpu_time_ns, profile.launches) == ("ready", None, 3)
    other = profile_ingest(create(upload("single2.csv", SINGLE.replace("39", "40").encode()), build="b2").pk, "test")
    kernel = profile.kernels.first()
    assert kernel.total_ns is None and kernel.share_pct is None and kernel.family is None
    plain = text(page(alice, f"/profiles/{profile.pk}/"))
    assert "the report states no duration: which takes most time is unknown" in plain
    assert re.search(r"saxpy fp32 — — 2 —", plain)                        # share, time, launches, mean
    assert re.search(r"saxpy fp32 — 2 — — — —", text(page(alice, f"/profiles/{profile.pk}/kernels/")))   # total, mean, p50, p95
    plain = text(page(alice, f"/profiles/{profile.pk}/kernels/{kernel.pk}/"))
    assert "no duration in the report" in plain
    plain += text(page(alice, f"/profiles/{profile.pk}/kernels/{kernel.pk}/warps/"))
    launches = text(page(alice, f"/profiles/{profile.pk}/kernels/{kernel.pk}/launches/"))
    assert "39" in launches[launches.find("Launch parameters"):launches.find("All launches")]        # registers per thread
    assert "Long scoreboard" in plain and "0 ns" not in plain + launches
    kernel_pages = [f"/profiles/{profile.pk}/kernels/{kernel.pk}/{part}" for part in ("tune/", "capture/", "?launch=1")]
    for url in ("/", "/kernels/", "/builds/", f"/profiles/{profile.pk}/roofline/", f"/profiles/{profile.pk}/report/",
                "/roofline/", f"/occupancy/?kernel={kernel.pk}", "/advice/", "/search/?q=saxpy", *kernel_pages):
        client = Client()
        client.force_login(alice)
        assert client.get(url).status_code in (200, 302), url
    page(alice, f"/compare/?a={profile.pk}&b={other.pk}", 200)
    for part in ("", "summary/", "summary/?format=md", "counters/", "roofline/", "kernels/?format=csv",
                 f"kernels/{kernel.pk}/advice/"):
        assert client.get(f"/api/profiles/{profile.pk}/{part}").status_code == 200, part
    rows = client.get(f"/api/profiles/{profile.pk}/kernels/").json()["kernels"]
    assert [row["total_ns"] for row in rows] == [None, None]
