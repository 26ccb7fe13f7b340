"""`__global__` functions of a CUDA C++ file, read from its text: nothing is compiled.

Read are the functions with their arguments and template parameters, macros that are numbers, and names that look tuned, are used
and are declared nowhere in the file: those a tuner must define, as Kernel Tuner's kernels want it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MAX_FILE_BYTES = 2 << 20
MAX_FUNCTIONS = 200
MAX_NESTING = 200
INTEGERS = {
    "char": "i1", "signed char": "i1", "unsigned char": "u1", "short": "i2", "unsigned short": "u2", "int": "i4", "signed": "i4",
    "signed int": "i4", "unsigned": "u4", "unsigned int": "u4", "long": "i8", "unsigned long": "u8", "long long": "i8",
    "unsigned long long": "u8", "int8_t": "i1", "uint8_t": "u1", "int16_t": "i2", "uint16_t": "u2", "int32_t": "i4",
    "uint32_t": "u4", "int64_t": "i8", "uint64_t": "u8", "size_t": "u8", "ptrdiff_t": "i8", "uint": "u4", "bool": "b1"}
NUMBERS = {"float": "f4", "double": "f8", "__half": "f2", "half": "f2"}
C_TYPES = {"fp16": "__half", "bf16": "__nv_bfloat16", "fp32": "float", "fp8": "__nv_fp8_e4m3"}
BLOCK = ("block_size_x", "block_size_y", "block_size_z")        # threads of a block, as Kernel Tuner names them
_QUALIFIERS = re.compile(r"\b(?:const|volatile|__restrict__|__restrict|restrict|__grid_constant__|struct|register)\b")
_GLOBAL = re.compile(r"\b__global__\b")
_BOUNDS = re.compile(r"__launch_bounds__\s*\(")
_TEMPLATE = re.compile(r"\btemplate\s*<")
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)[ \t]+\(?[ \t]*(-?\d+)[uUlL]*[ \t]*\)?[ \t]*$", re.MULTILINE)
_GUARD = re.compile(r"^[ \t]*#[ \t]*ifndef[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
_WORD = re.compile(r"(?<![\w.#\":])(?!__)[A-Za-z_]\w*(?!\w|\s*::)")
_CALLED = re.compile(r"\b([A-Za-z_]\w*)\s*(?:<[^;<>]*>\s*)?\(")
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(?!if|elif).*$", re.MULTILINE)
# names that a tuner gives a meaning to: Kernel Tuner's, and those that people write
TUNED = re.compile(r"block_size(?:_[xyz])?$|tile_size(?:_[xyz])?$"
                   r"|[A-Z_]*(?:BLOCK|TILE|CHUNK|UNROLL|VEC|STAGES|THREADS|ITEMS_PER|PER_THREAD)[A-Z_0-9]*$|work_per_thread|use_\w+$|[BTW][MNK]$|loop_unroll_factor|read_only$|reuse_|vector$")
_BUILT_IN = {"blockIdx", "blockDim", "threadIdx", "gridDim", "warpSize", "__CUDA_ARCH__"}


class TextRefused(ValueError):
    """A file that cannot be read as CUDA C++; the text says why."""


@dataclass(frozen=True)
class CudaArgument:
    """One argument of a function: `type` without qualifiers ("float", "T", "long long"), `pointer` for an address.

    scalar   NumPy's name of the type of a number ("i4", "f4"); "" of a pointer, a struct and a template's type
    written  whether the function stores through it, as far as its own text shows
    """

    name: str
    type: str
    pointer: bool
    scalar: str = ""
    written: bool = False

    @property
    def kind(self) -> str:
        if self.pointer:
            return "index" if self.type in INTEGERS and INTEGERS[self.type] in ("i4", "i8") else "pointer"
        return "integer" if self.scalar[:1] in ("i", "u", "b") else "number" if self.scalar else "struct"


@dataclass(frozen=True)
class TemplateParam:
    """`type` is "typename" for a type, else the type of a value; `default` as written, "" for none."""

    name: str
    type: str
    default: str = ""

    @property
    def is_type(self) -> bool:
        return self.type in ("typename", "class")


@dataclass(frozen=True)
class CudaFunction:
    """One `__global__` function.

    template   its template parameters in order; () of a plain function
    undefined  names that it uses, that look tuned, and that nothing in the file declares
    uses       all names of its text
    threads    of `__launch_bounds__`, where that is a number
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


@dataclass(frozen=True)
class CudaText:
    """defines: macro → number; guarded: those of them that stand under `#ifndef`, so that a compiler's -D holds."""

    functions: tuple[CudaFunction, ...]
    defines: dict[str, int] = field(default_factory=dict)
    guarded: frozenset[str] = frozenset()


