"""Whole numbers that constant expressions of C++ give, as far as a text tells them. Nothing runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, isfinite

from tuner.tuning.cuda.tokens import is_word, split_at_commas

MAX_BITS, MAX_NESTING = 128, 60
LARGE = 1 << 40  # a size that only the call tells: taken for large, so that min(n, 1024) is 1024
SIZES = {
    "char": 1,
    "bool": 1,
    "int8_t": 1,
    "uint8_t": 1,
    "short": 2,
    "half": 2,
    "__half": 2,
    "__nv_bfloat16": 2,
    "nv_bfloat16": 2,
    "int16_t": 2,
    "uint16_t": 2,
    "half2": 4,
    "__half2": 4,
    "__nv_bfloat162": 4,
    "int": 4,
    "unsigned": 4,
    "uint": 4,
    "float": 4,
    "int32_t": 4,
    "uint32_t": 4,
    "long": 8,
    "double": 8,
    "size_t": 8,
    "int64_t": 8,
    "uint64_t": 8,
    "float2": 8,
    "int2": 8,
    "float3": 12,
    "float4": 16,
    "int4": 16,
    "uint4": 16,
    "double2": 16,
}
_BINARY = [["||"], ["&&"], ["|"], ["^"], ["&"], ["==", "!="], ["<", ">", "<=", ">="], ["<<", ">>"], ["+", "-"], ["*", "/", "%"]]
CEILS = {"cdiv", "ceil_div", "ceildiv", "ceiling_div", "divup", "div_up", "divceil", "div_ceil", "idivup", "iceildiv"}
Lookup = Callable[[str], "int | float | None"]


class _Unknown(Exception):
    pass


def evaluate(words: Sequence[str], lookup: Lookup) -> int | float | None:
    """Return the number of an expression; None where a name in it has none. `lookup` gives names their numbers."""
    if not words or len(words) > 4000:
        return None
    try:
        value = _Reader(list(words), lookup).whole()
    except (_Unknown, ArithmeticError, RecursionError, ValueError, IndexError):
        return None
    return value if isfinite(value) else None


class _Reader:
    """One expression, by falling precedence."""

    def __init__(self, words: list[str], lookup: Lookup) -> None:
        self.words, self.at, self.lookup, self.depth = _shifts(words), 0, lookup, 0

    def whole(self) -> int | float:
        value = self.choice()
        if self.at != len(self.words):
            raise _Unknown
        return value

    def peek(self) -> str:
        return self.words[self.at] if self.at < len(self.words) else ""

    def take(self, word: str) -> None:
        if self.peek() != word:
            raise _Unknown
        self.at += 1

    def choice(self) -> int | float:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise _Unknown
        value = self.level(0)
        if self.peek() == "?":
            self.at += 1
            first = self.choice()
            self.take(":")
            second = self.choice()
            value = first if value else second
        self.depth -= 1
        return value

    def level(self, of: int) -> int | float:
        if of == len(_BINARY):
            return self.unary()
        left = self.level(of + 1)
        while self.peek() in _BINARY[of]:
            mark = self.peek()
            self.at += 1
            left = _apply(mark, left, self.level(of + 1))
        return left

    def unary(self) -> int | float:
        word = self.peek()
        self.at += 1
        if word == "-":
            return -self.unary()
        if word == "+":
            return self.unary()
        if word == "!":
            return int(not self.unary())
        if word == "~":
            return ~int(self.unary())
        if word == "(":
            closing = self._closing(self.at - 1)
            inside = self.words[self.at : closing]
            following = self.words[closing + 1] if closing + 1 < len(self.words) else ""
            if (
                inside
                and all(_is_type(token) for token in inside)
                and (is_word(following) or following[:1].isdigit() or following == "(")
            ):
                self.at = closing + 1  # a cast
                return _cast(inside, self.unary())
            value = self.choice()
            self.take(")")
            return value
        if word[:1].isdigit() or (word[:1] == "." and len(word) > 1):
            return _number(word)
        if word in ("true", "false"):
            return int(word == "true")
        if is_word(word):
            return self.name(word)
        raise _Unknown

    def name(self, word: str) -> int | float:
        while self.peek() == "::":  # std::min, Config::kThreads
            self.at += 1
            word = self.peek()
            self.at += 1
        angle: list[str] = []
        if self.peek() == "<" and (word.endswith("_cast") or (">" in self.words[self.at :] and self._calls_template())):
            closing = self.words.index(">", self.at)
            angle = self.words[self.at + 1 : closing]
            self.at = closing + 1
        if self.peek() != "(":
            if word == "sizeof":
                raise _Unknown
            value = self.lookup(word)
            if value is None:
                raise _Unknown
            return value
        closing = self._closing(self.at)
        inside = self.words[self.at + 1 : closing]
        self.at = closing + 1
        return self.call(word, angle, inside)

    def call(self, word: str, angle: list[str], inside: list[str]) -> int | float:
        if word == "sizeof":
            names = [token for token in inside if token not in ("const", "unsigned", "signed", "std", "::", "struct")]
            if "*" in names:
                return 8
            size = SIZES.get(names[-1] if names else "int") or self.lookup(f"sizeof {names[-1]}")
            if size is None:
                raise _Unknown
            return size
        parts = [_Reader(part, self.lookup).whole() for part in split_at_commas(inside)]
        low = word.lower().lstrip("_")
        if low in ("min", "fminf", "fmin") and parts:
            return min(parts)
        if low in ("max", "fmaxf", "fmax") and parts:
            return max(parts)
        if (low in CEILS or low.removeprefix("i") in CEILS) and len(parts) == 2:
            return -(-int(parts[0]) // int(parts[1]))
        if low in ("ceil", "ceilf") and len(parts) == 1:
            return ceil(parts[0])
        if low == "floor" and len(parts) == 1:
            return int(parts[0] // 1)
        if (word.endswith("_cast") or _is_type(word)) and len(parts) == 1:
            return _cast(angle or [word], parts[0])
        if low in ("next_power_of_2", "nextpow2", "next_pow_2", "next_pow2") and len(parts) == 1 and parts[0] < LARGE:
            return 1 << max(0, int(parts[0]) - 1).bit_length()
        raise _Unknown

    def _calls_template(self) -> bool:
        closing = self.words.index(">", self.at)
        return closing + 1 < len(self.words) and self.words[closing + 1] == "(" and closing - self.at < 12

    def _closing(self, opening: int) -> int:
        depth = 0
        for index in range(opening, len(self.words)):
            depth += (self.words[index] == "(") - (self.words[index] == ")")
            if depth == 0:
                return index
        raise _Unknown


def _shifts(words: list[str]) -> list[str]:
    """Return the tokens with `<` `<` as one mark: they are read one by one elsewhere, for templates."""
    out: list[str] = []
    for word in words:
        if word in ("<", ">") and out and out[-1] == word:
            out[-1] = word * 2
        else:
            out.append(word)
    return out


def _is_type(word: str) -> bool:
    return word in SIZES or word in ("const", "signed", "unsigned", "std", "::", "static", "float", "dim3")


def _cast(names: Sequence[str], value: int | float) -> int | float:
    return float(value) if names and names[-1] in ("float", "double") else int(value)


def _number(word: str) -> int | float:
    plain = word.replace("'", "")
    if plain[:2].lower() == "0x":
        return int(plain.rstrip("uUlL"), 16)
    if any(mark in plain for mark in ".eE"):
        return float(plain.rstrip("fFlL"))
    plain = plain.rstrip("uUlLzZ")
    if plain[-1:] in ("f", "F"):
        return float(plain[:-1])
    return (
        int(plain[2:], 2) if plain[:2].lower() == "0b" else int(plain, 8) if plain[:1] == "0" and len(plain) > 1 else int(plain)
    )


def _apply(mark: str, left: int | float, right: int | float) -> int | float:
    whole = isinstance(left, int) and isinstance(right, int)
    if mark in ("<<", ">>", "&", "|", "^") and not whole:
        raise _Unknown
    if mark in ("<<", ">>"):
        if not 0 <= right <= MAX_BITS:
            raise _Unknown
        value: int | float = int(left) << int(right) if mark == "<<" else int(left) >> int(right)
    elif mark == "/":
        value = (abs(int(left)) // abs(int(right)) * (1 if (left < 0) == (right < 0) else -1)) if whole else left / right
    elif mark == "%":
        value = left - right * int(left / right) if abs(left) < 2**50 else left % right
    else:
        operations: dict[str, Callable[[], int | float]] = {
            "+": lambda: left + right,
            "-": lambda: left - right,
            "*": lambda: left * right,
            "&": lambda: int(left) & int(right),
            "|": lambda: int(left) | int(right),
            "^": lambda: int(left) ^ int(right),
            "==": lambda: int(left == right),
            "!=": lambda: int(left != right),
            "<": lambda: int(left < right),
            ">": lambda: int(left > right),
            "<=": lambda: int(left <= right),
            ">=": lambda: int(left >= right),
            "&&": lambda: int(bool(left) and bool(right)),
            "||": lambda: int(bool(left) or bool(right)),
        }
        value = operations[mark]()
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise _Unknown
    return value
