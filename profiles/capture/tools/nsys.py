"""Nsight Systems: what CPU and GPU do over time, its report exported to SQLite on the worker and kept for download."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from profiles.base.refused import Refused
from profiles.capture.tools.launchers import PROCESS_FIELDS, READ_PROCESSES, ProcessOptions
from profiles.capture.tools.options import (
    TIME_LIMIT_S,
    choice_of,
    names_like,
    read_yes_or_no,
    text_like,
    whole_number,
)
from profiles.capture.tools.tool import (
    COMMON_FAILURES,
    LINKED,
    OWNERS,
    PLAIN_RUN,
    TIME_LIMIT,
    CaptureTool,
    Failure,
    Field,
    Group,
    Paths,
    Result,
    Stop,
    program_help,
    program_version,
)
from profiles.ingest.nsys.program import NSYS_PLACES, nsys_path

# ---- what Nsight Systems says when it fails ----
# And what to do. Read off 2023.4.4, as its own words allow.

FAILURES = (
    Failure(r"None of the installed GPUs are supported|Illegal --gpu-metrics-devices? argument",
            "nsys cannot sample metrics of these GPUs",
            "set GPU metrics to none, or list the GPUs on the worker: nsys profile --gpu-metrics-devices=help"),
    Failure(r"Illegal --trace argument", "a trace is not known to this nsys", "list them on the worker: nsys profile --help"),
    Failure(r"unrecogni[sz]ed option|Illegal --[a-z-]+ argument", "this version of nsys does not take one of the options",
            "compare the command above with nsys profile --help on the worker"),
    Failure(r"Executable not found in current directory", "the program could not be started",
            "check the target's path and the worker's PATH"),
    Failure(r"Importer error status|skipping importation of the QDSTRM file",
            "nsys recorded, but its importer is missing or lacks a library",
            "install the whole Nsight Systems on the worker (host-linux-x64 beside target-linux-x64; ldd QdstrmImporter names what "
            "is missing), or open the .qdstrm below with one"),
    Failure(r"ERR_NVGPUCTRPERM", "the driver does not let this user sample GPU metrics",
            "let the worker run as root or with CAP_SYS_ADMIN, set the module option NVreg_RestrictProfilingToAdminUsers=0, "
            "or set GPU metrics to none"),
    Failure(r"Connection to Agent lost", "nsys lost its own agent process before the program ran",
            "capture again; if it comes back, end leftover sessions on the worker: nsys sessions list, nsys shutdown"),
    Failure(r"No space left on device", "the worker's disk is full", "shorten the capture (duration, fewer traces) or free space"),
    Failure(r"(?:Generated:\s*|\A\$ .*\n(?:ridgepoint: on .*\n)?)\Z",
            "nothing was recorded: the capture range never began, or the program ended before the delay",
            "check that the program calls cudaProfilerStart or enters the NVTX range, lower the delay, or capture the whole run"),
    *COMMON_FAILURES,
)


# ---- Nsight Systems ----

MAX_S = 3600
TRACES = {
    "cuda": "API calls, kernels, copies", "nvtx": "ranges", "osrt": "OS runtime: waits, files, threads", "cudnn": "", "cublas": "",
    "nccl": "", "mpi": "", "python-gil": "who holds it", "cusparse": "", "ucx": "", "openacc": "", "openmp": ""}
_NO_CUDA = frozenset(("nvtx", "osrt", "mpi", "python-gil", "ucx", "openmp", "oshmem"))       # run where there is no GPU
SAMPLE = {"none": "off", "process-tree": "the program and its children", "system-wide": "every process; needs rights"}
BACKTRACE = {"lbr": "of Intel's branch records", "fp": "frame pointers", "dwarf": "debug information: slow, large", "none": "no"}
RANGES = {"none": "the whole run", "cudaProfilerApi": "cudaProfilerStart to cudaProfilerStop", "nvtx": "an NVTX range"}
GRAPHS = {"graph": "each CUDA graph as a whole", "node": "every kernel of it: slower"}
SCRUB = "workers/capture/nsys_scrub.py"                 # below Ridgepoint's folder
TLLM_TRACE = "trtllm-trace.json"
_TRACE = re.compile(r"[a-z][a-z0-9-]{0,39}")
_RANGE_END = re.compile(r"none|stop|stop-shutdown|repeat(:[1-9][0-9]{0,3})?|repeat-shutdown:[1-9][0-9]{0,3}")
_DEVICES = re.compile(r"none|all|cuda-visible|[0-9]{1,3}(,[0-9]{1,3}){0,31}")
_NVTX = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ .:/#()\[\]*@-]{0,199}")
_STEPS = re.compile(r"[0-9]{1,9}(-[0-9]{1,9})?(,[0-9]{1,9}(-[0-9]{1,9})?){0,31}")


@dataclass(frozen=True)
class NsysOptions(ProcessOptions):
    """A trace by Nsight Systems."""

    trace: tuple[str, ...] = ("cuda", "nvtx", "osrt")
    delay: int = 0                         # s after the program's start
    duration: int = 0                      # s; 0: to the program's end
    capture_range: str = "none"
    nvtx_capture: str = ""                 # range@domain, of the capture range nvtx
    capture_range_end: str = "stop-shutdown"
    sample: str = "none"
    backtrace: str = "lbr"
    cpuctxsw: str = "process-tree"
    python_sampling: bool = False
    python_sampling_frequency: int = 1000  # Hz
    gpu_metrics_devices: str = "none"
    gpu_metrics_frequency: int = 10_000    # Hz
    cuda_graph_trace: str = "graph"
    cuda_memory_usage: bool = False
    show_output: bool = True
    trtllm_steps: str = ""                 # TLLM_PROFILE_START_STOP
    trtllm_torch_trace: bool = False       # TLLM_TORCH_PROFILE_TRACE
    trtllm_nvtx: bool = False              # TLLM_NVTX_DEBUG

    TOOL = "nsys"
    READ = {
        "trace": names_like(_TRACE, "cuda"), "delay": whole_number(0, MAX_S), "duration": whole_number(0, MAX_S),
        "capture_range": choice_of(RANGES),
        "nvtx_capture": text_like(_NVTX, "an NVTX range such as step or step@domain, at most 200 characters"),
        "capture_range_end": text_like(_RANGE_END, "none, stop, stop-shutdown, repeat, repeat:N or repeat-shutdown:N", empty=False),
        "sample": choice_of(SAMPLE), "backtrace": choice_of(BACKTRACE), "cpuctxsw": choice_of(SAMPLE),
        "python_sampling": read_yes_or_no, "python_sampling_frequency": whole_number(1, 2000),
        "gpu_metrics_devices": text_like(_DEVICES, "none, all, cuda-visible, or numbers of GPUs such as 0,1", empty=False),
        "gpu_metrics_frequency": whole_number(10, 200_000), "cuda_graph_trace": choice_of(GRAPHS),
        "cuda_memory_usage": read_yes_or_no, "show_output": read_yes_or_no,
        "trtllm_steps": text_like(_STEPS, "iterations such as 100-150"), "trtllm_torch_trace": read_yes_or_no,
        "trtllm_nvtx": read_yes_or_no, "plain_run": read_yes_or_no,
        "time_limit_s": whole_number(*TIME_LIMIT_S), **READ_PROCESSES}

    def problems(self) -> dict[str, str]:
        wrong = super().problems()
        if self.capture_range == "nvtx" and not self.nvtx_capture:
            wrong["nvtx_capture"] = "the range that starts the capture, for example step"
        if self.capture_range == "nvtx" and "nvtx" not in self.trace:
            wrong["trace"] = "a capture range of NVTX needs the trace nvtx"
        if self.capture_range == "cudaProfilerApi" and "cuda" not in self.trace:
            wrong["trace"] = "cudaProfilerStart is seen by the trace cuda alone"
        if self.trtllm_steps and self.capture_range != "cudaProfilerApi":
            wrong["capture_range"] = "TensorRT-LLM marks its iterations by cudaProfilerStart: choose cudaProfilerApi"
        if not self.trace and self.sample == "none" and not self.python_sampling and self.gpu_metrics_devices == "none":
            wrong["trace"] = "nothing is recorded: choose a trace, sampling or GPU metrics"
        return wrong

    def cut_short(self) -> str:
        if self.duration:
            return "nsys ends the program after the duration"
        shut = self.capture_range != "none" and "shutdown" in self.capture_range_end
        return f"nsys ends the program at the range's end ({self.capture_range_end})" if shut else ""

    def needs_gpu(self) -> bool:
        """Return whether anything asked for is of a GPU."""
        return bool(set(self.trace) - _NO_CUDA) or self.gpu_metrics_devices != "none"


def build_argv(options: NsysOptions, program: Sequence[str], report: str, paths: Paths) -> list[str]:
    """Return the command; nsys adds .nsys-rep to the report's name. Raises Refused for what the installed one lacks."""
    argv = [paths.program, "profile", "--output", report.removesuffix(".sqlite"), "--force-overwrite=true",
            f"--trace={','.join(options.trace) or 'none'}", f"--sample={options.sample}", f"--cpuctxsw={options.cpuctxsw}",
            f"--show-output={_word(options.show_output)}"]
    if options.sample != "none":
        argv.append(f"--backtrace={options.backtrace}")
    if options.delay:
        argv.append(f"--delay={options.delay}")
    if options.duration:
        argv.append(f"--duration={options.duration}")
    argv += _range(options) + _cuda(options, paths.installed)
    if options.python_sampling:
        argv += ["--python-sampling=true", f"--python-sampling-frequency={options.python_sampling_frequency}"]
    _check(argv, options.trace, paths.installed)
    return [*argv, *program]


