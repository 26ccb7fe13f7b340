"""Zstd and zip around every format, in any nesting; hostile and damaged archives."""

import gzip
import io
import os
import random
import struct
import zipfile

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles.ingest import read
from profiles.ingest.core.source import Limits, SeveralProfiles, Source
from profiles.ingest.trace import TraceError
from tests.profiles.ingest.corpus import CORPUS, DATA

TEXT = b"".join(b"line %d\n" % i for i in range(140_000))       # 1.6 MB: more than one block
SKIPPABLE = b"\x50\x2a\x4d\x18" + struct.pack("<L", 9) + b"user data"
NOISE = random.Random(1).randbytes(3 << 20)


def zstd(data: bytes, **options) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(data)


def zipped(*entries: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return out.getvalue()


def streamed_zip(name: str, data: bytes) -> bytes:
    """As a writer that cannot seek writes it: sizes behind the content."""
    class Pipe(io.RawIOBase):
        def __init__(self):
            self.parts = []

        def writable(self):
            return True

        def write(self, block):
            self.parts.append(bytes(block))
            return len(block)

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(name, "w") as entry:
        entry.write(data)
    return b"".join(pipe.parts)


def zip64(name: str, data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(name, "w", force_zip64=True) as entry:
        entry.write(data)
    packed = bytearray(out.getvalue())
    where = packed.rfind(b"PK\x01\x02")                   # move the directory's sizes into its zip64 field
    end = packed.rfind(b"PK\x05\x06")
    sizes = struct.unpack_from("<2L", packed, where + 20)
    struct.pack_into("<2L", packed, where + 20, 0xFFFFFFFF, 0xFFFFFFFF)
    extra = struct.pack("<2H2Q", 1, 16, sizes[1], sizes[0])
    name_bytes = struct.unpack_from("<H", packed, where + 28)[0]
    struct.pack_into("<H", packed, where + 30, len(extra))
    packed[where + 46 + name_bytes:where + 46 + name_bytes] = extra
    end += len(extra)
    length, offset = struct.unpack_from("<2L", packed, end + 12)
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, length + len(extra), offset)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, end, 1)
    struct.pack_into("<2L", packed, end + 12, 0xFFFFFFFF, 0xFFFFFFFF)
    packed[end:end] = record + locator
    return bytes(packed)


def everything(path, size: int = 1 << 20, **arguments) -> tuple[bytes, Source]:
    with Source(path, **arguments) as source:
        parts = []
        while part := source.read(size):
            parts.append(part)
        return b"".join(parts), source


def write(tmp_path, data: bytes):
    path = tmp_path / "upload"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(("packed", "layers"), [
    (zstd(TEXT), ["zstd"]),
    (zstd(TEXT[:1000]) + zstd(b"") + zstd(TEXT[1000:], write_checksum=True), ["zstd"]),
    (SKIPPABLE + zstd(TEXT[:9]) + SKIPPABLE + zstd(TEXT[9:]) + SKIPPABLE, ["zstd"]),
    (zstd(TEXT) + b"\0" * 3000, ["zstd"]),
    (zstd(gzip.compress(TEXT)), ["zstd", "gzip"]), (gzip.compress(zstd(TEXT)), ["gzip", "zstd"]),
    (zipped(("trace.json", TEXT)), ["zip"]), (zipped(("t", TEXT), method=zipfile.ZIP_STORED), ["zip"]),
    (streamed_zip("trace.json", TEXT), ["zip"]), (zip64("trace.json", TEXT), ["zip"]),
    (b"#!/bin/sh\n" * 0 + zipped(("a/", b""), ("__MACOSX/a/._t", b"x"), ("a/.DS_Store", b"y"), ("a/t.json", TEXT)), ["zip"]),
    (zipped(("trace.json.gz", gzip.compress(TEXT))), ["zip", "gzip"]),
    (gzip.compress(zipped(("t", TEXT))), ["gzip", "zip"]), (zstd(zipped(("t", gzip.compress(TEXT)))), ["zstd", "zip", "gzip"]),
    (zipped(("inner.zip", zipped(("t", TEXT)))), ["zip", "zip"]),
    (zipped(("../../etc/passwd", TEXT)), ["zip"]), (zipped(("C:\\x\\‮gpj\n.json", TEXT)), ["zip"]),
])
def test_content_decides_what_is_unwrapped(packed, layers, tmp_path):
    path = write(tmp_path, packed)
    content, source = everything(path)
    assert content == TEXT
    assert (source.layers, source.damage, source.position) == (layers, None, len(TEXT))
    assert source.done_bytes == source.total_bytes == len(packed)
    with Source(path) as again, again.as_file() as plain:
        assert plain.read_bytes() == TEXT
    assert os.listdir(tmp_path) == ["upload"]


