"""`__global__` functions of a CUDA C++ file, read from its text: nothing is compiled.

Read are the functions with their arguments and template parameters, what is written, macros and constants that are numbers, how the
file launches them, and names that look tuned, are used and are declared nowhere in the file: those a tuner must define, as Kernel
Tuner's kernels want it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.tuning.cuda.blocks import Axis, read_block
from tuner.tuning.cuda.constants import evaluate
from tuner.tuning.cuda.directives import expand
from tuner.tuning.cuda.includes import with_own_headers
from tuner.tuning.cuda.items import Item, Source, blank_comments
from tuner.tuning.cuda.launches import Launch, Launches
from tuner.tuning.cuda.slices import cut, reached_by
from tuner.tuning.cuda.tokens import TextRefused, is_word, join, split_at_commas
from tuner.tuning.cuda.writes import Flow, Uses, parameter

__all__ = [
    "BLOCK",
    "C_TYPES",
    "Axis",
    "CudaArgument",
    "CudaFunction",
    "CudaText",
    "TemplateParam",
    "TextRefused",
    "as_macro",
    "read_file",
    "read_text",
    "without_comments",
    "without_defines",
    "without_host_code",
]

MAX_FILE_BYTES = 2 << 20
MAX_FUNCTIONS = 200
INTEGERS = {
    "char": "i1",
    "signed char": "i1",
    "unsigned char": "u1",
    "short": "i2",
    "unsigned short": "u2",
    "int": "i4",
    "signed": "i4",
    "signed int": "i4",
    "unsigned": "u4",
    "unsigned int": "u4",
    "long": "i8",
    "unsigned long": "u8",
    "long long": "i8",
    "unsigned long long": "u8",
    "int8_t": "i1",
    "uint8_t": "u1",
    "int16_t": "i2",
    "uint16_t": "u2",
    "int32_t": "i4",
    "uint32_t": "u4",
    "int64_t": "i8",
    "uint64_t": "u8",
    "size_t": "u8",
    "ptrdiff_t": "i8",
    "uint": "u4",
    "bool": "b1",
    "uchar": "u1",
    "ushort": "u2",
    "ulong": "u8",
}
NUMBERS = {"float": "f4", "double": "f8", "__half": "f2", "half": "f2"}
C_TYPES = {"fp16": "__half", "bf16": "__nv_bfloat16", "fp32": "float", "fp8": "__nv_fp8_e4m3"}
BLOCK = ("block_size_x", "block_size_y", "block_size_z")  # threads of a block, as Kernel Tuner names them
_QUALIFIERS = {
    "const",
    "volatile",
    "__restrict__",
    "__restrict",
    "restrict",
    "__grid_constant__",
    "struct",
    "register",
    "typename",
    "class",
    "enum",
    "__align__",
}
_BOUNDS = re.compile(r"__launch_bounds__\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)")
_WORD = re.compile(r"(?<![\w.#\":])(?<!->)(?!__)[A-Za-z_]\w*(?!\w|\s*::)")
_CALLED = re.compile(r"\b([A-Za-z_]\w*)\s*(?:<[^;<>]*>\s*)?\(")
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(?!if|elif).*$", re.MULTILINE)
# names that a tuner gives a meaning to: Kernel Tuner's, and those that people write
TUNED = re.compile(
    r"block_size(?:_[xyz])?$|tile_size(?:_[xyz])?$"
    r"|[A-Z_]*(?:BLOCK|TILE|CHUNK|UNROLL|VEC|STAGES|THREADS|ITEMS_PER|PER_THREAD)[A-Z_0-9]*$|work_per_thread|use_\w+$|[BTW][MNK]$|loop_unroll_factor|read_only$|reuse_|vector$"
)
_BUILT_IN = {"blockIdx", "blockDim", "threadIdx", "gridDim", "warpSize", "__CUDA_ARCH__"}
_WHOLE = {
    "int",
    "unsigned",
    "uint",
    "size_t",
    "long",
    "short",
    "char",
    "int32_t",
    "uint32_t",
    "int64_t",
    "uint64_t",
    "int16_t",
    "uint16_t",
    "uint8_t",
    "int8_t",
    "signed",
    "auto",
    "index_t",
}


@dataclass(frozen=True)
class CudaArgument:
    """One argument of a function: `type` without qualifiers ("float", "T", "long long"), `pointer` for an address.

    scalar   NumPy's name of the type of a number ("i4", "f4"); "" of a pointer, a struct and a template's type
    written  whether the function stores through it, as far as the file tells
    unsure   whether the file does not tell: the address is handed to code that is not in it
    read     whether the function reads what lies there
    generic  whether `type` is a type parameter of the template: a number of the tensors' type
    """

    name: str
    type: str
    pointer: bool
    scalar: str = ""
    written: bool = False
    unsure: bool = False
    read: bool = False
    generic: bool = False

    @property
    def kind(self) -> str:
        if self.pointer:
            return "index" if self.type in INTEGERS and INTEGERS[self.type] in ("i4", "i8") else "pointer"
        if self.generic:
            return "number"
        return "integer" if self.scalar[:1] in ("i", "u", "b") else "number" if self.scalar else "struct"


@dataclass(frozen=True)
class TemplateParam:
    """`type` is "typename" for a type, else the type of a value; `default` as written, "" for none.

    launched  what the file's launches and instances give for it, each once, in order: numbers as whole numbers, types as text
    """

    name: str
    type: str
    default: str = ""
    launched: tuple[int | str, ...] = ()

    @property
    def is_type(self) -> bool:
        return self.type.split()[0] in ("typename", "class") if self.type else False

    @property
    def is_flag(self) -> bool:
        return self.type.replace("const ", "") == "bool"

    @property
    def is_number(self) -> bool:
        return not self.is_type and set(self.type.replace("::", " ").split()) <= _WHOLE | {"const", "std"}


@dataclass(frozen=True)
class CudaFunction:
    """One `__global__` function.

    template   its template parameters in order; () of a plain function
    undefined  names that it uses, that look tuned, and that nothing in the file declares
    uses       all names of its text, and of the functions that it reaches
    threads    of `__launch_bounds__`, where that is a number
    scope      the namespaces around it ("a::b")
    block      the threads along x, y and z
    launches   how often the file launches it
    smem       dynamic shared memory of the first launch: an expression over its names, "" for none, None where it is not told
    grid       blocks along x, y, z of the first launch: expressions over its arguments, names and block; () where none is told
    problem    why it cannot be read; "" where it can
    """

    name: str
    line: int
    arguments: tuple[CudaArgument, ...]
    template: tuple[TemplateParam, ...] = ()
    undefined: tuple[str, ...] = ()
    uses: frozenset[str] = frozenset()
    threads: int | None = None
    dynamic_shared: bool = False
    loops: bool = False
    scope: str = ""
    block: tuple[Axis, Axis, Axis] = (Axis(), Axis(), Axis())
    launches: int = 0
    smem: str | None = ""
    grid: tuple[str, ...] = ()
    problem: str = ""

    @property
    def qualified(self) -> str:
        return f"{self.scope}::{self.name}" if self.scope else self.name


@dataclass(frozen=True)
class CudaText:
    """defines: macro or constant → number; guarded: those of them that stand under `#ifndef`, so that a compiler's -D holds.

    types: names of the types that the file declares.
    """

    functions: tuple[CudaFunction, ...]
    defines: dict[str, int] = field(default_factory=dict)
    guarded: frozenset[str] = frozenset()
    types: tuple[str, ...] = ()


def read_file(path: Path) -> tuple[str, CudaText]:
    """Return the text of a .cu file and what it holds. Raises TextRefused."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise TextRefused(f"{path.name}: more than {MAX_FILE_BYTES:,} bytes")
        content = path.read_bytes()
        if b"\0" in content:
            raise TextRefused(f"{path.name}: no text")
        text = content.decode(errors="replace").replace("\r\n", "\n")  # comments in Latin-1 are no reason to refuse
    except OSError as error:
        raise TextRefused(f"{path}: {getattr(error, 'strerror', None) or 'no text'}") from error
    return text, read_text(text, path.parent)


