"""Scripts of Kernel Tuner, read from their text as they are: `tune_params`, restrictions, kernel, problem size, grid divisors.

The form is that of kernel_tuner.tune_kernel (kernel_name, kernel_source, problem_size, arguments, tune_params, grid_div_x=…,
restrictions=…): https://kerneltuner.github.io/kernel_tuner/stable/user-api.html. Nothing of a script runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from profiles.base.refused import Refused
from tuner.bring.cuda.source import CudaSource, read_kernel
from tuner.bring.literals import UNKNOWN, literal
from tuner.tuning.team.expressions import Expression

POSITIONAL = ("kernel_name", "kernel_source", "problem_size", "arguments", "tune_params")
GRID_DIVISORS = ("grid_div_x", "grid_div_y", "grid_div_z")
MAX_VALUES = 64


def reads(text: str) -> bool:
    """Return whether a file's text is a script of Kernel Tuner."""
    return "tune_kernel" in text and "kernel_tuner" in text


def read_script(path: Path, text: str) -> list[CudaSource]:
    """Return the kernel of every `tune_kernel(…)` call. Raises Refused."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Refused(f"no Python: {error}") from error
    names = _known(tree)
    sources = [_read_call(node, tree, names, path) for node in ast.walk(tree)
               if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "tune_kernel"]
    if not sources:
        raise Refused(f"{path.name} calls no tune_kernel(…)")
    return [source for index, source in enumerate(sources)           # the same kernel tuned twice, for other inputs
            if not any((source.function.name, source.params, source.rules) == (other.function.name, other.params, other.rules)
                       for other in sources[:index])]


def _read_call(call: ast.Call, tree: ast.Module, names: dict[str, Any], path: Path) -> CudaSource:
    arguments = {**dict(zip(POSITIONAL, call.args, strict=False)), **{pair.arg: pair.value for pair in call.keywords if pair.arg}}
    name = literal(arguments["kernel_name"], names) if "kernel_name" in arguments else UNKNOWN
    if not isinstance(name, str):
        raise Refused(f"line {call.lineno}: the kernel's name is computed; write it as text")
    file, text = _kernel_text(arguments.get("kernel_source"), tree, names, path)
    params = _tune_params(arguments.get("tune_params"), tree, names)
    if not params:
        raise Refused(f"line {call.lineno}: tune_params is computed, or names nothing")
    holds, function = read_kernel(text, name, file)
    rules = dict(_rules(arguments.get("restrictions"), tree, params))
    default = {param: values[(len(values) - 1) // 2] for param, values in params.items()}
    script = {"name": name, "problem_size": ast.unparse(arguments["problem_size"]) if "problem_size" in arguments else "",
              "sizes": _problem_size(arguments.get("problem_size"), names),
              "arguments": _arguments(arguments.get("arguments"), tree),
              **{divisor: _divisors(arguments.get(divisor), names) for divisor in GRID_DIVISORS}}
    return CudaSource(file, text, holds, function, params, default, rules, line=call.lineno, tuner=script)


def _known(tree: ast.Module) -> dict[str, Any]:
    """Return the names to which the script gives a value that its text tells, the first one."""
    names: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            value = literal(node.value, names)
            for target in node.targets:
                if isinstance(target, ast.Name) and value is not UNKNOWN:
                    names.setdefault(target.id, value)
                elif isinstance(target, ast.Tuple) and isinstance(value, list) and len(value) == len(target.elts):
                    names.update((element.id, content) for element, content in zip(target.elts, value, strict=True)
                                 if isinstance(element, ast.Name) and element.id not in names)
    return names


def _kernel_text(node: ast.expr | None, tree: ast.Module, names: Mapping[str, Any], script: Path) -> tuple[Path, str]:
    """Return file and text of the kernel: from a text in the script, or from a file that it names beside itself."""
    value = literal(node, names) if node is not None else UNKNOWN
    if value is UNKNOWN and node is not None:               # open("k.cu").read(), `with open(folder + "k.cu")`, a name for one
        files = {part.value.rpartition("/")[2] for part in [*ast.walk(node), *ast.walk(tree)] if isinstance(part, ast.Constant)
                 and isinstance(part.value, str) and part.value.endswith((".cu", ".cuh"))}
        value = files.pop() if len(files) == 1 else UNKNOWN
    if not isinstance(value, str):
        raise Refused("the kernel's source is computed: write it as text, or name a .cu file")
    if "\n" in value or "__global__" in value:
        return script.with_suffix(".cu"), value
    place = script.parent / value
    if script.parent.resolve() not in place.resolve().parents:
        raise Refused(f"{value}: the kernel's file must lie in the script's folder")
    try:
        return place, place.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{place}: {getattr(error, 'strerror', None) or 'no text'}") from error


def _tune_params(node: ast.expr | None, tree: ast.Module, names: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return parameter → values of a dictionary, and of lines `tune_params["name"] = values`."""
    params: dict[str, Any] = {}
    variable = node.id if isinstance(node, ast.Name) else ""
    whole = literal(node, names) if node is not None and not variable else names.get(variable, UNKNOWN)
    if isinstance(whole, dict):
        params |= whole
    for part in ast.walk(tree):
        if isinstance(part, ast.Assign) and len(part.targets) == 1 and isinstance(part.targets[0], ast.Subscript):
            target = part.targets[0]
            key = literal(target.slice)
            if variable and ast.unparse(target.value) == variable and isinstance(key, str):
                params[key] = literal(part.value, names)
        named = isinstance(part, ast.Assign) and variable and ast.unparse(part.targets[0]) == variable
        if named and isinstance(part, ast.Assign) and isinstance(part.value, ast.Call):
            lists = {kw.arg: literal(kw.value, names) for kw in part.value.keywords if kw.arg}      # dict(block_size_x=[…])
            params |= {name: value for name, value in lists.items() if isinstance(value, list)}
    return {name: tuple(dict.fromkeys(values))[:MAX_VALUES] for name, values in params.items()
            if isinstance(values, list | tuple | range) and len(values)}


