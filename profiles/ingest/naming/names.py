"""Kernel names as compilers write them, as people want to read them, and as builds can be compared by."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from profiles.ingest.naming.cxx import MOST_CHARS, parse
from profiles.ingest.naming.demangle import demangle
from profiles.ingest.naming.label_text import digest, elide, fit, fit_words, words_of
from profiles.ingest.naming.label_tree import Piece, computes, lay_out, places

# Names that are too long to keep whole: what is left still tells them apart.

_DIGEST_CHARS = 8


def clip_name(name: str, chars: int) -> str:
    """Return a name of at most `chars` characters (more than 9): a longer one ends in "…" and the digest of the whole.

    Two names that differ only behind the clipping stay two: 4,000 of them have one digest in common with a chance of 0.2 %.
    """
    if len(name) <= chars:
        return name
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_CHARS // 2).hexdigest()
    return f"{name[:chars - _DIGEST_CHARS - 1]}…{digest}"


def clip_bytes(name: bytes, most: int) -> bytes:
    """Return the same of a name that is not decoded yet; the digest is of the bytes."""
    if len(name) <= most:
        return name
    return name[:most - _DIGEST_CHARS] + blake2b(name, digest_size=_DIGEST_CHARS // 2).hexdigest().encode()


SHORT_CHARS = 80
MOST_PLACES = 4                 # that are shown to tell names of one label apart
_CXX = re.compile(r"\w<|::|^(?:void|int|bool|float|double|auto) \S|^[\w.$]+\(.*\)(?: const)?\Z", re.DOTALL)
_NOT_CXX = re.compile(r": |^<|/")                       # "autograd::engine::evaluate_function: AddBackward0", a path
_CLONE = re.compile(r"(?:\s?\[clone [^\]]{0,80}\]|\.kd)+$")
_TYPEINFO = re.compile(r"^typeinfo name for ")
_SCOPE = re.compile(r"\w+::")
_LETTER = re.compile(r"[A-Za-z]")
_MANGLED = re.compile(r"L[a-z]n?\d+E|[ST]\d*_|([1-9]\d*)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_NAMESPACES = frozenset({"at", "native", "std", "cuda", "c10", "detail", "internal", "binary_internal", "cub", "cutlass", "thrust"})
_COLLECTIVE = re.compile(r"^(void\s+)?(nccl|rccl|msccl|nvshmem|onccl|hccl|xccl|oneccl|deep_ep|.*(_?allreduce|allgather"
                         r"|reducescatter|alltoall|cross_device_reduce))", re.IGNORECASE)
_NOT_COLLECTIVE = re.compile(r"^(void\s+)?(at::|cub::|cutlass|cudnn|triton_)", re.IGNORECASE)
RETURN = re.compile(r"^(?:void|int|bool|float|double|enable_if<[^>]*>::type)\s+(?=\S)")
LAMBDA = re.compile(r"::?(?:\{lambda\([^{}]*\)#\d+\}|'lambda\d*'\([^()]*\)|\[lambda[^\]]*\])"
                     r"(?:::operator\(\)\([^()]*\)(?:\s*const)?)?")
ANONYMOUS = re.compile(r"\(anonymous namespace\)::|<unnamed>::|_GLOBAL__N__[0-9a-f_]+::")
_TILE = re.compile(r"(?:_?\d+x\d+(?:x\d+)*)|(?:stage(?:s)?_?\d+)|(?:warpsize\d+x\d+x\d+)")

# Words in a kernel's name -> the operator of the tuner that can be tuned in its place; the first that is found.
_OPERATORS = (
    ("attention", ("flash", "sdpa", "fmha", "attention", "attn")),
    ("cross_entropy", ("cross_entropy", "xent_rows", "xent_blocks")),
    ("softmax", ("softmax",)),
    ("all_reduce_rmsnorm", ("allreduce_rmsnorm",)),
    ("add_rmsnorm", ("add_rms_norm", "add_rmsnorm")),
    ("rmsnorm", ("rms_norm", "rmsnorm")),
    ("silu_mul", ("silu_and_mul", "silu_mul", "swiglu")),
    ("layernorm", ("layer_norm", "layernorm", "ln_fwd")),
    ("rotary", ("rotary",)),
    ("embedding", ("embedding",)),
    ("top_k", ("topk", "top_k")),
    ("conv2d", ("conv2d", "fprop")),
    ("int4_matmul", ("int4_matmul", "int4_vector", "int4_words", "int4_unpack", "int4_warp_groups", "int4_sum")),
    ("fp8_block_matmul", ("fp8_block_matmul", "w8a8_block_fp8_matmul")),
    ("matmul", ("gemm", "matmul", "cutlass", "nvjet", "_mm_", "cublas", "cijk_")),
)


def is_collective(name: str) -> bool:
    """Tell by its name whether a kernel moves data between GPUs (NCCL, RCCL, custom all-reduce)."""
    return bool(_COLLECTIVE.match(name)) and not _NOT_COLLECTIVE.match(name)


def strip_parameters(name: str) -> str:
    """Return a name without its parameter list: `f<T>(int, long)` -> `f<T>`.

    Brackets nest, so they are counted.
    """
    if not name.endswith((")", "const")):
        return name
    depth, angle = 0, 0
    text = name.removesuffix("const").rstrip()
    for i in range(len(text) - 1, -1, -1):
        c = text[i]
        if c == ")":
            depth += 1
        elif c == "(":
            depth -= 1
            if depth == 0:
                return text[:i].rstrip() or name
        if angle < 0:
            break
    return name


def fold_templates(name: str, keep: int = 0) -> str:
    """Return a name whose template arguments nested deeper than `keep` are `…`.

    `f<a<b>, 4>` -> `f<…>` (keep 0), `f<a<…>, 4>` (keep 1).
    """
    out: list[str] = []
    depth = 0
    previous = ""
    for i, c in enumerate(name):
        opening = c == "<" and name[i:i + 2] not in ("<<", "<=") and not previous.isspace()
        if opening:
            depth += 1
            if depth <= keep + 1:
                out.append("<" if depth <= keep else "<…")
        elif c == ">" and depth and previous != "-":
            if depth <= keep + 1:
                out.append(">")
            depth -= 1
        elif depth <= keep:
            out.append(c)
        previous = c
    return "".join(out)


@lru_cache(maxsize=16384)
def short_name(name: str) -> str:
    """Return a label of at most 80 characters: the function and what of its arguments says what it computes. Never empty.

    Within a profile, `short_names` gives the labels: two of its kernels never read the same there.
    """
    laid = laid_out(name)
    return laid if isinstance(laid, str) else fit(laid, SHORT_CHARS) or fit_words(readable(name), SHORT_CHARS)


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return the label of every name, at most 80 characters, no two of different names the same.

    Names whose own label is the same are told apart by the arguments, parameters or words in which they differ, as few as are
    needed; where these do not fit, by six characters of a digest of the full name. The order of `names` makes no difference.
    """
    labels = {name: short_name(name) for name in sorted(set(names))}
    for group in _collisions(labels):
        labels.update(_tell_apart(group))
    label_set = set(labels.values())
    for group in _collisions(labels):
        for name in group:
            salt = 0
            while (label := f"{elide(labels[name], SHORT_CHARS - 7)}~{digest(name + chr(0) * salt)}") in label_set:
                salt += 1
            label_set.add(label)
            labels[name] = label
    return labels


