"""What names are worth at a place of a host function: its variables, its arguments through its callers, constants of the file.

A size that only a call tells is taken for large, so that min(n, 1024) is 1024; the value is then marked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tuner.tuning.cuda.constants import LARGE, evaluate
from tuner.tuning.cuda.directives import Macro, expand
from tuner.tuning.cuda.items import Item
from tuner.tuning.cuda.source import Source
from tuner.tuning.cuda.tokens import close_angle, closing_of, is_word, split_at_commas

MAX_DEPTH = 12  # variables in variables, callers of callers
MAX_CALLERS = 8
MAX_EXPRESSION = 5_000  # tokens that are assigned to a variable
MAX_LOOKED_AT = 10_000_000      # tokens, of all names of a file together


@dataclass(frozen=True)
class Scope:
    """A place in a host function: its tokens to there, and the calls through which it was reached."""

    item: Item
    words: tuple[str, ...]
    at: int
    depth: int = 0


@dataclass(frozen=True)
class Number:
    """`value` of an expression; `several` values, where the file lists them; `is_size`: it rests on an unknown size."""

    value: int | float
    several: tuple[int, ...] = ()
    is_size: bool = False


@dataclass
class Values:
    """The host functions of a file, and what names are worth there."""

    source: Source
    _bodies: dict[int, tuple[str, ...]] = field(default_factory=dict)
    _worth: dict[tuple[int, int, str], Number | None] = field(default_factory=dict)
    _open: set[tuple[int, int, str]] = field(default_factory=set)
    _parameters: dict[int, dict[str, list[str]]] = field(default_factory=dict)
    _constants: dict[str, int | float | None] = field(default_factory=dict)
    _looked_at: int = 0

    def may_look_at(self, count: int) -> bool:
        """Return whether so many tokens more may be looked at; they are counted."""
        self._looked_at += count
        return self._looked_at <= MAX_LOOKED_AT

    def body(self, item: Item) -> tuple[str, ...]:
        """Return the tokens of a host function with its macros replaced."""
        if id(item) not in self._bodies:
            words = self.source.words[item.opening : item.last + 1] if item.body >= 0 else []
            self._bodies[id(item)] = tuple(expand(words, self.expanded())) if words else ()
        return self._bodies[id(item)]

    def expanded(self) -> dict[str, Macro]:
        """Return the macros with brackets: those of numbers keep their names, by which they are parameters."""
        return {name: macro for name, macro in self.source.macros.items() if macro.arguments is not None or "<" in macro.body}

    def variable(self, scope: Scope, name: str, constructs: bool = False) -> tuple[list[str], bool] | None:
        """Return what a variable holds at a place, and whether it was given in brackets: `dim3 block(32, 8)`; None for no variable.

        The last assignment before the place that stands in a block around it.
        """
        words = scope.words
        if not self.may_look_at(scope.at):
            return None
        stack: list[list[tuple[list[str], bool]]] = [[]]
        at = 0
        while at < scope.at:
            word = words[at]
            if word == "{":
                stack.append([])
            elif word == "}" and len(stack) > 1:
                stack.pop()
            elif word == name and at + 1 < len(words) and (at == 0 or words[at - 1] not in (".", "->", "::")):
                after = words[at + 1]
                if (
                    after == "["
                    and (close := closing_of(words, at + 1, "[", "]")) + 1 < len(words)
                    and words[close + 1] == "="
                    and at
                    and is_word(words[at - 1])
                ):
                    at, after = close, "="
                if after == "=" or (after == "{" and at and is_word(words[at - 1])):
                    begin = at + 2 if after == "=" else at + 1
                    end, depth = begin, 0
                    while end < min(len(words), begin + MAX_EXPRESSION) and not (depth == 0 and words[end] in (";", ",", ")")):
                        if words[end] == "<" and end == begin + 1 and words[at - 1] == "auto":  # auto f = kernel<128, 4>;
                            end = max(end, close_angle(words, end, min(len(words), begin + MAX_EXPRESSION)))
                        depth += (words[end] in ("(", "[", "{")) - (words[end] in (")", "]", "}"))
                        end += 1
                    if not self.may_look_at(end - begin):
                        return None
                    is_dim3 = after == "{" and words[at - 1] == "dim3"
                    stack[-1].append((list(words[begin + 1 : end - 1]), True) if is_dim3 else (list(words[begin:end]), False))
                    at = end if after == "{" else at
                elif after == "(" and at and is_word(words[at - 1]) and words[at - 1] not in ("return", "else") and constructs:
                    stack[-1].append((list(words[at + 2 : closing_of(words, at + 1)]), True))
            at += 1
        values = [value for level in stack for value in level]
        return values[-1] if values else None

    def assigned(self, scope: Scope, holder: str, name: str) -> list[str]:
        """Return what is assigned to holder.name before a place; `block.x = block.x / 2` says nothing of its own."""
        words = scope.words
        for index in range(scope.at - 4, -1, -1) if self.may_look_at(scope.at) else ():
            if words[index] == holder and words[index : index + 4] == (holder, ".", name, "="):
                end = next((place for place in range(index, len(words)) if words[place] == ";"), len(words))
                if holder not in words[index + 4 : end]:
                    return list(words[index + 4 : end])
        return []

    def parameters(self, item: Item) -> dict[str, list[str]]:
        """Return the arguments of a host function with their defaults."""
        return self._defaults(item.opening, self.source.arguments_of(item)) if item.opening >= 0 else {}

    def template_parameters(self, item: Item) -> dict[str, list[str]]:
        """Return the template parameters of a host function with their defaults."""
        return self._defaults(item.template, self.source.template_of(item)) if item.template >= 0 else {}

    def _defaults(self, opening: int, inside: Sequence[str]) -> dict[str, list[str]]:
        if opening not in self._parameters:
            defaults = self._parameters[opening] = {}
            for part in split_at_commas(inside):
                index = part.index("=") if "=" in part else len(part)
                names = [word for word in part[:index] if is_word(word)]
                if names:
                    defaults[names[-1]] = part[index + 1 :]
        return self._parameters[opening]

    @cached_property
    def _calls(self) -> dict[str, list[tuple[Item, int]]]:
        """Name of a function of the file → the functions that may call it, with the place of each call."""
        names = {item.names[0] for item in self.source.items if item.kind == "function" and item.names}
        calls_by_name: dict[str, list[tuple[Item, int]]] = {}
        for caller in self.source.items:
            if caller.kind == "function" and caller.body >= 0:
                words = self.body(caller)
                for index in range(len(words) - 1):
                    if words[index] in names and words[index + 1] in ("<", "("):
                        calls_by_name.setdefault(words[index], []).append((caller, index))
        return calls_by_name

    def given(self, scope: Scope, name: str) -> Iterator[tuple[Scope, list[str]]]:
        """Yield what callers in the file give for an argument or a template parameter of a host function, and its default."""
        item = scope.item
        if item.kind != "function" or not item.names:
            return
        plain, template = list(self.parameters(item)), list(self.template_parameters(item))
        count = 0
        for caller, index in self._calls.get(item.names[0], ()) if scope.depth < 4 else ():
            words = self.body(caller)
            if caller is item or count == MAX_CALLERS or not self.may_look_at(100):
                continue
            after, angle = index + 1, []
            if words[after] == "<":
                closed = close_angle(words, after, len(words))
                if closed < 0:
                    continue
                angle, after = split_at_commas(words[after + 1 : closed]), closed + 1
            if after >= len(words) or words[after] != "(":
                continue
            closed = closing_of(words, after)
            if not self.may_look_at(closed - after):
                continue
            arguments = split_at_commas(words[after + 1 : closed])
            values = dict(zip(template, angle, strict=False)) | dict(zip(plain, arguments, strict=False))
            if name in values:
                count += 1
                yield Scope(caller, words, index, scope.depth + 1), values[name]
        default = (self.parameters(item) | self.template_parameters(item)).get(name)
        if default:
            yield scope, default

    def number(self, scope: Scope, words: Sequence[str], depth: int = 0) -> Number | None:
        """Return the number of an expression at a place; None where the file does not tell it."""
        is_size = False
        several: tuple[int, ...] = ()

        def look(name: str) -> int | float | None:
            nonlocal is_size, several
            value = self._name(scope, name, depth)
            if value is None:
                if name.startswith("sizeof "):
                    return 4 if (self.source.of_name.get(name[7:]) is None) else None
                if self._is_size(scope, name):
                    is_size = True
                    return LARGE
                return None
            is_size = is_size or value.is_size
            several = several or value.several
            return value.value

        if depth > MAX_DEPTH:
            return None
        words = list(words)
        listed = self._listed(scope, words)
        if listed:
            return Number(listed[(len(listed) - 1) // 2], tuple(listed))
        value = evaluate(_sizes_of_calls(expand(words, self.source.macros)), look)
        if value is None or (is_size and abs(value) > LARGE >> 12):
            return None
        return Number(value, several if len(words) == 1 else (), is_size)

    def _is_size(self, scope: Scope, name: str) -> bool:
        """Return whether a name is a number that only the call tells: an argument of the host, or a variable that rests on one."""
        return name == "_call_" or name in self.parameters(scope.item) or self.variable(scope, name) is not None

    def _name(self, scope: Scope, name: str, depth: int) -> Number | None:
        """Return what a name is worth at a place; None for one that rests on itself. Each is looked for once."""
        key = id(scope.item), scope.at, name
        if key in self._open:
            return None
        if key not in self._worth:
            self._open.add(key)
            self._worth[key] = self._look_for(scope, name, depth)
            self._open.discard(key)
        return self._worth[key]

    def _look_for(self, scope: Scope, name: str, depth: int) -> Number | None:
        variable = self.variable(scope, name, constructs=True)
        if variable is not None:
            words = variable[0]
            if words and not (len(words) == 1 and words[0] == name):
                return self.number(scope, words, depth + 1)
        if name in self.parameters(scope.item) or name in self.template_parameters(scope.item):
            for caller, words in self.given(scope, name):
                value = self.number(caller, words, depth + 1)
                if value is not None:
                    return value
            return None
        value_of = self.constant(name, depth)
        return Number(value_of) if value_of is not None else None

    def constant(self, name: str, depth: int = 0) -> int | float | None:
        """Return the number of a name at the top of the file: a macro, a constant, one of an enum; None of anything else."""
        if depth > MAX_DEPTH:
            return None
        if name not in self._constants:
            self._constants[name] = None  # of one that rests on itself
            words = self.words_of(name)
            if words:
                self._constants[name] = evaluate(expand(words, self.source.macros), lambda each: self.constant(each, depth + 1))
        return self._constants[name]

    def words_of(self, name: str) -> Sequence[str] | None:
        """Return the tokens of a macro without brackets, a constant or one of an enum; None of anything else."""
        macro = self.source.macros.get(name)
        if macro is not None and macro.arguments is None:
            return macro.body
        return next(
            (words for item in self.source.of_name.get(name, ()) if (words := self._constant_words(item, name)) is not None), None
        )

    def _constant_words(self, item: Item, name: str) -> list[str] | None:
        words = self.source.words[item.first : item.last + 1]
        if (item.kind == "variable" and ("const" in words or "constexpr" in words)) or item.kind == "enum":
            index = next((place for place in range(len(words) - 1) if words[place] == name and words[place + 1] in ("=", "{")), -1)
            if index >= 0:
                end, level = index + 2, 0
                while end < len(words) and not (level == 0 and words[end] in (";", ",", "}")):
                    level += (words[end] in ("(", "{", "[")) - (words[end] in (")", "}", "]"))
                    end += 1
                return words[index + 2 : end]
        return None

    def _listed(self, scope: Scope, words: Sequence[str]) -> list[int]:
        """Return the numbers of `sizes[i]` where `int sizes[] = {32, 64, …}`, and of the name of a `for (int b : {…})`."""
        name = words[0] if words else ""
        if len(words) < 4 or words[1] != "[" or words[-1] != "]":
            return []
        variable = self.variable(scope, name)
        if variable is None or variable[0][:1] != ["{"]:
            return []
        values = [evaluate(part, lambda other: None) for part in split_at_commas(variable[0][1:-1])]
        return [int(number) for number in values if number is not None] if None not in values else []


def _sizes_of_calls(words: list[str]) -> list[str]:
    """Return tokens with x.size(0), x->numel() and the like as one name: sizes that only the call tells."""
    out: list[str] = []
    index = 0
    while index < len(words):
        if words[index] in (".", "->") and index + 2 < len(words) and out and is_word(out[-1]):
            out.pop()
            index += 2
            if words[index] == "(":
                index = closing_of(words, index) + 1
            elif words[index] == "[":
                index = closing_of(words, index, "[", "]") + 1
            out.append("#call")
            continue
        out.append(words[index])
        index += 1
    return ["_call_" if word == "#call" else word for word in out]
