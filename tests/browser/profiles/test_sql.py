"""The SQL console in a real browser: run, stop, errors in place, chart, files, keeping a query, a track on the timeline."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.visit import H200, eventually, poll, read_once, shows

RECORDING = H200 / "kineto_train.json.gz"
EDITOR = "#sql .cm-content"
APP = "document.getElementById('timeline').timeline"


@pytest.fixture(scope="module")
def profile_id(server_url: str, playwright: Any) -> int:
    return read_once(playwright, server_url, RECORDING)


def opened(page: Any, server_url: str, profile_id: int) -> Any:
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"{server_url}/sql/?profiles={profile_id}")           # from a profile by a click: tests/ways/test_first_query.py
    page.wait_for_selector("#sql[data-ready]")
    return page


@pytest.fixture
def console(watched: Any, server_url: str, profile_id: int) -> Any:
    return opened(watched, server_url, profile_id)


@pytest.fixture
def refusing(page: Any, server_url: str, profile_id: int) -> Any:
    """The same where answers of 400 belong to the test: the browser logs each as an error."""
    return opened(page, server_url, profile_id)


def write(page: Any, sql: str) -> None:
    page.locator(EDITOR).fill(sql)
    expect(page.locator("#sql-text")).to_have_value(sql)


def ran(page: Any) -> str:
    """Ctrl+Enter, and what the page says then."""
    page.evaluate("document.getElementById('sql-answer').textContent = ''")
    page.locator(EDITOR).press("Control+Enter")
    return str(poll(page, "document.getElementById('sql').getAttribute('aria-busy') === 'false' "
                          "&& document.getElementById('sql-answer').textContent"))


def test_a_query_gives_a_table(console: Any, profile_id: int) -> None:
    write(console, "SELECT category, count(*) AS n, sum(dur_ns) AS total_ns FROM slices GROUP BY ALL ORDER BY n DESC")
    assert f"rows of {RECORDING.name} in" in ran(console)
    first = console.locator("#sql-table .tabulator-row").first
    first.wait_for()
    shows(first, "cpu_op")
    shows(first, "ms")
    eventually(lambda: f"profiles={profile_id}" in console.url)
    eventually(lambda: "q=SELECT" in console.url)
    console.reload()                                # the address holds profiles and query
    console.locator("#sql-table .tabulator-row").first.wait_for()
    eventually(lambda: "total_ns" in console.locator("#sql-text").input_value())


def test_an_error_is_shown_where_it_is(refusing: Any) -> None:
    write(refusing, "SELECT name,\n       nosuch\nFROM slices")
    ran(refusing)
    shows(refusing.locator("#sql-error"), "line 2, column 8")
    eventually(lambda: refusing.evaluate("getSelection().toString()") == "nosuch")
    expect(refusing.locator(EDITOR)).to_have_attribute("aria-invalid", "true")
    write(refusing, "SELECT 1 AS a")
    ran(refusing)
    expect(refusing.locator("#sql-error")).to_be_hidden()


def test_a_long_query_can_be_stopped(refusing: Any) -> None:
    write(refusing, "SELECT count(*) FROM range(10000000) a, range(10000000) b")
    refusing.locator("#sql-run").click()
    refusing.locator("#sql-stop").wait_for()
    poll(refusing, "parseFloat(document.getElementById('sql-elapsed').textContent) > 0.5")
    refusing.locator("#sql-stop").click()
    poll(refusing, "document.getElementById('sql-answer').textContent === 'The query was stopped.'", 6000)
    expect(refusing.locator("#sql-run")).to_be_enabled()


@pytest.mark.deep_only          # tests/js/sql/editor.test.js
def test_keys_of_the_editor(console: Any) -> None:
    for sql in ("SELECT 1 AS one", "SELECT 2 AS two"):
        write(console, sql)
        ran(console)
    write(console, "draft")
    editor, field = console.locator(EDITOR), console.locator("#sql-text")
    editor.press("Control+ArrowUp")
    editor.press("Control+ArrowUp")
    expect(field).to_have_value("SELECT 1 AS one")
    for _ in range(2):
        editor.press("Control+ArrowDown")
    expect(field).to_have_value("draft")
    editor.press("Home")
    editor.press("Tab")
    expect(field).to_have_value("  draft")
    editor.press("Escape")
    editor.press("Tab")
    eventually(lambda: console.evaluate("document.activeElement.id") == "sql-run")


def test_tables_and_columns_are_completed_and_coloured(console: Any) -> None:
    """Typed key by key; `watched` fails the test on a violation of the CSP."""
    write(console, "")
    editor, offered = console.locator(EDITOR), console.locator(".cm-tooltip-autocomplete li[aria-selected]")
    editor.press_sequentially("select count(*) as n from slic")
    shows(offered, "slices")
    console.wait_for_timeout(150)                   # a list just opened takes no key, so that none is taken by chance
    editor.press("Tab")
    expect(console.locator("#sql-text")).to_have_value("select count(*) as n from slices")
    editor.press_sequentially(" where dur_n")
    shows(offered, "dur_ns")
    console.wait_for_timeout(150)
    editor.press("Tab")
    expect(console.locator("#sql-text")).to_have_value("select count(*) as n from slices where dur_ns")
    editor.press_sequentially(" is null or true")
    expect(console.locator(f"{EDITOR} .tok-keyword").first).to_have_text("select")
    keyword, plain = (console.locator(f"{EDITOR} {part}").first.evaluate("e => getComputedStyle(e).color")
                      for part in (".tok-keyword", ".cm-line"))
    assert keyword != plain
    assert f"1 row of {RECORDING.name}" in ran(console)


def test_without_its_library_the_field_is_plain(page: Any, server_url: str, profile_id: int) -> None:
    page.route("**/codemirror.min*.js", lambda route: route.abort())
    opened(page, server_url, profile_id)
    field = page.locator("#sql-text")
    field.fill("SELECT 7 AS seven")
    field.press("Control+Enter")
    shows(page.locator("#sql-table .tabulator-row").first, "7")


def test_wide_results_scroll_in_their_own_box(console: Any) -> None:
    console.set_viewport_size({"width": 1000, "height": 900})
    write(console, "SELECT " + ", ".join(f"repeat('wide ', 20) AS column_{i}" for i in range(12)))
    ran(console)
    console.locator("#sql-table .tabulator-row").first.wait_for()
    assert console.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert console.evaluate("(e => e.scrollWidth > e.clientWidth)(document.querySelector('#sql-table .tabulator-tableholder'))")


def test_an_example_is_a_chart(console: Any) -> None:
    console.get_by_role("button", name="Top kernels").click()
    console.locator("#sql-table .tabulator-row").first.wait_for()
    console.get_by_role("tab", name="Chart").click()
    console.locator("#sql-figure[data-state=ready] canvas").first.wait_for()
    expect(console.locator("#sql-kind")).to_have_value("bar")
    eventually(lambda: "example=top-kernels" in console.url)
    console.locator("#sql-kind").select_option("histogram")
    console.locator("#sql-x").select_option("mean_ns")
    poll(console, "document.getElementById('sql-chart-note').textContent !== 'drawing…'")
    expect(console.locator("#sql-y")).to_be_hidden()


def test_the_whole_result_is_a_file(console: Any) -> None:
    write(console, "SELECT i AS number FROM range(25000) t(i)")
    assert ran(console).startswith("10,000 or more rows")
    console.locator("#sql-files summary").click()
    with console.expect_download() as made:
        console.locator("#sql-files [data-format=csv]").click()
    lines = made.value.path().read_text().split()
    assert made.value.suggested_filename == "query.csv" and len(lines) == 25_001


def test_words_of_the_documentation_go_into_the_query(console: Any) -> None:
    write(console, "SELECT")
    console.locator(".sql-doc summary", has_text="kernels").first.click()
    console.locator(".sql-doc[open] [data-word=occupancy_pct]").click()
    expect(console.locator("#sql-text")).to_have_value("SELECT occupancy_pct")


def test_a_kept_query_is_a_track_of_the_timeline(console: Any, profile_id: int) -> None:
    write(console, "SELECT start_ns, dur_ns * 3 AS dur_ns, 'long ' || name AS name FROM kernels ORDER BY dur_ns DESC LIMIT 50")
    ran(console)
    console.locator("#sql-track").click()           # it asks for a name first
    console.locator("#sql-name").fill("Long kernels")
    console.locator("#sql-save-new").click()
    console.wait_for_selector("#timeline[data-ready]")
    eventually(lambda: f"/profiles/{profile_id}/timeline/" in console.url)
    eventually(lambda: "sql=" in console.url)
    poll(console, f"(({{timeline, tiles, scheduled}}) => timeline.names !== null && tiles.pending === 0 && !scheduled)({APP})")
    track = console.evaluate(f"[...{APP}.timeline.tracks.values()].find((t) => t.name === 'Long kernels')")
    assert track["slices"] == 50 and track["group"] == "SQL"
    drawn = console.evaluate(f"""(({{timeline, tiles, viewport}}) =>
      tiles.runs({track["id"]}, timeline.topLevel, viewport.start, viewport.end)
        .flatMap((run) => run.tiles).reduce((n, {{tile}}) => n + tile.count.reduce((a, b) => a + b, 0), 0))({APP})""")
    assert drawn == 50
    eventually(lambda: "sql=" in console.url)                    # the timeline's own address keeps it
    console.get_by_role("link", name="tracks of SQL").click()
    console.wait_for_selector("#timeline[data-ready]")
    eventually(lambda: "sql=" not in console.url)


def test_kept_queries_are_listed_changed_and_deleted(console: Any) -> None:
    write(console, "SELECT 3 AS three")
    console.locator("#sql-save").click()
    console.locator("#sql-name").fill("Three")
    console.locator("#sql-save-new").click()
    line = console.locator("#sql-queries li", has_text="Three")
    line.wait_for()
    write(console, "SELECT 33 AS three")
    console.locator("#sql-save").click()
    with console.expect_response(lambda answer: answer.url.endswith("/api/queries/") and answer.request.method == "GET"):
        console.locator("#sql-save-over").click()
    line.get_by_text("by local").wait_for()
    write(console, "")
    line.get_by_role("button", name="Three", exact=True).click()
    expect(console.locator("#sql-text")).to_have_value("SELECT 33 AS three")
    for _ in range(2):
        line.get_by_role("button", name="Delete").click()
    line.wait_for(state="detached")
