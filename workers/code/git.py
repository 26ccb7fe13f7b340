"""One commit of a repository, fetched by the git program and unpacked: no hooks, no submodules, none of this host's credentials.

The child sees an environment of its own and no configuration of the host. It may speak one protocol, to addresses that were
looked up and checked before; a redirect is not followed. Nothing is checked out: `git archive` writes the commit's files, and
they are unpacked like an archive that somebody uploaded, links left out.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import signal
import stat
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from profiles.base.refused import Refused
from tuner.gate.code.services import GitAddress, parse_git_address
from workers.code.unpack import Bounds, Unpacked, unpack_tar
from workers.core.child import SandboxError
from workers.core.sandboxed import folder_bytes
from workers.outgoing import NotSent, is_metadata, is_public, resolve_host

# ---- tokens for https ----
# // repositories that are not public, from a file on the worker, and the certificates that it trusts.
# A line of the file: `https://host/team [USER] TOKEN`. It speaks for that repository or all below that path; of several
# the longest.

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
    credentials = []
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
        credentials.append((address, f"{words[1] if len(words) == 3 else USER}:{token}"))
    return credentials


def _find(address: GitAddress, tokens: list[tuple[GitAddress, str]]) -> str | None:
    """Return the "user:token" of the longest path that the address is or lies below."""
    path = _plain(address.path)
    fits = [(len(other.path), token) for other, token in tokens
            if (other.host.lower(), other.port) == (address.host.lower(), address.port)
            and (path == _plain(other.path) or path.startswith(f"{other.path}/"))]
    return max(fits, default=(0, None))[1]


def _plain(path: str) -> str:
    return path.rstrip("/").removesuffix(".git")


# ---- one commit of a repository ----

COMMIT = re.compile(r"[0-9a-f]{40}\Z")
MOST_FETCHED_BYTES = 512 << 20
FETCH_S, LOOK_S = 300.0, 0.2
SAID_BYTES = 64 << 10
LEAST_VERSION = (2, 37)              # the first that knows http.curloptResolve: an older one would look the name up again
FILES, KEY, HOSTS, PRIVATE = ("RIDGEPOINT_CODE_FILES", "RIDGEPOINT_CODE_SSH_KEY", "RIDGEPOINT_CODE_SSH_KNOWN_HOSTS",
                              "RIDGEPOINT_CODE_PRIVATE")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Limits:
    """Of one fetch."""

    bytes: int = MOST_FETCHED_BYTES
    seconds: float = FETCH_S
    unpacked: Bounds = field(default_factory=Bounds)


class Git:
    """The git program for one address."""

    def __init__(self, address: str, folder: Path, limits: Limits, should_stop: Callable[[], bool] = lambda: False) -> None:
        program = shutil.which("git")
        if program is None:
            raise SandboxError("git is not installed on this worker", "install it there (apt-get install git), then try again")
        try:
            self.address = parse_git_address(address)
        except Refused as refused:
            raise SandboxError(str(refused), "An owner changes the suite's source.") from refused
        if (version := git_version(program)) < LEAST_VERSION:
            raise SandboxError(f"git {'.'.join(map(str, version))} is too old on this worker",
                               f"{'.'.join(map(str, LEAST_VERSION))} or later connects to the address that was checked")
        self.folder, self.limits, self._should_stop = folder, limits, should_stop
        self._end_s = time.monotonic() + limits.seconds
        self._options, self._environ = [program, *_settings(self.address)], _environment(self.address, folder)

    def resolve(self, name: str) -> str:
        """Return the commit of a build's name: itself where it is a whole one, else of the branch or tag. Raises SandboxError."""
        if COMMIT.match(name):
            return name
        refs = [f"refs/heads/{name}", f"refs/tags/{name}^{{}}", f"refs/tags/{name}"]
        output = self._run(["ls-remote", "--", self.address.text, *refs])
        parts = (line.partition("\t") for line in output.splitlines())
        commits_by_ref = {ref: commit for commit, _, ref in parts}
        commit = next((commits_by_ref[ref] for ref in refs if COMMIT.match(commits_by_ref.get(ref, ""))), "")
        if not commit:
            raise SandboxError(f"{name} is no branch and no tag of {self.address.text}",
                               "name a whole commit (40 hexadecimal digits), a branch or a tag")
        return commit

    def fetch(self, commit: str) -> None:
        """Fetch exactly this commit. Raises SandboxError."""
        self._run(["init", "--quiet", "--bare", "--template=", str(self.folder)])
        try:
            self._run(["-C", str(self.folder), "fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules",
                       "--no-auto-gc", "--", self.address.text, commit])
        except SandboxError as error:
            if "not our ref" in error.what:
                raise SandboxError(f"{self.address.text} has no commit {commit}", "push it, then try again") from error
            raise
        if self._run(["-C", str(self.folder), "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"]).strip() != commit:
            raise SandboxError(f"{self.address.text} has no commit {commit}", "push it, then try again")

    def unpack(self, commit: str, into: Path, say: Callable[[Unpacked], None]) -> Unpacked:
        """Write the commit's files. Raises SandboxError."""
        with tempfile.TemporaryFile() as errors:
            child = self._start(["-C", str(self.folder), "archive", "--format=tar", commit], subprocess.PIPE, errors)
            assert child.stdout is not None
            try:
                def look(unpacked: Unpacked) -> None:
                    if time.monotonic() > self._end_s or self._should_stop():
                        raise SandboxError(f"not unpacked within {self.limits.seconds:.0f} s", "try again")
                    say(unpacked)

                summary = unpack_tar(child.stdout, into, self.limits.unpacked, links=True, say=look)
                child.wait(LOOK_S * 50)
            except (tarfile.TarError, OSError, ValueError, subprocess.TimeoutExpired) as error:
                raise SandboxError(f"git archive: {_tail(errors) or error}"[:300]) from error
            finally:
                _kill(child)
            if child.returncode:
                raise SandboxError(f"git archive: {_tail(errors)}"[:300])
        return summary

    def _run(self, arguments: Sequence[str]) -> str:
        """Return what git printed, within limits of time and of bytes under the folder. Raises SandboxError."""
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            child = self._start(arguments, output, errors)
            try:
                while child.poll() is None:
                    with suppress(subprocess.TimeoutExpired):
                        child.wait(LOOK_S)
                    self._check_limits(output)
            finally:
                _kill(child)
            if child.returncode:
                raise SandboxError(f"git {_verb(arguments)}: {_tail(errors) or f'ended with {child.returncode}'}"[:400],
                                   "is the address right, and is the repository readable from this worker?"
                                   + (f" {TOKENS} names a file of tokens." if self.address.scheme == "https" else ""))
            output.seek(0)
            return output.read(SAID_BYTES).decode(errors="replace")

    def _check_limits(self, output: Any) -> None:
        if self._should_stop():
            raise SandboxError("stopped")
        if time.monotonic() > self._end_s:
            raise SandboxError(f"no answer from {self.address.text} within {self.limits.seconds:.0f} s", "try again later")
        if folder_bytes(self.folder) > self.limits.bytes or os.fstat(output.fileno()).st_size > self.limits.bytes:
            raise SandboxError(f"{self.address.text}: more than {self.limits.bytes >> 20} MiB for one commit",
                               "keep data and binaries out of the repository")

    def _start(self, arguments: Sequence[str], output: Any, errors: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*self._options, *arguments], cwd=self.folder.parent, env=self._environ, stdin=subprocess.DEVNULL,
                                stdout=output, stderr=errors, start_new_session=True)


