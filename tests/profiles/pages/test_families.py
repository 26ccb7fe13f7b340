"""Kernel families as rows: who belongs where, what people change and undo, what the pages of real recordings say."""

from __future__ import annotations

import gzip
import html
import io
import json
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.core.exceptions import PermissionDenied
from django.core.files.base import File
from django.core.management import call_command
from django.test import Client

from profiles.analysis.core.sentences import time_text
from profiles.analysis.kernel import counters
from profiles.analysis.trace.layer.ceilings import ceilings_of
from profiles.analysis.trace.layer.launches import launch_work
from profiles.analysis.trace.layer.records import records_of
from profiles.base.refused import Refused
from profiles.families import home_selectors, page_selectors, selectors, services
from profiles.families.follow_services import families_catch_up, families_follow, pairs_refresh
from profiles.families.services import assign_missing, families_assign
from profiles.models import BuildPair, FamilyEdit, FamilyRule, KernelFamily, KernelShape, KernelStat, LaunchCounters, Profile
from profiles.store.frame import frame_read
from profiles.upload.services import profile_delete, profile_ingest, profile_update
from tests.profiles.ingest.corpus import CORPUS, TRUTH
from tests.profiles.pages.test_services import create, recording, upload
from tests.scale import DEEP
from tuner.models import CachedConfig
from webapp import overview

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("tmp_store")]
NVJET = "nvjet_sm90_tst_{0}x128_64x4_2x1_v_bz_NNT"


@pytest.fixture(autouse=True)
def nothing_from_before(db: None) -> None:
    """A process that outlived the test of another file may have written since its rows were emptied."""
    Profile.objects.all().delete()
    FamilyRule.objects.all().delete()
    KernelFamily.objects.all().delete()



def kernels(*names: str, profile: Profile | None = None, **fields: Any) -> Profile:
    """A ready trace with these kernels, 1 ms each, assigned as an ingest does."""
    profile = profile or Profile.objects.create(name="run", status="ready", kind="trace", gpu="NVIDIA H200", file_name="f",
                                                upload_key="k")
    common = {"category": "compute", "launches": 2, "total_ns": 1_000_000, "mean_ns": 5e5, "share_pct": 1.0, **fields}
    KernelStat.objects.bulk_create([KernelStat(profile=profile, name=name, short_name=name[:100], **common) for name in names])
    families_assign(dict(profile.kernels.values_list("name", "pk")))
    return profile


def family_of(name: str) -> KernelFamily:
    found = KernelStat.objects.filter(name=name).first()
    assert found is not None and found.family is not None
    return found.family


def ready(file: str, **fields: Any) -> Profile:
    """As a worker does it: read, then what follows."""
    profile = profile_ingest(recording(file, **fields).pk, "test")
    assert profile is not None and profile.status == "ready"
    families_follow(profile.pk)
    return profile


def test_kernels_of_several_profiles_share_a_family_and_families_are_made_once() -> None:
    kernels(NVJET.format(64), NVJET.format(128), "softmax_row")
    kernels(NVJET.format(256), "softmax_row", "void f<float>(float*)")
    assert KernelFamily.objects.count() == 3 == FamilyRule.objects.count()
    assert {family_of(NVJET.format(n)).name for n in (64, 128, 256)} == {"cuBLAS GEMM · bf16"}
    assert family_of("void f<float>(float*)").dtype == "fp32"
    KernelStat.objects.update(family=None)
    assert assign_missing() == 6 and assign_missing() == 0


def test_a_mean_is_of_the_launches_that_were_measured() -> None:
    """The third launch is the one at which the report broke off."""
    report = Profile.objects.create(name="cut", status="ready", kind="counters", gpu="NVIDIA H200", file_name="f", upload_key="k",
                                    build="one")
    kernels("softmax_row", profile=report, launches=3, total_ns=1_000_000, mean_ns=5e5)
    family = family_of("softmax_row")
    page = page_selectors.family_page(family)
    assert [(run.launches, run.mean_ns) for run in page["runs"]] == [(3, 5e5)]
    assert [row["mean_ns"] for row in page_selectors.builds(KernelStat.objects.filter(family=family))] == [5e5]
    assert page["line"].mean_ns == 5e5


