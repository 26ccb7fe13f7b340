"""Expressions of a launch over the kernel's own names: blocks of the grid, bytes of shared memory, threads of a block."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tuner.tuning.cuda.constants import CEILS, SIZES, evaluate
from tuner.tuning.cuda.directives import expand
from tuner.tuning.cuda.functions import BLOCK, Axis, CudaArgument
from tuner.tuning.cuda.launches import Launch, bare
from tuner.tuning.cuda.tokens import is_word
from tuner.tuning.cuda.values import MAX_DEPTH, Scope, Values

MAX_CHARACTERS = 2_000  # of an expression


def resolve(values: Values, scope: Scope, words: Sequence[str], names: dict[str, str], depth: int = 0) -> str | None:
    """Return an expression over the kernel's own names as a text of Python; None where it rests on something else.

    names: a host's name → the kernel's, of what is passed as a template's value; and of each macro and constant itself.
    """
    words = bare(expand(list(words), values.expanded()) if depth == 0 else list(words))
    if depth > MAX_DEPTH or not words or len(words) > 80 or not values.may_look_at(len(words)):
        return None
    out: list[str] = []
    skip = 0
    for place, word in enumerate(words):
        if skip:
            skip -= 1
        elif word in names:
            out.append(names[word])
        elif is_word(word):
            if (
                word == "sizeof"
                and words[place + 1 : place + 2] == ["("]
                and words[place + 3 : place + 4] == [")"]
                and words[place + 2] in SIZES
            ):
                out.append(str(SIZES[words[place + 2]]))
                skip = 3
                continue
            if _is_call(words, place, CEILS) or _is_call(words, place, {"min", "max"}):
                out.append("cdiv" if word not in ("min", "max") else word)
                continue
            if word in ("std", "const") or (word == "static_cast"):
                return None
            if word == "sizeof" or (place + 1 < len(words) and words[place + 1] == "("):
                return None
            variable = values.variable(scope, word, constructs=True)
            value: str | None = None
            if variable is not None and variable[0] != [word]:
                value = resolve(values, scope, variable[0], names, depth + 1)
            elif tokens := values.words_of(word):
                value = resolve(values, scope, tokens, names, depth + 1)
            if value is None or len(value) > MAX_CHARACTERS:
                return None
            out.append(value if value.isidentifier() or value.isdecimal() else f"({value})")
        elif word == "/":
            out.append("//")
        elif word in ("(", ")", "*", "+", "-", "%") or (word == "," and "cdiv" in out):
            out.append(word)
        elif word[:1].isdigit():
            number = evaluate([word], lambda name: None)
            if number is None:
                return None
            out.append(str(number))
        else:
            return None
    return " ".join(out).replace("( ", "(").replace(" )", ")")


def _is_call(words: Sequence[str], position: int, names: Collection[str]) -> bool:
    """Return whether one of these functions is called at a place."""
    return words[position].lower().lstrip("_") in names and position + 1 < len(words) and words[position + 1] == "("


def over_names(
    values: Values,
    launch: Launch,
    words: Sequence[str],
    names: Mapping[str, int | None],
    template: Sequence[str],
    arguments: Sequence[CudaArgument] = (),
) -> str | None:
    """Return a launch's expression over the kernel's names, and over `arguments` that are whole; None where it rests on others."""
    aliases = {name: name for name in names if name not in template}
    for param, value in zip(template, launch.template, strict=False):
        if len(value) == 1 and is_word(value[0]):
            aliases[value[0]] = param
    aliases |= _of_arguments(launch, arguments)
    return resolve(values, launch.scope, words, aliases)


def smem_of(
    values: Values, own: Sequence[Launch], names: Mapping[str, int | None], block: Sequence[Axis], template: Sequence[str]
) -> str | None:
    """Return the dynamic shared memory of the first launch in bytes: "" for none, None where the text does not tell."""
    if not own or not own[0].smem or list(own[0].smem) in (["0"], []):
        return "" if own else None
    return resolve(values, own[0].scope, own[0].smem, _host_names(own[0], names, block, template))


def grid_of(
    values: Values,
    own: Sequence[Launch],
    names: Mapping[str, int | None],
    block: Sequence[Axis],
    template: Sequence[str],
    arguments: Sequence[CudaArgument],
) -> tuple[str, ...]:
    """Return the blocks along each axis of the first launch; () where one rests on more than the kernel's arguments and block."""
    if not own:
        return ()
    launch = own[0]
    aliases = _host_names(launch, names, block, template)
    aliases |= _of_arguments(launch, arguments)
    for axis, name in zip("xyz", BLOCK, strict=True):  # block.x where block is a dim3
        if block["xyz".index(axis)].is_free:
            aliases[f"block.{axis}"] = name
    grid = [resolve(values, launch.scope, _with_axes(words, launch), aliases) for words in launch.grid]
    return tuple(extent for extent in grid if extent) if all(grid) else ()


def _of_arguments(launch: Launch, arguments: Sequence[CudaArgument]) -> dict[str, str]:
    """Return the host's names of whole numbers that a launch passes → the kernel's."""
    return {words[0]: argument.name for argument, words in zip(arguments, launch.arguments, strict=False)
            if argument.kind == "integer" and len(words) == 1 and is_word(words[0])}


def _host_names(
    launch: Launch, names: Mapping[str, int | None], block: Sequence[Axis], template: Sequence[str]
) -> dict[str, str]:
    """Return the host's names at a launch → the kernel's own: macros, template values, and threads that may change."""
    aliases = {name: name for name in names if name not in template}
    aliases |= {
        value[0]: param for param, value in zip(template, launch.template, strict=False) if len(value) == 1 and is_word(value[0])
    }
    for axis, words, name in zip(block, launch.block, BLOCK, strict=False):
        if axis.is_free and len(words) == 1 and is_word(words[0]) and words[0] not in aliases:
            aliases[words[0]] = name
    return aliases


def _with_axes(words: Sequence[str], launch: Launch) -> list[str]:
    """Return tokens with `threads.x` as one, where `threads` is what the launch gives as its block."""
    out: list[str] = []
    at = 0
    while at < len(words):
        if at + 2 < len(words) and words[at + 1] == "." and words[at + 2] in ("x", "y", "z") and words[at] == launch.block_name:
            out.append(f"block.{words[at + 2]}")
            at += 3
        else:
            out.append(words[at])
            at += 1
    return out