@lru_cache(maxsize=16384)
def words_for_search(name: str) -> str:
    """Return what words are looked for in to tell what a kernel does: its function, its outermost template arguments where they
    are short, and what it is given to compute, without namespaces."""
    text = ANONYMOUS.sub("", " ".join(name[:MOST_CHARS].split()))
    if text.startswith("_Z"):
        return read_mangled(text) or text
    text = LAMBDA.sub("", RETURN.sub("", strip_parameters(text)))
    folded = fold_templates(text, keep=1)
    laid = laid_out(name)
    functor = "" if isinstance(laid, str) else _SCOPE.sub("", computes(laid)[1])
    return f"{folded if len(folded) <= 120 else fold_templates(text)} {functor}".strip()


def cut_name(name: str) -> str:
    """Return a name of at most 80 characters, its middle left out. Never empty."""
    return elide(" ".join(name[:MOST_CHARS].split()), SHORT_CHARS) or "(no name)"


def _collisions(labels: Mapping[str, str]) -> list[list[str]]:
    groups: dict[str, list[str]] = {}
    for name, label in labels.items():
        groups.setdefault(label, []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _tell_apart(group: Sequence[str]) -> dict[str, str]:
    """The labels of names that read the same, each with the places in which they differ."""
    trees: dict[str, Piece] = {name: laid for name in group if isinstance(laid := laid_out(name), Piece)}
    labels: dict[str, str] = {}
    if trees:
        keep = _telling({name: places(tree) for name, tree in trees.items()})
        labels = {name: fit(tree, SHORT_CHARS, keep) for name, tree in trees.items()}
    words = {name: words_of(readable(name)) for name in group if name not in trees}
    if words:
        keys = _telling(words)
        labels |= {name: fit_words(readable(name), SHORT_CHARS, keys) for name in words}
    return labels


def _telling(found: Mapping[str, Mapping[Any, str]]) -> list[Any]:
    """The fewest places (paths in a tree, keys of words), taken in their order, that tell the most of the names apart."""
    order = sorted({place for text_by_place in found.values() for place in text_by_place}, key=_order)
    classes: dict[str, tuple[str | None, ...]] = dict.fromkeys(found, ())
    chosen: list[Any] = []
    for place in order:
        if len(set(classes.values())) == len(found) or len(chosen) == MOST_PLACES:
            break
        split: dict[str, tuple[str | None, ...]] = {}
        for name, values in found.items():
            split[name] = (*classes[name], values.get(place))
        if len(set(split.values())) > len(set(classes.values())):
            chosen.append(place)
            classes = split
    return chosen


def _order(place: tuple[int, ...] | str) -> tuple[int, tuple[int, ...], str]:
    """Arguments before parameters (-1), shallow before deep."""
    if isinstance(place, str):
        return (0, (int(place),) if place.isdecimal() else (), place)
    return (int(-1 in place), (len(place), *place), "")


@lru_cache(maxsize=16384)
def readable(name: str) -> str:
    """Return a name as a person reads it: demangled where it is mangled and can be, else as it is. Never empty."""
    text = " ".join(name[:MOST_CHARS].split())
    text = _CLONE.sub("", text)
    if text.startswith(("_Z", "__Z")):
        return demangle(text) or text
    return text or "(no name)"


@lru_cache(maxsize=4096)
def laid_out(name: str) -> Piece | str:
    """Return the tree of a C++ name; the label of any other."""
    text = _TYPEINFO.sub("", readable(name))
    if (_NOT_CXX.search(text) and not text.startswith("<unnamed>")) or not _CXX.search(text):
        return fit_words((read_mangled(text) or text) if text.startswith("_Z") else text, SHORT_CHARS)
    tree = lay_out(parse(text))
    return tree if _LETTER.search(tree.head) else fit_words(text, SHORT_CHARS)


def read_mangled(name: str) -> str:
    """Return what can be read in a mangled name (Itanium C++ ABI) that is cut or damaged: the function's own name and, in <…>, the
    names within its template arguments that are not namespaces. Literals (Li128E) and back references (S0_, T1_) are no names."""
    outer: list[str] = []
    inner: dict[str, None] = {}
    own, position = True, 2
    while position < len(name) and len(inner) < 40:
        token = _MANGLED.match(name, position)
        if token and token[1]:
            position = token.end() + int(token[1][:4])
            word = name[token.end():position]
            if not _WORD.fullmatch(word):
                continue
            if own:
                outer.append(word)
            elif word not in _NAMESPACES and not word.startswith("_GLOBAL__N_"):
                inner[word] = None
            continue
        own = own and name[position] not in "IEv" and not (outer and name[position] != "I" and name[2] != "N")
        position = token.end() if token else position + 1
    if not outer:
        return ""
    shown = [word for word in inner if not word.startswith(("TensorIterator", "basic_")) and word != outer[-1]][:4]
    text = outer[-1] + (f"<{', '.join(shown)}>" if shown else "")
    return text


@lru_cache(maxsize=16384)
def family(name: str) -> str:
    """Return the part of a kernel's name that outlives a rebuild or a new library.

    The function's name without template arguments, parameters, tile sizes, architecture prefixes and hashes.
    """
    text = RETURN.sub("", strip_parameters(ANONYMOUS.sub("", name.strip())))
    text = fold_templates(LAMBDA.sub("", text)).replace("<…>", "")
    text = re.sub(r"^(sm\d+|ampere|volta|turing|hopper|maxwell|nvjet)_", "", text)
    if text.startswith("Cijk_"):                                 # Tensile: everything behind the contraction is tuning
        text = "_".join(text.split("_")[:4])
    text = _TILE.sub("", text)
    text = re.sub(r"_[0-9a-f]{8,}\b|(?<=[a-zA-Z_])_\d+\b", "", text)
    return re.sub(r"_{2,}", "_", re.sub(r"\s+", " ", text)).strip(" _:") or name


def operator_of(name: str) -> str:
    """The tuner's operator that a kernel's name points to, "" where none does."""
    lower = name.lower()
    return next((operator for operator, words in _OPERATORS if any(word in lower for word in words)), "")
