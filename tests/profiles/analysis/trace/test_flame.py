"""Flame graphs of areas, against sums made by walking the trace's slices one by one."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from django.urls import reverse

from profiles import ingest
from profiles.analysis.trace import flame
from profiles.ingest.trace import GPU_WORK, Category, Trace
from profiles.store import area as area_store
from profiles.timeline import flame_selectors
from tests.builders import trace
from tests.profiles.ingest.corpus import H200
from tests.profiles.timeline.test_timeline_api import profile_of

pytestmark = pytest.mark.django_db
ALL = {"start": 0, "end": 10**12}


@pytest.fixture
def get(client):
    def call(pk: int, **query):
        flame_selectors._kept.clear()
        return client.get(reverse("api-selection-flame", args=[pk]), query).json()
    return call


def paths(answer: dict, tree: str = "tree") -> dict[tuple, tuple]:
    """Path of names -> (total, self, count)."""
    nodes, names = answer[tree], answer["names"]
    word = {flame.UNLINKED: "(unlinked)", flame.REST: "(rest)", flame.ROOT: ""}
    path: list[tuple] = []
    for label, parent in zip(nodes["label"], nodes["parent"], strict=True):
        name = names.get(str(label)) or word.get(label) or f"track {flame.TRACK - label}"
        path.append((*path[parent], name) if parent >= 0 else ())
    return {p: (t, s, c) for p, t, s, c in zip(path, nodes["total"], nodes["self"], nodes["count"], strict=True)}


NESTED = """
python (1) / main: step@annotation 0-100 | train.py(3): loop@python 1-99 | aten::mm 5-20 ext=7 | aten::inner 6-12 ext=8 | \
cudaLaunchKernel 8-10 corr=1 ext=8 | aten::mm 30-50 ext=9 | cudaLaunchKernel 32-33 corr=2 ext=9 | cudaGraphLaunch 90-95 corr=3
python (1) / other: aten::mm 0-40 | mark 7
GPU 0 / stream 7: gemm 12-40 corr=1 ext=8 | gemm 45-60 corr=2 ext=9 | ncclAllReduce 61-70 | a 91-93 corr=3 | b 93-99 corr=3
"""


def test_time_of_threads_by_path(get):
    profile = profile_of(trace(NESTED))
    found = paths(get(profile.pk, **ALL))
    step, loop = ("step",), ("step", "train.py(3): loop")
    assert found[step] == (100_000, 2_000, 1) and found[loop] == (98_000, 58_000, 1)
    assert found[(*loop, "aten::mm")] == (35_000, 28_000, 2)
    assert found[(*loop, "aten::mm", "aten::inner", "cudaLaunchKernel")] == (2_000, 2_000, 1)
    assert found[("aten::mm",)] == (40_000, 40_000, 1)
    assert found[()][0] == 140_000
    apart = paths(get(profile.pk, **ALL, merged="false"))
    assert apart[("track 0",)][0] == 100_000 and apart[("track 1", "aten::mm")] == (40_000, 40_000, 1)
    clipped = paths(get(profile.pk, start=10_000, end=35_000, tracks="0"))
    assert clipped[step][0] == 25_000 and clipped[(*loop, "aten::mm")][0] == 10_000 + 5_000


def test_gpu_time_under_the_stack_that_launched_it(get):
    profile = profile_of(trace(NESTED))
    found = paths(get(profile.pk, **ALL, mode="gpu"))
    loop = ("step", "train.py(3): loop")
    assert found[(*loop, "aten::mm", "aten::inner", "cudaLaunchKernel", "gemm")] == (28_000, 28_000, 1)
    assert found[(*loop, "aten::mm")][:2] == (43_000, 0)
    assert found[(*loop, "cudaGraphLaunch")][0] == 8_000 and found[(*loop, "cudaGraphLaunch", "b")] == (6_000, 6_000, 1)
    assert found[("(unlinked)", "ncclAllReduce")] == (9_000, 9_000, 1)
    assert found[()][0] == 28_000 + 15_000 + 9_000 + 8_000
    clipped = paths(get(profile.pk, start=20_000, end=50_000, mode="gpu", tracks="2"))
    assert clipped[()][0] == 20_000 + 5_000 and clipped[(*loop, "aten::mm")][0] == 25_000   # launched before the area


def test_sandwich(get, client):
    profile = profile_of(trace("""
