"""The identity of the private PostgreSQL, which refuses uid 0.

root      a user namespace that maps the caller to uid 65534: PostgreSQL sees an ordinary user while every file stays
          the caller's, no account is made and a 0700 home works
root, where namespaces are refused (some containers)    the account `nobody`
anybody else    themselves
A cluster keeps the identity that made it: its files belong to that user.
"""

from __future__ import annotations

import ctypes
import errno
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CLONE_NEWUSER = 0x10000000
_UNMAPPED_UID = 65534
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)     # loaded here: between fork and exec nothing may be imported


@dataclass(frozen=True)
class Identity:
    """`label`: "self", "userns" or "nobody"; `popen`: arguments of subprocess to become it; `why`: what kept it from "userns"."""

    label: str
    popen: dict[str, Any]
    why: str = ""

    def may_execute(self, path: Path) -> bool:
        done = subprocess.run(["/bin/sh", "-c", 'test -x "$0"', str(path)], cwd="/", **self.popen)
        return done.returncode == 0

    def own(self, *folders: Path) -> None:
        if self.label == "nobody":
            for folder in folders:
                os.chown(folder, self.popen["user"], self.popen["group"])


def choose_identity() -> Identity:
    """Return the identity; RIDGEPOINT_PG_ROOT_MODE=nobody skips the namespace."""
    if os.geteuid() != 0:
        return Identity("self", {})
    why = "RIDGEPOINT_PG_ROOT_MODE"
    if os.environ.get("RIDGEPOINT_PG_ROOT_MODE", "userns") == "userns":
        number = _try_namespace()
        if number == 0:
            return Identity("userns", {"preexec_fn": _enter_namespace})
        why = f"user namespaces are refused here: {os.strerror(number)}"
    nobody = pwd.getpwnam("nobody")
    return Identity("nobody", {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}, why)


def make_tie_to_parent(before: Callable[[], None] | None, signal_number: int) -> Callable[[], None]:
    """Return a preexec_fn: the process gets the signal when its parent thread dies."""
    def run() -> None:
        if before:
            before()
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)     # after the uid change, which would clear it
    return run


def copy_for_nobody(bin_dir: Path) -> Path:
    """Return the bin folder of a copy (40 MB) where `nobody` can enter.

    What lies in the folder for temporary files is used only where this account made it and nobody else may write to it: anybody can
    put a folder of that name there, with a program of theirs.
    """
    version, package = bin_dir.parent, bin_dir.parent.parent
    prefix = f"ridgepoint-pg-{int(bin_dir.stat().st_mtime)}-"
    inside = Path(package.name, version.name, "bin")
    for target in sorted(Path(tempfile.gettempdir()).glob(f"{prefix}*")):
        if _is_own(target) and (target / inside / "postgres").exists():
            return target / inside
    fresh = Path(tempfile.mkdtemp(prefix=f"{prefix}part-"))         # 0700: nobody sees half a copy
    shutil.copytree(version, fresh / package.name / version.name)
    shutil.copytree(package.with_name(package.name + ".libs"), fresh / (package.name + ".libs"))
    for folder, _, files in os.walk(fresh, topdown=False):
        for name in files:
            os.chmod(os.path.join(folder, name), 0o755)
        os.chmod(folder, 0o755)
    return fresh / inside


def _is_own(folder: Path) -> bool:
    """Return whether this account made a folder (no link), finished it, and nobody else may write to it."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) == 0o755


def _enter_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    if _libc.unshare(_CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{_UNMAPPED_UID} {uid} 1\n"), ("gid_map", f"{_UNMAPPED_UID} {gid} 1\n")):
        Path("/proc/self", name).write_text(text)


def _try_namespace() -> int:
    """Return 0 where a user namespace can be entered, else the error number (errno). It is tried in a child."""
    pid = os.fork()
    if pid == 0:
        try:
            _enter_namespace()
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or errno.EPERM)
        except BaseException:
            os._exit(errno.EPERM)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
