"""Which kernels a test is about, and what of them `make test` takes: the rest is marked `deep_only`.

A kernel is compiled for one GPU in `make test`, and interpreted at the smallest shapes that show each of its ways; for all three
GPUs and at all shapes in `make test-deep`, which a change of that kernel runs: `kernel_files` says of a test whose it is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from tuner.tuning.operators import OPERATORS, VENDORS

PROJECT = Path(__file__).resolve().parents[3]
KERNELS = "tuner.tuning.kernels"
GPUS = {"8.0": "NVIDIA A100-SXM4-80GB", "9.0": "NVIDIA H200", "10.0": "NVIDIA B200"}      # compute capability → one that has it
Case = tuple[Any, ...]              # the operator's name first
WITHOUT_TORCH = "torch and Triton are not installed (make test tries; see CONTRIBUTING.md)"


def import_triton() -> None:
    """Skip the test, or the file that calls this before its own imports, where torch or Triton is missing."""
    for each in ("torch", "triton"):
        pytest.importorskip(each, reason=WITHOUT_TORCH)


def capability_of(name: str, capabilities: Iterable[str] = GPUS) -> str:
    """Return the compute capability that `make test` compiles a kernel for: by its name, so the same in every run."""
    of = tuple(capabilities)
    return of[crc32(name.encode()) % len(of)]


def about(*names: str) -> pytest.MarkDecorator:
    """Mark a test as one of these operators' kernels, or of a module of tuner/tuning/kernels ("attention", "decode.paged")."""
    return pytest.mark.kernel(*names)


def each_operator(*names: str, marks: tuple[pytest.MarkDecorator, ...] = ()) -> list[Any]:
    """Return a parameter for each operator, marked as its own."""
    return [pytest.param(name, marks=(about(name), *marks)) for name in names]


def cases_of_each(cases: Sequence[Case], *, deep: bool = False) -> list[Any]:
    """Return a parameter for each operator: its cases, which begin with its name. With `deep` for `make test-deep` alone."""
    return [pytest.param([case for case in cases if case[0] == name], id=f"{name}-deep" if deep else name,
                         marks=(about(name), *((pytest.mark.deep_only,) if deep else ())))
            for name in dict.fromkeys(case[0] for case in cases)]


def each_gpu(names: Iterable[str]) -> list[Any]:
    """Return a parameter (operator, compute capability) for all of both; `make test` takes one of each operator."""
    return [pytest.param(name, capability, id=f"{name}-sm_{capability.replace('.', '')}",
                         marks=(about(name), *((pytest.mark.deep_only,) if capability != capability_of(name) else ())))
            for name in names for capability in GPUS]


def kernel_files(item: pytest.Item) -> set[str]:
    """Return the files of the kernels that a test is about; empty where it is marked as no kernel's."""
    return files_of(*(name for mark in item.iter_markers("kernel") for name in mark.args))


def files_of(*names: str) -> set[str]:
    """Return the files of these operators' kernels, and of tuner/tuning/kernels what they import; paths from the project."""
    return {file for name in names for file in _files(_module(name))}


def _module(name: str) -> str:
    operator = {**OPERATORS, **VENDORS}.get(name)
    return operator.kernel_module if operator else f"{KERNELS}.{name}"


@cache
def _files(module: str) -> frozenset[str]:
    found: set[str] = set()
    waiting = [_file(module)]
    while waiting:
        file = waiting.pop()
        assert file is not None, f"{module} is no module"
        if str(file.relative_to(PROJECT)) not in found:
            found.add(str(file.relative_to(PROJECT)))
            waiting += _imported(file)
    return frozenset(found)


def _imported(file: Path) -> Iterator[Path]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(KERNELS):
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                if each := _file(str(name)):
                    yield each


def _file(module: str) -> Path | None:
    path = PROJECT / module.replace(".", "/")
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)
