"""Log of NCCL (`NCCL_DEBUG=INFO`) of one rank or of several → `Summary`: communicators, rings, connections, collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from profiles.ingest.core.source import Source
from profiles.ingest.logs.lines import complete_lines, head_lines
from profiles.ingest.nccl.job import Job
from profiles.ingest.nccl.lines import parse_line, parse_version
from profiles.ingest.nccl.tables import headline, tables
from profiles.ingest.trace import Integrity, Summary, TraceError

FORMAT = "nccl-log"
_HINT = "Record with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,ENV,TUNING,COLL NCCL_DEBUG_FILE=nccl.%h.%p.log ./program"
_UNREAD = "a line of NCCL of a further kind: there are too many"


@dataclass
class NcclLog(Summary):
    """The tables, and what they were made of: the logs of several ranks are put together before tables are made."""

    job: Job = field(default_factory=lambda: Job(Integrity()))


def sniff(head: bytes) -> bool:
    return any(parse_line(line) is not None or line.startswith("NCCL version ") for line in head_lines(head, 2_000))


def read(source: Source) -> NcclLog:
    """Raises TraceError where no line says anything of a communicator or a collective."""
    integrity = Integrity()
    job, other = Job(integrity), 0
    for line in complete_lines(source, integrity):
        version, parsed = parse_version(line), parse_line(line)
        if version is None and parsed is None:
            other += 1
            continue
        integrity.records_read += 1
        integrity.kinds["line of NCCL"] = integrity.kinds.get("line of NCCL", 0) + 1
        if version:
            job.version = job.version or version
        if version or (parsed is not None and job.take(parsed)):
            integrity.records_kept += 1
        else:
            integrity.drop(_UNREAD)
    job.finish()
    integrity.repair("lines of other output skipped", other)
    summary = _summary(job)
    if not summary.tables:
        raise TraceError("the log", "no line of it says anything of a communicator, a collective or a warning", _HINT)
    return summary


def join(logs: Sequence[NcclLog]) -> NcclLog:
    """Return the logs of one job's ranks as one: NCCL writes a file per process where NCCL_DEBUG_FILE holds %p."""
    job = Job(Integrity())
    for log in logs:
        job.absorb(log.job)
    return _summary(job)


def _summary(job: Job) -> NcclLog:
    metadata = {"headline": headline(job)}
    if job.version:
        metadata |= {"NCCL": job.version[0], "runtime": job.version[1]}
    return NcclLog(FORMAT, [], tables(job), job.integrity, metadata={name: value for name, value in metadata.items() if value},
                   job=job)
