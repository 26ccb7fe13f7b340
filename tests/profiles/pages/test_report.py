"""The summary as JSON, Markdown and a page to print, and the forms that findings and kernels lead to."""

from __future__ import annotations

import gzip
import json
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.core.files.base import File
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from profiles.models import Capture, CaptureTarget, Finding, KernelStat, Profile
from profiles.profile.finding_selectors import rows_once
from profiles.report.markdown import code, markdown, plain, sentence
from profiles.report.selectors import summary
from profiles.topics.services import topic_make
from profiles.topics.table import TOPICS, topic_of
from profiles.upload.services import profile_ingest
from tests.profiles.ingest.corpus import CORPUS, H200
from tests.profiles.pages.test_services import create, recording

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tmp_store")]


@pytest.fixture
def layer(db: None, tmp_store: Any) -> Profile:
    return profile_ingest(recording("kineto_layer_stack.json.gz").pk, "test")


def signed_in(person: Any) -> Client:
    client = Client()
    client.force_login(person)
    return client


def fields_of(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


def test_the_summary_is_the_profile_in_numbers(layer: Profile, api: Any, alice: Any) -> None:
    found = api(alice).get(f"/api/profiles/{layer.pk}/summary/").json()
    assert found["profile"]["wall_ns"] == layer.wall_ns and found["profile"]["launches"] == 26
    [gpu] = found["gpus"]
    assert gpu["compute_ns"] + gpu["communication_ns"] + gpu["memory_ns"] + gpu["idle_ns"] == gpu["wall_ns"] == layer.wall_ns
    assert [each["name"] for each in found["analyses"]] == [topic.name for topic in TOPICS]
    assert all(each["state"] == "made" and each["answer"] for each in found["analyses"])
    assert [kernel["total_ns"] for kernel in found["kernels"]] == list(layer.kernels.values_list("total_ns", flat=True)[:12])
    assert found["findings_in_all"] == len(rows_once(layer)) and len(found["findings"]) <= 12
    for url in found["links"].values():
        assert url.startswith("http://testserver/")
        assert (api(alice) if "/api/" in url else signed_in(alice)).get(urlsplit(url).path).status_code == 200
    assert found["integrity"] == {"mark": "warn", "said": "all 996 records kept; 8 of them mended", "records_read": 996,
                                  "records_kept": 996, "truncated_at": None, "plausibility": []}
    assert found["units"] and len(json.dumps(found)) < 200_000


def test_the_same_as_markdown_and_on_the_command_line(layer: Profile, api: Any, alice: Any, capsys: Any) -> None:
    answer = api(alice).get(f"/api/profiles/{layer.pk}/summary/?format=md")
    text = answer.content.decode()
    assert answer["Content-Type"] == "text/markdown; charset=utf-8" and text.startswith(f"# {plain(layer.name)}\n")
    found = summary(layer)
    assert sentence(found["answer"]) in text and all(f"**{plain(each['title'])}**: {sentence(each['answer'])}" in text
                                                     for each in found["analyses"])
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in tables} == {7, 8}        # GPUs and kernels
    assert sum("`" in line for line in tables) == len(found["kernels"])
    call_command("summary", str(layer.pk))
    assert capsys.readouterr().out.strip() == markdown(found).strip()
    call_command("summary", str(layer.pk), "--json")
    assert json.loads(capsys.readouterr().out)["answer"] == found["answer"]
    with pytest.raises(CommandError):
        call_command("summary", "999999")
    assert api(alice).get(f"/api/profiles/{layer.pk}/summary/?format=pdf").status_code == 400


def test_names_of_an_upload_stay_text_in_markdown(layer: Profile) -> None:
    """Pipes, line ends, backticks, HTML and links of a hostile name change nothing but their own cell."""
    nasty = "a|b`c\n\n# heading <img src=x> [x](javascript:1) \x1b[31m"
    layer.name = layer.file_name = nasty
    layer.save()
    kernel = layer.kernels.first()
    assert kernel is not None
    KernelStat.objects.filter(pk=kernel.pk).update(short_name=nasty, name=nasty)
    Finding.objects.create(
        profile=layer, rule="x", severity="high", title=f"`{nasty}` is slow", advice=nasty, numbers={}, kernel=kernel)
    text = markdown(summary(layer))
    outside = re.sub(r"`[^`\n]*`", "", text)
    assert "\x1b" not in text and "\n# heading" not in text and "heading" in outside and code(nasty) in text
    assert not re.search(r"(?<!\\)<img", outside) and not re.search(r"(?<!\\)\]\(javascript", outside)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") - line.count("\\|") for line in rows} <= {7, 8}


def test_the_report_is_one_page_with_everything_on_it(layer: Profile, bob: Any) -> None:
    page = signed_in(bob).get(f"/profiles/{layer.pk}/report/").content.decode()
    plain_text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page))
    for topic in TOPICS:
        assert f'/profiles/{layer.pk}/analysis/{topic.name}/' in page or topic.name in ("communication", "memory", "gpu-metrics")
    assert "all 996 records kept" in plain_text and "Largest kernels" in plain_text and 'aria-label="GPU 0' in page
    assert "report.css" in page and "style-src" not in page


