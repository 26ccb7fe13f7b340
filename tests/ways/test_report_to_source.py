"""From an Nsight Compute report to the cause of a kernel's time and the line that has it, counted with NVIDIA's own reader."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.visit import WORKED_MS, poll, reads, shows
from tests.unpack import unpacked
from tests.ways.conftest import follow
from tests.ways.test_drop_trace import DATA, states

ncu_report = pytest.importorskip("ncu_report")
SAMPLES, STALLED = "smsp__pcsamp_sample_count", "smsp__pcsamp_warps_issue_stalled_"
Place = tuple[str, int]                 # file, line


@dataclass(frozen=True)
class Launch:
    """One launch of a report: what the sampler saw at each instruction, and where these stand in the source."""

    kernel: str
    dur_ns: float
    samples: Counter[int]               # by address
    stalls: dict[str, Counter[int]]     # by warp state
    places: dict[int, Place]
    sass: dict[int, str]
    begin: int                          # address of the first instruction
    texts: dict[str, list[str]]         # lines of each file

    def by_line(self) -> Counter[Place]:
        """Return the samples of each line that an instruction belongs to, executed ones without a sample as well."""
        found = Counter(dict.fromkeys(self.places.values(), 0))
        for address, place in self.places.items():
            found[place] += self.samples[address]
        return found

    def main_stall(self, addresses: Iterable[int]) -> tuple[str, float]:
        """The warp state with most samples at some instructions, in the page's words, and its share in %."""
        addresses = list(addresses)
        sums = {name: sum(stalls[each] for each in addresses) for name, stalls in self.stalls.items()}
        name = max(sums, key=lambda each: sums[each])
        return name.replace("_", " ").capitalize(), 100 * sums[name] / sum(self.samples[each] for each in addresses)


def launches_of(path: Path, folder: Path) -> list[Launch]:
    plain = folder / path.stem
    plain.write_bytes(unpacked(path))
    context = ncu_report.load_report(str(plain))
    return [launch_of(action) for at in range(context.num_ranges()) for action in context.range_by_idx(at)]


def launch_of(action: Any) -> Launch:
    names = [name for name in action.metric_names() if name.startswith(STALLED) and not name.endswith("_not_issued")]
    samples, executed = by_address(action, SAMPLES), by_address(action, "inst_executed")
    infos = {each: action.source_info(each) for each in executed | samples}
    return Launch(
        action.name(action.NameBase_DEMANGLED), action.metric_by_name("gpu__time_duration.sum").as_double(), samples,
        {name.removeprefix(STALLED): by_address(action, name) for name in names},
        {each: (info.file_name(), info.line()) for each, info in infos.items() if info and info.line()},
        {each: " ".join(action.sass_by_pc(each).split()) for each in infos}, min(executed),
        {name: text.splitlines() for name, text in (action.source_files() or {}).items() if text})


def by_address(action: Any, name: str) -> Counter[int]:
    metric = action.metric_by_name(name)
    keys = metric.correlation_ids()
    return Counter({keys.as_uint64(at): int(metric.as_double(at)) for at in range(metric.num_instances())})


def brings(page: Any, file: Path, launches: list[Launch], shown: str) -> None:
    """From the first page to the report's overview; `shown`: what it calls the kernel with most time."""
    page.set_viewport_size({"width": 1440, "height": 1000})
    page.goto("/")
    follow(page, page.get_by_role("link", name=re.compile("^Import")))       # with its scripts: without, the form is a plain one
    page.set_input_files("#file", str(file))
    page.click("[data-submit]")
    row = page.locator("[data-files] > li")
    expect(row).to_contain_text("✓ ready", timeout=WORKED_MS)
    whole_ns = sum(each.dur_ns for each in launches)
    shows(row, "1 launch" if len(launches) == 1 else f"{len(launches):,} launches")
    assert states(row.inner_text(), whole_ns), (row.inner_text(), whole_ns)
    row.get_by_role("link", name="Open").click()
    top = top_of(launches)
    top_ns = sum(each.dur_ns for each in top)
    answer = page.locator(".answer")
    shows(answer, f"of {len({each.kernel for each in launches})} kernel")
    assert states(answer.inner_text(), whole_ns) and states(answer.inner_text(), 100 * top_ns / whole_ns, "%"), answer.inner_text()
    name, share, time, count, mean, *_ = page.locator(".top-kernels tbody tr").first.locator("td").all_inner_texts()
    assert name.strip().startswith(shown) and int(count) == len(top)
    assert states(share, 100 * top_ns / whole_ns, "%") and states(time, top_ns) and states(mean, top_ns / len(top)), (time, mean)


