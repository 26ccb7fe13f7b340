"""A really slower configuration and really slower code are called SLOWER on a GPU, and identical code is not."""

import pytest

from tests.gpu import gate_on_gpu


@pytest.fixture(scope="module")
def measured(report):
    return gate_on_gpu.main(report.folder / "gate_on_gpu.json", runs=5, seconds=150)


def test_identical_code_is_not_blamed(measured):
    assert set(measured["same"]["verdicts"].values()) <= {"PASS", "AMBIGUOUS"}, gate_on_gpu.shown(measured)
    assert sum(one != "PASS" for one in measured["same"]["verdicts"].values()) <= 1


def test_what_is_really_slower_is_called_slower_and_nothing_else(measured):
    found = measured["slow"]["verdicts"]
    assert {key: found[key] for key in gate_on_gpu.EXPECTED} == gate_on_gpu.EXPECTED, gate_on_gpu.shown(measured)
    assert not [key for key, one in found.items() if one == "SLOWER" and key not in gate_on_gpu.EXPECTED]


def test_each_run_was_a_fresh_process_of_its_builds_code(measured):
    assert not [run for run in measured["runs"] if run["rejected"]]
    hashes = {build: {run["source_hash"] for run in measured["runs"] if run["build"] == build and run["kernel"] == "clamp"}
              for build in ("base", "same", "slow")}
    assert hashes["base"] == hashes["same"] != hashes["slow"] and all(len(each) == 1 for each in hashes.values())
    assert all(run["sm_clock_mhz"] and len(run["us"]) == 100 for run in measured["runs"])
