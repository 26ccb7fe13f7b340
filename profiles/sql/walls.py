"""Walls around the process that runs somebody's query: what the kernel refuses it, whatever DuckDB would allow.

Limits of memory, processor time and file sizes hold everywhere. Landlock (Linux 5.13 and later) leaves it the files of its query
and no TCP; where the kernel has none, DuckDB's own locks stand alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import struct
import sys

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446      # the same numbers on every architecture
_PATH_BENEATH = 1
_WRITE, _READ, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_MAKE = (1 << 5) | (1 << 7) | (1 << 8)                          # remove a file, make folders and files
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}
_SYSTEM = ("/proc/self", "/sys/fs/cgroup", "/usr/lib", "/lib", "/usr/share/zoneinfo", sys.prefix, sys.base_prefix)
_TRUNCATE, _ANY_TCP = 1 << 14, 0b11


def limit(memory_bytes: int, seconds: int, file_bytes: int, parent: int) -> None:
    """Bound this process: memory, processor time, written files, open files, no core.

    It is the first to go when the machine's memory runs out, gives way to others, and dies with the process `parent` that started
    it.
    """
    for kind, most in ((resource.RLIMIT_AS, memory_bytes), (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_FSIZE, file_bytes),
                       (resource.RLIMIT_NOFILE, 2048), (resource.RLIMIT_CORE, 0)):
        least = min(most, resource.getrlimit(kind)[1]) if resource.getrlimit(kind)[1] != resource.RLIM_INFINITY else most
        resource.setrlimit(kind, (least, least))
    with contextlib.suppress(OSError):
        os.nice(5)
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:          # it died before it could be said
        os._exit(1)


def close(readable: list[str], writable: str) -> bool:
    """Let this process read `readable` and the system's files, write below `writable`, no TCP.

    False where the kernel cannot do that.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return False
    rights = _RIGHTS.get(version, _RIGHTS[3])
    handled = struct.pack("QQ", rights, _ANY_TCP) if version >= 4 else struct.pack("Q", rights)
    ruleset = libc.syscall(_CREATE_RULESET, handled, ctypes.c_size_t(len(handled)), 0)
    if ruleset < 0:
        return False
    truncate = _TRUNCATE if version >= 3 else 0
    allowed = dict.fromkeys(readable, _READ) | dict.fromkeys(_SYSTEM, _READ | _READ_DIR)
    allowed[writable] = _READ | _READ_DIR | _WRITE | _MAKE | truncate
    for path, access in allowed.items():
        _allow(libc, ruleset, path, access)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    closed: bool = libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0
    os.close(ruleset)
    return closed


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, access: int) -> None:
    with contextlib.suppress(OSError):          # what is not there needs no rule
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", access, handle)
        libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
        os.close(handle)
