"""Where NVIDIA's `nsys` is on this machine: needed only to export its own closed reports."""

from __future__ import annotations

import glob
import os
import re
import shutil

PLACES = ("/opt/nvidia/nsight-systems/*/bin/nsys", "/opt/nvidia/nsight-systems-cli/*/bin/nsys", "/usr/local/cuda*/bin/nsys",
          "/usr/local/bin/nsys",
          # Nsight Compute brings one along, which exports reports as well as any
          "/opt/nvidia/nsight-compute/*/host/target-linux-*/nsys")


def nsys_path() -> str | None:
    """Return the path of nsys: what RIDGEPOINT_NSYS names, else on PATH, else the newest.

    The newest is looked for where NVIDIA installs it.
    """
    named = os.environ.get("RIDGEPOINT_NSYS")
    if named:
        return named if os.access(named, os.X_OK) else None
    installed = [path for place in PLACES for path in sorted(glob.glob(place), key=_numbers, reverse=True)]
    return shutil.which("nsys") or next((path for path in installed if os.access(path, os.X_OK)), None)


def _numbers(path: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path)]