def test_a_configuration_that_nobody_timed_shows_without_a_gain() -> None:
    """As a file that holds no times leaves it beside a default that was timed."""
    kernels("softmax_row")
    stat = KernelStat.objects.get()
    KernelShape.objects.create(kernel=stat, bucket=10, launches=2, total_ns=1_000_000, min_ns=1, max_ns=1,
                               tune={"operator": "softmax", "M": 64, "N": 64})
    for median_ms in (None, 0.5):
        CachedConfig.objects.create(operator="softmax", dtype=f"bf{median_ms}", shape={"M": 64, "N": 64}, gpu="g", config={},
                                    default_ms=1.0, median_ms=median_ms)
    page = Client().get(f"/kernels/{stat.family_id}/").content.decode()
    assert page.count("× the default") == 1 and "2.00× the default" in page and "bfNone" in page


def test_merge_moves_every_kernel_now_and_later_and_can_be_undone(alice: Any) -> None:
    kernels("jacobi_v1", "jacobi_two")
    old, new = family_of("jacobi_v1"), family_of("jacobi_two")
    assert old.pk != new.pk
    edit = services.family_merge(old, new, by=alice)
    assert family_of("jacobi_v1").pk == new.pk
    kernels("jacobi_v1")                                       # a later profile
    assert set(KernelStat.objects.filter(name="jacobi_v1").values_list("family", flat=True)) == {new.pk}
    services.edit_undo(edit, by=alice)
    assert set(KernelStat.objects.filter(name="jacobi_v1").values_list("family", flat=True)) == {old.pk}
    assert KernelFamily.objects.get(pk=old.pk).merged_into is None
    with pytest.raises(Refused, match="undone already"):
        services.edit_undo(edit, by=alice)
    assert [each.kind for each in FamilyEdit.objects.all()] == ["merge"]      # the row stays


def test_split_takes_names_out_and_can_be_undone_in_the_right_order(alice: Any) -> None:
    small, large = NVJET.format(64), NVJET.format(256)
    kernels(small, large)
    whole = family_of(small)
    split = services.family_split(whole, [small], name="  small   tiles ", by=alice)
    assert family_of(small).name == "small tiles" and family_of(large).pk == whole.pk
    kernels(small)
    assert set(KernelStat.objects.filter(name=small).values_list("family__name", flat=True)) == {"small tiles"}
    merge = services.family_merge(family_of(small), whole, by=alice)
    assert family_of(small).pk == whole.pk
    with pytest.raises(Refused, match="later edit"):
        services.edit_undo(split, by=alice)
    services.edit_undo(merge, by=alice)
    services.edit_undo(split, by=alice)
    assert family_of(small).pk == whole.pk and not FamilyRule.objects.filter(kind="name").exists()


def test_what_cannot_be_edited_is_refused_with_a_reason(alice: Any, bob: Any) -> None:
    kernels(NVJET.format(64), NVJET.format(128), "softmax_row")
    gemm, softmax = family_of(NVJET.format(64)), family_of("softmax_row")
    for wrong in (lambda: services.family_merge(gemm, gemm, by=alice),
                  lambda: services.family_split(gemm, ["softmax_row"], name="x", by=alice),
                  lambda: services.family_split(gemm, [], name="x", by=alice),
                  lambda: services.family_split(gemm, [NVJET.format(64), NVJET.format(128)], name="x", by=alice),
                  lambda: services.family_split(gemm, [NVJET.format(64)], name=" \n ", by=alice),
                  lambda: services.family_rename(gemm, gemm.name, by=alice),
                  lambda: services.note_create(gemm, text="  ", by=alice),
                  lambda: services.note_create(gemm, text="x" * 4_001, by=alice)):
        with pytest.raises(Refused):
            wrong()
    services.family_merge(softmax, gemm, by=alice)
    with pytest.raises(Refused, match="merged already"):
        services.family_merge(gemm, softmax, by=alice)
    note = services.note_create(gemm, text="slow on\x00 purpose", by=alice)
    with pytest.raises(PermissionDenied):
        services.note_delete(note, by=bob)
    assert not FamilyEdit.objects.exclude(kind="merge").exists()


