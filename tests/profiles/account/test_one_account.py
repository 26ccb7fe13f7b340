"""One cause, one number: every page of a job takes its causes, its length and its steps from the same place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from profiles.analysis.core.frame import Frame
from profiles.analysis.core.sentences import pct_text, time_text
from profiles.analysis.trace.account.account import Account, account_of
from profiles.analysis.trace.account.result import causes_result
from profiles.analysis.trace.communication.result import communication_result
from profiles.analysis.trace.critical.topic import critical_result
from profiles.analysis.trace.time.result import time_result
from profiles.charts.strip import trace_strip
from tests.profiles.account.planted import PLANTED, play
from tests.profiles.account.test_account import CAUSES_DATA, frame
from tests.profiles.account.test_gains import JOBS

PAIRS = {"recorded, a rank loads": "straggler_data", "recorded, a rank loads, 4 ms": "../ranks/straggler_host"}
PLAYED = {"played, a rank loads": PLANTED["a rank that loads data"][0],
          "played, and catches up": JOBS["once, and the rank catches up"][0](True)}


@pytest.fixture(scope="module", params=[*PAIRS, *PLAYED])
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Frame:
    if request.param in PAIRS:
        return frame(*(CAUSES_DATA / f"{PAIRS[request.param]}_rank{rank}.json.gz" for rank in range(2)))
    return frame(*play(Path(tmp_path_factory.mktemp("job")), PLAYED[request.param]))


def loading(account: Account) -> Any:
    return next(group for group in account.groups if group.cause == "data_loading")


def test_data_loading_is_one_number(job: Frame):
    account = account_of(job)
    group = loading(account)
    assert f": {pct_text(100 * group.wall_ns / account.wall_ns)} of the time." in causes_result(job).answer
    finding = next(each for each in time_result(job).findings if each.rule == "data_loading")
    assert (finding.numbers["data_loading_ns"], finding.numbers["of_ns"]) == (group.wall_ns, account.wall_ns)
    assert finding.worth_ns == group.recoverable_ns
    waited_ns = sum(row.wall_ns for row in group.rows if "waits_in" in row.evidence)
    assert f", {time_text(waited_ns)} of it for data loading (`{group.where}`)." in communication_result(job).answer


def test_the_wait_is_what_the_other_rank_loads(job: Frame):
    """Means over the ranks: what one waits is what the other loads longer, so that the mean is neither's half."""
    group = loading(account_of(job))
    own, waits = (sum(row.wall_ns for row in group.rows if ("waits_in" in row.evidence) == waiting) for waiting in (False, True))
    assert waits == pytest.approx(own, rel=0.03)


def test_the_length_of_the_job_and_of_a_step_is_one_number(job: Frame):
    account, time, critical = account_of(job), time_result(job), critical_result(job)
    assert account.wall_ns == time.numbers["wall_ns"] == critical.numbers["wall_ns"]
    assert account.step_ns == time.numbers["steps"]["mean_ns"] == trace_strip(
        {"wall_ns": account.wall_ns, "devices": [{"wall_ns": account.wall_ns, "busy_ns": 0}], "steps": []},
        causes_result(job).numbers, account.steps).step_mean_ns
    assert critical.answer.startswith(f"The job takes {time_text(account.wall_ns)}; ")
    steps_ns: dict[int, list[int]] = {}                                     # by turn: both ranks take as many
    turns = {"rank 0": 0, "rank 1": 0}
    for step in time.numbers["steps"]["rows"]:
        steps_ns.setdefault(turns[step["rank"]], []).append(step["dur_ns"])
        turns[step["rank"]] += 1
    assert [each["step_ns"] for each in critical.numbers["paths"] if each["step_ns"] is not None] == [
        sum(durations) / 2 for _, durations in sorted(steps_ns.items())]
