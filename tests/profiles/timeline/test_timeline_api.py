"""The timeline's API as the browser uses it."""

import gzip
import json

import numpy as np
import pytest
from django.urls import reverse

from profiles import ingest
from profiles.ingest.trace import Trace
from profiles.models import KernelStat, Profile
from profiles.store import trace as store
from tests.builders import flows, trace
from tests.profiles.ingest.corpus import H200

pytestmark = pytest.mark.django_db

STEP = """
python (1) / main: ProfilerStep#0 0-100 | aten::mm 5-20 ext=7 | cudaLaunchKernel 8-10 corr=1 ext=7 | MmBackward0 40-60 | \
sync@runtime 70
GPU 0 / stream 7: gemm 12-40 corr=1 ext=7 grid=4x2x1 block=128x1x1 regs=64 smem=1024 occ=50 detail={"context":1} | \
ncclAllReduce 30-60
GPU 0 / memory: counter 0=5 10=8
"""


def profile_of(found: Trace, **fields) -> Profile:
    profile = Profile.objects.create(**{"name": "p", "status": "ready", "kind": "trace", "file_name": "f", "upload_key": "k",
                                        **fields})
    store.prepare(found).write(profile.pk)
    return profile


@pytest.fixture
def profile():
    return profile_of(trace(STEP, flows=flows((1, "fwdbwd", 0, 5, False), (1, "fwdbwd", 0, 40, True))))


@pytest.fixture
def get(client, settings):
    def call(name: str, *arguments, **query):
        return client.get(reverse(f"api-{name}", args=arguments), query)
    return call


def test_document(get, profile):
    found = get("timeline", profile.pk).json()
    assert (found["id"], found["end_ns"], found["tile_bins"], found["levels"]) == (profile.pk, 100_000, 1024, 5)
    assert [(t["id"], t["kind"], t["name"], t["depths"], t["slices"]) for t in found["tracks"]] == [
        (0, "thread", "main", 3, 5), (1, "stream", "stream 7", 2, 2), (2, "counter", "memory", 0, 0)]
    assert found["steps"] == [{"name": "ProfilerStep#0", "start_ns": 0, "end_ns": 100_000}]
    assert found["step_tracks"] == [0]
    assert [(track["rank"], track["aside"]) for track in found["tracks"]] == [(None, None)] * 3
    assert found["categories"][:2] == ["compute", "communication"]
    assert found["integrity"]["records_kept"] == 7


@pytest.mark.parametrize(("behind", "last_us"), [
    ("python (1) / main: Record Window End@other 600", 440),                        # a mark
    ("Spans / PyTorch Profiler: PyTorch Profiler (0)@other 0-600", 440),            # a span of the profiler's own
    ("python (1) / CUPTI: Buffer Flush@overhead 450-600", 440),
    ("GPU 0 / power: counter 0=5 600=8", 440),
    ("python (1) / main: aten::mm 590-600", 600)])
def test_the_timeline_ends_with_the_work(get, behind, last_us):
    profile = profile_of(trace(f"python (2) / main: cudaLaunchKernel 8-10 corr=1\nGPU 0 / stream 7: gemm 12-440 corr=1\n{behind}"))
    found = get("timeline", profile.pk).json()
    assert (found["end_ns"], found["last_ns"]) == (600_000, last_us * 1000)


def unpack(body: bytes) -> dict:
    magic, count = np.frombuffer(body, "<u4", 2)
    assert magic == 0x32545052
    head = np.frombuffer(body, "<u4", 4 * count, 8).reshape(-1, 4)
    rows, at, out = int(head[:, 1].sum()), 8 + 16 * int(count), {"tracks": head[:, :3].tolist()}
    at += -at % 8
    for name, kind in (("start_ns", "<f8"), ("dur_ns", "<f8"), ("name_id", "<u4"), ("count", "<u4"), ("slice_id", "<u4"),
                       ("depth", "<u2"), ("category", "u1"), ("flags", "u1")):
        out[name] = np.frombuffer(body, kind, rows, at).tolist()
        at += rows * np.dtype(kind).itemsize
    return out


