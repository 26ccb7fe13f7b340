"""`make archive`: one tar with the source and a wheel of everything it needs, for a machine without a network.

The wheels fit this Python and this kind of machine; the archive's name says which. Files come through pip, which refuses one
whose hash is not in requirements.lock; `wheels/requirements.txt` holds the hashes of the wheels, which the install there checks.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

from webapp.supply import pins
from webapp.supply.pins import ROOT

NOT_SOURCE = (".git", ".venv", "var", "build", "wheels")
UNPINNED_EXTRAS = ("gpu",)


def collect_wheels(folder: Path, extras: Sequence[str]) -> None:
    """Download what an install takes, pip included; build a wheel of what has none. Raises CalledProcessError where pip refuses."""
    pinned = [*pins.main("pip", ()), *pins.main("roots", [each for each in extras if each not in UNPINNED_EXTRAS])]
    pip_wheel(folder, pinned, "--require-hashes", "-c", str(ROOT / "requirements.lock"))
    if unpinned := pins.main("unpinned", [each for each in extras if each in UNPINNED_EXTRAS]):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as versions:
            versions.write("\n".join(pins.main("versions", ())))
            versions.flush()
            pip_wheel(folder, unpinned, "-c", versions.name)


def pip_wheel(folder: Path, requirements: Sequence[str], *options: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--wheel-dir", str(folder),
                    *options, "-r", "/dev/stdin"], input="\n".join(requirements).encode(), check=True)


def requirements_of(folder: Path) -> str:
    """Return the requirements file of a folder of wheels: name, version and hash of each."""
    lines = []
    for wheel in sorted(folder.glob("*.whl")):
        name, version = wheel.name.split("-")[:2]
        with open(wheel, "rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        lines.append(f"{name}=={version} --hash=sha256:{digest}\n")
    return "".join(lines)


def source_files() -> list[Path]:
    """Return the files of the project: those git knows or would take, else all but what is made here."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True)
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    else:
        paths = [path for path in ROOT.rglob("*")
                 if path.relative_to(ROOT).parts[0] not in NOT_SOURCE and "__pycache__" not in path.parts]
    return sorted(path for path in paths if path.is_file() and path.relative_to(ROOT).parts[0] != "wheels")


def archive_name(extras: Sequence[str]) -> str:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    platform = re.sub(r"[^a-z0-9]+", "_", sysconfig.get_platform().lower())
    return "-".join(["ridgepoint", version, f"py{sys.version_info[0]}{sys.version_info[1]}", platform, *sorted(extras)])


def without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return the member as root's: who packed it has no account where it is unpacked."""
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def make(extras: Sequence[str], into: Path) -> Path:
    """Write the archive into a folder and return its path; a `.sha256` lies beside it."""
    name = archive_name(extras)
    into.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into) as scratch:
        wheels, packed = Path(scratch) / "wheels", Path(scratch) / f"{name}.tar"
        collect_wheels(wheels, extras)
        (wheels / "requirements.txt").write_text(requirements_of(wheels))
        with tarfile.open(packed, "w") as tar:
            for path in source_files():
                tar.add(path, f"{name}/{path.relative_to(ROOT)}", filter=without_owner)
            tar.add(wheels, f"{name}/wheels", filter=without_owner)
        done = Path(shutil.move(packed, into / packed.name))
    with open(done, "rb") as content:
        done.with_suffix(".tar.sha256").write_text(f"{hashlib.file_digest(content, 'sha256').hexdigest()}  {done.name}\n")
    return done


if __name__ == "__main__":
    made = make(sys.argv[1:], ROOT / "build")
    sys.stdout.write(f"{made.relative_to(ROOT)}  {made.stat().st_size / 1e6:.0f} MB\n")
