"""The account of the time: its sum, what leads, and over which ranks it is followed."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
from bisect import bisect_right
from pathlib import Path
from typing import Any

import pytest

from profiles import ingest
from profiles.analysis.core.frame import Frame, frame_of
from profiles.analysis.core.sentences import time_text
from profiles.analysis.trace.account.account import HOST_BOUND, Account, account_of
from profiles.analysis.trace.account.causes import CAUSES, COVERED
from profiles.analysis.trace.account.result import causes_result
from profiles.analysis.trace.launching.topic import launches_result
from profiles.analysis.trace.merge import merge
from profiles.analysis.trace.time.idle import DATA as LOADING
from profiles.charts.trace import LOOKS, cause_lines, leading
from profiles.ingest.trace import Trace, TraceError
from tests.builders import trace
from tests.profiles.account.planted import PLANTED, play
from tests.profiles.ingest.corpus import CORPUS, DATA, H200, larger_are_deep, mostly_deep

CAUSES_DATA, ROOT = DATA / "causes", Path(__file__).parents[3]


def frame(*paths: Path) -> Frame:
    read = [ingest.read(path) for path in paths]
    assert all(isinstance(each, Trace) for each in read)
    return frame_of(read[0] if len(read) == 1 else merge([(path.name, each) for path, each in zip(paths, read, strict=True)]))


def check(account: Account) -> None:
    """Each nanosecond of each GPU in one cause, nothing worth more than itself, all worth together no more than the run."""
    for gpu in account.gpus:
        mine = [row for row in account.rows if row.gpu == gpu]
        assert sum(row.wall_ns for row in mine) == account.wall_ns
        assert all(row.cause in CAUSES and row.wall_ns > 0 for row in mine)
        assert all(0 <= row.recoverable_ns <= row.wall_ns for row in mine if row.recoverable_ns is not None)
        assert len({(row.cause, row.where, row.rank, "waits_in" in row.evidence) for row in mine}) == len(mine)
    whole_ns = account.wall_ns if account.gpus else 0
    assert sum(group.wall_ns for group in account.groups) == pytest.approx(whole_ns, abs=len(account.groups))       # means
    assert (account.lead is None) == (not account.gpus)


FOLDERS = ("kineto", "chrome", "nsys", "perfetto", "xprof", "broken")
TRACES = sorted(path for folder in FOLDERS for path in (CORPUS / folder).rglob("*")
                if path.is_file() and "nsys-rep" not in path.name)


@pytest.mark.slow
@pytest.mark.parametrize("path", larger_are_deep(          # of large ones tests/truth/test_causes.py says so, of a third
    [*TRACES, *sorted(H200.glob("kineto*")), *sorted(CAUSES_DATA.glob("*.json.gz"))]), ids=lambda path: path.name)
def test_causes_add_up_on_every_file(path: Path):
    try:
        found = ingest.read(path)
    except TraceError:
        return                                          # refused: other tests say of which files
    if isinstance(found, Trace):
        result, account = causes_result(frame_of(found)), account_of(frame_of(found))
        check(account)
        assert sum(each.worth_ns or 0 for each in result.findings) <= account.wall_ns + len(account.groups)
        assert result.applies == bool(account.gpus) and result.answer.endswith(".")
        json.dumps(result.numbers, allow_nan=False)
        assert not {each.rule for each in result.findings} & COVERED


def led(result: Any) -> tuple[str, int | None]:
    lead = result.numbers["lead"]
    return lead["cause"], lead["rank"]


@pytest.mark.parametrize("fault", PLANTED)
@pytest.mark.parametrize("seed", mostly_deep([None, 1, 2], "None", "1"))
def test_what_was_planted_leads(fault: str, seed: int | None, tmp_path: Path):
    """With noise every duration is scaled by a factor of its own between 0.7 and 1.3."""
    programs, cause, where, rank = PLANTED[fault]
    found = frame(*play(tmp_path, programs, seed))
    check(account_of(found))
    result = causes_result(found)
    assert led(result) == (cause, rank) and where in result.numbers["lead"]["where"], result.answer


@pytest.mark.parametrize("path", [H200 / "kineto_train.json.gz", *(DATA / "recorded" / f"launch_{name}.json.gz" for name in (
    "host_bound", "queue_full", "streams"))], ids=lambda path: path.name)
def test_a_host_that_does_not_keep_up_leads_as_one_cause(path: Path):
    """Its time stands under three causes: what one change wins back, a CUDA graph, is no less than what leads."""
    found = frame(path)
    result, account = causes_result(found), account_of(found)
    graph = next((each for each in launches_result(found).findings if each.rule == "graphs"), None)
    graph_ns = (graph.worth_ns if graph else None) or 0
    lead, others = result.findings[0], result.findings[1:]
    assert lead.worth_ns is not None and lead.worth_ns >= graph_ns
    assert sum(each.worth_ns or 0 for each in result.findings) <= account.wall_ns
    if graph_ns > max([each.worth_ns or 0 for each in others], default=0) and account.host_bound:
        gains = {each.cause: each.recoverable_ns or 0 for each in account.groups}
        assert lead.worth_ns == sum(gains.get(cause, 0) for cause in HOST_BOUND) == result.numbers["lead"]["recoverable_ns"]
        assert result.numbers["lead"]["cause"] == max(HOST_BOUND, key=lambda cause: gains.get(cause, 0))
        assert f"one CUDA graph wins {time_text(graph_ns)} at most" in result.answer
    shown = leading(cause_lines(result.numbers), 5)
    assert {line.cause for line in shown if line.leads} == set(result.numbers["leads"])
    assert [line.leads for line in shown] == sorted((line.leads for line in shown), reverse=True)
    assert bool(account.host_bound) == (path.name != "launch_streams.json.gz")


def test_a_wait_for_another_rank_is_followed_to_what_it_did(tmp_path: Path):
    """Rank 1 sleeps 8 ms a step in a range; rank 0 waits for it in the all-reduce."""
    result = causes_result(frame(*play(tmp_path, PLANTED["a rank that loads data"][0])))
    assert result.answer.startswith("rank 1 loads data 8.00 ms a step (`## dataload ##`); rank 0 waits for it in the all-reduce: ")
    rows = [row for row in result.numbers["causes"] if row["cause"] == "data_loading"]
    own, waiting = ([row for row in rows if row["gpu"] == gpu] for gpu in (1, 0))
    assert own[0]["rank"] == waiting[0]["rank"] == 1 and waiting[0]["evidence"]["waits_in"] == "all-reduce"
    assert waiting[0]["wall_ns"] == pytest.approx(own[0]["wall_ns"], rel=0.1)


@pytest.mark.parametrize("seed", mostly_deep(range(1, 5), "1"))
@pytest.mark.parametrize("fault", ["a rank that loads data", "a rank with a slow host", "a rank with a slower GPU", "even"])
def test_a_gpu_is_slower_by_what_its_kernels_take_longer_net(fault: str, seed: int, tmp_path: Path):
    """Every duration is scaled by a factor of its own: half of the kernels take longer on either rank: no slower GPU."""
    programs = PLANTED[fault][0] if fault in PLANTED else [PLANTED["a rank that loads data"][0][0]] * 2
    paths = play(tmp_path, programs, seed)
    events = [json.loads(path.read_text())["traceEvents"] for path in paths]
    kernels = [[each for each in mine if each["cat"] == "kernel" and "nccl" not in each["name"]] for mine in events]
    net_us = sum(each["dur"] for each in kernels[1]) - sum(each["dur"] for each in kernels[0])
    account = account_of(frame(*paths))
    for row in account.rows:
        if row.cause == "slow_gpu":
            late = row.evidence.get("waits_for_gpu", row.gpu)
            assert row.wall_ns <= 1000 * (net_us if late else -net_us) + 1000
            said = next(each.evidence for each in account.rows if each.cause == "slow_gpu" and "slower_ns" in each.evidence)
            assert 0 < said["slower_low_ns"] <= said["slower_ns"] <= said["slower_high_ns"]
            assert said["slower_ns"] == pytest.approx(1000 * (net_us if late else -net_us), abs=2000)
    found = sum(row.wall_ns for row in account.rows if row.cause == "slow_gpu")
    assert (found > 0.2 * account.wall_ns) == (fault == "a rank with a slower GPU")


RECORDED = {        # what was recorded on an H200 with a known fault (tests/data/causes/README.md)
    ("data_loading",): ("data_loading", None), ("compile_warmup",): ("compilation", None), ("serial_copies",): ("copies", None),
    ("straggler_compute_rank0", "straggler_compute_rank1"): ("more_work", 1),
    ("straggler_data_rank0", "straggler_data_rank1"): ("data_loading", 0),
    ("../ranks/straggler_host_rank0", "../ranks/straggler_host_rank1"): ("data_loading", 1),
    ("fault_pageable_copies",): ("pageable_copies", None), ("fault_synchronisation",): ("synchronisation", None),
    ("fault_small_kernels",): ("small_kernels", None), ("fault_full_queue",): ("compute", None),
    ("fault_allocator_stalls",): ("allocation", None), ("fault_blocking_memset",): ("memory_traffic", None),
    ("fault_garbage_collection",): ("garbage_collection", None), ("fault_serial_streams",): ("serial_streams", None),
    ("fault_tf32_off",): ("no_tensor_cores", None), ("fault_recompilation",): ("compilation", None)}


def warped(source: Path, target: Path, seed: int) -> Path:
    """The trace with every stretch between two moments of it scaled by 0.7 to 1.3, the same for all ranks: order is kept."""
    document = json.loads(gzip.decompress(source.read_bytes()))
    chance = random.Random(seed)
    edges, mapped = [0.0], [0.0]

    def at(us: float) -> float:
        while edges[-1] <= us:
            edges.append(edges[-1] + step)
            mapped.append(mapped[-1] + step * chance.uniform(0.7, 1.3))
        i = bisect_right(edges, us) - 1
        return mapped[i] + (us - edges[i]) * (mapped[i + 1] - mapped[i]) / step if i + 1 < len(edges) else mapped[i]

    slices = [each for each in document["traceEvents"] if isinstance(each.get("ts"), int | float)]
    first, step = min(each["ts"] for each in slices), 40.0
    for each in sorted(slices, key=lambda each: each["ts"]):
        start, end = at(each["ts"] - first), at(each["ts"] - first + each.get("dur", 0))
        each["ts"] = round(first + start, 3)
        if "dur" in each:
            each["dur"] = round(end - start, 3)
    target.write_text(json.dumps(document))
    return target


@pytest.mark.parametrize("seed", mostly_deep([None, 7], "None"))     # with noise: test_durations_scaled_in_place_change_no_lead
@pytest.mark.parametrize("names", RECORDED, ids=lambda names: names[0])
def test_what_was_recorded_leads(names: tuple[str, ...], seed: int | None, tmp_path: Path):
    paths = [CAUSES_DATA / f"{name}.json.gz" for name in names]
    if seed is not None:
        paths = [warped(path, tmp_path / path.name.removesuffix(".gz"), seed) for path in paths]
    found = frame(*paths)
    check(account_of(found))
    assert led(causes_result(found)) == RECORDED[names]


def test_pinned_copies_still_take_the_link_s_time():
    """768 MB over 16 lanes of 32 GT/s take 12.8 ms at least; what computes beside them is 1.1 ms."""
    account = account_of(frame(CAUSES_DATA / "fault_pageable_copies.json.gz"))
    row = next(row for row in account.rows if row.cause == "pageable_copies")
    assert row.evidence["pinned_ns"] == round(24 * 32 * 2**20 / (16 * 32e9 / 8 * 128 / 130) * 1e9)
    assert row.wall_ns - row.evidence["pinned_ns"] < row.recoverable_ns < row.wall_ns - 11_000_000


@pytest.mark.parametrize("names", mostly_deep(
    RECORDED, "serial_copies',)", "straggler_data_rank1')", "fault_pageable_copies',)", "fault_synchronisation',)",
    "fault_blocking_memset',)", "fault_garbage_collection',)", "fault_tf32_off',)"), ids=lambda names: names[0])
def test_durations_scaled_in_place_change_no_lead(names: tuple[str, ...], tmp_path: Path):
    """As a careless script does it: starts stay, durations are scaled, so that slices may cross their neighbours' begins."""
    chance, paths = random.Random(3), []
    for name in names:
        document = json.loads(gzip.decompress((CAUSES_DATA / f"{name}.json.gz").read_bytes()))
        for each in document["traceEvents"]:
            if "dur" in each:
                each["dur"] = round(each["dur"] * chance.uniform(0.7, 1.3), 3)
        paths.append(tmp_path / f"{Path(name).name}.json")
        paths[-1].write_text(json.dumps(document))
    found = frame(*paths)
    check(account_of(found))
    assert led(causes_result(found)) == RECORDED[names]


