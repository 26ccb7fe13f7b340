"""The worst that an upload may hold, by name: each ends as a profile with counted loss or as one clear error, within the time
and memory that stand beside it. Both are bounds for a busy machine; docs/formats.md has what a quiet one takes.

Sizes and memory are those of `make test-deep`; `make test` takes a tenth of both, and less of what takes seconds even so."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import zstandard

from profiles.ingest.core import source
from tests.fuzzing.judge import Verdict, judged, look
from tests.fuzzing.mutations import encoded
from tests.fuzzing.seeds import CUTLASS, seeds
from tests.scale import DEEP, scale, scale_bound

pytestmark = pytest.mark.slow

MIB, GIB = 1 << 20, 1 << 30
DEPTH = scale(10_000_000)
MILLION = 1_000_000 if DEEP else 30_000
PICKLED = DEPTH if DEEP else DEPTH // 5
KINETO = b'{"schemaVersion": 1, "deviceProperties": [], "traceEvents": ['
CHROME = b'{"traceEvents": ['
EVENT = b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":2,"args":{"device":0,"stream":7}}'


def verdict(tmp_path: Path, content: bytes | Callable[[Path], object], seconds: float, memory_bytes: int) -> Verdict:
    path = tmp_path / "upload"
    if callable(content):
        content(path)
    else:
        path.write_bytes(content)
    found = judged(path, seconds, memory_bytes)
    assert not found.wrong, (found.wrong, found.told, f"{found.seconds:.1f} s", f"{found.peak_bytes / MIB:.0f} MiB")
    return found


@pytest.fixture
def settings_put_back(settings: Any) -> None:
    """What `look` sets is forgotten after the test."""
    settings.HOME, settings.STORAGES = settings.HOME, settings.STORAGES


def read_small(tmp_path: Path, content: bytes) -> dict[str, Any]:
    """Return what is said of a small file, read in this process: no bound is near."""
    path = tmp_path / "upload"
    path.write_bytes(content)
    told = look(path, tmp_path)
    assert not told["wrong"], told
    return told


def message(number: int, inner: bytes) -> bytes:
    """A field of a protobuf message that holds a message or bytes."""
    return encoded(number << 3 | 2) + encoded(len(inner)) + inner


# bombs: what is packed a thousand times smaller than it is

def gzip_bomb(first: bytes, fill: bytes) -> bytes:
    return gzip.compress(first, mtime=0) + gzip.compress(fill * (scale(64 * MIB) // len(fill)), mtime=0) * 16


def zip_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("trace.json", "w", force_zip64=True) as file:
        file.write(KINETO)
        for _ in range(24):
            file.write(b" " * scale(32 * MIB))


BOMBS: dict[str, Callable[[], bytes | Callable[[Path], object]]] = {
    "gzip of spaces": lambda: gzip_bomb(KINETO, b" "),
    "gzip of zeros": lambda: gzip_bomb(b"", b"\0"),
    "gzip of records": lambda: gzip_bomb(KINETO, EVENT + b","),
    "gzip in gzip": lambda: gzip.compress(gzip_bomb(KINETO, b" "), mtime=0),
    "zstd": lambda: b"".join([zstandard.compress(KINETO), zstandard.compress(b" " * scale(64 * MIB)) * 16]),
    "zstd with a window of 2 GiB": lambda: b"\x28\xb5\x2f\xfd\x00" + bytes([21 << 3]) + b"\x00" * 40,
    "zip": lambda: zip_bomb,
}


@pytest.mark.deep
@pytest.mark.parametrize("make", BOMBS.values(), ids=BOMBS.keys())
def test_bombs(make: Callable[[], bytes | Callable[[Path], object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an eighth of what an upload may expand to, or less: time grows with it, memory does not."""
    monkeypatch.setattr(source, "Limits", partial(source.Limits, free_bytes=128 * MIB if DEEP else 3 * MIB))
    assert verdict(tmp_path, make(), seconds=90, memory_bytes=scale_bound(1200 * MIB)).told["status"] == "failed"


# nesting, ten million deep

def deep_message(depth: int) -> bytes:
    """A message in a message …, built from the inside; lengths are at most ten bytes."""
    sizes, size = [], 0
    for _ in range(depth):
        sizes.append(size)
        size += 1 + len(encoded(size))
    return b"".join(b"\x0a" + encoded(each) for each in reversed(sizes))


