"""Nsight Compute: hardware counters of single kernels, each launch run again for every pass."""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from profiles.base.refused import Refused
from profiles.capture.tools import ncu_metrics
from profiles.capture.tools.options import (
    MAX_NAMES,
    TIME_LIMIT_S,
    ProgramOptions,
    choice_of,
    names_like,
    read_regex,
    read_regexes,
    read_yes_or_no,
    text_like,
    whole_number,
)
from profiles.capture.tools.tool import (
    COMMON_FAILURES,
    PLAIN_RUN,
    TIME_LIMIT,
    CaptureTool,
    Failure,
    Field,
    Group,
    Paths,
    Resolved,
    Result,
    program_version,
)

NCU_PLACES = ("/opt/nvidia/nsight-compute/*/ncu", "/usr/local/cuda*/bin/ncu", "/usr/local/NVIDIA-Nsight-Compute*/ncu")
MAX_LAUNCHES = 10_000
SETS = {
    "full": "every section, 30 to 50 replay passes", "detailed": "most sections, no source counters",
    "basic": "speed of light, launch, occupancy: few passes", "roofline": "the rooflines only",
    "none": "only the sections and metrics named below"}
SECTIONS = (
    "SpeedOfLight", "SpeedOfLight_RooflineChart", "SpeedOfLight_HierarchicalTensorRooflineChart", "LaunchStats",
    "Occupancy", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "MemoryWorkloadAnalysis_Chart",
    "MemoryWorkloadAnalysis_Tables", "SchedulerStats", "WarpStateStats", "InstructionStats", "SourceCounters",
    "PmSampling", "WorkloadDistribution")
REPLAY = {
    "kernel": "each kernel again, its memory restored in between", "application": "the whole program once per pass",
    "range": "the range between profiler start and stop", "app-range": "the whole program, the range once per pass"}
CACHE = {"all": "flushed before each pass", "none": "left as the program leaves them"}
CLOCKS = {"none": "left alone, as in production", "base": "locked to the base clock while profiling"}
PROCESSES = {"all": "the program and its children", "application-only": "the program alone"}
GRAPHS = {"node": "each kernel of a CUDA graph", "graph": "a CUDA graph as one"}
FOLDERS = "RIDGEPOINT_NCU_SECTIONS"       # on the worker: NAME=/folder, several with ":" between
ONE_PROCESS = ("ncu runs each kernel again for every pass, and a collective that one rank runs again waits for the others "
               "for ever: capture one process, or the job with Nsight Systems")
_SECTION = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")
_METRIC = re.compile(r"((group|breakdown|pmsampling):)?[A-Za-z][A-Za-z0-9_]*__[A-Za-z0-9_.]+")
_WILDCARD = re.compile(r"[A-Za-z*?][A-Za-z0-9_*?]*[A-Za-z0-9_.*?]*")
_NVTX = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_@ .:/\[\]*+-]{0,199}")      # @ at its start would name a response file
_RANGE_FILTER = re.compile(r"(yes|no|on|off)?:[0-9\[\]|-]{0,60}:[0-9\[\]|-]{0,60}")
_KERNEL_ID = re.compile(r"[0-9]{0,9}:[0-9]{0,9}:((regex:)?[^:\s\x00-\x1f-][^:\x00-\x1f]{0,199}:[0-9]{0,9}|:[0-9]{1,9})")
_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
# as people copy it: -k regex:gemm, --kernel-name "regex:a|b", regex:'a|b'
_PASTED_FILTER = re.compile(
    r"""(?P<flag>(?:-k|--kernel-name)(?:\s*=\s*|\s+))?(?P<outer>["']?)(?P<prefix>(?:regex:\s*)*)(?P<inner>["']?)(?P<text>.*?)"""
    r"(?P=inner)(?P=outer)", re.DOTALL)
read_nvtx_range = text_like(_NVTX, "such as step/ or Domain@range/, at most 200 characters, no dash or @ at its start")


def read_kernels(value: Any) -> str:
    """Return one regular expression of names of kernels: of a list, or of text with one a line, also as ncu's own option.

    A name after the option itself without `regex:` is what ncu takes it for: the whole name.
    """
    parts = value.splitlines() if isinstance(value, str) else value
    return read_regexes([*map(_unwrap_filter, parts)] if isinstance(parts, (list, tuple)) else value)


