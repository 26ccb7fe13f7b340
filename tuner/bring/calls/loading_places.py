"""Where a kernel's file lies: in a package, beside others, alone."""

from __future__ import annotations

import ast
from pathlib import Path

MOST_FOLDERS = 12


def package_of(path: Path) -> tuple[Path, list[str]]:
    """Return the folder that is to be on the path, and the parts of the file's name from there.

    A package may hold folders without `__init__.py`; its top is the outermost folder that has one, as far as names reach.
    """
    path = path.resolve()
    names, folder = [path.stem], path.parent
    top: tuple[Path, list[str]] = (folder, [path.stem])
    for _ in range(MOST_FOLDERS):
        if not folder.name.isidentifier() or folder.parent == folder:
            break
        names = [folder.name, *names]
        if (folder / "__init__.py").exists():
            top = (folder.parent, names)
        folder = folder.parent
    if len(top[1]) == 1 and _is_relative(path):         # `from .x import y` needs a package of its own
        top = (path.parent.parent, [path.parent.name if path.parent.name.isidentifier() else "package", path.stem])
    return top


def _is_relative(path: Path) -> bool:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return False
    return any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree))
