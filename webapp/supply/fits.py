"""Does an archive's folder of wheels fit this Python and machine? `python webapp/supply/fits.py wheels`; code 1 says why not.

`make archive` writes `fits.json` there. Needs the standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import NamedTuple

FILE = "fits.json"
Version = tuple[int, ...]


class Host(NamedTuple):
    """`python` as (3, 11, 2); `glibc` as (2, 36), () where there is another C library or none is told."""

    python: Version
    system: str
    machine: str
    glibc: Version


def this_host() -> Host:
    library, version = platform.libc_ver()
    return Host(sys.version_info[:3], sys.platform, platform.machine().lower(), numbers(version) if library == "glibc" else ())


def numbers(version: str) -> Version:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def misfit(made_for: dict[str, str], host: Host) -> str:
    """Return why wheels made for that do not fit a host; "" where they do.

    `made_for`: "python" a minor version ("3.11": each of its patch releases), "system", "machine", "glibc" the least one or "".
    """
    version = numbers(made_for["python"])
    if host.python[:len(version)] != version:
        return (f"this archive is for Python {made_for['python']}.x, this is Python {'.'.join(map(str, host.python))}: "
                f"make install PYTHON=/path/to/python{made_for['python']}, or an archive that this Python made")
    if (made_for["system"], made_for["machine"]) != (host.system, host.machine):
        return (f"this archive is for {made_for['system']} on {made_for['machine']}, this is {host.system} on {host.machine}: "
                "make one on such a machine")
    if made_for["glibc"] and host.glibc < numbers(made_for["glibc"]):
        has = f"glibc {'.'.join(map(str, host.glibc))}" if host.glibc else "no glibc"
        return f"this archive needs glibc {made_for['glibc']} or later, this machine has {has}: make one on an older system"
    return ""


def main(folder: Path) -> str:
    return misfit(json.loads((folder / FILE).read_text()), this_host())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])) or None)
