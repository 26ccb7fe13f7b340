"""Macros and constants of a file that may be tuned: their numbers, and the text without them where a compiler is given others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from tuner.tuning.cuda.constants import evaluate
from tuner.tuning.cuda.functions import WHOLE
from tuner.tuning.cuda.source import Source
from tuner.tuning.cuda.tokens import is_word

# names that a tuner gives a meaning to: Kernel Tuner's, and those that people write
TUNED = re.compile(
    r"block_size(?:_[xyz])?$|tile_size(?:_[xyz])?$"
    r"|[A-Z_]*(?:BLOCK|TILE|CHUNK|UNROLL|VEC|STAGES|THREADS|ITEMS_PER|PER_THREAD)[A-Z_0-9]*$|work_per_thread|use_\w+$|[BTW][MNK]$"
    r"|k(?:[A-Z]\w*)?(?:Block|Tile|Chunk|Unroll|Stages|Threads|ItemsPer|PerThread)[A-Z]?\w*$|loop_unroll_factor|read_only$|reuse_"
    r"|vector$"
)

_TYPES = {"int", "unsigned", "bool", "auto", "size_t", "float", "typename", "class", "long", "uint"}
_OF_TYPES = {"struct", "enum", "using", "class", "typename"}
_STATEMENTS = {"return", "else", "case", "goto"}
_AFTER_DECLARED = {"=", "==", ";", "[", "(", ",", "{"}


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
    for index, line in enumerate(lines):
        words = line.replace("#", "# ", 1).split() if line.lstrip().startswith("#") else []
        if words[:2] == ["#", "define"] and len(words) > 2 and words[2] in names:
            lines[index] = ""
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
    constants: dict[str, int] = {}
    counts = _counts(source)
    for name, macro in source.macros.items():
        body = [word for word in macro.body if word not in ("(", ")")]
        if macro.arguments is None and 1 <= len(body) <= 2 and all(not is_word(word) for word in body):
            value = evaluate(body, lambda other: None)
            if isinstance(value, int) and (TUNED.match(name) or not source.file_at(source.read.places.get(name, 0))):
                constants[name] = value  # of headers only what is named as people name what they tune
    for item in source.items:
        if item.kind != "variable" or len(item.names) != 1 or (source.file_of(item.first) and not TUNED.match(item.names[0])):
            continue
        words = source.words[item.first : item.last + 1]
        name = item.names[0]
        if {"const", "constexpr"} & set(words) and "=" in words and set(words) & (WHOLE | {"bool"}) and "[" not in words:
            after = words[words.index("=") + 1 : -1]
            value = evaluate(after, lambda other: None) if len(after) <= 2 else None
            if isinstance(value, int) and counts[name] == 1:
                constants[name] = value
    return constants


def _counts(source: Source) -> Counter[str]:
    """Return how often each name stands behind a number's type: a -D would replace all of them."""
    return Counter(name for name, before in _behind_types(source) if before in _TYPES or before.endswith("_t"))


def declared_names(source: Source) -> set[str]:
    """Return the names that the file gives a meaning: variables, functions and types."""
    words, names = source.words, set()
    for index in range(1, len(words) - 1):
        if is_word(words[index]) and words[index - 1] in _OF_TYPES:
            names.add(words[index])
    return names | {name for name, before in _behind_types(source, _AFTER_DECLARED) if before not in _STATEMENTS}


def _behind_types(source: Source, followed_by: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield (name, word before it): `type name`, `type *name`, `type &name`; of a name before one of these marks, if any."""
    words = source.words
    before = ""  # word or > before the stars and ampersands that stand here
    for at, word in enumerate(words):
        after = words[at + 1] if at + 1 < len(words) else ""
        if is_word(word):
            if before and (not followed_by or after in followed_by or (after == ")" and is_word(words[at - 1]))):
                yield word, before
            before = word
        elif word == ">" and at and (is_word(words[at - 1]) or words[at - 1][0].isdigit() or words[at - 1] in (">", "*", "&")):
            before = word
        elif word not in ("*", "&", "&&"):
            before = word if word[0].isdigit() else ""
