"""The tokens of a CUDA C++ text: words, numbers, texts in quotes, operators. Comments and directives are none."""

from __future__ import annotations

import re
from collections.abc import Sequence

from profiles.base.refused import Refused

MAX_TOKENS = 400_000
MAX_EXPANDED = 60_000  # tokens of one function once its macros are replaced
MAX_DEPTH = 24  # macros within macros
PAIRS = {"(": ")", "[": "]", "{": "}"}
_TOKEN = re.compile(
    r"""(?P<word>[A-Za-z_]\w*)|(?P<number>\.?\d(?:[eEpP][+-]|[\w.']|::\d)*)|(?P<text>"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?)"""
    r"""|(?P<mark><<=|>>=|<=|>=|==|!=|&&|\|\||\+\+|--|->|::|\.\.\.|\#\#|[-+*/%&|^]=|[^\s\w])"""
)
_COMMENT = re.compile(
    r"""//(?:\\.|[^\\\n])*|/\*.*?(?:\*/|\Z)|R"(?P<tag>[^()\\\s]{0,16})\(.*?(?:\)(?P=tag)\"|\Z)|"(?:\\.|[^"\\\n])*"?"""
    r"""|(?<!\w)'(?:\\.|[^'\\\n]){1,16}'""",
    re.DOTALL,
)


class Tokens:
    """Tokens of a text in order: `words[i]` stands at character `places[i]`."""

    def __init__(self, text: str) -> None:
        self.words: list[str] = []
        self.places: list[int] = []
        for match in _TOKEN.finditer(text):
            if len(self.words) == MAX_TOKENS:
                raise Refused(f"more than {MAX_TOKENS:,} words")
            self.words.append(match[0])
            self.places.append(match.start())

    def end_of(self, position: int) -> int:
        """Return the character after a token."""
        return self.places[position] + len(self.words[position])


def is_word(token: str) -> bool:
    """Return whether a token is a name or a keyword."""
    return token[:1].isalpha() or token[:1] == "_"


def split_words(text: str) -> list[str]:
    """Return the tokens of a short text."""
    return [match[0] for match in _TOKEN.finditer(text)][:MAX_TOKENS]


def partners(words: Sequence[str]) -> dict[int, int]:
    """Return for each opening bracket the place of its partner; one without a partner is left out.

    A bracket that is closed by another kind ends where that kind closes, so that one slip does not reach the end of the file.
    """
    closings: dict[int, int] = {}
    opened: list[int] = []
    for index, word in enumerate(words):
        if word in PAIRS:
            opened.append(index)
        elif word in (")", "]", "}"):
            depth = len(opened)
            while depth and PAIRS[words[opened[depth - 1]]] != word:
                depth -= 1
            if depth and (len(opened) - depth < 4 or word == "}"):
                closings[opened[depth - 1]] = index
                del opened[depth - 1 :]
    return closings


def close_angle(words: Sequence[str], opening: int, end: int, is_head: bool = False) -> int:
    """Return the place of the `>` that closes the `<` at `opening`; -1 where it is a comparison. `is_head`: of `template <`."""
    depth, index, end = 0, opening, min(end, opening + 400)
    while index < end:
        word = words[index]
        if word == "<":
            depth += 1
        elif word in (">", ">=") and word == ">":
            depth -= 1
            if depth == 0:
                return index
        elif word in ("(", "["):
            inside = 0
            while index < end:
                inside += (words[index] in "([") - (words[index] in ")]")
                if inside == 0:
                    break
                index += 1
        elif word in ";{})]" or (word in ("||", "==") and not is_head):
            return -1
        index += 1
    return -1


def closing_of(words: Sequence[str], opening: int, begin: str = "(", end: str = ")") -> int:
    """Return the place of a bracket's partner; the end of the tokens where it has none."""
    depth = 0
    for index in range(opening, len(words)):
        depth += (words[index] == begin) - (words[index] == end)
        if depth == 0:
            return index
    return len(words)


def split_at_commas(words: Sequence[str]) -> list[list[str]]:
    """Return the parts between commas that stand in no bracket and in no template's arguments."""
    parts: list[list[str]] = [[]]
    depth = index = 0
    while index < len(words):
        word = words[index]
        if word == "<" and index and is_word(words[index - 1]):
            closed = close_angle(words, index, len(words))
            if closed > 0:
                parts[-1].extend(words[index : closed + 1])
                index = closed + 1
                continue
        depth += (word in PAIRS) - (word in (")", "]", "}"))
        if word == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(word)
        index += 1
    return parts if parts != [[]] else []


def join(words: Sequence[str]) -> str:
    """Return tokens as a text to read and to compile."""
    out = ""
    for word in words:
        tight = not out or (not is_word(word) and not word[0].isdigit()) or not (out[-1].isalnum() or out[-1] == "_")
        out += word if tight and word not in ("&&", "||") else f" {word}"
    return out


def blank_comments(text: str, keep_texts: bool = False) -> str:
    """Return the text with comments, and unless they are kept what stands in quotes, as blanks; lines kept."""

    def blank(match: re.Match[str]) -> str:
        whole = match[0]
        if whole[0] == "/":
            return re.sub(r"[^\n]", " ", whole)
        if keep_texts and "\n" not in whole:
            return whole
        if whole[0] == "R":
            return '""' + re.sub(r"[^\n]", " ", whole[2:])
        return whole[0] + re.sub(r"[^\n]", " ", whole[1:-1]) + (whole[-1] if len(whole) > 1 else "")

    return _COMMENT.sub(blank, text)
