"""Constants of a file that must fit each other: of two one is tuned, the other follows it in the ratio that the file has.

`vec[(row / BLOCKHEIGHT) * BLOCKWIDTH + threadIdx.x]` steps over what one constant counts by what the other one does, and
`static_assert(A == 4 * B)` says it: another number for one of them alone is another kernel, or none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

from tuner.bring.cuda.space import THREADS
from tuner.tuning.cuda.tokens import Tokens, blank_comments


@dataclass(frozen=True)
class Tie:
    """A constant is `leader` × `times` / `by`, which is whole."""

    leader: str
    times: int
    by: int

    def value(self, leader: int) -> int | None:
        """Return the constant's number for one of the leader's; None where it is not whole."""
        number, left = divmod(leader * self.times, self.by)
        return None if left or number < 1 else number

    def formula(self, leader: str) -> str:
        """Return it as Python over the text of the leader: `meta["BLOCKWIDTH"] * 3 // 32`."""
        times = f" * {self.times}" if self.times > 1 else ""
        return f"({leader}{times}{f' // {self.by}' if self.by > 1 else ''})"

    @property
    def macro(self) -> str:
        """Return it as a macro's text, the leader in braces as a CudaKernel's `defines` have it."""
        return self.formula(f"{{{self.leader}}}").replace("//", "/")


def find_ties(text: str, numbers: Mapping[str, int]) -> dict[str, Tie]:
    """Return follower → tie among constants of a text; of two the larger one leads, and one follows one."""
    words = Tokens(blank_comments(text)).words
    ties: dict[str, Tie] = {}
    for first, other in (*_ratios(words, numbers), *_asserted(words, numbers), *_of_warps(numbers)):
        leader, follower = sorted((first, other), key=lambda name: (-numbers[name], name))
        if follower in ties or leader in ties or any(tie.leader == follower for tie in ties.values()) or numbers[follower] < 1:
            continue
        common = gcd(numbers[leader], numbers[follower])
        ties[follower] = Tie(leader, numbers[follower] // common, numbers[leader] // common)
    return ties


def _ratios(words: Sequence[str], numbers: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield pairs of which one divides and the other multiplies: `/ A) * B`, `* B) / A`."""
    for index in range(len(words) - 3):
        if words[index] not in ("/", "*") or words[index + 1] not in numbers:
            continue
        after = index + 2
        while after < len(words) - 1 and words[after] == ")":
            after += 1
        back = "*" if words[index] == "/" else "/"
        if words[after] == back and words[after + 1] in numbers and words[after + 1] != words[index + 1]:
            yield words[index + 1], words[after + 1]


def _of_warps(numbers: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield warps and threads of a block: of a warp there are 32."""
    warps = [name for name in numbers if re.search(r"warps?(?!_?size)", name, re.IGNORECASE) and not THREADS.match(name)]
    for name in warps:
        yield from ((name, other) for other in numbers if THREADS.match(other) and numbers[other] == 32 * numbers[name])


def _asserted(words: Sequence[str], numbers: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield pairs that a static_assert sets equal but for a factor: `static_assert(A == 4 * B)`."""
    for index, word in enumerate(words):
        if word != "static_assert":
            continue
        inside = list(words[index + 1:index + 24])
        inside = inside[:inside.index(";")] if ";" in inside else []
        named = list(dict.fromkeys(token for token in inside if token in numbers))
        others = {token for token in inside if token[:1].isalpha() or token[:1] == "_"} - numbers.keys()
        if "==" in inside and len(named) == 2 and not others and "%" not in inside:
            yield named[0], named[1]


def followed(ties: Mapping[str, Tie], config: Mapping[str, Any]) -> dict[str, str]:
    """Return the macros of the constants that follow a configuration's."""
    return {name: str(tie.value(config[tie.leader])) for name, tie in ties.items() if tie.leader in config}
