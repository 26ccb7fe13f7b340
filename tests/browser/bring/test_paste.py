"""A kernel is pasted, compiled behind walls by a worker that is started for it, and its space edited: in a real browser."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.visit import WORKED_MS, eventually, fits, reads, shows
from tests.product import PROJECT, Product, clean_env
from tests.tuner.bring.files import ADD, MATMUL
from tuner.bring.check import has_triton
from workers.core import sandboxed

pytestmark = [pytest.mark.browser, pytest.mark.skipif(
    not has_triton() or bool(sandboxed.why_not()), reason="torch and Triton are not installed, or no sandbox can be made")]


@pytest.fixture(scope="module")
def worker(product: Product) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, str(PROJECT / "manage.py"), "worker", "compile"], cwd=PROJECT,
                               env=clean_env(product.home), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield
    process.terminate()
    process.wait(30)


def open_form(page: Any, server_url: str) -> None:
    page.goto(f"{server_url}/tune/operators/")
    page.get_by_role("link", name="Check a kernel").first.click()
    page.wait_for_url("**/check/")


def test_without_a_worker_the_page_says_what_the_text_tells_and_how_to_start_one(page: Any, server_url: str) -> None:
    open_form(page, server_url)
    shows(page.locator(".notice-warn"), "manage.py worker compile")
    page.get_by_label("Kernel file").fill("x = ")
    page.get_by_role("button", name="Check", exact=True).click()
    shows(page.locator("#check-text-wrong"), "no Python")
    page.get_by_label("Kernel file").fill(MATMUL)
    page.get_by_role("button", name="Check", exact=True).click()
    shows(page.locator(".answer"), "Waiting for a worker")
    shows(page.locator("#check-found"), "mm")
    page.get_by_role("button", name="Stop").click()
    shows(page.locator(".answer"), "Stopped")


@pytest.mark.deep_only          # tests/ways/test_own_kernel.py goes the same way, and on to an operator
def test_a_pasted_kernel_is_compiled_and_its_space_edited(watched: Any, server_url: str, worker: None, tmp_path: Path) -> None:
    page = watched
    path = tmp_path / "add.py"
    path.write_text(ADD)
    open_form(page, server_url)
    page.get_by_label("Or choose files").set_input_files(str(path))
    eventually(lambda: page.get_by_label("File name").input_value() == "add.py")
    page.get_by_label("Shape").fill("n_elements=100000")
    page.get_by_role("button", name="Check", exact=True).click()
    shows(page.locator("#check-found"), "output_ptr")
    expect(page.locator(".answer")).to_contain_text("1 kernel in add.py", timeout=WORKED_MS)
    shows(page.locator("#check-found table"), "sm_100")
    reads(page.locator("[data-valid]"), "25")
    page.get_by_label("BLOCK_SIZE").fill("64, 128")
    reads(page.locator("[data-valid]"), "10")
    page.get_by_label("Constraints").fill("BLOCK_SIZE * num_warps <= 256")
    reads(page.locator("[data-valid]"), "5")
    shows(page.locator("[data-left]"), "5 left out: BLOCK_SIZE * num_warps <= 256")
    shows(page.locator("[data-adapter]"), 'params={"BLOCK_SIZE": (64, 128)')
    page.get_by_label("num_warps", exact=True).fill("")
    shows(page.locator("[data-wrong=num_warps]"), "0 values")
    page.get_by_label("num_warps", exact=True).fill("1")
    reads(page.locator("[data-valid]"), "2")
    with page.expect_download() as kept:
        page.get_by_role("button", name="Download").click()
    text = Path(kept.value.path()).read_text()
    assert kept.value.suggested_filename == "add_ridgepoint.py" and '"num_warps": (1,)' in text
    page.set_viewport_size({"width": 1000, "height": 800})
    fits(page)


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.deep_only)])
def test_axe_objects_to_nothing(page: Any, server_url: str, theme: Any) -> None:
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    open_form(page, server_url)
    page.get_by_label("Kernel file").fill(ADD + MATMUL)
    page.get_by_role("button", name="Check", exact=True).click()
    page.wait_for_url("**/check/*/")
    answer = Axe().run(page, options={"resultTypes": ["violations"]}).response
    assert [(each["id"], each["nodes"][0]["html"][:200]) for each in answer["violations"]] == []
