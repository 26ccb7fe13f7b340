"""Runs work in a process of its own whose memory and time the operating system bounds.

The bound is RLIMIT_DATA: private memory that the process may write to, asked for or already touched. It is the limit that
tells a process itself (MemoryError) and leaves the machine alone. RLIMIT_AS would count what is only reserved as well (files
that are mapped, threads' arenas: 2.4 GB where 0.6 GB are used), RLIMIT_RSS does nothing on Linux. The setting
MIMALLOC_ARENA_EAGER_COMMIT of `webapp.settings` keeps Arrow's allocator from counting 1 GB that it only reserves. What the process
holds when it is bound is not counted to the work: OpenBLAS reserves buffers and stacks for every core, 3.8 GB on a host of 32, and
a limit that these fill ends the first thread that Arrow starts. Programs that the work starts (decoders, nsys) inherit the
bound, each for itself. Time is a timer of the process whose signal nobody catches: it ends code that holds the interpreter, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import connections

log = logging.getLogger(__name__)
_MEMORY, _FAILED = 77, 1                # exit statuses; what a library leaves with by itself is a failure
_PR_SET_PDEATHSIG = 1
TOOK_LONGER = "took longer"
_SAID_BYTES = 200                       # of one part's name: all that are said fit into a pipe
Say = Callable[[str], None]
Work = Callable[[Say], object]


@dataclass(frozen=True)
class Ending:
    """How work ended; `why` is "" on success, else a clause: "needs more memory …"."""

    why: str
    parts: tuple[str, ...]  # what the work said that it was doing, the last one at its end
    peak_bytes: int         # largest resident set of the process


def run(work: Work, memory_mb: int, seconds: float = 0.0) -> Ending:
    """Run `work` in a forked process that may take `memory_mb` MB (10^6 bytes) and dies with this one.

    `work` gets a function that notes what it is doing. Each part that it notes, and what comes before the first, may take
    `seconds`; 0: for ever. An error that it raises is logged there and is an ending too. To be
    called where no other thread runs: a fork copies the locks that others hold.
    """
    connections.close_all()             # two processes on one PostgreSQL connection corrupt each other's answers
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if not child:
        os.close(reading)
        _run_child(work, memory_mb, seconds, writing, parent)
    os.close(writing)
    with open(reading, "rb") as stream:
        parts = tuple(stream.read().decode(errors="replace").splitlines())
    _, status, usage = os.wait4(child, 0)
    return Ending(_why_ended(status, memory_mb, seconds), parts, usage.ru_maxrss * 1024)


@contextmanager
def bound_memory(memory_mb: int) -> Iterator[None]:
    """Bound this process itself meanwhile: `memory_mb` MB (10^6 bytes) beyond what it holds now it meets MemoryError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_most_bytes(memory_mb * 1_000_000, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _most_bytes(memory_bytes: int, hard: int) -> int:
    most = _held_bytes() + memory_bytes
    return most if hard == resource.RLIM_INFINITY else min(most, hard)


def _held_bytes() -> int:
    """Return the private memory that this process may write to already (proc(5): VmData), 0 where the system does not tell."""
    with contextlib.suppress(OSError), open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    return 0


def peak_bytes() -> int:
    """Return the largest resident set that this process had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _run_child(work: Work, memory_mb: int, seconds: float, writing: int, parent: int) -> None:
    """Run the work as the child; never returns."""
    status = _FAILED

    def say(part: str) -> None:
        _write_part(writing, part)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    try:
        _bound_process(memory_mb * 1_000_000, parent)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)       # RQ's own timer, which a fork does not inherit, raises in its handler
        signal.setitimer(signal.ITIMER_REAL, seconds)
        work(say)
        status = 0
    except MemoryError:
        status = _MEMORY
        log.warning("stopped: it needs more memory than %s MB", memory_mb)
    except BaseException:
        log.exception("a stage failed")
    finally:
        with contextlib.suppress(Exception):
            connections.close_all()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _write_part(writing: int, part: str) -> None:
    os.write(writing, part.replace("\n", " ").encode()[:_SAID_BYTES] + b"\n")


def _bound_process(memory_bytes: int, parent: int) -> None:
    """Bound memory, be first to go when the machine runs out, and die with `parent`."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")      # scipy's, which the work may load first, reserves 41 MB a core
    most = _most_bytes(memory_bytes, resource.getrlimit(resource.RLIMIT_DATA)[1])
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:          # it died before it could be said
        os._exit(_FAILED)


def _why_ended(status: int, memory_mb: int, seconds: float) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGALRM:
        return f"{TOOK_LONGER} than {seconds:,.0f} s"
    if code == _MEMORY:
        return f"needs more memory than {memory_mb:,} MB"
    if code < 0:
        return f"was ended by signal {-code} ({signal.Signals(-code).name}), most often for want of memory"
    return "failed: the worker's log has the trace" if code else ""
