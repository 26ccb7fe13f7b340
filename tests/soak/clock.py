"""The clock of the product's host, which a load may step: a library that every process of the product loads.

Waits that count seconds are not touched, as where somebody sets the clock of a machine.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

from tests.hosts.network import OTHER_CALLS

CODE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static const volatile long *off_s;
__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("SOAK_CLOCK");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *at = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (at != MAP_FAILED) off_s = at;
}
int clock_gettime(clockid_t id, struct timespec *t) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int said = real(id, t);
    if (!said && off_s && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) t->tv_sec += *off_s;
    return said;
}
""" + OTHER_CALLS


class Clock:
    """`env` is what a process needs to have this clock."""

    def __init__(self, folder: Path) -> None:
        """Raises LookupError where nothing compiles the library."""
        if not shutil.which("cc"):
            raise LookupError("no C compiler")
        self._file, library = folder / "clock", folder / "clock.so"
        self.set_off(0)
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-x", "c", "-", "-o", library, "-ldl"], input=CODE.encode(), check=True)
        self.env = {"LD_PRELOAD": str(library), "SOAK_CLOCK": str(self._file)}

    def set_off(self, seconds: int) -> None:
        """Put the clock so far ahead of the machine's: in place, who reads it has the file in its memory."""
        with open(self._file, "r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("=q", seconds))


def clock_of(folder: Path) -> Clock | None:
    """Return a clock; None where none can be made."""
    try:
        return Clock(folder)
    except LookupError:
        return None