def _word(yes: bool) -> str:
    return "true" if yes else "false"


def _range(options: NsysOptions) -> list[str]:
    if options.capture_range == "none":
        return []
    argv = [f"--capture-range={options.capture_range}", f"--capture-range-end={options.capture_range_end}"]
    if options.capture_range == "nvtx":         # names that the program did not register count as well
        argv += [f"--nvtx-capture={options.nvtx_capture}", "--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0"]
    return argv


def _cuda(options: NsysOptions, installed: Mapping[str, str]) -> list[str]:
    argv = []
    if "cuda" in options.trace:
        argv += [f"--cuda-graph-trace={options.cuda_graph_trace}", f"--cuda-memory-usage={_word(options.cuda_memory_usage)}"]
    if options.gpu_metrics_devices != "none":
        switches = installed.get("switches", "").split()
        older = bool(switches) and "--gpu-metrics-devices" not in switches          # until 2024.4
        argv += [f"--gpu-metrics-device{'' if older else 's'}={options.gpu_metrics_devices}",
                 f"--gpu-metrics-frequency={options.gpu_metrics_frequency}"]
    return argv


def _check(argv: Sequence[str], traces: Sequence[str], installed: Mapping[str, str]) -> None:
    """Compare with the installed version's own --help, where it is known. Raises Refused."""
    name = f"nsys {installed.get('version', '')}".strip()
    switches, offered = installed.get("switches", "").split(), installed.get("traces", "").split()
    lacking = [switch for switch in (word.partition("=")[0] for word in argv if word.startswith("--")) if switch not in switches]
    if switches and lacking:
        raise Refused({lacking[0].strip("-").replace("-", "_"): f"{name} has no {' and no '.join(lacking)}"})
    unknown = [trace for trace in traces if trace not in offered]
    if offered and unknown:
        raise Refused({"trace": f"{name} traces no {' and no '.join(unknown)}; it knows {', '.join(offered)}"})