def _unwrap_filter(part: Any) -> Any:
    pasted = _PASTED_FILTER.fullmatch(part.strip()) if isinstance(part, str) else None
    if pasted is None or not (pasted["flag"] or pasted["prefix"]):
        return part
    return pasted["text"] if pasted["prefix"] or not pasted["text"] else f"^{re.escape(pasted['text'])}$"


def read_metrics(value: Any) -> tuple[str, ...]:
    """Return names, wildcards and `regex:` expressions of metrics, each once."""
    parts = re.split(r"[\s,]+", value) if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
        raise ValueError("a list of names such as dram__bytes.sum, sm__inst_*.sum or regex:^dram__")
    names = tuple(dict.fromkeys(part for part in parts if part))
    for name in names:
        if name.startswith(ncu_metrics.REGEX):
            read_regex(name.removeprefix(ncu_metrics.REGEX))
        elif len(name) > 200 or not (_METRIC.fullmatch(name) or (ncu_metrics.is_wildcard(name) and _WILDCARD.fullmatch(name))):
            raise ValueError(f"{name[:60]!r} is no name such as dram__bytes.sum, sm__inst_*.sum or regex:^dram__")
    if len(names) > MAX_NAMES:
        raise ValueError(f"at most {MAX_NAMES} names, not {len(names)}")
    return names


def read_sampling(value: Any) -> str:
    """Return auto, or the exponent of warp sampling's period."""
    text = str(value).strip() or "auto"
    return text if text == "auto" else str(whole_number(0, 31)(text))


@dataclass(frozen=True)
class NcuOptions(ProgramOptions):
    """A replay with hardware counters by Nsight Compute."""

    kernel: str = ""                       # regular expression on the kernels' names; empty: every kernel
    set: str = "full"
    sections: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    launch_skip: int = 0                   # matching launches passed over first
    launch_count: int = 10                 # matching launches profiled
    replay_mode: str = "kernel"
    cache_control: str = "all"
    clock_control: str = "none"
    nvtx_include: str = ""                 # only launches within this NVTX range
    nvtx_exclude: str = ""                 # none within this one
    range_filter: str = ""                 # which instances of profiler start/stop and of the NVTX range
    kernel_id: str = ""                    # context:stream:name:invocation
    target_processes: str = "all"
    graph_profiling: str = "node"
    section_folder: str = ""               # name that the worker's owner gave a folder of section files
    pm_sampling_interval: int = 0          # ns or cycles, by architecture; 0: ncu chooses
    warp_sampling_interval: str = "auto"   # exponent: every 2^(5 + value) cycles
    import_source: bool = True             # source lines into the report

    TOOL = "ncu"
    REFUSED = {"processes": ONE_PROCESS, "launcher": ONE_PROCESS}
    READ = {
        "kernel": read_kernels, "set": choice_of(SETS), "sections": names_like(_SECTION, "SpeedOfLight"),
        "metrics": read_metrics, "launch_skip": whole_number(0, 10**9),
        "launch_count": whole_number(1, MAX_LAUNCHES), "replay_mode": choice_of(REPLAY), "cache_control": choice_of(CACHE),
        "clock_control": choice_of(CLOCKS), "nvtx_include": read_nvtx_range, "nvtx_exclude": read_nvtx_range,
        "range_filter": text_like(_RANGE_FILTER, "such as :2: or yes:1:[2-4]"),
        "kernel_id": text_like(_KERNEL_ID, "such as ::matmul:2 or :7:regex:^gemm:"),
        "target_processes": choice_of(PROCESSES), "graph_profiling": choice_of(GRAPHS),
        "section_folder": text_like(_FOLDER, "such as team: a name, not a path"), "pm_sampling_interval": whole_number(0, 10**9),
        "warp_sampling_interval": read_sampling, "import_source": read_yes_or_no, "plain_run": read_yes_or_no,
        "time_limit_s": whole_number(*TIME_LIMIT_S)}

    def problems(self) -> dict[str, str]:
        if self.set == "none" and not self.sections and not self.metrics:
            return {"set": "with the set none, name at least one section or metric"}
        if self.range_filter and not any(char.isdigit() for char in self.range_filter):
            return {"range_filter": "the number of a range, such as :2: for the second"}
        return super().problems()