@lru_cache(maxsize=4)
def git_version(program: str) -> tuple[int, ...]:
    """Return git's version, (0,) where it does not say."""
    with suppress(OSError, subprocess.SubprocessError):
        output = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False,
                                env={"PATH": os.environ.get("PATH", "")}).stdout
        if match := re.search(r"(\d+)\.(\d+)", output):
            return int(match[1]), int(match[2])
    return (0,)


def _settings(address: GitAddress) -> list[str]:
    """Return what git is told before its verb. Raises SandboxError where the address must not be reached."""
    settings = [
        "protocol.allow=never", f"protocol.{address.scheme}.allow=always", "core.hooksPath=/dev/null", "core.fsmonitor=false",
        "core.askPass=/bin/false", "credential.helper=", "http.followRedirects=false", "http.proxy=", "http.emptyAuth=false",
        "submodule.recurse=false", "fetch.recurseSubmodules=false", "core.attributesFile=/dev/null", "gc.auto=0",
        "maintenance.auto=false", "http.lowSpeedLimit=1000", "http.lowSpeedTime=30"]
    if address.scheme == "file":
        _check_file(address)
    else:
        settings.append(f"http.curloptResolve={address.host}:{address.port}:{_bracket(_checked_host(address))}")
    return [part for setting in settings for part in ("-c", setting)]