def environ(options: NsysOptions, paths: Paths) -> dict[str, str]:
    """Return the variables that TensorRT-LLM reads, and where nsys puts what it has not finished."""
    variables = {"TMPDIR": paths.folder} if paths.folder.startswith("/") else {}
    if options.trtllm_steps:
        variables["TLLM_PROFILE_START_STOP"] = options.trtllm_steps
    if options.trtllm_torch_trace:
        variables["TLLM_TORCH_PROFILE_TRACE"] = f"{paths.folder}/{TLLM_TRACE}"
    if options.trtllm_nvtx:
        variables["TLLM_NVTX_DEBUG"] = "1"
    return variables


def exports(options: NsysOptions, files: Sequence[str], paths: Paths) -> list[list[str]]:
    """Return commands that export each report and take the environments of processes out of the export.

    Of a range that was repeated, all but the first become profiles of their own.
    """
    commands = []
    for name in files:
        stem = name.removesuffix(".nsys-rep")
        if stem == name:
            continue
        again = re.fullmatch(r"(.+)\.([0-9]+)", stem) if options.capture_range_end.startswith("repeat") else None
        if again is not None:
            stem = again[1] if again[2] == "1" else f"range-{again[2]}-{again[1]}"
        raw = f"{paths.folder}/raw-{stem}.sqlite"
        commands += [[paths.program, "export", "--type=sqlite", "--force-overwrite=true", "--quiet=true", f"--output={raw}",
                      f"{paths.folder}/{name}"],
                     [paths.python, f"{paths.project or '.'}/{SCRUB}", raw, f"{paths.folder}/{stem}.sqlite"]]
    return commands


@lru_cache(maxsize=1)
def installed_nsys() -> dict[str, str]:
    """Return {"path", "version", "switches", "traces"} of this host's nsys, or {"missing": why}."""
    path = nsys_path(NSYS_PLACES)
    if path is None:
        return {"missing": f"nsys is neither on PATH nor at {', '.join(NSYS_PLACES)}; RIDGEPOINT_NSYS may name it"}
    facts = program_version(path)
    return facts if "missing" in facts else {**facts, **read_help(program_help([path, "profile", "--help"]))}


