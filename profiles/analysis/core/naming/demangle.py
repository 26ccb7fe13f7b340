"""Mangled C++ names (Itanium ABI, as GCC, Clang and nvcc write them) as `c++filt` shows them, within fixed bounds.

Two libraries were tried: itanium_demangler knows no local names, so no lambda; cpp_demangle expands back references without end
(223 characters become 13 MB). Here text is built as it is read, and a name ends as not demangled at MOST_CHARS of text, MOST_STEPS
or MOST_DEPTH.

Source: Itanium C++ ABI, chapter 5.1 "External Names (a.k.a. Mangling)"; the spelling is that of GNU libiberty.
"""

from __future__ import annotations

from functools import lru_cache

from profiles.analysis.core.naming.mangled_words import BUILTIN, EXTENDED, OPERATORS, SPECIAL, STANDARD

MOST_CHARS = 40_000             # of any text on the way
MOST_STEPS = 30_000
MOST_DEPTH = 120
_LONGEST = 16_000               # of a mangled name
_Text = tuple[str, str]         # what stands before and behind the place of `*`: ("void (", ")(int)")


class _NotMangled(Exception):
    pass


@lru_cache(maxsize=8192)
def demangle(name: str) -> str:
    """Return a mangled name's readable form, "" where it is none or one of the bounds is met."""
    text = name[1:] if name.startswith("__Z") else name
    if not text.startswith("_Z") or len(text) > _LONGEST or not text.isascii():
        return ""
    try:
        reader = _Reader(text)
        found = reader.encoding()
        return found if reader.at == len(text) or text[reader.at] in ".$@" else ""
    except (_NotMangled, IndexError, ValueError):
        return ""


def _joined(text: _Text) -> str:
    """A type on its own: a function without a pointer loses the empty brackets of one."""
    left, right = text
    return left[:-1] + right[1:] if left.endswith("(") and right.startswith(")") else left + right


