"""A suite from nothing, a first build that is not red, a slower one that CI sends, its verdict, and who looks after it."""

from __future__ import annotations

import gzip
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import expect

from tests.browser.visit import H200, WORKED_MS, eventually, reads, shows
from tests.ways.conftest import Team, invite, join, make_token, open_section

SUITE, FIRST, SLOW, ENGINEER = "decode", "good-1", "bad-2", "bela"
SOFTMAX, OTHER = {"STEPS": 3, "PER_SM": 32, "num_warps": 8}, {"STEPS": 3, "PER_SM": 8, "num_warps": 8}
LAYERNORM = {"BLOCK": 1024, "num_warps": 4, "num_stages": 2}
KEY, STEADY = "softmax R=8192 C=4096 fp16", "layernorm R=8192 C=4096 fp16"
RUNS = 6
Medians = dict[tuple[str, str], list[float]]        # operator, configuration: the median of each recorded process, µs


def config_text(config: dict[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in config.items())


@pytest.fixture(scope="module")
def medians() -> Medians:
    """What was recorded, counted here."""
    found: Medians = defaultdict(list)
    for line in gzip.decompress((H200 / "timing_runs.jsonl.gz").read_bytes()).splitlines():
        row = json.loads(line)
        if "us" in row:
            found[row["op"], config_text(row["config"])].append(statistics.median(row["us"]))
    return found


def test_a_slower_build_is_found_and_given_to_somebody(team: Team, owner: Any, visitors: Callable[[], Any], medians: Medians,
                                                       tmp_path: Path) -> None:
    other = visitors()
    join(other, invite(owner, "engineer"), ENGINEER)
    make_suite(owner)
    first_build_is_not_red(owner, medians)
    slower_build(owner, team, tmp_path)
    change = verdict(owner, medians)
    give_to(owner, ENGINEER)
    finds_it_in_the_inbox(other, change)


def make_suite(page: Any) -> None:
    open_section(page, "Guard", "Suites")
    page.get_by_role("link", name="New suite").click()
    page.get_by_label("Name").fill(SUITE)
    page.get_by_label("Kernels, one a line").fill(f"{KEY} {{{config_text(SOFTMAX)}}}\n{STEADY} {{{config_text(LAYERNORM)}}}")
    page.get_by_label("Where", exact=True).fill("replay:timing_runs")
    page.locator("#save").click()
    shows(page.locator(".notice"), f"{SUITE}: made; 2 kernels added")
    shows(page.locator("#suite-answer .answer"), "2 kernels · not measured yet")


def first_build_is_not_red(page: Any, medians: Medians) -> None:
    """There is nothing to compare it with; its page says so and what was measured, and nothing on it warns in red."""
    page.get_by_role("link", name="Start a gate").click()
    page.get_by_label("Build", exact=True).fill(FIRST)
    page.get_by_label("Fresh runs").fill(str(RUNS))
    page.get_by_role("button", name="Start the gate").click()
    page.locator("[data-state-of-gate=no]", has_text="NO DATA").wait_for(timeout=WORKED_MS)
    eventually(lambda: red(page) == [])
    page.get_by_role("link", name="Suite", exact=True).click()
    shows(page.locator("#suite-answer .answer"), f"newest build {FIRST}")
    for key, config in ((KEY, SOFTMAX), (STEADY, LAYERNORM)):
        row = page.locator("#kernels tbody tr", has=page.get_by_role("link", name=key))
        shown = float(row.locator("td").nth(2).inner_text())
        page.get_by_role("link", name=key).last.click()
        runs = [float(each) for each in page.locator("tbody tr[id^=run-] td:nth-child(3)").all_inner_texts()]
        recorded = {round(each, 3) for each in medians[key.split()[0], config_text(config)]}
        assert len(runs) == len(set(runs) & recorded) + (len(runs) - len(set(runs))) and len(runs) == RUNS
        assert shown == pytest.approx(statistics.median(runs), abs=0.006)
        page.go_back()
    page.locator("#suite-answer").get_by_role("link", name=FIRST).click()
    eventually(lambda: red(page) == [])


def red(page: Any) -> list[str]:
    """Return what stands on the page in the colour or with the mark of something wrong; buttons that delete are none."""
    found: list[str] = page.locator("main").evaluate("""main => {
        const bad = getComputedStyle(document.documentElement).getPropertyValue("--bad").trim();
        const probe = main.appendChild(document.createElement("i"));
        probe.style.color = bad;
        const colour = getComputedStyle(probe).color;
        probe.remove();
        return [...main.querySelectorAll("*")].filter((each) => each.checkVisibility() && !each.closest(".btn-danger")
            && (getComputedStyle(each).color === colour || each.matches(".notice-error, .mark-bad, .v-slower")))
            .map((each) => each.outerHTML.slice(0, 200)); }""")
    return found


def slower_build(page: Any, team: Team, folder: Path) -> None:
    """A pipeline's step: a token and the client as a person takes them, its exit code as CI sees it."""
    token = make_token(page, "pipeline")
    client = folder / "ridgepoint_gate.py"
    asked = Request(f"{team.url}/api/gates/client/ridgepoint_gate.py", headers={"Authorization": f"Token {token}"})
    with urlopen(asked, timeout=60) as answer:
        client.write_bytes(answer.read())
    (folder / "configs.json").write_text(json.dumps({KEY: OTHER}))
    said = {"PATH": os.environ["PATH"], "RIDGEPOINT_URL": team.url, "RIDGEPOINT_TOKEN": token}
    done = subprocess.run([sys.executable, "-I", client, "--suite", SUITE, "--build", SLOW, "--parent", FIRST, "--configs",
                           "configs.json"], cwd=folder, env=said, text=True, capture_output=True, timeout=180)
    assert done.returncode == 1, done.stderr
    assert "SLOWER" in done.stdout and KEY in done.stdout


def verdict(page: Any, medians: Medians) -> str:
    """From Overview to the evidence: the change is that of the medians of the runs listed, each of them a recorded one."""
    open_section(page, "Overview")
    line = page.locator("#live-slower li", has_text=KEY)
    shows(line, f"{FIRST} → {SLOW} · {SUITE}")
    on_overview = line.locator(".mark-bad").inner_text()
    line.get_by_role("link", name="evidence").click()
    page.wait_for_url("**/kernels/*/")
    assert red(page) != []                                                   # here it is red
    sides: dict[str, list[float]] = {}
    for side, config in (("baseline", SOFTMAX), ("candidate", OTHER)):
        rows = page.locator("#live-runs tbody tr", has=page.get_by_role("cell", name=side, exact=True))
        sides[side] = [float(each) for each in rows.locator("td:nth-child(5)").all_inner_texts()]
        assert sides[side] and set(sides[side]) <= {round(each, 2) for each in medians["softmax", config_text(config)]}
    old, new = (statistics.median(each) for each in sides.values())
    answer = page.locator("#live-answer .answer")
    shows(answer, KEY)
    change = float(answer.locator("b .num").get_attribute("title").split()[0])
    assert change == pytest.approx(new / old, abs=0.001)
    expect(answer.locator("b")).to_have_text(f"+{100 * (change - 1):.1f} %", use_inner_text=True)
    assert on_overview == f"▲ {answer.locator('b').inner_text()}"
    truth = [statistics.median(medians["softmax", config_text(each)]) for each in (SOFTMAX, OTHER)]
    assert change == pytest.approx(truth[1] / truth[0], abs=0.01)             # of all recorded processes
    return str(on_overview)


def give_to(page: Any, name: str) -> None:
    """From the evidence to the regression: a comment opens its thread, which is assigned."""
    page.locator("#live-answer").get_by_role("link", name="regression").click()
    page.wait_for_url("**/regressions/*/")
    page.get_by_label("Comment", exact=True).fill("PER_SM went from 32 to 8")
    page.get_by_role("button", name="Comment", exact=True).click()
    page.get_by_label("Assignee").fill(name)
    page.get_by_role("button", name="Assign").click()
    shows(page.locator("#thread header"), f"assigned to {name}")


def finds_it_in_the_inbox(page: Any, change: str) -> None:
    """One unread line leads to the thread, the thread to the regression with the same change."""
    page.reload()
    reads(page.locator("#inbox-count"), "1 unread")
    page.locator("#inbox-link").click()
    line = page.locator("ul.inbox li")
    expect(line).to_have_count(1)
    line.locator("a.what").click()
    shows(page.locator("#thread"), "PER_SM went from 32 to 8")
    page.locator("p.answer a").click()
    page.wait_for_url("**/regressions/*/")
    shows(page.locator("#live-answer"), SLOW)
    shows(page.locator("#live-found"), KEY)
    shows(page.locator("#live-found"), change.removeprefix("▲ "))
    open_section(page, "Overview")
    expect(page.locator("#inbox-count")).to_have_count(0)
