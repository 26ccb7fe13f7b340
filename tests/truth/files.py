"""The files that every invariant is asked of: all of `tests/data`, and of `../shared/corpus` where it lies beside the project.

All by `make test-deep`, one of each format and an eighth of the others by `make test`, large ones last.

What is no profile, or broken on purpose, is in LEFT_OUT with the reason. A new recording is taken by itself once FORMATS knows its
name. Content that lies in two places (also packed in one of them) is taken once.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from tests.scale import DEEP
from tests.truth.known import KNOWN

ROOT = Path(__file__).resolve().parents[2]
DATA, CORPUS = ROOT / "tests" / "data", ROOT.parent / "shared" / "corpus"
TRACE, COUNTERS, SUMMARY = "trace", "counters", "summary"

# pattern of the path within the folder -> why no reader is asked for it
LEFT_OUT = {
    "*README.md": "words", "INDEX.md": "words", "*LICENSE": "words", "*.txt.gz": "names of kernels", "*.cpp": "code",
    "*truth*.json": "what is known of files", "*truth*.jsonl": "what is known of files",
    "broken/*": "broken on purpose", "corpus/broken/*": "broken on purpose", "fuzz/*": "input of the fuzzer",
    "*proton/htyu_triton_matmul-WS_invalid_json.hatchet": "no valid JSON",
    "*.nsys-rep": "read where nsys is installed", "*.nsys-rep.gz": "read where nsys is installed",
    "*.qdrep": "read where nsys is installed",
    "*_sass.csv.gz": "NVIDIA's source page, an oracle",
    "cases/pgranks_ellipsis.json": "no valid JSON", "cases/two_docs_concatenated.json": "two documents",
    "cases/*.tar.gz": "an archive", "cases/kernels/*": "code",
    "rocm/*": "tables of which `tests/profiles/ingest/rocm` has its own counts",
    "logs/nvidia_smi_query_nounits.csv": "has no header, so no reader knows its columns",
    "bands.json": "cases of a figure's band", "numbers.json": "cases of numbers", "causes/live_registers.json": "an oracle",
    "golden/*": "what Ridgepoint says", "engines/*": "routes of servers", "loaders/*": "code of engines",
    "ladder/*": "reports, shortened", "upgrades/*": "databases", "occupancy/*": "NVIDIA's calculator",
    "benchmarks/*": "timings of other tools",
    "public_spaces/*": "tuning spaces", "public_timing/*": "timings", "h200/landscapes/*": "tuning spaces",
    "h200/ceilings.json": "ceilings", "h200/timing_runs*": "timings", "recorded/ceilings_once*.json": "ceilings",
    "recorded/gate_on_gpu*": "runs of a gate", "recorded/revalidation_on_gpu.json.gz": "runs of a gate",
    "recorded/h200_cublaslt_fp8.json.gz": "what a library accepts", "recorded/tensor_cores_pipe.json.gz": "an oracle",
    "recorded/versions.json": "versions", "recorded/nsys_cpu/train.txt": "code",
}
# pattern of the path -> the format and the kind of profile that a reader makes of it; the first that fits
FORMATS = (
    ("cases/cuda_profile.json", "onnxruntime", TRACE), ("cases/trace_view.json", "ascend", TRACE),
    ("cases/rocpd.db", "rocpd", TRACE), ("cases/rocprofv1*.json", "rocprof-json", TRACE),
    ("cases/rocprofv3*.json", "rocprofv3-json", TRACE),
    ("cases/rocprofv3*.csv", "rocprof-csv", TRACE), ("cases/ncu*.txt", "ncu-text", COUNTERS),
    ("cases/nsys*.txt", "nsys-stats", SUMMARY),
    ("*.ncu-rep", "ncu-rep", COUNTERS), ("*.ncu-rep.gz", "ncu-rep", COUNTERS), ("*.ncu-rep.zst", "ncu-rep", COUNTERS),
    ("*ncu_csv/*.csv", "ncu-csv", COUNTERS), ("ncu/*.csv", "ncu-csv", COUNTERS),
    ("*_raw.csv.gz", "ncu-csv", COUNTERS), ("*_details.csv.gz", "ncu-csv", COUNTERS),
    ("*.sqlite", "nsys-sqlite", TRACE), ("*.sqlite.gz", "nsys-sqlite", TRACE),
    ("*nsys*/*_trace.*", "nsys-stats", TRACE), ("*nsys*/*", "nsys-stats", SUMMARY),
    ("*.pftrace", "perfetto", TRACE), ("*xplane.pb", "xplane", TRACE), ("*/jax_*trace.json.gz", "xprof", TRACE),
    ("*xprof/*.trace.json.gz", "xprof", TRACE), ("*.chrome_trace", "proton-trace", TRACE),
    ("*.chrome_trace.gz", "proton-trace", TRACE), ("*.hatchet", "proton", SUMMARY), ("*.hatchet.gz", "proton", SUMMARY),
    ("*.pickle", "torch-snapshot", TRACE), ("*.pickle.gz", "torch-snapshot", TRACE), ("*.prof", "cprofile", SUMMARY),
    ("*.cpuprofile", "cpuprofile", TRACE), ("*.speedscope.json", "speedscope", TRACE), ("events/*", "event-list", TRACE),
    ("logs/nvidia_smi_dmon.txt", "nvidia-smi-dmon", TRACE), ("logs/nvidia_smi_*", "nvidia-smi", TRACE),
    ("logs/nccl*.log", "nccl-log", SUMMARY), ("captured/h100_cutlass_gemm.csv.gz", "cutlass", SUMMARY),
    ("*chrome/*.json", "chrome", TRACE), ("*.json", "kineto", TRACE), ("*.json.gz", "kineto", TRACE),
)
# pattern of the path -> files without a GPU kernel, and those that state no kernel's time
NO_KERNELS = ("cases/no_kernels.json", "*.pickle", "*.pickle.gz", "*chrome/*.json", "*cpu_only*", "*cupti_range*", "*no_cuda*",
              "*_api_*", "*_mem_*", "*nvtx*", "*.prof", "events/*", "logs/*", "*/cpu.sqlite.gz", "samplers/*")
NO_TIMES = ("ncu/single_metrics*",)


@dataclass(frozen=True)
class Recording:
    """A file. `name` is its path as tests show it; the others are what its profile has to become."""

    name: str
    path: Path
    format: str
    kind: str
    has_kernels: bool
    has_times: bool                 # of kernels

    @property
    def is_large(self) -> bool:
        return self.path.stat().st_size > LARGE_BYTES

    @property
    def number(self) -> int:
        """Return the id of its profile, the same in every run."""
        return 10_000_000 + self.hash("") % 1_000_000_000

    def hash(self, about: str) -> int:
        """Return a number of its name and a text that stays the same: what chooses is no accident of a run."""
        return zlib.crc32(f"{self.name}\n{about}".encode())


def _collect() -> Iterator[Recording]:
    taken: set[tuple[int, int]] = set()
    for folder, shown in ((DATA, ""), (CORPUS, "../shared/corpus/")):
        for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
            within = path.relative_to(folder).as_posix()
            if not path.is_file() or fits(within, LEFT_OUT):
                continue
            if (content := _content(path)) not in taken:
                taken.add(content)
                format, kind = next((rest for pattern, *rest in FORMATS if fnmatch(within, pattern)), ("", ""))
                kernels = not fits(within, NO_KERNELS)
                yield Recording(shown + within, path, format, kind, kernels, kernels and not fits(within, NO_TIMES))


def fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def _content(path: Path) -> tuple[int, int]:
    """Return checksum and size of a file's content, unpacked: gzip writes both at its end."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        return int.from_bytes(content[-8:-4], "little"), int.from_bytes(content[-4:], "little")
    return zlib.crc32(content), len(content) % (1 << 32)


