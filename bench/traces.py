"""Traces of any size for the benches: a real one repeated, with times moved on and ids made fresh."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

REAL = Path(__file__).resolve().parent.parent / "tests" / "data" / "h200" / "kineto_train.json.gz"
_PERIOD_US = 60_000                  # the recording is 49 ms long
_ID_STEP = 1_000_000                 # larger than any id in it
_MOVED = re.compile(rb'("ts": )(\d+)(\.\d+)?|("External id": |"correlation": |"id": |"Ev Idx": |"Sequence number": )(\d+)')


def repeated(times: int, target: Path, real: Path = REAL) -> int:
    """Write `real` repeated as one Kineto file; returns its bytes. Takes about 0.2 s per copy of 3.7 MB."""
    text = gzip.decompress(real.read_bytes())
    begin = text.index(b"[", text.index(b'"traceEvents"')) + 1
    end = text.rindex(b"]")
    body = text[begin:end].rstrip()

    def moved(copy: int) -> bytes:
        def one(match: re.Match[bytes]) -> bytes:
            if match[1]:
                return b"%b%d%b" % (match[1], int(match[2]) + copy * _PERIOD_US, match[3] or b"")
            return b"%b%d" % (match[4], int(match[5]) + copy * _ID_STEP)
        return _MOVED.sub(one, body) if copy else body

    with target.open("wb") as out:
        out.write(text[:begin])
        for copy in range(times):
            out.write((b"," if copy else b"") + moved(copy))
        out.write(text[end:])
    return target.stat().st_size
