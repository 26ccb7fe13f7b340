"""What is known of a process of this host from outside: its command line without secrets, its GPU, its trace folder.

Only arguments are read of a command line, never the environment, and what follows a word such as token or password is masked. A
file of /proc that may not be read makes the answer unknown, never an error."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MOST_COMMAND = 300                  # characters of a command line
MOST_WORD = 80                      # of one argument
MOST_PROC = 1 << 20
MASK = "***"
FOLDER = "KINETO_ONDEMAND_TRACE_DIR"
_SECRETS = frozenset((
    "token", "key", "password", "passwd", "pwd", "passphrase", "secret", "secrets", "credential", "credentials", "auth", "apikey",
    "accesskey", "privatekey", "bearer"))
_BEARER = re.compile(r"\b(Bearer|Basic|Token)\s+\S+", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"(\w+://)[^/@\s]+@")
_IN_QUERY = re.compile(r"([?&])([\w.-]+)=[^&\s]*")
_LOOKS_SECRET = re.compile(r"\b(?:hf_|sk-|ghp_|github_pat_|xox[abp]-|AKIA|eyJ)[\w.-]{8,}")
_CUDA_FILE = "/dev/nvidia-uvm"
_GPU_FILE = re.compile(r"/dev/nvidia\d+")


def masked(argv: Sequence[str]) -> str:
    """Return a command line as one line of at most MOST_COMMAND characters, values of secrets masked."""
    words, hide = [], False
    for word in argv:
        if hide and not word.startswith("-"):
            words.append(MASK)
            hide = False
            continue
        hide = word.startswith("-") and is_secret(word)
        plain = _plain(word)
        words.append(plain if len(plain) <= MOST_WORD else f"{plain[:MOST_WORD // 2]}…")        # a program after -c
    line = " ".join(" ".join(words).split())
    return line if len(line) <= MOST_COMMAND else line[:MOST_COMMAND - 1] + "…"


def is_secret(name: str) -> bool:
    """Return whether a name, as --hf-token or API_KEY, is that of a secret."""
    return not _SECRETS.isdisjoint(re.split(r"[\W_]+", name.lower()))


def _plain(word: str) -> str:
    name, is_assigned, _ = word.partition("=")
    if is_assigned and re.fullmatch(r"[\w.-]+", name) and is_secret(name):
        return f"{name}={MASK}"
    word = _IN_ADDRESS.sub(rf"\1{MASK}@", word)
    word = _IN_QUERY.sub(lambda match: f"{match[1]}{match[2]}={MASK}" if is_secret(match[2]) else match[0], word)
    return _LOOKS_SECRET.sub(MASK, _BEARER.sub(rf"\1 {MASK}", word))


def command_of(pid: int, proc: Path = Path("/proc")) -> str:
    """Return the command line of a process, "" where it cannot be read."""
    try:
        raw = (proc / str(pid) / "cmdline").read_bytes()[:MOST_PROC]
    except OSError:
        return ""
    return masked([word.decode(errors="replace") for word in raw.split(b"\0") if word])


def holds_gpu(pid: int, proc: Path = Path("/proc")) -> bool | None:
    """Return whether a process has the files open that CUDA opens: a GPU's and that of unified memory, which NVML alone does not.

    None where that may not be looked at.
    """
    try:
        links = [os.readlink(path) for path in (proc / str(pid) / "fd").iterdir()]
    except OSError:
        return None
    return _CUDA_FILE in links and any(_GPU_FILE.fullmatch(link) for link in links)


def gpus_by_process(nvml: Any, handles: Sequence[tuple[str, Any]]) -> dict[int, str]:
    """Return the GPU (its UUID) that NVML names for each process that computes on one; {} where it names none, as in containers."""
    uuids_by_pid: dict[int, str] = {}
    for uuid, handle in handles:
        try:
            running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        except Exception:               # of the driver: what it does not tell is unknown
            continue
        for process in running:
            uuids_by_pid.setdefault(int(process.pid), uuid)
    return uuids_by_pid


def trace_folder(pid: int, proc: Path = Path("/proc")) -> str | None:
    """Return where a process lets Kineto write captures: what its environment names, "" for the default, None where unknown."""
    try:
        pairs = (proc / str(pid) / "environ").read_bytes()[:MOST_PROC].split(b"\0")
    except OSError:
        return None
    name = FOLDER.encode() + b"="
    return next((os.fsdecode(pair[len(name):]) for pair in pairs if pair.startswith(name)), "")


def seen_from_here(path: str, pid: int, proc: Path = Path("/proc")) -> Path:
    """Return a file that a process writes as it lies here: of a container it is found under the process's own root."""
    inside = proc / str(pid) / "root" / path.lstrip("/")
    return inside if not os.path.exists(path) and _there(inside) else Path(path)


def _there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


