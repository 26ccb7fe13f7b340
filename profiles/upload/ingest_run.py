"""What an ingest finds in an upload, and the objects it stores: the same steps for a trace, a counter report and sums."""

from __future__ import annotations

import resource
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from profiles import ingest
from profiles.analysis.compare.comparison import launches_of_report, launches_of_trace
from profiles.analysis.core import result
from profiles.analysis.core.digest import digest_of
from profiles.analysis.core.kernels import KernelRow, fold, kernel_table, summary_table
from profiles.analysis.core.result import Finding
from profiles.analysis.kernel import counters, findings_counters, findings_source
from profiles.analysis.kernel.advising.causes import once_per_cause
from profiles.analysis.trace import findings
from profiles.analysis.trace.breakdown import BY_NAME, breakdown, remark
from profiles.analysis.trace.breakdown import tables as tables_of_cpu
from profiles.analysis.trace.findings import calculated_occupancy
from profiles.analysis.trace.merge import merge
from profiles.analysis.trace.one_job import stated_name, why_not
from profiles.analysis.trace.plausibility.kinds import examine
from profiles.analysis.trace.plausibility.withhold import doubtful_kernels, withhold
from profiles.ingest.core.columns import FURTHER_NAMES
from profiles.ingest.core.source import SeveralProfiles
from profiles.ingest.naming.names import short_name
from profiles.ingest.nccl import log as nccl_log
from profiles.ingest.trace import DifferentJobs, Report, Summary, Trace, TraceError
from profiles.models import Profile
from profiles.progress import PUBLISH_EVERY_S, Progress
from profiles.store import counters as store_counters
from profiles.store import derived as store_derived
from profiles.store import source as store_source
from profiles.store import trace as store
from profiles.store.objects import launches_write, write_summary

RANKS_BY_FILE = "ranks_by_file"         # of a profile's metadata: its files' numbers are their ranks
WRITTEN = "file written"                # … when the file was last written, as its sender says
KERNEL_ROWS = 5_000        # rows of the kernel table; honest traces hold hundreds of names
_BEYOND_TABLE = f"kernel names beyond the {KERNEL_ROWS:,} of most time: in all sums, in the table as one row, {FURTHER_NAMES}"


def _no_more_rows(profile_id: int, kernel_ids: dict[str, int]) -> None:
    """Write nothing: a trace and a summary have no rows beyond their kernels."""


@dataclass
class IngestResult:
    """Everything the rows need; the objects are stored already."""

    kernels: Sequence[KernelRow]
    findings: Sequence[Any]                     # analysis.findings.Found
    fields: dict[str, Any]                      # of the Profile row
    metadata: dict[str, Any]
    stored_bytes: int
    doubtful: frozenset[str] = frozenset()      # kernels whose own time is in doubt
    rows_write: Callable[[int, dict[str, int]], None] = field(default=_no_more_rows)


def read_and_store(profile: Profile, progress: Progress) -> IngestResult:
    """Read the upload (the upload's content decides how), analyse it, store columns and tiles. Raises TraceError."""
    content, ranks = _read_all(profile, progress)
    if isinstance(content, Trace):
        return trace_store(profile.pk, content, progress, ranks=ranks)
    return _report(profile.pk, content, progress) if isinstance(content, Report) else _summary(profile.pk, content, progress)


def _keys(profile: Profile) -> list[str]:
    return [entry["key"] for entry in profile.metadata.get("files", [])] or [profile.upload_key]


def _read_all(profile: Profile, progress: Progress) -> tuple[Trace | Report | Summary, int]:
    """What the upload holds, and of how many ranks: several files, or a zip archive of files that are named like ranks."""
    paths = [store.local_path(key) for key in _keys(profile)]
    if len(paths) > 1:
        names = [entry["name"] for entry in profile.metadata["files"]]
        parts: list[tuple[str, Path, int | None]] = [(name, path, None) for name, path in zip(names, paths, strict=True)]
        return _with_ranks(_read_group(parts, progress, bool(profile.metadata.get(RANKS_BY_FILE))))
    try:
        return _with_ranks(ingest.read(paths[0], progress, written=profile.metadata.get(WRITTEN, "")))
    except SeveralProfiles as several:
        if not several.ranks:
            raise
        parts = [(Path(name.replace("\\", "/")).name, paths[0], number) for number, name in several.entries]
        return _with_ranks(_read_group(parts, progress))


def _with_ranks(content: Trace | Report | Summary) -> tuple[Trace | Report | Summary, int]:
    return content, len(content.metadata.get("ranks") or ()) or 1