NESTED: dict[str, Callable[[], bytes]] = {
    "lists in a record": lambda: KINETO + EVENT + b',{"ph":"X","name":"n","ts":1,"dur":1,"args":{"a":' + b"[" * DEPTH,
    "closed lists in a record": lambda: KINETO + EVENT + b',{"ph":"X","name":"n","ts":1,"dur":1,"args":{"a":' + b"[" * DEPTH
    + b"]" * DEPTH + b"}}," + EVENT + b"]}",
    "objects in a record": lambda: KINETO + EVENT + b',{"ph":"X","name":"n","ts":1,"dur":1,"args":' + b'{"a":' * DEPTH,
    "lists before the records": lambda: b'{"schemaVersion":1,"deviceProperties":' + b"[" * DEPTH,
    "lists in place of records": lambda: CHROME + b"[" * DEPTH,
    "nothing but lists": lambda: b"[" * DEPTH,
    "Proton tree": lambda: b'[{"frame":{"name":"ROOT"},"metrics":{},"children":'
    + b'[{"frame":{"name":"a"},"metrics":{},"children":' * (DEPTH // 40),
    "nsys stats": lambda: b'[{"Time (%)":' + b"[" * DEPTH,
    "XProf": lambda: b'{"displayTimeUnit":"ns","metadata":{"highres-ticks":true},"traceEvents":[' + EVENT + b',{"args":'
    + b"[" * DEPTH,
    "pickle": lambda: b"\x80\x04" + b"(" * PICKLED + b"t" * PICKLED + b".",
    "pickle of lists": lambda: b"\x80\x04" + b"]" * PICKLED + b"a" * (PICKLED - 1) + b".",
    "XPlane": lambda: seeds("xplane")[0] + deep_message(DEPTH // 4),
    "Perfetto": lambda: seeds("perfetto")[0][:20_000] + message(1, message(11, deep_message(DEPTH // 4))),
}


@pytest.mark.deep
@pytest.mark.parametrize("make", NESTED.values(), ids=NESTED.keys())
def test_nesting(make: Callable[[], bytes], tmp_path: Path) -> None:
    verdict(tmp_path, make(), seconds=90, memory_bytes=scale_bound(1500 * MIB))


# a million tracks

def million_threads(path: Path) -> None:
    with path.open("wb") as file:
        file.write(KINETO)
        for n in range(MILLION):
            file.write(b'{"ph":"X","cat":"cpu_op","name":"op","pid":%d,"tid":%d,"ts":%d,"dur":1},' % (n % 1000, n, n))
        file.write(EVENT + b"]}")


def million_counters(path: Path) -> None:
    with path.open("wb") as file:
        file.write(CHROME)
        for n in range(MILLION):
            file.write(b'{"ph":"C","name":"c%d","pid":1,"ts":%d,"args":{"v":1}},' % (n, n))
        file.write(EVENT + b"]}")


def million_descriptors(path: Path) -> None:
    """Perfetto: each track is described (uuid, name) and holds one slice."""
    with path.open("wb") as file:
        for n in range(1, MILLION + 1):
            track = encoded(1 << 3) + encoded(n) + message(2, b"t%d" % n)
            event = encoded(9 << 3) + encoded(3) + encoded(11 << 3) + encoded(n) + message(23, b"e")
            file.write(message(1, message(60, track)))
            file.write(message(1, encoded(8 << 3) + encoded(n) + encoded(10 << 3) + encoded(1) + message(11, event)))


TRACKS = {"threads": million_threads, "counters": million_counters, "Perfetto descriptors": million_descriptors}


@pytest.mark.deep
@pytest.mark.parametrize("make", [pytest.param(make, id=name, marks=[pytest.mark.deep_only] * (name == "counters"))
                                  for name, make in TRACKS.items()])
def test_a_million_tracks(make: Callable[[Path], None], tmp_path: Path) -> None:
    found = verdict(tmp_path, make, seconds=150, memory_bytes=scale_bound(2 * GIB))
    assert found.told["status"] == "ready"


# one text of 100 MB

LONG = b"x" * scale(100_000_000)
TEXTS: dict[str, Callable[[], bytes]] = {
    "name": lambda: KINETO + EVENT + b',{"ph":"X","cat":"cpu_op","pid":1,"tid":1,"ts":1,"dur":1,"name":"' + LONG + b'"},'
    + EVENT + b"]}",
    "argument": lambda: KINETO + EVENT + b',{"ph":"X","name":"n","pid":1,"tid":1,"ts":1,"dur":1,"args":{"a":"' + LONG + b'"}}]}',
    "text without an end": lambda: KINETO + EVENT + b',{"ph":"X","name":"' + LONG,
    "escapes": lambda: KINETO + EVENT + b',{"ph":"X","pid":1,"tid":1,"ts":1,"dur":1,"name":"' + b"\\u0041" * (len(LONG) // 6)
    + b'"}]}',
    "before the records": lambda: b'{"schemaVersion":1,"deviceProperties":[],"a":"' + LONG + b'","traceEvents":[' + EVENT + b"]}",
    "Chrome name": lambda: CHROME + EVENT.replace(b'"k"', b'"' + LONG + b'"') + b"," + EVENT + b"]}",
    "number of digits": lambda: KINETO + EVENT + b',{"ph":"X","name":"n","pid":1,"tid":1,"dur":1,"ts":' + b"1" * len(LONG) + b"}]}",
    "CSV cell": lambda: seeds("ncu-csv")[0] + b'"' + LONG + b'"\n',
    "CSV line": lambda: seeds("nsys-stats")[0] + LONG,
    "CUTLASS cell": lambda: CUTLASS + LONG + b",\n",
    "Proton name": lambda: b'[{"frame":{"name":"ROOT","type":"function"},"metrics":{"count":1,"time (ns)":5},"children":['
    + b'{"frame":{"name":"' + LONG + b'","type":"function"},"metrics":{"count":1,"time (ns)":5},"children":[]}]},{"CUDA":{}}]',
    "pickle text": lambda: b"\x80\x04X" + struct.pack("<I", len(LONG)) + LONG + b".",
    "Perfetto name": lambda: seeds("perfetto")[0][:20_000]
    + message(1, message(60, encoded(1 << 3) + encoded(5) + message(2, LONG))),
    "XPlane name": lambda: seeds("xplane")[0] + message(1, message(2, LONG)),
}


@pytest.mark.deep
@pytest.mark.parametrize("make", TEXTS.values(), ids=TEXTS.keys())
def test_a_text_of_100_megabytes(make: Callable[[], bytes], tmp_path: Path) -> None:
    verdict(tmp_path, make(), seconds=90, memory_bytes=scale_bound(1500 * MIB))


# numbers that are none

NOT_NUMBERS = ("NaN", "nan", "-NaN", "Infinity", "-Infinity", "inf", "1e999", "N/A", '"N/A"', '"NaN"', "null", '""', "[]", "-",
               "1e", "0x10", "9" * 400, "1.2.3", '"1,234"')


@pytest.mark.usefixtures("settings_put_back")
@pytest.mark.parametrize("word", NOT_NUMBERS)
@pytest.mark.parametrize("head", [KINETO, CHROME], ids=["kineto", "chrome"])
def test_numbers_that_are_none_in_json(word: str, head: bytes, tmp_path: Path) -> None:
    """In every field that holds a number; the records around stay."""
    records = [EVENT]
    for key in ("ts", "dur", "pid", "tid", "args"):
        event = json.loads(EVENT)
        event[key] = {"device": "@@", "stream": "@@", "correlation": "@@", "grid": ["@@"] * 3} if key == "args" else "@@"
        records += [json.dumps(event).replace('"@@"', word).encode(), EVENT]
    assert read_small(tmp_path, head + b",".join(records) + b"]}")["status"] == "ready"


@pytest.mark.usefixtures("settings_put_back")
@pytest.mark.parametrize("word", ["NaN", "nan", "inf", "-inf", "N/A", "", "-", "1e999", "9" * 400, "1,234,567.5", "1.234,5"])
@pytest.mark.parametrize("kind", ["ncu-csv", "nsys-stats", "cutlass"])
def test_numbers_that_are_none_in_csv(kind: str, word: str, tmp_path: Path) -> None:
    """Some cells of the last line in turn, and all of them together."""
    lines = seeds(kind)[0].decode().rstrip("\n").split("\n")
    quoted = lines[-1].startswith('"')
    cells = lines[-1].strip('"').split('","' if quoted else ",")
    written = f'"{word}"' if quoted or "," in word else word
    joined = [f'"{cell}"' for cell in cells] if quoted else cells
    step = max(1, len(cells) // 4)
    for at in [*range(0, len(cells), step), None]:
        changed = [written if at in (None, number) else cell for number, cell in enumerate(joined)]
        read_small(tmp_path, "\n".join([*lines[:-1], ",".join(changed), ""]).encode())


@pytest.mark.deep
def test_a_zip_of_a_million_entries(tmp_path: Path) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for n in range(scale(200_000)):
            archive.writestr(zipfile.ZipInfo(f"{n}"), b"")
        archive.writestr(zipfile.ZipInfo("trace.json"), KINETO + EVENT + b"]}")
    verdict(tmp_path, file.getvalue(), seconds=60, memory_bytes=scale_bound(GIB))
