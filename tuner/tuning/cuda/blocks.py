"""The threads of a block along each axis: what a kernel asks of them, what its file launches, what its index arithmetic implies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.tuning.cuda.constants import evaluate
from tuner.tuning.cuda.items import Item, Source
from tuner.tuning.cuda.launches import Launch, Launches, Scope
from tuner.tuning.cuda.tokens import is_word, split_at_commas

AXES = ("x", "y", "z")
MOST_THREADS = 1024
_GROUPS = {"this_thread_block", "this_grid", "this_cluster"}
_GROUP_SIZES = {"size", "num_threads", "group_dim", "dim_threads", "meta_group_size"}


@dataclass(frozen=True)
class Axis:
    """Threads along one axis of a block.

    used     the kernel asks for its thread along it
    adapts   it asks how many there are (blockDim), so that their number may change
    extent   an expression over the kernel's own names and numbers; "" where nothing tells
    value    the number of it that the file launches, if it tells
    several  numbers that the file launches, or lists
    implied  whether `extent` is read from index arithmetic and no launch tells
    split    names by which the kernel divides its thread's number: none is the number of threads
    most     the largest number that fits static shared memory or __launch_bounds__
    """

    used: bool = False
    adapts: bool = False
    extent: str = ""
    value: int | None = None
    several: tuple[int, ...] = ()
    implied: bool = False
    split: tuple[str, ...] = ()
    most: int = MOST_THREADS

    @property
    def is_free(self) -> bool:
        """Whether the number of threads may change by itself."""
        return self.adapts and not re.search(r"[A-Za-z_]", self.extent)


def read_block(
    source: Source,
    item: Item,
    words: Sequence[str],
    launches: Launches,
    of_kernel: Sequence[Launch],
    names: Mapping[str, int | None],
    template: Sequence[str],
) -> tuple[Axis, Axis, Axis]:
    """Return the three axes.

    words     the tokens of the kernel and of all that it reaches
    names     macros, constants and template parameters of the kernel, with their numbers
    template  its template parameters in order
    """
    body = _body(source, item)
    held = {axis: list(_asserted(body, axis)) for axis in AXES}
    axes = [_asked(words, axis, len(held[axis])) for axis in AXES]
    for at, axis in enumerate(AXES):
        axes[at] = replace(axes[at], most=min([MOST_THREADS, *_shared_sizes(body, axis, at, launches)]))
    for launch in of_kernel:
        if not any(launches.number(launch.scope, each) or _own(launches, launch, each, names, template) for each in launch.block):
            continue
        for at, words_along in enumerate(launch.block[:3]):
            axes[at] = _launched(axes[at], launches, launch, words_along, names, template)
        if not any(each.extent for each in axes):
            continue
        for at in range(len(launch.block), 3):
            if not axes[at].extent:
                axes[at] = replace(axes[at], extent="1", value=1, adapts=False)
    if not any(each.extent or each.value for each in axes):
        for at, axis in enumerate(AXES):
            implied = _implied(source, item, body, axis, launches, names)
            if implied and axes[at].used:
                axes[at] = replace(axes[at], extent=implied, implied=True)
    axes[0] = replace(axes[0], split=tuple(name for name in names if divides(source, item, name)))
    return axes[0], axes[1], axes[2]


def _asked(words: Sequence[str], axis: str, asserted: int) -> Axis:
    """Return what the tokens ask of an axis; `asserted`: how often they only check how many threads there are."""
    used, adapts, asked = False, False, 0
    for at, word in enumerate(words):
        if word in ("threadIdx", "blockDim"):
            along = words[at + 2] if at + 2 < len(words) and words[at + 1] == "." else "x"
            used = used or along == axis
            asked += word == "blockDim" and along == axis
        elif word in _GROUPS and axis == "x":
            used = True
            adapts = adapts or word != "this_thread_block" or bool(_GROUP_SIZES & set(words))
        elif word in ("thread_index", "group_index") and axis != "x":
            used = used or (
                word == "thread_index"
                and any(words[place : place + 2] == [".", axis] for place in range(at, min(at + 6, len(words))))
            )
            adapts = adapts or (used and "group_dim" in words)
    return Axis(used, adapts or asked > asserted)


def _own(
    launches: Launches, launch: Launch, words: Sequence[str], names: Mapping[str, int | None], template: Sequence[str]
) -> str | None:
    """Return a launch's expression over the kernel's names; None where it rests on others."""
    given = {each: each for each in names if each not in template}
    for param, value in zip(template, launch.template, strict=False):
        if len(value) == 1 and is_word(value[0]):
            given[value[0]] = param
    return launches.resolve(launch.scope, words, given)


def _launched(
    axis: Axis, launches: Launches, launch: Launch, words: Sequence[str], names: Mapping[str, int | None], template: Sequence[str]
) -> Axis:
    number = launches.number(launch.scope, words)
    extent = _own(launches, launch, words, names, template) or ""
    value = int(number.value) if number is not None and 0 < number.value <= MOST_THREADS else None
    if (extent and not re.search(r"[A-Za-z_]", extent)) or not extent:
        extent = str(value) if value is not None else ""
        same = [
            param
            for param, given in zip(template, launch.template, strict=False)  # f<256><<<blocks, 256>>>
            if value is not None
            and value > 1
            and _looks_like_threads(param)
            and (known := launches.number(launch.scope, given)) is not None
            and known.value == value
        ]
        extent = same[0] if same else extent
    several = tuple(sorted({*axis.several, *(number.several if number else ()), *([value] if value else ())}))
    several = tuple(each for each in several if 0 < each <= MOST_THREADS)
    if axis.extent or axis.value is not None:
        return replace(axis, several=several)
    return replace(axis, extent=extent, value=value, several=several)


def _looks_like_threads(name: str) -> bool:
    return re.search(r"block|thread|tpb|tile|^B|^NT$|warps?_?size", name, re.IGNORECASE) is not None


def _body(source: Source, item: Item) -> list[str]:
    """Return the tokens of a kernel with blockIdx.x and the like as one, also where a variable holds it."""
    out: list[str] = []
    words = source.body_of(item)
    at = 0
    while at < len(words):
        if words[at] in ("blockIdx", "threadIdx", "blockDim") and at + 2 < len(words) and words[at + 1] == ".":
            out.append("".join(words[at : at + 3]))
            at += 3
        else:
            out.append(words[at])
            at += 1
    held = {
        out[at]: out[at + 2]
        for at in range(len(out) - 3)
        if is_word(out[at])
        and out[at + 1] == "="
        and out[at + 3] in (",", ";")
        and out[at + 2].partition(".")[0] in ("blockIdx", "threadIdx", "blockDim")
    }
    return [held.get(word, word) for word in out]


def _implied(
    source: Source, item: Item, body: Sequence[str], axis: str, launches: Launches, names: Mapping[str, int | None]
) -> str:
    """Return what index arithmetic says of the threads along an axis; "" for nothing.

    for (i = threadIdx.x; …; i += E), then blockIdx.x * E + threadIdx.x, then s[threadIdx.x] of a shared s[E].
    """
    scope = Scope(item, tuple(source.words[item.opening : item.last + 1]), item.last - item.opening)
    identity = {name: name for name in names}
    for words in (
        *_asserted(body, axis),
        *(_bounds(source, item) if axis == "x" else ()),
        *_strides(body, axis),
        *_rows(body, axis),
        *_products(body, axis),
        *_shared(body, axis),
    ):
        if f"blockDim.{axis}" in words:
            return ""
        own = launches.resolve(scope, words, identity)
        if own is not None and (not own.isdecimal() or 1 <= int(own) <= MOST_THREADS):
            return own
    return ""


def _strides(body: Sequence[str], axis: str) -> Iterator[Sequence[str]]:
    for at, word in enumerate(body):
        if word == "for" and at + 1 < len(body) and body[at + 1] == "(":
            end, depth = at + 1, 0
            while end < len(body):
                depth += (body[end] == "(") - (body[end] == ")")
                if depth == 0:
                    break
                end += 1
            head = list(body[at + 2 : end])
            if head.count(";") != 2:
                continue
            begin, step = head[: head.index(";")], head[len(head) - head[::-1].index(";") :]
            if begin[-2:] == ["=", f"threadIdx.{axis}"] and len(step) > 2 and step[1] == "+=" and "," not in step:
                yield step[2:]


def _bounds(source: Source, item: Item) -> Iterator[Sequence[str]]:
    """Yield what __launch_bounds__ says where it is computed from the kernel's own names."""
    words = source.words[item.first : item.opening]
    if "__launch_bounds__" in words:
        at = item.first + words.index("__launch_bounds__") + 1
        first = split_at_commas(source.inside(at))[:1]
        if first and any(is_word(each) for each in first[0]):
            yield first[0]


