"""Where a kernel's file lies: in a package, beside others, alone."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

MOST_FOLDERS = 12
NOT_OWN = {"torch", "triton", "numpy", *sys.stdlib_module_names}


def package_of(path: Path) -> tuple[Path, list[str]]:
    """Return the folder that is to be on the path, and the parts of the file's name from there.

    A package may hold folders without `__init__.py`; its top is the outermost folder that has one, as far as names reach, or by
    whose name the file imports modules that lie there.
    """
    path = path.resolve()
    imported = _imports(path)
    names, folder = [path.stem], path.parent
    top: tuple[Path, list[str]] = (folder, [path.stem])
    for _ in range(MOST_FOLDERS):
        if not folder.name.isidentifier() or folder.parent == folder:
            break
        names = [folder.name, *names]
        if (folder / "__init__.py").exists() or _imports_from(folder, imported):
            top = (folder.parent, names)
        folder = folder.parent
    if len(top[1]) == 1 and _is_relative(path):         # `from .x import y` needs a package of its own
        top = (path.parent.parent, [path.parent.name if path.parent.name.isidentifier() else "package", path.stem])
    return top


def folders_of(folder: Path) -> list[Path]:
    """Return where modules of a package without `__init__.py` lie: its folder, and one of its name within, as projects hold it."""
    within = folder / folder.name
    return [folder, within] if within.is_dir() else [folder]


def _imports_from(folder: Path, imported: list[list[str]]) -> bool:
    """Return whether modules that are imported by a folder's name lie in it."""
    own = [parts[1:] for parts in imported if parts[0] == folder.name and len(parts) > 1]
    return any((place / parts[0]).is_dir() or (place / f"{parts[0]}.py").is_file() for parts in own for place in folders_of(folder))


def _imports(path: Path) -> list[list[str]]:
    """Return the modules that a file imports by their whole names, as parts; not those of torch, Triton and Python itself."""
    modules = [alias.name.split(".") for node in ast.walk(_tree(path)) if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module.split(".") for node in ast.walk(_tree(path))
                if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return [parts for parts in modules if parts[0] not in NOT_OWN]


def _tree(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ast.Module([], [])


def _is_relative(path: Path) -> bool:
    return any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(_tree(path)))
