"""What a CUDA C++ file declares, one by one: functions, types, constants, with the names that each gives and uses.

Only the top of the file, its namespaces and `extern "C"` blocks are looked at; what lies within a class belongs to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from profiles.base.refused import Refused
from tuner.tuning.cuda.directives import Macro
from tuner.tuning.cuda.tokens import close_angle, is_word

MAX_ITEMS = 20_000
MAX_SCOPES = 40
MAX_GROUPS = 40  # brackets of a declaration: __launch_bounds__(…) f(…) noexcept(…)
MAX_ANGLE = 400  # tokens of a template's arguments
_NOT_NAMES = {
    "__launch_bounds__", "__attribute__", "__align__", "alignas", "decltype", "__declspec", "noexcept", "requires", "if",
    "__cluster_dims__", "__maxnreg__", "__block_size__", "throw", "sizeof", "defined", "asm",
}
_AFTER = {"const", "noexcept", "override", "final", "__restrict__", "volatile", "&", "&&", "->", "::", "<", ">", "*", ","}
_DEVICE_NAMED = re.compile(r"[A-Z0-9_]*(?:DEVICE|HOST)[A-Z0-9_]*$")


@dataclass(frozen=True)
class Item:
    """One declaration: tokens `first` to `last` of the file, both in it.

    kind      function, kernel, type, enum, variable, using, use_namespace, alias, instance or other
    names     that it declares; `scope` of the namespaces around it ("a::b")
    head      place of the token of the name; `opening`, `closing` of a function's arguments, `body` the place of its {, -1 for none
    template  place of the `<` of its last template head, -1 for none
    on_device whether a function runs on the GPU, by its own words
    """

    kind: str
    names: tuple[str, ...]
    scope: str
    first: int
    last: int
    head: int = -1
    opening: int = -1
    closing: int = -1
    body: int = -1
    template: int = -1
    on_device: bool = False


def read_items(
    words: Sequence[str], closing: Mapping[int, int], macros: Mapping[str, Macro], kernel_words: frozenset[str]
) -> list[Item]:
    """Return the declarations among tokens; `closing`: opening bracket → its partner; `kernel_words`: those that mark a kernel.

    Raises Refused where there are too many.
    """
    return list(_Reader(words, closing, macros, kernel_words).all(0, len(words), "", 0))


class _Reader:
    def __init__(
        self, words: Sequence[str], closing: Mapping[int, int], macros: Mapping[str, Macro], kernel_words: frozenset[str]
    ) -> None:
        self.words, self.closing, self.macros, self.kernel_words = words, closing, macros, kernel_words

    def all(self, at: int, end: int, scope: str, depth: int) -> Iterator[Item]:
        words, count = self.words, 0
        while at < end:
            count += 1
            if count > MAX_ITEMS:
                raise Refused(f"more than {MAX_ITEMS:,} declarations")
            word = words[at]
            if word in (";", "}", ")", "]"):
                at += 1
                continue
            inner = self._scope(at, end)
            if inner is not None and depth < MAX_SCOPES:
                opening, name = inner
                close = self.closing.get(opening, end)
                yield from self.all(opening + 1, min(close, end), "::".join(part for part in (scope, name) if part), depth + 1)
                at = close + 1
                continue
            item = self._item(at, end, scope)
            yield item
            at = max(item.last, at) + 1

    def _scope(self, at: int, end: int) -> tuple[int, str] | None:
        """Return the `{` of a namespace or an extern "C" block that begins here, and the namespace's name."""
        words = self.words
        if words[at] == "extern" and at + 2 < end and words[at + 1][:1] == '"' and words[at + 2] == "{":
            return at + 2, ""
        at += words[at] == "inline"
        if at >= end or words[at] != "namespace":
            return None
        names: list[str] = []
        for place in range(at + 1, min(end, at + 30)):
            if words[place] == "{":
                return place, "".join(names)
            if words[place] in ("=", ";"):
                return None
            if is_word(words[place]) or words[place] == "::":
                names.append(words[place])
        return None

    def _item(self, first: int, end: int, scope: str) -> Item:
        words, at, template = self.words, first, -1
        if words[at] == "extern" and at + 1 < end and words[at + 1][:1] == '"':
            at += 2
        while at < end and words[at] == "template":
            if at + 1 >= end or words[at + 1] != "<":
                return Item("instance", (), scope, first, self._find(at, end, ";"), head=at + 1)
            closed = close_angle(words, at + 1, end, is_head=True)
            if closed < 0:
                return self._broken(first, at, at + 1, end, scope, -1)
            template, at = at + 1, closed + 1
            if at < end and words[at] == "requires":
                at = self._skip_requires(at, end)
        if at >= end:
            return Item("other", (), scope, first, end - 1)
        word = words[at]
        if word == "namespace":
            last = self._find(at, end, ";")
            return Item("alias", (words[min(at + 1, end - 1)],), scope, first, last)
        if word == "using":
            last = self._find(at, end, ";")
            if at + 1 < end and words[at + 1] == "namespace":
                return Item("use_namespace", (), scope, first, last, head=at + 2)
            marks = words.index("=", at, last) if "=" in words[at:last] else last
            return Item("using", (words[at + 1] if marks < last else words[last - 1],), scope, first, last, template=template)
        if word == "typedef":
            last = self._find(at, end, ";")
            return Item(
                "using", tuple(dict.fromkeys(each for each in words[at + 1 : last] if is_word(each)))[-400:], scope, first, last
            )
        if word == "static_assert":
            return Item("other", (), scope, first, self._find(at, end, ";"))
        if word in ("struct", "class", "union", "enum") and (opening := self._type_body(at, end)) is not None:
            return self._type(first, at, opening, end, scope, template)
        return self._declaration(first, at, end, scope, template)

    def _type_body(self, at: int, end: int) -> int | None:
        """Return the `{` of a type's definition; None of `struct S f(…)`; the `;` of a declaration."""
        words = self.words
        while at < end:
            word = words[at]
            if word in "{;":
                return at
            if word == "(":
                if words[at - 1] not in ("__align__", "alignas", "__attribute__", "decltype", "sizeof"):
                    return None
                at = self.closing.get(at, end)
            elif word == "=":
                return None
            at += 1
        return None

    def _type(self, first: int, at: int, opening: int, end: int, scope: str, template: int) -> Item:
        words = self.words
        names: list[str] = []
        place = at + 1
        while place < opening and words[place] != ":":
            if words[place] == "(":
                place = self.closing.get(place, opening)
            elif words[place] == "<" and names:
                break  # a specialization
            elif is_word(words[place]) and words[place] not in (
                "class",
                "struct",
                "final",
                "alignas",
                "__align__",
                "__attribute__",
            ):
                names = [words[place]]
            place += 1
        last = opening if words[opening] == ";" else self._find(self.closing.get(opening, end - 1), end, ";")
        if words[opening] == "{":
            close = self.closing.get(opening, end - 1)
            names += [token for token in words[close + 1 : last] if is_word(token)]
            if words[at] == "enum":
                names += [
                    words[index] for index in range(opening + 1, close) if is_word(words[index]) and words[index - 1] in ("{", ",")
                ]
        kind = "enum" if words[at] == "enum" else "type"
        return Item(
            kind,
            tuple(dict.fromkeys(names)),
            scope,
            first,
            last,
            head=at,
            body=opening if words[opening] == "{" else -1,
            template=template,
        )

    def _declaration(self, first: int, at: int, end: int, scope: str, template: int) -> Item:
        """Return a function or a variable: to its body's end, or to its `;`."""
        words = self.words
        begin, groups, equals = at, [], -1
        while at < end:
            word = words[at]
            if word == ";":
                break
            if word == "(":
                if equals < 0:
                    groups.append(at)
                at = self.closing.get(at, -1)
                if at < 0:
                    return self._broken(first, begin, groups[-1] if groups else begin, end, scope, template)
            elif word == "[":
                at = self.closing.get(at, at)
            elif word == "=" and (at == begin or words[at - 1] != "operator"):
                equals = at
            elif word == "{":
                name = self._function_name(groups, begin, at) if equals < 0 else None
                if name is not None:
                    return self._function(first, begin, name, at, scope, template, end)
                at = self.closing.get(at, end - 1)
                if equals < 0 and groups and (at + 1 >= end or words[at + 1] != ";"):  # a macro's block
                    break
            at += 1
        last = min(at, end - 1)
        name = self._function_name(groups, begin, last) if equals < 0 else None
        if name is not None and not self._is_variable(begin, name[0]):
            return self._function(first, begin, name, -1, scope, template, end, last)
        names = [
            words[place]
            for place in range(begin, last)
            if is_word(words[place]) and words[place + 1] in ("=", ",", ";", "[", "{", "(") and place > begin
        ]
        return Item("variable", tuple(dict.fromkeys(names)), scope, first, last, head=begin, template=template)

    def _is_variable(self, begin: int, name: int) -> bool:
        """Return whether `dim3 block(32, 8);` and the like: nothing of the brackets is a type with a name."""
        opening = name + 1
        inside = self.words[opening + 1 : self.closing.get(opening, opening)] if self.words[opening] == "(" else []
        return bool(inside) and all(token[:1].isdigit() or token in ",+-*/" for token in inside)

    def _function_name(self, groups: list[int], begin: int, until: int) -> tuple[int, int] | None:
        """Return the places of a function's name and of the `(` of its arguments: the last brackets after a name."""
        words = self.words
        ends = (words[self.closing[opening] + 1 : until][:1] for opening in groups)
        colon = next((index for index, after in enumerate(ends) if after == [":"]), len(groups))
        for opening in reversed(groups[: colon + 1][-MAX_GROUPS:]):  # S::S(int n) : n(n)
            place = opening - 1
            if place >= begin and words[place] == ">":  # f<float>(…)
                depth = 0
                while place > max(begin, opening - MAX_ANGLE):
                    depth += (words[place] == ">") - (words[place] == "<")
                    place -= 1
                    if depth == 0:
                        break
            if "operator" in words[max(begin, opening - 4) : opening]:
                return words.index("operator", max(begin, opening - 4)), opening
            if place < begin or not is_word(words[place]) or words[place] in _NOT_NAMES:
                continue
            after = self.closing[opening] + 1
            rest = words[after:until]
            if any(token == ":" for token in rest[:1]) or all(
                is_word(token) or token in _AFTER or token in "()[]" or token[0].isdigit() for token in rest
            ):
                return place, opening
        return None

    def _function(
        self, first: int, begin: int, name: tuple[int, int], body: int, scope: str, template: int, end: int, last: int = -1
    ) -> Item:
        words = self.words
        place, opening = name
        head = words[begin:place]
        trailing = words[self.closing[opening] + 1 : body] if body >= 0 else []
        is_kernel = bool(self.kernel_words & {*head, *trailing})
        on_device = is_kernel or any(self._is_device(token) for token in head)
        if body >= 0:
            close = self.closing.get(body, -1)
            other = next((at for at in range(body, min(close if close >= 0 else end, end)) if words[at] in self.kernel_words), -1)
            if close < 0 or close >= end or (is_kernel and other >= 0):
                if not is_kernel:
                    close = min(close if close >= 0 else end - 1, end - 1)
                else:
                    return Item(
                        "broken",
                        (words[place],),
                        scope,
                        first,
                        self._before_next(body, other, end),
                        head=place,
                        opening=opening,
                        closing=self.closing[opening],
                        body=body,
                        template=template,
                        on_device=True,
                    )
            last = close
        names = [words[place]]
        if place > begin and words[place - 1] == "::":  # S<T>::f
            names += [token for token in words[begin:place] if is_word(token)][-3:]
        return Item(
            "kernel" if is_kernel else "function",
            tuple(names),
            scope,
            first,
            last,
            head=place,
            opening=opening,
            closing=self.closing[opening],
            body=body,
            template=template,
            on_device=on_device,
        )

    def _is_device(self, word: str) -> bool:
        if word in ("__device__", "__global__", "constexpr"):
            return True
        macro = self.macros.get(word)
        return "__device__" in macro.body if macro is not None else bool(_DEVICE_NAMED.match(word))

    def _before_next(self, body: int, other: int, end: int) -> int:
        """Return the last token of a kernel whose } is missing: before the declaration of the kernel after it."""
        if other < 0:
            return end - 1
        index = other
        while index > body and self.words[index - 1] not in (";", "}", "{"):
            index -= 1
        return max(body, index - 1)

    def _broken(self, first: int, begin: int, opening: int, end: int, scope: str, template: int) -> Item:
        """Return what has a bracket without a partner: to the declaration of the kernel after it."""
        until = min(end, begin + 400)
        kernel = next((index for index in range(begin, until) if self.words[index] in self.kernel_words), -1)
        if kernel < 0:
            return Item("other", (), scope, first, self._find(opening + 1, end, ";"))
        name = next(
            (at - 1 for at in range(kernel + 2, until) if self.words[at] == "(" and self.words[at - 1] not in _NOT_NAMES), kernel
        )
        after = next((index for index in range(name + 1, end) if self.words[index] in self.kernel_words), -1)
        return Item(
            "broken",
            (self.words[name],),
            scope,
            first,
            self._before_next(opening, after, end),
            head=name,
            opening=opening,
            body=opening,
            template=template,
            on_device=True,
        )

    def _skip_requires(self, at: int, end: int) -> int:
        at += 1
        while at < end and self.words[at] in ("(",):
            at = self.closing.get(at, at) + 1
            if at < end and self.words[at] in ("&&", "||"):
                at += 1
        return at

    def _find(self, at: int, end: int, marks: str) -> int:
        """Return the place of the first of `marks` that stands in no bracket."""
        while at < end:
            if self.words[at] in marks and self.words[at] != "":
                return at
            at = self.closing.get(at, at) + 1 if self.words[at] in ("(", "[", "{") else at + 1
        return end - 1
