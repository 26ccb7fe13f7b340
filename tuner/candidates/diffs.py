"""A unified diff applied to one file, strictly: every line must stand where the diff says. No fuzz, no offset, nothing is run.

Whether the file is Python then is asked before it is taken: in a process of its own, since a text may be made to harm its reader.

A diff is against the files that an operator's kernels are written in, read as text. Imports no torch and no team code.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from profiles.base.refused import Refused
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
    first = _read_source(PROJECT, _path_of(module))
    assert first is not None
    others = [file for name in _kernel_imports(first.text) if (file := _read_source(PROJECT, _path_of(name)))]
    return (first, *others)


def _kernel_imports(text: str) -> list[str]:
    """Return the modules with kernels that a module of ours imports, in its order."""
    modules = [node.module for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom) and node.module]
    return [name for name in dict.fromkeys(modules) if name.startswith(KERNELS) and name not in NOT_OF_ONE]


def _team_files(described: Mapping[str, Any]) -> tuple[SourceFile, ...]:
    """Return the file of a team's kernel, found by the metadata of its package: importing it would run it."""
    module = str(described.get("kernel", "")).rpartition(".")[0]
    if not module or not all(part.isidentifier() for part in module.split(".")):
        return ()
    for entry in metadata.distributions():
        if normal_name(entry.metadata["Name"] or "") == described.get("package"):
            root = Path(str(entry.locate_file("")))
            for path in (_path_of(module), f"{module.replace('.', '/')}/__init__.py"):
                if file := _read_source(root, path):
                    return (file,)
    return ()


def _path_of(module: str) -> str:
    return f"{module.replace('.', '/')}.py"


