"""Tokens for https:// repositories that are not public, from a file on the worker, and the certificates that it trusts.

A line of the file: `https://host/team [USER] TOKEN`. It speaks for that repository or all below that path; of several the longest.
"""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path

from tuner.gate.code.address import GitAddress, parse_git_address
from workers.core.child import SandboxError
from workers.outgoing import Refused

TOKENS, CERTIFICATES = "RIDGEPOINT_CODE_HTTPS_TOKENS", "RIDGEPOINT_CODE_HTTPS_CERTIFICATES"
USER = "x-access-token"              # GitHub's for its tokens; GitLab and Gitea look at the token alone
MOST_BYTES = 64 << 10
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def https_settings(address: GitAddress) -> list[tuple[str, str]]:
    """Return what git is told for an https address, by environment: command lines can be read by others. Raises SandboxError."""
    settings = []
    if file := os.environ.get(CERTIFICATES, ""):
        if not Path(file).is_file():
            raise SandboxError(f"{CERTIFICATES} names no file on this worker", "a file of certificates (PEM) that it trusts")
        settings.append(("http.sslCAInfo", file))
    if (file := os.environ.get(TOKENS, "")) and (found := _find(address, _read(Path(file)))) is not None:
        settings.append((f"http.{address.text}.extraHeader", f"Authorization: Basic {base64.b64encode(found.encode()).decode()}"))
    return settings


def _read(file: Path) -> list[tuple[GitAddress, str]]:
    """Return addresses with "user:token". Raises SandboxError, which holds nothing of the file."""
    try:
        with file.open("rb") as source:
            if os.fstat(source.fileno()).st_mode & OTHERS:
                raise SandboxError(f"others than the worker's user may read {TOKENS}", f"chmod 600 {file}")
            content = source.read(MOST_BYTES + 1)
    except OSError as error:
        raise SandboxError(f"{TOKENS} cannot be read on this worker: {error.strerror}", "a file, mode 600") from error
    if len(content) > MOST_BYTES:
        raise SandboxError(f"{TOKENS} has more than {MOST_BYTES >> 10} KiB")
    found = []
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            address = parse_git_address(words[0].rstrip("/"))
        except Refused:
            address = None
        token, readable = words[-1], address is not None and address.scheme == "https" and len(words) in (2, 3)
        if address is None or not readable or not (token.isascii() and token.isprintable()):
            raise SandboxError(f"line {number} of {TOKENS} cannot be read", "https://host/team [USER] TOKEN")
        found.append((address, f"{words[1] if len(words) == 3 else USER}:{token}"))
    return found


def _find(address: GitAddress, tokens: list[tuple[GitAddress, str]]) -> str | None:
    """Return the "user:token" of the longest path that the address is or lies below."""
    path = _plain(address.path)
    fits = [(len(each.path), token) for each, token in tokens
            if (each.host.lower(), each.port) == (address.host.lower(), address.port)
            and (path == _plain(each.path) or path.startswith(f"{each.path}/"))]
    return max(fits, default=(0, None))[1]


def _plain(path: str) -> str:
    return path.rstrip("/").removesuffix(".git")
