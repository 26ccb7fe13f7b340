"""One kernel's part of a file: what its text names, and what that names in turn. The rest becomes blanks; lines stay.

So neither code of the host, nor another kernel, nor a header that only those need stands in the way of a compile.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence

from tuner.tuning.cuda.items import Item
from tuner.tuning.cuda.source import Source
from tuner.tuning.cuda.tokens import is_word, split_words

_INCLUDE = re.compile(r'^([ \t]*#[ \t]*include[ \t]*)([<"])([^>"\n]+)([>"])', re.MULTILINE)
# headers that a repository's own include for all its kernels, and a word without which a text needs none of them
ONLY_FOR = {"mma.h": "wmma", "curand_kernel.h": "curand", "cooperative_groups.h": "cooperative_groups", "cub/cub.cuh": "cub"}
KNOWN_SCOPES = {"std", "cuda", "cooperative_groups", "nvcuda", "cub", "thrust", "cute", "cutlass"}


def kernels_of(source: Source, name: str) -> list[Item]:
    """Return the kernels of a name: its last part, without the namespaces before it and a template's arguments.

    Those with a body stand first: a header, or the file itself further up, may declare them.
    """
    last = name.partition("<")[0].strip().rpartition("::")[2]
    found = [item for item in source.of_name.get(last, ()) if item.kind == "kernel" and item.names[0] == last]
    return sorted(found, key=lambda item: item.body < 0)


def reached_by(source: Source, begin: Iterable[Item], names: Iterable[str] = ()) -> set[int]:
    """Return the places, in `source.items`, of all that items and `names` name, directly or through others and macros."""
    place = {id(item): index for index, item in enumerate(source.items)}
    to_do = list(begin)
    reached = {place[id(item)] for item in to_do}
    named: set[str] = set()

    def add(item: Item) -> None:
        index = place[id(item)]
        if index not in reached:
            reached.add(index)
            to_do.append(item)

    for item in source.items:  # a + b of vectors: nothing names it
        if "operator" in item.names and item.on_device:
            add(item)
    more = list(names)
    while to_do or more:
        if more:
            words, more = more, []
        else:
            item = to_do.pop()
            words = [*source.words[item.first : item.last + 1], *item.scope.split("::")]
        while words:
            word = words.pop()
            if word in named or not is_word(word):
                continue
            named.add(word)
            for other in source.of_name.get(word, ()):
                if other.kind not in ("instance", "broken") and not _is_host_member(source, other):
                    add(other)
            if word in source.macros:
                words += source.macros[word].body
    return reached


def _is_host_member(source: Source, item: Item) -> bool:
    """Return whether a function is defined outside its class, by words that keep it on the host: `Matrix::Matrix(…) { … }`."""
    return item.kind == "function" and not item.on_device and item.template < 0 and source.words[item.head - 1] == "::"


def cut(source: Source, name: str, find_header: Callable[[str], str] = lambda name: name) -> tuple[str, list[str]]:
    """Return the text that kernel `name` needs, and the includes that were left out because nothing has them.

    name         also with its template's values: "f<128, Epilogue>"
    find_header  the header that is read for an include: itself, another that stands in for it, or "" for none
    Without a kernel of that name all code of the host is left out, and the rest stays.
    """
    kernels = kernels_of(source, name)
    reached = (
        reached_by(source, kernels, split_words(name))
        if kernels
        else {index for index, item in enumerate(source.items) if _is_for_device(source, item)}
    )
    out, declared = list(source.text), {item.scope.partition("::")[0] for item in source.items}
    stand_ins: list[str] = []
    reached -= {index for index, item in enumerate(source.items) if _is_overload(kernels, item)}
    for index, item in enumerate(source.items):
        if item.kind == "use_namespace":
            scope = "".join(source.words[item.head : item.last])
            if scope.split("::")[0] not in declared | KNOWN_SCOPES:
                stand_ins.append(f"namespace {scope.removeprefix('::')} {{}}")
        elif index not in reached:
            _blank(source, out, source.tokens.places[item.first], source.tokens.end_of(item.last))
    missing: list[str] = []
    text = _without_includes("".join(out), find_header, missing)
    names = set(re.findall(r"\w+", text))
    text = (
        " ".join(dict.fromkeys(line for line in stand_ins if line.split()[1].split("::")[-1] in names)) + "\n#line 1\n" + text
        if stand_ins
        else text
    )
    return text, missing


def _is_overload(kernels: Sequence[Item], item: Item) -> bool:
    """Return whether an item is a kernel beside the first of its name, with other arguments: no name tells them apart."""
    return any(item is kernel for kernel in kernels[1:]) and (item.template, kernels[0].template, item.scope) == (
        -1, -1, kernels[0].scope)


def _is_for_device(source: Source, item: Item) -> bool:
    """Return whether a declaration may be of use on a GPU, by its own words."""
    if item.kind == "variable":
        return bool(
            {"__device__", "__constant__", "__shared__", "__managed__", "const", "constexpr"}
            & set(source.words[item.first : item.last + 1])
        )
    return item.kind not in ("function", "instance", "broken") or item.on_device


def _blank(source: Source, out: list[str], begin: int, end: int) -> None:
    """Blank characters, but for the directives among them that the preprocessor needs to find its way."""
    directives = source.read.directives
    after = bisect_right(directives, begin, key=lambda each: each[1])
    spans = directives[after : bisect_left(directives, end, key=lambda each: each[0])]
    offset = begin
    for first, last in [*spans, (end, end)]:
        for place in range(offset, max(offset, min(first, end))):
            if out[place] != "\n":
                out[place] = " "
        offset = max(offset, last)


def _without_includes(text: str, find_header: Callable[[str], str], missing: list[str]) -> str:
    code = _INCLUDE.sub("", text)

    def look(match: re.Match[str]) -> str:
        name = match[3].strip()
        if name in ONLY_FOR and ONLY_FOR[name] not in code:
            return "#include <cuda_fp16.h>" if name == "mma.h" else " " * len(match[0])         # which it includes itself
        header = find_header(name)
        if header == name:
            return match[0]
        missing.append(name)
        return f'#include "{header}"' if header else " " * len(match[0])

    return _INCLUDE.sub(look, text)