def _read_source(root: Path, path: str) -> SourceFile | None:
    place = root / path
    try:
        if place.stat().st_size > MOST_BYTES:
            return None
        return SourceFile(path, place.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None


READ_S = 5.0
MEMORY_BYTES = 1 << 30
# Nothing of the file runs: it is taken apart, no more. Standard library alone, isolated.
_READ = f"""
import json, resource, sys
resource.setrlimit(resource.RLIMIT_DATA, ({MEMORY_BYTES}, {MEMORY_BYTES}))
resource.setrlimit(resource.RLIMIT_CPU, ({READ_S:.0f}, {READ_S:.0f}))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
import warnings
warnings.simplefilter("ignore")
said = {{}}
try:
    compile(sys.stdin.buffer.read().decode(), "candidate.py", "exec", dont_inherit=True)
except SyntaxError as error:
    said = {{"line": error.lineno, "what": error.msg}}
except ValueError as error:
    said = {{"line": None, "what": str(error)}}
print(json.dumps(said))
"""
TOO_MUCH = "reading it takes too much time or memory"


def why_no_python(text: str) -> str:
    """Return why the text is no Python, with the line; "" where it is."""
    try:
        done = subprocess.run([sys.executable, "-I", "-S", "-c", _READ], input=text.encode(), capture_output=True, timeout=READ_S,
                              env={"LANG": "C.UTF-8"}, check=False)
    except subprocess.TimeoutExpired:
        return TOO_MUCH
    if done.returncode or not done.stdout:
        return TOO_MUCH
    problem = json.loads(done.stdout)
    if not problem:
        return ""
    place = f"line {problem['line']}: " if problem["line"] else ""
    return f"{place}{problem['what']}"


MOST_HUNKS = 400
SAID_CHARS = 100
_HUNK = re.compile(r"@@ -(\d{1,7})(?:,(\d{1,7}))? \+(\d{1,7})(?:,(\d{1,7}))? @@")
_BEFORE = ("diff --git ", "index ", "Index: ", "====")          # what stands above the names of the files
_REFUSED = {
    "rename ": "it renames a file", "similarity ": "it renames a file", "copy ": "it copies a file", "new file": "it makes a file",
    "deleted file": "it deletes a file", "old mode": "it changes a mode", "new mode": "it changes a mode",
    "GIT binary": "it is binary", "Binary files": "it is binary", "@@@": "it is a diff of a merge"}


@dataclass
class Hunk:
    """`start`: the first old line, from 1; `lines`: (mark, text) with mark " ", "-" or "+"; `at`: its line in the diff, from 1."""

    number: int
    at: int
    start: int
    old: int
    new: int
    lines: list[tuple[str, str]] = field(default_factory=list)
    open_end: set[str] = field(default_factory=set)     # "-", "+": that side ends without a line feed

    @property
    def name(self) -> str:
        return f"hunk {self.number} (line {self.at} of the diff)"


def is_diff(text: str) -> bool:
    """Return whether a text is a unified diff rather than a file: a hunk's header before anything that Python could be."""
    for line in text.splitlines():
        if _HUNK.match(line):
            return True
        if line.strip() and not line.startswith((*_BEFORE, *_REFUSED, "--- ", "+++ ")):
            return False
    return False


def file_of(diff: str) -> str:
    """Return the path that the diff changes, without a/ and b/; "" where it names none. Raises Refused for several."""
    names: list[str] = []
    for line in _head_lines(diff):
        if line.startswith(("--- ", "+++ ")):
            path = line[4:].split("\t")[0].strip()
            if path == "/dev/null":
                raise Refused("it makes or deletes a file; only the operator's own file can be changed")
            names.append(re.sub(r"\A[ab]/", "", path))
    if len(names) > 2:
        raise Refused(f"it changes {len(names) // 2} files; one is allowed")
    if len(set(names)) > 1:
        raise Refused(f"it names two files: {names[0][:SAID_CHARS]} and {names[1][:SAID_CHARS]}")
    return names[0] if names else ""


def apply(text: str, diff: str) -> str:
    """Return the text with the diff applied. Raises Refused, which names the hunk that does not fit."""
    if len(diff.encode(errors="replace")) > MOST_BYTES:
        raise Refused(f"the diff has more than {MOST_BYTES:,} bytes")
    file_of(diff)
    hunks = _read(diff)
    before, has_end = _split(text)
    after: list[str] = []
    position, end = 0, has_end
    for hunk in hunks:
        begin = hunk.start - 1 if hunk.old else hunk.start      # without old lines: after that line
        if begin < position:
            raise Refused(f"{hunk.name} begins at line {hunk.start}, above the end of the hunk before it")
        expected = [line for mark, line in hunk.lines if mark != "+"]
        _compare(before, begin, expected, hunk)
        after += before[position:begin]
        after += [line for mark, line in hunk.lines if mark != "-"]
        position = begin + len(expected)
        if "+" in hunk.open_end or "-" in hunk.open_end:
            if position != len(before):
                raise Refused(f"{hunk.name} says that the file ends there; it has {len(before) - position} lines more")
            end = "+" not in hunk.open_end
    after += before[position:]
    result = "\n".join(after) + ("\n" if end and after else "")
    if len(result.encode(errors="replace")) > MOST_BYTES:
        raise Refused(f"the file has more than {MOST_BYTES:,} bytes after the diff")
    return result


def _split(text: str) -> tuple[list[str], bool]:
    """Return the lines, and whether the last one ends with a line feed."""
    lines = text.split("\n")
    return (lines[:-1], True) if lines[-1] == "" else (lines, False)


def _compare(before: Sequence[str], begin: int, expected: Sequence[str], hunk: Hunk) -> None:
    lines = before[begin:begin + len(expected)]
    if list(lines) == list(expected):
        return
    wrong = next((index for index, (line, other) in enumerate(zip(lines, expected, strict=False)) if line != other), len(lines))
    if wrong >= len(lines):
        raise Refused(f"{hunk.name} reaches line {begin + len(expected)}; the file has {len(before)}")
    message = f"{hunk.name} does not fit: line {begin + wrong + 1} of the file is {_quote(lines[wrong])}, the diff expects " \
           f"{_quote(expected[wrong])}"
    if expected[wrong].rstrip("\r") == lines[wrong]:
        raise Refused(f"{message}: its lines end with CR LF, the file's with LF")
    elsewhere = [at + 1 for at in range(len(before) - len(expected) + 1) if list(before[at:at + len(expected)]) == list(expected)]
    if len(elsewhere) == 1:
        message += f"; these lines stand at line {elsewhere[0]}"
    raise Refused(message)


def _quote(line: str) -> str:
    return f"“{line[:SAID_CHARS]}{'…' if len(line) > SAID_CHARS else ''}”"


def _head_lines(diff: str) -> list[str]:
    """Return the lines outside of hunks: by the counts in their headers, for a removed line may look like a name."""
    heads: list[str] = []
    old = new = 0
    for line in diff.split("\n"):
        if old > 0 or new > 0:
            old -= line[:1] in ("", " ", "-")
            new -= line[:1] in ("", " ", "+")
        elif header := _HUNK.match(line):
            old, new = _count(header[2]), _count(header[4])
        else:
            heads.append(line)
    return heads


def _count(text: str | None) -> int:
    return 1 if text is None else int(text)


def _read(diff: str) -> list[Hunk]:
    """Return the hunks. Raises Refused."""
    hunks: list[Hunk] = []
    hunk: Hunk | None = None
    old = new = 0
    last = ""
    for number, line in enumerate(diff.split("\n"), 1):
        if hunk is not None and (old < hunk.old or new < hunk.new):
            mark, rest = (line[:1] or " "), line[1:]        # editors take the blank of an empty line away
            if mark not in (" ", "-", "+"):
                if line.startswith("\\") and last:
                    hunk.open_end |= {"-", "+"} if last == " " else {last}
                    continue
                raise Refused(f"{hunk.name}: its header says {hunk.old} old and {hunk.new} new lines, it holds {old} and {new}")
            hunk.lines.append((mark, rest))
            old, new, last = old + (mark != "+"), new + (mark != "-"), mark
            if old > hunk.old or new > hunk.new:
                raise Refused(f"{hunk.name}: its header says {hunk.old} old and {hunk.new} new lines, it holds more")
        elif header := _HUNK.match(line):
            if len(hunks) >= MOST_HUNKS:
                raise Refused(f"the diff has more than {MOST_HUNKS} hunks")
            hunk = Hunk(len(hunks) + 1, number, int(header[1]), _count(header[2]), _count(header[4]))
            hunks.append(hunk)
            old, new, last = 0, 0, ""
        elif line.startswith("\\") and hunk is not None and last:
            hunk.open_end |= {"-", "+"} if last == " " else {last}
        else:
            _check_outside(line, number, hunk)
    if hunk is not None and (old < hunk.old or new < hunk.new):
        raise Refused(f"{hunk.name}: its header says {hunk.old} old and {hunk.new} new lines, it holds {old} and {new}")
    if not hunks:
        raise Refused("it holds no hunk (@@ -1,3 +1,4 @@)")
    return hunks


def _check_outside(line: str, offset: int, hunk: Hunk | None) -> None:
    """Raise Refused for a line that stands in no hunk and names no file."""
    for start, why in _REFUSED.items():
        if line.startswith(start):
            raise Refused(f"line {offset} of the diff: {why}; only lines of the operator's own file can be changed")
    if line.startswith("@@"):
        raise Refused(f"line {offset} of the diff is no header of a hunk: @@ -1,3 +1,4 @@")
    if hunk is not None and line[:1] in (" ", "-", "+") and not line.startswith(("--- ", "+++ ")):
        raise Refused(f"{hunk.name} holds more lines than its header says ({hunk.old} old, {hunk.new} new)")
