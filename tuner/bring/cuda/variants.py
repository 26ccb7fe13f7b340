"""A file's text with another number for what its host chooses: threads of a block, template values, macros and constants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.bring.cuda.source import CudaSource, propose
from tuner.bring.cuda.space import THREADS
from tuner.tuning.cuda.defines import without_defines
from tuner.tuning.cuda.functions import BLOCK, CudaFunction, CudaText
from tuner.tuning.cuda.items import Item
from tuner.tuning.cuda.source import Source
from tuner.tuning.cuda.tokens import close_angle, split_at_commas

MOST_VARIANTS, MOST_THREADS, WARP = 10, 1024, 32


@dataclass(frozen=True)
class Variant:
    """`text` of a file in which a parameter `name`, which is `before`, is `value`."""

    name: str
    value: int
    text: str
    macros: tuple[str, ...] = ()


def variants_of(source: Source, holds: CudaText, kernels: Sequence[str], hosts: Sequence[int]) -> list[Variant]:
    """Return them for the parameters of the kernels; `hosts` are places, in `source.items`, of the functions that launch."""
    variants: list[Variant] = []
    tried: set[tuple[str, int]] = set()
    named = {word for index in hosts for word in source.words[source.items[index].first:source.items[index].last + 1]}
    for function in holds.functions:
        if function.name not in kernels or function.problem:
            continue
        proposed = propose(_NOWHERE, source.text, holds, function)
        for name, value in proposed.default.items():
            if name == BLOCK[0] and function.block[0].value is None:            # a function of the host gives them, up to a macro
                value = next((number for cap, number in holds.defines.items() if "THREADS" in cap.upper() and cap in named
                              and WARP <= number <= MOST_THREADS), value)
            for one in dict.fromkeys([value, *_launched(function, name)]):      # its first launch may be another host's
                if type(one) is not int or one < 1:
                    continue
                for other in (one // 2, 2 * one):
                    if other < 1 or (name, other) in tried or (name in BLOCK and other > MOST_THREADS):
                        continue
                    if made := next(_variant(source, proposed, name, one, other, hosts), None):
                        tried.add((name, other))
                        variants.append(made)
    return variants[:MOST_VARIANTS]


def _launched(function: CudaFunction, name: str) -> tuple[Any, ...]:
    """Return what the launches of a file give for the threads along an axis, or for a template parameter."""
    if name in BLOCK:
        return function.block[BLOCK.index(name)].several
    return next((each.launched for each in function.template if each.name == name and not each.is_flag), ())


def _variant(source: Source, proposed: CudaSource, name: str, value: int, other: int, hosts: Sequence[int]) -> Iterator[Variant]:
    defines = proposed.holds.defines
    bodies = [source.items[index] for index in hosts]
    named = {word for item in bodies for word in source.words[item.first:item.last + 1]}
    held = [name] if name in defines else [macro for macro, number in defines.items() if number == value and macro in named]
    if name not in defines and set(held) & proposed.function.uses:
        return                          # the kernel itself rests on the number, which a launch alone cannot change
    if held:
        numbers = dict.fromkeys(held, other) | {each: tie.value(other) for each, tie in proposed.tied.items() if tie.leader in held}
        if None not in numbers.values():
            lines = "".join(f"#define {macro} {number}\n" for macro, number in numbers.items())
            yield Variant(name, other, f"{lines}{without_defines(source.text, numbers)}", tuple(numbers))
        return
    out, changed = list(source.text), False
    places = [index for item in bodies for index in range(max(item.body, item.first), item.last + 1)]
    if at := _given(source, name, value, bodies):                  # launch<32, 2>(x), of template <int T, int ROWS> void launch
        begin, end = source.tokens.places[at], source.tokens.end_of(at)
        yield Variant(name, other, f"{source.text[:begin]}{other}{source.text[end:]}")
        return
    if at := _launched_with(source, proposed, name, value, places):
        begin, end = source.tokens.places[at], source.tokens.end_of(at)
        yield Variant(name, other, f"{source.text[:begin]}{other}{source.text[end:]}")
        return
    if local := [index for index in places if _declares(source, index, name, value)]:         # const int BM = 64;
        at = local[0] + 2
        begin, end = source.tokens.places[at], source.tokens.end_of(at)
        yield Variant(name, other, f"{source.text[:begin]}{other}{source.text[end:]}")
        return
    if not any(source.words[index].rstrip("uUlL") == str(value) for index in places):     # 4 * 32
        for at in places:
            if source.words[at + 1:at + 2] == ["*"] and _number(source.words[at]) * _number(source.words[at + 2]) == value:
                begin, end = source.tokens.places[at], source.tokens.end_of(at + 2)
                yield Variant(name, other, f"{source.text[:begin]}{other}{source.text[end:]}")
                return
    for item in bodies:
        for at in range(max(item.body, item.first), item.last + 1):
            number = source.words[at].rstrip("uUlL")
            if number in (str(value), str(value - 1)) and (value > 2 or number == str(value)):
                begin, end = source.tokens.places[at], source.tokens.end_of(at)
                new = str(other if number == str(value) else other - 1)
                out[begin:end] = [new, *[""] * (end - begin - 1)]
                changed |= number == str(value)
    if changed:
        yield Variant(name, other, "".join(out))


def _launched_with(source: Source, proposed: CudaSource, name: str, value: int, places: Sequence[int]) -> int:
    """Return the place of a template parameter's number where a launch has it for its threads as well: k<16, 32><<<1, 32>>>.

    0 for none: then the number changes wherever the host has it, and so it does for one that is called the threads of a block.
    """
    names = [each.name for each in proposed.function.template]
    if name not in names or THREADS.match(name):
        return 0
    for at in places:
        if source.words[at] == proposed.function.name and source.words[at + 1:at + 2] == ["<"]:
            closed = close_angle(source.words, at + 1, len(source.words))
            begins = [place for place in range(at + 1, closed) if source.words[place] in ("<", ",")]
            place = begins[names.index(name)] + 1 if len(begins) > names.index(name) else 0
            threads = source.words[closed + 4:closed + 40]
            if place and _number(source.words[place]) == value and source.words[place + 1] in (",", ">") and any(
                    threads[one] == "," and _number(threads[one + 1]) == value and threads[one + 2] in (",", ">")
                    for one in range(len(threads) - 2)):
                return place
    return 0


def _given(source: Source, name: str, value: int, bodies: Sequence[Item]) -> int:
    """Return the place of the number that a call gives for a template parameter of a host, which has its name; 0 for none."""
    for item in bodies:
        heads = [head[-1] for head in split_at_commas(source.template_of(item)) if head] if item.template >= 0 else []
        for at in (at for each in bodies for at in range(each.first, each.last) if name in heads):
            if source.words[at] == item.names[0] and source.words[at + 1] == "<":
                closed = close_angle(source.words, at + 1, len(source.words))
                begins = [place for place in range(at + 1, closed) if source.words[place] in ("<", ",")]
                place = begins[heads.index(name)] + 1 if len(begins) == len(heads) else 0
                if place and _number(source.words[place]) == value and source.words[place + 1] in (",", ">"):
                    return place
    return 0


def _declares(source: Source, at: int, name: str, value: int) -> bool:
    """Return whether a local constant of a parameter's name is declared here: the name, `=`, the number, `;` or `,`."""
    words = source.words[at:at + 4]
    return len(words) == 4 and words[0] == name and words[1] == "=" and _number(words[2]) == value and words[3] in (";", ",")


def _number(word: str) -> int:
    plain = word.rstrip("uUlL")
    return int(plain) if plain.isdecimal() else -1


_NOWHERE = Path("kernel.cu")