def _spaced(name: str) -> str:
    return f"{name} " if name.endswith("<") else name


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 2
        self.seen: list[_Text] = []                     # substitutions S_, S0_, …
        self.arguments: list[list[_Text]] = []          # of the function's template, a pack as several: T_, T0_, …
        self.steps = self.depth = 0
        self.in_lambda = False
        self.pack: int | None = None                    # which element of packs is wanted, in an expansion
        self.pack_size: int | None = None

    # -- characters

    def peek(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def take(self, text: str) -> bool:
        if self.text.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def need(self, text: str) -> None:
        if not self.take(text):
            raise _NotMangled

    def number(self) -> int:
        start = self.at
        while self.at < len(self.text) and self.text[self.at].isdecimal():
            self.at += 1
        return int(self.text[start:min(self.at, start + 6)])

    def sequence(self) -> int:
        """`_` -> 0, `0_` -> 1, `Z_` -> 36, in base 36."""
        end = self.text.index("_", self.at)
        digits = self.text[self.at:end]
        self.at = end + 1
        if len(digits) > 4 or digits != digits.upper():
            raise _NotMangled
        return int(digits, 36) + 1 if digits else 0

    def enter(self) -> None:
        self.steps += 1
        self.depth += 1
        if self.steps > MOST_STEPS or self.depth > MOST_DEPTH:
            raise _NotMangled

    def bounded(self, text: str) -> str:
        if len(text) > MOST_CHARS:
            raise _NotMangled
        return text

    def remember(self, text: _Text) -> _Text:
        self.bounded(text[0] + text[1])
        self.seen.append(text)
        return text

    # -- names

    def encoding(self, local: bool = False) -> str:
        """A function with its parameters, or an object."""
        self.enter()
        for code, words in SPECIAL.items():
            if self.take(code):
                text = words + (_joined(self.type()) if code[0] == "T" else self.name()[0])
                self.depth -= 1
                return text
        outer = self.arguments
        self.arguments = []
        name, is_template, qualifiers = self.name(own=True)
        text = name
        if self.at < len(self.text) and self.text[self.at] not in "E.$@":
            result = self.type() if is_template else ("", "")
            parameters = self.types_until("E.$@")
            text = f"{name}({parameters}){qualifiers}"
            if is_template and not local:
                text = f"{result[0]}{'' if result[0].endswith('(') else ' '}{text}{result[1]}"
        if local:
            self.arguments = outer
        self.depth -= 1
        return self.bounded(text)

    def types_until(self, ends: str) -> str:
        found: list[str] = []
        while self.at < len(self.text) and self.text[self.at] not in ends:
            found.extend(self.type_or_pack())
            self.bounded("".join(found[-2:]))
        if sum(map(len, found)) > MOST_CHARS:
            raise _NotMangled
        return "" if found == ["void"] else ", ".join(found)

    def type_or_pack(self) -> list[str]:
        return self.expansion() if self.take("Dp") else [_joined(self.type())]

    def expansion(self) -> list[str]:
        """A pattern over a pack, once for every element of it."""
        start, seen, outer = self.at, len(self.seen), (self.pack, self.pack_size)
        found: list[str] = []
        self.pack, self.pack_size = 0, None
        while True:
            self.at = start
            del self.seen[seen:]
            found.append(_joined(self.type()))
            size = self.pack_size
            self.pack += 1
            if size is None or self.pack >= size or len(found) > 200:
                break
        self.pack, self.pack_size = outer
        return found if size is None or size else []

    def name(self, own: bool = False) -> tuple[str, bool, str]:
        """Text, whether it ends in template arguments, and the qualifiers of a member function (` const`)."""
        self.enter()
        try:
            if self.take("N"):
                return self.nested(own)
            if self.take("Z"):
                return self.local()
            if self.peek("S") and not self.peek("St"):
                text = _joined(self.substitution())
            else:
                text = ("std::" if self.take("St") else "") + self.unqualified("")
                if self.peek("I"):
                    self.remember((text, ""))
            if self.peek("I"):
                return self.bounded(_spaced(text) + self.template_arguments(own)), True, ""
            return text, False, ""
        finally:
            self.depth -= 1

    def nested(self, own: bool) -> tuple[str, bool, str]:
        qualifiers = "".join(words for code, words in (("r", " restrict"), ("V", " volatile"), ("K", " const")) if self.take(code))
        qualifiers += " &" if self.take("R") else " &&" if self.take("O") else ""
        text, is_template, last = "", False, ""
        while not self.take("E"):
            self.enter()
            self.depth -= 1
            if self.peek("S") and not self.peek("St"):
                text = last = _joined(self.substitution())
                continue
            if self.take("St"):
                text = last = "std"
                continue
            if self.peek("I"):
                text, is_template = self.bounded(_spaced(text) + self.template_arguments(own)), True
            elif self.peek("T") and not text:
                text = last = _joined(self.parameter())
                continue
            elif self.take("M"):                        # the initialiser of a member, in which a lambda stands
                continue
            elif self.peek("Dt") or self.peek("DT"):
                text = last = _joined(self.type())
                continue
            else:
                last = self.unqualified(last)
                text, is_template = f"{text}::{last}" if text else last, False
            if not self.peek("E"):
                self.remember((text, ""))
        return text, is_template, qualifiers

    def local(self) -> tuple[str, bool, str]:
        scope = self.encoding(local=True)
        self.need("E")
        if self.take("s"):
            self.discriminator()
            return f"{scope}::string literal", False, ""
        if self.take("d"):
            self.sequence()
        name, is_template, qualifiers = self.name()
        self.discriminator()
        return f"{scope}::{name}", is_template, qualifiers

    def discriminator(self) -> None:
        if self.take("__"):
            self.number()
            self.need("_")
        elif self.peek("_") and self.text[self.at + 1:self.at + 2].isdecimal():
            self.at += 2

    def unqualified(self, scope: str) -> str:
        self.take("L")
        text = self.text
        here = text[self.at]
        if here.isdecimal():
            found = self.source()
        elif self.take("Ul"):
            outer, self.in_lambda = self.in_lambda, True
            parameters = self.types_until("E")
            self.in_lambda = outer
            self.need("E")
            found = f"{{lambda({parameters})#{self.sequence_of_lambda()}}}"
        elif self.take("Ut"):
            found = f"{{unnamed type#{self.sequence_of_lambda()}}}"
        elif here in "CD" and text[self.at + 1] in "012345":
            self.at += 2
            base = scope.split("<", 1)[0].rsplit("::", 1)[-1]
            found = ("~" if here == "D" else "") + base
        elif self.take("cv"):
            found = f"operator {_joined(self.type())}"
        elif self.take("li"):
            found = f'operator"" {self.source()}'
        elif text[self.at:self.at + 2] in OPERATORS:
            symbol = OPERATORS[text[self.at:self.at + 2]]
            self.at += 2
            found = f"operator{' ' if symbol[0].isalpha() else ''}{symbol}"
        else:
            raise _NotMangled
        while self.take("B"):
            found += f"[abi:{self.source()}]"
        return found

    def sequence_of_lambda(self) -> int:
        """`_` -> 1, `0_` -> 2, in base 10."""
        if self.take("_"):
            return 1
        number = self.number() + 2
        self.need("_")
        return number

    def source(self) -> str:
        length = self.number()
        found = self.text[self.at:self.at + length]
        if not length or len(found) < length:
            raise _NotMangled
        self.at += length
        return "(anonymous namespace)" if found.startswith("_GLOBAL__N") else found

    def substitution(self) -> _Text:
        self.need("S")
        standard = STANDARD.get(self.text[self.at])
        if standard:
            self.at += 1
            return standard, ""
        return self.seen[self.sequence()]

    def parameter(self) -> _Text:
        """`T_`: a template's argument, or a parameter `auto` of a lambda."""
        self.need("T")
        number = self.sequence()
        if self.in_lambda:
            return self.remember((f"auto:{number + 1}", ""))
        if number >= len(self.arguments):
            raise _NotMangled
        values = self.arguments[number]
        if len(values) == 1 and self.pack is None:
            return self.remember(values[0])
        if self.pack is not None and len(values) != 1:
            self.pack_size = len(values)
            return self.remember(values[self.pack] if self.pack < len(values) else ("", ""))
        return self.remember((", ".join(map(_joined, values)), ""))

    def template_arguments(self, own: bool) -> str:
        self.need("I")
        found: list[list[_Text]] = []
        if own:
            self.arguments = found
        outer, self.in_lambda = self.in_lambda, False
        while not self.take("E"):
            found.append(self.argument())
        self.in_lambda = outer
        text = ", ".join(_joined(each) for values in found for each in values)
        return self.bounded(f"<{text} >" if text.endswith(">") else f"<{text}>")

    def argument(self) -> list[_Text]:
        self.enter()
        try:
            if self.peek("T") and self.text[self.at + 1] in "ynt":          # a parameter's declaration before its argument
                self.at += 2
                if self.text[self.at - 1] == "n":
                    self.type()
            if self.take("J"):
                values: list[_Text] = []
                while not self.take("E"):
                    values.extend(self.argument())
                return values
            if self.take("X"):
                text = self.expression()
                self.need("E")
                return [(text, "")]
            if self.peek("L"):
                return [(self.literal(), "")]
            if self.take("Dp"):
                return [(each, "") for each in self.expansion()]
            return [self.type()]
        finally:
            self.depth -= 1

    # -- types

    def type(self) -> _Text:
        self.enter()
        found = self.type_here()
        self.depth -= 1
        self.bounded(found[0] + found[1])
        return found

    def type_here(self) -> _Text:
        here = self.text[self.at]
        if here in "rVK":
            words = "".join(word for code, word in (("r", " restrict"), ("V", " volatile"), ("K", " const")) if self.take(code))
            left, right = self.type()
            return self.remember((left, right + words) if right else (left + words, ""))
        if here in "PRO":
            self.at += 1
            left, right = self.type()
            mark = {"P": "*", "R": "&", "O": "&&"}[here]
            if here != "P" and left.endswith("&") and not right:            # a reference to a reference is one
                return self.remember((left if here == "O" or left.endswith("&&") is False else left[:-1], right))
            return self.remember((left + mark, right))
        if here in BUILTIN:
            self.at += 1
            return BUILTIN[here], ""
        if here == "u":
            self.at += 1
            return self.remember((self.source() + (self.template_arguments(False) if self.peek("I") else ""), ""))
        if here == "D":
            return self.extended()
        if here == "U":
            self.at += 1
            words = self.source() + (self.template_arguments(False) if self.peek("I") else "")
            left, right = self.type()
            return self.remember((f"{left} {words}", right))
        if here == "F":
            return self.function("")
        if here == "A":
            self.at += 1
            size = str(self.number()) if self.text[self.at].isdecimal() else "" if self.peek("_") else self.expression()
            self.need("_")
            left, right = self.type()
            return self.remember((f"{left} (", f") [{size}]{right}"))
        if here == "M":
            self.at += 1
            owner = _joined(self.type())
            left, right = self.type()
            return self.remember((f"{left}{'' if left.endswith('(') else ' '}{owner}::*", right))
        if here == "T" and self.text[self.at + 1] in "sue":
            self.at += 2
        elif here == "T":
            found = self.parameter()
            if self.peek("I"):
                return self.remember((_joined(found) + self.template_arguments(False), ""))
            return found
        elif here == "S" and not self.peek("St"):
            found = self.substitution()
            if self.peek("I"):
                return self.remember((_joined(found) + self.template_arguments(False), ""))
            return found
        return self.remember((self.name()[0], ""))

    def function(self, qualifiers: str) -> _Text:
        self.need("F")
        self.take("Y")
        left, right = self.type()
        parameters = self.types_until("ERO") if not self.peek("R") and not self.peek("O") else self.types_until("E")
        if self.peek("R") or self.peek("O"):
            if self.text[self.at + 1:self.at + 2] == "E":
                qualifiers += " &" if self.take("R") else " &&" if self.take("O") else ""
            else:
                more = self.types_until("E")
                parameters = f"{parameters}, {more}" if parameters else more
        self.need("E")
        return self.remember((f"{left} (", f")({parameters}){qualifiers}{right}"))

    def extended(self) -> _Text:
        """What begins with D: `Dn`, `DF16_`, `decltype(…)`, vectors, `noexcept` functions."""
        for code, words in EXTENDED.items():
            if self.take(code):
                return words, ""
        if self.take("Dt") or self.take("DT"):
            text = self.expression()
            self.need("E")
            return self.remember((f"decltype ({text})", ""))
        if self.take("Dv"):
            size = str(self.number()) if self.text[self.at].isdecimal() else self.expression()
            self.need("_")
            left, right = self.type()
            return self.remember((f"{left} __vector({size})", right))
        if self.take("Do"):
            return self.function(" noexcept")
        if self.take("DB") or self.take("DU"):
            bits = self.number()
            self.need("_")
            return f"_BitInt({bits})", ""
        raise _NotMangled

    # -- values

    def literal(self) -> str:
        self.need("L")
        if self.take("_Z") or self.take("Z"):
            text = self.encoding(local=True)
            self.need("E")
            return text
        code = self.text[self.at]
        kind = _joined(self.type())
        end = self.text.index("E", self.at)
        value = self.text[self.at:end]
        self.at = end + 1
        value = f"-{value[1:]}" if value.startswith("n") else value
        if code == "b":
            return {"0": "false", "1": "true"}.get(value, value)
        suffix = {"i": "", "j": "u", "l": "l", "m": "ul", "x": "ll", "y": "ull"}.get(code)
        return f"({kind}){value}" if suffix is None else value + suffix

    def expression(self) -> str:
        """Values as they stand in template arguments; others end the name as not demangled."""
        self.enter()
        try:
            if self.peek("L"):
                return self.literal()
            if self.peek("T"):
                return _joined(self.parameter())
            code = self.text[self.at:self.at + 2]
            if code in ("sr", "on", "cl", "cv", "st", "sz", "ad", "sZ", "fp", "tl", "il"):
                self.at += 2
                return self.named_expression(code)
            if code not in OPERATORS:
                return self.name()[0]
            self.at += 2
            symbol = OPERATORS[code]
            if code in ("ng", "nt", "co", "de", "ps"):
                return f"{symbol}({self.expression()})"
            if code == "qu":
                return f"({self.expression()})?({self.expression()}):({self.expression()})"
            left = self.expression()
            return self.bounded(f"({left}){symbol}({self.expression()})")
        finally:
            self.depth -= 1

    def named_expression(self, code: str) -> str:
        if code == "ad":
            text = self.expression()
            return f"&({text})" if "(" in text else f"&{text}"
        if code == "sr":
            owner = _joined(self.type())
            text = f"{owner}::{self.unqualified('')}"
            return text + self.template_arguments(False) if self.peek("I") else text
        if code in ("st", "sz", "sZ"):
            what = _joined(self.type()) if code == "st" else self.expression()
            return f"sizeof{'...' if code == 'sZ' else ''} ({what})"
        if code == "fp":
            return f"{{parm#{self.sequence() + 1}}}"
        if code == "on":
            return self.unqualified("")
        if code == "cv":
            kind = _joined(self.type())
            return f"({kind})({self.expression()})"
        head = _joined(self.type()) if code == "tl" else "" if code == "il" else self.expression()
        inner: list[str] = []
        while not self.take("E"):
            inner.append(self.expression())
        text = ", ".join(inner)
        return self.bounded(f"{head}({text})" if code == "cl" else f"{head}{{{text}}}")
