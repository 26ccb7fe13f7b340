"""Reports from the upload to the kernel page, the roofline and their API."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import File
from django.test import Client

from profiles.charts import roofline_plane
from profiles.models import KernelStat, LaunchCounters, Profile
from profiles.rooflines import selectors as rooflines
from profiles.store import counters as store_counters
from profiles.upload import services

DATA = Path(__file__).resolve().parents[2] / "data"
Read = Callable[[str], Profile]


FILES = ("h200/full.ncu-rep.zst", "h200/buildA.ncu-rep.zst", "h200/buildB.ncu-rep.zst", "h200/buildA_raw.csv.gz",
         "h200/kineto_layer.json.gz", "corpus/ncu/esmm_a10g_incomplete_last_kernel.ncu-rep")


@pytest.fixture(scope="module")
def stored(django_db_setup: None, django_db_blocker: Any) -> Iterator[dict[str, int]]:
    """Files of tests/data, uploaded and ingested once: no test changes them."""
    with django_db_blocker.unblock():
        made = {}
        for name in FILES:
            file = File(io.BytesIO((DATA / name).read_bytes()), name=name.rpartition("/")[2])
            made[name] = services.profile_create(owner=None, file=file).pk
            profile = services.profile_ingest(made[name], "test")
            assert profile is not None and profile.status == Profile.Status.READY, name
        yield made
        for number in made.values():
            services.profile_delete(profile=Profile.objects.get(pk=number))


@pytest.fixture
def read(stored: dict[str, int], db: None) -> Read:
    """The stored profile of one of FILES."""
    return lambda name: Profile.objects.get(pk=stored[name])


def text_of(answer: Any) -> str:
    assert answer.status_code == 200
    html = re.sub(r"<script.*?</script>", "", answer.content.decode(), flags=re.DOTALL)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", "", html)))


@pytest.mark.parametrize(("columns", "cell"), [("duration|cycles", "1e300"), ("^launch__shared_mem", "abc")])
def test_pages_of_a_report_that_was_tampered_with(columns: str, cell: str, client: Client, alice: Any, tmp_store: Path) -> None:
    rows = list(csv.reader((DATA / "corpus/ncu_csv/hyperspec_rtx2060maxq.raw.csv").read_text().splitlines()))
    at = next(number for number, row in enumerate(rows) if "Kernel Name" in row)
    named = [number for number, name in enumerate(rows[at]) if re.search(columns, name)]
    assert named
    for row in rows[at + 2:]:
        for number in named:
            row[number] = cell
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows(rows[at:])
    made = services.profile_create(owner=alice, file=File(io.BytesIO(out.getvalue().encode()), name="tampered.csv"))
    profile = services.profile_ingest(made.pk, "test")
    client.force_login(alice)
    for kernel in profile.kernels.all()[:2]:
        for url in (f"/profiles/{profile.pk}/kernels/{kernel.pk}/", f"/api/profiles/{profile.pk}/kernels/{kernel.pk}/anatomy/",
                    f"/occupancy/?kernel={kernel.pk}"):
            assert client.get(url).status_code == 200, url


def test_rows_and_object_of_a_report(read: Read) -> None:
    profile = read("h200/full.ncu-rep.zst")
    assert (profile.kind, profile.launches, profile.gpu_time_ns, profile.gpu) == ("counters", 11, 1749184, "NVIDIA H200")
    assert LaunchCounters.objects.filter(profile=profile).count() == 11
    assert profile.findings.filter(rule="counters.bound").exists()
    gemm = profile.kernels.get(name__startswith="nvjet_sm90_tst_256x128")
    assert gemm.bound == "compute" and gemm.registers_per_thread == 168
    metrics = {row["metric"]: row for row in store_counters.metrics_of(profile.pk, 0)}
    assert len(metrics) > 2000
    assert metrics["gpu__time_duration.sum"] == {"metric": "gpu__time_duration.sum", "unit": "ns", "value": 174848.0}
    assert metrics["launch__func_cache_config"]["value"] == "CachePreferNone"
    assert store_counters.metrics_of(profile.pk, 99) == []
    assert store_counters.metrics_of(profile.pk + 1000, 0) == []
    for form in ("json", "csv", "parquet"):
        answer = Client().get(f"/api/profiles/{profile.pk}/counters/?launch=0&format={form}")
        assert answer.status_code == 200 and "counters" in answer.headers["Content-Disposition"]
    rows = {row["metric"]: row for row in Client().get(f"/api/profiles/{profile.pk}/counters/?launch=0&format=json").json()}
    duration = rows["gpu__time_duration.sum"]
    assert (duration["metric"], duration["unit"], duration["value"]) == ("gpu__time_duration.sum", "ns", "174848.0")
    assert duration["meaning"].startswith("Time from the start of the launch") and duration["range"].startswith("Less is better")
    assert all(row["unit"] and row["meaning"] and row["range"] for row in rows.values()), "each metric has all three"
    assert rows["launch__func_cache_config"]["value"] == "CachePreferNone" and len(rows) == len(metrics)
    assert profile.stored_bytes and profile.stored_bytes < 800_000      # two thirds of it: what is inside the launches


def test_the_kernel_page_answers_first_and_cleans_the_vendors_markup(read: Read) -> None:
    profile = read("h200/full.ncu-rep.zst")
    gemm = profile.kernels.get(name__startswith="nvjet_sm90_tst_256x128")
    page = text_of(Client().get(f"/profiles/{profile.pk}/kernels/{gemm.pk}/"))
    assert "Compute-bound: compute 90 % of peak (BF16 tensor 786 TFLOP/s of 870 TFLOP/s)" in page
    assert "137 GFLOP" in page
    page += text_of(Client().get(f"/profiles/{profile.pk}/kernels/{gemm.pk}/warps/"))
    page += text_of(Client().get(f"/profiles/{profile.pk}/kernels/{gemm.pk}/rules/"))
    assert "limited by registers and shared memory" in page
    assert "NVIDIA's estimates" in page and "Barrier Stalls" in page
    assert "@section" not in page and "@url" not in page
    assert "Waits for the other warps of its block at a barrier." in page


def test_two_kernels_of_equal_time_get_opposite_advice(read: Read) -> None:
    profile = read("h200/full.ncu-rep.zst")
    pages = {name: text_of(Client().get(f"/profiles/{profile.pk}/kernels/{profile.kernels.get(name__contains=name).pk}/"))
             for name in ("MulFunctor", "direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 3)]")
             if profile.kernels.filter(name__contains=name).count() == 1}
    assert "Memory-bound: DRAM 82 % of peak" in pages["MulFunctor"]
    assert "Move fewer bytes" in pages["MulFunctor"]


def test_the_kernel_page_of_a_trace_says_that_counters_are_unknown(read: Read) -> None:
    profile = read("h200/kineto_layer.json.gz")
    kernel = profile.kernels.first()
    assert kernel is not None
    answer = Client().get(f"/profiles/{profile.pk}/kernels/{kernel.pk}/")
    assert "bound unknown: a trace holds no hardware counters" in text_of(answer)
    assert "Capture its counters" in text_of(answer)
    assert f"/profiles/{profile.pk}/kernels/{kernel.pk}/capture/" in answer.content.decode()
    without = text_of(Client().get(f"/profiles/{profile.pk}/roofline/"))
    assert "from shapes" in without


def test_unknown_is_never_zero(read: Read) -> None:
    profile = read("corpus/ncu/esmm_a10g_incomplete_last_kernel.ncu-rep")
    page = text_of(Client().get(f"/profiles/{profile.pk}/roofline/"))
    assert "No dot: no launch has both operations and DRAM bytes counted" in page
    assert page.count("no FLOP counters in the report") == 3
    kernel = profile.kernels.first()
    assert kernel is not None
    assert "No dot: no FLOP counters" in text_of(Client().get(f"/profiles/{profile.pk}/kernels/{kernel.pk}/"))


def test_the_launch_at_which_a_report_breaks_off_is_a_kernel_without_a_time(read: Read) -> None:
    profile = read("corpus/ncu/esmm_a10g_incomplete_last_kernel.ncu-rep")
    last = profile.kernels.last()
    assert profile.launches == sum(row.launches for row in profile.kernels.all()) == 4
    assert last is not None and (last.launches, last.total_ns) == (1, None)
    overview = text_of(Client().get(f"/profiles/{profile.pk}/"))
    assert "1 of 4 launches was not measured to the end. The other 3 take 321" in overview
    page = text_of(Client().get(f"/profiles/{profile.pk}/kernels/{last.pk}/"))
    assert "Not measured: profiling stopped before this launch was measured" in page
    assert "incomplete" in text_of(Client().get(f"/profiles/{profile.pk}/kernels/{last.pk}/launches/"))
    for tab in ("memory", "warps", "rules", "raw"):
        page = text_of(Client().get(f"/profiles/{profile.pk}/kernels/{last.pk}/{tab}/"))
        assert "no launch of this kernel was counted whole" in page
    pages = (f"/profiles/{profile.pk}/kernels/{last.pk}/source/", f"/profiles/{profile.pk}/kernels/{last.pk}/sampling/",
             f"/profiles/{profile.pk}/kernels/", f"/occupancy/?kernel={last.pk}")
    assert {page: Client().get(page).status_code for page in pages} == dict.fromkeys(pages, 200)


def test_a_csv_of_the_same_report_gives_the_same_kernels(read: Read) -> None:
    report, table = read("h200/buildA.ncu-rep.zst"), read("h200/buildA_raw.csv.gz")
    def facts(profile: Profile) -> list[tuple[str, int, str]]:
        return [(kernel.name, kernel.total_ns, kernel.bound) for kernel in profile.kernels.all()]
    assert facts(report) == facts(table)


def test_roofline_points_and_api(read: Read) -> None:
    profile = read("h200/buildA.ncu-rep.zst")
    read_once = rooflines.launches_of([profile])
    kernels = rooflines.points_of(read_once)
    assert [point["launches"] for point in kernels] == [3, 6, 3, 3]
    assert len(rooflines.points_of(read_once, per_launch=True)) == 15
    answer = Client().get(f"/api/profiles/{profile.pk}/roofline/?per=launch").json()
    gemm = next(point for point in answer["points"] if point["flop"] == 2 * 4096**3)
    assert gemm["precision"] == "bf16_tensor" and gemm["side"] == "compute"
    lines = {line["precision"] or line["kind"]: line for line in answer["ceilings"] if line["origin"] == "stated"}
    assert set(lines) == {"dram", "l2", "l1", "fp32", "fp16_tensor", "bf16_tensor"}       # no half-precision arithmetic runs here
    assert lines["dram"]["value"] == pytest.approx(4.81e12, rel=0.01)
    for point in answer["points"]:       # no dot above its line
        if point["precision"]:
            assert point["flop_s"] < lines[point["precision"]]["value"] * 1.001 or len(point["by_precision"]) > 1
    metrics = Client().get(f"/api/profiles/{profile.pk}/counters/?launch=3").json()["metrics"]
    assert ("gpu__time_duration.sum", "ns", 13664.0) in [(row["metric"], row["unit"], row["value"]) for row in metrics]


@pytest.mark.parametrize("query", ["", "?per=launch", "?colour=precision", "?per=nonsense&colour=nonsense"])
def test_the_roofline_page_in_its_variants(read: Read, query: str) -> None:
    profile = read("h200/buildA.ncu-rep.zst")
    answer = Client().get(f"/profiles/{profile.pk}/roofline/{query}")
    page = text_of(answer)
    assert "memory-bound" in page.split("Filters")[0] and "under the memory roof" not in page      # one classification, once
    assert answer.content.count(b"data-figure=") == 1


def test_names_of_dots_cover_no_other() -> None:
    frame = roofline_plane.Frame(0.1, 1000, 1e9, 1e15, 640, 400)
    points = [{"intensity": 1 + i / 50, "flop_s": 1e12, "time_ns": 10.0 - i, "short_name": f"kernel_number_{i}"} for i in range(6)]
    places = roofline_plane.label_places(points, frame)
    shown = [place for place in places if place["label"]]
    assert shown and places[0]["label"] == "kernel_number_0"
    assert len({(place["dx"], place["dy"], place["align"]) for place in shown}) == len(shown)


def test_arrows_from_before_to_after(read: Read) -> None:
    old, new = read("h200/buildA.ncu-rep.zst"), read("h200/buildB.ncu-rep.zst")

    def points(profile: Profile) -> list[Any]:
        return [roofline_plane.compare_point(kernel.short_name, [row.facts for row in kernel.counter_launches.all()])
                for kernel in KernelStat.objects.filter(profile=profile).order_by("name")]
    a, b = points(old), points(new)
    assert all(a) and all(b)
    assert roofline_plane.compare_figure(a, b)
    assert roofline_plane.compare_figure([None], b[:1]) is None
    assert roofline_plane.compare_figure([], []) is None