def test_a_counter_report_has_a_report_too(bob: Any, api: Any) -> None:
    profile = profile_ingest(recording("buildA_raw.csv.gz").pk, "test")
    found = api(bob).get(f"/api/profiles/{profile.pk}/summary/").json()
    assert found["profile"]["kind"] == "counters" and found["analyses"] == [] and found["gpus"] == []
    assert {kernel["bound"] for kernel in found["kernels"]} <= {"memory", "compute", "latency", "launch", None}
    assert all(0 < kernel["counters"]["memory_pct"] <= 100 for kernel in found["kernels"])
    assert signed_in(bob).get(f"/profiles/{profile.pk}/report/").status_code == 200
    assert markdown(found).startswith("# ")


def test_a_profile_that_is_not_ready_says_so(bob: Any, api: Any) -> None:
    waiting = Profile.objects.create(name="waiting", status=Profile.Status.UPLOADED)
    assert "answer" not in api(bob).get(f"/api/profiles/{waiting.pk}/summary/").json()
    assert "Not ready: uploaded." in api(bob).get(f"/api/profiles/{waiting.pk}/summary/?format=md").content.decode()
    assert signed_in(bob).get(f"/profiles/{waiting.pk}/report/").status_code == 404
    failed = Profile.objects.create(
        name="failed", status=Profile.Status.FAILED, error={"where": "byte 3", "what": "no JSON", "hint": ""})
    assert "no JSON" in api(bob).get(f"/api/profiles/{failed.pk}/summary/?format=md").content.decode()


def test_a_stored_trace_knows_what_its_gpu_can_do(db: None) -> None:
    """A V100 that no table of models lists: its file states the compute capability, and there is no TF32 to allow."""
    with (CORPUS / "kineto" / "kineto_tbplugin_resnet50_v100_1623143089861.pt.trace.json.gz").open("rb") as file:
        profile = profile_ingest(create(File(file, name="resnet50.pt.trace.json.gz")).pk, "test")
    assert profile.summary["devices"][0]["compute_capability"] == "7.0"
    operators = topic_of("operators")
    assert operators is not None
    document = topic_make(profile, operators)
    [why] = {row[7] for table in document["tables"] if table["title"].startswith("Could tensor") for row in table["rows"]
             if row[3] == "fp32" and "channels" in (row[2] or "") and "not a multiple" not in row[7]}
    assert why == "FP32 operands run on CUDA cores: compute capability 7.0 has no TF32"


def test_what_a_rule_finds_on_every_gpu_is_said_once(layer: Profile) -> None:
    """Findings of one rule without a kernel: the first, and how many more; those about kernels stay."""
    summary(layer)                                  # makes the analyses, with their findings
    layer.findings.all().delete()
    kernels = list(layer.kernels.all()[:2])
    for gpu in range(4):
        Finding.objects.create(
            profile=layer, rule="idle", severity="high", title=f"GPU {gpu} idles", advice="", numbers={}, worth_ns=9 - gpu)
    for each in kernels:
        Finding.objects.create(profile=layer, rule="slow", severity="info", title="slow", advice="", numbers={}, kernel=each)
    found = summary(layer)
    assert [(each["title"], each["alike"]) for each in found["findings"]] == [("GPU 0 idles", 3), ("slow", 0), ("slow", 0)]
    assert found["findings_in_all"] == 6 and "(3 more of this kind.)" in markdown(found)


# ---- from a kernel to a form

def kernel(profile: Profile, begins: str) -> KernelStat:
    return next(each for each in profile.kernels.all() if each.name.startswith(begins))


def test_tune_this_kernel_opens_a_form_with_the_shape_that_owns_its_time(layer: Profile, alice: Any) -> None:
    found = kernel(layer, "nvjet_sm90_hsh_192x192")
    client = signed_in(alice)
    answer = client.get(reverse("kernel-tune", args=[layer.pk, found.pk]))
    assert answer.status_code == 302 and answer.url.startswith("/tune/new/?")
    assert fields_of(answer.url) == {"operator": "matmul", "M": "2048", "N": "11008", "K": "4096", "dtype": "fp16"}
    page = client.get(answer.url).content.decode()
    assert re.search(r"<textarea[^>]*name=\"shape\"[^>]*>\s*M=2048 N=11008 K=4096", page)      # the form …
    assert "4 launches" in page                                                                # … and where it comes from


def test_tune_from_a_report_opens_the_form_with_the_operator_chosen(alice: Any, api: Any) -> None:
    """Its shapes are unknown: what is shown in the form is a preset, and that is said."""
    profile = profile_ingest(recording("buildA_raw.csv.gz").pk, "test")
    found = kernel(profile, "softmax_row")
    client = signed_in(alice)
    assert "Tune softmax" in client.get(reverse("kernel", args=[profile.pk, found.pk])).content.decode()
    answer = client.get(reverse("kernel-tune", args=[profile.pk, found.pk]))
    assert answer.status_code == 302 and fields_of(answer.url) == {"operator": "softmax"}
    page = client.get(answer.url).content.decode()
    chosen = page.split('name="operator"')[1].split("</select>")[0]
    assert re.search(r'value="softmax" selected', chosen) and "A report holds no input shapes" in page and "is a preset" in page
    told = api(alice).get(f"/api/profiles/{profile.pk}/kernels/{found.pk}/actions/").json()["tune"]
    assert told["fields"] == {"operator": "softmax"} and told["url"] == answer.url


