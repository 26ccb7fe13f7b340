"""The fleet's kernels, one of them by build, and since when production has it slower; sent as a node's agent sends its minutes.

Each day of a made-up fleet launches what recorded runs of two kernels took. From the new build on one of them runs in another
configuration, so its step is one that was measured. All that pages say is counted in the recordings again.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from statistics import median
from typing import Any

import psycopg
import pytest
from playwright.sync_api import expect

from profiles.fleet.feed import Read, batches
from tests.browser.visit import H200, WITHIN_MS, WORKED_MS, eventually, follow, shows
from tests.product import Product
from tests.profiles.fleet.records import write_records
from tests.ways.conftest import open_section
from tests.ways.test_drop_trace import states
from webapp.embedded.postgres import Postgres
from workers.agent.wire import pack

DAYS, HOURS = 6, (2, 14)                # days of each build; hours of a day's two runs, each a block of four hours of its own
GPU, DAY_NS, HOUR_NS = "NVIDIA H200", 86_400_000_000_000, 3_600_000_000_000
Config = dict[str, Any]
# data of a Bokeh figure's sources that have a column; colours that at least ten pixels of its canvases have
COLUMN = """(name) => Bokeh.documents.flatMap((each) => [...(each.all_models ?? each._all_models.values())])
    .filter((each) => each.type === "ColumnDataSource").map((each) => each.data.get?.(name) ?? each.data[name])
    .filter(Boolean).flatMap((each) => [...each])"""
COLOURS = """(canvas) => { const seen = new Map();
  for (const each of new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer))
    seen.set(each, (seen.get(each) ?? 0) + 1);
  return [...seen.values()].filter((count) => count >= 10).length; }"""
# as if an hour had passed: batches are merged once they waited, days are summed once they rest
MERGED_LATER = "UPDATE profiles_fleetbatch SET received = received - interval '1 hour' WHERE payload IS NOT NULL"
SUMMED_LATER = "UPDATE profiles_fleetday SET written = written - interval '1 hour' WHERE rolled IS NULL AND day >= %(first)s"


@dataclass(frozen=True)
class Recording:
    """A file of recorded runs of kernels: one that a build changes, `old` to `new`, and one that stays as it is."""

    file: str
    op: str
    old: Config
    new: Config
    steady: str
    kept: Config

    @property
    def job(self) -> str:
        return f"way-{self.file.partition('.')[0]}"

    @property
    def launches(self) -> int:
        return sum(len(run) for runs in self.runs.values() for run in runs)

    def name(self, kernel: str) -> str:
        """Return what the fleet calls a kernel: no other fleet of this product has it."""
        return f"{self.job}-{kernel}"

    @cached_property
    def runs(self) -> dict[str, list[list[int]]]:
        """Return the durations in ns of every run that the fleet launches, by kernel: two a day, those of the old build first."""
        with gzip.open(H200 / self.file, "rt") as lines:
            rows = [json.loads(line) for line in lines]
        count = DAYS * len(HOURS)
        changed = [each for config in (self.old, self.new) for each in runs_of(rows, self.op, config)[:count]]
        kernels = {self.op: changed, self.steady: runs_of(rows, self.steady, self.kept)[:2 * count]}
        assert all(len(each) == 2 * count for each in kernels.values())
        return kernels


def runs_of(rows: list[dict[str, Any]], op: str, config: Config) -> list[list[int]]:
    return [[round(1000 * us) for us in row["us"]] for row in rows if row["op"] == op and config.items() <= row["config"].items()]


RECORDINGS = [
    Recording("timing_runs.jsonl.gz", "softmax", {"STEPS": 3, "PER_SM": 32, "num_warps": 8}, {"PER_SM": 8},
              "layernorm", {"BLOCK": 1024, "num_stages": 2}),
    Recording("timing_runs_lead.jsonl.gz", "silu_mul", {"BLOCK": 1024}, {"BLOCK": 4096}, "row_sum", {"ROWS": 1}),
    Recording("timing_runs_small.jsonl.gz", "matmul", {"BN": 64}, {"BN": 32}, "add_rmsnorm", {"PASSES": 2}),
]


def first_day() -> int:
    """Return the first day of the fleet, in days since 1970; its last one is yesterday."""
    return int(datetime.now(UTC).timestamp()) // 86_400 - 2 * DAYS


def date_of(day: int) -> str:
    return f"{datetime.fromtimestamp(0, UTC) + timedelta(days=day):%Y-%m-%d}"


def records(recording: Recording, first: int) -> list[dict[str, Any]]:
    """Return the launches of every day as an agent sees them."""
    made = []
    for number, (kernel, runs) in enumerate(recording.runs.items()):
        for at, run in enumerate(runs):
            day, part = divmod(at, len(HOURS))
            begin_ns = (first + day) * DAY_NS + HOURS[part] * HOUR_NS
            made += [{"ts_ns": begin_ns + 100_000_000 * launch, "dur_ns": dur_ns, "kernel": recording.name(kernel),
                      "grid": [132 * (number + 1), 1, 1], "block": [256, 1, 1], "shared_bytes": 1024, "gpu_uuid": recording.job,
                      "gpu_model": GPU, "host": "way", "job": recording.job, "model": recording.job,
                      "build": "serve-1" if day < DAYS else "serve-2"} for launch, dur_ns in enumerate(run)]
    return made


@pytest.fixture(scope="module")
def fed(playwright: Any, product: Product, server_url: str, tmp_path_factory: pytest.TempPathFactory) -> int:
    """The first day of a fleet whose batches are merged, its days summed and looked at by the product's workers."""
    first, client = first_day(), playwright.request.new_context(base_url=server_url)
    client.get("/fleet/")
    token = next(each["value"] for each in client.storage_state()["cookies"] if each["name"] == "csrftoken")
    for recording in RECORDINGS:
        path = write_records(tmp_path_factory.mktemp("way") / "records.jsonl.gz", records(recording, first))
        for batch in batches(path, Read(), simulated=True):
            answer = client.post("/api/fleet/batches/", data=pack(batch), headers={
                "X-CSRFToken": token, "Referer": server_url, "Content-Type": "application/vnd.ridgepoint.fleet"})
            assert answer.status == 200, answer.text()
    wanted = {recording.job for recording in RECORDINGS}

    def let_wait(statement: str, **values: str) -> None:
        with psycopg.connect(Postgres(product.home / "pg" / "data").url, autocommit=True) as database:
            database.execute(statement, values or None)

    def is_merged() -> bool:
        let_wait(MERGED_LATER)
        return all(client.get(f"/api/fleet/top/?job={each.job}").json()["launches"] == each.launches for each in RECORDINGS)

    def is_told() -> bool:
        let_wait(SUMMED_LATER, first=date_of(first))
        return wanted <= {row["model"] for row in client.get("/api/fleet/regressions/").json()["rows"]}

    eventually(is_merged, within_s=WORKED_MS / 1000)            # all days, before the first of them is looked at
    eventually(is_told, within_s=WORKED_MS / 1000)
    client.dispose()
    return first