def test_tile(get, profile):
    answer = get("tile", profile.pk, 4, 0)
    assert answer["Content-Encoding"] == "gzip" and "immutable" in answer["Cache-Control"]
    tile = unpack(gzip.decompress(answer.content))
    names = get("names", profile.pk).json()["names"]
    assert tile["tracks"] == [[0, 5, 0], [1, 2, 0], [2, 0, 2]]
    assert [names[i] for i in tile["name_id"]] == [
        "ProfilerStep#0", "sync", "aten::mm", "MmBackward0", "cudaLaunchKernel", "gemm", "ncclAllReduce"]
    assert tile["flags"][1] == 1
    one = unpack(gzip.decompress(get("tile", profile.pk, 4, 0, tracks="1").content))
    assert one["tracks"] == [[1, 2, 0]]


def test_tile_is_cached_by_its_tag(client, get, profile):
    tag = get("tile", profile.pk, 0, 0)["ETag"]
    assert client.get(reverse("api-tile", args=[profile.pk, 0, 0]), headers={"If-None-Match": tag}).status_code == 304


@pytest.mark.parametrize(("name", "arguments", "query", "status"), [
    ("tile", (9, 0), {}, 404), ("tile", (0, 10**9), {}, 404), ("tile", (0, 0), {"tracks": "7"}, 400),
    ("tile", (0, 0), {"tracks": "a"}, 400), ("slice", (99,), {}, 404), ("slices", (), {}, 400),
    ("slices", (), {"q": "a", "limit": "1000000"}, 400), ("selection", (), {"start": "5"}, 400),
    ("selection", (), {"start": "9", "end": "3"}, 400), ("selection", (), {"start": "x", "end": "3"}, 400),
])
def test_wrong_questions_get_an_answer(get, profile, name, arguments, query, status):
    answer = get(name, profile.pk, *arguments, **query)
    assert answer.status_code == status
    assert answer.json()


@pytest.mark.parametrize("fields", [{"status": "uploaded"}, {"kind": "counters"}, {}])
def test_without_a_timeline(get, fields):
    row = Profile.objects.create(**{"name": "p", "status": "ready", "kind": "trace", **fields})
    for name, arguments in (("timeline", ()), ("names", ()), ("tile", (0, 0)), ("slices", ()), ("slice", (0,)), ("selection", ())):
        answer = get(name, row.pk, *arguments)
        assert answer.status_code == 409 and answer.json()["error"]
        assert get(name, row.pk + 1000, *arguments).status_code == 404


def test_sign_in_is_asked_for(client, settings, profile):
    settings.LOCAL_MODE = False
    assert client.get(reverse("api-timeline", args=[profile.pk])).status_code in (401, 403)


def test_search(get, profile):
    found = get("slices", profile.pk, q="MM").json()
    assert (found["total"], [s["name"] for s in found["slices"]]) == (3, ["aten::mm", "gemm", "MmBackward0"])
    assert get("slices", profile.pk, q="mm", limit=1, offset=2).json()["slices"][0]["name"] == "MmBackward0"
    assert get("slices", profile.pk, q="mm", track="1").json()["total"] == 1
    assert get("slices", profile.pk, q="mm", start=45_000, end=50_000).json()["total"] == 1
    assert get("slices", profile.pk, q="nothing like it").json() == {
        "total": 0, "slices": [], "complete": True, "counted_to_ns": 100_000, "names": []}


def test_search_by_pattern(get, profile):
    found = get("slices", profile.pk, q="^(aten::mm|gemm)$", mode="regex").json()
    names = get("names", profile.pk).json()["names"]
    assert [s["name"] for s in found["slices"]] == ["aten::mm", "gemm"]
    assert sorted(names[i] for i in found["names"]) == ["aten::mm", "gemm"]
    assert get("slices", profile.pk, q="(?i)MM", mode="regex").json()["total"] == 3
    wrong = get("slices", profile.pk, q="(", mode="regex")
    assert wrong.status_code == 400 and "regular expression" in str(wrong.json())


@pytest.mark.parametrize(("text", "names"), [
    ("correlation=1", ["cudaLaunchKernel", "gemm"]), ("external_id = 7", ["aten::mm", "cudaLaunchKernel", "gemm"]),
    ("grid_x>3", ["gemm"]), ("grid_x > 4", []), ("registers<=64", ["gemm"]), ("occupancy_pct>=50", ["gemm"]),
    ("context=1", ["gemm"]), ("context=2", []), ("context=", ["gemm"]), ("context", ["gemm"]), ("no such thing", []),
])
def test_search_by_argument(get, profile, text, names):
    found = get("slices", profile.pk, q=text, mode="argument").json()
    assert [s["name"] for s in found["slices"]] == names and found["names"] is None and found["complete"]


