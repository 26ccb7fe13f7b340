"""`make archive`: one tar with the source and a wheel of everything it needs, for a machine without a network.

The wheels fit every patch release of this Python's minor version and this kind of machine; the archive's name says which, and
an install refuses to begin elsewhere (`webapp.supply.fits`). Files come through pip, which refuses one whose hash is not in
requirements.lock; `wheels/requirements.txt` holds the hashes of the wheels, which the install there checks.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.markers import Marker

from webapp.supply import fits, pins
from webapp.supply.pins import ROOT, Pin

NOT_SOURCE = (".git", ".venv", "var", "build", "wheels")
UNPINNED_EXTRAS = ("gpu",)
MOST_PATCHES = 50               # a minor version had 22 patch releases at most
_MANYLINUX = re.compile(r"manylinux(_2_\d+|1|2010|2014)_")
_OLD_TAGS = {"1": (2, 5), "2010": (2, 12), "2014": (2, 17)}            # PEP 600's names of these


def collect_wheels(folder: Path, extras: Sequence[str]) -> None:
    """Download what an install takes, pip included; build a wheel of what has none. Raises CalledProcessError where pip refuses."""
    pinned = [*pins.main("pip", ()), *pins.main("roots", [extra for extra in extras if extra not in UNPINNED_EXTRAS])]
    pip_wheel(folder, pinned, "--require-hashes", "-c", str(ROOT / "requirements.lock"))
    if further := [pin._replace(marker="").line() for pin in of_other_patches(pins.read_lock(ROOT / "requirements.lock"))]:
        pip_wheel(folder, further, "--require-hashes", "--no-deps")
    if unpinned := pins.main("unpinned", [extra for extra in extras if extra in UNPINNED_EXTRAS]):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as versions:
            versions.write("\n".join(pins.main("versions", ())))
            versions.flush()
            pip_wheel(folder, unpinned, "-c", versions.name)


def of_other_patches(locked: dict[str, list[Pin]], python: tuple[int, ...] = sys.version_info[:3]) -> list[Pin]:
    """Return what only other patch releases of a Python's minor version need: a marker may name one ("< '3.11.3'")."""
    return [pin for of_name in locked.values() for pin in of_name
            if (patches := fitting_patches(pin.marker, python[:2])) and python[2] not in patches]


def fitting_patches(marker: str, minor: tuple[int, ...]) -> set[int]:
    """Return the patch releases of a minor version for which a marker holds on this machine."""
    text = ".".join(map(str, minor))
    return {patch for patch in range(MOST_PATCHES) if not marker or Marker(marker).evaluate(
        {"python_version": text, "python_full_version": f"{text}.{patch}", "extra": ""})}


def pip_wheel(folder: Path, requirements: Sequence[str], *options: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--wheel-dir", str(folder),
                    *options, "-r", "/dev/stdin"], input="\n".join(requirements).encode(), check=True)


def requirements_of(folder: Path) -> str:
    """Return the requirements file of a folder of wheels: name, version and hash of each, and where only some patch releases of
    Python need it, its marker."""
    lines, locked, minor = [], pins.read_lock(ROOT / "requirements.lock"), sys.version_info[:2]
    for wheel in sorted(folder.glob("*.whl")):
        name, version = wheel.name.split("-")[:2]
        with open(wheel, "rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        marker = next((f" ; {pin.marker}" for pin in locked.get(pins.normalize(name), []) if pin.version == version
                       and 0 < len(fitting_patches(pin.marker, minor)) < MOST_PATCHES), "")
        lines.append(f"{name}=={version}{marker} --hash=sha256:{digest}\n")
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


def made_for(wheels: Iterable[str], host: fits.Host) -> dict[str, str]:
    """Return what wheels of these file names, collected on that host, fit: `webapp.supply.fits` reads it there.

    The least glibc is the greatest that a wheel needs; of one that was built here, this machine's.
    """
    needed = [min(versions) if (versions := [glibc_of(tag) for tag in _MANYLINUX.findall(name)]) else host.glibc
              for name in wheels if not name.endswith("-any.whl")]
    return {"python": ".".join(map(str, host.python[:2])), "system": host.system, "machine": host.machine,
            "glibc": ".".join(map(str, max(needed, default=()))) if host.glibc else ""}


def glibc_of(tag: str) -> fits.Version:
    """Return the glibc of what follows "manylinux" in a wheel's name: "_2_28" or "2014"."""
    return _OLD_TAGS.get(tag) or fits.numbers(tag.strip("_").replace("_", "."))


def archive_name(extras: Sequence[str], fit: dict[str, str]) -> str:
    """Return "ridgepoint-0.1.0-python3.11.x-linux_x86_64-glibc2.28": the range that it fits."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    platform = re.sub(r"[^a-z0-9]+", "_", f"{fit['system']}_{fit['machine']}")
    return "-".join(["ridgepoint", version, f"python{fit['python']}.x", platform,
                     *([f"glibc{fit['glibc']}"] if fit["glibc"] else []), *sorted(extras)])


def without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return the member as root's: who packed it has no account where it is unpacked."""
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def make(extras: Sequence[str], into: Path) -> Path:
    """Write the archive into a folder and return its path; a `.sha256` lies beside it."""
    into.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into) as scratch:
        wheels = Path(scratch) / "wheels"
        collect_wheels(wheels, extras)
        fit = made_for((wheel.name for wheel in wheels.glob("*.whl")), fits.this_host())
        name = archive_name(extras, fit)
        packed = Path(scratch) / f"{name}.tar"
        (wheels / "requirements.txt").write_text(requirements_of(wheels))
        (wheels / fits.FILE).write_text(json.dumps(fit))
        with tarfile.open(packed, "w") as tar:
            for path in source_files():
                tar.add(path, f"{name}/{path.relative_to(ROOT)}", filter=without_owner)
            tar.add(wheels, f"{name}/wheels", filter=without_owner)
        done = Path(shutil.move(packed, into / packed.name))
    with open(done, "rb") as content:
        done.with_name(f"{done.name}.sha256").write_text(f"{hashlib.file_digest(content, 'sha256').hexdigest()}  {done.name}\n")
    return done


if __name__ == "__main__":
    made = make(sys.argv[1:], ROOT / "build")
    sys.stdout.write(f"{made.relative_to(ROOT)}  {made.stat().st_size / 1e6:.0f} MB\n")
