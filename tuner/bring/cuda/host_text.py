"""The host's part of a CUDA C++ file for a compiler of the host: what one function needs, its launches told to a recorder.

Kernels keep their heads and lose their bodies: `k<T><<<grid, block>>>(x, n)` becomes a call of the function that tells what it is
given. Functions of the device are left out, and so is all that the host function does not name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from profiles.base.refused import Refused
from tuner.bring.cuda.callers import callers_of, definers_of, with_lambda
from tuner.bring.cuda.host_edits import (
    INCLUDE,
    RECORDED,
    TORCH,
    Parameter,
    cut_device_members,
    fill,
    is_device_only,
    macro_body,
    modern,
    parameters_of,
    tell_kernel,
    with_headers,
    with_launches,
)
from tuner.bring.cuda.instances import instances_of
from tuner.bring.cuda.libraries import stand_ins
from tuner.bring.cuda.variants import Variant, variants_of
from tuner.tuning.cuda.includes import root_of, with_own_headers
from tuner.tuning.cuda.items import Item
from tuner.tuning.cuda.source import Source
from tuner.tuning.cuda.text import read_text
from tuner.tuning.cuda.tokens import Tokens, blank_comments, is_word, join, split_at_commas

_GIVEN = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"]", re.MULTILINE)
# m.def("name", &function), m.def("name", &function<float>), m.impl("name", torch::kCUDA, TORCH_FN(function))
_BOUND = re.compile(r'\.\s*(?:def|impl)\s*\(\s*"(?:\w+::)?(\w+)[^"]*"\s*,\s*(?:[\w:]+\s*,\s*)?'
                    r'(?:(?:TORCH_(?:FN|BOX)|(?:\w+::)?overload_cast<[^;"]*?>|static_cast<[^;"]*?>)\s*\(\s*)?&?\s*'
                    r'(?:\w+::)*(\w+)\s*(?:<[^;()"]*>)?\s*[,)]')
_PLAIN_TYPES = {"float", "double", "int", "unsigned", "char", "short", "long", "bool", "void", "size_t", "const", "struct"}
_OF_LIBRARIES = {"std", "cutlass", "cute", "cub", "thrust", "torch", "at", "c10", "cuda"}
_NO_TYPES = ("static", "inline", "extern", "constexpr", "__host__")
# of a header, whose lines stand in every variant
_GUARD = re.compile(r"^[ \t]*#[ \t]*ifndef[ \t]+(\w+)[ \t]*\n\s*#[ \t]*define[ \t]+\1[ \t]*$", re.MULTILINE)
_SETTER = "template <class T> void ridgepoint_set(T &made, PyObject *given) {{ {} }}"
_ARG = re.compile(r'\barg\s*\(\s*"(\w+)"\s*\)\s*=\s*([^,();]+(?:\(\))?)')


@dataclass(frozen=True)
class HostPart:
    """text         to compile; `plain` the same without variants, "" where it has none
    overloads       the parameters of the function that is called, of each overload
    uses_torch      whether it needs torch's headers
    left_out        headers that were left out
    kernels         names of those that the function may launch
    variants        (parameter, value) of each variant, in order; the file as it is stands before them
    """

    text: str
    plain: str
    overloads: tuple[tuple[Parameter, ...], ...]
    uses_torch: bool
    left_out: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    variants: tuple[tuple[str, int], ...] = ()


def host_part(text: str, folder: Path, name: str, function: str, fields: Sequence[str] = (),
              numbers: Mapping[str, int] | None = None) -> HostPart:
    """Return what is compiled to call `function` of a file, or of another one of its repository that calls the file's own.

    fields   names by which the call gives fields of structs
    numbers  macros of a build, and template parameters of the function, with their values
    Raises Refused where there is no such function.
    """
    numbers = numbers or {}
    source, hosts = _read(text, folder, name, function, numbers)
    bare = blank_comments(source.text, keep_texts=True)
    reached = _reached(source, hosts)
    kernels = [item.names[0] for index, item in enumerate(source.items) if index in reached and item.kind == "kernel"]
    body, scopes = _keep(source, reached)
    code, left_out, uses_torch = with_headers(with_launches(body))
    words = Tokens(blank_comments(code)).words
    before = [f'#include "{TORCH if uses_torch else "ridgepoint_record.h"}"',
              *(["#include <torch/nn/functional.h>"] if uses_torch and "nn" in words else []),
              *(f"namespace {scope} {{}}" for scope in scopes),
              *stand_ins(words, {*source.of_name, *source.macros}),
              _SETTER.format(" ".join(f"RIDGEPOINT_FIELD({field})" for field in fields))]
    added = _added(source, hosts, f"{function}|0", numbers)
    plain = "\n".join([*before, f'#line 1 "{name}"', code, '#include "ridgepoint_runtime.h"', *added, ""])
    launching = [index for index in sorted(reached) if source.items[index].kind == "function"]
    variants = variants_of(source, read_text(source.text, others=True), kernels, launching)
    # each in a namespace of its own, the file as it is as well: else a kernel of a type of CUDA's is found in two of them
    every = [Variant("", 0, source.text), *variants]
    pieces = [_in_namespace(variant, bare, function, number, name, numbers) for number, variant in enumerate(every)]
    headers = dict.fromkeys(match[1] for match in _GIVEN.finditer(code))
    whole = "\n".join([*before, *(f"#if __has_include(<{header}>)\n#include <{header}>\n#endif" for header in headers),
                       '#include "ridgepoint_runtime.h"', *pieces, ""])
    return HostPart(whole if variants else plain, plain if variants else "",
                    tuple(_with_defaults(bare, function, tuple(parameters_of(source, host))) for host in hosts), uses_torch,
                    tuple(dict.fromkeys(left_out)), tuple(dict.fromkeys(kernels)),
                    tuple((variant.name, variant.value) for variant in variants))


def _read(text: str, folder: Path, name: str, function: str, numbers: Mapping[str, int]) -> tuple[Source, list[Item]]:
    """Return the text that holds a host function, and the function's items. Raises Refused where there is none."""
    def whole(more: str) -> Source:
        return Source(with_lambda(with_own_headers(f"{text}{more}", folder, name), function))

    root, more, source = root_of(folder.resolve()), "", whole("")
    hosts = _wanted(source, blank_comments(source.text, keep_texts=True), function)
    own = host_functions(source)
    for caller in () if hosts else callers_of(folder, name, function, _names_of_hosts(source)):
        more = f'\n#include "{caller.relative_to(root)}"\n'
        source = whole(more)
        if hosts := _wanted(source, blank_comments(source.text, keep_texts=True), function):
            break
    if not hosts:
        raise Refused(f"{name} has no host function {function}; it has {', '.join(own[:12]) or 'none that launches a kernel'}")
    if (missing := _only_declared(source, hosts)) and (others := definers_of(folder, name, missing)):
        more += "".join(f'#include "{path.relative_to(root)}"\n' for path in others if f'"{path.relative_to(root)}"' not in more)
        with suppress(Refused):
            other = whole(f"\n{more}")
            source, hosts = other, _wanted(other, blank_comments(other.text, keep_texts=True), function)
    names = {head[-1] for item in hosts if item.template >= 0 for head in split_at_commas(source.template_of(item)) if head}
    if defined := "".join(f"#define {macro} {int(value)}\n" for macro, value in numbers.items() if macro not in names):
        again = Source(f'{defined}#line 1 "{name}"\n{source.text}')
        return again, _wanted(again, blank_comments(again.text, keep_texts=True), function)
    return source, hosts


