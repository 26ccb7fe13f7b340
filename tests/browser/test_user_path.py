"""A new user's path through an empty installation, in a real browser: examples, every page, timeline, roofline, tune, compare."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.browser.timeline.test_timeline import APP, settled, window
from tests.browser.visit import H200, READ, WORKED_MS, eventually, fits, poll, read_once, reads, shows, uploaded
from tests.product import Product, seed_database
from tests.scale import DEEP

READ_WITHIN_MS = 180_000       # seven recordings on a shared machine
KERNEL = "nvjet"               # the training trace's matrix multiplications
WRONG, OTHER = "holiday.json", "came while home was open"
# those that tests/browser/test_frame.py does not look at
PAGES = ("/profiles/upload/", "/compare/", "/builds/", "/gates/", "/suites/new/", "/search/?q=gemm", *((
    "/suites/", "/regressions/", "/environments/", "/notified/", "/cache/revalidations/", "/captures/", "/accounts/tokens/",
) if DEEP else ()))         # the answers of the others: tests/webapp/test_pages.py


@pytest.fixture(scope="module")
def fresh(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """Everything as `make run` starts it: nothing in the database but its tables. In `make test` the product that all share."""
    if not DEEP:
        yield request.getfixturevalue("product")
        return
    home = tmp_path_factory.mktemp("fresh")
    seed_database(home)
    started = Product(home)
    try:
        started.wait_until_up()
        yield started
    finally:
        started.stop()


@pytest.fixture
def visitor(watched: Any, fresh: Product) -> Any:
    """A browser on the fresh installation."""
    page = watched
    page.emulate_media(reduced_motion="reduce")
    page.set_viewport_size({"width": 1440, "height": 900})
    return page


def profiles(page: Any, fresh: Product) -> list[dict[str, Any]]:
    found = page.request.get(f"{fresh.url}/api/profiles/", max_retries=3).json()      # of a connection that the server just closed
    rows: list[dict[str, Any]] = found["results"]
    return rows


@pytest.fixture
def examples(visitor: Any, fresh: Product, playwright: Any) -> list[dict[str, Any]]:
    """The example recordings, all read: one click on the home page, which shows what they hold without a reload.

    In `make test` one of them, and another that comes while home is open.
    """
    if not DEEP:
        if not any(row["name"] == OTHER for row in profiles(visitor, fresh)):
            read_once(playwright, fresh.url, H200 / "kineto_train.json.gz")
            visitor.goto(fresh.url)
            uploaded(playwright, fresh.url, H200.parent / "causes/serial_copies.json.gz", name=OTHER)
            poll(visitor, f"document.querySelector('#live-recent').innerText.includes('{OTHER}')")        # without a reload
    elif not profiles(visitor, fresh):
        visitor.goto(fresh.url)
        visitor.get_by_role("button", name="Load the example recordings").click()
        poll(visitor, "!document.querySelector('[data-topic]') && document.querySelector('#live-fixes a')", READ_WITHIN_MS)
    rows = [row for row in profiles(visitor, fresh) if row["file_name"] != WRONG]
    assert not DEEP or {row["status"] for row in rows} == {"ready"}, [row["error"] for row in rows]
    return rows


@pytest.mark.deep_only              # what one click makes: tests/webapp/test_examples.py; that home follows: `examples`
@pytest.mark.timeout(900)           # eleven recordings are read: half a minute when idle
def test_one_click_fills_home_without_a_reload(visitor: Any, fresh: Product, examples: list[dict[str, Any]]) -> None:
    if visitor.url == "about:blank":          # an earlier test clicked
        visitor.goto(fresh.url)
    shows(visitor.locator("#live-fixes").first, "headroom")
    shows(visitor.locator("#live-slower").first, "▲")
    with urlopen(fresh.url + "/api/workers/") as answer:
        assert {queue for worker in json.load(answer)["workers"] for queue in worker["queues"]} >= {"ingest", "replay"}


@pytest.mark.usefixtures("examples")
def test_every_page_has_its_answer_and_breaks_no_rule(visitor: Any, fresh: Product) -> None:
    visitor.set_viewport_size({"width": 1000, "height": 800})
    for path in PAGES:
        visitor.goto(fresh.url + path)
        eventually(lambda: visitor.locator(".answer").count() >= 1)
        fits(visitor)


@pytest.mark.usefixtures("examples")
def test_a_table_sorts_filters_and_keeps_both_in_the_url(visitor: Any, fresh: Product) -> None:
    visitor.goto(fresh.url + "/kernels/")
    poll(visitor, "() => document.querySelector('table[data-enhanced]')")
    wrap = visitor.locator(".grid-wrap").first
    wrap.locator("th[data-type=number] .grid-sort").first.click()
    poll(visitor, "() => location.search.includes('.sort=share')")
    texts = wrap.locator("tbody td.num:nth-child(3)").all_inner_texts()
    shares = [float(each.split()[0].lstrip("<")) for each in texts]
    assert len(shares) > 3 and shares == sorted(shares, reverse="desc" in visitor.url)
    eventually(lambda: ".sort=" in visitor.url)
    wrap.locator(".grid-filter").fill("gemm")
    poll(visitor, "() => location.search.includes('.q=gemm')")
    shown = wrap.locator(".grid-count").inner_text()
    assert " of " in shown
    visitor.reload()
    poll(visitor, "() => document.querySelector('.grid-count')?.textContent.includes(' of ')")
    reads(visitor.locator(".grid-count").first, shown)


@pytest.mark.deep_only          # tests/ways/ walks each of its legs, over files of others
def test_a_new_user_goes_from_examples_to_a_comparison(visitor: Any, fresh: Product, examples: list[dict[str, Any]]) -> None:
    by_file = {row["file_name"]: row for row in examples}
    where_the_time_went(visitor, f"{fresh.url}/profiles/{by_file['kineto_train.json.gz']['id']}/")
    a_kernel_in_the_timeline(visitor)
    from_the_roofline_to_a_kernel(visitor, f"{fresh.url}/profiles/{by_file['buildA.ncu-rep.zst']['id']}/roofline/")
    a_tune_job_watched_to_its_end(visitor, fresh)
    two_builds_side_by_side(visitor, fresh)


def where_the_time_went(page: Any, address: str) -> None:
    """The recording's GPU works less than a third of the time: the host launches too slowly. Ends in the timeline."""
    page.goto(address)
    shows(page.locator(".answer").first, "The host cannot feed the GPU: idle for it 60 % of the time")
    assert page.locator("table.causes tbody tr").count() > 4
    page.get_by_role("link", name="Timeline", exact=True).first.click()