@pytest.mark.parametrize("pack", [zstd, lambda data: zipped(("t", data)), lambda data: streamed_zip("t", data),
                                  lambda data: zipped(("t", data), method=zipfile.ZIP_STORED),
                                  lambda data: gzip.compress(zstd(data)), lambda data: zstd(zipped(("t", data)))])
def test_a_cut_stream_gives_what_it_holds(pack, tmp_path):
    packed = pack(NOISE)
    path = write(tmp_path, packed[:len(packed) - len(packed) // 3])
    content, source = everything(path)
    assert NOISE.startswith(content[:1 << 20]) and len(content) > 1_500_000
    assert source.damage and source.damage.startswith("byte ")


def test_an_altered_zip_entry_is_noticed(tmp_path):
    data = bytearray(zipped(("t", TEXT), method=zipfile.ZIP_STORED))
    data[1000] ^= 1
    content, source = everything(write(tmp_path, bytes(data)))
    assert len(content) == len(TEXT) and "checksum" in source.damage


def test_a_zip_without_its_directory_is_read_from_its_start(tmp_path):
    data = zipped(("readme.txt", b"hello"), ("t.json", TEXT))
    data = data[:data.rfind(b"PK\x01\x02", 0, data.rfind(b"PK\x01\x02")) - 10]
    content, source = everything(write(tmp_path, data), wanted=lambda head: head.startswith(b"line 0"))
    assert TEXT.startswith(content) and len(content) > len(TEXT) * 0.9 and "ends before its" in source.damage


def test_bytes_that_are_not_zstd_are_noticed(tmp_path):
    content, source = everything(write(tmp_path, zstd(TEXT) + b"something else"))
    assert content == TEXT and "not zstd follow" in source.damage


def test_one_profile_among_other_files_is_found_by_content(tmp_path):
    path = write(tmp_path, zipped(("README", b"words"), ("deep/notes.md", b"# words"), ("data.bin", gzip.compress(TEXT))))
    content, _ = everything(path, wanted=lambda head: head.startswith(b"line 0"))
    assert content == TEXT
    with pytest.raises(TraceError, match=r"none of the archive.s 3 files.*README"):
        Source(path, wanted=lambda head: False)


@pytest.mark.parametrize(("names", "ranks"), [(("r0/trace_0.json", "r1/trace_1.json"), True), (("a.json", "b.json"), False)])
def test_several_profiles_are_named_and_can_be_chosen(names, ranks, tmp_path):
    path = write(tmp_path, zipped(("README", b"words"), *((name, TEXT + name.encode()) for name in names)))

    def wanted(head):
        return head.startswith(b"line 0")
    with pytest.raises(SeveralProfiles, match=names[1]) as error:
        Source(path, wanted=wanted)
    assert (error.value.ranks, error.value.entries) == (ranks, [(1, names[0]), (2, names[1])])
    for number, name in error.value.entries:
        assert everything(path, wanted=wanted, entry=number)[0] == TEXT + name.encode()


def encrypted(data: bytes) -> bytes:
    packed = bytearray(zipped(("secret.json", data)))
    packed[6] |= 1
    packed[packed.rfind(b"PK\x01\x02") + 8] |= 1
    return bytes(packed)


def nested(times: int) -> bytes:
    data = TEXT[:1000]
    for _ in range(times):
        data = zipped(("t.zip", data))
    return data


@pytest.mark.parametrize(("data", "what"), [
    (encrypted(TEXT), "secret.json.*is encrypted"), (zipped(("t", TEXT[:3000]), method=zipfile.ZIP_LZMA), "method 14"),
    (zipped(), "without a readable file"), (zipped(("folder/", b"")), "without a readable file"), (nested(4), "more than 3 times"),
    (zipped(("a", b"PK\x05\x06")), "without a readable file"), (b"PK\x03\x04", "without a readable file"),
    (zstd(TEXT)[:9], "nothing can be unpacked"), (b"\x28\xb5\x2f\xfd" + b"\xff" * 50, "nothing can be unpacked"),
    (zipped(*((f"{i}.txt", b"") for i in range(300))), "300 files"), (SKIPPABLE[:10], "nothing can be unpacked"),
])
def test_what_cannot_be_read_says_why(data, what, tmp_path):
    with pytest.raises(TraceError, match=what):
        Source(write(tmp_path, data))


def test_a_window_larger_than_128_mib_is_refused(tmp_path):
    window = zstandard.ZstdCompressionParameters.from_level(1, window_log=29, enable_ldm=True)
    with pytest.raises(TraceError, match="window of more than 128 MiB"):
        Source(write(tmp_path, zstandard.ZstdCompressor(compression_params=window).compressobj().compress(NOISE * 40)))


@pytest.mark.parametrize("bomb", [
    zstd(b"\0" * (16 << 20)), zipped(("t", b"\0" * (16 << 20))), zipped(("t", zstd(b"\0" * (16 << 20)))),
    gzip.compress(zipped(("t", b"\0" * (16 << 20)), method=zipfile.ZIP_STORED)),
])
def test_expansion_is_bounded(bomb, tmp_path):
    with pytest.raises(TraceError, match="expands to more than"):
        everything(write(tmp_path, bomb), limits=Limits(expanded_bytes=8 << 20))
    with pytest.raises(TraceError, match="times the upload"):
        everything(write(tmp_path, bomb), limits=Limits(free_bytes=8 << 20))


def test_expansion_between_the_layers_is_bounded(tmp_path):
    empty = b"\x00\x00\x00\xff\xff" * 4_000_000                # stored deflate blocks that hold nothing
    with pytest.raises(TraceError, match="times the upload"):
        everything(write(tmp_path, gzip.compress(gzip.compress(b"x", 0)[:10] + empty)), limits=Limits(free_bytes=8 << 20))


@pytest.mark.parametrize("pack", [zstd, lambda data: zipped(("a", data), ("b", b"x")), lambda data: gzip.compress(zstd(data))])
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_damage_breaks_the_reader(pack, tmp_path_factory, data):
    packed = bytearray(pack(TEXT[:3000]))
    for _ in range(data.draw(st.integers(0, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(4, len(packed)))
    path = tmp_path_factory.mktemp("c") / "upload"
    path.write_bytes(packed[:cut])
    try:
        content, _ = everything(path, wanted=lambda head: True, limits=Limits(expanded_bytes=1 << 20))
    except TraceError as error:
        assert error.where and error.what and error.hint
    else:
        assert len(content) <= 1 << 20


def pieces_of(path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


FORMATS = {
    "kineto": CORPUS / "kineto" / "hta_alexnet_a100_critical_path.json.gz", "chrome": CORPUS / "chrome" / "speedscope_simple.json",
    "ncu-rep": CORPUS / "ncu" / "speedy_scan_rtx3070.ncu-rep",
    "ncu-csv": CORPUS / "ncu_csv" / "speedy_scan_rtx3070.raw_base_units.csv",
    "nsys-sqlite": CORPUS / "nsys" / "nsysai_healthy_minimal.sqlite.gz", "xplane": DATA / "recorded" / "jax_xplane.pb",
    "perfetto": CORPUS / "broken" / "jacc_truncated.pftrace", "proton": CORPUS / "proton" / "tritonbench_h100_softmax.hatchet",
    "proton-trace": DATA / "recorded" / "proton_trace.chrome_trace", "torch-snapshot": DATA / "recorded" / "torch_snapshot.pickle",
}
WRAPPINGS = {
    "zstd": zstd, "zip": lambda data: zipped(("readme.txt", b"words"), ("dir/profile", data)),
    "zstd in gzip": lambda data: gzip.compress(zstd(data), 1), "gzip in zip": lambda data: zipped(("p.gz", gzip.compress(data, 1))),
    "zip in zstd": lambda data: zstd(zipped(("p", data))), "zip in gzip in zip": lambda data: zipped(
        ("outer", gzip.compress(zipped(("inner", data)), 1))),
}


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_every_format_is_read_out_of_every_wrapping(format, tmp_path):
    data = pieces_of(FORMATS[format])
    plain = read(write(tmp_path, data))
    for name, wrap in WRAPPINGS.items():
        found = read(write(tmp_path, wrap(data)))
        assert (found.format, type(found)) == (plain.format, type(plain)), name
        assert found.integrity.records_kept == plain.integrity.records_kept > 0, name
        assert found.integrity.truncated_at == plain.integrity.truncated_at, name