def _only_declared(source: Source, wanted: Sequence[Item]) -> list[str]:
    """Return the functions and the classes with members that a host needs and the text does not define."""
    missing = []
    for index in sorted(_reached(source, wanted)):
        item = source.items[index]
        name = item.names[0] if item.names else ""
        if item.kind in ("function", "kernel"):
            is_open = item.body < 0 and not any(other.body >= 0 for other in source.of_name[name] if other.kind == item.kind)
        else:
            is_open = item.kind == "type" and _has_open_members(source, item) and f"{name} ::" not in " ".join(source.words)
        if is_open:
            missing.append(name)
    return list(dict.fromkeys(missing))


def _has_open_members(source: Source, item: Item) -> bool:
    """Return whether a class declares functions without a body."""
    words = source.words
    index = next((place for place in range(item.first, item.last) if words[place] == "{"), item.last) + 1
    while index < item.last:
        if words[index] == ")" and (words[index + 1] == ";" or words[index + 1:index + 3] == ["const", ";"]):
            return True
        index = source.closing.get(index, index) + 1 if words[index] == "{" else index + 1
    return False


def _wanted(source: Source, bare: str, function: str) -> list[Item]:
    """Return the functions of a name, or those that a binding calls by it."""
    return _functions_of(source, function) or _functions_of(source, dict(_BOUND.findall(bare)).get(function, ""))


