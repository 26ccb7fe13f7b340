"""Nsight Compute: hardware counters of single kernels, each launch run again for every pass."""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from profiles.capture.tools.installed import program_version
from profiles.capture.tools.options import (
    TIME_LIMIT_S,
    Options,
    choice_of,
    names_like,
    read_regex,
    read_yes_or_no,
    whole_number,
)
from profiles.capture.tools.tool import COMMON_FAILURES, TIME_LIMIT, CaptureTool, Failure, Field, Group, Paths, Result

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
ONE_PROCESS = ("ncu runs each kernel again for every pass, and a collective that one rank runs again waits for the others "
               "for ever: capture one process, or the job with Nsight Systems")
_SECTION = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")
_METRIC = re.compile(r"((group|breakdown|pmsampling):)?[A-Za-z][A-Za-z0-9_]*__[A-Za-z0-9_.]+")
_NVTX = re.compile(r"[A-Za-z0-9_@][A-Za-z0-9_@ .:/\[\]*+-]{0,199}")


def read_nvtx_range(value: Any) -> str:
    """Return an NVTX range as ncu names it, or "" for the whole program."""
    text = str(value or "").strip()
    if text and not _NVTX.fullmatch(text):
        raise ValueError("an NVTX range such as step/ or Domain@range/, at most 200 characters, no dash at its start")
    return text


@dataclass(frozen=True)
class NcuOptions(Options):
    """A replay with hardware counters by Nsight Compute."""

    kernel: str = ""                       # regular expression on the kernel's name; empty: every kernel
    set: str = "full"
    sections: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    launch_skip: int = 0                   # matching launches passed over first
    launch_count: int = 10                 # matching launches profiled
    replay_mode: str = "kernel"
    cache_control: str = "all"
    clock_control: str = "none"
    nvtx_include: str = ""                 # only launches within this NVTX range
    import_source: bool = True             # source lines into the report

    TOOL = "ncu"
    REFUSED = {"processes": ONE_PROCESS, "launcher": ONE_PROCESS}
    READ = {
        "kernel": read_regex, "set": choice_of(SETS), "sections": names_like(_SECTION, "SpeedOfLight"),
        "metrics": names_like(_METRIC, "dram__bytes.sum"), "launch_skip": whole_number(0, 10**9),
        "launch_count": whole_number(1, MAX_LAUNCHES), "replay_mode": choice_of(REPLAY), "cache_control": choice_of(CACHE),
        "clock_control": choice_of(CLOCKS), "nvtx_include": read_nvtx_range, "import_source": read_yes_or_no,
        "time_limit_s": whole_number(*TIME_LIMIT_S)}

    def problems(self) -> dict[str, str]:
        if self.set == "none" and not self.sections and not self.metrics:
            return {"set": "with the set none, name at least one section or metric"}
        return {}


def build_argv(options: NcuOptions, program: Sequence[str], report: str, paths: Paths) -> list[str]:
    """Return the command that writes `report` while it runs `program`."""
    argv = [paths.program, "--export", report, "--force-overwrite", "--target-processes", "all",
            "--replay-mode", options.replay_mode, "--cache-control", options.cache_control,
            "--clock-control", options.clock_control, "--launch-skip", str(options.launch_skip),
            "--launch-count", str(options.launch_count)]
    if options.kernel:
        argv += ["--kernel-name", f"regex:{options.kernel}"]
    if options.set != "none":
        argv += ["--set", options.set]
    for section in options.sections:
        argv += ["--section", section]
    if options.metrics:
        argv += ["--metrics", ",".join(options.metrics)]
    if options.nvtx_include:
        argv += ["--nvtx", "--nvtx-include", options.nvtx_include]
    if options.import_source:
        argv += ["--import-source", "yes"]
    return [*argv, *program]


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
    return program_version(path)


TOOL = CaptureTool(
    name=NcuOptions.TOOL, title="Nsight Compute", heading="Counters with Nsight Compute",
    purpose="hardware counters of single kernels",
    note="Each launch is run again for every pass, 10 to 100 times slower: narrow it by name and count.",
    one_process=ONE_PROCESS, options=NcuOptions, argv=build_argv, results=(Result("report.ncu-rep"),), installed=installed_ncu,
    label=lambda options: f"ncu {options.kernel or 'all kernels'}",
    form=(
        Field("kernel", "Kernel name (regular expression)", help="Empty: every kernel. A part of the name is enough.",
              attrs={"class": "mono", "spellcheck": "false", "placeholder": "matmul"}),
        Group((Field("launch_skip", "Launch skip", "number", "matching launches passed over first"),
               Field("launch_count", "Launch count", "number", "matching launches profiled"))),
        Field("set", "Set", "choice", choices=SETS),
        Group(summary="Sections and single metrics", fields=(
            Field("sections", "More sections", "many", choices=dict.fromkeys(SECTIONS, "")),
            Field("metrics", "Single metrics", "lines", "one per line, e.g. dram__bytes.sum",
                  attrs={"class": "mono", "spellcheck": "false",
                         "placeholder": "sm__throughput.avg.pct_of_peak_sustained_elapsed"}))),
        Field("replay_mode", "Replay", "choice", choices=REPLAY),
        Group((Field("cache_control", "Caches", "choice", choices=CACHE),
               Field("clock_control", "Clocks", "choice", choices=CLOCKS))),
        Field("nvtx_include", "Only within NVTX range", attrs={"class": "mono", "placeholder": "step/"}),
        Field("import_source", "Keep source lines in the report", "yes"),
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
