"""Mangled C++ names (Itanium ABI, as GCC, Clang and nvcc write them) as `c++filt` shows them, within fixed bounds.

Two libraries were tried: itanium_demangler knows no local names, so no lambda; cpp_demangle expands back references without end
(223 characters become 13 MB). Here text is built as it is read, and a name ends as not demangled at MOST_CHARS of text, MOST_STEPS
or MOST_DEPTH (`mangled.cursor`).

Source: Itanium C++ ABI, chapter 5.1 "External Names (a.k.a. Mangling)"; the spelling is that of GNU libiberty.
"""

from __future__ import annotations

from functools import lru_cache

from profiles.ingest.naming.mangled.arguments import read_expression, read_template_arguments
from profiles.ingest.naming.mangled.cursor import Cursor, Name, NotMangled
from profiles.ingest.naming.mangled.names import read_encoding, read_name, read_unqualified

_LONGEST = 16_000               # of a mangled name


@lru_cache(maxsize=8192)
def demangle(name: str) -> str:
    """Return a mangled name's readable form, "" where it is none or one of the bounds is met."""
    text = name[1:] if name.startswith("__Z") else name
    if not text.startswith("_Z") or len(text) > _LONGEST or not text.isascii():
        return ""
    try:
        reader = _Reader(text)
        found = reader.encoding()
        return found if reader.at == len(text) or text[reader.at] in ".$@" else ""
    except (NotMangled, IndexError, ValueError):
        return ""


class _Reader(Cursor):
    """A cursor with the rules of the whole grammar."""

    def encoding(self, local: bool = False) -> str:
        return read_encoding(self, local)

    def name(self) -> Name:
        return read_name(self)

    def unqualified(self, scope: str) -> str:
        return read_unqualified(self, scope)

    def template_arguments(self) -> str:
        return read_template_arguments(self)

    def expression(self) -> str:
        return read_expression(self)
