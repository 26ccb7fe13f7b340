"""From the ranking to a kernel's problem, a search over a recording, a job that is served its result, and the guard."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.visit import H200, WORKED_MS, fits, poll, shows
from tests.ways.conftest import by_name, duration_ns, events_of, exact, import_files, kernels_of, make_token, open_section

MODEL, GPU = "way-layer", "NVIDIA H200"
SHAPE = {"R": 65536, "C": 768}              # of layer norms that are recorded as a landscape on this GPU
SUITE, KEY = "problems-nvidia-h200", "layernorm R=65536 C=768 fp16"
LAUNCHES, MOST_CLICKS = 7, 6
# what a person does, as the browser tells it: trusted clicks and keys, over all pages of the visit
COUNT = """const add = (name) => (event) => { if (event.isTrusted) sessionStorage[name] = +(sessionStorage[name] ?? 0) + 1; };
addEventListener("click", add("clicks"), true);
addEventListener("keydown", add("keys"), true);"""
# what a training job does: the line that the page offers, its launches counted, as docs/client.md says
JOB = """
import json, ridgepoint_client
client = ridgepoint_client.connected()
assert client.refresh(60), client.problem           # by itself a job waits 3 s, then launches defaults
{line}
served = ridgepoint_client.best("layernorm", "fp16", R=65536, C=768)
served.launches += {launches}
print(json.dumps({{"config": config, "rule": served.rule, "entry": served.entry}}))
assert client.report(60), client.problem
"""


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two traces of one transformer layer, recorded on an H200; the layer norms of the first are told to be of `SHAPE`."""
    whole = json.loads(gzip.decompress((H200 / "kineto_layer.json.gz").read_bytes()))
    for each in whole["traceEvents"]:
        if "layer_norm" in each.get("name", "") and (told := each.get("args", {})).get("Input Dims"):
            told["Input Dims"][0], told["Input Dims"][2:4] = [1, *SHAPE.values()], [[SHAPE["C"]]] * 2
            told["Concrete Inputs"][1] = f"[{SHAPE['C']}]"
    first, second = tmp_path / "layer.json", tmp_path / "stack.json.gz"
    first.write_text(json.dumps(whole))
    second.write_bytes(gzip.compress(gzip.decompress((H200 / "kineto_layer_stack.json.gz").read_bytes()) + b"\n", 1))
    return [first, second]


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    """The landscape of the shape: ms of each configuration, and of the library."""
    found = json.loads(gzip.decompress((H200 / "landscapes" / "layernorm.json.gz").read_bytes()))["shapes"]
    one = next(each for each in found if each["shape"] == SHAPE)
    return {"library": one["library_ms"], "times": {text(row["config"]): row["median_ms"] for row in one["rows"]}}


def text(config: dict[str, Any]) -> str:
    return json.dumps(config, sort_keys=True)


def norms(file: Path) -> list[dict[str, Any]]:
    """Return the kernels of the file's layer norms: launch and operator share an id."""
    events = events_of(file)
    asked = {each["args"]["External id"] for each in events if each.get("cat") == "cpu_op" and "layer_norm" in each["name"]}
    return [each for each in kernels_of(events) if each["args"].get("External id") in asked]


def test_from_the_ranking_to_a_served_and_guarded_kernel(watched: Any, server_url: str, files: list[Path],
                                                         recorded: dict[str, Any], tmp_path: Path) -> None:
    page = watched
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.add_init_script(COUNT)
    page.goto(server_url)
    import_files(page, *files, build="way-1", model=MODEL)
    launches = norms(files[0])
    ranked(page, files, launches[0]["name"])
    profiled(page, launches)
    page.get_by_role("button", name="Tune", exact=True).click()               # 2
    other = page.context.new_page()                                     # while it searches
    other.goto(server_url)
    client, token = client_and_token(other, tmp_path)
    other.close()
    poll(page, "!document.querySelector('#state-tuned[data-topic]')", WORKED_MS)        # without a reload
    line = tuned(page, recorded)
    answer = job(server_url, client, token, line)
    served(page, answer, recorded)
    guarded(page)


