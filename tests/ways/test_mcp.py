"""A program that writes kernels asks the tools of /mcp: the worst kernel, why, a search of it, its result; pages say the same."""

from __future__ import annotations

import csv
import gzip
import json
import time
import urllib.request
from collections import Counter, defaultdict
from typing import Any

import pytest

from tests.browser.visit import H200, WORKED_MS, shows
from tests.ways.conftest import exact, import_files, make_token, open_section, open_setting

EXPORT = H200 / "buildA_raw.csv.gz"         # of five kernels' counters, as Nsight Compute writes it
GPU, TRIALS = "NVIDIA H200", 12
PROBLEM = {"operator": "attention", "shape": {"B": 4, "H": 32, "N": 2048, "D": 64, "causal": 1}, "dtype": "fp16"}    # of attn_fwd
HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
TIME, OCCUPANCY, REGISTERS = ("gpu__time_duration.sum", "sm__warps_active.avg.pct_of_peak_sustained_active",
                              "launch__registers_per_thread")


@pytest.fixture(scope="module")
def exported() -> dict[str, list[dict[str, float]]]:
    """Each kernel's launches as NVIDIA's own tool exports them: µs, %, registers."""
    with gzip.open(EXPORT, "rt") as text:
        rows = list(csv.DictReader(text))
    assert rows[0][TIME] == "us"
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    for row in rows[1:]:
        found[row["Kernel Name"]].append({name: float(row[name]) for name in (TIME, OCCUPANCY, REGISTERS)})
    return found


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    """The recorded landscape of the worst kernel's operator at the shape of its launches."""
    shapes = json.loads(gzip.decompress((H200 / "landscapes" / "attention.json.gz").read_bytes()))["shapes"]
    found: dict[str, Any] = next(each for each in shapes if each["shape"] == PROBLEM["shape"])
    return found