def read_file(path: Path) -> tuple[str, CudaText]:
    """Return the text of a .cu file and what it holds. Raises TextRefused."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise TextRefused(f"{path.name}: more than {MAX_FILE_BYTES:,} bytes")
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise TextRefused(f"{path}: {getattr(error, 'strerror', None) or 'no text'}") from error
    return text, read_text(text)


def read_text(text: str) -> CudaText:
    """Return the functions and macros of a text. Raises TextRefused."""
    if len(text) > MAX_FILE_BYTES:
        raise TextRefused(f"{len(text):,} characters; at most {MAX_FILE_BYTES:,}")
    bare = without_comments(text)
    defines = {match[1]: int(match[2]) for match in _DEFINE.finditer(bare)}
    guarded = frozenset(match[1] for match in _GUARD.finditer(bare)) & defines.keys()
    return CudaText(tuple(_functions(bare, defines)), defines, guarded)


def without_comments(text: str) -> str:
    """Return the text with comments and what stands in quotes as blanks, lines kept."""
    out: list[str] = []
    at, size = 0, len(text)
    while at < size:
        two = text[at:at + 2]
        if two == "//":
            end = text.find("\n", at)
        elif two == "/*":
            end = text.find("*/", at + 2)
            end = end if end < 0 else end + 2
        elif text[at] == '"':
            end = at + 1
            while end < size and text[end] not in '"\n':
                end += 2 if text[end] == "\\" else 1
            end = min(end + 1, size)
            out.append('"' + "".join("\n" if each == "\n" else " " for each in text[at + 1:end - 1]) + text[end - 1:end])
            at = end
            continue
        else:
            out.append(text[at])
            at += 1
            continue
        end = size if end < 0 else end
        out.append("".join("\n" if each == "\n" else " " for each in text[at:end]))
        at = end
    return "".join(out)


def without_host_code(text: str) -> str:
    """Return the text without functions of the host, which NVRTC refuses; lines stay where they are.

    Left out are definitions at the top of the file and in its namespaces that are neither __global__ nor __device__.
    """
    bare, out = without_comments(text), list(text)
    at = begin = 0
    while at < len(bare):
        char = bare[at]
        if char == "\n" and bare[begin:at].lstrip().startswith("#") and not bare[begin:at].rstrip().endswith("\\"):
            begin = at + 1
        elif char in ";}":
            if _VARIABLE.search(bare[begin:at]):
                out[begin:at] = [each if each == "\n" else " " for each in out[begin:at]]
            begin = at + 1
        elif char == "{":
            head = bare[begin:at]
            if _SCOPE.search(head):                          # what lies inside is looked at in its turn
                begin = at + 1
            else:
                _, after = _enclosed(bare, at, "{}")
                if _FUNCTION.search(head) and not _OF_DEVICE.search(head):
                    first = begin + len(head) - len(head.lstrip())
                    out[first:after] = [each if each == "\n" else " " for each in out[first:after]]
                at = begin = after
                continue
        at += 1
    return "".join(out)


_SCOPE = re.compile(r"^\s*(?:inline\s+)?(?:namespace\b[^(]*|extern\s*\"\s*C?\s*\"\s*)$")
_FUNCTION = re.compile(r"\)\s*(?:const|noexcept|override)?\s*$")
_VARIABLE = re.compile(r"^\s*(?!typedef|using|struct|class|enum|union|template|const|return|namespace|__)(?:(?:static|extern)\s+)?"
                       r"[\w:]+[\s*]+\w+\s*(?:=[^;={]*)?$")
_OF_DEVICE = re.compile(r"__(?:global|device)__|\bconstexpr\b|^\s*#|=\s*$|\b[A-Z_]*(?:DEVICE|HOST)[A-Z_]*\b")


def as_macro(value: Any) -> str:
    """Return a parameter's value as a macro's text."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def without_defines(text: str, names: frozenset[str]) -> str:
    """Return the text without `#define NAME …` of the names, which the compiler is given instead; lines stay where they are."""
    if not names:
        return text
    lines = text.split("\n")
    for at, line in enumerate(lines):
        words = line.replace("#", "# ", 1).split() if line.lstrip().startswith("#") else []
        if words[:2] == ["#", "define"] and len(words) > 2 and words[2] in names:
            lines[at] = ""
    return "\n".join(lines)


def _functions(text: str, defines: dict[str, int]) -> Iterator[CudaFunction]:
    for found, match in enumerate(_GLOBAL.finditer(text)):
        if found == MAX_FUNCTIONS:
            raise TextRefused(f"more than {MAX_FUNCTIONS} __global__ functions")
        head, threads = match.end(), None
        if bounds := _BOUNDS.search(text, head, head + 400):
            inside, after = _enclosed(text, bounds.end() - 1, "()")
            if not re.search(r"[;{}]", text[head:bounds.start()]):
                first = inside.split(",")[0].strip()
                threads = int(first) if first.isdecimal() else defines.get(first)
                text_after = text[head:bounds.start()] + " " * (after - bounds.start()) + text[after:after + 4000]
            else:
                text_after = text[head:head + 4000]
        else:
            text_after = text[head:head + 4000]
        called = re.match(r"[^;{}()]*?\b([A-Za-z_]\w*)\s*\(", text_after)
        if called is None:
            continue
        arguments_text, after = _enclosed(text, head + called.end() - 1, "()")
        opens = re.compile(r"\s*\{").match(text, after)
        if opens is None:                                   # a declaration
            continue
        body, _ = _enclosed(text, opens.end() - 1, "{}")
        template = _template_before(text, match.start())
        yield _function(called[1], text.count("\n", 0, match.start()) + 1, arguments_text, body, template, threads, text, defines)


