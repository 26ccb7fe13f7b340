"""The C compiler that Triton needs for a launch (its launcher is compiled on the host), as it is seen behind walls."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workers.core.sandbox_inside import SYSTEM

NAMES = ("gcc", "clang")            # in Triton's order (triton.runtime.build)


@dataclass(frozen=True)
class CCompiler:
    """`environ` and `read` for `sandboxed.run`; both empty where the system's own compiler is found there anyway, or none is."""

    environ: Mapping[str, str]
    read: tuple[Path, ...]


def find(environ: Mapping[str, str] = os.environ) -> CCompiler:
    """Return the compiler that $CC names, or the first of NAMES on $PATH.

    Of one that lies outside of the system's folders its own folder is shown too, that above `bin`; one that lies in a home folder's
    own `bin`, or right below the root, is not: more than a compiler would be shown.
    """
    named = environ.get("CC", "").split()               # "ccache gcc" and flags are not Triton's way: it starts one file
    found = next((path for name in (named[:1] or NAMES) if (path := shutil.which(name, path=environ.get("PATH")))), None)
    if found is None:
        return CCompiler({}, ())
    program = Path(found).absolute()
    folders = tuple(dict.fromkeys(_folder(each) for each in (program, program.resolve()) if not _is_system(each)))
    if any(folder in (Path("/"), Path.home()) or folder in Path.home().parents for folder in folders):
        return CCompiler({}, ())
    return CCompiler({"CC": str(program)}, folders)


def _is_system(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in SYSTEM)


def _folder(path: Path) -> Path:
    return path.parent.parent if path.parent.name == "bin" else path.parent
