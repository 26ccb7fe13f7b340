"""Server processes by /proc; a pid alone may be reused or a zombie's."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

_COMM_LENGTH = 15       # the kernel keeps that many characters of a program's name


def is_server(pid: int, programs: Collection[str], folder: Path) -> bool:
    """Return whether `pid` runs one of the programs inside `folder`; stopped ones count, zombies not."""
    return _state(pid, programs) not in ("", "Z", "X") and _works_in(pid, folder)


def find_servers(programs: Collection[str], folder: Path) -> list[int]:
    """Return the pids of the programs that run inside `folder`, without those that another one of them started."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if is_server(pid, programs, folder) and not _state(_parent(pid), programs)]


def title(pid: int) -> str:
    """Return the command line of a process, or what it wrote there; "" for one that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _state(pid: int, programs: Collection[str]) -> str:
    """Return the one-letter state of a process that runs one of the programs, "" for any other."""
    try:
        before, _, after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        named = before.partition("(")[2] in {program[:_COMM_LENGTH] for program in programs}
        return after.split()[0] if named else ""
    except (OSError, IndexError):
        return ""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def _works_in(pid: int, folder: Path) -> bool:
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd")) == folder
    except OSError:
        return False
