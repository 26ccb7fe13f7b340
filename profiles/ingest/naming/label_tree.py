"""A kernel's name as a tree of pieces, each with a weight: how much it says about what the kernel computes.

What a kernel computes (lambda with its function, functor, address of a function) weighs most, then tiles, types and numbers;
policies, iterators and arrays weigh next to nothing. `label_text` makes a label of a tree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from profiles.ingest.naming.cxx import Name, Part

# Words in the names of C++ kernels by what they say about a kernel: libraries, functors, types, launchers, noise.

FILLER = frozenset({
    "at", "native", "std", "cuda", "c10", "detail", "internal", "binary_internal", "cub", "cutlass", "thrust", "cuda_cub", "core",
    "Kokkos", "Impl", "impl", "RAJA", "policy", "sycl", "_V1", "__1", "__detail", "hip", "rocprim", "hipcub", "amrex", "Gpu",
    "kernel", "collective", "cute", "gemm", "threadblock", "warp", "arch", "epilogue", "thread", "layout", "experimental",
    "at_cuda_detail", "pytorch_flash", "templates", "system", "__", "functional", "fusion", "device", "cudnn"})
LIBRARIES = frozenset({"cub", "thrust", "cudnn", "cutlass", "rocprim", "hipcub", "amrex", "Kokkos", "RAJA"})
VERSIONED = re.compile(r"(?:CUB|THRUST|ROCPRIM|HIPCUB|CCCL|V)_\w*NS|_V\d+|__\d+|v\d+_\d+\w*")
GENERIC = re.compile(r"(?:functor|Functor|type|value_type|Policy\d*|operator@call|impl|Kernel|kernel|apply|run|main|body|Body|call"
                     r"|launch|compute|execute|Agent|Tag\w*|Params)\Z")
FUNCTOR = re.compile(r"[Ff]unctor")
CALLABLE = re.compile(r"[Ff]unctor|(?:Op|Ops|Body|Loop|_op|_functor)\Z"
                      r"|\A(?:plus|minus|multiplies|maximum|minimum|less|greater|Sum|Min|Max|ArgMax|ArgMin|Sqrt)\Z")
NOISE_WORDS = re.compile(r"(?:"
                   r"\w*(?:Policy\w*|[Ii]terator\w*|OffsetCalculator|(?:integer|index)_sequence|TileState|Params\w*|Accessor\w*|Metadata\w*)"
                   r"|Array|array|Load\w*|Store\w*|NullType|InputValue|HardwareInfo|CompilerMetadata|\w*KernelContext|_"
                   r"|cublasGemv\w+|biasType|KernelInfo|MemoryAccess|always_true|Launch(?:Bounds|Params)\w*|Default\w*|identity"
                   r"|iteration_mapping\w*|IndexGlobal|\w*[Ss]tyle|Extruded|HIPBuffer|DeviceMemory|NDRange|OneTo"
                   r"|CartesianIndices|AlignedArray|\w*_exec\w*|Tuple|Layout|TiledMMA|MMA_Atom|SM\d+_\w+|\w*Swizzle"
                   r"|ComposedLayout|Direct|FunctorAnalysis|\w*_tag|PersistentScheduler|Cuda|HIP|SYCL|Experimental|T\d+)\Z")
TYPE = re.compile(r"(?:float|double|half|bool|char|short|int|long|__half2?|Half|BFloat16|__nv_bfloat16\w*|__hip_bfloat16|half_t"
                  r"|bfloat16_t|tfloat32_t|float_e\w+|Float8_\w+|__nv_fp8_\w+|Float\d+|Int\d+|UInt\d+|u?int\d+_t|complex"
                  r"|_Float16|__bf16|unsigned \w+|signed char|long long|unsigned|float\d|double\d|int\d)\Z")
INDEX = re.compile(r"(?:unsigned |signed )?(?:int|long|short|char)(?: long| int)?\Z|u?int\d+_t\Z|U?Int\d+\Z|unsigned\Z|bool\Z")
NUMBER = re.compile(r"-?\d[\w.]*\Z|true\Z|false\Z")
TILE = re.compile(r"\w*(?:Shape|tuple|Int|sequence)\Z")
CONSTANT = re.compile(r"(?:C|Int|constant|integral_constant)\Z")
WRAPPER = re.compile(r"(?:gpu_kernel_impl\w*|gpu_kernel\w*|opmath_\w+|func_wrapper_t|ReduceOp|__nv_h?dl_wrapper_t"
                     r"|__pf_kernel_wrapper|RoundedRangeKernel\w*|_?kernel_agent|unary_transform_f|binary_transform_f"
                     r"|wrapped_function|device_unary_op)\Z")
LAUNCHER = re.compile(r"(?:(?:cuda|hip|sycl)_parallel_launch\w*|launch_global|_kernel_agent|trampoline_kernel|device_kernel"
                      r"|Kernel2?|kernel_helper_with_policy|__pf_kernel_wrapper|RoundedRangeKernel\w*|kentry)\Z")
JULIA = re.compile(r"\b(?:CompilerMetadata|CuDeviceArray|ROCDeviceArray|oneDeviceArray|MtlDeviceArray|CuKernelContext"
                   r"|Broadcasted)<|\bCuKernelContext\b")


MOST_PIECES = 160
_DEEPEST = 10
NOISE = 10.0                    # below this weight a piece is left out where something else says more
WRAPS = 7.0                     # the weight of a name around what is computed
SURELY = 85.0                   # from this weight on it is what a kernel computes


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
        listed = "".join(f"({', '.join(param.text() for param in child.children)})" for child in self.children
                         if child.params and child.children)
        return f"{self.head}<{inner}>{listed}{self.tail}" if inner else f"{self.head}{listed}{self.tail}"


def lay_out(name: Name) -> Piece:
    """Return the whole tree of a name, at most MOST_PIECES pieces."""
    left = [MOST_PIECES]
    own = name.parts[-1] if name.parts else Part()
    root = _piece(name, 0, (), left, top=True)
    if LAUNCHER.match(own.word):
        arguments = [child for child in root.children if not child.params]
        launched = next((child for child in arguments if child.weight >= SURELY or _holds_callable(child)), None) or next(
            (child for child in arguments if 50.0 < child.weight < 75.0), None)
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
    return not piece.params and any(child.weight >= SURELY or _holds_callable(child) for child in piece.children)


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
        numbers, end = [], len(parts)
        while end and (parts[end - 1].number or (parts[end - 1].word == "operator@call" and end > 1 and parts[end - 2].number)):
            end -= 1
            numbers.append(parts[end].number)
        return _lambda(parts[:end], [n for n in reversed(numbers) if n], depth, path, left, own.params or [])
    head = _path(parts, function=top) + name.pointer.replace("&", "")
    base = own.word
    if name.is_address:
        piece = Piece(head, 95.0 - depth, path, given=bool(own.params))
    elif NOISE_WORDS.match(base):
        piece = Piece(head, 5.0, path)
    elif WRAPPER.match(base):
        piece = Piece(head, WRAPS, path)
    elif CALLABLE.search(base) or (GENERIC.match(base) and len(parts) > 1):
        piece = Piece(head, 90.0 - depth, path, given=bool(FUNCTOR.search(base)) or base == "operator@call")
    elif TYPE.match(base):
        piece = Piece(head, 30.0 - 3 * depth if INDEX.match(base) else 56.0 - depth, path)
    elif NUMBER.match(base):
        piece = Piece(base, (25.0 if base in ("true", "false", "0", "1") else 42.0) - 3 * depth, path)
    else:
        piece = Piece(head, 60.0 - 6 * depth, path)
    if base in ("void", "_") or (name.pointer == "" and base == ""):
        piece.weight = 4.0
    arguments = [arg for part in parts[-2:] for arg in part.args or []] if top or depth else own.args or []
    _add(piece, arguments, depth, left)
    if top and own.params and not _is_julia(own):
        params = Piece("", 2.0, (*path, -1), params=True)
        _add(params, own.params, depth + 1, left, (*path, -1))
        for child in params.children:
            child.weight = min(child.weight, 3.0)
        piece.children.append(params)
    elif top and own.params:
        _add(piece, own.params, depth, left)
    return piece


def _add(piece: Piece, arguments: list[Name], depth: int, left: list[int], path: tuple[int, ...] | None = None) -> None:
    if depth >= _DEEPEST:
        return
    start = len(piece.children)
    for index, argument in enumerate(arguments):
        if left[0] <= 0:
            break
        if argument.parts:
            piece.children.append(_piece(argument, depth + 1, (*(piece.path if path is None else path), start + index), left))


def _lambda(parts: list[Part], numbers: list[int], depth: int, path: tuple[int, ...], left: list[int],
            params: list[Name] | None = None) -> Piece:
    """A lambda as its function and its numbers, outermost first: `direct_copy_kernel_cuda #3.7.1`."""
    own = parts[-1] if parts else Part("lambda")
    wraps = bool(own.args) and bool(WRAPPER.match(own.word))
    tail = " #" + ".".join(map(str, numbers))
    piece = Piece(_path(parts, function=True) or "lambda", 100.0 - depth, path, tail, given=True)
    if wraps:                                                           # what it wraps is what is computed
        piece.weight, piece.given = WRAPS, False
    _add(piece, [arg for part in parts[-2:] for arg in part.args or []], depth, left)
    if not wraps and any(child.weight >= SURELY for child in piece.children):      # what it is given says more than itself
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
    tag = next((arg.parts[-1] for arg in own.args or [] if arg.parts and arg.parts[-1].word == "__nv_dl_tag"), None)
    if tag is None or len(tag.args or []) < 3:
        return None
    _, function, number = (tag.args or [])[:3]
    word = number.parts[-1].word if number.parts else ""
    return function.parts, [int(word[:6]) if word.isdecimal() else 1]


def _path(parts: list[Part], function: bool) -> str:
    """The last word with the scopes before it that are needed to know what it is."""
    if function and len(parts) > 1 and parts[-1].word == "operator@call":               # of a functor in which a lambda stands
        parts = parts[:-1]
    chain = [part.word.replace("operator@call", "operator()").replace("operator@", "operator ") for part in parts if part.word]
    if not chain:
        return ""
    scopes = [word for word in chain[:-1]
              if word not in FILLER and not VERSIONED.fullmatch(word) and not word.startswith("operator")]
    last = chain[-1]
    if function:
        library = [word for word in chain[:-1] if word in LIBRARIES][:1]
        return "::".join([*(scopes[-1:] or library), last])
    if scopes and (GENERIC.match(parts[-1].word) or last.startswith("operator")):
        return f"{scopes[-1]}::{last}"
    return last


def _tile(name: Name) -> str:
    """`cute::tuple<cute::C<128>, cute::C<64>>`, `GemmShape<128, 64>` -> "128x64"; `cute::C<128>` -> "128"."""
    own = name.parts[-1]
    if not own.args or not (TILE.match(own.word) or CONSTANT.match(own.word)):
        return ""
    if CONSTANT.match(own.word):
        value = own.args[-1].parts[-1].word if own.args[-1].parts else ""
        return value if NUMBER.match(value) else ""
    sides = [_side(arg) for arg in own.args]
    return "x".join(sides) if 1 < len(sides) <= 6 and all(side.strip("0") for side in sides) else ""


def _side(name: Name) -> str:
    own = name.parts[-1] if name.parts else Part()
    if own.args and CONSTANT.match(own.word) and own.args[-1].parts:
        own = own.args[-1].parts[-1]
    return own.word if own.word.isdecimal() else ""


def _is_julia(own: Part) -> bool:
    return any(JULIA.search(f"{param.parts[-1].word}<") for param in own.params or [] if param.parts)


def _mark_repeats(root: Piece) -> None:
    """Weigh down what says again what an earlier piece with arguments or scopes said."""
    texts: set[str] = set()
    waiting = [root]
    while waiting:
        piece = waiting.pop(0)
        text = piece.text()
        says_much = piece.children or "#" in text or len(text) > 12 or 70.0 < piece.weight < 76.0
        if piece is not root and says_much and not piece.params:
            if text in texts:
                piece.weight = min(piece.weight, 1.0)
                continue
            texts.add(text)
        child_texts = {child.text() for child in piece.children}
        for index, child in enumerate(piece.children):
            if not child.children and child.weight < 55.0 and child.text() in {peer.text() for peer in piece.children[:index]}:
                child.weight = min(child.weight, 12.0)
            if len(child.children) > 1 and {grandchild.text() for grandchild in child.children} <= child_texts:
                child.weight = min(child.weight, 1.0)
        waiting.extend(child for child in piece.children if child.weight > 1.0)


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
    number = first.tail or next((f" {child.head}" for child in first.children if child.path[-1:] == (-2,)), "") if first else ""
    label = f"{first.head}{number}" if first else ""
    if first is not None:                               # a wrapper of its own (ParallelFor of AMReX): what it is given
        inner = next((child for child in first.children if child.given), None)
        label = f"{label} {inner.head}{inner.tail}" if inner else label
    return ("", label) if not root.launched else (root.head, label if first is not root else label.removeprefix(root.head).strip())


def places(root: Piece) -> dict[tuple[int, ...], str]:
    """Return what stands at every place of a tree."""
    text_by_path: dict[tuple[int, ...], str] = {}
    waiting = [root]
    while waiting:
        piece = waiting.pop()
        text_by_path[piece.path] = f"{piece.head}{piece.tail}"
        waiting.extend(piece.children)
    return text_by_path
