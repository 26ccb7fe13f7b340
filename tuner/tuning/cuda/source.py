"""A CUDA C++ text as its tokens and declarations, with the line and the file of each."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from functools import cached_property

from profiles.base.refused import Refused
from tuner.tuning.cuda.directives import Macro, Read, read_directives
from tuner.tuning.cuda.items import Item, read_items
from tuner.tuning.cuda.tokens import Tokens, blank_comments, close_angle, partners

_LINE = re.compile(r'^#line (\d{1,9}) "([^"\n]*)"\n', re.MULTILINE)


class Source:
    """A text as its tokens and items. Raises Refused where no item can be told from the next."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.read: Read = read_directives(blank_comments(text, keep_texts=True))
        self.tokens = Tokens(self.read.code)
        self.words = self.tokens.words
        self.closing = partners(self.words)
        self.items = read_items(self.words, self.closing, self.macros, self.kernel_words)

    @property
    def macros(self) -> Mapping[str, Macro]:
        return self.read.macros

    @cached_property
    def of_name(self) -> dict[str, list[Item]]:
        """Name → the items that declare it."""
        items_by_name: dict[str, list[Item]] = {}
        for item in self.items:
            for name in item.names:
                items_by_name.setdefault(name, []).append(item)
        return items_by_name

    @cached_property
    def kernel_words(self) -> frozenset[str]:
        """`__global__` and macros without arguments that stand for it."""
        return frozenset(
            {"__global__"}
            | {name for name, macro in self.macros.items() if macro.arguments is None and "__global__" in macro.body}
        )

    def line_of(self, position: int) -> int:
        """Return the line of a token in its own file."""
        place = self.tokens.places[position] if position < len(self.words) else len(self.text)
        begin, line, _ = self._file_at(place)
        return self.text.count("\n", begin, place) + line

    def file_of(self, position: int) -> str:
        """Return the header that a token comes from, as "./its name"; "" for the file itself."""
        return self.file_at(self.tokens.places[position])

    def file_at(self, place: int) -> str:
        """Return the header that a character comes from; "" for the file itself."""
        name = self._file_at(place)[2]
        return name if name.startswith("./") else ""

    @cached_property
    def _files(self) -> list[tuple[int, int, str]]:
        """Where each part begins, with its line and file."""
        return [(0, 1, ""), *((match.end(), int(match[1]), match[2]) for match in _LINE.finditer(self.text))]

    def _file_at(self, place: int) -> tuple[int, int, str]:
        return self._files[bisect_right(self._files, place, key=lambda part: part[0]) - 1]

    def plain(self, first: int, last: int) -> str:
        """Return the text of tokens without comments, with its directives and the branches that are not taken."""
        return self._bare[self.tokens.places[first] : self.tokens.end_of(last)]

    @cached_property
    def _bare(self) -> str:
        return blank_comments(self.text)

    def inside(self, opening: int) -> list[str]:
        """Return the tokens within a bracket. Raises Refused where it has no partner."""
        if opening not in self.closing:
            raise Refused(f"line {self.line_of(opening)}: the {self.words[opening]} has no partner")
        return self.words[opening + 1 : self.closing[opening]]

    def body_of(self, item: Item) -> list[str]:
        """Return the tokens of a function's body; [] of a declaration."""
        return self.inside(item.body) if item.body >= 0 else []

    def arguments_of(self, item: Item) -> list[str]:
        """Return the tokens between a function's brackets."""
        return self.words[item.opening + 1 : item.closing] if item.opening >= 0 else []

    def template_of(self, item: Item) -> list[str]:
        """Return the tokens of a template's parameters; [] of none."""
        if item.template < 0:
            return []
        closed = close_angle(self.words, item.template, item.last + 1, is_head=True)
        return self.words[item.template + 1 : closed]
