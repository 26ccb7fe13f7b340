"""The files that an operator's kernels are written in, read as text: what a diff is against. Imports no torch and no team code."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from tuner.tuning.operators import OPERATORS
from tuner.tuning.team.packages import normal_name

PROJECT = Path(__file__).resolve().parents[2]
KERNELS = "tuner.tuning.kernels."
NOT_OF_ONE = ("tuner.tuning.kernels.problem", "tuner.tuning.kernels.device")       # what all operators share
MOST_BYTES = 256 << 10


@dataclass(frozen=True)
class SourceFile:
    """`path` as a diff names it: tuner/tuning/kernels/rowwise.py."""

    path: str
    text: str

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def operator_files(name: str, described: Mapping[str, Any] | None = None) -> tuple[SourceFile, ...]:
    """Return an operator's files, first the one with its problem class or kernel; () where they are not on this host.

    described   of a team's operator: what a worker said of it, with its package
    """
    if name in OPERATORS:
        return _built_in_files(OPERATORS[name].kernel_module)
    return _team_files(described) if described else ()


@lru_cache(maxsize=32)
def _built_in_files(module: str) -> tuple[SourceFile, ...]:
    first = _read(PROJECT, _path_of(module))
    assert first is not None
    others = [each for name in _kernel_imports(first.text) if (each := _read(PROJECT, _path_of(name)))]
    return (first, *others)


def _kernel_imports(text: str) -> list[str]:
    """Return the modules with kernels that a module of ours imports, in its order."""
    found = [node.module for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom) and node.module]
    return [each for each in dict.fromkeys(found) if each.startswith(KERNELS) and each not in NOT_OF_ONE]


def _team_files(described: Mapping[str, Any]) -> tuple[SourceFile, ...]:
    """Return the file of a team's kernel, found by the metadata of its package: importing it would run it."""
    module = str(described.get("kernel", "")).rpartition(".")[0]
    if not module or not all(part.isidentifier() for part in module.split(".")):
        return ()
    for entry in metadata.distributions():
        if normal_name(entry.metadata["Name"] or "") == described.get("package"):
            root = Path(str(entry.locate_file("")))
            for path in (_path_of(module), f"{module.replace('.', '/')}/__init__.py"):
                if found := _read(root, path):
                    return (found,)
    return ()


def _path_of(module: str) -> str:
    return f"{module.replace('.', '/')}.py"


def _read(root: Path, path: str) -> SourceFile | None:
    place = root / path
    try:
        if place.stat().st_size > MOST_BYTES:
            return None
        return SourceFile(path, place.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
