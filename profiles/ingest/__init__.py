"""Files in, `Trace`, `Report` or `Summary` out. One file per format, one line each in READERS; content decides, not the name."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:           # most of the house takes the shape of a trace from this package, and opens no file
    from profiles.ingest.core.source import Limits, Progress, Source
    from profiles.ingest.trace import Report, Summary, Trace


@dataclass(frozen=True)
class Reader:
    """A format. Its module is imported when it is asked about a file: a command over one file needs few of them."""

    name: str               # for people: "Kineto JSON"
    module: str             # with `sniff(head)`: are these first bytes of the unpacked content mine? And `read(source)`

    def sniff(self, head: bytes) -> bool:
        return bool(import_module(self.module).sniff(head))

    def read(self, source: Source) -> Trace | Report | Summary:
        content: Trace | Report | Summary = import_module(self.module).read(source)
        return content


READERS: list[Reader] = [
    Reader("XProf trace JSON (JAX, TensorFlow)", "profiles.ingest.xplane.xprof"),
    Reader("Triton Proton trace (.chrome_trace)", "profiles.ingest.other.proton_trace"),
    Reader("Ascend trace JSON (torch_npu, msprof)", "profiles.ingest.chrome.ascend"),
    Reader("ONNX Runtime profile (JSON)", "profiles.ingest.chrome.onnxruntime"),
    Reader("rocprof JSON", "profiles.ingest.rocm.chrome_json"),
    Reader("PyTorch profiler (Kineto) JSON", "profiles.ingest.chrome.kineto"),
    Reader("Chrome trace JSON", "profiles.ingest.chrome.generic"),
    Reader("XPlane protobuf (.xplane.pb of JAX, TensorFlow)", "profiles.ingest.xplane.reader"),
    Reader("Nsight Compute report (.ncu-rep)", "profiles.ingest.ncu.report"),
    Reader("Nsight Compute CSV (ncu --csv --page raw)", "profiles.ingest.ncu.csv_pages"),
    Reader("Nsight Compute text page (ncu without --csv)", "profiles.ingest.ncu.text_page"),
    Reader("rocpd database (rocprofv3, ROCm Systems Profiler)", "profiles.ingest.rocm.rocpd"),
    Reader("RPD database (rocmProfileData)", "profiles.ingest.rocm.rpd"),
    Reader("Nsight Systems export (SQLite)", "profiles.ingest.nsys.sqlite"),          # of all SQLite that is left
    Reader("Nsight Systems report (.nsys-rep, .qdrep)", "profiles.ingest.nsys.report"),
    Reader("nsys stats (CSV, JSON, text)", "profiles.ingest.nsys.stats"),
    Reader("rocprofv3 JSON", "profiles.ingest.rocm.tool_json"),
    Reader("rocprof CSV (traces, counters, sums)", "profiles.ingest.rocm.csv_tables"),
    Reader("Perfetto trace (protobuf)", "profiles.ingest.perfetto.reader"),
    Reader("Triton Proton tree (.hatchet)", "profiles.ingest.other.proton"),
    Reader("CUTLASS profiler CSV", "profiles.ingest.other.cutlass"),
    Reader("PyTorch memory snapshot (.pickle)", "profiles.ingest.other.snapshot"),
    Reader("nvidia-smi query CSV (--query-gpu)", "profiles.ingest.logs.nvidia_smi"),
    Reader("nvidia-smi dmon", "profiles.ingest.logs.nvidia_dmon"),
    Reader("dcgmi dmon", "profiles.ingest.logs.dcgmi"),
    Reader("NCCL log (NCCL_DEBUG=INFO)", "profiles.ingest.nccl.log"),
    Reader("Python cProfile statistics (.prof)", "profiles.ingest.other.cprofile"),
    Reader("speedscope JSON (py-spy, rbspy)", "profiles.ingest.samplers.speedscope"),
    Reader("V8 CPU profile (.cpuprofile)", "profiles.ingest.samplers.cpuprofile"),
    Reader("Folded stacks (py-spy raw, perf, torch export_stacks)", "profiles.ingest.samplers.folded"),
    Reader("PyTorch memory timeline (JSON)", "profiles.ingest.other.memory_timeline"),
    Reader("tritonparse log (NDJSON)", "profiles.ingest.other.tritonparse"),
    Reader("Event list (JSON, JSON lines)", "profiles.ingest.other.event_list"),         # last: any list of objects with a time
]


def import_readers() -> None:
    """Import every reader, for a process whose children read files: else each of them imports its own."""
    for reader in READERS:
        import_module(reader.module)


def is_known(head: bytes) -> bool:
    """Tell whether content that starts like this is a profile that some reader takes."""
    return any(reader.sniff(head) for reader in READERS)


def read(path: str | Path, progress: Progress | None = None, limits: Limits | None = None,
         entry: int | None = None, written: str = "") -> Trace | Report | Summary:
    """Read one profile.

    Of a zip archive of several, the one with the number `entry` (see SeveralProfiles).
    `written`: when the file was last written, in words, "" where nobody knows.

    Raises TraceError when nothing in it can be read.
    """
    from profiles.ingest.core.source import Source
    from profiles.ingest.core.unknown import later_head, refuse

    with Source(path, progress, limits, wanted=is_known, entry=entry, written=written) as source:
        head = source.peek()
        for reader in READERS:
            if reader.sniff(head):
                return reader.read(source)
        if (later := later_head(source, head)) is not None:
            for reader in READERS:
                if reader.sniff(later):
                    return reader.read(source)
        raise refuse(head, [reader.name for reader in READERS])
