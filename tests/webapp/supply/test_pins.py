"""requirements.lock names a version and hashes of everything that is installed, and pip refuses any other file."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests import licences
from tests.gpu.pack import dependency_closure
from tests.product import PROJECT
from webapp.supply import pins

LOCK = pins.read_lock(PROJECT / "requirements.lock")
ASKED = pins.inputs(tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"])


def test_everything_that_is_asked_for_is_locked_in_a_version_that_fits() -> None:
    for requirement in map(Requirement, ASKED):
        found = LOCK.get(pins.normalize(requirement.name))
        assert found, f"{requirement.name} is not in requirements.lock: make lock"
        assert all(requirement.specifier.contains(pin.version, prereleases=True) for pin in found), (requirement, found)


def test_every_line_has_the_hashes_of_its_files() -> None:
    assert len(LOCK) > 150
    for name, found in LOCK.items():
        for pin in found:
            assert pin.hashes and all(len(each) == 71 and each.startswith("sha256:") for each in pin.hashes), name


def test_what_the_installed_packages_need_is_locked() -> None:
    needed = dependency_closure([each for each in ASKED if not each.startswith("uv")], "3.11", missing_ok=True)
    assert not {name for name in needed if name not in LOCK}


def test_roots_are_exact_with_their_extras_and_markers() -> None:
    lines = {line.split("==")[0]: line for line in pins.main("roots", ["test"])}
    assert lines["uvicorn[standard]"].startswith(f"uvicorn[standard]=={LOCK['uvicorn'][0].version} --hash=sha256:")
    assert "moto[server,s3]" in lines and "ruff" not in lines
    with pytest.raises(pins.NotLocked, match="no-such"):
        list(pins.roots(["no-such>=1"], LOCK))


def test_the_torch_extra_has_versions_and_no_hashes() -> None:
    assert "torch==2.13.0" in pins.main("unpinned", ["gpu"])
    versions = pins.main("versions", [])
    assert not any("--hash" in line or line.startswith("torch==") for line in versions)
    assert f"numpy=={LOCK['numpy'][0].version}" in versions


@pytest.mark.deep_only          # of the lock's own lines: test_every_line_has_the_hashes_of_its_files
@pytest.mark.process
def test_pip_refuses_a_file_of_another_hash(tmp_path: Path) -> None:
    """With the options of the Makefile: `one` is asked for, its need `two` has its hash among the constraints."""
    hashes = {name: make_wheel(tmp_path, name, needs) for name, needs in (("one", "two>=1"), ("two", ""))}

    def install(two: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "lock").write_text(f"one==1 --hash=sha256:{hashes['one']}\ntwo==1 --hash=sha256:{two}\n")
        return subprocess.run(
            [sys.executable, "-m", "pip", "install", "--no-index", "--find-links", tmp_path, "--target", tmp_path / "there",
             "--upgrade", "--require-hashes", "-c", tmp_path / "lock", "-r", "/dev/stdin"], capture_output=True, text=True,
            input=(tmp_path / "lock").read_text().splitlines()[0])

    if int(metadata.version("pip").split(".")[0]) < 26:
        pytest.skip("this environment's pip is older than the locked one, which an install begins with")
    refused = install("0" * 64)
    assert refused.returncode and "DO NOT MATCH THE HASHES" in refused.stderr
    taken = install(hashes["two"])
    assert taken.returncode == 0 and (tmp_path / "there/two.py").exists(), taken.stderr


def make_wheel(folder: Path, name: str, needs: str) -> str:
    """Write a wheel of one module and return its SHA-256."""
    import hashlib

    path = folder / f"{name}-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(f"{name}-1.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"
                       + (f"Requires-Dist: {needs}\n" if needs else ""))
        wheel.writestr(f"{name}-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{name}-1.dist-info/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.process
def test_the_page_of_licences_is_up_to_date_and_none_forbids_use() -> None:
    page = licences.page()
    assert licences.PAGE.read_text() == page, "make licences writes it anew"
    rows = [line.split(" | ")[2].removesuffix(" |") for line in page.splitlines()[5:] if line.startswith("| ")]
    assert len(rows) > 80
    for licence in rows:
        assert "UNKNOWN" not in licence and "AGPL" not in licence and "GPL" not in licence.replace("LGPL", ""), licence
