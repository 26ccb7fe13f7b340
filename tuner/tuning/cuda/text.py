"""`__global__` functions of a CUDA C++ file, read from its text: nothing is compiled.

Read are the functions with their arguments and template parameters, what is written, macros and constants that are numbers, how the
file launches them, and names that look tuned, are used and are declared nowhere in the file: those a tuner must define, as Kernel
Tuner's kernels want it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from profiles.base.refused import Refused
from tuner.tuning.cuda.blocks import read_block
from tuner.tuning.cuda.constants import evaluate
from tuner.tuning.cuda.defines import TUNED, declared_names, defines_of
from tuner.tuning.cuda.directives import expand
from tuner.tuning.cuda.functions import INTEGERS, NUMBERS, CudaArgument, CudaFunction, CudaText
from tuner.tuning.cuda.includes import with_own_headers
from tuner.tuning.cuda.indexing import body_of, counted_by_blocks
from tuner.tuning.cuda.items import Item
from tuner.tuning.cuda.launches import Launch, Launches
from tuner.tuning.cuda.slices import cut, reached_by
from tuner.tuning.cuda.source import Source
from tuner.tuning.cuda.symbolic import grid_of, smem_of
from tuner.tuning.cuda.template import template_of
from tuner.tuning.cuda.tokens import is_word, join, split_at_commas, split_words
from tuner.tuning.cuda.values import Values
from tuner.tuning.cuda.writes import Flow, Uses, parameter

MAX_FILE_BYTES = 2 << 20
MAX_FUNCTIONS = 200
_QUALIFIERS = {
    "const", "volatile", "__restrict__", "__restrict", "restrict", "__grid_constant__", "struct", "register", "typename",
    "class", "enum", "__align__",
}
_BOUNDS = re.compile(r"__launch_bounds__\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)")
_WORD = re.compile(r"(?<![\w.#\":])(?<!->)(?!__)[A-Za-z_]\w*(?!\w|\s*::)")
_CALLED = re.compile(r"\b([A-Za-z_]\w*)\s*(?:<[^;<>]*>\s*)?\(")
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(?!if|elif).*$", re.MULTILINE)
_BUILT_IN = {"blockIdx", "blockDim", "threadIdx", "gridDim", "warpSize", "__CUDA_ARCH__"}


def read_file(path: Path, others: bool = False) -> tuple[str, CudaText]:
    """Return the text of a .cu file and what it holds; `others`: with the kernels of its own headers. Raises Refused."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise Refused(f"{path.name}: more than {MAX_FILE_BYTES:,} bytes")
        content = path.read_bytes()
        if b"\0" in content:
            raise Refused(f"{path.name}: no text")
        text = content.decode(errors="replace").replace("\r\n", "\n")  # comments in Latin-1 are no reason to refuse
    except OSError as error:
        raise Refused(f"{path}: {getattr(error, 'strerror', None) or 'no text'}") from error
    return text, read_text(text, path.parent, others)


def read_text(text: str, folder: Path | None = None, others: bool = False) -> CudaText:
    """Return the functions and macros of a text; `folder`: where headers lie that it includes; `others`: with their kernels.

    Raises Refused.
    """
    if len(text) > MAX_FILE_BYTES:
        raise Refused(f"{len(text):,} characters; at most {MAX_FILE_BYTES:,}")
    source = Source(with_own_headers(text, folder) if folder is not None else text)
    values = Values(source)
    by_kernel: dict[str, list[Launch]] = {}
    for launch in Launches(values).all():
        by_kernel.setdefault(launch.kernel, []).append(launch)
    defines = defines_of(source)
    flow, declared, functions = Flow(source), declared_names(source), []
    kernels = [
        item for item in source.items
        if item.kind in ("kernel", "broken") and item.body >= 0 and (others or not source.file_of(item.first))
    ]
    if len(kernels) > MAX_FUNCTIONS:
        raise Refused(f"more than {MAX_FUNCTIONS} __global__ functions")
    keys: set[tuple[str, str]] = set()
    for item in kernels:
        if (item.scope, item.names[0]) in keys and item.kind == "kernel":
            continue  # an overload, or a specialization
        keys.add((item.scope, item.names[0]))
        functions.append(
            _broken(source, item)
            if item.kind == "broken"
            else _function(source, item, values, by_kernel.get(item.names[0], []), defines, declared, flow)
        )
    if functions and all(function.problem for function in functions):
        raise Refused(functions[0].problem)
    return CudaText(
        tuple(functions),
        defines,
        frozenset(source.read.guarded) & defines.keys(),
        tuple(dict.fromkeys(name for item in source.items if item.kind in ("type", "using") for name in item.names)),
    )


def without_host_code(text: str) -> str:
    """Return the text without functions of the host, which NVRTC refuses; lines stay where they are."""
    return cut(Source(text), "")[0]


def _broken(source: Source, item: Item) -> CudaFunction:
    opening = item.body
    reason = f"line {source.line_of(opening)}: the {source.words[opening]} has no partner"
    return CudaFunction(item.names[0], source.line_of(item.head), (), scope=item.scope, problem=reason)