EVERY_FILE = tuple(_collect())
ONE_IN = 8                      # of the other files `make test` asks
DEEP_ONLY = "natural/*"         # many of one kind: `tests/profiles/needed` asks them what they are for
LARGE_BYTES = 400_000           # what one file of this size and its export take is as much as ten others: for `make test-deep`


def is_sampled(file: Recording) -> bool:
    """Return whether `make test` asks of a file what costs too much for most: one of each format, with times or without."""
    alike = [each for each in EVERY_FILE if (each.format, each.kind, each.has_times) == (file.format, file.kind, file.has_times)
             and not fnmatch(each.name, DEEP_ONLY)]
    return file == min(alike, key=lambda each: (each.is_large, each.hash("sample")))


def is_asked(file: Recording) -> bool:
    """Return whether `make test` asks a file at all: one of each format, and an eighth of the others."""
    chosen = file.hash("asked") % ONE_IN == 0 and not file.is_large and not fnmatch(file.name, DEEP_ONLY)
    return DEEP or is_sampled(file) or chosen


FILES = tuple(filter(is_asked, EVERY_FILE))


def each_file(*kinds: str, where: Callable[[Recording], bool] = lambda file: True, sampled: bool = False) -> Callable[[Any], Any]:
    """Run a test once for each file of some kinds, as its fixture `profile`; a file that is known to fail is an expected failure.

    `sampled`: in `make test` some files of each format are enough.
    """
    def wrap(test: Any) -> Any:
        cases = [(each, sampled and not is_sampled(each)) for each in FILES if each.kind in kinds and where(each)]
        asked = [param(test.__name__, file, deep=deep) for file, deep in cases if DEEP or not deep]
        return pytest.mark.parametrize("profile", asked, indirect=True)(test)
    return wrap


def param(invariant: str, file: Recording, *more: Any, deep: bool = False, about: str = "") -> Any:
    """Return the parameters of one case, marked where KNOWN has it. `about`: what of the file, "" where a case is a file."""
    name = f"{file.name}:{about}" if about else file.name
    marks = [pytest.mark.xfail(strict=True, reason=each.reason) for each in KNOWN
             if each.invariant == invariant and fnmatch(name, each.pattern)][:1]
    return pytest.param(file, *more, id=name, marks=[*marks, *([pytest.mark.deep_only] if deep else [])])
