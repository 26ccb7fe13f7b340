"""A bare gunzip and one typed decoding pass of the file named on the command line, in chunks of whole records; JSON with
the seconds of both, and of the gunzip alone, on standard output. Nothing is kept: the least that any reader has to do."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from isal import igzip_lib

CHUNK_BYTES = 8 << 20


class Args(msgspec.Struct, gc=False):
    """The arguments that every analysis needs."""

    correlation: int | None = None
    stream: int | str | None = None
    registers: int | None = msgspec.field(default=None, name="registers per thread")
    shared_memory: int | None = msgspec.field(default=None, name="shared memory")
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    external_id: int | None = msgspec.field(default=None, name="External id")


class Event(msgspec.Struct, gc=False):
    ph: str
    name: str = ""
    cat: str | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    ts: float = 0.0
    dur: float = 0.0
    args: Args | None = None


EVENTS = msgspec.json.Decoder(list[Event])


def unpacked(path: Path) -> Iterator[bytes]:
    inflate = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
    with path.open("rb") as file:
        while not inflate.eof:
            block = file.read(1 << 22) if inflate.needs_input else b""
            yield inflate.decompress(block, CHUNK_BYTES)


def decoded(path: Path) -> int:
    """Records of the array `traceEvents`, whose records end in "}," and a line break."""
    records, rest = 0, b""
    for block in unpacked(path):
        if not records and not rest:
            block = block[block.index(b"[", block.index(b'"traceEvents"')) + 1:]
        rest += block
        cut = rest.rfind(b"\n  },\n") + 4
        if cut > 4:
            records += len(EVENTS.decode(b"[" + rest[:cut] + b"]"))
            rest = rest[cut + 1:]
    return records + len(EVENTS.decode(b"[" + rest[:rest.rindex(b"]")] + b"]"))


def main(path: Path) -> None:
    gc.disable()
    began = time.perf_counter()
    size = sum(len(block) for block in unpacked(path))
    gunzip = time.perf_counter() - began
    began = time.perf_counter()
    records = decoded(path)
    sys.stdout.write(json.dumps({"seconds": time.perf_counter() - began, "gunzip_seconds": gunzip, "records": records,
                                 "bytes": size}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