def middle_us(run: list[int]) -> float:
    """Return the geometric mean of a run's launches: the mean of their logarithms."""
    return math.exp(sum(map(math.log, run)) / len(run)) / 1000


def sums(runs: Iterable[list[int]]) -> int:
    return sum(map(sum, runs))


def reads_the_top(page: Any, recording: Recording) -> None:
    """From the first page to the fleet's kernels of one job: its kernels by their time, and the time of each day drawn."""
    page.goto("/")
    open_section(page, "Fleet")
    page.get_by_label("window", exact=True).select_option("all")
    page.get_by_label("job", exact=True).select_option(recording.job)
    page.get_by_role("button", name="Filter", exact=True).click()
    page.wait_for_url(f"**/fleet/?window=all&job={recording.job}*")
    runs = recording.runs
    whole, order = sum(map(sums, runs.values())), sorted(runs, key=lambda each: -sums(runs[each]))
    answer = page.locator(".answer")
    shows(answer, f"{recording.name(order[0])} takes ")
    assert states(answer.inner_text(), 100 * sums(runs[order[0]]) / whole, "%"), answer.inner_text()
    rows = page.locator("#table-fleet tbody tr")
    expect(rows).to_have_count(len(runs))
    for number, kernel in enumerate(order):
        cells = rows.nth(number).locator("td")
        shows(cells.first, recording.name(kernel))
        assert states(cells.nth(1).inner_text(), 100 * sums(runs[kernel]) / whole, "%")
        expect(cells.nth(2)).to_have_attribute("title", f"{sums(runs[kernel])} ns; {sums(runs[kernel])} ns seen")
        expect(cells.last).to_have_text(f"{sum(map(len, runs[kernel])):,}")
    days = [sum(sums(own[2 * day:2 * day + 2]) for own in runs.values()) for day in range(2 * DAYS)]
    drawn = is_drawn(page, "top")
    mine = [at for at, each in enumerate(drawn) if each]                # days of other tests' jobs lie around these, at 0
    assert drawn[mine[0]:mine[-1] + 1] == pytest.approx([each / 1e9 for each in days])