def _asserted(body: Sequence[str], axis: str) -> Iterator[Sequence[str]]:
    """Yield E of assert(E == blockDim.x)."""
    threads = f"blockDim.{axis}"
    for at, word in enumerate(body):
        if word in ("assert", "static_assert", "CUDA_KERNEL_ASSERT") and at + 1 < len(body) and body[at + 1] == "(":
            end, depth = at + 1, 0
            while end < len(body):
                depth += (body[end] == "(") - (body[end] == ")")
                if depth == 0:
                    break
                end += 1
            inside = list(body[at + 2 : end])
            if inside[-2:] == ["==", threads]:
                yield inside[:-2]
            elif inside[:2] == [threads, "=="]:
                yield inside[2:]


def _rows(body: Sequence[str], axis: str) -> Iterator[Sequence[str]]:
    """Yield R * C of blockIdx.x * R + threadIdx.x / C: threads that cover a tile row by row."""
    for at, word in enumerate(body):
        if word != f"threadIdx.{axis}" or at + 2 >= len(body) or body[at + 1] != "/":
            continue
        end = at + 2
        if body[end] == "(":
            depth = 0
            while end < len(body) - 1:
                depth += (body[end] == "(") - (body[end] == ")")
                if depth == 0:
                    break
                end += 1
        factors = _factors_before(body, at - 1 if at and body[at - 1] == "(" else at)
        if len(factors) == 2 and any(each[0].startswith("blockIdx.") for each in factors):
            rows = next((each for each in factors if not each[0].startswith("blockIdx.")), None)
            if rows is not None:
                yield ["(", *rows, ")", "*", "(", *body[at + 2 : end + 1], ")"]


