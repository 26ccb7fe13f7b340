"""What the index arithmetic of a kernel says of the threads of a block: blockIdx.x * E + threadIdx.x, strides, shared arrays."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

from tuner.tuning.cuda.constants import evaluate
from tuner.tuning.cuda.functions import MOST_THREADS
from tuner.tuning.cuda.items import Item
from tuner.tuning.cuda.source import Source
from tuner.tuning.cuda.symbolic import resolve
from tuner.tuning.cuda.tokens import closing_of, is_word, split_at_commas
from tuner.tuning.cuda.values import Scope, Values

MAX_EXPRESSION = 2_000  # tokens of one in brackets
MAX_FACTORS = 40  # of a product
MAX_ARRAYS = 200  # static shared arrays of a kernel


def body_of(source: Source, item: Item) -> list[str]:
    """Return the tokens of a kernel with blockIdx.x and the like as one, also where a variable holds it."""
    out: list[str] = []
    words = source.body_of(item)
    index = 0
    while index < len(words):
        if words[index] in ("blockIdx", "threadIdx", "blockDim") and index + 2 < len(words) and words[index + 1] == ".":
            out.append("".join(words[index : index + 3]))
            index += 3
        else:
            out.append(words[index])
            index += 1
    aliases = {
        out[index]: out[index + 2]
        for index in range(len(out) - 3)
        if is_word(out[index])
        and out[index + 1] == "="
        and out[index + 3] in (",", ";")
        and out[index + 2].partition(".")[0] in ("blockIdx", "threadIdx", "blockDim")
    }
    return [aliases.get(word, word) for word in out]


def counted_by_blocks(body: Sequence[str], written: Collection[str], names: Collection[str]) -> frozenset[str]:
    """Return those of `names` that blockIdx is multiplied by, where a result has an element for each block: `sums[blockIdx.x]`.

    A kernel that asks how many blocks there are (gridDim) shares its work between any number of them.
    """
    blocks = {"blockIdx.x", "blockIdx.y", "blockIdx.z"}
    if "gridDim" in body:
        return frozenset()
    is_result = False
    by_block: set[str] = set()
    for index, word in enumerate(body[:-1]):
        if word in (";", "{", "}"):
            is_result = False
        is_result = is_result or word in written
        if is_result and word in blocks and body[index - 1] in ("+", "[") and body[index + 1] in ("+", "]", ";", ","):
            by_block.add(word)
    return frozenset(
        name
        for index, name in enumerate(body)
        if name in names
        and (tuple(body[index - 2 : index]) in {(block, "*") for block in by_block}
             or tuple(body[index + 1 : index + 3]) in {("*", block) for block in by_block})
    )


def implied(
    source: Source, item: Item, body: Sequence[str], axis: str, values: Values, names: Mapping[str, int | None]
) -> str:
    """Return what index arithmetic says of the threads along an axis; "" for nothing.

    for (i = threadIdx.x; …; i += E), then blockIdx.x * E + threadIdx.x, then s[threadIdx.x] of a shared s[E].
    """
    scope = Scope(item, tuple(source.words[item.opening : item.last + 1]), item.last - item.opening)
    identity = {name: name for name in names}
    for words in (
        *asserted(body, axis),
        *(_bounds(source, item) if axis == "x" else ()),
        *_strides(body, axis),
        *_rows(body, axis),
        *_products(body, axis),
        *_shared(body, axis),
    ):
        if f"blockDim.{axis}" in words:
            return ""
        own = resolve(values, scope, words, identity)
        if own is not None and (not own.isdecimal() or 1 <= int(own) <= MOST_THREADS):
            return own
    return ""


def _strides(body: Sequence[str], axis: str) -> Iterator[Sequence[str]]:
    for index, word in enumerate(body):
        if word == "for" and index + 1 < len(body) and body[index + 1] == "(":
            end = _closing(body, index + 1)
            head = list(body[index + 2 : end])
            if head.count(";") != 2:
                continue
            begin, step = head[: head.index(";")], head[len(head) - head[::-1].index(";") :]
            if begin[-2:] == ["=", f"threadIdx.{axis}"] and len(step) > 2 and step[1] == "+=" and "," not in step:
                yield step[2:]


def _bounds(source: Source, item: Item) -> Iterator[Sequence[str]]:
    """Yield what __launch_bounds__ says where it is computed from the kernel's own names."""
    words = source.words[item.first : item.opening]
    if "__launch_bounds__" in words:
        opening = item.first + words.index("__launch_bounds__") + 1
        first = split_at_commas(source.inside(opening))[:1]
        if first and any(is_word(word) for word in first[0]):
            yield first[0]


def asserted(body: Sequence[str], axis: str) -> Iterator[Sequence[str]]:
    """Yield E of assert(E == blockDim.x)."""
    threads = f"blockDim.{axis}"
    for index, word in enumerate(body):
        if word in ("assert", "static_assert", "CUDA_KERNEL_ASSERT") and index + 1 < len(body) and body[index + 1] == "(":
            end = _closing(body, index + 1)
            inside = list(body[index + 2 : end])
            if inside[-2:] == ["==", threads]:
                yield inside[:-2]
            elif inside[:2] == [threads, "=="]:
                yield inside[2:]