def test_rename_is_kept_and_undone(alice: Any) -> None:
    kernels("softmax_row")
    edit = services.family_rename(family_of("softmax_row"), "Our softmax", by=alice)
    again = services.family_rename(family_of("softmax_row"), "The softmax", by=alice)
    with pytest.raises(Refused):
        services.edit_undo(edit, by=alice)
    services.edit_undo(again, by=alice)
    assert family_of("softmax_row").name == "Our softmax"


def shown(client: Client, url: str, **query: str) -> str:
    answer = client.get(url, query, follow=True)
    assert answer.status_code == 200
    return html.unescape(re.sub(r"\s+", " ", answer.content.decode()))


def test_two_builds_name_exactly_the_three_regressions_and_worth_agrees_with_the_report(client: Client, alice: Any) -> None:
    """buildB: matmul 4096³, softmax and layer norm slower, attention faster, the small matmul unchanged (recordings' README)."""
    client.force_login(alice)
    ready("buildA.ncu-rep.zst", build="buildA", model="five")
    ready("buildB.ncu-rep.zst", build="buildB", model="five")
    [pair] = home_selectors.got_slower(5)
    assert [each.change.name for each in pair.slower] == ["matmul", "softmax_row", "layernorm_row"] and pair.more == 0
    assert all("occupancy" in each.change.why for each in pair.slower)          # the recordings' own cause: other tiles
    assert pair.row.verdicts["faster"] == 1 and pair.row.verdicts["unchanged"] == 1
    page = shown(client, "/")
    slower = page.split("Got slower")[1].split("Latest profiles")[0]
    assert slower.count("▲") == 3 and "▸ tune" not in slower       # counter reports state no shape: nothing to fill a job with
    assert f"/compare/?a={pair.row.old_profiles[0]}&b={pair.row.new_profiles[0]}" in slower

    # the worth of a family, from each launch's own facts: time × (1 − achieved / roof)
    expected = known = 0.0
    for launch in LaunchCounters.objects.filter(kernel__name="matmul"):
        facts = counters.from_json(launch.facts)
        assert facts.point.flop_s is not None and facts.point.roof is not None and launch.duration_ns is not None
        expected += launch.duration_ns * max(0.0, 1.0 - facts.point.flop_s / facts.point.roof)
        known += launch.duration_ns
    line = next(each for each in selectors.ranking({"kind": "counters"}).lines if each.name == "matmul")
    assert line.worth.recoverable_ns == pytest.approx(expected, rel=2e-3) and line.worth.known_ns == pytest.approx(known, abs=20)
    assert line.worth.rule_ns is not None and line.worth.rule_ns < line.worth.total_ns

    family = shown(client, f"/kernels/{line.family.pk}/")
    assert "of 2 counter reports of 2 builds; no trace holds it" in family and "512×1×1" in family and "4096×1×1" in family
    assert "buildA → buildB" in family and "What would help" in family and "compute roof" in family
    answer = client.get(f"/api/kernels/{line.family.pk}/").json()
    assert [each["build"] for each in answer["builds"]] == ["buildA", "buildB"]
    assert [(each["grid"], each["build"]) for each in answer["shapes"]] == [         # a shape of a build is a line
        ("4096×1×1", "buildB"), ("512×1×1", "buildA"), ("64×1×1", "buildB"), ("64×1×1", "buildA")]
    assert all(each["p50_ns"] and each["min_ns"] <= each["p50_ns"] <= each["p95_ns"] <= each["max_ns"] for each in answer["shapes"])
    assert sum(each["total_ns"] for each in answer["shapes"]) == pytest.approx(line.worth.total_ns, abs=5)


