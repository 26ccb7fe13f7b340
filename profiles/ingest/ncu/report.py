"""Nsight Compute reports (`.ncu-rep`) → `Report`, by NVIDIA's own reader in a child process with limits.

The `ncu-report` package is NVIDIA's proprietary native code: it is installed from PyPI by whoever runs Ridgepoint,
never shipped with it. Values arrive in base units (ns, byte, hz, percent). A result that profiling left unfinished
(no duration, no grid) is kept and marked, so that it stays out of sums.
"""

from __future__ import annotations

import math
import re
import selectors
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from profiles.ingest.core.source import Source
from profiles.ingest.ncu import container as ncu_container
from profiles.ingest.ncu import container as ncu_inside
from profiles.ingest.trace import CounterLaunch, Device, Integrity, Report, Rule, TraceError

FORMAT = "ncu-rep"
CHILD = Path(__file__).with_name("ncu_child.py")
SILENCE_S = 120.0                  # a healthy child says something per launch, in milliseconds
CPU_S = 1800
MEMORY_BASE_BYTES = 4 * 2**30      # address space: the library and its tables
MEMORY_PER_BYTE = 8                # and what it unfolds of the file
MAX_LINE_BYTES = 256 * 2**20
INSTALL = "Install NVIDIA's reader where the ingest worker runs: pip install 'ncu-report>=2026.2'"


def sniff(head: bytes) -> bool:
    """Tell whether content begins like an Nsight Compute report."""
    return head.startswith(ncu_container.MAGIC)


def read(source: Source) -> Report:
    """Return the counters of every launch of the report.

    TraceError where nothing can be read.
    """
    with source.as_file() as path:
        container = ncu_container.scan(path)
        if not container.results:
            raise _nothing_error(container)
        with _whole_part(path, container) as whole:
            report, ended = _read(whole, container, source)
            if ended:           # what is inside the launches (code, marks, series) is left out: it may be what hurts
                plain, ended_plain = _read(whole, container, source, plain=True)
                if len(plain.launches) > len(report.launches):
                    plain.integrity.notes.append(f"Instructions and source could not be read: {ended}.")
                    report, ended = plain, ended_plain
    _count_results(report, container, ended)
    if source.damage:
        report.integrity.notes.append(f"The compressed file ends early: {source.damage}.")
    if not report.launches:
        raise TraceError(f"result 1 of {container.results}",
                         f"NVIDIA's reader could not read it ({ended or 'no result'})",
                         "Open the report in ncu-ui to see whether it is intact, or profile again.")
    return report


def _read(path: Path, container: ncu_container.Container, source: Source, plain: bool = False) -> tuple[Report, str]:
    """What the reader's process says until it ends; and how it ended, where that was before its end."""
    report = Report(FORMAT, [], {}, Integrity(), dict(container.session))
    inside = ncu_inside.Inside(report)
    try:
        for document in _documents(path, container.size_bytes, plain):
            _take(document, report, inside)
            source.progress("reading", len(report.launches))
    except ChildProcessError as error:
        return report, str(error)
    finally:
        accept_untimed(report)
        for launch in report.launches:
            if launch.incomplete:
                report.integrity.repair(f"kept out of sums: {launch.incomplete}")
    return report, ""


@contextmanager
def _whole_part(path: Path, container: ncu_container.Container) -> Iterator[Path]:
    """The file itself, or of a file that is cut short a copy up to its last whole block."""
    if not container.truncated:
        yield path
        return
    with tempfile.NamedTemporaryFile(suffix=".ncu-rep") as copy, open(path, "rb") as file:
        left = container.whole_bytes
        while left and (chunk := file.read(min(left, 1 << 20))):
            copy.write(chunk)
            left -= len(chunk)
        copy.flush()
        yield Path(copy.name)


