"""What an adapter will say of a kernel: its dimensions, its tensors' extents, which of them a block covers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from tuner.bring import spaces
from tuner.bring.recorded import Call, Tensor
from tuner.bring.source import Kernel
from tuner.bring.uses import Argument

STRIDE = re.compile(r"stride|^s[a-z]{1,3}\d?$", re.IGNORECASE)
DEFAULT_SIZE, ALONE_SIZE = 4096, 1 << 22


@dataclass
class Plan:
    """Of one kernel; `dims` with their sizes, `tensors` with the text of each extent, `to_do` for its author."""

    kernel: Kernel
    call: Call | None
    dims: dict[str, int]
    tensors: dict[str, list[str]]       # argument → its extents as text
    to_do: list[str]
    covers: dict[str, str] = field(default_factory=dict)        # constexpr → dimension that one block of it covers

    @property
    def params(self) -> dict[str, tuple[Any, ...]]:
        return {name: values for name, values in spaces.params_of(self.kernel).items() if name not in self.covers}

    @property
    def inputs(self) -> list[str]:
        return [name for name in self.tensors if name != self.out]

    @property
    def out(self) -> str:
        written = [argument.name for argument in self.kernel.arguments if argument.written and argument.name in self.tensors]
        return written[0] if written else next(reversed(self.tensors), "")

    @property
    def is_matmul(self) -> bool:
        return bool(self.kernel.tiles) and len(self.inputs) >= 2 and {"M", "N", "K"} <= self.dims.keys()


def make_plan(kernel: Kernel, call: Call | None) -> Plan:
    """Return the plan: from the recorded call, or from names."""
    pointers = [argument for argument in kernel.arguments if argument.kind in ("pointer", "index", "descriptor")]
    integers = [argument.name for argument in kernel.arguments if argument.kind == "integer" and not STRIDE.search(argument.name)]
    extents = {size for entry in call.arguments.values() if isinstance(entry, Tensor) for size in entry.shape} if call else set()
    fixed = [argument.name for argument in kernel.constexprs if argument.name not in spaces.params_of(kernel)
             and not (call and argument.name in kernel.steps.ranges and call.constexprs.get(argument.name) not in extents)]
    plan = Plan(kernel, call, {}, {}, [])
    if call is not None:
        numbers = {**{name: call.arguments.get(name) for name in integers}, **{name: call.constexprs.get(name) for name in fixed}}
        plan.dims = {name: value for name, value in numbers.items()
                     if isinstance(value, int) and not isinstance(value, bool) and value > 1}
        for argument in pointers:
            tensor = call.arguments.get(argument.name)
            if isinstance(tensor, Tensor):
                plan.tensors[argument.name] = _name_extents(tensor, plan.dims)
        plan.covers = _covers(plan, call)
        _tell_same_sizes(plan, [argument for argument in pointers if argument.name in plan.tensors])
        return plan
    plan.dims = dict.fromkeys(integers, DEFAULT_SIZE if len(integers) > 1 else ALONE_SIZE)
    if not plan.dims:
        plan.dims = {"N": DEFAULT_SIZE}
        plan.to_do.append("dims: no argument of the kernel tells the size; N stands for it")
    names = list(plan.dims)
    for index, argument in enumerate(pointers):
        plan.tensors[argument.name] = names[:2]
        if bool(kernel.tiles) and {"M", "N", "K"} <= plan.dims.keys():
            plan.tensors[argument.name] = (["M", "K"], ["K", "N"], ["M", "N"])[min(index, 2)]
        elif argument.kind == "index":
            plan.tensors[argument.name] = names[:1]
    plan.to_do.append("arguments: the shapes of tensors are guessed from names; a recorded call (record of the client) tells them")
    return plan


def _tell_same_sizes(plan: Plan, pointers: list[Argument]) -> None:
    """Of a matrix product with equal sizes take the extents that are meant; of any other kernel say that they cannot be told."""
    same = [name for name, size in plan.dims.items() if list(plan.dims.values()).count(size) > 1]
    meant = dict(zip((argument.name for argument in pointers), (["M", "K"], ["K", "N"], ["M", "N"]), strict=False))
    if plan.kernel.tiles and len(pointers) == 3 and {"M", "N", "K"} <= plan.dims.keys() and all(
            [plan.dims.get(extent) for extent in meant[name]] == [plan.dims.get(extent) for extent in plan.tensors[name]]
            for name in meant):
        plan.tensors |= meant
    elif same:
        plan.to_do.append(f"arguments: {', '.join(same)} are equal in the recorded call: record one in which they differ, "
                          "or check them")


def _covers(plan: Plan, call: Call) -> dict[str, str]:
    """Return constexprs that are a whole row: the next power of two of a dimension, without a loop, and the grid counts rows."""
    if plan.kernel.loops or plan.kernel.kind != "triton.jit" or plan.kernel.grid:
        return {}
    rows = {extents[0]: plan.dims.get(extents[0]) for extents in plan.tensors.values() if len(extents) > 1}
    if call.grid[:1] not in {(value,) for value in rows.values()}:
        return {}
    dims_by_name = {}
    for argument in plan.kernel.constexprs:
        value = call.constexprs.get(argument.name)
        for dim, size in plan.dims.items():
            if isinstance(value, int) and value > 1 and value == 1 << (size - 1).bit_length() and dim not in rows:
                dims_by_name[argument.name] = dim
    return dims_by_name


def _name_extents(tensor: Tensor, dims: dict[str, int]) -> list[str]:
    """Return each extent as a dimension's name where one has its value, else as a product of one, else as a new dimension."""
    extents = []
    for size in tensor.shape:
        name = next((name for name, value in dims.items() if value == size), "")
        if not name and size > 16:
            name = next((f"{name} * {size // value}" for name, value in dims.items()
                         if 16 < value < size and size % value == 0), "")
            if not name:
                name = next(label for label in (*"RSTUVW", *(f"D{number}" for number in range(100))) if label not in dims)
                dims[name] = size
        extents.append(name or str(size))
    return extents


