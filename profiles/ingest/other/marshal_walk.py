"""Plain data out of marshal's bytes by walking them: dicts, tuples, lists, texts and numbers, and nothing else.

`marshal.loads` is never called: it trusts what it reads. Of the outermost dict the entries are handed out one by one, so that
what stands before a cut or damaged byte is kept. A dict within is a `Pairs`, a list of (key, value): nothing of the file is
hashed. Versions 0 to 5 of marshal, of Python 2.4 and later (Python/marshal.c of CPython).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

MAX_VALUES = 6_000_000                   # a program of 50,000 functions has some 2 million
MAX_DEPTH = 16
MAX_TEXT_BYTES = 1 << 16                 # one text
MAX_ALL_TEXT_BYTES = 128 << 20
MAX_NUMBER_DIGITS = 8                    # of 15 bits each
_BLOCK_BYTES = 1 << 20
_FLAG_REF = 0x80
_NOT_BUILT = object()                    # stands for a container that is still open
_WORDS = {"c": "a code object", "<": "a set", ">": "a set", ":": "a slice", "x": "a complex number", "y": "a complex number",
          ".": "an ellipsis", "S": "a StopIteration"}


class Damage(Exception):
    """Bytes that are not what the walk expects: `at` in the content, and in words what is wrong. `cut`: they end there."""

    def __init__(self, offset: int, what: str, cut: bool = False) -> None:
        super().__init__(what)
        self.at, self.what, self.cut = offset, what, cut


class Pairs(list[tuple[Any, Any]]):
    """A dict as a list of its (key, value), in the order of the file."""


class _Open:
    """A container that waits for its items: how many (a dict ends by itself), and its place among the references."""

    __slots__ = ("is_tuple", "items", "left", "place")

    def __init__(self, items: list[Any], left: int | None, place: int | None, is_tuple: bool) -> None:
        self.items, self.left, self.place, self.is_tuple = items, left, place, is_tuple


_DICT_END = object()


class MarshalWalk:
    """`entries` yields (key, value) of the outermost dict, and raises Damage at the first byte that does not fit."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._block, self._place, self._before = b"", 0, 0
        self._refs: list[Any] = []
        self._interned: list[str] = []
        self._text_bytes = 0
        self.values = 0

    @property
    def at(self) -> int:
        """Return the byte of the content that is read next."""
        return self._before + self._place

    def entries(self) -> Iterator[tuple[Any, Any]]:
        """Raises Damage where the content is cut, is no dict of plain data, or costs more than the limits."""
        if not self._begin():
            raise Damage(0, "not a dict")
        while (key := self._value(is_key=True)) is not _DICT_END:
            yield key, self._value(is_key=False)

    def rest(self) -> int:
        """Return how many bytes are known to follow the dict: none in an honest file."""
        return len(self._block) - self._place or len(self._read(1))

    def _begin(self) -> bool:
        code = self._take(1)[0]
        if code & _FLAG_REF:
            self._refs.append(_NOT_BUILT)
        return chr(code & ~_FLAG_REF) == "{"

    def _take(self, size: int) -> bytes:
        end = self._place + size
        if end > len(self._block):
            self._before += self._place
            self._block = self._block[self._place:] + self._read(max(_BLOCK_BYTES, size))
            self._place, end = 0, size
            if end > len(self._block):
                raise Damage(self._before + len(self._block), "the content ends before its end", cut=True)
        out = self._block[self._place:end]
        self._place = end
        return out

    def _size(self) -> int:
        size: int = struct.unpack("<i", self._take(4))[0]
        if size < 0:
            raise Damage(self.at, "a negative size")
        return size

    def _value(self, is_key: bool) -> Any:
        """Return the next value with everything in it; the end of the outermost dict where a key may stand."""
        stack: list[_Open] = []
        while True:
            value = self._next(stack, ends=is_key and not stack)
            while True:                                     # a value may complete the containers around it
                if isinstance(value, _Open):
                    if value.left != 0:
                        stack.append(value)
                        break
                    value = self._close(value)
                if not stack:
                    return value
                top = stack[-1]
                if value is not _DICT_END:
                    top.items.append(value)
                if top.left is not None:
                    top.left -= 1
                if top.left == 0 or value is _DICT_END:
                    value = self._close(stack.pop())
                else:
                    break

    def _close(self, done: _Open) -> Any:
        value: Any = done.items
        if done.left is None:
            value = Pairs(zip(done.items[::2], done.items[1::2], strict=True))
        elif done.is_tuple:
            value = tuple(done.items)
        if done.place is not None:
            self._refs[done.place] = value
        return value

    def _next(self, stack: list[_Open], ends: bool) -> Any:
        start, byte = self.at, self._take(1)[0]
        code, flagged = chr(byte & ~_FLAG_REF), bool(byte & _FLAG_REF)
        self.values += 1
        if self.values > MAX_VALUES:
            raise Damage(start, f"more than {MAX_VALUES:,} values")
        if code == "0":
            if ends or (stack and stack[-1].left is None and len(stack[-1].items) % 2 == 0):
                return _DICT_END
            raise Damage(start, "the end of a dict where a value belongs")
        if code in "(){[":
            return self._open(start, code, flagged, len(stack))
        value = self._scalar(start, code)
        if flagged and code not in _UNNUMBERED:
            self._refs.append(value)
        return value

    def _open(self, offset: int, code: str, flagged: bool, depth: int) -> _Open:
        if depth >= MAX_DEPTH:
            raise Damage(offset, f"values nested deeper than {MAX_DEPTH}")
        place = len(self._refs) if flagged else None
        if flagged:
            self._refs.append(_NOT_BUILT)                   # numbered when it begins, as marshal does
        size = None if code == "{" else self._take(1)[0] if code == ")" else self._size()
        if size is not None and size > MAX_VALUES:
            raise Damage(offset, f"a tuple of {size:,} values")
        return _Open([], size, place, is_tuple=code in "()")

    def _scalar(self, offset: int, code: str) -> Any:
        if code in _SINGLE:
            return _SINGLE[code]
        if code == "i":
            return struct.unpack("<i", self._take(4))[0]
        if code == "I":
            return struct.unpack("<q", self._take(8))[0]
        if code == "l":
            return self._long(offset)
        if code == "g":
            return struct.unpack("<d", self._take(8))[0]
        if code == "f":
            return self._float_text(offset)
        if code in "stuaAzZ":
            return self._text(offset, code)
        if code == "r":
            return self._reference(offset, self._refs)
        if code == "R":
            return self._reference(offset, self._interned)
        raise Damage(offset, f"{_WORDS.get(code, f'the unknown type 0x{ord(code):02x}')}, which statistics never hold")

    def _long(self, offset: int) -> int:
        count: int = struct.unpack("<i", self._take(4))[0]
        if abs(count) > MAX_NUMBER_DIGITS:
            raise Damage(offset, f"a number of {abs(count):,} digits of 15 bits")
        value = 0
        for place, digit in enumerate(struct.unpack(f"<{abs(count)}H", self._take(2 * abs(count)))):
            if digit >= 1 << 15:
                raise Damage(offset, "a digit of more than 15 bits")
            value |= digit << 15 * place
        return value if count >= 0 else -value

    def _float_text(self, offset: int) -> float:
        try:
            return float(self._take(self._take(1)[0]))
        except ValueError:
            raise Damage(offset, "a number that is none") from None

    def _text(self, offset: int, code: str) -> str:
        size = self._take(1)[0] if code in "zZ" else self._size()
        self._text_bytes += size
        if size > MAX_TEXT_BYTES or self._text_bytes > MAX_ALL_TEXT_BYTES:
            raise Damage(offset, f"a text of {size:,} bytes, {self._text_bytes:,} in all")
        text = self._take(size).decode("latin-1" if code in "aAzZ" else "utf-8", "replace")
        if code == "t":                                     # Python 2 numbers these apart; Python 3 never asks for them so
            self._interned.append(text)
        return text

    def _reference(self, offset: int, known: list[Any]) -> Any:
        number = struct.unpack("<i", self._take(4))[0]
        if not 0 <= number < len(known):
            raise Damage(offset, f"a reference to value {number:,} of {len(known):,}")
        if known[number] is _NOT_BUILT:
            raise Damage(offset, "a reference to a value that contains it")
        return known[number]


_SINGLE: dict[str, Any] = {"N": None, "T": True, "F": False}
_UNNUMBERED = "NTFrR"                    # marshal gives these no number, flagged or not
