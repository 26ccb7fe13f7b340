"""Files in, `Trace`, `Report` or `Summary` out. One file per format, one line each in READERS; content decides, not the name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from profiles.ingest import (
    chrome,
    cutlass,
    kineto,
    ncu_csv,
    ncu_report,
    nsys_report,
    nsys_sqlite,
    nsys_stats,
    perfetto,
    proton,
    proton_trace,
    snapshot,
    xplane,
    xprof,
)
from profiles.ingest.source import Limits, Progress, Source
from profiles.ingest.unknown import refuse
from profiles.trace import Report, Summary, Trace


class Reader(NamedTuple):
    name: str                                       # for people: "Kineto JSON"
    sniff: Callable[[bytes], bool]                  # first bytes of the (unpacked) content -> is it mine?
    read: Callable[[Source], Trace | Report | Summary]


READERS: list[Reader] = [
    Reader("XProf trace JSON (JAX, TensorFlow)", xprof.sniff, xprof.read),
    Reader("XPlane protobuf (.xplane.pb of JAX, TensorFlow)", xplane.sniff, xplane.read),
    Reader("Triton Proton trace (.chrome_trace)", proton_trace.sniff, proton_trace.read),
    Reader("PyTorch profiler (Kineto) JSON", chrome.of_pytorch, kineto.read),
    Reader("Chrome trace JSON", chrome.sniff, chrome.read),
    Reader("Nsight Compute report (.ncu-rep)", ncu_report.sniff, ncu_report.read),
    Reader("Nsight Compute CSV (ncu --csv --page raw)", ncu_csv.sniff, ncu_csv.read),
    Reader("Nsight Systems export (SQLite)", nsys_sqlite.sniff, nsys_sqlite.read),
    Reader("Nsight Systems report (.nsys-rep, .qdrep)", nsys_report.sniff, nsys_report.read),
    Reader("nsys stats CSV or JSON", nsys_stats.sniff, nsys_stats.read),
    Reader("Perfetto trace (protobuf)", perfetto.sniff, perfetto.read),
    Reader("Triton Proton tree (.hatchet)", proton.sniff, proton.read),
    Reader("CUTLASS profiler CSV", cutlass.sniff, cutlass.read),
    Reader("PyTorch memory snapshot (.pickle)", snapshot.sniff, snapshot.read),
]


def known(head: bytes) -> bool:
    """Is content that starts like this a profile that some reader takes?"""
    return any(reader.sniff(head) for reader in READERS)


def read(path: str | Path, progress: Progress | None = None, limits: Limits | None = None,
         entry: int | None = None) -> Trace | Report | Summary:
    """Read one profile; of a zip archive of several the one with the number `entry` (see SeveralProfiles).

    Raises TraceError when nothing in it can be read.
    """
    with Source(path, progress, limits, wanted=known, entry=entry) as source:
        head = source.peek()
        for reader in READERS:
            if reader.sniff(head):
                return reader.read(source)
        raise refuse(head, [reader.name for reader in READERS])
