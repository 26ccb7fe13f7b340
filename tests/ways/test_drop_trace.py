"""Drop a trace on the page, read its lead, go to the timeline, choose a slice. Every number is counted in the file with json."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import expect

from tests.browser.timeline.test_timeline import settled
from tests.browser.visit import H200, WORKED_MS, eventually, read_once, reads, shows
from tests.ways.conftest import follow

DATA = H200.parent
NS = {"ns": 1.0, "µs": 1e3, "ms": 1e6, "s": 1e9, "min": 6e10, "h": 3.6e12}
FIGURE = re.compile(r"(\d[\d,]*)(\.\d+)?[ \N{NO-BREAK SPACE}](ns|µs|ms|s|min|h|%)(?!\w)")
LOADS = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
STEP = "Optimizer.step#AdamW.step"
QUEUED_NS = 10_000                      # a launch takes no longer: what waits longer waits for something


class Slice(NamedTuple):
    """A complete event of a Kineto trace, in ns from the trace's first record."""

    name: str
    kind: str
    start_ns: int
    dur_ns: int
    args: dict[str, Any]

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.dur_ns


def states(text: str, counted: float, unit: str = "ns") -> bool:
    """Return whether a text states a time in ns or a share in %, as exactly as it is written: "12.4 µs" is 12,350 to 12,450 ns."""
    for whole, fraction, written in FIGURE.findall(text):
        if (written == "%") == (unit == "%"):
            size = NS.get(written, 1.0)
            step = size * 0.1 ** max(0, len(fraction) - 1)
            if abs(float(whole.replace(",", "") + fraction) * size - counted) <= 0.501 * step:
                return True
    return False


def drop_files(page: Any, target: Any, *files: Path) -> None:
    """Drag files of the disk over a place of the page and let go: the browser's own events, as a hand makes them."""
    box = target.bounding_box()
    session = page.context.new_cdp_session(page)
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {
            "type": kind, "x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2,
            "data": {"items": [], "files": [str(each) for each in files], "dragOperationsMask": 1}})
    session.detach()


