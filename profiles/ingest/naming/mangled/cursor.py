"""Where a mangled name is being read, what it may refer back to, and how much text it may still become.

The grammar's rules call each other in a circle: a type holds a name, a name template arguments, and these hold types. The rules
are functions of a Cursor in modules that import one way, `types` ← `arguments` ← `names`; a module that needs a rule of one above
it asks the cursor for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

# The codes of the Itanium C++ ABI for types, operators and the standard library's own names (chapter 5.1).

BUILTIN = {
    "v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char", "s": "short",
    "t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "x": "long long",
    "y": "unsigned long long", "n": "__int128", "o": "unsigned __int128", "f": "float", "d": "double", "e": "long double",
    "g": "__float128", "z": "...",
}
EXTENDED = {
    "DF16_": "_Float16", "DF16b": "std::bfloat16_t", "DF32_": "_Float32", "DF64_": "_Float64", "Dn": "decltype(nullptr)",
    "Da": "auto", "Dc": "decltype(auto)", "Du": "char8_t", "Ds": "char16_t", "Di": "char32_t", "Dh": "half", "Df": "decimal32",
    "Dd": "decimal64", "De": "decimal128",
}
STANDARD = {
    "a": "std::allocator", "b": "std::basic_string", "s": "std::string", "i": "std::istream", "o": "std::ostream",
    "d": "std::iostream",
}
SPECIAL = {"TS": "typeinfo name for ", "TI": "typeinfo for ", "TV": "vtable for ", "GV": "guard variable for "}
OPERATORS = {
    "nw": "new", "na": "new[]", "dl": "delete", "da": "delete[]", "ps": "+", "ng": "-", "ad": "&", "de": "*", "co": "~", "pl": "+",
    "mi": "-", "ml": "*", "dv": "/", "rm": "%", "an": "&", "or": "|", "eo": "^", "aS": "=", "pL": "+=", "mI": "-=", "mL": "*=",
    "dV": "/=", "rM": "%=", "aN": "&=", "oR": "|=", "eO": "^=", "ls": "<<", "rs": ">>", "lS": "<<=", "rS": ">>=", "eq": "==",
    "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">=", "ss": "<=>", "nt": "!", "aa": "&&", "oo": "||", "pp": "++",
    "mm": "--", "cm": ",", "pm": "->*", "pt": "->", "cl": "()", "ix": "[]", "qu": "?", "dt": ".",
}


MOST_CHARS = 40_000             # of any text on the way
MOST_STEPS = 30_000
MOST_DEPTH = 120
Text = tuple[str, str]          # what stands before and behind the place of `*`: ("void (", ")(int)")
Name = tuple[str, bool, str]    # text, whether it ends in template arguments, qualifiers of a member function (` const`)


class NotMangled(Exception):
    """The text is no mangled name, one beyond the bounds, or one with a part that is not read."""


def join(text: Text) -> str:
    """Return a type on its own: a function without a pointer loses the empty brackets of one."""
    left, right = text
    return left[:-1] + right[1:] if left.endswith("(") and right.startswith(")") else left + right


def check_length(text: str) -> str:
    """Return a text of at most MOST_CHARS; NotMangled where it is longer."""
    if len(text) > MOST_CHARS:
        raise NotMangled
    return text


class Cursor(ABC):
    """A place in a mangled name, with all that was read before it."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 2                    # behind `_Z`
        self.seen: list[Text] = []                      # substitutions S_, S0_, …
        self.arguments: list[list[Text]] = []           # of the function's template, a pack as several: T_, T0_, …
        self.steps = self.depth = 0
        self.in_lambda = False
        self.pack: int | None = None                    # which element of packs is wanted, in an expansion
        self.pack_size: int | None = None

    # -- rules that modules below their own need

    @abstractmethod
    def encoding(self, local: bool = False) -> str:
        """Read a function with its parameters, or an object (`names`)."""

    @abstractmethod
    def name(self) -> Name:
        """Read a name with its scopes (`names`)."""

    @abstractmethod
    def unqualified(self, scope: str) -> str:
        """Read one word of a name, of which `scope` is the word before it (`names`)."""

    @abstractmethod
    def template_arguments(self) -> str:
        """Read `I…E` (`arguments`)."""

    @abstractmethod
    def expression(self) -> str:
        """Read a value that is computed (`arguments`)."""

    # -- characters

    def peek(self, text: str) -> bool:
        """Tell whether `text` comes next."""
        return self.text.startswith(text, self.at)

    def take(self, text: str) -> bool:
        """Go beyond `text`; False where it does not come next."""
        if self.text.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def need(self, text: str) -> None:
        """Go beyond `text`, which must come next."""
        if not self.take(text):
            raise NotMangled

    def number(self) -> int:
        """Read a number in base 10, of which six digits count."""
        start = self.at
        while self.at < len(self.text) and self.text[self.at].isdecimal():
            self.at += 1
        return int(self.text[start:min(self.at, start + 6)])

    def sequence(self) -> int:
        """Read a number of a sequence, in base 36: `_` -> 0, `0_` -> 1, `Z_` -> 36."""
        end = self.text.index("_", self.at)
        digits = self.text[self.at:end]
        self.at = end + 1
        if len(digits) > 4 or digits != digits.upper():
            raise NotMangled
        return int(digits, 36) + 1 if digits else 0

    def source(self) -> str:
        """Read a name as the source has it: `3foo`."""
        length = self.number()
        word = self.text[self.at:self.at + length]
        if not length or len(word) < length:
            raise NotMangled
        self.at += length
        return "(anonymous namespace)" if word.startswith("_GLOBAL__N") else word

    # -- bounds

    def enter(self) -> None:
        """Begin a rule that may call itself: one step more, one level deeper."""
        self.steps += 1
        self.depth += 1
        if self.steps > MOST_STEPS or self.depth > MOST_DEPTH:
            raise NotMangled

    def leave(self) -> None:
        """End a rule that `enter` began."""
        self.depth -= 1

    # -- what was read before

    def remember(self, text: Text) -> Text:
        """Return a text that later parts of the name may refer to as the next substitution."""
        check_length(text[0] + text[1])
        self.seen.append(text)
        return text

    def substitution(self) -> Text:
        """Read `S_`: what was read before, or a name of the standard library."""
        self.need("S")
        standard = STANDARD.get(self.text[self.at])
        if standard:
            self.at += 1
            return standard, ""
        return self.seen[self.sequence()]

    def parameter(self) -> Text:
        """Read `T_`: a template's argument, or a parameter `auto` of a lambda."""
        self.need("T")
        number = self.sequence()
        if self.in_lambda:
            return self.remember((f"auto:{number + 1}", ""))
        if number >= len(self.arguments):
            raise NotMangled
        values = self.arguments[number]
        if len(values) == 1 and self.pack is None:
            return self.remember(values[0])
        if self.pack is not None and len(values) != 1:
            self.pack_size = len(values)
            return self.remember(values[self.pack] if self.pack < len(values) else ("", ""))
        return self.remember((", ".join(map(join, values)), ""))
