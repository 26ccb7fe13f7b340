"""What numbers of a CUDA C++ launch depend on, beyond the formulas of `calls.fitting`: products of blocks, tiles, bounds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from tuner.bring.calls.fitting import Point, fit
from tuner.bring.calls.understand import META
from tuner.tuning.team.expressions import Expression

_TILES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_FACTORS = (2, 4, 8, 16, 32, 64)


def fit_simple(seen: Sequence[Point], sizes: Sequence[str], blocks: Sequence[str], fixed: Sequence[int]) -> str | None:
    """Return a formula over sizes and blocks; where none holds also over products of blocks, as `threads * ITEMS`."""
    if (formula := fit(seen, sizes, blocks, META, fixed)) is not None:
        return formula
    for find in (_fit_affine, _fit_power, _fit_rounded, _fit_tiles):
        if (formula := find(seen, sizes)) is not None:
            return formula
    if (formula := _fit_multiple(seen, blocks) or _fit_sum(seen, [*sizes, *blocks], blocks)) is not None:
        return formula
    more: dict[str, tuple[str, list[int]]] = {}
    varying = [name for name in blocks if len({env.get(name, 0) for env, _ in seen}) > 1]
    for index, name in enumerate(varying):
        own = [env.get(name, 0) for env, _ in seen]
        for other in varying[index + 1:]:
            more[f"{name}__{other}"] = (f"({META.format(name)} * {META.format(other)})",
                                        [count * env.get(other, 0) for count, (env, _) in zip(own, seen, strict=True)])
        for by in _FACTORS:
            more[f"{name}__{by}"] = f"({META.format(name)} * {by})", [count * by for count in own]
            more[f"{name}__over_{by}"] = f"({META.format(name)} // {by})", [count // by for count in own]
    for name, (text, values) in more.items():
        points = [({**env, name: value}, number) for (env, number), value in zip(seen, values, strict=True)]
        if (formula := fit(points, sizes, [name], META, ())) is not None:
            return re.sub(r", \(([^()]*)\)\)", r", \1)", formula.replace(META.format(name), text))
    return None


def _fit_multiple(seen: Sequence[Point], blocks: Sequence[str]) -> str | None:
    """Return a block, or the product of two, times a number: `BM * BK * 4`, the bytes of a tile."""
    named = [(META.format(name), [env.get(name, 0) for env, _ in seen]) for name in blocks]
    pairs = [(f"{one} * {other}", [left * right for left, right in zip(ones, others, strict=True)])
             for at, (one, ones) in enumerate(named) for other, others in named[at:]]
    for text, values in (*named, *pairs):
        times = seen[0][1] // values[0] if values[0] else 0
        if times > 1 and all(value * times == number for value, (_, number) in zip(values, seen, strict=True)):
            return f"({text} * {times})"
    return None


def _fit_sum(seen: Sequence[Point], sizes: Sequence[str], blocks: Sequence[str]) -> str | None:
    """Return a size and a block, each times a number, and one beside: `2 * columns + 4 * threads`, bytes of a row and of warps."""
    base, number = seen[0]
    for name in sizes:
        for block in (one for one in blocks if one != name):
            by_size = next(((env[name] - base[name], other - number) for env, other in seen if env.get(name, 0) != base.get(name, 0)
                            and env.get(block) == base.get(block)), (0, 0))
            by_block = next(((env[block] - base[block], other - number) for env, other in seen
                             if env.get(block, 0) != base.get(block, 0) and env.get(name) == base.get(name)), (0, 0))
            if not by_size[1] or not by_block[1] or by_size[1] % by_size[0] or by_block[1] % by_block[0]:
                continue
            ones, others = by_size[1] // by_size[0], by_block[1] // by_block[0]
            beside = number - ones * base[name] - others * base[block]
            if min(ones, others) > 0 <= beside and all(ones * env[name] + others * env[block] + beside == other
                                                       for env, other in seen):
                return f"({META.format(name)} * {ones} + {META.format(block)} * {others}{f' + {beside}' if beside else ''})"
    return None


def _fit_affine(seen: Sequence[Point], sizes: Sequence[str]) -> str | None:
    """Return a size times a whole number and another one beside: `2 * r + 1`."""
    for name in sizes:
        pairs = sorted({(env.get(name, 0), number) for env, number in seen})
        if len(pairs) < 3 or pairs[0][0] == pairs[-1][0]:
            continue
        times, left = divmod(pairs[-1][1] - pairs[0][1], pairs[-1][0] - pairs[0][0])
        beside = pairs[0][1] - times * pairs[0][0]
        if not left and times > 0 and all(times * size + beside == number for size, number in pairs):
            return f"({times} * {META.format(name)} {'-' if beside < 0 else '+'} {abs(beside)})"
    return None


def _fit_power(seen: Sequence[Point], sizes: Sequence[str]) -> str | None:
    """Return the largest power of two up to a size, as `1 << int(log2(n))` gives it."""
    for name in sizes:
        values = [env.get(name, 0) for env, _ in seen]
        if len(set(values)) > 1 and min(values) > 0 and all(1 << value.bit_length() - 1 == number
                                                            for value, (_, number) in zip(values, seen, strict=True)):
            return f"triton.next_power_of_2({META.format(name)} // 2 + 1)"
    return None


def _fit_rounded(seen: Sequence[Point], sizes: Sequence[str]) -> str | None:
    """Return the tiles of a size, each of so many: `cdiv(dim, 256) * 32`, whole warps for a row."""
    for name in sizes:
        for by in _TILES[1:]:
            tiles = [-(-env.get(name, 0) // by) for env, _ in seen]
            times = seen[0][1] // tiles[0] if tiles[0] else 0
            if times > 1 and len(set(tiles)) > 2 and [one * times for one in tiles] == [number for _, number in seen]:
                return f"(triton.cdiv({META.format(name)}, {by}) * {times})"
    return None


def _fit_tiles(seen: Sequence[Point], sizes: Sequence[str]) -> str | None:
    """Return the product of two sizes in tiles of fixed extents: `cdiv(M, 128) * (N // 64)`."""
    numbers = [number for _, number in seen]
    tiles: list[tuple[str, list[int]]] = []
    for name in sizes:
        values = [env.get(name, 0) for env, _ in seen]
        if len(set(values)) > 1:
            for by in _TILES:
                tiles += [(f"triton.cdiv({META.format(name)}, {by})", [-(-extent // by) for extent in values]),
                          (f"({META.format(name)} // {by})", [extent // by for extent in values])]
    for index, (text, values) in enumerate(tiles):
        for other, others in tiles[index + 1:]:
            if all(first * two == number for first, two, number in zip(values, others, numbers, strict=True)):
                return f"{text} * {other}"
    return None


def fit_capped(seen: Sequence[Point], sizes: Sequence[str], blocks: Sequence[str], fixed: Sequence[int]) -> str | None:
    """Return a formula that holds below a largest or above a smallest number: `min(K // 4, 1024)`."""
    numbers = [number for _, number in seen]
    for name, bound in (("min", max(numbers)), ("max", min(numbers))):
        inside = [(env, number) for env, number in seen if number != bound]
        if not inside or len(inside) == len(seen):
            continue
        power = _fit_power(inside, sizes)
        for text in (f"{name}({part}, {bound})" for part in (*_parts_of(inside, sizes), *([power] if power else ()))):
            if all(value_of(text, env) == number for env, number in seen):
                return text
        for points in ([*seen[:1], *inside], inside):               # the call itself may be at the bound, or beyond it
            for some in (*([size] for size in sizes), sizes):
                formula = fit_simple(points, some, blocks, fixed)
                if formula is None or formula.isdecimal():
                    continue
                text = f"{name}({formula}, {bound})"
                if all(value_of(text, env) == number for env, number in seen):
                    return text
    return None


def _parts_of(points: Sequence[Point], sizes: Sequence[str]) -> Iterator[str]:
    """Yield sizes over the whole number that gives every point: few points are within a bound."""
    for name in sizes:
        by = {env.get(name, 0) // number for env, number in points if number > 0}
        if len(by) == 1 and (part := by.pop()) > 0:
            yield META.format(name) if part == 1 else f"{META.format(name)} // {part}"


def value_of(text: str, env: Mapping[str, int]) -> int | None:
    """Return the number that a formula of ours gives; None where it gives none."""
    plain = text.replace('meta["', "").replace('"]', "").replace("triton.", "")
    try:
        return int(Expression(plain, list(env)).value(env))
    except ValueError:
        return None