def build_argv(options: NcuOptions, program: Sequence[str], report: str, paths: Paths) -> list[str]:
    """Return the command that writes `report` while it runs `program`."""
    argv = [paths.program, "--export", report, "--force-overwrite", "--target-processes", options.target_processes,
            "--replay-mode", options.replay_mode, "--cache-control", options.cache_control,
            "--clock-control", options.clock_control, "--launch-skip", str(options.launch_skip),
            "--launch-count", str(options.launch_count)]
    if options.kernel:
        argv += ["--kernel-name", f"regex:{options.kernel}"]
    if options.kernel_id:
        argv += ["--kernel-id", options.kernel_id]
    if options.set != "none":
        argv += ["--set", options.set]
    if options.section_folder:
        argv += ["--section-folder", section_folders().get(options.section_folder, options.section_folder)]
    for section in options.sections:
        argv += ["--section", section]
    if options.metrics:
        argv += ["--metrics", ",".join(options.metrics)]
    if options.nvtx_include or options.nvtx_exclude:
        argv += ["--nvtx"]
    for flag, value in (("--nvtx-include", options.nvtx_include), ("--nvtx-exclude", options.nvtx_exclude),
                        ("--range-filter", options.range_filter)):
        argv += [flag, value] if value else []
    if options.graph_profiling != "node":
        argv += ["--graph-profiling", options.graph_profiling]
    if options.pm_sampling_interval:
        argv += ["--pm-sampling-interval", str(options.pm_sampling_interval)]
    if options.warp_sampling_interval != "auto":
        argv += ["--warp-sampling-interval", options.warp_sampling_interval]
    if options.import_source:
        argv += ["--import-source", "yes"]
    return [*argv, *program]


def section_folders() -> dict[str, str]:
    """Return the folders of section files that this host's owner named: name -> absolute path that exists."""
    pairs = (part.partition("=") for part in os.environ.get(FOLDERS, "").split(os.pathsep) if "=" in part)
    return {name: path for name, _, path in pairs if _FOLDER.fullmatch(name) and os.path.isabs(path) and os.path.isdir(path)}


def resolve(options: NcuOptions, paths: Paths) -> Resolved:
    """Look up wildcards of metrics in what this host's GPU counts. Raises Refused."""
    folders = section_folders()
    if options.section_folder and options.section_folder not in folders:
        raise Refused({"target": f"this worker has no section folder {options.section_folder}: "
                                 f"{', '.join(folders) or 'none'} (its owner names them in {FOLDERS})"})
    wildcards = [name for name in options.metrics if ncu_metrics.is_wildcard(name)]
    if not wildcards:
        return Resolved(options)
    try:
        found = ncu_metrics.resolve(wildcards, ncu_metrics.query(paths.program), ncu_metrics.query_suffixed(paths.program))
    except Refused as error:
        raise Refused({"target": error.what}) from error
    metrics = ncu_metrics.replaced(options.metrics, found)
    lines = [f"ridgepoint: {name} is {len(names):,} metrics: {', '.join(names)}" for name, names in found.items()]
    return Resolved(replace(options, metrics=metrics), lines, {"metrics": found})


def slowdown(options: NcuOptions) -> str:
    """Return how much longer a profiled launch takes, where it was counted (docs/gpu.md: one launch, every section)."""
    passes = "44 times with the full set on an H200" if options.set == "full" else "once for each pass"
    limit = "1 launch" if options.launch_count == 1 else f"{options.launch_count:,} launches at most"
    return f"each profiled launch runs again, {passes}, its memory restored in between; {limit}"


def find_ncu() -> str | None:
    """Return the path of ncu: what RIDGEPOINT_NCU names, else the one on PATH, else the newest that NVIDIA installed."""
    named = os.environ.get("RIDGEPOINT_NCU")
    if named:
        return named if os.access(named, os.X_OK) else None
    newest = sorted((path for place in NCU_PLACES for path in glob.glob(place)), key=_numbers, reverse=True)
    return shutil.which("ncu") or next((path for path in newest if os.access(path, os.X_OK)), None)


def _numbers(path: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path)]


@lru_cache(maxsize=1)
def installed_ncu() -> dict[str, str]:
    """Return {"path", "version"} of this host's ncu, or {"missing": why}."""
    path = find_ncu()
    if path is None:
        return {"missing": f"ncu is neither on PATH nor at {', '.join(NCU_PLACES)}; RIDGEPOINT_NCU may name it"}
    return {**program_version(path), **({"section_folders": ", ".join(folders)} if (folders := section_folders()) else {})}


