"""Pieces of a CUDA C++ text changed for a compiler of the host: bodies of kernels, launches, functions of the GPU, headers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.tuning.cuda import nvrtc
from tuner.tuning.cuda.items import Item
from tuner.tuning.cuda.source import Source
from tuner.tuning.cuda.tokens import Tokens, blank_comments, is_word, join, partners, split_at_commas

TORCH = "ridgepoint_torch.h"
_OF_TORCH = re.compile(r"(?:torch/(?:extension|torch|all|python|library|script|types)\.h|torch/csrc/(?:utils/pybind|stable/).*"
                       r"|ATen/cuda/|ATen/native/cuda/|ATen/cudnn/|c10/cuda/|THC/|pybind11/)")
_TORCH_FOLDERS = ("torch/", "ATen/", "c10/")
USES_TORCH = re.compile(r"\b(?:torch|at|c10)::|\bTORCH_CHECK\b|#[ \t]*include[ \t]*[<\"](?:torch|ATen|c10)/")
# of the device alone, or of libraries that are not called here
_LEFT_OUT = re.compile(r"(?:cub|cuda|thrust|cutlass|cute|nvtx3|nv)/|cooperative_groups|cuda_pipeline|mma\.h|curand|cublas|cudnn"
                       r"|nccl|cusparse|cusolver|cufft|cuda_awbarrier|helper_cuda|hip/|cuda_profiler")
_TYPES_OF_CUTLASS = re.compile(r"cute/.*|cutlass/(?:(?:layout|platform)/)?(?!kernel_launch|device_kernel|cluster_launch)\w+\.h")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"][^\n]*$', re.MULTILINE)
_HOST_NAMED, _DEVICE_NAMED = re.compile(r"\b\w*HOST\w*\b"), re.compile(r"[A-Z0-9_]*DEVICE[A-Z0-9_]*$")
RECORDED = "ridgepoint"
_EARLIER = ((re.compile(r"(?<!device\(\))\.type\(\)\.(is_cuda|is_sparse)\(\)"), r".\1()"),
            (re.compile(r"(?<!device\(\))\.type\(\)\.scalarType\(\)"), ".scalar_type()"),
            (re.compile(r"(?<!device\(\))\.type\(\)(?!\s*\.)"), ".scalar_type()"), (re.compile(r"\.data<"), ".data_ptr<"),
            (re.compile(r"(?<!\()\b__noinline__\b"), "__attribute__((noinline))"),       # no macro: libraries say ((__noinline__))
            # a kernel is launched by its type, which tells what its arguments are
            (re.compile(r"(\bcuda(?:Launch\w*Kernel|LaunchKernel|Func\w+)\s*\(\s*)(?:\((?:const\s+)?void\s*\*\)"
                        r"|reinterpret_cast<(?:const\s+)?void\s*(?:const\s*)?\*>)"), r"\1"))


@dataclass(frozen=True)
class Parameter:
    """One parameter of the host function: `type` as written, `default` its text, "" for none."""

    name: str
    type: str
    default: str = ""


def parameters_of(source: Source, item: Item) -> Iterator[Parameter]:
    """Yield the parameters of a function."""
    for words in split_at_commas(source.arguments_of(item)):
        before, default = (words[:words.index("=")], words[words.index("=") + 1:]) if "=" in words else (words, [])
        named = [index for index, word in enumerate(before) if is_word(word)]
        if before == ["void"] or not before:
            continue
        is_named = len(named) > 1 and named[-1] == len(before) - 1 and before[named[-1] - 1] != "::"
        yield Parameter(before[-1] if is_named else "", join(before[:-1] if is_named else before), join(default))


def is_device_only(source: Source, item: Item) -> bool:
    """Return whether a function is one of the GPU alone, which no host function can call."""
    if not item.on_device:
        return False
    head = source.words[item.first:(item.opening if item.opening >= 0 else item.last) + 1]
    return not any(word == "__host__" or _HOST_NAMED.fullmatch(word) or "__host__" in macro_body(source, word) for word in head)


def macro_body(source: Source, word: str) -> Sequence[str]:
    macro = source.macros.get(word)
    return macro.body if macro is not None else ()


def fill(source: Source, out: list[str], begin: int, end: int, text: str) -> None:
    """Put a text in place of characters; lines and directives of the preprocessor stay."""
    spans = [(first, last) for first, last in source.read.directives if first < end and last > begin]
    position = begin
    for first, last in [*spans, (end, end)]:
        for place in range(position, max(position, min(first, end))):
            if out[place] != "\n":
                out[place] = " "
        position = max(position, last)
    if end > begin and text:
        out[begin] = text + ("\n" if out[begin] == "\n" else " ")


def tell_kernel(source: Source, out: list[str], item: Item) -> None:
    """Let a kernel's body tell what it is given."""
    if item.body < 0:
        return
    names = [parameter.name for parameter in parameters_of(source, item) if parameter.name]
    fields = " ".join(f"RIDGEPOINT_AT({name}, {field})" for name, field in fields_used(source, item, names))
    quoted = ", ".join(f'"{word}"' for word in names)
    note = f'::{RECORDED}::note("{item.names[0]}", __PRETTY_FUNCTION__, {{{quoted}}}{"".join(f", {word}" for word in names)});'
    begin, end = source.tokens.places[item.body] + 1, source.tokens.places[source.closing[item.body]]
    fill(source, out, begin, end, "")
    out[begin - 1] = "{ " + fields + note + " "


