"""What an ordinary CI sends: a faster build and the return from it, a fork's pull request from its main, a vanished kernel, a slip
of units. Each exit code is what the pipeline's client ends with, each sentence what the gate's page says."""

from __future__ import annotations

import gzip
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tests.browser.visit import H200, shows
from tests.ways.conftest import Team, make_token, open_section

SUITE, REPOSITORY = "traps", "acme/kernels"
SOFTMAX = {"STEPS": 3, "PER_SM": 32, "num_warps": 8}
LAYERNORM = {"BLOCK": 1024, "num_warps": 4, "num_stages": 2}
PASS, SLOWER, UNDECIDED = 0, 1, 2


class Pipeline:
    """One job of a CI after the other, with the variables that GitHub documents. Runs are recorded ones, others for each build."""

    def __init__(self, team: Team, token: str, folder: Path) -> None:
        self.team, self.folder, self.built = team, folder, 0
        self.said = {"PATH": os.environ["PATH"], "RIDGEPOINT_URL": team.url, "RIDGEPOINT_TOKEN": token}
        asked = Request(f"{team.url}/api/gates/client/ridgepoint_gate.py", headers={"Authorization": f"Token {token}"})
        with urlopen(asked, timeout=60) as answer:
            (folder / "ridgepoint_gate.py").write_bytes(answer.read())
        self.recorded = [json.loads(line) for line in gzip.decompress((H200 / "timing_runs.jsonl.gz").read_bytes()).splitlines()]

    def runs(self, speed: float, operators: Iterable[str]) -> tuple[Path, float]:
        """Write eight processes of each operator, softmax at `speed` times its time; return the file and softmax's median, µs.

        Each build has another stretch of the recorded samples: the same ones would be refused, as they should.
        """
        first, begin = 1 + 8 * (self.built % 3), 4 * self.built
        lines, medians = [], []
        for row in self.recorded:
            if "us" not in row or row["op"] not in operators or row["config"] not in (SOFTMAX, LAYERNORM):
                continue
            if first <= row["run"] < first + 8:
                factor = speed if row["op"] == "softmax" else 1.0
                us = [each * factor for each in row["us"][begin:begin + 50]]
                lines.append({**{name: row[name] for name in ("run", "op", "shape")}, "us": us})
                medians += [statistics.median(lines[-1]["us"])] if row["op"] == "softmax" else []
        file = self.folder / f"runs-{self.built}.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return file, statistics.median(medians) if medians else 0.0

    def send(self, speed: float = 1.0, operators: Iterable[str] = ("softmax", "layernorm"),
             **variables: str) -> tuple[int, str, str, float]:
        """Send a build; return the client's exit code, its output, the build's name and softmax's median, µs."""
        self.built += 1
        build = f"{self.built:040x}"
        file, median = self.runs(speed, operators)
        said = {"GITHUB_ACTIONS": "true", "GITHUB_REPOSITORY": REPOSITORY, "GITHUB_EVENT_NAME": "push",
                "GITHUB_REF": "refs/heads/main", "GITHUB_SHA": build, "GITHUB_RUN_ID": str(self.built), "GITHUB_RUN_ATTEMPT": "1",
                **variables}
        done = subprocess.run(
            [sys.executable, "-I", "ridgepoint_gate.py", "--suite", SUITE, "--runs", file.name, "--gpu", "NVIDIA H200",
             "--toolkit", "cuda 13.0, triton 3.6.0"], cwd=self.folder, env={**self.said, **said}, text=True, capture_output=True,
            timeout=120)
        return done.returncode, done.stdout + done.stderr, build, median


def test_what_an_ordinary_ci_sends_leads_no_gate_astray(team: Team, owner: Any, tmp_path: Path) -> None:
    open_section(owner, "Guard", "Suites")
    owner.get_by_role("link", name="New suite").click()
    owner.get_by_label("Name").fill(SUITE)
    owner.get_by_label("Runs that CI measures itself and sends").check()
    owner.locator("#save").click()
    shows(owner.locator(".notice"), f"{SUITE}: made")
    pipeline = Pipeline(team, make_token(owner, "pipeline of traps"), tmp_path)
    returns_after_an_improvement(owner, pipeline)
    a_fork_is_never_the_main_line(owner, pipeline)
    a_kernel_vanishes(owner, pipeline)
    a_unit_slips(owner, pipeline)


def newest_gate(page: Any) -> None:
    """Open the newest gate by hand: Guard, Gates, the first line."""
    open_section(page, "Guard", "Gates")
    page.locator("table tbody tr", has_text=SUITE).first.get_by_role("link").first.click()
    page.wait_for_url("**/gates/*/")


def returns_after_an_improvement(page: Any, pipeline: Pipeline) -> None:
    """The baseline holds one level: what comes back after a faster build is slower, and the page names whose speed it has."""
    assert pipeline.send()[0] == PASS                                   # the first: nothing to compare with
    code, said, _, _ = pipeline.send()
    assert code == PASS, said
    code, said, _, faster = pipeline.send(0.8)
    assert code == PASS and "FASTER" in said, said
    code, said, _, back = pipeline.send()
    assert code == SLOWER, said
    newest_gate(page)
    answer = page.locator("p.answer")
    shows(answer, f"{faster:.1f} → {back:.1f} µs")
    shows(answer, "back at the speed of build")
    assert 100 * (back / faster - 1) > 20
    code, said, _, _ = pipeline.send(0.8)                               # mended
    assert code == PASS, said


def a_fork_is_never_the_main_line(page: Any, pipeline: Pipeline) -> None:
    """A fork's pull request comes from a branch that is called main: its slower code is SLOWER, and no later build's baseline."""
    event = pipeline.folder / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 12, "head": {"ref": "main", "sha": "f" * 40, "repo": {
        "full_name": "somebody/kernels"}}, "base": {"ref": "main", "repo": {"full_name": REPOSITORY}}}}))
    code, said, _, _ = pipeline.send(1.1, GITHUB_EVENT_NAME="pull_request", GITHUB_REF="refs/pull/12/merge", GITHUB_HEAD_REF="main",
                                     GITHUB_BASE_REF="main", GITHUB_EVENT_PATH=str(event))
    assert code == SLOWER, said
    newest_gate(page)
    shows(page.locator("main"), "pull/12/main")
    code, said, _, _ = pipeline.send(0.8)
    assert code == PASS and "FASTER" not in said, said


def a_kernel_vanishes(page: Any, pipeline: Pipeline) -> None:
    """What the baseline has and the build has not is no PASS, until somebody says that it is meant."""
    code, said, _, _ = pipeline.send(0.8, ("softmax",))
    assert code == UNDECIDED and "layernorm" in said, said
    newest_gate(page)
    shows(page.locator("p.answer"), "layernorm")
    page.locator("#accept-gone").click()
    shows(page.locator("main"), "PASS")
    code, said, _, _ = pipeline.send(0.8, ("softmax",))
    assert code == PASS, said


def a_unit_slips(page: Any, pipeline: Pipeline) -> None:
    """Milliseconds sent as microseconds are a thousandth of the time: believed by nobody, and no baseline."""
    code, said, _, _ = pipeline.send(0.8 / 1000, ("softmax",))
    assert code == UNDECIDED and "units" in said, said
    newest_gate(page)
    shows(page.locator("p.answer"), "units")
    code, said, _, _ = pipeline.send(0.8, ("softmax",))
    assert code == PASS, said
