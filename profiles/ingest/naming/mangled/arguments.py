"""Template arguments of a mangled name, and the values and expressions in them."""

from __future__ import annotations

from profiles.ingest.naming.mangled.cursor import OPERATORS, Cursor, Text, check_length, join
from profiles.ingest.naming.mangled.types import read_expansion, read_type

_SUFFIXES = {"i": "", "j": "u", "l": "l", "m": "ul", "x": "ll", "y": "ull"}


def read_template_arguments(cursor: Cursor, own: bool = False) -> str:
    """Read `I…E`; `own`: they are those of the function itself, to which `T_` refers."""
    cursor.need("I")
    found: list[list[Text]] = []
    if own:
        cursor.arguments = found
    outer, cursor.in_lambda = cursor.in_lambda, False
    while not cursor.take("E"):
        found.append(_read_argument(cursor))
    cursor.in_lambda = outer
    text = ", ".join(join(each) for values in found for each in values)
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
            return [(each, "") for each in read_expansion(cursor)]
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
