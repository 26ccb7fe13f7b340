"""Norms and rotary embeddings written in PyTorch's elementwise operators, as models run without a compiler do them.

Told by the order of the operators and, where they are recorded, by sizes that fit each other:

    RMS norm            x to fp32, pow, mean, add, rsqrt, mul, back to its type, mul      (transformers' LlamaRMSNorm and its kin)
    rotary embedding    mul, neg, cat, mul, add                                            (apply_rotary_pos_emb with rotate_half)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from profiles.analysis.trace.layer.calls import Token

_LETTERS = {"pow": "p", "mean": "m", "add": "a", "rsqrt": "r", "mul": "x", "copy_": "c", "neg": "n", "cat": "t", "square": "p",
            "add_": "a", "mul_": "x"}
_RMS = re.compile("(c?)(pmarx)(c?)(x?)")
_ROTARY = re.compile("xntxa")


def written_out(row: Sequence[Token]) -> Iterator[tuple[str, range]]:
    """Yield (part, its places) for calls in order."""
    letters = "".join(_LETTERS.get(token.operator.removeprefix("aten::"), ".") for token in row)
    for found in _RMS.finditer(letters):
        first, last = found.start(2), found.end(2)
        size = _text(row[first])
        if not _fits(row[last - 1], size):
            continue
        if found[1] and _text(row[first - 1]) == size:
            first -= 1
        if found[3] and _text(row[last]) == size:
            last += 1
        if found[4] and last + 1 == found.end() and _fits(row[last], size):
            last += 1
        yield "RMS norm", range(first, last)
    for found in _ROTARY.finditer(letters):
        places = range(found.start(), found.end())
        if all(_fits(row[at], _text(row[places[-1]])) for at in (places[0], places[3])):
            yield "rotary embedding", places


def _text(token: Token) -> str:
    return token.work.text if token.work else ""


def _fits(token: Token, size: str) -> bool:
    """Whether a call works on tensors of this size; of what has no recorded sizes, nothing speaks against it."""
    return not size or not _text(token) or size in _text(token).split(" and ")
