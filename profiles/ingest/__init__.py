"""Files in, `Trace`, `Report` or `Summary` out. One file per format, one line each in READERS; content decides, not the name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from profiles.ingest.chrome import generic, kineto
from profiles.ingest.core.source import Limits, Progress, Source
from profiles.ingest.core.unknown import refuse
from profiles.ingest.logs import dcgmi, nvidia_dmon, nvidia_smi
from profiles.ingest.ncu import csv_pages, report
from profiles.ingest.nsys import report as nsys_report
from profiles.ingest.nsys import sqlite, stats
from profiles.ingest.other import cprofile, cutlass, event_list, proton, proton_trace, snapshot
from profiles.ingest.perfetto import reader as perfetto
from profiles.ingest.samplers import cpuprofile, speedscope
from profiles.ingest.xplane import reader as xplane
from profiles.ingest.xplane import xprof
from profiles.trace import Report, Summary, Trace


class Reader(NamedTuple):
    name: str                                       # for people: "Kineto JSON"
    sniff: Callable[[bytes], bool]                  # first bytes of the (unpacked) content -> is it mine?
    read: Callable[[Source], Trace | Report | Summary]


READERS: list[Reader] = [
    Reader("XProf trace JSON (JAX, TensorFlow)", xprof.sniff, xprof.read),
    Reader("XPlane protobuf (.xplane.pb of JAX, TensorFlow)", xplane.sniff, xplane.read),
    Reader("Triton Proton trace (.chrome_trace)", proton_trace.sniff, proton_trace.read),
    Reader("PyTorch profiler (Kineto) JSON", generic.is_pytorch, kineto.read),
    Reader("Chrome trace JSON", generic.sniff, generic.read),
    Reader("Nsight Compute report (.ncu-rep)", report.sniff, report.read),
    Reader("Nsight Compute CSV (ncu --csv --page raw)", csv_pages.sniff, csv_pages.read),
    Reader("Nsight Systems export (SQLite)", sqlite.sniff, sqlite.read),
    Reader("Nsight Systems report (.nsys-rep, .qdrep)", nsys_report.sniff, nsys_report.read),
    Reader("nsys stats CSV or JSON", stats.sniff, stats.read),
    Reader("Perfetto trace (protobuf)", perfetto.sniff, perfetto.read),
    Reader("Triton Proton tree (.hatchet)", proton.sniff, proton.read),
    Reader("CUTLASS profiler CSV", cutlass.sniff, cutlass.read),
    Reader("PyTorch memory snapshot (.pickle)", snapshot.sniff, snapshot.read),
    Reader("nvidia-smi query CSV (--query-gpu)", nvidia_smi.sniff, nvidia_smi.read),
    Reader("nvidia-smi dmon", nvidia_dmon.sniff, nvidia_dmon.read),
    Reader("dcgmi dmon with times", dcgmi.sniff, dcgmi.read),
    Reader("Python cProfile statistics (.prof)", cprofile.sniff, cprofile.read),
    Reader("speedscope JSON (py-spy, rbspy)", speedscope.sniff, speedscope.read),
    Reader("V8 CPU profile (.cpuprofile)", cpuprofile.sniff, cpuprofile.read),
    Reader("Event list (JSON, JSON lines)", event_list.sniff, event_list.read),         # last: any list of objects with a time
]


def is_known(head: bytes) -> bool:
    """Tell whether content that starts like this is a profile that some reader takes."""
    return any(reader.sniff(head) for reader in READERS)


def read(path: str | Path, progress: Progress | None = None, limits: Limits | None = None,
         entry: int | None = None) -> Trace | Report | Summary:
    """Read one profile.

    Of a zip archive of several, the one with the number `entry` (see SeveralProfiles).

    Raises TraceError when nothing in it can be read.
    """
    with Source(path, progress, limits, wanted=is_known, entry=entry) as source:
        head = source.peek()
        for reader in READERS:
            if reader.sniff(head):
                return reader.read(source)
        raise refuse(head, [reader.name for reader in READERS])
