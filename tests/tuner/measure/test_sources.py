"""Which files a kernel's source hash covers: a team's helpers and constants too, by any number of steps, and nobody else's."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tuner.tuning.sources import MOST_BYTES, beside, hash_sources, read_source, source_files

FILES = {
    "fastops/__init__.py": "from fastops.parts.clamp import clamp\nLIMIT = 4\n",
    "fastops/kernels.py": "import math\nimport torch_of_nobody\nfrom . import helpers\nfrom fastops import clamp\n"
                          "def scale(x):\n    from fastops.late import shift\n    return helpers.double(shift(x))\n",
    "fastops/helpers.py": "from .parts.constants import BLOCK\ndef double(x): return 2 * x * BLOCK\n",
    "fastops/late.py": "def shift(x): return x + 1\n",
    "fastops/other.py": "from fastops import LIMIT\n",
    "fastops/parts/__init__.py": "",
    "fastops/parts/constants.py": "from fastops import kernels\nBLOCK = 128\n",
    "fastops/parts/clamp.py": "def clamp(x): return x\n",
    "fastops/unused.py": "",
    "lonely.py": "import neighbour\nimport json\n",
    "neighbour.py": "",
    "stranger.py": "",
}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    stub = ModuleType("torch_of_nobody")
    monkeypatch.setitem(sys.modules, "torch_of_nobody", stub)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def names(root: Path, module: ModuleType) -> set[str]:
    return {str(file.relative_to(root)) for file in source_files(module, beside(module))}


def test_a_kernel_is_its_module_and_what_that_imports_by_any_number_of_steps(made):
    kernels = importlib.import_module("fastops.kernels")
    # not __init__.py, which hands clamp on; not unused.py; late.py though nothing imported it yet; a circle ends
    found = ("kernels", "helpers", "late", "parts/constants", "parts/clamp")
    assert names(made, kernels) == {f"fastops/{name}.py" for name in found}
    assert "fastops.late" not in sys.modules
    other = importlib.import_module("fastops.other")
    assert names(made, other) >= {"fastops/other.py", "fastops/__init__.py"}          # a constant stands there


@pytest.mark.parametrize(("changed", "differs"), [("helpers", True), ("parts/constants", True), ("late", True), ("unused", False)])
def test_the_hash_changes_with_each_of_them(made, changed, differs):
    kernels = importlib.import_module("fastops.kernels")
    before = hash_sources(kernels, beside(kernels))
    file = made / "fastops" / f"{changed}.py"
    file.write_text(file.read_text() + "# changed\n")
    assert (hash_sources(kernels, beside(kernels)) != before) is differs


def test_the_name_of_our_package_does_not_count(tmp_path):
    """Kernels lay in tuner.kernels until 2026-11: what was stored of them holds."""
    before, now = tmp_path / "before.py", tmp_path / "now.py"
    before.write_text("from tuner.kernels.extents import extent       # tuner/kernels/extents.py\n")
    now.write_text("from tuner.tuning.kernels.extents import extent       # tuner/tuning/kernels/extents.py\n")
    assert read_source(now) == read_source(before) == before.read_bytes()


def test_a_module_in_no_package_takes_those_beside_it_but_not_what_is_installed(made):
    lonely = importlib.import_module("lonely")
    assert names(made, lonely) == {"lonely.py", "neighbour.py"}
    (made / "stranger-1.0.dist-info").mkdir()
    assert names(made, lonely) == {"lonely.py"}


@pytest.mark.parametrize("text", [
    b"\xff\xfe\x00", b"def (", b"(" * 5_000, b"x = " + b"-" * 200_000 + b"1", b"from ...... import x\n", b"#" + b" " * MOST_BYTES])
def test_a_file_that_is_no_python_is_hashed_and_not_followed(made, text):
    kernels = importlib.import_module("fastops.kernels")
    (made / "fastops" / "helpers.py").write_bytes(text)
    assert {"fastops/kernels.py", "fastops/helpers.py"} <= names(made, kernels)
    assert "fastops/parts/constants.py" not in names(made, kernels)
