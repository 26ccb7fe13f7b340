"""A residue that was measured before: which row is a job's, what the agent does with it, which files are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.workers.agent.test_collecting import SimulatedCupti, finish, quick, start, until
from workers.agent import collecting
from workers.agent.controller import Limits
from workers.agent.identity import Identity
from workers.agent.residue.given import Residue, ResidueRefused, find_residue, kind_of, read_residues

__all__ = ["quick"]
PLACE = {"gpu": "NVIDIA H200", "driver": "CUDA 13.0", "cupti": 130001}


def line(**more: Any) -> dict[str, Any]:
    return {"result": "residue", "variant": "late", "workload": "gemm", "kind": "gpu-bound", **PLACE, "loss_pct": 0.1,
            "low_pct": -0.1, "high_pct": 0.3, **more}


def row(**more: Any) -> Residue:
    found = line(**more)
    return Residue(*(found[name] for name in ("gpu", "driver", "cupti", "kind", "loss_pct", "low_pct", "high_pct")))


def test_the_lines_of_the_measurement_are_read(tmp_path: Path) -> None:
    path = tmp_path / "residue.jsonl"
    assert read_residues({}, path) == []
    lines = [line(), line(variant="none"), {"result": "died", "status": -6}, line(kind="graphs", high_pct=7.5)]
    path.write_text("\n\n".join(map(json.dumps, lines)))
    assert read_residues({}, path) == [row(), row(kind="graphs", high_pct=7.5)]
    assert read_residues({"RIDGEPOINT_AGENT_RESIDUE": str(path)}, tmp_path / "none") == read_residues({}, path)


@pytest.mark.parametrize("text, why", [
    ("[1]", "line 1: .*no object"), ("{", "line 1"), ("\n" + json.dumps(line(kind="any")), "line 2: .*kind is one of"),
    (json.dumps(line(high_pct=float("nan"))), "does not hold"), (json.dumps(line(low_pct=0.2)), "does not hold"),
    (json.dumps({"result": "residue", "variant": "late"}), "loss_pct"),
    ("[" * 100_000, "line 1"), (" " * (1 << 20) + "{}", "more than")])
def test_other_files_are_refused_with_the_line(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "residue.jsonl"
    path.write_text(text)
    with pytest.raises(ResidueRefused, match=why):
        read_residues({"RIDGEPOINT_AGENT_RESIDUE": str(path)})
    with pytest.raises(ResidueRefused, match="RIDGEPOINT_AGENT_RESIDUE: "):
        read_residues({"RIDGEPOINT_AGENT_RESIDUE": str(tmp_path)})


def test_a_row_holds_for_its_gpu_driver_cupti_and_kind_only() -> None:
    rows = [row(), row(high_pct=0.4), row(gpu="NVIDIA H100"), row(kind="training")]
    asked = {**PLACE, "kind": "gpu-bound"}

    def find(gpus: list[str] | None = None, **more: Any) -> Residue | None:
        own = {**asked, **more}
        return find_residue(rows, gpus or ["NVIDIA H200"], own["driver"], own["cupti"], own["kind"])

    found = find()
    assert found is not None and found.high_pct == 0.4                      # the dearer of two
    assert find(gpus=["NVIDIA H200", "NVIDIA H100"]) == found
    for more in ({"gpus": ["NVIDIA B200"]}, {"gpus": ["NVIDIA H200", "NVIDIA B200"]}, {"driver": "CUDA 13.1"}, {"cupti": 130100},
                 {"kind": "graphs"}, {"kind": ""}):
        assert find(**more) is None


@pytest.mark.parametrize("replays, updates, active_pct, kind", [
    (1, 1, None, "graphs"), (0, 0, None, ""), (0, 5, 12.0, "launch-bound"), (0, 5, 60.0, "training"), (0, 0, 60.0, "gpu-bound")])
def test_kinds_of_jobs(replays: int, updates: int, active_pct: float | None, kind: str) -> None:
    assert kind_of(replays, updates, active_pct, 30.0) == kind


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, quick: None) -> None:
    monkeypatch.setattr(collecting, "used_devices", lambda: [("GPU-1", "NVIDIA H200")])
    monkeypatch.setattr(collecting, "driver_version", lambda: PLACE["driver"])
    monkeypatch.setattr(collecting, "cupti_version", lambda: PLACE["cupti"])


@pytest.mark.parametrize("kind, sms, replays", [("gpu-bound", 90.0, 0), ("launch-bound", 5.0, 0), ("graphs", None, 3)])
def test_jobs_that_would_lose_too_much_are_never_attached_to(here: None, kind: str, sms: float | None, replays: int) -> None:
    simulated = SimulatedCupti()
    own, windows = start(simulated, sms, residues=[row(kind=kind, high_pct=60.0)], graphs=True)     # the limit here: 50 %
    own.steps.replays = replays
    until(own, lambda: "as measured" in own.why)
    assert f"-0.10 to 60.00 % of {kind} jobs" in own.why and own.state == "not collected"
    assert not simulated.attached and not windows
    finish(own)


def test_a_measured_residue_admits_jobs_with_graphs_and_is_told(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "MOST_DRIFT_PCT", 1e9)                  # of this machine, which others use as well
    own, windows = start(SimulatedCupti(), None, residues=[row(kind="graphs", loss_pct=2.0, low_pct=1.0, high_pct=3.0)])
    own.steps.replays = 3
    until(own, lambda: len(windows) >= 2)
    assert own.controller is not None and own.controller.residue_is_given and own.residue_pct() == (2.0, 3.0)
    told = own.report()
    assert told is not None and told.loss_high_pct >= 3.0
    finish(own)


def test_a_row_of_another_kind_of_job_changes_nothing(here: None) -> None:
    own, windows = start(SimulatedCupti(), 90.0, residues=[row(kind="graphs", high_pct=60.0)])
    until(own, lambda: windows)
    assert own.controller is not None and not own.controller.residue_is_given
    finish(own)


def test_a_row_that_the_job_contradicts_is_left() -> None:
    own = collecting.Collecting(Identity("j", "", "", "h", 0, ""), Limits(), lambda windows: None)
    own.given = row()
    own.calm_ns = [1e6, 1.01e6, 0.99e6] * 10
    own.quiet_ns.extend(each * 1.03 for each in own.calm_ns)                # a drift may be so large
    assert own.residue_pct() == (0.1, 0.3)
    own.quiet_ns.clear()
    own.quiet_ns.extend(each * 1.10 for each in own.calm_ns)
    assert own.residue_pct()[0] == pytest.approx(10.0)
