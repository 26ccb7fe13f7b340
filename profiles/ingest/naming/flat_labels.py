"""Labels of names that are words joined by underscores: cuBLAS, cuDNN, Tensile, CUTLASS, Triton, XLA, a mangled name as it is.

A name that fits stays as it is. Of a longer one the words go that say least, a run of them as one `…`: the first words say what
it is, tiles and types what tells it apart, the last number which of several (triton_poi_fused_add_12).
"""

from __future__ import annotations

import re
from collections.abc import Collection

_WORDS = re.compile(r"[^_\s.\-]*(?:[_\s.\-]+|$)")
_TILE = re.compile(r"(?:tilesize|MT|MI|stages?|warpgroupsize)?\d+x\d+(?:x\d+)*\Z")
_TYPE = re.compile(r"(?:bf16|tf32|f16|f32|fp16|fp32|f64|fp8|e4m3|e5m2|i8|s8|fp4|[HBSD]{1,3}|BH|float|half|double|bfloat16)+\Z")
_PLAIN = re.compile(r"(?:execute|segment|off|kernel|cublas|cudnn|UserArgs|to|copy)\Z")
_LETTERS = re.compile(r"[A-Za-z]+")
MOST_WORDS = 200


def words_of(name: str) -> dict[str, str]:
    """Return a name's words by a key that finds the same word in its siblings: Tensile's letters (LDSB1), else the place."""
    words = [word for word in _WORDS.findall(name[:8_000])[:MOST_WORDS] if word]
    letters = [match[0] if (match := _LETTERS.match(word)) else "" for word in words]
    tensile = name.startswith("Cijk_")
    return {f"{text}{letters[:at].count(text)}" if tensile and text else str(at): word
            for at, (word, text) in enumerate(zip(words, letters, strict=True))}


def fit_words(name: str, most: int, keep: Collection[str] = ()) -> str:
    """Return a label of at most `most` characters; the words at the keys of `keep` go last."""
    if len(name) <= most:
        return name
    words = words_of(name)
    weights = {key: _weight(at, word.rstrip("_ .-"), at == len(words) - 1) + (1_000.0 if key in keep else 0.0)
               for at, (key, word) in enumerate(words.items())}
    left = set(words)
    for key in sorted(weights, key=lambda key: weights[key]):
        left.discard(key)
        text = _text(words, left)
        if len(text) <= most:
            return text if left else name[:most - 1] + "…"
    return name[:most - 1] + "…"


def _weight(at: int, word: str, last: bool) -> float:
    if at < 2:
        return 200.0 - at
    if last and any(c.isdecimal() for c in word):
        return 150.0
    if _TILE.match(word):
        return 120.0 - at / 100
    if _TYPE.match(word):
        return 90.0 - at / 100
    return (10.0 if _PLAIN.match(word) else 60.0) - at / 100


def _text(words: dict[str, str], left: set[str]) -> str:
    out: list[str] = []
    gap = False
    for key, word in words.items():
        if key in left:
            out.append(word)
            gap = False
        elif not gap:
            out.append("…")
            gap = True
    return "".join(out).rstrip("_ -")