def _rows(body: Sequence[str], axis: str) -> Iterator[Sequence[str]]:
    """Yield R * C of blockIdx.x * R + threadIdx.x / C: threads that cover a tile row by row."""
    for index, word in enumerate(body):
        if word != f"threadIdx.{axis}" or index + 2 >= len(body) or body[index + 1] != "/":
            continue
        end = index + 2
        if body[end] == "(":
            end = min(_closing(body, end), len(body) - 1)
        factors = _factors_before(body, index - 1 if index and body[index - 1] == "(" else index)
        if len(factors) == 2 and any(factor[0].startswith("blockIdx.") for factor in factors):
            rows = next((factor for factor in factors if not factor[0].startswith("blockIdx.")), None)
            if rows is not None:
                yield ["(", *rows, ")", "*", "(", *body[index + 2 : end + 1], ")"]


def divisors(body: Sequence[str]) -> set[str]:
    """Return the names by which a kernel splits its thread's number: none is a number of threads along x."""
    return {body[index + 2] for index in range(len(body) - 2) if body[index] == "threadIdx.x" and body[index + 1] in ("/", "%")}


def _products(body: Sequence[str], axis: str) -> Iterator[Sequence[str]]:
    thread, block = f"threadIdx.{axis}", f"blockIdx.{axis}"
    for index, word in enumerate(body):
        if word != thread:
            continue
        for factors in (_factors_before(body, index), _factors_after(body, index)):
            if [block] in factors and len(factors) == 2:
                yield next(factor for factor in factors if factor != [block])


def _factors_before(body: Sequence[str], at: int) -> list[list[str]]:
    if at < 2 or body[at - 1] != "+":
        return []
    place = at - 2
    factors: list[list[str]] = []
    if body[place] == ")":  # (blockIdx.x * E) + threadIdx.x
        opening = _opening(body, place)
        inside = list(body[opening + 1 : place])
        if "*" in inside:
            return _split_product(inside)
    while place >= 0 and len(factors) < MAX_FACTORS:
        if body[place] == ")":
            opening = _opening(body, place)
            factors.append(list(body[opening : place + 1]))
            place = opening - 1
        else:
            factors.append([body[place]])
            place -= 1
        if place < 0 or body[place] != "*":
            break
        place -= 1
    return factors


def _factors_after(body: Sequence[str], at: int) -> list[list[str]]:
    if at + 2 >= len(body) or body[at + 1] != "+":
        return []
    out, depth = [], 0
    for word in body[at + 2 : at + 40]:
        depth += (word in ("(", "[")) - (word in (")", "]"))
        if depth < 0 or (depth == 0 and word in ("+", "-", ";", ",", "<", ">", "=", "]", "&&", "/", "%")):
            break
        out.append(word)
    return _split_product(out)


def _split_product(words: Sequence[str]) -> list[list[str]]:
    if len(words) > 2 and words[0] == "(" and words[-1] == ")":
        words = words[1:-1]
    parts: list[list[str]] = [[]]
    depth = 0
    for word in words:
        depth += (word == "(") - (word == ")")
        if word == "*" and depth == 0:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _closing(body: Sequence[str], opening: int) -> int:
    """Return the place of a bracket's partner, as far as it is looked for."""
    return opening + closing_of(body[opening : opening + MAX_EXPRESSION], 0)


def _opening(words: Sequence[str], closing: int) -> int:
    depth = 0
    for index in range(closing, max(-1, closing - MAX_EXPRESSION), -1):
        depth += (words[index] == ")") - (words[index] == "(")
        if depth == 0:
            return index
    return 0


def _arrays(body: Sequence[str]) -> Iterator[tuple[str, list[list[str]]]]:
    """Yield the static shared arrays of a body with their extents."""
    index = 0
    while index < len(body):
        if body[index] == "__shared__" and (index == 0 or body[index - 1] != "extern"):
            place = index + 1
            while place < len(body) and body[place] != ";":
                if is_word(body[place]) and place + 1 < len(body) and body[place + 1] == "[":
                    name, extents = body[place], []
                    place += 1
                    while place < len(body) and body[place] == "[":
                        end = _after(body, place)
                        extents.append(list(body[place + 1 : end]))
                        place = end + 1
                    yield name, extents
                else:
                    place += 1
            index = place
        index += 1


def _after(body: Sequence[str], place: int) -> int:
    """Return the place of the next `]`; the end of the tokens where there is none."""
    return next((index for index in range(place, min(len(body), place + MAX_EXPRESSION)) if body[index] == "]"), len(body))


def _shared(body: Sequence[str], axis: str) -> Iterator[Sequence[str]]:
    arrays = dict(islice(_arrays(body), MAX_ARRAYS))
    for name, extents in arrays.items():
        for index in range(len(body) - 1):
            if body[index] == name and body[index + 1] == "[":
                place = index + 1
                for extent in extents:
                    if (
                        place + 2 < len(body)
                        and body[place] == "["
                        and body[place + 1] == f"threadIdx.{axis}"
                        and body[place + 2] == "]"
                    ):
                        yield extent[:-2] if extent[-2:] == ["+", "1"] else extent
                    place = _after(body, place) + 1


def shared_sizes(body: Sequence[str], axis: str, values: Values) -> Iterator[int]:
    """Yield the sizes of static shared arrays that a thread's number indexes."""
    for extent in _shared(body, axis):
        number = evaluate(extent, values.constant)
        if number is not None and number >= 1 and not any(is_word(word) for word in extent):
            yield int(number)