def _check_file(address: GitAddress) -> None:
    """Raise SandboxError unless the worker names a folder of repositories and this one lies in it."""
    root = os.environ.get(FILES, "")
    if not root:
        raise SandboxError("file:// is not allowed on this worker", f"{FILES} names a folder whose repositories may be fetched")
    if not Path(address.path).resolve().is_relative_to(Path(root).resolve()):
        raise SandboxError(f"{address.path} does not lie in the worker's {FILES}", "An owner changes the suite's source.")


def _checked_host(address: GitAddress) -> str:
    """Return an address of the host that may be reached. Raises SandboxError."""
    try:
        ips = resolve_host(address.host, address.port)
    except NotSent as error:
        raise SandboxError(str(error), "check the address, and the worker's name service") from error
    inside = os.environ.get(PRIVATE) == "1"
    for ip in ips:
        if is_metadata(ip) or not (inside or is_public(ip)):
            raise SandboxError(f"{address.host} lies inside this worker's network ({ip})",
                               f"{PRIVATE}=1 on the worker allows it, never for addresses of a cloud's metadata")
    return ips[0]


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _environment(address: GitAddress, folder: Path) -> dict[str, str]:
    """Return the whole environment of git: nothing of the worker's but its path. Raises SandboxError."""
    environ = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": str(folder.parent), "LC_ALL": "C", "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_ATTR_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": address.scheme, "GIT_PROTOCOL_FROM_USER": "0", "GIT_OPTIONAL_LOCKS": "0"}
    if address.scheme == "https":
        settings = https_settings(address)
        numbered = {f"GIT_CONFIG_{part}_{index}": text for index, pair in enumerate(settings)
                    for part, text in zip(("KEY", "VALUE"), pair, strict=True)}
        return {**environ, "GIT_CONFIG_COUNT": str(len(settings)), **numbered}
    if address.scheme != "ssh":
        return environ
    key, hosts = os.environ.get(KEY, ""), os.environ.get(HOSTS, "")
    if not key or not hosts or any(re.search(r"[\s'\"\\$%]", path) for path in (key, hosts)):
        raise SandboxError("ssh:// needs a key on this worker", f"{KEY} names a private key that may read the repository, {HOSTS} "
                           "a file with the host's public key; paths without spaces and quotes")
    host = _checked_host(address)
    options = [
        "BatchMode=yes", "IdentitiesOnly=yes", "IdentityAgent=none", "StrictHostKeyChecking=yes", f"UserKnownHostsFile={hosts}",
        "GlobalKnownHostsFile=/dev/null", f"HostName={host}", f"HostKeyAlias={address.host}", "ForwardAgent=no",
        "ClearAllForwardings=yes", "PermitLocalCommand=no", "ConnectTimeout=10", "ProxyCommand=none"]
    return {**environ, "GIT_SSH_COMMAND": " ".join(["ssh", "-F", "/dev/null", "-i", key, *(f"-o {option}" for option in options)]),
            "GIT_SSH_VARIANT": "ssh"}


def _verb(arguments: Sequence[str]) -> str:
    return arguments[2] if arguments[0] == "-C" else arguments[0]


def _tail(errors: Any) -> str:
    """Return the last line that git wrote of what went wrong."""
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - 4096))
    lines = [line for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
    last_line = next((line for line in reversed(lines) if line.startswith(("fatal:", "error:"))), lines[-1] if lines else "")
    return last_line.removeprefix("fatal: ").removeprefix("error: ")


def _kill(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    if child.stdout is not None:
        child.stdout.close()
