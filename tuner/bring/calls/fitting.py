"""What a number of a launch depends on: the simplest formula that holds in every call with other numbers that was made."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, combinations_with_replacement, permutations

Point = tuple[Mapping[str, int], int]           # (sizes and blocks by name, the number in that call)
MOST_FACTORS, MOST_PAIRED, MOST_EXACT = 12, 24, 40
_POWERS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def fit(points: Sequence[Point], sizes: Sequence[str], blocks: Sequence[str] = (), as_meta: str = "{}",
        fixed: Sequence[int] = ()) -> str | None:
    """Return a formula over names that gives the number at every point; None where none of the simple ones does.

    `as_meta` writes a name: "{}" as it is, 'meta["{}"]' as a grid reads it. `fixed`: blocks that are the same in every call, as
    those that heuristics chose.
    """
    first = points[0][1]
    if all(value == first for _, value in points):
        return str(first)
    for text, values in _formulas(points, sizes, blocks, as_meta, fixed):
        if values == [value for _, value in points]:
            return text
    return None


class _Numbers:
    """What a formula may read: sizes, blocks that were seen to vary, with their values at the points. Strides come last.

    factors  sizes, and how many blocks cover them
    """

    def __init__(self, points: Sequence[Point], sizes: Sequence[str], blocks: Sequence[str], as_meta: str) -> None:
        def at(name: str) -> list[int]:
            return [env.get(name, 0) for env, _ in points]

        self.numbers = [number for _, number in points]
        self.first = points[0][1]
        self.most = {each for _, each in points}
        ordered = sorted(sizes, key=lambda name: ("stride" in name.lower(), len(set(at(name))) == 1))
        self.sizes = [(as_meta.format(name), at(name)) for name in ordered]
        self.blocks = [(as_meta.format(name), at(name)) for name in blocks if len(set(at(name))) > 1]   # of others nothing is known
        self.factors = [*self.sizes, *(_covered(size, block) for size in self.sizes for block in self.blocks if min(block[1]) > 0)]

    def divides(self, factor: _Formula) -> bool:
        """Return whether the number may be this factor times others: the factor divides it at every point."""
        return any(each != 1 for each in factor[1]) and all(
            each > 0 and number % each == 0 for each, number in zip(factor[1], self.numbers, strict=True))


_Formula = tuple[str, list[int]]


def _covered(size: _Formula, block: _Formula) -> _Formula:
    return f"triton.cdiv({size[0]}, {block[0]})", [-(-extent // by) for extent, by in zip(size[1], block[1], strict=True)]


def _pairs(blocks: Sequence[_Formula]) -> Iterator[_Formula]:
    for (one, ones), (other, others) in combinations(blocks, 2):
        yield f"({one} * {other})", [left * right for left, right in zip(ones, others, strict=True)]


def _formulas(points: Sequence[Point], sizes: Sequence[str], blocks: Sequence[str], as_meta: str, fixed: Sequence[int]
              ) -> Iterator[_Formula]:
    """Yield formulas and their values at the points, simple ones first."""
    numbers = _Numbers(points, sizes, blocks, as_meta)
    yield from numbers.factors
    yield from numbers.blocks
    for factor in numbers.factors:
        yield from _of_one(factor, numbers)
    yield from _paired([*numbers.sizes[:MOST_PAIRED], *numbers.blocks], numbers.first)
    whole = [size for size in numbers.sizes if "stride" not in size[0].lower()]
    grouped = [_covered(product, block) for product in _products(numbers.sizes, 2) for block in numbers.blocks if min(block[1]) > 0]
    yield from _products([*whole, *numbers.factors[len(numbers.sizes):]][:MOST_PAIRED], 2)      # no quotient that is one by chance
    shared = [_covered(size, both) for size in numbers.sizes for both in _pairs(numbers.blocks) if min(both[1]) > 0]
    yield from shared                               # a program goes over several blocks of a size
    grouped += shared
    yield from grouped
    factors = [*numbers.factors, *grouped]
    exact = [each for each in factors if numbers.divides(each)][:MOST_EXACT]
    yield from (each for count in (2, 3) for each in _products(exact, count))
    for product in _products(factors[:40], 2):
        yield from _of_product(product, numbers)
    for by, values in numbers.blocks:          # a split along the sum: programs for each part
        for text, terms in [*factors[:20], *_products(factors[:20], 2)]:
            yield f"{text} * {by}", [term * times for term, times in zip(terms, values, strict=True)]
    yield from _products(factors[:MOST_FACTORS], 3)
    for text, terms in [*factors[:40], *_products(factors[:40], 2)]:       # a fixed number of programs that share the tiles
        yield from ((f"min({text}, {most})", [min(term, most) for term in terms]) for most in numbers.most)
    tiles = [(f"triton.cdiv({text}, {by})", [-(-term // by) for term in terms]) for text, terms in numbers.sizes for by in fixed]
    yield from _products([*numbers.sizes, *tiles][:MOST_FACTORS + len(tiles)], 2)
    yield from _products(numbers.sizes, 4)


def _of_one(factor: _Formula, numbers: _Numbers) -> Iterator[_Formula]:
    """Yield what one number gives with a constant: how many parts of so many, its power of two, at least, at most."""
    (text, values), first = factor, numbers.first
    whole = values[0]
    if first and whole % first == 0 and whole // first > 1:
        by = whole // first
        yield f"triton.cdiv({text}, {by})", [-(-number // by) for number in values]
    if whole and first % whole == 0:
        yield f"{text} * {first // whole}", [number * (first // whole) for number in values]
    yield f"triton.next_power_of_2({text})", [_power(number) for number in values]
    for by in _POWERS:
        yield f"triton.cdiv({text}, {by})", [-(-number // by) for number in values]
    for least in (16, 32, 64, 128):
        yield f"max({least}, triton.next_power_of_2({text}))", [max(least, _power(number)) for number in values]
    for most in numbers.most:
        yield f"min(triton.next_power_of_2({text}), {most})", [min(_power(number), most) for number in values]
        yield f"min({text}, {most})", [min(number, most) for number in values]
    yield f"{text} + 1", [number + 1 for number in values]
    yield f"{text} - 1", [number - 1 for number in values]


def _of_product(product: _Formula, numbers: _Numbers) -> Iterator[_Formula]:
    """Yield a product, and what a constant or a size leaves of it."""
    (text, values), first = product, numbers.first
    yield product
    if first and values[0] % first == 0 and values[0] // first > 1:
        by = values[0] // first
        yield f"{text} // {by}", [number // by for number in values]
    for name, sizes in numbers.sizes:
        if min(sizes) > 0:
            yield f"({text}) // {name}", [number // size for number, size in zip(values, sizes, strict=True)]
    if values[0] and first % values[0] == 0 and first // values[0] > 1:
        yield f"{text} * {first // values[0]}", [number * (first // values[0]) for number in values]


def _products(factors: Sequence[tuple[str, list[int]]], count: int) -> Iterator[tuple[str, list[int]]]:
    for chosen in combinations_with_replacement(factors, count):
        values = [1] * len(chosen[0][1])
        for _, terms in chosen:
            values = [product * term for product, term in zip(values, terms, strict=True)]
        yield " * ".join(text for text, _ in chosen), values


def _power(size: int) -> int:
    return 1 << max(0, (size - 1).bit_length())


def _paired(named: Sequence[tuple[str, list[int]]], first: int) -> Iterator[tuple[str, list[int]]]:
    """Yield what two numbers give, or one and a constant: quotients, differences, sums, what is padded to a multiple."""
    for text, values in named:
        for by in dict.fromkeys([*([values[0] // first] if first and values[0] >= first else []), *_POWERS]):
            yield f"{text} // {by}", [number // by for number in values]
            yield f"triton.cdiv({text}, {by}) * {by}", [-(-number // by) * by for number in values]
            yield f"{text} // {by} + 1", [number // by + 1 for number in values]
        yield f"({text} - 1).bit_length()", [(number - 1).bit_length() for number in values]
        yield f"({text}).bit_length() - 1", [number.bit_length() - 1 for number in values]
    for (term, ones), (other, others) in permutations(named, 2):
        pairs = list(zip(ones, others, strict=True))
        if all(number > 0 for number in others):
            yield f"{term} // {other}", [left // right for left, right in pairs]
            yield f"triton.cdiv({term}, {other})", [-(-left // right) for left, right in pairs]
            yield f"triton.next_power_of_2({term} // {other})", [_power(left // right) for left, right in pairs]
            yield f"triton.cdiv({term}, {other}) * {other}", [-(-left // right) * right for left, right in pairs]
            yield f"{term} // {other} + 1", [left // right + 1 for left, right in pairs]
        yield f"{term} - {other}", [left - right for left, right in pairs]
        yield f"{term} + {other}", [left + right for left, right in pairs]
        yield f"min({term}, {other})", [min(left, right) for left, right in pairs]


def fit_flag(points: Sequence[tuple[Mapping[str, int], bool]], sizes: Sequence[str], blocks: Sequence[str] = (),
             as_meta: str = "{}") -> str | None:
    """Return a comparison that holds where the flag is set and nowhere else; None where none of the simple ones does."""
    flags = [value for _, value in points]
    named = [(as_meta.format(name), [env.get(name, 0) for env, _ in points]) for name in [*blocks, *sizes]]
    named = [(text, values) for text, values in named if all(number > 0 for number in values)]
    multiples = [(term, other, ones, others) for (term, ones), (other, others) in permutations(named, 2)]
    multiples += [(term, str(by), ones, [by] * len(ones)) for term, ones in named for by in _POWERS]
    for term, other, ones, others in multiples:
        pairs = list(zip(ones, others, strict=True))
        for text, values in ((f"{term} % {other} == 0", [left % right == 0 for left, right in pairs]),
                             (f"{term} >= {other}", [left >= right for left, right in pairs]),
                             (f"{term} > {other}", [left > right for left, right in pairs])):
            if values == flags:
                return text
            if [not flag for flag in values] == flags:
                return f"not {text}"
    return None


def fit_fraction(points: Sequence[tuple[Mapping[str, int], float]], sizes: Sequence[str]) -> str | None:
    """Return a fraction as a power of a size, or of the product of two, times a constant: `1.4427 * D ** -0.5`."""
    named = [(name, [env.get(name, 0) for env, _ in points]) for name in sizes]
    named += [(f"({term} * {other})", [left * right for left, right in zip(ones, others, strict=True)])
              for (term, ones), (other, others) in permutations(named, 2)]
    for text, values in named:
        if not all(number > 0 for number in values):
            continue
        for power in (-0.5, -1, 0.5, 1):
            factors = [value / number ** power for number, (_, value) in zip(values, points, strict=True)]
            if all(math.isclose(factor, factors[0], rel_tol=1e-6) for factor in factors):
                constant = "" if math.isclose(factors[0], 1, rel_tol=1e-9) else f"{factors[0]!r} * "
                return f"{constant}1 / {text}" if power == -1 else f"{constant}{text}" + ("" if power == 1 else f" ** {power}")
    return None