def _in_namespace(variant: Variant, bare: str, function: str, number: int, name: str, numbers: Mapping[str, int]) -> str:
    """Return a variant's code in a namespace of its own, its headers left to who puts it behind them."""
    source = Source(variant.text)
    hosts = _wanted(source, bare, function)
    body, _ = _keep(source, _reached(source, hosts))
    code = modern(INCLUDE.sub("", with_launches(body)))
    code = re.sub(r'extern\s+"C"', 'extern "C++"', code)         # of C there is one function of a name
    added = _added(source, hosts, f"{function}|{number}", numbers)
    opened = sorted({item.scope.partition("::")[0] for item in source.items} & _OF_LIBRARIES)      # whose names are still found
    return "\n".join([*(f"namespace {each} {{}}" for each in opened), f"namespace ridgepoint_{number} {{",
                      *(f"namespace {each} {{ using namespace ::{each}; }}" for each in opened),
                      f'#line 1 "{name}"', code, *added, "}",
                      *(f"#undef {macro}" for macro in dict.fromkeys([*variant.macros, *_GUARD.findall(code)]))])


def _with_defaults(bare: str, function: str, parameters: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
    """Return the parameters with the defaults that a binding gives: `py::arg("eps") = 1e-5`."""
    binding = re.search(rf'\.\s*def\s*\(\s*"{re.escape(function)}"[^;]*;', bare)
    defaults = dict(_ARG.findall(binding[0])) if binding else {}
    return tuple(replace(param, default=param.default or defaults.get(param.name, "").strip()) for param in parameters)


def files_that_call(file: Path) -> list[Path]:
    """Return the C++ files of a repository that call a CUDA C++ file's host functions; [] where it cannot be read."""
    try:
        source = Source(with_own_headers(file.read_text(errors="replace"), file.parent, file.name))
    except Refused:
        return []
    return [caller for caller in callers_of(file.parent, file.name, "", _names_of_hosts(source)) if caller.suffix != ".cu"]


def _names_of_hosts(source: Source) -> list[str]:
    """Return the names of the file's own functions that a host may call."""
    return [item.names[0] for index, item in enumerate(source.items) if item.kind == "function" and item.body >= 0
            and not is_device_only(source, item) and not source.file_of(item.first)]


def host_functions(source: Source) -> list[str]:
    """Return the host functions that launch a kernel, directly or by a macro, in their order."""
    launching = {name for name, macro in source.macros.items() if _has_launch(macro.body)}
    names = []
    for item in source.items:
        if item.kind == "function" and item.body >= 0 and not is_device_only(source, item):
            body = source.body_of(item)
            if _has_launch(body) or launching & set(body):
                names.append(item.names[0])
    return list(dict.fromkeys(names))


def _has_launch(words: Sequence[str]) -> bool:
    return any(words[index:index + 3] == ["<", "<", "<"] for index, word in enumerate(words) if word == "<") or any(
        word.startswith(("cudaLaunchKernel", "cudaLaunchCooperativeKernel")) for word in words)


def _functions_of(source: Source, name: str) -> list[Item]:
    return [item for item in source.of_name.get(name, ()) if item.kind == "function" and item.body >= 0 and item.names[0] == name
            and not is_device_only(source, item)]


def _keep(source: Source, reached: set[int]) -> tuple[str, list[str]]:
    """Return the text without what is not reached and bodies of the device; the namespaces that it uses, which may be missing."""
    out, scopes = list(source.text), []
    for begin, end in source.read.not_taken:
        fill(source, out, begin, end, "")
    for index, item in enumerate(source.items):
        begin, end = source.tokens.places[item.first], source.tokens.end_of(item.last)
        if item.kind == "use_namespace":
            scopes.append("".join(source.words[item.head:item.last]).removeprefix("::"))
        elif index not in reached:
            fill(source, out, begin, end, "")
        elif item.kind == "kernel":
            tell_kernel(source, out, item)
        elif item.kind == "type":
            cut_device_members(source, out, item)
    return "".join(out), [scope for scope in dict.fromkeys(scopes) if re.fullmatch(r"\w+(?:::\w+)*", scope) and scope != "std"]


def _reached(source: Source, wanted: Sequence[Item]) -> set[int]:
    """Return the places of the declarations that the functions name, directly or through others and macros."""
    place = {id(item): index for index, item in enumerate(source.items)}
    reached = {place[id(item)] for item in wanted}
    to_do, named = list(wanted), set[str]()
    to_do += [item for item in source.items if item.kind == "function" and "operator" in item.names and not item.on_device]
    reached |= {place[id(item)] for item in to_do}
    while to_do:
        item = to_do.pop()
        end = item.body if item.kind == "kernel" and item.body >= 0 else item.last + 1
        words = [*source.words[item.first:end], *item.scope.split("::")]
        while words:
            word = words.pop()
            if word in named or not is_word(word) or word in _PLAIN_TYPES:         # a typedef names those that it stands for
                continue
            named.add(word)
            words += macro_body(source, word)
            for other in source.of_name.get(word, ()):
                index = place[id(other)]
                dropped = other.kind in ("instance", "broken") or (
                    other.kind == "function" and is_device_only(source, other)
                    and "constexpr" not in source.words[other.first:other.head])
                if index not in reached and not dropped:
                    reached.add(index)
                    to_do.append(other)
    return reached


def _added(source: Source, wanted: Sequence[Item], name: str, numbers: Mapping[str, int]) -> Iterator[str]:
    """Yield the lines that let Python call each of the functions."""
    for number, item in enumerate(wanted):
        instances = [""]
        if item.template >= 0:
            instances = [f"<{instance}>" for instance in instances_of(source, item, numbers)]
        for instance in instances:
            function = f"&{_class_of(source, item)}{item.names[0]}{instance}"
            declared = [row for row in source.of_name[item.names[0]] if row.kind == "function" and row.names[0] == item.names[0]]
            if len(declared) > 1 and not instance:
                types = ", ".join(parameter.type for parameter in parameters_of(source, item))
                function = f"static_cast<{_result(source, item)} (*)({types})>({function})"
            line = f'static int ridgepoint_added_{number} = ::{RECORDED}::add("{name}", {function});'
            if instance:
                line = line.replace(f"added_{number}", f"added_{number}_{instances.index(instance)}")
            yield f"namespace {item.scope} {{ {line} }}" if item.scope else line


def _class_of(source: Source, item: Item) -> str:
    """Return the class before a function's name, "Knn::"; "" for none. Raises Refused for a member that needs an object."""
    first = item.head
    while first - 2 >= item.first and source.words[first - 1] == "::" and is_word(source.words[first - 2]):
        first -= 2
    named, name = source.words[first:item.head], item.names[0]
    for kind in source.of_name.get(named[-2] if named else "", ()):
        words = source.words[kind.first:kind.last + 1] if kind.kind == "type" else []
        places = [at for at in range(1, len(words) - 1) if words[at] == name and words[at + 1] == "("]
        begins = [max((before for before in range(at) if words[before] in (";", "{", "}", ":")), default=0) for at in places]
        if places and not any("static" in words[begin:at] for begin, at in zip(begins, places, strict=True)):
            raise Refused(f"{name} is a member of {named[-2]} and needs an object: name a function that makes one")
    return "".join(named)


def _result(source: Source, item: Item) -> str:
    end = item.head - 2 * _class_of(source, item).count("::")
    words = [word for word in source.words[item.first:end] if word not in _NO_TYPES]
    return join([word for word in words if not word.startswith('"')])
