"""Headers that lie beside a kernel's file or further up in its repository: put where the file includes them, each once."""

from __future__ import annotations

import re
from pathlib import Path

MAX_HEADERS, MAX_BYTES, MAX_DEPTH = 200, 4 << 20, 20
MARKS = (".git", "pyproject.toml", "setup.py", "CMakeLists.txt")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"[^\n]*$', re.MULTILINE)


def root_of(folder: Path) -> Path:
    """Return the outermost folder whose headers a file may include: its repository's, else its own."""
    for each in (folder, *list(folder.parents)[:6]):
        if any((each / mark).exists() for mark in MARKS):
            return each
    return folder


def with_own_headers(text: str, folder: Path, name: str = "") -> str:
    """Return the text with the headers of its own repository in it, marked by `#line`; what is not there stays included."""
    if not _INCLUDE.search(text):
        return text
    folder = folder.resolve()
    return _Inlined(folder, root_of(folder)).text(text, folder, name, 0)


class _Inlined:
    def __init__(self, folder: Path, root: Path) -> None:
        self.folder, self.root, self.done, self.bytes = folder, root, set[Path](), 0

    def text(self, text: str, folder: Path, name: str, depth: int) -> str:
        out, at = [], 0
        for match in _INCLUDE.finditer(text):
            path = self.find(match[1], folder)
            if path is None or depth > MAX_DEPTH or len(self.done) > MAX_HEADERS:
                continue
            out.append(text[at : match.start()])
            at = match.end()
            if path not in self.done:
                self.done.add(path)
                content = path.read_text(errors="replace")
                self.bytes += len(content)
                if self.bytes > MAX_BYTES:
                    continue
                out.append(f'#line 1 "./{path.name}"\n{self.text(content, path.parent, f"./{path.name}", depth + 1)}\n')
            out.append(f'#line {text.count(chr(10), 0, at) + 2} "{name}"')
        return "".join([*out, text[at:]])

    def find(self, name: str, folder: Path) -> Path | None:
        """Return the header that a name means: beside the file that includes it, else beside the kernel's or further up."""
        if len(name) > 300:
            return None
        for place in (folder, self.folder, *self.folder.parents):
            path = (place / name).resolve()
            if self.root in path.parents and path.is_file() and path.stat().st_size <= MAX_BYTES:
                return path
            if place == self.root:
                return None
        return None
