"""Headers that lie beside a kernel's file or elsewhere in its repository: put where the file includes them, each once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path, PurePosixPath

MAX_HEADERS, MAX_BYTES, MAX_DEPTH = 200, 4 << 20, 20
ROOT = ".ridgepoint-root"           # of a tree that was laid out for a check or a job
MARKS = (ROOT, ".git", "pyproject.toml", "setup.py", "CMakeLists.txt")
MOST_PARENTS, MOST_FILES = 14, 50_000
HEADERS = (".h", ".cuh", ".hpp", ".hh", ".inl", ".inc", ".cu")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([\w./-]+\.(?:h|cuh|hpp))>)[^\n]*$', re.MULTILINE)
# in angle brackets without a folder: of C, of CUDA and of Python, whatever a repository has of that name
_OF_SYSTEM = re.compile(
    r"(?:std\w*|math|string|limits|float|assert|time|errno|signal|unistd|ctype|cu[a-z]\w*|mma|nccl|nvrtc|nvml|omp|mpi|Python|sys\w*"
    r"|(?:vector|driver|builtin|device|texture|surface|sm_|math|host|common|library|channel|cooperative)_\w+)\.h$")
_SKIPPED = {"node_modules", "build", "__pycache__", "site-packages"}


def root_of(folder: Path) -> Path:
    """Return the outermost folder whose headers a file may include: its repository's, else its own."""
    for path in (folder, *list(folder.parents)[:MOST_PARENTS]):
        if any((path / mark).exists() for mark in MARKS):
            return path
    return folder


def with_own_headers(text: str, folder: Path, name: str = "") -> str:
    """Return the text with the headers of its own repository in it, marked by `#line`; what is not there stays included."""
    if not _INCLUDE.search(text):
        return text
    folder = folder.resolve()
    return _Inlined(folder, root_of(folder)).text(text, folder, name, 0)


def own_headers(path: Path, root: Path) -> list[Path]:
    """Return the headers below `root` that a file includes, directly or through others."""
    reader = _Inlined(path.parent.resolve(), root.resolve())
    reader.text(path.read_text(errors="replace"), reader.folder, path.name, 0)
    return sorted(reader.done)


class _Inlined:
    def __init__(self, folder: Path, root: Path) -> None:
        self.folder, self.root, self.done, self.bytes = folder, root, set[Path](), 0

    def text(self, text: str, folder: Path, name: str, depth: int) -> str:
        out, offset = [], 0
        for match in _INCLUDE.finditer(text):
            path = None if match[2] and _OF_SYSTEM.match(match[2]) else self.find(match[1] or match[2], folder)
            if path is None or depth > MAX_DEPTH or len(self.done) > MAX_HEADERS:
                continue
            out.append(text[offset : match.start()])
            offset = match.end()
            if path not in self.done:
                self.done.add(path)
                content = path.read_text(errors="replace")
                self.bytes += len(content)
                if self.bytes > MAX_BYTES:
                    continue
                out.append(f'#line 1 "./{path.name}"\n{self.text(content, path.parent, f"./{path.name}", depth + 1)}\n')
            out.append(f'#line {text.count(chr(10), 0, offset) + 2} "{name}"')
        return "".join([*out, text[offset:]])

    def find(self, name: str, folder: Path) -> Path | None:
        """Return the header that a name means: beside the file that includes it, beside the kernel's or further up, else elsewhere.

        Elsewhere is where a build's `-I` would look: of the files of the repository whose path ends with the name the nearest.
        """
        if len(name) > 300:
            return None
        for place in (folder, self.folder, *self.folder.parents):
            if (path := self._own(place / name)) is not None:
                return path
            if place == self.root:
                break
        parts = PurePosixPath(name).parts
        if ".." in parts:
            parts = tuple(part for part in parts if part not in (".", ".."))
        same = [header for header in self._files.get(parts[-1], ()) if header.parts[-len(parts):] == parts]
        return self._own(max(same, key=lambda each: (shared_parts(each, folder), -len(each.parts)))) if same else None

    def _own(self, path: Path) -> Path | None:
        path = path.resolve()
        return path if self.root in path.parents and path.is_file() and path.stat().st_size <= MAX_BYTES else None

    @cached_property
    def _files(self) -> dict[str, list[Path]]:
        """Name → the headers of the repository that have it, in the order of their paths."""
        paths_by_name: dict[str, list[Path]] = {}
        for path in sorted(islice(walk(self.root, HEADERS), MOST_FILES)):
            paths_by_name.setdefault(path.name, []).append(path)
        return paths_by_name


def walk(root: Path, endings: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files below a folder whose names end so; those of builds and packages are left out."""
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(child for child in folders if child not in _SKIPPED and not child.startswith("."))
        for name in files:
            if name.endswith(endings):
                yield Path(folder, name)


def shared_parts(path: Path, folder: Path) -> int:
    """Return how many leading parts a header's path has in common with a folder's."""
    same = 0
    for part, other in zip(path.parts, folder.parts, strict=False):
        if part != other:
            break
        same += 1
    return same