def _rules(node: ast.expr | None, tree: ast.Module, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (what a person reads, expression) of restrictions: texts, or a lambda over the parameters."""
    if isinstance(node, ast.Name):
        node = next((part.value for part in ast.walk(tree) if isinstance(part, ast.Assign)
                     and any(isinstance(target, ast.Name) and target.id == node.id for target in part.targets)), None)
    for rule in node.elts if isinstance(node, ast.List | ast.Tuple) else [node] if node is not None else []:
        text = literal(rule)
        if isinstance(rule, ast.Lambda) and rule.args.args:
            text = ast.unparse(_Named(rule.args.args[0].arg).visit(rule.body))
        if not isinstance(text, str):
            raise Refused("a restriction is computed: write it as text or as a lambda of the parameters")
        try:
            Expression(text, list(params))
        except ValueError as error:
            raise Refused(f"restriction {error}") from error
        yield text, text


class _Named(ast.NodeTransformer):
    """p["block_size_x"] and p.block_size_x as block_size_x."""

    def __init__(self, parameter: str) -> None:
        self.parameter = parameter

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == self.parameter and isinstance(literal(node.slice), str):
            return ast.Name(literal(node.slice), ast.Load())
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == self.parameter:
            return ast.Name(node.attr, ast.Load())
        return self.generic_visit(node)


def _problem_size(node: ast.expr | None, names: Mapping[str, Any]) -> list[int]:
    value = literal(node, names) if node is not None else UNKNOWN
    sizes = value if isinstance(value, list | tuple) else [value]
    return [size for size in sizes if isinstance(size, int)] if all(isinstance(size, int) for size in sizes) else []


def _arguments(node: ast.expr | None, tree: ast.Module) -> list[str]:
    if isinstance(node, ast.Name):
        node = next((part.value for part in ast.walk(tree) if isinstance(part, ast.Assign)
                     and any(isinstance(target, ast.Name) and target.id == node.id for target in part.targets)), None)
    return [ast.unparse(element)[:60] for element in node.elts] if isinstance(node, ast.List | ast.Tuple) else []


def _divisors(node: ast.expr | None, names: Mapping[str, Any]) -> list[str] | None:
    """Return the names or expressions that divide the problem size; None where Kernel Tuner's own default holds."""
    value = literal(node, names) if node is not None else UNKNOWN
    return [str(element) for element in value] if isinstance(value, list | tuple) else None
