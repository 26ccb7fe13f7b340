"""What a process says of itself: job, rank, build, versions; whether it is one of those that collect."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workers.agent.launches import MOST_WORD

_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "JAX_PROCESS_INDEX")
_JOBS = ("RIDGEPOINT_JOB", "SLURM_JOB_NAME", "JOB_NAME", "KUBERNETES_JOB", "TORCHELASTIC_RUN_ID")
_RUNS = ("RIDGEPOINT_RUN", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
_BUILDS = ("RIDGEPOINT_BUILD", "GIT_COMMIT", "IMAGE_TAG")
# another profiler set these: it owns CUPTI, or is about to
OWNERS = {"KINETO_USE_DAEMON": "Kineto's daemon mode", "NSYS_PROFILING_SESSION_ID": "Nsight Systems",
          "NV_NSIGHT_INJECTION_TRANSPORT_TYPE": "Nsight Compute", "NV_COMPUTE_PROFILER_PERFWORKS_DIR": "Nsight Compute",
          "CUDA_INJECTION64_PATH": "an injected tool",
          "NVTX_INJECTION64_PATH": "an injected tool", "PROTON_PROFILE": "Proton"}
MOST_PROC = 1 << 20
_HARMLESS = ("QueueFeederThread",)              # feeds a pipe
OWN_INJECTION = "ridgepoint_injection.so"       # starts this agent
SAMPLED = ("ranks", "hosts", "runs")


@dataclass(frozen=True)
class Identity:
    job: str
    build: str
    model: str
    host: str
    rank: int
    run: str


def read_identity(environ: Mapping[str, str] = os.environ, program: str = "") -> Identity:
    """Return what the environment says. The job is the program where nothing names it: `program`, or this process's own."""
    rank = next((environ[name] for name in _RANKS if environ.get(name, "").isdecimal()), "-1")
    job = _first(environ, _JOBS) or program or os.path.basename(sys.argv[0] if sys.argv else "") or "python"
    return Identity(job[:MOST_WORD], _first(environ, _BUILDS)[:MOST_WORD], environ.get("RIDGEPOINT_MODEL", "")[:MOST_WORD],
                    (environ.get("RIDGEPOINT_HOST") or socket.gethostname())[:MOST_WORD], int(rank), _first(environ, _RUNS))


def identity_of(pid: int) -> Identity:
    """Return the same of another process of this host, as far as its files may be read."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()[:MOST_PROC].split(b"\0")
    except OSError:
        words = []
    script = next((word for word in words[1:] if word and not word.startswith(b"-")), words[0] if words else b"")
    try:
        pairs = Path(f"/proc/{pid}/environ").read_bytes()[:MOST_PROC].decode(errors="replace").split("\0")
    except OSError:
        pairs = []
    return read_identity(dict(pair.split("=", 1) for pair in pairs if "=" in pair),
                         os.path.basename(script.decode(errors="replace")) or f"process {pid}")


def _first(environ: Mapping[str, str], names: Sequence[str]) -> str:
    return next((environ[name] for name in names if environ.get(name)), "")


def machine_id(files: Sequence[str] = ("/etc/machine-id", "/var/lib/dbus/machine-id")) -> str:
    """Return a digest of this machine's id (machine-id(5) asks not to show the id itself), "" where it has none."""
    for name in files:
        with contextlib.suppress(OSError):
            if text := Path(name).read_text(errors="replace").strip():
                return hashlib.sha256(f"ridgepoint agent {text}".encode()).hexdigest()[:16]
    return ""


def owner(environ: Mapping[str, str] = os.environ) -> str:
    """Return which other profiler the environment names, "" for none."""
    return next((f"{word} ({name})" for name, word in OWNERS.items() if environ.get(name, "0") not in ("", "0")
                 and os.path.basename(environ[name]) != OWN_INJECTION), "")


def torch_profiles() -> bool:
    """Return whether a torch profiler runs, or Kineto was used, in this process; torch is not imported for it."""
    profiler = sys.modules.get("torch.autograd.profiler")
    return bool(getattr(profiler, "_is_profiler_enabled", False))


def other_threads(own: int) -> list[str]:
    """Return names of threads that may call CUDA beside the one with this identifier: of Python all but the agent's own, of torch
    the watchdog of NCCL. Threads of autograd wait while the thread that marks steps does."""
    names = [thread.name for thread in threading.enumerate()
             if thread.ident != own and not thread.name.startswith(("ridgepoint-", *_HARMLESS))]
    for path in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):
            name = path.read_text().strip()
            if name.startswith("pt_nccl"):
                names.append(name)
    return sorted(set(names))


def framework() -> str:
    """Return the framework that is loaded, with its version."""
    for name in ("vllm", "sglang", "torch", "jax"):
        module = sys.modules.get(name)
        version = getattr(module, "__version__", None)
        if version:
            return f"{name} {version}"[:MOST_WORD]
    return ""


def rocm() -> str:
    """Return the HIP version of a torch that is built for AMD's GPUs, "" where none is loaded."""
    return str(getattr(sys.modules.get("torch.version"), "hip", None) or "")


def not_sampled(identity: Identity, wanted: str, seed: str = "") -> str:
    """Return why this process does not collect, "" where it does.

    `wanted`: "ranks=8,hosts=2" is one of eight ranks and one of two hosts; the seed decides which, the same on every start.

    Raises:
        ValueError: another form.
    """
    own = {"ranks": f"{identity.run} {identity.rank}", "hosts": identity.host, "runs": identity.run or str(os.getpid())}
    for part in filter(None, (piece.strip() for piece in wanted.split(","))):
        name, _, number = part.partition("=")
        if name not in SAMPLED or not number.isdecimal() or int(number) < 1:
            raise ValueError(f"{part!r}: as in ranks=8,hosts=2,runs=1")
        drawn = int.from_bytes(hashlib.sha256(f"{seed} {name} {own[name]}".encode()).digest()[:8], "big")
        if drawn % int(number):
            return f"one of {number} {name} collects: this is another"
    return ""