def read_text(text: str, folder: Path | None = None) -> CudaText:
    """Return the functions and macros of a text; `folder`: where headers lie that it includes. Raises TextRefused."""
    if len(text) > MAX_FILE_BYTES:
        raise TextRefused(f"{len(text):,} characters; at most {MAX_FILE_BYTES:,}")
    source = Source(with_own_headers(text, folder) if folder is not None else text)
    launches = Launches(source)
    by_kernel: dict[str, list[Launch]] = {}
    for launch in launches.all():
        by_kernel.setdefault(launch.kernel, []).append(launch)
    defines = _defines(source)
    flow, functions = Flow(source), []
    kernels = [
        item for item in source.items if item.kind in ("kernel", "broken") and (item.body >= 0) and not source.file_of(item.first)
    ]
    if len(kernels) > MAX_FUNCTIONS:
        raise TextRefused(f"more than {MAX_FUNCTIONS} __global__ functions")
    known: set[tuple[str, str]] = set()
    for item in kernels:
        if (item.scope, item.names[0]) in known and item.kind == "kernel":
            continue  # an overload, or a specialization
        known.add((item.scope, item.names[0]))
        functions.append(
            _broken(source, item)
            if item.kind == "broken"
            else _function(source, item, launches, by_kernel.get(item.names[0], []), defines, flow)
        )
    if functions and all(each.problem for each in functions):
        raise TextRefused(functions[0].problem)
    return CudaText(
        tuple(functions),
        defines,
        frozenset(source.read.guarded) & defines.keys(),
        tuple(dict.fromkeys(name for item in source.items if item.kind in ("type", "enum", "using") for name in item.names)),
    )