def test_a_trace_beside_counters_of_the_same_kernel(client: Client, alice: Any) -> None:
    """kineto_layer ran fp16 products; full.ncu-rep counted a bf16 one: another type says nothing about it."""
    client.force_login(alice)
    trace = ready("kineto_layer.json.gz", build="b1", model="layer")
    ready("full.ncu-rep.zst")
    found = {line.name: line for line in selectors.ranking({}).lines}
    gemm = found["cuBLAS GEMM · fp16"]
    assert gemm.worth.recoverable_ns is None and gemm.worth.at_most_ns == gemm.worth.total_ns
    assert "no counters on NVIDIA H200" in gemm.why
    stats = trace.kernels.filter(name__startswith="nvjet_sm90_hsh")
    assert gemm.worth.total_ns == sum(each.total_ns for each in stats)
    assert gemm.worth.launches == sum(each.launches for each in stats)
    # filled-in actions: the product's dimensions from the trace, the longest launch for ncu, its slice on the timeline
    tune = parse_qs(urlsplit(gemm.actions.tune).query)
    shape = KernelShape.objects.filter(kernel__in=stats).order_by("-total_ns").first()
    assert shape is not None and shape.operator == "aten::addmm"
    assert (tune["operator"], tune["dtype"]) == (["matmul"], ["fp16"])
    assert [int(tune[name][0]) for name in "MNK"] == [2048, 11008, 4096] and shape.dims.endswith("2048×4096, 4096×11008")
    capture = parse_qs(urlsplit(gemm.actions.capture).query)
    assert capture["kernel"] == [stats.get(pk=shape.kernel_id).name] and capture["launch_count"] == ["1"]
    assert int(capture["launch_skip"][0]) < shape.kernel.launches and capture["build"] == ["b1"]
    forms = [shown(client, gemm.actions.tune), shown(client, gemm.actions.capture)]
    assert "11008" in forms[0] and stats.get(pk=shape.kernel_id).name in forms[1]
    told = client.get(f"/api/profiles/{trace.pk}/slices/{shape.slice_id}/").json()
    assert told["name"] == shape.kernel.name and told["dur_ns"] == shape.max_ns
    # the same launch index as the timeline's own count
    kernel = client.get(f"/api/profiles/{trace.pk}/slices/{shape.slice_id}/kernel/").json()
    assert kernel["matching"] == shape.skip
    # sums hold: shapes are all of a kernel's time, and each finds its launches again
    for stat in trace.kernels.all():
        assert sum(each.total_ns for each in stat.shapes.all()) == stat.total_ns
    for each in KernelShape.objects.filter(kernel__profile=trace):
        launches = client.get(f"/api/kernels/shapes/{each.pk}/").json()
        assert (launches["total"], sum(one["dur_ns"] for one in launches["launches"])) == (each.launches, each.total_ns)
    # three products of the layer share a kernel and its persistent grid: three problems, each with its own time
    wide = KernelShape.objects.filter(kernel__profile=trace, kernel__name__contains="256x128").order_by("-total_ns")
    assert [each.dims.split(", ", 1)[1] for each in wide] == [
        "2048×4096, 4096×12288", "2048×11008, 11008×4096", "2048×4096, 4096×4096"]
    assert len({each.grid for each in wide}) == 1 and [each.launches for each in wide] == [4, 4, 4]
    assert f"{shape.launches} launches with grid" in shown(client, f"/kernels/shapes/{shape.pk}/")
    page = shown(client, f"/kernels/{gemm.family.pk}/")
    assert "Capture its counters" in page and "no counters" in page and "aten::addmm" in page


