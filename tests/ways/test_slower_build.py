"""Two builds, what got slower, and why: means, launches and counters are read from ncu's own CSV or the trace's JSON."""

from __future__ import annotations

import csv
import gzip
import re
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from statistics import mean, median, quantiles
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.visit import WORKED_MS, poll, reads, shows, uploaded
from tests.ways.conftest import follow, open_section
from tests.ways.test_drop_trace import DATA, FIGURE, NS, of_kind, slices_of, states

FLOOR, ONE_LAUNCH = 1.02, 1.2       # what a mean must change by to be told; of a single launch, whose spread nobody knows
UNITS = {"us": "µs"}                 # as ncu writes them
KINDS = ("slower", "faster", "within the noise", "cannot be told")


@dataclass(frozen=True)
class Work:
    """The launches of one kernel with one shape in one build; counters of ncu are of each launch."""

    kernel: str
    durations_ns: list[float]
    registers: int
    grid: str
    instructions: list[float]

    @property
    def mean_ns(self) -> float:
        return mean(self.durations_ns)


def of_report(file: str) -> list[Work]:
    """Return the kernels of a raw page as CSV, in order of launch; its second line holds the units."""
    with gzip.open(DATA / file, "rt") as text:
        units, *rows = csv.DictReader(text)
    unit = units["gpu__time_duration.sum"]
    scale = NS[UNITS.get(unit, unit)]
    shapes = groupby(rows, key=lambda row: (row["Kernel Name"].partition("(")[0], row["Grid Size"]))
    return [work(name, list(own), grid, scale) for (name, grid), own in shapes]


def work(name: str, rows: list[dict[str, str]], grid: str, scale: float) -> Work:
    return Work(name, [scale * float(row["gpu__time_duration.sum"]) for row in rows], int(rows[0]["launch__registers_per_thread"]),
                grid.strip("()").replace(", ", "×"), [float(row["smsp__inst_executed.avg"]) for row in rows])


def of_trace(file: str) -> list[Work]:
    kernels = sorted(of_kind(slices_of(DATA / file), "kernel"), key=lambda each: each.name)
    return [Work(name, [each.dur_ns for each in own], own[0].args["registers per thread"],
                 "×".join(map(str, own[0].args["grid"])), [])
            for name, own in ((name, list(own)) for name, own in groupby(kernels, key=lambda each: each.name))]


def verdict(old: Work, new: Work) -> str:
    """Return what can be told of a kernel: by launches that hardly overlap and means that differ, of single ones by far."""
    ratio = new.mean_ns / old.mean_ns
    if min(len(old.durations_ns), len(new.durations_ns)) == 1:
        return "cannot be told" if 1 / ONE_LAUNCH < ratio < ONE_LAUNCH else "slower" if ratio > 1 else "faster"
    (low, _, high), (new_low, _, new_high) = (quantiles(each.durations_ns, n=4) for each in (old, new))
    if ratio > FLOOR and new_low > high:
        return "slower"
    return "faster" if ratio < 1 / FLOOR and new_high < low else "within the noise"


def brings(page: Any, *builds: tuple[str, str]) -> None:
    """From the first page: each file under the name of its build; then to the page where builds are compared."""
    page.goto("/")
    follow(page, page.get_by_role("link", name=re.compile("^Import")))       # with its scripts: without, the form is a plain one
    for number, (build, file) in enumerate(builds, 1):
        page.get_by_label("Build").fill(build)
        page.set_input_files("#file", str(DATA / file))
        page.click("[data-submit]")
        expect(page.locator("[data-files] > li", has_text="✓ ready")).to_have_count(number, timeout=WORKED_MS)
    open_section(page, "Profiles", "Compare")
    form = page.locator("form.compare-pick", has=page.get_by_role("button", name="Compare builds"))
    for label, (build, _) in zip(("Old", "New"), builds, strict=True):
        box = form.get_by_role("combobox", name=label)
        box.click()
        box.fill(build)
        form.get_by_role("option", name=build).click()
    form.get_by_role("button", name="Compare builds").click()


def signed_ns(text: str) -> list[float]:
    """Return the times of a text with their signs: "+445 µs", "-24.6 µs"."""
    found = re.findall(rf"([+-]){FIGURE.pattern}", text)
    return [float(sign + whole.replace(",", "") + fraction) * NS[unit] for sign, whole, fraction, unit in found]


def tells_what_got_slower(page: Any, builds: list[str], old: list[Work], new: list[Work]) -> None:
    """The answer: the whole change, and how many kernels are what."""
    before, after = (sum(sum(each.durations_ns) for each in works) for works in (old, new))
    answer = page.locator(".answer")
    shows(answer, f"Kernel time, {builds[0]} → {builds[1]}: ▲ +")
    said = answer.inner_text()
    assert states(said, after - before) and states(said, 100 * (after / before - 1), "%"), (said, before, after)
    verdicts = Counter(map(verdict, old, new))
    counts = ", ".join(f"{verdicts[kind]} {kind}" for kind in KINDS if verdicts[kind])
    assert said.replace(" kernels ", " ").rstrip().endswith(f" {counts}."), (said, counts)


