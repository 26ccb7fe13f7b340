"""What builds the walls of `sandboxed` and then becomes the command: `python -I -S sandbox_inside.py SPEC`; standard library.

A fork of a warm parent enters them by `enter_fork` and goes on as it is, with what its parent had imported.

New namespaces of users, mounts, processes, network and IPC; a root that holds, read-only, the system's programs and what SPEC
names, the devices that SPEC names, and one folder in memory to write to; no capability and no way to a new one; limits. A worker
that is root becomes nobody.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

NO_WALLS = 97               # exit status where they cannot be built; why stands on standard error
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")
DEVICES = ("null", "full", "random", "urandom")
WITH_A_GPU = ("zero",)      # mapped, it is shared memory of no file
ROOM = "/sandbox"           # what may be written to: its home, its working folder and its place for temporary files
NOBODY = 65534
# linux/sched.h, linux/mount.h, linux/prctl.h
NEW_NS, NEW_CGROUP, NEW_UTS, NEW_IPC, NEW_USER, NEW_PID, NEW_NET = (
    0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, AT_RECURSIVE, AT_FDCWD, MNT_DETACH = 1, 2, 4, 0x8000, -100, 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, AMBIENT_CLEAR_ALL = 1, 4, 24, 38, 47, 4
SYS_MOUNT_SETATTR = 442     # of every architecture; Linux 5.12
SYS_PIVOT_ROOT, SYS_CAPSET = {"x86_64": (155, 126), "aarch64": (41, 91)}.get(platform.machine(), (0, 0))
# Calls that are refused (asm/unistd.h): memory that is counted for no process, other processes' memory, namespaces and mounts, and
# parts of the kernel that a compiler has no use for; of sockets all but those of Unix, which reach nobody outside; of memory that
# is mapped what is shared and of no file, whose pages may stay where none of them is mapped any more. With a GPU it is given, and
# counted while it is mapped (`sandboxed.uses_more`): CUDA's pinned memory is of that kind.
REFUSED: dict[str, int] = {
    "x86_64": {
        "arch": 0xC000003E, "socket": 41, "mmap": 9, "memfd_create": 319, "shmget": 29, "semget": 64, "msgget": 68,
        "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "keyctl": 250, "add_key": 248, "request_key": 249,
        "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "unshare": 272,
        "setns": 308, "mount": 165, "umount2": 166, "pivot_root": 155},
    "aarch64": {
        "arch": 0xC00000B7, "socket": 198, "mmap": 222, "memfd_create": 279, "shmget": 194, "semget": 190, "msgget": 186,
        "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "keyctl": 219, "add_key": 217, "request_key": 218,
        "bpf": 280, "perf_event_open": 241, "userfaultfd": 282, "unshare": 97,
        "setns": 268, "mount": 40, "umount2": 39, "pivot_root": 41},
}.get(platform.machine(), {})
REFUSED_EVERYWHERE = (425, 428, 429, 430, 432, 442, 447)      # io_uring_setup, the new calls for mounts, memfd_secret
PR_SET_SECCOMP, FILTER, ALLOW, REFUSE = 22, 2, 0x7FFF0000, 0x00050001       # REFUSE: EPERM
# linux/bpf_common.h: LD|W|ABS, ALU|AND|K, JMP|JEQ|K, JMP|JGE|K, RET|K
LOAD, AND, EQUAL, AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
SHARED_OF_NO_FILE = 0x21    # asm-generic/mman-common.h: MAP_SHARED or MAP_SHARED_VALIDATE, and MAP_ANONYMOUS
FIRST_ARGUMENT = 16         # of struct seccomp_data; each has 8 bytes, the low half first
X32 = 0x40000000            # calls of another binary interface
UNIX = 1
_libc = ctypes.CDLL(None, use_errno=True)


class NoWalls(Exception):
    """The host does not let the sandbox be made."""


def main(spec: dict[str, Any]) -> None:
    """Build the walls and become the command."""
    end_with_parent()
    if spec["walls"]:
        status = enter(spec)
        if status is not None:                  # the process outside: it has waited for the one inside
            os._exit(status)
    else:
        os.chdir(spec["root"])
    bound(spec)
    os.execve(spec["command"][0], spec["command"], spec["env"])


def enter_fork(spec: dict[str, Any], kept: Collection[int]) -> None:
    """Put this process behind the walls: a fork with one thread, none of whose memory is a secret; it keeps these descriptors.

    Returns in the process inside alone. Raises NoWalls.
    """
    close_others({0, 1, 2, *kept})
    if shared := shared_memory():
        raise NoWalls(f"it shares memory with its parent: {shared}")
    status = enter(spec)
    if status is not None:
        os._exit(status)
    # what exec does for a command: without it /proc/self belongs to root after a change of rights, and CUDA does not start
    if _libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0):
        raise NoWalls("the process cannot look at itself")
    bound(spec)


def close_others(kept: Collection[int]) -> None:
    """Close every descriptor but these."""
    for number in map(int, os.listdir("/proc/self/fd")):
        if number not in kept:
            with suppress(OSError):             # the list's own
                os.close(number)


def shared_memory() -> str:
    """Return a mapping that this process could write and another one read; "" where it has none."""
    with open("/proc/self/maps") as maps:
        return next((line.strip() for line in maps if line.split()[1][1:4:2] == "ws"), "")


def enter(spec: dict[str, Any]) -> int | None:
    """Return None in the process inside, its exit status in the one outside."""
    if not SYS_PIVOT_ROOT:
        raise NoWalls(f"it is not known for {platform.machine()}")
    is_root = os.geteuid() == 0
    new_namespaces(is_root)
    end_with_parent()                           # new rights take the wish away
    inside = os.fork()
    if inside:
        for stream in (0, 1):
            os.close(stream)
        _, status = os.waitpid(inside, 0)
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code
    build_root(spec, NOBODY if is_root else 0)
    drop_rights(is_root)
    end_with_parent()
    os.chdir(ROOM)
    return None


def new_namespaces(is_root: bool) -> None:
    """Enter new namespaces; the ids in them are written by a process that stays outside."""
    uid, gid, outside = os.geteuid(), os.getegid(), os.getpid()
    reading, writing = os.pipe()
    helper = os.fork()
    if not helper:
        os.close(writing)
        os.read(reading, 1)
        try:
            if not is_root:
                Path(f"/proc/{outside}/setgroups").write_text("deny")
            for name, number in (("uid_map", uid), ("gid_map", gid)):
                Path(f"/proc/{outside}/{name}").write_text(f"0 {number} 1\n" + (f"{NOBODY} {NOBODY} 1\n" if is_root else ""))
        except OSError:
            os._exit(1)
        os._exit(0)
    try:
        call("unshare", NEW_USER | NEW_NS | NEW_PID | NEW_NET | NEW_IPC | NEW_UTS | NEW_CGROUP)
    finally:
        os.close(writing)
        os.close(reading)
        status = os.waitpid(helper, 0)[1]
    if status:
        raise NoWalls("this account's ids cannot be mapped into a user namespace")


def build_root(spec: dict[str, Any], owner: int) -> None:
    """Make the root of what is needed and forget the old one."""
    root = Path(spec["root"])
    call("mount", None, b"/", None, MS_REC | MS_PRIVATE, None)
    call("mount", b"tmpfs", bytes(root), b"tmpfs", MS_NOSUID | MS_NODEV, b"size=16m,mode=755")
    for path in (*map(Path, SYSTEM), *map(Path, spec["read"])):
        if path.is_symlink() and str(path) in SYSTEM:
            place(root, path).symlink_to(os.readlink(path))
        elif path.exists():
            bind(path.resolve(), place(root, path))
            set_attributes(place(root, path), ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, AT_RECURSIVE)
    for path in map(Path, spec.get("write", ())):
        bind(path.resolve(), place(root, path))
        set_attributes(place(root, path), ATTR_NOSUID | ATTR_NODEV, AT_RECURSIVE)
    plain = (*DEVICES, *WITH_A_GPU) if spec["devices"] else DEVICES
    for node in (*(Path("/dev", name) for name in plain), *map(Path, spec["devices"])):
        if not (node.is_char_device() and node.is_relative_to("/dev") and ".." not in node.parts):
            raise NoWalls(f"{node} is no device below /dev")
        bind(node, place(root, node))
        set_attributes(place(root, node), ATTR_RDONLY | ATTR_NOSUID)        # a device is written to all the same
    room = root / ROOM[1:]
    room.mkdir()
    call("mount", b"tmpfs", bytes(room), b"tmpfs", MS_NOSUID | MS_NODEV,
         f"size={spec['room_mb']}m,nr_inodes={spec['files']},mode=700,uid={owner},gid={owner}".encode())
    for name in ("tmp", "dev/shm"):
        if not (root / name).exists():
            (root / name).symlink_to(ROOM)
    (root / "etc/passwd").write_text(f"root:x:0:0::{ROOM}:/bin/false\nnobody:x:{NOBODY}:{NOBODY}::{ROOM}:/bin/false\n")
    (root / "proc").mkdir()
    call("mount", b"proc", bytes(root / "proc"), b"proc", MS_NOSUID | MS_NODEV, None)       # while the host's own is there to see
    (root / "proc/sys/user/max_user_namespaces").write_text("0")
    keep_proc(root / "proc", own_writable=bool(spec["devices"]))
    _libc.sethostname(b"sandbox", 7)
    os.chdir(root)
    if _libc.syscall(SYS_PIVOT_ROOT, b".", b"."):
        raise NoWalls(f"pivot_root: {os.strerror(ctypes.get_errno())}")
    call("umount2", b".", MNT_DETACH)
    set_attributes(Path("/"), ATTR_RDONLY)


def keep_proc(proc: Path, *, own_writable: bool) -> None:
    """Let nothing in /proc be written, or only what belongs to the processes inside.

    CUDA names its threads in /proc/self/task/…/comm and does not start where it cannot (error 304; seen with driver 580).
    """
    if not own_writable:
        set_attributes(proc, ATTR_RDONLY)
        return
    for entry in sorted(proc.iterdir()):
        if not entry.name.isdecimal() and not entry.is_symlink():
            call("mount", bytes(entry), bytes(entry), None, MS_BIND | MS_REC, None)
            set_attributes(entry, ATTR_RDONLY, AT_RECURSIVE)


def place(root: Path, path: Path) -> Path:
    """Return where `path` stands in the new root, with its folders made."""
    target = root / str(path).lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def bind(source: Path, target: Path) -> None:
    if source.is_dir():
        target.mkdir(exist_ok=True)
    else:
        target.touch()
    call("mount", bytes(source), bytes(target), None, MS_BIND | MS_REC, None)


def set_attributes(path: Path, attributes: int, flags: int = 0) -> None:
    """Add attributes to a mount; those that it has stay."""
    buffer = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    if _libc.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, bytes(path), flags, ctypes.byref(buffer), ctypes.sizeof(buffer)):
        raise NoWalls(f"mount_setattr (Linux 5.12) of {path}: {os.strerror(ctypes.get_errno())}")


def drop_rights(is_root: bool) -> None:
    """Give every capability up for good, and root's number where the worker has it."""
    for capability in range(64):
        _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    _libc.prctl(PR_CAP_AMBIENT, AMBIENT_CLEAR_ALL, 0, 0, 0)
    if is_root:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()        # version 3 of capset(2)
    if _libc.syscall(SYS_CAPSET, ctypes.byref(header), ctypes.byref(none)):
        raise NoWalls(f"capset: {os.strerror(ctypes.get_errno())}")


