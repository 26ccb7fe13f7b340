"""An archive fits every patch release of the Python that made it, its name says so, and elsewhere the install does not begin."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.product import PROJECT
from webapp.supply import archive, fits, pins
from webapp.supply.fits import Host

LOCK = pins.read_lock(PROJECT / "requirements.lock")
HERE = Host((3, 11, 7), "linux", "x86_64", (2, 36))
WHEELS = ["django-5.2.17-py3-none-any.whl", "numpy-2.4-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
          "isal-1.8-cp311-cp311-manylinux2014_x86_64.whl"]


def test_what_another_patch_release_needs_is_collected_too() -> None:
    """Made by 3.11.7, on 3.11.2 redis did not find async_timeout."""
    assert [pin.name for pin in archive.of_other_patches(LOCK, (3, 11, 7))] == ["async-timeout"]
    assert archive.of_other_patches(LOCK, (3, 11, 2)) == [] == archive.of_other_patches(LOCK, (3, 12, 0))
    assert archive.fitting_patches("python_full_version < '3.11.3'", (3, 11)) == {0, 1, 2}
    assert archive.fitting_patches("sys_platform == 'win32'", (3, 11)) == set()


def test_only_those_that_need_it_install_it(tmp_path: Path) -> None:
    version = LOCK["async-timeout"][0].version
    for name in (f"async_timeout-{version}-py3-none-any.whl", "redis-1.0-py3-none-any.whl"):
        (tmp_path / name).write_bytes(name.encode())
    needs, other = archive.requirements_of(tmp_path).splitlines()
    assert other.startswith("redis==1.0 --hash=sha256:") and needs.startswith(f"async_timeout=={version}")
    assert (" ; python_full_version < '3.11.3' --hash=sha256:" in needs) == (sys.version_info[:2] == (3, 11))


def test_the_name_says_the_range() -> None:
    fit = archive.made_for(WHEELS, HERE)
    assert fit == {"python": "3.11", "system": "linux", "machine": "x86_64", "glibc": "2.27"}
    assert archive.archive_name(["gpu"], fit).partition("-0.")[2].partition("-")[2] == "python3.11.x-linux_x86_64-glibc2.27-gpu"
    assert archive.made_for([*WHEELS, "own-1-cp311-cp311-linux_x86_64.whl"], HERE)["glibc"] == "2.36", "built on this machine"


@pytest.mark.parametrize(("host", "why"), [
    (HERE, ""), (HERE._replace(python=(3, 11, 0)), ""), (HERE._replace(glibc=(2, 27)), ""),
    (HERE._replace(python=(3, 12, 1)), "for Python 3.11.x, this is Python 3.12.1"),
    (HERE._replace(python=(3, 1, 11)), "for Python 3.11.x, this is Python 3.1.11"),
    (HERE._replace(machine="aarch64"), "for linux on x86_64, this is linux on aarch64"),
    (HERE._replace(glibc=(2, 26)), "needs glibc 2.27 or later, this machine has glibc 2.26"),
    (HERE._replace(glibc=()), "this machine has no glibc")])
def test_it_says_where_it_does_not_fit(host: Host, why: str) -> None:
    told = fits.misfit(archive.made_for(WHEELS, HERE), host)
    assert why in told and bool(told) == bool(why)


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_an_install_does_not_begin_where_it_does_not_fit(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "requirements.lock", "webapp/supply/fits.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / name, tmp_path / name)
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "requirements.txt").write_text("")
    (tmp_path / "wheels" / fits.FILE).write_text(json.dumps({**archive.made_for(WHEELS, fits.this_host()), "python": "3.9"}))
    done = subprocess.run(["make", "install", f"PYTHON={sys.executable}"], cwd=tmp_path, capture_output=True, text=True,
                          env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    assert done.returncode and "this archive is for Python 3.9.x" in done.stderr
    assert not (tmp_path / ".venv").exists()
