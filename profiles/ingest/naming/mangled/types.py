"""Types of a mangled name: pointers, functions, arrays, vectors, `decltype(…)`, and packs that are expanded."""

from __future__ import annotations

from profiles.ingest.naming.mangled.cursor import BUILTIN, EXTENDED, MOST_CHARS, Cursor, NotMangled, Text, check_length, join

_POINTERS = {"P": "*", "R": "&", "O": "&&"}


def read_qualifiers(cursor: Cursor) -> str:
    """Read `r`, `V` and `K`."""
    return "".join(words for code, words in (("r", " restrict"), ("V", " volatile"), ("K", " const")) if cursor.take(code))


def read_reference(cursor: Cursor) -> str:
    """Read which objects a member function is for: `R` or `O`."""
    return " &" if cursor.take("R") else " &&" if cursor.take("O") else ""


def read_type(cursor: Cursor) -> Text:
    """Read one type."""
    cursor.enter()
    found = _read_type(cursor)
    cursor.leave()
    check_length(found[0] + found[1])
    return found


def read_types(cursor: Cursor, ends: str) -> str:
    """Read types as a list of parameters, to one of the characters `ends` or to the end."""
    found: list[str] = []
    while cursor.at < len(cursor.text) and cursor.text[cursor.at] not in ends:
        found.extend(read_expansion(cursor) if cursor.take("Dp") else [join(read_type(cursor))])
        check_length("".join(found[-2:]))
    if sum(map(len, found)) > MOST_CHARS:
        raise NotMangled
    return "" if found == ["void"] else ", ".join(found)


def read_expansion(cursor: Cursor) -> list[str]:
    """Read a pattern over a pack, behind `Dp`, once for every element of the pack."""
    start, seen, outer = cursor.at, len(cursor.seen), (cursor.pack, cursor.pack_size)
    found: list[str] = []
    cursor.pack, cursor.pack_size = 0, None
    while True:
        cursor.at = start
        del cursor.seen[seen:]
        found.append(join(read_type(cursor)))
        size = cursor.pack_size
        cursor.pack += 1
        if size is None or cursor.pack >= size or len(found) > 200:
            break
    cursor.pack, cursor.pack_size = outer
    return found if size is None or size else []


def _read_type(cursor: Cursor) -> Text:
    here = cursor.text[cursor.at]
    if here in "rVK":
        words = read_qualifiers(cursor)
        left, right = read_type(cursor)
        return cursor.remember((left, right + words) if right else (left + words, ""))
    if here in "PRO":
        return _read_pointer(cursor, here)
    if here in BUILTIN:
        cursor.at += 1
        return BUILTIN[here], ""
    if here == "u":
        cursor.at += 1
        return cursor.remember((_read_vendor_word(cursor), ""))
    if here == "D":
        return _read_extended(cursor)
    if here == "U":
        cursor.at += 1
        words = _read_vendor_word(cursor)
        left, right = read_type(cursor)
        return cursor.remember((f"{left} {words}", right))
    if here == "F":
        return _read_function(cursor, "")
    if here == "A":
        return _read_array(cursor)
    if here == "M":
        cursor.at += 1
        owner = join(read_type(cursor))
        left, right = read_type(cursor)
        return cursor.remember((f"{left}{'' if left.endswith('(') else ' '}{owner}::*", right))
    if here == "T" and cursor.text[cursor.at + 1] in "sue":
        cursor.at += 2
    elif here == "T" or (here == "S" and not cursor.peek("St")):
        found = cursor.parameter() if here == "T" else cursor.substitution()
        if cursor.peek("I"):
            return cursor.remember((join(found) + cursor.template_arguments(), ""))
        return found
    return cursor.remember((cursor.name()[0], ""))


def _read_pointer(cursor: Cursor, here: str) -> Text:
    """`P`, `R` or `O`; a reference to a reference is one."""
    cursor.at += 1
    left, right = read_type(cursor)
    if here != "P" and left.endswith("&") and not right:
        return cursor.remember((left if here == "O" or not left.endswith("&&") else left[:-1], right))
    return cursor.remember((left + _POINTERS[here], right))


def _read_vendor_word(cursor: Cursor) -> str:
    return cursor.source() + (cursor.template_arguments() if cursor.peek("I") else "")


def _read_array(cursor: Cursor) -> Text:
    cursor.need("A")
    size = str(cursor.number()) if cursor.text[cursor.at].isdecimal() else "" if cursor.peek("_") else cursor.expression()
    cursor.need("_")
    left, right = read_type(cursor)
    return cursor.remember((f"{left} (", f") [{size}]{right}"))


def _read_function(cursor: Cursor, qualifiers: str) -> Text:
    cursor.need("F")
    cursor.take("Y")
    left, right = read_type(cursor)
    parameters = read_types(cursor, "ERO") if not cursor.peek("R") and not cursor.peek("O") else read_types(cursor, "E")
    if cursor.peek("R") or cursor.peek("O"):
        if cursor.text[cursor.at + 1:cursor.at + 2] == "E":
            qualifiers += read_reference(cursor)
        else:
            more = read_types(cursor, "E")
            parameters = f"{parameters}, {more}" if parameters else more
    cursor.need("E")
    return cursor.remember((f"{left} (", f")({parameters}){qualifiers}{right}"))


def _read_extended(cursor: Cursor) -> Text:
    """What begins with D: `Dn`, `DF16_`, `decltype(…)`, vectors, `noexcept` functions."""
    for code, words in EXTENDED.items():
        if cursor.take(code):
            return words, ""
    if cursor.take("Dt") or cursor.take("DT"):
        text = cursor.expression()
        cursor.need("E")
        return cursor.remember((f"decltype ({text})", ""))
    if cursor.take("Dv"):
        size = str(cursor.number()) if cursor.text[cursor.at].isdecimal() else cursor.expression()
        cursor.need("_")
        left, right = read_type(cursor)
        return cursor.remember((f"{left} __vector({size})", right))
    if cursor.take("Do"):
        return _read_function(cursor, " noexcept")
    if cursor.take("DB") or cursor.take("DU"):
        bits = cursor.number()
        cursor.need("_")
        return f"_BitInt({bits})", ""
    raise NotMangled