python (1) / main: a 0-100 | f 10-40 | g 12-30 | f 15-25 | h 16-20 | b 50-90 | f 60-80 | h 61-71
"""))
    names = client.get(reverse("api-names", args=[profile.pk])).json()["names"]
    found = get(profile.pk, **ALL, focus=names.index("f"))
    assert paths(found, "callees")[()][0] == 30_000 + 20_000                    # the inner f is not counted twice
    assert paths(found, "callees")[("h",)][0] == 10_000 and paths(found, "callees")[("g", "f", "h")][0] == 4_000
    assert paths(found, "callers")[("a",)][0] == 50_000 - 20_000 and paths(found, "callers")[("b", "a")][0] == 20_000
    hot = {names[row["label"]]: row for row in get(profile.pk, **ALL)["hot"]}
    assert (hot["f"]["total"], hot["f"]["self"], hot["f"]["count"]) == (50_000, 12_000 + 6_000 + 10_000, 3)


@pytest.mark.parametrize("file", ["kineto_train.json.gz", "kineto_layer_stack.json.gz"])
@pytest.mark.parametrize("window_rows", [250, 400_000])
def test_a_recording(get, monkeypatch, file, window_rows):
    monkeypatch.setattr(area_store.windows, "__defaults__", ((), window_rows))
    recorded = ingest.read(H200 / file)
    assert isinstance(recorded, Trace)
    profile = profile_of(recorded)
    rows = recorded.slices.to_pylist()
    stack_of, by_path = stacks(recorded, rows)
    found = paths(get(profile.pk, **ALL))
    assert {p: v[0] for p, v in found.items() if p} == {p: sum(durs) for p, durs in by_path.items()}
    assert {p: v[2] for p, v in found.items() if p} == {p: len(durs) for p, durs in by_path.items()}
    calls = {row["correlation"]: i for i, row in enumerate(rows)
             if row["category"] == Category.RUNTIME and row["correlation"] is not None}
    gpu: dict[tuple, int] = defaultdict(int)
    for row in rows:
        if row["category"] in GPU_WORK:
            call = calls.get(row["correlation"])
            gpu[(*(stack_of[call] if call is not None else ("(unlinked)",)), row["name"])] += row["dur_ns"]
    leaves = {p: v[1] for p, v in paths(get(profile.pk, **ALL, mode="gpu")).items() if v[1]}
    assert leaves == dict(gpu) and len(leaves) > 10


def stacks(recorded: Trace, rows: list[dict]) -> tuple[dict[int, tuple], dict[tuple, list[int]]]:
    """Row -> its path, and path -> durations: of all slices of a track around a slice, the one in the nearest lane above."""
    stack_of: dict[int, tuple] = {}
    by_path: dict[tuple, list[int]] = defaultdict(list)
    for number, track in enumerate(recorded.tracks):
        if track.kind != "thread":
            continue
        mine = [i for i, row in enumerate(rows) if row["track"] == number and not row["instant"]]
        depth, start, dur = (np.array([rows[i][name] for i in mine], np.int64) for name in ("depth", "start_ns", "dur_ns"))
        for at in np.argsort(depth, kind="stable").tolist():
            around = np.flatnonzero((depth < depth[at]) & (start <= start[at]) & (start + dur >= start[at] + dur[at]))
            above = mine[max(around.tolist(), key=lambda i: (depth[i], start[i]))] if around.size else None
            stack_of[mine[at]] = (*(stack_of[above] if above is not None else ()), rows[mine[at]]["name"])
            by_path[stack_of[mine[at]]].append(rows[mine[at]]["dur_ns"])
    return stack_of, by_path


def test_python_stacks_nest():
    """The reader's Python slices lie inside each other: a caller is around its callees, one lane above or higher."""
    recorded = ingest.read(H200 / "kineto_layer_stack.json.gz")
    assert isinstance(recorded, Trace)
    rows = [row for row in recorded.slices.to_pylist() if row["category"] == Category.PYTHON]
    assert len(rows) > 20 and max(row["depth"] for row in rows) >= 3
    track, depth, start, dur = (np.array([row[name] for row in rows]) for name in ("track", "depth", "start_ns", "dur_ns"))
    above = flame.parents(track, depth, start, start + dur)
    inner = np.flatnonzero(above >= 0)
    assert inner.size > 10
    assert (start[above[inner]] <= start[inner]).all() and ((start + dur)[above[inner]] >= (start + dur)[inner]).all()


def test_paths_beyond_the_limit_are_summed_as_the_rest(monkeypatch):
    monkeypatch.setattr(flame, "NODES", 50)
    tree = flame.Tree()
    label = np.arange(200)
    tree.add(tree.children(np.zeros(200, np.int64), label), np.full(200, 10), np.ones(200, np.int64), label)
    tree.sum_up(leaves=False)
    assert tree.total[0] == 2000 and tree.lumped == 151 and len(tree.label) <= 51


def test_only_the_nodes_of_most_time_are_sent(monkeypatch):
    monkeypatch.setattr(flame, "SENT", 20)
    tree = flame.Tree()
    label = np.arange(100)
    tree.add(tree.children(np.zeros(100, np.int64), label), label * 10, np.ones(100, np.int64), label)
    found = flame.tree_columns(tree.sum_up(leaves=False))
    assert len(found["label"]) == 21 and found["label"][-1] == flame.REST and found["nodes"] == 101
    assert sum(found["total"][1:]) == tree.total[0]