def is_drawn(page: Any, column: str, within_ms: int = WITHIN_MS) -> list[float]:
    """Wait for the page's figure; return the values that stand in it."""
    figure = page.locator("[data-figure]")
    expect(figure).to_have_attribute("data-state", "ready", timeout=within_ms)
    eventually(lambda: figure.locator("canvas").first.evaluate(COLOURS) > 3)
    return list(page.evaluate(COLUMN, column))


def goes_down_to_builds(page: Any, recording: Recording) -> None:
    """The kernel that changed: its shape, then its builds, each with the middle of its launches within 1 %."""
    row = page.locator("#table-fleet tbody tr", has_text=recording.name(recording.op)).first
    follow(page, f"#table-fleet tbody tr:has-text('{recording.name(recording.op)}') td.name a", "**/fleet/?*group=signature*")
    shows(row, "132×1×1 · 256×1×1")
    follow(page, "#table-fleet tbody td.name a", "**/fleet/?*group=build*")
    runs = recording.runs[recording.op]
    for build, own in (("serve-1", runs[:2 * DAYS]), ("serve-2", runs[2 * DAYS:])):
        cells = page.locator("#table-fleet tbody tr", has_text=build).locator("td")
        launches = [each for run in own for each in run]
        expect(cells.last).to_have_text(f"{len(launches):,}")
        expect(cells.nth(2)).to_have_attribute("title", f"{sum(launches)} ns; {sum(launches)} ns seen")
        assert float(cells.nth(4).get_attribute("data-value")) == pytest.approx(median(launches), rel=0.01)


def goes_to_the_regression(page: Any, recording: Recording, first: int) -> None:
    """The list of what production has slower, then the kernel: by how much, since when, from which build on."""
    old, new = levels(recording)
    page.locator("nav.tabs").get_by_role("link", name="Regressions", exact=True).click()
    row = page.locator("table[data-name=production] tbody tr", has_text=recording.name(recording.op))
    shows(row, "serve-1 → serve-2")
    shows(row, date_of(first + DAYS))
    tells_the_step(row.inner_text(), old, new)
    row.locator("td.name a").click()
    answer = page.locator(".answer")
    shows(answer, f"Simulated: {recording.name(recording.op)} on {GPU} takes +")
    shows(answer, f"since {date_of(first + DAYS)} (serve-1 → serve-2)")


def levels(recording: Recording) -> tuple[list[float], list[float]]:
    """Return the middle of each run before and after the new build, in µs."""
    runs = list(map(middle_us, recording.runs[recording.op]))
    return runs[:2 * DAYS], runs[2 * DAYS:]


def tells_the_step(text: str, old: list[float], new: list[float]) -> None:
    """Slower by the median ratio of two runs, one of each side; a launch took and takes the median of its runs."""
    ratio = median(after / before for before in old for after in new)
    assert states(text, 100 * (ratio - 1), "%"), (text, ratio)
    assert states(text, 1000 * median(old)) and states(text, 1000 * median(new)), (text, median(old), median(new))


@pytest.mark.parametrize("recording", [pytest.param(each, id=each.file.partition(".")[0], marks=[pytest.mark.deep_only] * (at > 0))
                                       for at, each in enumerate(RECORDINGS)])
def test_from_the_fleet_to_a_regression(watched: Any, fed: int, recording: Recording) -> None:
    page = watched
    reads_the_top(page, recording)
    goes_down_to_builds(page, recording)
    goes_to_the_regression(page, recording, fed)
    old, new = levels(recording)
    finding = page.locator("section", has=page.get_by_role("heading", name="Finding", exact=True))
    shows(finding, f"{DAYS} + {DAYS} days")
    tells_the_step(finding.inner_text(), old, new)
    rows = page.locator("#table-days tbody tr, table[data-name=days] tbody tr")
    expect(rows).to_have_count(2 * DAYS)
    told = rows.evaluate_all("(rows) => rows.map((row) => [...row.cells].map((cell) => cell.innerText.trim()))")
    runs = recording.runs[recording.op]
    for day, (date, build, launch, launches, _) in enumerate(reversed(told)):
        assert (date, build) == (date_of(fed + day), "serve-1" if day < DAYS else "serve-2")
        assert int(launches) == sum(map(len, runs[2 * day:2 * day + 2]))
        assert states(launch, 1000 * median((old + new)[2 * day:2 * day + 2])), (day, launch)


def test_the_days_of_a_regression_are_drawn(watched: Any, fed: int) -> None:
    """Every run is a dot."""
    page, recording = watched, RECORDINGS[0]
    page.goto("/")
    open_section(page, "Fleet", "Regressions")
    page.locator("table[data-name=production]").get_by_role("link", name=recording.name(recording.op)).click()
    shows(page.locator(".answer"), recording.name(recording.op))
    old, new = levels(recording)
    assert is_drawn(page, "us", within_ms=10_000) == pytest.approx(old + new)
