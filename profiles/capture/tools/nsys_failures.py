"""What Nsight Systems says when it fails, and what to do. Read off 2023.4.4, as its own words allow."""

from __future__ import annotations

from profiles.capture.tools.tool import COMMON_FAILURES, Failure

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
    Failure(r"No space left on device", "the worker's disk is full", "shorten the capture (duration, fewer traces) or free space"),
    Failure(r"(?:Generated:\s*|\A\$ .*\n(?:ridgepoint: on .*\n)?)\Z",
            "nothing was recorded: the capture range never began, or the program ended before the delay",
            "check that the program calls cudaProfilerStart or enters the NVTX range, lower the delay, or capture the whole run"),
    *COMMON_FAILURES,
)
