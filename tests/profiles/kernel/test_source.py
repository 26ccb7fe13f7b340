"""Bytes of an upload: unpacked by content, counted, bounded."""

import gzip
import zlib

import pytest

from profiles.ingest.core.source import Limits, Source
from profiles.ingest.trace import TraceError

TEXT = b"".join(b"line %d\n" % i for i in range(140_000))       # 1.6 MB: more than one block


def everything(path, size: int = 1 << 20, **arguments) -> tuple[bytes, Source]:
    with Source(path, **arguments) as source:
        parts = []
        while part := source.read(size):
            parts.append(part)
        return b"".join(parts), source


def cut_trailer(data: bytes) -> bytes:
    return data[:-8]


@pytest.mark.parametrize(("packed", "layers"), [
    (TEXT, 0), (gzip.compress(TEXT), 1), (gzip.compress(gzip.compress(TEXT)), 2),
    (gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:]), 1), (gzip.compress(TEXT) + b"\0" * 512, 1),
])
@pytest.mark.parametrize("size", [1 << 20, 777])
def test_content_decides_what_is_unpacked(packed, layers, size, tmp_path):
    path = tmp_path / "misleading.txt"
    path.write_bytes(packed)
    content, source = everything(path, size if layers < 2 else 1 << 16)
    assert content == TEXT
    assert (len(source.layers), source.damage, source.position) == (layers, None, len(TEXT))
    assert source.done_bytes == source.total_bytes == len(packed)


def test_a_cut_stream_gives_what_it_holds(tmp_path):
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(TEXT)[:-60_000])
    content, source = everything(path)
    assert TEXT.startswith(content) and len(content) > 1_000_000
    assert "ends before its end mark" in source.damage


def test_a_damaged_stream_says_where(tmp_path):
    data = bytearray(gzip.compress(TEXT))
    data[len(data) // 2:len(data) // 2 + 40] = b"\xff" * 40
    path = tmp_path / "damaged.gz"
    path.write_bytes(data)
    content, source = everything(path)
    assert content[:1000] == TEXT[:1000]
    assert source.damage.startswith("byte ")


def test_bytes_behind_the_stream_are_noticed(tmp_path):
    path = tmp_path / "tail.gz"
    path.write_bytes(gzip.compress(TEXT) + b"something else")
    content, source = everything(path)
    assert content == TEXT and "not gzip" in source.damage


def test_expansion_is_bounded(tmp_path):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"\0" * (64 << 20)))
    with pytest.raises(TraceError, match="expands to more than"):
        everything(path, limits=Limits(expanded_bytes=8 << 20))


def test_too_many_wrappings_are_refused(tmp_path):
    data = TEXT[:1000]
    for _ in range(6):
        data = gzip.compress(data)
    path = tmp_path / "onion.gz"
    path.write_bytes(data)
    with pytest.raises(TraceError, match="gzip within gzip"):
        Source(path)


def test_peeking_takes_nothing(tmp_path):
    path = tmp_path / "file.gz"
    path.write_bytes(gzip.compress(TEXT))
    with Source(path) as source:
        assert source.peek(10) == TEXT[:10]
        assert source.peek() == TEXT[:1 << 20]
        assert source.read(5) == TEXT[:5]


def test_the_content_as_a_file(tmp_path):
    plain, packed = tmp_path / "a", tmp_path / "b"
    plain.write_bytes(TEXT)
    packed.write_bytes(gzip.compress(TEXT))
    with Source(plain) as source, source.as_file() as path:
        assert path == plain
    with Source(packed) as source, source.as_file() as path:
        assert path != packed and zlib.crc32(path.read_bytes()) == zlib.crc32(TEXT)
    assert not path.exists()


def test_progress_goes_up_to_the_file_s_size(tmp_path):
    path = tmp_path / "file.gz"
    path.write_bytes(gzip.compress(TEXT))
    seen = []
    with Source(path, lambda *state: seen.append(state)) as source, source.as_file():
        pass
    assert [state[1] for state in seen] == sorted(state[1] for state in seen)
    assert seen[-1][1] == seen[-1][2] == path.stat().st_size
