"""Plain data out of a pickle by walking its opcodes: containers, texts and numbers, and nothing else.

No Unpickler is constructed. A pickle is a program for a stack machine; the opcodes that build dicts, lists, tuples, texts and
numbers are carried out here, and any other (those that import, call or build objects) is refused by name and byte. Keys must
be texts: Python randomises their hashes, those of numbers can be made to collide.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any

from profiles.ingest.core.source import Source
from profiles.ingest.trace import TraceError

MAX_OPCODES = 200_000_000
MAX_VALUES = 10_000_000                  # containers, texts, numbers and what is remembered of them: 1.5 million entries
MAX_OPEN = 1_000_000                     # values that wait for their container; picklers write at most 1,000 at once per level
MAX_TEXT_BYTES = 1 << 20                 # one text; names of C++ functions take a few kB
MAX_NUMBER_BYTES = 16
_LINE_BYTES = 200
_BLOCK = 1 << 20
_PROGRESS_OPCODES = 1 << 18
_HINT = "Only snapshots written by torch.cuda.memory._dump_snapshot (plain dicts and lists) are read."


class Opcodes:
    """What pickletools reads from: bounded reads of the content. Counts where it is."""

    def __init__(self, source: Source) -> None:
        self.source, self.at = source, 0
        self._block, self._place = b"", 0

    def read(self, size: int) -> bytes:
        if size > MAX_TEXT_BYTES:
            raise TraceError(f"byte {self.at}", f"a text of {size} bytes in the pickle", _HINT)
        end = self._place + size
        if end > len(self._block):
            self._block = self._block[self._place:] + self.source.read(max(_BLOCK, size))
            self._place, end = 0, size
        out = self._block[self._place:end]
        self._place += len(out)
        self.at += len(out)
        return out

    def readline(self) -> bytes:
        """Return a line, for opcodes that name what they import or are of protocol 0.

        None of these is carried out.
        """
        out = b""
        while not out.endswith(b"\n") and len(out) < _LINE_BYTES and (byte := self.read(1)):
            out += byte
        return out

    def tell(self) -> int:
        return self.at


class PlainPickle:
    """The walk: `value` is what the pickle builds; `cut_at` the byte where it ends too early (what was built until then is
    put together as far as it goes)."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self.opcodes = self.values = 0
        self.cut_at: int | None = None
        self.value = self._walk()

    def _walk(self) -> Any:
        reading = Opcodes(self._source)
        action_by_name = {name: getattr(self, f"_{name.lower()}") for name in _CARRIED_OUT}
        try:
            for opcode, argument, place in pickletools.genops(reading):  # type: ignore[arg-type]  # reads, readlines and tells
                offset = place or 0
                self.opcodes += 1
                if opcode.name in _MAKING:
                    self.values += 1
                action: Callable[[Any], None] | None = action_by_name.get(opcode.name)
                if action is None:
                    named = self._stack[-2:] if opcode.name == "STACK_GLOBAL" else [argument]
                    raise _refusal(opcode.name, " ".join(part for part in named if isinstance(part, str)), offset)
                try:
                    action(argument)
                except (IndexError, KeyError, AttributeError, TypeError) as error:
                    raise TraceError(f"byte {offset}", f"a pickle that does not fit together at {opcode.name} ({_kind(error)})",
                                     _HINT) from None
                if self.opcodes % _PROGRESS_OPCODES == 0:
                    self._step(offset)
        except ValueError:              # a damaged opcode, or text that is none
            self._ended_early(reading.at)
        if len(self._stack) != 1 and self.cut_at is None:
            raise TraceError(f"byte {reading.at}", "a pickle that leaves more or less than one value", _HINT)
        return self._stack[0] if self._stack else None

    def _step(self, offset: int) -> None:
        self._source.progress("reading", self.opcodes)
        if self.opcodes > MAX_OPCODES or self.values > MAX_VALUES:
            raise TraceError(f"byte {offset}", f"a pickle of more than {MAX_VALUES:,} values or {MAX_OPCODES:,} steps",
                             "Record fewer entries (max_entries=…).")
        if len(self._stack) > MAX_OPEN or len(self._marks) > MAX_OPEN:
            raise TraceError(f"byte {offset}", f"a pickle that nests its values deeper than {MAX_OPEN:,} at once", _HINT)

    def _ended_early(self, offset: int) -> None:
        """The content is cut or damaged: close what is open, from the innermost outwards."""
        if not self._stack:
            raise TraceError(f"byte {offset}", "a pickle that is damaged from its beginning", "Copy the file again.")
        self.cut_at = offset
        while self._marks:
            mark = self._marks[-1]
            below = self._stack[mark - 1] if 0 < mark <= len(self._stack) else None      # damaged opcodes may pop what is below
            items = self._pop_mark()
            if isinstance(below, list):
                below.extend(items)
            elif isinstance(below, dict):
                self._into(below, _fold_items(items), strict=False)
        while len(self._stack) > 1:
            top = self._stack.pop()
            if isinstance(self._stack[-1], list):
                self._stack[-1].append(top)
            elif len(self._stack) > 1 and isinstance(self._stack[-1], str) and isinstance(self._stack[-2], dict):
                self._stack[-2][self._stack.pop()] = top

    def _pop_mark(self) -> list[Any]:
        mark = self._marks.pop()
        items = self._stack[mark:]
        del self._stack[mark:]
        return items

    def _into(self, target: dict[Any, Any], items: list[Any], strict: bool = True) -> None:
        keys, values = items[::2], items[1::2]
        if len(keys) != len(values) or any(type(key) is not str for key in keys):
            if strict:
                raise TypeError("a key that is no text")
            keys = [key if type(key) is str else "" for key in keys]
        target.update(zip(keys, values, strict=False))

    # one method per opcode; `argument` is what pickletools decoded
    def _proto(self, argument: Any) -> None:
        if argument > 5:
            raise TypeError("a protocol of the future")

    def _frame(self, argument: Any) -> None: ...

    def _stop(self, argument: Any) -> None: ...

    def _mark(self, argument: Any) -> None:
        self._marks.append(len(self._stack))

    def _push(self, argument: Any) -> None:
        self._stack.append(argument)

    _binint = _binint1 = _binint2 = _binfloat = _push

    def _binunicode(self, argument: Any) -> None:
        """Texts without lone surrogates, which pickles may hold and UTF-8 may not."""
        self._stack.append(argument if argument.isascii() else argument.encode("utf-8", "replace").decode())

    _short_binunicode = _binunicode8 = _binunicode

    def _long1(self, argument: Any) -> None:
        if abs(argument) >= 1 << 8 * MAX_NUMBER_BYTES:
            raise TypeError("a number of more than 16 bytes")
        self._stack.append(argument)

    def _none(self, argument: Any) -> None:
        self._stack.append(None)

    def _newtrue(self, argument: Any) -> None:
        self._stack.append(True)

    def _newfalse(self, argument: Any) -> None:
        self._stack.append(False)

    def _empty_dict(self, argument: Any) -> None:
        self._stack.append({})

    def _empty_list(self, argument: Any) -> None:
        self._stack.append([])

    def _empty_tuple(self, argument: Any) -> None:
        self._stack.append(())

    def _tuple(self, argument: Any) -> None:
        self._stack.append(tuple(self._pop_mark()))

    def _tuple_of(self, size: int) -> None:
        items = tuple(self._stack[-size:])
        if len(items) < size or (self._marks and len(self._stack) - size < self._marks[-1]):
            raise IndexError("too few values")
        del self._stack[-size:]
        self._stack.append(items)

    def _tuple1(self, argument: Any) -> None:
        self._tuple_of(1)

    def _tuple2(self, argument: Any) -> None:
        self._tuple_of(2)

    def _tuple3(self, argument: Any) -> None:
        self._tuple_of(3)

    def _append(self, argument: Any) -> None:
        item = self._stack.pop()
        self._require_list(self._stack[-1]).append(item)

    def _appends(self, argument: Any) -> None:
        items = self._pop_mark()
        self._require_list(self._stack[-1]).extend(items)

    @staticmethod
    def _require_list(value: Any) -> list[Any]:
        if type(value) is not list:
            raise TypeError("no list")
        return value

    def _setitem(self, argument: Any) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._fill_dict(self._stack[-1], [key, value])

    def _setitems(self, argument: Any) -> None:
        items = self._pop_mark()
        self._fill_dict(self._stack[-1], items)

    def _fill_dict(self, target: Any, items: list[Any]) -> None:
        if type(target) is not dict:
            raise TypeError("no dict")
        self._into(target, items)

    def _memoize(self, argument: Any) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _binput(self, argument: Any) -> None:
        self._memo[argument] = self._stack[-1]

    _long_binput = _binput

    def _binget(self, argument: Any) -> None:
        self._stack.append(self._memo[argument])

    _long_binget = _binget


_CARRIED_OUT = (
    "PROTO", "FRAME", "STOP", "MARK", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "NONE", "NEWTRUE", "NEWFALSE",
    "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2",
    "TUPLE3", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET")


_MAKING = frozenset(_CARRIED_OUT) - {"PROTO", "FRAME", "STOP", "MARK", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "BINGET",
                                     "LONG_BINGET", "NONE", "NEWTRUE", "NEWFALSE", "EMPTY_TUPLE"}


def _fold_items(items: list[Any]) -> list[Any]:
    """Keys and values of a dict whose building was cut off: a value that was about to be appended to a list goes there."""
    out: list[Any] = []
    for item in items:
        if len(out) % 2 == 0 and out and type(item) is not str and isinstance(out[-1], list):
            out[-1].append(item)
        else:
            out.append(item)
    return out[:len(out) // 2 * 2]


def _refusal(name: str, argument: str, offset: int) -> TraceError:
    what = f" ({argument[:60]})" if argument else ""
    return TraceError(f"byte {offset}", f"the pickle wants to do {name}{what}, which plain data never needs: it was not done",
                      _HINT)


def _kind(error: Exception) -> str:
    return str(error) if isinstance(error, TypeError) and len(str(error)) < 60 else "a value is missing"
