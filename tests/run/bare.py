"""Runs tests in an environment in which torch, Triton, git and Chromium cannot be found, as on a stranger's machine.

    python -m tests.run.bare [arguments of pytest; none: --core]

The environment is this one without what those are, made of links in a second: every package that is theirs is left out, and PATH
leads to a folder of links to all other programs. A test that needs one of them is skipped and says so; an error fails the run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib import metadata
from pathlib import Path

from tests.product import PROJECT

PACKAGES = ("torch", "triton")
PROGRAMS = ("git", "chrom", "google-chrome")        # what the names of left out programs begin with
CORE = ("-m", "tests.run.parts", "--core", "--note-passed")


def link_packages(target: Path) -> None:
    """Fill a folder of site-packages with links to those of this environment, but for `PACKAGES`."""
    left_out = {Path(file).parts[0] for name in PACKAGES for file in _files(name)}
    for source in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for path in Path(source).iterdir():
            if path.name not in left_out and path.name != "torch-of-the-system.pth" and not (target / path.name).exists():
                (target / path.name).symlink_to(path)


def _files(name: str) -> list[str]:
    try:
        return [str(file) for file in metadata.files(name) or () if not str(file).startswith("..")]
    except metadata.PackageNotFoundError:
        return []


def link_programs(target: Path) -> None:
    """Fill a folder with links to every program of PATH, the first of a name, but for `PROGRAMS`."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        for path in sorted(Path(folder).iterdir()) if Path(folder).is_dir() else ():
            if not path.name.startswith(PROGRAMS) and not (target / path.name).is_symlink():
                (target / path.name).symlink_to(path)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="rp-bare-") as name:
        place = Path(name)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "env"], check=True)
        python = place / "env" / "bin" / "python"
        site = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True, text=True,
                              capture_output=True).stdout.strip()
        link_packages(Path(site))
        (place / "programs").mkdir()
        link_programs(place / "programs")
        env = {**os.environ, "PATH": f"{place / 'env' / 'bin'}{os.pathsep}{place / 'programs'}", "VIRTUAL_ENV": str(place / "env")}
        there = [each for each in ("git", "chromium") if shutil.which(each, path=env["PATH"])]
        find = f"from importlib.util import find_spec; print(*filter(find_spec, {PACKAGES}))"
        there += subprocess.run([python, "-c", find], check=True, text=True, capture_output=True).stdout.split()
        if there:
            print(f"still found: {', '.join(there)}", file=sys.stderr)
            return 1
        command = ["-m", "pytest", "-p", "no:cacheprovider", *sys.argv[1:]] if sys.argv[1:] else CORE
        return subprocess.run([python, *command], cwd=PROJECT, env=env).returncode


if __name__ == "__main__":
    sys.exit(main())