def _take(document: dict[str, Any], report: Report, inside: ncu_inside.Inside) -> None:
    if "missing" in document:
        raise TraceError("ncu_report", "NVIDIA's report reader is not installed", INSTALL)
    if "metrics" not in document:
        return
    report.units.update(document["units"])
    for name, parts in document["breakdowns"].items():
        report.metadata.setdefault("breakdowns", {}).setdefault(name, parts)
    rules = [_rule(r) for r in document["rules"]]
    launch = launch_from(len(report.launches), document["name"], add_durations(document["metrics"]), rules)
    try:
        inside.take(document, launch)
    except (ArithmeticError, LookupError, TypeError, ValueError, pa.ArrowException):      # its counters are whole all the same
        report.integrity.repair("what is inside a launch (instructions, series) could not be understood: left out")
    report.launches.append(launch)


def launch_from(index: int, kernel: str, metrics: dict[str, float | str], rules: list[Rule]) -> CounterLaunch:
    """Return a launch from its metrics.

    Device, grid, block, context and stream stand among them.
    """
    grid, block = _dim3(metrics, "launch__grid_dim_"), _dim3(metrics, "launch__block_dim_")
    return CounterLaunch(
        index=index, kernel=kernel or "(unnamed)", device=_device(metrics), grid=grid, block=block,
        context=_whole(metrics, "launch__context_id"), stream=_whole(metrics, "launch__stream_id"),
        metrics=metrics, rules=rules, incomplete=incomplete(metrics, grid),
    )


def incomplete(metrics: dict[str, float | str], grid: tuple[int, int, int] | None) -> str | None:
    """Return why a result must stay out of sums, or None.

    Interrupted profiling leaves no duration and a grid of 0.
    """
    duration = metrics.get("gpu__time_duration.sum")
    if isinstance(duration, (int, float)) and math.isfinite(duration) and duration > 0:
        return None
    if (grid is not None and 0 in grid) or "launch__grid_size" not in metrics:
        return "profiling stopped before this launch was measured"
    return "the report holds no duration for this launch (gpu__time_duration.sum)"


UNTIMED = "The report states no duration (gpu__time_duration.sum was not collected): times and shares are unknown."
_DURATION = "gpu__time_duration.sum"
# What stands in a result that was interrupted, too: where the launch ran and what its GPU is, nothing that was counted.
_IDENTITY = ("launch__grid_dim_", "launch__block_dim_", "launch__context_id", "launch__stream_id", "launch__device_id",
             "device__", "profiler__", "nvtx__", "numa__", "nvlink__", "smsp__maximum_warps_avg_per_active_cycle")


def add_durations(metrics: dict[str, float | str]) -> dict[str, float | str]:
    """Return the metrics with the sum where the file states the mean, maximum or minimum of the duration alone.

    They are equal: the counter has one instance per GPU (Kernel Profiling Guide, "Metrics Structure").
    """
    if _DURATION not in metrics:
        for part in (".avg", ".max", ".min", ""):
            if isinstance(value := metrics.get(f"gpu__time_duration{part}"), (int, float)):
                return {**metrics, _DURATION: value}
    return metrics


def accept_untimed(report: Report) -> None:
    """Where single metrics were collected and the duration was none of them, take the launches as they are.

    Of a report in which any launch has a duration, one without was interrupted and stays out of sums.
    """
    if any(launch.incomplete is None for launch in report.launches):
        return
    accepted = 0
    for index, launch in enumerate(report.launches):
        counted = any(not name.startswith(_IDENTITY) for name in launch.metrics)
        if counted and not (launch.grid is not None and 0 in launch.grid):
            report.launches[index] = replace(launch, incomplete=None)
            accepted += 1
    if accepted:
        report.integrity.notes.append(UNTIMED)


_FAILED = re.compile(r'==ERROR== Failed to profile "([^"\x00-\x1f]{1,4000})"')


def failed_kernel(line: str) -> str:
    """Return the kernel that a line of ncu says it could not profile, "" where it says something else."""
    failed = _FAILED.match(line)
    return failed[1] if failed else ""


def add_failed(report: Report, kernels: Sequence[str]) -> None:
    """Put down the launches that ncu says it could not profile, where the pages that it printed leave them out."""
    listed = Counter(next((kernel for kernel in kernels if kernel in launch.kernel), "")
                     for launch in report.launches if launch.incomplete)
    device = report.launches[-1].device if report.launches else Device(index=0, name="")
    for kernel in kernels:
        if listed[kernel]:
            listed[kernel] -= 1
            continue
        report.launches.append(CounterLaunch(
            index=len(report.launches), kernel=kernel, device=device, grid=None, block=None, context=None, stream=None,
            metrics={}, rules=[], incomplete="ncu says that it failed to profile this launch"))