def without_comments(text: str) -> str:
    """Return the text with comments and what stands in quotes as blanks, lines kept."""
    return blank_comments(text)


def without_host_code(text: str) -> str:
    """Return the text without functions of the host, which NVRTC refuses; lines stay where they are."""
    return cut(Source(text), "")[0]


def as_macro(value: Any) -> str:
    """Return a parameter's value as a macro's text."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def without_defines(text: str, names: Collection[str]) -> str:
    """Return the text without `#define NAME …` and `constexpr int NAME = …;` of the names, which the compiler is given instead.

    Lines stay where they are.
    """
    if not names:
        return text
    lines = text.split("\n")
    for at, line in enumerate(lines):
        words = line.replace("#", "# ", 1).split() if line.lstrip().startswith("#") else []
        if words[:2] == ["#", "define"] and len(words) > 2 and words[2] in names:
            lines[at] = ""
    text = "\n".join(lines)
    for name in names:
        text = re.sub(
            r"^([ \t]*)(?:(?:static|inline|__constant__|__device__)\s+)*(?:constexpr|const)\s+[\w: \t]*?\b"
            rf"{re.escape(name)}\s*=[^;{{}},]*;",
            lambda match: re.sub(r"[^\n]", " ", match[0]),
            text,
            flags=re.MULTILINE,
        )
    return text


def _defines(source: Source) -> dict[str, int]:
    """Return macros and constants of the file that are numbers as they stand there."""
    found: dict[str, int] = {}
    for name, macro in source.macros.items():
        body = [each for each in macro.body if each not in ("(", ")")]
        if macro.arguments is None and 1 <= len(body) <= 2 and all(not is_word(each) for each in body):
            value = evaluate(body, lambda other: None)
            if isinstance(value, int) and (TUNED.match(name) or not source.file_at(source.read.places.get(name, 0))):
                found[name] = value  # of headers only what is named as people name what they tune
    for item in source.items:
        if item.kind != "variable" or len(item.names) != 1 or (source.file_of(item.first) and not TUNED.match(item.names[0])):
            continue
        words = source.words[item.first : item.last + 1]
        name = item.names[0]
        if {"const", "constexpr"} & set(words) and "=" in words and set(words) & (_WHOLE | {"bool"}) and "[" not in words:
            after = words[words.index("=") + 1 : -1]
            value = evaluate(after, lambda other: None) if len(after) <= 2 else None
            if isinstance(value, int) and _declared_once(name, source):
                found[name] = value
    return found


def _declared_once(name: str, source: Source) -> bool:
    """Return whether a constant's name has no other meaning in the file: a -D would replace that too."""
    word = re.escape(name)
    return (
        len(
            re.findall(
                rf"(?:\b(?:int|unsigned|bool|auto|size_t|float|typename|class|long|uint|\w+_t)[\s*&]+){word}\b", source.read.code
            )
        )
        == 1
    )


