"""How a file launches its own kernels: threads of a block, template values and shared memory, as far as its text tells.

Followed are constants, variables of the host function, its arguments through its callers, templates through their calls. A size
that only a call tells is taken for large, so that min(n, 1024) is 1024; the value is then marked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tuner.tuning.cuda.constants import CEILS, LARGE, SIZES, evaluate
from tuner.tuning.cuda.directives import Macro, expand
from tuner.tuning.cuda.items import Item, Source
from tuner.tuning.cuda.tokens import close_angle, is_word, split_at_commas

MAX_LAUNCHES = 400
MAX_DEPTH = 12  # variables in variables, callers of callers
MAX_CALLERS = 8
MAX_LOOKED_AT = 10_000_000      # tokens, of all names of a file together
_ASSIGN = {"+=", "-=", "*=", "/="}
_CALLS = {"cudaLaunchKernel": 0, "cudaLaunchCooperativeKernel": 0, "hipLaunchKernelGGL": 0}


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


@dataclass(frozen=True)
class Launch:
    """One `<<<…>>>`: tokens of the threads along each axis, of the template's values, and of the shared memory; () for none."""

    kernel: str
    line: int
    scope: Scope
    block: tuple[tuple[str, ...], ...]
    grid: tuple[tuple[str, ...], ...]
    template: tuple[tuple[str, ...], ...]
    smem: tuple[str, ...] = ()
    arguments: tuple[tuple[str, ...], ...] = ()
    block_name: str = ""  # of the variable that holds the block


