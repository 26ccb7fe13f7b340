"""What `manage.py doctor` looks at: the installation first, then what runs. One function each, in `INSTALLATION`."""

from __future__ import annotations

import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from django.conf import settings

from webapp.embedded.secret import FILE_NAME
from webapp.operate.checks import BAD, OK, RUNNING, WARN, Check, Table
from webapp.roles import owner_exists
from webapp.supply.pins import read_lock

PORT, ASK_S = 8000, 2.0
BACKUP_DAYS = 7
LOCAL_HOSTS = {"localhost", "127.0.0.1", "[::1]", "::1"}
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def python() -> Check:
    """Return whether this Python is one that Ridgepoint runs on."""
    says = f"{sys.version.split()[0]} · {sys.executable}"
    return Check("Python", OK, says) if sys.version_info >= (3, 11) else Check("Python", BAD, says, "install Python 3.11 or later")


def packages() -> Check:
    """Return which required packages are missing, and which are not of the version that was tested (requirements.lock)."""
    project = _project()
    needed = [_plain(line) for line in project["dependencies"] if "python_version <" not in line or sys.version_info < (3, 14)]
    locked = dict(_locked())
    missing = [name for name in needed if _version(name) is None]
    other = [f"{name} {found} ({pin})" for name, pin in locked.items() if (found := _version(name)) not in (None, pin)]
    facts = {"missing": missing, "other_version": other}
    if missing:
        return Check("Packages", BAD, f"missing: {', '.join(missing)}", "run make install", facts)
    if other:
        says = f"not as tested: {', '.join(other[:5])}" + (f" and {len(other) - 5} more" if len(other) > 5 else "")
        return Check("Packages", WARN, says, "run make install", facts)
    return Check("Packages", OK, f"{len(needed)} required, versions as in requirements.lock", facts=facts)


def folders() -> list[Check]:
    """Return which of the folders that are written to cannot be."""
    store = settings.STORAGES["default"].get("OPTIONS", {}).get("location")
    paths = {"data folder": settings.HOME, "temporary files": settings.FILE_UPLOAD_TEMP_DIR or tempfile.gettempdir(),
             **({"object store": store} if store else {})}
    return [_folder(name, Path(path)) for name, path in paths.items()]


def _folder(name: str, path: Path) -> Check:
    if not path.exists():
        return Check(f"Folder: {name}", OK, f"{path} · made when it is needed")
    try:
        with tempfile.TemporaryFile(dir=path):
            return Check(f"Folder: {name}", OK, str(path))
    except OSError as error:
        return Check(f"Folder: {name}", BAD, f"{path}: {error.strerror}", "let this user write there, and make room")


def secret() -> Check:
    """Return whether the secret key is there, long enough, and its own user's alone."""
    path = settings.HOME / FILE_NAME
    if not path.exists():
        if len(settings.SECRET_KEY) < 32:
            return Check("Secret key", BAD, f"RIDGEPOINT_SECRET_KEY has {len(settings.SECRET_KEY)} characters", "50 random ones")
        return Check("Secret key", OK, "of the environment, or made at the first start")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        return Check("Secret key", BAD, f"{path} can be read by others ({mode:o})", f"chmod 600 {path}")
    return Check("Secret key", OK, f"{path} ({mode:o})")


def hosts() -> Check:
    """Return whom the server answers, and whether people sign in."""
    names = settings.ALLOWED_HOSTS
    if settings.LOCAL_MODE:
        return Check("Hosts", OK, "single-user mode: this machine only (HOST=0.0.0.0 opens it, with sign-in)")
    if "*" in names:
        return Check("Hosts", WARN, "RIDGEPOINT_HOSTS is *: any name is answered", "name the hosts: DNS rebinding is not refused")
    if set(names) <= LOCAL_HOSTS:
        return Check("Hosts", WARN, f"{', '.join(names)} only", "set RIDGEPOINT_HOSTS to the names under which people reach it")
    if not settings.HTTPS:
        return Check("Hosts", WARN, f"{', '.join(names)} without HTTPS", "put an HTTPS proxy in front, set RIDGEPOINT_HTTPS=1")
    return Check("Hosts", OK, ", ".join(names))


