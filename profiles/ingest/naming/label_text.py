"""A label of bounded length for a kernel's name: the function and those of its arguments that say what it computes.

Of the tree that `label_tree` lays out, what weighs next to nothing is left out where anything else is there. Then the lightest
piece goes, again and again, until the rest fits. A piece that tells a kernel from its siblings can be asked for by its place
(`keep`), and stays.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection

from profiles.ingest.naming.label_tree import NOISE, SURELY, WRAPS, Piece

# Labels of names that are words joined by underscores: cuBLAS, cuDNN, Tensile, CUTLASS, Triton, XLA, a mangled name as it is.
#
# A name that fits stays as it is. Of a longer one the words go that say least, a run of them as one `…`: the first words say
# what it is, tiles and types what tells it apart, the last number which of several (triton_poi_fused_add_12).

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
    return {f"{text}{letters[:index].count(text)}" if tensile and text else str(index): word
            for index, (word, text) in enumerate(zip(words, letters, strict=True))}


def fit_words(name: str, most: int, keep: Collection[str] = ()) -> str:
    """Return a label of at most `most` characters; the words at the keys of `keep` go last."""
    if len(name) <= most:
        return name
    words = words_of(name)
    weights = {key: _weight(index, word.rstrip("_ .-"), index == len(words) - 1) + (1_000.0 if key in keep else 0.0)
               for index, (key, word) in enumerate(words.items())}
    left = set(words)
    for key in sorted(weights, key=lambda key: weights[key]):
        left.discard(key)
        text = _text(words, left)
        if len(text) <= most:
            return text if left else name[:most - 1] + "…"
    return name[:most - 1] + "…"


def _weight(offset: int, word: str, last: bool) -> float:
    if offset < 2:
        return 200.0 - offset
    if last and any(c.isdecimal() for c in word):
        return 150.0
    if _TILE.match(word):
        return 120.0 - offset / 100
    if _TYPE.match(word):
        return 90.0 - offset / 100
    return (10.0 if _PLAIN.match(word) else 60.0) - offset / 100


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


_KEPT = 1_000.0
_LEAST_HEAD = 20                # characters that a word keeps


def fit(root: Piece, most: int, keep: Collection[tuple[int, ...]] = ()) -> str:
    """Return a tree's label of at most `most` characters; the pieces at the paths of `keep` go last."""
    root = _copy(root, frozenset(keep))
    first = _first_callable(root)
    if first:
        _lighten_others(root, first)
        first.weight = 3 * _KEPT if keep else first.weight
    _leave_out_noise(root)
    text = root.text()
    while len(text) > most:
        for _ in range(1 + (len(text) - most) // 100):      # few pieces are longer
            if not _drop_lightest(root, SURELY):
                break
        else:
            text = root.text()
            continue
        _squeeze(root, len(root.text()) - most)
        text = root.text()
        if len(text) > most and not _drop_lightest(root, float("inf")):
            return elide(text, most)
        text = root.text()
    return text


def _squeeze(root: Piece, excess: int) -> None:
    """Shorten the longest words until `excess` characters are gone, none below _LEAST_HEAD."""
    heads, waiting = [], [root]
    while waiting:
        piece = waiting.pop()
        heads.append(piece)
        waiting.extend(piece.children)
    for piece in sorted(heads, key=lambda piece: -len(piece.head)):
        shorter = max(_LEAST_HEAD, len(piece.head) - excess)
        if excess > 0 and shorter < len(piece.head):
            excess -= len(piece.head) - shorter
            piece.head = elide(piece.head, shorter)


def _copy(piece: Piece, keep: frozenset[tuple[int, ...]]) -> Piece:
    bonus = 0.0 if piece.path not in keep else _KEPT if -1 in piece.path else 2 * _KEPT         # parameters go before arguments
    children = [_copy(child, keep) for child in piece.children]
    return Piece(piece.head, piece.weight + bonus, piece.path, piece.tail, children, params=piece.params)


def _lighten_others(piece: Piece, first: Piece) -> None:
    for child in piece.children:
        if child is not first and SURELY <= child.weight < _KEPT:
            child.weight = 70.0
        _lighten_others(child, first)


def _first_callable(piece: Piece) -> Piece | None:
    """The outermost of the first pieces that say what is computed."""
    for child in piece.children:
        if not child.params and (callable_piece := child if child.weight >= SURELY else _first_callable(child)):
            return callable_piece
    return None


def _leave_out_noise(piece: Piece) -> bool:
    """Drop what weighs nothing, and the names around the one thing that matters; True where anything below is asked for."""
    loud: list[Piece] = []
    has_needed = False
    for child in piece.children:
        is_needed = _leave_out_noise(child) or child.weight >= _KEPT
        has_needed = has_needed or is_needed
        if child.weight >= NOISE or (is_needed and not (len(child.children) == 1 and child.weight < _KEPT and not child.params)):
            loud.append(child)
        elif child.weight == WRAPS:                        # what is wrapped, else what it works on
            loud.extend([grandchild for grandchild in child.children if grandchild.weight >= SURELY] or
                        [grandchild for grandchild in child.children if grandchild.weight >= NOISE])
    piece.children = loud or [child for child in piece.children if child.weight > 4.5 and not child.params]
    return has_needed


def _drop_lightest(root: Piece, below: float) -> bool:
    """Take out the lightest leaf, or the name around a single piece; the last of equals. False: nothing as light is left."""
    best: tuple[float, Piece, int] | None = None
    waiting = [root]
    while waiting:
        piece = waiting.pop()
        for index, child in enumerate(piece.children):
            if (not child.children or (len(child.children) == 1 and not child.params and not child.children[0].params)) and (
                    best is None or child.weight <= best[0]):
                best = (child.weight, piece, index)
        waiting.extend(piece.children)
    if best is None or best[0] >= below:
        return False
    _, parent, index = best
    child = parent.children[index]
    parent.children[index:index + 1] = child.children
    return True


def elide(text: str, most: int) -> str:
    """Return a text of at most `most` characters, its middle as `…`."""
    return text if len(text) <= most else text[:most - most // 3] + "…" + text[len(text) - most // 3 + 1:]


def digest(name: str) -> str:
    """Return six characters that stand for a full name, the same in every process."""
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=3).hexdigest()
