"""The first click on Run of the SQL page answers with rows: those that json, or sqlite3, counts in the files."""

from __future__ import annotations

import gzip
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.profiles.test_sql import EDITOR
from tests.browser.visit import poll, read_once
from tests.ways.conftest import open_section
from tests.ways.test_drop_trace import DATA, of_kind, slices_of

COPIES, DECODE = "causes/serial_copies.json.gz", "corpus/kineto/sglang_mi300_qwen3-8b_decode.json.gz"
NSYS = "h200/nsys/node.sqlite.gz"
Sums = tuple[Counter[str], Counter[str]]        # launches, ns of each kernel


def of_kineto(file: str, folder: Path) -> Sums:
    launches, ns = Counter[str](), Counter[str]()
    for each in of_kind(slices_of(DATA / file), "kernel"):
        launches[each.name] += 1
        ns[each.name] += each.dur_ns
    return launches, ns


def of_nsys(file: str, folder: Path) -> Sums:
    plain = folder / "report.sqlite"
    plain.write_bytes(gzip.decompress((DATA / file).read_bytes()))
    with sqlite3.connect(plain) as tables:
        rows = tables.execute("""SELECT value, count(*), sum("end" - start) FROM CUPTI_ACTIVITY_KIND_KERNEL
                                 JOIN StringIds ON id = demangledName GROUP BY value""").fetchall()
    return Counter({name: count for name, count, _ in rows}), Counter({name: ns for name, _, ns in rows})


class Asked(dict[str, str]):
    """The names of the profiles of files of different tools and GPUs, each read when it is first asked about."""

    def __init__(self, playwright: Any, server_url: str) -> None:
        self.read = lambda file: read_once(playwright, server_url, DATA / file)

    def __missing__(self, file: str) -> str:
        self.read(file)
        self[file] = Path(file).name
        return self[file]


@pytest.fixture(scope="module")
def asked(playwright: Any, server_url: str) -> Asked:
    return Asked(playwright, server_url)


def opens_the_console(page: Any, name: str) -> None:
    """From the first page to a profile, and to its SQL."""
    page.goto("/")
    open_section(page, "Profiles")
    page.locator("main").get_by_role("link", name=name, exact=True).first.click()
    page.locator("[data-workspace-tabs]").get_by_role("link", name="SQL", exact=True).click()
    page.wait_for_selector("#sql[data-ready]")


def runs(page: Any) -> str:
    """Click on Run; return what the page says once it has an answer."""
    page.get_by_role("button", name="Run", exact=True).click()
    poll(page, "document.getElementById('sql').getAttribute('aria-busy') === 'false'")
    return str(page.locator("#sql-answer").inner_text())


def rows_of(page: Any) -> list[list[str]]:
    """Return the cells of the rows that the table draws, those on the screen at least."""
    rows = page.locator("#sql-table .tabulator-row")
    rows.first.wait_for()
    return list(rows.evaluate_all(
        "(rows) => rows.map((row) => [...row.querySelectorAll('.tabulator-cell')].map((cell) => cell.innerText.trim()))"))


def shown_query(page: Any) -> str:
    """Return the query that an empty editor shows: kernels by their time."""
    query = page.locator("#sql-text").get_attribute("placeholder")
    assert query == "SELECT name, count(*), sum(dur_ns) FROM kernels GROUP BY name ORDER BY 3 DESC"
    return str(query)


def tells_the_kernels(page: Any, answer: str, name: str, counted: Sums) -> None:
    launches, ns = counted
    assert answer.startswith(f"{len(ns)} rows of {name} in "), answer
    rows = rows_of(page)
    assert len(rows) >= min(len(ns), 8)
    wanted = [(launches[kernel], total) for kernel, total in ns.most_common()]
    assert [(int(count.replace(",", "")), int(total.replace(",", ""))) for _, count, total in rows] == wanted[:len(rows)]
    assert all(launches[kernel] == int(count.replace(",", "")) for kernel, count, _ in rows), rows


@pytest.mark.parametrize(("file", "count"), [
    pytest.param(COPIES, of_kineto, id="Kineto on H200", marks=pytest.mark.deep_only),
    pytest.param(DECODE, of_kineto, id="public Kineto on MI300", marks=pytest.mark.deep_only),
    pytest.param(NSYS, of_nsys, id="Nsight Systems")])
def test_a_query_that_is_written(watched: Any, asked: Asked, tmp_path: Path, file: str,
                                 count: Callable[[str, Path], Sums]) -> None:
    page = watched
    opens_the_console(page, asked[file])
    page.locator(EDITOR).fill(shown_query(page))
    tells_the_kernels(page, runs(page), asked[file], count(file, tmp_path))


def test_an_example_over_two_profiles(watched: Any, asked: Asked, tmp_path: Path) -> None:
    """From the section's tab: profiles are chosen in a list, the query by a click."""
    page, names = watched, [asked[COPIES], asked[NSYS]]
    page.goto("/")
    open_section(page, "Profiles", "SQL")
    page.wait_for_selector("#sql[data-ready]")
    for name in names:
        option = page.locator("#sql-add option", has_text=name)
        page.get_by_label("Add a profile").select_option(option.first.get_attribute("value"))
    expect(page.locator("#sql-chosen .chip")).to_have_count(2)
    page.locator("#sql-tables summary", has_text="kernels").first.click()
    page.locator("#sql-tables details[open]").get_by_role("button", name="Example").click()
    expect(page.locator("#sql-text")).to_have_value("SELECT name, avg(occupancy_pct) FROM kernels GROUP BY name")
    kernels = {*of_kineto(COPIES, tmp_path)[0], *of_nsys(NSYS, tmp_path)[0]}
    assert runs(page).startswith(f"{len(kernels)} rows of 2 profiles in ")
    assert {name for name, _ in rows_of(page)} == kernels


def test_run_without_a_word_written(watched: Any, asked: Asked, tmp_path: Path) -> None:
    """The page shows a query in its editor: Run runs it."""
    page = watched
    opens_the_console(page, asked[COPIES])
    assert page.locator(EDITOR).inner_text().strip() == shown_query(page)
    tells_the_kernels(page, runs(page), asked[COPIES], of_kineto(COPIES, tmp_path))
