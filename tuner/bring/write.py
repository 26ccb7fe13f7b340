"""`operators init`: the adapter of a kernel, with what can be proposed filled in and what only its author knows left to write."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from profiles.base.refused import Refused
from tuner.bring import references, spaces
from tuner.bring.literals import UNKNOWN
from tuner.bring.plan import STRIDE, Plan, make_plan
from tuner.bring.recorded import DTYPES, Call, Tensor
from tuner.bring.source import Kernel
from tuner.bring.uses import Argument


@dataclass(frozen=True)
class Draft:
    """The text of an adapter, and what its author must look at or write."""

    text: str
    to_do: tuple[str, ...]


def write_adapter(kernel: Kernel, module: str, call: Call | None = None) -> Draft:
    """Return the adapter of a `@triton.jit` or `@triton.autotune` kernel. Raises Refused for another kind."""
    if kernel.kind not in ("triton.jit", "triton.autotune"):
        raise Refused(f"{kernel.name} is a {kernel.kind}: an adapter is written for @triton.jit and @triton.autotune")
    plan = make_plan(kernel, call)
    parts = [f'"""{kernel.name} as an operator of Ridgepoint: `manage.py operators check` says what is left to do."""', "",
             "import torch", "import triton", "", *import_lines(module, [kernel.name]),
             "from tuner.team.adapter import Dim, TritonOperator",
             "", "", *_arguments(plan), "", "", *_reference(plan), "", "", *_operator(plan), ""]
    return Draft("\n".join(parts), tuple(plan.to_do))


def _arguments(plan: Plan) -> list[str]:
    lines = ["def arguments(shape, dtype, device):"]
    lines += [f'    {name} = shape["{name}"]' for name in plan.dims]
    for name, extents in plan.tensors.items():
        tensor = plan.call.arguments[name] if plan.call else None
        shape = f"({', '.join(extents)}{',' if len(extents) == 1 else ''})"
        is_index = any(arg.name == name and arg.kind == "index" for arg in plan.kernel.arguments)
        if (isinstance(tensor, Tensor) and not tensor.is_float) or (tensor is None and is_index):
            plan.to_do.append(f"arguments: what {name} holds (whole numbers)")
            lines.append(f"    {name} = torch.zeros({shape}, dtype=torch.{tensor.dtype if tensor else 'int32'}, device=device)"
                         "      # write what it holds")
        else:
            exact = f"torch.{tensor.dtype}" if isinstance(tensor, Tensor) and tensor.dtype == "float32" else "dtype"
            lines.append(f"    {name} = torch.empty({shape}, dtype={exact}, device=device){_transposed(tensor)}")
    entries = [f'"{arg.name}": {_given(arg, plan)}' for arg in plan.kernel.arguments if arg.kind != "constexpr"]
    params = plan.params
    of_autotuner = {name for config in plan.kernel.configs or () for name in config}
    if plan.kernel.configs is None:             # a list that only running the file tells: what the host does not give is in it
        of_autotuner |= {arg.name for arg in plan.kernel.constexprs
                         if arg.name not in plan.kernel.fixed and arg.default is UNKNOWN}
        plan.to_do.append("arguments: the autotuner's list is computed; "
                          f"{', '.join(sorted(of_autotuner)) or 'nothing'} is taken to be in it")
    for arg in plan.kernel.constexprs:
        if arg.name not in params and arg.name not in of_autotuner:
            value = _constexpr(arg, plan)
            if value is not UNKNOWN:
                entries.append(f'"{arg.name}": {value}')
    return [*lines, "    return {" + ", ".join(entries) + "}"]


def _transposed(tensor: Any) -> str:
    if isinstance(tensor, Tensor) and len(tensor.shape) == 2 and tensor.stride[0] == 1 and tensor.stride[1] > 1:
        return ".T.contiguous().T"
    return ""


def _given(argument: Argument, plan: Plan) -> str:
    if argument.name in plan.tensors or argument.name in plan.dims:
        return argument.name
    value = plan.call.arguments.get(argument.name) if plan.call else None
    if STRIDE.search(argument.name) and argument.kind == "integer":
        return _stride(argument.name, value, plan)
    if value is not None:
        return repr(value)
    if argument.default is not UNKNOWN:
        return repr(argument.default)
    plan.to_do.append(f"arguments: the value of {argument.name}")
    return "1e-6" if argument.kind == "number" else "None" if argument.kind == "descriptor" else "1"


def _stride(name: str, value: Any, plan: Plan) -> str:
    """Return `tensor.stride(axis)`: of the tensor that the name begins like, at the axis whose stride has the value."""
    letters = re.sub(r"stride|_", "", name.lower())
    if "stride" not in name.lower():
        letters = letters.removeprefix("s")
    best = sorted(plan.tensors, key=lambda each: not each.lower().startswith(letters[:1] or "?"))
    for tensor in best:
        rank = len(plan.tensors[tensor])
        recorded = plan.call.arguments[tensor] if plan.call else None
        if isinstance(recorded, Tensor) and isinstance(value, int):
            if value in recorded.stride:
                return f"{tensor}.stride({recorded.stride.index(value)})"
        elif tensor.lower().startswith(letters[:1] or "?") and rank:
            axis = next((at for at, extent in enumerate(plan.tensors[tensor]) if letters[1:] and extent.lower() == letters[1:]), 0)
            return f"{tensor}.stride({axis})"
    plan.to_do.append(f"arguments: the stride {name}")
    return repr(value) if isinstance(value, int) else "1"


def _constexpr(argument: Argument, plan: Plan) -> Any:
    if argument.name in plan.dims:
        return argument.name
    if argument.name in plan.covers:
        return f"triton.next_power_of_2({plan.covers[argument.name]})"
    constant = (plan.call.constexprs if plan.call else {}).get(argument.name, plan.kernel.fixed.get(argument.name, UNKNOWN))
    if constant is UNKNOWN and argument.default is UNKNOWN:
        extents = next(iter(plan.tensors.values()), ["1"])
        if re.search(r"BLOCK|SIZE", argument.name.upper()):
            plan.to_do.append(f"arguments: {argument.name} is taken as the next power of two of a row; check it")
            return f"triton.next_power_of_2({extents[-1]})"
        plan.to_do.append(f"arguments: the value of {argument.name}")
        return repr(spaces.assumed_constexprs(plan.kernel, {}, {}).get(argument.name, 1))
    return UNKNOWN if constant is UNKNOWN else repr(constant)


def _reference(plan: Plan) -> list[str]:
    inputs = [f'args["{name}"]' for name in plan.inputs]
    lines, to_do = references.write(plan.kernel.name, inputs, plan.is_matmul)
    plan.to_do.append(to_do)
    return lines


def _flops(plan: Plan) -> str:
    if plan.is_matmul:
        return "2 * M * N * K"
    elements = " * ".join(plan.tensors.get(plan.out, ["1"])) or "1"
    if flops := references.flops(plan.kernel.name, len(plan.inputs), elements):
        return flops
    plan.to_do.append("flops: one per element of the result is proposed")
    return elements


def _operator(plan: Plan) -> list[str]:
    kernel = plan.kernel
    moved = " + ".join(" * ".join(extents) for extents in plan.tensors.values()) or "1"
    dtypes = _dtypes(plan)
    lines = ["OPERATORS = [TritonOperator(", f'    name="{kernel.name[:40]}", title="{kernel.name}", kernel={kernel.name},',
             "    dims=(" + ", ".join(f'Dim("{name}", "{name}", high=1 << 30)' for name in plan.dims) + ",),",
             "    dtypes=(" + ", ".join(f'"{dtype}"' for dtype in dtypes) + ",),",
             "    presets=({" + ", ".join(f'"{name}": {value}' for name, value in plan.dims.items()) + "},),",
             f'    arguments=arguments, grid={_grid(plan)}, out="{plan.out}",',
             f'    reference=reference, flops="{_flops(plan)}", bytes="size * ({moved})",',
             f'    unit="{"FLOP/s" if plan.is_matmul else "B/s"}",']
    params = plan.params
    if kernel.configs == ():
        default = {**spaces.default_of(kernel, params), **_launched(plan, params)}
        values = {name: _tuple(sorted({*some, default[name]}, key=_order)) for name, some in params.items()}
        lines += [f"    params={_mapping(values)},",
                  f"    default={_mapping({name: repr(value) for name, value in default.items()})},"]
        rules = {f"{' × '.join(tile)} accumulators fit into the registers": f"{' * '.join(tile)} <= 255 * 32 * num_warps"
                 for tile in kernel.tiles if all(name in params for name in tile)}
        if rules:
            lines.append(f"    constraints={_mapping({reason: repr(rule) for reason, rule in rules.items()})},".replace("'", '"'))
    lines[-1] = lines[-1].rstrip(",") + ")]"
    return lines


def _launched(plan: Plan, params: Mapping[str, Any]) -> dict[str, Any]:
    constants = {**plan.call.constexprs, **plan.call.options} if plan.call else {}
    return {name: value for name, value in constants.items() if name in params}


def _order(value: Any) -> tuple[str, Any]:
    return type(value).__name__, value


def _tuple(values: Sequence[Any]) -> str:
    return "(" + ", ".join(map(repr, values)) + ("," if len(values) == 1 else "") + ")"


def _mapping(values: Mapping[str, str]) -> str:
    return "{" + ", ".join(f'"{name}": {value}' for name, value in values.items()) + "}"


def _dtypes(plan: Plan) -> list[str]:
    if plan.call is not None:
        dtypes = [DTYPES[entry.dtype] for entry in plan.call.arguments.values() if isinstance(entry, Tensor) and entry.is_float]
        first = next((dtype for dtype in dtypes if dtype != "fp32"), dtypes[0] if dtypes else "bf16")
        return list(dict.fromkeys([first, "bf16", "fp16"])) if first in ("bf16", "fp16") else [first]
    return ["bf16", "fp16"]


def _grid(plan: Plan) -> str:
    if plan.kernel.grid:
        return plan.kernel.grid
    if recorded := _recorded_grid(plan):
        return recorded
    plan.to_do.append("grid: guessed; check it")
    params = plan.params
    blocks = [name for name in params if name not in spaces.OPTIONS]
    dims = [name for name in plan.dims if any(argument.name == name for argument in plan.kernel.arguments)]
    tile = plan.kernel.tiles[0] if plan.kernel.tiles else ()
    if plan.is_matmul and len(tile) == 2:
        return f'lambda meta: (triton.cdiv(meta["M"], meta["{tile[0]}"]) * triton.cdiv(meta["N"], meta["{tile[1]}"]),)'
    if len(dims) == 1 and blocks:
        return f'lambda meta: (triton.cdiv(meta["{dims[0]}"], meta["{blocks[0]}"]),)'
    return f'lambda meta: (meta["{dims[0]}"],)' if dims else "lambda meta: (1,)"


def _recorded_grid(plan: Plan) -> str:
    """Return the first guess for each axis that gives the recorded number of programs; "" where one has none."""
    if plan.call is None or not plan.call.grid:
        return ""
    values = {**plan.call.arguments, **plan.call.constexprs}
    names = {argument.name for argument in plan.kernel.arguments}
    dims = [name for name in plan.dims if isinstance(values.get(name), int) and name in names]
    blocks = [name for name in plan.params if isinstance(values.get(name), int) and name not in spaces.OPTIONS]
    grids = {f'triton.cdiv(meta["{dim}"], meta["{block}"])': -(-values[dim] // values[block]) for dim in dims for block in blocks}
    grids |= {f"{first} * {other}": grids[first] * grids[other] for first, other in combinations(list(grids), 2)}
    grids |= {f'meta["{dim}"]': values[dim] for dim in dims}
    grids |= {f'meta["{name}"].shape[{axis}]': size for name in plan.tensors for axis, size in enumerate(values[name].shape)}
    if plan.is_matmul and len(plan.kernel.tiles[0]) == 2:           # the product that is meant, where several give the number
        rows, columns = plan.kernel.tiles[0]
        meant = f'triton.cdiv(meta["M"], meta["{rows}"]) * triton.cdiv(meta["N"], meta["{columns}"])'
        grids = {meant: grids[meant], **grids} if meant in grids else grids
    axes = [next((text for text, size in grids.items() if size == count), "1" if count == 1 else "") for count in plan.call.grid]
    while len(axes) > 1 and axes[-1] == "1":
        axes.pop()
    return f"lambda meta: ({', '.join(axes)}{',' if len(axes) == 1 else ''})" if all(axes) else ""


def import_lines(module: str, names: Sequence[str]) -> list[str]:
    """Return the lines that import names of a module; one like `01-intro`, which no import statement can name, by importlib."""
    if all(part.isidentifier() and not keyword.iskeyword(part) for part in module.split(".")):
        return [f"from {module} import {', '.join(names)}"]
    return ["import importlib", "", f'_kernels = importlib.import_module("{module}")',
            *(f"{name} = _kernels.{name}" for name in names)]


def module_of(name: str) -> str:
    """Return the name by which the adapter imports the kernel's file. Raises Refused for one that is none."""
    if not re.fullmatch(r"[\w-]+", name):
        raise Refused(f"{name}.py cannot be imported by that name: letters, digits, _ and - alone")
    return name
