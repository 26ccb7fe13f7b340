"""From "this kernel is slow" on Overview to a served and guarded configuration, in a real browser: clicks and keys are counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.visit import eventually, fits, poll, shows, uploaded
from tests.product import Product, seed_database

pytestmark = pytest.mark.browser
MOST_CLICKS = 6
SIZE = 1024
# what a person does, as the browser tells it: trusted clicks and keys, over all pages of the visit
COUNT = """const add = (name) => (event) => { if (event.isTrusted) sessionStorage[name] = +(sessionStorage[name] ?? 0) + 1; };
addEventListener("click", add("clicks"), true);
addEventListener("keydown", add("typed"), true);"""


def kineto(folder: Path) -> Path:
    """A trace of one bf16 product that is recorded among the landscapes, on the GPU that they were recorded on."""
    events: list[dict[str, Any]] = []
    for at in range(8):
        start, one = 1000.0 + 200 * at, {"External id": at + 1, "correlation": at + 1}
        events += [
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": start, "dur": 60, "args": {
                "External id": at + 1, "Input Dims": [[SIZE, SIZE], [SIZE, SIZE]],
                "Input type": ["c10::BFloat16", "c10::BFloat16"]}},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": start + 10, "dur": 8,
             "args": one},
            {"ph": "X", "cat": "kernel", "name": "nvjet_tst_64x64_64x16_1x2_h_bz_NNT", "pid": 0, "tid": 7, "ts": start + 30,
             "dur": 40, "args": {**one, "device": 0, "stream": 7, "grid": [256, 1, 1], "block": [128, 1, 1]}}]
    made = folder / "loop.pt.trace.json"
    made.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "computeMajor": 9,
                                "computeMinor": 0, "numSms": 132}], "traceEvents": events}))
    return made


@pytest.fixture
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A product of its own: other tests tune the same shape and bring kernels of the same family."""
    home = tmp_path_factory.mktemp("walk")
    seed_database(home)
    started = Product(home)
    try:
        started.wait_until_up()
        yield started.url
    finally:
        started.stop()


@pytest.fixture
def counted(watched: Any, playwright: Any, address: str, tmp_path: Path) -> Any:
    uploaded(playwright, address, kineto(tmp_path), build="loop-1", model="loop")
    watched.context.grant_permissions(["clipboard-read", "clipboard-write"])
    watched.add_init_script(COUNT)
    watched.set_viewport_size({"width": 1440, "height": 900})
    return watched


@pytest.mark.deep_only          # tests/ways/test_tuned_and_served.py goes the same way, on the product that the others share
@pytest.mark.timeout(300)
def test_from_slow_to_served_and_guarded_in_six_clicks_and_no_typing(counted: Any, address: str) -> None:
    page = counted
    page.goto(f"{address}/?model=loop")
    page.locator("#live-fixes li a.what").first.click()                                  # 1: the slow kernel
    shows(page.locator("#state-profiled"), "1 profile")
    page.get_by_role("button", name="Tune", exact=True).click()                          # 2: a recorded landscape serves here
    poll(page, "!document.querySelector('#state-tuned[data-topic]')", 120_000)            # without a reload
    shows(page.locator("#state-tuned"), "recorded")
    page.locator("#state-served summary").click()                                        # 3: use this
    page.locator("#state-served button", has_text="Copy").click()                        # 4
    line = poll(page, "navigator.clipboard.readText()")
    assert line.endswith(f'best("matmul", "bf16", M={SIZE}, N={SIZE}, K={SIZE}).config')
    page.get_by_role("button", name="Guard this").click()                                # 5
    shows(page.locator("#state-guarded"), "problems-nvidia-h200")
    page.locator("#pipelines summary", has_text="GitLab").click()                        # 6: the file is finished
    shows(page.locator("#pipelines"), f"{address}")
    shows(page.locator("#pipelines"), "--suite problems-nvidia-h200")

    done = page.evaluate("({clicks: +(sessionStorage.clicks ?? 0), typed: +(sessionStorage.typed ?? 0)})")
    assert 0 < done["clicks"] <= MOST_CLICKS and done["typed"] == 0, done
    suite = page.request.get(f"{address}/api/suites/problems-nvidia-h200/").json()
    assert any(each["dtype"] == "bf16" and each["shape"] == {"M": SIZE, "N": SIZE, "K": SIZE} for each in suite["kernels"])
    asked = {"operator": "matmul", "dtype": "bf16", "gpu": "NVIDIA H200", "M": SIZE, "N": SIZE, "K": SIZE, "recorded": 1}
    best = page.request.get(f"{address}/api/configs/best/", params=asked).json()
    assert best["rule"] == "exact" and "NVIDIA H200" in best["entry"]["recorded"]
    for width in (1440, 1000, 390):
        page.set_viewport_size({"width": width, "height": 900})
        fits(page)
    eventually(lambda: page.locator(".answer").count() == 1)