def _broken(source: Source, item: Item) -> CudaFunction:
    opening = item.body
    reason = f"line {source.line_of(opening)}: the {source.words[opening]} has no partner"
    return CudaFunction(item.names[0], source.line_of(item.head), (), scope=item.scope, problem=reason)


def _function(
    source: Source, item: Item, launches: Launches, own: Sequence[Launch], defines: Mapping[str, int], flow: Flow
) -> CudaFunction:
    reached = [source.items[at] for at in sorted(reached_by(source, [item]))]
    code = [
        each
        for each in reached
        if each.kind in ("kernel", "function", "variable", "using") and (each is item or each.kind != "kernel")
    ]
    text = "\n".join(source.plain(each.first, each.last) for each in code)
    own_text = source.plain(item.first, item.last)
    used = (
        frozenset(_WORD.findall(_DIRECTIVE.sub("", text)))
        | frozenset(re.findall(r"#\s*pragma\s+unroll\s*\(?\s*([A-Za-z_]\w*)", text))
        | _in_macros(source, text)
    )
    template = _template(source, item, launches, own)
    names = {name: value for name, value in defines.items() if name in used} | {
        each.name: None for each in template if not each.is_type
    }
    problem = ""
    try:
        uses = flow.of(item)
    except RecursionError:
        uses, problem = Uses(), "nested too deeply to read"
    types = [each.name for each in template if each.is_type]
    arguments = tuple(
        _argument(part, at, uses, types)
        for at, part in enumerate(split_at_commas(expand(source.arguments_of(item), source.macros)))
        if part not in ([], ["void"])
    )
    known = {each.name for each in arguments} | {each.name for each in template} | source.macros.keys() | _BUILT_IN
    known |= set(_CALLED.findall(text)) | source.of_name.keys()
    undefined = tuple(sorted(each for each in used - known if TUNED.match(each) and not _declared(each, source.read.code)))
    names |= dict.fromkeys(undefined)
    words = [word for each in code for word in expand(source.words[each.first : each.last + 1], source.macros)]
    block = read_block(source, item, words, launches, own, names, [each.name for each in template])
    return CudaFunction(
        item.names[0],
        _line(source, item),
        arguments,
        template,
        undefined,
        used,
        _bounds(own_text, source, launches, names),
        dynamic_shared=re.search(r"\bextern\b[^;]*__shared__", text) is not None,
        loops=re.search(r"\b(?:for|while)\b", own_text) is not None,
        scope=item.scope,
        block=block,
        launches=len(own),
        smem=_smem(launches, own, names, block, [each.name for each in template]),
        grid=_grid(launches, own, names, block, [each.name for each in template], arguments),
        problem=problem,
    )


def _line(source: Source, item: Item) -> int:
    """Return the line of the word that makes it a kernel."""
    at = next((at for at in range(item.first, item.head) if source.words[at] in source.kernel_words), item.head)
    return source.line_of(at)


