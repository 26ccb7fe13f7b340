"""Mend the text of one record that is not JSON: what real profilers wrote wrongly, and nothing beyond it.

Seen in the wild: raw backslashes of Windows paths (pytorch#98432), unescaped quotes and newlines inside names
(pytorch#113001), control characters and bytes that are not UTF-8 (pytorch#136180), bare N/A, NaN, Infinity (kineto
PR 131), lists of ranks that were shortened with "..." outside of quotes, trailing commas and empty argument fragments.
"""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import Any

_CONTROLS = bytes(32 if c < 32 and c not in b"\t\n\r" else c for c in range(256))
_BARE = re.compile(rb'("\s*:\s*)(?:N/A|[-+]?(?:nan|inf(?:inity)?))(\s*[,}])', re.IGNORECASE)
_ELIDED = re.compile(rb'("\s*:\s*)\[[-+\d\s,.eE]*\.\.\.[-+\d\s,.eE]*\]')     # "Process Group Ranks": [0, 1, ..., 63]
_STRING = r'"(?:[^"\\]|\\.)*"'
_LITERAL = re.compile(rf"({_STRING})|([-+]?\b(?:N/A|nan|inf(?:inity)?|undefined|none|null)\b)", re.IGNORECASE | re.DOTALL)
_COMMAS = re.compile(rf"({_STRING})|,(?=\s*[,}}\]])|(?<=[{{\[])\s*,", re.DOTALL)
_TEXT = re.compile(_STRING, re.DOTALL)
_BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
# A value that should be a string runs to the last quote that a known key, or the end, follows.
_KEYS = r"(?:ph|cat|name|pid|tid|ts|dur|id|args|bp|s)"
MAX_ARGUMENTS, _NESTED = 200, 24         # of a record that are looked at; keys that a value may hold
_ARGUMENTS = re.compile(r'"args"\s*:\s*\{')
_ARGUMENT = re.compile(rf'[{{,]\s*{_STRING}\s*:')
_TEXT_VALUE = re.compile(rf'("(?:name|cat)"\s*:\s*")(.*?)("(?=\s*(?:,\s*"{_KEYS}"\s*:|\}}\s*$)))', re.DOTALL)


def mend(raw: bytes) -> dict[str, Any] | None:
    """Return the record in `raw` (from its `{` to its `}`), mended where needed, or None."""
    text = raw.decode("utf-8", "replace")
    for step in (_same, _escapes, _quotes, _arguments):
        text = step(text)
        try:
            record = json.loads(_COMMAS.sub(_first, _LITERAL.sub(_literal, text)), strict=False)
        except (ValueError, RecursionError):
            continue
        return _clean(record) if isinstance(record, dict) else None
    return None


def cleanse(data: bytes, error: Exception) -> bytes:
    """Return `data` without the kind of damage that `error` met, where it can be mended in bulk.

    Whole files carry Windows paths, NaN or bytes that are not UTF-8 in every record.
    """
    if isinstance(error, UnicodeDecodeError):
        return data.decode("utf-8", "replace").encode()
    if "escape" in str(error):
        return _escapes(data.decode("utf-8", "replace")).encode()
    if "invalid character" in str(error):
        return _ELIDED.sub(rb"\1null", _BARE.sub(rb"\1null\2", data.translate(_CONTROLS)))
    return data


def _same(text: str) -> str:
    return text


def _escapes(text: str) -> str:
    """Where a string holds an escape that JSON has not, none of its backslashes was meant as one (C:\\temp\\x)."""
    return _TEXT.sub(lambda m: m[0].replace("\\", "\\\\") if _BAD_ESCAPE.search(m[0]) else m[0], text)


def _quotes(text: str) -> str:
    return _TEXT_VALUE.sub(lambda m: m[1] + re.sub(r'(?<!\\)"', r'\\"', m[2]) + m[3], text)


def _arguments(text: str) -> str:
    """Without those arguments whose values are no JSON: each value ends where the next key begins, as near as it can be read."""
    start = _ARGUMENTS.search(text)
    if start is None:
        return text
    end = text.rfind("}", 0, text.rfind("}"))
    keys = [match for match in islice(_ARGUMENT.finditer(text, start.end() - 1), MAX_ARGUMENTS) if match.start() < end]
    parts, index = [], 0
    while index < len(keys) and end > start.end():
        ends = [*(later.start() for later in keys[index + 1:index + 1 + _NESTED]), end]
        for number, stop in enumerate(ends):
            if _is_value(text[keys[index].end():stop]):
                parts.append(text[keys[index].start() + 1:stop])
                index += number
                break
        index += 1
    return f"{text[:start.end()]}{', '.join(parts)}{text[end:]}" if keys else text


def _is_value(text: str) -> bool:
    try:
        json.loads(_LITERAL.sub(_literal, text), strict=False)
    except (ValueError, RecursionError):
        return False
    return True


def _first(match: re.Match[str]) -> str:
    return match[1] or ""


def _literal(match: re.Match[str]) -> str:
    return match[1] or "null"


def _clean(record: dict[str, Any]) -> dict[str, Any]:
    """Without lone surrogates, which no column can hold."""
    text = json.dumps(record, ensure_ascii=False)
    cleaned: dict[str, Any] = json.loads(text.encode("utf-8", "replace").decode("utf-8"))
    return cleaned
