"""Two ranks of a job, who is late, and why: every wait is counted in the two traces with json alone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.timeline.test_timeline import settled
from tests.browser.visit import WORKED_MS, shows
from tests.ways.conftest import follow
from tests.ways.test_drop_trace import DATA, Slice, covered_ns, lead_of, of_kind, on_gpu, slices_of, states, total_ns, wall_ns

Interval = tuple[int, int]


@dataclass(frozen=True)
class Job:
    """Two ranks on one clock: both files state the same base time. `late` comes last in every collective."""

    early: list[Slice]
    late: list[Slice]

    @property
    def collectives(self) -> list[tuple[Slice, Slice]]:
        """The kernels of the early and of the late rank, in the order in which both launch them."""
        return list(zip(*([each for each in of_kind(rank, "kernel") if each.name.startswith("nccl")]
                          for rank in (self.early, self.late)), strict=True))

    @property
    def windows(self) -> list[Interval]:
        """From when the early rank comes to a collective until the late one does."""
        return [(early.start_ns, late.start_ns) for early, late in self.collectives]

    @property
    def still_ns(self) -> int:
        """For how long the early rank waits and computes nothing: the late one's kernel is what a collective takes."""
        waits = [(early.start_ns, early.end_ns - late.dur_ns) for early, late in self.collectives]
        return sum(end - begin for begin, end in waits) - inside_ns(computing(self.early), waits)

    @property
    def wall_ns(self) -> int:
        return wall_ns(self.early + self.late)

    @property
    def longest(self) -> Interval:
        """From the early rank's begin to the late one's end, in the collective with the longest wait."""
        early, late = max(self.collectives, key=lambda pair: pair[0].dur_ns - pair[1].dur_ns)
        return early.start_ns, late.end_ns


def inside_ns(slices: Iterable[Slice], windows: Iterable[Interval]) -> int:
    return sum(max(0, min(end, each.end_ns) - max(begin, each.start_ns)) for begin, end in windows for each in slices)


def computing(rank: list[Slice]) -> list[Slice]:
    return [each for each in of_kind(rank, "kernel") if not each.name.startswith("nccl")]


def files_of(name: str) -> list[Path]:
    return [DATA / f"{name}_rank{rank}.json.gz" for rank in (0, 1)]


def job_of(name: str, late: int) -> Job:
    ranks = [slices_of(each, Decimal(0)) for each in files_of(name)]
    return Job(ranks[1 - late], ranks[late])


def brings_both(page: Any, name: str, job: Job) -> None:
    """From the first page to the job's overview: both files as ranks of one job."""
    page.emulate_media(reduced_motion="reduce")
    page.goto("/")
    follow(page, page.get_by_role("link", name=re.compile("^Import")))       # with its scripts: without, the form is a plain one
    page.set_input_files("#file", [str(each) for each in files_of(name)])
    page.get_by_label("Ranks of one job").check()
    page.click("[data-submit]")
    row = page.locator("[data-files] > li")
    expect(row).to_contain_text("✓ ready", timeout=WORKED_MS)
    kernels = of_kind(job.early + job.late, "kernel")
    shows(row, f"{len(kernels)} launches")
    assert states(row.inner_text(), total_ns(kernels)), row.inner_text()
    row.get_by_role("link", name="Open").click()


def tells_the_run(page: Any, job: Job) -> None:
    strip = page.locator(".strip").inner_text()
    busy = sum(covered_ns(on_gpu(rank)) for rank in (job.early, job.late))
    assert "wall time, 2 GPUs" in strip and states(strip, job.wall_ns), (strip, job.wall_ns)
    assert states(strip, 100 * busy / (2 * job.wall_ns), "%"), (strip, busy)