def test_pages_lists_and_forms(client: Client, alice: Any, bob: Any) -> None:
    kernels(NVJET.format(64), NVJET.format(128), "softmax_row", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "<b>evil</b>")
    gemm, softmax = family_of(NVJET.format(64)), family_of("softmax_row")
    client.force_login(bob)                                     # reads, changes nothing
    page = shown(client, "/kernels/", op="matmul")
    assert "cuBLAS GEMM · bf16" in page and "softmax_row" not in page.split("Share of")[1]
    assert "<b>evil</b>" not in client.get("/kernels/").content.decode()
    assert "Split the chosen" not in shown(client, f"/kernels/{gemm.pk}/")
    for url in ("merge", "split", "rename", "notes"):
        assert client.post(f"/kernels/{gemm.pk}/{url}/", {}).status_code == 403
    client.force_login(alice)
    noted = client.post(f"/kernels/{gemm.pk}/notes/", {"text": "a note about tiles"}, follow=True)
    assert "a note about tiles" in noted.content.decode()
    client.post(f"/kernels/{gemm.pk}/split/", {"name": NVJET.format(64), "called": "small"})
    assert family_of(NVJET.format(64)).name == "small"
    client.post(f"/kernels/{softmax.pk}/rename/", {"called": "Our softmax"})
    answer = client.post(f"/kernels/{softmax.pk}/merge/", {"into": "small"}, follow=True)
    assert "Our softmax is part of small now" in answer.content.decode()
    assert client.get(f"/kernels/{softmax.pk}/").status_code == 302           # its page leads on
    assert "Not changed: no family of that name" in client.post(f"/kernels/{gemm.pk}/merge/", {"into": "nobody"},
                                                                follow=True).content.decode()
    assert "or number. Choose one of the list" in client.post(f"/kernels/{gemm.pk}/merge/", {"into": "\0"},
                                                              follow=True).content.decode()
    merge = FamilyEdit.objects.get(kind="merge")
    assert "Undone" in client.post(f"/kernels/edits/{merge.pk}/undo/", follow=True).content.decode()
    assert family_of("softmax_row").pk == softmax.pk
    assert "merged into" in shown(client, "/kernels/") and client.get("/kernels/999999/").status_code == 404


def test_the_api_lists_edits_and_files(api: Any, alice: Any, bob: Any) -> None:
    kernels(NVJET.format(64), NVJET.format(128), "softmax_row")
    gemm = family_of(NVJET.format(64))
    listed = api(bob).get("/api/kernels/").json()
    first = listed["families"][0]
    assert listed["count"] == 2 and first["at_most_ns"] == 2_000_000 and first["recoverable_ns"] is None
    pages = [api(bob).get("/api/kernels/", {"limit": 1, "offset": offset}).json() for offset in (0, 1, 2)]
    assert [page["next_offset"] for page in pages] == [1, None, None] and listed["next_offset"] is None
    assert [family for page in pages for family in page["families"]] == listed["families"]
    rows = api(bob).get("/api/kernels/", {"format": "csv"}).content.decode().splitlines()
    assert rows[0].startswith("name,op,dtype") and len(rows) == 3
    asked = {"kind": "split", "family": gemm.pk, "names": [NVJET.format(64)], "name": "small"}
    assert api(bob).post("/api/kernels/edits/", asked, format="json").status_code == 403
    made = api(alice).post("/api/kernels/edits/", asked, format="json")
    assert made.status_code == 201 and made.json()["kind"] == "split"
    refused = api(alice).post("/api/kernels/edits/", asked, format="json")
    assert refused.status_code == 400 and refused.json()["hint"]
    assert api(alice).post(f"/api/kernels/edits/{made.json()['id']}/undo/").json()["undone"]
    assert api(alice).post(f"/api/kernels/{gemm.pk}/notes/", {"text": "x"}, format="json").status_code == 201
    assert api(bob).get(f"/api/kernels/{gemm.pk}/").json()["notes"][0]["text"] == "x"
    assert len(api(bob).get("/api/kernels/edits/").json()["edits"]) == 1


def test_the_same_bytes_twice_count_once() -> None:
    for number in (1, 2):
        run = kernels("softmax_row")
        Profile.objects.filter(pk=run.pk).update(sha256="a" * 64)
        assert selectors.ranking({}).total_ns == 1_000_000, number


