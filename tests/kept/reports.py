"""Counter reports: what NVIDIA's reader says of a file is asked once, and kept.

It takes seconds, and many tests read the same files. Everything on this side of the pipe runs as ever. A file with other content,
another reader, child or other limits is asked anew, and a forked process (one whose time and memory are judged) always is. An
answer that did not end well is not kept.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from profiles.ingest.ncu import report

Documents = Callable[[Path, int, bool], Iterator[dict[str, Any]]]


def keeping(ask: Documents, folder: Path) -> Documents:
    """`ncu_report._documents`, which keeps what it hears in `folder`; processes may share it."""
    process = os.getpid()

    def documents(path: Path, size_bytes: int, plain: bool) -> Iterator[dict[str, Any]]:
        if os.getpid() != process:
            yield from ask(path, size_bytes, plain)
            return
        kept = folder / _name(path, size_bytes, plain)
        if kept.exists():
            yield from map(msgspec.json.decode, kept.read_bytes().splitlines())
            return
        said: list[bytes] = []
        with closing(ask(path, size_bytes, plain)) as heard:        # type: ignore[type-var]
            for document in heard:
                said.append(msgspec.json.encode(document))
                yield document
        fresh = kept.with_name(f"{kept.name}.{process}")
        fresh.write_bytes(b"\n".join(said))
        fresh.replace(kept)
    return documents


def _name(path: Path, size_bytes: int, plain: bool) -> str:
    program = [each.read_bytes() for each in sorted(report.CHILD.parent.glob("ncu_child*.py"))]
    asked = (size_bytes, plain, sys.version, metadata.version("ncu-report"), report.CHILD, program, report.SILENCE_S,
             report.CPU_S, report.MEMORY_BASE_BYTES, report.MEMORY_PER_BYTE, report.MAX_LINE_BYTES)
    return hashlib.sha256(repr(asked).encode() + hashlib.sha256(path.read_bytes()).digest()).hexdigest()