def _number_by_file(traces: Sequence[tuple[str, Trace]]) -> None:
    """Ranks 0, 1, … in the order of the files; what the files stated stands in the report of what was read."""
    stated = ", ".join(f"{name}: {trace.rank if trace.rank is not None else 'none'}" for name, trace in traces[:8])
    for number, (_, trace) in enumerate(traces):
        trace.rank = number
    traces[0][1].integrity.notes.append(f"Ranks are numbered by file, as it was asked; the files state {stated}.")


def _read_group(parts: Sequence[tuple[str, Path, int | None]], progress: Progress, by_file: bool = False) -> Trace | Summary:
    """One trace of (name, file, number of the entry within an archive). `by_file`: its number among them is its rank.

    Logs of NCCL among them are put together: their tables lie beside the trace. Logs alone make a summary.
    """
    traces: list[tuple[str, Trace]] = []
    logs: list[nccl_log.NcclLog] = []
    for name, path, entry in parts:
        part = ingest.read(path, progress, entry=entry)
        if isinstance(part, nccl_log.NcclLog):
            logs.append(part)
            continue
        if not isinstance(part, Trace):
            what = "a counter report" if isinstance(part, Report) else "a table of sums"
            raise TraceError(name, f"{what} cannot be part of a job's timeline",
                             "Group the traces of one job; upload counter reports and sums on their own.")
        traces.append((name, part))
    if not traces:
        return nccl_log.join(logs)
    if another := why_not(traces, by_file):
        same_rank = len({trace.rank for _, trace in traces}) < len(traces) and not why_not(traces, by_file=True)
        offer = "Number the ranks by file, where each is an engine of one data-parallel job, or load" if same_rank else "Load"
        raise DifferentJobs(another[0], f"not a rank of the same job: {another[1]}",
                            f"{offer} the files as profiles of their own.", same_rank)
    if by_file:
        _number_by_file(traces)
    trace = merge(traces) if len(traces) > 1 else traces[0][1]
    if len(traces) > 1 and (job := stated_name([piece for _, piece in traces])):
        trace.metadata["job"] = job
    if logs:
        log = nccl_log.join(logs)
        trace.tables, trace.metadata["NCCL log"] = log.tables, log.metadata["headline"]
        trace.integrity.remark("lines of NCCL's log: in tables beside the communication", log.integrity.records_kept)
    return trace


class ProgressSink(Protocol):
    """What is told of an ingest's progress: `profiles.progress.Progress`."""

    def now(self, phase: str, records: int = 0) -> None: ...

    def slices(self, phase: str, done: int, total: int) -> None: ...


def trace_store(profile_id: int, trace: Trace, progress: ProgressSink, ranks: int) -> IngestResult:
    """Analyse and store one trace.

    Its windows pass once, the analyses run while its tables are encoded.
    """
    prepared = store.prepare(trace, progress.slices)
    remark(trace)
    examine(trace)
    doubts = [asdict(doubt) for doubt in trace.integrity.plausibility]
    kernels = kernel_table(trace)
    trace.integrity.remark(_BEYOND_TABLE, max(0, len(kernels) - KERNEL_ROWS))
    with ThreadPoolExecutor(1) as pool:                  # both sides spend most of their time outside the interpreter
        stored = pool.submit(prepared.write, profile_id)
        time = breakdown(trace)
        advice = withhold(findings.find(trace, kernels, time), doubts)
        launches = launches_of_trace(trace)
        while not wait([stored], timeout=PUBLISH_EVERY_S).done:      # rows and messages are written by this thread alone
            progress.slices("storing", prepared.rows_done, trace.parts.rows)
        stored_bytes = stored.result() + launches_write(profile_id, launches)
    stored_bytes += store_derived.derive(profile_id)
    summary = time.as_json()
    summary["reading"] = store.READING
    summary["calculated_occupancy"] = calculated_occupancy(digest_of(trace))
    labels = trace.metadata.get("devices") or []
    capacity = {device.index: device.memory_bytes for device in trace.devices}
    capability = {device.index: device.compute_capability for device in trace.devices}
    for device in summary["devices"]:                   # of a job of several ranks: whose GPU it is
        device["memory_bytes"] = capacity.get(device["index"])
        device["label"] = labels[device["index"]] if 0 <= device["index"] < len(labels) else ""
        device["compute_capability"] = capability.get(device["index"])
    if not kernels:
        stored_bytes += _cpu_time(profile_id, trace, summary)
    elif trace.tables:
        summary["tables"] = [{"title": table.title[:300], "rows": len(table.rows)} for table in trace.tables]
        stored_bytes += write_summary(profile_id, Summary(trace.format, [], trace.tables, trace.integrity))
    devices, steps = summary["devices"], [step["name"] for step in summary["steps"]]
    return IngestResult(
        kernels=fold(kernels, KERNEL_ROWS, FURTHER_NAMES), findings=advice, metadata=trace.metadata, stored_bytes=stored_bytes,
        doubtful=doubtful_kernels(doubts),
        fields=_fields(trace, Profile.Kind.TRACE, kernels) | {
            "summary": summary, "gpu": _gpu_names([device.name for device in trace.devices]),
            "steps": len(set(steps) if ranks > 1 else steps) or None, "wall_ns": summary["wall_ns"],
            "busy_ns": sum(device["busy_ns"] for device in devices) if devices else None,
        })


