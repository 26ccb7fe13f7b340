"""A kernel file that nobody packaged: checked on the page, its adapter downloaded, and the operator that it became is tunable."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.visit import WORKED_MS, eventually, fits, reads, shows
from tests.product import PROJECT, Product, clean_env
from tests.ways.conftest import follow, open_section, reload_until
from tuner.bring.check import has_triton
from workers.core import sandboxed

pytestmark = pytest.mark.skipif(not has_triton() or bool(sandboxed.why_not()),
                                reason="torch and Triton are not installed, or no sandbox can be made")
KERNEL = '''
import triton
import triton.language as tl

@triton.jit
def way_add(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    tl.store(output_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)

def add(x, y, output):
    n = output.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK_SIZE"]), )
    way_add[grid](x, y, output, n, BLOCK_SIZE=1024, num_warps=8)
    return output
'''
ELEMENTS = 100_000
BLOCKS, WARPS, MOST = (64, 128, 256), (1, 2, 4), 512            # what the person edits: values, and a rule
NAME, PACKAGE = "way_add", "way-kernels"


@pytest.fixture
def start_worker(product: Product, tmp_path: Path) -> Iterator[Callable[[], None]]:
    """`start_worker()`: a worker of the queue compile that finds packages in `tmp_path`."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        started.append(subprocess.Popen(
            [sys.executable, str(PROJECT / "manage.py"), "worker", "compile"], cwd=PROJECT, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=clean_env(product.home) | {"PYTHONPATH": str(tmp_path)}))
    yield start
    for each in started:
        each.terminate()
        each.wait(30)


def test_a_file_becomes_an_operator_that_can_be_tuned(watched: Any, server_url: str, tmp_path: Path,
                                                      start_worker: Callable[[], None]) -> None:
    page = watched
    page.goto(server_url)
    open_section(page, "Tune", "Kernels")
    follow(page, page.get_by_role("link", name="Check a kernel").first)
    file = tmp_path / "way.py"
    file.write_text(KERNEL)
    page.get_by_label("Or choose files").set_input_files(str(file))
    eventually(lambda: page.get_by_label("File name").input_value() == file.name)
    page.get_by_label("Shape").fill(f"n_elements={ELEMENTS}")
    page.get_by_role("button", name="Check", exact=True).click()
    shows(page.locator("#check-found"), NAME)
    shows(page.locator(".answer"), "what the text says")
    kept = edited(page)
    install(downloaded(page, tmp_path), tmp_path)

    start_worker()
    expect(page.locator(".answer")).to_contain_text(f"1 kernel in {file.name}", timeout=WORKED_MS)
    compiled(page)
    enabled(page)
    tunable(page, kept)
    removed(page)


def space(page: Any) -> dict[str, list[int]]:
    """Return the values of each parameter as the page's fields hold them."""
    fields = page.locator("[data-param]").all()
    return {field.get_attribute("data-param"): [int(each) for each in field.input_value().split(",")] for field in fields}


def count(values: dict[str, list[int]], rule: Callable[..., bool]) -> int:
    """Return how many combinations keep a rule, one by one."""
    return sum(rule(**dict(zip(values, each, strict=True))) for each in itertools.product(*values.values()))


def edited(page: Any) -> int:
    """Narrow the space: the page counts what is left as we do. Return how many configurations can run."""
    reads(page.locator("[data-valid]"), str(count(space(page), lambda **c: True)))
    page.get_by_label("num_warps", exact=True).fill("")
    shows(page.locator("[data-wrong=num_warps]"), "0 values")
    page.get_by_label("num_warps", exact=True).fill(", ".join(map(str, WARPS)))
    page.get_by_label("BLOCK_SIZE").fill(", ".join(map(str, BLOCKS)))
    page.get_by_label("Constraints").fill(f"BLOCK_SIZE * num_warps <= {MOST}")
    values = space(page)
    kept, every = count(values, lambda **c: c["BLOCK_SIZE"] * c["num_warps"] <= MOST), count(values, lambda **c: True)
    assert 0 < kept < every
    reads(page.locator("[data-valid]"), str(kept))
    reads(page.locator("[data-size]"), str(every))
    shows(page.locator("[data-left]"), f"{every - kept} left out: BLOCK_SIZE * num_warps <= {MOST}")
    shows(page.locator("[data-adapter]"), f'"BLOCK_SIZE": {BLOCKS}')
    return kept


def downloaded(page: Any, folder: Path) -> Path:
    with page.expect_download() as adapter:
        page.get_by_role("button", name="Download").first.click()
    path = folder / str(adapter.value.suggested_filename)
    adapter.value.save_as(path)
    return path


def install(adapter: Path, folder: Path) -> None:
    """Name the adapter in a package's metadata, as `pip install` writes it."""
    about = folder / f"{PACKAGE.replace('-', '_')}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[ridgepoint.operators]\nway = {adapter.stem}:OPERATORS\n")


def compiled(page: Any) -> None:
    """Every sample has its row: registers of each, and none spills."""
    table = page.locator("#check-found table tbody tr")
    eventually(lambda: {row.split()[0] for row in table.all_inner_texts()} == {"sm_80", "sm_90", "sm_100"})
    for row in table.all():
        registers, spills = (row.locator("td").nth(at).inner_text() for at in (2, 3))
        assert 0 < int(registers) < 256 and spills == "0"
    page.set_viewport_size({"width": 1000, "height": 800})
    fits(page)


def enabled(page: Any) -> None:
    """An owner enables the package that the worker offers, and the worker describes it."""
    open_section(page, "Tune", "Kernels")
    package = page.locator("li", has_text=PACKAGE)
    reload_until(page, package.get_by_role("button", name="Enable").is_visible)
    package.get_by_role("button", name="Enable").click()
    package.get_by_role("button", name="Disable").wait_for()
    reload_until(page, package.get_by_text("1 operator", exact=True).is_visible)


def tunable(page: Any, kept: int) -> None:
    """Its form searches just the space that was edited, and a job of it waits for a GPU."""
    page.locator("tbody tr", has=page.get_by_text(NAME, exact=True)).get_by_role("link", name="Tune", exact=True).click()
    page.wait_for_url("**/tune/new/?*")
    expect(page.locator("[name=operator]")).to_have_value(NAME)
    page.locator("[name=shape]").fill(f"n_elements={ELEMENTS}")
    expect(page.locator("[data-space-valid]")).to_have_text(str(kept))
    page.locator("#start").click()
    page.wait_for_url("**/tune/*/")
    shows(page.locator("#tune-answer"), "Waiting for a GPU worker")
    page.get_by_role("button", name="Stop").click()
    shows(page.locator("#tune-answer"), "Stopped")


def removed(page: Any) -> None:
    """The owner takes it away again: nothing of it is left among the operators."""
    open_section(page, "Tune", "Kernels")
    package = page.locator("li", has_text=PACKAGE)
    package.get_by_role("button", name="Disable").click()
    package.get_by_role("button", name="Remove").click()
    package.get_by_role("button", name="Remove").wait_for(state="detached")
    expect(page.get_by_text(NAME, exact=True)).to_have_count(0)
