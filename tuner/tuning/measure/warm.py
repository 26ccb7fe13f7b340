"""The warm parent: imports torch and Triton once and forks the processes that measure and compile.

tuner.tuning.measure.fork_server starts it and has the loop; here is what is made ready, what forbids a fork and what a fork renews.
It never opens CUDA, which survives no fork, and refuses to fork where something did. A fork shares nothing with the one before:
what a job changes (settings of torch, variables, files) is changed in its own process.

Its first report is {"ready", "seconds", "threads", "without"}.
"""

from __future__ import annotations

import gc
import importlib
import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tuner.tuning.measure import child, compiler, offline
from tuner.tuning.measure.fork_server import Server, WallIn
from tuner.tuning.operators import OPERATORS

PRELOADED = (child, compiler)           # what is forked most begins at once
FIXED_SEED = 67280421310721             # of torch's own generator where nobody seeded it, in versions that fix it
CACHE = "TRITON_CACHE_DIR"
HELPER_S = 60.0


def main(argv: list[str], helper: subprocess.Popen[bytes], wall_in: WallIn | None = None, also: Sequence[str] = ()) -> None:
    """Fork on request until the worker is gone; between requests make ready what speeds later forks up."""
    requests_fd, report_fd, _ = (int(number) for number in argv[:3])
    began_s = time.monotonic()
    without = import_modules([*sorted({operator.kernel_module for operator in OPERATORS.values()}), *also])
    server = Server(socket.socket(fileno=requests_fd), report_fd, touched_cuda, renew, wall_in)

    def prepare() -> None:
        without.extend(use_compiler(argv[3] if len(argv) > 3 else "9.0"))
        if not is_built(helper):
            without.append("Triton's helper library: it cannot be built here, where there is no driver or no C compiler")
        freeze()
        server.report({"ready": True, "seconds": round(time.monotonic() - began_s, 3),
                       "threads": len(os.listdir("/proc/self/task")), "without": without})

    server.serve(prepare, prepare_more(also))
    os._exit(0)


# ---- what is made ready ----

@triton.jit                                                     # type: ignore[untyped-decorator]
def small_kernel(a, b, c, n, BLOCK: tl.constexpr):             # type: ignore[no-untyped-def]
    rows, columns = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    offsets = rows * BLOCK + columns
    product = tl.dot(tl.load(a + offsets, mask=offsets < n), tl.load(b + offsets, mask=offsets < n))
    tl.store(c + offsets, tl.exp(product), mask=offsets < n)


def import_modules(names: Sequence[str]) -> list[str]:
    """Import the operators' kernels and what else is forked; return what failed."""
    without = []
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:          # a library that this host lacks: the fork that needs it says so
            without.append(f"{name}: {type(error).__name__}: {error}"[:300])
    return without


def use_compiler(compute_capability: str) -> list[str]:
    """Compile one small kernel without a GPU; return what failed."""
    try:
        major, minor = (int(part) for part in compute_capability.split("."))
        source = ASTSource(small_kernel, signature={"a": "*fp16", "b": "*fp16", "c": "*fp32", "n": "i32", "BLOCK": "constexpr"},
                           constexprs={"BLOCK": 32})
        kernel = triton.compile(source, target=GPUTarget("cuda", 10 * major + minor, offline.WARP), options={"num_warps": 4})
        offline.static_facts(kernel, compute_capability)
    except Exception as error:
        return [f"no kernel compiled: {type(error).__name__}: {error}"[:300]]
    return []


def is_built(helper: subprocess.Popen[bytes]) -> bool:
    """Wait for the process that builds Triton's helper library; return whether it did."""
    try:
        return helper.wait(HELPER_S) == 0
    except subprocess.TimeoutExpired:
        helper.kill()
        return False


def freeze() -> None:
    """Keep what stands from collections: one in a fork would copy every page that holds an object."""
    gc.collect()
    gc.freeze()


def prepare_more(also: Sequence[str] = ()) -> Iterator[None]:
    """Do what the modules named call `make_ready`; make each operator's first problem without memory: some import for seconds."""
    for name in also:
        with suppress(Exception):           # a fork says what is wrong
            getattr(importlib.import_module(name), "make_ready", lambda: None)()
        yield
    for operator in OPERATORS.values():
        with suppress(Exception):           # what cannot be made here is made, or refused, in a fork
            make = importlib.import_module(operator.kernel_module).PROBLEMS[operator.name]
            make(dict(operator.presets[0]), operator.dtypes[0], torch.device("meta"), 0)
        yield
    freeze()


def touched_cuda() -> str:
    """Return what shows that this process opened CUDA or NVML; "" where nothing does."""
    if torch.cuda.is_initialized():
        return "torch has opened CUDA in the warm parent"
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{number}")
            if target.startswith("/dev/nvidia"):
                return f"the warm parent holds {target}"
    return ""


# ---- what a fork renews ----

def renew() -> str:
    """Renew what a new process has of its own: random numbers, a folder with Triton's helper. Return why it cannot serve, or ""."""
    if torch.cuda._is_in_bad_fork():
        return "torch has looked for a GPU in the warm parent"
    random.seed()
    np.random.seed()                    # the global one, which others' code uses
    if torch.initial_seed() != FIXED_SEED:
        torch.default_generator.seed()
    tempfile.tempdir = None
    if os.environ.get(CACHE):
        copy_helpers(SEED, Path(os.environ[CACHE]))
    return ""


def copy_helpers(seed: Path | None, folder: Path) -> None:
    """Copy the libraries that Triton built for this host, each folder at once: others copy at the same time."""
    if seed is None:
        return
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        for library in seed.glob("*/*.so"):
            target = folder / library.parent.name
            if target.exists():
                continue
            fresh = Path(tempfile.mkdtemp(dir=folder))
            shutil.copytree(library.parent, fresh, dirs_exist_ok=True)
            try:
                fresh.rename(target)
            except OSError:                                     # another was first
                shutil.rmtree(fresh, ignore_errors=True)


SEED = Path(os.environ[CACHE]) if os.environ.get(CACHE) else None
