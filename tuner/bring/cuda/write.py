"""`operators init` of CUDA C++: a CudaOperator with what the text tells, and what only its author knows left to write."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profiles.base.refused import Refused
from tuner.bring import references
from tuner.bring.cuda.source import CudaSource
from tuner.bring.cuda.space import NUMBERS_OF_TENSORS, is_tensors_type, type_of
from tuner.bring.cuda.space import TYPES as C_NAMES
from tuner.bring.samples import GPU
from tuner.bring.write import Draft
from tuner.tuning.cuda.functions import BLOCK, CudaArgument, TemplateParam

SIZE, ALONE_SIZE = 4096, 1 << 22
TYPES = {"int": "int32", "unsigned int": "int32", "unsigned": "int32", "long long": "int64", "int64_t": "int64", "int32_t": "int32",
         "size_t": "int64", "float": "float32", "double": "float64", "__half": "float16", "half": "float16",
         "__nv_bfloat16": "bfloat16", "nv_bfloat16": "bfloat16", "unsigned char": "uint8", "uint8_t": "uint8", "int8_t": "int8"}
OF_DTYPE = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


@dataclass
class CudaPlan:
    """`dims` with their sizes, `tensors` with the text of each extent, `out` what is written, `to_do` for its author."""

    source: CudaSource
    dims: dict[str, int] = field(default_factory=dict)
    tensors: dict[str, list[str]] = field(default_factory=dict)
    out: str = ""
    to_do: list[str] = field(default_factory=list)

    @property
    def is_matmul(self) -> bool:
        return {"M", "N", "K"} <= self.dims.keys() and len(self.tensors) == 3

    @property
    def inputs(self) -> list[str]:
        return [name for name in self.tensors if name != self.out]


def write_cuda_adapter(source: CudaSource, kernel_file: str) -> Draft:
    """Return the adapter of a function; `kernel_file` is how it names its .cu file, which lies beside it. Raises Refused."""
    if source.function.problem:
        raise Refused(f"{source.function.name} cannot be read: {source.function.problem}")
    if any(argument.kind == "struct" for argument in source.function.arguments):
        raise Refused(f"{source.function.name} takes a struct: only addresses and numbers can be passed")
    plan = make_plan(source)
    name, params = source.function.name, source.params
    typed = [parameter.name for parameter in source.function.template if parameter.is_type]
    dtypes = _dtypes(source, bool(typed))
    block, smem = _block(plan), _smem(plan)
    moved = " + ".join(" * ".join(extents) for extents in plan.tensors.values()) or "1"
    default = source.default_for(GPU)
    elements = " * ".join(plan.tensors.get(plan.out, ["1"])) or "1"
    flops = "2 * M * N * K" if plan.is_matmul else references.flops(name, len(plan.inputs), elements)
    if not flops:
        flops = elements
        plan.to_do.append("flops: one per element of the result is proposed")
    reference, to_do = references.write(name, [f'args["{tensor}"]' for tensor in plan.inputs], plan.is_matmul)
    plan.to_do.append(to_do)
    grid = _grid(plan)
    template = [_template(plan, parameter) for parameter in source.function.template]
    while template and not template[-1]:                # defaults of the file's own
        template.pop()
    kernel = f'CudaKernel(Path(__file__).with_name("{kernel_file}"), "{name}"'
    kernel += f", template={_texts(template)}" if template else ""
    tied = ", ".join(f'"{follower}": "{tie.macro}"' for follower, tie in source.tied.items())
    kernel += f", defines={{{tied}}})" if tied else ")"
    presets = ", ".join(f'"{dim}": {size}' for dim, size in plan.dims.items())
    says = "`manage.py operators check` says what is left to do."
    lines = [f'"""{name} as an operator of Ridgepoint: {says}"""', "",
             "from pathlib import Path", "", "import torch", "",
             "from tuner.team.adapter import CudaKernel, CudaOperator, Dim, cdiv", "", "",
             *_arguments(plan, typed), "", "", *reference, "", "", *(line for part in (block, smem) for line in part.lines),
             "OPERATORS = [CudaOperator(", f'    name="{name[:40]}", title="{name}", kernel={kernel},',
             "    dims=(" + ", ".join(f'Dim("{dim}", "{dim}", high=1 << 30)' for dim in plan.dims) + ",),",
             f"    dtypes={_texts(dtypes)},", f"    presets=({{{presets}}},),",
             f'    arguments=arguments, grid={grid}, out={plan.out!r},'.replace("'", '"'),
             *(f"    {name}={part.text}," for name, part in (("block", block), ("smem", smem)) if part.text),
             f'    reference=reference, flops="{flops}", bytes="size * ({moved})",',
             f'    unit="{"FLOP/s" if plan.is_matmul else "B/s"}",',
             "    params={" + ", ".join(f'"{param}": {values!r}' for param, values in params.items()) + "},",
             "    default={" + ", ".join(f'"{param}": {value!r}' for param, value in default.items()) + "},",
             f"    constraints={_constraints(source)})]", ""]
    return Draft("\n".join(lines), tuple(plan.to_do))


def make_plan(source: CudaSource) -> CudaPlan:
    """Return dimensions and tensors as far as names and the script tell them."""
    plan = CudaPlan(source)
    arguments = source.function.arguments
    integers = [arg.name for arg in arguments if arg.kind == "integer"]
    plan.dims = dict.fromkeys(integers, SIZE if len(integers) > 1 else ALONE_SIZE)
    sizes = (source.tuner or {}).get("sizes", [])
    if not plan.dims:
        names = ("N",) if len(sizes) < 2 else ("N", "M", "K")[:len(sizes)]
        plan.dims = dict(zip(names, sizes or [ALONE_SIZE], strict=False))
        plan.to_do.append("dims: no argument of the function tells the size; " + ", ".join(plan.dims) + " stand for it")
    elif len(sizes) == 1 and len(plan.dims) == 1:
        plan.dims = {integers[0]: sizes[0]}
    pointers = [arg for arg in arguments if arg.pointer]
    extents = list(plan.dims)[:2]
    matmul = {"M", "N", "K"} <= plan.dims.keys() and len(pointers) == 3
    count = 0
    for arg in pointers:
        plan.tensors[arg.name] = extents
        if matmul:
            plan.tensors[arg.name] = ["M", "N"] if arg.written else (["M", "K"], ["K", "N"], ["M", "N"])[min(count, 2)]
            count += not arg.written
    written = [arg for arg in pointers if arg.written]
    unsure = [arg.name for arg in pointers if arg.unsure]
    plan.out = written[0].name if written else ""
    if not written:
        plan.to_do.append("out: the file does not tell what is written" + (f"; {', '.join(unsure)} go to code that is not in it"
                                                                            if unsure else "") + "; name it")
    elif len(written) > 1 or unsure:
        plan.to_do.append(f"out: {', '.join([arg.name for arg in written])} {'are' if len(written) > 1 else 'is'} written"
                          + (f", and perhaps {', '.join(unsure)}" if unsure else "") + "; name the one to compare")
    if written and written[0].read:
        plan.to_do.append(f"arguments: {plan.out} is read as well as written: give it its values by `fill`")
    plan.to_do.append("arguments: the shapes of tensors are guessed from names")
    return plan


def _arguments(plan: CudaPlan, typed: list[str]) -> list[str]:
    lines = ["def arguments(shape, dtype, device):"]
    lines += [f'    {_local(name)} = shape["{name}"]' for name in plan.dims]
    for name, extents in plan.tensors.items():
        argument = next(candidate for candidate in plan.source.function.arguments if candidate.name == name)
        kind = TYPES.get(argument.type)
        shape = f"({', '.join(map(_local, extents))}{',' if len(extents) == 1 else ''})"
        dtype = "dtype" if kind is None or kind in OF_DTYPE else f"torch.{kind}"
        if kind is None and argument.type not in typed:
            plan.to_do.append(f"arguments: {name} is a {argument.type}*")
        make = "zeros" if dtype != "dtype" and name != plan.out else "empty"
        lines.append(f"    {_local(name)} = torch.{make}({shape}, dtype={dtype}, device=device)")
    entries = [f'"{candidate.name}": {_given(candidate, plan)}' for candidate in plan.source.function.arguments]
    return [*lines, "    return {" + ", ".join(entries) + "}"]


def _local(name: str) -> str:
    """Return a name for a variable of Python: C++ may call an argument `in`, `shape` or `torch`."""
    return f"{name}_" if keyword.iskeyword(name) or name in ("shape", "dtype", "device", "torch") else name


def _given(argument: CudaArgument, plan: CudaPlan) -> str:
    if argument.name in plan.tensors or argument.name in plan.dims:
        return _local(argument.name)
    plan.to_do.append(f"arguments: the value of {argument.name}")
    return "0.0" if argument.name == "beta" else "1.0" if argument.kind == "number" else "1"       # C = alpha A B + beta C


def _dtypes(source: CudaSource, is_typed: bool) -> list[str]:
    """Return the types that the function's own text allows: all of a template's, else that of its tensors."""
    if is_typed:
        dtypes = [NUMBERS_OF_TENSORS.get(C_NAMES.get(str(text), str(text)), "") for parameter in source.function.template
                  if parameter.is_type for text in parameter.launched]
        return list(dict.fromkeys([*filter(None, dtypes), "fp32", "fp16", "bf16"]))
    kinds = [TYPES.get(argument.type, "") for argument in source.function.arguments if argument.pointer]
    return [OF_DTYPE[kind] for kind in kinds if kind in OF_DTYPE][:1] or ["fp32"]


def _grid(plan: CudaPlan) -> str:
    source, script = plan.source, plan.source.tuner
    names = list(plan.dims)
    if script is not None:
        rank = max(1, min(len(script["sizes"]) or 1, len(names)))
        axes = []
        for axis, divisor in zip(range(rank), ("grid_div_x", "grid_div_y", "grid_div_z"), strict=False):
            by = script[divisor] if script[divisor] is not None else [BLOCK[axis]]
            product = " * ".join(f'meta["{factor}"]' if factor in source.params else factor for factor in by) or "1"
            axes.append(f'cdiv(meta["{names[axis]}"], {product})')
        if len(script["sizes"]) > len(names):
            plan.to_do.append(f"grid: the script's problem size is {script['problem_size']}; check it")
        return _lambda(axes)
    if source.function.grid and all(_names(formula) <= {*source.params, *names} for formula in source.function.grid):
        return _lambda([_meta(formula) for formula in source.function.grid])
    plan.to_do.append("grid: guessed; check it")
    if {"BM", "BN"} <= source.params.keys() and {"M", "N"} <= plan.dims.keys():
        return _lambda(['cdiv(meta["N"], meta["BN"])', 'cdiv(meta["M"], meta["BM"])'])
    axes = [formula for formula in source.block if formula != "1"]
    return _lambda([f'cdiv(meta["{name}"], {_meta(extent or "1")})' for name, extent in zip(names, axes, strict=False)]
                   or [f'cdiv(meta["{names[0]}"], 256)'])


@dataclass(frozen=True)
class _Field:
    """`text` of a field of the operator, "" for none, and the `lines` of a function that it names."""

    text: str = ""
    lines: tuple[str, ...] = ()


def _block(plan: CudaPlan) -> _Field:
    """Return the threads of a block where block_size_x, _y, _z do not say them; a function to write where nothing tells them."""
    source = plan.source
    if not source.knows_block:
        plan.to_do.append("block: the file does not tell the threads of a block; write them")
        return _Field("block", ("def block(meta):", '    """Return the threads of a block along x, y, z."""',
                                '    raise NotImplementedError("write the threads of a block: the file tells none")', "", ""))
    if all(extent in (name, "1") for extent, name in zip(source.block, BLOCK, strict=True)) and source.block[0] != "1":
        return _Field()
    if any(dimension.implied for dimension in source.function.block):
        plan.to_do.append("block: read from index arithmetic; check it")
    axes = list(source.block)
    while len(axes) > 1 and axes[-1] == "1":
        axes.pop()
    return _Field(_lambda([_meta(formula) for formula in axes]))


def _smem(plan: CudaPlan) -> _Field:
    function = plan.source.function
    if function.smem and _names(function.smem) <= plan.source.params.keys():
        return _Field(f"lambda meta: {_meta(function.smem)}")
    if not function.dynamic_shared or function.smem == "":
        return _Field()
    plan.to_do.append("smem: the file does not tell the bytes of dynamic shared memory; write them")
    return _Field("smem", ("def smem(meta):", '    """Return the bytes of dynamic shared memory."""',
                           '    raise NotImplementedError("write the bytes of dynamic shared memory: the file tells none")',
                           "", ""))


def _template(plan: CudaPlan, param: TemplateParam) -> str:
    """Return what stands for a template parameter in the adapter."""
    source = plan.source
    if param.is_type:
        return "{dtype}" if is_tensors_type(source.function, param) else type_of(source.function, param, "", source.holds.types)
    if param.name in source.params:
        return "{" + param.name + "}"
    text = source.given.get(param.name, param.default)
    if not text and not param.default:
        plan.to_do.append(f"template: the value of {param.name} ({param.type})")
    return text


def _names(expression: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", expression)) - {"cdiv", "min", "max"}


def _meta(expression: str) -> str:
    """Return an expression over parameters and arguments as Python over `meta`."""
    return re.sub(r"[A-Za-z_]\w*", lambda match: match[0] if match[0] in ("cdiv", "min", "max") else f'meta["{match[0]}"]',
                  expression)


def _lambda(axes: list[str]) -> str:
    return f"lambda meta: ({', '.join(axes)}{',' if len(axes) == 1 else ''})"


def _constraints(source: CudaSource) -> str:
    threads = [f"({extent})" if " " in extent else extent for extent in source.block if extent in source.params or (_names(extent)
               and _names(extent) <= source.params.keys())]
    rules: Mapping[str, str] = {**source.rules, **({"threads per block": f"{' * '.join(threads)} <= threads"} if threads else {})}
    return "{" + ", ".join(f"{reason!r}: {rule!r}" for reason, rule in rules.items()).replace("'", '"') + "}"


def _texts(values: list[Any]) -> str:
    return "(" + ", ".join(f'"{word}"' for word in values) + ("," if len(values) == 1 else "") + ")"


def file_beside(source: CudaSource, adapter: Path) -> tuple[str, str | None]:
    """Return how the adapter names its .cu file, and the text to write there where the kernel stood in a script."""
    if source.tuner is not None and not source.file.exists():
        return source.file.name, source.text
    if source.file.parent.resolve() != adapter.parent.resolve():
        raise Refused(f"the adapter must lie beside {source.file.name}: name it with --out in {source.file.parent}")
    return source.file.name, None