def test_a_kernel_that_no_operator_stands_for_goes_back_with_the_reason(layer: Profile, alice: Any) -> None:
    found = kernel(layer, "void at::native::vectorized_elementwise_kernel<8, at::native::BinaryFunctor")
    answer = signed_in(alice).get(reverse("kernel-tune", args=[layer.pk, found.pk]), follow=True)
    assert answer.redirect_chain[0][0] == f"/profiles/{layer.pk}/kernels/{found.pk}/"
    assert "No operator of the tuner matches" in answer.content.decode()


def test_capture_counters_opens_a_form_with_name_and_launch_and_asks_for_the_program(layer: Profile, olga: Any) -> None:
    """Two names match the expression; the launch is the kernel's median one, counted among both in the order of launches."""
    for name in ("train", "serve"):         # one alone would be filled in
        CaptureTarget.objects.create(name=name, argv=["python", f"{name}.py"])
    found = kernel(layer, "nvjet_sm90_hsh_256x128")
    answer = signed_in(olga).get(reverse("kernel-capture", args=[layer.pk, found.pk]))
    fields = fields_of(answer.url)
    assert fields["kernel"] == "nvjet_sm90_hsh_256x128_64x4_1x2_h_bz_coopA_bias_TNT" and fields["launch_count"] == "1"
    assert int(fields["launch_skip"]) == _median_index(layer, found)
    page = signed_in(olga).get(answer.url).content.decode()
    choice = page.split('name="target"')[1].split("</select>")[0]
    assert "choose the program that launches it…" in choice and "selected" not in choice.replace('value="" selected', "")


def _median_index(profile: Profile, kernel: KernelStat) -> int:
    """From the recording itself: position, among launches of the name, of the median duration without the first."""
    with gzip.open(H200 / "kineto_layer_stack.json.gz") as file:
        events = json.load(file)["traceEvents"]
    calls = {each["args"]["correlation"]: each["ts"] for each in events
             if each.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in each.get("args", {})}
    launches = sorted((calls[each["args"]["correlation"]], each["dur"]) for each in events
                      if each.get("cat") == "kernel" and each["name"] == kernel.name)
    durations = [dur for _, dur in launches]
    median = sorted(durations[1:])[(len(durations) - 2) // 2]
    return durations.index(median, 1)


def test_the_program_that_was_captured_is_chosen_beforehand(layer: Profile, olga: Any) -> None:
    CaptureTarget.objects.create(name="another", argv=["python"])
    target = CaptureTarget.objects.create(name="train", argv=["python", "train.py"])
    Capture.objects.create(target=target, tool="torch", profile=layer, status=Capture.Status.DONE)
    page = signed_in(olga).get(reverse("kernel-capture", args=[layer.pk, kernel(layer, "nvjet").pk]), follow=True).content.decode()
    assert f'value="{target.pk}" selected' in page and "choose the program" not in page


def test_the_same_fields_for_programs(layer: Profile, api: Any, bob: Any) -> None:
    found = api(bob).get(f"/api/profiles/{layer.pk}/kernels/{kernel(layer, 'nvjet_sm90_hsh_192x192').pk}/actions/").json()
    assert found["tune"]["fields"]["N"] == 11008 and found["capture"]["fields"]["launch_count"] == 1
    assert found["tune"]["url"].startswith("/tune/new/") and found["capture"]["said"]


def test_counters_of_a_report_count_its_own_launches(alice: Any, api: Any) -> None:
    profile = profile_ingest(recording("buildA_raw.csv.gz").pk, "test")
    found = kernel(profile, "softmax_row")
    fields = api(alice).get(f"/api/profiles/{profile.pk}/kernels/{found.pk}/actions/").json()["capture"]["fields"]
    launches = sorted(profile.counter_launches.filter(kernel=found).values_list("duration_ns", "index"))
    first = min(index for _, index in launches)
    assert fields["kernel"] == "softmax_row" and fields["launch_skip"] == launches[(len(launches) - 1) // 2][1] - first


def test_findings_and_kernel_tables_lead_to_the_forms(layer: Profile, alice: Any) -> None:
    page = signed_in(alice).get(f"/profiles/{layer.pk}/").content.decode()
    found = kernel(layer, "nvjet_sm90_hsh_192x192")
    assert all(reverse(name, args=[layer.pk, found.pk]) in page for name in ("kernel-tune", "kernel-capture"))
    assert reverse("report", args=[layer.pk]) in page
    topic = signed_in(alice).get(f"/profiles/{layer.pk}/analysis/operators/").content.decode()
    assert reverse("kernel-capture", args=[layer.pk, found.pk]) in topic
