"""What may be wrong with a file: bytes, numbers and words of a text, fields of a protobuf message, cells of a database.

A mutation is (name, where, how): `where` and `how` are whole numbers of any size, taken modulo what there is, so that any
choice of them means something and a smaller choice is a simpler mutation.
"""

from __future__ import annotations

import re
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

Mutation = tuple[str, int, int]
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_WORD = re.compile(rb'"[^"\\\n]{0,200}"')
NUMBERS = (b"0", b"-1", b"1e400", b"-1e400", b"NaN", b"Infinity", b"-Infinity", b"9223372036854775807", b"-9223372036854775808",
           b"18446744073709551616", b"1" * 400, b"0.0000001", b"1e18", b"-0.0", b"null", b'"x"', b"[]", b"{}", b"true", b"N/A", b"")
WORDS = (b'""', b'"\xff\xfe"', b'"\\ud800"', b'"\\u0000"', b'"X"', b'"B"', b'"E"', b'"M"', b'"C"', b'"s"', b'"f"', b'"kernel"',
         b'"gpu_memcpy"', b"null", b"7", b"[[]]", b'{"a":{}}', b'"' + b"x" * 5000 + b'"', b'"', b'"nan"', b'"1,234.5"', b'"-"')
PIECES = (b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\x00", b"\xff", b"\n", b"[" * 3000, b'{"a":' * 3000, b"\xef\xbb\xbf",
          b"\x80" * 12, b"PK\x03\x04", b"\x1f\x8b\x08\x00", b"\x28\xb5\x2f\xfd", b"SQLite format 3\x00", b"\x80\x04\x95", b"R",
          b"c__builtin__\neval\n")
INTEGERS = (0, 1, -1, 127, 128, 255, 256, 32767, 65535, 2**31 - 1, -2**31, 2**32 - 1, 2**63 - 1, -2**63)
VALUES = (None, -1, 0, 2**63 - 1, -2**63, 1.5, float("inf"), -1e300, "", "x", "nan", "9" * 400, b"", b"\xff" * 20, "ü" * 3000)


def mutate(content: bytes, mutations: Sequence[Mutation], other: bytes = b"") -> bytes:
    """`content` with the mutations done one after the other; `other` is a file of the same format to splice with."""
    for name, where, how in mutations:
        content = MUTATIONS[name](content, where, how, other)[:4 << 20]
    return content


def _flip(content: bytes, where: int, how: int, other: bytes) -> bytes:
    at = where % max(len(content), 1)
    return content[:at] + bytes([content[at] ^ (1 << how % 8)]) + content[at + 1:] if content else content


def _byte(content: bytes, where: int, how: int, other: bytes) -> bytes:
    at = where % max(len(content), 1)
    return content[:at] + bytes([how % 256]) + content[at + 1:]


def _cut(content: bytes, where: int, how: int, other: bytes) -> bytes:
    return content[:where % (len(content) + 1)]


def _behead(content: bytes, where: int, how: int, other: bytes) -> bytes:
    return content[where % (len(content) + 1):]


def _remove(content: bytes, where: int, how: int, other: bytes) -> bytes:
    at = where % (len(content) + 1)
    return content[:at] + content[at + 1 + how % 200:]


def _repeat(content: bytes, where: int, how: int, other: bytes) -> bytes:
    at = where % (len(content) + 1)
    piece = content[at:at + 1 + how % 1000]
    return content[:at] + piece * (2 + how % 5) + content[at + len(piece):]


def _insert(content: bytes, where: int, how: int, other: bytes) -> bytes:
    at = where % (len(content) + 1)
    return content[:at] + PIECES[how % len(PIECES)] + content[at:]


def _integer(content: bytes, where: int, how: int, other: bytes) -> bytes:
    size = (1, 2, 4, 8)[how // (2 * len(INTEGERS)) % 4]
    value = INTEGERS[how % len(INTEGERS)] % (1 << 8 * size)
    at = where % (len(content) + 1)
    return content[:at] + value.to_bytes(size, ("little", "big")[how // len(INTEGERS) % 2]) + content[at + size:]


def _splice(content: bytes, where: int, how: int, other: bytes) -> bytes:
    return content[:where % (len(content) + 1)] + other[how % (len(other) + 1):]


def _token(pattern: re.Pattern[bytes], choices: Sequence[bytes]) -> Callable[[bytes, int, int, bytes], bytes]:
    def change(content: bytes, where: int, how: int, other: bytes) -> bytes:
        found = list(pattern.finditer(content))
        if not found:
            return content
        token = found[where % len(found)]
        return content[:token.start()] + choices[how % len(choices)] + content[token.end():]
    return change


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Value and end of a varint; ValueError where there is none."""
    value = shift = 0
    for end in range(at, min(at + 10, len(content))):
        value |= (content[end] & 0x7F) << shift
        shift += 7
        if content[end] < 0x80:
            return value, end + 1
    raise ValueError


def encoded(value: int) -> bytes:
    value %= 1 << 64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _fields(content: bytes) -> list[tuple[int, int, int, int]]:
    """(start, wire type, start of the value, end) of a message's fields, as far as it is one."""
    out, at = [], 0
    try:
        while at < len(content) and len(out) < 4000:
            tag, value = _varint(content, at)
            kind = tag & 7
            if kind == 0:
                _, end = _varint(content, value)
            elif kind == 2:
                size, value = _varint(content, value)
                end = value + size
            else:
                end = value + {1: 8, 5: 4}[kind]
            if end > len(content):
                break
            out.append((at, kind, value, end))
            at = end
    except (ValueError, KeyError):
        pass
    return out


def _field(content: bytes, where: int, how: int, other: bytes) -> bytes:
    """Another value in a field of a protobuf message, down to 12 messages deep; the lengths around it stay right."""
    return _field_at(content, where, how, 12)


def _field_at(content: bytes, where: int, how: int, depth: int) -> bytes:
    fields = _fields(content)
    if not fields:
        return content
    start, kind, value, end = fields[where % len(fields)]
    head = content[start:value] if kind != 2 else encoded(_varint(content, start)[0])
    if kind == 0:
        return content[:value] + encoded(INTEGERS[how % len(INTEGERS)]) + content[end:]
    if kind != 2:
        size = end - value
        return content[:value] + (INTEGERS[how % len(INTEGERS)] % (1 << 8 * size)).to_bytes(size, "little") + content[end:]
    inner, choice = content[value:end], how % 8
    if choice < 5 and depth and len(_fields(inner)) > 1:
        inner = _field_at(inner, where // len(fields), how // 8, depth - 1)
    elif choice == 5:
        return content[:start] + content[end:]
    elif choice == 6:
        return content[:end] + content[start:end] * (1 + how % 30) + content[end:]
    else:
        inner = (b"", b"\xff" * 9, inner[::-1], inner * 3, b"x" * 9000)[how // 8 % 5]
    return content[:start] + head + encoded(len(inner)) + inner + content[end:]


def _cell(content: bytes, where: int, how: int, other: bytes) -> bytes:
    """Another value in a column of a database, in one row or in all; or the column or table gone or renamed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.sqlite"
        path.write_bytes(content)
        database = sqlite3.connect(path)
        try:
            tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
            table = tables[where % len(tables)]
            columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
            column, value = columns[where // len(tables) % len(columns)], VALUES[how // 8 % len(VALUES)]
            database.execute((
                f'UPDATE "{table}" SET "{column}" = ?1 WHERE rowid = (SELECT min(rowid) FROM "{table}")',
                f'UPDATE "{table}" SET "{column}" = ?1',
                f'UPDATE "{table}" SET "{column}" = ?1 WHERE rowid % 2', f'DELETE FROM "{table}" WHERE ?1 IS NOT 5 AND rowid % 2',
                f'ALTER TABLE "{table}" DROP COLUMN "{column}"', f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "other"',
                f'ALTER TABLE "{table}" RENAME TO "OTHER"', f'DROP TABLE "{table}"')[how % 8], (value,) if how % 8 < 4 else ())
            database.commit()
        except (sqlite3.Error, IndexError, ZeroDivisionError, OverflowError):
            return content
        finally:
            database.close()
        return path.read_bytes()


MUTATIONS: dict[str, Callable[[bytes, int, int, bytes], bytes]] = {
    "flip": _flip, "byte": _byte, "cut": _cut, "behead": _behead, "remove": _remove, "repeat": _repeat, "insert": _insert,
    "integer": _integer, "splice": _splice, "number": _token(_NUMBER, NUMBERS), "word": _token(_WORD, WORDS), "field": _field,
    "cell": _cell}
_BYTES = ("flip", "byte", "cut", "behead", "remove", "repeat", "insert", "integer", "splice")
_TEXT = (*_BYTES, "number", "word", "number", "word", "number", "word")
OF = {
    **dict.fromkeys(("xplane", "perfetto"), (*_BYTES, *("field",) * 12)),
    "nsys-sqlite": ("flip", "byte", "cut", "integer", *("cell",) * 8),
}


def mutations_of(kind: str, seed: bytes) -> tuple[str, ...]:
    """Names of the mutations of a format, the likelier the more often: those of text where its seed is one."""
    try:
        return OF.get(kind) or (_TEXT if seed.decode() else _BYTES)
    except UnicodeDecodeError:
        return _BYTES