def stencil(dur_us: float, build: str) -> Profile:
    """A trace of twenty launches of one kernel, a hundredth of a microsecond of noise."""
    args = {"device": 0, "stream": 7, "grid": [8, 1, 1], "block": [64, 1, 1]}
    events = [{"ph": "X", "cat": "kernel", "name": "stencil(float*)", "pid": 0, "tid": 7, "ts": 1000 * n,
               "dur": dur_us + n % 3 / 100, "args": {**args, "correlation": n}} for n in range(20)]
    profile = profile_ingest(create(upload(f"{build}.json", {"schemaVersion": 1, "traceEvents": events}), build=build).pk, "test")
    assert profile is not None and profile.status == "ready"
    families_follow(profile.pk)
    return profile


def test_build_changes_follow_what_becomes_of_their_profiles(django_capture_on_commit_callbacks: Any) -> None:
    """Another build, a deleted profile: the pair goes or is compared anew; until then no row of a deleted profile shows."""
    old, new = stencil(100, "A"), stencil(150, "B")
    [pair] = home_selectors.got_slower(5)
    assert [(each.change.name, round(each.change.change_pct)) for each in pair.slower] == [("stencil", 50)]
    assert pair.slower[0].family == family_of("stencil(float*)").pk
    assert pairs_refresh() == 0                                 # nothing changed: nothing is read again
    with django_capture_on_commit_callbacks(execute=True):
        profile_update(new, build="A")
    assert pairs_refresh() == 0 and not BuildPair.objects.exists()
    profile_update(new, build="B")
    assert pairs_refresh() == 1
    stencil(100, "B")                                           # a second run of the build: compared anew, by their mean
    assert BuildPair.objects.get().changes.get().change_pct == pytest.approx(25, abs=0.1)
    profile_delete(old)
    assert home_selectors.got_slower(5) == []


def test_the_command_makes_what_is_missing_and_says_what_it_is_worth(capsys: pytest.CaptureFixture[str]) -> None:
    from django.core.management import call_command

    profile = profile_ingest(recording("kineto_layer.json.gz").pk, "test")
    assert profile is not None and not KernelShape.objects.exists()
    KernelStat.objects.update(family=None)
    call_command("families", "--json", "--limit", "2")
    document = json.loads(capsys.readouterr().out)
    assert document["made"] == {"kernels": profile.kernels.count(), "profiles": 1, "pairs": 0}
    assert len(document["families"]) == 2 and document["families"][0]["name"] == "cuBLAS GEMM · fp16"
    assert families_catch_up() == {"kernels": 0, "profiles": 0, "pairs": 0}


def test_the_ranking_of_corpus_traces_is_the_time_that_their_files_hold(client: Client, alice: Any) -> None:
    """Four files of three profilers' worth of kernels against the corpus' truth, and a recount straight from the JSON."""
    names = ("nsys/nways_jacobi_gh200.sqlite.gz", "kineto/hta_sampled_rank-0_of128.json.gz",
             "kineto/hta_sampled_rank-1_of128.json.gz", "kineto/hta_alexnet_a100_critical_path.json.gz")
    truth = {each["file"]: each for each in (*TRUTH, *map(json.loads, (CORPUS / "truth_nsys.jsonl").read_text().splitlines()))}
    for name in names:
        with (CORPUS / name).open("rb") as file:
            profile_ingest(create(File(file, name=name)).pk, "test")
    found = selectors.ranking({})
    assert found.total_ns == pytest.approx(sum(truth[name]["gpu_time_ns"] for name in names), abs=len(names))
    jacobi, exchange = found.lines[:2]
    edges = next(line for line in found.lines if line.name == "initialize_boundaries · fp32")      # the other kernel of that file
    assert jacobi.name == "jacobi_kernel · fp32"
    assert jacobi.worth.total_ns + edges.worth.total_ns == truth[names[0]]["gpu_time_ns"]
    counted: dict[str, float] = {}
    for name in names[1:]:
        for event in json.loads(gzip.decompress((CORPUS / name).read_bytes()))["traceEvents"]:
            if event.get("cat") in ("kernel", "Kernel"):
                key = next((word for word in ("cutlass", "convolve", "SendRecv", "sgemm") if word in event["name"]), "")
                counted[key] = counted.get(key, 0.0) + float(event["dur"]) * 1e3
    assert exchange.name == "NCCL SendRecv · int8" and exchange.worth.total_ns == pytest.approx(counted["SendRecv"], abs=2)
    sgemm = next(line for line in found.lines if line.name == "cuBLAS GEMM · fp32")
    assert sgemm.worth.total_ns == pytest.approx(counted["sgemm"], abs=2) and sgemm.worth.recoverable_ns is None
    client.force_login(alice)
    home = shown(client, "/").split("Worth fixing")[1]
    assert home.index("jacobi_kernel") < home.index("NCCL SendRecv")


