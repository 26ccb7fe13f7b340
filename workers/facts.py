"""What a worker says about itself: queues, host, GPU, tools, and why a tool is missing. Imports no torch."""

from __future__ import annotations

import glob
import os
import re
import shutil
import socket
import subprocess
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from tuner.bench import nvml
from tuner.team import packages
from workers import gpu
from workers.compilers import cores

PROJECT = Path(__file__).resolve().parent.parent
NCU_PLACES = ("/opt/nvidia/nsight-compute/*/ncu", "/usr/local/cuda*/bin/ncu", "/usr/local/NVIDIA-Nsight-Compute*/ncu")
_VERSION_TIMEOUT_S = 30.0


def facts(queues: list[str]) -> dict[str, Any]:
    """The announcement of one worker. `busy` and `since` are the worker process's to fill in."""
    on_gpu = "gpu" in queues
    found = gpu.gpus() if on_gpu else []
    return {
        "queues": list(queues), "host": socket.gethostname(), "pid": os.getpid(),
        "gpus": [card.as_json() for card in found],
        "tools": ({"ncu": ncu(), "torch": package("torch"), "triton": package("triton")} if on_gpu else {})
        | ({"nsys": nsys()} if "ingest" in queues else {}),
        "replay": landscapes() if "replay" in queues else [],
        "packages": packages.installed() if on_gpu or "compile" in queues else [],
        **({"cores": cores()} if "compile" in queues else {}),
        "busy": None,
    }


def live(said: dict[str, Any]) -> dict[str, Any]:
    """The same announcement with the GPUs' clocks, temperature and power of now, where NVML tells them."""
    return {**said, "gpus": [{**card, **nvml.reading(card["index"])} for card in said["gpus"]]}


@lru_cache(maxsize=1)
def ncu() -> dict[str, str]:
    """{"path", "version"} of Nsight Compute's command line, or {"missing": why}."""
    path = ncu_path()
    if path is None:
        return {"missing": f"ncu is neither on PATH nor at {', '.join(NCU_PLACES)}; RIDGEPOINT_NCU may name it"}
    return _version(path)


def _version(path: str) -> dict[str, str]:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        return {"missing": f"{path} does not run: {error}"}
    version = re.search(r"[Vv]ersion (\S+)", done.stdout)
    if done.returncode or not version:
        return {"missing": f"{path} --version says: {(done.stdout + done.stderr).strip()[:300]}"}
    return {"path": path, "version": version[1]}


@lru_cache(maxsize=1)
def nsys() -> dict[str, str]:
    """{"path", "version"} of Nsight Systems' command line, which exports its closed reports, or {"missing": why}."""
    from profiles.ingest.nsys_tool import nsys_path  # brings every reader along, which a GPU's environment need not have

    path = nsys_path()
    if path is None:
        return {"missing": "nsys is neither on PATH nor where NVIDIA installs it; RIDGEPOINT_NSYS may name it. "
                           ".nsys-rep files need it, SQLite exports do not"}
    return _version(path)


def ncu_path() -> str | None:
    named = os.environ.get("RIDGEPOINT_NCU")
    if named:
        return named if os.access(named, os.X_OK) else None
    newest = sorted((path for place in NCU_PLACES for path in glob.glob(place)), key=_numbers, reverse=True)
    return shutil.which("ncu") or next((path for path in newest if os.access(path, os.X_OK)), None)


def _numbers(path: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path)]


@lru_cache(maxsize=8)
def package(name: str) -> dict[str, str]:
    """{"version"} from the installation's metadata, or {"missing": why}. Nothing is imported."""
    try:
        return {"version": metadata.version(name)}
    except metadata.PackageNotFoundError:
        return {"missing": f"{name} is not installed here: pip install 'ridgepoint[gpu]'"}


def landscapes() -> list[str]:
    """Stems of the recorded landscapes that a replay worker can serve: those that come with the repository."""
    return sorted(path.name.removesuffix(".json.gz") for path in PROJECT.glob("tests/data/*/landscapes/*.json.gz"))
