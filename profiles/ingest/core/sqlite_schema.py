"""Column names out of a CREATE TABLE statement, read as text: the statement is a stranger's and is never executed."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(r"""(?P<skip>\s+|--[^\n]*|/\*.*?(?:\*/|$))
    |(?P<quoted>"(?:[^"]|"")*"|'(?:[^']|'')*'|`(?:[^`]|``)*`|\[[^\]]*\])
    |(?P<word>[^\s"'`\[\](),;/-]+)|(?P<sign>.)""", re.VERBOSE | re.DOTALL)
_CONSTRAINTS = frozenset({"CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN"})
MAX_COLUMNS = 2_000             # SQLite's own limit


class Columns:
    """The stored columns of a table in their order, and which one is the row id itself (INTEGER PRIMARY KEY)."""

    def __init__(self, names: list[str], rowid: str | None = None) -> None:
        self.names, self.rowid = names, rowid
        self.place = {name: place for place, name in reversed(list(enumerate(names)))}


def columns_of(sql: str) -> Columns | None:
    """Return the stored columns that a CREATE TABLE statement names, or None.

    None where this is no ordinary table: virtual, without row ids, made from a SELECT, or not understood.
    """
    tokens = _tokens(sql)
    head = [text.upper() for text, _ in _until_bracket(tokens)]
    if head[:2] != ["CREATE", "TABLE"] or "AS" in head[2:]:
        return None
    parts, rest = _parts(tokens)
    if "WITHOUT" in rest or not 0 < len(parts) <= MAX_COLUMNS:
        return None
    names: list[str] = []
    kinds: dict[str, str] = {}
    key: str | None = None
    for part in parts:
        words = [text.upper() for text, quoted in part if not quoted]
        if not part:
            return None
        if not part[0][1] and part[0][0].upper() in _CONSTRAINTS:
            key = key or _key_of(part, words)
            continue
        name = part[0][0]
        generated = "AS" in words[1:] and "(" in words
        if generated and "STORED" not in words:
            continue                                       # computed when asked for: not in the record
        names.append(name)
        kinds[name] = part[1][0].upper() if len(part) > 1 else ""
        if "PRIMARY" in words and "DESC" not in words:
            key = name
    return Columns(names, key if key is not None and kinds.get(key) == "INTEGER" else None)


def _key_of(part: list[tuple[str, bool]], words: list[str]) -> str | None:
    """The column of PRIMARY KEY (column), None where it names several."""
    if "PRIMARY" not in words or "," in words or "(" not in words:
        return None
    names = [text for text, _ in part]
    at = names.index("(")
    return names[at + 1] if len(names) > at + 1 else None


def _tokens(sql: str) -> Iterator[tuple[str, bool]]:
    for match in _TOKEN.finditer(sql):
        if match["quoted"]:
            text = match["quoted"]
            yield text[1:-1].replace(text[-1] * 2, text[-1]), True
        elif not match["skip"]:
            yield match["word"] or match["sign"], False


def _until_bracket(tokens: Iterator[tuple[str, bool]]) -> Iterator[tuple[str, bool]]:
    for token in tokens:
        if token == ("(", False):
            return
        yield token


def _parts(tokens: Iterator[tuple[str, bool]]) -> tuple[list[list[tuple[str, bool]]], set[str]]:
    """What stands between the outer brackets, divided at its commas; the words behind them."""
    parts: list[list[tuple[str, bool]]] = [[]]
    depth = 1
    for token in tokens:
        if token == ("(", False):
            depth += 1
        elif token == (")", False):
            depth -= 1
            if not depth:
                return parts, {text.upper() for text, _ in tokens}
        if token == (",", False) and depth == 1:
            parts.append([])
        else:
            parts[-1].append(token)
    return [], set()                                       # its brackets never close
