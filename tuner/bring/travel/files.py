"""The files of an own kernel: their paths and bounds, and how they lie in a folder for a process behind walls."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from profiles.base.refused import Refused
from tuner.tuning.cuda.includes import ROOT, own_headers

FOLDER = "RIDGEPOINT_OWN_KERNEL"        # of a child: where the files lie
RECORD, TREE = "kernel.json", "tree"
MOST_FILES, MOST_BYTES, MOST_FILE_BYTES = 200, 4 << 20, 1 << 20
MOST_PATH, MOST_PARTS = 240, 12
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\Z")
_ENDINGS = (".py", ".cu", ".cuh", ".h", ".hpp", ".inl", ".cpp", ".cc")
_STEM = re.compile(r"[^A-Za-z0-9_]")
ADAPTER = "_ridgepoint_adapter.py"


def read_files(given: Any) -> dict[str, str]:
    """Return {path: text} of files beside a kernel's, their paths and sizes checked. Raises Refused."""
    if not isinstance(given, Mapping) or len(given) > MOST_FILES:
        raise Refused(f"an object of at most {MOST_FILES} files: path → text")
    files: dict[str, str] = {}
    left = MOST_BYTES
    for path, text in given.items():
        if not isinstance(path, str) or not isinstance(text, str):
            raise Refused("an object of files: path → text")
        files[check_path(path)] = text.replace("\0", "")
        size = len(text.encode(errors="replace"))
        left -= size
        if size > MOST_FILE_BYTES or left < 0:
            raise Refused(f"{path[:80]}: at most {MOST_FILE_BYTES:,} bytes a file, {MOST_BYTES:,} together")
    return files


def check_path(path: str) -> str:
    """Return a path below a root. Raises Refused."""
    *folders, name = path.split("/")
    is_plain = len(folders) <= MOST_PARTS and all(map(_PART.match, (*folders, name)))
    if len(path) > MOST_PATH or not is_plain or not name.endswith(_ENDINGS):
        raise Refused(f"{path[:80]!r}: expected a path like ops/common.py, ending with {', '.join(_ENDINGS)}")
    return path


def check_folder(folder: str) -> str:
    """Return a folder below a root, "" for that itself. Raises Refused."""
    parts = folder.split("/") if folder else []
    if len(folder) > MOST_PATH or len(parts) > MOST_PARTS or not all(_PART.match(part) for part in parts):
        raise Refused(f"{folder[:80]!r} is no folder below the root: letters, digits, _ . - and / between them")
    return folder


def lay_out(root: Path, files: Mapping[str, str]) -> None:
    """Write the files below a folder, which is the root for what they import and include. Their paths were checked."""
    root.mkdir(parents=True, exist_ok=True)
    (root / ROOT).touch()
    for path, text in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8", errors="replace")


def headers_of(file: Path, root: Path) -> dict[str, str]:
    """Return {path: text} of the headers of the tree that a CUDA C++ file includes, as many as may travel."""
    headers: dict[str, str] = {}
    left = MOST_BYTES
    for path in own_headers(file, root)[:MOST_FILES]:
        text = path.read_text(encoding="utf-8", errors="replace")
        left -= len(text.encode())
        if left < 0:
            break
        if path.suffix in _ENDINGS:
            headers[path.relative_to(root).as_posix()] = text
    return headers


def hash_of(sources: Mapping[str, str], file: str, adapter: str) -> str:
    """Return the hash of all that a version of a kernel is."""
    return hashlib.sha256(json.dumps([sorted(sources.items()), file, adapter]).encode()).hexdigest()


def name_of(kernel: str, source_hash: str, project: int) -> str:
    """Return the name of the operator: the kernel's, and which version it is; of each project its own."""
    version = hashlib.sha256(f"{project} {source_hash}".encode()).hexdigest()[:12]
    stem = _STEM.sub("_", kernel).strip("_")[:26] or "kernel"
    return f"{'k' if stem[0].isdecimal() else ''}{stem}_{version}"


def lay_out_kernel(folder: Path, *, name: str, file: str, sources: Mapping[str, str], adapter: str, description: str,
                   source_hash: str, independent: bool) -> None:
    """Write all that `measuring` needs into a folder that its processes may read."""
    lay_out(folder / TREE, {**sources, adapter_path(file): adapter})
    (folder / RECORD).write_text(json.dumps(
        {"name": name, "file": file, "description": json.loads(description), "source_hash": source_hash,
         "independent": independent}))
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)         # behind walls a worker that is root is nobody


def adapter_path(file: str) -> str:
    """Return where the adapter lies: beside the kernel's file, whose name it may take."""
    folder = file.rpartition("/")[0]
    return f"{folder}/{ADAPTER}" if folder else ADAPTER
