"""A file that nobody packaged, in a real browser: dropped with what it imports, its call recorded, tuned, its winner taken over.

The worker's part runs on Triton's interpreter, behind the walls that a GPU's has.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.browser.visit import WORKED_MS, eventually, fits, shows
from tests.product import PROJECT, Product, clean_env
from tests.tuner.bring.own.files import ADD, CALL, WIDTH
from workers.core import sandboxed

pytestmark = [pytest.mark.browser, pytest.mark.torch, pytest.mark.deep_only,
              pytest.mark.skipif(bool(sandboxed.why_not()), reason=f"no sandbox here: {sandboxed.why_not()}")]
PICTURES = os.environ.get("RIDGEPOINT_PICTURES", "")       # a folder: the way is kept in pictures


def work(product: Product, what: str, row: str) -> None:
    subprocess.run([sys.executable, "-m", "tests.workers.tune.interpreted_worker", what, row], cwd=PROJECT, check=True,
                   env=clean_env(product.home))


def picture(page: Any, name: str) -> None:
    if PICTURES:
        page.screenshot(path=f"{PICTURES}/{name}.png", full_page=True)


def test_a_dropped_file_is_tuned_from_its_page_and_its_winner_is_offered(page: Any, product: Product, server_url: str,
                                                                         tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(ADD)
    (tmp_path / "near.py").write_text(WIDTH)
    page.goto(f"{server_url}/tune/operators/check/")
    page.locator("#check-open").set_input_files([str(tmp_path / "near.py"), str(tmp_path / "mine.py")])
    eventually(lambda: page.get_by_label("File name").input_value() == "mine.py")
    shows(page.locator("#check-beside"), "With it: near.py")
    page.get_by_label("One call").fill(CALL)
    picture(page, "1-file")
    page.get_by_role("button", name="Check", exact=True).click()
    page.wait_for_url("**/check/*/")
    shows(page.locator("#check-tune"), "a worker makes the call first")
    work(product, "check", re.findall(r"\d+", page.url)[-1])
    page.get_by_role("button", name="Tune", exact=True).wait_for(timeout=WORKED_MS)
    page.get_by_label("BLOCK", exact=True).fill("128, 256")
    page.get_by_label("num_warps", exact=True).fill("4")
    page.get_by_label("num_stages", exact=True).fill("1")
    shows(page.locator("#check-adapters [data-valid]"), "2")
    page.set_viewport_size({"width": 1000, "height": 900})
    fits(page)
    picture(page, "2-recorded")
    page.emulate_media(color_scheme="dark")
    picture(page, "3-dark")
    page.get_by_role("button", name="Tune", exact=True).click()
    page.wait_for_url(re.compile(r"/tune/\d+/$"))
    picture(page, "4-queued")
    work(product, "tune", re.findall(r"\d+", page.url)[-1])
    page.get_by_role("button", name="Guard this").wait_for(timeout=WORKED_MS)
    shows(page.locator("#tune-winner"), "BLOCK")
    fits(page)
    page.get_by_text("Use this", exact=True).click()
    shows(page.locator("#use-line"), "add_kernel_")
    picture(page, "5-done")
    page.get_by_role("link", name="mine.py").click()
    shows(page.locator("main"), "add_torch of the file")
    shows(page.locator("main"), "near.py")
    picture(page, "6-version")
