"""Where NVIDIA's `nsys` is on this machine. Standard library alone: readers, capture tools and workers ask."""

from __future__ import annotations

import glob
import os
import re
import shutil

NSYS_PLACES = ("/opt/nvidia/nsight-systems/*/bin/nsys", "/opt/nvidia/nsight-systems-cli/*/bin/nsys", "/usr/local/cuda*/bin/nsys",
               "/usr/local/bin/nsys")
EXPORT_PLACES = (*NSYS_PLACES, "/opt/nvidia/nsight-compute/*/host/target-linux-*/nsys")      # of Nsight Compute: exports alone


def nsys_path(places: tuple[str, ...] = EXPORT_PLACES) -> str | None:
    """Return the path of nsys: what RIDGEPOINT_NSYS names, else on PATH, else the newest where NVIDIA installs it."""
    named = os.environ.get("RIDGEPOINT_NSYS")
    if named:
        return named if os.access(named, os.X_OK) else None
    installed = [path for place in places for path in sorted(glob.glob(place), key=_numbers, reverse=True)]
    return shutil.which("nsys") or next((path for path in installed if os.access(path, os.X_OK)), None)


def _numbers(path: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path)]