def test_hits_lie_where_they_begin(get, profile):
    found = get("hits", profile.pk, q="mm", bins=10).json()
    assert (found["total"], found["complete"], sum(found["bins"])) == (3, True, 3)
    assert found["bins"] == [1, 1, 0, 0, 1, 0, 0, 0, 0, 0]
    assert get("slices", profile.pk, q="mm", around=12_001, limit=0).json()["before"] == 2


def detail(get, profile, name: str) -> dict:
    return get("slice", profile.pk, get("slices", profile.pk, q=name).json()["slices"][0]["id"]).json()


def test_slice_detail_and_links(get, profile):
    kernel = KernelStat.objects.create(profile=profile, name="gemm", short_name="gemm", category="compute", launches=1,
                                       total_ns=1, mean_ns=1, p50_ns=1, p95_ns=1, min_ns=1, max_ns=1, share_pct=100)
    found = detail(get, profile, "gemm")
    assert (found["grid"], found["block"], found["registers_per_thread"], found["smem_bytes"]) == (
        [4, 2, 1], [128, 1, 1], 64, 1024)
    assert (found["occupancy_pct"], found["device"], found["stream"], found["detail"]) == (50, 0, 7, {"context": 1})
    assert (found["kernel_id"], found["launch_delay_ns"]) == (kernel.pk, 4000)
    assert [(link["role"], link["name"]) for link in found["links"]] == [
        ("launched by", "cudaLaunchKernel"), ("operator", "aten::mm")]
    assert [(k["role"], k["name"]) for k in detail(get, profile, "cudaLaunch")["links"]] == [
        ("launches", "gemm"), ("operator", "aten::mm")]
    assert [(k["role"], k["name"]) for k in detail(get, profile, "aten::mm")["links"]] == [
        ("launches", "gemm"), ("calls", "cudaLaunchKernel"), ("backward", "MmBackward0")]
    assert [(k["role"], k["name"]) for k in detail(get, profile, "MmBackward0")["links"]] == [("forward", "aten::mm")]
    nccl = detail(get, profile, "nccl")
    assert (nccl["grid"], nccl["occupancy_pct"], nccl["links"], nccl["launch_delay_ns"]) == (None, None, [], None)


def test_selection(get, profile):
    found = get("selection", profile.pk, start=10_000, end=50_000).json()
    assert (found["slices"], found["busy_ns"], found["truncated"]) == (5, 38_000, False)
    assert {row["name"]: (row["count"], row["total_ns"]) for row in found["rows"]} == {
        "ProfilerStep#0": (1, 40_000), "gemm": (1, 28_000), "ncclAllReduce": (1, 20_000), "aten::mm": (1, 10_000),
        "MmBackward0": (1, 10_000)}
    assert sum(row["share_pct"] for row in found["rows"]) == pytest.approx(100)
    assert get("selection", profile.pk, start=10_000, end=50_000, tracks="0").json()["busy_ns"] == 0


def test_a_real_trace_has_links_both_ways(get):
    profile = profile_of(ingest.read(H200 / "kineto_train.json.gz"))
    kernel = detail(get, profile, "nvjet_sm90")
    assert [link["role"] for link in kernel["links"]] == ["launched by", "operator"]
    call = get("slice", profile.pk, kernel["links"][0]["id"]).json()
    assert kernel["id"] in [link["id"] for link in call["links"] if link["role"] == "launches"]
    backward = detail(get, profile, "MeanBackward0")
    assert json.dumps(backward)
    assert {link["role"] for link in backward["links"]} <= {"launches", "calls", "forward"}


def test_names_by_id(get, profile, monkeypatch):
    every = get("names", profile.pk).json()
    assert every["total"] == len(every["names"]) > 3
    assert get("names", profile.pk, ids="2,0,9999").json() == {
        "names": {"2": every["names"][2], "0": every["names"][0]}, "labels": {}}
    assert get("names", profile.pk, ids="a").status_code == 400
    monkeypatch.setattr("profiles.timeline.selectors.NAMES_AT_ONCE", 2)
    assert get("names", profile.pk).json() == {"names": every["names"][:2], "labels": {}, "total": every["total"]}
    KernelStat.objects.create(profile=profile, name=every["names"][1], short_name="its label", category="compute", launches=1,
                              total_ns=1, mean_ns=1, share_pct=100)
    assert get("names", profile.pk).json()["labels"] == get("names", profile.pk, ids="1").json()["labels"] == {"1": "its label"}