def refuse_calls(shared_memory: bool) -> None:
    """Let the kernel refuse what no compiler needs, for good; `shared_memory`: that of no file may be mapped."""
    if not REFUSED:
        raise NoWalls(f"system calls are not known for {platform.machine()}")
    steps = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, REFUSED["arch"]), (RETURN, 0, 0, REFUSE),
             (LOAD, 0, 0, 0), (AT_LEAST, 0, 1, X32), (RETURN, 0, 0, REFUSE),
             (EQUAL, 0, 4, REFUSED["socket"]), (LOAD, 0, 0, FIRST_ARGUMENT), (EQUAL, 0, 1, UNIX), (RETURN, 0, 0, ALLOW),
             (RETURN, 0, 0, REFUSE), (LOAD, 0, 0, 0)]
    if not shared_memory:
        steps += [(EQUAL, 0, 5, REFUSED["mmap"]), (LOAD, 0, 0, FIRST_ARGUMENT + 3 * 8), (AND, 0, 0, SHARED_OF_NO_FILE),
                  (EQUAL, 0, 1, SHARED_OF_NO_FILE), (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)]
    for number in (*(number for name, number in REFUSED.items() if name not in ("arch", "socket", "mmap")), *REFUSED_EVERYWHERE):
        steps += [(EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE)]
    steps.append((RETURN, 0, 0, ALLOW))
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(buffer)))
    if _libc.prctl(PR_SET_SECCOMP, FILTER, ctypes.byref(program), 0, 0):
        raise NoWalls(f"seccomp: {os.strerror(ctypes.get_errno())}")


def bound(spec: dict[str, Any]) -> None:
    """Set the limits that every process inside inherits."""
    if _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise NoWalls("no_new_privs is not known here")
    for limit, most in ((resource.RLIMIT_NPROC, spec["processes"] if spec["walls"] else None),
                        (resource.RLIMIT_DATA, spec["data_mb"] << 20), (resource.RLIMIT_FSIZE, spec["file_mb"] << 20),
                        (resource.RLIMIT_CPU, spec["cpu_s"]), (resource.RLIMIT_NOFILE, 512), (resource.RLIMIT_CORE, 0),
                        (resource.RLIMIT_MEMLOCK, 1 << 16), (resource.RLIMIT_MSGQUEUE, 1 << 16)):
        if most is not None:                    # of a whole account, which runs more than this, outside of the walls
            hard = resource.getrlimit(limit)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(limit, (most, most))
    if spec["walls"]:
        refuse_calls(shared_memory=bool(spec["devices"]))


def end_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def call(name: str, *arguments: Any) -> None:
    """Call a function of the C library. Raises NoWalls with its error."""
    if getattr(_libc, name)(*arguments):
        raise NoWalls(f"{name}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except (NoWalls, OSError) as error:
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
        os._exit(NO_WALLS)