def divides(source: Source, item: Item, name: str) -> bool:
    """Return whether a kernel splits its thread's number by a name: that is then no number of threads along x."""
    body = _body(source, item)
    return any(body[at] == "threadIdx.x" and body[at + 1] in ("/", "%") and body[at + 2] == name for at in range(len(body) - 2))


def _products(body: Sequence[str], axis: str) -> Iterator[Sequence[str]]:
    thread, block = f"threadIdx.{axis}", f"blockIdx.{axis}"
    for at, word in enumerate(body):
        if word != thread:
            continue
        for factors in (_factors_before(body, at), _factors_after(body, at)):
            if [block] in factors and len(factors) == 2:
                yield next(each for each in factors if each != [block])


def _factors_before(body: Sequence[str], at: int) -> list[list[str]]:
    if at < 2 or body[at - 1] != "+":
        return []
    place, factors = at - 2, []
    if body[place] == ")":  # (blockIdx.x * E) + threadIdx.x
        opening = _opening(body, place)
        inside = list(body[opening + 1 : place])
        if "*" in inside:
            return _split_product(inside)
    while place >= 0:
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


def _opening(words: Sequence[str], closing: int) -> int:
    depth = 0
    for at in range(closing, -1, -1):
        depth += (words[at] == ")") - (words[at] == "(")
        if depth == 0:
            return at
    return 0


def _arrays(body: Sequence[str]) -> Iterator[tuple[str, list[list[str]]]]:
    """Yield the static shared arrays of a body with their extents."""
    at = 0
    while at < len(body):
        if body[at] == "__shared__" and (at == 0 or body[at - 1] != "extern"):
            place = at + 1
            while place < len(body) and body[place] != ";":
                if is_word(body[place]) and place + 1 < len(body) and body[place + 1] == "[":
                    name, extents = body[place], []
                    place += 1
                    while place < len(body) and body[place] == "[":
                        end = place + body[place:].index("]") if "]" in body[place:] else len(body)
                        extents.append(list(body[place + 1 : end]))
                        place = end + 1
                    yield name, extents
                else:
                    place += 1
            at = place
        at += 1


def _shared(body: Sequence[str], axis: str) -> Iterator[Sequence[str]]:
    for name, extents in _arrays(body):
        for at in range(len(body) - 1):
            if body[at] == name and body[at + 1] == "[":
                place = at + 1
                for extent in extents:
                    if (
                        place + 2 < len(body)
                        and body[place] == "["
                        and body[place + 1] == f"threadIdx.{axis}"
                        and body[place + 2] == "]"
                    ):
                        yield extent[:-2] if extent[-2:] == ["+", "1"] else extent
                    place = place + body[place:].index("]") + 1 if "]" in body[place:] else len(body)


def _shared_sizes(body: Sequence[str], axis: str, at: int, launches: Launches) -> Iterator[int]:
    """Yield the sizes of static shared arrays that a thread's number indexes."""
    for extent in _shared(body, axis):
        number = evaluate(extent, lambda name: known.value if (known := launches.constant(name)) else None)
        if number is not None and number >= 1 and not any(is_word(each) for each in extent):
            yield int(number)