def owner() -> Check:
    """Return whether somebody can sign in and manage people."""
    if settings.LOCAL_MODE or owner_exists():
        return Check("Owner", OK, "nobody signs in" if settings.LOCAL_MODE else "there is one")
    return Check("Owner", BAD, "nobody can sign in", "run manage.py createowner NAME")


def port() -> Check:
    """Return whether the port is free, or Ridgepoint's."""
    try:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", PORT))
        return Check("Port", OK, f"{PORT} is free")
    except OSError:
        pass
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health/live", timeout=ASK_S) as answer:
            ours = answer.status == 204
    except (OSError, urllib.error.URLError):
        ours = False
    return Check("Port", OK, f"Ridgepoint answers on {PORT}") if ours else Check(
        "Port", WARN, f"{PORT} is another program's", "make run takes the next free one; PORT=… chooses")


def gpu() -> Check:
    """Return whether what a GPU worker needs is there, where there is a GPU."""
    if not shutil.which("nvidia-smi"):
        return Check("GPU", OK, "none here: recordings are replayed")
    try:
        process = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True,
                                 text=True, timeout=20)
    except subprocess.TimeoutExpired:
        return Check("GPU", BAD, "nvidia-smi does not answer", "see dmesg: the driver may hang")
    if process.returncode:
        return Check("GPU", BAD, (process.stdout or process.stderr).strip()[:200], "repair the driver")
    names = " · ".join(sorted({line.strip() for line in process.stdout.splitlines() if line.strip()}))
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", "\n".join(_project()["optional-dependencies"]["gpu"]), re.MULTILINE))
    wrong = [f"{name} {found or 'missing'} ({pins[name]})" for name in ("torch", "triton")
             if ((found := _version(name)) or "").partition("+")[0] != pins[name]]
    if wrong:
        return Check("GPU", WARN, f"{names} · {', '.join(wrong)}", "run make install: tuning needs both")
    return Check("GPU", OK, f"{names} · torch {pins['torch']}, Triton {pins['triton']}")


def backup() -> Check:
    """Return how old the newest file of the data folder's `backups` is."""
    folder = settings.HOME / "backups"
    times = [path.stat().st_mtime for path in folder.iterdir() if path.is_file()] if folder.is_dir() else []
    if not times:
        return Check("Backup", OK if settings.LOCAL_MODE else WARN, f"none in {folder}",
                     "" if settings.LOCAL_MODE else "see docs/operate.md: pg_dump and the object store")
    days = (time.time() - max(times)) / 86_400
    says = f"{days:.1f} days old" if days >= 1 else f"{days * 24:.0f} h old"
    if days > BACKUP_DAYS:
        return Check("Backup", WARN, says, "make another one, and let a timer do it")
    return Check("Backup", OK, says)


INSTALLATION: Table = (
    ("Python", python),
    ("Packages", packages),
    ("Folders", folders),
    ("Secret key", secret),
    ("Hosts", hosts),
    ("Port", port),
    ("GPU", gpu),
    ("Backup", backup),
)
TABLE: Table = (*INSTALLATION, *RUNNING, ("Owner", owner))


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((settings.BASE_DIR / "pyproject.toml").read_text())["project"]
    return project


def _locked() -> Iterator[tuple[str, str]]:
    for name, pins in read_lock(settings.BASE_DIR / "requirements.lock").items():
        if len(pins) == 1:         # of several versions the one for this Python would have to be told from markers
            yield name, pins[0].version


def _plain(requirement: str) -> str:
    match = _NAME.match(requirement)
    return match[0] if match else requirement


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
