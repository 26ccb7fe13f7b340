"""Getting about the timeline in a real browser, by keys and by mouse: walking, arranging, searching, measuring, notes, links."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.timeline.test_timeline import APP, GEMM, RECORDING, get_json, place, query, settled, window
from tests.browser.visit import eventually, poll, read_once, reads, shows

_PLACES = f"['{{first}}', '{{second}}'].map((name) => {APP}.stage.main.rows.rows.findIndex((row) => row.track?.name === name))"


@pytest.fixture(scope="session")
def run(server_url: str, playwright: Any) -> int:
    return read_once(playwright, server_url, RECORDING)


@pytest.fixture
def timeline(shared: Callable[[str], Any], run: int) -> Any:
    page = shared(f"/profiles/{run}/timeline/")
    settled(page)
    return page


def hits(page: Any, run: int, text: str, limit: int = 50) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = get_json(page, f"/api/profiles/{run}/slices/?q={text}&limit={limit}")["slices"]
    return found


def select(page: Any, slice_: dict[str, Any]) -> dict[str, Any]:
    """Go to a slice and wait for what the server knows about it."""
    page.evaluate(f"(s) => {APP}.chosen.jump(s, false)", slice_)
    poll(page, f"{APP}.chosen.slice?.links && {APP}.chosen.slice.id === {slice_['id']}")
    settled(page)
    page.locator(".tl-main").focus()
    return chosen(page)


def chosen(page: Any) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(f"{APP}.chosen.slice")
    return found


def press(page: Any, key: str, until: str) -> dict[str, Any]:
    """Press a key and wait until the selected slice `s` fulfils the expression and is known in full."""
    page.keyboard.press(key)
    poll(page, f"((s) => s && s.links && ({until}))({APP}.chosen.slice)")
    settled(page)
    return chosen(page)


def reloaded(page: Any) -> Any:
    """The same address in a fresh page."""
    settled(page)
    page.wait_for_timeout(50)
    poll(page, f"{APP}.history.timer === 0")            # the URL follows the view when it has come to rest
    url = page.url
    page.goto("about:blank")
    page.goto(url)
    settled(page)
    return page


def label(page: Any, name: str) -> Any:
    return page.locator(".tl-main .tl-label", has=page.locator(".tl-name", has_text=name)).first


def shown(page: Any) -> list[str]:
    names: list[str] = page.evaluate(f"{APP}.stage.main.rows.rows.map((row) => row.track?.name ?? row.group.name)")
    return names


# keys and wheel

@pytest.mark.deep_only          # every key is explained: tests/js/timeline/keymap.test.js
def test_the_help_sheet_lists_every_key_of_the_table(timeline: Any) -> None:
    timeline.keyboard.press("?")
    text = timeline.inner_text("dialog[open]")
    keys = timeline.evaluate("async () => (await import('/static/js/timeline/model/keymap.js')).KEYS.map((key) => key.what)")
    assert len(keys) > 25
    assert [what for what in keys if what not in text] == []
    timeline.keyboard.press("Escape")
    expect(timeline.locator("dialog[open]")).to_have_count(0)


def test_the_wheel_zooms_at_the_pointer(timeline: Any) -> None:
    start, end = window(timeline)
    box = timeline.locator(".tl-ruler").bounding_box()
    x = box["x"] + 0.3 * box["width"]
    timeline.mouse.move(x, 400)
    timeline.keyboard.down("Control")
    timeline.mouse.wheel(0, -300)
    timeline.keyboard.up("Control")
    settled(timeline)
    a, b = window(timeline)
    assert b - a < 0.8 * (end - start)
    assert abs(a + 0.3 * (b - a) - 0.3 * (end - start)) < 0.005 * (end - start)
    timeline.keyboard.down("Shift")
    timeline.mouse.wheel(0, 200)
    timeline.keyboard.up("Shift")
    settled(timeline)
    assert window(timeline)[0] > a


@pytest.mark.deep_only          # tests/js/timeline/keymap.test.js, neighbours.test.js
def test_arrows_pan_until_a_slice_is_selected_and_then_walk(timeline: Any, run: int) -> None:
    timeline.keyboard.press("w")
    timeline.wait_for_timeout(200)
    settled(timeline)
    before = window(timeline)
    timeline.locator(".tl-main").focus()
    timeline.keyboard.press("ArrowRight")
    settled(timeline)
    assert window(timeline)[0] > before[0]
    kernel = select(timeline, hits(timeline, run, GEMM)[3])
    after = press(timeline, "ArrowRight", f"s.start_ns > {kernel['start_ns']}")
    assert (after["track"], after["depth"]) == (kernel["track"], kernel["depth"])
    assert press(timeline, "ArrowLeft", f"s.id === {kernel['id']}")["id"] == kernel["id"]


def test_up_and_down_go_to_caller_callee_and_the_next_track(timeline: Any, run: int) -> None:
    op = select(timeline, next(s for s in hits(timeline, run, "aten::mm") if s["depth"] > 0))
    caller = press(timeline, "ArrowUp", f"s.depth === {op['depth'] - 1}")
    assert caller["track"] == op["track"]
    assert caller["start_ns"] <= op["start_ns"] and caller["start_ns"] + caller["dur_ns"] >= op["start_ns"] + op["dur_ns"]
    select(timeline, op)
    down = press(timeline, "ArrowDown", f"s.id !== {op['id']}")
    assert down["depth"] == op["depth"] + 1 and down["start_ns"] >= op["start_ns"]
    for _ in range(12):                     # through all callees to the next track
        down = press(timeline, "ArrowDown", f"s.id !== {down['id']}")
        if down["track"] != op["track"]:
            break
    assert down["track"] != op["track"]


def test_brackets_go_from_op_to_call_to_kernel_and_back(timeline: Any, run: int) -> None:
    kernel = select(timeline, hits(timeline, run, GEMM)[3])
    call = press(timeline, "[", "s.category === 'runtime'")
    op = press(timeline, "[", "s.category === 'cpu_op'")
    assert op["start_ns"] <= call["start_ns"] <= kernel["start_ns"]
    shows(timeline.locator("#tl-said").first, "of")
    onward = press(timeline, "]", "s.category === 'runtime'")
    assert press(timeline, "]", "/kernel|compute/.test(s.category)")["correlation"] == onward["correlation"]


@pytest.mark.deep_only          # tests/js/timeline/flows.test.js; brackets: the test above
def test_braces_visit_the_other_ends_and_reach_the_backward_pass(timeline: Any, run: int) -> None:
    ops = (get_json(timeline, f"/api/profiles/{run}/slices/{op['id']}/") for op in hits(timeline, run, "aten::addmm"))
    forward = next(op for op in ops if any(link["role"] == "backward" for link in op["links"]))
    select(timeline, forward)
    found = press(timeline, "]", f"s.id !== {forward['id']}")
    for _ in range(12):
        if any(link["role"] == "forward" for link in found["links"]):
            break
        found = press(timeline, "}", f"s.id !== {found['id']}")
    assert found["start_ns"] > forward["start_ns"]
    assert press(timeline, "[", f"s.id === {forward['id']}")["name"] == forward["name"]


# tracks

def test_tracks_hide_by_key_and_by_mouse_and_come_back(timeline: Any, run: int) -> None:
    names = shown(timeline)
    select(timeline, hits(timeline, run, GEMM)[0])
    timeline.keyboard.press("h")
    poll(timeline, "document.getElementById('tl-show-all').textContent === '1 hidden: show'")
    assert "stream 7" not in shown(timeline)
    row = label(timeline, "copy bandwidth")
    row.hover()
    row.locator("[data-part=hide]").click()
    reads(timeline.locator("#tl-show-all").first, "2 hidden: show")
    reloaded(timeline)
    reads(timeline.locator("#tl-show-all").first, "2 hidden: show")
    assert "hide" in query(timeline)
    timeline.click("#tl-show-all")
    assert shown(timeline) == names
    expect(timeline.locator("#tl-show-all")).to_be_hidden()


@pytest.mark.deep_only          # tests/js/timeline/arrange.test.js; the field: test_filter_fold_keys_and_themes
def test_a_filter_is_words_or_a_pattern(timeline: Any) -> None:
    timeline.fill("#tl-filter", "^stream|overhead$|overhead")
    assert [name for name in shown(timeline) if name in ("stream 7", "overhead")] == ["stream 7", "overhead"]
    assert not any("thread" in name for name in shown(timeline))
    shows(timeline.locator("#tl-show-all").first, "hidden: show")
    timeline.fill("#tl-filter", "stream [")
    expect(timeline.locator("#tl-filter").first).to_have_attribute("aria-invalid", "true")
    eventually(lambda: "Not a pattern" in timeline.get_attribute("#tl-filter", "title"))
    assert any("thread" in name for name in shown(timeline))
    timeline.fill("#tl-filter", "/STREAM 7/")
    reloaded(timeline)
    assert shown(timeline) == ["GPU 0", "stream 7"]


def test_tracks_move_by_keys_and_by_dragging_their_names(timeline: Any) -> None:
    names = shown(timeline)
    first, second = [name for name in names if name.startswith("thread")][:2]
    label(timeline, first).locator("button").first.focus()
    timeline.keyboard.press("Alt+ArrowDown")
    assert shown(timeline).index(second) < shown(timeline).index(first)
    focused = timeline.evaluate("document.activeElement.closest('.tl-label').innerText")
    assert focused.startswith(first[:8])                      # the focus goes along
    reloaded(timeline)
    assert shown(timeline).index(second) < shown(timeline).index(first)
    label(timeline, first).drag_to(label(timeline, second))
    poll(timeline, f"(([a, b]) => a < b)({_PLACES.format(first=first, second=second)})")
    assert shown(timeline) == names
    assert names[0] == "GPU 0"                                # GPUs stand above threads
    label(timeline, "python3").drag_to(label(timeline, "GPU 0"))
    assert shown(timeline)[0].startswith("python3")


def test_names_are_walked_folded_and_pinned_by_keys(timeline: Any) -> None:
    label(timeline, "python3").locator("button").first.focus()
    timeline.keyboard.press("ArrowDown")
    eventually(lambda: "thread" in timeline.evaluate("document.activeElement.closest('.tl-label').innerText"))
    timeline.keyboard.press("c")
    assert poll(timeline, f"{APP}.view.folded.has('t:0')")
    timeline.keyboard.press("p")
    poll(timeline, "document.querySelectorAll('.tl-pinned .tl-label').length === 1")
    timeline.keyboard.press("Shift+C")
    assert poll(timeline, f"{APP}.stage.main.rows.rows.every((row) => row.kind === 'group')")
    reloaded(timeline)
    expect(timeline.locator(".tl-pinned .tl-label")).to_have_count(1)
    eventually(lambda: timeline.evaluate(f"{APP}.stage.main.rows.rows.every((row) => row.kind === 'group')"))


# measuring

@pytest.mark.deep_only          # tests/js/timeline/flows.test.js; test_the_ruler_measures_and_its_edges_move
def test_edges_of_a_drag_snap_to_slices_unless_alt_is_held(timeline: Any, run: int) -> None:
    kernel = select(timeline, hits(timeline, run, GEMM)[3])
    _, y = place(timeline, kernel)
    left, right = timeline.evaluate(f"(s) => [{APP}.viewport.x(s.start_ns), {APP}.viewport.x(s.start_ns + s.dur_ns)]", kernel)
    origin = timeline.locator(".tl-ruler").bounding_box()["x"]

    def dragged(*modifiers: str) -> dict[str, Any]:
        for modifier in modifiers:
            timeline.keyboard.down(modifier)
        timeline.mouse.move(origin + left + 3, y)
        timeline.mouse.down()
        timeline.mouse.move(origin + right - 10, y, steps=4)
        timeline.mouse.move(origin + right - 3, y)
        timeline.mouse.up()
        for modifier in modifiers:
            timeline.keyboard.up(modifier)
        area: dict[str, Any] = timeline.evaluate(f"{APP}.chosen.area")
        return area

    assert right - left > 20
    area = dragged()
    assert (area["start"], area["end"]) == (kernel["start_ns"], kernel["start_ns"] + kernel["dur_ns"])
    shows(timeline.locator(".tl-panel").first, "selected")
    free = dragged("Alt")
    assert free["start"] > kernel["start_ns"] and free["end"] < kernel["start_ns"] + kernel["dur_ns"]


def test_the_ruler_measures_and_its_edges_move(timeline: Any, run: int) -> None:
    kernel = select(timeline, hits(timeline, run, GEMM)[3])
    end = kernel["start_ns"] + kernel["dur_ns"]
    box = timeline.locator(".tl-ruler").bounding_box()
    at = timeline.evaluate(f"(s) => [s.start_ns, s.start_ns + s.dur_ns].map((ns) => {APP}.viewport.x(ns))", kernel)
    timeline.mouse.move(box["x"] + 40, box["y"] + 8)
    expect(timeline.locator(".tl-cursor-time")).to_be_visible()
    eventually(lambda: timeline.inner_text(".tl-cursor-time").endswith(("ms", "µs", "s")))
    timeline.mouse.down()
    timeline.mouse.move(box["x"] + at[0], box["y"] + 8, steps=5)
    timeline.mouse.up()
    eventually(lambda: timeline.evaluate(f"{APP}.chosen.area.end") == kernel["start_ns"])
    settled(timeline)
    timeline.mouse.move(box["x"] + at[0], box["y"] + 8)
    timeline.mouse.down()
    timeline.mouse.move(box["x"] + at[1], box["y"] + 8, steps=5)
    timeline.mouse.up()
    eventually(lambda: timeline.evaluate(f"{APP}.chosen.area.end") == end)


def test_a_selection_grows_by_keys(timeline: Any, run: int) -> None:
    kernel = select(timeline, hits(timeline, run, GEMM)[3])
    timeline.keyboard.press("Shift+ArrowRight")
    poll(timeline, f"{APP}.chosen.area && {APP}.chosen.area.end > {kernel['start_ns'] + kernel['dur_ns']}")
    area = timeline.evaluate(f"{APP}.chosen.area")
    assert area["start"] == kernel["start_ns"] and area["tracks"] == [kernel["track"]]
    timeline.keyboard.press("Shift+ArrowRight")
    poll(timeline, f"{APP}.chosen.area.end > {area['end']}")
    timeline.keyboard.press("Shift+ArrowDown")
    poll(timeline, f"{APP}.chosen.area.tracks.length === 2")
    timeline.keyboard.press("m")
    eventually(lambda: timeline.evaluate(f"{APP}.marks.length") == 1)
    timeline.click("#tl-mark")
    eventually(lambda: timeline.evaluate(f"{APP}.marks.length") == 0)


# bookmarks and notes

def cleared(page: Any) -> None:
    """No notes: those of an earlier test are taken away."""
    page.evaluate(f"""async () => {{
      const {{store}} = {APP}.notes;
      await store.load();
      for (const {{id}} of [...store.ordered]) await store.remove(id);
    }}""")


def test_a_note_is_written_shared_changed_and_deleted(timeline: Any, context: Any, run: int) -> None:
    cleared(timeline)
    other = context.new_page()
    other.goto(timeline.url)
    settled(other)
    kernel = select(timeline, hits(timeline, run, GEMM)[3])
    timeline.keyboard.press("n")
    timeline.keyboard.type("Why so late?\nSee <b>the</b> call.")
    timeline.keyboard.press("Control+Enter")
    poll(timeline, "document.querySelectorAll('.tl-flag').length === 1")
    poll(other, "document.getElementById('tl-notes-button').textContent === 'Notes 1'")         # told, not asked
    note = other.evaluate(f"{APP}.notes.store.ordered[0]")
    assert (note["start_ns"], note["end_ns"]) == (kernel["start_ns"], kernel["start_ns"] + kernel["dur_ns"])
    assert (note["track"], note["depth"], note["author"]) == (kernel["track"], kernel["depth"], "local")
    other.click("#tl-notes-button")
    listed = other.inner_text(".tl-notes li")
    assert "Why so late?" in listed and "See <b>the</b> call." in listed and "stream 7" in listed and "local" in listed
    other.click(".tl-notes >> text=Edit")
    other.fill("dialog textarea", "Because of the copy")
    other.click("dialog >> text=Save")
    poll(timeline, "document.querySelector('.tl-flag')?.title.startsWith('Because of the copy')")
    other.click(".tl-notes li >> text=Delete")
    poll(timeline, "document.querySelectorAll('.tl-flag').length === 0")
    other.close()


@pytest.mark.deep_only          # tests/js/timeline/notes.test.js; the panel: the test above
def test_bookmarks_by_key_and_mouse_and_going_from_one_to_the_next(timeline: Any, run: int) -> None:
    cleared(timeline)
    kernels = hits(timeline, run, GEMM)
    for kernel in (kernels[2], kernels[30]):
        select(timeline, kernel)
        timeline.keyboard.press("b")
        poll(timeline, f"{APP}.notes.store.ordered.some((note) => note.start_ns === {kernel['start_ns']})")
    timeline.keyboard.press("Escape")
    timeline.keyboard.press("0")
    settled(timeline)
    timeline.keyboard.press("l")
    expect(timeline.locator(".tl-notes li")).to_have_count(2)
    timeline.click(".tl-notes >> text=Bookmark (B)")
    poll(timeline, "document.querySelectorAll('.tl-notes li').length === 3")          # as the live connection told, perhaps
    poll(timeline, f"{APP}.notes.store.current === Math.max(...{APP}.notes.store.byId.keys())")      # and as the answer did
    timeline.locator(".tl-main").focus()
    starts = timeline.evaluate(f"{APP}.notes.store.ordered.map((note) => note.start_ns)")
    for key, at in (("k", 1), ("k", 0), ("j", 1)):
        timeline.evaluate(f"{APP}.notes.store.current ??= {APP}.notes.store.ordered.at(-1).id")
        if key == "k" and at == 1:
            timeline.evaluate(f"{APP}.notes.store.current = {APP}.notes.store.ordered.at(-1).id")
        timeline.keyboard.press(key)
        settled(timeline)
        poll(timeline, f"{APP}.notes.store.current === {APP}.notes.store.ordered[{at}].id")
        a, b = window(timeline)
        assert a <= starts[at] <= b
    reloaded(timeline)
    expect(timeline.locator(".tl-notes")).to_be_visible()
    expect(timeline.locator(".tl-note-current")).to_have_count(1)
    timeline.locator(".tl-main").focus()
    timeline.keyboard.press("0")
    settled(timeline)
    timeline.evaluate(f"document.querySelector('.tl-flag[data-note=\"' + {APP}.notes.store.ordered[0].id + '\"]').focus()")
    timeline.keyboard.press("Enter")
    eventually(lambda: timeline.evaluate(f"{APP}.notes.store.current === {APP}.notes.store.ordered[0].id"))
    cleared(timeline)


def test_who_only_reads_gets_no_tools_to_write(page: Any, server_url: str, run: int) -> None:
    note = {"id": 1, "track": None, "depth": None, "start_ns": 5, "end_ns": 5, "text": "hers", "author": "alice",
            "created": "2026-11-21T10:00:00+00:00", "changed": "2026-11-21T10:00:00+00:00"}
    answer = {"notes": [note], "me": "bob", "may_write": False, "may_moderate": False}
    page.route("**/notes/", lambda route: route.fulfill(json=answer))
    page.goto(f"{server_url}/profiles/{run}/timeline/?notes=1")
    settled(page)
    poll(page, "document.querySelectorAll('.tl-notes li').length === 1")
    expect(page.locator(".tl-notes >> text=Edit")).to_have_count(0)
    expect(page.locator(".tl-notes >> text=Delete")).to_have_count(0)
    shows(page.locator(".tl-notes").first, "role engineer")
    page.locator(".tl-main").focus()
    page.keyboard.press("n")
    expect(page.locator("dialog[open]")).to_have_count(0)
    shows(page.locator("#tl-said").first, "role engineer")


# links

def test_a_link_restores_the_exact_view(timeline: Any, context: Any, run: int) -> None:
    kernel = hits(timeline, run, GEMM)[3]
    timeline.set_viewport_size({"width": 1440, "height": 420})
    label(timeline, "python3").locator("[data-part=fold]").click()
    select(timeline, kernel)
    timeline.keyboard.press("p")
    timeline.keyboard.press("m")
    label(timeline, "copy bandwidth").locator("button").first.focus()
    timeline.keyboard.press("h")
    timeline.fill("#tl-q", GEMM)
    poll(timeline, "/\\/ \\d/.test(document.getElementById('tl-hits').textContent)")
    timeline.evaluate(f"{APP}.stage.main.element.scrollTop = 31")
    settled(timeline)
    timeline.wait_for_timeout(450)
    state = ("(({viewport, view, marks, search, chosen, stage}) => JSON.stringify([viewport.start.toFixed(2), "
             "viewport.end.toFixed(2), "
             "[...view.folded], [...view.pinned], [...view.hidden], marks, search.query, search.mode, chosen.slice?.id, "
             f"stage.main.scroll]))({APP})")
    before = timeline.evaluate(state)
    timeline.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    timeline.click("#tl-link")
    poll(timeline, "document.getElementById('tl-link').textContent === 'Link copied'")
    link = timeline.evaluate("window.copied")
    fresh = context.new_page()
    fresh.set_viewport_size({"width": 1440, "height": 420})
    fresh.goto(link)
    settled(fresh)
    poll(fresh, f"{APP}.chosen.slice?.name")
    settled(fresh)
    eventually(lambda: fresh.evaluate(state) == before)
    fresh.close()


@pytest.mark.deep_only          # tests/js/timeline/url.test.js
def test_a_link_of_the_first_version_still_opens(page: Any, server_url: str, run: int) -> None:
    page.goto(f"{server_url}/profiles/{run}/timeline/?w=2000000-3000000&q=gemm&f=GPU&fold=g:python3+(506)&m=2100000-2200000")
    settled(page)
    assert window(page) == (2_000_000, 3_000_000)
    expect(page.locator("#tl-q").first).to_have_value("gemm")
    expect(page.locator("#tl-filter").first).to_have_value("GPU")
    eventually(lambda: page.evaluate(f"{APP}.marks") == [{"start": 2_100_000, "end": 2_200_000}])


@pytest.mark.deep_only          # tests/js/timeline/url.test.js
def test_other_keys_of_an_address_are_kept(timeline: Any) -> None:
    timeline.goto(timeline.url.split("?")[0] + "?from=mail")
    settled(timeline)
    timeline.keyboard.press("w")
    poll(timeline, "/w=/.test(location.search) && /from=mail/.test(location.search)")


# fingers and words

def test_fingers_pan_and_pinch(browser: Any, server_url: str, run: int) -> None:
    context = browser.new_context(has_touch=True, viewport={"width": 412, "height": 800})
    page = context.new_page()
    page.goto(f"{server_url}/profiles/{run}/timeline/?w=10000000-20000000")
    settled(page)
    touch = context.new_cdp_session(page)
    box = page.locator(".tl-main canvas").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + 120

    def send(kind: str, *points: tuple[float, float]) -> None:
        places = [{"x": left, "y": top, "id": finger} for finger, (left, top) in enumerate(points)]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": places})

    start, end = window(page)
    send("touchStart", (x, y))
    for step in range(1, 6):
        send("touchMove", (x - 12 * step, y))
    send("touchEnd")
    settled(page)
    a, b = window(page)
    assert a > start and abs((b - a) - (end - start)) < 1
    send("touchStart", (x - 20, y))
    send("touchStart", (x - 20, y), (x + 20, y))
    for step in range(1, 6):
        send("touchMove", (x - 20 - 12 * step, y), (x + 20 + 12 * step, y))
    send("touchEnd")
    settled(page)
    assert window(page)[1] - window(page)[0] < 0.6 * (b - a)
    context.close()


def test_the_view_is_told_in_words_and_focus_is_seen(timeline: Any, run: int) -> None:
    kernel = select(timeline, hits(timeline, run, GEMM)[3])
    said = poll(timeline, "((text) => text.includes('Selected') && text)(document.getElementById('tl-live').textContent)")
    assert "Showing" in said and "tracks" in said and kernel["name"] in said
    order = []
    timeline.locator("#tl-mode").focus()
    for _ in range(40):
        timeline.keyboard.press("Tab")
        order.append(timeline.evaluate("document.activeElement.id || document.activeElement.className"))
    for wanted in ("tl-q", "tl-filter", "tl-fit", "tl-notes-button", "tl-link"):
        assert wanted in order
    assert any("tl-main" in each for each in order) and any("tl-fold" in each for each in order)
    timeline.keyboard.press("Tab")
    eventually(lambda: timeline.evaluate("document.activeElement.matches(':focus-visible')"))


# searching

def test_search_by_pattern_says_what_is_wrong_with_it(timeline: Any, run: int) -> None:
    timeline.keyboard.press("/")
    timeline.keyboard.press("Alt+r")
    expect(timeline.locator("#tl-mode").first).to_have_value("regex")
    timeline.keyboard.type("^nvjet_sm90.*TNT$")
    poll(timeline, "/\\/ \\d/.test(document.getElementById('tl-hits').textContent)")
    expected = get_json(timeline, f"/api/profiles/{run}/slices/?q=%5Envjet_sm90.*TNT%24&mode=regex&limit=1")["total"]
    eventually(lambda: timeline.inner_text("#tl-hits").endswith(f"/ {expected:,}"))
    timeline.keyboard.press("Enter")
    poll(timeline, f"{APP}.chosen.slice?.name?.startsWith('nvjet_sm90') && {APP}.chosen.slice.name.endsWith('TNT')")
    reloaded(timeline)
    expect(timeline.locator("#tl-mode").first).to_have_value("regex")
    assert query(timeline)["qm"] == ["regex"]
    poll(timeline, f"document.getElementById('tl-hits').textContent.endsWith('/ {expected:,}')")


@pytest.mark.deep_only          # tests/js/timeline/search.test.js: a failed search says so and can be repeated
def test_a_pattern_that_is_none_is_told(page: Any, server_url: str, run: int) -> None:
    page.goto(f"{server_url}/profiles/{run}/timeline/?qm=regex&q=nvjet(")
    settled(page)
    poll(page, "!document.getElementById('tl-q-error').hidden")
    expect(page.locator("#tl-q").first).to_have_attribute("aria-invalid", "true")
    eventually(lambda: len(page.inner_text("#tl-q-error")) > 10)
    page.fill("#tl-q", "nvjet")
    poll(page, "document.getElementById('tl-q-error').hidden && /\\/ \\d/.test(document.getElementById('tl-hits').textContent)")


def test_search_by_argument(timeline: Any, run: int) -> None:
    timeline.select_option("#tl-mode", "argument")
    timeline.fill("#tl-q", "stream:7")
    poll(timeline, "/\\/ \\d/.test(document.getElementById('tl-hits').textContent)")
    timeline.click("#tl-hit-next")
    poll(timeline, f"{APP}.chosen.slice?.links && {APP}.chosen.slice.stream === 7")
    timeline.fill("#tl-q", "Input Dims:[[1024]")
    poll(timeline, f"{APP}.search.query.startsWith('Input Dims') && {APP}.search.total > 0")
    timeline.click("#tl-hit-next")
    poll(timeline, f"JSON.stringify({APP}.chosen.slice?.detail ?? '').includes('[[1024]')")


def test_the_strip_of_hits_shows_where_they_are_and_goes_there(timeline: Any, run: int) -> None:
    assert timeline.locator(".tl-hits").bounding_box()["height"] < 2
    timeline.fill("#tl-q", GEMM)
    poll(timeline, f"{APP}.search.strip?.length > 0")
    settled(timeline)
    found = hits(timeline, run, GEMM, 1000)
    eventually(lambda: sum(timeline.evaluate(f"{APP}.search.strip")) == len(found))
    wanted = found[len(found) // 2]
    box = timeline.locator(".tl-hits").bounding_box()
    assert box["height"] > 8
    share = wanted["start_ns"] / timeline.evaluate(f"{APP}.timeline.opening[1]")
    timeline.mouse.click(box["x"] + share * box["width"], box["y"] + 5)
    poll(timeline, f"{APP}.search.index >= 0 && {APP}.chosen.slice?.links")
    picked = chosen(timeline)
    assert abs(picked["start_ns"] - wanted["start_ns"]) < 400_000
    timeline.locator(".tl-hits").focus()
    timeline.keyboard.press("ArrowRight")
    poll(timeline, f"{APP}.chosen.slice?.start_ns > {picked['start_ns']}")


@pytest.mark.deep_only          # tests/js/timeline/summary.test.js
def test_the_view_is_summed_up_in_a_sentence_on_demand(timeline: Any, run: int) -> None:
    timeline.evaluate(f"{APP}.go(2700000, 3000000)")
    settled(timeline)
    timeline.keyboard.press("q")
    poll(timeline, "/Most time/.test(document.getElementById('tl-said').textContent)")
    answer = get_json(timeline, f"/api/profiles/{run}/selection/?start=2700000&end=3000000")
    said = timeline.inner_text("#tl-said")
    assert f"{answer['slices']} slices" in said and "GPU busy" in said and "ProfilerStep" not in said
