"""From the fleet's kernels down to a GPU and on to a form that is filled in, in a real browser: both themes, 1440 and 1000 px."""

from __future__ import annotations

from typing import Any

import pytest

from profiles.fleet.feed import Read, batches
from tests.browser.visit import eventually, fits, follow, poll, shows
from tests.profiles.fleet.records import make_records, write_records
from workers.agent.wire import pack

JOB = "browser-job"


@pytest.fixture(scope="module")
def fed(playwright: Any, server_url: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Batches as an agent sends them, with the cookies that a browser would have; a worker of the product merges them."""
    records = [{**each, "job": JOB, "model": "browser-model"} for each in make_records(3000, slow={5: (1.3, 0)})]
    path = write_records(tmp_path_factory.mktemp("fleet") / "records.jsonl.gz", records)
    client = playwright.request.new_context(base_url=server_url)
    client.get("/fleet/")
    token = next(c["value"] for c in client.storage_state()["cookies"] if c["name"] == "csrftoken")
    for batch in batches(path, Read(), simulated=True):
        answer = client.post("/api/fleet/batches/", data=pack(batch), headers={
            "X-CSRFToken": token, "Referer": server_url, "Content-Type": "application/vnd.ridgepoint.fleet"})
        assert answer.status == 200, answer.text()
    eventually(lambda: client.get(f"/api/fleet/top/?job={JOB}").json()["launches"] == 3000, every_s=0.5)
    client.dispose()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), pytest.param("dark", 1000, marks=pytest.mark.deep_only)])
def test_from_all_kernels_down_to_a_gpu(watched: Any, fed: None, server_url: str, scheme: str, width: int) -> None:
    page = watched
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(f"{server_url}/")
    page.get_by_role("link", name="Fleet", exact=True).click()
    page.get_by_label("window", exact=True).select_option("all")
    page.get_by_label("job", exact=True).select_option(JOB)
    page.get_by_role("button", name="Filter", exact=True).click()
    page.wait_for_url(f"**/fleet/?window=all&job={JOB}*")
    shows(page.locator(".facts"), "simulated")
    poll(page, "document.querySelector('[data-figure]').dataset.state === 'ready'")
    fits(page)
    for group in ("signature", "build", "host", "gpu"):
        poll(page, "document.querySelectorAll('#table-fleet tbody tr').length > 0")
        follow(page, "#table-fleet tbody tr a >> nth=0", f"**/fleet/?*group={group}*")
        assert f"job={JOB}" in page.url and "window=all" in page.url
    assert page.locator(".fleet-path .chip").count() == 5
    page.locator(".fleet-path .chip", has_text="build").click()
    page.wait_for_url(lambda url: "build=" not in url and f"job={JOB}" in url)
    fits(page)


def test_the_slow_gpu_and_the_way_to_its_counters(watched: Any, fed: None, server_url: str) -> None:
    page = watched
    page.goto(f"{server_url}/fleet/gpus/?window=all&job={JOB}")
    shows(page.locator(".answer"), "1 of 8 GPUs is slower")
    shows(page.locator(".gpu-card"), "GPU-0005")
    page.get_by_role("link", name="▸ kernels").click()
    page.wait_for_url("**/fleet/?gpu=GPU-0005*")
    page.goto(f"{server_url}/fleet/?window=all&job={JOB}")
    poll(page, "document.querySelectorAll('#table-fleet tbody tr').length > 0")
    page.locator("#table-fleet tbody tr", has_text="_attn_fwd").get_by_role("link", name="counters").click()
    page.wait_for_url("**/captures/new/?*")
    assert "tool=ncu" in page.url and "kernel=_attn_fwd" in page.url


def test_the_agents_page_copies_a_command_with_the_keyboard(watched: Any, fed: None, server_url: str) -> None:
    page = watched
    page.goto(f"{server_url}/fleet/agents/")
    shows(page.locator("#install"), server_url)
    page.locator("[data-copy=install-systemd]").focus()
    page.keyboard.press("Enter")
    eventually(lambda: page.locator("[data-copy=install-systemd]").inner_text() in ("Copied", "Selected"))
    page.goto(f"{server_url}/fleet/utilisation/?window=all&job={JOB}")
    shows(page.locator(".answer"), "of 8 GPUs")