def read_help(text: str) -> dict[str, str]:
    """Return what `nsys profile --help` offers: {"switches": "--trace …", "traces": "cuda …"}; {} where it says neither."""
    switches = list(dict.fromkeys(re.findall(r"(?m)^\s*(?:\(\w+\)\s*)?(?:-\w,\s*)?(--[a-z][a-z0-9-]+)", text)))
    values = re.search(r"--trace=?\s+(?:\S+\s+)??Possible values are:?(.*?)(?:\.\s|Select the)", text, re.DOTALL)
    traces = [word for word in re.findall(r"[a-z][a-z0-9-]+", values[1]) if word not in ("or", "and", "none")] if values else []
    return {name: " ".join(words) for name, words in (("switches", switches), ("traces", traces)) if words}


def slowdown(options: NsysOptions) -> str:
    """Return what to expect, in words."""
    heavy = [words for words, is_heavy in (
        ("the OS runtime's calls", "osrt" in options.trace), ("every node of CUDA graphs", options.cuda_graph_trace == "node"),
        ("memory use", options.cuda_memory_usage), ("CPU sampling", options.sample != "none"),
        ("Python sampling", options.python_sampling), ("the interpreter's lock", "python-gil" in options.trace)) if is_heavy]
    return f"a few percent slower, more with {', '.join(heavy)}" if heavy else "a few percent slower"


TOOL = CaptureTool(
    name=NsysOptions.TOOL, title="Nsight Systems", heading="Timeline with Nsight Systems",
    purpose="what CPU and GPU do over time, in any program",
    note="The report is exported on the worker. The `.nsys-rep` is kept for owners: nsys notes the environment of every process.",
    options=NsysOptions, argv=build_argv, installed=installed_nsys, label=lambda options: "nsys",
    results=(Result("report*.sqlite", what="export of the report"), Result("range-*.sqlite", LINKED, "a later range"),
             Result("trtllm-*.json*", LINKED, "TensorRT-LLM's torch trace"),
             Result("report*.nsys-rep", OWNERS, "report, for Nsight Systems itself"),
             Result("report*.qdstrm", OWNERS, "raw recording that could not be made a report")),
    after=exports, environ=environ, needs_gpu=NsysOptions.needs_gpu, without_gpu="NVTX, OS runtime, MPI and Python",
    stop=Stop(grace_s=120), slowdown=slowdown, failures=FAILURES,
    form=(
        Field("trace", "Trace", "many", choices=TRACES),
        Group((Field("delay", "Delay (s)", "number"), Field("duration", "Duration (s)", "number", "0: to the program's end"))),
        Field("capture_range", "Capture range", "choice", choices=RANGES),
        Group((Field("nvtx_capture", "NVTX range", help="of the range nvtx", attrs={"class": "mono", "placeholder": "step@*"}),
               Field("capture_range_end", "At its end", help="none, stop, stop-shutdown, repeat:N, repeat-shutdown:N",
                     attrs={"class": "mono", "spellcheck": "false"}))),
        Group((Field("gpu_metrics_devices", "GPU metrics of", help="none, all, cuda-visible or 0,1", attrs={"class": "mono"}),
               Field("gpu_metrics_frequency", "GPU metrics (Hz)", "number"))),
        Group((Field("cuda_graph_trace", "CUDA graphs", "choice", choices=GRAPHS),
               Field("cuda_memory_usage", "GPU memory in use", "yes"))),
        Group(summary="CPU", fields=(
            Field("sample", "CPU sampling", "choice", choices=SAMPLE), Field("backtrace", "Backtrace", "choice", choices=BACKTRACE),
            Field("cpuctxsw", "Thread switches", "choice", choices=SAMPLE),
            Field("python_sampling", "Python stacks", "yes"),
            Field("python_sampling_frequency", "Python stacks (Hz)", "number"),
            Field("show_output", "The program's output in the log", "yes"))),
        Group(summary="TensorRT-LLM", fields=(
            Field("trtllm_steps", "Iterations", help="TLLM_PROFILE_START_STOP; needs the range cudaProfilerApi",
                  attrs={"class": "mono", "placeholder": "100-150"}),
            Field("trtllm_torch_trace", "Its torch trace as well (TLLM_TORCH_PROFILE_TRACE)", "yes"),
            Field("trtllm_nvtx", "More NVTX ranges (TLLM_NVTX_DEBUG)", "yes"))),
        PROCESS_FIELDS,
        PLAIN_RUN,
        TIME_LIMIT,
    ),
)

