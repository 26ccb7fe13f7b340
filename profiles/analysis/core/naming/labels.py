"""A label of bounded length for a kernel's name: the function and those of its arguments that say what it computes.

A name is laid out as a tree of pieces, each with a weight: what a kernel computes (lambda with its function, functor, address of
a function) weighs most, then tiles, types and numbers; policies, iterators and arrays weigh next to nothing and are left out
where anything else is there. Then the lightest piece goes, again and again, until the rest fits. A piece that tells a kernel
from its siblings can be asked for by its place (`keep`), and stays.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass, field

from profiles.analysis.core.naming.cxx import Name, Part

MOST_PIECES = 160
_DEEPEST = 10
NOISE = 10.0                    # below this weight a piece is left out where something else says more
_WRAPS = 7.0                    # the weight of a name around what is computed
_SURELY = 85.0                  # from this weight on it is what a kernel computes
_KEPT = 1_000.0
_LEAST_HEAD = 20                # characters that a word keeps
_FILLER = frozenset({
    "at", "native", "std", "cuda", "c10", "detail", "internal", "binary_internal", "cub", "cutlass", "thrust", "cuda_cub", "core",
    "Kokkos", "Impl", "impl", "RAJA", "policy", "sycl", "_V1", "__1", "__detail", "hip", "rocprim", "hipcub", "amrex", "Gpu",
    "kernel", "collective", "cute", "gemm", "threadblock", "warp", "arch", "epilogue", "thread", "layout", "experimental",
    "at_cuda_detail", "pytorch_flash", "templates", "system", "__", "functional", "fusion", "device", "cudnn"})
_LIBRARIES = frozenset({"cub", "thrust", "cudnn", "cutlass", "rocprim", "hipcub", "amrex", "Kokkos", "RAJA"})
_VERSIONED = re.compile(r"(?:CUB|THRUST|ROCPRIM|HIPCUB|CCCL|V)_\w*NS|_V\d+|__\d+|v\d+_\d+\w*")
_GENERIC = re.compile(r"(?:functor|Functor|type|value_type|Policy\d*|operator@call|impl|Kernel|kernel|apply|run|main|body|Body|call"
                      r"|launch|compute|execute|Agent|Tag\w*|Params)\Z")
_FUNCTOR = re.compile(r"[Ff]unctor")
_CALLABLE = re.compile(r"[Ff]unctor|(?:Op|Ops|Body|Loop|_op|_functor)\Z"
                       r"|\A(?:plus|minus|multiplies|maximum|minimum|less|greater|Sum|Min|Max|ArgMax|ArgMin|Sqrt)\Z")
_NOISE = re.compile(r"(?:"
                    r"\w*(?:Policy\w*|[Ii]terator\w*|OffsetCalculator|(?:integer|index)_sequence|TileState|Params\w*|Accessor\w*|Metadata\w*)"
                    r"|Array|array|Load\w*|Store\w*|NullType|InputValue|HardwareInfo|CompilerMetadata|\w*KernelContext|_"
                    r"|cublasGemv\w+|biasType|KernelInfo|MemoryAccess|always_true|Launch(?:Bounds|Params)\w*|Default\w*|identity"
                    r"|iteration_mapping\w*|IndexGlobal|\w*[Ss]tyle|Extruded|HIPBuffer|DeviceMemory|NDRange|OneTo"
                    r"|CartesianIndices|AlignedArray|\w*_exec\w*|Tuple|Layout|TiledMMA|MMA_Atom|SM\d+_\w+|\w*Swizzle"
                    r"|ComposedLayout|Direct|FunctorAnalysis|\w*_tag|PersistentScheduler|Cuda|HIP|SYCL|Experimental|T\d+)\Z")
_TYPE = re.compile(r"(?:float|double|half|bool|char|short|int|long|__half2?|Half|BFloat16|__nv_bfloat16\w*|__hip_bfloat16|half_t"
                   r"|bfloat16_t|tfloat32_t|float_e\w+|Float8_\w+|__nv_fp8_\w+|Float\d+|Int\d+|UInt\d+|u?int\d+_t|complex"
                   r"|_Float16|__bf16|unsigned \w+|signed char|long long|unsigned|float\d|double\d|int\d)\Z")
_INDEX = re.compile(r"(?:unsigned |signed )?(?:int|long|short|char)(?: long| int)?\Z|u?int\d+_t\Z|U?Int\d+\Z|unsigned\Z|bool\Z")
_NUMBER = re.compile(r"-?\d[\w.]*\Z|true\Z|false\Z")
_TILE = re.compile(r"\w*(?:Shape|tuple|Int|sequence)\Z")
_CONSTANT = re.compile(r"(?:C|Int|constant|integral_constant)\Z")
_WRAPPER = re.compile(r"(?:gpu_kernel_impl\w*|gpu_kernel\w*|opmath_\w+|func_wrapper_t|ReduceOp|__nv_h?dl_wrapper_t"
                      r"|__pf_kernel_wrapper|RoundedRangeKernel\w*|_?kernel_agent|unary_transform_f|binary_transform_f"
                      r"|wrapped_function|device_unary_op)\Z")
_LAUNCHER = re.compile(r"(?:(?:cuda|hip|sycl)_parallel_launch\w*|launch_global|_kernel_agent|trampoline_kernel|device_kernel"
                       r"|Kernel2?|kernel_helper_with_policy|__pf_kernel_wrapper|RoundedRangeKernel\w*|kentry)\Z")
_JULIA = re.compile(r"\b(?:CompilerMetadata|CuDeviceArray|ROCDeviceArray|oneDeviceArray|MtlDeviceArray|CuKernelContext"
                    r"|Broadcasted)<|\bCuKernelContext\b")


@dataclass(slots=True)
class Piece:
    """A word of a label with the pieces in its brackets. `path` is its place in the whole tree."""

    head: str
    weight: float
    path: tuple[int, ...] = ()
    tail: str = ""
    children: list[Piece] = field(default_factory=list)
    launched: bool = False      # stands for the launcher that it was given to
    given: bool = False         # a lambda, a functor of somebody's own, the address of a function
    params: bool = False        # the parameters of the function: shown only when asked for, in (…)

    def text(self) -> str:
        inner = ", ".join(text for child in self.children if not child.params and (text := child.text()))
        listed = "".join(f"({', '.join(each.text() for each in child.children)})" for child in self.children
                         if child.params and child.children)
        return f"{self.head}<{inner}>{listed}{self.tail}" if inner else f"{self.head}{listed}{self.tail}"


def lay_out(name: Name) -> Piece:
    """Return the whole tree of a name, at most MOST_PIECES pieces."""
    left = [MOST_PIECES]
    own = name.parts[-1] if name.parts else Part()
    root = _piece(name, 0, (), left, top=True)
    if _LAUNCHER.match(own.word):
        given = [child for child in root.children if not child.params]
        launched = next((child for child in given if child.weight >= _SURELY or _holds_callable(child)), None) or next(
            (child for child in given if 50.0 < child.weight < 75.0), None)
        if launched is not None:
            others = [child for child in root.children if child is not launched]
            for child in others:
                child.weight = min(child.weight, 3.0)
            launched.children.extend(others)
            launched.launched = True
            root = launched
    _mark_repeats(root)
    return root


def _holds_callable(piece: Piece) -> bool:
    return not piece.params and any(child.weight >= _SURELY or _holds_callable(child) for child in piece.children)


def _piece(name: Name, depth: int, path: tuple[int, ...], left: list[int], top: bool = False) -> Piece:
    left[0] -= 1
    parts = name.parts
    if not parts:
        return Piece("", 0.0, path)
    own = parts[-1]
    tile = _tile(name)
    if tile:
        return Piece(tile, 75.0 - depth, path)
    if own.word == "tuple":                             # of strides, of problem sizes
        return Piece("tuple", 5.0, path)
    dl = _extended_lambda(own)
    if dl is not None:
        return _lambda(*dl, depth, path, left)
    if own.number:
        numbers, at = [], len(parts)
        while at and (parts[at - 1].number or (parts[at - 1].word == "operator@call" and at > 1 and parts[at - 2].number)):
            at -= 1
            numbers.append(parts[at].number)
        return _lambda(parts[:at], [n for n in reversed(numbers) if n], depth, path, left, own.params or [])
    head = _path(parts, function=top) + name.pointer.replace("&", "")
    base = own.word
    if name.is_address:
        piece = Piece(head, 95.0 - depth, path, given=bool(own.params))
    elif _NOISE.match(base):
        piece = Piece(head, 5.0, path)
    elif _WRAPPER.match(base):
        piece = Piece(head, _WRAPS, path)
    elif _CALLABLE.search(base) or (_GENERIC.match(base) and len(parts) > 1):
        piece = Piece(head, 90.0 - depth, path, given=bool(_FUNCTOR.search(base)) or base == "operator@call")
    elif _TYPE.match(base):
        piece = Piece(head, 30.0 - 3 * depth if _INDEX.match(base) else 56.0 - depth, path)
    elif _NUMBER.match(base):
        piece = Piece(base, (25.0 if base in ("true", "false", "0", "1") else 42.0) - 3 * depth, path)
    else:
        piece = Piece(head, 60.0 - 6 * depth, path)
    if base in ("void", "_") or (name.pointer == "" and base == ""):
        piece.weight = 4.0
    arguments = [each for part in parts[-2:] for each in part.args or []] if top or depth else own.args or []
    _add(piece, arguments, depth, left)
    if top and own.params and not _is_julia(own):
        params = Piece("", 2.0, (*path, -1), params=True)
        _add(params, own.params, depth + 1, left, (*path, -1))
        for each in params.children:
            each.weight = min(each.weight, 3.0)
        piece.children.append(params)
    elif top and own.params:
        _add(piece, own.params, depth, left)
    return piece


def _add(piece: Piece, arguments: list[Name], depth: int, left: list[int], path: tuple[int, ...] | None = None) -> None:
    if depth >= _DEEPEST:
        return
    start = len(piece.children)
    for at, each in enumerate(arguments):
        if left[0] <= 0:
            break
        if each.parts:
            piece.children.append(_piece(each, depth + 1, (*(piece.path if path is None else path), start + at), left))


def _lambda(parts: list[Part], numbers: list[int], depth: int, path: tuple[int, ...], left: list[int],
            params: list[Name] | None = None) -> Piece:
    """A lambda as its function and its numbers, outermost first: `direct_copy_kernel_cuda #3.7.1`."""
    own = parts[-1] if parts else Part("lambda")
    wraps = bool(own.args) and bool(_WRAPPER.match(own.word))
    tail = " #" + ".".join(map(str, numbers))
    piece = Piece(_path(parts, function=True) or "lambda", 100.0 - depth, path, tail, given=True)
    if wraps:                                                           # what it wraps is what is computed
        piece.weight, piece.given = _WRAPS, False
    _add(piece, [each for part in parts[-2:] for each in part.args or []], depth, left)
    if not wraps and any(child.weight >= _SURELY for child in piece.children):      # what it is given says more than itself
        piece.children.append(Piece(piece.tail.strip(), 5.0, (*path, -2)))
        piece.tail = ""
    if params:
        typed = Piece("", 8.0, (*path, -1), params=True)
        _add(typed, params, depth + 1, left, (*path, -1))
        piece.children.append(typed)
    return piece


def _extended_lambda(own: Part) -> tuple[list[Part], list[int]] | None:
    """The function and number of a lambda that nvcc wraps for the device: `__nv_dl_tag<signature, &function, number>`."""
    if not own.word.startswith(("__nv_dl_wrapper_t", "__nv_hdl_wrapper_t")):
        return None
    tag = next((each.parts[-1] for each in own.args or [] if each.parts and each.parts[-1].word == "__nv_dl_tag"), None)
    if tag is None or len(tag.args or []) < 3:
        return None
    _, function, number = (tag.args or [])[:3]
    word = number.parts[-1].word if number.parts else ""
    return function.parts, [int(word[:6]) if word.isdecimal() else 1]


def _path(parts: list[Part], function: bool) -> str:
    """The last word with the scopes before it that are needed to know what it is."""
    if function and len(parts) > 1 and parts[-1].word == "operator@call":               # of a functor in which a lambda stands
        parts = parts[:-1]
    words = [part.word.replace("operator@call", "operator()").replace("operator@", "operator ") for part in parts if part.word]
    if not words:
        return ""
    scopes = [word for word in words[:-1]
              if word not in _FILLER and not _VERSIONED.fullmatch(word) and not word.startswith("operator")]
    last = words[-1]
    if function:
        library = [word for word in words[:-1] if word in _LIBRARIES][:1]
        return "::".join([*(scopes[-1:] or library), last])
    if scopes and (_GENERIC.match(parts[-1].word) or last.startswith("operator")):
        return f"{scopes[-1]}::{last}"
    return last


def _tile(name: Name) -> str:
    """`cute::tuple<cute::C<128>, cute::C<64>>`, `GemmShape<128, 64>` -> "128x64"; `cute::C<128>` -> "128"."""
    own = name.parts[-1]
    if not own.args or not (_TILE.match(own.word) or _CONSTANT.match(own.word)):
        return ""
    if _CONSTANT.match(own.word):
        value = own.args[-1].parts[-1].word if own.args[-1].parts else ""
        return value if _NUMBER.match(value) else ""
    sides = [_side(each) for each in own.args]
    return "x".join(sides) if 1 < len(sides) <= 6 and all(side.strip("0") for side in sides) else ""


def _side(name: Name) -> str:
    own = name.parts[-1] if name.parts else Part()
    if own.args and _CONSTANT.match(own.word) and own.args[-1].parts:
        own = own.args[-1].parts[-1]
    return own.word if own.word.isdecimal() else ""


def _is_julia(own: Part) -> bool:
    return any(_JULIA.search(f"{each.parts[-1].word}<") for each in own.params or [] if each.parts)


def _mark_repeats(root: Piece) -> None:
    """Weigh down what says again what an earlier piece with arguments or scopes said."""
    seen: set[str] = set()
    waiting = [root]
    while waiting:
        piece = waiting.pop(0)
        text = piece.text()
        says_much = piece.children or "#" in text or len(text) > 12 or 70.0 < piece.weight < 76.0
        if piece is not root and says_much and not piece.params:
            if text in seen:
                piece.weight = min(piece.weight, 1.0)
                continue
            seen.add(text)
        said = {child.text() for child in piece.children}
        for at, child in enumerate(piece.children):
            if not child.children and child.weight < 55.0 and child.text() in {each.text() for each in piece.children[:at]}:
                child.weight = min(child.weight, 12.0)
            if len(child.children) > 1 and {each.text() for each in child.children} <= said:
                child.weight = min(child.weight, 1.0)
        waiting.extend(child for child in piece.children if child.weight > 1.0)


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
            if not _drop_lightest(root, _SURELY):
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
    asked = 0.0 if piece.path not in keep else _KEPT if -1 in piece.path else 2 * _KEPT         # parameters go before arguments
    children = [_copy(child, keep) for child in piece.children]
    return Piece(piece.head, piece.weight + asked, piece.path, piece.tail, children, params=piece.params)


def _lighten_others(piece: Piece, first: Piece) -> None:
    for child in piece.children:
        if child is not first and _SURELY <= child.weight < _KEPT:
            child.weight = 70.0
        _lighten_others(child, first)


def _first_callable(piece: Piece) -> Piece | None:
    """The outermost of the first pieces that say what is computed."""
    for child in piece.children:
        if not child.params and (found := child if child.weight >= _SURELY else _first_callable(child)):
            return found
    return None


def _leave_out_noise(piece: Piece) -> bool:
    """Drop what weighs nothing, and the names around the one thing that matters; True where anything below is asked for."""
    loud: list[Piece] = []
    asked = False
    for child in piece.children:
        wanted = _leave_out_noise(child) or child.weight >= _KEPT
        asked = asked or wanted
        if child.weight >= NOISE or (wanted and not (len(child.children) == 1 and child.weight < _KEPT and not child.params)):
            loud.append(child)
        elif child.weight == _WRAPS:                        # what is wrapped, else what it works on
            loud.extend([each for each in child.children if each.weight >= _SURELY] or
                        [each for each in child.children if each.weight >= NOISE])
    piece.children = loud or [child for child in piece.children if child.weight > 4.5 and not child.params]
    return asked


def _drop_lightest(root: Piece, below: float) -> bool:
    """Take out the lightest leaf, or the name around a single piece; the last of equals. False: nothing as light is left."""
    best: tuple[float, Piece, int] | None = None
    waiting = [root]
    while waiting:
        piece = waiting.pop()
        for at, child in enumerate(piece.children):
            if (not child.children or (len(child.children) == 1 and not child.params and not child.children[0].params)) and (
                    best is None or child.weight <= best[0]):
                best = (child.weight, piece, at)
        waiting.extend(piece.children)
    if best is None or best[0] >= below:
        return False
    _, parent, at = best
    child = parent.children[at]
    parent.children[at:at + 1] = child.children
    return True


def computes(root: Piece) -> tuple[str, str]:
    """Return what a kernel's launcher was given ("" where its own name stands), and the function or functor that it computes.

    Template arguments are left out: a function of another type or size is the same.
    """
    first = root if root.given else None
    waiting = list(root.children)
    while waiting and first is None:
        piece = waiting.pop(0)
        if piece.given:
            first = piece
        elif not piece.params:
            waiting = [*piece.children, *waiting]
    number = first.tail or next((f" {each.head}" for each in first.children if each.path[-1:] == (-2,)), "") if first else ""
    given = f"{first.head}{number}" if first else ""
    if first is not None:                               # a wrapper of its own (ParallelFor of AMReX): what it is given
        inner = next((each for each in first.children if each.given), None)
        given = f"{given} {inner.head}{inner.tail}" if inner else given
    return ("", given) if not root.launched else (root.head, given if first is not root else given.removeprefix(root.head).strip())


def places(root: Piece) -> dict[tuple[int, ...], str]:
    """Return what stands at every place of a tree."""
    found: dict[tuple[int, ...], str] = {}
    waiting = [root]
    while waiting:
        piece = waiting.pop()
        found[piece.path] = f"{piece.head}{piece.tail}"
        waiting.extend(piece.children)
    return found


def elide(text: str, most: int) -> str:
    """Return a text of at most `most` characters, its middle as `…`."""
    return text if len(text) <= most else text[:most - most // 3] + "…" + text[len(text) - most // 3 + 1:]


def digest(name: str) -> str:
    """Return six characters that stand for a full name, the same in every process."""
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=3).hexdigest()
