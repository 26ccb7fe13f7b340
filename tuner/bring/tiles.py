"""Which sizes a kernel steps by.

A block that a program's number or a loop multiplies can be any size; one that is only a range must cover what it ranges over.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.bring.uses import dotted

_NUMBERS = ("program_id", "num_programs")
_STEPPING = ("cdiv", "advance")
_EXTENTS = {"arange": slice(0, 2), "zeros": slice(0, 1), "full": slice(0, 1), "make_block_ptr": slice(4, 5),
            "make_tensor_descriptor": slice(3, 4), "reshape": slice(1, 9), "broadcast_to": slice(1, 9)}
_ARITHMETIC = (ast.Name, ast.BinOp, ast.operator, ast.Constant, ast.expr_context)
_DEPTH = 4


@dataclass(frozen=True)
class Steps:
    """Of one function: arguments that it `moves` by, extents of its tiles (`ranges`), and what it looks at as a flag.

    `tests` has the first value that one is compared with, False of one that is only true or not; `loops` what a loop steps by;
    `divides` what is moved by only as a divisor: `head // groups`; `counted` blocks of which an input holds an element each.
    """

    moves: frozenset[str]
    ranges: frozenset[str]
    tests: tuple[tuple[str, Any], ...] = ()
    loops: frozenset[str] = frozenset()
    divides: frozenset[str] = frozenset()
    counted: frozenset[str] = frozenset()


NO_STEPS = Steps(frozenset(), frozenset())


def steps_of(functions: Mapping[str, ast.FunctionDef]) -> dict[str, Steps]:
    """Return name → steps, those of functions that it calls included."""
    steps: dict[str, Steps] = {}
    for _ in range(_DEPTH):
        before, steps = steps, {name: _steps(function, steps, functions) for name, function in functions.items()}
        if steps == before:
            break
    return steps


def _steps(function: ast.FunctionDef, known: Mapping[str, Steps], functions: Mapping[str, ast.FunctionDef]) -> Steps:
    names = {argument.arg for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    assigned = _assignments(function)
    numbered = _numbered(function, assigned)
    moves, ranges, loops, divisors = set[str](), set[str](), set[str](), set[str]()
    counted = _counted(function, assigned, numbered)
    for node in ast.walk(function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            if _names(node.left) & numbered or _counts(node.left):
                moves |= _names(node.right) - _divisors(node.right)
            if _names(node.right) & numbered or _counts(node.right):
                moves |= _names(node.left) - _divisors(node.left)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Mod):
            divisors |= _names(node.right)
        elif isinstance(node, ast.AugAssign):
            moves |= _names(node.value)
            loops |= _names(node.value)
        elif isinstance(node, ast.Call):
            last = dotted(node.func).rpartition(".")[2]
            if last in ("range", "static_range") and len(node.args) == 3:
                moves |= _names(node.args[2])
                loops |= _names(node.args[2])
            elif last in _STEPPING:
                moves |= set[str]().union(*(_names(argument) for argument in node.args[1:]))
                loops |= set[str]().union(*(_names(argument) for argument in node.args[1:]))
            elif last in _EXTENTS:
                span = _EXTENTS[last]
                extents = [*node.args[span], *(pair.value for pair in node.keywords if pair.arg in ("shape", "block_shape"))]
                ranges |= set[str]().union(*(_names(extent) for extent in extents))
            elif last in known:
                arguments = dict(zip((argument.arg for argument in functions[last].args.args), node.args, strict=False))
                arguments |= {pair.arg: pair.value for pair in node.keywords if pair.arg}
                moves |= set[str]().union(*(_names(value) for name, value in arguments.items() if name in known[last].moves))
                ranges |= set[str]().union(*(_names(value) for name, value in arguments.items() if name in known[last].ranges))
                loops |= set[str]().union(*(_names(value) for name, value in arguments.items() if name in known[last].loops))
                divisors |= set[str]().union(*(_names(value) for name, value in arguments.items() if name in known[last].divides))
                counted |= set[str]().union(*(_names(value) for name, value in arguments.items() if name in known[last].counted))
    moves, divisors = _behind(moves, assigned), _behind(divisors, assigned)
    return Steps(frozenset((moves | divisors) & names), frozenset(_behind(ranges, assigned) & names),
                 tuple(_tests(function, names)), frozenset(_behind(loops, assigned) & names), frozenset((divisors - moves) & names),
                 frozenset(counted & names))


def _counted(function: ast.FunctionDef, assigned: Mapping[str, list[ast.expr]], numbered: set[str]) -> set[str]:
    """Return blocks whose number an input's address is: `load(scales + program)` beside `program * BLOCK`, `scales += 1` a step.

    Of a tensor that is only read: its extent is that of the host's own blocks, in whatever memory a caller hands over.
    """
    reads, writes = [], set[str]()
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and node.args:
            last = dotted(node.func).rpartition(".")[2]
            if last == "load":
                reads.append(_terms(node.args[0], assigned, 0))
            elif last == "store" or last.startswith("atomic_"):
                writes |= _terms(node.args[0], assigned, 0)
    pointers = {argument.arg for argument in function.args.args}
    terms = set[str]().union(*(names for names in reads if not names & writes & pointers))
    counted: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            for operand, other in ((node.left, node.right), (node.right, node.left)):
                if isinstance(operand, ast.Name) and operand.id in terms & numbered:
                    counted |= _names(other)
        elif isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and len(node.iter.args) == 3 and any(
                isinstance(part, ast.AugAssign) and isinstance(part.value, ast.Constant) and part.value.value == 1
                and _names(part.target) & terms for part in ast.walk(node)):
            counted |= _names(node.iter.args[2])
    return counted


def _terms(node: ast.expr, assigned: Mapping[str, list[ast.expr]], depth: int) -> set[str]:
    """Return the names that an address is a sum of, through what was assigned to them."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        return _terms(node.left, assigned, depth) | _terms(node.right, assigned, depth)
    if not isinstance(node, ast.Name):
        return set()
    behind = assigned.get(node.id, ()) if depth < _DEPTH else ()
    return {node.id}.union(*(_terms(expression, assigned, depth + 1) for expression in behind))


