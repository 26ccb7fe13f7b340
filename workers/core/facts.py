"""A worker's announcement: queues, host, GPUs, tools, missing tools. Imports no torch."""

from __future__ import annotations

import os
import socket
from functools import lru_cache
from pathlib import Path
from typing import Any

from profiles.capture.tools import CAPTURE_TOOLS
from profiles.capture.tools.tool import package_version, program_version
from profiles.ingest.nsys.program import nsys_path
from tuner.tuning.measure import nvml
from tuner.tuning.team import packages
from workers.core import gpu
from workers.core.compilers import cores

PROJECT = Path(__file__).resolve().parents[2]


def worker_facts(queues: list[str]) -> dict[str, Any]:
    """Return one worker's announcement; the worker process fills in `busy` and `since`."""
    on_gpu = "gpu" in queues
    cards = gpu.gpus() if on_gpu else []
    return {
        "queues": list(queues), "host": socket.gethostname(), "pid": os.getpid(),
        "gpus": [card.as_json() for card in cards], **({"host_gpus": len(gpu.gpus_of_host())} if on_gpu else {}),
        "tools": ({name: tool.installed() for name, tool in CAPTURE_TOOLS.items()} | {"triton": package_version("triton")}
                  if on_gpu else {})
        | ({"triton": package_version("triton")} if "compile" in queues and not on_gpu else {})
        | ({"nsys": nsys_facts()} if "ingest" in queues and not on_gpu else {}),      # of a GPU's the capture tool says more
        "replay": landscape_stems() if "replay" in queues else [],
        "packages": packages.installed_packages() if on_gpu or "compile" in queues else [],
        **({"cores": cores()} if "compile" in queues else {}),
        "busy": None,
    }


def add_readings(said: dict[str, Any]) -> dict[str, Any]:
    """Return the announcement with the GPUs' present clocks, °C, W and settings, where NVML reports them."""
    return {**said, "gpus": [{**card, **nvml.reading(card["index"]), **nvml.settings(card["index"])} for card in said["gpus"]]}


@lru_cache(maxsize=1)
def nsys_facts() -> dict[str, str]:
    """Return {"path", "version"} of Nsight Systems' command line, or {"missing": why}."""
    path = nsys_path()
    if path is None:
        return {"missing": "nsys is neither on PATH nor where NVIDIA installs it; RIDGEPOINT_NSYS may name it. "
                           ".nsys-rep files need it, SQLite exports do not"}
    return program_version(path)


def landscape_stems() -> list[str]:
    """Return stems of the recorded landscapes that a replay worker can serve."""
    return sorted(path.name.removesuffix(".json.gz") for path in PROJECT.glob("tests/data/*/landscapes/*.json.gz"))
