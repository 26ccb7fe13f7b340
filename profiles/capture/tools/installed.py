"""What is installed on this host, by the words of the thing itself. Nothing is imported."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from importlib import metadata

_VERSION_TIMEOUT_S = 30.0


def program_version(path: str) -> dict[str, str]:
    """Return {"path", "version"} of a program that knows --version, or {"missing": why}."""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        return {"missing": f"{path} does not run: {error}"}
    version = re.search(r"[Vv]ersion (\S+)", done.stdout)
    if done.returncode or not version:
        return {"missing": f"{path} --version says: {(done.stdout + done.stderr).strip()[:300]}"}
    return {"path": path, "version": version[1]}


def program_help(argv: Sequence[str]) -> str:
    """Return what a program prints of its own options; "" where it does not run."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, errors="replace")
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout + done.stderr


@lru_cache(maxsize=8)
def package_version(name: str) -> dict[str, str]:
    """Return {"version"} from the installation's metadata, or {"missing": why}."""
    try:
        return {"version": metadata.version(name)}
    except metadata.PackageNotFoundError:
        return {"missing": f"{name} is not installed here: pip install 'ridgepoint[gpu]'"}
