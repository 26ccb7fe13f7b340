"""The timeline of a job of two ranks: how its tracks are grouped, whose steps stand where, and that tips and labels stay whole."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.timeline.test_timeline import APP, query, settled
from tests.browser.visit import H200, eventually, fits, poll, reads, shows, uploaded


@pytest.fixture(scope="session")
def job(server_url: str, playwright: Any, tmp_path_factory: pytest.TempPathFactory) -> int:
    """Both ranks of the recorded training as one profile."""
    packed = tmp_path_factory.mktemp("job") / "ddp.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for rank in (0, 1):
            archive.write(H200 / f"ddp_even_rank{rank}.json.gz", f"rank{rank}.json.gz")
    return uploaded(playwright, server_url, packed, name="ddp")


@pytest.fixture
def timeline(shared: Callable[[str], Any], job: int) -> Any:
    page = shared(f"/profiles/{job}/timeline/")
    settled(page)
    return page


def groups(page: Any) -> list[str]:
    """The names of the groups of rows; none before the rows of a kernel are fetched."""
    return page.evaluate(f"{APP}.stage.main.rows.rows.filter((row) => row.kind === 'group').map((row) => row.group.name)")


def test_ranks_are_stacked_with_their_gpus_first_and_internals_folded_with_their_count(timeline: Any) -> None:
    names = groups(timeline)
    assert [name.split(" (")[0] for name in names[:-1]] == ["rank 0: GPU 0", "rank 0: python", "rank 1: GPU 1", "rank 1: python"]
    aside = timeline.evaluate(f"{APP}.stage.main.rows.rows.at(-1)")
    assert aside["folded"] and len(aside["tracks"]) == 8 and "Profiler" in names[-1]
    timeline.evaluate(f"{APP}.stage.main.element.scrollTop = 1e6")
    row = timeline.locator(".tl-label-aside")
    shows(row, "8")
    row.locator("[data-part=fold]").click()
    shows(timeline.locator(".tl-main .tl-labels"), "rank 0: Spans / PyTorch Profiler")


def test_steps_stand_in_their_own_rank(timeline: Any) -> None:
    reads(timeline.locator(".tl-steps-of"), "steps of rank 0")
    owners = timeline.evaluate(f"""(({{timeline, stage: {{main}}}}) => main.rows.rows.filter(
        (row) => row.track && !row.track.aside).map(
        (row) => [row.track.rank, [...new Set(timeline.stepsOf(timeline.rowOwner(row)).map((step) => step.owner))]]))({APP})""")
    assert owners and all(steps == [rank] for rank, steps in owners)
    timeline.set_viewport_size({"width": 1440, "height": 480})
    timeline.evaluate(f"{APP}.stage.main.element.scrollTop = {APP}.stage.main.rows.rows.find((r) => r.group.rank === 'rank 1').y")
    reads(timeline.locator(".tl-steps-of"), "steps of rank 1")


def test_by_stream_and_by_kernel_are_part_of_the_address_and_back_leads_back(timeline: Any, job: int) -> None:
    before = groups(timeline)
    timeline.select_option("#tl-by", "stream")
    eventually(lambda: groups(timeline)[:2] == ["stream 7", "stream 17"])
    assert query(timeline)["by"] == ["stream"]
    timeline.select_option("#tl-by", "kernel")
    eventually(lambda: "AllReduce" in " ".join(groups(timeline)[:1]))
    settled(timeline)
    assert query(timeline)["by"] == ["kernel"]
    timeline.reload()
    settled(timeline)
    eventually(lambda: "AllReduce" in " ".join(groups(timeline)[:1]))
    expect(timeline.locator("#tl-by")).to_have_value("kernel")
    timeline.go_back()
    eventually(lambda: groups(timeline)[:1] == ["stream 7"])
    timeline.go_back()
    eventually(lambda: groups(timeline) == before)
    expect(timeline.locator("#tl-by")).to_have_value("rank")


def test_every_launch_of_a_kernel_stands_on_its_lanes_and_is_chosen_there(timeline: Any, job: int) -> None:
    timeline.select_option("#tl-by", "kernel")
    eventually(lambda: "AllReduce" in " ".join(groups(timeline)[:1]))
    timeline.locator(".tl-main .tl-label-group [data-part=fold]").first.click()
    settled(timeline)
    lanes = timeline.evaluate(
        f"{APP}.stage.main.rows.rows.slice(1, 3).map(({{track}}) => [track.slices, track.rank, track.of])")
    assert [lane[:2] for lane in lanes] == [[50, "rank 0"], [50, "rank 1"]]
    x, y = timeline.evaluate(f"""(({{stage, tiles, viewport, timeline}}) => {{
      const row = stage.main.rows.rows[1], level = viewport.level(timeline.topLevel);
      const {{tile}} = tiles.runs(row.track.id, level, viewport.start, viewport.end)[0].tiles[0];
      const box = stage.ruler.canvas.getBoundingClientRect(), top = stage.root.getBoundingClientRect().top;
      return [box.left + viewport.x(tile.start[0] + tile.dur[0] / 2), top + stage.overlayTop + stage.main.top + row.y + 12];
    }})({APP})""")
    timeline.mouse.click(x, y)
    timeline.wait_for_selector(".tl-details")
    chosen = timeline.evaluate(
        f"(({{chosen: {{slice}}, timeline}}) => [slice.track, timeline.kernelLane(slice)?.of, slice.name])({APP})")
    assert chosen[0] == chosen[1] == lanes[0][2] and "AllReduce" in chosen[2]
    timeline.keyboard.press(".")                         # the next slice of its stream
    poll(timeline, f"{APP}.chosen.slice.links && {APP}.chosen.slice.track === {lanes[0][2]}")


@pytest.mark.parametrize(("width", "height"), [pytest.param(1440, 900, marks=pytest.mark.deep_only), (390, 800)])
def test_the_tip_follows_the_pointer_and_stays_in_the_view(watched: Any, server_url: str, job: int, width: int,
                                                           height: int) -> None:
    timeline = watched
    timeline.emulate_media(reduced_motion="reduce")
    timeline.set_viewport_size({"width": 1440, "height": 900})
    timeline.goto(f"{server_url}/profiles/{job}/timeline/")
    settled(timeline)
    timeline.set_viewport_size({"width": width, "height": height})
    settled(timeline)
    box = timeline.locator(".tl-stage").bounding_box()
    lanes = timeline.locator(".tl-main canvas").bounding_box()
    seen = 0
    for share in (0.05, 0.4, 0.75, 0.98):
        for y in range(int(lanes["y"]) + 30, int(box["y"] + box["height"]) - 2, 40):
            timeline.mouse.move(lanes["x"] + share * lanes["width"], y)
            tip = timeline.locator(".tl-tip").bounding_box() if timeline.locator(".tl-tip").is_visible() else None
            if tip is None:
                continue
            seen += 1
            assert box["x"] <= tip["x"] and tip["x"] + tip["width"] <= box["x"] + box["width"] + 0.5
            assert box["y"] <= tip["y"] and tip["y"] + tip["height"] <= box["y"] + box["height"] + 0.5
    assert seen > 3


def test_the_tip_tells_what_comes_under_a_resting_pointer(timeline: Any) -> None:
    lanes = timeline.locator(".tl-main canvas").bounding_box()
    timeline.mouse.move(lanes["x"] + 0.3 * lanes["width"], lanes["y"] + 200)
    timeline.evaluate(f"""(({{main}}) => {{
      main.element.scrollTop = main.rows.rows.find((row) => row.track?.kind === 'thread').y - 190;
    }})({APP}.stage)""")
    shows(timeline.locator(".tl-tip"), "ProfilerStep")
    timeline.evaluate(f"{APP}.stage.main.element.scrollTop = 1e6")
    eventually(lambda: "ProfilerStep" not in timeline.locator(".tl-tip").inner_text() or timeline.locator(".tl-tip").is_hidden())


def test_a_phone_shows_it_without_scrolling_the_page_sideways(timeline: Any) -> None:
    timeline.set_viewport_size({"width": 390, "height": 844})
    settled(timeline)
    fits(timeline)
    lanes = timeline.locator(".tl-main canvas").bounding_box()
    assert lanes["width"] > 230 and lanes["height"] > 300
