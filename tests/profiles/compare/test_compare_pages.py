"""What the comparison says beyond durations: why, with what confidence, and of which steps."""

from __future__ import annotations

import gzip
import io
import json

import numpy as np
import pytest
from django.core.files.base import ContentFile
from django.core.management import call_command
from django.test import Client

from profiles.compare import pages
from profiles.families import home_selectors
from profiles.families.follow_services import families_follow
from profiles.models import KernelShape
from profiles.upload.services import profile_create, profile_ingest
from tests.profiles.ingest.corpus import DATA
from tests.profiles.pages.test_pages import page, ready, text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tmp_store", "sign_in_mode")]


def stored(name: str, content: bytes, owner=None, **fields):
    made = profile_create(owner=owner, file=ContentFile(content, name=name), **fields)
    return profile_ingest(made.pk, "test")


def test_the_page_says_why_each_kernel_changed(bob):
    ready("buildA.ncu-rep.zst", build="A")
    ready("buildB.ncu-rep.zst", build="B")
    plain = text(page(bob, "/compare/", build_a="A", build_b="B"))
    why = plain[plain.index("Why "):]
    assert "▲ slower softmax_row +52.5 µs/launch" in why
    softmax = why[why.index("softmax_row"):why.index("attn_fwd")]
    assert softmax.index("warps in flight per scheduler") < softmax.index("instructions issued")     # the largest part first
    assert "theoretical occupancy 100 % → 18.8 %" in softmax and "Long scoreboard" in softmax
    assert "▼ faster attn_fwd" in why and why.count("/launch Factor") == 4                        # the unchanged one has none

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
    ready("buildA.ncu-rep.zst", build="A")
    ready("buildB.ncu-rep.zst", build="B")
    found = page(bob, "/compare/", build_a="A", build_b="B")
    assert found.count('class="verdict verdict-') == 2 + 4 + 3      # in the table, before each reason, and matmul's two shapes
    assert "2 more rows of less change: .csv" in text(found)
    assert "3 more rows of less change: .csv" in text(page(bob, "/compare/", build_a="A", build_b="B", rows="shapes"))


PRODUCTS = ((4096, 4096, 1024), (2048, 512, 64), (8192, 128, 512))


def three_products(slower_pct: float) -> bytes:
    """A step of three products that one persistent kernel computes; the first takes `slower_pct` longer. Times vary by 1 ns."""
    events = []
    for number in range(60):
        m, k, n = PRODUCTS[number % 3]
        begin, dur = 100.0 * number, (40.0, 20.0, 27.0)[number % 3] + 0.001 * (number % 2)
        dur *= 1 + slower_pct / 100 if number % 3 == 0 else 1
        events += [
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": begin, "dur": 20,
             "args": {"External id": number + 1, "Input Dims": [[m, k], [k, n]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": begin + 2, "dur": 5,
             "args": {"External id": number + 1, "correlation": number + 1}},
            {"ph": "X", "cat": "kernel", "name": "nvjet_tst_128x128_v_bz_NNT", "pid": 0, "tid": 7, "ts": begin + 10,
             "dur": round(dur, 3), "args": {
                 "External id": number + 1, "correlation": number + 1, "device": 0, "stream": 7, "grid": [132, 1, 1],
                 "block": [384, 1, 1], "registers per thread": 168}}]
    return json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "traceEvents": events}).encode()


def test_one_of_three_shapes_of_one_launch_geometry_is_slower_and_says_so(bob):
    """40 + 20 + 27 µs with the first 5.1 % longer is 2.3 % of the kernel: within its noise as a whole, beyond it by itself."""
    old = stored("old.json", three_products(0), build="b1")
    new = stored("new.json", three_products(5.1), build="b2")
    families_follow(old.pk)
    families_follow(new.pk)
    client = Client()
    client.force_login(bob)
    answer = client.get("/api/compare/", {"a": old.pk, "b": new.pk}).json()
    kernel, = answer["kernels"]
    says = "1 of 3 shapes slower: 4096×4096, 4096×1024 +5.1 %"
    assert kernel["verdict"] == "slower" and kernel["says"] == says and kernel["change_pct"] == pytest.approx(2.345, abs=0.01)
    rows = [answer["rows"][at] for at in kernel["rows"]]
    assert [(row["problem"], row["verdict"]) for row in rows] == [
        ("aten::mm 4096×4096, 4096×1024", "slower"), *((row["problem"], "unchanged") for row in rows[1:])]
    assert {row["problem"] for row in rows} == {f"aten::mm {m}×{k}, {k}×{n}" for m, k, n in PRODUCTS}
    assert sum(row["delta_ns"] for row in rows) == pytest.approx(answer["delta_ns"])
    plain = text(page(bob, "/compare/", a=old.pk, b=new.pk))
    assert f"▲ {says}" in plain and "as rows" in plain
    out = io.StringIO()
    call_command("compare", str(old.pk), str(new.pk), stdout=out)
    assert says in out.getvalue()
    [slower] = [change for pair in home_selectors.got_slower(5) for change in pair.slower]
    assert slower.change.shape.endswith(": 4096×4096, 4096×1024") and slower.change.change_pct == pytest.approx(5.1, abs=0.01)

    # the same three are rows of their own wherever kernels are listed, each with its quantiles
    shapes = KernelShape.objects.filter(kernel__profile=new)
    assert shapes.count() == 3
    for shape in shapes:
        page_of = client.get(f"/api/kernels/shapes/{shape.pk}/").json()
        durations = sorted(each["dur_ns"] for each in page_of["launches"])
        assert (shape.p50_ns, shape.p95_ns) == tuple(np.percentile(durations, (50, 95)))


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
    assert "not comparable" not in plain.split("Matched by", 1)[1]
