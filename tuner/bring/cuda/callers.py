"""What of a host does not stand in the kernel's file: functions of other files of its repository, and lambdas of a binding."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path

from tuner.tuning.cuda.includes import MAX_BYTES, MOST_FILES, root_of, shared_parts, walk
from tuner.tuning.cuda.tokens import Tokens, blank_comments, partners

ENDINGS = (".cpp", ".cc", ".cxx", ".cu")
MOST_TRIED = 4


def callers_of(folder: Path, name: str, function: str, own: Collection[str]) -> Iterator[Path]:
    """Yield the files of a repository that name a function ("" for any) and one of the kernel's file's own: the nearest first.

    own  names of functions of the kernel's file, `name` in `folder`
    """
    folder = folder.resolve()
    called = re.compile(rf"\b{re.escape(function)}\b" if function else "")
    launched = re.compile(rf"\b(?:{'|'.join(map(re.escape, own)) or '(?!)'})\b")
    paths = []
    for path in islice(walk(root_of(folder), ENDINGS), MOST_FILES):
        if path == folder / name or path.is_symlink() or path.stat().st_size > MAX_BYTES:
            continue
        text = path.read_text(errors="replace")
        if called.search(text) and launched.search(text):
            paths.append(path)
    yield from sorted(paths, key=lambda path: (-shared_parts(path, folder), path.suffix == ".cu", str(path)))[:MOST_TRIED]


def definers_of(folder: Path, name: str, missing: Collection[str]) -> list[Path]:
    """Return the files of a repository that define functions, or members of classes, which the kernel's file only declares."""
    folder = folder.resolve()
    names = "|".join(map(re.escape, missing)) or "(?!)"
    defined = re.compile(rf"\b(?:{names})\s*\([^;{{}}()]*(?:\([^()]*\)[^;{{}}()]*)*\)\s*(?:const\s*)?(?::[^;{{}}]*)?\{{"
                         rf"|^[^;{{}}\n]*\b(?:{names})::\w+\s*\(", re.MULTILINE)
    paths = []
    for path in islice(walk(root_of(folder), ENDINGS), MOST_FILES):
        if path != folder / name and not path.is_symlink() and path.stat().st_size <= MAX_BYTES and (
                defined.search(path.read_text(errors="replace"))):
            paths.append(path)
    return sorted(paths, key=lambda path: (-shared_parts(path, folder), path.suffix != ".cu", str(path)))[:MOST_TRIED]


def with_lambda(text: str, function: str) -> str:
    """Return the text with the lambda that a binding gives a name, `m.def("function", [](…) {…})`, as a function of that name."""
    bare = blank_comments(text, keep_texts=True)
    bound = re.search(rf'\.\s*def\s*\(\s*"{re.escape(function)}"\s*,\s*\[[^\]]*\]\s*(?=\()', bare)
    if bound is None:
        return text
    tokens = Tokens(bare)
    closing = partners(tokens.words)
    opening = next(index for index, place in enumerate(tokens.places) if place >= bound.end())
    closed = closing.get(opening, opening)
    body = next((index for index in range(closed, min(closed + 40, len(tokens.words))) if tokens.words[index] == "{"), None)
    if body is None or body not in closing:
        return text
    line = text.count("\n", 0, bound.end()) + 1
    return f'{text}\n#line {line} "binding"\nauto {function}{text[bound.end():tokens.end_of(closing[body])]}\n'