def a_kernel_in_the_timeline(page: Any) -> None:
    """Zoom with W, search a kernel, click it."""
    settled(page)
    start, end = window(page)
    box = page.locator(".tl-ruler").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 3, 500)
    page.keyboard.down("w")
    page.wait_for_timeout(300)
    page.keyboard.up("w")
    settled(page)
    assert window(page)[1] - window(page)[0] < end - start
    page.keyboard.press("/")
    page.keyboard.type(KERNEL)
    page.keyboard.press("Enter")
    page.wait_for_selector(".tl-details")
    told = page.inner_text(".tl-details")
    assert KERNEL in told and "Grid" in told and "Registers per thread" in told
    assert poll(page, f"{APP}.chosen.slice.links.some((link) => link.role === 'launched by')")


def from_the_roofline_to_a_kernel(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("#roofline .bk-Figure, .figure .bk-Figure")
    shows(page.locator(".answer").first, "roof")
    page.get_by_role("link", name="softmax_row").first.click()
    page.wait_for_url(re.compile(r"/kernels/\d+/$"))
    eventually(lambda: re.search(r"(memory|compute|latency)-bound", page.inner_text(".answer"), re.IGNORECASE))


def a_tune_job_watched_to_its_end(page: Any, fresh: Product) -> None:
    """On the replay device, live, and into the cache."""
    page.add_init_script("""addEventListener("DOMContentLoaded", () => {
        const answer = document.getElementById("tune-answer");
        const note = () => { window.said = `${window.said ?? ""}\n${answer.textContent}`; };
        if (answer) { note(); new MutationObserver(note).observe(answer, {subtree: true, childList: true, characterData: true}); }
    })""")
    page.goto(f"{fresh.url}/tune/new/?operator=matmul")
    page.fill("[name=budget_trials]", "40")
    page.get_by_role("button", name="Start tuning").click()
    page.wait_for_url(re.compile(r"/tune/\d+/$"))
    page.wait_for_selector("#progress-figure[data-points]")
    page.locator("#tune-answer", has_text="Fastest").wait_for(timeout=WORKED_MS)
    assert "Best so far" in page.evaluate("window.said")          # it was live: the page was never reloaded
    shows(page.locator("body").first, "recorded on NVIDIA H200")
    page.goto(f"{fresh.url}/cache/")
    poll(page, "document.querySelector('main').innerText.includes('matmul')")


def two_builds_side_by_side(page: Any, fresh: Product) -> None:
    """Three kernels slower, one faster, one unchanged."""
    page.goto(f"{fresh.url}/compare/?build_a=buildA&build_b=buildB")
    answer = page.inner_text(".answer")
    assert "3 kernels slower" in answer and "1 faster" in answer and "1 within the noise" in answer, answer


@pytest.mark.usefixtures("examples")
def test_a_wrong_file_is_told_on_the_page_and_disturbs_nothing(visitor: Any, fresh: Product, tmp_path: Path) -> None:
    page, wrong = visitor, tmp_path / WRONG
    wrong.write_text('{"photos": ["beach.jpg"]}')
    before = {row["id"]: row["status"] for row in profiles(page, fresh) if row["status"] in READ}
    page.goto(f"{fresh.url}/profiles/upload/")
    page.set_input_files("input[type=file]", [str(wrong)])
    submit = page.get_by_role("button", name=re.compile("^Import"))
    if submit.count() and submit.first.is_enabled():
        submit.first.click()
    page.get_by_text("failed").first.wait_for(timeout=WORKED_MS)
    after = {row["id"]: row for row in profiles(page, fresh)}
    failed = next(row for pk, row in after.items() if pk not in before)
    assert failed["status"] == "failed" and set(failed["error"]) == {"where", "what", "hint"}
    assert {pk: row["status"] for pk, row in after.items() if pk in before} == before
    page.goto(f"{fresh.url}/profiles/{failed['id']}/")
    shows(page.locator("main").first, failed["error"]["what"].replace("`", ""))