@dataclass
class Launches:
    """The launches of a file, and what its names are worth there."""

    source: Source
    _bodies: dict[int, tuple[str, ...]] = field(default_factory=dict)
    _worth: dict[tuple[int, int, str], Number | None] = field(default_factory=dict)
    _open: set[tuple[int, int, str]] = field(default_factory=set)
    _looked_at: int = 0

    def body(self, item: Item) -> tuple[str, ...]:
        """Return the tokens of a host function with its macros replaced."""
        if id(item) not in self._bodies:
            words = self.source.words[item.opening : item.last + 1] if item.body >= 0 else []
            self._bodies[id(item)] = tuple(expand(words, self._launching())) if words else ()
        return self._bodies[id(item)]

    def _launching(self) -> dict[str, Macro]:
        """Return the macros with brackets: those of numbers keep their names, by which they are parameters."""
        return {name: macro for name, macro in self.source.macros.items() if macro.arguments is not None or "<" in macro.body}

    def all(self) -> list[Launch]:
        """Return every launch of the file in order."""
        found: list[Launch] = []
        for item in self.source.items:
            if item.kind in ("function", "other", "variable") and len(found) < MAX_LAUNCHES:
                found += self._launches(item)
        return found

    def _launches(self, item: Item) -> Iterator[Launch]:
        words = self.body(item)
        line = self.source.line_of(item.first)
        for at in range(len(words) - 3):
            if words[at] == words[at + 1] == words[at + 2] == "<" and at:
                launch = self._chevrons(item, words, at, line)
                if launch is not None:
                    yield launch
            elif words[at] in _CALLS and words[at + 1] == "(":
                given = split_at_commas(words[at + 2 : _closing(words, at + 1)])
                if len(given) >= 4:
                    kernel, template = _kernel_of(given[0])
                    yield self._made(
                        item, words, at, kernel, template, given[1], given[2], given[4] if len(given) > 4 else [], line
                    )
            elif words[at] in ("cudaLaunchKernelEx", "cudaLaunchKernelExC") and words[at + 1] == "(":
                given = split_at_commas(words[at + 2 : _closing(words, at + 1)])
                if len(given) >= 2:
                    scope, holder = Scope(item, words, at), [each for each in given[0] if is_word(each)]
                    kernel, template = _kernel_of(given[1])
                    block = self._field(scope, holder[-1] if holder else "", "blockDim")
                    yield self._made(item, words, at, kernel, template, [], block, [], line)

    def _field(self, scope: Scope, holder: str, name: str) -> list[str]:
        """Return what is assigned to holder.name before a place."""
        words = scope.words
        for at in range(scope.at - 4, -1, -1):
            if words[at : at + 4] == (holder, ".", name, "="):
                end = next((place for place in range(at, len(words)) if words[place] == ";"), len(words))
                return list(words[at + 4 : end])
        return []

    def _chevrons(self, item: Item, words: Sequence[str], at: int, line: int) -> Launch | None:
        end, depth = at + 3, 0
        while end + 2 < len(words):
            depth += (words[end] in ("(", "[", "{")) - (words[end] in (")", "]", "}"))
            if depth == 0 and words[end] == words[end + 1] == words[end + 2] == ">":
                break
            if depth < 0 or words[end] == ";":
                return None
            end += 1
        given = split_at_commas(words[at + 3 : end])
        if len(given) < 2:
            return None
        begin = at - 1
        if words[begin] == ">":
            depth = 0
            while begin > 0:
                depth += (words[begin] == ">") - (words[begin] == "<")
                begin -= 1
                if depth == 0:
                    break
        kernel, template = _kernel_of(words[begin:at])
        if words[at - 1] == ")":  # (kernel<T>)<<<…>>>
            opening = at - 1
            while opening > 0 and words[opening] != "(":
                opening -= 1
            kernel, template = _kernel_of(words[opening + 1 : at - 1])
        call = words[end + 4 : _closing(words, end + 3)] if end + 3 < len(words) and words[end + 3] == "(" else []
        made = self._made(item, words, at, kernel, template, given[0], given[1], given[2] if len(given) > 2 else [], line)
        return replace(made, arguments=tuple(tuple(each) for each in split_at_commas(call)))

    def _made(
        self,
        item: Item,
        words: Sequence[str],
        at: int,
        kernel: str,
        template: list[list[str]],
        grid: Sequence[str],
        block: Sequence[str],
        smem: Sequence[str],
        line: int,
    ) -> Launch:
        scope = Scope(item, tuple(words), at)
        named = self._variable(scope, kernel)  # auto kernel = &f<128>;
        if named and not self.source.of_name.get(kernel):
            kernel, template = _kernel_of(named[0])
        return Launch(
            kernel,
            line,
            scope,
            tuple(map(tuple, self.extents(scope, block))),
            tuple(map(tuple, self.extents(scope, grid))),
            tuple(tuple(each) for each in template),
            tuple(smem),
            block_name=block[0] if len(block) == 1 and is_word(block[0]) else "",
        )

    def extents(self, scope: Scope, words: Sequence[str], depth: int = 0) -> list[list[str]]:
        """Return the tokens along x, y and z: of dim3(…), of a variable that is one, or of a number."""
        words = _bare(words)
        if not words or depth > MAX_DEPTH:
            return []
        if words[0] == "dim3" and len(words) > 1 and words[1] in ("(", "{"):
            return split_at_commas(words[2:-1])
        if words[0] == "{" and words[-1] == "}":
            return split_at_commas(words[1:-1])
        if len(words) == 1 and is_word(words[0]) and (along := [self._field(scope, words[0], axis) for axis in "xyz"])[0]:
            return [each or ["1"] for each in along]  # dim3 block; block.x = 32;
        if len(words) == 1 and is_word(words[0]):
            given = self._variable(scope, words[0], constructs=True)
            if given is not None:
                value, is_constructed = given
                if is_constructed:
                    return split_at_commas(value)
                if value[:1] in (["dim3"], ["{"]) or (len(value) == 1 and is_word(value[0]) and value[0] != words[0]):
                    inner = self.extents(scope, value, depth + 1)
                    if len(inner) > 1 or value[:1] in (["dim3"], ["{"]):
                        return inner
            elif self.source.macros.get(words[0]) is not None and (body := list(self.source.macros[words[0]].body))[:1] == [
                "dim3"
            ]:
                return self.extents(scope, body, depth + 1)
            elif words[0] in self.parameters(scope.item):
                for caller, argument in self.given(scope, words[0]):
                    inner = self.extents(caller, argument, depth + 1)
                    if len(inner) > 1:
                        return inner
        return [list(words)]

    # what names are worth

    def _variable(self, scope: Scope, name: str, constructs: bool = False) -> tuple[list[str], bool] | None:
        """Return what a variable holds at a place, and whether it was given in brackets: `dim3 block(32, 8)`; None for no variable.

        The last assignment before the place that stands in a block around it.
        """
        words = scope.words
        self._looked_at += scope.at
        if self._looked_at > MAX_LOOKED_AT:
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
                    and (close := _closing(words, at + 1, "[", "]")) + 1 < len(words)
                    and words[close + 1] == "="
                    and at
                    and is_word(words[at - 1])
                ):
                    at, after = close, "="
                if after == "=" or (after == "{" and at and is_word(words[at - 1])):
                    begin = at + 2 if after == "=" else at + 1
                    end, depth = begin, 0
                    while end < len(words) and not (depth == 0 and words[end] in (";", ",", ")")):
                        depth += (words[end] in ("(", "[", "{")) - (words[end] in (")", "]", "}"))
                        end += 1
                    is_dim3 = after == "{" and words[at - 1] == "dim3"
                    stack[-1].append((list(words[begin + 1 : end - 1]), True) if is_dim3 else (list(words[begin:end]), False))
                    at = end if after == "{" else at
                elif after == "(" and at and is_word(words[at - 1]) and words[at - 1] not in ("return", "else") and constructs:
                    stack[-1].append((list(words[at + 2 : _closing(words, at + 1)]), True))
            at += 1
        values = [value for level in stack for value in level]
        return values[-1] if values else None

    def parameters(self, item: Item) -> dict[str, list[str]]:
        """Return the arguments of a host function with their defaults."""
        found = {}
        for part in split_at_commas(self.source.arguments_of(item)):
            at = part.index("=") if "=" in part else len(part)
            names = [each for each in part[:at] if is_word(each)]
            if names:
                found[names[-1]] = part[at + 1 :]
        return found

    def template_parameters(self, item: Item) -> dict[str, list[str]]:
        """Return the template parameters of a host function with their defaults."""
        found = {}
        for part in split_at_commas(self.source.template_of(item)):
            at = part.index("=") if "=" in part else len(part)
            names = [each for each in part[:at] if is_word(each)]
            if names:
                found[names[-1]] = part[at + 1 :]
        return found

    def given(self, scope: Scope, name: str) -> Iterator[tuple[Scope, list[str]]]:
        """Yield what callers in the file give for an argument or a template parameter of a host function, and its default."""
        item = scope.item
        if item.kind != "function" or not item.names:
            return
        plain, template = list(self.parameters(item)), list(self.template_parameters(item))
        count = 0
        for caller in self.source.items if scope.depth < 4 else []:
            if caller.kind != "function" or caller is item or caller.body < 0:
                continue
            words = self.body(caller)
            for at in (place for place, word in enumerate(words) if word == item.names[0]):
                after, angle = at + 1, []
                if after < len(words) and words[after] == "<":
                    closed = close_angle(words, after, len(words))
                    if closed < 0:
                        continue
                    angle, after = split_at_commas(words[after + 1 : closed]), closed + 1
                if after >= len(words) or words[after] != "(":
                    continue
                arguments = split_at_commas(words[after + 1 : _closing(words, after)])
                values = dict(zip(template, angle, strict=False)) | dict(zip(plain, arguments, strict=False))
                if name in values and count < MAX_CALLERS:
                    count += 1
                    yield Scope(caller, words, at, scope.depth + 1), values[name]
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
        return name == "_call_" or name in self.parameters(scope.item) or self._variable(scope, name) is not None

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
        held = self._variable(scope, name, constructs=True)
        if held is not None:
            words = held[0]
            if words and not (len(words) == 1 and words[0] == name):
                return self.number(scope, words, depth + 1)
        if name in self.parameters(scope.item) or name in self.template_parameters(scope.item):
            for caller, words in self.given(scope, name):
                value = self.number(caller, words, depth + 1)
                if value is not None:
                    return value
            return None
        return self.constant(name, depth)

    def constant(self, name: str, depth: int = 0) -> Number | None:
        """Return the number of a name at the top of the file: a macro, a constant, one of an enum; None of anything else."""
        if depth > MAX_DEPTH:
            return None
        macro = self.source.macros.get(name)
        if macro is not None and macro.arguments is None:
            words: Sequence[str] | None = macro.body
        else:
            words = next(
                (found for item in self.source.of_name.get(name, ()) if (found := self._constant_words(item, name)) is not None),
                None,
            )
        if not words:
            return None
        value = evaluate(
            expand(words, self.source.macros), lambda each: known.value if (known := self.constant(each, depth + 1)) else None
        )
        return Number(value) if value is not None else None

    def _constant_words(self, item: Item, name: str) -> list[str] | None:
        words = self.source.words[item.first : item.last + 1]
        if (item.kind == "variable" and ("const" in words or "constexpr" in words)) or item.kind == "enum":
            at = next((place for place in range(len(words) - 1) if words[place] == name and words[place + 1] in ("=", "{")), -1)
            if at >= 0:
                end, level = at + 2, 0
                while end < len(words) and not (level == 0 and words[end] in (";", ",", "}")):
                    level += (words[end] in ("(", "{", "[")) - (words[end] in (")", "}", "]"))
                    end += 1
                return words[at + 2 : end]
        return None

    def _listed(self, scope: Scope, words: Sequence[str]) -> list[int]:
        """Return the numbers of `sizes[i]` where `int sizes[] = {32, 64, …}`, and of the name of a `for (int b : {…})`."""
        name = words[0] if words else ""
        if len(words) < 4 or words[1] != "[" or words[-1] != "]":
            return []
        held = self._variable(scope, name)
        if held is None or held[0][:1] != ["{"]:
            return []
        values = [evaluate(each, lambda other: None) for each in split_at_commas(held[0][1:-1])]
        return [int(each) for each in values if each is not None] if None not in values else []

    def resolve(self, scope: Scope, words: Sequence[str], names: dict[str, str], depth: int = 0) -> str | None:
        """Return an expression over the kernel's own names as a text of Python; None where it rests on something else.

        names: a host's name → the kernel's, of what is passed as a template's value; and of each macro and constant itself.
        """
        words = _bare(expand(list(words), self._launching()) if depth == 0 else list(words))
        if depth > MAX_DEPTH or not words or len(words) > 80:
            return None
        out: list[str] = []
        skip = 0
        for place, word in enumerate(words):
            if skip:
                skip -= 1
            elif word in names:
                out.append(names[word])
            elif is_word(word):
                if (
                    word == "sizeof"
                    and words[place + 1 : place + 2] == ["("]
                    and words[place + 3 : place + 4] == [")"]
                    and words[place + 2] in SIZES
                ):
                    out.append(str(SIZES[words[place + 2]]))
                    skip = 3
                    continue
                if is_call(words, place, CEILS) or is_call(words, place, {"min", "max"}):
                    out.append("cdiv" if word not in ("min", "max") else word)
                    continue
                if word in ("std", "const") or (word == "static_cast"):
                    return None
                if word == "sizeof" or (place + 1 < len(words) and words[place + 1] == "("):
                    return None
                held = self._variable(scope, word, constructs=True)
                value: str | None = None
                if held is not None and held[0] != [word]:
                    value = self.resolve(scope, held[0], names, depth + 1)
                elif word in self.source.macros and self.source.macros[word].arguments is None:
                    value = self.resolve(scope, self.source.macros[word].body, names, depth + 1)
                elif (
                    found := next(
                        (each for item in self.source.of_name.get(word, ()) if (each := self._constant_words(item, word))), None
                    )
                ) is not None:
                    value = self.resolve(scope, found, names, depth + 1)
                if value is None:
                    return None
                out.append(value if value.isidentifier() or value.isdecimal() else f"({value})")
            elif word == "/":
                out.append("//")
            elif word in ("(", ")", "*", "+", "-", "%") or (word == "," and "cdiv" in out):
                out.append(word)
            elif word[:1].isdigit():
                number = evaluate([word], lambda name: None)
                if number is None:
                    return None
                out.append(str(number))
            else:
                return None
        return " ".join(out).replace("( ", "(").replace(" )", ")")


