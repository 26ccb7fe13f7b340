"""The structure of a C++ name as demanglers, nvcc, ncu and LLVM write it: scopes, template arguments, parameters, lambdas.

It is read once, from left to right, with a bounded depth and length, so any text has a structure in time linear in its length;
text that is no C++ ends up as one word. What says nothing about the kernel is left out on the way: return types, unnamed
namespaces, `const`, references, casts of literals ((int)4), ABI tags and clones.

Lambdas are written in five ways, which are one here: `f(int)::{lambda(float)#2}` (GNU), `f(int)::[lambda(float) (instance 2)]`
(ncu), `f(int)::'lambda0'(float)` and `f(int)::$_1` (LLVM), `__nv_dl_wrapper_t<__nv_dl_tag<R (*)(int), &f, 2u>, …>` (nvcc's
extended lambdas).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

MOST_CHARS = 16_000             # of a name that are looked at
MOST_DEPTH = 40                 # of nested brackets; what is deeper is left out
_BUILTIN = frozenset({"void", "bool", "char", "short", "int", "long", "float", "double", "signed", "unsigned", "auto", "__int128",
                      "_Float16", "__half", "half"})
_QUALIFIERS = frozenset({"const", "volatile", "typename", "enum", "struct", "class", "static", "noexcept", "restrict",
                         "__restrict__"})
_CLOSES = {">": "<", ")": "(", "}": "{", "]": "["}
_LEX = re.compile(r"::|[<>(){}\[\],]|[^<>(){}\[\],:]+|:")
_ANONYMOUS = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|\{anonymous\}|\(unnamed namespace\)|_GLOBAL__N__?\w*)::")
_OPERATOR = re.compile(r"\boperator\s*(\(\)|<=>|<<=?|>>=?|<=|>=|->\*?|<|>|\[\]|,)(?=\s*[(<]|$)")
_SPELT = {"()": "call", "<": "less", ">": "greater", "<<": "shl", ">>": "shr", "[]": "index"}
_CAST = re.compile(r"\((?:unsigned |signed )?[\w:]+(?: long)?\)(?=-?\d)")
_SUFFIX = re.compile(r"(?<=\d)(?:u?ll?|ul?)\b")
_QUOTED = re.compile(r"^'lambda(\d*)'$|^\$_(\d+)$")
_NUMBER = re.compile(r"#(\d+)|instance (\d+)")


@dataclass(slots=True)
class Part:
    """One step of a qualified name. `number` counts the lambdas of the function before it from 1; 0: no lambda."""

    word: str = ""
    args: list[Name] | None = None
    params: list[Name] | None = None
    number: int = 0


@dataclass(slots=True)
class Name:
    """A qualified name or type; `pointer` holds the asterisks behind it. Without parts: an empty place."""

    parts: list[Part] = field(default_factory=list)
    pointer: str = ""

    @property
    def is_address(self) -> bool:
        """Tell whether it is the address of a function, as a template argument may be."""
        return self.pointer.startswith("&")


@dataclass(slots=True)
class _Group:
    opening: str
    lists: list[list[str | _Group]]


def parse(text: str) -> Name:
    """Return the structure of a demangled name. Never raises."""
    return _name(_items(_plain(text[:MOST_CHARS])), top=True)


def _plain(text: str) -> str:
    text = _ANONYMOUS.sub("", text.replace("->", "→"))
    text = _OPERATOR.sub(lambda match: "operator@" + _SPELT.get(match[1], "other"), text)
    return _SUFFIX.sub("", _CAST.sub("", text))


def _items(text: str) -> list[str | _Group]:
    """The text as fragments and bracketed groups; a bracket without its partner is left out."""
    whole = _Group("", [[]])
    stack = [whole]
    too_deep = 0
    for match in _LEX.finditer(text):
        token = match[0]
        top = stack[-1]
        if token in "<({[":
            if len(stack) > MOST_DEPTH:
                too_deep += 1
                continue
            group = _Group(token, [[]])
            top.lists[-1].append(group)
            stack.append(group)
        elif token in _CLOSES:
            if too_deep:
                too_deep -= 1
                continue
            opening = next((index for index in range(len(stack) - 1, 0, -1) if stack[index].opening == _CLOSES[token]), 0)
            if opening:
                del stack[opening:]
        elif too_deep:
            continue
        elif token == "," and len(stack) > 1:
            top.lists.append([])
        else:
            top.lists[-1].append(token)
    return whole.lists[0]


def _name(items: list[str | _Group], top: bool = False) -> Name:
    """One place of a list (or the whole name) with its scopes."""
    name = Name()
    part = Part()
    after_group = False
    for item in items:
        if item == "::":
            _close(name, part)
            part, after_group = Part(), False
        elif isinstance(item, str):
            if not after_group:
                _take_words(name, part, item, top)
                continue
            words = [word for word in item.replace("&", " ").split() if word not in _QUALIFIERS]
            if words and not set(item) <= set("* &") and "*" not in words[0]:       # `enable_if<…>::type f`: it was its type
                name.parts.clear()
                part, after_group = Part(words[-1]), False
            elif words:
                name.pointer += "*" * item.count("*")
        else:
            after_group = _take_group(name, part, item) or after_group
    _close(name, part)
    return name


def _take_words(name: Name, part: Part, text: str, top: bool) -> None:
    """`void at`, `float const*`, `unsigned long`, `&at`: the word of a part without what qualifies it."""
    if text.lstrip(" (").startswith("&") and not part.word and not name.parts:
        name.pointer = "&"
    words = [word for word in re.sub(r"[*&]", " ", text).split() if word not in _QUALIFIERS]
    if "*" in text:
        name.pointer += "*" * text.count("*")
    if not words:
        return
    builtin = [word for word in words if word in _BUILTIN]
    if len(builtin) == len(words) or (top and not builtin and not name.parts):
        part.word = " ".join([part.word, *words]).strip()
    else:
        if len(words) > 1:
            name.parts.clear()
        part.word = words[-1]


def _take_group(name: Name, part: Part, group: _Group) -> bool:
    """Take a bracket into a part; False where it was the name's own parentheses, as in `&(f(int))`."""
    if group.opening == "<":
        part.args = [_name(fragments) for fragments in group.lists]
    elif group.opening == "(" and (part.word or part.args is not None or part.number):
        part.params = _params(group)
    elif group.opening == "(":
        inner = _name(group.lists[0])
        if not inner.parts:
            name.pointer += inner.pointer
            return False
        name.parts.extend(inner.parts[:-1])
        last = inner.parts[-1]
        part.word, part.args, part.params, part.number = last.word, last.args, last.params, last.number
        name.pointer += inner.pointer
    else:
        text = "".join(item for item in group.lists[0] if isinstance(item, str)).strip()
        flat = text + "".join(item for fragment in group.lists[-1] if isinstance(fragment, _Group) for items in fragment.lists
                              for item in items if isinstance(item, str))
        number = _NUMBER.search(flat) or _NUMBER.search("".join(item for item in group.lists[-1] if isinstance(item, str)))
        if number and text.startswith(("lambda", "unnamed")):
            part.number = int((number[1] or number[2])[:6])
            params = next((item for item in group.lists[0] if isinstance(item, _Group)), None)
            part.params = _params(params) if params else []
    return True


def _params(group: _Group) -> list[Name]:
    return [param for param in (_name(items) for items in group.lists) if param.parts]


def _close(name: Name, part: Part) -> None:
    quoted = _QUOTED.match(part.word)
    if quoted:                                  # 'lambda' is the first, 'lambda0' the second; $_0 the first
        part.number = int((quoted[1] or quoted[2] or "-1")[:6]) + (2 if quoted[2] is None else 1)
        part.word = ""
    if part.word or part.args is not None or part.params is not None or part.number:
        name.parts.append(part)


def walk(name: Name, most: int = 4_000) -> Iterator[Name]:
    """Yield a name and all names within its arguments and parameters, outer ones first."""
    waiting = [name]
    while waiting and most:
        most -= 1
        inner_name = waiting.pop()
        yield inner_name
        for part in reversed(inner_name.parts):
            waiting.extend(reversed(part.params or []))
            waiting.extend(reversed(part.args or []))