_MONO = {"class": "mono", "spellcheck": "false"}
TOOL = CaptureTool(
    name=NcuOptions.TOOL, title="Nsight Compute", heading="Counters with Nsight Compute",
    purpose="hardware counters of single kernels",
    note="Narrow it by name and count: everything else runs on as fast as without.",
    one_process=ONE_PROCESS, options=NcuOptions, argv=build_argv, results=(Result("report.ncu-rep"),), installed=installed_ncu,
    resolve=resolve, slowdown=slowdown,
    label=lambda options: f"ncu {options.kernel or 'all kernels'}",
    form=(
        Field("kernel", "Kernels", "lines",
              "Regular expressions, one a line, or ncu's own -k regex:…; a part of the name is enough. "
              "Empty: every kernel.",
              attrs={**_MONO, "rows": "2", "placeholder": "matmul"}),
        Group((Field("launch_skip", "Launch skip", "number", "matching launches passed over first"),
               Field("launch_count", "Launch count", "number", "matching launches profiled"))),
        Field("set", "Set", "choice", choices=SETS),
        Group(summary="Sections and metrics", fields=(
            Field("sections", "More sections", "many", choices=dict.fromkeys(SECTIONS, "")),
            Field("metrics", "Metrics", "lines", "One a line: a name, a wildcard (sm__inst_*.sum) or regex:^dram__",
                  attrs={**_MONO, "placeholder": "sm__throughput.avg.pct_of_peak_sustained_elapsed"}),
            Field("section_folder", "Section folder", help="by the name that the worker's owner gave it",
                  attrs={**_MONO, "placeholder": "team"}))),
        Group(summary="Which launches", fields=(
            Field("nvtx_include", "Only within NVTX range", attrs={**_MONO, "placeholder": "step/"}),
            Field("nvtx_exclude", "Not within NVTX range", attrs={**_MONO, "placeholder": "warmup/"}),
            Field("range_filter", "Range filter", help="numbers of start/stop ranges and of NVTX ranges",
                  attrs={**_MONO, "placeholder": "yes:1:[2-4]"}),
            Field("kernel_id", "Kernel id", help="context:stream:name:invocation", attrs={**_MONO, "placeholder": "::matmul:2"}),
            Field("target_processes", "Processes", "choice", choices=PROCESSES),
            Field("graph_profiling", "CUDA graphs", "choice", choices=GRAPHS))),
        Field("replay_mode", "Replay", "choice", choices=REPLAY),
        Group((Field("cache_control", "Caches", "choice", choices=CACHE),
               Field("clock_control", "Clocks", "choice", choices=CLOCKS))),
        Group(summary="Sampling", fields=(
            Field("pm_sampling_interval", "PM sampling interval", "number", "ns or cycles, by GPU; 0: ncu chooses"),
            Field("warp_sampling_interval", "Warp sampling interval", "number", "0 to 31: every 2^(5 + n) cycles, or auto"))),
        Field("import_source", "Keep source lines in the report", "yes"),
        PLAIN_RUN,
        TIME_LIMIT,
    ),
    failures=(
        Failure(r"ERR_NVGPUCTRPERM", "the driver does not let this user read performance counters",
                "let the worker run as root or with CAP_SYS_ADMIN, or set the module option NVreg_RestrictProfilingToAdminUsers=0 "
                "(https://developer.nvidia.com/ERR_NVGPUCTRPERM)"),
        Failure(r"No kernels were profiled", "no launch matched",
                "loosen the kernel's regular expression, lower launch-skip, or check that the target launches kernels at all"),
        Failure(r"LibraryNotLoaded|Failed to initialize the profiler", "ncu could not start its profiler on this machine",
                "the container or sandbox hides the driver's profiling interface: run the worker on the host or a full VM"),
        Failure(r"Failed to (?:lock|change|set).*clock|clock control", "ncu may not control the clocks here",
                "set clock control to none"),
        Failure(r"Failed to find metric|Unknown metric|not a valid metric|Failed to collect metric",
                "a metric is not known on this GPU", "list them on the worker: ncu --query-metrics"),
        Failure(r"Failed to find section|Unknown section|section.*could not be found", "a section is not known to this ncu",
                "list them on the worker: ncu --list-sections"),
        Failure(r"unrecogni[sz]ed option|the argument .* is invalid", "this version of ncu does not take one of the options",
                "compare the command above with ncu --help on the worker"),
        *COMMON_FAILURES,
    ),
)
