"""Whether files are ranks of one job, by what they state, and what the job is called."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from profiles import ingest
from profiles.analysis.trace.one_job import job_name, why_not

H200 = Path("tests/data/h200")


@pytest.mark.parametrize("files, name", [
    (["train_rank0.json.gz", "train_rank1.json.gz"], "train"),
    (["rank0.pretrain-7b.pt.trace.json", "rank12.pretrain-7b.pt.trace.json"], "pretrain-7b"),
    (["ddp_even_rank0.json.gz", "ddp_even_rank1.json.gz"], "ddp_even"),
    (["node3_worker17.1732550000.pt.trace.json.gz", "node4_worker18.1732550000.pt.trace.json.gz"], ""),
    (["step100.json", "step101.json"], "step"),
    (["llama-8b.rank_0.json", "llama-8b.rank_1.json"], "llama-8b"),
    (["a.json", "b.json"], ""),
    (["one.json"], "one")])
def test_a_job_is_called_what_its_files_share(files: list[str], name: str) -> None:
    assert job_name(files) == name


def test_recorded_ranks_of_one_job_are_one_job() -> None:
    ranks: list[Any] = [(f"ddp_even_rank{rank}.json.gz", ingest.read(H200 / f"ddp_even_rank{rank}.json.gz")) for rank in (0, 1)]
    assert why_not(ranks) is None
    name, why = why_not([ranks[0], ("again.json.gz", ranks[0][1])]) or ("", "")
    assert name == "again.json.gz" and "it is rank 0, as ddp_even_rank0.json.gz is" in why


def stated(rank: int | None, size: int | None) -> Any:
    return SimpleNamespace(rank=rank, metadata={} if size is None else {"distributedInfo": {"world_size": size}})


def test_files_of_different_jobs_say_which_and_why() -> None:
    assert why_not([("a", stated(0, 2)), ("b", stated(1, 4))]) == ("b", "it is of a job of 4 ranks, a of one of 2")
    assert why_not([("a", stated(0, 2)), ("b", stated(5, 2))]) == ("b", "it states rank 5 of 2")
    assert why_not([("a", stated(None, None)), ("b", stated(None, None))]) is None          # nothing is stated
    assert why_not([("a", stated(0, None)), ("b", stated(0, None))]) is None
    odd: Any = SimpleNamespace(rank=0, metadata={"distributedInfo": ["hostile"]})
    assert why_not([("a", odd), ("b", odd)]) is None
