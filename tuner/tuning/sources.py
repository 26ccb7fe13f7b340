"""The files that a kernel's code stands in: its module's and those that this imports, as far as they belong to it.

What a file imports is read from its text, so constants count as functions do, and nothing is imported for it.
A package's `__init__` counts where a name is defined there; it does not for being on the way to a module.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

MOST_FILES = 500
MOST_BYTES = 8 << 20          # of one file
MOST_WRAPPED = 16             # decorators around a function
Belongs = Callable[[str], bool]


def hash_sources(module: ModuleType, belongs: Belongs) -> str:
    """Return the hash of a module's file and of those that it imports, by any number of steps.

    belongs  by a module's name: whether it is followed, in a package that is loaded or beside `module`
    Raises OSError where the module's own file cannot be read.
    """
    return hashlib.sha256(b"".join(map(read_source, source_files(module, belongs)))).hexdigest()


def read_source(file: Path) -> bytes:
    """Return what of a file counts: its bytes, but for the name of this package, under which it lies since 2026-11.

    Kernels have not changed by that, and what was stored of them holds. Raises OSError.
    """
    return file.read_bytes().replace(b"tuner.tuning.", b"tuner.").replace(b"tuner/tuning/", b"tuner/")


def source_files(module: ModuleType, belongs: Belongs) -> list[Path]:
    """Return the files, sorted; of a module without imports of its own just its file."""
    files_by_name = {module.__name__: Path(module.__file__ or "")}
    waiting = [module.__name__]
    while waiting and len(files_by_name) < MOST_FILES:
        name = waiting.pop()
        package = name if files_by_name[name].name == "__init__.py" else name.rpartition(".")[0]
        for imported in _imports(files_by_name[name], package, belongs):
            file = _file_of(imported, module)
            if imported not in files_by_name and file is not None:
                files_by_name[imported] = file
                waiting.append(imported)
    return sorted(set(files_by_name.values()))


def beside(module: ModuleType) -> Belongs:
    """Return what belongs to a team's module: its outermost package; of a module in none, those in its folder.

    A folder that packages are installed in holds other people's modules too: none of it belongs.
    """
    top, in_package, _ = module.__name__.partition(".")
    folder = Path(module.__file__ or "").parent
    if in_package or any(folder.glob("*.dist-info")):
        return lambda name: name.partition(".")[0] == top
    near = {path.stem for path in folder.iterdir() if path.suffix == ".py"}
    return lambda name: name in near


def _imports(file: Path, package: str, belongs: Belongs) -> Iterator[str]:
    """Yield the names of the modules that a file imports, wherever in it; none of a file that cannot be read as Python."""
    try:
        if file.stat().st_size > MOST_BYTES:
            return
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if belongs(alias.name))
        elif isinstance(node, ast.ImportFrom):
            try:
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            except ImportError:            # beyond the outermost package
                continue
            for alias in node.names:
                yield from (name for name in _owners(base, alias.name) if belongs(name))


def _owners(base: str, name: str) -> Iterator[str]:
    """Yield the modules that `from base import name` may take: one of that name in it, that which defines it, `base` itself."""
    yield f"{base}.{name}"
    owner = _owner(getattr(sys.modules.get(base), name, None))
    if owner is not None:
        yield owner
    if owner is None or owner == base or not hasattr(sys.modules.get(base), "__path__"):
        yield base


def _owner(value: Any) -> str | None:
    """Return the module that a function, class or kernel was defined in, under whatever decorates it."""
    for _ in range(MOST_WRAPPED):
        if (inner := getattr(value, "fn", None)) is None:
            break
        value = inner
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return name if isinstance(name, str) else None


def _file_of(name: str, module: ModuleType) -> Path | None:
    """Return the file of a module in a package that is loaded, or beside `module`; None where there is none. Imports nothing."""
    top, *rest = name.split(".")
    roots = getattr(sys.modules.get(top), "__path__", None)
    if roots is None:
        candidates = [] if rest else [Path(module.__file__ or "").parent / f"{top}.py"]
    elif not rest:
        candidates = [Path(root, "__init__.py") for root in roots]
    else:
        places = [Path(root, *rest) for root in roots]
        candidates = [file for place in places for file in (place.with_name(f"{place.name}.py"), place / "__init__.py")]
    return next((file for file in candidates if file.is_file()), None)