def test_sums_on_home_kernels_and_family_pages_agree_and_are_those_of_their_rows(client: Client, alice: Any, bob: Any) -> None:
    """Three traces, one of them uploaded twice: home = page of all kernels = Σ of its rows; each row = its family page = Σ of that
    page's profiles = Σ of its shapes. The second upload of the same bytes says what it is and is in no sum."""
    client.force_login(alice)
    ready("kineto_layer.json.gz", build="b1", model="layer", owner=alice)
    again = ready("kineto_layer.json.gz", build="b2", model="layer", owner=bob)
    ready("kineto_train.json.gz", build="b1", model="train")
    ready("full.ncu-rep.zst")
    first = Profile.objects.get(sha256=again.sha256, build="b1")
    own_ns = sum(each.gpu_time_ns for each in Profile.objects.filter(kind="trace").exclude(pk=again.pk))

    everything = client.get("/api/kernels/").json()
    assert everything["total_ns"] == own_ns == sum(each["total_ns"] for each in everything["families"])
    assert sum(each["share_pct"] for each in everything["families"]) == pytest.approx(100)
    assert overview.totals()["gpu_time_ns"] == own_ns
    in_words = time_text(own_ns)
    assert in_words in shown(client, "/") and in_words in shown(client, "/kernels/")
    for row in everything["families"][::1 if DEEP else 3]:
        family = client.get(f"/api/kernels/{row['family']}/").json()
        traces = [each for each in family["profiles"] if each["kind"] == "trace"]
        assert family["worth"]["total_ns"] == row["total_ns"] == sum(each["total_ns"] for each in traces if each["same_as"] is None)
        assert row["profiles"] == sum(each["same_as"] is None for each in traces)
        more = family["more_shapes"] or {"total_ns": 0, "launches": 0}
        shapes = [each for each in family["shapes"] if each["kind"] == "trace"]
        assert sum(each["total_ns"] for each in shapes) + more["total_ns"] == row["total_ns"]
        assert sum(each["launches"] for each in shapes) + more["launches"] == row["launches"]
        assert sum(each["total_ns"] for each in family["builds"] if each["kind"] == "trace") == row["total_ns"]
        assert {each["same_as"] for each in traces if each["profile"] == again.pk} <= {first.pk}
        assert row["known_ns"] + row["estimated_ns"] + row["unknown_ns"] == pytest.approx(row["total_ns"])
    gemm = next(row for row in everything["families"] if row["name"] == "cuBLAS GEMM · fp16")
    assert f"same file as {first.name[:29]}" in shown(client, f"/kernels/{gemm['family']}/")
    assert "Sums count" in shown(client, f"/profiles/{again.pk}/")

    # each filter by itself: bob's upload is the oldest of what bob has
    layer_ns, train_ns = first.gpu_time_ns, own_ns - first.gpu_time_ns
    for query, expected_ns in (({"owner": "bob"}, layer_ns), ({"model": "train"}, train_ns), ({"build": "b2"}, layer_ns),
                               ({"window": "7"}, own_ns), ({"until": "2001-01-01"}, 0), ({"since": "2001-01-01"}, own_ns),
                               ({"since": "no date", "window": "x"}, own_ns), ({"until": "2026-13-41"}, own_ns)):
        assert client.get("/api/kernels/", query).json()["total_ns"] == expected_ns, query
    assert time_text(train_ns) in shown(client, "/", model="train") and time_text(layer_ns) in shown(client, "/", owner="bob")
    assert "No trace matches" in shown(client, "/", owner="nobody")