def draws_its_bars(page: Any) -> None:
    poll(page, "document.querySelector('#bars').dataset.state === 'ready'")
    assert page.locator("#bars canvas").first.evaluate(
        "(c) => new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size > 8")


def worst_of(old: list[Work], new: list[Work]) -> tuple[Work, Work]:
    """The kernel whose launches became longest in all."""
    return max(zip(old, new, strict=True), key=lambda pair: sum(pair[1].durations_ns) - sum(pair[0].durations_ns))


@pytest.mark.parametrize(("name", "files"), [
    pytest.param("triton", ("h200/buildA_raw.csv.gz", "h200/buildB_raw.csv.gz"), id="five Triton kernels, three launches each",
                 marks=pytest.mark.deep_only),
    pytest.param("faults", ("causes/causes_mended_raw.csv.gz", "causes/causes_planted_raw.csv.gz"), id="thirteen CUDA kernels"),
])
def test_two_reports(watched: Any, name: str, files: tuple[str, str]) -> None:
    """What got slower first, and by which counters: their parts add up to the change."""
    page, builds = watched, [f"way-{name}-old", f"way-{name}-new"]
    old, new = map(of_report, files)
    brings(page, *zip(builds, files, strict=True))
    tells_what_got_slower(page, builds, old, new)
    draws_its_bars(page)

    shows(page.locator("#why"), "instructions issued")
    assert not re.search(r"\de[+-]\d", page.locator("main").inner_text())        # numbers have no exponent

    before, after = worst_of(old, new)
    why = page.locator("#why details.why").first
    summary = why.locator("summary").first
    shows(summary, f"▲ slower {before.kernel}")
    delta_ns = after.mean_ns - before.mean_ns
    assert states(summary.inner_text(), delta_ns), (summary.inner_text(), delta_ns)
    factors = why.locator(".why-factors tbody tr")
    parts = [signed_ns(each)[0] for each in factors.locator("td:nth-child(4)").all_inner_texts()]
    assert len(parts) == 5 and sum(parts) == pytest.approx(delta_ns, rel=0.01)

    executed = factors.filter(has_text="instructions issued").locator("td")
    for cell, each in ((executed.nth(1), before), (executed.nth(2), after)):
        assert thousands(cell.inner_text()) == pytest.approx(median(each.instructions), rel=0.005)
    if before.registers != after.registers:
        shows(why, f"registers per thread {before.registers} → {after.registers}")
    why.get_by_role("link", name="▸ new counters").click()
    shows(page.locator(".kernel-head"), before.kernel)
    reads(page.locator(".kernel-tabs [aria-current=page]"), "Summary")


def thousands(text: str) -> float:
    """"293 k" is 293,000."""
    number, _, unit = text.partition(" ")
    return float(number.replace(",", "")) * {"": 1, "k": 1e3, "M": 1e6}[unit.strip()]


def test_two_traces(watched: Any) -> None:
    """Softmax runs in fewer blocks, clamp reads half of its input twice: the launches of a suite's two builds."""
    page, builds = watched, ["way-traced-old", "way-traced-new"]
    files = ("h200/counters/base-timeline.json.gz", "h200/counters/slow-timeline.json.gz")
    old, new = map(of_trace, files)
    brings(page, *zip(builds, files, strict=True))
    tells_what_got_slower(page, builds, old, new)
    draws_its_bars(page)
    columns = page.locator("table[data-name=compare] th").all_inner_texts()
    for before, after in zip(old, new, strict=True):
        if verdict(before, after) == "slower":
            row = page.locator("table[data-name=compare] tbody tr", has_text=before.kernel)
            shows(row, "▲ slower")
            told = row.inner_text()
            assert states(told, 100 * (after.mean_ns / before.mean_ns - 1), "%"), (told, columns)
            assert states(told, before.mean_ns) and states(told, after.mean_ns), told
            for each in (before, after):
                shows(row, f"{each.grid.partition('×')[0]} / 256 / {each.registers}")
    assert len([1 for a, b in zip(old, new, strict=True) if verdict(a, b) == "slower"]) == 2


@pytest.mark.deep_only          # the same files: test_two_reports
def test_numbers_have_no_exponent(watched: Any, playwright: Any, server_url: str) -> None:
    page = watched
    for build in ("mended", "planted"):
        uploaded(playwright, server_url, DATA / f"causes/causes_{build}_raw.csv.gz", build=f"way-{build}")
    page.goto(f"{server_url}/compare/?build_a=way-mended&build_b=way-planted")
    shows(page.locator("#why"), "instructions issued")
    assert not re.search(r"\de[+-]\d", page.locator("main").inner_text())