def top_of(launches: list[Launch]) -> list[Launch]:
    """Return the launches of the kernel with most time."""
    by_kernel = [[each for each in launches if each.kernel == kernel] for kernel in {each.kernel for each in launches}]
    return max(by_kernel, key=lambda own: sum(each.dur_ns for each in own))


def to_its_source(page: Any, launch: Launch, *words: str) -> str:
    """The finding that names the place of the kernel's samples, and its way there; return what the source page answers."""
    finding = page.locator("#findings li", has_text=f"of {sum(launch.samples.values()):,} stall samples")
    for each in words:
        shows(finding.locator(".what"), each)
    finding.get_by_role("link", name="▸ lines").click()
    poll(page, "document.getElementById('source-view')?.dataset.state === 'whole'")
    answer = page.locator(".answer")
    shows(answer, f"of {sum(launch.samples.values()):,} stall samples")
    return str(answer.inner_text())


@pytest.mark.parametrize(("file", "shown"), [("captured/matmul_full.ncu-rep.gz", "matmul"),
                                             pytest.param("h200/counters/slow-everything.ncu-rep.gz", "softmax_row",
                                                          marks=pytest.mark.deep_only)])
def test_from_a_report_to_the_line(watched: Any, tmp_path: Path, file: str, shown: str) -> None:
    """Kernels of Triton, whose report holds the source: the page tells of the longest launch."""
    page, launches = watched, launches_of(DATA / file, tmp_path)
    brings(page, DATA / file, launches, shown)
    launch = max(top_of(launches), key=lambda each: each.dur_ns)
    lines, whole = launch.by_line(), sum(launch.samples.values())
    (path, line), samples = lines.most_common(1)[0]
    name = Path(path).name
    here = [each for each, place in launch.places.items() if place == (path, line)]
    stall, stall_pct = launch.main_stall(here)

    answer = to_its_source(page, launch, f"line {line} of {name}", f"of them “{stall}”")
    assert answer.startswith(f"{name}:{line} holds ") and f"of them “{stall}”" in answer
    share, rest = answer.split(" of them ")
    assert states(share, 100 * samples / whole, "%") and states(share, stall_pct, "%"), (share, samples, whole, stall_pct)
    five = sum(count for _, count in lines.most_common(5))
    assert f"Top five of {len(lines)} lines" in rest and states(rest, 100 * five / whole, "%"), (rest, five, whole)

    text = launch.texts[path][line - 1]
    reads(page.locator(".source-pane").first.locator("[aria-selected=true] .code-text"), text)
    shows(page.locator("#source-detail h3"), f"{name}:{line}")
    state = page.locator("#source-detail .states tbody tr").first
    reads(state.locator("td").first, stall)
    assert states(state.locator("td").nth(2).inner_text(), stall_pct, "%")
    listed = page.locator("table[data-name=lines] tbody tr").first.locator("td")
    reads(listed.nth(2), f"{samples:,}")
    shows(listed.nth(1), " ".join(text.split()))


def test_from_a_report_without_source_to_the_instruction(watched: Any, tmp_path: Path) -> None:
    """A public report of CUTLASS kernels on an A100, built without line information."""
    file = DATA / "corpus/ncu/cutlass_fork_a100_report75.ncu-rep.gz"
    page, launches = watched, launches_of(file, tmp_path)
    launch = max(launches, key=lambda each: each.dur_ns)
    assert not any(each.places for each in launches)
    brings(page, file, launches, "B2bGemm")
    (address, samples), *_ = launch.samples.most_common(1)
    whole, (stall, stall_pct) = sum(launch.samples.values()), launch.main_stall([address])
    sass, offset = launch.sass[address], address - launch.begin

    answer = to_its_source(page, launch, f"“{sass}” at {offset:#06x}", f"of them “{stall}”")
    assert answer.startswith(f"{sass} at {offset:#06x} holds ") and f"of them “{stall}”" in answer
    assert states(answer, 100 * samples / whole, "%") and states(answer, stall_pct, "%"), (answer, samples, whole, stall_pct)
    shows(page.locator("#source-view"), "No line information")
    shows(page.locator("#source-detail h3"), f"{offset:04x}  {sass}")
    listed = page.locator("table[data-name=instructions] tbody tr").first.locator("td")
    assert [each.strip() for each in listed.all_inner_texts()[:4]] == [f"{offset:#06x}", sass, "—", str(samples)]
