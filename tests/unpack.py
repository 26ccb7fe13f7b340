"""Content of recordings, whatever packs them: `python tests/unpack.py FILE` writes it to standard output."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import zstandard

PACKED = (".gz", ".zst")


def unpacked(path: Path) -> bytes:
    """Return a file's content without its gzip or zstd."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(content)
    return zstandard.ZstdDecompressor().decompressobj().decompress(content) if path.suffix == ".zst" else content


if __name__ == "__main__":
    sys.stdout.buffer.write(unpacked(Path(sys.argv[1])))