def fields_used(source: Source, item: Item, names: Iterable[str]) -> list[tuple[str, str]]:
    """Return the fields of arguments that a kernel's body reads or writes: (argument, field), each once."""
    words, structs = source.body_of(item), set(names)
    pairs = [(words[spot], words[spot + 2]) for spot in range(len(words) - 3) if words[spot + 1] == "." and words[spot] in structs
             and is_word(words[spot + 2]) and words[spot + 3] != "(" and (not spot or words[spot - 1] not in (".", "->"))]
    return list(dict.fromkeys(pairs))


def cut_device_members(source: Source, out: list[str], item: Item) -> None:
    """Take the bodies of a class's functions of the GPU."""
    words, pos = source.words, item.first
    while pos <= item.last:
        is_device = words[pos] == "__device__" or _DEVICE_NAMED.match(words[pos]) or "__device__" in macro_body(source, words[pos])
        if not is_device:
            pos += 1
            continue
        first = pos
        while first > item.first and words[first - 1] not in (";", "{", "}", ":"):
            first -= 1
        opening = next((place for place in range(pos, item.last) if words[place] in ("(", ";", "{", "=")), item.last)
        if words[opening] != "(" or opening not in source.closing:
            pos = opening + 1
            continue
        after = source.closing[opening] + 1
        if words[opening - 1] == "operator" and words[after] == "(":            # operator()(…)
            after = source.closing.get(after, after) + 1
        body = next((place for place in range(after, item.last + 1) if words[place] in ("{", ";", ":")), item.last)
        head = words[first:opening]
        on_host = any(word in ("__host__", "constexpr") or _HOST_NAMED.fullmatch(word) or "__host__" in macro_body(source, word)
                      for word in head)
        if words[body] == "{" and not on_host and body in source.closing:
            begin, end = source.tokens.places[body] + 1, source.tokens.places[source.closing[body]]
            fill(source, out, begin, end, "")
            out[begin - 1] = "{ __builtin_trap(); "
        pos = source.closing.get(body, body) + 1 if words[body] == "{" else body + 1


def with_launches(text: str) -> str:
    """Return the text with each `k<T><<<grid, block>>>(x)` as `(at(grid, block), k<T>(x))`."""
    tokens = Tokens(blank_comments(text, keep_texts=True))
    words, places, edits = tokens.words, tokens.places, list[tuple[int, int, str]]()
    closing = partners(words)
    back = {end: begin for begin, end in closing.items()}
    for pos in range(1, len(words) - 6):
        if words[pos:pos + 3] != ["<", "<", "<"]:             # also as `<< <…>> >`: three of them stand side by side nowhere else
            continue
        end, depth = pos + 3, 0
        while end + 3 < len(words):
            depth += (words[end] in "([{") - (words[end] in ")]}")
            if depth < 0 or words[end] == ";" or (depth == 0 and words[end:end + 4] == [">", ">", ">", "("]):
                break
            end += 1
        if words[end] != ">" or end + 3 not in closing:
            continue
        begin = _callee(words, pos - 1, back)
        first, last = tokens.end_of(pos + 2), places[end]
        edits += [(places[begin], places[begin], f"(::{RECORDED}::at("),
                  (places[begin], first, f"{text[first:last]}), {text[places[begin]:places[pos]]}"),
                  (last, tokens.end_of(end + 2), ""),
                  (tokens.end_of(closing[end + 3]), tokens.end_of(closing[end + 3]), ")")]
        edits.append((first, last, ""))
    return _edited(text, edits)


def _edited(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    out, position = [], 0
    for begin, end, new in sorted(edits, key=lambda each: each[:2]):
        if begin < position:
            continue
        out += [text[position:begin], new]
        position = end
    return "".join([*out, text[position:]])


def _callee(words: Sequence[str], last: int, back: dict[int, int]) -> int:
    """Return where the expression begins that is launched: `a::k<T, 128>`, `kernel`, `(*kernel)`."""
    index = last
    if words[index] == ">":
        depth = 0
        while index > 0:
            depth += (words[index] == ">") - (words[index] == "<")
            if words[index] in (")", "]", "}") and index in back:
                index = back[index]
            index -= 1
            if depth == 0:
                break
    if words[index] in (")", "]") and index in back:
        index = back[index]
        if index and is_word(words[index - 1]) and words[index - 1] not in ("return", "else", "do"):
            index -= 1
    while index >= 2 and words[index - 1] in ("::", ".", "->") and is_word(words[index - 2]):
        index -= 2
    return index - 1 if index and words[index - 1] == "::" else index


def with_headers(text: str) -> tuple[str, list[str], bool]:
    """Return the text with the headers that a host compiler finds, those that are left out, and whether it needs torch's."""
    left_out: list[str] = []
    uses_torch = False

    def look(match: re.Match[str]) -> str:
        nonlocal uses_torch
        name = match[1].strip()
        if name.startswith("ridgepoint_"):
            return match[0]
        if _OF_TORCH.match(name) or name.startswith(_TORCH_FOLDERS):
            uses_torch = True
            return "" if _OF_TORCH.match(name) else match[0]
        if _LEFT_OUT.match(name) and not (_TYPES_OF_CUTLASS.fullmatch(name) and _has_header(name)):
            left_out.append(name)
            return ""
        line = text.count("\n", 0, match.start()) + 2
        return f"#if __has_include(<{name}>)\n#include <{name}>\n#endif\n#line {line}"

    return modern(INCLUDE.sub(look, text)), left_out, uses_torch or bool(USES_TORCH.search(text))


def _has_header(name: str) -> bool:
    return any(Path(folder, name).is_file() for folder in nvrtc.include_folders())


def modern(text: str) -> str:
    """Return the text with the names of today: what earlier versions of PyTorch called `type()`, kernels without a cast."""
    for pattern, new in _EARLIER:
        text = pattern.sub(new, text)
    return text