def is_call(words: Sequence[str], at: int, names: Collection[str]) -> bool:
    """Return whether one of these functions is called at a place."""
    return words[at].lower().lstrip("_") in names and at + 1 < len(words) and words[at + 1] == "("


def _sizes_of_calls(words: list[str]) -> list[str]:
    """Return tokens with x.size(0), x->numel() and the like as one name: sizes that only the call tells."""
    out: list[str] = []
    at = 0
    while at < len(words):
        if words[at] in (".", "->") and at + 2 < len(words) and out and is_word(out[-1]):
            out.pop()
            at += 2
            if words[at] == "(":
                at = _closing(words, at) + 1
            elif words[at] == "[":
                at = _closing(words, at, "[", "]") + 1
            out.append("#call")
            continue
        out.append(words[at])
        at += 1
    return ["_call_" if each == "#call" else each for each in out]


def _bare(words: Sequence[str]) -> list[str]:
    """Return tokens without brackets around all of them."""
    words = list(words)
    while len(words) > 2 and words[0] == "(" and _closing(words, 0) == len(words) - 1:
        words = words[1:-1]
    return words


def _kernel_of(words: Sequence[str]) -> tuple[str, list[list[str]]]:
    """Return name and template values of `ns::kernel<T, 128>`, also behind a cast or a &."""
    words = [each for each in words if each not in ("&",)]
    if words and words[0] == "(" and ")" in words:  # (void*)kernel
        closed = _closing(words, 0)
        words = words[closed + 1 :] or words[1:closed]
    if "(" in words and words[0].endswith("_cast"):
        opening = words.index("(")
        words = words[opening + 1 : _closing(words, opening)]
    if "<" in words:
        at = list(words).index("<")
        closed = close_angle(words, at, len(words))
        name = words[at - 1] if at else ""
        return name, split_at_commas(words[at + 1 : closed if closed > 0 else len(words) - 1])
    names = [each for each in words if is_word(each)]
    return (names[-1] if names else ""), []


def _closing(words: Sequence[str], opening: int, begin: str = "(", end: str = ")") -> int:
    depth = 0
    for at in range(opening, len(words)):
        depth += (words[at] == begin) - (words[at] == end)
        if depth == 0:
            return at
    return len(words)
