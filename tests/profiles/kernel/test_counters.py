"""Facts of launches against the vendor's own details page, and what is concluded from them."""

from __future__ import annotations

import csv
import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from profiles import ingest
from profiles.analysis.compare.comparison import launches_of_report
from profiles.analysis.kernel import counters, findings_counters, rules, stalls
from profiles.analysis.kernel.facts import LaunchFacts
from profiles.ingest.ncu.sections import LABELS, base_unit, sections
from profiles.ingest.trace import Report
from profiles.store.counters import launch_rows
from tests.profiles.kernel import reports

H200 = Path(__file__).resolve().parents[2] / "data" / "h200"
CORPUS = H200.parent / "corpus" / "ncu"
# label of the details page -> our fact
FACTS = {
    ("GPU Speed Of Light Throughput", "Duration"): lambda f: f.duration_ns,
    ("GPU Speed Of Light Throughput", "SM Frequency"): lambda f: f.sm_clock_hz,
    ("GPU Speed Of Light Throughput", "DRAM Frequency"): lambda f: f.dram_clock_hz,
    ("GPU Speed Of Light Throughput", "Compute (SM) Throughput"): lambda f: f.sol.sm_pct,
    ("GPU Speed Of Light Throughput", "Memory Throughput"): lambda f: f.sol.memory_pct,
    ("GPU Speed Of Light Throughput", "DRAM Throughput"): lambda f: f.sol.dram_pct,
    ("GPU Speed Of Light Throughput", "L1/TEX Cache Throughput"): lambda f: f.sol.l1_pct,
    ("GPU Speed Of Light Throughput", "L2 Cache Throughput"): lambda f: f.sol.l2_pct,
    ("Memory Workload Analysis", "L1/TEX Hit Rate"): lambda f: f.caches.l1_hit_pct,
    ("Memory Workload Analysis", "L2 Hit Rate"): lambda f: f.caches.l2_hit_pct,
    ("Scheduler Statistics", "Active Warps Per Scheduler"): lambda f: f.scheduler.active_warps,
    ("Scheduler Statistics", "Eligible Warps Per Scheduler"): lambda f: f.scheduler.eligible_warps,
    ("Scheduler Statistics", "Issued Warp Per Scheduler"): lambda f: f.scheduler.issued,
    ("Compute Workload Analysis", "Executed Ipc Active"): lambda f: f.scheduler.ipc,
    ("Occupancy", "Theoretical Occupancy"): lambda f: f.occupancy.theoretical_pct,
    ("Occupancy", "Achieved Occupancy"): lambda f: f.occupancy.achieved_pct,
    ("Occupancy", "Theoretical Active Warps per SM"): lambda f: f.occupancy.warps_per_sm,
    ("Occupancy", "Block Limit Registers"): lambda f: f.occupancy.limits["registers"],
    ("Launch Statistics", "Waves Per SM"): lambda f: f.occupancy.waves,
    ("Launch Statistics", "Registers Per Thread"): lambda f: f.launch["registers_per_thread"],
    ("Launch Statistics", "Dynamic Shared Memory Per Block"): lambda f: f.launch["smem_dynamic_bytes"],
}


@pytest.fixture(scope="module")
def full() -> Report:
    report = reports.read(H200 / "full.ncu-rep.zst")
    assert isinstance(report, Report)
    return report


@pytest.fixture(scope="module")
def facts(full: Report) -> list[LaunchFacts]:
    return [counters.launch_facts(launch) for launch in full.launches]


def details() -> list[tuple[int, str, str, float]]:
    """(launch, section, label, value in base units, half of its last digit) of the vendor's page."""
    text = gzip.decompress((H200 / "full_details.csv.gz").read_bytes()).decode()
    rows = []
    for row in csv.DictReader(text.splitlines()):
        try:
            printed = row["Metric Value"].replace(",", "")
            value = float(printed)
        except (ValueError, AttributeError):
            continue
        factor, _ = base_unit(row["Metric Unit"])
        digits = len(printed.partition(".")[2])
        rows.append(
            (int(row["ID"]), (row["Section Name"], row["Metric Name"]), value * factor, 0.5 * 10**-digits * factor)
        )
    return rows


def test_facts_agree_with_the_vendors_details_page(facts: list[LaunchFacts]) -> None:
    seen = 0
    for launch, label, value, half_digit in details():
        if label in FACTS:
            assert FACTS[label](facts[launch]) == pytest.approx(value, abs=half_digit * 1.0001), (launch, label)
            seen += 1
    assert seen == 11 * len(FACTS)


