"""Types of a mangled name: pointers, functions, arrays, vectors, `decltype(…)`, and packs that are expanded;
its template arguments, and the values and expressions in them.
"""

from __future__ import annotations

from profiles.ingest.naming.mangled.cursor import (
    BUILTIN,
    EXTENDED,
    MOST_CHARS,
    OPERATORS,
    Cursor,
    NotMangled,
    Text,
    check_length,
    join,
)

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
    text = _read_type(cursor)
    cursor.leave()
    check_length(text[0] + text[1])
    return text


def read_types(cursor: Cursor, ends: str) -> str:
    """Read types as a list of parameters, to one of the characters `ends` or to the end."""
    texts: list[str] = []
    while cursor.at < len(cursor.text) and cursor.text[cursor.at] not in ends:
        texts.extend(read_expansion(cursor) if cursor.take("Dp") else [join(read_type(cursor))])
        check_length("".join(texts[-2:]))
    if sum(map(len, texts)) > MOST_CHARS:
        raise NotMangled
    return "" if texts == ["void"] else ", ".join(texts)


def read_expansion(cursor: Cursor) -> list[str]:
    """Read a pattern over a pack, behind `Dp`, once for every element of the pack."""
    start, seen_count, outer = cursor.at, len(cursor.seen), (cursor.pack, cursor.pack_size)
    texts: list[str] = []
    cursor.pack, cursor.pack_size = 0, None
    while True:
        cursor.at = start
        del cursor.seen[seen_count:]
        texts.append(join(read_type(cursor)))
        size = cursor.pack_size
        cursor.pack += 1
        if size is None or cursor.pack >= size or len(texts) > 200:
            break
    cursor.pack, cursor.pack_size = outer
    return texts if size is None or size else []


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
        text = cursor.parameter() if here == "T" else cursor.substitution()
        if cursor.peek("I"):
            return cursor.remember((join(text) + cursor.template_arguments(), ""))
        return text
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


_SUFFIXES = {"i": "", "j": "u", "l": "l", "m": "ul", "x": "ll", "y": "ull"}


def read_template_arguments(cursor: Cursor, own: bool = False) -> str:
    """Read `I…E`; `own`: they are those of the function itself, to which `T_` refers."""
    cursor.need("I")
    arguments: list[list[Text]] = []
    if own:
        cursor.arguments = arguments
    outer, cursor.in_lambda = cursor.in_lambda, False
    while not cursor.take("E"):
        arguments.append(_read_argument(cursor))
    cursor.in_lambda = outer
    text = ", ".join(join(value) for values in arguments for value in values)
    return check_length(f"<{text} >" if text.endswith(">") else f"<{text}>")


def _read_argument(cursor: Cursor) -> list[Text]:
    """One argument, several where it is a pack."""
    cursor.enter()
    try:
        if cursor.peek("T") and cursor.text[cursor.at + 1] in "ynt":        # a parameter's declaration before its argument
            cursor.at += 2
            if cursor.text[cursor.at - 1] == "n":
                read_type(cursor)
        if cursor.take("J"):
            values: list[Text] = []
            while not cursor.take("E"):
                values.extend(_read_argument(cursor))
            return values
        if cursor.take("X"):
            text = read_expression(cursor)
            cursor.need("E")
            return [(text, "")]
        if cursor.peek("L"):
            return [(_read_literal(cursor), "")]
        if cursor.take("Dp"):
            return [(type_text, "") for type_text in read_expansion(cursor)]
        return [read_type(cursor)]
    finally:
        cursor.leave()


def _read_literal(cursor: Cursor) -> str:
    cursor.need("L")
    if cursor.take("_Z") or cursor.take("Z"):
        text = cursor.encoding(local=True)
        cursor.need("E")
        return text
    code = cursor.text[cursor.at]
    kind = join(read_type(cursor))
    end = cursor.text.index("E", cursor.at)
    value = cursor.text[cursor.at:end]
    cursor.at = end + 1
    value = f"-{value[1:]}" if value.startswith("n") else value
    if code == "b":
        return {"0": "false", "1": "true"}.get(value, value)
    suffix = _SUFFIXES.get(code)
    return f"({kind}){value}" if suffix is None else value + suffix


def read_expression(cursor: Cursor) -> str:
    """Read a value as it stands in template arguments; others end the name as not demangled."""
    cursor.enter()
    try:
        if cursor.peek("L"):
            return _read_literal(cursor)
        if cursor.peek("T"):
            return join(cursor.parameter())
        code = cursor.text[cursor.at:cursor.at + 2]
        if code in ("sr", "on", "cl", "cv", "st", "sz", "ad", "sZ", "fp", "tl", "il"):
            cursor.at += 2
            return _read_named_expression(cursor, code)
        if code not in OPERATORS:
            return cursor.name()[0]
        cursor.at += 2
        symbol = OPERATORS[code]
        if code in ("ng", "nt", "co", "de", "ps"):
            return f"{symbol}({read_expression(cursor)})"
        if code == "qu":
            return f"({read_expression(cursor)})?({read_expression(cursor)}):({read_expression(cursor)})"
        left = read_expression(cursor)
        return check_length(f"({left}){symbol}({read_expression(cursor)})")
    finally:
        cursor.leave()


def _read_named_expression(cursor: Cursor, code: str) -> str:
    """Calls, casts, `sizeof`, addresses: what stands behind `code`."""
    if code == "ad":
        text = read_expression(cursor)
        return f"&({text})" if "(" in text else f"&{text}"
    if code == "sr":
        owner = join(read_type(cursor))
        text = f"{owner}::{cursor.unqualified('')}"
        return text + read_template_arguments(cursor) if cursor.peek("I") else text
    if code in ("st", "sz", "sZ"):
        what = join(read_type(cursor)) if code == "st" else read_expression(cursor)
        return f"sizeof{'...' if code == 'sZ' else ''} ({what})"
    if code == "fp":
        return f"{{parm#{cursor.sequence() + 1}}}"
    if code == "on":
        return cursor.unqualified("")
    if code == "cv":
        kind = join(read_type(cursor))
        return f"({kind})({read_expression(cursor)})"
    head = join(read_type(cursor)) if code == "tl" else "" if code == "il" else read_expression(cursor)
    inner: list[str] = []
    while not cursor.take("E"):
        inner.append(read_expression(cursor))
    text = ", ".join(inner)
    return check_length(f"{head}({text})" if code == "cl" else f"{head}{{{text}}}")