def drawn(text: str) -> Frame:
    return frame_of(trace(re.sub(r"\n\s*\|", " |", text)))


def us(account: Account) -> dict[str, float]:
    return {group.cause: group.wall_ns / 1000 for group in account.groups}


def test_a_wait_costs_no_more_than_the_host_waited():
    """The host waits 20 µs for the GPU, then needs 50 µs to launch: it would have needed 30 of them anyway."""
    account = account_of(drawn("""
        python (1) / main: aten::mm 0-12 | cudaLaunchKernel 4-10 corr=1 | cudaStreamSynchronize 20-40 | aten::mm 42-92
            | cudaLaunchKernel 84-90 corr=2
        GPU 0 / stream 7: gemm 11-39 corr=1 | gemm 91-140 corr=2
    """))
    check(account)
    assert us(account)["synchronisation"] == 21 and us(account)["host_launch"] == 10 + 30         # 10 before the first kernel
    assert us(account)["compute"] == 28 + 49


def test_queued_work_is_told_from_work_that_nobody_launched():
    account = account_of(drawn("""
        python (1) / main: aten::mm 0-12 | cudaLaunchKernel 4-10 corr=1 | cudaLaunchKernel 12-14 corr=2
            | cudaLaunchKernel 15-17 corr=3
        GPU 0 / stream 7: gemm 11-30 corr=1 | gemm 33-60 corr=2
        GPU 0 / stream 9: gemm 100-130 corr=3
    """))
    check(account)
    assert us(account)["stream_wait"] == 40 and us(account)["launch_latency"] == 4 and "host_code" not in us(account)
    assert account.groups[0].cause == "stream_wait" and account.groups[0].where == "gemm"


