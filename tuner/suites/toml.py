"""A suite's file: TOML into a definition with the line of each mistake, and a definition back into a file."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from tuner.suites.checks import DefinitionError, Problem
from tuner.suites.definition import Definition, as_document, read

MAX_BYTES = 512 * 1024
_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]#]+?)\s*\]\]?\s*(#.*)?\Z")
_KEY = re.compile(r"\s*([A-Za-z0-9_-]+(?:\s*\.\s*[A-Za-z0-9_-]+)*)\s*=")
_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")
_PLACE = re.compile(r"\(at line (\d+), column \d+\)\s*\Z")


def file_read(data: bytes | str) -> Definition:
    """The definition in a file's bytes. DefinitionError: every mistake with its line."""
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
    except UnicodeDecodeError as error:
        raise _refused(f"not UTF-8 text: byte {error.start}", 1 + error.object[:error.start].count(b"\n")) from error
    if len(text) > MAX_BYTES:
        raise _refused(f"{len(text):,} characters; at most {MAX_BYTES:,}")
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = _PLACE.search(str(error))
        line = int(place[1]) if place else text.count("\n") + 1        # "at end of document"
        raise _refused(f"not TOML: {_PLACE.sub('', str(error)).strip()}", line) from error
    except (RecursionError, ValueError) as error:        # nested a thousand deep; a number of a hundred thousand digits
        raise _refused(f"not TOML that can be read: {type(error).__name__}") from error
    return read(document, lines_of(text))


def _refused(what: str, line: int | None = None) -> DefinitionError:
    return DefinitionError([Problem("", what[:300], line)])


def lines_of(text: str) -> dict[str, int]:
    """Field -> the line it stands in, from 1: "runs", "kernel[0].shape", "rule.floor". For messages only."""
    found: dict[str, int] = {}
    counts: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _table(header[2], header[1] == "[[", counts)
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            name = re.sub(r"\s*\.\s*", ".", key[1])
            found.setdefault(f"{table}.{name}".lstrip("."), number)
    return found


def _table(name: str, one_of_many: bool, counts: dict[str, int]) -> str:
    """"kernel[2].rule" for the [kernel.rule] behind the third [[kernel]]."""
    name = name.replace('"', "").replace("'", "").replace(" ", "")
    if one_of_many:
        counts[name] = counts.get(name, -1) + 1
        return f"{name}[{counts[name]}]"
    first, dot, rest = name.partition(".")
    return f"{first}[{counts[first]}]{dot}{rest}" if first in counts else name


# ---- back into a file ----

def as_toml(definition: Definition) -> str:
    """A file that reads back as the same definition."""
    document = as_document(definition)
    kernels = document.pop("kernel", [])
    tables = {name: document.pop(name) for name in ("rule", "metrics", "policy") if name in document}
    lines = [f"{name} = {_value(value)}" for name, value in document.items()]
    for name, table in tables.items():
        lines += ["", f"[{name}]", *(f"{_name(key)} = {_value(value)}" for key, value in table.items())]
    for kernel in kernels:
        lines += ["", "[[kernel]]", *(f"{name} = {_value(value)}" for name, value in kernel.items())]
    return "\n".join(lines) + "\n"


def _name(name: str) -> str:
    return name if _BARE.match(name) else _text(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_name(key)} = {_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return _text(str(value))


def _text(text: str) -> str:
    """A basic string: JSON's escapes are TOML's, but DEL must be escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