def _cpu_time(profile_id: int, trace: Trace, summary: dict[str, Any]) -> int:
    """What a trace without kernels has to tell: tables of CPU time, and in its summary the name of most; the stored bytes."""
    tables = trace.tables or tables_of_cpu(trace)
    summary["headline"] = trace.metadata.pop("headline", "")
    if tables and tables[0].title == BY_NAME:
        name, _, _, share_pct, *_ = tables[0].rows[0]
        summary["cpu_top"] = {"name": str(name)[:300], "share_pct": share_pct}
    return write_summary(profile_id, Summary(trace.format, [], tables, trace.integrity))


def _report(profile_id: int, report: Report, progress: Progress) -> IngestResult:
    progress.now("analysing", records=report.integrity.records_kept)
    kernels = counters.kernel_table(report)
    progress.now("storing", records=report.integrity.records_kept)
    stored_bytes = store_counters.write_report(profile_id, report)
    stored_bytes += launches_write(profile_id, launches_of_report(report))
    stored_bytes += store_source.inside_write(profile_id, report)
    return IngestResult(
        kernels=kernels, findings=_labelled(once_per_cause([*findings_counters.find(report), *findings_source.find(report)]),
                                            kernels),
        metadata=report.metadata, stored_bytes=stored_bytes,
        fields=_fields(report, Profile.Kind.COUNTERS, kernels) | {
            "summary": {}, "gpu": _gpu_names([launch.device.name for launch in report.launches]),
            "steps": None, "wall_ns": None, "busy_ns": None,
        },
        rows_write=partial(store_counters.write_rows, report=report))


def _summary(profile_id: int, summary: Summary, progress: Progress) -> IngestResult:
    result.cut_tables(summary)
    kernels = summary_table(summary)
    summary.integrity.remark(_BEYOND_TABLE, max(0, len(kernels) - KERNEL_ROWS))
    progress.now("storing", records=summary.integrity.records_kept)
    return IngestResult(
        kernels=fold(kernels, KERNEL_ROWS, FURTHER_NAMES), findings=[], metadata=summary.metadata,
        stored_bytes=write_summary(profile_id, summary),
        fields=_fields(summary, Profile.Kind.SUMMARY, kernels) | {
            "summary": {"tables": [{"title": table.title[:300], "rows": len(table.rows)} for table in summary.tables],
                        "headline": summary.metadata.pop("headline", "")},
            "gpu": _gpu_names([device.name for device in summary.devices]), "steps": None, "wall_ns": None, "busy_ns": None,
        })


def _fields(content: Trace | Report | Summary, kind: str, kernels: Sequence[KernelRow]) -> dict[str, Any]:
    return {
        "kind": kind, "format": content.format[:24], "integrity": content.integrity.as_json(),
        "launches": sum(kernel.launches for kernel in kernels),
        "gpu_time_ns": None if kernels and all(kernel.total_ns is None for kernel in kernels)
        else sum(kernel.time_ns for kernel in kernels),
        "top_kernel": kernels[0].short_name if kernels else "",
    }


def _labelled(found: Sequence[Finding], kernels: Sequence[KernelRow]) -> list[Finding]:
    """Findings whose titles begin with the label that their kernel has in this profile."""
    labels = {kernel.name: kernel.short_name for kernel in kernels}
    return [replace(finding, title=labels.get(finding.kernel, own) + finding.title.removeprefix(own))
            if finding.kernel and finding.title.startswith(own := short_name(finding.kernel)) else finding for finding in found]


def _gpu_names(names: Sequence[str]) -> str:
    """Each model once: "NVIDIA H200"."""
    return ", ".join(dict.fromkeys(name for name in names if name))[:120]


def peak_rss_bytes() -> int:
    """The largest resident set of this process and of the children it waited for.

    VmHWM and not ru_maxrss for this process: ru_maxrss outlives exec, a child of a large parent starts with its parent's.
    """
    own = 0
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            own = int(line.split()[1]) * 1024
    return max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