def test_what_has_no_launch_call_is_unknown():
    account = account_of(drawn("""
        python (1) / main: aten::mm 0-12
        GPU 0 / stream 7: gemm 20-50 | gemm 80-120
    """))
    check(account)
    assert us(account) == {"compute": 70, "unknown": 30, "outside": 20} and account.lead and account.lead.cause == "compute"


@pytest.mark.parametrize(("name", "cause"), [
    ("Python GC", "garbage_collection"), ("gc.collect", "garbage_collection"), ("## gc ##", "garbage_collection"),
    ("<built-in function collect>", "garbage_collection"), ("gc_collect", "garbage_collection"), ("agc", "host_code"),
    ("## dataload ##", "data_loading"), ("DataLoader.__next__", "data_loading"), ("load_batch", "data_loading"),
    ("torch/utils/data/dataloader.py(733): __next__", "data_loading"), ("torch.save", "file_io"), ("save_checkpoint", "file_io"),
    ("torch/utils/checkpoint.py(400): checkpoint", "host_code"), ("_compile.compile_inner (dynamo_timed)", "compilation"),
    ("torch/_dynamo/eval_frame.py(1039): _fn", "host_code"), ("train.py(12): garbage_collection", "host_code"),
    ("gloo:barrier", "rank_sync"), ("forward", "host_code")])