def tells_who_is_late(page: Any, job: Job, late: int) -> None:
    """From the overview to the page of collectives: how often, what it costs, and who waits for whom."""
    page.locator("[data-workspace-tabs]").get_by_role("link", name="Communication", exact=True).click()
    count, still = len(job.collectives), job.still_ns
    answer = page.locator(".answer")
    shows(answer, f"Rank {late} comes last in {count} of {count} collectives: rank {1 - late} stood still for it ")
    assert states(answer.inner_text(), still) and states(answer.inner_text(), 100 * still / job.wall_ns, "%"), answer.inner_text()
    cell = page.locator("#matrix tbody tr").nth(1 - late).locator("td").nth(late)
    expect(cell).to_have_attribute("title", re.compile(rf" in {count} collectives, {still} ns of it standing still$"))
    card = page.locator("#causes .rank-bar")
    shows(card, f"rank {late} last in {count}")
    assert states(card.locator("p").first.inner_text(), still)


def goes_to_the_longest_wait(page: Any, job: Job, words: str) -> None:
    """The window that the timeline opens on; in it what the late rank did, as its trace says."""
    page.locator("#causes").get_by_role("link", name="▸ longest").click()
    page.wait_for_url("**/timeline/?w=*")
    (begin, end), = re.findall(r"[?&]w=(\d+)-(\d+)", page.url)
    assert int(end) - int(begin) == job.longest[1] - job.longest[0]
    settled(page)
    found = sorted((each for each in job.early + job.late if words in each.name), key=lambda each: each.start_ns)
    page.keyboard.press("/")
    page.keyboard.type(words)
    page.keyboard.press("Enter")
    shows(page.locator("#tl-hits"), f" / {len(found)}")
    first = next(each for each in found if each.start_ns >= job.longest[0])
    expect(page.locator(".tl-details dt:text-is('Duration') + dd .num")).to_have_attribute("title", f"{first.dur_ns:,} ns")


@pytest.mark.parametrize(("name", "late", "range_"), [
    pytest.param("ranks/straggler_host", 1, "load the batch", id="rank 1 of one all-reduce a step"),
    pytest.param("causes/straggler_data", 0, "dataloader", id="rank 0 of DDP", marks=pytest.mark.deep_only),
])
def test_a_rank_that_loads_data(watched: Any, name: str, late: int, range_: str) -> None:
    page, job = watched, job_of(name, late)
    brings_both(page, name, job)
    loads = [each for each in job.late if each.name == range_]
    answer = lead_of(page, f"rank {late} loads data ")
    shows(answer, f"a step ({range_}); rank {1 - late} waits for it in the all-reduce: ")
    assert states(answer.inner_text(), total_ns(loads) / len(loads)), answer.inner_text()
    share, = map(int, re.findall(r"(\d+) % of the time", answer.inner_text()))
    waited = inside_ns(loads, job.windows)          # it loads before the other comes as well
    assert round(100 * waited / job.wall_ns) <= share <= round(100 * total_ns(loads) / job.wall_ns)
    tells_the_run(page, job)

    tells_who_is_late(page, job, late)
    card = page.locator("#causes .rank-bar")
    shows(card.locator(".legend li").filter(has_text="its host launched late"), "ms")
    said = "Its host while the others waited:"
    why = card.locator("p", has_text=said).inner_text()
    assert why.startswith(f"{said} {range_} ") and states(why.split(",")[0], waited), (why, waited)
    goes_to_the_longest_wait(page, job, range_)


@pytest.mark.deep_only          # its words: analysis/trace/test_communication.py, account/test_account.py; the way: above
def test_a_rank_that_computes_more(watched: Any) -> None:
    """Rank 1 runs twelve products where rank 0 runs eight."""
    page, name = watched, "ranks/straggler_compute"
    job = job_of(name, 1)
    brings_both(page, name, job)
    more = total_ns(computing(job.late)) - total_ns(computing(job.early))
    product = computing(job.late)[0].name
    answer = lead_of(page, f"rank 1 has more work for its GPU ({product}); rank 0 waits for it in the all-reduce: ")
    assert states(answer.inner_text(), 100 * more / job.wall_ns, "%"), (answer.inner_text(), more)
    tells_the_run(page, job)

    tells_who_is_late(page, job, 1)
    said = "More kernel time than the others:"
    kernels = page.locator("#causes p", has_text=said).inner_text()
    assert kernels.startswith(f"{said} {product} ") and states(kernels, more), (kernels, more)
    goes_to_the_longest_wait(page, job, product[:20])