def ranked(page: Any, files: list[Path], name: str) -> None:
    """Overview of this model alone: its kernel time is that of both files, and the layer norm is ranked with its own."""
    open_section(page, "Overview")
    page.get_by_label("model", exact=True).select_option(MODEL)
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**/?*model=*")
    kernels = [each for file in files for each in kernels_of(events_of(file))]
    answer = page.locator("#live-answer .answer")
    shows(answer, "2 traces of 1 build")
    assert round(exact(answer.locator("b .num[title$=' ns']").first)) == duration_ns(kernels)
    row = page.locator("#live-fixes li", has_text="layer_norm")
    assert round(exact(row.locator(".issue-value .num").last)) == by_name(kernels)[name]
    page.evaluate("sessionStorage.clear()")
    row.locator("a.what").click()                                                   # 1


def profiled(page: Any, launches: list[dict[str, Any]]) -> None:
    """The problem is the shape, with the mean of the launches that the file links to it."""
    page.wait_for_url("**/kernels/problem/?*")
    shows(page.locator("p.answer"), " · ".join(f"{name} {size}" for name, size in SHAPE.items()))
    shows(page.locator("p.answer"), f"in {len(launches)} launches")
    assert exact(page.locator("#state-profiled .number .num")) == pytest.approx(duration_ns(launches) / len(launches), rel=1e-5)


def client_and_token(page: Any, folder: Path) -> tuple[Path, str]:
    """As somebody sets a training job up: a token, and the one file of the client."""
    token = make_token(page, "training")
    open_section(page, "Tune", "Configs")
    page.get_by_role("link", name="Served").click()
    with page.expect_download() as client:
        page.get_by_role("link", name="ridgepoint_client.py").click()
    client.value.save_as(folder / "ridgepoint_client.py")
    return folder / "ridgepoint_client.py", token


def tuned(page: Any, recorded: dict[str, Any]) -> str:
    """The winner's time is a recorded one, and less than the library's. Return the line of code that serves it."""
    state = page.locator("#state-tuned")
    best = exact(state.locator(".number .num"))
    assert best < recorded["library"] and pytest.approx(best, rel=1e-4) in recorded["times"].values()
    shows(state, "recorded")
    shows(page.locator("#state-served"), "recorded")
    page.locator("#state-served summary").click()                                   # 3
    page.locator("#state-served button", has_text="Copy").click()                   # 4
    shows(page.locator("#state-served"), "RIDGEPOINT_RECORDED=1")                   # it is a recording, so a job has to ask for it
    line: str = poll(page, "navigator.clipboard.readText()")
    return line


def job(server_url: str, client: Path, token: str, line: str) -> dict[str, Any]:
    """What another process is served that has the client's file alone."""
    said = {"RIDGEPOINT_URL": server_url, "RIDGEPOINT_TOKEN": token, "RIDGEPOINT_GPU": GPU, "PYTHONPATH": str(client.parent),
            "RIDGEPOINT_RECORDED": "1", "RIDGEPOINT_SNAPSHOT_FILE": str(client.parent / "snapshot.json")}
    done = subprocess.run([sys.executable, "-S", "-c", JOB.format(line=line, launches=LAUNCHES)], env=said, text=True,
                          capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def served(page: Any, answer: dict[str, Any], recorded: dict[str, Any]) -> None:
    """The job got the configuration whose recorded time the page shows; its launches are counted there."""
    assert answer["rule"] == "exact"
    best = exact(page.locator("#state-tuned .number .num"))
    assert recorded["times"][text(answer["config"])] == pytest.approx(best, rel=1e-4)
    page.reload()
    shows(page.locator("#state-served"), "launches in 7 days")
    assert exact(page.locator("#state-served .number .num")) == LAUNCHES
    shows(page.locator("#evidence"), "configuration")


def guarded(page: Any) -> None:
    """Its GPU's suite measures it for each build from now on; the file for CI names suite and server: after six clicks."""
    page.get_by_role("button", name="Guard this").click()                           # 5
    shows(page.locator("#state-guarded"), SUITE)
    page.locator("#pipelines summary", has_text="GitLab").click()                   # 6
    shows(page.locator("#pipelines"), f"--suite {SUITE}")
    shows(page.locator("#pipelines"), page.url.partition("/kernels")[0])
    done = page.evaluate("[+(sessionStorage.clicks ?? 0), +(sessionStorage.keys ?? 0)]")
    assert 0 < done[0] <= MOST_CLICKS and done[1] == 0, done
    for width in (390, 1000, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        fits(page)
    page.locator("#state-guarded").get_by_role("link", name="Open the suite").click()
    row = page.locator("#kernels tbody tr", has=page.get_by_role("link", name=KEY, exact=True))
    expect(row).to_have_count(1)
    shows(row, "not measured here")