def _function(
    source: Source,
    item: Item,
    values: Values,
    own: Sequence[Launch],
    defines: Mapping[str, int],
    declared: Collection[str],
    flow: Flow,
) -> CudaFunction:
    reached = [source.items[index] for index in sorted(reached_by(source, [item]))]
    code = [
        declaration
        for declaration in reached
        if declaration.kind in ("kernel", "function", "variable", "using") and (declaration is item or declaration.kind != "kernel")
    ]
    text = "\n".join(source.plain(declaration.first, declaration.last) for declaration in code)
    own_text = source.plain(item.first, item.last)
    used = _names_in(source, text)
    template = template_of(source, item, values, own)
    names = {name: value for name, value in defines.items() if name in used} | {
        param.name: None for param in template if not param.is_type
    }
    problem = ""
    try:
        uses = flow.of(item)
    except RecursionError:
        uses, problem = Uses(), "nested too deeply to read"
    types = [param.name for param in template if param.is_type]
    arguments = tuple(
        _argument(source, part, index, uses, types)
        for index, part in enumerate(split_at_commas(expand(source.arguments_of(item), source.macros)))
        if part not in ([], ["void"])
    )
    known_names = {argument.name for argument in arguments} | {param.name for param in template} | source.macros.keys() | _BUILT_IN
    known_names |= set(_CALLED.findall(text)) | source.of_name.keys()
    undefined = tuple(sorted(name for name in used - known_names if name not in declared and TUNED.match(name)))
    names |= dict.fromkeys(undefined)
    words = [word for declaration in code for word in expand(source.words[declaration.first : declaration.last + 1], source.macros)]
    block = read_block(source, item, words, values, own, names, [param.name for param in template], arguments)
    return CudaFunction(
        item.names[0],
        _line(source, item),
        arguments,
        template,
        undefined,
        used,
        _bounds(own_text, source, values, names),
        dynamic_shared=_is_dynamic(words),
        loops=re.search(r"\b(?:for|while)\b", own_text) is not None,
        scope=item.scope,
        block=block,
        launches=len(own),
        smem=smem_of(values, own, names, block, [param.name for param in template]),
        grid=grid_of(values, own, names, block, [param.name for param in template], arguments),
        problem=problem,
        counted=counted_by_blocks(body_of(source, item), {argument.name for argument in arguments if argument.written}, names),
    )


def _names_in(source: Source, text: str) -> frozenset[str]:
    """Return the names that a text uses, in its pragmas and in the macros that it calls too."""
    unrolled = re.findall(r"#\s*pragma\s+unroll\s*\(?\s*([A-Za-z_]\w*)", text)
    return frozenset(_WORD.findall(_DIRECTIVE.sub("", text))) | frozenset(unrolled) | _in_macros(source, text)


def _is_dynamic(words: Sequence[str]) -> bool:
    """Return whether tokens declare an `extern … __shared__` array."""
    is_extern = False
    for word in words:
        is_extern = (is_extern or word == "extern") and word != ";"
        if is_extern and word == "__shared__":
            return True
    return False


def _line(source: Source, item: Item) -> int:
    """Return the line of the word that makes it a kernel."""
    index = next((place for place in range(item.first, item.head) if source.words[place] in source.kernel_words), item.head)
    return source.line_of(index)


def _in_macros(source: Source, text: str) -> frozenset[str]:
    """Return the names in the macros that a text uses, and in theirs."""
    names: set[str] = set()
    to_do = re.findall(r"[A-Za-z_]\w*", text)
    while to_do:
        macro = source.macros.get(to_do.pop())
        for word in macro.body if macro is not None else ():
            if is_word(word) and word not in names:
                names.add(word)
                to_do.append(word)
    return frozenset(names)


def _alias_of(source: Source, name: str) -> str:
    """Return the type that the file gives another name, as `using index_t = int64_t;`; "" where it does not."""
    for item in source.of_name.get(name, ()):
        words = source.words[item.first : item.last + 1]
        if words[0] == "using" and "=" in words:
            tokens = words[words.index("=") + 1 : -1]
        elif words[0] == "typedef" and words[-2:-1] == [name]:
            tokens = words[1:-2]
        else:
            continue
        return join([token for token in tokens if token not in _QUALIFIERS]).removeprefix("std::").removeprefix("::")
    return ""


def _argument(source: Source, words: Sequence[str], position: int, uses: Uses, types: Sequence[str]) -> CudaArgument:
    own = parameter(words)
    plain = list(words[: words.index("=")]) if "=" in words else list(words)
    while "[" in plain:
        opening = plain.index("[")
        plain = plain[:opening]
    spelled = [word for word in plain if word not in _QUALIFIERS and word not in ("*", "&", "&&")]
    if spelled and spelled[-1] == own.name and len(spelled) > 1:
        spelled = spelled[:-1]
    kind = join(spelled) or "int"
    kind = kind.removeprefix("std::").removeprefix("::")
    kind = kind.removesuffix(" int") if kind not in INTEGERS and kind.removesuffix(" int") in INTEGERS else kind
    plain_kind = kind if own.pointer or kind in INTEGERS or kind in NUMBERS or kind in types else _alias_of(source, kind)
    scalar = "" if own.pointer else INTEGERS.get(plain_kind) or NUMBERS.get(plain_kind) or ""
    return CudaArgument(
        own.name or "?",
        kind,
        own.pointer,
        scalar,
        own.pointer and position in uses.written,
        own.pointer and position in uses.unsure,
        own.pointer and position in uses.read,
        not own.pointer and kind in types,
    )


def _bounds(text: str, source: Source, values: Values, names: Mapping[str, int | None]) -> int | None:
    match = _BOUNDS.search(text)
    if match is None:
        return None
    first = split_at_commas(expand(split_words(match[1]), source.macros))[:1]
    value = evaluate(first[0], lambda name: values.constant(name) if names.get(name, 0) is not None else None) if first else None
    return int(value) if value is not None and 0 < value <= 1024 else None