class Program:
    """`ask(tool, …)` sends one request of the protocol; `asked` are the tools of all of them."""

    def __init__(self, address: str, token: str) -> None:
        self.address, self.headers, self.asked = address, {**HEADERS, "Authorization": f"Bearer {token}"}, list[str]()

    def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        self.asked.append(tool)
        body = {"jsonrpc": "2.0", "id": len(self.asked), "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
        request = urllib.request.Request(self.address, json.dumps(body).encode(), self.headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            result = json.load(answer)["result"]
        assert not result.get("isError"), result
        told: dict[str, Any] = result["structuredContent"]
        return told


def test_from_the_worst_kernel_to_the_result_of_a_search(
        watched: Any, server_url: str, exported: dict[str, list[dict[str, float]]], recorded: dict[str, Any]) -> None:
    page = watched
    page.goto(server_url)
    import_files(page, EXPORT, build="mcp-1")
    page.locator("[data-files] a", has_text="Open").click()
    page.wait_for_url("**/profiles/*/")
    profile = int(page.url.rstrip("/").rsplit("/", 1)[1])
    page.locator("table.top-kernels tbody a").first.click()
    page.wait_for_url("**/kernels/*/")
    kernel, shown = int(page.url.rstrip("/").rsplit("/", 1)[1]), on_its_page(page)
    program = Program(*address_and_token(page))

    worst = program.ask("list_worst_kernels", profile=profile, limit=10)["kernels"]
    name, launches = max(exported.items(), key=lambda item: sum(each[TIME] for each in item[1]))
    assert {row["short_name"]: round(row["total_ns"]) for row in worst} == {
        each: round(sum(one[TIME] for one in rows) * 1000) for each, rows in exported.items()}
    assert (worst[0]["id"], worst[0]["short_name"], worst[0]["launches"]) == (kernel, name, len(launches))
    assert round(worst[0]["total_ns"]) in shown["times_ns"]
    why(program.ask("get_kernel", profile=profile, kernel=kernel), launches, shown["text"])

    job = program.ask("start_tune_job", **PROBLEM, gpu=GPU, budget_trials=TRIALS)
    assert job["device"] == "replay:attention"
    done = ended(program, job["job"])
    result(page, job["job"], done, recorded)
    assert program.ask("get_served_config", **PROBLEM, gpu=GPU)["rule"] == "default"         # a recording serves who asks for one
    served = program.ask("get_served_config", **PROBLEM, gpu=GPU, recorded=True)
    assert (served["rule"], served["config"]) == ("exact", done["best_config"])
    written_down(page, program, job["job"])


def address_and_token(page: Any) -> tuple[str, str]:
    """As somebody connects a program: a token of one's own, and the address that Settings · Agents shows."""
    token = make_token(page, "kernel writer")
    open_setting(page, "Agents")
    return page.locator("#connect code").first.inner_text(), token


def on_its_page(page: Any) -> dict[str, Any]:
    """Return what the page of the worst kernel says: its words, and every time on it in ns."""
    shows(page.locator("main"), "What would help")
    return {"text": page.locator("main").inner_text(),
            "times_ns": [round(exact(each)) for each in page.locator("main .num[title$=' ns']").all()]}


def why(told: dict[str, Any], launches: list[dict[str, float]], shown: str) -> None:
    """The tool's reasons are what the report's counters say, and what the kernel's page shows."""
    longest = max(launches, key=lambda each: each[TIME])
    assert round(told["counters"]["duration_ns"]) == round(longest[TIME] * 1000)
    assert told["counters"]["occupancy"]["achieved_pct"] == pytest.approx(longest[OCCUPANCY], abs=0.01)
    assert told["kernel"]["registers_per_thread"] == longest[REGISTERS]
    assert f"{told['kernel']['bound'].capitalize()}-bound" in shown
    assert told["advice"][0]["title"].replace("`", "") in shown


def ended(program: Program, job: int) -> dict[str, Any]:
    """The job as the tool tells it once it has ended; a program asks until then."""
    end = time.monotonic() + WORKED_MS / 1000
    while (told := program.ask("get_job", job=job, trials=100))["status"] in ("queued", "running"):
        assert time.monotonic() < end, told
        time.sleep(0.5)
    assert told["status"] == "done", told
    return told


def result(page: Any, job: int, done: dict[str, Any], recorded: dict[str, Any]) -> None:
    """Every time that the job tells is the recorded one; the best is the smallest of them, on its page too."""
    times = {json.dumps(row["config"], sort_keys=True): row.get("median_ms") for row in recorded["rows"]}
    tried = [times[json.dumps(trial["config"], sort_keys=True)] for trial in done["attempts"]]
    assert len(tried) == TRIALS and [trial["median_ms"] for trial in done["attempts"]] == pytest.approx(tried)
    best = min(each for each in tried if each)
    assert done["best_ms"] == pytest.approx(best) == times[json.dumps(done["best_config"], sort_keys=True)]
    assert done["library_ms"] == pytest.approx(recorded["library_ms"])
    open_section(page, "Tune")
    page.locator(f"main a[href='/tune/{job}/']").first.click()
    answer = page.locator("#tune-answer")
    shows(answer, f"{recorded['library_ms'] / best:.2f}× the library,")
    shows(answer, f"{TRIALS} trials")
    assert exact(answer.locator(".num").first) == pytest.approx(best)


def written_down(page: Any, program: Program, job: int) -> None:
    """Settings · Agents lists each call that the program made, and the one that started the job leads to it."""
    open_setting(page, "Agents")
    rows = page.locator("tbody tr", has_text="kernel writer").filter(has=page.locator("td.mono"))
    assert Counter(rows.locator("td:nth-child(3)").all_inner_texts()) == Counter(program.asked)
    rows.filter(has_text="start_tune_job").get_by_role("link", name=f"job {job}").click()
    shows(page.locator("#tune-answer"), f"{TRIALS} trials")