def _in_macros(source: Source, text: str) -> frozenset[str]:
    """Return the names in the macros that a text uses, and in theirs."""
    found: set[str] = set()
    to_do = re.findall(r"[A-Za-z_]\w*", text)
    while to_do:
        macro = source.macros.get(to_do.pop())
        for word in macro.body if macro is not None else ():
            if is_word(word) and word not in found:
                found.add(word)
                to_do.append(word)
    return frozenset(found)


def _template(source: Source, item: Item, launches: Launches, own: Sequence[Launch]) -> tuple[TemplateParam, ...]:
    params: list[TemplateParam] = []
    for part in split_at_commas(expand(source.template_of(item), source.macros)):
        at = part.index("=") if "=" in part else len(part)
        declared = [each for each in part[:at] if each != "..."]
        if not declared:
            continue
        has_name = len(declared) > 1 and is_word(declared[-1])
        name = declared[-1] if has_name else f"_{len(params)}"
        params.append(TemplateParam(name, join(declared[:-1] if has_name else declared), join(part[at + 1 :])))
    given: list[list[int | str]] = [[] for _ in params]
    for launch in own:
        for at, words in enumerate(launch.template[: len(params)]):
            value = _template_value(launches, launch, params[at], list(words))
            if value is not None and value not in given[at]:
                given[at].append(value)
    for instance in _instances(source, item):
        for at, value_words in enumerate(instance[: len(params)]):
            number = evaluate(value_words, lambda name: known.value if (known := launches.constant(name)) else None)
            value = (
                join(value_words)
                if params[at].is_type or not (params[at].is_number or params[at].is_flag)
                else int(number)
                if number is not None
                else None
            )
            if value is not None and value not in given[at]:
                given[at].append(value)
    return tuple(
        TemplateParam(each.name, each.type, each.default, tuple(values)) for each, values in zip(params, given, strict=True)
    )


def _template_value(launches: Launches, launch: Launch, param: TemplateParam, words: list[str]) -> int | str | None:
    if param.is_number or param.is_flag:
        number = launches.number(launch.scope, words)
        return int(number.value) if number is not None and not number.is_size else None
    if len(words) == 1 and words[0] in launches.template_parameters(launch.scope.item):
        for caller, given in launches.given(launch.scope, words[0]):
            if not any(each in launches.template_parameters(caller.item) for each in given):
                return join(given)
        return None
    return None if any(each in launches.template_parameters(launch.scope.item) for each in words) else join(words)


def _instances(source: Source, item: Item) -> list[list[list[str]]]:
    """Return the template values of explicit instances: template __global__ void f<float, 128>(…)."""
    found = []
    for each in source.items:
        if each.kind == "instance":
            words = source.words[each.first : each.last]
            for at in range(len(words) - 1):
                if words[at] == item.names[0] and words[at + 1] == "<":
                    depth, end = 0, at + 1
                    while end < len(words):
                        depth += (words[end] == "<") - (words[end] == ">")
                        if depth == 0:
                            break
                        end += 1
                    found.append(split_at_commas(words[at + 2 : end]))
                    break
    return found


def _argument(words: Sequence[str], at: int, uses: Uses, types: Sequence[str]) -> CudaArgument:
    own = parameter(words)
    plain = list(words[: words.index("=")]) if "=" in words else list(words)
    while "[" in plain:
        opening = plain.index("[")
        plain = plain[:opening]
    spelled = [each for each in plain if each not in _QUALIFIERS and each not in ("*", "&", "&&")]
    if spelled and spelled[-1] == own.name and len(spelled) > 1:
        spelled = spelled[:-1]
    kind = join(spelled) or "int"
    kind = kind.removeprefix("std::").removeprefix("::")
    kind = kind.removesuffix(" int") if kind not in INTEGERS and kind.removesuffix(" int") in INTEGERS else kind
    scalar = "" if own.pointer else INTEGERS.get(kind) or NUMBERS.get(kind) or ""
    return CudaArgument(
        own.name or "?",
        kind,
        own.pointer,
        scalar,
        own.pointer and at in uses.written,
        own.pointer and at in uses.unsure,
        own.pointer and at in uses.read,
        not own.pointer and kind in types,
    )


