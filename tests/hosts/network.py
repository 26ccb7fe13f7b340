"""Hosts on one machine: each a network namespace and a host name of its own, on one bridge that this process sees as well."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

# libfaketime (0.9.10) also changes clock_nanosleep, whose absolute deadlines it gets wrong: Python's sleep fails under it
# the other calls that tell the time, by way of clock_gettime
OTHER_CALLS = r"""\
int gettimeofday(struct timeval *restrict t, void *restrict zone) {
    struct timespec now;
    int said = clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec;
    t->tv_usec = now.tv_nsec / 1000;
    return said;
}
time_t time(time_t *t) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (t) *t = now.tv_sec;
    return now.tv_sec;
}
"""
CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long off(void) { const char *s = getenv("CLOCK_OFF_S"); return s ? atol(s) : 0; }
int clock_gettime(clockid_t id, struct timespec *t) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int said = real(id, t);
    if (!said && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) t->tv_sec += off();
    return said;
}
""" + OTHER_CALLS


def lacking() -> str | None:
    """Return why no hosts can be made here; None where they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not shutil.which("ip"):
        return "ip is not installed (Debian: iproute2)"
    name = f"rp{os.getpid() % 10_000}try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return f"no network namespace can be made here: {made.stderr.strip()}" if made.returncode else None


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


def clock_library(folder: Path) -> Path:
    """Return the compiled library that puts the clock of whoever loads it off by CLOCK_OFF_S."""
    made = folder / "clock.so"
    if not made.exists():
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-x", "c", "-", "-o", made, "-ldl"], input=CLOCK.encode(), check=True)
    return made


@dataclass
class Host:
    """`address` on the bridge; `off_s`: seconds that its clock is ahead of the machine's."""

    name: str
    space: str
    address: str
    folder: Path
    off_s: int = 0
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, command: Sequence[str | Path], env: Mapping[str, str], cwd: Path) -> subprocess.Popen[bytes]:
        """Start a program on this host; what it says goes to `log`."""
        env = dict(env)
        if self.off_s:
            env |= {"LD_PRELOAD": str(clock_library(self.folder)), "CLOCK_OFF_S": str(self.off_s)}
        named = ["unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', self.name]
        with open(self.log, "ab") as log:
            process = subprocess.Popen([*self.inside(), *named, *command], env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=log,
                                       stderr=log, start_new_session=True)
        self.processes.append(process)
        return process

    def inside(self) -> list[str]:
        return ["ip", "netns", "exec", self.space]

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    def cut(self) -> None:
        """Take the cable out: nothing comes or goes, and nobody is told."""
        ip("link", "set", f"{self.space}v", "down")

    def heal(self) -> None:
        ip("link", "set", f"{self.space}v", "up")

    def kill(self) -> None:
        """End all of it as a power cut does."""
        for pid in subprocess.run(["ip", "netns", "pids", self.space], capture_output=True, text=True).stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        for process in self.processes:
            process.wait(20)
        self.processes.clear()


class Network:
    """A bridge and the hosts on it; `close` leaves nothing behind."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.hosts = folder, list[Host]()
        self.number = os.getpid() % 10_000
        self.bridge, self.net = f"rp{self.number}", f"10.{100 + self.number % 100}.{self.number // 100}"
        ip("link", "add", self.bridge, "type", "bridge")
        ip("address", "add", f"{self.net}.1/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")

    def add(self, name: str, off_s: int = 0) -> Host:
        at = len(self.hosts) + 10
        host = Host(name, f"{self.bridge}h{at}", f"{self.net}.{at}", self.folder, off_s)
        self.hosts.append(host)
        ip("netns", "add", host.space)
        ip("link", "add", f"{host.space}v", "type", "veth", "peer", "name", "eth0", "netns", host.space)
        ip("link", "set", f"{host.space}v", "master", self.bridge, "up")
        for words in (("address", "add", f"{host.address}/24", "dev", "eth0"), ("link", "set", "eth0", "up"),
                      ("link", "set", "lo", "up")):
            ip("-n", host.space, *words)
        return host

    def close(self) -> None:
        for host in self.hosts:
            host.kill()
            subprocess.run(["ip", "netns", "del", host.space], capture_output=True)
            subprocess.run(["ip", "link", "del", f"{host.space}v"], capture_output=True)
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True)
