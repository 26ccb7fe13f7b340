"""What the preprocessor makes of a text: branches not taken are blanked, macros are kept by name, included files found.

Lines stay where they are. Conditions are read as the compiler of device code sees them; what no line defines is 0, as in C.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from profiles.base.refused import Refused
from tuner.tuning.cuda.constants import evaluate
from tuner.tuning.cuda.tokens import MAX_DEPTH, MAX_EXPANDED, is_word, split_words

# of NVRTC when it compiles for sm_90
KNOWN = {
    "__CUDACC__": "1",
    "__CUDACC_RTC__": "1",
    "__CUDA_ARCH__": "900",
    "__cplusplus": "201703L",
    "__CUDACC_VER_MAJOR__": "13",
    "__CUDACC_VER_MINOR__": "0",
    "CUDA_VERSION": "13000",
    "CUDART_VERSION": "13000",
    "__x86_64__": "1",
    "__linux__": "1",
    "WITH_CUDA": "1",  # of extensions that are built for CPUs as well
}
MAX_MACROS = 20_000
MAX_BRANCHES = 400  # within each other
_DIRECTIVE = re.compile(r"[ \t]*#[ \t]*([a-z]+)\b[ \t]*(.*)", re.DOTALL)
_DEFINED = re.compile(r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))")
_HAS = re.compile(r"\b__has_(?:include|builtin|attribute|feature)\w*\s*\([^)]*\)")


@dataclass(frozen=True)
class Macro:
    """`arguments` is None of a macro without brackets; `body` its tokens."""

    body: tuple[str, ...]
    arguments: tuple[str, ...] | None = None


@dataclass
class Read:
    """`code`: the text with directives and branches not taken as blanks. `directives`: (begin, end) of each that is taken."""

    code: str
    macros: dict[str, Macro] = field(default_factory=dict)
    guarded: set[str] = field(default_factory=set)
    places: dict[str, int] = field(default_factory=dict)  # where each macro is defined
    directives: list[tuple[int, int]] = field(default_factory=list)
    not_taken: list[tuple[int, int]] = field(default_factory=list)


def read_directives(bare: str) -> Read:
    """Return what a text without comments says to the preprocessor. Raises Refused."""
    read = Read("")
    out: list[str] = []
    taken: list[list[bool]] = []  # of each open #if: is this branch taken, with those around it; was one
    guards: list[str] = []  # by #ifndef, of each open #if
    offset = 0
    for line in _logical_lines(bare):
        begin, offset = offset, offset + len(line)
        match = _DIRECTIVE.match(line) if line.lstrip(" \t").startswith("#") else None
        active = not taken or taken[-1][0]
        if match is None:
            out.append(line if active else _blank(line))
            if not active:
                read.not_taken.append((begin, offset))
            continue
        out.append(_blank(line))
        read.directives.append((begin, offset))
        name, rest = match[1], match[2].replace("\\\n", " ").strip()
        if name in ("if", "ifdef", "ifndef"):
            if len(taken) == MAX_BRANCHES:
                raise Refused(f"more than {MAX_BRANCHES} #if within each other")
            said = not active or (
                _is_true(rest, read.macros) if name == "if" else (_is_defined(rest, read.macros) != (name == "ifndef"))
            )
            taken.append([active and said, said])
            guards.append(rest.split()[0] if name == "ifndef" and rest else "")
        elif name in ("elif", "else") and taken:
            said = not taken[-1][1] and (len(taken) < 2 or taken[-2][0]) and (name == "else" or _is_true(rest, read.macros))
            taken[-1] = [said, taken[-1][1] or said]
        elif name == "endif" and taken:
            taken.pop()
            guards.pop()
        elif name == "define" and active and len(read.macros) < MAX_MACROS:
            _define(rest, read, guards, begin)
        elif name == "undef" and active:
            read.macros.pop(rest, None)
    read.code = "".join(out)
    return read


def _logical_lines(text: str) -> list[str]:
    """Return the lines, one that goes on with a backslash together with the next."""
    lines: list[str] = []
    open_line: list[str] = []
    for line in text.splitlines(keepends=True):
        open_line.append(line)
        if not line.rstrip("\r\n").endswith("\\"):
            lines.append("".join(open_line))
            open_line = []
    return [*lines, "".join(open_line)] if open_line else lines


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _define(rest: str, read: Read, asked: Sequence[str], begin: int) -> None:
    match = re.match(r"([A-Za-z_]\w*)(\(([^()]*)\))?", rest)
    if match is None:
        return
    body = tuple(split_words(rest[match.end() :])[:4000])
    arguments = tuple(argument.strip() for argument in match[3].split(",")) if match[2] else None
    read.macros[match[1]] = Macro(body, arguments)
    read.places[match[1]] = begin
    if match[1] in asked:
        read.guarded.add(match[1])


def _is_defined(name: str, macros: Mapping[str, Macro]) -> bool:
    name = (name.split() or [""])[0]
    return name in macros or name in KNOWN


def _is_true(condition: str, macros: Mapping[str, Macro]) -> bool:
    condition = _DEFINED.sub(lambda match: str(int(_is_defined(match[1] or match[2], macros))), _HAS.sub("0", condition))
    words = expand(split_words(condition)[:2000], macros)
    value = evaluate(
        [KNOWN.get(word, "0") if is_word(word) and word not in ("true", "false") else word for word in words],
        lambda name: None,
    )
    return bool(value)


def expand(words: Sequence[str], macros: Mapping[str, Macro]) -> list[str]:
    """Return tokens with macros replaced; as they are from where there would be too many."""
    return _Expansion(macros).of(words, 0, frozenset())


class _Expansion:
    def __init__(self, macros: Mapping[str, Macro]) -> None:
        self.macros, self.replaced = macros, 0

    def of(self, words: Sequence[str], depth: int, used: frozenset[str]) -> list[str]:
        out: list[str] = []
        index = 0
        while index < len(words):
            word = words[index]
            macro = self.macros.get(word)
            index += 1
            if macro is None or word in used or depth > MAX_DEPTH or len(out) > MAX_EXPANDED or self.replaced > MAX_EXPANDED:
                out.append(word)
                continue
            self.replaced += 1
            if macro.arguments is None:
                out += self.of(macro.body, depth + 1, used | {word})
                continue
            if index >= len(words) or words[index] != "(":
                out.append(word)
                continue
            end, inside = index, 0
            while end < len(words):
                inside += (words[end] in ("(", "[", "{")) - (words[end] in (")", "]", "}"))
                end += 1
                if inside == 0:
                    break
            arguments = [self.of(argument, depth + 1, used) for argument in _plain_split(words[index + 1 : end - 1])]
            index = end
            out += self.of(_filled(macro, arguments), depth + 1, used | {word})
        return out[: MAX_EXPANDED * 2]


def _plain_split(words: Sequence[str]) -> list[list[str]]:
    """Return the parts between commas outside of brackets: a macro's arguments know no templates."""
    parts: list[list[str]] = [[]]
    depth = 0
    for word in words:
        depth += (word in ("(", "[", "{")) - (word in (")", "]", "}"))
        if word == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _filled(macro: Macro, given: Sequence[list[str]]) -> list[str]:
    names = list(macro.arguments or ())
    values: dict[str, list[str]] = {}
    for index, name in enumerate(names):
        if name.endswith("..."):
            rest: list[str] = []
            for argument in given[index:]:
                rest += ([","] if rest else []) + list(argument)
            values[name.removesuffix("...").strip() or "__VA_ARGS__"] = rest
        else:
            values[name] = list(given[index]) if index < len(given) else []
    out: list[str] = []
    glue = False
    for index, word in enumerate(macro.body):
        if word == "##":
            glue = True
            continue
        if word == "#" and index + 1 < len(macro.body) and macro.body[index + 1] in values:
            continue
        new = values.get(word, [word])
        if glue and out and new:
            out[-1] += new[0]
            new = new[1:]
        glue = False
        out += new
        if len(out) > MAX_EXPANDED:
            break
    return out