def _dim3(metrics: dict[str, float | str], prefix: str) -> tuple[int, int, int] | None:
    x, y, z = (_whole(metrics, prefix + axis) for axis in "xyz")
    return None if x is None or y is None or z is None else (x, y, z)


def _device(metrics: dict[str, float | str]) -> Device:
    major, minor = (_whole(metrics, f"device__attribute_compute_capability_{part}") for part in ("major", "minor"))
    return Device(
        index=_whole(metrics, "launch__device_id") or 0,
        name=str(metrics.get("device__attribute_display_name", "")),
        compute_capability=None if major is None else f"{major}.{minor or 0}",
        sm_count=_whole(metrics, "device__attribute_multiprocessor_count"),
    )


def _whole(metrics: dict[str, float | str], name: str) -> int | None:
    value = metrics.get(name)
    return int(value) if isinstance(value, (int, float)) else None


def _rule(document: dict[str, Any]) -> Rule:
    return Rule(**{**document, "focus": tuple(document["focus"])})


def _count_results(report: Report, container: ncu_container.Container, ended: str) -> None:
    """Results announced, read and lost. Every result is a record."""
    integrity = report.integrity
    integrity.records_read = container.results + container.results_cut
    integrity.records_kept = len(report.launches)
    integrity.kinds = {"profiled launch": integrity.records_read}
    if container.truncated:
        integrity.truncated_at = f"byte {container.whole_bytes}"
        integrity.notes.append(
            f"The file ends inside the block at byte {container.whole_bytes}: launches behind it are lost.")
        integrity.drop("cut off at the end of the file", container.results_cut)
    integrity.drop("not readable by NVIDIA's reader", max(0, container.results - len(report.launches)))
    if ended:
        integrity.notes.append(f"NVIDIA's reader stopped early: {ended}.")


def _nothing_error(container: ncu_container.Container) -> TraceError:
    if container.truncated:
        return TraceError(f"byte {container.whole_bytes}", "the report is cut off before its first whole launch",
                          "The copy is incomplete: copy the file again from where ncu wrote it.")
    return TraceError("report", "it holds no profiled launch",
                      "ncu found no kernel to profile: check --kernel-name, --launch-skip and --profile-from-start.")


def _documents(path: Path, size_bytes: int, plain: bool) -> Iterator[dict[str, Any]]:
    """What the child says, line by line. ChildProcessError where it dies, hangs or says more than it may."""
    memory = MEMORY_BASE_BYTES + MEMORY_PER_BYTE * size_bytes
    child = subprocess.Popen([sys.executable, "-I", str(CHILD), str(path), str(memory), str(CPU_S), *["plain"] * plain],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    decode, ended = msgspec.json.Decoder(dict[str, Any]).decode, False
    try:
        for line in _lines(child):
            try:
                document = decode(line)
            except msgspec.DecodeError as error:
                raise ChildProcessError(f"it said something that is no JSON ({error})") from None
            ended = ended or "end" in document
            yield document
        code = child.wait(SILENCE_S)
        if code or not ended:
            raise ChildProcessError(f"it ended with signal {-code}" if code < 0 else f"it ended with status {code}")
    finally:
        child.kill()
        child.wait()
        if child.stdout:
            child.stdout.close()


def _lines(child: subprocess.Popen[bytes]) -> Iterator[bytes]:
    if child.stdout is None:
        return
    pending, last = bytearray(), time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(timeout=SILENCE_S - (time.monotonic() - last)):
                raise ChildProcessError(f"it said nothing for {SILENCE_S:.0f} s")
            chunk = child.stdout.read1(1 << 20)  # type: ignore[attr-defined]
            if not chunk:
                break
            last = time.monotonic()
            *lines, rest = (bytes(pending) + chunk).split(b"\n")
            pending = bytearray(rest)
            if len(pending) > MAX_LINE_BYTES:
                raise ChildProcessError("one launch holds more than can be taken")
            yield from lines
