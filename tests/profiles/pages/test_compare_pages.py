"""What the comparison says beyond durations: why, with what confidence, and of which steps."""

from __future__ import annotations

import gzip
import json

import pytest
from django.core.files.base import ContentFile
from django.test import Client

from profiles.compare import pages
from profiles.upload.services import profile_create, profile_ingest
from tests.profiles.ingest.corpus import DATA
from tests.profiles.pages.test_pages import page, ready, text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tmp_store", "sign_in_mode")]


def stored(name: str, content: bytes, owner=None, **fields):
    made = profile_create(owner=owner, file=ContentFile(content, name=name), **fields)
    return profile_ingest(made.pk, "test")


def test_the_page_says_why_each_kernel_changed(bob):
    ready("buildA.ncu-rep.gz", build="A")
    ready("buildB.ncu-rep.gz", build="B")
    plain = text(page(bob, "/compare/", build_a="A", build_b="B"))
    why = plain[plain.index("What changed, and why"):]
    assert "▲ slower softmax_row +52.5 µs a launch" in why
    softmax = why[why.index("softmax_row"):why.index("attn_fwd")]
    assert softmax.index("warps in flight per scheduler") < softmax.index("instructions issued")     # the largest part first
    assert "theoretical occupancy 100 % → 18.8 %" in softmax and "Long scoreboard" in softmax
    assert "▼ faster attn_fwd" in why and why.count("a launch Because") == 4                        # the unchanged one has none

    client = Client()
    client.force_login(bob)
    answer = client.get("/api/compare/", {"build_a": "A", "build_b": "B"}).json()
    for row in answer["rows"]:
        if row["verdict"] == "unchanged":
            assert row["why"] is None
        else:
            assert sum(part["part_ns"] for part in row["why"]["factors"]) == pytest.approx(row["why"]["delta_ns"], abs=1)
            assert row["why"]["delta_ns"] == pytest.approx(row["new"]["mean_ns"] - row["old"]["mean_ns"], abs=1)
    sheet = client.get("/api/compare/", {"build_a": "A", "build_b": "B", "format": "csv"}).content.decode()
    assert "warps in flight per scheduler" in sheet and "certain" in sheet


def test_the_table_of_the_page_is_bounded(bob, monkeypatch):
    monkeypatch.setattr(pages, "SHOWN", 2)
    ready("buildA.ncu-rep.gz", build="A")
    ready("buildB.ncu-rep.gz", build="B")
    found = page(bob, "/compare/", build_a="A", build_b="B")
    assert found.count('class="verdict verdict-') == 2 + 4          # in the table, and before each reason
    assert "3 more rows of less change are not listed" in text(found)


def marked_steps() -> bytes:
    """compile_warmup with the marks that torch.profiler writes under a schedule: from one forward to the next."""
    document = json.loads(gzip.decompress((DATA / "causes" / "compile_warmup.json.gz").read_bytes()))
    events = document["traceEvents"]
    forward = sorted((each for each in events if each.get("name") == "forward" and each.get("cat") == "user_annotation"),
                     key=lambda each: each["ts"])
    ends = [*(each["ts"] for each in forward[1:]), max(each["ts"] + each.get("dur", 0) for each in events if each.get("ph") == "X")]
    events += [{**first, "name": f"ProfilerStep#{number}", "dur": end - first["ts"]}
               for number, (first, end) in enumerate(zip(forward, ends, strict=True))]
    return json.dumps(document).encode()


def test_steps_that_compile_are_in_no_comparison_per_step(bob):
    raw = marked_steps()
    first, again = stored("first.json", raw), stored("again.json", raw)
    assert first.steps == 7
    plain = text(page(bob, "/compare/", a=first.pk, b=again.pk, per="step"))
    assert "Steps that compile, warm up or hold no GPU work are left out: 2 of first.json, 2 of again.json." in plain
    client = Client()
    client.force_login(bob)
    per_step, total = (client.get("/api/compare/", {"a": first.pk, "b": again.pk, "per": per}).json() for per in ("step", "total"))
    launches = [sum(row["old"]["launches"] for row in answer["rows"]) for answer in (per_step, total)]
    assert launches[0] % 5 == 0 and launches[0] < launches[1]          # the first compiled, the second was slow
    assert "are left out" not in " ".join(total["notes"])


def test_a_renamed_kernel_is_found_and_a_new_one_is_not_comparable(bob):
    text_of = gzip.decompress((DATA / "h200" / "kineto_layer.json.gz").read_bytes()).decode()
    old = stored("old.json", text_of.encode())
    events = json.loads(text_of)
    names = {event["name"] for event in events["traceEvents"] if event.get("cat") == "kernel"}
    gemm = next(name for name in names if "nvjet" in name)
    renamed = text_of.replace(json.dumps(gemm)[1:-1], "sm100_xmma_gemm_f16f16_f16f32_tilesize256x256x64_stage4")
    new = stored("new.json", renamed.encode())
    plain = text(page(bob, "/compare/", a=old.pk, b=new.pk))
    assert "renamed: same family cuBLAS GEMM" in plain
    assert "not comparable" not in plain.split("Same kernel", 1)[1].split("Matched by", 1)[1]
