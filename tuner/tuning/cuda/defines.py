"""Macros and constants of a file that may be tuned: their numbers, and the text without them where a compiler is given others."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from tuner.tuning.cuda.constants import evaluate
from tuner.tuning.cuda.functions import WHOLE
from tuner.tuning.cuda.source import Source
from tuner.tuning.cuda.tokens import is_word

# names that a tuner gives a meaning to: Kernel Tuner's, and those that people write
TUNED = re.compile(
    r"block_size(?:_[xyz])?$|tile_size(?:_[xyz])?$"
    r"|[A-Z_]*(?:BLOCK|TILE|CHUNK|UNROLL|VEC|STAGES|THREADS|ITEMS_PER|PER_THREAD)[A-Z_0-9]*$|work_per_thread|use_\w+$|[BTW][MNK]$|loop_unroll_factor|read_only$|reuse_|vector$"
)


def as_macro(value: Any) -> str:
    """Return a parameter's value as a macro's text."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def without_defines(text: str, names: Collection[str]) -> str:
    """Return the text without `#define NAME …` and `constexpr int NAME = …;` of the names, which the compiler is given instead.

    Lines stay where they are.
    """
    if not names:
        return text
    lines = text.split("\n")
    for at, line in enumerate(lines):
        words = line.replace("#", "# ", 1).split() if line.lstrip().startswith("#") else []
        if words[:2] == ["#", "define"] and len(words) > 2 and words[2] in names:
            lines[at] = ""
    text = "\n".join(lines)
    for name in names:
        text = re.sub(
            r"^([ \t]*)(?:(?:static|inline|__constant__|__device__)\s+)*(?:constexpr|const)\s+[\w: \t]*?\b"
            rf"{re.escape(name)}\s*=[^;{{}},]*;",
            lambda match: re.sub(r"[^\n]", " ", match[0]),
            text,
            flags=re.MULTILINE,
        )
    return text


def defines_of(source: Source) -> dict[str, int]:
    """Return macros and constants of the file that are numbers as they stand there."""
    found: dict[str, int] = {}
    for name, macro in source.macros.items():
        body = [each for each in macro.body if each not in ("(", ")")]
        if macro.arguments is None and 1 <= len(body) <= 2 and all(not is_word(each) for each in body):
            value = evaluate(body, lambda other: None)
            if isinstance(value, int) and (TUNED.match(name) or not source.file_at(source.read.places.get(name, 0))):
                found[name] = value  # of headers only what is named as people name what they tune
    for item in source.items:
        if item.kind != "variable" or len(item.names) != 1 or (source.file_of(item.first) and not TUNED.match(item.names[0])):
            continue
        words = source.words[item.first : item.last + 1]
        name = item.names[0]
        if {"const", "constexpr"} & set(words) and "=" in words and set(words) & (WHOLE | {"bool"}) and "[" not in words:
            after = words[words.index("=") + 1 : -1]
            value = evaluate(after, lambda other: None) if len(after) <= 2 else None
            if isinstance(value, int) and _declared_once(name, source):
                found[name] = value
    return found


def _declared_once(name: str, source: Source) -> bool:
    """Return whether a constant's name has no other meaning in the file: a -D would replace that too."""
    word = re.escape(name)
    return (
        len(
            re.findall(
                rf"(?:\b(?:int|unsigned|bool|auto|size_t|float|typename|class|long|uint|\w+_t)[\s*&]+){word}\b", source.read.code
            )
        )
        == 1
    )


def is_declared(name: str, code: str) -> bool:
    """Return whether the file gives a name its meaning: a variable, a function or a type."""
    word = re.escape(name)
    declared = (
        rf"\b[\w>*&]+[\s*&]+{word}\s*(?:=|;|\[|\(|,|\{{)|\b\w+\s+{word}\s*\)|\b(?:struct|enum|using|class|typename)\s+{word}\b"
    )
    return re.search(declared, re.sub(r"\b(?:return|else|case|goto)\b", ";", code)) is not None