def test_every_label_known_names_the_right_metric(full: Report) -> None:
    seen = set()
    for launch, (section, label), value, half_digit in details():
        metric = LABELS.get(section, {}).get(label)
        if metric:
            assert full.launches[launch].metrics[metric] == pytest.approx(value, abs=half_digit * 1.0001), (
                launch,
                label,
            )
            seen.add((section, label))
    words = {("Launch Statistics", label)
             for label in ("Cluster Scheduling Policy", "Function Cache Configuration", "Enabled TPC IDs")}
    assert seen == {(section, label) for section, labels in LABELS.items() for label in labels} - words


@pytest.mark.parametrize(("name", "page", "least"), [
    ("h200/full.ncu-rep.zst", "h200/full_details.csv.gz", 900),
    ("causes/causes_planted.ncu-rep.zst", "causes/causes_planted_details.csv.gz", 900),
    ("causes/causes_mended.ncu-rep.zst", "causes/causes_mended_details.csv.gz", 900),
    ("corpus/ncu/hyperspec_rtx2060maxq.ncu-rep", "corpus/ncu_csv/hyperspec_rtx2060maxq.details.csv", 300),    # Turing, another ncu
])
def test_sections_are_the_vendors_details_page(name: str, page: str, least: int) -> None:
    """Every line that `ncu --page details` prints of these launches, within half of its last printed digit."""
    data = H200.parent
    report = ingest.read(data / name)
    assert isinstance(report, Report)
    ours = [{(section.name, line.label): line.value for section in sections(launch.metrics) for line in section.lines}
            for launch in report.launches]
    raw = (data / page).read_bytes()
    lines = (gzip.decompress(raw) if page.endswith(".gz") else raw).decode().splitlines()
    header = next(number for number, line in enumerate(lines) if line.startswith('"ID"'))
    printed = [row for row in csv.DictReader(lines[header:]) if row["Metric Name"]]
    for row in printed:
        value, theirs = ours[int(row["ID"])][row["Section Name"], row["Metric Name"]], row["Metric Value"].replace(",", "")
        if isinstance(value, str):
            assert value == theirs
            continue
        factor, _ = base_unit(row["Metric Unit"])
        half_digit = 0.5 * 10.0 ** -len(theirs.partition(".")[2]) * factor
        assert value == pytest.approx(float(theirs) * factor, abs=half_digit * 1.0001), row
    assert len(printed) > least


def test_stalls_add_up_to_the_latency(full: Report, facts: list[LaunchFacts]) -> None:
    for launch, found in zip(full.launches, facts, strict=True):
        assert sum(stall.cycles for stall in found.stalls) == pytest.approx(
            launch.metrics["smsp__average_warp_latency_per_inst_issued.ratio"], rel=0.05)  # several passes
        assert sum(stall.share_pct for stall in found.stalls) == pytest.approx(100)
        assert all(stall.reason in stalls.STALLS for stall in found.stalls)
        assert set(found.samples) <= set(stalls.STALLS)


def test_what_bounds_each_kernel(facts: list[LaunchFacts]) -> None:
    assert [found.bound for found in facts] == [
        "compute",
        "memory",
        "compute",
        "memory",
        "memory",
        "latency",
        "latency",
        "launch",
        "memory",
        "latency",
        "memory",
    ]
    assert facts[1].bound_reason == "DRAM 86 % of peak 4.81 TB/s; compute 8.2 %"
    assert facts[0].bound_reason.startswith("compute 90 % of peak (BF16 tensor 786 TFLOP/s of 870 TFLOP/s)")
    assert facts[7].bound_reason.startswith("4.0 µs: about what a launch costs")


def test_facts_survive_json(facts: list[LaunchFacts]) -> None:
    for found in facts:
        assert counters.from_json(json.loads(json.dumps(found.as_json()))) == found


def test_the_kernel_table_sums_and_leaves_out_what_was_not_measured(full: Report) -> None:
    table = counters.kernel_table(full)
    assert [row.total_ns for row in table] == sorted((row.total_ns for row in table), reverse=True)
    assert sum(row.share_pct for row in table) == pytest.approx(100)
    partly = ingest.read(CORPUS / "esmm_a10g_incomplete_last_kernel.ncu-rep")
    assert isinstance(partly, Report)
    kernels = counters.kernel_table(partly)
    assert [row.total_ns for row in kernels] == [139914240, 90892608, 90236288, None]
    last = kernels[-1]
    assert (last.launches, last.share_pct, last.mean_ns, last.bound) == (1, None, None, "")
    assert last.bound_reason == "profiling stopped before this launch was measured"
    one_name = replace(partly, launches=[replace(launch, kernel="one") for launch in partly.launches])
    [row] = counters.kernel_table(one_name)
    assert (row.launches, row.total_ns, row.min_ns) == (4, 321043136, 90236288)
    assert row.mean_ns == pytest.approx(321043136 / 3)          # of those that were measured


