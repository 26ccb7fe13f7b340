"""What is packed for a GPU machine follows from the metadata of what is installed."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.gpu import pack

pytestmark = pytest.mark.process

OURS = ("profiles", "tuner", "webapp", "workers")


def names(packages: list[str]) -> set[str]:
    return {package.partition("==")[0] for package in packages}


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_every_dependency_is_carried_or_there(python: str) -> None:
    carried = names(pack.packages_to_carry(python))
    there = pack.dependency_closure(pack.THERE, python, missing_ok=True).keys()
    project = tomllib.loads((pack.PROJECT / "pyproject.toml").read_text())["project"]
    for each in map(Requirement, project["dependencies"]):
        assert canonicalize_name(each.name) in carried | there, each
    assert {"cryptography", "cffi", "pytest-django"} <= carried
    assert not carried & {"torch", "triton", "numpy", "scipy", "boto3", "botocore"}


def test_a_header_is_no_library() -> None:
    assert pack.is_library("libpq.so") and pack.is_library("libpq.so.5.18") and not pack.is_library("algorithm.sort_heap.h")


@pytest.mark.deep_only          # of what is carried to a GPU machine
def test_what_the_product_imports_is_carried_or_there() -> None:
    """Of every module of the product, whatever pyproject.toml says; an extra for the web machine alone stays behind."""
    distributions = metadata.packages_distributions()
    extras = tomllib.loads((pack.PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    kept = names(pack.packages_to_carry("3.12")) | pack.dependency_closure(pack.THERE, "3.12", missing_ok=True).keys()
    kept |= {canonicalize_name(Requirement(each).name) for each in extras["clickhouse"]}
    missing: dict[str, str] = {}
    for path in (path for package in OURS for path in (pack.PROJECT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = ([alias.name for alias in node.names] if isinstance(node, ast.Import)
                       else [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else [])
            for top in {module.split(".")[0] for module in modules} - sys.stdlib_module_names - set(OURS):
                owners = {canonicalize_name(name) for name in distributions.get(top, [])}
                if owners and not owners & kept:
                    missing[top] = str(path.relative_to(pack.PROJECT))
    assert not missing


def test_a_marker_decides_for_the_python_there() -> None:
    assert "async-timeout" not in names(pack.packages_to_carry("3.11"))     # redis needs it up to 3.11.2


def test_an_extra_is_followed_and_what_is_missing_is_an_error() -> None:
    assert "psycopg-binary" in pack.dependency_closure(["psycopg[binary]"], "3.12")
    assert "psycopg-binary" not in pack.dependency_closure(["psycopg"], "3.12")
    with pytest.raises(metadata.PackageNotFoundError):
        pack.dependency_closure(["no-such-package"], "3.12")
    assert pack.dependency_closure(["no-such-package"], "3.12", missing_ok=True) == {"no-such-package": ""}


def test_the_command_lists_what_it_would_pack() -> None:
    command = [sys.executable, "-m", "tests.gpu.pack", "--list"]
    done = subprocess.run(command, cwd=pack.PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == pack.packages_to_carry("3.12")
