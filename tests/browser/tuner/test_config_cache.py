"""The config cache as a person uses it: a file comes in, a launch is asked about, shapes are rounded otherwise, files leave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.browser.visit import shows

MOE = "E=8,N=512,device_name=NVIDIA_H200.json"
THEIRS = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 4}


def test_a_vllm_file_comes_in_serves_and_leaves_as_it_came(watched: Any, server_url: str, tmp_path: Any) -> None:
    page = watched
    page.set_viewport_size({"width": 1000, "height": 900})
    page.goto(f"{server_url}/cache/")
    page.get_by_role("link", name="Import / export").first.click()
    text = json.dumps({"triton_version": "3.6.0", "1": THEIRS, "64": THEIRS}, indent=4) + "\n"
    (tmp_path / MOE).write_text(text)
    page.get_by_label("File", exact=True).set_input_files(str(tmp_path / MOE))
    page.get_by_label("Shape", exact=True).fill("K=1024 topk=2")
    page.get_by_role("button", name="Import", exact=True).click()
    shows(page.locator("main").first, "2 of 2 configurations became entries")

    page.goto(f"{server_url}/cache/why/?operator=grouped_matmul&gpu=NVIDIA+H200&shape=M%3D128+E%3D8+N%3D1024+K%3D1024")
    answer = page.inner_text(".answer")
    assert "entry " in answer and "by the rule exact" in answer
    served = page.locator("ol.rules li.served")
    shows(served, "exact")
    shows(page.locator("main").first, "unverified")
    page.get_by_role("link", name="entry ", exact=False).first.click()
    shows(page.locator(".answer").first, MOE)
    shows(page.locator("main").first, "never measured here")

    page.goto(f"{server_url}/cache/buckets/?operator=grouped_matmul")
    page.get_by_label("Nearest", exact=True).select_option("0")
    page.get_by_role("button", name="Save").click()
    shows(page.locator("main").first, "Every shape is its own bucket")
    shows(page.locator("main").first, "edited")

    page.goto(f"{server_url}/cache/exchange/")
    page.locator("#as").select_option("vllm")
    page.get_by_label("Experts per token").fill("2")
    with page.expect_download() as taken:
        page.get_by_role("button", name="Download").click()
    assert taken.value.suggested_filename == MOE
    assert Path(taken.value.path()).read_text() == text

    page.get_by_role("link", name=MOE).click()
    page.get_by_role("button", name="Delete").click()
    shows(page.locator("main").first, "its entries are gone")