def _tests(function: ast.FunctionDef, names: set[str]) -> Iterator[tuple[str, Any]]:
    """Yield (argument, value): what a condition compares it with, False where it is a condition itself."""
    ids: set[str] = set()
    for node in ast.walk(function):
        conditions = [node.test] if isinstance(node, ast.If | ast.IfExp | ast.While) else \
            node.values if isinstance(node, ast.BoolOp) else [node.operand] if isinstance(node, ast.UnaryOp) else \
            [node] if isinstance(node, ast.Compare) else []
        for each in conditions:
            left = each.left if isinstance(each, ast.Compare) else each
            if not isinstance(left, ast.Name) or left.id not in names or left.id in ids:
                continue
            if not isinstance(each, ast.Compare):
                ids.add(left.id)
                yield left.id, False
            elif isinstance(each.comparators[0], ast.Constant) and isinstance(each.ops[0], ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
                ids.add(left.id)
                yield left.id, each.comparators[0].value


def _assignments(function: ast.FunctionDef) -> dict[str, list[ast.expr]]:
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name):
                        assigned.setdefault(name.id, []).append(node.value)
    return assigned


def _numbered(function: ast.FunctionDef, assigned: Mapping[str, list[ast.expr]]) -> set[str]:
    """Return names that are computed from a program's number, or count a loop."""
    names = {name.id for node in ast.walk(function) if isinstance(node, ast.For) for name in ast.walk(node.target)
             if isinstance(name, ast.Name)}
    for _ in range(8):
        more = {name for name, values in assigned.items() if name not in names
                and any(_counts(value) or _names(value) & names for value in values)}
        if not more:
            break
        names |= more
    return names


def _counts(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Call) and dotted(part.func).rpartition(".")[2] in _NUMBERS for part in ast.walk(node))


def _behind(names: set[str], assigned: Mapping[str, list[ast.expr]]) -> set[str]:
    """Return the names and those that they are products or quotients of: `half: tl.constexpr = BLOCK // 2`."""
    reach = set(names)
    for name in names:
        for value in assigned.get(name, ()):
            if all(isinstance(part, _ARITHMETIC) for part in ast.walk(value)):
                reach |= _names(value)
    return reach


def _divisors(node: ast.AST) -> set[str]:
    """Return the names that a value is divided by: `program * (heads // groups)` steps by heads."""
    return set[str]().union(*(_names(part.right) for part in ast.walk(node)
                              if isinstance(part, ast.BinOp) and isinstance(part.op, ast.FloorDiv | ast.Mod)))


def _names(node: ast.AST) -> set[str]:
    return set(_walk_names(node))


def _walk_names(node: ast.AST) -> Iterator[str]:
    """Yield names in a value, those inside of calls left out but for casts and cdiv."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("to", "cast"):
            yield from _walk_names(node.func.value)
        if dotted(node.func).rpartition(".")[2] in (*_STEPPING, "min", "max", "minimum", "maximum", "constexpr", "cast", "int"):
            for argument in node.args:
                yield from _walk_names(argument)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _walk_names(child)
