"""What Ridgepoint says of two recordings, as text that is read in review: `make golden` writes it anew.

A change of any number, finding or word shows as a diff of a line here, also where no other test looks for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from profiles import ingest
from profiles.analysis.core.kernels import KernelRow, kernel_table
from profiles.analysis.core.result import Finding
from profiles.analysis.kernel import counters, findings_counters
from profiles.analysis.trace import findings
from profiles.analysis.trace.breakdown import breakdown, remark
from profiles.ingest.trace import Integrity, Report, Trace
from tests.profiles.ingest.corpus import DATA, H200

pytestmark = pytest.mark.golden
TOP_KERNELS = 12
_DEVICE = ("wall_ns", "busy_ns", "compute_ns", "communication_ns", "memory_ns", "idle_ns", "launches", "kernel_ns")
_STEP = ("start_ns", "end_ns", "busy_ns", "idle_ns", "compute_ns", "communication_ns", "memory_ns")


@pytest.mark.parametrize("recording", ["kineto_train.json.gz", "buildA.ncu-rep.zst"])
def test_what_is_said_of_a_recording(recording: str) -> None:
    found = ingest.read(H200 / recording)
    if isinstance(found, Trace):
        remark(found)
    lines = [f"{recording} read as {found.format}", "", *_integrity(found.integrity), ""]
    lines += _trace(found) if isinstance(found, Trace) else _report(found)
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    golden = DATA / "golden" / f"{recording.split('.')[0]}.txt"
    if os.environ.get("RIDGEPOINT_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text(), "make golden writes it anew; read the diff"


def _trace(trace: Trace) -> Iterator[str]:
    kernels, time = kernel_table(trace), breakdown(trace)
    for device in time.devices:
        yield f"GPU {device.index} {device.name}: {_named(device, _DEVICE)}"
        yield f"  idle: {_pairs(device.idle_causes)}"
    for step in time.steps:
        yield f"{step.name}: {_named(step, _STEP)}"
    yield from ("", *_kernels(kernels), "", *_findings(findings.find(trace, kernels, time)))


def _report(report: Report) -> Iterator[str]:
    yield from (*_kernels(counters.kernel_table(report)), "")
    for launch in report.launches:
        facts = counters.launch_facts(launch)
        yield (f"#{facts.index} {facts.kernel}: duration_ns={_number(facts.duration_ns)} sm_pct={_number(facts.sol.sm_pct)} "
               f"dram_pct={_number(facts.sol.dram_pct)} flop={_number(facts.point.flop)} "
               f"dram_bytes={_number(facts.point.dram_bytes)} roof_pct={_number(facts.point.roof_pct)} "
               f"occupancy_pct={_number(facts.occupancy.achieved_pct)} rules={len(launch.rules)}")
    yield from ("", *_findings(findings_counters.find(report)))


def _integrity(found: Integrity) -> Iterator[str]:
    yield f"records: read {found.records_read}, kept {found.records_kept}, truncated at {found.truncated_at}"
    for name in ("kinds", "not_kept", "repaired", "remarks"):
        yield f"{name}: {_pairs(getattr(found, name))}"
    yield from (f"note: {note}" for note in found.notes)


def _kernels(kernels: list[KernelRow]) -> Iterator[str]:
    yield f"{len(kernels)} kernels: launches, total ns, p50 ns, p95 ns, share, registers, bound"
    for kernel in kernels[:TOP_KERNELS]:
        yield (f"  {kernel.launches} {kernel.total_ns} {_number(kernel.p50_ns)} {_number(kernel.p95_ns)} "
               f"{_number(kernel.share_pct)} % {kernel.registers_per_thread} {kernel.bound or '-'}  {kernel.short_name}")


def _findings(found: list[Finding]) -> Iterator[str]:
    yield f"{len(found)} findings"
    for each in found:
        yield f"  {each.severity} {each.rule} worth_ns={_number(each.worth_ns)}: {each.title}"


def _named(result: Any, names: tuple[str, ...]) -> str:
    return " ".join(f"{name}={getattr(result, name)}" for name in names)


def _pairs(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"


def _number(value: float | None) -> str:
    """Five significant digits: what machines round differently is not looked at."""
    return "unknown" if value is None else f"{value:.5g}"
