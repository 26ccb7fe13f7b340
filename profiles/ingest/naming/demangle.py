"""Mangled C++ names (Itanium ABI, as GCC, Clang and nvcc write them) as `c++filt` shows them, within fixed bounds.

Two libraries were tried: itanium_demangler knows no local names, so no lambda; cpp_demangle expands back references without end
(223 characters become 13 MB). Here text is built as it is read, and a name ends as not demangled at MOST_CHARS of text, MOST_STEPS
or MOST_DEPTH (`mangled.cursor`).

Source: Itanium C++ ABI, chapter 5.1 "External Names (a.k.a. Mangling)"; the spelling is that of GNU libiberty.
"""

from __future__ import annotations

from functools import lru_cache

from profiles.ingest.naming.mangled.cursor import OPERATORS, SPECIAL, Cursor, Name, NotMangled, check_length, join
from profiles.ingest.naming.mangled.types import (
    read_expression,
    read_qualifiers,
    read_reference,
    read_template_arguments,
    read_type,
    read_types,
)

# Names of a mangled name: functions with their parameters, scopes, lambdas, operators, constructors.


def read_encoding(cursor: Cursor, local: bool = False) -> str:
    """Read a function with its parameters, or an object; `local`: one within another name, without what it returns."""
    cursor.enter()
    for code, words in SPECIAL.items():
        if cursor.take(code):
            text = words + (join(read_type(cursor)) if code[0] == "T" else read_name(cursor)[0])
            cursor.leave()
            return text
    outer = cursor.arguments
    cursor.arguments = []
    name, is_template, qualifiers = read_name(cursor, own=True)
    text = name
    if cursor.at < len(cursor.text) and cursor.text[cursor.at] not in "E.$@":
        result = read_type(cursor) if is_template else ("", "")
        parameters = read_types(cursor, "E.$@")
        text = f"{name}({parameters}){qualifiers}"
        if is_template and not local:
            text = f"{result[0]}{'' if result[0].endswith('(') else ' '}{text}{result[1]}"
    if local:
        cursor.arguments = outer
    cursor.leave()
    return check_length(text)


def read_name(cursor: Cursor, own: bool = False) -> Name:
    """Read a name with its scopes; `own`: it is that of the function itself, to whose template arguments `T_` refers."""
    cursor.enter()
    try:
        if cursor.take("N"):
            return _read_nested(cursor, own)
        if cursor.take("Z"):
            return _read_local(cursor)
        if cursor.peek("S") and not cursor.peek("St"):
            text = join(cursor.substitution())
        else:
            text = ("std::" if cursor.take("St") else "") + read_unqualified(cursor, "")
            if cursor.peek("I"):
                cursor.remember((text, ""))
        if cursor.peek("I"):
            return _read_template(cursor, text, own), True, ""
        return text, False, ""
    finally:
        cursor.leave()


def _read_template(cursor: Cursor, text: str, own: bool) -> str:
    """`text` with its template arguments; those of `operator<` stand apart."""
    return check_length((f"{text} " if text.endswith("<") else text) + read_template_arguments(cursor, own))


def _read_nested(cursor: Cursor, own: bool) -> Name:
    """Scopes and a name, behind `N`."""
    qualifiers = read_qualifiers(cursor) + read_reference(cursor)
    text, is_template, last = "", False, ""
    while not cursor.take("E"):
        cursor.enter()
        cursor.leave()
        if cursor.peek("S") and not cursor.peek("St"):
            text = last = join(cursor.substitution())
            continue
        if cursor.take("St"):
            text = last = "std"
            continue
        if cursor.peek("I"):
            text, is_template = _read_template(cursor, text, own), True
        elif cursor.peek("T") and not text:
            text = last = join(cursor.parameter())
            continue
        elif cursor.take("M"):                          # the initialiser of a member, in which a lambda stands
            continue
        elif cursor.peek("Dt") or cursor.peek("DT"):
            text = last = join(read_type(cursor))
            continue
        else:
            last = read_unqualified(cursor, last)
            text, is_template = f"{text}::{last}" if text else last, False
        if not cursor.peek("E"):
            cursor.remember((text, ""))
    return text, is_template, qualifiers


def _read_local(cursor: Cursor) -> Name:
    """A name within a function, behind `Z`."""
    scope = read_encoding(cursor, local=True)
    cursor.need("E")
    if cursor.take("s"):
        _skip_discriminator(cursor)
        return f"{scope}::string literal", False, ""
    if cursor.take("d"):
        cursor.sequence()
    name, is_template, qualifiers = read_name(cursor)
    _skip_discriminator(cursor)
    return f"{scope}::{name}", is_template, qualifiers


def _skip_discriminator(cursor: Cursor) -> None:
    if cursor.take("__"):
        cursor.number()
        cursor.need("_")
    elif cursor.peek("_") and cursor.text[cursor.at + 1:cursor.at + 2].isdecimal():
        cursor.at += 2


def read_unqualified(cursor: Cursor, scope: str) -> str:
    """Read one word of a name; `scope`, the word before it, is what a constructor is called."""
    cursor.take("L")
    text = cursor.text
    here = text[cursor.at]
    if here.isdecimal():
        word = cursor.source()
    elif cursor.take("Ul"):
        outer, cursor.in_lambda = cursor.in_lambda, True
        parameters = read_types(cursor, "E")
        cursor.in_lambda = outer
        cursor.need("E")
        word = f"{{lambda({parameters})#{_read_lambda_number(cursor)}}}"
    elif cursor.take("Ut"):
        word = f"{{unnamed type#{_read_lambda_number(cursor)}}}"
    elif here in "CD" and text[cursor.at + 1] in "012345":
        cursor.at += 2
        base = scope.split("<", 1)[0].rsplit("::", 1)[-1]
        word = ("~" if here == "D" else "") + base
    elif cursor.take("cv"):
        word = f"operator {join(read_type(cursor))}"
    elif cursor.take("li"):
        word = f'operator"" {cursor.source()}'
    elif text[cursor.at:cursor.at + 2] in OPERATORS:
        symbol = OPERATORS[text[cursor.at:cursor.at + 2]]
        cursor.at += 2
        word = f"operator{' ' if symbol[0].isalpha() else ''}{symbol}"
    else:
        raise NotMangled
    while cursor.take("B"):
        word += f"[abi:{cursor.source()}]"
    return word


def _read_lambda_number(cursor: Cursor) -> int:
    """`_` -> 1, `0_` -> 2, in base 10."""
    if cursor.take("_"):
        return 1
    number = cursor.number() + 2
    cursor.need("_")
    return number


_LONGEST = 16_000               # of a mangled name


@lru_cache(maxsize=8192)
def demangle(name: str) -> str:
    """Return a mangled name's readable form, "" where it is none or one of the bounds is met."""
    text = name[1:] if name.startswith("__Z") else name
    if not text.startswith("_Z") or len(text) > _LONGEST or not text.isascii():
        return ""
    try:
        reader = _Reader(text)
        form = reader.encoding()
        return form if reader.at == len(text) or text[reader.at] in ".$@" else ""
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