def slices_of(path: Path, zero: Decimal | None = None) -> list[Slice]:
    """Return what a Kineto trace holds but the profiler's own record of the recording, by start.

    `zero`: the moment in µs that starts count from; without one the trace's first record.
    """
    records = [each for each in json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"] if "ts" in each]
    if zero is None:
        zero = min(each["ts"] for each in records if each["ph"] != "M")
    return sorted((Slice(each["name"], each["cat"], int(1000 * (each["ts"] - zero)), int(1000 * each["dur"]),
                         each.get("args", {}))
                   for each in records if each["ph"] == "X" and each["cat"] != "Trace"), key=lambda each: each.start_ns)


def of_kind(slices: Iterable[Slice], *kinds: str) -> list[Slice]:
    return [each for each in slices if each.kind in kinds]


def total_ns(slices: Iterable[Slice]) -> int:
    return sum(each.dur_ns for each in slices)


def covered_ns(slices: Iterable[Slice]) -> int:
    """Return for how long at least one of these slices ran; they come by start."""
    covered, until = 0, -1
    for each in slices:
        covered += max(0, each.end_ns - max(each.start_ns, until))
        until = max(until, each.end_ns)
    return covered


def wall_ns(slices: Iterable[Slice]) -> int:
    return max(each.end_ns for each in slices) - min(each.start_ns for each in slices)


def on_gpu(slices: Iterable[Slice]) -> list[Slice]:
    return of_kind(slices, "kernel", "gpu_memcpy", "gpu_memset")


def without_tensor_cores(slices: list[Slice]) -> list[int]:
    return [total_ns(each for each in of_kind(slices, "kernel") if "_gemm_f32f32_" in each.name)]


def copies_alone(slices: list[Slice]) -> list[int]:
    return [covered_ns(on_gpu(slices)) - covered_ns(of_kind(slices, "kernel", "gpu_memset"))]


def loading(slices: list[Slice]) -> list[int]:
    """In all, and of a step: each step ends with the optimizer."""
    loaded = total_ns(each for each in slices if each.name == LOADS)
    return [loaded, loaded // sum(each.name == STEP and each.kind == "user_annotation" for each in slices)]


def launched_and_waiting(slices: list[Slice]) -> list[int]:
    """The GPU does nothing although the call that launches its next work has ended."""
    called = {each.args["correlation"]: each.end_ns for each in of_kind(slices, "cuda_runtime") if "correlation" in each.args}
    waited, until = 0, 0
    for each in on_gpu(slices):
        queued = each.start_ns - max(until, called.get(each.args["correlation"], each.start_ns))
        waited += queued if queued > QUEUED_NS else 0
        until = max(until, each.end_ns)
    return [waited]


# file, the lead's words, what it counts: of the whole in %, then times that it states beside, and a kernel to look for
TRACES = [
    pytest.param("causes/fault_tf32_off.json.gz", "Matrix products run without tensor cores", without_tensor_cores, "xmma_gemm",
                 id="H200 products", marks=pytest.mark.deep_only),
    pytest.param("causes/data_loading.json.gz", f"The host loads data 15.7 ms a step ({LOADS})", loading, "simt_sgemm",
                 id="H200 loading", marks=pytest.mark.deep_only),
    pytest.param("corpus/kineto/sglang_mi300_qwen3-8b_decode.json.gz", "Work is launched and waits before it starts",
                 launched_and_waiting, "paged_attention", id="public MI300"),
]


@pytest.mark.parametrize(("file", "words", "cause", "kernel"), TRACES)
def test_from_a_dropped_trace_to_a_slice(watched: Any, file: str, words: str, cause: Any, kernel: str) -> None:
    page, slices = watched, slices_of(DATA / file)
    page.emulate_media(reduced_motion="reduce")
    page.goto("/")
    follow(page, page.get_by_role("link", name=re.compile("^Import")))       # with its scripts: what takes the drop is one
    drop_files(page, page.locator("[data-dropzone]"), DATA / file)
    row = page.locator("[data-files] > li")
    expect(row).to_contain_text("✓ ready", timeout=WORKED_MS)
    kernels = of_kind(slices, "kernel")
    shows(row, f"{len(kernels)} launches")
    assert states(row.inner_text(), total_ns(kernels)), row.inner_text()

    row.get_by_role("link", name="Open").click()
    reads_the_overview(page, slices, words, cause(slices))
    page.locator("[data-workspace-tabs]").get_by_role("link", name="Timeline", exact=True).click()
    finds_slices(page, slices, kernel)


def test_a_trace_dropped_at_home_opens_on_its_timeline(watched: Any, playwright: Any, server_url: str) -> None:
    """An installation with profiles takes files on every page."""
    page, file = watched, DATA / "causes/serial_copies.json.gz"
    read_once(playwright, server_url, H200 / "kineto_train.json.gz")
    page.goto("/")
    drop_files(page, page.locator("main"), file)
    page.wait_for_url("**/timeline/**", timeout=WORKED_MS)
    slices = slices_of(file)
    finds_slices(page, slices, "simt_sgemm")
    page.locator(".crumbs").get_by_role("link", name=file.name).click()
    reads_the_overview(page, slices, "Copies run and no kernel does (Memcpy HtoD", copies_alone(slices))


def reads_the_overview(page: Any, slices: list[Slice], words: str, cause_ns: list[int]) -> None:
    wall, kernels = wall_ns(slices), of_kind(slices, "kernel")
    answer = lead_of(page, words)
    assert states(answer.inner_text(), 100 * cause_ns[0] / wall, "%"), (answer.inner_text(), cause_ns, wall)
    assert all(states(answer.inner_text(), each) for each in cause_ns[1:]), (answer.inner_text(), cause_ns)
    strip = page.locator(".strip").inner_text()
    assert states(strip, wall) and states(strip, 100 * covered_ns(on_gpu(slices)) / wall, "%"), strip

    by_name = Counter[str]()
    for each in kernels:
        by_name[each.name] += each.dur_ns
    (top, top_ns), *_ = by_name.most_common(1)
    launches = sum(each.name == top for each in kernels)
    _, share, time, count, mean, *_ = page.locator(".top-kernels tbody tr").first.locator("td").all_inner_texts()
    assert states(share, 100 * top_ns / total_ns(kernels), "%") and states(time, top_ns), (share, time, top_ns)
    assert int(count) == launches and states(mean, top_ns / launches), (count, mean, launches)
    eventually(lambda: f"{len(by_name)}" in page.locator("#kernels header").inner_text())


def lead_of(page: Any, words: str) -> Any:
    """Return where the lead stands, once it does: it comes with the account of the time, without a reload."""
    answer = page.locator(".answer")
    shows(answer, words)
    return answer


def finds_slices(page: Any, slices: list[Slice], words: str) -> None:
    """Search, and step through the first two hits."""
    settled(page)
    found = [each for each in slices if words in each.name]
    page.keyboard.press("/")
    page.keyboard.type(words)
    for number, each in enumerate(found[:2], 1):
        page.keyboard.press("Enter")
        reads(page.locator("#tl-hits"), f"{number} / {len(found)}")
        tells_of(page, each)


def tells_of(page: Any, chosen: Slice) -> None:
    """The details of a slice are those of the record in the file."""
    told = page.locator(".tl-details")
    start = told.locator("dt:text-is('Start') + dd .num")
    expect(start).to_have_attribute("title", f"{chosen.start_ns:,} ns")
    expect(told.locator("dt:text-is('Duration') + dd .num")).to_have_attribute("title", f"{chosen.dur_ns:,} ns")
    reads(told.locator("dt:text-is('Name') + dd"), chosen.name)
    for label, key in (("Stream", "stream"), ("Correlation", "correlation"), ("Registers per thread", "registers per thread")):
        if key in chosen.args:
            reads(told.locator(f"dt:text-is('{label}') + dd"), str(chosen.args[key]))
    for label, key in (("Grid", "grid"), ("Block", "block")):
        if key in chosen.args:
            reads(told.locator(f"dt:text-is('{label}') + dd"), " × ".join(map(str, chosen.args[key])))
