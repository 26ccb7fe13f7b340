"""Whether files are ranks of one job, by what they state, and what the job is called."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from profiles import ingest
from profiles.analysis.trace.one_job import CLOCKS_APART_NS, job_name, like_ranks, stated_name, why_not

H200 = Path("tests/data/h200")


@pytest.mark.parametrize("files, name", [
    (["train_rank0.json.gz", "train_rank1.json.gz"], "train"),
    (["rank0.pretrain-7b.pt.trace.json", "rank12.pretrain-7b.pt.trace.json"], "pretrain-7b"),
    (["ddp_even_rank0.json.gz", "ddp_even_rank1.json.gz"], "ddp_even"),
    (["node3_worker17.1732550000.pt.trace.json.gz", "node4_worker18.1732550000.pt.trace.json.gz"], ""),
    (["step100.json", "step101.json"], "step"),
    (["llama-8b.rank_0.json", "llama-8b.rank_1.json"], "llama-8b"),
    (["a.json", "b.json"], ""),
    (["run_2026-11-25_rank0.json", "run_2026-11-25_rank1.json"], "run_2026-11-25"),
    (["1732550000.5-TP-0.trace.json.gz", "1732550000.5-TP-1.trace.json.gz"], ""),
    (["qwen-TP-0.1732550000123.trace.json.gz", "qwen-TP-1.1732550000124.trace.json.gz"], "qwen"),
    (["one.json"], "one"), ([], "")])
def test_a_job_is_called_what_its_files_share(files: list[str], name: str) -> None:
    assert job_name(files) == name


def test_recorded_ranks_of_one_job_are_one_job() -> None:
    ranks: list[Any] = [(f"ddp_even_rank{rank}.json.gz", ingest.read(H200 / f"ddp_even_rank{rank}.json.gz")) for rank in (0, 1)]
    assert why_not(ranks) is None
    name, why = why_not([ranks[0], ("again.json.gz", ranks[0][1])]) or ("", "")
    assert name == "again.json.gz" and "it is rank 0, as ddp_even_rank0.json.gz is" in why


@pytest.mark.parametrize("files, ranks", [
    (["train_rank0.json.gz", "train_rank1.json.gz"], True),
    (["worker3.pt.trace.json", "worker12.pt.trace.json"], True),
    (["node3_77.1732550000123.pt.trace.json.gz", "node4_78.1732550000987.pt.trace.json.gz"], True),
    (["m-TP-0.trace.json.gz", "m-TP-1.trace.json.gz"], True),
    (["dump_0of8.json", "dump_1of8.json"], True),
    (["train_rank0.json", "eval_rank1.json"], False),
    (["train_rank0.json", "train_rank0.zst"], False),                   # the same rank: two runs
    (["http1.json", "http2.json"], False),
    (["step100.json", "step101.json"], False),
    (["a.json", "b.json"], False), (["train_rank0.json"], False), ([], False)])
def test_names_that_differ_in_their_rank_alone_are_ranks_of_one_job(files: list[str], ranks: bool) -> None:
    assert like_ranks(files) is ranks


def stated(rank: int | None, size: int | None, base_ns: int | None = None, end_ns: int = 0, **more: Any) -> Any:
    info = {} if size is None else {"distributedInfo": {"world_size": size, **more}}
    return SimpleNamespace(rank=rank, metadata=info, base_ns=base_ns, parts=SimpleNamespace(end_ns=end_ns))


def group(name: str, ranks: Any, backend: str = "cuda:nccl") -> dict[str, Any]:
    return {"pg_name": name, "pg_desc": "undefined", "backend_config": backend, "ranks": ranks}


CORPUS = Path("tests/data/corpus/kineto")


@pytest.mark.parametrize("one, other, why", [
    ("hta_sampled_rank-0_of128", "hta_sampled_rank-1_of128", ""),
    ("hta_sampled_rank-0_of128", "hta_nccl_data_a100_rank0of2", "it is of a job of 2 ranks, a of one of 128"),
    ("hta_nccl_data_a100_rank0of2", "ddp_even_rank1", "it ran with NCCL 2.28.9, a with NCCL 2.17.1"),
    ("hta_alexnet_a100_critical_path", "hta_cuda_event_sync_multi_stream_a100",       # of no job: rank 0, no world
     "it begins after a ends, 197 days apart: two runs")])
def test_recordings_of_public_repositories(one: str, other: str, why: str) -> None:
    def read(name: str) -> Any:
        return ingest.read((CORPUS if name.startswith("hta") else H200) / f"{name}.json.gz")
    assert why_not([("a", read(one)), ("b", read(other))]) == (("b", why) if why else None)


@pytest.mark.parametrize("name", ["straggler_even", "straggler_compute", "straggler_host", "collectives"])
def test_every_recorded_pair_is_of_one_job_and_those_of_two_runs_are_not(name: str) -> None:
    ranks: list[Any] = [(f"{rank}", ingest.read(Path(f"tests/data/ranks/{name}_rank{rank}.json.gz"))) for rank in (0, 1)]
    assert why_not(ranks) is None
    assert stated_name([each for _, each in ranks]) == "2 ranks, nccl"           # exported to /tmp/tmp…: that says nothing
    later = ingest.read(H200 / "ddp_even_rank1.json.gz")                         # recorded hours before
    assert later.base_ns is not None and ranks[0][1].base_ns - later.base_ns > 3600 * 10**9
    name_, why = why_not([ranks[0], ("ddp", later)]) or ("", "")
    assert name_ == "ddp" and "it ends before 0 begins" in why and why.endswith("apart: two runs")


def test_a_job_is_called_what_its_files_were_exported_as() -> None:
    assert stated_name([ingest.read(H200 / f"ddp_even_rank{rank}.json.gz") for rank in (0, 1)]) == "even"
    few = [ingest.read(CORPUS / f"hta_sampled_rank-{rank}_of128.json.gz") for rank in (0, 1)]
    assert stated_name(few) == "2 of 128 ranks, nccl"
    assert stated_name([stated(None, None), stated(None, None)]) == ""


@pytest.mark.parametrize("mine, theirs, why", [
    ({"backend": "nccl"}, {"backend": "gloo"}, "its ranks talk by gloo, those of a by nccl"),
    ({"backend": "nccl"}, {}, ""),
    ({"pg_config": [group("1", [0, 1])]}, {"pg_config": [group("1", [1, 2])]},
     "its process group '1' has ranks 1, 2, that of a ranks 0, 1"),
    ({"pg_config": [group("1", [0, 1])]}, {"pg_config": [group("1", "[1, 0]")]}, ""),
    ({"pg_config": [group("1", [0, 1])]}, {"pg_config": [group("1", [2, 3])]}, ""),          # one split into two
    ({"pg_config": [group("1", [0, 1])]}, {"pg_config": [group("2", [0, 2])]}, ""),
    ({"pg_config": [group("1", [0, 1])]}, {"pg_config": [group("1", "[0, 2, ...")]}, ""),    # cut: unknown
    ({"pg_config": [group("1", [0, 1])]}, {"pg_config": [group("1", [0, 1], "cpu:gloo")]},
     "its process group '1' is of cpu:gloo, that of a of cuda:nccl"),
    ({"pg_config": {"hostile": 1}}, {"pg_config": [None, 3, {"pg_name": []}]}, "")])
def test_groups_that_contradict_each_other_are_named(mine: dict[str, Any], theirs: dict[str, Any], why: str) -> None:
    assert why_not([("a", stated(0, 4, **mine)), ("b", stated(1, 4, **theirs))]) == (("b", why) if why else None)


def test_times_that_never_meet_are_of_two_runs() -> None:
    first = ("a", stated(0, 2, base_ns=10**18, end_ns=10**9))
    assert why_not([first, ("b", stated(1, 2, base_ns=10**18 + 10**9 + CLOCKS_APART_NS, end_ns=9))]) is None
    assert why_not([first, ("b", stated(1, 2, base_ns=10**18 + 10**9 + CLOCKS_APART_NS + 1, end_ns=9))]) == (
        "b", "it begins after a ends, 5.00 s apart: two runs")
    assert why_not([first, ("b", stated(1, 2))]) is None


def test_files_of_different_jobs_say_which_and_why() -> None:
    assert why_not([("a", stated(0, 2)), ("b", stated(1, 4))]) == ("b", "it is of a job of 4 ranks, a of one of 2")
    assert why_not([("a", stated(0, 2)), ("b", stated(5, 2))]) == ("b", "it states rank 5 of 2")
    assert why_not([("a", stated(None, None)), ("b", stated(None, None))]) is None          # nothing is stated
    assert why_not([("a", stated(0, None)), ("b", stated(0, None))]) is None
    odd: Any = SimpleNamespace(rank=0, metadata={"distributedInfo": ["hostile"]}, base_ns=None, parts=SimpleNamespace(end_ns=0))
    assert why_not([("a", odd), ("b", odd)]) is None
