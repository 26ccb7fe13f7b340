"""How a file launches its own kernels: grid, threads of a block, template values, shared memory, as far as its text tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from tuner.tuning.cuda.items import Item
from tuner.tuning.cuda.tokens import close_angle, closing_of, is_word, split_at_commas
from tuner.tuning.cuda.values import MAX_DEPTH, Scope, Values

MAX_LAUNCHES = 400
MAX_TOKENS = 4_000  # of one launch
_CALLS = {"cudaLaunchKernel", "cudaLaunchCooperativeKernel", "hipLaunchKernelGGL"}
_CALLS_EX = {"cudaLaunchKernelEx", "cudaLaunchKernelExC"}


@dataclass(frozen=True)
class Launch:
    """One `<<<…>>>`: tokens of the threads along each axis, of the template's values, and of the shared memory; () for none."""

    kernel: str
    scope: Scope
    block: tuple[tuple[str, ...], ...]
    grid: tuple[tuple[str, ...], ...]
    template: tuple[tuple[str, ...], ...]
    smem: tuple[str, ...] = ()
    arguments: tuple[tuple[str, ...], ...] = ()
    block_name: str = ""  # of the variable that holds the block


@dataclass
class Launches:
    """The launches of a file."""

    values: Values

    def all(self) -> list[Launch]:
        """Return every launch of the file in order."""
        launches: list[Launch] = []
        for item in self.values.source.items:
            if item.kind in ("function", "other", "variable") and len(launches) < MAX_LAUNCHES:
                launches += islice(self._launches(item), MAX_LAUNCHES - len(launches))
        return launches

    def _launches(self, item: Item) -> Iterator[Launch]:
        words = self.values.body(item)
        for at in range(len(words) - 3):
            if words[at] == words[at + 1] == words[at + 2] == "<" and at:
                launch = self._chevrons(item, words, at)
                if launch is not None:
                    yield launch
            elif words[at] in _CALLS and words[at + 1] == "(":
                given = self._given(words, at + 1)
                if len(given) >= 4:
                    kernel, template = _kernel_of(given[0])
                    yield self._made(item, words, at, kernel, template, given[1], given[2], given[4] if len(given) > 4 else [])
            elif words[at] in _CALLS_EX and words[at + 1] == "(":
                given = self._given(words, at + 1)
                if len(given) >= 2:
                    scope, holder = Scope(item, words, at), [token for token in given[0] if is_word(token)]
                    kernel, template = _kernel_of(given[1])
                    block = self.values.assigned(scope, holder[-1] if holder else "", "blockDim")
                    yield self._made(item, words, at, kernel, template, [], block, [])

    def _chevrons(self, item: Item, words: Sequence[str], at: int) -> Launch | None:
        end, depth, until = at + 3, 0, min(len(words), at + MAX_TOKENS)
        while end + 2 < until:
            depth += (words[end] in ("(", "[", "{")) - (words[end] in (")", "]", "}"))
            if depth == 0 and words[end] == words[end + 1] == words[end + 2] == ">":
                break
            if depth < 0 or words[end] == ";":
                return None
            end += 1
        if not self.values.may_look_at(end - at):
            return None
        parts = split_at_commas(words[at + 3 : end])
        if len(parts) < 2:
            return None
        begin = at - 1
        if words[begin] == ">":
            depth = 0
            while begin > max(0, at - MAX_TOKENS):
                depth += (words[begin] == ">") - (words[begin] == "<")
                begin -= 1
                if depth == 0:
                    break
        kernel, template = _kernel_of(words[begin:at])
        if words[at - 1] == ")":  # (kernel<T>)<<<…>>>
            opening = at - 1
            while opening > max(0, at - MAX_TOKENS) and words[opening] != "(":
                opening -= 1
            kernel, template = _kernel_of(words[opening + 1 : at - 1])
        call = self._given(words, end + 3) if end + 3 < len(words) and words[end + 3] == "(" else []
        launch = self._made(item, words, at, kernel, template, parts[0], parts[1], parts[2] if len(parts) > 2 else [])
        return replace(launch, arguments=tuple(tuple(argument) for argument in call))

    def _given(self, words: Sequence[str], opening: int) -> list[list[str]]:
        """Return the arguments of a call; [] where there are too many tokens."""
        words = words[opening : opening + MAX_TOKENS]
        closing = closing_of(words, 0)
        return split_at_commas(words[1:closing]) if self.values.may_look_at(closing) else []

    def _made(
        self,
        item: Item,
        words: Sequence[str],
        position: int,
        kernel: str,
        template: list[list[str]],
        grid: Sequence[str],
        block: Sequence[str],
        smem: Sequence[str],
    ) -> Launch:
        scope = Scope(item, tuple(words), position)
        named = self.values.variable(scope, kernel)  # auto kernel = &f<128>;
        if named and not self.values.source.of_name.get(kernel):
            kernel, template = _kernel_of(named[0])
        return Launch(
            kernel,
            scope,
            tuple(map(tuple, self.extents(scope, block))),
            tuple(map(tuple, self.extents(scope, grid))),
            tuple(tuple(part) for part in template),
            tuple(smem),
            block_name=block[0] if len(block) == 1 and is_word(block[0]) else "",
        )

    def extents(self, scope: Scope, words: Sequence[str], depth: int = 0) -> list[list[str]]:
        """Return the tokens along x, y and z: of dim3(…), of a variable that is one, or of a number."""
        words = bare(words)
        if not words or depth > MAX_DEPTH:
            return []
        if words[0] == "dim3" and len(words) > 1 and words[1] in ("(", "{"):
            return split_at_commas(words[2:-1])
        if words[0] == "{" and words[-1] == "}":
            return split_at_commas(words[1:-1])
        if len(words) == 1 and is_word(words[0]) and (along := [self.values.assigned(scope, words[0], axis) for axis in "xyz"])[0]:
            return [extent or ["1"] for extent in along]  # dim3 block; block.x = 32;
        if len(words) == 1 and is_word(words[0]):
            variable = self.values.variable(scope, words[0], constructs=True)
            if variable is not None:
                value, is_constructed = variable
                if is_constructed:
                    return split_at_commas(value)
                if value[:1] in (["dim3"], ["{"]) or (len(value) == 1 and is_word(value[0]) and value[0] != words[0]):
                    inner = self.extents(scope, value, depth + 1)
                    if len(inner) > 1 or value[:1] in (["dim3"], ["{"]):
                        return inner
            elif self.values.source.macros.get(words[0]) is not None and (
                body := list(self.values.source.macros[words[0]].body)
            )[:1] == ["dim3"]:
                return self.extents(scope, body, depth + 1)
            elif words[0] in self.values.parameters(scope.item):
                for caller, argument in self.values.given(scope, words[0]):
                    inner = self.extents(caller, argument, depth + 1)
                    if len(inner) > 1:
                        return inner
        return [list(words)]


def bare(words: Sequence[str]) -> list[str]:
    """Return tokens without brackets around all of them."""
    words = list(words)
    while len(words) > 2 and words[0] == "(" and closing_of(words, 0) == len(words) - 1:
        words = words[1:-1]
    return words


def _kernel_of(words: Sequence[str]) -> tuple[str, list[list[str]]]:
    """Return name and template values of `ns::kernel<T, 128>`, also behind a cast or a &."""
    words = [word for word in words if word not in ("&",)]
    if words and words[0] == "(" and ")" in words:  # (void*)kernel
        closed = closing_of(words, 0)
        words = words[closed + 1 :] or words[1:closed]
    if "(" in words and words[0].endswith("_cast"):
        opening = words.index("(")
        words = words[opening + 1 : closing_of(words, opening)]
    if "<" in words:
        index = list(words).index("<")
        closed = close_angle(words, index, len(words))
        name = words[index - 1] if index else ""
        return name, split_at_commas(words[index + 1 : closed if closed > 0 else len(words) - 1])
    names = [word for word in words if is_word(word)]
    return (names[-1] if names else ""), []