def _bounds(text: str, source: Source, launches: Launches, names: Mapping[str, int | None]) -> int | None:
    match = _BOUNDS.search(text)
    if match is None:
        return None
    first = split_at_commas(expand(list(re.findall(r"\w+|[^\w\s]", match[1])), source.macros))[:1]
    value = (
        evaluate(
            first[0], lambda name: known.value if names.get(name, 0) is not None and (known := launches.constant(name)) else None
        )
        if first
        else None
    )
    return int(value) if value is not None and 0 < value <= 1024 else None


def _host_names(
    launch: Launch, names: Mapping[str, int | None], block: Sequence[Axis], template: Sequence[str]
) -> dict[str, str]:
    """Return the host's names at a launch → the kernel's own: macros, template values, and threads that may change."""
    given = {each: each for each in names if each not in template}
    given |= {
        value[0]: param for param, value in zip(template, launch.template, strict=False) if len(value) == 1 and is_word(value[0])
    }
    for axis, words, name in zip(block, launch.block, BLOCK, strict=False):
        if axis.is_free and len(words) == 1 and is_word(words[0]) and words[0] not in given:
            given[words[0]] = name
    return given


def _smem(
    launches: Launches, own: Sequence[Launch], names: Mapping[str, int | None], block: Sequence[Axis], template: Sequence[str]
) -> str | None:
    """Return the dynamic shared memory of the first launch in bytes: "" for none, None where the text does not tell."""
    if not own or not own[0].smem or list(own[0].smem) in (["0"], []):
        return "" if own else None
    return launches.resolve(own[0].scope, own[0].smem, _host_names(own[0], names, block, template))


def _grid(
    launches: Launches,
    own: Sequence[Launch],
    names: Mapping[str, int | None],
    block: Sequence[Axis],
    template: Sequence[str],
    arguments: Sequence[CudaArgument],
) -> tuple[str, ...]:
    """Return the blocks along each axis of the first launch; () where one rests on more than the kernel's arguments and block."""
    if not own:
        return ()
    launch = own[0]
    given = _host_names(launch, names, block, template)
    for argument, words in zip(arguments, launch.arguments, strict=False):
        if argument.kind == "integer" and len(words) == 1 and is_word(words[0]):
            given[words[0]] = argument.name
    for axis, name in zip("xyz", BLOCK, strict=True):  # block.x where block is a dim3
        if block["xyz".index(axis)].is_free:
            given[f"block.{axis}"] = name
    grid = [launches.resolve(launch.scope, _with_axes(words, launch), given) for words in launch.grid]
    return tuple(each for each in grid if each) if all(grid) else ()


def _with_axes(words: Sequence[str], launch: Launch) -> list[str]:
    """Return tokens with `threads.x` as one, where `threads` is what the launch gives as its block."""
    out: list[str] = []
    at = 0
    while at < len(words):
        if at + 2 < len(words) and words[at + 1] == "." and words[at + 2] in ("x", "y", "z") and words[at] == launch.block_name:
            out.append(f"block.{words[at + 2]}")
            at += 3
        else:
            out.append(words[at])
            at += 1
    return out


def _declared(name: str, code: str) -> bool:
    """Return whether the file gives a name its meaning: a variable, a function or a type."""
    word = re.escape(name)
    declared = (
        rf"\b[\w>*&]+[\s*&]+{word}\s*(?:=|;|\[|\(|,|\{{)|\b\w+\s+{word}\s*\)|\b(?:struct|enum|using|class|typename)\s+{word}\b"
    )
    return re.search(declared, re.sub(r"\b(?:return|else|case|goto)\b", ";", code)) is not None
