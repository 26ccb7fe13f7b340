"""Nsight Systems in a real browser: an export's timeline, sums that have none, and a report that needs its tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.browser.timeline.test_timeline import APP, settled
from tests.browser.visit import H200, eventually, poll, read_once, shows, uploaded

NSYS = H200 / "nsys"


def test_an_export_shows_ranges_calls_streams_and_counters(watched: Any, server_url: str, playwright: Any) -> None:
    page = watched
    pk = read_once(playwright, server_url, NSYS / "node.sqlite.gz")
    page.goto(f"{server_url}/profiles/{pk}/")
    shows(page.locator("body").first, "NVIDIA H200")
    shows(page.locator("#integrity").first, "All 834 records kept")
    page.get_by_role("link", name="Timeline", exact=True).first.click()
    settled(page)
    names = page.evaluate(f"[...{APP}.timeline.tracks.values()].map((track) => `${{track.group}} / ${{track.name}}`)")
    for wanted in ("GPU 0 / stream 7 (default)", "GPU 0 / waits · 7", "GPU 0 / Device memory held"):
        assert wanted in names
    assert any(name.endswith("/ NVTX start/end ranges") for name in names)
    found = page.evaluate(f"fetch('/api/profiles/{pk}/slices/?q=cudaGraphLaunch').then((answer) => answer.json())")
    assert found["total"] == 4
    slice_id = found["slices"][0]["id"]
    links = page.evaluate(f"fetch('/api/profiles/{pk}/slices/{slice_id}/').then((answer) => answer.json())")["links"]
    assert sum(link["role"] == "launches" for link in links) == 10       # five matmuls and five ReLUs of one replay


def test_sums_have_tables_and_no_timeline(watched: Any, server_url: str, playwright: Any) -> None:
    page = watched
    pk = uploaded(playwright, server_url, NSYS / "node_stdout.csv", name="sums")
    page.goto(f"{server_url}/profiles/{pk}/")
    shows(page.locator(".answer").first, "50 launches of 5 kernels take 1.20 ms")
    shows(page.locator("#no-timeline").first, "Sums, no timeline")
    eventually(lambda: [title.split(" (")[0] for title in page.locator("section[id^=table-] h2").all_inner_texts()] == [
        "CUDA GPU kernels", "API calls", "NVTX ranges"])
    poll(page, "document.querySelector('#table-1').innerText.includes('cudaGraphLaunch')")      # once the grid has its rows
    page.goto(f"{server_url}/profiles/{pk}/timeline/")
    eventually(lambda: page.url.endswith(f"/profiles/{pk}/"))


def test_a_report_without_its_tool_gives_the_command(watched: Any, server_url: str, tmp_path: Path) -> None:
    page = watched
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"NVIDIA Tegra Profiler Report 2025@3@2@474-1v0.\n" + bytes(200))
    page.goto(f"{server_url}/profiles/upload/")
    page.set_input_files("#file", [report])
    page.click("[data-submit]")
    poll(page, """[...document.querySelectorAll("[data-files] > li")].some((row) => /failed/.test(row.textContent))""", 60_000)
    page.goto(f"{server_url}/profiles/?status=failed")
    page.click("text=run.nsys-rep")
    command = page.inner_text("#command")
    assert command == "nsys export --type sqlite -o out.sqlite file.nsys-rep"
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("button[data-copy=command]")
    poll(page, "/Copied|Selected/.test(document.querySelector('button[data-copy=command]').textContent)")