def test_what_a_range_of_the_host_stands_for(name: str, cause: str):
    account = account_of(drawn(f"""
        python (1) / main: aten::mm 0-9 | cudaLaunchKernel 2-8 corr=1 | {name}@python 20-90 | aten::mm 91-99
            | cudaLaunchKernel 92-98 corr=2
        GPU 0 / stream 7: gemm 10-20 corr=1 | gemm 100-130 corr=2
    """))
    check(account)
    assert us(account)[cause] >= 70 and next(row for row in account.rows if row.cause == cause).where == name


def test_every_cause_has_words_and_a_look():
    from profiles.analysis.trace.account.words import _SAID

    assert set(CAUSES) == set(LOOKS) == set(_SAID) and LOADING.search("## dataload ##")


# --- the tables of docs/causes.md, written by `make golden` -----------------------------------------------------------------

def between(text: str, name: str) -> str:
    return text.split(f"<!-- {name} -->\n")[1].split(f"<!-- /{name} -->")[0]


@pytest.mark.golden
def test_the_page_of_causes_lists_them():
    check_table("causes", ["| cause | | when time belongs to it |", "|---|---|---|",
                      *(f"| `{key}` | {cause.label} | {cause.means} |" for key, cause in CAUSES.items())])


@pytest.mark.golden
@pytest.mark.deep_only          # that the lead is right: test_what_was_recorded_leads, test_what_was_planted_leads
def test_the_page_of_causes_says_what_was_found(tmp_path: Path):
    rows = ["| fault | how | lead | right | right with noise |", "|---|---|---|---|---|"]
    for names, expected in RECORDED.items():
        paths = [CAUSES_DATA / f"{name}.json.gz" for name in names]
        noisy = [warped(path, tmp_path / path.name.removesuffix(".gz"), 7) for path in paths]
        results = [causes_result(frame(*each)) for each in (paths, noisy)]
        name = Path(names[0]).name.removesuffix("_rank0").removeprefix("fault_").replace("_", " ")
        rows.append(line(name, "recorded", results, expected))
    for fault, (programs, cause, _, rank) in PLANTED.items():
        results = []
        for seed in (None, 1, 2):
            folder = tmp_path / f"{fault} {seed}"
            folder.mkdir()
            results.append(causes_result(frame(*play(folder, programs, seed))))
        rows.append(line(fault, "played", results, (cause, rank)))
    check_table("faults", rows)
    assert "| no |" not in "\n".join(rows)


def check_table(name: str, rows: list[str]) -> None:
    """Fail where a table of docs/causes.md is not this one; `make golden` writes it."""
    page = ROOT / "docs/causes.md"
    text, made = page.read_text(), "\n".join(rows) + "\n"
    there = f"<!-- {name} -->\n" + between(text, name)
    if os.environ.get("RIDGEPOINT_GOLDEN"):
        page.write_text(text.replace(there, f"<!-- {name} -->\n{made}", 1))
    else:
        assert between(text, name) == made


def line(fault: str, how: str, results: list[Any], expected: tuple[str, int | None]) -> str:
    right = ["yes" if led(result) == expected else "no" for result in results]
    said = results[0].answer.replace("|", "\\|")
    return f"| {fault} | {how} | {said} | {right[0]} | {'yes' if set(right[1:]) == {'yes'} else 'no'} |"