def test_a_launch_without_a_time_is_a_launch() -> None:
    partly = ingest.read(CORPUS / "esmm_a10g_incomplete_last_kernel.ncu-rep")
    assert isinstance(partly, Report)
    rows = launches_of_report(partly).sort_by("index").to_pylist()
    assert [row["dur_ns"] for row in rows] == [139914240, 90892608, 90236288, None]
    assert [row["grid_x"] for row in rows] == [128, 128, 128, None]


@pytest.mark.parametrize("value", [-7.0, 0.0, 1e12, 1e300])
def test_impossible_numbers_are_unknown_and_break_nothing(value: float) -> None:
    """A hand-edited report: every number the same. What is stored fits its columns."""
    report = ingest.read(CORPUS / "esmm_a10g_output.ncu-rep")
    assert isinstance(report, Report)
    launches = [replace(launch, grid=(int(value),) * 3, block=(int(value),) * 3, metrics={
        name: value if isinstance(kept, int | float) else kept for name, kept in launch.metrics.items()})
        for launch in report.launches]
    broken = replace(report, launches=launches)
    for row in counters.kernel_table(broken):
        assert 0 <= row.time_ns < 2**63 and (row.registers_per_thread or 0) < 2**31 and (row.smem_bytes or 0) < 2**63
    assert all(len(row["grid"]) <= 60 and len(row["block"]) <= 60 for row in launch_rows(broken))
    times = launches_of_report(broken)["dur_ns"]
    assert (len(times), times.null_count) == (len(launches), 0 if 0 <= value < counters.MOST_NS else len(launches))


def test_launches_of_one_kernel_are_summed() -> None:
    report = reports.read(H200 / "buildA.ncu-rep.zst")
    assert isinstance(report, Report)
    table = {row.name: row for row in counters.kernel_table(report)}
    assert {name: row.launches for name, row in table.items()} == {
        "matmul": 6, "attn_fwd": 3, "layernorm_row": 3, "softmax_row": 3}
    softmax = [counters.launch_facts(launch) for launch in report.launches if launch.kernel == "softmax_row"]
    whole = counters.combine_launches(softmax)
    assert whole is not None and whole.point.flop is not None and whole.point.duration_ns is not None
    assert whole.point.flop == pytest.approx(sum(found.point.flop or 0 for found in softmax))
    assert whole.point.duration_ns == sum(found.duration_ns or 0 for found in softmax)
    assert (
        min(f.point.roof_pct or 0 for f in softmax)
        <= (whole.point.roof_pct or 0)
        <= max(f.point.roof_pct or 0 for f in softmax)
    )


@pytest.mark.slow
def test_findings_name_the_gap_and_the_vendors_estimate_as_estimates(full: Report) -> None:
    found = findings_counters.find(full)
    rank = findings_counters.SEVERITIES.index
    assert found == sorted(found, key=lambda each: (rank(each.severity), -(each.worth_ns or 0)))
    by_rule = {(each.rule, each.kernel): each for each in found}
    gemm = full.launches[0].kernel
    assert by_rule["counters.at_roof", gemm].worth_ns is None
    scan = next(launch.kernel for launch in full.launches if "scan" in launch.kernel)
    assert "estimate" in by_rule["counters.bound", scan].title
    vendor = by_rule["counters.nvidia", scan]
    assert vendor.title.count("NVIDIA") == 1 and "@" not in vendor.advice
    for each in found:
        total = sum(row.total_ns for row in counters.kernel_table(full) if row.name == each.kernel)
        assert each.worth_ns is None or 0 <= each.worth_ns <= total


def test_rules_are_ranked_and_their_markup_is_resolved(full: Report) -> None:
    listed = rules.merge_launch_rules([(174848.0, [rule.__dict__ for rule in full.launches[0].rules])])
    estimates = [rule["speedup_pct"] for rule in listed if rule["speedup_scope"] == "global" and rule["speedup_pct"]]
    assert estimates == sorted(estimates, reverse=True)
    assert [bool(rule["worth_ns"]) for rule in listed][:len(estimates)] == [True] * len(estimates)
    for rule in listed:
        assert "@" not in rules.plain(rule["text"])
    text = ("Check the @section:SourceCounters:Warp Stall Sampling (All Samples)@ table. The @url:Profiling "
            "Guide:https://docs.nvidia.com/x.html#metrics@ tells. @sass:7f00:here@, @source:a.cu:12:there@; mail a@b.c")
    assert rules.plain(text) == ("Check the Warp Stall Sampling (All Samples) table. The Profiling Guide tells. "
                                 "here, there; mail a@b.c")
    links = [piece for piece in rules.pieces(text) if piece.href]
    assert links == [rules.Piece("Profiling Guide", "https://docs.nvidia.com/x.html#metrics")]
    assert rules.pieces("@url:x:javascript:alert(1)@")[0].href == ""
