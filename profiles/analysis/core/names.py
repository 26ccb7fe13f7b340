"""Kernel names as compilers write them, as people want to read them, and as builds can be compared by."""

from __future__ import annotations

import re
from functools import lru_cache

SHORT_CHARS = 120
_MANGLED = re.compile(r"L[a-z]n?\d+E|[ST]\d*_|([1-9]\d*)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_NAMESPACES = frozenset({"at", "native", "std", "cuda", "c10", "detail", "internal", "binary_internal", "cub", "cutlass", "thrust"})
_COLLECTIVE = re.compile(r"^(void\s+)?(nccl|rccl|msccl|nvshmem|onccl|hccl|xccl|oneccl|deep_ep|.*(_?allreduce|allgather"
                         r"|reducescatter|alltoall|cross_device_reduce))", re.IGNORECASE)
_NOT_COLLECTIVE = re.compile(r"^(void\s+)?(at::|cub::|cutlass|cudnn|triton_)", re.IGNORECASE)
_RETURN = re.compile(r"^(?:void|int|bool|float|double|enable_if<[^>]*>::type)\s+(?=\S)")
_LAMBDA = re.compile(r"::?(?:\{lambda\([^{}]*\)#\d+\}|'lambda\d*'\([^()]*\)|\[lambda[^\]]*\])"
                     r"(?:::operator\(\)\([^()]*\)(?:\s*const)?)?")
_ANONYMOUS = re.compile(r"\(anonymous namespace\)::|<unnamed>::|_GLOBAL__N__[0-9a-f_]+::")
_FUNCTOR = re.compile(r"(?:at::native::|native::)?(\w*(?:[Ff]unctor\w*|_kernel_cuda|_kernel_impl|Ops))")
_TILE = re.compile(r"(?:_?\d+x\d+(?:x\d+)*)|(?:stage(?:s)?_?\d+)|(?:warpsize\d+x\d+x\d+)")

# Words in a kernel's name -> the operator of the tuner that can be tuned in its place; the first that is found.
_OPERATORS = (
    ("attention", ("flash", "sdpa", "fmha", "attention", "attn")),
    ("softmax", ("softmax",)),
    ("add_rmsnorm", ("add_rms_norm", "add_rmsnorm")),
    ("rmsnorm", ("rms_norm", "rmsnorm")),
    ("silu_mul", ("silu_and_mul", "silu_mul", "swiglu")),
    ("layernorm", ("layer_norm", "layernorm", "ln_fwd")),
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
    """Return a name for a table row (at most 120 characters) that still tells kernels apart.

    The function without return type, namespaces of ATen and lambdas; its functor and element types where the template names them.
    """
    text = _ANONYMOUS.sub("", name.strip())
    if text.startswith("_Z"):
        return _readable_mangled(text) or name[:SHORT_CHARS]
    functor = _functor(text)
    text = _RETURN.sub("", strip_parameters(text))
    text = _LAMBDA.sub("", text)
    text = fold_templates(text, keep=1)
    if len(text) > SHORT_CHARS or functor:
        text = fold_templates(text)
    text = text.replace("at::native::", "").replace("<…>", "" if functor else "<…>")
    if functor and functor not in text:
        text = f"{text}<{functor}>"
    text = re.sub(r"\s+", " ", text).strip() or name[:SHORT_CHARS]
    return text if len(text) <= SHORT_CHARS else text[:SHORT_CHARS - 20] + "…" + text[-19:]


def _readable_mangled(name: str) -> str:
    """What can be read in a mangled name (Itanium C++ ABI) without demangling it: the function's own name and, in <…>, the
    names within its template arguments that are not namespaces. Literals (Li128E) and back references (S0_, T1_) are no names."""
    outer: list[str] = []
    inner: dict[str, None] = {}
    own, at = True, 2
    while at < len(name) and len(inner) < 40:
        token = _MANGLED.match(name, at)
        if token and token[1]:
            at = token.end() + int(token[1][:4])
            word = name[token.end():at]
            if not _WORD.fullmatch(word):
                continue
            if own:
                outer.append(word)
            elif word not in _NAMESPACES and not word.startswith("_GLOBAL__N_"):
                inner[word] = None
            continue
        own = own and name[at] not in "IEv" and not (outer and name[at] != "I" and name[2] != "N")
        at = token.end() if token else at + 1
    if not outer:
        return ""
    shown = [word for word in inner if not word.startswith(("TensorIterator", "basic_")) and word != outer[-1]][:4]
    text = outer[-1] + (f"<{', '.join(shown)}>" if shown else "")
    return text if len(text) <= SHORT_CHARS else text[:SHORT_CHARS - 20] + "…" + text[-19:]


def _functor(text: str) -> str | None:
    """What an ATen elementwise or reduce kernel computes: the innermost functor named in its template arguments."""
    if "at::native::" not in text:
        return None
    head = strip_parameters(text)
    own = fold_templates(_RETURN.sub("", head)).rsplit("::", 1)[-1].split("<")[0]
    functors = [m for m in _FUNCTOR.findall(head) if m and m != own and m not in ("gpu_kernel_impl", "gpu_kernel_impl_nocast")]
    return functors[-1] if functors else None


@lru_cache(maxsize=16384)
def family(name: str) -> str:
    """Return the part of a kernel's name that outlives a rebuild or a new library.

    The function's name without template arguments, parameters, tile sizes, architecture prefixes and hashes.
    """
    text = _RETURN.sub("", strip_parameters(_ANONYMOUS.sub("", name.strip())))
    text = fold_templates(_LAMBDA.sub("", text)).replace("<…>", "")
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