def _function(name: str, line: int, arguments_text: str, body: str, template: tuple[TemplateParam, ...], threads: int | None,
              text: str, defines: dict[str, int]) -> CudaFunction:
    arguments = tuple(_argument(part, body) for part in _split(arguments_text) if part.strip() not in ("", "void"))
    used = frozenset(_WORD.findall(_DIRECTIVE.sub("", body))) | frozenset(_unrolled(body))
    known = {each.name for each in arguments} | {each.name for each in template} | defines.keys() | _BUILT_IN
    known |= set(_CALLED.findall(body))
    undefined = tuple(sorted(each for each in used - known if TUNED.match(each) and not _declared(each, text)))
    return CudaFunction(name, line, arguments, template, undefined, used, threads,
                        dynamic_shared=re.search(r"\bextern\b[^;]*__shared__", body) is not None,
                        loops=re.search(r"\b(?:for|while)\b", body) is not None)


def _unrolled(body: str) -> list[str]:
    """Return the names in `#pragma unroll NAME`: macros that are replaced there too."""
    return re.findall(r"#\s*pragma\s+unroll\s*\(?\s*([A-Za-z_]\w*)", body)


def _declared(name: str, text: str) -> bool:
    """Return whether the file gives a name its meaning: a macro, a variable, a function or a type."""
    word = re.escape(name)
    declared = rf"\b[\w>*&]+[\s*&]+{word}\s*(?:=|;|\[|\(|,|\{{)|\b(?:struct|enum|using|class)\s+{word}\b"
    return re.search(rf"#\s*define\s+{word}\b|{declared}",
                     re.sub(r"\b(?:return|else|case|goto)\b", ";", text)) is not None


def _argument(text: str, body: str) -> CudaArgument:
    text = text.split("=")[0]
    pointer = "*" in text or "[" in text
    words = _QUALIFIERS.sub(" ", re.sub(r"\[[^\]]*\]|[*&]", " ", text)).split()
    name = words[-1] if words else "?"
    kind = " ".join(words[:-1]) or "int"
    kind = kind.removesuffix(" int") if kind not in INTEGERS and kind.removesuffix(" int") in INTEGERS else kind
    scalar = "" if pointer else INTEGERS.get(kind) or NUMBERS.get(kind) or ""
    written = pointer and re.search(r"\bconst\b", text.split("*")[0]) is None and _is_written(name, body)
    return CudaArgument(name, kind, pointer, scalar, written)


def _is_written(name: str, body: str) -> bool:
    word = re.escape(name)
    stored = re.search(rf"(?<![\w.]){word}\s*\[[^;=]*\]\s*(?:\.\w+\s*)?(?:[-+*/|&^]|<<|>>)?=(?!=)|\*\s*\(?\s*{word}\b[^;=]*\)?\s*"
                       rf"(?:[-+*/|&^]|<<|>>)?=(?!=)|\batomic\w+\s*\(\s*&?\s*\(?\s*{word}\b|\bstore\w*\s*\(\s*&?\s*{word}\b", body)
    aliased = re.search(rf"(?:reinterpret_cast\s*<[^;>]*>\s*\(\s*&?|=\s*&?)\s*{word}\b\s*[\[;+)]", body)
    return stored is not None or (aliased is not None and re.search(rf"=\s*{word}\s*\[", body) is None)


def _template_before(text: str, at: int) -> tuple[TemplateParam, ...]:
    """Return the parameters of the `template <…>` that ends just before `at`."""
    begun = max(text.rfind(";", 0, at), text.rfind("}", 0, at), 0)
    found = None
    for match in _TEMPLATE.finditer(text, begun, at):
        found = match
    if found is None:
        return ()
    inside, _ = _enclosed(text, found.end() - 1, "<>")
    params = []
    for part in _split(inside):
        declared, _, default = part.partition("=")
        words = declared.replace("...", " ").split()
        if len(words) >= 2:
            params.append(TemplateParam(words[-1], " ".join(words[:-1]), default.strip()))
    return tuple(params)


def _enclosed(text: str, opening: int, pair: str) -> tuple[str, int]:
    """Return what stands between the bracket at `opening` and its partner, and the place after that. Raises TextRefused."""
    depth = 0
    for at in range(opening, len(text)):
        if text[at] == pair[0]:
            depth += 1
        elif text[at] == pair[1]:
            depth -= 1
            if depth == 0:
                return text[opening + 1:at], at + 1
        if depth > MAX_NESTING:
            break
    raise TextRefused(f"line {text.count(chr(10), 0, opening) + 1}: the {pair[0]} has no partner")


def _split(text: str) -> list[str]:
    """Return the parts between commas that stand in no bracket."""
    parts, depth, begin = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "(<[{") - (char in ")>]}")
        if char == "," and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
    return [*parts, text[begin:]]
