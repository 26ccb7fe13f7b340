"""Which arguments a kernel stores through, followed through its own text: names for addresses, references, casts, device functions.

An argument is written, not written, or one of which the text does not tell (handed to a function that is not in the file).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from tuner.tuning.cuda.directives import expand
from tuner.tuning.cuda.items import Item
from tuner.tuning.cuda.source import Source
from tuner.tuning.cuda.statements import (
    ASSIGNMENTS,
    KEYWORDS,
    declares,
    in_declaration,
    is_star,
    leading_texts,
    left_of,
    operands,
    right_of,
    statements,
    without_templates,
)
from tuner.tuning.cuda.tokens import closing_of, is_word, split_at_commas

MAX_CALLS = 12  # functions within functions
MAX_STATEMENT = 1_000  # tokens; what a longer one does is not told
ROUNDS = 4  # names for names for addresses
_SCALARS = {
    "int", "unsigned", "float", "double", "bool", "char", "short", "long", "size_t", "uint", "half", "__half", "half2",
    "__half2", "__nv_bfloat16", "__nv_bfloat162", "nv_bfloat16", "int32_t", "uint32_t", "int64_t", "uint64_t", "int8_t",
    "uint8_t", "float2", "float3", "float4", "int2", "int4", "uint2", "uint4", "double2", "signed", "int16_t", "uint16_t",
    "dim3",
}
# functions whose first address is stored to; those of CUDA and those that people write
_STORES = re.compile(
    r"(?:\w*[aA]tomic\w+|__st\w+|(?:\w*_)?(?:st|store|write|put|copy_to|scatter|flush)(?:_\w+|\w*)|Store\w*|Write\w*|memset\w*|memcpy\w*"
    r"|__pipeline_memcpy_async|red_\w+|swap)$"
)
_SECOND = {"memcpy_async", "load_matrix_sync", "copy"}  # (group, to, from, …), (fragment, from, …)
_READS = re.compile(
    r"(?:__ld\w+|(?:\w*_)?(?:ld|load|read|fetch|gather|prefetch)(?:_\w+|[A-Z0-9]\w*|)|Load\w*|Read\w*|tex\w+|printf|assert|__builtin_\w+"
    r"|__cvta_generic_to_\w+|isnan|isinf)$"
)
_ASM_STORE = re.compile(
    r"(?:^|[;{\s])@?!?\w*\s*(st|red|atom|cp\.async\.bulk[\w.:]*\.global\.shared\S*|cp\.reduce[\w.:]*|multimem\.(?:st|red))\b"
    r"(?!\.shared)[\w.:]*[^\[;]*\[\s*%(\d+)"
)
_THROUGH = re.compile(r"(?:\w+_cast|__restrict__|forward|move|get|addressof|data|begin|make_\w+|min|max)$")


@dataclass
class Uses:
    """Places of arguments, by what is done with what lies at their addresses."""

    written: set[int] = field(default_factory=set)
    read: set[int] = field(default_factory=set)
    unsure: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Parameter:
    """One argument: `is_const`: nothing may be stored through it; `is_reference`: a store to its name is one to the caller's."""

    name: str
    pointer: bool
    is_const: bool
    is_reference: bool


def parameter(words: Sequence[str]) -> Parameter:
    """Return an argument from its tokens."""
    words = list(words[: words.index("=")]) if "=" in words else list(words)
    plain, depth = [], 0
    for word in words:
        depth += (word in ("<", "[", "(")) - (word in (">", "]", ")"))
        if (depth == 0 and word not in (">", "]", ")")) or word == "[":
            plain.append(word)
    names = [
        word for word in plain if is_word(word) and word not in ("__restrict__", "__restrict", "restrict", "const", "volatile")
    ]
    pointer = "*" in plain or "[" in plain
    star = plain.index("*") if "*" in plain else len(plain)
    return Parameter(names[-1] if names else "", pointer, "const" in plain[:star], "&" in plain or "&&" in plain)


