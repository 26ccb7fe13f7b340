"""The statements of a function as tokens: what one declares, what stands left and right of an assignment, what is dereferenced."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.tuning.cuda.tokens import close_angle, closing_of, is_word, partners

ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="}
KEYWORDS = {
    "if", "for", "while", "switch", "return", "sizeof", "do", "else", "case", "goto", "new", "delete", "throw", "constexpr",
}
_BEGIN = {"return", "else", "do", "case", "default", "goto"}


def without_templates(words: list[str]) -> list[str]:
    """Return tokens without the arguments of templates, which say nothing of addresses."""
    out: list[str] = []
    index = 0
    while index < len(words):
        word = words[index]
        if word == "<" and index and is_word(words[index - 1]):
            closed = close_angle(words, index, len(words))
            after = words[closed + 1] if 0 < closed < len(words) - 1 else ""
            if (
                closed > 0
                and (after in ("(", "::", "*", "&", "{", ",", ")", ">", ";") or is_word(after))
                and not {"&&", "||", "?"} & set(words[index:closed])
                and (after not in (",", ")") or words[index - 1].endswith("_cast"))
            ):
                index = closed + 1
                continue
        out.append(word)
        index += 1
    return out


def statements(words: Sequence[str]) -> list[list[str]]:
    """Return the statements, those of a loop's head and the conditions of branches among them."""
    words = list(words)
    closing = partners(words)
    for index, word in enumerate(words):
        if word in ("if", "for", "while", "switch"):
            opening = index + 1 + (index + 1 < len(words) and words[index + 1] == "constexpr")
            if opening < len(words) and words[opening] == "(":
                words[index], words[opening] = ";", ";"
                if opening in closing:
                    words[closing[opening]] = ";"
    out: list[list[str]] = [[]]
    depth = 0
    for word in words:
        depth += (word in ("(", "[")) - (word in (")", "]"))
        if word in (";", "{", "}") or (word in _BEGIN and not out[-1]) or (word == ":" and out[-1][:1] == ["case"]):
            if word == "{" and out[-1] and out[-1][-1] not in (")", "=") and is_word(out[-1][-1]) and len(out[-1]) > 1:
                out[-1].append("=")  # T name{…}
            out.append([])
            if word == "{" and len(out) > 1 and out[-2][-1:] == ["="]:
                out[-1] = []
            depth = 0
        else:
            out[-1].append(word)
    return [statement for statement in out if statement]


def declares(left: Sequence[str]) -> tuple[str, list[str]] | None:
    """Return (name, the tokens of its type) where tokens before a `=` declare a variable; None of anything else."""
    words = list(left)
    while words and words[-1] == "]":
        depth = 0
        for index in range(len(words) - 1, -1, -1):
            depth += (words[index] == "]") - (words[index] == "[")
            if depth == 0:
                break
        if index == 0:
            return None
        words = words[:index]
    if words and words[-1] in (")", "}"):  # T name(…)
        opening = next((index for index, word in enumerate(words) if word in ("(", "{")), 0)
        if opening < 2 or (not is_word(words[opening - 2]) and words[opening - 2] not in ("*", "&")):
            return None
        words = words[:opening]
    if len(words) < 2 or not is_word(words[0]) or words[0] in KEYWORDS - {"constexpr"} or not is_word(words[-1]):
        return None
    if not is_word(words[-2]) and words[-2] not in ("*", "&", "&&"):
        return None
    if any(not is_word(word) and word not in ("*", "&", "&&", "::") for word in words):
        return None
    if words[-2] in ("*", "&") and not any(is_word(word) for word in words[:-2]):
        return None
    return words[-1], words[:-1]


def in_declaration(segment: Sequence[str], begin: int) -> bool:
    """Return whether what stands before a later `, *q = …` declares: float *p = a, *q = b."""
    if segment[begin - 1] != ",":
        return False
    first = next((index for index, word in enumerate(segment) if word in ASSIGNMENTS), 0)
    return (
        first < begin
        and declares(segment[:first]) is not None
        and segment[first:begin].count("(") == segment[first:begin].count(")")
    )


def left_of(segment: Sequence[str], at: int) -> list[str]:
    """Return what stands left of an assignment, to where its expression begins."""
    depth, begin = 0, at
    for place in range(at - 1, -1, -1):
        word = segment[place]
        depth += (word in (")", "]")) - (word in ("(", "["))
        if depth < 0 or (depth == 0 and (word in (",", "?", ":", "&&", "||", "return", "else") or word in ASSIGNMENTS)):
            break
        begin = place
    return list(segment[begin:at])


def right_of(segment: Sequence[str], at: int) -> list[str]:
    out: list[str] = []
    depth = 0
    for word in segment[at + 1 :]:
        depth += (word in ("(", "[")) - (word in (")", "]"))
        if depth < 0 or (depth == 0 and word in (",", "+", "-", "<", ">", "=", "==", ";", "?", ":", "/", "%")):
            break
        out.append(word)
    return out


def is_star(words: Sequence[str], at: int) -> bool:
    """Return whether the name at `at` is what a * before it reads: *a, *(a + 3); not x * a."""
    place = at - 1
    while (place >= 0 and words[place] in ("(", "&", "const")) or (place >= 0 and words[place].endswith("_cast")):
        place -= 1
    if place < 0 or words[place] != "*":
        return False
    return place == 0 or not (
        (is_word(words[place - 1]) and words[place - 1] not in KEYWORDS)
        or words[place - 1] in (")", "]")
        or words[place - 1][0].isdigit()
    )


def leading_texts(inside: Sequence[str]) -> list[str]:
    out = []
    for word in inside:
        if word[:1] != '"':
            break
        out.append(word)
    return out


def operands(inside: Sequence[str]) -> list[list[str]]:
    """Return what asm(…) is given, in order: "constraint"(expression)."""
    out = []
    for index in range(len(inside) - 1):
        if inside[index][:1] == '"' and inside[index + 1] == "(":
            out.append(list(inside[index + 2 : closing_of(inside, index + 1)]))
    return out