def test_a_profile_lists_its_kernels_by_shape(client: Client, alice: Any) -> None:
    client.force_login(alice)
    trace = ready("kineto_layer.json.gz")
    rows = client.get(f"/api/profiles/{trace.pk}/kernel-shapes/").json()["kernel_shapes"]
    assert sum(row["total_ns"] for row in rows) == trace.gpu_time_ns and sum(row["share_pct"] for row in rows) == pytest.approx(100)
    wide = [row for row in rows if "256x128" in row["name"]]
    assert len(wide) == 3 and len({row["grid"] for row in wide}) == 1 and len({row["dims"] for row in wide}) == 3
    assert all(row["min_ns"] <= row["p50_ns"] <= row["p95_ns"] <= row["max_ns"] for row in rows)
    page = shown(client, f"/profiles/{trace.pk}/", kernels="shapes")
    assert all(row["dims"][:40] in page for row in wide) and "per kernel" in page


def test_a_floor_from_shapes_gives_an_estimate_where_it_holds(client: Client, alice: Any) -> None:
    """Of 3 ms one shape of 1 ms has a floor of half of it, one of 1 ms a floor that no launch could keep, one has none."""
    client.force_login(alice)
    kernels("softmax_row", total_ns=3_000_000, launches=6)
    stat = KernelStat.objects.get()
    for bucket, floor_ns in ((10, 250_000.0), (11, 900_000.0), (12, None)):
        KernelShape.objects.create(kernel=stat, bucket=bucket, launches=2, total_ns=1_000_000, min_ns=1, max_ns=1,
                                   floor_ns=floor_ns)
    [line] = client.get("/api/kernels/").json()["families"]
    assert (line["expected_ns"], line["expected_low_ns"], line["expected_high_ns"]) == (250_000, 0, 500_000)
    assert line["shapes_roof_pct"] == 50 and line["roof_pct"] is None
    assert line["basis"] == "shapes"
    assert (line["known_ns"], line["estimated_ns"], line["unknown_ns"]) == (0, 1_000_000, 2_000_000)
    page = shown(client, "/kernels/")
    assert "0 ns–500 µs estimate" in re.sub(r"<[^>]+>", "", page)
    assert "from shapes: time − the least that its FLOP and minimal bytes take" in page
    family = shown(client, f"/kernels/{line['family']}/")
    assert "An estimate from its shapes, 50 % of its roof: 0 ns to 500 µs to win back" in family and "unknown for 2.00 ms" in family
    out = io.StringIO()
    call_command("families", "--model", "none", stdout=out)
    call_command("families", stdout=out)
    assert out.getvalue() == ("softmax_row: 3.000 ms in 6 launches, 0.250 ms to win back (estimate, 0.000 to 0.500 ms)\n")


def test_shapes_of_a_trace_bring_their_floors(client: Client, alice: Any) -> None:
    """Of a layer in fp16 on an H200: the floors of all shapes are those of the work by kernel and shape, and give an estimate."""
    client.force_login(alice)
    trace = ready("kineto_layer.json.gz")
    ceilings = ceilings_of("NVIDIA H200")
    frame = frame_read(trace)
    expected = sum(record.floor_ns(ceilings) or 0.0 for record in records_of(frame, launch_work(frame)))
    floors = [(shape.floor_ns, shape.launches) for shape in KernelShape.objects.filter(kernel__profile=trace)]
    assert sum(ns * count for ns, count in floors if ns is not None) == pytest.approx(expected, rel=1e-6)
    gemm = next(row for row in client.get("/api/kernels/").json()["families"] if row["name"] == "cuBLAS GEMM · fp16")
    assert gemm["basis"] == "shapes" and 0 < gemm["expected_ns"] < 0.5 * gemm["total_ns"]
