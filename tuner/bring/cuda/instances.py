"""Template arguments with which a host function that is a template is called."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from profiles.base.refused import Refused
from tuner.tuning.cuda.items import Item
from tuner.tuning.cuda.source import Source
from tuner.tuning.cuda.tokens import close_angle, is_word, join, split_at_commas

TYPES = ("float", "__half", "__nv_bfloat16")
MOST = 8
_PLAIN = {"float", "double", "int", "half", "__half", "__nv_bfloat16", "nv_bfloat16", "at", "c10", "Half", "BFloat16", "true",
          "false", "int8_t", "uint8_t", "int32_t", "int64_t", "half2", "char", "unsigned", "long", "bool"}


def instances_of(source: Source, item: Item, numbers: Mapping[str, int]) -> list[str]:
    """Return template arguments: those of `numbers`, of the file's explicit instances or of its calls, else float, half, …

    [""] where defaults or the arguments tell all. Raises Refused for numbers that nothing tells.
    """
    name = item.names[0]
    heads = [head for head in split_at_commas(source.template_of(item)) if head]
    if any(_name(head) in numbers for head in heads):
        return _with_numbers(heads, numbers, name)
    explicit = [instance for entry in source.items if entry.kind == "instance"
                for instance in _given(source.words[entry.first:entry.last + 1], name)]
    if explicit:
        return list(dict.fromkeys(explicit))[:MOST]
    called = [instance for instance in _given(source.words, name) if _is_plain(instance)]
    if called:
        return list(dict.fromkeys(called))[:MOST]
    needed = [head for head in heads if "=" not in head]
    if any(head[0] not in ("typename", "class") for head in needed):
        raise Refused(f"{name} is a template of numbers that the file gives no instance of: --shape {_name(needed[-1])}=NUMBER, "
                      "or name a function that calls it")
    if not needed:
        return [""]
    return [", ".join([c_type] * len(needed)) for c_type in TYPES]


def _with_numbers(heads: Sequence[Sequence[str]], numbers: Mapping[str, int], name: str) -> list[str]:
    if missing := [_name(head) for head in heads if "=" not in head and head[0] not in ("typename", "class")
                   and _name(head) not in numbers]:
        raise Refused(f"{name} is a template of numbers: --shape {missing[0]}=NUMBER")
    texts = []
    for c_type in TYPES if any(head[0] in ("typename", "class") for head in heads) else TYPES[:1]:
        values = []
        for head in heads:
            if "=" in head and _name(head) not in numbers:
                break
            values.append(c_type if head[0] in ("typename", "class") else str(int(numbers[_name(head)])))
        texts.append(", ".join(values))
    return texts


def _name(head: Sequence[str]) -> str:
    words = head[:head.index("=")] if "=" in head else head
    return words[-1] if words and is_word(words[-1]) else ""


def _given(words: Sequence[str], name: str) -> list[str]:
    """Return the template arguments that stand behind a name."""
    texts = []
    for index in range(len(words) - 1):
        if words[index] == name and words[index + 1] == "<":
            closed = close_angle(words, index + 1, len(words))
            if closed > 0:
                texts.append(join(words[index + 2:closed]))
    return texts


def _is_plain(arguments: str) -> bool:
    """Return whether nothing in template arguments is a name of the place where they stand."""
    return all(word in _PLAIN for word in re.findall(r"[A-Za-z_]\w*", arguments))


