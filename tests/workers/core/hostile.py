"""What code behind walls tries, as text: run as a command by `test_sandboxed`, in a fork of a warm parent by `test_warm_walled`."""

from __future__ import annotations

from pathlib import Path

from tests.product import PROJECT

DEVICES = """
import os
print(sorted(os.listdir("/dev")))
for name in ("null", "zero", "tty", "mem", "kvm", "fuse"):
    try:
        os.close(os.open(f"/dev/{name}", os.O_RDWR))
        print(name, "opened")
    except OSError:
        print(name, "refused")
"""
PROC = """
import os, pathlib
def opens(path):
    try:
        os.close(os.open(path, os.O_WRONLY))
        return True
    except OSError:
        return False
print("name", opens("/proc/self/task/%d/comm" % os.getpid()))
inside = [path for path in pathlib.Path("/proc").rglob("*") if not path.parts[2].isdecimal() and path.is_file()
          and not path.parts[2].endswith("self")]
print(len(inside) > 100, [str(path) for path in inside if opens(path)])
print("made", opens("/proc/sys/user/max_user_namespaces"), opens("/proc/sysrq-trigger"), os.access("/proc/sys", os.W_OK))
"""
SHARED = """
import mmap, time
held = mmap.mmap(-1, 600 << 20)
for at in range(0, 600 << 20, 4096):
    held[at] = 1
print("had")
time.sleep(60)
"""


def bomb(mark: str) -> str:
    """Forks for ever."""
    return f"mark = '{mark}'\nimport os\nwhile True:\n    try:\n        os.fork()\n    except OSError: pass\n"


def connect(port: int, path: Path, abstract: str) -> str:
    """Connects to a port of this host, a socket file, an abstract socket, and what the kernel itself answers."""
    return f"""
import socket
def ask(name, family, address):
    try:
        with socket.socket(family) as one:
            one.settimeout(1)
            one.connect(address)
        print(name, "connected")
    except OSError as error:
        print(name, "refused")
ask("loopback", socket.AF_INET, ("127.0.0.1", {port}))
ask("elsewhere", socket.AF_INET, ("1.1.1.1", 53))
ask("six", socket.AF_INET6, ("::1", {port}))
ask("file", socket.AF_UNIX, {str(path)!r})
ask("abstract", socket.AF_UNIX, "\\0{abstract}")
for number in (16, 17, 40):         # netlink, packets, the host of a virtual machine
    try:
        socket.socket(number, socket.SOCK_RAW if number != 40 else socket.SOCK_STREAM)
        print(number, "made")
    except OSError:
        print(number, "refused")
"""


def look(folder: Path, secret: Path) -> str:
    """Looks at folders, variables, files with secrets and other processes."""
    return f"""
import os
from pathlib import Path
places = ["/", "/root", "/home", "/etc", "/tmp", "/var", "/run", {str(folder)!r}, {str(PROJECT)!r}, {str(Path.home())!r}]
for place in places:
    print(place, sorted(os.listdir(place)) if os.path.isdir(place) else "-")
print(dict(os.environ))
for name in ("/etc/shadow", "/etc/hostname", {str(secret)!r}):
    print(name, os.path.exists(name))
for entry in os.listdir("/proc"):
    if entry.isdecimal():
        print(entry, Path("/proc", entry, "environ").read_bytes(), Path("/proc", entry, "cmdline").read_bytes())
"""


def write(folder: Path) -> str:
    """Writes where nothing may be written, and takes rights."""
    return f"""
import ctypes, os, sys
for place in ("/", "/usr", "/etc", "/proc/sys/kernel", "/dev", sys.prefix, sys.base_prefix, {str(folder)!r}, {str(PROJECT)!r}):
    try:
        open(place + "/written", "w")
        print(place, "written")
    except OSError:
        print(place, "refused")
for name in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/user/max_user_namespaces", os.__file__):
    try:
        open(name, "r+")
        print(name, "opened")
    except OSError:
        print(name, "refused")
libc = ctypes.CDLL(None)
for name, done in (("user", libc.unshare(0x10000000)), ("mounts", libc.unshare(0x20000)), ("umount", libc.umount2(b"/usr", 2)),
                   ("mount", libc.mount(b"none", b"/sandbox", b"tmpfs", 0, None)), ("root", libc.setuid(0)),
                   ("trace", libc.ptrace(0)),
                   ("host", libc.sethostname(b"x", 1)), ("chroot", libc.chroot(b"/"))):
    print(name, "refused" if done else "done")
print("uid", "refused" if os.getuid() else "root")
"""


def search_memory(secret: str) -> str:
    """Looks through all of the memory that it can read for a secret, of which it knows how it begins."""
    return f"""
import re
backwards, begin = {secret[::-1].encode()!r}, {secret[:8].encode()!r}
found = seen = 0
with open("/proc/self/mem", "rb", 0) as memory:
    for line in open("/proc/self/maps"):
        span, rights, *rest = line.split()
        if rights[0] != "r" or rest[-1] in ("[vvar]", "[vsyscall]", "[vvar_vclock]"):
            continue
        low, high = (int(end, 16) for end in span.split("-"))
        memory.seek(low)
        data = memory.read(high - low)
        seen += len(data)
        found += sum(data[at.start():at.start() + len(backwards)][::-1] == backwards for at in re.finditer(begin, data))
print("looked" if seen > 1 << 20 else "blind", "found" if found else "nothing")
"""