class Flow:
    """Follows arguments through the functions of a file."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._made: dict[int, Uses] = {}
        self._called: dict[tuple[str, int], Item | None] = {}
        self._open: set[int] = set()

    def of(self, item: Item) -> Uses:
        """Return what a function does with its arguments; everything unsure where calls go too deep or in a circle."""
        if id(item) in self._made:
            return self._made[id(item)]
        params = [parameter(expand(part, self.source.macros)) for part in split_at_commas(self.source.arguments_of(item))]
        if id(item) in self._open or len(self._open) > MAX_CALLS or item.body < 0:
            return Uses(
                unsure={index for index, param in enumerate(params) if (param.pointer or param.is_reference) and not param.is_const}
            )
        self._open.add(id(item))
        uses = _Body(self, params, expand(self.source.body_of(item), self.source.macros)).follow()
        self._open.discard(id(item))
        fixed = {index for index, param in enumerate(params) if param.is_const}
        uses.written -= fixed
        uses.unsure -= fixed | uses.written
        self._made[id(item)] = uses
        return uses

    def function(self, name: str, count: int) -> Item | None:
        """Return the function of the file that a call with `count` arguments means."""
        key = name, count
        if key in self._called:
            return self._called[key]
        functions = [
            item for item in self.source.of_name.get(name, ()) if item.kind in ("function", "kernel") and item.names[0] == name
        ]
        fits = [item for item in functions if item.body >= 0] or functions
        self._called[key] = next((item for item in fits if len(split_at_commas(self.source.arguments_of(item))) == count), None)
        return self._called[key]


class _Body:
    def __init__(self, flow: Flow, params: Sequence[Parameter], words: list[str]) -> None:
        self.flow, self.words = flow, without_templates(words)
        self.roots: dict[str, set[int]] = {param.name: {index} for index, param in enumerate(params)}
        self.references = {param.name for param in params if param.is_reference}
        self.addresses = {param.name for param in params if param.pointer}
        self.values = {param.name for param in params if not param.pointer and not param.is_reference}  # no addresses themselves
        self.uses = Uses()

    def follow(self) -> Uses:
        segments = list(statements(self.words))
        for _ in range(ROUNDS):
            before = {name: set(roots) for name, roots in self.roots.items()}
            for segment in segments:
                if len(segment) <= MAX_STATEMENT:
                    self._names(segment)
            if before == self.roots:
                break
        for segment in segments:
            if len(segment) > MAX_STATEMENT:
                self.uses.unsure |= {root for name in set(segment) & self.roots.keys() for root in self.roots[name]}
                continue
            self._stores(segment)
            self._calls(segment)
            self._reads(segment)
        return self.uses

    # names for addresses

    def _names(self, segment: list[str]) -> None:
        declared = False
        for part in split_at_commas(segment):
            index = next((place for place, word in enumerate(part) if word in ASSIGNMENTS), -1)
            left, right = (part[:index], part[index + 1 :]) if index >= 0 else (part, [])
            if declared and left and left[0] in ("*", "&"):
                left = ["auto", *left]
            kind = declares(left)
            if kind is not None:
                declared = True
                name, types = kind
                if index < 0 and len(left) >= 2 and left[-1] in (")", "}"):  # T name(a, b)
                    right = left[left.index(name) + 1 :]
                self._alias(name, types, right)
            elif index >= 0 and len(left) == 1 and part[index] == "=" and left[0] in self.addresses:
                self.roots.setdefault(left[0], set()).update(self._roots_of(right))
            elif index >= 0 and len(left) > 1 and is_word(left[0]) and left[1] == "[" and self._is_address(right):
                self.roots.setdefault(left[0], set()).update(self._roots_of(right))  # ptrs[i] = a + 3

    def _alias(self, name: str, types: list[str], right: list[str]) -> None:
        is_auto, points = "auto" in types, "*" in types
        refers = "&" in types or "&&" in types
        if not right:
            if points:
                self.addresses.add(name)
            return
        if right[0] == "[" and is_auto:
            return
        plain = not points and not refers and bool(_SCALARS & set(types))
        if plain or (not points and not refers and not self._is_address(right)):
            return
        roots = self._roots_of(right)
        if not roots:
            if points:
                self.addresses.add(name)
            return
        self.roots.setdefault(name, set()).update(roots)
        if points or is_auto:
            self.addresses.add(name)
        if refers:
            self.references.add(name)

    def _roots_of(self, words: Sequence[str]) -> set[int]:
        """Return the arguments whose addresses an expression rests on: names outside of […].

        Beside an address, x[i] is a number that is added to it: a + x[i] rests on a.
        """
        plain: set[int] = set()
        value_roots: set[int] = set()
        depth = 0
        for index, word in enumerate(words):
            depth += (word == "[") - (word == "]")
            if depth == 0 and word in self.roots and (index == 0 or words[index - 1] not in (".", "->", "::")):
                is_value = words[index + 1 : index + 2] == ["["] and "&" not in words[max(0, index - 2) : index]
                (value_roots if is_value else plain).update(self.roots[word])
        return plain or value_roots

    def _is_address(self, words: Sequence[str]) -> bool:
        """Return whether an expression hands on an address of an argument, not a value that lies there."""
        depth = 0
        for index, word in enumerate(words):
            depth += (word == "[") - (word == "]")
            if depth or word not in self.roots or word in self.values or (index and words[index - 1] in (".", "->", "::")):
                continue
            if word in self.references and word not in self.addresses:
                if "&" in words[:index]:
                    return True
                continue
            after = words[index + 1] if index + 1 < len(words) else ""
            is_value = after in ("[", "->", ".") or is_star(words, index)
            if not is_value or "&" in words[max(0, index - 4) : index]:
                return True
        return False

    # stores

    def _stores(self, segment: list[str]) -> None:
        for index, word in enumerate(segment):
            if word in ASSIGNMENTS:
                left = left_of(segment, index)
                whole = left
                if declares(whole) is not None or (index - len(left) > 0 and in_declaration(segment, index - len(left))):
                    continue
                self._store(left, word != "=")
            elif word in ("++", "--"):
                left = (
                    left_of(segment, index)
                    if index and (is_word(segment[index - 1]) or segment[index - 1] in (")", "]"))
                    else right_of(segment, index)
                )
                self._store(left, True)

    def _store(self, left: list[str], reads: bool) -> None:
        bare = [word for word in left if word not in ("(", ")")]
        if len(bare) == 1 and bare[0] not in self.references:
            return  # the name itself: an address moves on
        if (
            bare
            and "[" not in bare
            and "*" not in bare
            and "->" not in bare
            and "." not in bare
            and "(" not in left
            and not (set(bare) & self.references)
        ):
            return
        base = left
        if (
            is_word(bare[0] if bare else "")
            and bare
            and bare[0] in self.roots
            and len(bare) > 1
            and bare[1] == "."
            and bare[0] not in self.references
            and bare[0] not in self.addresses
            and "[" not in bare
            and "*" not in bare
        ):
            base = bare[:1]
        roots = self._roots_of(base)
        self.uses.written |= roots
        if reads:
            self.uses.read |= roots

    # calls

    def _calls(self, segment: list[str]) -> None:
        for index in range(len(segment) - 1):
            name = segment[index]
            if segment[index + 1] != "(" or not is_word(name) or name in KEYWORDS:
                continue
            closing = closing_of(segment, index + 1)
            inside = segment[index + 2 : closing]
            if name in ("asm", "__asm__", "volatile", "__volatile__"):
                self._assembly(inside)
                continue
            arguments = split_at_commas(inside)
            if name in _SCALARS or name.endswith("_cast"):
                continue
            self._call(name, arguments, segment[index - 1] if index else "", segment, index)

    def _call(self, name: str, given: list[list[str]], before: str, segment: list[str], position: int) -> None:
        item = self.flow.function(name, len(given)) if before not in (".", "->") else None
        if item is None and before not in (".", "->"):
            for more in range(1, 5):  # arguments with a default of their own
                item = item or self.flow.function(name, len(given) + more)
        if item is not None:
            uses = self.flow.of(item)
            for place, words in enumerate(given):
                roots = self._roots_of(words)
                for mark, of in ((self.uses.written, uses.written), (self.uses.read, uses.read), (self.uses.unsure, uses.unsure)):
                    if place in of:
                        mark |= roots
            return
        addresses = [words for words in given if self._is_address(words)]
        if before in (".", "->"):
            holder = self._roots_of(segment[max(0, position - 2) : position - 1])
            if _STORES.match(name) and not addresses and holder:
                self.uses.written |= holder
        if not addresses:
            for words in given[: 2 if name == "swap" else 1] if re.match(r"\w*[aA]tomic|red_|swap", name) else []:
                self.uses.written |= self._roots_of(words)
            return
        if name == "load_matrix_sync":
            self.uses.read |= self._roots_of(given[1]) if len(given) > 1 else set()
        elif name in _SECOND:
            self.uses.written |= self._roots_of(given[1]) if len(given) > 1 and name == "memcpy_async" else set()
            for words in addresses if name == "copy" else given[2:3]:
                (self.uses.unsure if name == "copy" else self.uses.read).update(self._roots_of(words))
        elif _READS.match(name):
            for words in addresses:
                self.uses.read |= self._roots_of(words)
        elif _STORES.match(name):
            self.uses.written |= self._roots_of(addresses[0] if before in (".", "->") or self._is_address(given[0]) else [])
            if re.match(r"\w*[aA]tomic|red|swap", name):
                self.uses.read |= self._roots_of(given[0])
            for words in given[1:]:
                self.uses.read |= self._roots_of(words)
            if not self._is_address(given[0]) and before not in (".", "->"):
                for words in addresses:
                    if not self._roots_of(words) & self._roots_of(given[0]):
                        self.uses.unsure |= self._roots_of(words)
        elif not _THROUGH.match(name) and name not in self.roots:
            for words in addresses:
                self.uses.unsure |= self._roots_of(words)

    def _assembly(self, inside: list[str]) -> None:
        texts = "".join(text[1:-1].replace("\\n", "\n").replace("\\t", " ") for text in leading_texts(inside))
        stored = {int(match[2]) for match in _ASM_STORE.finditer(texts)}
        for index, words in enumerate(operands(inside)):
            roots = self._roots_of(words)
            if index in stored:
                self.uses.written |= roots
            else:
                self.uses.read |= roots

    # reads

    def _reads(self, segment: list[str]) -> None:
        for index, word in enumerate(segment):
            if word not in self.roots or (index and segment[index - 1] in (".", "->", "::")):
                continue
            after = segment[index + 1] if index + 1 < len(segment) else ""
            if after not in ("[", "->") and not is_star(segment, index) and word not in self.references:
                continue
            equals = next((place for place in range(index, len(segment)) if segment[place] in ASSIGNMENTS), -1)
            if (
                equals >= 0
                and word in left_of(segment, equals)
                and segment[:equals].count("(") <= segment[:equals].count(")") + 1
            ):
                continue
            if "&" in segment[max(0, index - 1) : index]:
                continue
            self.uses.read |= self.roots[word]
