"""PyTorch's headers compiled once for a version, so that each host part after that takes seconds: g++'s precompiled headers.

A folder holds them by the hash of what they are made from. Who may write to it makes them; behind walls it is read alone, for a
file's own code could else change what the next file is compiled with.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

HEADERS = Path(__file__).with_name("include")
TORCH = "ridgepoint_torch.h"
FOLDER = "RIDGEPOINT_HOST_HEADERS"      # the variable that names the folder
MAKE_S, SAYS = 300.0, "compiling PyTorch's headers, once for this version"
MOST_SAID = 600


def kept_headers(command: Sequence[str], torch: Path) -> list[str]:
    """Return the flags that read the headers from the folder of `FOLDER`; [] where there is none or it does not hold them.

    command  the compiler with the flags of a host part; torch: the folder of the package
    """
    root = os.environ.get(FOLDER, "")
    header = Path(root, name_of(command, torch), TORCH)
    return ["-include", str(header)] if root and header.with_name(f"{TORCH}.gch").exists() else []


def make_headers(root: Path, command: Sequence[str], torch: Path) -> bool:
    """Compile the headers into the folder where it does not hold them yet, one process at a time; return whether it holds them."""
    folder = root / name_of(command, torch)
    if (folder / f"{TORCH}.gch").exists():
        return True
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / f"{TORCH}.gch").exists():
            return True
        for left in root.iterdir():                         # of versions before
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=root) as place:
            Path(place, TORCH).write_text(f'#include "{HEADERS / TORCH}"\n')
            try:
                done = subprocess.run([*command, "-x", "c++-header", TORCH, "-o", f"{TORCH}.gch"], cwd=place, capture_output=True,
                                      timeout=MAKE_S)
            except (OSError, subprocess.TimeoutExpired):
                return False
            if done.returncode:
                return False
            folder.mkdir(mode=0o755)
            for name in (TORCH, f"{TORCH}.gch"):            # the compiled one last: it is what is asked for
                Path(place, name).chmod(0o644)
                os.replace(Path(place, name), folder / name)
    return True


def name_of(command: Sequence[str], torch: Path) -> str:
    """Return the folder's name for a compiler, its flags, the versions of PyTorch and of our own headers."""
    digest = hashlib.sha256("\0".join(command).encode())
    compiler = Path(command[0]).resolve().stat()
    for part in (f"{compiler.st_size} {compiler.st_mtime_ns}", _text(torch / "version.py"), _text(HEADERS / TORCH),
                 _text(HEADERS / "ridgepoint_record.h")):
        digest.update(part.encode())
    return digest.hexdigest()[:32]


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.is_file() else ""
