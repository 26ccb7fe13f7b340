"""Lines of a file of JSON Lines, plain or gzip, and what each holds. A file is hostile until read: its size is bounded."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

MOST_BYTES = 512 * 2**20            # unpacked
MOST_LINE_BYTES = 4 * 2**20
CHUNK = 2**20
EXPECTED = "expected JSON Lines: one object a run and kernel, with run, op, shape and us (samples in µs)"


class RunsError(ValueError):
    """The file cannot be read: `where` (file and line), `what`, `hint`."""

    def __init__(self, what: str, *, path: str = "", line: int | None = None,
                 hint: str = EXPECTED) -> None:
        self.what, self.path, self.line, self.hint = what, path, line, hint
        self.where = ", ".join(part for part in (path, f"line {line}" if line else "") if part)
        super().__init__(f"{self.where}: {what}" if self.where else what)


class Wrong(Exception):
    """What is wrong with a line."""


def lines(path: Path) -> Iterator[bytes]:
    """Lines without their ends. Errors of the file and of its compression become RunsError with the line reached."""
    at, kept, total = 0, b"", 0
    try:
        with path.open("rb") as opened:
            packed = opened.peek(2)[:2] == b"\x1f\x8b"      # a pipe cannot go back
            source = gzip.GzipFile(fileobj=opened) if packed else opened
            while chunk := source.read1(CHUNK):
                total += len(chunk)
                if total > MOST_BYTES:
                    raise RunsError(f"more than {MOST_BYTES >> 20} MiB unpacked", path=str(path), line=at + 1,
                                    hint="split the file")
                *whole, kept = (kept + chunk).split(b"\n")
                if len(kept) > MOST_LINE_BYTES:
                    raise RunsError(f"a line of more than {MOST_LINE_BYTES >> 20} MiB", path=str(path), line=at + len(whole) + 1)
                for line in whole:
                    at += 1
                    yield line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise RunsError(f"the compressed file is damaged or cut short ({error})", path=str(path), line=at + 1,
                        hint="write or copy it again") from None
    except OSError as error:
        raise RunsError(error.strerror or str(error), path=str(path), hint="name a file of runs that can be read") from None
    if kept:
        yield kept


def parsed(line: str | bytes) -> Mapping[str, Any]:
    """The object of a line. Raises Wrong."""
    try:
        found = json.loads(line)
    except UnicodeDecodeError:
        raise Wrong("no UTF-8 text") from None
    except RecursionError:
        raise Wrong("nested too deep") from None
    except json.JSONDecodeError as error:
        raise Wrong(f"no JSON: {error.msg.removesuffix(' at')} at column {error.colno} (was the file cut short?)") from None
    except ValueError:
        raise Wrong("a number has too many digits") from None
    if not isinstance(found, dict):
        raise Wrong("expected an object")
    return found
